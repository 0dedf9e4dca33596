/* strata_bench: options, the shared set-up, and the order of the subjects. */
#include "arguments.h"
#include "bench.h"
#include "counts.h"
#include "machine.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

static const char documentation[] =
    "Measures what Strata adds to the CUDA driver: nanoseconds on the host for each operation, the median of rounds in "
    "which Strata and the bare driver take turns, and the driver calls that Strata makes.";

static const struct argp_option known[] = {
    ARGUMENT_FILTER_OPTION,
    {"rounds", ARGUMENT_ROUNDS, "N", 0, "15 to 1001 rounds count; fewer, from 1 on, for a quick look; default: 21", 0},
    ARGUMENT_JSON_OPTION,
    ARGUMENT_STRICT_OPTION,
    ARGUMENT_DRIVER_OPTION,
    ARGUMENT_HELP_OPTION,
    {0},
};

static error_t parse(int key, char *text, struct argp_state *state)
{
    return arguments_parse(state->input, key, text, state);
}

static strata_runtime *make_runtime(const char *stack, strata_event_mode events)
{
    strata_runtime *runtime;
    const strata_runtime_config config = {.stack_text = stack, .stream_capacity = 32, .events = events};
    scene_check(strata_runtime_create(&config, &runtime), "strata_runtime_create");
    return runtime;
}

static void open_bench(bench *self)
{
    CUdevice device;
    bare_check(bare.DeviceGet(&device, 0), "cuDeviceGet");
    bare_check(bare.DevicePrimaryCtxRetain(&self->context, device), "cuDevicePrimaryCtxRetain");
    bare_check(bare.CtxSetCurrent(self->context), "cuCtxSetCurrent");
    self->late = make_runtime("async", STRATA_EVENTS_LATE);
    self->early = make_runtime("async", STRATA_EVENTS_EARLY);
    self->direct = make_runtime("direct", STRATA_EVENTS_LATE);
}

static void close_bench(bench *self)
{
    scene_check(strata_runtime_destroy(self->direct), "strata_runtime_destroy");
    scene_check(strata_runtime_destroy(self->early), "strata_runtime_destroy");
    scene_check(strata_runtime_destroy(self->late), "strata_runtime_destroy");
}

static void report_counts(const bench *self, const counts *taken)
{
    report_heading(self->report, "Driver calls that Strata makes", true);
    for (size_t i = 0; i < taken->count; i++)
        if (bench_wants(self, taken->rows[i].name))
            report_add_calls(self->report, &taken->rows[i]);
}

int main(int argc, char **argv)
{
    static counts taken;
    static const struct argp argp = {known, parse, NULL, documentation, NULL, NULL, NULL};
    arguments given = {.rounds = 21};
    arguments_read(&argp, argc, argv, &given);
    arguments_choose_driver(given.driver);
    counts_take(&taken);

    strata_driver_info driver;
    strata_device_info device;
    scene_check(strata_driver_get_info(&driver), "strata_driver_get_info");
    scene_check(strata_device_get_info(0, &device), "strata_device_get_info");
    bare_open(driver.library);
    bench self = {.filter = given.filter, .rounds = given.rounds, .simulated = driver.simulated};
    self.report = report_begin(stdout, given.json);
    machine_describe(report_add_fact, self.report, &driver, &device, given.rounds);
    report_counts(&self, &taken);
    open_bench(&self);
    bench_uses(&self);
    bench_launches(&self);
    bench_pairs(&self);
    bench_events(&self);
    bench_threads(&self);
    bench_layers(&self);
    bench_bounds(&self);
    bench_references(&self);
    bench_graphs(&self);
    bench_blas(&self);
    bench_service(&self);
    close_bench(&self);

    size_t rows;
    size_t missed = report_finish(self.report, &rows);
    if (!rows)
        arguments_fail("no row has a name that contains", given.filter);
    return given.strict && missed ? EXIT_FAILURE : EXIT_SUCCESS;
}
