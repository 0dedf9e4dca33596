/* Memory that is not stream-ordered: cuMemAlloc and pinned host memory. */
#include "memory/memory.h"
#include <stdlib.h>
#include <unistd.h>

CUresult sim_memory_allocate(sim_context *context, CUdeviceptr *address, size_t bytes)
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

static sim_block *block_of(uint64_t address)
{
    sim_block *block = sim_block_at(address);
    return block && block->address == address && !block->of_module ? block : NULL;
}

/* Waits until the block may go: as in the real driver, plain memory for all work of its context; stream-ordered memory,
 * whose user promises that nothing is under way, only for its allocation. */
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

/* Whether this call may free the block; none frees what the program mapped or registered. */
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

CUresult sim_memory_free(uint64_t address, bool pinned)
{
    sim_block *block = block_of(address);
    if (!block || !freeable(block, pinned))
        return CUDA_ERROR_INVALID_VALUE;
    sim_access_record *asked = sim_hooks.check->free_asked();
    CUresult result = settle(block, asked != NULL);
    if (result != CUDA_SUCCESS) {
        sim_hooks.check->free_failed(asked);
        return result;
    }
    sim_hooks.check->freed_after(block, asked);
    if (block->pool)
        block->pool->space.used += block->bytes; /* the real driver's pools keep counting it */
    sim_block_free_now(block);
    return CUDA_SUCCESS;
}

/* Whether the host has so much memory in all, which pinned memory cannot exceed. */
static bool host_has(size_t bytes)
{
    long pages = sysconf(_SC_PHYS_PAGES);
    long page = sysconf(_SC_PAGESIZE);
    return pages > 0 && page > 0 && bytes / (size_t)page <= (size_t)pages;
}

CUresult sim_memory_allocate_pinned(sim_context *context, void **address, size_t bytes, unsigned flags)
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

const sim_block *sim_memory_pinned_at(const void *address)
{
    const sim_block *block = sim_block_at((uint64_t)(uintptr_t)address);
    return block && sim_block_is_host(block) ? block : NULL;
}
