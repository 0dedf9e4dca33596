#include "counts.h"

#include "bench.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

/* Before counting, the warm-up makes streams known and creates events. */
enum { WARM_UP = 64, OPERATIONS = 100 };

typedef enum stage_kind { LATE, EARLY, DIRECT, STAGES } stage_kind;

static const strata_runtime_config stages[STAGES] = {
    [LATE] = {.stack_text = "async", .events = STRATA_EVENTS_LATE},
    [EARLY] = {.stack_text = "async", .events = STRATA_EVENTS_EARLY},
    [DIRECT] = {.stack_text = "direct", .events = STRATA_EVENTS_LATE},
};

typedef struct counted {
    const char *name;
    void (*run)(void *stage, size_t operations);
    stage_kind on;
    report_expectation kind;
    report_call expected[3];
} counted;

static const counted cases[] = {
    {"use, own known stream, write", scene_write_on_own_stream, LATE, REPORT_EXPECT_NO_CALL, {{"", 0}}},
    {"use, own known stream, read", scene_read_on_own_stream, LATE, REPORT_EXPECT_NO_CALL, {{"", 0}}},
    {"use, own unknown stream, write",
     scene_write_on_unknown_stream,
     LATE,
     REPORT_EXPECT_THESE,
     {{"cuStreamIsCapturing", BENCH_IDENTIFICATIONS_PER_USE},
      {"cuStreamGetId", BENCH_IDENTIFICATIONS_PER_USE},
      {"cuEventRecord", BENCH_RECORDS_PER_USE}}},
    {"use, own unknown stream, read",
     scene_read_on_unknown_stream,
     LATE,
     REPORT_EXPECT_THESE,
     {{"cuStreamIsCapturing", BENCH_IDENTIFICATIONS_PER_USE},
      {"cuStreamGetId", BENCH_IDENTIFICATIONS_PER_USE},
      {"cuEventRecord", BENCH_RECORDS_PER_USE}}},
    {"hand-over between two known streams",
     scene_hand_over,
     LATE,
     REPORT_EXPECT_THESE,
     {{"cuEventRecord", 1}, {"cuStreamWaitEvent", 1}}},
    {"launch, own known stream, 64 blocks", scene_launch_64, LATE, REPORT_EXPECT_NO_CALL, {{"", 0}}},
    {"launch, 64 blocks of one producer",
     scene_launch_64_hand_over,
     LATE,
     REPORT_EXPECT_THESE,
     {{"cuEventRecord", 1}, {"cuStreamWaitEvent", 1}}},
    {"two streams, handing over at each launch, late", scene_pipeline, LATE, REPORT_EXPECT_NOTHING, {{"", 0}}},
    {"two streams, handing over at each launch, early", scene_pipeline, EARLY, REPORT_EXPECT_NOTHING, {{"", 0}}},
    {"one stream, late", scene_launch_1, LATE, REPORT_EXPECT_NO_CALL, {{"", 0}}},
    {"one stream, early", scene_launch_1, EARLY, REPORT_EXPECT_THESE, {{"cuEventRecord", 1}}},
    {"one writer, eight readers, late", scene_fan_out, LATE, REPORT_EXPECT_NOTHING, {{"", 0}}},
    {"one writer, eight readers, early", scene_fan_out, EARLY, REPORT_EXPECT_NOTHING, {{"", 0}}},
    {"async pair, known stream", scene_pair_on_known_stream, LATE, REPORT_EXPECT_NOTHING, {{"", 0}}},
    {"async pair, unknown stream", scene_pair_on_unknown_stream, LATE, REPORT_EXPECT_NOTHING, {{"", 0}}},
    {"direct pair, known stream", scene_pair_on_known_stream, DIRECT, REPORT_EXPECT_NOTHING, {{"", 0}}},
};

#define CASES (sizeof cases / sizeof cases[0])
_Static_assert(CASES <= COUNTS_LIMIT, "a struct counts has room for every case");

/* ---- in the child ---- */

