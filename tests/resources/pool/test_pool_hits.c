/* The second of the known weaknesses of pools (test_pool_weaknesses.c): a lock held over driver calls. Here a call of
 * one thread is slow, and free memory serves the other threads meanwhile. */
#include <pthread.h>
#include <semaphore.h>
#include <string.h>
#include <time.h>

#include "support/effort.h"
#include "support/pool.h"
#include "support/refusals.h"
#include "support/sweep.h"

enum { WITHIN_S = 5 };

/* The driver is slow in one call of one thread, until the test releases it. */
static struct {
    const char *name;
    bool armed; /* for once */
    _Atomic bool timed_out;
    sem_t entered, gate;
    PFN_cuMemCreate_v10020 create;
    PFN_cuMemMap_v10020 map;
    PFN_cuMemSetAccess_v10020 set_access;
    PFN_cuMemUnmap_v10020 unmap;
    PFN_cuMemRelease_v10020 release;
    PFN_cuEventSynchronize_v2000 synchronize;
} slow;

static bool wait_a_while(sem_t *semaphore)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += (time_t)test_timeout(WITHIN_S);
    return sem_timedwait(semaphore, &until) == 0;
}

static void come_to(const char *name)
{
    if (!slow.armed || strcmp(name, slow.name) != 0)
        return;
    slow.armed = false;
    sem_post(&slow.entered);
    if (!wait_a_while(&slow.gate))
        slow.timed_out = true;
}

static CUresult CUDAAPI slow_create(CUmemGenericAllocationHandle *handle, size_t bytes,
                                    const CUmemAllocationProp *properties, unsigned long long flags)
{
    come_to("cuMemCreate");
    return slow.create(handle, bytes, properties, flags);
}

static CUresult CUDAAPI slow_map(CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle,
                                 unsigned long long flags)
{
    come_to("cuMemMap");
    return slow.map(address, bytes, offset, handle, flags);
}

static CUresult CUDAAPI slow_set_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    come_to("cuMemSetAccess");
    return slow.set_access(address, bytes, access, count);
}

static CUresult CUDAAPI slow_unmap(CUdeviceptr address, size_t bytes)
{
    come_to("cuMemUnmap");
    return slow.unmap(address, bytes);
}

static CUresult CUDAAPI slow_release(CUmemGenericAllocationHandle handle)
{
    come_to("cuMemRelease");
    return slow.release(handle);
}

static CUresult CUDAAPI slow_synchronize(CUevent event)
{
    come_to("cuEventSynchronize");
    return slow.synchronize(event);
}

static void slow_begin(const char *name)
{
    slow.name = name;
    slow.timed_out = false;
    slow.armed = true;
    sem_init(&slow.entered, 0, 0);
    sem_init(&slow.gate, 0, 0);
    slow.create = strata_cu.MemCreate;
    slow.map = strata_cu.MemMap;
    slow.set_access = strata_cu.MemSetAccess;
    slow.unmap = strata_cu.MemUnmap;
    slow.release = strata_cu.MemRelease;
    slow.synchronize = strata_cu.EventSynchronize;
    strata_cu.MemCreate = slow_create;
    strata_cu.MemMap = slow_map;
    strata_cu.MemSetAccess = slow_set_access;
    strata_cu.MemUnmap = slow_unmap;
    strata_cu.MemRelease = slow_release;
    strata_cu.EventSynchronize = slow_synchronize;
}

static void slow_end(void)
{
    strata_cu.MemCreate = slow.create;
    strata_cu.MemMap = slow.map;
    strata_cu.MemSetAccess = slow.set_access;
    strata_cu.MemUnmap = slow.unmap;
    strata_cu.MemRelease = slow.release;
    strata_cu.EventSynchronize = slow.synchronize;
}

typedef struct misser {
    test_fixture *fixture;
    CUstream stream;
    size_t bytes; /* 0: trims instead */
    strata_block block;
    strata_status status;
} misser;

static void *miss(void *data)
{
    misser *self = data;
    test_make_current();
    self->status = self->bytes ? try_to_allocate(self->fixture, self->bytes, self->stream, &self->block)
                               : strata_runtime_trim(self->fixture->runtime, 0, NULL);
    return NULL;
}

enum { HITS = 100 };

