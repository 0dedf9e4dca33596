// A C++ program whose allocation calls are replaced: overloads, function pointers, a deleter. Built by check-cxx, in
// several dialects, with the header behind CUDA's and before it.
#ifdef REPLACE_FIRST
#include <strata/replace_cuda_driver.h>
#include <strata/replace_cuda_runtime.h>

#include <cuda_runtime.h>
#else
#include <cuda.h>
#include <cuda_runtime.h>

#include <strata/replace_cuda_runtime.h>

#include <strata/replace_cuda_driver.h>
#endif

#include <cstdio>
#include <memory>
#include <strata/strata.h>

int original_calls(); // of CUDA's functions: originals.cc

namespace
{

int wrong;

void check(bool right, const char *what)
{
    if (!right)
        std::fprintf(stderr, "FAILED: %s (%s)\n", what, strata_last_error()->message);
    wrong += !right;
}

// By a template, as libraries call it.
template <class T> T *allocate(std::size_t count)
{
    T *memory = nullptr;
    return ::cudaMalloc(&memory, count * sizeof(T)) == cudaSuccess ? memory : nullptr;
}

struct Free {
    void operator()(void *memory) const
    {
        check(cudaFree(memory) == cudaSuccess, "the free by a deleter");
    }
};

void run()
{
    std::unique_ptr<float, Free> floats(allocate<float>(1000));
    check(floats && strata_holds(floats.get()), "cudaMalloc of a float *");
    void *memory = nullptr;
    check(cudaMalloc(&memory, 64) == cudaSuccess && strata_holds(memory), "cudaMalloc of a void *");
    cudaError_t (*by_pointer)(void *) = &cudaFree;
    check(by_pointer(memory) == cudaSuccess && !strata_holds(memory), "cudaFree by a pointer");
    std::size_t pitch = 0;
    char *rows = nullptr;
    check(cudaMallocPitch(&rows, &pitch, 100, 3) == cudaSuccess && pitch == 512, "cudaMallocPitch");
    check(cudaFree(rows) == cudaSuccess, "cudaFree of rows");
    double *doubles = nullptr;
    check(cudaMallocAsync(&doubles, 64, nullptr) == cudaSuccess && strata_holds(doubles), "cudaMallocAsync");
    check(cudaFreeAsync(doubles, nullptr) == cudaSuccess && !strata_holds(doubles), "cudaFreeAsync");
    const float *constants = nullptr; // CUDA's overloads take these, too
    volatile int *flags = nullptr;
    check(cudaMalloc(&constants, 64) == cudaSuccess && strata_holds(constants), "cudaMalloc of a const float *");
    check(cudaFree(const_cast<float *>(constants)) == cudaSuccess, "cudaFree of constants");
    check(cudaMallocPitch(&constants, &pitch, 100, 3) == cudaSuccess, "cudaMallocPitch of a const float *");
    check(cudaFree(const_cast<float *>(constants)) == cudaSuccess, "cudaFree of rows of constants");
    check(cudaMallocAsync(&flags, 64, nullptr) == cudaSuccess, "cudaMallocAsync of a volatile int *");
    check(cudaFreeAsync(const_cast<int *>(flags), nullptr) == cudaSuccess, "cudaFreeAsync of flags");
    CUdeviceptr address = 0;
    check(cuMemAlloc(&address, 64) == CUDA_SUCCESS && strata_holds(reinterpret_cast<void *>(address)), "cuMemAlloc");
    check(cuMemFree(address) == CUDA_SUCCESS, "cuMemFree");
    check(original_calls() == 0, "no call of CUDA's functions so far");
    check(cudaMallocAsync(&doubles, 64, cudaMemPool_t(), nullptr) == cudaErrorNotSupported && original_calls() == 1,
          "cudaMallocAsync of a pool, which is cudaMallocFromPoolAsync");
    check(cudaFree(nullptr) == cudaSuccess && original_calls() == 2, "cudaFree of nullptr, with which programs begin");
    check(cudaGetLastError() == cudaSuccess, "no error is left");
}

} // namespace

int main()
{
    run();
    return wrong != 0;
}
