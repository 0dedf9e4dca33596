/* `strata service replay`: asks a device service what another one was asked. */
#include "tools/command.h"
#include "tools/json_values.h"

#include "core/base/escape.h"
#include "core/base/size_text.h"
#include "core/base/timestamp.h"

#include <strata/service_replay.h>

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_DRIVER = 256, OPTION_DEVICE, OPTION_FORM, OPTION_STACK, OPTION_SPEED, OPTION_STOP, OPTION_JSON };

typedef struct settings {
    const char *program, *driver, *stack, *path;
    unsigned words; /* of the arguments, so far */
    int device;
    strata_service_form form;
    strata_service_replay_options replay;
    bool json;
} settings;

static bool read_speed(const char *text, double *speed)
{
    char *end;
    *speed = strtod(text, &end);
    return end != text && !*end && isfinite(*speed) && *speed >= 0;
}

static bool read_device(const char *text, int *device)
{
    char *end;
    const long value = strtol(text, &end, 10);
    *device = (int)value;
    return end != text && !*end && value >= 0 && value < 1024;
}

static bool read_form(const char *text, strata_service_form *form)
{
    *form = strcmp(text, "isolated") == 0 ? STRATA_SERVICE_ISOLATED : STRATA_SERVICE_IN_PROCESS;
    return *form == STRATA_SERVICE_ISOLATED || strcmp(text, "process") == 0;
}

