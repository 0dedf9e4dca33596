/* guard: red zones around each block, fill bytes that reveal writes, a quarantine for freed blocks.
 *
 * A free takes the block from its user (strata_block_quarantine), fills it on the freeing stream after every recorded
 * use, and keeps it. */
#include "resources/guard/internal.h"

#include "core/base/call_stack.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/streams/internal_streams.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"

#include <string.h>

enum { DESTROY_TRIES = 2 }; /* as in resources/owners/async.c */

/* ---- allocating ---- */

/* Makes a request wide enough for the red zones. *front: the block's offset in it. */
static strata_status widen(const guard *self, const strata_request *request, strata_request *wider, size_t *front)
{
    size_t alignment = request->alignment > GUARD_GRANULE ? request->alignment : GUARD_GRANULE;
    *front = (self->zone + alignment - 1) & ~(alignment - 1); /* alignment is a power of two: at most 2^63 + 64 KiB */
    size_t extra = *front + self->zone;
    *wider = *request;
    wider->alignment = alignment;
    if (request->bytes <= SIZE_MAX - GUARD_GRANULE - extra) {
        wider->bytes = *front + ((request->bytes + GUARD_GRANULE - 1) & ~(size_t)(GUARD_GRANULE - 1)) + self->zone;
        return STRATA_SUCCESS;
    }
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->requested = request->bytes;
    error->tag = request->tag;
    return strata_error_raise(error, "guard: request too large: %s with its red zones",
                              strata_size_text(request->bytes).text);
}

static bool is_short_of_memory(strata_status status)
{
    return status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET;
}

/* Allocates below; if memory is short, empties the quarantine and tries again. */
static strata_status allocate_below(guard *self, const strata_request *request, strata_block *out)
{
    strata_resource *below = self->resource.upstream;
    if (!atomic_load_explicit(&self->quarantined_blocks, memory_order_relaxed))
        return below->ops->allocate(below, request, out);
    strata_error_suppress_begin();
    strata_status status = below->ops->allocate(below, request, out);
    strata_error_suppress_end(status != STRATA_SUCCESS && !is_short_of_memory(status));
    if (!is_short_of_memory(status))
        return status;
    size_t bytes;
    strata_error_suppress_begin();
    if (guard_flush(self) == STRATA_SUCCESS)
        strata_reap_internally(below, STRATA_REAP_WAIT, &bytes);
    strata_error_suppress_end(false);
    return below->ops->allocate(below, request, out);
}

static CUresult fill_with_kernel(const guard *self, const checked_range *extents, bool dead, CUstream stream)
{
    const strata_guard_extents all = {
        .address = dead ? extents[RED_ZONES].address : extents[0].address,
        .front = dead ? 0 : extents[0].bytes,
        .bytes = extents[RED_ZONES].bytes,
        .back = dead ? 0 : extents[1].bytes,
    };
    unsigned value = dead ? FREED_BYTE : FRESH_BYTE, how = value << 8 | RED_ZONE_BYTE;
    if (!self->options.no_poison)
        how |= STRATA_GUARD_FILL_BLOCK;
    if (dead)
        how |= STRATA_GUARD_FILL_DEAD;
    if (self->options.no_debuggers)
        how |= STRATA_GUARD_FILL_SILENT;
    return strata_guard_kernel_fill(&self->kernel, &all, how, stream);
}

static CUresult fill_by_memset(const guard *self, const checked_range *extents, bool dead, CUstream stream)
{
    CUresult result = CUDA_SUCCESS;
    for (unsigned i = 0; i < RED_ZONES && result == CUDA_SUCCESS && !dead; i++)
        result = strata_cu.MemsetD8Async(extents[i].address, RED_ZONE_BYTE, extents[i].bytes, stream);
    if (result == CUDA_SUCCESS && !self->options.no_poison)
        result = strata_cu.MemsetD8Async(extents[RED_ZONES].address, dead ? FREED_BYTE : FRESH_BYTE,
                                         extents[RED_ZONES].bytes, stream);
    return result;
}

