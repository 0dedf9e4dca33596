/* `strata demo`: options, and the three ways one after another. */
#include "tools/demo/demo.h"

#include "tools/command.h"
#include "tools/demo/report.h"

#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { OPTION_DRIVER = 256, OPTION_BUDGET, OPTION_FORM, OPTION_JSON };
enum { LARGEST = 32768, MOST_BATCHES = 1000000 };

/* ---- the run ---- */

/* What three batches under way need: their matrices, B, the workspaces of the products, and the rounding of the pools
 * of captures. */
static uint64_t usual_budget(const demo_matrices *matrices)
{
    const uint64_t matrix = demo_matrix_bytes(matrices);
    return (UINT64_C(40) << 20) + (2 * DEMO_LANES + 1) * matrix;
}

static void run_ways(demo *self)
{
    static void (*const run[DEMO_WAYS])(demo *, demo_way *) = {demo_by_hand, demo_as_graph, demo_by_service};
    static const char *const names[DEMO_WAYS] = {"by hand", "as a graph", "through the service"};
    progress_open(&self->bar, true);
    for (size_t i = 0; i < DEMO_WAYS; i++) {
        self->ways[i].name = names[i];
        run[i](self, &self->ways[i]);
    }
    progress_close(&self->bar);
}

/* ---- the command line ---- */

typedef struct settings {
    demo_settings demo;
    const char *program;
    const char *driver;
    bool json;
} settings;

static uint32_t read_option(struct argp_state *state, const char *name, const char *text, uint32_t least, uint32_t most)
{
    errno = 0;
    unsigned long value = strtoul(text, NULL, 10);
    if (!*text || strspn(text, "0123456789") != strlen(text) || errno || value < least || value > most)
        argp_error(state, "--%s is \"%s\": expected a whole number from %" PRIu32 " to %" PRIu32, name, text, least,
                   most);
    return (uint32_t)value;
}

static strata_service_form read_form(struct argp_state *state, const char *text)
{
    if (strcmp(text, "process") != 0 && strcmp(text, "isolated") != 0)
        argp_error(state, "--form is \"%s\": expected process or isolated", text);
    return strcmp(text, "isolated") == 0 ? STRATA_SERVICE_ISOLATED : STRATA_SERVICE_IN_PROCESS;
}

static error_t parse(int key, char *text, struct argp_state *state)
{
    settings *to = state->input;
    switch (key) {
    case OPTION_DRIVER:
        to->driver = text;
        return 0;
    case 'd':
        to->demo.device = (int)read_option(state, "device", text, 0, 1023);
        return 0;
    case 'n':
        to->demo.n = read_option(state, "size", text, 1, LARGEST);
        return 0;
    case 'b':
        to->demo.batches = read_option(state, "batches", text, 1, MOST_BATCHES);
        return 0;
    case OPTION_BUDGET:
        to->demo.budget = command_read_size(state, "budget", text);
        if (!to->demo.budget)
            argp_error(state, "--budget is \"%s\": expected more than 0 bytes", text);
        return 0;
    case OPTION_FORM:
        to->demo.form = read_form(state, text);
        return 0;
    case OPTION_JSON:
        to->json = true;
        return 0;
    case ARGP_KEY_ARG:
        argp_error(state, "unexpected \"%s\"", text);
        return EINVAL;
    default:
        return ARGP_ERR_UNKNOWN;
    }
}

static const struct argp_option options[] = {
    {"driver", OPTION_DRIVER, "DRIVER", 0,
     "auto (the GPU if there is one, else the simulated driver), cuda, sim, or the path of a driver's library; "
     "default: STRATA_DRIVER, else auto",
     0},
    {"device", 'd', "N", 0, "The device's ordinal; default: 0", 0},
    {"size", 'n', "N", 0, "Matrices of N by N floats; default: 512", 0},
    {"batches", 'b', "N", 0, "Matrices that go through each pipeline; default: 24", 0},
    {"budget", OPTION_BUDGET, "SIZE", 0,
     "The device memory that each pipeline may take; default: what three batches under way need", 0},
    {"form", OPTION_FORM, "FORM", 0,
     "Where the service has its device: process (this one), or isolated (a worker process); default: process", 0},
    {"json", OPTION_JSON, NULL, 0, "Report as one JSON object", 0},
    {0},
};

static const char documentation[] =
    "Computes max(A * B + bias, 0) for batches of matrices A on three streams, under a budget, in three ways: by hand "
    "with the launch recorder, as a graph, and through the device service; and compares each with the CPU's results."
    "\vProducts are cuBLAS's, with the simulated driver those of a BLAS on the CPU; where there is none, a kernel of "
    "the "
    "demonstration multiplies. Rows of each result are compared, of matrices up to 128 by 128 all.\n\n"
    "Exit status: 0 if all three gave the CPU's results, 1 if one differed or failed, or the report could not be "
    "written, 2 if nothing was run because of bad usage, or without a driver.";

static const struct argp usage = {options, parse, NULL, documentation, command_common, NULL, NULL};

static const command_values values[] = {
    {"driver", COMMAND_DRIVERS, true},
    {"form", "process isolated", false},
    {0},
};

static int run_and_report(const settings *from, demo *self, const strata_driver_info *driver,
                          const strata_device_info *device)
{
    if (!demo_matrices_make(&self->matrices, self->settings.n)) {
        fprintf(stderr,
                "%s: out of host memory for matrices of %" PRIu32 " by %" PRIu32 "; --size takes smaller ones\n",
                from->program, self->settings.n, self->settings.n);
        return COMMAND_USAGE;
    }
    const uint64_t budget = self->settings.budget ? self->settings.budget : usual_budget(&self->matrices);
    snprintf(self->stack, sizeof self->stack, "budget(limit=%" PRIu64 "), pool", budget);
    run_ways(self);
    int status = demo_is_right(self) ? COMMAND_FINE : COMMAND_FOUND;
    errno = 0;
    const demo_report report = {.of = self, .driver = driver, .device = device};
    if (!(from->json ? demo_report_json(&report, stdout) : demo_report_text(&report, stdout)))
        status = command_lose_output(from->program, "the report", errno);
    demo_matrices_free(&self->matrices);
    return status;
}

static int run(int argc, char **argv)
{
    settings from = {.program = argv[0], .demo = {.n = 512, .batches = 24}};
    strata_driver_info driver;
    strata_device_info device;
    if (!command_parse(&usage, argc, argv, 0, &from) || !command_open_driver(from.program, from.driver, &driver))
        return COMMAND_USAGE;
    if (strata_device_get_info(from.demo.device, &device) != STRATA_SUCCESS) {
        fprintf(stderr, "%s: the device: %s\n", from.program, strata_last_error()->message);
        return COMMAND_USAGE;
    }
    demo self = {.settings = from.demo};
    return run_and_report(&from, &self, &driver, &device);
}

const command command_demo = {"demo", "strata demo", "a pipeline of matrices in three ways, compared with the CPU",
                              &usage, values,        run};
