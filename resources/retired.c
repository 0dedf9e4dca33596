/* Retired blocks: the list, the index, and the two ways out. */
#include "resources/retired.h"

#include "core/error.h"
#include "core/timeline.h"

enum { REAP_FIRST = 256, STREAMS_AT_ONCE = 64 };

/* The point of a free while its driver call is under way. */
static const strata_point in_flight = UINT64_MAX;

static strata_entry *entry_of(const strata_retired *set, uint32_t slot)
{
    return strata_table_entry(strata_resource_table(set->owner), slot);
}

static strata_retired_bytes *bytes_of(const strata_retired *set, strata_entry *entry)
{
    return (strata_retired_bytes *)(void *)((char *)entry + set->owner->block_offset);
}

void strata_retired_init(strata_retired *set, strata_resource *owner)
{
    set->owner = owner;
    set->reap_at = REAP_FIRST;
    strata_lock_init(&set->lock, STRATA_RANK_INDEX);
}

void strata_retired_end(strata_retired *set)
{
    strata_index_end(&set->index);
    strata_counters_end(&set->counters);
    strata_lock_destroy(&set->lock);
}

/* ---- the list; the lock is held ---- */

static void link_last(strata_retired *set, uint32_t slot, strata_retired_bytes *bytes)
{
    bytes->next = 0;
    bytes->previous = set->last;
    if (set->last)
        bytes_of(set, entry_of(set, set->last))->next = slot;
    else
        set->first = slot;
    set->last = slot;
    set->count++;
}

static void unlink(strata_retired *set, const strata_retired_bytes *bytes)
{
    if (bytes->next)
        bytes_of(set, entry_of(set, bytes->next))->previous = bytes->previous;
    else
        set->last = bytes->previous;
    if (bytes->previous)
        bytes_of(set, entry_of(set, bytes->previous))->next = bytes->next;
    else
        set->first = bytes->next;
    set->count--;
}

static strata_block_id id_of(const strata_retired *set, uint32_t slot, const strata_entry *entry)
{
    return (strata_block_id){
        .table = strata_table_id(strata_resource_table(set->owner)),
        .slot = slot,
        .generation = atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION,
    };
}

/* Counts `amount` of a retired block's bytes as free, and ends the block with the last of them. */
static void release(strata_retired *set, uint32_t slot, uint64_t amount, strata_completion_kind kind)
{
    strata_entry *entry = entry_of(set, slot);
    strata_retired_bytes *bytes = bytes_of(set, entry);
    bytes->retired -= amount;
    bool ends = bytes->retired == 0;
    strata_counters_add(&set->counters, strata_thread_self(), STRATA_RETIRED_BYTES, -(int64_t)amount);
    if (ends) {
        unlink(set, bytes);
        if (bytes->length)
            strata_index_remove(&set->index, bytes->start);
    }
    strata_report_completion(set->owner, &(strata_completion){
                                             .kind = kind,
                                             .id = id_of(set, slot, entry),
                                             .bytes = (size_t)amount,
                                             .last = ends,
                                         });
    if (ends)
        strata_entry_end(strata_resource_table(set->owner), entry, slot);
}

/* ---- handing memory out ---- */

/* The part of a retired range that stays retired when [start, end) is handed out: the larger side of it stays indexed,
 * the other one is only counted. */
static void shrink(strata_retired *set, uint32_t slot, strata_retired_bytes *bytes, CUdeviceptr start, CUdeviceptr end)
{
    CUdeviceptr own_end = bytes->start + bytes->length;
    uint64_t left = start > bytes->start ? start - bytes->start : 0;
    uint64_t right = own_end > end ? own_end - end : 0;
    CUdeviceptr aligned = (end + 255) & ~(CUdeviceptr)255;
    if (left >= right) {
        bytes->length = left;
        if (!left)
            strata_index_remove(&set->index, bytes->start);
        return;
    }
    strata_index_remove(&set->index, bytes->start);
    bytes->length = aligned < own_end && strata_index_insert(&set->index, aligned, slot) ? own_end - aligned : 0;
    bytes->start = aligned;
}

