/* Retired blocks: the index, and both ways out of it (completion, reuse). */
#include "resources/owners/pending_frees.h"

#include "core/base/error.h"
#include "core/stack/completions.h"
#include "core/stack/stream_frees.h"
#include "core/streams/timeline.h"
#include "resources/owners/pending_points.h"

enum { REAP_EVERY = 256 };

/* Totals: live is allocated minus freed, retired is freed minus ended. Counted in this order and read in reverse, so no
 * difference is negative. */
enum { ALLOCATED_BYTES, ALLOCATED_BLOCKS, FREED_BYTES, FREED_BLOCKS, ENDED_BYTES, ENDED_BLOCKS };

/* Points before the driver has the free, not counted as freed and counted. No stream reaches them. */
static const strata_point free_without_point = UINT64_MAX;
static const strata_point deferred = UINT64_MAX - 1;

static inline bool is_settled(strata_point point)
{
    return point < deferred;
}

enum { UNIT = 256 }; /* of addresses in the index */

typedef struct part {
    CUdeviceptr start;
    uint64_t length;
} part;

static strata_table *table_of(const strata_pending_frees *set)
{
    return strata_resource_table(set->owner);
}

static strata_pending_free *bytes_of(const strata_pending_frees *set, strata_entry *entry)
{
    return (strata_pending_free *)(void *)((char *)entry + set->owner->block_offset);
}

static strata_pending_free *bytes_at(const strata_pending_frees *set, uint32_t slot)
{
    return bytes_of(set, strata_table_entry(table_of(set), slot));
}

static bool is_retired(const strata_pending_frees *set, uint32_t slot)
{
    uint64_t word = atomic_load_explicit(&strata_table_entry(table_of(set), slot)->word, memory_order_acquire);
    return (word & STRATA_WORD_STATE_MASK) == STRATA_BLOCK_RETIRED;
}

void strata_pending_frees_init(strata_pending_frees *set, strata_resource *owner, size_t granule)
{
    set->owner = owner;
    set->granule = granule;
    strata_spin_init(&set->lock, STRATA_RANK_INDEX);
}

void strata_pending_frees_destroy(strata_pending_frees *set)
{
    strata_index_destroy(&set->index);
    strata_counters_destroy(&set->counters);
}

static CUdeviceptr end_of(const strata_pending_frees *set, CUdeviceptr start, uint64_t bytes)
{
    return (start + bytes + set->granule - 1) & ~(CUdeviceptr)(set->granule - 1);
}

static __attribute__((cold)) void report(const strata_pending_frees *set, uint32_t slot, uint64_t amount, bool ends,
                                         strata_completion_kind kind)
{
    const strata_entry *entry = strata_table_entry(table_of(set), slot);
    uint64_t generation = atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION;
    strata_completion completion = {
        .kind = kind,
        .id = {.table = strata_table_id(table_of(set)), .slot = slot, .generation = generation},
        .bytes = (size_t)amount,
        .last = ends,
    };
    strata_report_completion(set->owner, &completion);
}

/* Counts `amount` bytes of a retired block as free; true if they were the last. The lock is held. */
static inline bool count_as_free(strata_pending_frees *set, uint32_t slot, strata_pending_free *bytes, uint64_t amount,
                                 strata_stripe *mine, strata_completion_kind kind)
{
    bytes->outstanding -= amount;
    bool ends = bytes->outstanding == 0;
    strata_counters_add_to(&set->counters, mine, ENDED_BYTES, (int64_t)amount);
    strata_counters_add_to(&set->counters, mine, ENDED_BLOCKS, ends);
    if (__builtin_expect(set->owner->stack->completion_sink_count != 0, 0))
        report(set, slot, amount, ends, kind);
    return ends;
}

