/* Usage, values, and a snapshot of all extents while other threads go on. */
#include "core/base/emitter.h"
#include "core/base/size_text.h"
#include "core/stack/stream_frees.h"
#include "resources/pool/operations.h"
#include "resources/pool/thread_cache.h"

size_t pool_look_at_extents(pool *self, CUdeviceptr *from, pool_seen_extent seen[POOL_SEEN_MOST])
{
    strata_spin_take(&self->lock);
    const size_t count = pool_heap_look(&self->heap, from, seen);
    strata_spin_release(&self->lock);
    return count;
}

/* Reads every extent, for those that threads cache: taken, without a block. */
static size_t largest_free(pool *self, size_t free)
{
    strata_spin_take(&self->lock);
    uint64_t largest = pool_heap_largest(&self->heap);
    strata_spin_release(&self->lock);
    CUdeviceptr from = 0;
    pool_seen_extent seen[POOL_SEEN_MOST];
    for (size_t count; largest < free && (count = pool_look_at_extents(self, &from, seen));)
        for (const pool_seen_extent *at = seen; at < seen + count; at++)
            if (at->state == POOL_TAKEN && (at->word & STRATA_WORD_STATE_MASK) == STRATA_BLOCK_FREED &&
                at->bytes > largest)
                largest = at->bytes;
    return (size_t)largest;
}

/* Adds the points of the next free extents. False: there are no more. */
static bool sum_extents(pool *self, CUdeviceptr *from, strata_stream_sums *sums)
{
    strata_spin_take(&self->lock);
    uint32_t slot = pool_heap_from(&self->heap, *from);
    for (int i = 0; slot && i < POOL_SEEN_MOST; i++, slot = pool_heap_behind(&self->heap, slot)) {
        const strata_entry *entry = pool_entry(&self->heap, slot);
        const uint8_t state = pool_extent_at(&self->heap, slot)->state;
        strata_summed_free freed = {sums, pool_bytes_of(entry)};
        if (state == POOL_FREE || state == POOL_AWAITED)
            strata_uses_visit(entry, strata_stream_sums_visit, &freed);
        *from = pool_address_of(entry) + freed.bytes;
    }
    strata_spin_release(&self->lock);
    return slot != 0;
}

/* What threads keep in their caches is free on their streams, and is not counted. */
void pool_sum_frees(strata_resource *resource, strata_stream_sums *sums)
{
    CUdeviceptr from = 0;
    while (sum_extents((pool *)resource, &from, sums))
        ;
}

/* The usage without the largest free extent, for which a search is needed. */
static void fill_usage(pool *self, strata_usage *usage)
{
    const pool_live now = pool_live_now(self);
    const size_t live = (size_t)now.bytes;
    const int64_t deferred = strata_counters_sum(&self->deferred, 0);
    const size_t retired = deferred > 0 ? (size_t)deferred : 0;
    const size_t reserved = (size_t)atomic_load_explicit(&self->reserved, memory_order_relaxed);
    *usage = (strata_usage){
        .live_bytes = live,
        .retired_bytes = retired,
        .bytes_outstanding = live + retired,
        .live_blocks = (size_t)now.blocks,
        .reserved_bytes = reserved,
        .reserved_peak = (size_t)atomic_load_explicit(&self->peak_reserved, memory_order_relaxed),
        .reserved_free = reserved > live + retired ? reserved - live - retired : 0,
        .limit = (size_t)atomic_load_explicit(&self->limit, memory_order_relaxed),
    };
}

strata_status pool_usage(strata_resource *resource, strata_usage *usage)
{
    pool *self = (pool *)resource;
    fill_usage(self, usage);
    usage->largest_free = largest_free(self, usage->reserved_free);
    return STRATA_SUCCESS;
}

/* ---- values ---- */