static void reuse(strata_retired *set, uint32_t slot, CUdeviceptr start, CUdeviceptr end)
{
    strata_entry *entry = entry_of(set, slot);
    strata_retired_bytes *bytes = bytes_of(set, entry);
    CUdeviceptr from = start > bytes->start ? start : bytes->start;
    CUdeviceptr own_end = bytes->start + bytes->length;
    uint64_t overlap = (end < own_end ? end : own_end) - from;
    /* The driver has the memory back, so the call that freed it is only about to say when. */
    for (unsigned turn = 0; atomic_load_explicit(&bytes->point, memory_order_acquire) == in_flight;)
        strata_backoff(&turn);
    if (overlap < bytes->retired)
        shrink(set, slot, bytes, start, end);
    release(set, slot, overlap, STRATA_COMPLETION_REUSED);
}

/* A free says RETIRED before it takes the lock in begin. Until then its bytes are zero: an empty range. */
static bool is_retired(const strata_retired *set, uint32_t slot)
{
    uint64_t word = atomic_load_explicit(&entry_of(set, slot)->word, memory_order_acquire);
    return (word & STRATA_WORD_STATE_MASK) == STRATA_BLOCK_RETIRED;
}

static void reuse_overlapped(strata_retired *set, CUdeviceptr start, CUdeviceptr end)
{
    CUdeviceptr found;
    uint32_t slot = strata_index_floor(&set->index, start, &found);
    if (slot && is_retired(set, slot) && found + bytes_of(set, entry_of(set, slot))->length > start)
        reuse(set, slot, start, end);
    while ((slot = strata_index_ceiling(&set->index, start, &found)) && found < end && is_retired(set, slot))
        reuse(set, slot, start, end);
}

bool strata_retired_enter(strata_retired *set, uint32_t slot, CUdeviceptr address, uint64_t bytes)
{
    strata_lock_take(&set->lock);
    if (set->count)
        reuse_overlapped(set, address, address + bytes);
    bool entered = strata_index_insert(&set->index, address, slot);
    strata_lock_release(&set->lock);
    if (entered) {
        strata_thread *thread = strata_thread_self();
        strata_counters_add(&set->counters, thread, STRATA_RETIRED_LIVE_BYTES, (int64_t)bytes);
        strata_counters_add(&set->counters, thread, STRATA_RETIRED_LIVE_BLOCKS, 1);
    }
    return entered;
}

void strata_retired_leave(strata_retired *set, CUdeviceptr address, uint64_t bytes)
{
    strata_lock_take(&set->lock);
    strata_index_remove(&set->index, address);
    strata_lock_release(&set->lock);
    strata_thread *thread = strata_thread_self();
    strata_counters_add(&set->counters, thread, STRATA_RETIRED_LIVE_BYTES, -(int64_t)bytes);
    strata_counters_add(&set->counters, thread, STRATA_RETIRED_LIVE_BLOCKS, -1);
}

/* ---- freeing ---- */

static void count_free(strata_retired *set, const strata_block *block, int64_t sign)
{
    strata_thread *thread = strata_thread_self();
    strata_counters_add(&set->counters, thread, STRATA_RETIRED_LIVE_BYTES, -sign * (int64_t)block->bytes);
    strata_counters_add(&set->counters, thread, STRATA_RETIRED_LIVE_BLOCKS, -sign);
    strata_counters_add(&set->counters, thread, STRATA_RETIRED_BYTES, sign * (int64_t)block->bytes);
}

bool strata_retired_begin(strata_retired *set, strata_entry *entry, const strata_block *block)
{
    strata_retired_bytes *bytes = bytes_of(set, entry);
    strata_lock_take(&set->lock);
    atomic_store_explicit(&bytes->point, in_flight, memory_order_relaxed);
    bytes->start = block->address;
    bytes->length = block->bytes;
    bytes->retired = block->bytes;
    link_last(set, block->id.slot, bytes);
    bool reap = set->count >= set->reap_at;
    strata_lock_release(&set->lock);
    count_free(set, block, 1);
    return reap;
}

void strata_retired_settle(strata_retired *set, strata_entry *entry, strata_point point)
{
    atomic_store_explicit(&bytes_of(set, entry)->point, point, memory_order_release);
}