/* As count_as_free; with the last bytes also ends the block, which has left the index. */
static void release(strata_pending_frees *set, uint32_t slot, uint64_t amount, strata_completion_kind kind)
{
    strata_stripe *mine = strata_counters_self(&set->counters, strata_thread_self());
    if (count_as_free(set, slot, bytes_at(set, slot), amount, mine, kind))
        strata_entry_destroy(table_of(set), strata_table_entry(table_of(set), slot), slot);
}

/* The indexed part of a block; empty for an unindexed one. The lock is held. */
static inline part part_of(const strata_pending_frees *set, strata_entry *entry)
{
    const strata_pending_free *bytes = bytes_of(set, entry);
    if (!bytes->end)
        return (part){0};
    const CUdeviceptr address = atomic_load_explicit(&entry->address, memory_order_relaxed);
    const uint64_t from = (uint64_t)bytes->from * UNIT;
    const uint64_t end = bytes->end == STRATA_PENDING_FREES_WHOLE
                             ? atomic_load_explicit(&entry->bytes, memory_order_relaxed)
                             : (uint64_t)bytes->end * UNIT;
    return (part){.start = address + from, .length = end - from};
}

/* Makes a block's range whole and live. The lock is held. */
static inline void occupy(strata_pending_free *bytes, uint64_t length)
{
    bytes->from = 0;
    bytes->end = STRATA_PENDING_FREES_WHOLE;
    bytes->outstanding = length;
    atomic_store_explicit(&bytes->point, free_without_point, memory_order_relaxed);
}

/* ---- handing memory out ---- */

static void make_unindexed(strata_pending_frees *set, uint32_t slot, strata_pending_free *bytes)
{
    bytes->end = 0;
    bytes->from = set->unindexed;
    set->unindexed = slot;
}

/* Keeps the part of a retired range outside [start, end): the larger side in the index, the other only counted. */
static void shrink(strata_pending_frees *set, uint32_t slot, CUdeviceptr start, CUdeviceptr end)
{
    strata_entry *entry = strata_table_entry(table_of(set), slot);
    strata_pending_free *bytes = bytes_of(set, entry);
    const part had = part_of(set, entry);
    const CUdeviceptr address = atomic_load_explicit(&entry->address, memory_order_relaxed);
    CUdeviceptr own_end = had.start + had.length;
    uint64_t left = start > had.start ? start - had.start : 0;
    uint64_t right = own_end > end ? own_end - end : 0;
    if (left >= right && left && (start - address) / UNIT < STRATA_PENDING_FREES_WHOLE) {
        bytes->end = (uint32_t)((start - address) / UNIT);
        return;
    }
    if (had.start != start) /* else the new range takes the index entry */
        strata_index_remove(&set->index, had.start);
    if (right && (end - address) / UNIT < STRATA_PENDING_FREES_WHOLE && strata_index_insert(&set->index, end, slot))
        bytes->from = (uint32_t)((end - address) / UNIT);
    else
        make_unindexed(set, slot, bytes);
}

/* Waits until the freeing thread stores the point: the driver has the memory already, so it is about to. */
static void wait_for_free_point(const strata_pending_free *bytes)
{
    for (unsigned spins = 0; !is_settled(atomic_load_explicit(&bytes->point, memory_order_acquire));)
        strata_backoff(&spins);
}

/* Counts a retired block's overlap with [start, end) as reused. */
static void reuse(strata_pending_frees *set, uint32_t slot, CUdeviceptr start, CUdeviceptr end)
{
    const strata_pending_free *bytes = bytes_at(set, slot);
    wait_for_free_point(bytes);
    const part had = part_of(set, strata_table_entry(table_of(set), slot));
    CUdeviceptr from = start > had.start ? start : had.start;
    CUdeviceptr own_end = had.start + had.length;
    uint64_t overlap = (end < own_end ? end : own_end) - from;
    if (overlap < bytes->outstanding)
        shrink(set, slot, start, end);
    else if (had.start != start)
        strata_index_remove(&set->index, had.start);
    release(set, slot, overlap, STRATA_COMPLETION_REUSED);
}