/* Fills a fresh block and its zones, or a freed block (`dead`). Kernels need a stream of the primary context; others
 * get a memset. */
static strata_status fill_block(guard *self, const strata_block *shown, const strata_block *view, bool dead,
                                CUstream stream)
{
    checked_range extents[GUARD_RANGES];
    strata_call_scope scope;
    guard_checked_ranges(self, shown, view, extents);
    unsigned needs = strata_call_scope_for(stream) | STRATA_CALL_SCOPE_RELAXED |
                     (self->kernel.module ? STRATA_CALL_SCOPE_CONTEXT : 0);
    strata_status status = strata_call_scope_enter(&scope, self->device, needs);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = CUDA_ERROR_NOT_SUPPORTED;
    if (self->kernel.module)
        result = fill_with_kernel(self, extents, dead, stream);
    if (result != CUDA_SUCCESS)
        result = fill_by_memset(self, extents, dead, stream);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemsetD8Async", "filling %s 0x%llx",
                                                       dead ? "the freed block" : "the red zones of block",
                                                       (unsigned long long)shown->address);
}

/* Fills a fresh block: its first use, which its user does not see. */
static strata_status fill_fresh(guard *self, const strata_block *shown, const strata_block *view, CUstream stream)
{
    strata_resource *below = self->resource.upstream;
    strata_status status = below->ops->prepare_use(below, view, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    status = fill_block(self, shown, view, false, stream);
    strata_status finished = below->ops->finish_use(below, view, stream, STRATA_ACCESS_WRITE);
    strata_uses_forget_touch(strata_resource_table(&self->resource), view->id);
    return status == STRATA_SUCCESS ? finished : status;
}

static strata_block as_shown(const strata_block *view, const strata_request *request, size_t front)
{
    strata_block shown = *view;
    size_t offset_alignment = front & -front;
    shown.address += front;
    shown.bytes = shown.requested = request->bytes;
    shown.alignment = view->alignment < offset_alignment ? view->alignment : offset_alignment;
    return shown;
}

static void enter_live(guard *self, const strata_block *shown, const strata_block *view, uint32_t allocated_at)
{
    guarded *block = guard_bytes(self, view->id.slot);
    strata_lock_take(&self->lock);
    *block = (guarded){.shown = *shown, .below = *view, .allocated_at = allocated_at, .round = self->round};
    guard_list_append(self, block, GUARD_LIVE);
    strata_lock_release(&self->lock);
}

/* Checks the device of a known stream: another one may have been reset, and its streams with it. */
static strata_status check_device_of(const guard *self, CUstream stream)
{
    strata_timeline *known = strata_known_timeline(self->device, stream);
    const strata_stream_ref ref = {.timeline = known, .device = self->device, .handle = stream, .known = true};
    strata_device *own = known ? strata_timeline_own_device(&ref) : self->device;
    return own == self->device ? STRATA_SUCCESS : strata_check_device_now(own);
}

/* Whether the stream is being captured: work submitted to it would be part of the program's graph. If the query fails,
 * nothing is submitted. */
static strata_status query_capture(guard *self, CUstream stream, bool *capturing)
{
    strata_call_scope scope;
    *capturing = false;
    strata_status status = check_device_of(self, stream);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, self->device,
                                         strata_call_scope_for(stream) ? STRATA_CALL_SCOPE_CONTEXT : 0);
    if (status != STRATA_SUCCESS)
        return status;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = strata_cu.StreamIsCapturing(stream, &capture);
    strata_call_scope_leave(&scope);
    *capturing = result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || capture != CU_STREAM_CAPTURE_STATUS_NONE;
    if (result == CUDA_SUCCESS || *capturing)
        return STRATA_SUCCESS;
    return strata_fail_driver(result, "cuStreamIsCapturing", "querying whether a stream is being captured");
}

