/* A driver library that asks for it is told of each block that a stack hands out, so that its reports name the block's
 * own allocation (strata_driver_regions). The outermost layer's operations are replaced when the stack is built; with
 * other drivers nothing is. */
#include "core/stack/regions.h"
#include "driver/driver.h"

/* Another one for each block of an address, so that an end cannot meet the next block there. */
static uint64_t number_of(const strata_block *block)
{
    return block->id.generation ^ (uint64_t)block->id.slot << 40 ^ (uint64_t)block->id.table << 20;
}

static strata_status allocate(strata_resource *top, const strata_request *request, strata_block *out)
{
    strata_status status = top->stack->unannounced.allocate(top, request, out);
    if (status == STRATA_SUCCESS && !strata_block_is_empty(out))
        strata_driver_regions.begin(out->address, out->bytes, number_of(out));
    return status;
}

/* The block may be handed out again before this returns. */
static strata_status deallocate(strata_resource *top, const strata_block *block, CUstream stream)
{
    const CUdeviceptr address = block->address;
    const uint64_t number = number_of(block);
    strata_status status = top->stack->unannounced.deallocate(top, block, stream);
    if (status == STRATA_SUCCESS && address)
        strata_driver_regions.end(address, number);
    return status;
}

void strata_stack_announce_regions(strata_stack *stack)
{
    if (!strata_driver_regions.begin)
        return;
    strata_resource_ops *ops = &stack->ops[0];
    stack->unannounced.allocate = ops->allocate;
    stack->unannounced.deallocate = ops->deallocate;
    ops->allocate = allocate;
    ops->deallocate = deallocate;
}