static void take_argument(struct argp_state *state, settings *to, const char *text)
{
    if (to->words == 0 && strcmp(text, "replay") != 0)
        argp_error(state, "unknown \"%s\"; known: replay", text);
    if (to->words > 1)
        argp_error(state, "unexpected \"%s\"", text);
    if (to->words == 1)
        to->path = text;
    to->words++;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_DRIVER:
        to->driver = text;
        return 0;
    case OPTION_DEVICE:
        if (!read_device(text, &to->device))
            argp_error(state, "--device: invalid device \"%s\"; expected an ordinal such as 0", text);
        return 0;
    case OPTION_FORM:
        if (!read_form(text, &to->form))
            argp_error(state, "--form: invalid form \"%s\"; expected process or isolated", text);
        return 0;
    case OPTION_STACK:
        to->stack = text;
        return 0;
    case OPTION_SPEED:
        if (!read_speed(text, &to->replay.speed))
            argp_error(state, "--speed: invalid speed \"%s\"; expected a number such as 1, or 0 for no pauses", text);
        return 0;
    case OPTION_STOP:
        to->replay.stop_at_failure = true;
        return 0;
    case OPTION_JSON:
        to->json = true;
        return 0;
    case ARGP_KEY_ARG:
        take_argument(state, to, text);
        return 0;
    case ARGP_KEY_END:
        if (to->words < 2)
            argp_error(state, "%s", to->words ? "replay needs a FILE" : "say what to do: replay FILE");
        return 0;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

/* ---- the report ---- */

static void print_text(const strata_service_replay_result *result, uint64_t nanoseconds)
{
    char message[1024];
    printf("%" PRIu64 " requests, %" PRIu64 " failed, %" PRIu64 " skipped; %s copied; %.3f s\n", result->requests,
           result->failed, result->skipped, strata_size_text(result->bytes_copied).text, (double)nanoseconds * 1e-9);
    if (result->truncated)
        printf("the last line is incomplete, and was left out\n");
    if (!result->failed)
        return;
    strata_escape(message, sizeof message, result->failure.message);
    printf("first failure, line %" PRIu64 ": %s: %s\n", result->failed_line, strata_status_name(result->failure.status),
           message);
}

static bool print_json(const strata_service_replay_result *result, uint64_t nanoseconds)
{
    json_t *object = json_object();
    json_set_number(object, "requests", result->requests);
    json_set_number(object, "failed", result->failed);
    json_set_number(object, "skipped", result->skipped);
    json_set_number(object, "bytes_copied", result->bytes_copied);
    json_set_number(object, "nanoseconds", nanoseconds);
    json_object_set_new(object, "truncated", json_boolean(result->truncated));
    if (result->failed)
        json_object_set_new(object, "first_failure",
                            json_pack("{s:I, s:s, s:o}", "line", (json_int_t)result->failed_line, "status",
                                      strata_status_name(result->failure.status), "message",
                                      json_text(result->failure.message)));
    const bool written = json_dumpf(object, stdout, JSON_INDENT(2) | JSON_ENSURE_ASCII) == 0;
    json_decref(object);
    printf("\n");
    return written;
}

/* ---- the command ---- */

static const struct argp_option options[] = {
    {"driver", OPTION_DRIVER, "DRIVER", 0,
     "auto, cuda, sim, or the path of a driver's library; default: STRATA_DRIVER, else auto", 0},
    {"device", OPTION_DEVICE, "N", 0, "The device, an ordinal; default: 0", 0},
    {"form", OPTION_FORM, "FORM", 0,
     "Where the service has its device: process (this one), or isolated (a worker process); default: process", 0},
    {"stack", OPTION_STACK, "TEXT", 0,
     "The stack of the service's runtime; default: STRATA_STACK, else the default stack", 0},
    {"speed", OPTION_SPEED, "X", 0,
     "1: at the times of the recording; 2: in half the time; 0, the default: without pauses", 0},
    {"stop-at-failure", OPTION_STOP, NULL, 0, "Stop at the first request that fails", 0},
    {"json", OPTION_JSON, NULL, 0, "Print one JSON object", 0},
    {0},
};

static const char documentation[] =
    "Makes a device service and asks it what the recording FILE has: strata_service_options.record made it.\vBytes of "
    "buffers are not recorded: copies from the host bring zeros. Functions of the program and graphs of them are "
    "skipped; graphs of requests are not. A recording of one form can be asked in the other.\n\n"
    "Exit status: 0 if every request succeeded, 1 if one failed or the output could not be written, 2 if the file, the "
    "usage or the driver is bad.";

static const struct argp usage = {options, parse, "replay FILE", documentation, command_common, NULL, NULL};

static const command_values values[] = {
    {"driver", COMMAND_DRIVERS, true}, {"form", "process isolated", false}, {"", "replay", true}, {0}};

static bool was_asked(const strata_service_replay_result *result)
{
    return result->requests || result->skipped;
}

/* The reason is on stderr, unless it is a request's failure, which the report has. */
static strata_status ask(const settings *from, strata_service_replay_result *result, uint64_t *nanoseconds)
{
    const strata_service_options service_options = {
        .device = from->device, .form = from->form, .stack_text = from->stack};
    strata_service *service;
    strata_status status = strata_service_create(&service_options, &service);
    if (status == STRATA_SUCCESS)
        status = strata_service_wait_ready(service, UINT64_MAX);
    const uint64_t start = strata_timestamp_clock();
    if (status == STRATA_SUCCESS)
        status = strata_service_replay(service, from->path, &from->replay, result);
    *nanoseconds = strata_timestamp_clock() - start;
    if (status != STRATA_SUCCESS && !(from->replay.stop_at_failure && result->failed))
        fprintf(stderr, "%s: %s\n", from->program, strata_last_error()->message);
    strata_service_destroy(service);
    return status;
}

/* Opens the driver; or, for an isolated service, whose worker opens it, chooses it by the environment. */
static bool choose_driver(const settings *from)
{
    strata_driver_info driver;
    if (from->form == STRATA_SERVICE_IN_PROCESS)
        return command_open_driver(from->program, from->driver, &driver);
    const bool given = from->driver != NULL;
    if (setenv("STRATA_DRIVER", given ? from->driver : "auto", given) == 0)
        return true;
    fprintf(stderr, "%s: out of host memory\n", from->program);
    return false;
}

static int run(int argc, char **argv)
{
    settings from = {.program = argv[0]};
    strata_service_replay_result result = {0};
    uint64_t nanoseconds;
    if (!command_parse(&usage, argc, argv, 0, &from) || !choose_driver(&from))
        return COMMAND_USAGE;
    const strata_status status = ask(&from, &result, &nanoseconds);
    if (status != STRATA_SUCCESS && !was_asked(&result))
        return COMMAND_USAGE;
    bool written = true;
    if (from.json)
        written = print_json(&result, nanoseconds);
    else
        print_text(&result, nanoseconds);
    return written && !result.failed && status == STRATA_SUCCESS ? COMMAND_FINE : COMMAND_FOUND;
}

const command command_service = {"service", "strata service", "replay what a device service was asked",
                                 &usage,    values,           run};
