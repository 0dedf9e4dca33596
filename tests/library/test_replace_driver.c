/* A source file that includes replace_cuda_driver.h. Its calls keep the driver's names; library/replace/driver.c has
 * the driver's own functions. */
#include "library/replace/cases.h"

#include <strata/replace_cuda_driver.h> /* last */

static int allocate(CUdeviceptr *out, size_t bytes)
{
    return (int)cuMemAlloc(out, bytes);
}

static int release(CUdeviceptr address)
{
    return (int)cuMemFree(address);
}

static int allocate_async(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    return (int)cuMemAllocAsync(out, bytes, stream);
}

static int release_async(CUdeviceptr address, CUstream stream)
{
    return (int)cuMemFreeAsync(address, stream);
}

static int memory_info(size_t *free_bytes, size_t *total)
{
    return (int)cuMemGetInfo(free_bytes, total);
}

static const replaced_functions replaced_calls = {allocate, release, allocate_async, release_async, memory_info};

static int begin(void **state)
{
    (void)state;
    originals = (originals_calls){0};
    return 0;
}

static void address_ranges_and_older_names_are_stratas(void **state)
{
    (void)state;
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;
    check_cu(cuMemAlloc_v2(&address, BYTES));
    check_cu(cuMemGetAddressRange(&base, &bytes, address + 100));
    assert_int_equal(base, address);
    assert_int_equal(bytes, BYTES);
    assert_int_equal(originals.range, 0);
    check_cu(cuMemFree_v2(address));
    check_cu(originals_allocate(&address, BYTES));
    cuMemGetAddressRange(NULL, NULL, address);
    assert_int_equal(originals.range, 1);
    check_cu(cuMemFree(address));
}

/* memory.range.freed in tests/answers/h200.txt. */
static void addresses_in_no_block_are_not_found(void **state)
{
    (void)state;
    enum { ODD = 1000 }; /* a block of a pool is larger */
    CUdeviceptr first = 0, second = 0;
    check_cu(cuMemAlloc(&first, ODD));
    check_cu(cuMemAlloc(&second, ODD));
    check_cu(cuMemGetAddressRange(NULL, NULL, first + ODD - 1));
    assert_int_equal(cuMemGetAddressRange(NULL, NULL, first + ODD), CUDA_ERROR_NOT_FOUND);
    check_cu(cuMemFree(first));
    assert_int_equal(cuMemGetAddressRange(NULL, NULL, first), CUDA_ERROR_NOT_FOUND);
    check_cu(cuMemFree(second));
}

/* memory.alloc.0 and async.alloc_default.0 in tests/answers/h200.txt. */
static void no_bytes_are_answered_as_by_the_driver(void **state)
{
    (void)state;
    CUdeviceptr address = 1;
    assert_int_equal(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocAsync(&address, 0, NULL), CUDA_SUCCESS);
    assert_int_equal(address, 0);
    assert_int_equal(cuMemFreeAsync(address, NULL), CUDA_SUCCESS);
    assert_int_equal(cuMemAllocAsync(NULL, 0, NULL), CUDA_ERROR_INVALID_VALUE);
}

static void stream_0_is_the_legacy_stream(void **state)
{
    (void)state;
    CUdeviceptr address;
    strata_runtime *runtime;
    strata_block block;
    check_cu(cuMemAllocAsync(&address, BYTES, 0));
    check_ok(strata_runtime_of_address(address, &runtime));
    check_ok(strata_runtime_find(runtime, address, &block));
    assert_true(block.stream == NULL || block.stream == CU_STREAM_LEGACY);
    check_cu(cuMemFreeAsync(address, 0));
}

static void pitched_memory_has_rows_of_whole_512_bytes(void **state)
{
    (void)state;
    CUdeviceptr address = 0, base = 0;
    size_t pitch = 0, bytes = 0;
    check_cu(cuMemAllocPitch(&address, &pitch, 1000, 7, 4));
    assert_int_equal(pitch, 1024);
    assert_int_equal(address % 512, 0);
    check_cu(cuMemGetAddressRange(&base, &bytes, address + 6 * pitch));
    assert_int_equal(base, address);
    assert_int_equal(bytes, 7 * pitch);
    check_cu(cuMemFree(address));
    assert_int_equal(originals.pitched, 0);
    assert_int_equal(cuMemAllocPitch(&address, &pitch, 0, 7, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch(&address, &pitch, 1000, 7, 3), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch(&address, &pitch, SIZE_MAX - 5, 7, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocPitch(&address, &pitch, SIZE_MAX / 4, 7, 4), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(originals.pitched, 4);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        REPLACED_CASES(begin),
        cmocka_unit_test_setup(address_ranges_and_older_names_are_stratas, begin),
        cmocka_unit_test_setup(addresses_in_no_block_are_not_found, begin),
        cmocka_unit_test_setup(no_bytes_are_answered_as_by_the_driver, begin),
        cmocka_unit_test_setup(stream_0_is_the_legacy_stream, begin),
        cmocka_unit_test_setup(pitched_memory_has_rows_of_whole_512_bytes, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
