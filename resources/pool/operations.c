/* pool: serves blocks from large chunks of device memory without a driver call.
 *
 *     request  -> allocate.c  a thread's cache has an extent (thread_cache.h), or
 *                 find.c      searches the heap; grow.c makes or remaps memory
 *     free     -> free.c      into the thread's cache, or into the heap with its points (resources/extents/pending.h)
 *
 * Layers above count a freed block's bytes as free at once. */
#include "resources/pool/operations.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/default_operations.h"
#include "resources/chunks/holds.h"
#include "resources/owners/pending_points.h"
#include "resources/pool/thread_cache.h"

#include <limits.h>

/* Lists the next streams that free memory waits for. Takes map_lock: its holder may just have taken some of the memory.
 */
static void list_pending(pool *self, strata_pending_points *found)
{
    strata_pending_points_next(found);
    strata_lock_take(&self->map_lock);
    strata_spin_take(&self->lock);
    for (uint32_t slot = pool_heap_from(&self->heap, 0); slot; slot = pool_heap_behind(&self->heap, slot)) {
        const uint8_t state = pool_extent_at(&self->heap, slot)->state;
        if (state == POOL_FREE || state == POOL_AWAITED)
            strata_uses_visit(pool_entry(&self->heap, slot), strata_pending_points_visit, found);
    }
    strata_spin_release(&self->lock);
    strata_lock_release(&self->map_lock);
}

/* Waits for all work that free memory waits for, each stream once. Errors: the first. */
static strata_status wait_for_free(pool *self)
{
    strata_status status = STRATA_SUCCESS;
    strata_pending_points found = {.count = 0};
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    strata_lock_release(&self->map_lock);
    do {
        list_pending(self, &found);
        for (size_t i = 0; i < found.count; i++) {
            const strata_status waited = strata_point_synchronize_for(self->device, found.points[i]);
            status = status == STRATA_SUCCESS ? waited : status;
        }
    } while (strata_pending_points_is_full(&found));
    return status;
}

/* *bytes: those that were held by a capture; all others were free at once. A full reap returns memory above the release
 * threshold. */
static strata_status pool_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    pool *self = (pool *)resource;
    const int64_t before = strata_counters_sum(&self->deferred, 0);
    strata_capture_frees_flush_for_reap(&resource->stack->capture_frees, mode == STRATA_REAP_WAIT);
    const int64_t now = strata_counters_sum(&self->deferred, 0);
    *bytes = before > now ? (size_t)(before - now) : 0;
    if (mode == STRATA_REAP_WAIT && strata_capture_frees_any(&resource->stack->capture_frees))
        return strata_capture_frees_refuse(&resource->stack->capture_frees);
    strata_status status = mode == STRATA_REAP_WAIT ? wait_for_free(self) : STRATA_SUCCESS;
    if (mode != STRATA_REAP_WAIT)
        pool_decay_step_if_due(self);
    else if (status == STRATA_SUCCESS && (status = pool_release(self)) == STRATA_SUCCESS &&
             atomic_load_explicit(&self->started, memory_order_acquire))
        status = pool_decay_step(self, UINT_MAX);
    size_t of_chunks;
    if (status == STRATA_SUCCESS && resource->upstream)
        status = resource->upstream->ops->reap(resource->upstream, mode, &of_chunks);
    return status;
}

/* Returns wholly free chunks until at most `keep_bytes` are reserved; waits for pending ones. */
static strata_status pool_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    pool *self = (pool *)resource;
    uint64_t released = 0;
    size_t trimmed_below = 0;
    strata_resource *below = resource->upstream;
    const pool_release_terms how = {.keep = keep_bytes, .may_wait = true};
    strata_status status = self->kind->give_back(self, &how, &released);
    if (status == STRATA_SUCCESS && below)
        status = below->ops->trim(below, keep_bytes, &trimmed_below);
    *bytes = trimmed_below > released ? trimmed_below : (size_t)released;
    return status;
}

static strata_status pool_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    const pool *self = (const pool *)resource;
    const size_t most = ~(size_t)(POOL_GRANULE - 1); /* larger ones exceed any device */
    *bytes = request->bytes > most ? SIZE_MAX : pool_granules_for(request->bytes) * POOL_GRANULE;
    const uint64_t whole = pool_contiguous_bytes(self, *bytes); /* 0 also if it would not fit a word */
    *bytes = whole ? (size_t)whole : *bytes;
    return STRATA_SUCCESS;
}

