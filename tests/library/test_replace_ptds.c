/* Both replacing headers in a source file that is built with per-thread default streams: stream 0 is the thread's own,
 * for Strata and for CUDA's own functions. */
#define CUDA_API_PER_THREAD_DEFAULT_STREAM 1
#include "support/captures.h"

#if defined(STRATA_TEST_CUDA_RUNTIME)
#include "library/replace/originals.h"

#include <strata/replace_cuda_driver.h>
#include <strata/replace_cuda_runtime.h> /* last */

enum { BYTES = 1 << 16 };

static CUstream stream_of(CUdeviceptr address)
{
    strata_runtime *runtime;
    strata_block block;
    check_ok(strata_runtime_of_address(address, &runtime));
    check_ok(strata_runtime_find(runtime, address, &block));
    return block.stream;
}

static void stream_0_is_the_threads_own(void **state)
{
    (void)state;
    void *memory = NULL;
    CUdeviceptr address = 0;
    assert_int_equal(cudaMallocAsync(&memory, BYTES, 0), cudaSuccess);
    assert_ptr_equal(stream_of((CUdeviceptr)(uintptr_t)memory), CU_STREAM_PER_THREAD);
    assert_int_equal(cudaFreeAsync(memory, 0), cudaSuccess);
    check_cu(cuMemAllocAsync(&address, BYTES, 0));
    assert_ptr_equal(stream_of(address), CU_STREAM_PER_THREAD);
    check_cu(cuMemFreeAsync(address, 0));
    check_ok(strata_malloc_on(&memory, BYTES, 0));
    assert_ptr_equal(stream_of((CUdeviceptr)(uintptr_t)memory), CU_STREAM_PER_THREAD);
    check_ok(strata_free_on(memory, 0));
    assert_int_equal(originals.ptsz, 0);
}

static void other_memory_goes_to_the_functions_of_such_programs(void **state)
{
    (void)state;
    CUdeviceptr first, second;
    check_cu(originals_allocate_async(&first, BYTES, CU_STREAM_PER_THREAD));
    check_cu(originals_allocate_async(&second, BYTES, CU_STREAM_PER_THREAD));
    assert_int_equal(cudaFreeAsync((void *)(uintptr_t)first, 0), cudaSuccess);
    assert_int_equal(originals.ptsz, 1);
    check_cu(cuMemFreeAsync(second, 0));
    assert_int_equal(originals.ptsz, 2);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(stream_0_is_the_threads_own),
        cmocka_unit_test(other_memory_goes_to_the_functions_of_such_programs),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
#else
int main(void)
{
    print_message("skipped: the headers of the CUDA runtime (cuda_runtime.h, crt/host_config.h) are missing\n");
    return 77;
}
#endif
