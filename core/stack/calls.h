/* Calls of a stack's users, with a runtime and without one. */
#ifndef STRATA_CORE_STACK_CALLS_H
#define STRATA_CORE_STACK_CALLS_H

#include "core/base/driver_state.h"
#include "core/base/thread.h"
#include "core/stack/stack.h"

/* SUCCESS, or an error: shut down, forked, or the device was reset. */
static inline strata_status strata_check_stack(const strata_stack *stack)
{
    const strata_status status = strata_check_driver();
    return status == STRATA_SUCCESS ? strata_check_device(stack->device) : status;
}

/* Whether a free that failed with this status has nothing to free: the memory is gone. */
static inline bool strata_ends_without_driver(strata_status status)
{
    return __builtin_expect(status == STRATA_ERROR_SHUT_DOWN || status == STRATA_ERROR_DEVICE_RESET, 0);
}

/* A free after the driver's shutdown or the device's reset, when no memory is left to free. Ends the block, so that no
 * report of live blocks has it. SUCCESS for any block. */
strata_status strata_free_without_driver(const strata_resource *resource, const strata_block *block);

/* After a free through the outermost layer whose status strata_ends_without_driver. If another device was reset, whose
 * stream was named, the block is freed behind all work of its own device; else as strata_free_without_driver. */
strata_status strata_free_after_reset(strata_resource *top, const strata_block *block);

/* Frees a block through the outermost layer: on `stream`, or as strata_free_on_own_stream. Neither pointer is NULL; the
 * block may be empty. */
strata_status strata_free_from_top(strata_resource *top, const strata_block *block, CUstream stream);
strata_status strata_free_from_top_on_own_stream(strata_resource *top, const strata_block *block);

/* Allocates through the outermost layer; the arguments are checked already. On failure *out is zeroed. Always inline:
 * no frame in the call stacks of an unoptimized build. */
static inline __attribute__((always_inline)) strata_status
strata_allocate_from_top(strata_resource *top, const strata_request *request, strata_block *out)
{
    const strata_status status = top->ops->allocate(top, request, out);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        *out = (strata_block){0};
    return status;
}

/* Whether a use with at least the access `least` needs no further check. */
static inline bool strata_use_is_valid(const strata_block *block, strata_access access, strata_access least)
{
    bool valid = block && (unsigned)access >= (unsigned)least && (unsigned)access <= STRATA_ACCESS_READ_WRITE &&
                 block->address && strata_driver_state_now() == STRATA_DRIVER_OPEN;
    return __builtin_expect(valid, 1);
}

/* Reap and trim the layer where the program did not ask for it. */
strata_status strata_reap_internally(strata_resource *below, strata_reap_mode mode, size_t *bytes);
strata_status strata_trim_internally(strata_resource *below, size_t keep_bytes, size_t *bytes);

/* Whether the calling thread is inside such a reap or trim. */
static inline bool strata_call_is_internal(void)
{
    const strata_thread *thread = strata_thread_current;
    return thread && thread->internal_calls;
}

/* Tells the layers of a free by address that was refused. The second tells only layers that know a freed block that
 * began there: true if one has reported the free. */
void strata_tell_refused_address(strata_resource *top, CUdeviceptr address);
bool strata_tell_freed_address(strata_resource *top, CUdeviceptr address);

/* Whether a layer has the operation graph_event; calls it in each layer that does. */
bool strata_resource_hears_graphs(strata_resource *top);
void strata_tell_graph_event(strata_resource *top, const strata_graph_event *event);

#endif