const strata_value pool_values[POOL_VALUE_COUNT] = {
    [POOL_VALUE_RESERVED] = {"reserved", STRATA_VALUE_BYTES, false, "bytes reserved from the device"},
    [POOL_VALUE_RESERVED_PEAK] = {"reserved.peak", STRATA_VALUE_BYTES, false, "most bytes reserved so far"},
    [POOL_VALUE_WATERMARK] = {"reserved.watermark", STRATA_VALUE_BYTES, true,
                              "most bytes reserved since this was set; setting it begins with what is reserved now"},
    [POOL_VALUE_LIMIT] = {"limit", STRATA_VALUE_BYTES, true, "most bytes that may be reserved; 0: the device's memory"},
    [POOL_VALUE_THRESHOLD] = {"release_threshold", STRATA_VALUE_BYTES, true,
                              "bytes kept when all frees are waited for; 0: all"},
    [POOL_VALUE_DECAY] = {"decay", STRATA_VALUE_DURATION, true, "memory unused for this time is given back; 0: never"},
    [POOL_VALUE_FREE] = {"free", STRATA_VALUE_BYTES, false, "reserved bytes in no block"},
    [POOL_VALUE_LARGEST_FREE] = {"free.largest", STRATA_VALUE_BYTES, false, "largest free piece"},
    [POOL_VALUE_HELD] = {"held", STRATA_VALUE_BYTES, false, "bytes of physical memory held in place"},
    [POOL_VALUE_CONTIGUOUS] = {"contiguous", STRATA_VALUE_BYTES, false,
                               "bytes in pieces of one block each, free ones included"},
    [POOL_VALUE_RELEASED] = {"released", STRATA_VALUE_BYTES, false, "bytes given back to the device so far"},
    [POOL_VALUE_DECAYED] = {"decayed", STRATA_VALUE_BYTES, false, "of those, given back by decay"},
    [POOL_VALUE_HITS] = {"hits", STRATA_VALUE_COUNT, false, "requests served by a thread's cache"},
    [POOL_VALUE_MISSES] = {"misses", STRATA_VALUE_COUNT, false, "requests not served by a thread's cache"},
    [POOL_VALUE_STEALS] = {"steals", STRATA_VALUE_COUNT, false, "of those, served behind a wait for another stream"},
    [POOL_VALUE_MADE] = {"chunks.made", STRATA_VALUE_COUNT, false, "pieces of physical memory made"},
    [POOL_VALUE_MOVED] = {"chunks.moved", STRATA_VALUE_COUNT, false, "pieces moved to where memory was needed"},
    [POOL_VALUE_POLLS] = {"polls", STRATA_VALUE_COUNT, false, "queries of the progress of streams"},
    [POOL_VALUE_ALLOWED] = {"allowed", STRATA_VALUE_BYTES, false,
                            "bytes that may be reserved now before memory is moved"},
    [POOL_VALUE_BOUGHT] = {"bought", STRATA_VALUE_COUNT, false, "thousandths of the peak that moves added to that"},
    [POOL_VALUE_NEAREST] = {"limit.nearest", STRATA_VALUE_BYTES, false,
                            "most bytes that could be reserved when last looked at"},
    [POOL_VALUE_OLD_MADE] = {"frames.made", STRATA_VALUE_COUNT, false, NULL},
    [POOL_VALUE_OLD_MOVED] = {"frames.moved", STRATA_VALUE_COUNT, false, NULL},
    [POOL_VALUE_OLD_POLLS] = {"asked", STRATA_VALUE_COUNT, false, NULL},
    [POOL_VALUE_FLUSHES] = {"flushes", STRATA_VALUE_COUNT, false, "times that all thread caches were emptied"},
};