/* Whether the guard can serve the request, before the layer below is called. */
static strata_status check_request(guard *self, const strata_request *request)
{
    strata_resource *below = self->resource.upstream;
    if (!(below->ops->capabilities(below) & STRATA_CAPABILITY_USE_TRACKING))
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "guard needs use tracking, which the layer below (%s) does not support", below->ops->name);
    if (self->device != self->resource.stack->device)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE, "guard is for device %d, the stack for device %d",
                           self->device->ordinal, self->resource.stack->device->ordinal);
    bool capturing;
    strata_status status = query_capture(self, request->stream, &capturing);
    if (status != STRATA_SUCCESS)
        return status;
    if (capturing)
        return strata_fail(STRATA_ERROR_STREAM_CAPTURE, "guard cannot fill red zones while the stream is being "
                                                        "captured; allocate before the capture or on another stream");
    return findings_fail_allocation(&self->log);
}

static void enter_freed(guard *self, guarded *block)
{
    strata_lock_take(&self->lock);
    atomic_fetch_add_explicit(&self->quarantined_bytes, guard_whole_bytes(self, block), memory_order_relaxed);
    atomic_fetch_add_explicit(&self->quarantined_blocks, 1, memory_order_relaxed);
    block->number = ++self->free_number; /* keeps the list sorted */
    guard_list_append(self, block, GUARD_FREED);
    strata_lock_release(&self->lock);
}

/* Frees a block that could not be filled. If the layer below refuses it, the quarantine tries again. */
static void abandon(guard *self, const strata_block *shown, const strata_block *view, CUstream stream)
{
    strata_resource *below = self->resource.upstream;
    strata_block_id held;
    strata_error_suppress_begin();
    if (below->ops->deallocate(below, view, stream) != STRATA_SUCCESS &&
        strata_block_quarantine(&self->resource, shown, shown, &held) == STRATA_SUCCESS) {
        guarded *block = guard_bytes(self, held.slot);
        *block = (guarded){.shown = *shown, .below = *view, .unfilled = true};
        block->below.id = held;
        enter_freed(self, block);
    }
    strata_error_suppress_end(false);
}

/* Reports a request that is refused before the layer below has seen it. */
static __attribute__((cold)) strata_status refuse(guard *self, const strata_request *request, strata_status status)
{
    strata_request_refused(&self->resource, request, status);
    return status;
}

static strata_status guard_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    guard *self = (guard *)resource;
    strata_resource *below = resource->upstream;
    *out = (strata_block){0};
    if (!request->bytes)
        return below->ops->allocate(below, request, out);
    strata_request wider;
    size_t front;
    strata_block view;
    strata_status status = strata_check_device_now(self->device);
    if (status != STRATA_SUCCESS)
        return refuse(self, request, status);
    guard_poll(self);
    guard_keep_unread_few(self, GUARD_QUARANTINE_BYTES);
    status = check_request(self, request);
    if (status == STRATA_SUCCESS)
        status = widen(self, request, &wider, &front);
    if (status != STRATA_SUCCESS)
        return refuse(self, request, status);
    status = allocate_below(self, &wider, &view);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_block shown = as_shown(&view, request, front);
    if ((status = fill_fresh(self, &shown, &view, request->stream)) != STRATA_SUCCESS) {
        abandon(self, &shown, &view, request->stream);
        return status;
    }
    enter_live(self, &shown, &view, self->options.no_stacks ? 0 : strata_call_stack_capture(0));
    *out = shown;
    return STRATA_SUCCESS;
}

/* ---- freeing ---- */

static freed_block *freed_block_at(guard *self, uint64_t number)
{
    return &self->remembered[number % GUARD_REMEMBERED];
}

/* A live block's layer bytes, once no thread prepares a check of it; NULL: it is not live. The lock is held. */
static guarded *live_bytes(guard *self, const strata_block *block)
{
    const strata_table *table = strata_resource_table(&self->resource);
    if (!strata_table_lookup(table, block->id))
        return NULL;
    for (unsigned spins = 0; strata_table_living(table, block->id.slot) == block->id.generation;) {
        guarded *bytes = guard_bytes(self, block->id.slot);
        if (!bytes->busy)
            return bytes;
        strata_lock_release(&self->lock);
        strata_backoff(&spins);
        strata_lock_take(&self->lock);
    }
    return NULL;
}