/* Contiguous blocks are larger. */
_Static_assert((uint64_t)POOL_CLASSED *POOL_GRANULE < POOL_SMALL_BLOCK, "no class is contiguous");
_Static_assert((size_t)POOL_GRANULE == STRATA_CHARGE_UNIT, "a class is so many units");

static const strata_charge_table charges = {pool_class_granules, POOL_CLASSED};

/* A request may return chunks first. Where that waits for the device, as cuMemFree does, the pool is not
 * stream-ordered.
 */
static uint32_t pool_capabilities(strata_resource *resource)
{
    const uint32_t own = STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
    strata_resource *below = resource->upstream;
    if (below)
        return own |
               (below->ops->capabilities(below) & (STRATA_CAPABILITY_STREAM_ORDERED | STRATA_CAPABILITY_DEVICE_MEMORY));
    const bool plain = ((pool *)resource)->store.source == &pool_chunk_source_malloc;
    return own | STRATA_CAPABILITY_DEVICE_MEMORY | (plain ? 0 : STRATA_CAPABILITY_STREAM_ORDERED);
}

static strata_status pool_find_block(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    pool *self = (pool *)resource;
    *out = (strata_block){0};
    strata_spin_take(&self->lock);
    const uint32_t slot = pool_heap_around(&self->heap, address);
    const bool found =
        slot && strata_entry_describe(self->heap.table, slot, out) && address - out->address < out->bytes;
    strata_spin_release(&self->lock);
    if (found)
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

static bool pool_owns_internally(strata_resource *resource, strata_block_id id)
{
    const pool_extent *extent = strata_block_layer_bytes(resource, id);
    return extent && extent->state == POOL_CHUNK;
}

static strata_status pool_begin(strata_resource *resource)
{
    pool *self = (pool *)resource;
    if (self->device != resource->stack->device)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE,
                           "layer %u of the stack (pool) is for device %d, the stack for device %d",
                           resource->position + 1, self->device->ordinal, resource->stack->device->ordinal);
    pool_chunk_store_close(&self->store); /* the build failed */
    strata_status status = pool_chunk_store_open(&self->store, resource, self->device, &self->given, self->peers);
    if (status != STRATA_SUCCESS)
        return status;
    self->kind = self->store.source->remappable ? &pool_kind_moving : &pool_kind_fixed;
    pool_policy_begin(self);
    return STRATA_SUCCESS;
}

static void pool_built(strata_resource *resource)
{
    pool *self = (pool *)resource;
    if (self->initial_bytes)
        pool_reserve_initial(self);
}

static void wait_for_all(pool *self)
{
    for (uint32_t slot = pool_heap_from(&self->heap, 0); slot; slot = pool_heap_behind(&self->heap, slot))
        if (pool_extent_at(&self->heap, slot)->state != POOL_HOLE)
            strata_uses_visit(pool_entry(&self->heap, slot), strata_point_wait, self->device);
}

static void pool_destroy(strata_resource *resource)
{
    pool *self = (pool *)resource;
    if (self->started && strata_device_is_usable(self->device)) {
        strata_error_suppress_begin();
        wait_for_all(self);
        strata_error_suppress_end(false);
    }
    pool_holds_drop(&self->store);
    pool_chunk_store_close(&self->store);
    strata_host_free(atomic_load_explicit(&self->decay.marks, memory_order_relaxed));
    pool_thread_caches_destroy(self);
    pool_heap_destroy(&self->heap);
    strata_counters_destroy(&self->deferred);
    strata_lock_destroy(&self->map_lock);
    strata_lock_destroy(&self->oom_lock);
    strata_host_free(self);
}

/* ---- the ops table ---- */

const strata_resource_ops pool_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(pool_extent),
    .transparent = true,
    .name = "pool",
    .allocate = pool_allocate,
    .deallocate = pool_deallocate,
    .allocate_own = pool_allocate_own,
    .deallocate_own = pool_deallocate_own,
    .allocate_plain = pool_allocate_plain,
    .top_allocate = pool_top_allocate,
    .top_deallocate = pool_top_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = pool_reap,
    .trim = pool_trim,
    .usage = pool_usage,
    .charge = pool_charge,
    .charge_table = &charges,
    .capabilities = pool_capabilities,
    .find = pool_find_block,
    .destroy = pool_destroy,
    .reusable = strata_nothing_reusable,
    .sum_frees = pool_sum_frees,
    .give_back = pool_give_back,
    .owns_internally = pool_owns_internally,
    .begin = pool_begin,
    .built = pool_built,
    .values = pool_values,
    .value_count = POOL_VALUE_COUNT,
    .get_value = pool_get_value,
    .set_value = pool_set_value,
    .describe = pool_describe,
};
