/* Memory that graphs allocate. A node has its address from its addition on; an allocation certain to follow another's
 * free in its graph takes that one's address. Device memory backs a graph's addresses from an allocating launch to the
 * last free, then stays with the device's graphs until trimmed.
 *
 * For the host an allocation exists from its launch to the call that frees it, never if the graph frees it; for the
 * device, from operation to operation. */
#include "graph/graph.h"
#include <stdlib.h>

static sim_graph_memory *memory_of(sim_block *block)
{
    return block->graph;
}

/* ---- device ---- */

static sim_graph_pool *pool_of(const sim_device *device)
{
    return &sim_graph.pools[device->ordinal];
}

static uint64_t needed(const sim_graph_arena *arena)
{
    return sim_round_up(arena->bytes, SIM_CHUNK);
}

static bool fill_arena(sim_graph_arena *arena)
{
    sim_device *device = arena->device;
    sim_graph_pool *pool = pool_of(device);
    uint64_t missing = needed(arena) > arena->held ? needed(arena) - arena->held : 0;
    uint64_t idle = missing < pool->idle ? missing : pool->idle;
    uint64_t fresh = missing - idle;
    if (fresh > device->memory->bytes - device->memory->used)
        return false;
    pool->idle -= idle;
    arena->held += missing;
    device->memory->used += fresh;
    pool->reserved += fresh;
    if (pool->reserved > pool->reserved_high)
        pool->reserved_high = pool->reserved;
    if (pool->reserved > pool->used_high)
        pool->used_high = pool->reserved;
    return true;
}

static void empty_arena(sim_graph_arena *arena)
{
    pool_of(arena->device)->idle += arena->held;
    arena->held = 0;
}

static void drop_arena(sim_graph_arena *arena)
{
    if (--arena->references == 0) {
        empty_arena(arena);
        free(arena);
    }
}

/* ---- addresses ---- */

static sim_extent *open_extent(uint64_t bytes)
{
    sim_extent *extent = calloc(1, sizeof *extent);
    if (!extent || !sim_address_take(bytes, &extent->address))
        goto no_addresses;
    extent->memory = sim_backing_take(bytes);
    if (!extent->memory)
        goto no_backing;
    if (!sim_index_open(&extent->known, bytes / SIM_GRANULE))
        goto no_known;
    if (!sim_index_open(&extent->present, bytes / SIM_GRANULE))
        goto no_present;
    extent->bytes = bytes;
    sim_bytes_close(extent->memory, bytes);
    sim_tree_insert(&sim_memory.extents, &extent->by_address, extent->address, 0);
    return extent;

no_present:
    sim_index_close(&extent->known);
no_known:
    sim_backing_give(extent->memory, bytes);
no_backing:
    sim_address_give(extent->address, bytes);
no_addresses:
    free(extent);
    return NULL;
}

static void close_extent(sim_extent *extent)
{
    sim_tree_remove(&sim_memory.extents, &extent->by_address);
    sim_extent_vanish(extent);
    sim_index_close(&extent->known);
    sim_index_close(&extent->present);
    sim_bytes_forget(extent->memory, extent->bytes);
    sim_backing_give(extent->memory, extent->bytes);
    sim_address_give(extent->address, extent->bytes);
    free(extent);
}

static void drop_slot(sim_graph_slot *slot)
{
    if (--slot->references > 0)
        return;
    close_extent(slot->extent);
    sim_op_drop(slot->freed);
    drop_arena(slot->arena);
    free(slot);
}

/* Returns the graph's arena on the device, made if it has none. NULL without memory. */
static sim_graph_arena *arena_of(CUgraph graph, sim_device *device)
{
    for (CUgraphNode node = graph->first; node; node = node->next) {
        bool own = node->memory && node->memory->graph == graph->id;
        if (own && node->memory->slot->arena->device == device)
            return node->memory->slot->arena;
    }
    sim_graph_arena *arena = calloc(1, sizeof *arena);
    if (arena)
        arena->device = device;
    return arena;
}

