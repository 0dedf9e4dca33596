/* The direct resource's own matters: a free waits on the host until nothing can touch the block. */
#include "support/faults.h"
#include "support/fixture.h"

#include <pthread.h>
#include <time.h>

enum { BYTES = 4096 };

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
        CUstream home = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, home);
        test_write(fixture, &block, 0x11, home);
        test_stall *stall = test_stall_begin(user);
        const unsigned char *seen = test_read(fixture, &block, user);
        check_free_waits(fixture, &block, home, stall);
        check_bytes(seen, 0x11, BYTES);
        test_stream_close(fixture, home);
        test_stream_close(fixture, user);
    }
}

static void every_driver_call_of_a_free_may_fail_and_the_block_stays(test_fixture *fixture)
{
    static const test_fault_call faults[] = {TEST_FAULT_STREAM_SYNCHRONIZE, TEST_FAULT_EVENT_RECORD,
                                             TEST_FAULT_EVENT_SYNCHRONIZE, TEST_FAULT_FREE};
    CUstream home = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        unsigned refused = 1;
        for (unsigned nth = 1; refused; nth++) {
            strata_block block = test_allocate(fixture, BYTES, home), found;
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
    check_status(strata_direct_create(-1, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_direct_create(1000, NULL, &resource), STRATA_ERROR_INVALID_VALUE);
    assert_null(resource);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_free_waits_for_the_stream_that_it_is_asked_on),
        TEST_CASE(a_free_waits_for_every_noted_use),
        TEST_CASE(every_driver_call_of_a_free_may_fail_and_the_block_stays),
        TEST_CASE(an_allocation_that_fails_at_any_driver_call_leaves_nothing),
        TEST_CASE(nothing_is_ever_retired),
        TEST_CASE(it_is_refused_without_a_place_or_a_device),
    };
    static const char *const stacks[] = {"direct"};
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
