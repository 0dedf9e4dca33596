/* `strata exec`: starts a program whose GPU memory comes from a stack (adapters/exec). This process becomes the
 * program: its exit status, signals and terminal are the program's own. */
#include "tools/exec/exec.h"

#include "core/base/size_text.h"
#include "resources/budget/shared_internal.h"
#include "tools/command.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum {
    OPTION_DRIVER = 256,
    OPTION_STACK,
    OPTION_BUDGET,
    OPTION_SET_ASIDE,
    OPTION_SHARED,
    OPTION_LOG,
    OPTION_GUARD,
    OPTION_IPC,
    OPTION_MODE,
    OPTION_REPORT,
    OPTION_JSON,
    OPTION_STACKS,
    OPTION_OUTPUT,
    OPTION_FAIL_CLOSED,
    OPTION_CHILDREN,
};

enum { CANNOT_RUN = 126, NOT_FOUND = 127 }; /* exit statuses, as of env and of shells */

static void check_amount(const struct argp_state *state, const char *option, const char *text, const char *example)
{
    double share;
    uint64_t bytes;
    const size_t length = strlen(text);
    if (strata_read_percent(text, length, &share))
        return;
    if (!strata_read_size(text, length, &bytes) || !bytes)
        argp_error(state, "%s: invalid size \"%s\"; expected one such as %s", option, text, example);
    else if (bytes > (uint64_t)INT64_MAX / 2)
        argp_error(state, "%s: %s is above 2^62 bytes", option, text);
}

static void check_shared(const struct argp_state *state, const char *name)
{
    if (!shared_name_is_good(name))
        argp_error(state,
                   "--shared: invalid name \"%s\"; expected at most 48 letters, digits, '.', '_' and '-', and no '.' "
                   "first",
                   name);
}

static void check_mode(const struct argp_state *state, const char *text)
{
    if (strcmp(text, "sanitizer") != 0 && strcmp(text, "normal") != 0)
        argp_error(state, "--mode: unknown \"%s\"; expected sanitizer or normal", text);
}

/* Reads how many call stacks are listed; without a number, ten. */
static unsigned read_stacks(const struct argp_state *state, const char *text)
{
    char *end;
    const unsigned long count = text ? strtoul(text, &end, 10) : 10;
    if (text && (!*text || *end || *text == '-' || !count || count > 10000))
        argp_error(state, "--stacks: invalid \"%s\"; expected how many call stacks are listed, such as 20", text);
    return (unsigned)count;
}