/* As reuse, for all retired blocks that overlap but one that begins at `start`. */
static void reuse_overlapped(strata_pending_frees *set, CUdeviceptr start, CUdeviceptr end)
{
    CUdeviceptr found;
    uint32_t slot = start ? strata_index_floor(&set->index, start - 1, &found) : 0;
    if (slot && is_retired(set, slot) && found + part_of(set, strata_table_entry(table_of(set), slot)).length > start)
        reuse(set, slot, start, end);
    found = start + set->granule;
    while ((slot = strata_index_ceiling(&set->index, found, &found)) && found < end && is_retired(set, slot))
        reuse(set, slot, start, end);
}

/* Enters a range under a new slot, which gets the index entry of `before` or a new one. 0 without host memory. The lock
 * is held. */
static __attribute__((noinline)) uint32_t enter_fresh(strata_pending_frees *set, uint32_t before, CUdeviceptr start,
                                                      uint64_t length)
{
    CUdeviceptr end = end_of(set, start, length);
    uint32_t slot = strata_table_take_slot(table_of(set));
    bool entered = slot && strata_index_insert(&set->index, start, slot);
    if (before && is_retired(set, before))
        reuse(set, before, start, end);
    reuse_overlapped(set, start, end);
    if (entered) {
        occupy(bytes_at(set, slot), length);
        return slot;
    }
    strata_index_remove(&set->index, start);
    if (slot)
        strata_entry_destroy(table_of(set), strata_table_entry(table_of(set), slot), slot);
    return 0;
}

/* Whether a block is retired, has exactly this range, and lost none of it since: index entry and slot can stay. The
 * lock is held. */
static inline bool is_reused_whole(const strata_pending_frees *set, const strata_entry *entry,
                                   const strata_pending_free *bytes, CUdeviceptr start, uint64_t length)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
    uint64_t had = atomic_load_explicit(&entry->bytes, memory_order_relaxed);
    return (word & STRATA_WORD_STATE_MASK) == STRATA_BLOCK_RETIRED && had == bytes->outstanding &&
           end_of(set, start, had) == end_of(set, start, length) && strata_entry_is_renewable(entry);
}

static inline void take_over(strata_pending_frees *set, uint32_t slot, strata_entry *entry, strata_pending_free *bytes,
                             strata_stripe *mine)
{
    wait_for_free_point(bytes);
    count_as_free(set, slot, bytes, bytes->outstanding, mine, STRATA_COMPLETION_REUSED);
    strata_entry_renew(entry, bytes);
}

uint32_t strata_pending_frees_enter(strata_pending_frees *set, CUdeviceptr address, uint64_t length)
{
    strata_stripe *mine = strata_counters_self(&set->counters, strata_thread_self());
    strata_spin_take(&set->lock);
    uint32_t slot = strata_index_at(&set->index, address);
    strata_entry *entry = slot ? strata_table_entry(table_of(set), slot) : NULL;
    strata_pending_free *bytes = slot ? bytes_of(set, entry) : NULL;
    if (__builtin_expect(slot && is_reused_whole(set, entry, bytes, address, length), 1)) {
        take_over(set, slot, entry, bytes, mine);
        occupy(bytes, length);
    } else {
        slot = enter_fresh(set, slot, address, length);
    }
    strata_spin_release(&set->lock);
    if (__builtin_expect(!slot, 0))
        return 0;
    strata_counters_add_to(&set->counters, mine, ALLOCATED_BYTES, (int64_t)length);
    strata_counters_add_to(&set->counters, mine, ALLOCATED_BLOCKS, 1);
    return slot;
}

