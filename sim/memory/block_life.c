/* Begin and end of allocations. */
#include "memory/memory.h"
#include <stdlib.h>

CUresult sim_block_allocate(sim_context *context, uint64_t bytes, sim_block **block)
{
    if (bytes > SIM_MOST_MEMORY)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_block *made = calloc(1, sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    sim_op *wait_for;
    CUresult result = sim_space_take(&context->device->memory->direct, NULL, bytes, &made->span, &wait_for);
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

bool sim_pinned_take(sim_block *block, uint64_t bytes)
{
    enum { PAGE = 4096 };
    if (sim_hooks.check->watches_pages())
        return sim_hooks.check->watch(block, bytes);
    void *memory = NULL;
    if (posix_memalign(&memory, PAGE, bytes) != 0)
        return false;
    block->address = (uint64_t)(uintptr_t)memory;
    block->memory = memory;
    return true;
}

static void release_pinned(sim_block *block)
{
    if (block->watch)
        sim_hooks.check->unwatch(block);
    else
        free(block->memory);
}

void sim_block_free_now(sim_block *block)
{
    sim_hooks.check->forget(block);
    if (block->graph) {
        sim_hooks.graph->block_free_now(block);
        return;
    }
    sim_bytes_landed(&block->in_flight);
    sim_block_retire(block);
    sim_block_vanish(block);
    sim_op_drop(block->allocation);
    switch (block->kind) {
    case SIM_BLOCK_PINNED:
        release_pinned(block);
        break;
    case SIM_BLOCK_REGISTERED:
        break;
    case SIM_BLOCK_MANAGED:
        sim_managed_destroy(block);
        break;
    case SIM_BLOCK_MAPPED:
        sim_map_destroy(sim_map_of(block));
        break;
    case SIM_BLOCK_DEVICE:
    case SIM_BLOCK_POOLED:
        sim_space_give(block->span, NULL);
    }
    if (block->pool)
        sim_pool_block_gone(block->pool);
    free(block);
}

void sim_blocks_of_context_free(const sim_context *context)
{
    sim_block *block = sim_memory.blocks;
    while (block) {
        sim_block *next = block->next;
        if (block->context == context && !(block->pool && context->primary)) /* pools are not a context's */
            sim_block_free_now(block);
        block = next;
    }
}

void sim_blocks_close(void)
{
    while (sim_memory.blocks)
        sim_block_free_now(sim_memory.blocks);
}
