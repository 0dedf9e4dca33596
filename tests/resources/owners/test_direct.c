/* The direct resource's own matters: a free waits on the host until nothing can touch the block. */
#include "support/faults.h"
#include "support/fixture.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <time.h>

enum { BYTES = 4096, MIDDLE = 4 << 20 };

typedef struct freeing {
    strata_runtime *runtime;
    strata_block block;
    CUstream stream;
    strata_status status;
    _Atomic bool done;
} freeing;

static void *free_block(void *data)
{
    freeing *self = data;
    test_make_current();
    self->status = strata_runtime_deallocate_on(self->runtime, &self->block, self->stream);
    self->done = true;
    return NULL;
}

/* Frees on `freed_on` in another thread while `stalled` is held back, and checks that this waits for the release. */
static void check_free_waits(test_fixture *fixture, const strata_block *block, CUstream freed_on, test_stall *stall)
{
    freeing free = {.runtime = fixture->runtime, .block = *block, .stream = freed_on};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, free_block, &free), 0);
    nanosleep(&(struct timespec){.tv_nsec = 30000000}, NULL);
    bool early = free.done;
    test_stall_release(stall);
    assert_int_equal(pthread_join(thread, NULL), 0);
    test_stall_end(stall);
    assert_false(early);
    check_ok(free.status);
}

static void a_free_waits_for_the_stream_that_it_is_asked_on(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind <= TEST_STREAM_LEGACY; kind++) {
        CUstream stream = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_fill(block.address, 0x11, BYTES, stream);
        test_synchronize(stream);
        test_stall *stall = test_stall_begin(stream);
        const unsigned char *seen = test_copy_back(fixture, block.address, BYTES, stream);
        check_free_waits(fixture, &block, stream, stall);
        check_bytes(seen, 0x11, BYTES);
        test_stream_close(fixture, stream);
    }
}

static void a_free_waits_for_every_noted_use(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        test_stall *stall = test_stall_begin(user);
        const unsigned char *seen = test_read(fixture, &block, user);
        check_free_waits(fixture, &block, alloc_stream, stall);
        check_bytes(seen, 0x11, BYTES);
        test_stream_close(fixture, alloc_stream);
        test_stream_close(fixture, user);
    }
}

/* As many threads as a timeline keeps events wait on the host for a stalled stream, each for an event of its own. */
enum { WAITERS = 12, PATIENCE_S = 5 };

static struct {
    PFN_cuEventSynchronize_v2000 synchronize;
    sem_t waiting;
} host_waits;

static CUresult CUDAAPI say_and_wait(CUevent event)
{
    sem_post(&host_waits.waiting);
    return host_waits.synchronize(event);
}

/* Lets the stream go if the calls in question do not come back, so that the test fails and does not hang. */
typedef struct rescuer {
    test_stall *stall;
    sem_t done;
    bool needed;
} rescuer;

static struct timespec end_of_patience(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    return until;
}

/* Until all wait, or it is clear that one has failed before it came so far. */
static void wait_for_waiters(void)
{
    struct timespec until = end_of_patience();
    for (size_t i = 0; i < WAITERS; i++)
        sem_timedwait(&host_waits.waiting, &until);
}

static void *rescue_if_late(void *data)
{
    rescuer *self = data;
    struct timespec until = end_of_patience();
    while (sem_timedwait(&self->done, &until) != 0 && !self->needed)
        self->needed = errno == ETIMEDOUT;
    test_stall_release(self->stall);
    return NULL;
}