static sim_graph_slot *open_slot(CUgraph graph, sim_device *device, uint64_t bytes)
{
    sim_graph_slot *slot = calloc(1, sizeof *slot);
    sim_graph_arena *arena = arena_of(graph, device);
    sim_extent *extent = slot && arena ? open_extent(sim_round_up(bytes, SIM_PAGE)) : NULL;
    if (!extent) {
        free(slot);
        if (arena && arena->references == 0)
            free(arena);
        return NULL;
    }
    arena->references++;
    arena->bytes += sim_round_up(bytes, SIM_GRANULE);
    slot->arena = arena;
    slot->extent = extent;
    return slot;
}

/* Finds an address of the graph with enough room, whose allocations are all freed before the new node. NULL: none. */
static sim_graph_slot *find_slot(CUgraphNode for_node, sim_device *device, uint64_t bytes)
{
    CUgraph graph = for_node->graph;
    if (!sim_graph_mark(graph, &for_node->after))
        return NULL;
    for (CUgraphNode node = graph->first; node; node = node->next) {
        bool frees = node->index == 1 && node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->memory->freed == node;
        sim_graph_slot *slot = frees ? node->memory->slot : NULL;
        bool suits = slot && slot->latest == node->memory && slot->arena->device == device;
        if (suits && slot->latest->block.held >= bytes)
            return slot;
    }
    return NULL;
}

static void link_memory(sim_graph_memory *memory)
{
    sim_graph_pool *pool = pool_of(memory->block.device);
    memory->next = pool->memories;
    if (memory->next)
        memory->next->previous = memory;
    pool->memories = memory;
}

static void unlink_memory(sim_graph_memory *memory)
{
    if (memory->previous)
        memory->previous->next = memory->next;
    else
        pool_of(memory->block.device)->memories = memory->next;
    if (memory->next)
        memory->next->previous = memory->previous;
}

