/* What checking costs. A million operations on streams that hand memory over to each other, allocate and free, with
 * kernels and copies: checked, it takes at most ten times as long as unchecked, and what the checker holds in the end
 * is what it held after a tenth of that. Sanitizers change what is slow, so the times are only compared without them.
 */
#include "planted/world.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

enum { STREAMS = 4, BUFFERS = 64, BUFFER = 64 << 10 };

struct traffic {
    struct world *world;
    CUstream streams[STREAMS];
    CUevent events[STREAMS];
    CUdeviceptr buffers[BUFFERS];
    uint64_t random;
    uint64_t operations;
};

static uint64_t draw(struct traffic *traffic, uint64_t below)
{
    traffic->random = traffic->random * 6364136223846793005U + 1442695040888963407U;
    return (traffic->random >> 33) % below;
}

/* All streams wait for each other; from then on each stream has a quarter of the buffers. */
static void meet(struct traffic *traffic)
{
    for (int i = 0; i < STREAMS; i++)
        OK(p_cuEventRecord(traffic->events[i], traffic->streams[i]));
    for (int i = 0; i < STREAMS; i++) {
        for (int j = 0; j < STREAMS; j++)
            if (i != j)
                OK(p_cuStreamWaitEvent(traffic->streams[i], traffic->events[j], 0));
    }
    traffic->operations += STREAMS * STREAMS;
}

static CUdeviceptr buffer_of(struct traffic *traffic, uint64_t owner)
{
    return traffic->buffers[owner + STREAMS * draw(traffic, BUFFERS / STREAMS)];
}

static void work_on(struct traffic *traffic, uint64_t owner, CUstream stream)
{
    CUdeviceptr buffer = buffer_of(traffic, owner);
    CUdeviceptr from = buffer_of(traffic, owner);
    uint64_t offset = 256 * draw(traffic, BUFFER / 512);
    switch (draw(traffic, 4)) {
    case 0:
        OK(p_cuMemsetD8Async(buffer + offset, 1, 256, stream));
        traffic->operations++;
        break;
    case 1:
        OK(p_cuMemcpyDtoDAsync(buffer + offset, from + BUFFER / 2, 256, stream));
        traffic->operations++;
        break;
    case 2:
        kernel(traffic->world, stream, buffer, BUFFER, draw(traffic, 2) ? READS : UPDATES);
        traffic->operations++;
        break;
    default: {
        CUdeviceptr mine = allocate(stream);
        kernel(traffic->world, stream, mine, BYTES, WRITES);
        release(mine, stream);
        traffic->operations += 3;
        break;
    }
    }
}

static void run_traffic(struct traffic *traffic, uint64_t operations)
{
    for (uint64_t end = traffic->operations + operations; traffic->operations < end;) {
        meet(traffic);
        uint64_t turn = draw(traffic, STREAMS);
        for (int i = 0; i < 100; i++) {
            uint64_t owner = draw(traffic, STREAMS);
            work_on(traffic, owner, traffic->streams[(owner + turn) % STREAMS]);
        }
        if (draw(traffic, 50) == 0)
            OK(p_cuStreamSynchronize(traffic->streams[0]));
    }
}

static struct traffic begin_traffic(struct world *world)
{
    struct traffic traffic = {.world = world, .streams = {world->a, world->b, world->c, world->d}, .random = 1};
    for (int i = 0; i < STREAMS; i++)
        OK(p_cuEventCreate(&traffic.events[i], CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < BUFFERS; i++)
        OK(p_cuMemAlloc(&traffic.buffers[i], BUFFER));
    return traffic;
}

static void end_traffic(struct traffic *traffic)
{
    OK(p_cuCtxSynchronize());
    for (int i = 0; i < STREAMS; i++)
        OK(p_cuEventDestroy(traffic->events[i]));
    for (int i = 0; i < BUFFERS; i++)
        OK(p_cuMemFree(traffic->buffers[i]));
}

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
    return (double)time.tv_sec + (double)time.tv_nsec * 1e-9;
}

static bool sanitized(void)
{
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    return true;
#elif defined(__has_feature)
    return __has_feature(address_sanitizer) || __has_feature(thread_sanitizer);
#else
    return false;
#endif
}

/* Under the policy random work is put off on the same path as under late, a fifth is enough there. */
static uint64_t operations_in_all(void)
{
    const char *policy = getenv("STRATA_SIM_POLICY");
    uint64_t most = policy && strcmp(policy, "random") == 0 ? 200000 : 1000000;
    return sanitized() ? 20000 : most;
}