static void a_stream_goes_on_however_many_threads_wait_for_it_on_the_host(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), slow = test_stream(fixture, TEST_STREAM_POOL);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    pthread_t threads[WAITERS], rescuing;
    freeing frees[WAITERS];
    strata_block last = test_allocate(fixture, BYTES, alloc_stream);
    for (size_t i = 0; i < WAITERS; i++)
        frees[i] = (freeing){
            .runtime = fixture->runtime, .block = test_allocate(fixture, BYTES, alloc_stream), .stream = alloc_stream};
    rescuer rescue = {.stall = test_stall_begin(slow)};
    for (size_t i = 0; i < WAITERS; i++) {
        test_write(fixture, &frees[i].block, 0x11, slow);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &frees[i].block, reader, STRATA_ACCESS_READ));
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &frees[i].block, reader, STRATA_ACCESS_NONE));
    }
    assert_int_equal(sem_init(&host_waits.waiting, 0, 0), 0);
    assert_int_equal(sem_init(&rescue.done, 0, 0), 0);
    host_waits.synchronize = strata_cu.EventSynchronize;
    strata_cu.EventSynchronize = say_and_wait;
    for (size_t i = 0; i < WAITERS; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, free_block, &frees[i]), 0);
    wait_for_waiters();
    assert_int_equal(pthread_create(&rescuing, NULL, rescue_if_late, &rescue), 0);
    test_write(fixture, &last, 0x22, slow);
    const unsigned char *seen = test_read(fixture, &last, reader);
    sem_post(&rescue.done);
    pthread_join(rescuing, NULL);
    for (size_t i = 0; i < WAITERS; i++)
        pthread_join(threads[i], NULL);
    strata_cu.EventSynchronize = host_waits.synchronize;
    test_stall_end(rescue.stall);
    assert_false(rescue.needed);
    for (size_t i = 0; i < WAITERS; i++)
        check_ok(frees[i].status);
    check_bytes(seen, 0x22, BYTES);
    test_free_on(fixture, &last, alloc_stream);
}

static void every_driver_call_of_a_free_may_fail_and_the_block_stays(test_fixture *fixture)
{
    static const test_fault_call faults[] = {TEST_FAULT_STREAM_SYNCHRONIZE, TEST_FAULT_EVENT_RECORD,
                                             TEST_FAULT_EVENT_SYNCHRONIZE, TEST_FAULT_FREE};
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        unsigned refused = 1;
        for (unsigned nth = 1; refused; nth++) {
            strata_block block = test_allocate(fixture, BYTES, alloc_stream), found;
            check_ok(strata_runtime_record_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
            test_fault_begin(faults[f], nth, false, CUDA_ERROR_UNKNOWN);
            strata_status status = strata_runtime_deallocate(fixture->runtime, &block);
            refused = test_fault_end();
            assert_int_equal(status, refused ? STRATA_ERROR_DRIVER : STRATA_SUCCESS);
            if (!refused) {
                assert_true(nth > 1); /* the call is made at all */
                continue;
            }
            assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
            assert_int_equal(test_usage(fixture).live_bytes, BYTES);
            check_ok(strata_runtime_find(fixture->runtime, block.address, &found));
            check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        }
    }
}

static void an_allocation_that_fails_at_any_driver_call_leaves_nothing(test_fixture *fixture)
{
    static const test_fault_call faults[] = {TEST_FAULT_ALLOCATE, TEST_FAULT_STREAM_GET_ID};
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        unsigned refused = 1;
        for (unsigned nth = 1; refused; nth++) {
            strata_block block = {.bytes = 1};
            test_calls calls;
            test_calls_begin(&calls);
            test_fault_begin(faults[f], nth, false, CUDA_ERROR_UNKNOWN);
            strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
            refused = test_fault_end();
            assert_int_equal(status, refused ? STRATA_ERROR_DRIVER : STRATA_SUCCESS);
            if (refused) {
                assert_memory_equal(&block, &(strata_block){0}, sizeof block);
                assert_int_equal(test_calls_of(&calls, "cuMemAlloc"), test_calls_of(&calls, "cuMemFree"));
                assert_int_equal(test_usage(fixture).live_blocks, 0);
            } else {
                test_free_on(fixture, &block, stream);
            }
        }
    }
}

/* Before a free comes back from the driver, other threads may be given the memory: here as one block that begins where
 * the freed one did, or as a larger one around it. */
static struct {
    PFN_cuMemFree_v3020 free;
    test_fixture *fixture;
    const strata_block *below; /* to be freed too, or NULL */
    size_t bytes;
    strata_block next;
    bool good;
} taken_at_once;

