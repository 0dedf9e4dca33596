/* Returns memory at a trim, and at a full reap with a release threshold. Only wholly free chunks without holds go,
 * highest numbers first: usually the youngest. */
#include "core/base/error.h"
#include "resources/pool/policy.h"
#include "resources/pool/thread_cache.h"

static bool is_free_behind_formers(pool *self, const pool_chunk *chunk)
{
    if (!chunk->units || !chunk->former || !chunk->address || chunk->held)
        return false;
    strata_spin_take(&self->lock);
    const pool_work work = pool_work_on_chunk(self, chunk);
    strata_spin_release(&self->lock);
    return work != POOL_IN_USE;
}

/* Returns a chunk that is wholly free, or unmapped, and has no holds; a pending one only with `may_wait` and oom_lock.
 * map_lock is held. Errors: as pool_take_out. */
static strata_status give_back_free(pool *self, uint32_t number, bool may_wait)
{
    if (may_wait && is_free_behind_formers(self, &self->store.chunks[number])) {
        const strata_status status = pool_wait_for_formers(self, number);
        if (status != STRATA_SUCCESS)
            return status;
    }
    const pool_chunk chunk = self->store.chunks[number];
    if (!chunk.units || chunk.former || chunk.held || chunk.in_hand)
        return STRATA_SUCCESS;
    if (chunk.address && !chunk.useless) {
        const uint32_t slot = pool_take_free_chunk(self, &chunk, may_wait, POOL_TAKEN);
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

static strata_status give_back_chunk(pool *self, const pool_release_terms *how, uint32_t number)
{
    strata_status status = STRATA_SUCCESS;
    if (!how->hurried)
        strata_lock_take(&self->map_lock);
    else if (!strata_lock_try(&self->map_lock))
        return status;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    if (pool_chunk_store_spares(&self->store, number, how->keep, how->least)) {
        const uint64_t bytes = pool_chunk_store_begin_return(&self->store, number); /* a wait drops map_lock */
        status = give_back_free(self, number, how->may_wait);
        self->store.leaving -= bytes;
    }
    pool_record_reserved(self);
    strata_lock_release(&self->map_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

static strata_status give_back(pool *self, const pool_release_terms *how, uint64_t *bytes)
{
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    if (how->may_wait)
        strata_lock_take(&self->oom_lock);
    status = pool_give_back_chunks(self, how, bytes);
    if (how->may_wait)
        strata_lock_release(&self->oom_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    strata_call_scope_leave(&scope);
    return status;
}

const pool_kind pool_kind_moving = {.give_back = give_back, .give_back_chunk = give_back_chunk};

/* ---- for any source ---- */

uint32_t pool_end_of_chunks(pool *self)
{
    strata_lock_take(&self->map_lock);
    const uint32_t end = self->store.chunk_count;
    strata_lock_release(&self->map_lock);
    return end;
}

/* Returns chunks by the terms, highest numbers first. A stream that a capture bars cannot be waited for: its memory
 * stays. */
static strata_status give_back_those(pool *self, const pool_release_terms *how)
{
    strata_status status = STRATA_SUCCESS;
    uint32_t number = pool_end_of_chunks(self);
    while (status == STRATA_SUCCESS && number-- > 1 &&
           atomic_load_explicit(&self->reserved, memory_order_relaxed) > how->keep) {
        status = self->kind->give_back_chunk(self, how, number);
        status = status == STRATA_ERROR_STREAM_CAPTURE ? STRATA_SUCCESS : status;
    }
    return status;
}

strata_status pool_give_back_chunks(pool *self, const pool_release_terms *how, uint64_t *bytes)
{
    pool_release_terms complete = *how;
    complete.may_wait = false;
    const uint64_t before = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    if (before > how->keep && self->takes_finished)
        pool_poll(self, POOL_TIMELINE_NONE);
    pool_unmap_formers(self);
    strata_lock_release(&self->map_lock);
    strata_error_suppress_begin();
    strata_status status = give_back_those(self, &complete);
    if (status == STRATA_SUCCESS && how->may_wait)
        status = give_back_those(self, how);
    if (status == STRATA_SUCCESS && self->store.source->drain)
        status = self->store.source->drain(&self->store);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    strata_lock_take(&self->map_lock);
    pool_lower_peak(self);
    strata_lock_release(&self->map_lock);
    const uint64_t after = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    *bytes = before > after ? before - after : 0;
    return status;
}

/* Returns the memory of a device that was reset. Once none is left, makes no call: each later reset asks again.
 *
 * With the context all blocks are gone; mapped memory is not: tests/answers/h200.txt, "primary_reset.". */
static uint64_t abandon(pool *self)
{
    strata_call_scope scope;
    strata_lock_take(&self->map_lock);
    const bool over = self->store.given_up || !self->store.source->remappable;
    strata_lock_release(&self->map_lock);
    if (over || strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
                    STRATA_SUCCESS)
        return 0;
    strata_lock_take(&self->map_lock);
    const uint64_t before = self->store.reserved;
    pool_chunk_store_abandon(&self->store);
    const uint64_t given = before - self->store.reserved;
    pool_record_reserved(self);
    strata_lock_release(&self->map_lock);
    strata_call_scope_leave(&scope);
    return given;
}

/* Returns whole chunks; the initial size stays. A deterministic pool gives other stacks nothing. */
uint64_t pool_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    pool *self = (pool *)resource;
    if (strata_device_is_lost(self->device))
        return abandon(self);
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
