/* Shared by the subcommands of `strata`. */
#ifndef STRATA_TOOLS_COMMAND_H
#define STRATA_TOOLS_COMMAND_H

#include <strata/info.h>

#include <argp.h>

/* Exit statuses. */
enum {
    COMMAND_FINE = 0,
    COMMAND_FOUND = 1, /* something wrong or lost output */
    COMMAND_USAGE = 2, /* bad usage, bad input, or no driver */
};

/* ---- the subcommands ---- */

#define COMMAND_WORDS_LAYERS   "@layers"   /* the names of all layers */
#define COMMAND_WORDS_COMMANDS "@commands" /* the names of all subcommands */

/* What an option or the arguments take, for completion. */
typedef struct command_values {
    const char *option; /* its long name; "": the arguments; NULL: the end of the list */
    const char *words;  /* separated by spaces, or COMMAND_WORDS_; NULL: none */
    bool files;         /* names of files too */
} command_values;

/* A subcommand. --help, the manual page and completion are made from this. */
typedef struct command {
    const char *name;
    const char *program; /* name in messages, such as "strata replay"; argv[0] of `run` */
    const char *summary; /* part of a line */
    const struct argp *argp;
    const command_values *values;
    int (*run)(int argc, char **argv);
} command;

extern const command command_budget, command_completion, command_demo, command_exec, command_help, command_info,
    command_layers, command_log, command_replay, command_service, command_top;

extern const command *const command_table[]; /* all of them; ends with NULL */

/* The subcommands that command_at() and the functions below know, as in command_table. */
void command_use(const command *const *all);

/* The subcommand number `index`; NULL: there are fewer. */
const command *command_at(size_t index);
const command *command_find(const char *name);

/* The program `strata` itself. Its parser sets the const command * that it is given, and stops there. */
extern const struct argp command_strata_argp;
extern const char command_strata_summary[];

/* ---- usage ---- */

/* The children of every argp here: -h, --help, --usage and --version. */
extern const struct argp_child command_common[];

/* Parses a command line. False: bad usage. */
bool command_parse(const struct argp *argp, int argc, char **argv, unsigned flags, void *into);

/* The value of an option --NAME, which is a size such as 4MiB. Another text ends the program with a usage error. */
uint64_t command_read_size(const struct argp_state *state, const char *name, const char *text);

/* ---- driver and output ---- */

/* Opens and describes the driver by --driver (NULL: not given), else STRATA_DRIVER, else "auto". False, with the reason
 * on stderr. */
bool command_open_driver(const char *program, const char *choice, strata_driver_info *info);

/* The words of --driver, for completion. */
#define COMMAND_DRIVERS "auto cuda sim"

/* Reports that stdout lost `what`, with errno `reason` or 0, and discards its buffer: it is reported once. Returns
 * COMMAND_FOUND. */
int command_lose_output(const char *program, const char *what, int reason);

/* "sim", "cuda", or the given path. */
const char *command_driver_word(const strata_driver_info *info);

#endif
