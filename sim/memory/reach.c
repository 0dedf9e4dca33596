/* Which device may touch which memory. Copies and fills are checked at the call, and all work when it runs, since
 * access can change. */
#include "memory/memory.h"

static bool map_allows(const sim_map *map, const sim_device *device, bool write)
{
    unsigned needed = write ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE : CU_MEM_ACCESS_FLAGS_PROT_READ;
    return (map->access[device->ordinal] & needed) == needed;
}

static bool maps_allow(sim_block *block, const sim_context *context, uint64_t end, sim_toucher by, bool write)
{
    const sim_map *map = sim_map_of(block);
    while (map && (map_allows(map, context->device, write) ||
                   (by == SIM_BY_PEER_COPY && map_allows(map, map->block.device, write)))) {
        if (end <= map->block.address + map->block.bytes)
            return true;
        map = sim_map_after(map);
    }
    return false;
}

static bool pool_allows(CUmemoryPool pool, const sim_context *context)
{
    return pool->access[context->device->ordinal] == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static bool copies(sim_toucher by)
{
    return by == SIM_BY_COPY || by == SIM_BY_PEER_COPY;
}

/* Whether the context's work may touch the block. A copy between devices may go through the host, so that it needs
 * access to mapped memory only; and not to that where the call names both devices. */
static bool allowed(sim_block *block, const sim_context *context, uint64_t end, sim_toucher by, bool write)
{
    bool own = block->device == context->device;
    switch (block->kind) {
    case SIM_BLOCK_MAPPED:
        return maps_allow(block, context, end, by, write);
    case SIM_BLOCK_POOLED:
        return own || copies(by) || (block->pool && pool_allows(block->pool, context));
    case SIM_BLOCK_DEVICE:
        return own || copies(by) || sim_peer_enabled(context, block->context);
    case SIM_BLOCK_PINNED:
    case SIM_BLOCK_REGISTERED:
    case SIM_BLOCK_MANAGED:
        break;
    }
    return true;
}

/* A copy of mapped memory is refused, too, where the calling thread's context has no access, whatever the stream's has.
 */
static bool caller_is_allowed(sim_block *block, uint64_t end, sim_toucher by, bool write)
{
    sim_context *caller;
    return block->kind != SIM_BLOCK_MAPPED || by != SIM_BY_COPY || sim_context_current(&caller) != CUDA_SUCCESS ||
           maps_allow(block, caller, end, by, write);
}

bool sim_may_touch(const sim_context *context, uint64_t address, uint64_t bytes, sim_toucher by, bool write)
{
    sim_block *block = sim_block_around(address, bytes);
    return block && allowed(block, context, address + bytes, by, write) &&
           caller_is_allowed(block, address + bytes, by, write);
}

/* Whether the memory comes from sim_backing_take. */
static bool is_backed(const sim_block *block)
{
    return block->kind == SIM_BLOCK_DEVICE || block->kind == SIM_BLOCK_POOLED || block->kind == SIM_BLOCK_MANAGED;
}

char *sim_touch(const sim_context *context, uint64_t address, uint64_t bytes, sim_toucher by, bool write)
{
    sim_block *block = sim_block_present(address, bytes);
    if (!block)
        return NULL;
    if (!allowed(block, context, address + bytes, by, write)) {
        if (block->device && block->device != context->device)
            block->device->poison = CUDA_ERROR_ILLEGAL_ADDRESS; /* the memory's owner fails, too */
        return NULL;
    }
    sim_bytes_landed(&block->in_flight);
    char *memory = block->memory + (address - block->address);
    if (write && bytes >= SIM_PAGE && is_backed(block))
        sim_backing_expect(memory, bytes);
    return memory;
}