void strata_retired_revert(strata_retired *set, strata_entry *entry, const strata_block *block)
{
    strata_retired_bytes *bytes = bytes_of(set, entry);
    strata_lock_take(&set->lock);
    unlink(set, bytes);
    atomic_store_explicit(&bytes->point, 0, memory_order_relaxed);
    bytes->length = bytes->retired = 0;
    strata_lock_release(&set->lock);
    count_free(set, block, -1);
    strata_entry_revive(entry);
}

/* ---- reaping ---- */

/* Ends every block whose free is known complete; the lock is held. Returns the bytes. */
static size_t sweep(strata_retired *set)
{
    size_t freed = 0;
    for (uint32_t slot = set->first, next; slot; slot = next) {
        strata_retired_bytes *bytes = bytes_of(set, entry_of(set, slot));
        next = bytes->next;
        strata_point point = atomic_load_explicit(&bytes->point, memory_order_acquire);
        if (point == in_flight || !strata_point_known_complete(point))
            continue;
        freed += bytes->retired;
        release(set, slot, bytes->retired, STRATA_COMPLETION_FINISHED);
    }
    set->reap_at = set->count < REAP_FIRST / 2 ? REAP_FIRST : 2 * set->count;
    return freed;
}

/* The newest pending point of each stream in the list, up to a number of streams. */
static size_t pending_points(strata_retired *set, strata_point *points)
{
    size_t count = 0;
    strata_lock_take(&set->lock);
    for (uint32_t slot = set->first; slot;) {
        const strata_retired_bytes *bytes = bytes_of(set, entry_of(set, slot));
        slot = bytes->next;
        strata_point point = atomic_load_explicit(&bytes->point, memory_order_acquire);
        if (point == in_flight || strata_point_known_complete(point))
            continue;
        size_t at = 0;
        while (at < count && strata_point_timeline(points[at]) != strata_point_timeline(point))
            at++;
        if (at == STREAMS_AT_ONCE)
            continue;
        if (at == count)
            points[count++] = point;
        else if (points[at] < point)
            points[at] = point;
    }
    strata_lock_release(&set->lock);
    return count;
}

/* Asks, or waits, for one stream. */
static strata_status ask(strata_point point, strata_reap_mode mode)
{
    if (mode == STRATA_REAP_WAIT)
        return strata_point_synchronize(point);
    strata_status status = strata_timeline_close_epoch(point);
    if (status == STRATA_SUCCESS)
        strata_point_query(point);
    return status;
}

strata_status strata_retired_reap(strata_retired *set, strata_reap_mode mode, size_t *bytes)
{
    strata_point points[STREAMS_AT_ONCE];
    strata_status status = STRATA_SUCCESS;
    size_t count;
    *bytes = 0;
    do {
        count = pending_points(set, points);
        for (size_t i = 0; i < count && status == STRATA_SUCCESS; i++)
            status = ask(points[i], mode);
        strata_lock_take(&set->lock);
        *bytes += sweep(set);
        strata_lock_release(&set->lock);
    } while (count == STREAMS_AT_ONCE && mode == STRATA_REAP_WAIT && status == STRATA_SUCCESS);
    return status;
}

/* ---- looking ---- */

bool strata_retired_find(strata_retired *set, CUdeviceptr address, strata_block *out)
{
    CUdeviceptr start;
    strata_lock_take(&set->lock);
    uint32_t slot = strata_index_floor(&set->index, address, &start);
    bool found = slot && strata_entry_describe(strata_resource_table(set->owner), slot, out) &&
                 address - out->address < out->bytes;
    strata_lock_release(&set->lock);
    if (!found)
        *out = (strata_block){0};
    return found;
}

void strata_retired_usage(const strata_retired *set, strata_usage *usage)
{
    usage->live_bytes = (size_t)strata_counters_sum(&set->counters, STRATA_RETIRED_LIVE_BYTES);
    usage->live_blocks = (size_t)strata_counters_sum(&set->counters, STRATA_RETIRED_LIVE_BLOCKS);
    usage->retired_bytes = (size_t)strata_counters_sum(&set->counters, STRATA_RETIRED_BYTES);
    usage->bytes_outstanding = usage->live_bytes + usage->retired_bytes;
}
