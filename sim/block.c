/* Allocations, by address: those that the host knows, in the order of its calls, and those that are there for the
 * device, in the order in which work runs. The second is what kernels, copies and fills are held to. */
#include "sim.h"
#include <stdlib.h>

static struct sim_block *by_address(struct sim_node *node)
{
    return node ? (struct sim_block *)(void *)((char *)node - offsetof(struct sim_block, by_address)) : NULL;
}

static struct sim_block *by_device_address(struct sim_node *node)
{
    return node ? (struct sim_block *)(void *)((char *)node - offsetof(struct sim_block, by_device_address)) : NULL;
}

static uint64_t *account(const struct sim_block *block)
{
    return block->kind == SIM_BLOCK_PINNED ? &sim.pinned_blocks : &sim.device_blocks;
}

void sim_block_publish(struct sim_block *block)
{
    block->id = ++sim.last_block;
    sim_tree_insert(&sim.allocated, &block->by_address, block->address, 0);
    ++*account(block);
}

void sim_block_retire(struct sim_block *block)
{
    sim_tree_remove(&sim.allocated, &block->by_address);
    --*account(block);
}

void sim_block_appear(struct sim_block *block)
{
    sim_tree_insert(&sim.present, &block->by_device_address, block->address, 0);
    block->present = true;
}

void sim_block_vanish(struct sim_block *block)
{
    if (block->present) {
        sim_tree_remove(&sim.present, &block->by_device_address);
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
    struct sim_block *block = by_address(sim_tree_floor(&sim.allocated, address));
    return block && address - block->address < block->bytes ? block : NULL;
}

struct sim_block *sim_block_around(uint64_t address, uint64_t bytes)
{
    struct sim_block *block = sim_block_at(address);
    return block && inside(block, address, bytes) ? block : NULL;
}

char *sim_memory_at(uint64_t address, uint64_t bytes)
{
    const struct sim_block *block = by_device_address(sim_tree_floor(&sim.present, address));
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
    made->held = sim_round_up(bytes, SIM_GRANULE);
    CUresult result = sim_space_take(&context->device->direct, NULL, made->held, &made->span, &wait_for);
    if (result != CUDA_SUCCESS) {
        free(made);
        return result;
    }
    made->kind = SIM_BLOCK_DEVICE;
    made->address = made->span->address;
    made->bytes = bytes;
    made->memory = made->span->extent->memory + (made->address - made->span->extent->address);
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

static struct sim_block *next_block(uint64_t address)
{
    return by_address(sim_tree_ceiling(&sim.allocated, address, 0));
}

void sim_blocks_of_context_free(const sim_context *context)
{
    struct sim_block *block = next_block(0);
    while (block) {
        uint64_t address = block->address;
        if (block->context == context) {
            sim_block_free_now(block);
        }
        block = next_block(address + 1);
    }
}

void sim_blocks_close(void)
{
    for (struct sim_block *block = next_block(0); block; block = next_block(0)) {
        sim_block_free_now(block);
    }
}