void strata_pending_frees_leave(strata_pending_frees *set, uint32_t slot, CUdeviceptr address, uint64_t bytes)
{
    strata_spin_take(&set->lock);
    strata_index_remove(&set->index, address);
    strata_spin_release(&set->lock);
    strata_entry_destroy(table_of(set), strata_table_entry(table_of(set), slot), slot);
    strata_stripe *mine = strata_counters_self(&set->counters, strata_thread_self());
    strata_counters_add_to(&set->counters, mine, ALLOCATED_BYTES, -(int64_t)bytes);
    strata_counters_add_to(&set->counters, mine, ALLOCATED_BLOCKS, -1);
}

/* ---- freeing ---- */

/* A reap walks the whole index: worth it with as many retired blocks as live ones. */
static bool worth_reaping(const strata_pending_frees *set)
{
    int64_t ended = strata_counters_sum(&set->counters, ENDED_BLOCKS);
    int64_t freed = strata_counters_sum(&set->counters, FREED_BLOCKS);
    int64_t allocated = strata_counters_sum(&set->counters, ALLOCATED_BLOCKS);
    size_t retired = strata_counters_between(ended, freed);
    return retired >= REAP_EVERY && retired >= strata_counters_between(freed, allocated);
}

/* Counts a free, with `times` -1 takes that back. Returns this thread's count of frees. */
static inline int64_t count_free(strata_pending_frees *set, uint64_t bytes, int64_t times)
{
    strata_stripe *mine = strata_counters_self(&set->counters, strata_thread_self());
    strata_counters_add_to(&set->counters, mine, FREED_BYTES, times * (int64_t)bytes);
    return strata_counters_add_to(&set->counters, mine, FREED_BLOCKS, times);
}

void strata_pending_frees_defer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes)
{
    count_free(set, bytes, 1);
    atomic_store_explicit(&bytes_of(set, entry)->point, deferred, memory_order_relaxed);
}

void strata_pending_frees_undefer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes)
{
    atomic_store_explicit(&bytes_of(set, entry)->point, free_without_point, memory_order_relaxed);
    count_free(set, bytes, -1);
}

bool strata_pending_frees_add(strata_pending_frees *set, strata_entry *entry, uint64_t length, strata_point point)
{
    strata_pending_free *bytes = bytes_of(set, entry);
    bool counted = atomic_load_explicit(&bytes->point, memory_order_relaxed) == deferred;
    int64_t frees = __builtin_expect(counted, 0) ? 1 : count_free(set, length, 1);
    atomic_store_explicit(&bytes->point, point, memory_order_release);
    return __builtin_expect(frees % REAP_EVERY == 0, 0) && worth_reaping(set);
}

/* ---- reaping ---- */

/* The point of a block's free; 0 unless it is retired and the driver has the free. The lock is held. */
static strata_point free_point(const strata_pending_frees *set, uint32_t slot)
{
    if (!is_retired(set, slot))
        return 0;
    strata_point point = atomic_load_explicit(&bytes_at(set, slot)->point, memory_order_acquire);
    return is_settled(point) ? point : 0;
}

/* Visits retired blocks with a free point; visit may remove the block. The lock is held. */
static void for_each_pending(strata_pending_frees *set,
                             void (*visit)(strata_pending_frees *set, uint32_t slot, strata_point point, void *data),
                             void *data)
{
    CUdeviceptr at = 0;
    for (uint32_t slot; (slot = strata_index_ceiling(&set->index, at, &at)); at++) {
        strata_point point = free_point(set, slot);
        if (point)
            visit(set, slot, point, data);
    }
    for (uint32_t slot = set->unindexed, next; slot; slot = next) {
        next = bytes_at(set, slot)->from;
        visit(set, slot, free_point(set, slot), data);
    }
}

static void unlink_unindexed(strata_pending_frees *set, uint32_t slot)
{
    uint32_t *link = &set->unindexed;
    while (*link != slot)
        link = &bytes_at(set, *link)->from;
    *link = bytes_at(set, slot)->from;
}

