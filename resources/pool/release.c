/* Returns memory to the device: at a trim, and at a full reap with a release threshold (decay.c: over time). Only
 * wholly free chunks without holds go, highest numbers first: usually the youngest. */
#include "core/base/error.h"
#include "resources/pool/thread_cache.h"

/* 0: not free, or not complete. */
static uint32_t take_range_of(pool *self, const pool_chunk *chunk, bool may_wait)
{
    uint32_t slot = 0;
    bool complete;
    strata_spin_take(&self->lock);
    if (pool_chunk_is_free(self, chunk, &complete) && (complete || may_wait))
        slot = pool_heap_take_range(&self->heap, chunk->address, pool_chunk_bytes(chunk));
    strata_spin_release(&self->lock);
    return slot;
}

strata_status pool_give_back_chunk(pool *self, uint32_t number, bool may_wait)
{
    const pool_chunk chunk = self->store.chunks[number];
    if (!chunk.units || chunk.held || chunk.in_hand)
        return STRATA_SUCCESS;
    if (chunk.address) {
        const uint32_t slot = take_range_of(self, &chunk, may_wait);
        strata_status status = slot ? pool_take_out(self, number, slot) : STRATA_SUCCESS;
        if (!slot || status != STRATA_SUCCESS)
            return status;
    }
    const CUresult result = pool_chunk_store_drop(&self->store, number);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemRelease", "giving memory of a pool back");
    atomic_fetch_add_explicit(&self->counts.released, pool_chunk_bytes(&chunk), memory_order_relaxed);
    return STRATA_SUCCESS;
}

/* Until at most `keep` bytes are reserved; with `at_least`, as long as they stay. */
typedef struct release_terms {
    uint64_t keep;
    bool at_least;
    bool may_wait; /* for pending memory; oom_lock is held */
} release_terms;

static bool may_release(const pool *self, const release_terms *how, uint32_t number)
{
    const uint64_t bytes = pool_chunk_bytes(&self->store.chunks[number]), reserved = self->store.reserved;
    return how->at_least ? reserved - bytes >= how->keep : reserved > how->keep;
}

/* A stream that a capture bars cannot be waited for: its memory stays. */
static strata_status give_back(pool *self, const release_terms *how, uint64_t *bytes)
{
    strata_status status = STRATA_SUCCESS;
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    const uint64_t before = self->store.reserved;
    if (before > how->keep && self->takes_finished)
        pool_poll(self);
    strata_error_suppress_begin();
    for (uint32_t number = self->store.chunk_count;
         status == STRATA_SUCCESS && number-- > 1 && self->store.reserved > how->keep;) {
        if (may_release(self, how, number))
            status = pool_give_back_chunk(self, number, how->may_wait);
        status = status == STRATA_ERROR_STREAM_CAPTURE ? STRATA_SUCCESS : status;
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    pool_lower_peak(self);
    pool_record_reserved(self);
    *bytes = before > self->store.reserved ? before - self->store.reserved : 0;
    strata_lock_release(&self->map_lock);
    return status;
}

strata_status pool_trim(pool *self, uint64_t keep, uint64_t *bytes)
{
    if (!self->store.source->remappable)
        return pool_trim_fixed(self, keep, bytes);
    *bytes = 0;
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&self->oom_lock);
    status = give_back(self, &(release_terms){.keep = keep, .may_wait = true}, bytes);
    strata_lock_release(&self->oom_lock);
    strata_scope_leave(&scope);
    return status;
}

strata_status pool_release(pool *self)
{
    const uint64_t keep = pool_kept_bytes(self);
    if (!atomic_load_explicit(&self->threshold, memory_order_relaxed) ||
        atomic_load_explicit(&self->reserved, memory_order_relaxed) <= keep)
        return STRATA_SUCCESS;
    if (!self->store.source->remappable)
        return pool_release_fixed(self, keep);
    uint64_t bytes;
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    status = give_back(self, &(release_terms){.keep = keep, .at_least = true}, &bytes);
    strata_scope_leave(&scope);
    return status;
}
