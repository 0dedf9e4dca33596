/* Returns memory at a trim, and at a full reap with a release threshold. Only wholly free chunks without holds go,
 * highest numbers first: usually the youngest. */
#include "core/base/error.h"
#include "resources/pool/policy.h"
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

/* If wholly free, or unmapped, and without holds; a pending one only with `may_wait` and oom_lock. map_lock is held.
 * Errors: as pool_take_out. */
static strata_status give_back_chunk(pool *self, uint32_t number, bool may_wait)
{
    const pool_chunk chunk = self->store.chunks[number];
    if (!chunk.units || chunk.held || chunk.in_hand)
        return STRATA_SUCCESS;
    if (chunk.address && !chunk.useless) {
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

/* A stream that a capture bars cannot be waited for: its memory stays. map_lock is held. */
static strata_status give_back_chunks(pool *self, const pool_release_terms *how, bool may_wait)
{
    strata_status status = STRATA_SUCCESS;
    for (uint32_t number = self->store.chunk_count;
         status == STRATA_SUCCESS && number-- > 1 && self->store.reserved > how->keep;) {
        if (pool_may_release(how, self->store.reserved, pool_chunk_bytes(&self->store.chunks[number])))
            status = give_back_chunk(self, number, may_wait);
        status = status == STRATA_ERROR_STREAM_CAPTURE ? STRATA_SUCCESS : status;
    }
    return status;
}

/* What is complete first. */
static strata_status give_back_locked(pool *self, const pool_release_terms *how, uint64_t *bytes)
{
    strata_status status = STRATA_SUCCESS;
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    const uint64_t before = self->store.reserved;
    if (before > how->keep && self->takes_finished)
        pool_poll(self);
    strata_error_suppress_begin();
    status = give_back_chunks(self, how, false);
    pool_record_reserved(self);
    if (status == STRATA_SUCCESS && how->may_wait)
        status = give_back_chunks(self, how, true);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    pool_lower_peak(self);
    pool_record_reserved(self);
    *bytes = before > self->store.reserved ? before - self->store.reserved : 0;
    strata_lock_release(&self->map_lock);
    return status;
}

static strata_status give_back(pool *self, const pool_release_terms *how, uint64_t *bytes)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    if (how->may_wait)
        strata_lock_take(&self->oom_lock);
    status = give_back_locked(self, how, bytes);
    if (how->may_wait)
        strata_lock_release(&self->oom_lock);
    strata_call_scope_leave(&scope);
    return status;
}

/* For decay. Other threads may have returned memory since the chunk was listed, so the floor counts again. While
 * map_lock is taken nothing is returned: the next window lists the chunk anew. */
static strata_status give_back_one(pool *self, uint32_t number)
{
    strata_status status = STRATA_SUCCESS;
    if (!strata_lock_try(&self->map_lock))
        return status;
    if (self->store.reserved - pool_chunk_bytes(&self->store.chunks[number]) >= pool_kept_bytes(self))
        status = give_back_chunk(self, number, false);
    pool_record_reserved(self);
    strata_lock_release(&self->map_lock);
    return status;
}

const pool_kind pool_kind_moving = {.give_back = give_back, .give_back_chunk = give_back_one};

/* ---- for any source ---- */

strata_status pool_trim(pool *self, uint64_t keep, uint64_t *bytes)
{
    *bytes = 0;
    return self->kind->give_back(self, &(pool_release_terms){.keep = keep, .may_wait = true}, bytes);
}

/* Whole chunks, above the initial size. A deterministic pool knows no other stack. */
uint64_t pool_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    pool *self = (pool *)resource;
    const uint64_t reserved = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    const uint64_t wanted = reserved > bytes ? reserved - bytes : 0;
    const uint64_t keep = wanted > self->initial_bytes ? wanted : self->initial_bytes;
    uint64_t given = 0;
    if (reserved > keep && !self->deterministic)
        self->kind->give_back(
            self, &(pool_release_terms){.keep = keep, .least = self->initial_bytes, .may_wait = may_wait}, &given);
    return given;
}

strata_status pool_release(pool *self)
{
    const uint64_t keep = pool_kept_bytes(self);
    uint64_t bytes = 0;
    if (!atomic_load_explicit(&self->threshold, memory_order_relaxed) ||
        atomic_load_explicit(&self->reserved, memory_order_relaxed) <= keep)
        return STRATA_SUCCESS;
    return self->kind->give_back(self, &(pool_release_terms){.keep = keep, .least = keep}, &bytes);
}
