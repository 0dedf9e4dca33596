/* Allocations by address: those that the host knows, in the order of its calls, and those there for the device, in the
 * order in which work runs, which decides for kernels, copies and fills. Device memory is found by extents and their
 * indexes, other memory in a tree: it is known and there at the same time. */
#include "memory/memory.h"

static sim_extent *extent_at(uint64_t address)
{
    sim_node *node = sim_tree_floor(&sim_memory.extents, address);
    if (!node)
        return NULL;
    sim_extent *extent = (sim_extent *)(void *)((char *)node - offsetof(sim_extent, by_address));
    return address - extent->address < extent->bytes ? extent : NULL;
}

static sim_block *apart_at(uint64_t address)
{
    sim_node *node = sim_tree_floor(&sim_memory.apart, address);
    return node ? (sim_block *)(void *)((char *)node - offsetof(sim_block, by_address)) : NULL;
}

static size_t granule_of(const sim_extent *extent, uint64_t address)
{
    return (size_t)((address - extent->address) / SIM_GRANULE);
}

static uint64_t *account(const sim_block *block)
{
    switch (block->kind) {
    case SIM_BLOCK_PINNED:
        return &sim_memory.pinned_blocks;
    case SIM_BLOCK_REGISTERED:
        return &sim_memory.registered_blocks;
    case SIM_BLOCK_MAPPED:
        return &sim_memory.mapped_blocks;
    case SIM_BLOCK_DEVICE:
    case SIM_BLOCK_POOLED:
    case SIM_BLOCK_MANAGED:
        break;
    }
    return &sim_memory.device_blocks;
}

void sim_block_publish(sim_block *block)
{
    block->id = ++sim_memory.last_block;
    ++*account(block);
    block->previous = NULL;
    block->next = sim_memory.blocks;
    if (block->next)
        block->next->previous = block;
    sim_memory.blocks = block;
    if (block->extent)
        sim_index_put(&block->extent->known, granule_of(block->extent, block->address), block);
    else
        sim_tree_insert(&sim_memory.apart, &block->by_address, block->address, 0);
    sim_hooks.check->allocated(block);
}

void sim_block_retire(sim_block *block)
{
    --*account(block);
    if (block->previous)
        block->previous->next = block->next;
    else
        sim_memory.blocks = block->next;
    if (block->next)
        block->next->previous = block->previous;
    if (block->extent)
        sim_index_remove(&block->extent->known, granule_of(block->extent, block->address));
    else
        sim_tree_remove(&sim_memory.apart, &block->by_address);
}

void sim_block_appear(sim_block *block)
{
    if (block->extent) {
        sim_index_put(&block->extent->present, granule_of(block->extent, block->address), block);
        block->present = true;
        sim_bytes_born(block->memory, block->bytes, block->held);
    }
}

void sim_block_vanish(sim_block *block)
{
    if (block->present) {
        sim_index_remove(&block->extent->present, granule_of(block->extent, block->address));
        block->present = false;
        sim_bytes_gone(block->memory, block->bytes);
    }
}

void sim_extent_vanish(sim_extent *extent)
{
    sim_block *block;
    while ((block = sim_index_floor(&extent->present, (size_t)(extent->bytes / SIM_GRANULE) - 1)))
        sim_block_vanish(block);
}

static bool inside(const sim_block *block, uint64_t address, uint64_t bytes)
{
    uint64_t offset = address - block->address;
    return offset <= block->bytes && bytes <= block->bytes - offset;
}

/* Whether the block holds the whole range, of a map together with those that adjoin it. */
static bool holds(sim_block *block, uint64_t address, uint64_t bytes)
{
    if (block->kind != SIM_BLOCK_MAPPED || inside(block, address, bytes))
        return inside(block, address, bytes);
    const sim_map *map = sim_map_of(block);
    if (bytes > map->range->bytes)
        return false;
    while (map && address + bytes > map->block.address + map->block.bytes)
        map = sim_map_after(map);
    return map != NULL;
}

static sim_block *known_at(uint64_t address)
{
    const sim_extent *extent = extent_at(address);
    return extent ? sim_index_floor(&extent->known, granule_of(extent, address)) : apart_at(address);
}

sim_block *sim_block_at(uint64_t address)
{
    sim_block *block = known_at(address);
    return block && address - block->address < block->bytes ? block : NULL;
}

sim_block *sim_block_around(uint64_t address, uint64_t bytes)
{
    sim_block *block = sim_block_at(address);
    return block && holds(block, address, bytes) ? block : NULL;
}

sim_block *sim_block_present(uint64_t address, uint64_t bytes)
{
    const sim_extent *extent = extent_at(address);
    sim_block *block = extent ? sim_index_floor(&extent->present, granule_of(extent, address)) : apart_at(address);
    return block && address - block->address < block->bytes && holds(block, address, bytes) ? block : NULL;
}

char *sim_memory_at(uint64_t address, uint64_t bytes)
{
    const sim_block *block = sim_block_present(address, bytes);
    return block ? block->memory + (address - block->address) : NULL;
}

/* ---- maps ---- */

sim_map *sim_map_at(uint64_t address)
{
    sim_block *block = sim_block_at(address);
    return block && block->kind == SIM_BLOCK_MAPPED ? sim_map_of(block) : NULL;
}

sim_map *sim_map_after(const sim_map *map)
{
    sim_map *next = sim_map_at(map->block.address + map->block.bytes);
    return next && next->range == map->range ? next : NULL;
}
