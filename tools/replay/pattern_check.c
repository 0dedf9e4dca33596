/* Results of pattern checks, outside of the tested stack's memory. */
#include "tools/replay/pattern_check.h"

#include "driver/driver.h"
#include "tools/replay/plan.h"

#include <stdlib.h>

enum { PAGE_BYTES = 2 << 20 };

CUresult touch_open(touch *made, uint32_t count)
{
    *made = (touch){.count = count};
    made->host = calloc(count + 1u, sizeof *made->host);
    if (!made->host)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* Whole pages: no per-block owner's block can share one. */
    size_t bytes = ((count + 1u) * sizeof *made->host + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    CUresult result = strata_cu.MemAlloc(&made->device, bytes);
    if (result == CUDA_SUCCESS)
        result = strata_kernels_load();
    if (result == CUDA_SUCCESS)
        result = touch_reset(made);
    if (result != CUDA_SUCCESS)
        touch_close(made);
    return result;
}

void touch_close(touch *made)
{
    if (made->device)
        strata_cu.MemFree(made->device);
    free(made->host);
    *made = (touch){0};
}

CUresult touch_reset(touch *made)
{
    for (uint32_t i = 0; i <= made->count; i++)
        made->host[i] = (strata_pattern_result){.first = STRATA_PATTERN_NONE};
    CUresult result =
        strata_cu.MemcpyHtoDAsync(made->device, made->host, (made->count + 1u) * sizeof *made->host, NULL);
    return result == CUDA_SUCCESS ? strata_cu.StreamSynchronize(NULL) : result;
}

CUresult touch_read(touch *made)
{
    CUresult result = strata_cu.MemcpyDtoHAsync(made->host, made->device, made->count * sizeof *made->host, NULL);
    return result == CUDA_SUCCESS ? strata_cu.StreamSynchronize(NULL) : result;
}

uint64_t touch_seed(uint64_t id, uint32_t block, uint32_t pass, uint32_t writes)
{
    return plan_mix(plan_mix(id) ^ plan_mix((uint64_t)block << 32 | pass) ^ ((uint64_t)writes << 8));
}

CUdeviceptr touch_result_of(const touch *made, uint32_t block)
{
    return made->device + block * sizeof *made->host;
}

CUdeviceptr touch_nowhere(const touch *made)
{
    return touch_result_of(made, made->count);
}
