/* Calls about memory and its uses: each forwards to the outermost layer and holds no lock while it does. */
#include "runtime/runtime.h"

#include "core/base/error.h"
#include "core/base/size_text.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/streams/device_wait.h"
#include "runtime/captures.h"
#include "runtime/graph_frees.h"
#include "runtime/references.h"

/* ---- memory ---- */

strata_status strata_runtime_allocate_request(strata_runtime *runtime, const strata_request *request, strata_block *out)
{
    if (!runtime || !request || !out) {
        if (out)
            *out = (strata_block){0};
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_allocate: runtime, request or out is NULL");
    }
    strata_status status;
    if (strata_captures_any(runtime) && request->bytes && strata_captured_allocate(runtime, request, out, &status))
        return status;
    return strata_resource_allocate(runtime->top, request, out);
}

strata_status strata_runtime_allocate_request_ptsz(strata_runtime *runtime, const strata_request *request,
                                                   strata_block *out)
{
    if (!runtime || !request || !out || (strata_captures_any(runtime) && request->stream))
        return strata_runtime_allocate_request(runtime, request, out);
    if (strata_captures_any(runtime)) {
        strata_request meant = *request;
        meant.stream = CU_STREAM_PER_THREAD;
        return strata_runtime_allocate_request(runtime, &meant, out);
    }
    return strata_resource_allocate_ptsz(runtime->top, request, out);
}

/* strata_runtime_allocate while there are captures. */
static __attribute__((noinline)) strata_status allocate_beside_captures(strata_runtime *runtime, size_t bytes,
                                                                        CUstream stream, strata_block *out)
{
    const strata_request request = {.bytes = bytes, .stream = stream};
    strata_status status;
    return strata_captured_allocate(runtime, &request, out, &status)
               ? status
               : strata_allocate_from_top(runtime->top, &request, out);
}

/* strata_runtime_allocate for invalid arguments, for 0 bytes, and while the driver is not open. */
static __attribute__((noinline)) strata_status allocate_slow(strata_runtime *runtime, size_t bytes, CUstream stream,
                                                             strata_block *out)
{
    return strata_runtime_allocate_request(runtime, &(strata_request){.bytes = bytes, .stream = stream}, out);
}

strata_status strata_runtime_allocate(strata_runtime *runtime, size_t bytes, CUstream stream, strata_block *out)
{
    if (__builtin_expect(!runtime || strata_driver_state_now() != STRATA_DRIVER_OPEN || !out, 0))
        return allocate_slow(runtime, bytes, stream, out);
    const bool captures = strata_captures_any(runtime);
    if (__builtin_expect(!bytes, 0))
        return allocate_slow(runtime, bytes, stream, out);
    if (captures)
        return allocate_beside_captures(runtime, bytes, stream, out);
    return runtime->top->ops->top_allocate(runtime->top, bytes, stream, out);
}

/* A free by address after the driver's shutdown or the device's reset: frees the table's entry, if the block is still
 * found. */
static strata_status forget_at(strata_runtime *runtime, CUdeviceptr address)
{
    strata_block block;
    strata_error_suppress_begin();
    const strata_status found = runtime->top->ops->find(runtime->top, address, &block);
    strata_error_suppress_end(false);
    return found == STRATA_SUCCESS && block.address == address ? strata_free_without_driver(runtime->top, &block)
                                                               : STRATA_SUCCESS;
}

strata_status strata_runtime_deallocate_address(strata_runtime *runtime, CUdeviceptr address, CUstream stream)
{
    strata_block block;
    if (!runtime)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_deallocate_address: runtime is NULL");
    if (!address)
        return STRATA_SUCCESS;
    if (strata_driver_state_now() == STRATA_DRIVER_SHUT_DOWN || strata_device_is_lost(runtime->device))
        return forget_at(runtime, address);
    strata_status status = strata_runtime_find(runtime, address, &block);
    if (strata_ends_without_driver(status))
        return forget_at(runtime, address);
    if (status == STRATA_SUCCESS && block.address != address)
        status = strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                             "0x%llx is not the start of a block: it is inside of block 0x%llx (tag \"%s\", %s); "
                             "free that address",
                             (unsigned long long)address, (unsigned long long)block.address, strata_tag_name(block.tag),
                             strata_size_text(block.bytes).text);
    if (__builtin_expect(status != STRATA_SUCCESS, 0)) {
        if (status == STRATA_ERROR_FOREIGN_POINTER)
            strata_tell_refused_address(runtime->top, address);
        return status;
    }
    return strata_runtime_deallocate_on(runtime, &block, stream);
}

size_t strata_runtime_bytes_outstanding(strata_runtime *runtime)
{
    strata_usage usage = {0};
    if (runtime)
        strata_resource_usage(runtime->top, &usage);
    return usage.bytes_outstanding;
}

strata_status strata_runtime_usage(strata_runtime *runtime, strata_usage *usage)
{
    return strata_resource_usage(runtime ? runtime->top : NULL, usage);
}

strata_status strata_runtime_budget_snapshot(strata_runtime *runtime, strata_runtime_budget *budget)
{
    if (!budget)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_budget_snapshot: budget is NULL");
    *budget = (strata_runtime_budget){0};
    strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_budget_snapshot nearest;
    status = runtime->top->ops->budget(runtime->top, &nearest);
    if (status == STRATA_ERROR_UNSUPPORTED) { /* no layer has a limit */
        nearest = (strata_budget_snapshot){.in_use = strata_runtime_bytes_outstanding(runtime), .remaining = SIZE_MAX};
        status = STRATA_SUCCESS;
    }
    if (status == STRATA_SUCCESS)
        *budget = (strata_runtime_budget){.limit = nearest.limit,
                                          .in_use = nearest.in_use,
                                          .remaining = nearest.limit ? nearest.remaining : SIZE_MAX,
                                          .device_free = strata_device_free_bytes(runtime->device)};
    return status;
}

