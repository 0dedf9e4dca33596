/* Allocations, by address: those that the host knows, in the order of its calls, and those that are there for the
 * device, in the order in which work runs. The second is what kernels, copies and fills are held to. Device memory is
 * found by its extent and the extent's indexes; pinned memory, which is known and there at the same time, in a tree of
 * its own. */
#include "sim.h"
#include <stdlib.h>

static struct sim_extent *extent_at(uint64_t address)
{
    struct sim_node *node = sim_tree_floor(&sim.extents, address);
    if (!node) {
        return NULL;
    }
    struct sim_extent *extent = (struct sim_extent *)(void *)((char *)node - offsetof(struct sim_extent, by_address));
    return address - extent->address < extent->bytes ? extent : NULL;
}

static struct sim_block *pinned_at(uint64_t address)
{
    struct sim_node *node = sim_tree_floor(&sim.pinned, address);
    return node ? (struct sim_block *)(void *)((char *)node - offsetof(struct sim_block, by_address)) : NULL;
}

static size_t granule_of(const struct sim_extent *extent, uint64_t address)
{
    return (size_t)((address - extent->address) / SIM_GRANULE);
}

static uint64_t *account(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_PINNED ? &sim.pinned_blocks : &sim.device_blocks;
}

void sim_block_publish(struct sim_block *block)
{
    block->id = ++sim.last_block;
    ++*account(block);
    block->previous = NULL;
    block->next = sim.blocks;
    if (block->next) {
        block->next->previous = block;
    }
    sim.blocks = block;
    if (block->extent) {
        sim_index_put(&block->extent->known, granule_of(block->extent, block->address), block);
    } else {
        sim_tree_insert(&sim.pinned, &block->by_address, block->address, 0);
    }
}

void sim_block_retire(struct sim_block *block)
{
    --*account(block);
    if (block->previous) {
        block->previous->next = block->next;
    } else {
        sim.blocks = block->next;
    }
    if (block->next) {
        block->next->previous = block->previous;
    }
    if (block->extent) {
        sim_index_remove(&block->extent->known, granule_of(block->extent, block->address));
    } else {
        sim_tree_remove(&sim.pinned, &block->by_address);
    }
}

void sim_block_appear(struct sim_block *block)
{
    if (block->extent) {
        sim_index_put(&block->extent->present, granule_of(block->extent, block->address), block);
        block->present = true;
    }
}

void sim_block_vanish(struct sim_block *block)
{
    if (block->present) {
        sim_index_remove(&block->extent->present, granule_of(block->extent, block->address));
        block->present = false;
    }
}

static bool inside(const struct sim_block *block, uint64_t address, uint64_t bytes)
{
    uint64_t offset = address - block->address;
    return offset <= block->bytes && bytes <= block->bytes - offset;
}

struct sim_block *sim_block_at(uint64_t address)
{
    const struct sim_extent *extent = extent_at(address);
    struct sim_block *block =
        extent ? sim_index_floor(&extent->known, granule_of(extent, address)) : pinned_at(address);
    return block && address - block->address < block->bytes ? block : NULL;
}

struct sim_block *sim_block_around(uint64_t address, uint64_t bytes)
{
    struct sim_block *block = sim_block_at(address);
    return block && inside(block, address, bytes) ? block : NULL;
}

char *sim_memory_at(uint64_t address, uint64_t bytes)
{
    const struct sim_extent *extent = extent_at(address);
    const struct sim_block *block =
        extent ? sim_index_floor(&extent->present, granule_of(extent, address)) : pinned_at(address);
    return block && inside(block, address, bytes) ? block->memory + (address - block->address) : NULL;
}

CUresult sim_block_allocate(sim_context *context, uint64_t bytes, struct sim_block **block)
{
    if (bytes > SIM_MOST_MEMORY) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_block *made = calloc(1, sizeof *made);
    if (!made) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    struct sim_op *wait_for;
    CUresult result = sim_space_take(&context->device->direct, NULL, bytes, &made->span, &wait_for);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    made->kind = SIM_BLOCK_DEVICE;
    made->extent = made->span->extent;
    made->address = made->span->address;
    made->held = made->span->bytes;
    made->bytes = bytes;
    made->memory = made->extent->memory + (made->address - made->extent->address);
    made->device = context->device;
    made->context = context;
    sim_block_publish(made);
    sim_block_appear(made);
    *block = made;
    return CUDA_SUCCESS;
}

void sim_block_free_now(struct sim_block *block)
{
    sim_block_retire(block);
    sim_block_vanish(block);
    sim_op_drop(block->allocation);
    if (block->kind == SIM_BLOCK_PINNED) {
        free(block->memory);
    } else {
        sim_space_give(block->span, NULL);
    }
    if (block->pool) {
        sim_pool_block_gone(block->pool);
    }
    free(block);
}

void sim_blocks_of_context_free(const sim_context *context)
{
    struct sim_block *block = sim.blocks;
    while (block) {
        struct sim_block *next = block->next;
        if (block->context == context) {
            sim_block_free_now(block);
        }
        block = next;
    }
}

void sim_blocks_close(void)
{
    while (sim.blocks) {
        sim_block_free_now(sim.blocks);
    }
}
