#include "arguments.h"

#include "measure.h"
#include "scene.h"

#include <ctype.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static pid_t program_pid; /* of the program, not of its children */

/* Runs at exit, after --help too, and reports a failed write. */
static void close_output(void)
{
    if (getpid() != program_pid)
        return;
    const bool failed = ferror(stdout) != 0;
    errno = 0;
    if (fclose(stdout) == 0 && !failed)
        return;
    fprintf(stderr, "%s: the output could not be written: %s\n", program_invocation_short_name,
            errno ? strerror(errno) : "a write failed");
    _exit(EXIT_FAILURE);
}

void arguments_read(const struct argp *argp, int argc, char **argv, void *into)
{
    program_pid = getpid();
    if (atexit(close_output) != 0)
        arguments_fail("no host memory", NULL);
    argp_err_exit_status = ARGUMENTS_BAD;
    if (argp_parse(argp, argc, argv, 0, NULL, into) != 0)
        exit(ARGUMENTS_BAD);
}

static size_t read_rounds(const struct argp_state *state, const char *text)
{
    char *end;
    errno = 0;
    const unsigned long rounds = strtoul(text, &end, 10);
    if (errno || !isdigit((unsigned char)*text) || *end || rounds < 1 || rounds > BENCH_ROUNDS_LIMIT)
        argp_error(state, "--rounds takes a number from 1 to %d: %s", BENCH_ROUNDS_LIMIT, text);
    return rounds;
}

error_t arguments_parse(arguments *to, int key, char *text, const struct argp_state *state)
{
    switch (key) {
    case ARGUMENT_FILTER:
        to->filter = text;
        return 0;
    case ARGUMENT_ROUNDS:
        to->rounds = read_rounds(state, text);
        return 0;
    case ARGUMENT_JSON:
        to->json = true;
        return 0;
    case ARGUMENT_STRICT:
        to->strict = true;
        return 0;
    case ARGUMENT_DRIVER:
        to->driver = text;
        return 0;
    case 'h':
        argp_state_help(state, state->out_stream, ARGP_HELP_STD_HELP);
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected \"%s\"", text);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

void arguments_choose_driver(const char *name)
{
    if (name && setenv("STRATA_DRIVER", name, 1) != 0)
        scene_check(STRATA_ERROR_OUT_OF_HOST_MEMORY, "setenv");
    scene_check(strata_driver_choose("auto"), "strata_driver_choose");
}

_Noreturn void arguments_fail(const char *why, const char *what)
{
    fprintf(stderr, "%s: %s%s%s\n", program_invocation_short_name, why, what ? ": " : "", what ? what : "");
    exit(ARGUMENTS_BAD);
}
