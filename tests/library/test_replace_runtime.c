/* A source file that includes replace_cuda_runtime.h. Its calls keep the CUDA runtime's names; library/replace/ has
 * stand-ins for the CUDA runtime's own functions. */
#include "support/captures.h"

#if defined(STRATA_TEST_CUDA_RUNTIME)
#include "library/replace/cases.h"

#include <strata/replace_cuda_runtime.h> /* last */

static void *pointer(CUdeviceptr address)
{
    return (void *)(uintptr_t)address;
}

static int allocate(CUdeviceptr *out, size_t bytes)
{
    void *memory = NULL;
    const cudaError_t result = cudaMalloc(out ? &memory : NULL, bytes);
    if (out)
        *out = (CUdeviceptr)(uintptr_t)memory;
    return (int)result;
}

static int release(CUdeviceptr address)
{
    return (int)cudaFree(pointer(address));
}

static int allocate_async(CUdeviceptr *out, size_t bytes, CUstream stream)
{
    void *memory = NULL;
    const cudaError_t result = cudaMallocAsync(&memory, bytes, stream);
    *out = (CUdeviceptr)(uintptr_t)memory;
    return (int)result;
}

static int release_async(CUdeviceptr address, CUstream stream)
{
    return (int)cudaFreeAsync(pointer(address), stream);
}

static int memory_info(size_t *free_bytes, size_t *total)
{
    return (int)cudaMemGetInfo(free_bytes, total);
}

static const replaced_functions replaced_calls = {allocate, release, allocate_async, release_async, memory_info};

#define check_cuda(call) assert_int_equal((int)(call), (int)cudaSuccess)

static int begin(void **state)
{
    (void)state;
    originals = (originals_calls){0};
    (void)cudaGetLastError();
    return 0;
}

static void nothing_is_a_null_pointer_and_calls_have_addresses(void **state)
{
    (void)state;
    void *memory = NULL;
    size_t pitch = 0;
    cudaError_t (*by_pointer)(void *) = cudaFree;
    check_cuda(cudaMalloc(&memory, 0)); /* as in CUDA */
    assert_null(memory);
    memory = &pitch;
    check_cuda(cudaMallocAsync(&memory, 0, NULL));
    assert_null(memory);
    check_cuda(cudaMalloc(&memory, BYTES));
    check_cuda(by_pointer(memory));
    check_cuda(cudaMallocPitch(&memory, &pitch, 513, 3));
    assert_int_equal(pitch, 1024);
    assert_true(strata_holds(memory));
    check_cuda(cudaFree(memory));
    assert_int_equal(originals.allocate + originals.release + originals.pitched, 0);
    assert_int_not_equal(cudaMallocPitch(&memory, &pitch, 0, 3), cudaSuccess); /* CUDA's answer */
    assert_int_equal(originals.pitched, 1);
}

static void an_error_stays_the_last_one(void **state)
{
    (void)state;
    void *memory = NULL;
    assert_int_equal(cudaMalloc(NULL, BYTES), cudaErrorInvalidValue);
    assert_int_equal(cudaMalloc(&memory, (size_t)1 << 60), cudaErrorMemoryAllocation);
    assert_int_equal(cudaPeekAtLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaErrorMemoryAllocation);
    assert_int_equal(cudaGetLastError(), cudaSuccess);
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

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        REPLACED_CASES(begin),
        cmocka_unit_test_setup(nothing_is_a_null_pointer_and_calls_have_addresses, begin),
        cmocka_unit_test_setup(an_error_stays_the_last_one, begin),
        cmocka_unit_test_setup(an_error_of_cuda_itself_comes_first, begin),
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
