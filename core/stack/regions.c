/* A driver library that asks for it is told of each block that a stack hands out, so that its reports name the block's
 * own allocation (strata_driver_regions). The outermost layer's operations are replaced when the stack is built; with
 * other drivers nothing is. */
#include "core/stack/regions.h"

#include "core/stack/default_operations.h"
#include "driver/driver.h"

/* A number that differs between blocks at one address, so that the end of one does not end the region of the next. */
static uint64_t number_of(const strata_block *block)
{
    return block->id.generation ^ (uint64_t)block->id.slot << 40 ^ (uint64_t)block->id.table << 20;
}

static void begin_region(const strata_block *block)
{
    if (!strata_block_is_empty(block))
        strata_driver_regions.begin(block->address, block->bytes, number_of(block));
}

static strata_status allocate(strata_resource *top, const strata_request *request, strata_block *out)
{
    strata_status status = top->stack->unannounced.allocate(top, request, out);
    if (status == STRATA_SUCCESS)
        begin_region(out);
    return status;
}

static strata_made allocate_own(strata_resource *top, const strata_request *request, strata_block *out)
{
    const strata_made made = top->stack->unannounced.allocate_own(top, request, out);
    if (made.status == STRATA_SUCCESS)
        begin_region(out);
    return made;
}

static strata_made allocate_plain(strata_resource *top, size_t bytes, CUstream stream, strata_block *out)
{
    const strata_made made = top->stack->unannounced.allocate_plain(top, bytes, stream, out);
    if (made.status == STRATA_SUCCESS)
        begin_region(out);
    return made;
}

static strata_status top_allocate(strata_resource *top, size_t bytes, CUstream stream, strata_block *out)
{
    const strata_status status = top->stack->unannounced.top_allocate(top, bytes, stream, out);
    if (status == STRATA_SUCCESS)
        begin_region(out);
    return status;
}

/* Another thread may be given the memory before this returns: the number keeps its region apart. */
static strata_status deallocate(strata_resource *top, const strata_block *block, CUstream stream)
{
    const CUdeviceptr address = block->address;
    const uint64_t number = number_of(block);
    strata_status status = top->stack->unannounced.deallocate(top, block, stream);
    if (status == STRATA_SUCCESS && address)
        strata_driver_regions.end(address, number);
    return status;
}

static strata_status deallocate_own(strata_resource *top, const strata_block *block, strata_entry *entry,
                                    strata_timeline *timeline)
{
    const CUdeviceptr address = block->address;
    const uint64_t number = number_of(block);
    const strata_status status = top->stack->unannounced.deallocate_own(top, block, entry, timeline);
    if (status == STRATA_SUCCESS || status == STRATA_FREE_COMPLETE)
        strata_driver_regions.end(address, number);
    return status;
}

static strata_status top_deallocate(strata_resource *top, const strata_block *block)
{
    const CUdeviceptr address = block->address;
    const uint64_t number = number_of(block);
    const strata_status status = top->stack->unannounced.top_deallocate(top, block);
    if (status == STRATA_SUCCESS && address)
        strata_driver_regions.end(address, number);
    return status;
}

/* Replaces an operation, unless it is a plain one, which calls another operation of the table that is replaced. If a
 * region ends twice, the second end has no effect. */
#define ANNOUNCE(op, plain, other)                                 \
    do {                                                           \
        stack->unannounced.op = ops->op;                           \
        if (announces && ops->op != (plain) && ops->op != (other)) \
            ops->op = op;                                          \
    } while (0)

void strata_stack_announce_regions(strata_stack *stack)
{
    const bool announces = strata_driver_regions.begin != NULL;
    strata_resource_ops *ops = &stack->ops[0];
    ANNOUNCE(allocate, NULL, NULL);
    ANNOUNCE(deallocate, NULL, NULL);
    ANNOUNCE(allocate_own, strata_allocate_plainly, NULL);
    ANNOUNCE(deallocate_own, strata_deallocate_plainly, NULL);
    ANNOUNCE(allocate_plain, strata_allocate_by_request, NULL);
    ANNOUNCE(top_allocate, strata_top_allocate_plainly, strata_top_allocate_directly);
    ANNOUNCE(top_deallocate, strata_top_deallocate_plainly, strata_top_deallocate_own);
}
