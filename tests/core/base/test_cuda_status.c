/* The code of CUDA for each status. */
#include "support/driver.h"

#include "core/base/error.h"

/* As in docs/replace.md. */
static const struct {
    strata_status status;
    CUresult code;
} codes[] = {
    {STRATA_SUCCESS, CUDA_SUCCESS},
    {STRATA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_VALUE},
    {STRATA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_OUT_OF_MEMORY},
    {STRATA_ERROR_OUT_OF_HOST_MEMORY, CUDA_ERROR_OUT_OF_MEMORY},
    {STRATA_ERROR_OUT_OF_BUDGET, CUDA_ERROR_OUT_OF_MEMORY},
    {STRATA_ERROR_USE_AFTER_FREE, CUDA_ERROR_INVALID_VALUE},
    {STRATA_ERROR_DOUBLE_FREE, CUDA_ERROR_INVALID_VALUE},
    {STRATA_ERROR_FOREIGN_POINTER, CUDA_ERROR_INVALID_VALUE},
    {STRATA_ERROR_SIZE_MISMATCH, CUDA_ERROR_INVALID_VALUE},
    {STRATA_ERROR_WRONG_DEVICE, CUDA_ERROR_INVALID_DEVICE},
    {STRATA_ERROR_BLOCK_IN_USE, CUDA_ERROR_ILLEGAL_STATE},
    {STRATA_ERROR_STREAM_MISUSE, CUDA_ERROR_INVALID_HANDLE},
    {STRATA_ERROR_STREAM_CAPTURE, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED},
    {STRATA_ERROR_STREAMS_EXHAUSTED, CUDA_ERROR_ILLEGAL_STATE},
    {STRATA_ERROR_NOT_COMMITTED, CUDA_ERROR_ILLEGAL_STATE},
    {STRATA_ERROR_NOT_READY, CUDA_ERROR_NOT_READY},
    {STRATA_ERROR_SYNTAX, CUDA_ERROR_INVALID_VALUE},
    {STRATA_ERROR_UNSUPPORTED, CUDA_ERROR_NOT_SUPPORTED},
    {STRATA_ERROR_DRIVER_NOT_FOUND, CUDA_ERROR_NO_DEVICE},
    {STRATA_ERROR_DRIVER, CUDA_ERROR_UNKNOWN},
    {STRATA_ERROR_SHUT_DOWN, CUDA_ERROR_DEINITIALIZED},
    {STRATA_ERROR_FORKED, CUDA_ERROR_NOT_INITIALIZED},
    {STRATA_ERROR_BUSY, CUDA_ERROR_ILLEGAL_STATE},
    {STRATA_ERROR_IO, CUDA_ERROR_OPERATING_SYSTEM},
    {STRATA_ERROR_CORRUPTED, CUDA_ERROR_UNKNOWN},
    {STRATA_ERROR_DEADLOCK, CUDA_ERROR_OUT_OF_MEMORY},
    {STRATA_ERROR_DEVICE_RESET, CUDA_ERROR_CONTEXT_IS_DESTROYED},
    {STRATA_ERROR_STALE, CUDA_ERROR_INVALID_HANDLE},
    {STRATA_ERROR_SHARED, CUDA_ERROR_ILLEGAL_STATE},
    {STRATA_ERROR_SEALED, CUDA_ERROR_ILLEGAL_STATE},
    {STRATA_ERROR_TIMEOUT, CUDA_ERROR_TIMEOUT},
    {STRATA_ERROR_CANCELLED, CUDA_ERROR_UNKNOWN},
    {STRATA_ERROR_QUEUE_FULL, CUDA_ERROR_ILLEGAL_STATE},
    {STRATA_ERROR_POISONED, CUDA_ERROR_UNKNOWN},
    {STRATA_ERROR_LIBRARY, CUDA_ERROR_UNKNOWN},
};

static CUresult expected(strata_status status)
{
    for (size_t i = 0; i < sizeof codes / sizeof codes[0]; i++)
        if (codes[i].status == status)
            return codes[i].code;
    fail_msg("%s has no code in this table", strata_status_name(status));
    return CUDA_ERROR_UNKNOWN;
}

static void each_status_has_its_code(void **state)
{
    (void)state;
#define CHECK(name, code, text)                                                      \
    assert_int_equal(strata_status_to_cuda(STRATA_##name), expected(STRATA_##name)); \
    assert_int_equal(strata_status_to_cudart(STRATA_##name), (int)expected(STRATA_##name));
    STRATA_STATUS_MAP(CHECK)
#undef CHECK
    assert_int_equal(strata_status_to_cuda((strata_status)9999), CUDA_ERROR_UNKNOWN);
}

static void the_drivers_own_code_is_given_while_it_is_the_threads_last(void **state)
{
    (void)state;
    strata_status status = strata_fail_driver(CUDA_ERROR_LAUNCH_FAILED, "cuStreamSynchronize", "waiting");
    assert_int_equal(status, STRATA_ERROR_DRIVER);
    assert_int_equal(strata_status_to_cuda(status), CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(strata_status_to_cudart(status), (int)CUDA_ERROR_LAUNCH_FAILED);
    assert_int_equal(strata_status_to_cuda(STRATA_ERROR_POISONED), CUDA_ERROR_UNKNOWN);
    strata_fail(STRATA_ERROR_INVALID_VALUE, "another failure");
    assert_int_equal(strata_status_to_cuda(status), CUDA_ERROR_UNKNOWN);
}

/* driver_types.h of CUDA 13.0 names neither. */
static void codes_that_the_cuda_runtime_lacks_are_unknown_to_it(void **state)
{
    (void)state;
    static const CUresult without[] = {CUDA_ERROR_CONTEXT_ALREADY_CURRENT, CUDA_ERROR_KEY_ROTATION};
    for (size_t i = 0; i < sizeof without / sizeof without[0]; i++) {
        strata_status status = strata_fail_driver(without[i], "cuCtxPushCurrent", "trying");
        assert_int_equal(strata_status_to_cuda(status), without[i]);
        assert_int_equal(strata_status_to_cudart(status), (int)CUDA_ERROR_UNKNOWN);
    }
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(each_status_has_its_code),
        cmocka_unit_test(the_drivers_own_code_is_given_while_it_is_the_threads_last),
        cmocka_unit_test(codes_that_the_cuda_runtime_lacks_are_unknown_to_it),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
