/* Counts driver calls in a process of its own: counting costs time, and must start before the driver is opened. */
#include "bare.h"
#include "clock.h"
#include "contest.h"
#include "scene.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

enum { WARM_PAIRS = 64, PAIRS = 100, PAIR_BYTES = 4096 };
static const uint64_t slow_pass_ns = 5000000000;

/* ---- in the child ---- */

typedef struct call_counts {
    uint64_t all, identities, captures, records;
} call_counts;

static void add_call(const char *name, uint64_t count, void *data)
{
    call_counts *self = data;
    self->all += count;
    if (strcmp(name, "cuStreamGetId") == 0)
        self->identities += count;
    else if (strcmp(name, "cuStreamIsCapturing") == 0)
        self->captures += count;
    else if (strcmp(name, "cuEventRecord") == 0)
        self->records += count;
}

static call_counts count_now(void)
{
    call_counts now = {0};
    strata_driver_visit_calls(add_call, &now);
    return now;
}

static void count_unknown_pairs(contest *of, size_t i)
{
    peer with;
    peer_open(&with, &of->choices[i], 1, 0);
    with.kind->unknown_pairs(&with, with.unknown, PAIR_BYTES, WARM_PAIRS);
    const call_counts before = count_now();
    with.kind->unknown_pairs(&with, with.unknown, PAIR_BYTES, PAIRS);
    const call_counts after = count_now();
    of->calls.identities[i] = (unsigned)(after.identities - before.identities);
    of->calls.captures[i] = (unsigned)(after.captures - before.captures);
    of->calls.records[i] = (unsigned)(after.records - before.records);
    peer_close(&with);
}

/* Calls of the second pass of a replay, or of the first if it took seconds. Negative: no memory. */
static double count_replay(contest *of, size_t i, const recording *trace)
{
    peer with;
    char *slots = contest_require(calloc(trace->slots + 1, PEER_SLOT_BYTES));
    unsigned char *live = contest_require(calloc(trace->slots + 1, 1));
    double per_thousand = -1;
    peer_open(&with, &of->choices[i], trace->streams, 0);
    for (size_t pass = 0; pass < 2; pass++) {
        const uint64_t start = bench_now();
        const call_counts before = count_now();
        if (!peer_run_steps(&with, trace->steps, trace->count, slots, live, true)) {
            per_thousand = -1;
            break;
        }
        per_thousand = (double)(count_now().all - before.all) * 1000 / trace->count;
        peer_drain(&with);
        if (bench_now() - start > slow_pass_ns)
            break;
    }
    peer_close(&with);
    free(live);
    free(slots);
    return per_thousand;
}

static void count_all(contest *of, bool unknown_pairs, bool replays)
{
    strata_driver_info info;
    CUdevice device;
    CUcontext context;
    scene_check(strata_driver_count_calls(), "strata_driver_count_calls");
    scene_check(strata_driver_get_info(&info), "strata_driver_get_info");
    bare_open(info.library);
    bare_check(bare.DeviceGet(&device, 0), "cuDeviceGet");
    bare_check(bare.DevicePrimaryCtxRetain(&context, device), "cuDevicePrimaryCtxRetain");
    bare_check(bare.CtxSetCurrent(context), "cuCtxSetCurrent");
    for (size_t i = 0; i < of->count; i++) {
        if (of->choices[i].kind != &peer_stack)
            continue;
        if (unknown_pairs)
            count_unknown_pairs(of, i);
        for (size_t n = 0; n < of->recording_count && replays; n++)
            if (of->recordings[n].count)
                of->calls.per_thousand[i][n] = count_replay(of, i, &of->recordings[n]);
        of->calls.counted[i] = true;
    }
}

/* ---- between the two ---- */

static bool move_all(int descriptor, void *bytes, size_t size, bool writing)
{
    for (size_t done = 0; done < size;) {
        char *at = (char *)bytes + done;
        ssize_t n = writing ? write(descriptor, at, size - done) : read(descriptor, at, size - done);
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
    fprintf(stderr, "%s: counting driver calls: %s\n", program_invocation_short_name, what);
    exit(EXIT_FAILURE);
}

void calls_count(contest *of, bool unknown_pairs, bool replays)
{
    int ends[2], status;
    if (pipe(ends) != 0)
        give_up(strerror(errno));
    pid_t child = fork();
    if (child < 0)
        give_up(strerror(errno));
    if (child == 0) {
        close(ends[0]);
        count_all(of, unknown_pairs, replays);
        exit(move_all(ends[1], &of->calls, sizeof of->calls, true) ? EXIT_SUCCESS : EXIT_FAILURE);
    }
    close(ends[1]);
    const bool complete = move_all(ends[0], &of->calls, sizeof of->calls, false);
    close(ends[0]);
    while (waitpid(child, &status, 0) < 0)
        if (errno != EINTR)
            give_up(strerror(errno));
    if (!complete || !WIFEXITED(status) || WEXITSTATUS(status) != EXIT_SUCCESS)
        give_up("the process that counts has failed");
}
