/* Decay: chunks that were free throughout a window of time are returned after it, a few with each call that comes.
 *
 * Threads that take memory from the heap mark its addresses (resources/chunks/use_marks.h); the thread that ends a
 * window marks those of chunks in use. Calls that go to the heap read the clock: one ends the window, later ones return
 * a few chunks each, unless another thread has map_lock. Remappable ones go without a wait for the device. Fixed ones
 * go the way of their source, outside of the lock, and cuMemFree waits for the device: the call that comes bears that,
 * as a pool has no thread of its own. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/timestamp.h"
#include "resources/chunks/use_marks.h"
#include "resources/pool/policy.h"
#include "resources/pool/thread_cache.h"

enum {
    STEP_CHUNKS = 4, /* returned by one call, in at most half a millisecond: an unmap and a release of 128 MiB take
                        125 us (docs/measurements.md) */
};

/* ---- marks ---- */

static pool_use_marks *marks_of(const pool *self)
{
    return atomic_load_explicit(&self->decay.marks, memory_order_acquire);
}

void pool_decay_record_range(pool *self, CUdeviceptr address, uint64_t bytes)
{
    pool_use_marks *marks = marks_of(self);
    if (marks)
        pool_mark_use(marks, pool_marks_place(&self->store, address), bytes);
}

/* Whether a chunk was free since the last window began; marks a chunk in use. map_lock is held. */
static bool is_unused(pool *self, pool_use_marks *marks, uint32_t number)
{
    const pool_chunk *chunk = &self->store.chunks[number];
    const uint64_t bytes = pool_chunk_bytes(chunk);
    if (!bytes || chunk->former || chunk->held || chunk->in_hand || chunk->leaving)
        return false;
    if (!chunk->address || chunk->useless)
        return true;
    const CUdeviceptr place = pool_marks_place(&self->store, chunk->address);
    strata_spin_take(&self->lock);
    const pool_work work = pool_work_on_chunk(self, chunk);
    strata_spin_release(&self->lock);
    if (work == POOL_IN_USE)
        pool_mark_units(marks, place, bytes);
    return work == POOL_OVER && !pool_is_marked(marks, place, bytes);
}

/* ---- steps ---- */

static void end_window(pool *self)
{
    pool_decay *decay = &self->decay;
    pool_use_marks *marks = marks_of(self);
    pool_thread_caches_flush(self);
    if (self->takes_finished)
        pool_poll(self, POOL_TIMELINE_NONE);
    pool_unmap_formers(self);
    pool_marks_next_window(marks);
    for (uint32_t number = 1; number < self->store.chunk_count; number++)
        is_unused(self, marks, number);
    pool_policy_end_window(self);
    decay->next = self->store.chunk_count;
    atomic_store_explicit(&decay->pending, decay->next > 1, memory_order_relaxed);
}

/* The next due chunk, highest numbers first: usually the youngest. 0: none. map_lock is held. */
static uint32_t next_due(pool *self)
{
    pool_decay *decay = &self->decay;
    const uint64_t keep = pool_kept_bytes(self);
    while (decay->next > 1) {
        const uint32_t number = --decay->next;
        if (self->store.reserved - pool_chunk_bytes(&self->store.chunks[number]) >= keep &&
            is_unused(self, marks_of(self), number))
            return number;
    }
    atomic_store_explicit(&decay->pending, false, memory_order_relaxed);
    return 0;
}

/* Returns a due chunk. Other threads may have returned memory since, so the floor counts again. A pending chunk, and
 * any while map_lock is taken, stays for another window. */
static strata_status give_back(pool *self, uint32_t number)
{
    const uint64_t before = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    const pool_release_terms how = {.least = pool_kept_bytes(self), .hurried = true};
    const strata_status status = self->kind->give_back_chunk(self, &how, number);
    const uint64_t after = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->counts.decayed, before > after ? before - after : 0, memory_order_relaxed);
    return status;
}

static uint64_t end_of(uint64_t now, uint64_t window)
{
    return window < UINT64_MAX - now ? now + window : UINT64_MAX;
}

static bool is_due(const pool *self, uint64_t now)
{
    const pool_decay *decay = &self->decay;
    return atomic_load_explicit(&decay->window, memory_order_relaxed) &&
           (now >= atomic_load_explicit(&decay->due, memory_order_relaxed) ||
            (atomic_load_explicit(&decay->pending, memory_order_relaxed) &&
             atomic_load_explicit(&self->reserved, memory_order_relaxed) > pool_kept_bytes(self)));
}

static void begin_window(pool *self, uint64_t now)
{
    const uint64_t window = atomic_load_explicit(&self->decay.window, memory_order_relaxed);
    atomic_store_explicit(&self->decay.due, end_of(now, window), memory_order_relaxed);
    atomic_store_explicit(&self->decay.pending, false, memory_order_relaxed);
}

/* Ends the window if it is over. Returns a due chunk; 0: none. map_lock is held. */
static uint32_t look(pool *self, uint64_t now)
{
    if (!atomic_load_explicit(&self->decay.window, memory_order_relaxed))
        return 0;
    if (now >= atomic_load_explicit(&self->decay.due, memory_order_relaxed)) {
        begin_window(self, now);
        end_window(self);
    }
    return next_due(self);
}

strata_status pool_decay_step(pool *self, unsigned most)
{
    const uint64_t now = strata_timestamp_coarse();
    strata_call_scope scope;
    if (!is_due(self, now))
        return STRATA_SUCCESS;
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS) {
        begin_window(self, now); /* the next try is a window later */
        return status;
    }
    for (; most && status == STRATA_SUCCESS && is_due(self, now) && strata_lock_try(&self->map_lock); most--) {
        const uint32_t number = look(self, now);
        strata_lock_release(&self->map_lock);
        if (number)
            status = give_back(self, number);
    }
    strata_call_scope_leave(&scope);
    return status;
}

void pool_decay_try_step(pool *self)
{
    if (!atomic_load_explicit(&self->started, memory_order_acquire) || !is_due(self, strata_timestamp_coarse()))
        return;
    strata_error_suppress_begin();
    pool_decay_step(self, STEP_CHUNKS);
    strata_error_suppress_end(false);
}

/* ---- the window ---- */

/* Begins a first window, in which all counts as used. */
strata_status pool_decay_set(pool *self, uint64_t nanoseconds)
{
    pool_decay *decay = &self->decay;
    if (nanoseconds && self->deterministic)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "pool: decay depends on the clock and cannot be combined with deterministic");
    strata_lock_take(&self->map_lock);
    pool_use_marks *marks = marks_of(self);
    const bool short_of_memory = nanoseconds && !marks && !(marks = strata_host_zalloc(sizeof *marks));
    if (!short_of_memory) {
        if (marks)
            pool_mark_all(marks);
        atomic_store_explicit(&decay->marks, marks, memory_order_release);
        atomic_store_explicit(&decay->due, end_of(strata_timestamp_coarse(), nanoseconds), memory_order_relaxed);
        atomic_store_explicit(&decay->pending, false, memory_order_relaxed);
        atomic_store_explicit(&decay->window, nanoseconds, memory_order_relaxed);
    }
    strata_lock_release(&self->map_lock);
    return short_of_memory ? strata_fail_host_memory("a pool's decay") : STRATA_SUCCESS;
}
