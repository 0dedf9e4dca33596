/* What both replacing headers do alike. The source file that includes this has their calls as replaced_calls; codes of
 * errors are the same numbers in both. */
#ifndef STRATA_TESTS_LIBRARY_REPLACE_CASES_H
#define STRATA_TESTS_LIBRARY_REPLACE_CASES_H

#include "library/replace/originals.h"
#include "support/captures.h"

enum { BYTES = 1 << 16, REPLACED_INVALID = CUDA_ERROR_INVALID_VALUE, REPLACED_NO_MEMORY = CUDA_ERROR_OUT_OF_MEMORY };

typedef struct replaced_functions {
    int (*allocate)(CUdeviceptr *out, size_t bytes);
    int (*release)(CUdeviceptr address);
    int (*allocate_async)(CUdeviceptr *out, size_t bytes, CUstream stream);
    int (*release_async)(CUdeviceptr address, CUstream stream);
    int (*memory_info)(size_t *free_bytes, size_t *total);
} replaced_functions;

static const replaced_functions replaced_calls;

static bool is_of_strata(CUdeviceptr address)
{
    return strata_holds((void *)(uintptr_t)address);
}

static void memory_is_of_strata(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    assert_int_equal(replaced_calls.allocate(&address, BYTES), 0);
    assert_true(is_of_strata(address));
    assert_int_equal(replaced_calls.release(address), 0);
    assert_false(is_of_strata(address));
    assert_int_equal(replaced_calls.allocate_async(&address, BYTES, CU_STREAM_LEGACY), 0);
    assert_true(is_of_strata(address));
    assert_int_equal(replaced_calls.release_async(address, CU_STREAM_LEGACY), 0);
    assert_int_equal(replaced_calls.allocate_async(&address, BYTES, 0), 0);
    assert_int_equal(replaced_calls.release(address), 0);
    assert_int_equal(originals.allocate + originals.release + originals.allocate_async + originals.release_async, 0);
}

static void other_memory_goes_to_cuda(void **state)
{
    (void)state;
    CUdeviceptr address, other;
    check_cu(originals_allocate(&address, BYTES)); /* as another file does */
    check_cu(originals_allocate_async(&other, BYTES, CU_STREAM_LEGACY));
    assert_int_equal(replaced_calls.release(address), 0);
    assert_int_equal(originals.release, 1);
    assert_int_equal(replaced_calls.release_async(other, CU_STREAM_LEGACY), 0);
    assert_int_equal(originals.release_async, 1);
    assert_int_equal(replaced_calls.release(0), 0); /* as programs do, or begin with */
    assert_int_equal(originals.release, 2);
}

static void errors_are_cudas_codes(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    size_t free_bytes, total;
    assert_int_equal(replaced_calls.allocate(NULL, BYTES), REPLACED_INVALID);
    assert_int_equal(replaced_calls.allocate(&address, (size_t)1 << 60), REPLACED_NO_MEMORY);
    assert_int_equal(replaced_calls.memory_info(&free_bytes, &total), 0);
    assert_true(free_bytes > 0 && free_bytes <= total);
    assert_int_equal(replaced_calls.allocate(&address, BYTES), 0);
    assert_int_equal(replaced_calls.release(address + 256), REPLACED_INVALID); /* inside: not CUDA's */
    assert_int_equal(originals.release, 0);
    assert_int_equal(replaced_calls.release(address), 0);
    assert_int_not_equal(replaced_calls.release(address), 0); /* a second time: CUDA's answer */
    assert_int_equal(originals.release, 1);
}

static void a_capture_of_other_code_gets_its_nodes_from_cuda(void **state)
{
    (void)state;
    CUstream stream;
    CUdeviceptr address = 0;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    test_begin_capture(stream);
    const int allocated = replaced_calls.allocate_async(&address, BYTES, stream);
    const int freed = replaced_calls.release_async(address, stream);
    const size_t nodes = test_end_capture(stream);
    assert_int_equal(allocated, 0);
    assert_int_equal(freed, 0);
    assert_int_equal(nodes, 2);
    assert_int_equal(originals.allocate_async, 1);
    assert_int_equal(originals.release_async, 1);
    check_cu(test_cu()->StreamDestroy(stream));
}

/* The driver knows the address of a block of `async` or `direct` until the capture has ended. */
static void a_second_free_in_a_capture_is_refused_by_strata(void **state)
{
    (void)state;
    CUstream stream;
    CUdeviceptr address = 0, other = 0;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    assert_int_equal(replaced_calls.allocate_async(&address, BYTES, stream), 0);
    test_begin_capture(stream);
    const int freed = replaced_calls.release_async(address, stream);
    test_end_capture(stream);
    assert_int_equal(freed, 0);
    assert_int_equal(replaced_calls.release(address), REPLACED_INVALID);
    assert_int_equal(replaced_calls.release_async(address + 1, CU_STREAM_LEGACY), REPLACED_INVALID);
    assert_int_equal(originals.release + originals.release_async, 0);
    assert_int_equal(replaced_calls.allocate_async(&other, BYTES, stream), 0); /* the handle is used again */
    assert_false(strata_holds((void *)(uintptr_t)address) && other != address);
    assert_int_equal(replaced_calls.release_async(other, stream), 0);
    check_cu(test_cu()->StreamSynchronize(stream));
    check_cu(test_cu()->StreamDestroy(stream));
}

#define REPLACED_CASES(begin)                                                                                     \
    cmocka_unit_test_setup(memory_is_of_strata, begin), cmocka_unit_test_setup(other_memory_goes_to_cuda, begin), \
        cmocka_unit_test_setup(errors_are_cudas_codes, begin),                                                    \
        cmocka_unit_test_setup(a_capture_of_other_code_gets_its_nodes_from_cuda, begin),                          \
        cmocka_unit_test_setup(a_second_free_in_a_capture_is_refused_by_strata, begin)

#endif
