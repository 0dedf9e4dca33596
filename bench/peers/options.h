/* The command line of strata_peers. */
#ifndef STRATA_BENCH_OPTIONS_H
#define STRATA_BENCH_OPTIONS_H

#include "arguments.h"
#include "peers.h"

enum { OPTIONS_NAMED = PEERS_LIMIT };

typedef struct options {
    const char *stacks[OPTIONS_NAMED];
    const char *libraries[OPTIONS_NAMED];
    size_t stack_count, library_count;
    const char *traces; /* NULL: not given */
    double seconds;     /* that the rounds of one competitor may take for a row */
    bool quick, list;
    arguments usual;
} options;

/* Reads the command line; ends the program where it cannot be read, or asks for help. */
options options_read(int argc, char **argv);

#endif
