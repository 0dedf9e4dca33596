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
    double seconds;     /* for the rounds of a competitor in a row */
    bool quick, list;
    arguments usual;
} options;

/* Exits if the command line is wrong, or after --help. */
options options_read(int argc, char **argv);

#endif
