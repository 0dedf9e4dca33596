/* How extents enter and leave stream caches, magazines and the depot. */
#include "resources/pool/thread_cache.h"

#include "core/base/host_memory.h"
#include "resources/pool/policy.h"

/* Eight numbers from `first` on, `step` apart, each several times. */
#define ONCE(x)     x
#define TIMES_2(x)  x, x
#define TIMES_4(x)  TIMES_2(x), TIMES_2(x)
#define TIMES_8(x)  TIMES_4(x), TIMES_4(x)
#define TIMES_16(x) TIMES_8(x), TIMES_8(x)
#define EIGHT(times, first, step)                                                                    \
    times(first), times((first) + (step)), times((first) + 2 * (step)), times((first) + 3 * (step)), \
        times((first) + 4 * (step)), times((first) + 5 * (step)), times((first) + 6 * (step)),       \
        times((first) + 7 * (step))

#define BINS(times, first) EIGHT(times, (first) * sizeof(pool_bin), sizeof(pool_bin))

const uint16_t pool_class_bins[POOL_CLASSED] = {BINS(ONCE, 0),     BINS(ONCE, 8),     BINS(TIMES_2, 16),
                                                BINS(TIMES_4, 24), BINS(TIMES_8, 32), BINS(TIMES_16, 40)};

const uint16_t pool_class_granules[POOL_CLASSED] = {EIGHT(ONCE, 1, 1),     EIGHT(ONCE, 9, 1),
                                                    EIGHT(TIMES_2, 18, 2), EIGHT(TIMES_4, 36, 4),
                                                    EIGHT(TIMES_8, 72, 8), EIGHT(TIMES_16, 144, 16)};

/* Frees extents that `chain` links. `lock` is held. */
static void give_list(pool *self, uint32_t slot)
{
    while (slot) {
        const uint32_t next = pool_extent_at(&self->heap, slot)->chain;
        pool_heap_give(&self->heap, slot, POOL_FREE);
        slot = next;
    }
}

/* Frees a bin's extents. False: there were none. `lock` is held. */
static bool give_bin(pool *self, pool_bin *bin)
{
    const bool any = bin->last != NULL;
    for (strata_entry *entry = bin->last; entry;) {
        const pool_extent *extent = pool_extent_in(&self->heap, entry);
        entry = extent->below;
        pool_heap_give(&self->heap, extent->chain, POOL_FREE);
    }
    bin->last = NULL;
    return any;
}

static bool give_large(pool *self, pool_stream_cache *cache)
{
    const uint32_t slot = cache->large;
    cache->large = 0;
    if (slot)
        pool_heap_give(&self->heap, slot, POOL_FREE);
    return slot != 0;
}

/* Frees all that a stream cache has. False: nothing. `lock` is held; the cache is the caller's. */
static bool give_all(pool *self, pool_stream_cache *cache)
{
    bool any = give_large(self, cache);
    for (size_t i = 0; i < POOL_BINS && cache->granules; i++)
        any |= give_bin(self, &cache->bins[i]);
    cache->granules = 0;
    return any;
}

/* Makes room for so many granules: empties bins in turn until a quarter of the cache is free too. Giving all would lose
 * what the next requests need. `lock` is held; the cache is the caller's. */
static void make_room(pool *self, pool_stream_cache *cache, uint64_t granules)
{
    const uint64_t most = self->cache_granules - self->cache_granules / 4;
    if (cache->granules + granules <= self->cache_granules)
        return;
    give_large(self, cache);
    for (unsigned i = 0; i < POOL_BINS && cache->granules && cache->granules + granules > most; i++) {
        pool_bin *bin = &cache->bins[cache->next_given++ % POOL_BINS];
        for (strata_entry *each = bin->last; each; each = pool_extent_in(&self->heap, each)->below)
            cache->granules -= bin->granules;
        give_bin(self, bin);
    }
}

/* Counts the thread, before it keeps anything. The cache is the caller's. */
static void begin_to_keep(pool *self, pool_thread_cache *local)
{
    if (!local->keeps)
        atomic_fetch_add_explicit(&self->keeping_threads, 1, memory_order_relaxed);
    local->keeps = true;
}

/* Returns the stream's cache: made, or taken from another stream and emptied. NULL without host memory. The cache is
 * the caller's; takes lock. */
