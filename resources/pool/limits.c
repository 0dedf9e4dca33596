/* Live and reserved memory, and limits. */
#include "resources/pool/thread_cache.h"

pool_live pool_live_now(const pool *self)
{
    pool_live live = {
        .bytes = atomic_load_explicit(&self->live_bytes_elsewhere, memory_order_relaxed),
        .blocks = atomic_load_explicit(&self->live_blocks_elsewhere, memory_order_relaxed),
    };
    const pool_thread_cache *local;
    for (uint32_t position = 0; (local = strata_per_thread_next(&self->thread_caches, &position));) {
        live.bytes += atomic_load_explicit(&local->live_bytes, memory_order_relaxed);
        live.blocks += atomic_load_explicit(&local->hits, memory_order_relaxed);
        live.blocks += atomic_load_explicit(&local->live_beside_hits, memory_order_relaxed);
    }
    return (pool_live){live.bytes > 0 ? live.bytes : 0, live.blocks > 0 ? live.blocks : 0};
}

void pool_record_reserved(pool *self)
{
    atomic_store_explicit(&self->reserved, self->store.reserved, memory_order_relaxed);
    if (self->store.reserved > atomic_load_explicit(&self->peak_reserved, memory_order_relaxed))
        atomic_store_explicit(&self->peak_reserved, self->store.reserved, memory_order_relaxed);
    if (self->store.reserved > atomic_load_explicit(&self->watermark, memory_order_relaxed))
        atomic_store_explicit(&self->watermark, self->store.reserved, memory_order_relaxed);
}

uint64_t pool_most_reserved(const pool *self)
{
    const uint64_t limit = atomic_load_explicit(&self->limit, memory_order_relaxed);
    return limit ? limit : UINT64_MAX;
}

bool pool_initial_is_too_much(const pool *self, const pool_need *need)
{
    if (!pool_lacks_initial(self, need))
        return false;
    const uint64_t free = strata_device_free_bytes(self->device); /* 0: unknown */
    const uint64_t most = free ? self->store.reserved + free : self->device->info.total_bytes;
    return most < pool_initial_size(self);
}

uint64_t pool_kept_bytes(const pool *self)
{
    uint64_t threshold = atomic_load_explicit(&self->threshold, memory_order_relaxed);
    threshold = threshold > POOL_KEEP_NOTHING ? threshold : 0;
    return threshold > self->initial_bytes ? threshold : self->initial_bytes;
}
