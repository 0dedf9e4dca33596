/* Memory that is not stream-ordered: cuMemAlloc and pinned host memory. */
#include "check/check.h"
#include <stdlib.h>
#include <unistd.h>

static CUresult allocate(sim_context *context, CUdeviceptr *address, size_t bytes)
{
    if (!address)
        return CUDA_ERROR_INVALID_VALUE;
    *address = 0;
    if (bytes == 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_block *block;
    CUresult result = sim_block_allocate(context, bytes, &block);
    if (result == CUDA_SUCCESS)
        *address = block->address;
    return result;
}

CUresult cuMemAlloc_v2(CUdeviceptr *dptr, size_t bytesize)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(allocate(context, dptr, bytesize));
}

CUresult cuMemAllocPitch_v2(CUdeviceptr *dptr, size_t *pPitch, size_t WidthInBytes, size_t Height,
                            unsigned int ElementSizeBytes)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    bool element = ElementSizeBytes == 4 || ElementSizeBytes == 8 || ElementSizeBytes == 16;
    if (!pPitch || !element || WidthInBytes == 0 || Height == 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (WidthInBytes > SIM_MOST_MEMORY || Height > SIM_MOST_MEMORY / sim_round_up(WidthInBytes, SIM_GRANULE))
        return sim_leave(CUDA_ERROR_OUT_OF_MEMORY);
    size_t pitch = (size_t)sim_round_up(WidthInBytes, SIM_GRANULE);
    result = allocate(context, dptr, pitch * Height);
    if (result == CUDA_SUCCESS)
        *pPitch = pitch;
    return sim_leave(result);
}

static sim_block *block_of(uint64_t address)
{
    sim_block *block = sim_block_at(address);
    return block && block->address == address && !block->of_module ? block : NULL;
}

/* Waits until the block may go: all work of its context for plain memory, as the real driver does; only its own
 * allocation for stream-ordered memory, whose user promises that nothing is under way. Secretly: plain memory's wait
 * tells the host nothing. */
static CUresult settle(sim_block *block, bool without_host_edge)
{
    uint64_t id = block->id;
    uint64_t address = block->address;
    bool ordered = block->pool || block->graph;
    CUresult result = ordered             ? sim_op_wait(block->context, block->allocation)
                      : without_host_edge ? sim_context_wait_without_host_edge(block->context)
                                          : sim_context_wait(block->context);
    if (result != CUDA_SUCCESS)
        return result;
    block = block_of(address);
    return block && block->id == id ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* What cuMemFree takes, or cuMemFreeHost: nothing that the program mapped or registered itself. */
static bool freeable(const sim_block *block, bool pinned)
{
    switch (block->kind) {
    case SIM_BLOCK_PINNED:
        return pinned;
    case SIM_BLOCK_DEVICE:
    case SIM_BLOCK_POOLED:
    case SIM_BLOCK_MANAGED:
        return !pinned;
    case SIM_BLOCK_REGISTERED:
    case SIM_BLOCK_MAPPED:
        break;
    }
    return false;
}

static CUresult free_block(uint64_t address, bool pinned)
{
    sim_block *block = block_of(address);
    if (!block || !freeable(block, pinned))
        return CUDA_ERROR_INVALID_VALUE;
    sim_access_record *asked = sim_check_free_asked();
    CUresult result = settle(block, asked != NULL);
    if (result != CUDA_SUCCESS) {
        sim_access_record_drop(asked);
        return result;
    }
    sim_check_freed_after(block, asked);
    if (block->pool)
        block->pool->space.used += block->bytes; /* the real driver's pools go on counting what was freed this way */
    sim_block_free_now(block);
    return CUDA_SUCCESS;
}

CUresult cuMemFree_v2(CUdeviceptr dptr)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(dptr == 0 ? CUDA_SUCCESS : free_block(dptr, false));
}

CUresult cuMemGetInfo_v2(size_t *free, size_t *total)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (total)
        *total = context->device->memory;
    if (free)
        *free = context->device->memory - context->device->used;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuMemGetAddressRange_v2(CUdeviceptr *pbase, size_t *psize, CUdeviceptr dptr)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const sim_block *block = sim_block_at(dptr);
    if (!block)
        return sim_leave(CUDA_ERROR_NOT_FOUND);
    if (pbase)
        *pbase = block->address;
    if (psize)
        *psize = block->bytes;
    return sim_leave(CUDA_SUCCESS);
}

/* Pinned memory stays in the host's memory: there cannot be more of it. */
static bool host_has(size_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && bytes / (size_t)page <= (size_t)pages;
}

static CUresult allocate_pinned(sim_context *context, void **address, size_t bytes, unsigned flags)
{
    unsigned known = CU_MEMHOSTALLOC_PORTABLE | CU_MEMHOSTALLOC_DEVICEMAP | CU_MEMHOSTALLOC_WRITECOMBINED;
    if (!address || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *address = NULL;
    if (bytes == 0)
        return CUDA_SUCCESS;
    sim_block *block = calloc(1, sizeof *block);
    if (!block || !host_has(bytes) || !sim_pinned_take(block, bytes)) {
        free(block);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    block->kind = SIM_BLOCK_PINNED;
    block->bytes = bytes;
    block->held = bytes;
    block->device = context->device;
    block->context = context;
    block->host_flags = flags;
    sim_block_publish(block);
    sim_block_appear(block);
    *address = (void *)(uintptr_t)block->address;
    return CUDA_SUCCESS;
}

CUresult cuMemHostAlloc(void **pp, size_t bytesize, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context_unsafe(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(allocate_pinned(context, pp, bytesize, Flags));
}

CUresult cuMemAllocHost_v2(void **pp, size_t bytesize)
{
    sim_called_as(__func__);
    return cuMemHostAlloc(pp, bytesize, 0);
}

CUresult cuMemFreeHost(void *p)
{
    CUresult result = sim_enter_unsafe();
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(p ? free_block((uint64_t)(uintptr_t)p, true) : CUDA_SUCCESS);
}

static const sim_block *pinned_at(const void *address)
{
    const sim_block *block = sim_block_at((uint64_t)(uintptr_t)address);
    return block && sim_block_is_host(block) ? block : NULL;
}

CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *pdptr, void *p, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!pdptr || Flags != 0 || !pinned_at(p))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *pdptr = (uint64_t)(uintptr_t)p;
    return sim_leave(CUDA_SUCCESS);
}

/* Every pinned allocation is mapped under unified addressing, and the flags say so. */
CUresult cuMemHostGetFlags(unsigned int *pFlags, void *p)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    const sim_block *block = pinned_at(p);
    if (!pFlags || !block)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *pFlags = block->host_flags | CU_MEMHOSTALLOC_DEVICEMAP;
    return sim_leave(CUDA_SUCCESS);
}