static strata_status take_from_user(guard *self, const strata_block *block, uint32_t freed_at, guarded **out)
{
    strata_block_id held;
    strata_error_suppress_begin(); /* raised after the lock is released */
    strata_lock_take(&self->lock);
    guarded *bytes = live_bytes(self, block);
    strata_status status = strata_block_quarantine(&self->resource, block, bytes ? &bytes->shown : block, &held);
    if (status == STRATA_SUCCESS) {
        guard_list_remove(self, bytes);
        bytes->below.id = held;
        bytes->freed_at = freed_at;
        *freed_block_at(self, self->remembered_count++) =
            (freed_block){.block = bytes->shown, .allocated_at = bytes->allocated_at, .freed_at = freed_at};
        *out = bytes;
    }
    strata_lock_release(&self->lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

static void forget_free(guard *self, strata_block_id id)
{
    for (size_t i = 0; i < GUARD_REMEMBERED; i++)
        if (self->remembered[i].block.id.generation == id.generation && self->remembered[i].block.id.slot == id.slot)
            self->remembered[i] = (freed_block){0};
}

/* Makes a block live again whose free failed. */
static void give_back_to_user(guard *self, guarded *block)
{
    strata_lock_take(&self->lock);
    strata_block_unquarantine(&self->resource, block->below.id);
    forget_free(self, block->shown.id);
    block->below.id.generation--;
    block->freed_at = 0;
    guard_list_append(self, block, GUARD_LIVE);
    strata_lock_release(&self->lock);
}

/* Frees a block without quarantine: a capture allows no waits for the checks. */
static strata_status free_below(guard *self, guarded *block, CUstream stream)
{
    strata_resource *below = self->resource.upstream;
    const strata_block view = block->below;
    strata_status status = guard_wait_for_batches(self, block);
    if (status == STRATA_SUCCESS)
        status = below->ops->deallocate(below, &view, stream);
    if (status == STRATA_SUCCESS)
        atomic_fetch_add_explicit(&self->unchecked, 1, memory_order_relaxed);
    else
        give_back_to_user(self, block);
    return status;
}

/* Lets the guard's stream wait for `end`; 0: for nothing. */
static strata_status follow(guard *self, strata_point end)
{
    strata_stream_ref checking;
    strata_status status = strata_stream_resolve(self->device, self->checking, &checking);
    return status == STRATA_SUCCESS && end ? strata_timeline_order(&checking, end) : status;
}

/* Lets the guard's stream wait for the end of the block's unregistered allocation stream. */
static strata_status follow_alloc_stream(guard *self, const strata_block *view)
{
    strata_point end;
    const strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), view->id);
    strata_status status = strata_uses_end_of_alloc_stream(entry, view, &end);
    return status == STRATA_SUCCESS ? follow(self, end) : status;
}

/* Whether the stream is of another context, which may have no access to the block: another device's. */
static bool is_of_another_context(const guard *self, CUstream stream)
{
    CUcontext context = NULL;
    return strata_cu.StreamGetCtx && strata_cu.StreamGetCtx(stream, &context) == CUDA_SUCCESS &&
           context != self->device->context;
}

/* Lets the guard's stream wait for the work of `stream` so far. */
static strata_status follow_stream(guard *self, CUstream stream)
{
    strata_point end = 0;
    strata_stream_ref ref;
    strata_status status = strata_stream_resolve(self->device, stream, &ref);
    if (status == STRATA_SUCCESS)
        status = strata_check_call_scope(self->device, strata_call_scope_for(stream));
    if (status == STRATA_SUCCESS)
        status = strata_stream_point(&ref, &end);
    return status == STRATA_SUCCESS ? follow(self, end) : status;
}