static void finish_if_complete(strata_pending_frees *set, uint32_t slot, strata_point point, void *freed)
{
    if (!strata_point_known_complete(point))
        return;
    const strata_pending_free *bytes = bytes_at(set, slot);
    const part had = part_of(set, strata_table_entry(table_of(set), slot));
    if (had.length)
        strata_index_remove(&set->index, had.start);
    else
        unlink_unindexed(set, slot);
    *(size_t *)freed += bytes->outstanding;
    release(set, slot, bytes->outstanding, STRATA_COMPLETION_FINISHED);
}

static void collect(strata_pending_frees *set, uint32_t slot, strata_point point, void *pending)
{
    (void)set, (void)slot;
    strata_pending_points_add(pending, point);
}

static strata_status poll_or_wait(const strata_device *device, strata_point point, strata_reap_mode mode)
{
    if (mode == STRATA_REAP_WAIT)
        return strata_point_synchronize_for(device, point);
    strata_status status = strata_timeline_close_epoch_for(device, point);
    if (status == STRATA_SUCCESS)
        strata_timeline_poll(strata_timeline_of(point));
    return status;
}

strata_status strata_pending_frees_reap(strata_pending_frees *set, strata_reap_mode mode, size_t *bytes)
{
    strata_pending_points pending = {0};
    strata_status status = STRATA_SUCCESS;
    *bytes = 0;
    do { /* each stream once, whatever others free meanwhile */
        strata_pending_points_next(&pending);
        strata_spin_take(&set->lock);
        for_each_pending(set, collect, &pending);
        strata_spin_release(&set->lock);
        for (size_t i = 0; i < pending.count && status == STRATA_SUCCESS; i++)
            status = poll_or_wait(table_of(set)->device, pending.points[i], mode);
        strata_spin_take(&set->lock);
        for_each_pending(set, finish_if_complete, bytes);
        strata_spin_release(&set->lock);
    } while (strata_pending_points_is_full(&pending) && status == STRATA_SUCCESS);
    return status;
}

/* ---- after a reset ---- */

/* The next block from *at on that has not ended, and whose free no other thread is in the middle of. *given: the driver
 * has its free. The lock is held. */
static uint32_t next_lost(strata_pending_frees *set, CUdeviceptr *at, bool *given)
{
    uint32_t slot;
    while ((slot = strata_index_ceiling(&set->index, *at, at))) {
        const strata_point point = atomic_load_explicit(&bytes_at(set, slot)->point, memory_order_acquire);
        const bool retired = is_retired(set, slot);
        *given = retired && is_settled(point);
        if (bytes_at(set, slot)->outstanding && (!retired || point != free_without_point))
            break;
        ++*at;
    }
    return slot;
}

/* Counts a block as ended. Its entry stays as it is, and in the index if it was not freed: the user may still free it,
 * also by its address. The lock is held. */
static uint64_t end_block(strata_pending_frees *set, uint32_t slot)
{
    strata_pending_free *bytes = bytes_at(set, slot);
    const uint64_t amount = bytes->outstanding;
    if (!is_retired(set, slot))
        count_free(set, amount, 1);
    strata_stripe *mine = strata_counters_self(&set->counters, strata_thread_self());
    strata_counters_add_to(&set->counters, mine, ENDED_BYTES, (int64_t)amount);
    strata_counters_add_to(&set->counters, mine, ENDED_BLOCKS, 1);
    bytes->outstanding = 0;
    return amount;
}

static uint64_t end_unindexed(strata_pending_frees *set)
{
    uint64_t bytes = 0;
    strata_spin_take(&set->lock);
    for (uint32_t slot = set->unindexed; slot; slot = bytes_at(set, slot)->from)
        bytes += end_block(set, slot);
    set->unindexed = 0;
    strata_spin_release(&set->lock);
    return bytes;
}