CUresult sim_graph_memory_create(CUgraphNode node, sim_device *device, uint64_t bytes)
{
    if (bytes > device->memory->bytes)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_graph_memory *made = calloc(1, sizeof *made);
    sim_graph_slot *slot = made ? find_slot(node, device, bytes) : NULL;
    uint64_t held = slot ? slot->latest->block.held : sim_round_up(bytes, SIM_GRANULE);
    if (made && !slot)
        slot = open_slot(node->graph, device, bytes);
    if (!slot) {
        free(made);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    slot->references++;
    slot->latest = made;
    made->references = 1;
    made->slot = slot;
    made->graph = node->graph->id;
    made->block = (sim_block){
        .kind = SIM_BLOCK_POOLED,
        .extent = slot->extent,
        .address = slot->extent->address,
        .bytes = bytes,
        .held = held,
        .memory = slot->extent->memory,
        .device = device,
        .graph = made,
    };
    link_memory(made);
    node->memory = made;
    return CUDA_SUCCESS;
}

sim_graph_memory *sim_graph_memory_hold(sim_graph_memory *memory)
{
    memory->references++;
    return memory;
}

void sim_graph_memory_drop(sim_graph_memory *memory)
{
    if (--memory->references > 0)
        return;
    sim_hooks.check->forget(&memory->block);
    unlink_memory(memory);
    if (memory->slot->latest == memory)
        memory->slot->latest = NULL;
    drop_slot(memory->slot);
    free(memory);
}

bool sim_graph_memory_around(uint64_t address, uint64_t bytes)
{
    for (int i = 0; i < sim.settings.devices; i++) {
        for (sim_graph_memory *memory = sim_graph.pools[i].memories; memory; memory = memory->next) {
            uint64_t offset = address - memory->block.address;
            if (offset < memory->block.bytes && bytes <= memory->block.bytes - offset)
                return true;
        }
    }
    return false;
}

static bool frees(CUgraph graph, const sim_graph_memory *memory)
{
    for (CUgraphNode node = graph->first; node; node = node->next)
        if (node->type == CU_GRAPH_NODE_TYPE_MEM_FREE && node->memory == memory)
            return true;
    return false;
}

/* Whether a node of the graph may free the memory: either its own graph frees it, or others do, each once. */
static bool may_free(const sim_graph_memory *memory, CUgraph graph)
{
    bool own = memory->graph == graph->id;
    return !memory->freed && !(own && (memory->outlives || memory->foreign_frees > 0)) && !frees(graph, memory);
}

sim_graph_memory *sim_graph_memory_find(uint64_t address, CUgraph graph)
{
    for (int i = 0; i < sim.settings.devices; i++) {
        for (sim_graph_memory *memory = sim_graph.pools[i].memories; memory; memory = memory->next)
            if (memory->block.address == address && may_free(memory, graph))
                return memory;
    }
    return NULL;
}

/* ---- allocate and free ---- */

bool sim_graph_memory_back(sim_graph_memory *memory)
{
    return fill_arena(memory->slot->arena);
}

void sim_graph_memory_allocated(sim_graph_memory *memory, sim_op *op, bool stays)
{
    sim_block *block = &memory->block;
    op->work.block = block;
    sim_op_await(op, memory->slot->freed);
    memory->slot->arena->busy++;
    sim_graph_memory_hold(memory);
    if (stays) {
        memory->out = true;
        block->context = op->context;
        sim_op_drop(block->allocation);
        block->allocation = sim_op_hold(op);
        sim_block_publish(block);
    } else {
        sim_hooks.check->hidden(block);
    }
}

void sim_graph_memory_freed(sim_graph_memory *memory, sim_op *op)
{
    if (memory->out) {
        sim_op_await(op, memory->block.allocation);
        sim_block_retire(&memory->block);
        memory->out = false;
    }
    op->work.block = &memory->block;
    sim_op_drop(memory->slot->freed);
    memory->slot->freed = sim_op_hold(op);
}

static void end_allocation(sim_graph_memory *memory)
{
    sim_graph_arena *arena = memory->slot->arena;
    if (--arena->busy == 0)
        empty_arena(arena);
    sim_graph_memory_drop(memory);
}

void sim_graph_block_free(sim_block *block)
{
    sim_block_vanish(block);
    end_allocation(memory_of(block));
}

void sim_graph_block_free_now(sim_block *block)
{
    sim_graph_memory *memory = memory_of(block);
    sim_block_retire(block);
    memory->out = false;
    sim_op_drop(block->allocation);
    block->allocation = NULL;
    sim_graph_block_free(block);
}

/* ---- attributes ---- */

/* Idle reserved memory counts as used, as in the real driver. */
CUresult sim_graph_memory_get_attribute(const sim_graph_pool *pool, CUgraphMem_attribute attribute, cuuint64_t *value)
{
    switch (attribute) {
    case CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT:
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT:
        *value = pool->reserved;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_USED_MEM_HIGH:
        *value = pool->used_high;
        return CUDA_SUCCESS;
    case CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH:
        *value = pool->reserved_high;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult sim_graph_memory_set_attribute(sim_graph_pool *pool, CUgraphMem_attribute attribute, cuuint64_t value)
{
    if (value != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (attribute == CU_GRAPH_MEM_ATTR_USED_MEM_HIGH) {
        pool->used_high = pool->reserved;
        return CUDA_SUCCESS;
    }
    if (attribute == CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH) {
        pool->reserved_high = pool->reserved;
        return CUDA_SUCCESS;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

/* ---- end of the process ---- */

/* Releases allocations that were not freed. Operations are gone already. */
void sim_graph_memories_close(void)
{
    for (int i = 0; i < sim.settings.devices; i++) {
        sim_graph_memory *memory = sim_graph.pools[i].memories;
        while (memory) {
            sim_graph_memory *next = memory->next;
            memory->slot->freed = NULL;
            memory->references = 1;
            sim_graph_memory_drop(memory);
            memory = next;
        }
    }
}
