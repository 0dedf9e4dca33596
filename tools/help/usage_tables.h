/* The tables behind --help, for manual pages and completion. */
#ifndef STRATA_TOOLS_HELP_USAGE_TABLES_H
#define STRATA_TOOLS_HELP_USAGE_TABLES_H

#include "tools/command.h"

#include <stdio.h>

enum { USAGE_OPTIONS = 64 };

typedef struct usage_option {
    const char *name;  /* without the dashes */
    const char *value; /* such as "SIZE"; NULL: none */
    const char *help;
    char letter; /* 0: none */
} usage_option;

/* The visible options of a command line, those of all commands last. Returns how many. */
size_t usage_options(const struct argp *argp, usage_option out[USAGE_OPTIONS]);

/* What an option (its long name) or the arguments ("") take. Never NULL; without words and files if nothing is known.
 */
const command_values *usage_values(const command *of, const char *option);

/* Prints the words, with a space between two. */
void usage_print_words(FILE *to, const char *words);

/* Prints the manual page of a command; NULL: of the program. */
void usage_print_manual(FILE *to, const command *of);

#endif