/* Requests that free memory serves: of a cache, and of the heap, small and large; frees of all; uses. */
static bool serve_others(test_fixture *fixture, CUstream stream)
{
    bool good = true;
    for (size_t i = 0; i < HITS && good; i++) {
        strata_block small, middle, large;
        good =
            try_to_allocate(fixture, EDGE, stream, &small) == STRATA_SUCCESS &&
            try_to_allocate(fixture, MIB / 2 + i * 512, stream, &middle) == STRATA_SUCCESS &&
            try_to_allocate(fixture, MIB + i * 512, stream, &large) == STRATA_SUCCESS &&
            strata_runtime_prepare_block_use(fixture->runtime, &large, stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
            strata_runtime_finish_block_use(fixture->runtime, &large, stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
            strata_runtime_deallocate(fixture->runtime, &large) == STRATA_SUCCESS &&
            strata_runtime_deallocate(fixture->runtime, &middle) == STRATA_SUCCESS &&
            strata_runtime_deallocate(fixture->runtime, &small) == STRATA_SUCCESS;
    }
    return good;
}

/* Free memory for all of these, on either side. */
static void leave_enough_behind(test_fixture *fixture, CUstream stream)
{
    leave_behind(fixture, MIB - 512, 0x11, stream);
    leave_behind(fixture, 2 * MIB, 0x11, stream);
}

/* While another thread's request or trim is in a driver call. */
static void others_are_served_during(test_fixture *fixture, const char *call, misser *other, CUstream stream)
{
    pthread_t thread;
    slow_begin(call);
    assert_int_equal(pthread_create(&thread, NULL, miss, other), 0);
    const bool entered = wait_a_while(&slow.entered);
    const bool good = entered && serve_others(fixture, stream);
    sem_post(&slow.gate);
    pthread_join(thread, NULL);
    slow_end();
    assert_true(entered);
    assert_true(good);
    assert_false(slow.timed_out);
    check_ok(other->status);
}

static void a_miss_of_one_stream_does_not_keep_another_from_hits(test_fixture *fixture)
{
    static const char *const calls[] = {"cuMemCreate", "cuMemMap", "cuMemSetAccess"};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        leave_enough_behind(fixture, stream);
        misser one = {.fixture = fixture, .stream = other, .bytes = 32 * MIB};
        others_are_served_during(fixture, calls[i], &one, stream);
        test_free_on(fixture, &one.block, other);
        empty_the_pool(fixture);
    }
}

static void hits_go_on_while_memory_is_returned(test_fixture *fixture)
{
    static const char *const calls[] = {"cuMemUnmap", "cuMemRelease"};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        strata_block large = test_allocate(fixture, 32 * MIB, other);
        strata_block small = test_allocate(fixture, EDGE, stream), keep; /* keep their chunks */
        keep = test_allocate(fixture, 5 * MIB / 2, stream);
        test_free_on(fixture, &large, other);
        check_cu(test_cu()->CtxSynchronize());
        misser one = {.fixture = fixture};
        others_are_served_during(fixture, calls[i], &one, stream);
        test_free_on(fixture, &small, stream);
        test_free_on(fixture, &keep, stream);
        empty_the_pool(fixture);
    }
}

/* The other thread waits on the host for memory that must be remapped; smaller requests find free memory. */
static void a_request_that_waits_does_not_delay_requests_that_fit(test_fixture *fixture)
{
    pthread_t thread;
    strata_block gaps[2], walls[2], less;
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL), d = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 14 * MIB);
    for (size_t i = 0; i < 2; i++) {
        gaps[i] = test_allocate(fixture, 4 * MIB, a);
        walls[i] = test_allocate(fixture, 2 * MIB, a);
    }
    test_stall *stalls[2] = {test_stall_begin(a), test_stall_begin(d)};
    leave_behind(fixture, 2 * MIB, 0x11, d);
    for (size_t i = 0; i < 2; i++) {
        test_write(fixture, &gaps[i], 0x22, a);
        test_free_on(fixture, &gaps[i], a);
    }
    misser other = {.fixture = fixture, .stream = b, .bytes = 8 * MIB};
    slow_begin("cuEventSynchronize");
    assert_int_equal(pthread_create(&thread, NULL, miss, &other), 0);
    const bool entered = wait_a_while(&slow.entered);
    const strata_status status = try_to_allocate(fixture, 2 * MIB, c, &less);
    sem_post(&slow.gate);
    test_stall_release(stalls[0]);
    test_stall_release(stalls[1]);
    pthread_join(thread, NULL);
    slow_end();
    test_stall_end(stalls[0]);
    test_stall_end(stalls[1]);
    assert_true(entered);
    assert_false(slow.timed_out);
    check_ok(status);
    check_ok(other.status);
    test_write(fixture, &other.block, 0x33, b);
    check_ends(fixture, &other.block, 0x33, b);
    test_free_on(fixture, &other.block, b);
    test_free_on(fixture, &less, c);
    for (size_t i = 0; i < 2; i++)
        test_free_on(fixture, &walls[i], a);
}

int main(void)
{
    static const char *const stacks[] = {"pool"};
    static const test_case cases[] = {
        TEST_CASE(a_miss_of_one_stream_does_not_keep_another_from_hits),
        TEST_CASE(hits_go_on_while_memory_is_returned),
    };
    static const char *const without_progress[] = {"pool(opportunistic=off)"}; /* the host waits */
    static const test_case that_wait[] = {TEST_CASE(a_request_that_waits_does_not_delay_requests_that_fit)};
    test_before_clearing = lift_limit;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]) +
           test_run_on(without_progress, 1, that_wait, sizeof that_wait / sizeof that_wait[0]);
}
