#include "options.h"

#include <errno.h>
#include <stdlib.h>

enum { OPTION_STACK = ARGUMENT_NEXT, OPTION_PEER, OPTION_TRACES, OPTION_SECONDS, OPTION_QUICK, OPTION_LIST };

static const char documentation[] =
    "Measures stacks of Strata's beside the driver's pool, other allocators and, as the floor, host memory: all do the "
    "same work, take turns round by round, and the median of the rounds counts."
    "\v"
    "Exit status: 0; 1 if a competitor hands out memory that is not free, or a target is missed with --strict; 2 for "
    "bad usage or input.";

static const struct argp_option known[] = {
    {"stack", OPTION_STACK, "TEXT", 0,
     "A stack that competes; may be given several times; default: async, direct, null, pool, and the stack for "
     "production",
     0},
    {"peer", OPTION_PEER, "LIBRARY", 0,
     "A competitor from a library (bench/peers/peer.h); bench/peers/build-torch makes PyTorch's, bench/peers/build-rmm "
     "RMM's; may be given several times",
     0},
    {"traces", OPTION_TRACES, "FOLDER", 0,
     "Where traces are, *.csv and *.csv.gz; default: STRATA_TRACES, else examples/traces", 0},
    ARGUMENT_FILTER_OPTION,
    {"rounds", ARGUMENT_ROUNDS, "N", 0, "1 to 1001 rounds, from 15 on for figures that count; default: 21", 0},
    {"seconds", OPTION_SECONDS, "S", 0,
     "What the rounds of one competitor may take for a row; a slow one has fewer; default: 2", 0},
    ARGUMENT_JSON_OPTION,
    ARGUMENT_STRICT_OPTION,
    {"quick", OPTION_QUICK, NULL, 0,
     "One round of sequences that are cut short: shows that everything works, measures nothing", 0},
    {"list", OPTION_LIST, NULL, 0, "The names of the rows, and nothing else", 0},
    ARGUMENT_DRIVER_OPTION,
    ARGUMENT_HELP_OPTION,
    {0},
};

static double read_seconds(const struct argp_state *state, const char *text)
{
    char *end;
    errno = 0;
    const double seconds = strtod(text, &end);
    if (errno || end == text || *end || !(seconds > 0) || seconds > 3600)
        argp_error(state, "--seconds takes a number above 0, up to 3600: %s", text);
    return seconds;
}

static void add_named(const struct argp_state *state, const char *names[], size_t *count, const char *name)
{
    if (*count == OPTIONS_NAMED)
        argp_error(state, "that is one competitor too many: %s", name);
    names[(*count)++] = name;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    options *to = state->input;
    switch (key) {
    case OPTION_STACK:
        add_named(state, to->stacks, &to->stack_count, text);
        return 0;
    case OPTION_PEER:
        add_named(state, to->libraries, &to->library_count, text);
        return 0;
    case OPTION_TRACES:
        to->traces = text;
        return 0;
    case OPTION_SECONDS:
        to->seconds = read_seconds(state, text);
        return 0;
    case OPTION_QUICK:
        to->quick = true;
        return 0;
    case OPTION_LIST:
        to->list = true;
        return 0;
    default:
        return arguments_parse(&to->usual, key, text, state);
    }
}

options options_read(int argc, char **argv)
{
    static const struct argp argp = {known, parse, NULL, documentation, NULL, NULL, NULL};
    options given = {.usual.rounds = 21, .seconds = 2};
    arguments_read(&argp, argc, argv, &given);
    if (given.quick) {
        given.usual.rounds = 1;
        given.seconds = 0.01;
    }
    return given;
}
