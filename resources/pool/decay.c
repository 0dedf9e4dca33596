/* Decay: unused memory is returned over time.
 *
 * Time is divided into windows. At the end of each, half of the bytes in chunks that were free throughout it are
 * returned: memory that was needed once goes fast at first and slowly in the end; memory needed once a window stays.
 *
 * One bit for every 2 MiB of addresses records use. Threads that take memory from the heap set it; the thread that ends
 * a window sets it for memory in use. The bits cover 128 GiB and wrap around. There are two sets, for this window and
 * the last, since a take may be recorded late.
 *
 * Calls that go to the heap read the clock: one ends the window, later ones return a few chunks each, without a wait
 * for the device or a lock. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/timestamp.h"
#include "resources/pool/thread_cache.h"

enum {
    BIT_BYTES = 2 << 20,
    BIT_WORDS = 1024,
    WORD_BITS = 64,
    STEP_CHUNKS = 16, /* chunks returned by a request or a free: unmaps and releases */
};

typedef struct pool_use_bits {
    _Atomic uint32_t current;             /* set in use; written under map_lock, read by any thread */
    _Atomic uint64_t words[2][BIT_WORDS]; /* set by any thread, relaxed; cleared under map_lock */
} pool_use_bits;

/* ---- bits ---- */

/* Whether a bit of a range was set. */
static bool touch(_Atomic uint64_t *words, CUdeviceptr address, uint64_t bytes, bool set)
{
    bool any = false;
    const uint64_t end = (address + bytes - 1) / BIT_BYTES + 1;
    for (uint64_t bit = address / BIT_BYTES; bit < end;) {
        const uint64_t room = WORD_BITS - bit % WORD_BITS, count = end - bit < room ? end - bit : room;
        const uint64_t mask = (count < WORD_BITS ? (UINT64_C(1) << count) - 1 : UINT64_MAX) << bit % WORD_BITS;
        _Atomic uint64_t *word = &words[bit / WORD_BITS % BIT_WORDS];
        const uint64_t now = atomic_load_explicit(word, memory_order_relaxed);
        any = any || (now & mask);
        if (set && (now & mask) != mask)
            atomic_fetch_or_explicit(word, mask, memory_order_relaxed);
        bit += count;
    }
    return any;
}

static pool_use_bits *bits_of(const pool *self)
{
    return atomic_load_explicit(&self->decay.bits, memory_order_acquire);
}

static uint32_t current_of(const pool_use_bits *bits)
{
    return atomic_load_explicit(&bits->current, memory_order_relaxed);
}

void pool_decay_record_range(pool *self, CUdeviceptr address, uint64_t bytes)
{
    pool_use_bits *bits = bits_of(self);
    if (bits)
        touch(bits->words[current_of(bits)], address, bytes, true);
}

static void set_all(pool_use_bits *bits, uint32_t current, uint64_t value)
{
    for (size_t i = 0; i < BIT_WORDS; i++)
        atomic_store_explicit(&bits->words[current][i], value, memory_order_relaxed);
}

/* Whether a chunk was free since the last window began; records use. map_lock is held. */
static bool is_unused(pool *self, pool_use_bits *bits, uint32_t number)
{
    const pool_chunk *chunk = &self->store.chunks[number];
    bool complete;
    if (!pool_chunk_bytes(chunk) || chunk->held || chunk->in_hand)
        return false;
    if (!chunk->address)
        return true;
    strata_spin_take(&self->lock);
    const bool is_free = pool_chunk_is_free(self, chunk, &complete);
    strata_spin_release(&self->lock);
    if (!is_free)
        touch(bits->words[current_of(bits)], chunk->address, pool_chunk_bytes(chunk), true);
    return is_free && !touch(bits->words[0], chunk->address, pool_chunk_bytes(chunk), false) &&
           !touch(bits->words[1], chunk->address, pool_chunk_bytes(chunk), false);
}

/* ---- steps ---- */

/* Half of the unused bytes become due, for each window. */
static void end_window(pool *self, uint64_t windows)
{
    pool_decay *decay = &self->decay;
    pool_use_bits *bits = bits_of(self);
    const uint32_t current = current_of(bits) ^ 1;
    pool_thread_caches_flush(self);
    if (self->takes_finished)
        pool_poll(self);
    set_all(bits, current, 0);
    atomic_store_explicit(&bits->current, current, memory_order_relaxed);
    uint64_t unused = 0;
    for (uint32_t number = 1; number < self->store.chunk_count; number++)
        unused += is_unused(self, bits, number) ? pool_chunk_bytes(&self->store.chunks[number]) : 0;
    const uint64_t rest = windows < 64 ? unused >> windows : 0;
    atomic_store_explicit(&decay->quota, unused - rest, memory_order_relaxed);
    decay->next = self->store.chunk_count;
}