static pool_stream_cache *claim_cache(pool *self, pool_thread_cache *local, strata_timeline *timeline)
{
    pool_stream_cache **slot = &local->caches[timeline->number % POOL_STREAM_CACHES], *cache = *slot;
    if (cache && cache->timeline == timeline)
        return cache;
    if (cache) {
        strata_spin_take(&self->lock);
        give_all(self, cache);
        strata_spin_release(&self->lock);
        strata_timeline_unhold(cache->timeline, cache->live_blocks);
        cache->live_blocks = 0;
    } else if (!(cache = strata_host_zalloc(sizeof *cache))) {
        return NULL;
    }
    begin_to_keep(self, local);
    strata_timeline_hold(timeline);
    cache->timeline = timeline;
    cache->origin = strata_entry_origin(0, timeline->number, strata_thread_current->index);
    cache->written = strata_point_make(timeline->number, 0) | STRATA_POINT_WRITE;
    *slot = cache;
    return cache;
}

void pool_stream_cache_open(pool *self, pool_thread_cache *local, strata_timeline *timeline)
{
    if (local->caches[timeline->number % POOL_STREAM_CACHES] || !pool_thread_cache_enter(self, local))
        return;
    claim_cache(self, local, timeline);
    pool_thread_cache_leave(local);
}

/* Gives the bin of a size to that size: another one's extents are freed. `lock` is held. */
static void bin_for(pool *self, pool_stream_cache *cache, uint32_t granules)
{
    pool_bin *bin = pool_bin_of(cache, granules);
    if (bin->granules == granules)
        return;
    for (strata_entry *each = bin->last; each; each = pool_extent_in(&self->heap, each)->below)
        cache->granules -= bin->granules;
    give_bin(self, bin);
    *bin = (pool_bin){.granules = granules};
}

/* Puts an extent into its bin, making room. False: too large. `lock` is held. */
static bool keep_in_bin(pool *self, pool_stream_cache *cache, uint32_t slot, uint64_t bytes)
{
    const uint32_t granules = pool_granules(bytes);
    if (!granules || granules > self->cache_granules / 2)
        return false;
    make_room(self, cache, granules);
    bin_for(self, cache, granules);
    return pool_bin_put(self, cache, pool_entry(&self->heap, slot), slot, granules);
}

/* Takes the cache's large extent; NULL unless it has exactly this size. */
static strata_entry *take_large(const pool *self, pool_stream_cache *cache, uint64_t granules, uint32_t *slot)
{
    strata_entry *large = cache->large ? pool_entry(&self->heap, cache->large) : NULL;
    if (!large || pool_bytes_of(large) != granules * POOL_GRANULE)
        return NULL;
    *slot = cache->large;
    cache->large = 0;
    return large;
}

strata_entry *pool_stream_cache_take(pool *self, pool_thread_cache *local, pool_stream_cache *cache, uint64_t granules,
                                     uint32_t *slot)
{
    if (!pool_thread_cache_enter(self, local))
        return NULL;
    pool_bin *bin = pool_bin_for(cache, granules * POOL_GRANULE);
    strata_entry *entry = bin ? pool_bin_pop(&self->heap, cache, bin, slot) : take_large(self, cache, granules, slot);
    pool_thread_cache_leave(local);
    return entry;
}

/* What a thread keeps is hidden from other threads of the stream, which take other memory instead: a large part of all
 * is left to them. Holders are threads of any pool, ended ones too. `lock` is held. */
static bool keep_large(pool *self, pool_stream_cache *cache, uint32_t slot, uint64_t bytes)
{
    if (bytes > atomic_load_explicit(&self->reserved, memory_order_relaxed) / POOL_KEPT_SHARE &&
        atomic_load_explicit(&cache->timeline->holders, memory_order_relaxed) > 1)
        return false;
    give_large(self, cache);
    cache->large = slot;
    return true;
}

void pool_stream_cache_keep_slow(pool *self, pool_thread_cache *local, strata_timeline *timeline, CUstream handle,
                                 uint32_t slot)
{
    const uint64_t bytes = pool_bytes_of(pool_entry(&self->heap, slot));
    const bool entered = pool_thread_cache_enter(self, local);
    pool_stream_cache *cache = entered ? claim_cache(self, local, timeline) : NULL;
    if (cache)
        *pool_stream_cache_slot(local, handle) = cache;
    strata_spin_take(&self->lock);
    if (!cache || (!keep_in_bin(self, cache, slot, bytes) && !keep_large(self, cache, slot, bytes)))
        pool_heap_give(&self->heap, slot, POOL_FREE);
    strata_spin_release(&self->lock);
    if (entered)
        pool_thread_cache_leave(local);
}

/* ---- magazines ---- */

