/* What the command lines of strata_bench and strata_peers have in common. */
#ifndef STRATA_BENCH_ARGUMENTS_H
#define STRATA_BENCH_ARGUMENTS_H

#include <argp.h>
#include <stdbool.h>
#include <stddef.h>

/* Exit statuses: EXIT_SUCCESS; EXIT_FAILURE, if it ran and found something wrong; and this, for bad usage or input. */
enum { ARGUMENTS_BAD = 2 };

/* Options that both have. */
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
#define ARGUMENT_DRIVER_OPTION                                                                         \
    {                                                                                                  \
        "driver", ARGUMENT_DRIVER, "DRIVER", 0,                                                        \
            "auto, cuda, sim, or the path of a driver's library; default: STRATA_DRIVER, else auto", 0 \
    }

/* What they say. */
typedef struct arguments {
    const char *filter, *driver; /* NULL: not given */
    size_t rounds;
    bool json, strict;
} arguments;

/* Takes one of them; ARGP_ERR_UNKNOWN for another key. Ends the program where it makes no sense, and for a word that
 * belongs to no option. */
error_t arguments_take(arguments *to, int key, char *text, const struct argp_state *state);

/* Reads the command line; ends the program where it cannot be read, or asks for help. */
void arguments_read(const struct argp *argp, int argc, char **argv, void *into);

/* Takes the driver that --driver names, NULL: STRATA_DRIVER's, else whichever there is. Ends the program without one.
 */
void arguments_choose_driver(const char *name);

/* Ends the program: why, and what it is about, unless that is NULL. */
_Noreturn void arguments_refuse(const char *why, const char *what);

#endif
