/* Waiting for a device: by which calls, for which streams, and what a failure leaves. */
#include "core/streams/device_wait.h"
#include "core/streams/stream_map.h"
#include "support/captures.h"
#include "support/faults.h"

enum { BYTES = 1 << 20 };

static strata_device *device(void)
{
    strata_device *found;
    check_ok(strata_device_get(0, &found));
    return found;
}

static CUdeviceptr memory; /* of the test */

/* The work is long enough to be under way, and the policies of the simulated driver put it off. */
static void check_waited_for(unsigned flags)
{
    static unsigned char seen[BYTES];
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, flags));
    check_cu(test_cu()->MemsetD8Async(memory, 7, BYTES, stream));
    check_cu(test_cu()->MemcpyDtoHAsync(seen, memory, BYTES, stream));
    check_ok(strata_device_wait(device()));
    assert_int_equal(test_cu()->StreamQuery(stream), CUDA_SUCCESS);
    assert_int_equal(seen[BYTES - 1], 7);
    seen[BYTES - 1] = 0;
    check_cu(test_cu()->StreamDestroy(stream));
}

static void all_streams_are_waited_for(void **state)
{
    (void)state;
    check_waited_for(CU_STREAM_DEFAULT);
    check_waited_for(CU_STREAM_NON_BLOCKING);
}

/* Pinned memory costs ten times as much. */
static void device_memory_serves_and_pinned_memory_where_the_device_is_full(void **state)
{
    (void)state;
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_device_wait(device()));
    assert_int_equal(test_calls_of(&calls, "cuMemAlloc"), 1);
    assert_int_equal(test_calls_of(&calls, "cuMemFree"), 1);
    assert_int_equal(test_calls_of(&calls, "cuMemHostAlloc"), 0);
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    check_waited_for(CU_STREAM_NON_BLOCKING);
    assert_int_equal(test_fault_end(), 1);
    assert_int_equal(test_calls_of(&calls, "cuMemFreeHost"), 1);
}

/* The memory of a wait that failed is freed by the next one. */
static void check_left_to_the_next(test_fault_call failing, bool full)
{
    test_calls calls;
    test_calls_begin(&calls);
    if (full) {
        test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
        check_ok(strata_device_wait(device()));
        test_fault_end();
    }
    test_fault_begin(failing, 1, false, CUDA_ERROR_UNKNOWN);
    check_status(strata_device_wait(device()), STRATA_ERROR_DRIVER);
    assert_int_equal(test_fault_end(), 1);
    check_ok(strata_device_wait(device()));
    assert_int_equal(test_calls_of(&calls, "cuMemAlloc"), 1);
}

static void what_a_wait_could_not_free_the_next_one_frees(void **state)
{
    (void)state;
    check_left_to_the_next(TEST_FAULT_FREE, false);
    check_left_to_the_next(TEST_FAULT_ALLOCATE, true);
}

static void captures_survive_it(void **state)
{
    (void)state;
    CUstream stream;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    test_begin_capture(stream);
    const strata_status status = strata_device_wait(device());
    test_fault_begin(TEST_FAULT_ALLOCATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    const strata_status pinned = strata_device_wait(device());
    test_fault_end();
    assert_int_equal(test_end_capture(stream), 0);
    check_ok(status);
    check_ok(pinned);
    check_cu(test_cu()->StreamDestroy(stream));
}

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_OUT_OF_MEMORY;
}

/* Recorded once, and then neither recorded nor waited for. */
static struct {
    CUstream stream;
    strata_stream_ref ref;
    PFN_cuMemFree_v3020 real_free;
} unmarked;

static strata_status record(void)
{
    strata_spin_take(&unmarked.ref.timeline->lock);
    const strata_status status = strata_timeline_record_now(unmarked.ref.timeline, unmarked.stream);
    strata_spin_release(&unmarked.ref.timeline->lock);
    return status;
}

/* Returns the point of the work that is left. */
static strata_point leave_unmarked(void)
{
    const strata_point point = strata_timeline_now(unmarked.ref.timeline);
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    const strata_status status = record();
    assert_true(test_fault_end() > 0);
    assert_int_not_equal(status, STRATA_SUCCESS);
    return point;
}

static CUresult CUDAAPI free_and_leave_unmarked(CUdeviceptr address)
{
    const CUresult result = unmarked.real_free(address);
    leave_unmarked();
    return result;
}

/* After the driver has waited, but before the library notes that it did. */
static void work_that_is_left_unmarked_after_the_drivers_wait_is_not_learnt_by_it(void **state)
{
    (void)state;
    check_cu(test_cu()->StreamCreate(&unmarked.stream, CU_STREAM_NON_BLOCKING));
    check_ok(strata_stream_resolve(device(), unmarked.stream, &unmarked.ref));
    check_ok(record());
    leave_unmarked(); /* so that there is an older failure, which it does learn */
    unmarked.real_free = strata_cu.MemFree;
    strata_cu.MemFree = free_and_leave_unmarked;
    const strata_status status = strata_device_wait(device());
    strata_cu.MemFree = unmarked.real_free;
    check_ok(status);
    assert_true(strata_timelines_need_device_wait(device()));
    check_ok(strata_device_wait(device()));
    assert_false(strata_timelines_need_device_wait(device()));
    check_cu(test_cu()->StreamDestroy(unmarked.stream));
}

/* Its handle is there for an event whenever one is needed, also of a stream that was used before it was registered. */
static void work_of_a_registered_stream_needs_no_wait_for_the_device_but_is_learnt_by_one(void **state)
{
    (void)state;
    for (int used_before = 0; used_before < 2; used_before++) {
        strata_stream_ref left;
        check_cu(test_cu()->StreamCreate(&unmarked.stream, CU_STREAM_NON_BLOCKING));
        if (used_before)
            check_ok(strata_stream_resolve(device(), unmarked.stream, &unmarked.ref));
        check_ok(strata_stream_register(device(), unmarked.stream, false));
        check_ok(strata_stream_resolve(device(), unmarked.stream, &unmarked.ref));
        assert_true(unmarked.ref.known);
        const strata_point point = leave_unmarked();
        assert_false(strata_timelines_need_device_wait(device()));
        assert_false(strata_point_known_complete(point));
        check_ok(strata_device_wait(device()));
        assert_true(strata_point_known_complete(point));
        check_ok(strata_stream_unregister(device(), unmarked.stream, &left));
        strata_stream_await_frees(&left);
        check_cu(test_cu()->StreamDestroy(unmarked.stream));
    }
}

int main(void)
{
    test_open_driver();
    if (test_cu()->MemAlloc(&memory, BYTES) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(all_streams_are_waited_for),
        cmocka_unit_test(device_memory_serves_and_pinned_memory_where_the_device_is_full),
        cmocka_unit_test(what_a_wait_could_not_free_the_next_one_frees),
        cmocka_unit_test(captures_survive_it),
        cmocka_unit_test(work_that_is_left_unmarked_after_the_drivers_wait_is_not_learnt_by_it),
        cmocka_unit_test(work_of_a_registered_stream_needs_no_wait_for_the_device_but_is_learnt_by_one),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
