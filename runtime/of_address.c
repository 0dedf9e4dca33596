/* Asks each runtime's stack in turn. A stack that takes its memory from another one has its blocks inside that one's,
 * and is asked before it: stacks with memory of the program's come first, then the youngest. The stack is pinned
 * meanwhile, and no lock is held.
 *
 * After the reset of a device the driver gives its addresses out anew, while a runtime of the time before still has
 * them until its blocks are freed. So runtimes of lost devices are asked last, and then the driver: an address that it
 * has given out since is in no block. */
#include "runtime/of_address.h"

#include "core/base/error.h"
#include "core/stack/calls.h"
#include "core/stack/neighbours.h"
#include "resources/chunks/source.h"
#include "runtime/captures.h"

static strata_status find_in(strata_runtime *runtime, CUdeviceptr address, strata_block *block)
{
    strata_status status = runtime->top->ops->find(runtime->top, address, block);
    if (status == STRATA_SUCCESS && strata_runtime_keeps(runtime, block))
        status = strata_captures_find(runtime, address, block);
    return status;
}

static unsigned long long attribute_of(CUdeviceptr address, CUpointer_attribute attribute)
{
    unsigned long long value = 0; /* of booleans the driver may write one byte or four */
    return strata_cu.PointerGetAttribute(&value, attribute, address) == CUDA_SUCCESS ? value : 0;
}

/* Whether a call of the driver's has made memory there, which such a call frees. Pools map theirs, seldom where a block
 * began. */
static bool is_made_by_the_driver(CUdeviceptr address, const strata_block *block)
{
    return attribute_of(address, CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE) ||
           attribute_of(address, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE) ||
           attribute_of(address, CU_POINTER_ATTRIBUTE_IS_MANAGED) ||
           attribute_of(block->address, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR) == block->address;
}

typedef bool stack_kind(const strata_stack *stack);

static bool is_any(const strata_stack *stack)
{
    (void)stack;
    return true;
}

static bool cuts_memory_of_program(const strata_stack *stack)
{
    return stack->memory_of_program && strata_stack_may_cut_blocks(stack);
}

/* Whether a stack of this kind and of now has it, also as memory that no block of a user's has, such as a chunk of a
 * pool over `direct`. */
static bool is_held(CUdeviceptr address, stack_kind *kind)
{
    strata_stack *stack;
    bool held = false;
    for (uint64_t serial = UINT64_MAX; !held && (stack = strata_neighbours_pin_next(NULL, NULL, serial));
         serial = strata_neighbours_unpin(stack))
        held = kind(stack) && !strata_device_is_lost(stack->device) && strata_table_holds(stack->head.table, address);
    return held;
}

bool strata_is_cut_up(CUdeviceptr address)
{
    return pool_malloc_holds(address) || is_held(address, strata_stack_may_cut_blocks);
}

/* Whether the program has got memory from the driver at this address of a block whose device was reset. What outlives
 * the reset in a pool goes back first, once the context has begun anew. */
static bool is_given_out_since(strata_device *device, CUdeviceptr address, const strata_block *block)
{
    if (!strata_device_is_active(device))
        return false;
    strata_neighbours_settle_lost(device->ordinal);
    return is_made_by_the_driver(address, block) && !is_held(address, is_any);
}

/* Looks in runtimes whose device is lost, or in those whose device is not, with memory of the program's or without.
 * False: no block of them contains the address. */
static bool find_among(bool lost, bool of_program, CUdeviceptr address, strata_owned_block *out)
{
    strata_stack *stack;
    for (uint64_t serial = UINT64_MAX; (stack = strata_neighbours_pin_next(NULL, NULL, serial));
         serial = strata_neighbours_unpin(stack)) {
        out->runtime = atomic_load_explicit(&stack->runtime, memory_order_acquire);
        if (out->runtime && strata_device_is_lost(stack->device) == lost && stack->memory_of_program == of_program &&
            find_in(out->runtime, address, &out->block) == STRATA_SUCCESS &&
            !(lost && is_given_out_since(stack->device, address, &out->block)))
            return true;
    }
    return false;
}

/* A block that a layer has taken from another stack to cut it is no user's. */
static bool find_by_loss(bool lost, CUdeviceptr address, strata_owned_block *out)
{
    const bool nested = strata_neighbours_any_of_program();
    return (nested && find_among(lost, true, address, out)) ||
           (!(nested && is_held(address, cuts_memory_of_program)) && find_among(lost, false, address, out));
}

strata_status strata_owned_block_find(CUdeviceptr address, strata_owned_block *out)
{
    *out = (strata_owned_block){0};
    const strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    const bool found = find_by_loss(false, address, out) || find_by_loss(true, address, out);
    strata_error_suppress_end(false);
    return found ? STRATA_SUCCESS : STRATA_ERROR_FOREIGN_POINTER;
}

void strata_owned_block_release(strata_owned_block *found)
{
    strata_neighbours_unpin(found->runtime->stack);
}

bool strata_is_freed_in_capture(CUdeviceptr address)
{
    strata_stack *stack;
    bool found = false;
    for (uint64_t serial = UINT64_MAX; !found && (stack = strata_neighbours_pin_next(NULL, NULL, serial));
         serial = strata_neighbours_unpin(stack))
        found = strata_capture_frees_has(&stack->capture_frees, address);
    return found;
}

void strata_tell_refused_everywhere(CUdeviceptr address)
{
    strata_stack *stack;
    bool told = false;
    for (uint64_t serial = UINT64_MAX; !told && (stack = strata_neighbours_pin_next(NULL, NULL, serial));
         serial = strata_neighbours_unpin(stack))
        told = atomic_load_explicit(&stack->runtime, memory_order_acquire) &&
               strata_tell_freed_address(strata_stack_top(stack), address);
}

strata_status strata_runtime_of_address(CUdeviceptr address, strata_runtime **out)
{
    strata_owned_block found;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_of_address: out is NULL");
    *out = NULL;
    const strata_status status = strata_owned_block_find(address, &found);
    if (status == STRATA_ERROR_FOREIGN_POINTER)
        return strata_fail(status, "no live block of this process contains 0x%llx", (unsigned long long)address);
    if (status != STRATA_SUCCESS)
        return status;
    *out = found.runtime;
    strata_owned_block_release(&found);
    return STRATA_SUCCESS;
}