uint64_t strata_pending_frees_end_lost(strata_pending_frees *set, bool (*give)(CUdeviceptr address))
{
    uint64_t bytes = end_unindexed(set);
    for (CUdeviceptr at = 0;; at++) {
        bool given;
        strata_spin_take(&set->lock);
        const uint32_t slot = next_lost(set, &at, &given);
        strata_spin_release(&set->lock);
        if (!slot || (!given && !give(at)))
            return bytes;
        strata_spin_take(&set->lock);
        if (strata_index_at(&set->index, at) == slot) {
            if (is_retired(set, slot))
                strata_index_remove(&set->index, at);
            bytes += end_block(set, slot);
        }
        strata_spin_release(&set->lock);
    }
}

bool strata_pending_frees_any(const strata_pending_frees *set)
{
    const int64_t ended = strata_counters_sum(&set->counters, ENDED_BLOCKS);
    return strata_counters_sum(&set->counters, ALLOCATED_BLOCKS) != ended;
}

/* ---- looking ---- */

static void sum(strata_pending_frees *set, uint32_t slot, strata_point point, void *sums)
{
    strata_stream_sums_add(sums, point, bytes_at(set, slot)->outstanding);
}

void strata_pending_frees_sum(strata_pending_frees *set, strata_stream_sums *sums)
{
    strata_spin_take(&set->lock);
    for_each_pending(set, sum, sums);
    strata_spin_release(&set->lock);
}

typedef struct reusable_search {
    uint16_t timeline;
    uint64_t bytes;
    uint64_t found_bytes; /* smallest that suffices; 0: none */
    strata_block_id *id;
} reusable_search;

static void find_reusable(strata_pending_frees *set, uint32_t slot, strata_point point, void *data)
{
    reusable_search *search = data;
    const part whole = part_of(set, strata_table_entry(table_of(set), slot));
    uint64_t has = end_of(set, whole.start, whole.length) - whole.start;
    if (strata_point_timeline(point) != search->timeline || whole.length != bytes_at(set, slot)->outstanding ||
        has < search->bytes || (search->found_bytes && has >= search->found_bytes))
        return;
    uint64_t word = atomic_load_explicit(&strata_table_entry(table_of(set), slot)->word, memory_order_relaxed);
    search->found_bytes = has;
    *search->id = (strata_block_id){
        .table = strata_table_id(table_of(set)), .slot = slot, .generation = word >> STRATA_WORD_GENERATION};
}

bool strata_pending_frees_reusable(strata_pending_frees *set, uint16_t timeline, uint64_t bytes, strata_block_id *id)
{
    reusable_search search = {.timeline = timeline, .bytes = bytes, .id = id};
    strata_spin_take(&set->lock);
    for_each_pending(set, find_reusable, &search);
    strata_spin_release(&set->lock);
    return search.found_bytes != 0;
}

bool strata_pending_frees_find(strata_pending_frees *set, CUdeviceptr address, strata_block *out)
{
    CUdeviceptr start;
    strata_spin_take(&set->lock);
    uint32_t slot = strata_index_floor(&set->index, address, &start);
    bool found = slot && strata_entry_describe(strata_resource_table(set->owner), slot, out) &&
                 address - out->address < out->bytes;
    strata_spin_release(&set->lock);
    if (!found)
        *out = (strata_block){0};
    return found;
}

void strata_pending_frees_usage(const strata_pending_frees *set, strata_usage *usage)
{
    int64_t ended = strata_counters_sum(&set->counters, ENDED_BYTES);
    int64_t freed = strata_counters_sum(&set->counters, FREED_BYTES);
    int64_t freed_blocks = strata_counters_sum(&set->counters, FREED_BLOCKS);
    int64_t allocated = strata_counters_sum(&set->counters, ALLOCATED_BYTES);
    int64_t allocated_blocks = strata_counters_sum(&set->counters, ALLOCATED_BLOCKS);
    usage->live_bytes = strata_counters_between(freed, allocated);
    usage->live_blocks = strata_counters_between(freed_blocks, allocated_blocks);
    usage->retired_bytes = strata_counters_between(ended, freed);
    usage->bytes_outstanding = usage->live_bytes + usage->retired_bytes;
}