/* With glibc's backtrace the checker takes some fifteen times as long as without it. */
static bool walks_fast(void)
{
    void *library = dlopen("libunwind.so.8", RTLD_LAZY);
    if (!library)
        print_message("no libunwind.so.8: the times are not compared\n");
    else
        dlclose(library);
    return library;
}

static double time_of(uint32_t modes)
{
    struct world world = world_begin(modes);
    if (modes == STRATA_SIM_CHECK_OFF)
        OK(p_set_check(STRATA_SIM_CHECK_OFF));
    struct traffic traffic = begin_traffic(&world);
    double begin = now();
    run_traffic(&traffic, operations_in_all());
    OK(p_cuCtxSynchronize());
    double seconds = now() - begin;
    end_traffic(&traffic);
    world_end(&world);
    return seconds;
}

static void a_million_operations_take_at_most_ten_times_as_long(void **state)
{
    (void)state;
    double unchecked = time_of(STRATA_SIM_CHECK_OFF);
    double checked = time_of(STRATA_SIM_CHECK_ON);
    uint64_t count;
    OK(p_get_report_count(&count));
    assert_int_equal(count, 0);
    print_message("%llu operations: unchecked %.2f s, checked %.2f s\n", (unsigned long long)operations_in_all(),
                  unchecked, checked);
    if (!sanitized() && walks_fast())
        assert_true(checked < 10 * unchecked);
}

static uint64_t resident_bytes(void)
{
    unsigned long pages = 0;
    FILE *file = fopen("/proc/self/statm", "r");
    assert_non_null(file);
    assert_int_equal(fscanf(file, "%*u %lu", &pages), 1);
    fclose(file);
    return (uint64_t)pages * 4096;
}

static strata_sim_check_accounts accounts_after(struct traffic *traffic, uint64_t operations, bool synchronize)
{
    strata_sim_check_accounts accounts;
    run_traffic(traffic, operations);
    if (synchronize)
        OK(p_cuCtxSynchronize());
    OK(p_get_check_accounts(&accounts));
    return accounts;
}

static void memory_follows_what_is_live(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    struct traffic traffic = begin_traffic(&world);
    uint64_t all = operations_in_all();
    strata_sim_check_accounts early = accounts_after(&traffic, all / 10, true);
    uint64_t resident = resident_bytes();
    strata_sim_check_accounts late = accounts_after(&traffic, all - all / 10, true);
    uint64_t grown = resident_bytes() - resident;
    print_message("after %llu acts %llu bytes, after %llu %llu; the process grew by %llu\n",
                  (unsigned long long)early.seen, (unsigned long long)early.bytes, (unsigned long long)late.seen,
                  (unsigned long long)late.bytes, (unsigned long long)grown);
    assert_true(late.seen > 5 * early.seen);
    assert_true(late.bytes < 2 * early.bytes + (64 << 10));
    assert_true(late.operations < 2 * early.operations + 256);
    if (!sanitized())
        assert_true(grown < (16 << 20));
    end_traffic(&traffic);
    world_end(&world);
}

/* The host never waits: nothing is ever known to be done, and yet only the last users of the bytes are remembered. */
static void memory_follows_what_is_live_without_any_synchronization(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    strata_sim_check_accounts accounts[2];
    for (int part = 0; part < 2; part++) {
        for (int i = 0; i < 20000; i++) {
            CUdeviceptr mine = allocate(world.a);
            kernel(&world, world.a, mine, BYTES, WRITES);
            hand_over(world.event, world.a, world.b);
            kernel(&world, world.b, mine, BYTES, READS);
            OK(p_cuMemcpyDtoDAsync(world.x, mine, 256, world.b));
            release(mine, world.b);
            hand_over(world.other, world.b, world.a);
            if (i % 100 == 0) {
                OK(p_cuStreamSynchronize(world.c));
                OK(p_set_policy(STRATA_SIM_EARLY));
            }
        }
        OK(p_get_check_accounts(&accounts[part]));
    }
    assert_true(accounts[1].bytes < 2 * accounts[0].bytes + (64 << 10));
    world_end(&world);
}

int main(void)
{
    test_sim_open();
    if (p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS || p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_million_operations_take_at_most_ten_times_as_long),
        cmocka_unit_test(memory_follows_what_is_live),
        cmocka_unit_test(memory_follows_what_is_live_without_any_synchronization),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
