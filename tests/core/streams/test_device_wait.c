/* Waiting for a device: by which calls, for which streams, and what a failure leaves. */
#include "core/streams/device_wait.h"
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
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
