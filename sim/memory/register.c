/* Registered memory: the program's own, known to the driver and reachable by devices. Ranges are exact to the byte; two
 * may share a page. */
#include "memory/memory.h"
#include <stdlib.h>

/* A known block that the range overlaps, or NULL. */
static const sim_block *overlapped(uint64_t address, uint64_t bytes)
{
    const sim_block *block = sim_block_at(address);
    sim_node *next = block ? NULL : sim_tree_ceiling(&sim_memory.apart, address, 0);
    if (next && next->key - address < bytes)
        block = sim_block_at(next->key);
    return block;
}

CUresult sim_memory_register(sim_context *context, uint64_t address, size_t bytes, unsigned flags)
{
    unsigned known = CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_READ_ONLY;
    if (address == 0 || bytes == 0 || bytes > SIM_MOST_MEMORY || (flags & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    const sim_block *other = overlapped(address, bytes);
    if (other) {
        bool registered = other->kind == SIM_BLOCK_REGISTERED;
        return registered ? CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED : CUDA_ERROR_INVALID_VALUE;
    }
    sim_block *block = calloc(1, sizeof *block);
    if (!block)
        return CUDA_ERROR_OUT_OF_MEMORY;
    block->kind = SIM_BLOCK_REGISTERED;
    block->address = address;
    block->bytes = bytes;
    block->held = bytes;
    block->memory = (char *)(uintptr_t)address;
    block->device = context->device;
    block->context = context;
    block->host_flags = flags & CU_MEMHOSTREGISTER_PORTABLE;
    sim_block_publish(block);
    return CUDA_SUCCESS;
}

/* Waits for all work of the registration's context. */
CUresult sim_memory_unregister(uint64_t address)
{
    sim_block *block = sim_block_at(address);
    if (address == 0 || (block && (block->kind != SIM_BLOCK_REGISTERED || block->address != address)))
        return CUDA_ERROR_INVALID_VALUE;
    if (!block)
        return CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    uint64_t id = block->id;
    sim_access_record *asked = sim_hooks.check->free_asked();
    CUresult result = asked ? sim_context_wait_without_host_edge(block->context) : sim_context_wait(block->context);
    block = sim_block_at(address);
    if (result == CUDA_SUCCESS && (!block || block->id != id))
        result = CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
    if (result != CUDA_SUCCESS) {
        sim_hooks.check->free_failed(asked);
        return result;
    }
    sim_hooks.check->freed_after(block, asked);
    sim_block_free_now(block);
    return CUDA_SUCCESS;
}
