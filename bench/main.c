/* The program: options, the set-up that all subjects share, and the order of the subjects. */
#include "bench.h"
#include "counts.h"
#include "machine.h"

#include <errno.h>
#include <getopt.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "usage: strata_bench [--filter TEXT] [--rounds N] [--json] [--strict] [--driver auto|cuda|sim|PATH]\n"
    "\n"
    "Measures what Strata adds to the CUDA driver: nanoseconds on the host for each operation, the median of rounds "
    "in\n"
    "which Strata and the bare driver take turns, and the driver calls that Strata makes.\n"
    "\n"
    "  --filter TEXT   only rows whose name contains TEXT\n"
    "  --rounds N      15 to 1001 rounds count (default 21); fewer, from 1 on, for a quick look\n"
    "  --json          one JSON object instead of the table\n"
    "  --strict        exit status 1 if a target is missed\n"
    "  --driver NAME   auto, cuda, sim, or a library's path; without it STRATA_DRIVER, else auto\n"
    "  --help          this text\n";

typedef struct options {
    const char *filter;
    const char *driver;
    size_t rounds;
    bool json, strict;
} options;

static _Noreturn void refuse(const char *why, const char *what)
{
    fprintf(stderr, "strata_bench: %s%s%s\n%s", why, what ? ": " : "", what ? what : "", usage);
    exit(2);
}

static size_t parse_rounds(const char *text)
{
    char *end;
    errno = 0;
    unsigned long rounds = strtoul(text, &end, 10);
    if (errno || end == text || *end || rounds < 1 || rounds > BENCH_ROUNDS_LIMIT)
        refuse("--rounds takes a number from 1 to 1001", text);
    return rounds;
}

static options parse(int argc, char **argv)
{
    enum { FILTER = 256, ROUNDS, JSON, STRICT, DRIVER, HELP };
    static const struct option known[] = {
        {"filter", required_argument, NULL, FILTER},
        {"rounds", required_argument, NULL, ROUNDS},
        {"json", no_argument, NULL, JSON},
        {"strict", no_argument, NULL, STRICT},
        {"driver", required_argument, NULL, DRIVER},
        {"help", no_argument, NULL, HELP},
        {NULL, 0, NULL, 0},
    };
    options given = {.rounds = 21};
    for (int option; (option = getopt_long(argc, argv, "", known, NULL)) != -1;) {
        if (option == FILTER)
            given.filter = optarg;
        else if (option == ROUNDS)
            given.rounds = parse_rounds(optarg);
        else if (option == JSON)
            given.json = true;
        else if (option == STRICT)
            given.strict = true;
        else if (option == DRIVER)
            given.driver = optarg;
        else if (option == HELP)
            exit(fputs(usage, stdout) < 0 ? EXIT_FAILURE : EXIT_SUCCESS);
        else
            refuse("try --help", NULL);
    }
    if (optind < argc)
        refuse("an argument too many", argv[optind]);
    return given;
}

/* ---- what subjects use ---- */

bool bench_wants(const bench *self, const char *name)
{
    return !self->filter || strstr(name, self->filter);
}

void bench_row(const bench *self, const char *name, bench_plan plan, bench_side bare_side, bench_side strata_side,
               bench_target target)
{
    if (!bench_wants(self, name))
        return;
    report_times row = {.bare = -1, .strata = -1, .kind = target.kind, .target = target.nanoseconds};
    snprintf(row.name, sizeof row.name, "%s", name);
    const bench_side sides[] = {strata_side, bare_side};
    double figures[2];
    bench_measure(self->rounds, plan, sides, bare_side.run ? 2 : 1, figures);
    row.strata = figures[0];
    if (bare_side.run)
        row.bare = figures[1];
    report_add_times(self->report, &row);
}

/* ---- the run ---- */

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
    options given = parse(argc, argv);
    if (given.driver && setenv("STRATA_DRIVER", given.driver, 1) != 0) /* which overrides what a program chooses */
        scene_check(STRATA_ERROR_OUT_OF_HOST_MEMORY, "setenv");
    scene_check(strata_driver_choose("auto"), "strata_driver_choose");
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
    close_bench(&self);

    size_t rows;
    size_t missed = report_finish(self.report, &rows);
    if (!rows)
        refuse("no row has a name that contains", given.filter);
    return given.strict && missed ? EXIT_FAILURE : EXIT_SUCCESS;
}
