/* Command line options of strata_bench and strata_peers. */
#ifndef STRATA_BENCH_ARGUMENTS_H
#define STRATA_BENCH_ARGUMENTS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

/* Exit status for bad usage or input. */
enum { ARGUMENTS_BAD = 2 };

enum { ARGUMENT_FILTER = 256, ARGUMENT_ROUNDS, ARGUMENT_JSON, ARGUMENT_STRICT, ARGUMENT_DRIVER, ARGUMENT_NEXT };

#define ARGUMENT_FILTER_OPTION                                                        \
    {                                                                                 \
        "filter", ARGUMENT_FILTER, "TEXT", 0, "Only rows whose name contains TEXT", 0 \
    }
#define ARGUMENT_JSON_OPTION                                                            \
    {                                                                                   \
        "json", ARGUMENT_JSON, NULL, 0, "Print one JSON object instead of the table", 0 \
    }
#define ARGUMENT_STRICT_OPTION                                                       \
    {                                                                                \
        "strict", ARGUMENT_STRICT, NULL, 0, "Exit status 1 if a target is missed", 0 \
    }
/* argp has --help and -? itself. */
#define ARGUMENT_HELP_OPTION                          \
    {                                                 \
        NULL, 'h', NULL, 0, "Give this help list", -1 \
    }
#define ARGUMENT_DRIVER_OPTION                                                                         \
    {                                                                                                  \
        "driver", ARGUMENT_DRIVER, "DRIVER", 0,                                                        \
            "auto, cuda, sim, or the path of a driver's library; default: STRATA_DRIVER, else auto", 0 \
    }

typedef struct arguments {
    const char *filter, *driver; /* NULL: not given */
    size_t rounds;
    bool json, strict;
} arguments;

/* Parses an option. ARGP_ERR_UNKNOWN for another key. Exits for a bad value or word. */
error_t arguments_parse(arguments *to, int key, char *text, const struct argp_state *state);

/* Exits if the command line is wrong, or after --help. */
void arguments_read(const struct argp *argp, int argc, char **argv, void *into);

/* NULL: the driver of STRATA_DRIVER, else any that there is. Exits without one. */
void arguments_choose_driver(const char *name);

/* `what` may be NULL. */
_Noreturn void arguments_fail(const char *why, const char *what);

#endif