/* Empties a magazine into the depot: `left` of its first extent links to the next magazine. `lock` is held. */
static void pass_to_depot(pool *self, pool_magazine *magazine)
{
    if (!magazine->first)
        return;
    pool_extent *first = pool_extent_at(&self->heap, magazine->first);
    _Atomic uint32_t *bucket = &self->depot[magazine->granules % POOL_DEPOT];
    first->links.left = atomic_load_explicit(bucket, memory_order_relaxed);
    atomic_store_explicit(bucket, magazine->first, memory_order_relaxed);
    *magazine = (pool_magazine){0};
}

void pool_magazine_keep_slow(pool *self, pool_thread_cache *local, const strata_timeline *timeline, uint32_t slot)
{
    strata_entry *entry = pool_entry(&self->heap, slot);
    const uint64_t bytes = pool_bytes_of(entry);
    const uint32_t granules = pool_granules(bytes);
    const bool entered = pool_thread_cache_enter(self, local);
    const bool small = granules && (uint64_t)granules * POOL_MAGAZINE_SIZE <= self->cache_granules;
    strata_spin_take(&self->lock);
    if (entered && small) {
        begin_to_keep(self, local);
        pool_magazine *magazine = &local->magazines[granules % POOL_MAGAZINES];
        pass_to_depot(self, magazine);
        const strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
        *magazine = (pool_magazine){granules, slot, 1, strata_point_timeline(write), timeline->number, {entry}};
        pool_extent_in(&self->heap, entry)->chain = 0;
        pool_extent_in(&self->heap, entry)->below = NULL;
    } else {
        pool_heap_give(&self->heap, slot, POOL_FREE);
    }
    strata_spin_release(&self->lock);
    if (entered)
        pool_thread_cache_leave(local);
}

/* Takes a magazine of this size out of the depot, if it is among the first of its bucket. Returns its first extent; 0:
 * none. `lock` is held. */
static uint32_t take_magazine(pool *self, uint32_t granules)
{
    _Atomic uint32_t *bucket = &self->depot[granules % POOL_DEPOT];
    uint32_t found = *bucket, before = 0;
    for (unsigned searched = 0; found; searched++) {
        if (pool_granules(pool_bytes_of(pool_entry(&self->heap, found))) == granules)
            break;
        before = found;
        found = searched < POOL_SEARCHED ? pool_extent_at(&self->heap, found)->links.left : 0;
    }
    if (found && before)
        pool_extent_at(&self->heap, before)->links.left = pool_extent_at(&self->heap, found)->links.left;
    else if (found)
        atomic_store_explicit(bucket, pool_extent_at(&self->heap, found)->links.left, memory_order_relaxed);
    return found;
}

uint32_t pool_depot_take(pool *self, pool_thread_cache *local, uint32_t granules)
{
    if (!granules || !atomic_load_explicit(&self->depot[granules % POOL_DEPOT], memory_order_relaxed))
        return 0;
    if (local && !pool_thread_cache_enter(self, local)) /* the depot is being emptied too */
        return 0;
    strata_spin_take(&self->lock);
    const uint32_t found = take_magazine(self, granules);
    const uint32_t rest = found ? pool_extent_at(&self->heap, found)->chain : 0;
    if (local && rest) {
        begin_to_keep(self, local);
        local->rest = rest;
    } else {
        give_list(self, rest);
    }
    strata_spin_release(&self->lock);
    if (local)
        pool_thread_cache_leave(local);
    return found;
}

/* Replaces points of extents that the stream has waited for. Returns their bytes. The thread that filled the magazine
 * wrote its entries last, and each links only to the next: prefetches several. */
static uint64_t replace_points(pool *self, const strata_timeline *timeline, uint32_t first)
{
    const strata_point now = strata_timeline_now(timeline) | STRATA_POINT_WRITE;
    uint64_t bytes = 0;
    for (uint32_t slot = first; slot; slot = pool_extent_at(&self->heap, slot)->chain) {
        strata_entry *entry = pool_entry(&self->heap, slot);
        const strata_entry *ahead = pool_extent_in(&self->heap, entry)->below;
        __builtin_prefetch(ahead, 1);
        __builtin_prefetch(ahead + 1, 1);
        pool_points_clear(entry);
        atomic_store_explicit(&entry->last_write, now, memory_order_relaxed);
        bytes += pool_bytes_of(entry);
    }
    return bytes;
}

/* Caches linked extents for a stream; frees those without room, and all without a timeline. The cache is the caller's.
 */
