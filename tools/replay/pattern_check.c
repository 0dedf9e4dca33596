/* Results of pattern checks, outside of the tested stack's memory. */
#include "tools/replay/pattern_check.h"

#include "driver/driver.h"
#include "tools/replay/plan.h"

#include <stdlib.h>

enum { PAGE_BYTES = 2 << 20 };

CUresult pattern_check_open(pattern_check *check, uint32_t count)
{
    *check = (pattern_check){.count = count};
    check->host = calloc(count + 1u, sizeof *check->host);
    if (!check->host)
        return CUDA_ERROR_OUT_OF_MEMORY;
    /* Whole pages: no per-block owner's block can share one. */
    size_t bytes = ((count + 1u) * sizeof *check->host + PAGE_BYTES - 1) / PAGE_BYTES * PAGE_BYTES;
    CUresult result = strata_cu.MemAlloc(&check->device, bytes);
    if (result == CUDA_SUCCESS)
        result = strata_kernels_load();
    if (result == CUDA_SUCCESS)
        result = pattern_check_reset(check);
    if (result != CUDA_SUCCESS)
        pattern_check_close(check);
    return result;
}

void pattern_check_close(pattern_check *check)
{
    if (check->device)
        strata_cu.MemFree(check->device);
    free(check->host);
    *check = (pattern_check){0};
}

CUresult pattern_check_reset(pattern_check *check)
{
    for (uint32_t i = 0; i <= check->count; i++)
        check->host[i] = (strata_pattern_result){.first = STRATA_PATTERN_NONE};
    CUresult result =
        strata_cu.MemcpyHtoDAsync(check->device, check->host, (check->count + 1u) * sizeof *check->host, NULL);
    return result == CUDA_SUCCESS ? strata_cu.StreamSynchronize(NULL) : result;
}

CUresult pattern_check_read(pattern_check *check)
{
    CUresult result = strata_cu.MemcpyDtoHAsync(check->host, check->device, check->count * sizeof *check->host, NULL);
    return result == CUDA_SUCCESS ? strata_cu.StreamSynchronize(NULL) : result;
}

uint64_t pattern_check_seed(uint64_t id, uint32_t block, uint32_t pass, uint32_t writes)
{
    return plan_mix(plan_mix(id) ^ plan_mix((uint64_t)block << 32 | pass) ^ ((uint64_t)writes << 8));
}

CUdeviceptr pattern_check_result_of(const pattern_check *check, uint32_t block)
{
    return check->device + block * sizeof *check->host;
}

CUdeviceptr pattern_check_nowhere(const pattern_check *check)
{
    return pattern_check_result_of(check, check->count);
}