static error_t parse_switch(int key, exec_request *to)
{
    switch (key) {
    case OPTION_GUARD:
        to->guard = true;
        return 0;
    case OPTION_IPC:
        to->ipc = true;
        return 0;
    case OPTION_JSON:
        to->json = to->report = true;
        return 0;
    case OPTION_REPORT:
        to->report = true;
        return 0;
    case OPTION_FAIL_CLOSED:
        to->fail_closed = true;
        return 0;
    case OPTION_CHILDREN:
        to->children = true;
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static error_t parse_value(int key, char *text, const struct argp_state *state, exec_request *to)
{
    switch (key) {
    case OPTION_DRIVER:
        to->driver = text;
        return 0;
    case OPTION_STACK:
        to->stack = text;
        return 0;
    case OPTION_BUDGET:
        check_amount(state, "--budget", text, "8GiB, or a share such as 50%");
        to->budget = text;
        return 0;
    case OPTION_SET_ASIDE:
        check_amount(state, "--set-aside", text, "600MiB, or a share of the device such as 5%");
        to->set_aside = text;
        return 0;
    case OPTION_SHARED:
        check_shared(state, text);
        to->shared = text;
        return 0;
    case OPTION_LOG:
        to->log = text;
        return 0;
    case OPTION_OUTPUT:
        to->output = text;
        to->report = true;
        return 0;
    case OPTION_STACKS:
        to->stacks = read_stacks(state, text);
        to->report = true;
        return 0;
    case OPTION_MODE:
        check_mode(state, text);
        to->mode = text;
        return 0;
    default:
        return parse_switch(key, to);
    }
}

/* The first word that is no option begins the command. */
static error_t parse(int key, char *text, struct argp_state *state)
{
    exec_request *to = state->input;
    switch (key) {
    case ARGP_KEY_ARG:
        to->command = &state->argv[state->next - 1];
        state->next = state->argc;
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "missing COMMAND");
        return EINVAL;
    default:
        return parse_value(key, text, state, to);
    }
}

static const struct argp_option options[] = {
    {"driver", OPTION_DRIVER, "DRIVER", 0,
     "auto, cuda, sim, or the path of a libcuda.so.1; default: auto, which is sim where there is no GPU", 0},
    {"stack", OPTION_STACK, "TEXT", 0, "The stack that memory comes from; default: pool", 0},
    {"budget", OPTION_BUDGET, "SIZE", 0,
     "At most so much memory, such as 8GiB or 50%; the program sees a device of that size", 0},
    {"set-aside", OPTION_SET_ASIDE, "SIZE", 0,
     "Keep so much of the budget, such as 600MiB or 5% of the device, for what no call asks for: contexts, modules, "
     "libraries' own memory. Charged for each process and device from the device's first use on; the report says how "
     "much was needed",
     0},
    {"shared", OPTION_SHARED, "NAME", 0, "Share the budget with all processes that give this name", 0},
    {"log", OPTION_LOG, "FILE", 0,
     "Log every allocation and free; strata log reads it. %p in FILE is the process, %% a %. A FILE that exists is "
     "replaced",
     0},
    {"guard", OPTION_GUARD, NULL, 0, "Find writes outside of blocks and into freed ones", 0},
    {"ipc", OPTION_IPC, NULL, 0, "Memory can be given to other processes under strata exec (cuIpcGetMemHandle)", 0},
    {"mode", OPTION_MODE, "MODE", 0, "sanitizer: compute-sanitizer sees every block; default: normal", 0},
    {"report", OPTION_REPORT, NULL, 0, "At the end, report the memory of each library", 0},
    {"json", OPTION_JSON, NULL, 0, "Report one JSON object; implies --report", 0},
    {"stacks", OPTION_STACKS, "COUNT", OPTION_ARG_OPTIONAL,
     "Report the COUNT call stacks with the highest peaks, and what is still live at the end by call stack, with the "
     "lines of Python code; default: 10; implies --report",
     0},
    {"output", OPTION_OUTPUT, "FILE", 0,
     "Write the report to FILE, not to standard error; implies --report. %p in FILE is the process, %% a %. A "
     "FILE that exists is replaced",
     0},
    {"fail-closed", OPTION_FAIL_CLOSED, NULL, 0,
     "Where the stack cannot be built, or the program not be seen, refuse memory; default: say so and go on", 0},
    {"children", OPTION_CHILDREN, NULL, 0, "Programs that COMMAND starts run so, too", 0},
    {0},
};

static const char documentation[] =
    "Runs COMMAND, unchanged, with its GPU memory from a Strata stack: under a budget, with a log, or guarded.\vThe "
    "program may be linked to libcuda, load it, or use the CUDA runtime. What no stack can give (managed memory, "
    "arrays, "
    "imported memory of other interfaces, memory of the driver's own pools) is passed on to the driver, and charged to "
    "the budget.\n\nExit status: that of "
    "COMMAND; 2: bad usage; 126: COMMAND cannot be run, or not be seen with --fail-closed; 127: it was not found.";

static const struct argp usage = {options, parse, "[--] COMMAND [ARGUMENT...]", documentation, command_common,
                                  NULL,    NULL};

static const command_values values[] = {{"driver", COMMAND_DRIVERS, true},
                                        {"mode", "sanitizer normal", false},
                                        {"log", NULL, true},
                                        {"output", NULL, true},
                                        {"stack", COMMAND_WORDS_LAYERS, false},
                                        {"", NULL, true},
                                        {0}};

/* Says if the program's calls are not seen. False: it must not run, then. */
static bool say_if_blind(const exec_request *request)
{
    static const char *const reasons[] = {
        [EXEC_SIGHT_STATIC] = "is linked statically, so that nothing can be loaded before it",
        [EXEC_SIGHT_PRIVILEGED] = "runs with other rights than its user, so that the loader takes no library from here",
        [EXEC_SIGHT_FOREIGN] = "is for another processor",
    };
    const exec_sight sight = exec_inspect(request->command[0]);
    if (sight == EXEC_SIGHT_CLEAR)
        return true;
    fprintf(stderr, "%s: %s %s: its calls are not seen%s\n", request->program, request->command[0], reasons[sight],
            request->fail_closed ? ", and it is not run (--fail-closed)" : ", and it runs without Strata");
    return !request->fail_closed;
}

static int run(int argc, char **argv)
{
    exec_request request = {.program = argv[0]};
    char stack[4096], again[4096];
    if (!command_parse(&usage, argc, argv, ARGP_IN_ORDER, &request) || !exec_check_set_aside(&request) ||
        !exec_check_files(&request) || !exec_compose_stack(&request, false, stack, sizeof stack) ||
        !exec_compose_stack(&request, true, again, sizeof again))
        return COMMAND_USAGE;
    if (!say_if_blind(&request))
        return CANNOT_RUN;
    if (!exec_prepare_environment(&request, stack, again))
        return COMMAND_USAGE;
    fflush(NULL);
    execvp(request.command[0], request.command);
    const int reason = errno;
    fprintf(stderr, "%s: %s: %s\n", request.program, request.command[0], strerror(reason));
    return reason == ENOENT ? NOT_FOUND : CANNOT_RUN;
}

const command command_exec = {"exec", "strata exec", "run a program whose GPU memory comes from a stack",
                              &usage, values,        run};
