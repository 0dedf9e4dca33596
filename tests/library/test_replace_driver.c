/* A source file that includes replace_cuda_driver.h. Its calls keep the driver's names; library/replace/driver.c has
 * the driver's own functions. */
#include "library/replace/originals.h"
#include "support/captures.h"

#include <strata/replace_cuda_driver.h> /* last */

enum { BYTES = 1 << 16 };

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static int begin(void **state)
{
    (void)state;
    originals = (originals_calls){0};
    return 0;
}

static void memory_is_of_strata(void **state)
{
    (void)state;
    CUdeviceptr address = 0, base = 0;
    size_t bytes = 0;
    check_cu(cuMemAlloc(&address, BYTES));
    assert_true(strata_holds(pointer(address)));
    check_cu(cuMemGetAddressRange(&base, &bytes, address + 100));
    assert_int_equal(base, address);
    assert_int_equal(bytes, BYTES);
    check_cu(cuMemFree(address));
    assert_false(strata_holds(pointer(address)));
    check_cu(cuMemAllocAsync(&address, BYTES, CU_STREAM_LEGACY));
    assert_true(strata_holds(pointer(address)));
    check_cu(cuMemFreeAsync(address, CU_STREAM_LEGACY));
    check_cu(cuMemAlloc_v2(&address, BYTES));
    check_cu(cuMemFree_v2(address));
    assert_int_equal(originals.allocate + originals.release + originals.allocate_async + originals.release_async, 0);
    assert_int_equal(originals.range, 0);
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

static void other_memory_goes_to_the_driver(void **state)
{
    (void)state;
    CUdeviceptr address, other;
    check_cu(originals_allocate(&address, BYTES)); /* as another file does */
    check_cu(originals_allocate_async(&other, BYTES, CU_STREAM_LEGACY));
    cuMemGetAddressRange(NULL, NULL, address);
    assert_int_equal(originals.range, 1);
    check_cu(cuMemFree(address));
    assert_int_equal(originals.release, 1);
    check_cu(cuMemFreeAsync(other, CU_STREAM_LEGACY));
    assert_int_equal(originals.release_async, 1);
    check_cu(cuMemFree(0)); /* as programs do */
    assert_int_equal(originals.release, 2);
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

static void errors_are_the_drivers_codes(void **state)
{
    (void)state;
    CUdeviceptr address = 0;
    size_t free_bytes, total;
    assert_int_equal(cuMemAlloc(NULL, BYTES), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAlloc(&address, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAllocAsync(&address, 0, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(cuMemAlloc(&address, (size_t)1 << 60), CUDA_ERROR_OUT_OF_MEMORY);
    check_cu(cuMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes > 0 && free_bytes <= total);
    check_cu(cuMemAlloc(&address, BYTES));
    assert_int_equal(cuMemFree(address + 256), CUDA_ERROR_INVALID_VALUE); /* inside: not the driver's */
    assert_int_equal(originals.release, 0);
    check_cu(cuMemFree(address));
    assert_int_not_equal(cuMemFree(address), CUDA_SUCCESS); /* a second time: the driver's answer */
    assert_int_equal(originals.release, 1);
}

static void a_capture_of_other_code_gets_its_nodes_from_the_driver(void **state)
{
    (void)state;
    CUstream stream;
    CUdeviceptr address = 0;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    test_begin_capture(stream);
    const CUresult allocated = cuMemAllocAsync(&address, BYTES, stream);
    const CUresult freed = cuMemFreeAsync(address, stream);
    const size_t nodes = test_end_capture(stream);
    check_cu(allocated);
    check_cu(freed);
    assert_int_equal(nodes, 2);
    assert_int_equal(originals.allocate_async, 1);
    assert_int_equal(originals.release_async, 1);
    check_cu(test_cu()->StreamDestroy(stream));
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(memory_is_of_strata, begin),
        cmocka_unit_test_setup(stream_0_is_the_legacy_stream, begin),
        cmocka_unit_test_setup(other_memory_goes_to_the_driver, begin),
        cmocka_unit_test_setup(pitched_memory_has_rows_of_whole_512_bytes, begin),
        cmocka_unit_test_setup(errors_are_the_drivers_codes, begin),
        cmocka_unit_test_setup(a_capture_of_other_code_gets_its_nodes_from_the_driver, begin),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