/* Records the stream's event now: when the guard's stream waits for it, the stream may be capturing. */
static void end_epoch(guard *self, CUstream stream)
{
    const strata_timeline *timeline = strata_known_timeline(self->device, stream);
    if (!timeline)
        return;
    strata_error_suppress_begin(); /* after a failure the wait records the event */
    strata_timeline_close_epoch(strata_timeline_now(timeline));
    strata_error_suppress_end(false);
}

/* Fills a freed block after all its uses. *filled: the work was submitted; after an error it could not be recorded. */
static strata_status fill_freed(guard *self, const guarded *block, CUstream stream, bool *filled)
{
    strata_resource *below = self->resource.upstream;
    const strata_block view = block->below;
    *filled = false;
    strata_status status = below->ops->prepare_use(below, &view, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    if (!self->options.no_poison)
        status = fill_block(self, &block->shown, &view, true, stream);
    *filled = status == STRATA_SUCCESS;
    strata_status finished =
        below->ops->finish_use(below, &view, stream, *filled ? STRATA_ACCESS_WRITE : STRATA_ACCESS_NONE);
    if (*filled && finished == STRATA_SUCCESS)
        end_epoch(self, stream);
    return *filled ? finished : status;
}

/* As fill_freed, on the guard's own stream, behind the work of `stream` so far. */
static strata_status fill_freed_behind(guard *self, guarded *block, CUstream stream, bool *filled)
{
    const strata_status status = follow_stream(self, stream);
    return status == STRATA_SUCCESS ? fill_freed(self, block, self->checking, filled) : status;
}

static strata_status quarantine(guard *self, guarded *block, CUstream stream)
{
    bool gone = stream == STRATA_STREAM_GONE, filled = false, capture = false;
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, stream);
    strata_error_suppress_begin();
    strata_status status = gone ? follow_alloc_stream(self, &block->below) : query_capture(self, stream, &capture);
    if (status == STRATA_SUCCESS && !capture)
        status = fill_freed(self, block, gone ? self->checking : stream, &filled);
    if (status == STRATA_ERROR_DRIVER && !gone && !filled && is_of_another_context(self, stream))
        status = fill_freed_behind(self, block, stream, &filled);
    capture |= status == STRATA_ERROR_STREAM_CAPTURE;
    const bool frees_below = capture || (status != STRATA_SUCCESS && filled);
    strata_error_suppress_end(status != STRATA_SUCCESS && !frees_below);
    if (frees_below)
        return free_below(self, block, stream);
    if (status != STRATA_SUCCESS) {
        give_back_to_user(self, block);
        return status;
    }
    enter_freed(self, block);
    return STRATA_SUCCESS;
}

/* The remembered free of a block; zero if it was too long ago. */
static freed_block remembered_free(guard *self, const strata_block *block)
{
    freed_block found = {0};
    strata_lock_take(&self->lock);
    uint64_t count = self->remembered_count < GUARD_REMEMBERED ? self->remembered_count : GUARD_REMEMBERED;
    for (uint64_t i = 0; i < count && !found.block.id.generation; i++) {
        const strata_block_id id = self->remembered[i].block.id;
        if (id.generation == block->id.generation && id.slot == block->id.slot && id.table == block->id.table)
            found = self->remembered[i];
    }
    strata_lock_release(&self->lock);
    return found;
}

/* The latest remembered free of a block that began at the address; zero if there is none. */
static freed_block remembered_free_at(guard *self, CUdeviceptr address)
{
    freed_block found = {0};
    strata_lock_take(&self->lock);
    uint64_t count = self->remembered_count < GUARD_REMEMBERED ? self->remembered_count : GUARD_REMEMBERED;
    for (uint64_t i = 1; i <= count && !found.block.id.generation; i++) {
        const freed_block *one = freed_block_at(self, self->remembered_count - i);
        if (one->block.address == address)
            found = *one;
    }
    strata_lock_release(&self->lock);
    return found;
}

static bool guard_address_refused(strata_resource *resource, CUdeviceptr address, bool freed)
{
    guard *self = (guard *)resource;
    const freed_block first = freed ? remembered_free_at(self, address) : (freed_block){0};
    if (freed && !first.block.id.generation)
        return false;
    findings_report_refused_address(&self->log, address, self->device->ordinal, &first,
                                    self->options.no_stacks ? 0 : strata_call_stack_capture(0));
    return true;
}