typedef struct call_counts {
    size_t count;
    report_call calls[64];
} call_counts;

static void record_call(const char *name, uint64_t count, void *data)
{
    call_counts *self = data;
    if (self->count == sizeof self->calls / sizeof self->calls[0])
        return;
    report_call *call = &self->calls[self->count++];
    snprintf(call->name, sizeof call->name, "%s", name);
    call->count = count;
}

static uint64_t counted_before(const call_counts *before, const char *name)
{
    for (size_t i = 0; i < before->count; i++)
        if (strcmp(before->calls[i].name, name) == 0)
            return before->calls[i].count;
    return 0;
}

static void count_case(const counted *what, scene *stage, report_calls *row)
{
    call_counts before = {0}, after = {0};
    what->run(stage, WARM_UP);
    strata_driver_visit_calls(record_call, &before);
    what->run(stage, OPERATIONS);
    strata_driver_visit_calls(record_call, &after);
    scene_drain(stage);
    *row = (report_calls){.operations = OPERATIONS, .kind = what->kind};
    snprintf(row->name, sizeof row->name, "calls: %s", what->name);
    for (size_t i = 0; i < after.count; i++) {
        uint64_t made = after.calls[i].count - counted_before(&before, after.calls[i].name);
        if (!made || row->call_count == REPORT_CALLS)
            continue;
        row->calls[row->call_count] = after.calls[i];
        row->calls[row->call_count++].count = made;
    }
    for (size_t i = 0; i < sizeof what->expected / sizeof what->expected[0] && what->expected[i].count; i++)
        row->expected[row->expected_count++] = what->expected[i];
}

static void count_all(counts *out)
{
    strata_driver_info info;
    strata_runtime *runtimes[STAGES];
    static scene scenes[STAGES];
    CUcontext context;
    CUdevice device;
    scene_check(strata_driver_count_calls(), "strata_driver_count_calls");
    scene_check(strata_driver_get_info(&info), "strata_driver_get_info");
    bare_open(info.library);
    bare_check(bare.DeviceGet(&device, 0), "cuDeviceGet");
    bare_check(bare.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    bare_check(bare.CtxSetCurrent(context), "cuCtxSetCurrent");
    for (size_t i = 0; i < STAGES; i++) {
        scene_check(strata_runtime_create(&stages[i], &runtimes[i]), "strata_runtime_create");
        scene_make(&scenes[i], runtimes[i]);
    }
    for (size_t i = 0; i < CASES; i++)
        count_case(&cases[i], &scenes[cases[i].on], &out->rows[i]);
    out->count = CASES;
    for (size_t i = 0; i < STAGES; i++) {
        scene_destroy(&scenes[i]);
        scene_check(strata_runtime_destroy(runtimes[i]), "strata_runtime_destroy");
    }
}

static bool write_all(int to, const void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = write(to, (const char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

/* ---- in the parent ---- */

static bool read_all(int from, void *bytes, size_t size)
{
    for (size_t done = 0; done < size;) {
        ssize_t n = read(from, (char *)bytes + done, size - done);
        if (n < 0 && errno == EINTR)
            continue;
        if (n <= 0)
            return false;
        done += (size_t)n;
    }
    return true;
}

static _Noreturn void give_up(const char *what)
{
    fprintf(stderr, "strata_bench: counting driver calls: %s\n", what);
    exit(EXIT_FAILURE);
}

void counts_take(counts *out)
{
    int ends[2];
    *out = (counts){0};
    if (pipe(ends) != 0)
        give_up(strerror(errno));
    pid_t child = fork();
    if (child < 0)
        give_up(strerror(errno));
    if (child == 0) {
        close(ends[0]);
        count_all(out);
        exit(write_all(ends[1], out, sizeof *out) ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    close(ends[1]);
    bool complete = read_all(ends[0], out, sizeof *out);
    close(ends[0]);
    int status;
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            give_up(strerror(errno));
    if (!complete || !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS)
        give_up("the process that counts has failed");
}