static CUresult CUDAAPI free_and_take(CUdeviceptr address)
{
    strata_runtime *runtime = taken_at_once.fixture->runtime;
    CUresult result = taken_at_once.free(address);
    strata_cu.MemFree = taken_at_once.free;
    taken_at_once.good =
        (!taken_at_once.below || strata_runtime_deallocate(runtime, taken_at_once.below) == STRATA_SUCCESS) &&
        strata_runtime_allocate(runtime, taken_at_once.bytes, NULL, &taken_at_once.next) == STRATA_SUCCESS;
    if (taken_at_once.good) {
        strata_block found;
        CUdeviceptr last = taken_at_once.next.address + taken_at_once.bytes - 1;
        taken_at_once.good =
            strata_runtime_find(runtime, last, &found) == STRATA_SUCCESS && found.id.slot == taken_at_once.next.id.slot;
    }
    return result;
}

/* Returns the block that was allocated in the middle of the free. */
static strata_block take_in_the_middle(test_fixture *fixture, const strata_block *freed, const strata_block *below)
{
    taken_at_once.free = strata_cu.MemFree;
    taken_at_once.fixture = fixture;
    taken_at_once.below = below;
    taken_at_once.bytes = below ? 2 * MIDDLE : MIDDLE;
    strata_cu.MemFree = free_and_take;
    strata_status status = strata_runtime_deallocate(fixture->runtime, freed);
    strata_cu.MemFree = taken_at_once.free;
    check_ok(status);
    assert_true(taken_at_once.good);
    return taken_at_once.next;
}

static void memory_that_is_handed_out_before_its_free_returns_is_found_as_the_new_block(test_fixture *fixture)
{
    strata_block found, a = test_allocate(fixture, MIDDLE, NULL), b = test_allocate(fixture, MIDDLE, NULL);
    strata_block next = take_in_the_middle(fixture, &b, NULL);
    if (test_on_simulated_driver())
        assert_true(next.address == b.address);
    check_ok(strata_runtime_find(fixture->runtime, next.address + MIDDLE - 1, &found));
    assert_memory_equal(&found.id, &next.id, sizeof found.id);
    strata_block around = take_in_the_middle(fixture, &next, &a);
    if (test_on_simulated_driver())
        assert_true(around.address == a.address && next.address == a.address + MIDDLE);
    check_ok(strata_runtime_find(fixture->runtime, around.address + 2 * MIDDLE - 1, &found));
    assert_memory_equal(&found.id, &around.id, sizeof found.id);
    check_status(strata_runtime_find(fixture->runtime, around.address + 2 * MIDDLE, &found),
                 STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate(fixture->runtime, &around));
    check_status(strata_runtime_find(fixture->runtime, around.address, &found), STRATA_ERROR_FOREIGN_POINTER);
}

static void nothing_is_ever_retired(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (int i = 0; i < 20; i++) {
        strata_block block = test_allocate(fixture, BYTES, stream);
        assert_int_equal(test_usage(fixture).bytes_outstanding, BYTES);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    }
    size_t released = 1;
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    assert_int_equal(released, 0);
}

static void it_is_refused_without_a_place_or_a_device(test_fixture *fixture)
{
    (void)fixture;
    strata_resource *resource;
    check_status(strata_direct_create(0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_direct_create(0, &(strata_direct_options){.size = 77}, &resource), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_direct_options.size is 77");
    check_status(strata_direct_create(-1, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_direct_create(1000, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_free_waits_for_the_stream_that_it_is_asked_on),
        TEST_CASE(a_free_waits_for_every_noted_use),
        TEST_CASE(a_stream_goes_on_however_many_threads_wait_for_it_on_the_host),
        TEST_CASE(every_driver_call_of_a_free_may_fail_and_the_block_stays),
        TEST_CASE(an_allocation_that_fails_at_any_driver_call_leaves_nothing),
        TEST_CASE(memory_that_is_handed_out_before_its_free_returns_is_found_as_the_new_block),
        TEST_CASE(nothing_is_ever_retired),
        TEST_CASE(it_is_refused_without_a_place_or_a_device),
    };
    static const char *const stacks[] = {"direct"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