static void report_refused(guard *self, const strata_block *block, strata_status status, uint32_t freed_at)
{
    if (!findings_is_refused_free(status))
        return;
    freed_block first = {0};
    if (status == STRATA_ERROR_DOUBLE_FREE)
        first = remembered_free(self, block);
    findings_report_refused(&self->log, block, status, &first, freed_at);
}

static strata_status guard_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    guard *self = (guard *)resource;
    guarded *taken = NULL;
    uint32_t freed_at = self->options.no_stacks ? 0 : strata_call_stack_capture(0);
    strata_status status = strata_check_device_now(self->device);
    if (status != STRATA_SUCCESS)
        return status;
    status = take_from_user(self, block, freed_at, &taken);
    if (status == STRATA_SUCCESS)
        status = quarantine(self, taken, stream);
    else
        report_refused(self, block, status, freed_at);
    if (status == STRATA_SUCCESS)
        guard_poll(self);
    return status;
}

/* ---- others ---- */

static strata_status guard_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    guard *self = (guard *)resource;
    strata_resource *below = resource->upstream;
    *bytes = 0;
    strata_status status = mode == STRATA_REAP_WAIT ? guard_flush(self) : strata_check_device_now(self->device);
    if (status == STRATA_SUCCESS && mode != STRATA_REAP_WAIT)
        guard_poll(self);
    return status == STRATA_SUCCESS ? below->ops->reap(below, mode, bytes) : status;
}

/* What is free below goes back before the wait for the last checks, which a stuck stream may hold up. */
static strata_status guard_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    strata_resource *below = resource->upstream;
    size_t before = 0, after = 0;
    strata_status status = strata_trim_internally(below, keep_bytes, &before);
    if (status == STRATA_SUCCESS)
        status = guard_flush((guard *)resource);
    if (status == STRATA_SUCCESS)
        status = below->ops->trim(below, keep_bytes, &after);
    *bytes = before + after;
    return status;
}

/* Returns the whole quarantine, and only where the device would refuse memory. */
static uint64_t guard_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    (void)bytes;
    guard *self = (guard *)resource;
    const uint64_t before = atomic_load_explicit(&self->quarantined_bytes, memory_order_relaxed);
    if (!before || !may_wait)
        return 0;
    guard_flush(self);
    const uint64_t after = atomic_load_explicit(&self->quarantined_bytes, memory_order_relaxed);
    return before > after ? before - after : 0;
}

/* The usage below, with quarantined blocks, which are live there, as retired. */
static strata_status guard_usage(strata_resource *resource, strata_usage *usage)
{
    guard *self = (guard *)resource;
    strata_resource *below = resource->upstream;
    strata_status status = below->ops->usage(below, usage);
    size_t bytes = (size_t)atomic_load_explicit(&self->quarantined_bytes, memory_order_relaxed);
    size_t blocks = (size_t)atomic_load_explicit(&self->quarantined_blocks, memory_order_relaxed);
    bytes = bytes < usage->live_bytes ? bytes : usage->live_bytes;
    usage->live_bytes -= bytes;
    usage->retired_bytes += bytes;
    usage->live_blocks -= blocks < usage->live_blocks ? blocks : usage->live_blocks;
    return status;
}

static strata_status guard_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    strata_resource *below = resource->upstream;
    strata_request wider = *request;
    size_t front;
    *bytes = 0;
    strata_status status = request->bytes ? widen((guard *)resource, request, &wider, &front) : STRATA_SUCCESS;
    return status == STRATA_SUCCESS ? below->ops->charge(below, &wider, bytes) : status;
}

