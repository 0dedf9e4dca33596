/* Fences, and the snapshot of a runtime's budget. */
#include "support/captures.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

#include <pthread.h>

enum { BYTES = 1 << 16 };

static strata_fence *fence; /* of the case */

static void clear_away(void)
{
    strata_fence_destroy(fence);
    fence = NULL;
}

static void make(test_fixture *fixture)
{
    check_ok(strata_fence_create(fixture->runtime, &fence));
}

static void check_pending(void)
{
    const strata_status status = strata_fence_query(fence);
    assert_int_equal(status, STRATA_ERROR_NOT_READY);
}

static void destroy(void)
{
    check_ok(strata_fence_destroy(fence));
    fence = NULL;
}

static void a_fence_is_passed_when_the_work_before_it_is_complete(test_fixture *fixture)
{
    test_needs_truthful_queries();
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, stream);
        make(fixture);
        test_stall *stall = test_stall_begin(stream);
        const unsigned char *seen = (test_write(fixture, &block, 0x12, stream), test_read(fixture, &block, stream));
        check_ok(strata_fence_record(fence, stream));
        check_pending();
        test_stall_release(stall);
        check_ok(strata_fence_synchronize(fence));
        check_bytes(seen, 0x12, BYTES);
        check_ok(strata_fence_query(fence));
        test_stall_end(stall);
        destroy();
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, stream);
        fixture->seen_used = 0;
    }
}

static void a_fence_waits_for_no_later_work(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    make(fixture);
    check_ok(strata_fence_record(fence, stream));
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_fence_synchronize(fence));
    check_ok(strata_fence_query(fence));
    test_stall_release(stall);
    test_stall_end(stall);
    destroy();
}

static void a_fence_is_recorded_again_on_another_stream(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_UNKNOWN);
    make(fixture);
    check_ok(strata_fence_query(fence)); /* behind nothing */
    check_ok(strata_fence_synchronize(fence));
    for (int i = 0; i < 4; i++) {
        CUstream stream = i % 2 ? second : first;
        test_stall *stall = test_stall_begin(stream);
        check_ok(strata_fence_record(fence, stream));
        check_pending();
        test_stall_release(stall);
        check_ok(strata_fence_synchronize(fence));
        check_ok(strata_fence_query(fence));
        test_stall_end(stall);
    }
    destroy();
}

static void a_stream_that_is_being_captured_takes_no_fence(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    make(fixture);
    test_begin_capture(stream);
    const strata_status refused = strata_fence_record(fence, stream);
    const strata_status passed = strata_fence_query(fence);
    assert_int_equal(test_end_capture(stream), 0); /* the capture is as it was */
    check_status(refused, STRATA_ERROR_STREAM_CAPTURE);
    check_ok(passed);
    destroy();
}

static void *wait_for_fence(void *status)
{
    *(strata_status *)status = strata_fence_synchronize(fence);
    return NULL;
}

static void another_thread_can_wait_for_a_fence(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_status status = STRATA_ERROR_BUSY;
    pthread_t thread;
    make(fixture);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_fence_record(fence, stream));
    assert_int_equal(pthread_create(&thread, NULL, wait_for_fence, &status), 0);
    test_stall_release(stall);
    assert_int_equal(pthread_join(thread, NULL), 0);
    check_ok(status);
    test_stall_end(stall);
    destroy();
}

static void a_fence_outlives_its_runtime(test_fixture *fixture)
{
    strata_runtime *runtime;
    (void)fixture;
    check_ok(strata_runtime_create(NULL, &runtime));
    strata_status made = strata_fence_create(runtime, &fence);
    strata_status recorded = made == STRATA_SUCCESS ? strata_fence_record(fence, NULL) : made;
    strata_status destroyed = strata_runtime_destroy(runtime);
    if (destroyed != STRATA_SUCCESS) /* a sweep's fault */
        strata_runtime_destroy(runtime);
    check_ok(made);
    check_ok(recorded);
    check_ok(destroyed);
    check_ok(strata_fence_synchronize(fence));
    destroy();
}

static void missing_fences_are_refused(test_fixture *fixture)
{
    strata_fence *none;
    check_status(strata_fence_create(NULL, &none), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fence_create(fixture->runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fence_record(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fence_query(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_fence_synchronize(NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_fence_destroy(NULL));
}

static void a_record_that_fails_leaves_the_fence_where_it_was(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    make(fixture);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, false, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_fence_record(fence, stream);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    check_ok(strata_fence_query(fence));
    destroy();
}

/* ---- the budget ---- */

static void a_budget_snapshot_says_what_may_still_be_allocated(test_fixture *fixture)
{
    (void)fixture;
    enum { LIMIT = 64 << 20 };
    strata_runtime *runtime;
    strata_runtime_budget before = {0}, during = {0};
    strata_block block = {0};
    size_t device_free = 0;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "budget(limit=64MiB), direct"}, &runtime));
    strata_status status = strata_runtime_budget_snapshot(runtime, &before);
    strata_status allocated = strata_runtime_allocate(runtime, 1 << 20, NULL, &block);
    strata_status again = strata_runtime_budget_snapshot(runtime, &during);
    check_cu(test_cu()->MemGetInfo(&device_free, &(size_t){0}));
    strata_runtime_deallocate(runtime, &block);
    strata_runtime_destroy(runtime);
    check_ok(status);
    check_ok(allocated);
    check_ok(again);
    assert_int_equal(before.limit, LIMIT);
    assert_int_equal(before.in_use, 0);
    assert_int_equal(before.remaining, LIMIT);
    assert_int_equal(during.in_use, block.bytes);
    assert_int_equal(during.remaining, LIMIT - block.bytes);
    if (during.device_free) /* else a sweep's fault */
        assert_int_equal(during.device_free, device_free);
}

static void a_stack_without_a_budget_has_no_limit(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL);
    strata_runtime_budget budget;
    check_ok(strata_runtime_budget_snapshot(fixture->runtime, &budget));
    assert_int_equal(budget.limit, 0);
    assert_int_equal(budget.remaining, SIZE_MAX);
    assert_int_equal(budget.in_use, strata_runtime_bytes_outstanding(fixture->runtime));
    check_status(strata_runtime_budget_snapshot(NULL, &budget), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_budget_snapshot(fixture->runtime, NULL), STRATA_ERROR_INVALID_VALUE);
    test_free_on(fixture, &block, NULL);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_fence_is_passed_when_the_work_before_it_is_complete),
        TEST_CASE(a_fence_waits_for_no_later_work),
        TEST_CASE(a_fence_is_recorded_again_on_another_stream),
        TEST_CASE(a_stream_that_is_being_captured_takes_no_fence),
        TEST_CASE(another_thread_can_wait_for_a_fence),
        TEST_CASE(a_fence_outlives_its_runtime),
        TEST_CASE(missing_fences_are_refused),
        TEST_CASE(a_record_that_fails_leaves_the_fence_where_it_was),
        TEST_CASE(a_budget_snapshot_says_what_may_still_be_allocated),
        TEST_CASE(a_stack_without_a_budget_has_no_limit),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