/* Offsets of values that are words of the pool; 0: others. */
static const size_t words[POOL_VALUE_COUNT] = {
    [POOL_VALUE_RESERVED] = offsetof(pool, reserved),
    [POOL_VALUE_RESERVED_PEAK] = offsetof(pool, peak_reserved),
    [POOL_VALUE_WATERMARK] = offsetof(pool, watermark),
    [POOL_VALUE_LIMIT] = offsetof(pool, limit),
    [POOL_VALUE_THRESHOLD] = offsetof(pool, threshold),
    [POOL_VALUE_DECAY] = offsetof(pool, decay.window),
    [POOL_VALUE_HELD] = offsetof(pool, store.held_bytes),
    [POOL_VALUE_RELEASED] = offsetof(pool, counts.released),
    [POOL_VALUE_DECAYED] = offsetof(pool, counts.decayed),
    [POOL_VALUE_MISSES] = offsetof(pool, counts.misses),
    [POOL_VALUE_STEALS] = offsetof(pool, counts.steals),
    [POOL_VALUE_MADE] = offsetof(pool, counts.chunks_made),
    [POOL_VALUE_MOVED] = offsetof(pool, counts.chunks_moved),
    [POOL_VALUE_POLLS] = offsetof(pool, counts.polls),
    [POOL_VALUE_FLUSHES] = offsetof(pool, counts.flushes),
    [POOL_VALUE_ALLOWED] = offsetof(pool, policy.allowed),
    [POOL_VALUE_NEAREST] = offsetof(pool, policy.limit_seen),
    [POOL_VALUE_OLD_MADE] = offsetof(pool, counts.chunks_made),
    [POOL_VALUE_OLD_MOVED] = offsetof(pool, counts.chunks_moved),
    [POOL_VALUE_OLD_POLLS] = offsetof(pool, counts.polls),
};

static _Atomic uint64_t *word_of(pool *self, size_t which)
{
    return (_Atomic uint64_t *)(void *)((char *)self + words[which]);
}

static uint64_t sum_hits(const pool *self)
{
    uint64_t hits = 0;
    const pool_thread_cache *local;
    for (uint32_t position = 0; (local = strata_per_thread_next(&self->thread_caches, &position));)
        hits += (uint64_t)atomic_load_explicit(&local->hits, memory_order_relaxed);
    return hits;
}

static uint64_t contiguous_bytes(pool *self)
{
    strata_spin_take(&self->lock);
    const uint64_t bytes = pool_mapped_bytes(&self->heap, POOL_CONTIGUOUS);
    strata_spin_release(&self->lock);
    return bytes;
}

static uint64_t bought_thousandths(pool *self)
{
    strata_lock_take(&self->map_lock);
    const double bought = pool_policy_bought(self);
    strata_lock_release(&self->map_lock);
    return (uint64_t)(bought * 1000 + 0.5);
}

strata_status pool_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    pool *self = (pool *)resource;
    strata_usage usage;
    switch (which) {
    case POOL_VALUE_FREE:
    case POOL_VALUE_LARGEST_FREE:
        fill_usage(self, &usage);
        *value = which == POOL_VALUE_FREE ? usage.reserved_free : largest_free(self, usage.reserved_free);
        break;
    case POOL_VALUE_CONTIGUOUS:
        *value = contiguous_bytes(self);
        break;
    case POOL_VALUE_HITS:
        *value = sum_hits(self);
        break;
    case POOL_VALUE_BOUGHT:
        *value = bought_thousandths(self);
        break;
    default:
        *value = atomic_load_explicit(word_of(self, which), memory_order_relaxed);
    }
    return STRATA_SUCCESS;
}

/* A pool that begins with a limit reserves addresses in proportion to it. */
static bool has_addresses_for(const pool *self, uint64_t limit)
{
    const uint64_t device = self->device->info.total_bytes;
    return !self->store.source || !self->store.source->remappable ||
           (limit && limit < device ? limit : device) <= pool_mapped_limit(&self->store);
}

strata_status pool_set_value(strata_resource *resource, size_t which, uint64_t value)
{
    pool *self = (pool *)resource;
    if (which == POOL_VALUE_DECAY)
        return pool_decay_set(self, value);
    if (which == POOL_VALUE_LIMIT && !has_addresses_for(self, value))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "pool: addresses were reserved for a limit of at most %s; begin with a larger max_size",
                           strata_size_text(pool_mapped_limit(&self->store)).text);
    if (which == POOL_VALUE_WATERMARK)
        value = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    atomic_store_explicit(word_of(self, which), value, memory_order_relaxed);
    return STRATA_SUCCESS;
}

/* ---- the snapshot ---- */

static bool is_block(const pool_seen_extent *extent)
{
    return extent->state == POOL_TAKEN && (extent->word & STRATA_BLOCK_LIVE);
}

