/* Loads and launches the guard's kernels. */
#include "driver/kernels/guard.h"

#include "driver/driver.h"

enum { THREADS = 256, GRID_LIMIT = 4096, BYTES_A_THREAD = 16 };

/* Ended by a zero byte: driver/CMakeLists.txt. */
static const char guard_ptx[] = {
#include "guard_ptx.inc"
};

CUresult strata_guard_kernel_load(strata_guard_kernel *kernel, const char **call)
{
    *kernel = (strata_guard_kernel){0};
    *call = "cuModuleLoadData";
    CUresult result = strata_cu.ModuleLoadData(&kernel->module, guard_ptx);
    if (result != CUDA_SUCCESS) {
        kernel->module = NULL;
        return result;
    }
    *call = "cuModuleGetFunction";
    result = strata_cu.ModuleGetFunction(&kernel->check, kernel->module, "strata_guard_check");
    if (result == CUDA_SUCCESS)
        result = strata_cu.ModuleGetFunction(&kernel->fill, kernel->module, "strata_guard_fill");
    if (result != CUDA_SUCCESS)
        strata_guard_kernel_unload(kernel);
    return result;
}

void strata_guard_kernel_unload(strata_guard_kernel *kernel)
{
    if (kernel->module)
        strata_cu.ModuleUnload(kernel->module);
    *kernel = (strata_guard_kernel){0};
}

CUresult strata_guard_kernel_check(const strata_guard_kernel *kernel, const strata_guard_piece *pieces, unsigned count,
                                   strata_guard_verdict *verdicts, CUstream stream)
{
    uint64_t from = (uintptr_t)pieces, to = (uintptr_t)verdicts;
    return strata_cu.LaunchKernel(kernel->check, count, 1, 1, THREADS, 1, 1, 0, stream, (void *[]){&from, &to}, NULL);
}

/* One thread for 16 bytes, up to a full device; the kernel loops. */
CUresult strata_guard_kernel_fill(const strata_guard_kernel *kernel, const strata_guard_extents *extents, unsigned how,
                                  CUstream stream)
{
    uint64_t address = extents->address, front = extents->front, bytes = extents->bytes, back = extents->back;
    uint64_t bits = how, grid = (how & STRATA_GUARD_FILL_BLOCK ? bytes : front) / (THREADS * BYTES_A_THREAD) + 1;
    return strata_cu.LaunchKernel(kernel->fill, (unsigned)(grid < GRID_LIMIT ? grid : GRID_LIMIT), 1, 1, THREADS, 1, 1,
                                  0, stream, (void *[]){&address, &front, &bytes, &back, &bits}, NULL);
}