/* Highest numbers first: usually the youngest. Pending chunks stay for another window. */
static strata_status give_back(pool *self, unsigned most)
{
    pool_decay *decay = &self->decay;
    strata_status status = STRATA_SUCCESS;
    uint64_t quota = atomic_load_explicit(&decay->quota, memory_order_relaxed);
    const uint64_t keep = pool_kept_bytes(self);
    while (quota && most && decay->next > 1 && status == STRATA_SUCCESS) {
        const uint32_t number = --decay->next;
        const uint64_t before = self->store.reserved, bytes = pool_chunk_bytes(&self->store.chunks[number]);
        if (before - bytes < keep || !is_unused(self, bits_of(self), number))
            continue;
        status = pool_give_back_chunk(self, number, false);
        const uint64_t given = before - self->store.reserved;
        atomic_fetch_add_explicit(&self->counts.decayed, given, memory_order_relaxed);
        quota -= given < quota ? given : quota;
        most -= given != 0;
    }
    atomic_store_explicit(&decay->quota, decay->next > 1 ? quota : 0, memory_order_relaxed);
    pool_lower_peak(self);
    pool_record_reserved(self);
    return status;
}

static uint64_t end_of(uint64_t now, uint64_t window)
{
    return window < UINT64_MAX - now ? now + window : UINT64_MAX;
}

/* map_lock is held. */
static strata_status step(pool *self, uint64_t now, unsigned most)
{
    pool_decay *decay = &self->decay;
    const uint64_t window = atomic_load_explicit(&decay->window, memory_order_relaxed);
    const uint64_t due = atomic_load_explicit(&decay->due, memory_order_relaxed);
    if (!window)
        return STRATA_SUCCESS;
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, self->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    if (now >= due) {
        const uint64_t windows = 1 + (now - due) / window;
        atomic_store_explicit(&decay->due, end_of(now, window), memory_order_relaxed);
        end_window(self, windows);
    }
    status = give_back(self, most);
    strata_scope_leave(&scope);
    return status;
}

static bool is_due(const pool *self, uint64_t now)
{
    return atomic_load_explicit(&self->reserved, memory_order_relaxed) > pool_kept_bytes(self) &&
           (now >= atomic_load_explicit(&self->decay.due, memory_order_relaxed) ||
            atomic_load_explicit(&self->decay.quota, memory_order_relaxed) != 0);
}

strata_status pool_decay_step(pool *self, unsigned most)
{
    if (!atomic_load_explicit(&self->decay.window, memory_order_relaxed) ||
        !atomic_load_explicit(&self->started, memory_order_acquire))
        return STRATA_SUCCESS;
    const uint64_t now = strata_timestamp_clock();
    if (!is_due(self, now) || !strata_lock_try(&self->map_lock))
        return STRATA_SUCCESS;
    strata_status status = step(self, now, most);
    strata_lock_release(&self->map_lock);
    return status;
}

void pool_decay_try_step(pool *self)
{
    strata_error_suppress_begin();
    pool_decay_step(self, STEP_CHUNKS);
    strata_error_suppress_end(false);
}

/* ---- the window ---- */

/* In the first window everything counts as used. */
strata_status pool_decay_set(pool *self, uint64_t nanoseconds)
{
    pool_decay *decay = &self->decay;
    if (nanoseconds && self->deterministic)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "pool: decay goes by the clock, so that a deterministic pool can have none");
    if (nanoseconds && self->store.source && !self->store.source->remappable)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "pool: decay needs memory that the pool maps itself");
    strata_status status = STRATA_SUCCESS;
    strata_lock_take(&self->map_lock);
    pool_use_bits *bits = bits_of(self);
    if (nanoseconds && !bits) {
        bits = strata_host_zalloc(sizeof *bits);
        if (!bits)
            status = strata_fail_host_memory("a pool's decay");
    }
    if (status == STRATA_SUCCESS) {
        if (bits)
            set_all(bits, current_of(bits), UINT64_MAX);
        atomic_store_explicit(&decay->bits, bits, memory_order_release);
        atomic_store_explicit(&decay->due, end_of(strata_timestamp_clock(), nanoseconds), memory_order_relaxed);
        atomic_store_explicit(&decay->quota, 0, memory_order_relaxed);
        atomic_store_explicit(&decay->window, nanoseconds, memory_order_relaxed);
    }
    strata_lock_release(&self->map_lock);
    return status;
}

void pool_decay_destroy(pool *self)
{
    strata_host_free(bits_of(self));
}