static void fill(pool *self, pool_thread_cache *local, strata_timeline *timeline, uint32_t first)
{
    const uint64_t bytes = timeline ? replace_points(self, timeline, first) : 0;
    const uint32_t granules = pool_granules(pool_bytes_of(pool_entry(&self->heap, first)));
    pool_stream_cache *cache = timeline ? claim_cache(self, local, timeline) : NULL;
    strata_spin_take(&self->lock);
    if (cache) {
        make_room(self, cache, bytes / POOL_GRANULE);
        bin_for(self, cache, granules);
        for (uint32_t slot = first, next; slot; slot = next) {
            next = pool_extent_at(&self->heap, slot)->chain;
            if (!pool_bin_put(self, cache, pool_entry(&self->heap, slot), slot, granules))
                pool_heap_give(&self->heap, slot, POOL_FREE);
        }
    } else {
        give_list(self, first);
    }
    strata_spin_release(&self->lock);
}

void pool_stream_cache_fill(pool *self, pool_thread_cache *local, strata_timeline *timeline)
{
    if (!pool_thread_cache_enter(self, local)) /* the flushing thread takes `rest` */
        return;
    const uint32_t rest = local->rest;
    local->rest = 0;
    if (rest)
        fill(self, local, timeline, rest);
    pool_thread_cache_leave(local);
}

/* Frees all magazines of the depot. `lock` is held. */
static void give_depot(pool *self)
{
    for (size_t i = 0; i < POOL_DEPOT; i++) {
        for (uint32_t first; (first = atomic_load_explicit(&self->depot[i], memory_order_relaxed));) {
            atomic_store_explicit(&self->depot[i], pool_extent_at(&self->heap, first)->links.left,
                                  memory_order_relaxed);
            give_list(self, first);
        }
    }
}

/* ---- emptying ---- */

bool pool_stream_cache_give(pool *self, pool_thread_cache *local, const strata_timeline *timeline)
{
    if (!local || !pool_thread_cache_enter(self, local))
        return false;
    pool_stream_cache *cache = pool_stream_cache_of(local, timeline);
    bool any = cache && (cache->large || cache->granules);
    if (any) {
        strata_spin_take(&self->lock);
        any = give_all(self, cache);
        strata_spin_release(&self->lock);
    }
    pool_thread_cache_leave(local);
    return any;
}

void pool_stream_cache_give_large(pool *self, pool_thread_cache *local, const strata_timeline *timeline)
{
    if (!local || !pool_thread_cache_enter(self, local))
        return;
    pool_stream_cache *cache = pool_stream_cache_of(local, timeline);
    if (cache)
        give_large(self, cache);
    pool_thread_cache_leave(local);
}

/* Frees all that a thread caches. The cache is the caller's. */
static void give_thread(pool *self, pool_thread_cache *local)
{
    strata_spin_take(&self->lock);
    for (size_t i = 0; i < POOL_STREAM_CACHES; i++)
        if (local->caches[i])
            give_all(self, local->caches[i]);
    for (size_t i = 0; i < POOL_MAGAZINES; i++) {
        give_list(self, local->magazines[i].first);
        local->magazines[i] = (pool_magazine){0};
    }
    give_list(self, local->rest);
    local->rest = 0;
    strata_spin_release(&self->lock);
}

/* Frees what every thread caches. Excludes the threads meanwhile, at the price of a heavy barrier. */
static void give_all_threads(pool *self)
{
    strata_busy_gate_close(&self->flushing);
    pool_thread_cache *local;
    for (uint32_t position = 0; (local = strata_per_thread_next(&self->thread_caches, &position));) {
        strata_busy_await(&local->busy);
        if (local->keeps)
            give_thread(self, local);
    }
    strata_busy_gate_open(&self->flushing);
}

/* The caller is not busy with its cache. A thread that begins to keep meanwhile does so after the flush. */
void pool_thread_caches_flush(pool *self)
{
    pool_thread_cache *own = pool_thread_cache_if_present(self);
    const bool own_keeps = own && own->keeps;
    if (own_keeps)
        give_thread(self, own);
    if (atomic_load_explicit(&self->keeping_threads, memory_order_relaxed) > own_keeps)
        give_all_threads(self);
    strata_spin_take(&self->lock);
    give_depot(self);
    strata_spin_release(&self->lock);
    atomic_fetch_add_explicit(&self->counts.flushes, 1, memory_order_relaxed);
}

void pool_thread_caches_destroy(pool *self)
{
    pool_thread_cache *local;
    for (uint32_t position = 0; (local = strata_per_thread_next(&self->thread_caches, &position));)
        for (size_t i = 0; i < POOL_STREAM_CACHES; i++) {
            if (local->caches[i])
                strata_timeline_unhold(local->caches[i]->timeline, local->caches[i]->live_blocks);
            strata_host_free(local->caches[i]);
        }
    strata_per_thread_destroy(&self->thread_caches);
}
