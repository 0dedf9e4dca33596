/* `strata replay`: options, and the way from traces to a report. */
#include "runtime/environment.h"
#include "tools/command.h"
#include "tools/replay/report.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

enum {
    OPTION_DRIVER = 256,
    OPTION_PACE,
    OPTION_TOUCH,
    OPTION_BUSY,
    OPTION_DEFAULT_STREAM,
    OPTION_JSON,
    OPTION_MAX_MEMORY
};

typedef struct settings {
    replay_options options;
    const char *program;
    const char *driver;
    const char *stack;
    int device;
    uint64_t max_memory; /* bytes of host memory for the traces */
    bool json;
    char **paths;
    size_t path_count;
} settings;

static uint32_t read_option(struct argp_state *state, const char *name, const char *text, uint32_t least, uint32_t most)
{
    errno = 0;
    unsigned long value = strtoul(text, NULL, 10);
    if (!*text || strspn(text, "0123456789") != strlen(text) || errno || value < least || value > most)
        argp_error(state, "--%s is \"%s\": expected a whole number from %u to %u", name, text, least, most);
    return (uint32_t)value;
}

/* The layers of a service: the report shows their counts. The log is discarded; its ring is large, since a replay
 * leaves the writer no pause. */
static const char usual_stack[] = "budget, logging(format=null, ring=32768), statistics, pool";

/* The stack to be replayed on; NULL: the environment names one. */
static const char *stack_of(const settings *from)
{
    if (from->stack)
        return from->stack;
    return strata_runtime_environment_stack() ? NULL : usual_stack;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_DRIVER:
        to->driver = text;
        return 0;
    case 'd':
        to->device = (int)read_option(state, "device", text, 0, 1023);
        return 0;
    case 's':
        to->stack = text;
        return 0;
    case 't':
        to->options.threads = read_option(state, "threads", text, 1, 1024);
        return 0;
    case 'r':
        to->options.repeat = read_option(state, "repeat", text, 1, 1000000);
        return 0;
    case 'S':
        to->options.share = read_option(state, "share", text, 0, 100);
        return 0;
    case OPTION_PACE:
        to->options.pace = true;
        return 0;
    case OPTION_BUSY:
        to->options.busy = true;
        return 0;
    case OPTION_DEFAULT_STREAM:
        to->options.default_stream = true;
        return 0;
    case OPTION_TOUCH:
        to->options.touch = true;
        return 0;
    case OPTION_MAX_MEMORY:
        to->max_memory = command_read_size(state, "max-memory", text);
        return 0;
    case OPTION_JSON:
        to->json = true;
        return 0;
    case ARGP_KEY_ARGS:
        to->paths = state->argv + state->next;
        to->path_count = (size_t)(state->argc - state->next);
        return 0;
    case ARGP_KEY_NO_ARGS:
        argp_error(state, "missing TRACE");
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"driver", OPTION_DRIVER, "DRIVER", 0,
     "auto (the GPU if there is one, else the simulated driver), cuda, sim, or the path of a driver's library; "
     "default: "
     "STRATA_DRIVER, else auto",
     0},
    {"device", 'd', "N", 0, "The device's ordinal; default: 0", 0},
    {"stack", 's', "TEXT", 0,
     "The stack, such as \"async(max_size=8GiB)\"; default: STRATA_STACK, else \"budget, logging, statistics, pool\"",
     0},
    {"threads", 't', "N", 0, "Distribute the streams over N threads; default: 1", 0},
    {"repeat", 'r', "N", 0, "Replay all traces N times; default: 1", 0},
    {"share", 'S', "P", 0, "Use and free P percent of the blocks on another stream than that of their allocation", 0},
    {"pace", OPTION_PACE, NULL, 0, "Keep the recorded times", 0},
    {"touch", OPTION_TOUCH, NULL, 0, "Fill every block with a pattern, and check every byte before it is freed", 0},
    {"busy", OPTION_BUSY, NULL, 0, "Write the first bytes of every block, so that streams are behind the host", 0},
    {"default-stream", OPTION_DEFAULT_STREAM, NULL, 0, "Use the legacy default stream as the trace's first stream", 0},
    {"max-memory", OPTION_MAX_MEMORY, "SIZE", 0,
     "Most host memory for the traces; more is refused, such as what a small compressed file may hold; default: 2GiB",
     0},
    {"json", OPTION_JSON, NULL, 0, "Report as one JSON object", 0},
    {0},
};

