/* Loads the kernels once for each context, and launches them. */
#include "driver/kernels/kernels.h"

#include "driver/driver.h"

#include <pthread.h>

enum { CONTEXT_LIMIT = 64, THREADS = 256, GRID_LIMIT = 4096, BYTES_A_THREAD = 16 };

/* Ended by a zero byte: driver/CMakeLists.txt. */
static const char pattern_ptx[] = {
#include "pattern_ptx.inc"
};

typedef struct loaded {
    CUcontext context;
    CUfunction fill, check;
} loaded;

/* Entries are written once under `loading`, before `count` covers them; any thread reads. */
static loaded contexts[CONTEXT_LIMIT];
static _Atomic unsigned count;
static pthread_mutex_t loading = PTHREAD_MUTEX_INITIALIZER;

static const loaded *find(CUcontext context)
{
    unsigned known = atomic_load_explicit(&count, memory_order_acquire);
    for (unsigned i = 0; i < known; i++)
        if (contexts[i].context == context)
            return &contexts[i];
    return NULL;
}

static CUresult load_module(loaded *into)
{
    CUmodule module;
    CUresult result = strata_cu.ModuleLoadData(&module, pattern_ptx);
    if (result != CUDA_SUCCESS)
        return result;
    if ((result = strata_cu.ModuleGetFunction(&into->fill, module, "strata_pattern_fill")) != CUDA_SUCCESS ||
        (result = strata_cu.ModuleGetFunction(&into->check, module, "strata_pattern_check")) != CUDA_SUCCESS)
        strata_cu.ModuleUnload(module);
    return result;
}

static CUresult load(CUcontext context, const loaded **out)
{
    CUresult result = CUDA_SUCCESS;
    pthread_mutex_lock(&loading);
    unsigned next = atomic_load_explicit(&count, memory_order_relaxed);
    *out = find(context);
    if (!*out && next == CONTEXT_LIMIT)
        result = CUDA_ERROR_OUT_OF_MEMORY;
    else if (!*out && (result = load_module(&contexts[next])) == CUDA_SUCCESS) {
        contexts[next].context = context;
        *out = &contexts[next];
        atomic_store_explicit(&count, next + 1, memory_order_release);
    }
    pthread_mutex_unlock(&loading);
    return result;
}

static CUresult current(const loaded **out)
{
    CUcontext context = NULL;
    CUresult result = strata_cu.CtxGetCurrent(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!context)
        return CUDA_ERROR_INVALID_CONTEXT;
    *out = find(context);
    return *out ? CUDA_SUCCESS : load(context, out);
}

/* One thread for 16 bytes, up to a full device; the kernels loop. */
static CUresult launch(CUfunction function, size_t bytes, CUstream stream, void **parameters)
{
    size_t grid = bytes / (THREADS * BYTES_A_THREAD) + 1;
    if (grid > GRID_LIMIT)
        grid = GRID_LIMIT;
    return strata_cu.LaunchKernel(function, (unsigned)grid, 1, 1, THREADS, 1, 1, 0, stream, parameters, NULL);
}

CUresult strata_kernels_load(void)
{
    const loaded *kernels;
    return current(&kernels);
}

CUresult strata_kernel_pattern_fill(CUdeviceptr address, size_t bytes, uint64_t seed, CUstream stream)
{
    if (bytes == 0)
        return CUDA_SUCCESS;
    const loaded *kernels;
    CUresult result = current(&kernels);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t size = bytes;
    return launch(kernels->fill, bytes, stream, (void *[]){&address, &size, &seed});
}

CUresult strata_kernel_pattern_check(CUdeviceptr address, size_t bytes, uint64_t seed, CUdeviceptr result_address,
                                     CUstream stream)
{
    if (bytes == 0)
        return CUDA_SUCCESS;
    const loaded *kernels;
    CUresult result = current(&kernels);
    if (result != CUDA_SUCCESS)
        return result;
    uint64_t size = bytes;
    return launch(kernels->check, bytes, stream, (void *[]){&address, &size, &seed, &result_address});
}