strata_status strata_runtime_reap_pending(strata_runtime *runtime)
{
    strata_status status = strata_check_runtime_now(runtime);
    strata_error unwaited;
    size_t bytes;
    if (status != STRATA_SUCCESS)
        return status;
    strata_devices_wait_if_uncovered(&unwaited); /* first: what then is known can be freed */
    strata_references_free_deferred(runtime);
    strata_graphs_free_due(runtime);
    if (unwaited.status == STRATA_SUCCESS)
        return runtime->top->ops->reap(runtime->top, STRATA_REAP_WAIT, &bytes);
    strata_error_suppress_begin();
    runtime->top->ops->reap(runtime->top, STRATA_REAP_WAIT, &bytes);
    strata_error_suppress_end(false);
    return strata_error_raise_again(&unwaited);
}

strata_status strata_runtime_trim(strata_runtime *runtime, size_t keep_bytes, size_t *released)
{
    size_t bytes = 0;
    strata_status status = strata_check_runtime_now(runtime);
    if (status == STRATA_SUCCESS)
        status = runtime->top->ops->trim(runtime->top, keep_bytes, &bytes);
    if (released)
        *released = bytes;
    return status;
}

strata_status strata_runtime_find(strata_runtime *runtime, CUdeviceptr address, strata_block *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_find: out is NULL");
    *out = (strata_block){0};
    strata_status status = strata_check_runtime(runtime);
    if (status == STRATA_SUCCESS)
        status = runtime->top->ops->find(runtime->top, address, out);
    return status == STRATA_SUCCESS && strata_runtime_keeps(runtime, out) ? strata_captures_find(runtime, address, out)
                                                                          : status;
}

strata_block_state strata_runtime_block_state(strata_runtime *runtime, strata_block_id id)
{
    if (!runtime)
        return STRATA_BLOCK_FREED;
    const strata_block block = {.id = id};
    return strata_runtime_keeps(runtime, &block) && strata_kept_block_is_freed(runtime, &block)
               ? STRATA_BLOCK_RETIRED
               : strata_table_state(runtime->stack->head.table, id);
}

/* ---- uses ---- */

bool strata_runtime_supports_block_use_tracking(strata_runtime *runtime)
{
    return runtime && runtime->tracks;
}

strata_status strata_runtime_prepare_block_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                               strata_access access)
{
    strata_status status;
    if (runtime && strata_captures_any(runtime) && strata_use_is_valid(block, access, STRATA_ACCESS_READ) &&
        strata_captured_prepare(runtime, block, stream, access, &status))
        return status;
    if (runtime && block && strata_runtime_keeps(runtime, block)) {
        status = strata_kept_block_check(runtime, block);
        if (status != STRATA_SUCCESS)
            return status;
    }
    if (__builtin_expect(runtime != NULL, 1) && strata_use_is_valid(block, access, STRATA_ACCESS_READ))
        return runtime->top->ops->prepare_use(runtime->top, block, stream, access);
    return strata_resource_prepare_use(runtime ? runtime->top : NULL, block, stream, access);
}

strata_status strata_runtime_finish_block_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                              strata_access access)
{
    strata_status status;
    if (runtime && strata_captures_any(runtime) && strata_use_is_valid(block, access, STRATA_ACCESS_NONE) &&
        strata_captured_finish(runtime, block, stream, access, &status))
        return status;
    if (__builtin_expect(runtime != NULL, 1) && strata_use_is_valid(block, access, STRATA_ACCESS_NONE))
        return runtime->top->ops->finish_use(runtime->top, block, stream, access);
    return strata_resource_finish_use(runtime ? runtime->top : NULL, block, stream, access);
}

strata_status strata_runtime_prepare_first_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                               strata_access access)
{
    if (!runtime || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_prepare_first_use: runtime or block is NULL");
    strata_status status = strata_check_runtime(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_table *table = runtime->stack->head.table;
    bool live = strata_table_state(table, block->id) == STRATA_BLOCK_LIVE;
    if (live && !strata_uses_untouched(table, block->id))
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "block 0x%llx (tag \"%s\", generation %llu) was already used; this is not its first use",
                           (unsigned long long)block->address, strata_tag_name(block->tag),
                           (unsigned long long)block->id.generation);
    return strata_runtime_prepare_block_use(runtime, block, stream, access);
}

strata_status strata_runtime_finish_first_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                              strata_access access)
{
    return strata_runtime_finish_block_use(runtime, block, stream, access);
}

strata_status strata_runtime_record_block_use(strata_runtime *runtime, const strata_block *block, CUstream stream,
                                              strata_access access)
{
    if (!block || (unsigned)access - 1 > STRATA_ACCESS_READ_WRITE - 1)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_runtime_record_block_use: block is NULL, or the access is invalid");
    strata_status status = strata_check_runtime(runtime);
    if (status != STRATA_SUCCESS || strata_block_is_empty(block))
        return status;
    if (strata_captures_any(runtime) && strata_captured_record(runtime, block, stream, access, &status))
        return status;
    if (strata_runtime_keeps(runtime, block))
        status = strata_kept_block_check(runtime, block);
    if (status != STRATA_SUCCESS)
        return status;
    return runtime->top->ops->record_use(runtime->top, block, stream, access);
}
