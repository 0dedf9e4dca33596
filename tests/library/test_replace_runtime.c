/* A source file that includes replace_cuda_runtime.h. Its calls keep the CUDA runtime's names; library/replace/ has
 * stand-ins for the CUDA runtime's own functions. */
#include "support/captures.h"

#if defined(STRATA_TEST_CUDA_RUNTIME)
#include "library/replace/originals.h"

#include <strata/replace_cuda_runtime.h> /* last */

enum { BYTES = 1 << 16 };

#define check_cuda(call) assert_int_equal((int)(call), (int)cudaSuccess)

static int begin(void **state)
{
    (void)state;
    originals = (originals_calls){0};
    (void)cudaGetLastError();
    return 0;
}

static void memory_is_of_strata(void **state)
{
    (void)state;
    void *memory = NULL;
    check_cuda(cudaMalloc(&memory, BYTES));
    assert_true(strata_holds(memory));
    check_cuda(cudaFree(memory));
    assert_false(strata_holds(memory));
    check_cuda(cudaMallocAsync(&memory, BYTES, cudaStreamLegacy));
    assert_true(strata_holds(memory));
    check_cuda(cudaFreeAsync(memory, cudaStreamLegacy));
    check_cuda(cudaMallocAsync(&memory, BYTES, 0));
    check_cuda(cudaFree(memory));
    check_cuda(cudaMalloc(&memory, 0)); /* as in CUDA */
    assert_null(memory);
    cudaError_t (*by_pointer)(void *) = cudaFree;
    check_cuda(cudaMalloc(&memory, BYTES));
    check_cuda(by_pointer(memory));
    size_t pitch = 0;
    check_cuda(cudaMallocPitch(&memory, &pitch, 513, 3));
    assert_int_equal(pitch, 1024);
    assert_true(strata_holds(memory));
    check_cuda(cudaFree(memory));
    assert_int_equal(originals.allocate + originals.release + originals.allocate_async + originals.release_async, 0);
    assert_int_equal(originals.pitched, 0);
    assert_int_not_equal(cudaMallocPitch(&memory, &pitch, 0, 3), cudaSuccess); /* CUDA's answer */
    assert_int_equal(originals.pitched, 1);
}

static void other_memory_goes_to_the_cuda_runtime(void **state)
{
    (void)state;
    CUdeviceptr address, other;
    check_cu(originals_allocate(&address, BYTES)); /* as another file does */
    check_cu(originals_allocate_async(&other, BYTES, CU_STREAM_LEGACY));
    check_cuda(cudaFree((void *)(uintptr_t)address));
    assert_int_equal(originals.release, 1);
    check_cuda(cudaFreeAsync((void *)(uintptr_t)other, cudaStreamLegacy));
    assert_int_equal(originals.release_async, 1);
    check_cuda(cudaFree(NULL)); /* with which programs begin */
    assert_int_equal(originals.release, 2);
}

static void errors_are_those_of_the_cuda_runtime(void **state)
{
    (void)state;
    void *memory = NULL;
    size_t free_bytes, total;
    assert_int_equal(cudaMalloc(NULL, BYTES), cudaErrorInvalidValue);
    assert_int_equal(cudaMalloc(&memory, (size_t)1 << 60), cudaErrorMemoryAllocation);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
    check_cuda(cudaMemGetInfo(&free_bytes, &total));
    assert_true(free_bytes > 0 && free_bytes <= total);
    check_cuda(cudaMalloc(&memory, BYTES));
    assert_int_equal(cudaFree((char *)memory + 256), cudaErrorInvalidValue); /* inside: not CUDA's */
    assert_int_equal(originals.release, 0);
    check_cuda(cudaFree(memory));
    assert_int_not_equal(cudaFree(memory), cudaSuccess); /* a second time: CUDA's answer */
    assert_int_equal(originals.release, 1);
}

static void an_error_of_cuda_itself_comes_first(void **state)
{
    (void)state;
    void *memory = NULL;
    assert_int_equal(cudaMalloc(&memory, (size_t)1 << 60), cudaErrorMemoryAllocation);
    assert_int_not_equal(cudaFree(&memory), cudaSuccess); /* no memory of a device */
    assert_int_equal(cudaGetLastError(), cudaErrorInvalidValue);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
}

static void a_capture_of_other_code_gets_its_nodes_from_cuda(void **state)
{
    (void)state;
    CUstream stream;
    void *memory = NULL;
    check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    test_begin_capture(stream);
    const cudaError_t allocated = cudaMallocAsync(&memory, BYTES, stream);
    const cudaError_t freed = cudaFreeAsync(memory, stream);
    const size_t nodes = test_end_capture(stream);
    check_cuda(allocated);
    check_cuda(freed);
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
        cmocka_unit_test_setup(other_memory_goes_to_the_cuda_runtime, begin),
        cmocka_unit_test_setup(errors_are_those_of_the_cuda_runtime, begin),
        cmocka_unit_test_setup(an_error_of_cuda_itself_comes_first, begin),
        cmocka_unit_test_setup(a_capture_of_other_code_gets_its_nodes_from_cuda, begin),
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