static const char *state_name(const pool_seen_extent *extent)
{
    if (extent->state == POOL_HOLE || extent->state == POOL_AWAY)
        return "void";
    if (extent->state == POOL_AWAITED)
        return "free, in order";
    if (extent->state == POOL_FREE)
        return extent->timeline == POOL_TIMELINE_NONE ? "free" : "free, in order";
    return is_block(extent) ? "block" : "cached";
}

static void describe_extent(strata_emitter *to, const pool_seen_extent *extent)
{
    strata_emit_object_begin(to, NULL);
    strata_emit_hex(to, "address", extent->address);
    strata_emit_bytes(to, "bytes", extent->bytes);
    strata_emit_text(to, "state", state_name(extent));
    if (is_block(extent)) {
        strata_emit_bytes(to, "requested", extent->requested);
        strata_emit_text(to, "tag", strata_tag_name(extent->tag));
    }
    strata_emit_object_end(to);
}

/* ---- physical memory ---- */

typedef struct seen_chunk {
    CUdeviceptr address;
    uint64_t bytes;
    bool held;
} seen_chunk;

/* Reads the next chunks; not leaving ones, whose addresses may have a new one. */
static size_t check_chunks(pool *self, uint32_t *from, seen_chunk *seen)
{
    size_t count = 0;
    strata_lock_take(&self->map_lock);
    for (; *from < self->store.chunk_count && count < POOL_SEEN_MOST; ++*from) {
        const pool_chunk *chunk = &self->store.chunks[*from];
        if (pool_chunk_bytes(chunk) && chunk->address && !chunk->leaving && !chunk->useless)
            seen[count++] = (seen_chunk){chunk->address, pool_chunk_bytes(chunk), chunk->held != 0};
    }
    strata_lock_release(&self->map_lock);
    return count;
}

/* One chunk, or, with a count, so many equal ones with consecutive numbers. */
static void describe_chunk(strata_emitter *to, const seen_chunk *chunk, uint64_t count)
{
    strata_emit_object_begin(to, NULL);
    if (count)
        strata_emit_count(to, "count", count);
    else
        strata_emit_hex(to, "address", chunk->address);
    strata_emit_bytes(to, count ? "bytes_each" : "bytes", chunk->bytes);
    strata_emit_bool(to, "held", chunk->held);
    strata_emit_object_end(to);
}

enum { CHUNKS_IN_FULL = 200 };

/* A text of many chunks counts them by size. */
static void describe_chunks(pool *self, strata_emitter *to)
{
    seen_chunk seen[POOL_SEEN_MOST], run = {0};
    uint32_t from = 1;
    uint64_t alike = 0;
    const bool brief = to->format == STRATA_FORMAT_TEXT && pool_end_of_chunks(self) > CHUNKS_IN_FULL;
    strata_emit_list_begin(to, "frames");
    for (size_t count; (count = check_chunks(self, &from, seen));)
        for (size_t i = 0; i < count; i++) {
            if (!brief) {
                describe_chunk(to, &seen[i], 0);
                continue;
            }
            const bool like = alike && seen[i].bytes == run.bytes && seen[i].held == run.held;
            if (alike && !like)
                describe_chunk(to, &run, alike);
            alike = like ? alike + 1 : 1;
            run = seen[i];
        }
    if (alike)
        describe_chunk(to, &run, alike);
    strata_emit_list_end(to);
}

/* Lists all extents but the large hole at the end of each side. A change by another thread is seen or not. */
void pool_describe(strata_resource *resource, strata_emitter *to)
{
    pool *self = (pool *)resource;
    pool_seen_extent seen[POOL_SEEN_MOST];
    const CUdeviceptr small = pool_small_base(&self->store), last = self->store.base + self->store.bytes;
    CUdeviceptr from = 0;
    strata_emit_list_begin(to, "pieces");
    for (size_t count; (count = pool_look_at_extents(self, &from, seen));)
        for (const pool_seen_extent *at = seen; at < seen + count; at++)
            if ((at->state != POOL_HOLE && at->state != POOL_AWAY) ||
                (at->address + at->bytes != small && at->address + at->bytes != last))
                describe_extent(to, at);
    strata_emit_list_end(to);
    describe_chunks(self, to);
}