static const char documentation[] =
    "Replays recorded allocations through a stack, and reports what they cost."
    "\vA TRACE is a file, plain or gzip: a trace of Strata's (op,id,bytes,stream,time_us), a log of its layer logging, "
    "binary or CSV, or the CSV log of RMM's logging resource; - is standard input. examples/traces has two. Several "
    "are replayed one after "
    "another.\n\n"
    "Exit status: 0 if all went well, 1 if calls failed, bytes were corrupted, blocks left over or the report could "
    "not "
    "be written, 2 if nothing was replayed because of bad usage or input.";

/* Reads all traces. False, with each malformed one reported on stderr and nothing to free. */
static bool read_traces(const settings *from, trace **out)
{
    trace *traces = calloc(from->path_count, sizeof *traces);
    if (!traces) {
        fprintf(stderr, "%s: out of host memory\n", from->program);
        return false;
    }
    bool good = true;
    uint64_t left = from->max_memory;
    for (size_t i = 0; i < from->path_count; i++) {
        trace_problem problem;
        if (!trace_read_within(from->paths[i], left, &traces[i], &problem)) {
            fprintf(stderr, "%s: %s%s\n", from->program, problem.text,
                    problem.too_large ? "; --max-memory raises the limit" : "");
            good = false;
        }
        left -= traces[i].memory;
    }
    if (good) {
        *out = traces;
        return true;
    }
    for (size_t i = 0; i < from->path_count; i++)
        trace_free(&traces[i]);
    free(traces);
    return false;
}

static int say_last_error(const settings *from, const char *what)
{
    fprintf(stderr, "%s: %s: %s\n", from->program, what, strata_last_error()->message);
    return COMMAND_USAGE;
}

static int replay_and_report(const settings *from, report *to, strata_runtime *runtime)
{
    replay_failure problem;
    replay_result *result = malloc(sizeof *result);
    if (!result) {
        fprintf(stderr, "%s: out of host memory\n", from->program);
        return COMMAND_USAGE;
    }
    int status = COMMAND_USAGE;
    if (!replay_run(runtime, to->traces, to->trace_count, &from->options, result, &problem)) {
        fprintf(stderr, "%s: %s\n", from->program, problem.text);
        goto out;
    }
    to->result = result;
    status = replay_is_clean(result) ? COMMAND_FINE : COMMAND_FOUND;
    errno = 0;
    if (!(from->json ? report_json : report_text)(to, stdout))
        status = command_lose_output(from->program, "the report", errno);
out:
    free(result);
    return status;
}

static int replay_traces(const settings *from, const trace *traces)
{
    strata_driver_info driver;
    strata_device_info device;
    strata_runtime *runtime;
    strata_driver_count_calls();
    if (!command_open_driver(from->program, from->driver, &driver))
        return COMMAND_USAGE;
    if (strata_device_get_info(from->device, &device) != STRATA_SUCCESS)
        return say_last_error(from, "the device");
    const strata_runtime_config config = {
        .device = from->device,
        .stack_text = stack_of(from),
        .stream_capacity = replay_streams_needed(traces, from->path_count, &from->options),
    };
    if (strata_runtime_create(&config, &runtime) != STRATA_SUCCESS)
        return say_last_error(from, "the stack");
    report to = {
        .driver = &driver,
        .device = &device,
        .stack = strata_stack_text(strata_runtime_stack(runtime)),
        .layers = strata_runtime_stack(runtime),
        .traces = traces,
        .trace_count = from->path_count,
        .options = &from->options,
    };
    int status = replay_and_report(from, &to, runtime);
    if (strata_runtime_destroy(runtime) != STRATA_SUCCESS && status == COMMAND_FINE) {
        say_last_error(from, "ending the runtime");
        status = COMMAND_FOUND;
    }
    return status;
}

static const struct argp usage = {options, parse, "TRACE...", documentation, command_common, NULL, NULL};

static const command_values values[] = {
    {"driver", COMMAND_DRIVERS, true},
    {"stack", COMMAND_WORDS_LAYERS, false},
    {"", NULL, true},
    {0},
};

static int run(int argc, char **argv)
{
    settings from = {.program = argv[0], .options.progress = true, .max_memory = TRACE_MEMORY};
    trace *traces;
    if (!command_parse(&usage, argc, argv, 0, &from))
        return COMMAND_USAGE;
    if (!read_traces(&from, &traces))
        return COMMAND_USAGE;
    int status = replay_traces(&from, traces);
    for (size_t i = 0; i < from.path_count; i++)
        trace_free(&traces[i]);
    free(traces);
    return status;
}

const command command_replay = {"replay", "strata replay", "replay recorded allocations through a stack",
                                &usage,   values,          run};