static strata_status guard_reusable(strata_resource *resource, const strata_request *request, size_t *bytes,
                                    strata_block_id *of)
{
    strata_resource *below = resource->upstream;
    strata_request wider = *request;
    size_t front;
    *bytes = 0;
    *of = (strata_block_id){0};
    strata_status status = request->bytes ? widen((guard *)resource, request, &wider, &front) : STRATA_SUCCESS;
    return status == STRATA_SUCCESS ? below->ops->reusable(below, &wider, bytes, of) : status;
}

/* The user's view of a block found below; false if the user does not have it. */
static bool show(guard *self, const strata_block *view, strata_block *out)
{
    strata_lock_take(&self->lock);
    bool live = strata_table_state(strata_resource_table(&self->resource), view->id) == STRATA_BLOCK_LIVE;
    if (live)
        *out = guard_bytes(self, view->id.slot)->shown;
    strata_lock_release(&self->lock);
    return live;
}

static strata_status guard_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    strata_resource *below = resource->upstream;
    strata_block view, shown;
    *out = (strata_block){0};
    strata_status status = below->ops->find(below, address, &view);
    if (status != STRATA_SUCCESS)
        return status;
    bool known = show((guard *)resource, &view, &shown);
    if (known && address - shown.address < shown.bytes) {
        *out = shown;
        return STRATA_SUCCESS;
    }
    if (!known)
        return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                           (unsigned long long)address);
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                       "the address 0x%llx is in a red zone: offset %lld of block 0x%llx, %s (tag \"%s\")",
                       (unsigned long long)address, (long long)(address - shown.address),
                       (unsigned long long)shown.address, strata_size_text(shown.requested).text,
                       strata_tag_name(shown.tag));
}

/* ---- the ops table ---- */

static void destroy_driver_objects(guard *self)
{
    CUstream streams[] = {self->leaving, self->checking};
    for (size_t i = 0; i < 2; i++) {
        bool ended = !streams[i];
        for (int tries = 0; tries < DESTROY_TRIES && !ended; tries++)
            strata_internal_stream_destroy(self->device, streams[i], &ended);
    }
    strata_call_scope scope;
    bool entered = false;
    for (int tries = 0; tries < DESTROY_TRIES && !entered; tries++)
        entered = strata_call_scope_enter(&scope, self->device,
                                          STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) == STRATA_SUCCESS;
    if (!entered)
        return;
    strata_guard_kernel_unload(&self->kernel);
    if (self->pinned)
        strata_cu.MemFreeHost(self->pinned);
    strata_call_scope_leave(&scope);
}

static void guard_destroy(strata_resource *resource)
{
    guard *self = (guard *)resource;
    if (strata_device_is_usable(self->device))
        destroy_driver_objects(self);
    findings_destroy(&self->log);
    strata_lock_destroy(&self->lock);
    strata_host_free(self->remembered);
    strata_host_free(self);
}

/* Refuses blocks that cannot be filled: the device stops at the first fill. */
static strata_status guard_begin(strata_resource *resource)
{
    const strata_resource *below = resource;
    while ((below = strata_resource_next_below(resource, below)))
        if (below->ops->without_memory)
            return strata_fail(STRATA_ERROR_UNSUPPORTED,
                               "guard cannot stand over %s, whose blocks have no memory for red zones; use "
                               "guard(sample=N) or another owner",
                               below->ops->name);
    return STRATA_SUCCESS;
}

const strata_resource_ops guard_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(guarded),
    .name = "guard",
    .begin = guard_begin,
    .allocate = guard_allocate,
    .deallocate = guard_deallocate,
    .reap = guard_reap,
    .trim = guard_trim,
    .give_back = guard_give_back,
    .usage = guard_usage,
    .charge = guard_charge,
    .find = guard_find,
    .address_refused = guard_address_refused,
    .destroy = guard_destroy,
    .reusable = guard_reusable,
    .values = guard_values,
    .value_count = GUARD_VALUES,
    .get_value = guard_get_value,
    .set_value = guard_set_value,
    .describe = guard_describe,
};

bool strata_has_zones(const strata_resource *resource)
{
    return guard_is_one(resource);
}

bool guard_is_one(const strata_resource *resource)
{
    return resource->ops->destroy == guard_destroy;
}
