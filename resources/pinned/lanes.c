/* Pending frees, and complete blocks that are kept whole for the next request of their size.
 *
 * A lane is some threads' share: a pair of allocation and free takes its lock twice and meets other threads seldom. A
 * poll asks the driver once for each stream, whatever the number of frees, and is made after so many frees that its
 * cost is spread over them. */
#include "core/base/error.h"
#include "core/blocks/uses.h"
#include "core/stack/completions.h"
#include "core/stack/stream_frees.h"
#include "resources/owners/pending_points.h"
#include "resources/pinned/internal.h"

enum {
    POLL_FREES = 128,             /* frees between polls, or as many bytes as a cache holds */
    CACHE_OF_SLAB = PINNED_LANES, /* a lane's cache: all lanes have a slab's bytes */
    PASSING = 4,                  /* bytes that no cache takes count this much less: they are polled for less often */
};

/* ---- points ---- */

/* Whether the block's point covers all that it waits for. The last write may come after the point on one timeline, if
 * the free named no stream: its point is then complete, or of a stream that had the timeline before. */
static bool waits_for_one(const strata_entry *entry, const pinned_bytes *bytes)
{
    const strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    return strata_point_timeline(write) == strata_point_timeline(bytes->point) &&
           strata_point_epoch(write) <= strata_point_epoch(bytes->point) &&
           !atomic_load_explicit(&entry->last_read, memory_order_relaxed) &&
           !atomic_load_explicit(&entry->more, memory_order_relaxed);
}

static strata_status check_complete(strata_point point, void *unused)
{
    (void)unused;
    return strata_point_seen_complete(point) ? STRATA_SUCCESS : STRATA_ERROR_NOT_READY;
}

/* Whether all work on a block is over. Acquires: the host may then write the memory. */
static bool is_complete(const strata_entry *entry, const pinned_bytes *bytes)
{
    return strata_point_seen_complete(bytes->point) &&
           (waits_for_one(entry, bytes) || strata_uses_visit(entry, check_complete, NULL) == STRATA_SUCCESS);
}

static void collect(pinned *self, pinned_lane *lane, strata_pending_points *found)
{
    strata_point last = 0;
    strata_spin_take(&lane->lock);
    lane->since_poll = 0;
    lane->bytes_since = 0;
    if (lane->of_one && lane->first)
        strata_pending_points_add(found, lane->newest);
    for (uint32_t slot = lane->of_one ? 0 : lane->first, next; slot; slot = next) {
        strata_entry *entry = pinned_entry(self, slot);
        const pinned_bytes *bytes = pinned_bytes_of(self, entry);
        next = bytes->next;
        if (bytes->point != last)
            strata_pending_points_add(found, bytes->point);
        last = bytes->point;
        if (!waits_for_one(entry, bytes))
            strata_uses_visit(entry, strata_pending_points_visit, found);
    }
    strata_spin_release(&lane->lock);
}

/* ---- complete frees; the lane's lock is held ---- */

static void report(const pinned *self, const strata_entry *entry, uint32_t slot, size_t bytes)
{
    const uint64_t generation = atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION;
    strata_report_completion(
        &self->resource, &(strata_completion){.kind = STRATA_COMPLETION_FINISHED,
                                              .id = {.table = strata_table_id(strata_resource_table(&self->resource)),
                                                     .slot = slot,
                                                     .generation = generation},
                                              .bytes = bytes,
                                              .last = true});
}

/* Puts a complete block into the cache, or the list of those that leave. */
static void keep_or_drop(pinned *self, pinned_lane *lane, strata_entry *entry, uint32_t slot, uint32_t *leaving)
{
    pinned_bytes *bytes = pinned_bytes_of(self, entry);
    uint32_t *list = leaving;
    if (bytes->class != PINNED_NO_CLASS && strata_entry_is_renewable(entry) &&
        lane->cached_bytes + pinned_class_bytes(bytes->class) <= self->slabs.slab_bytes / CACHE_OF_SLAB) {
        strata_entry_renew(entry, bytes);
        lane->cached_bytes += pinned_class_bytes(bytes->class);
        list = &lane->cached[bytes->class];
    }
    bytes->next = *list;
    *list = slot;
}

/* Takes all blocks of a class out of the cache. */
static void drop_class(pinned *self, pinned_lane *lane, unsigned class, uint32_t *leaving)
{
    for (uint32_t slot; (slot = lane->cached[class]);) {
        pinned_bytes *bytes = pinned_bytes_of(self, pinned_entry(self, slot));
        lane->cached[class] = bytes->next;
        lane->cached_bytes -= pinned_class_bytes(class);
        bytes->next = *leaving;
        *leaving = slot;
    }
}

/* Makes room in the cache for what the threads use now, once it is half full. */
static void drop_unwanted(pinned *self, pinned_lane *lane, uint32_t *leaving)
{
    if (lane->cached_bytes > self->slabs.slab_bytes / CACHE_OF_SLAB / 2)
        for (unsigned class = 0; class < PINNED_CLASSES; class ++)
            if (!(lane->wanted >> class & 1))
                drop_class(self, lane, class, leaving);
    lane->wanted = 0;
}

/* Finishes complete frees. Returns their bytes, and the slots that leave the lane. */
static size_t sweep(pinned *self, pinned_lane *lane, uint32_t *leaving)
{
    const bool reports = self->resource.stack->completion_sink_count != 0;
    const bool all = lane->of_one && strata_point_seen_complete(lane->newest);
    size_t freed = 0;
    uint32_t kept = 0;
    drop_unwanted(self, lane, leaving);
    for (uint32_t slot = lane->first, next; slot; slot = next) {
        strata_entry *entry = pinned_entry(self, slot);
        pinned_bytes *bytes = pinned_bytes_of(self, entry);
        next = bytes->next;
        if (!all && !is_complete(entry, bytes)) {
            kept = slot;
            continue;
        }
        if (kept)
            pinned_bytes_of(self, pinned_entry(self, kept))->next = next;
        else
            lane->first = next;
        lane->pending--;
        const size_t length = (size_t)atomic_load_explicit(&entry->bytes, memory_order_relaxed);
        freed += length;
        if (reports)
            report(self, entry, slot, length);
        keep_or_drop(self, lane, entry, slot, leaving);
    }
    lane->last = kept;
    return freed;
}

/* ---- polls ---- */

static void give_list(pinned *self, uint32_t slot)
{
    for (uint32_t next; slot; slot = next) {
        next = pinned_bytes_of(self, pinned_entry(self, slot))->next;
        pinned_memory_give(self, slot);
    }
}

static size_t finish_complete(pinned *self, pinned_lane *lane)
{
    uint32_t leaving = 0;
    strata_spin_take(&lane->lock);
    const size_t freed = sweep(self, lane, &leaving);
    strata_counters_add(&self->counters, strata_thread_current, PINNED_ENDED_BYTES, (int64_t)freed);
    strata_spin_release(&lane->lock);
    give_list(self, leaving);
    return freed;
}

static strata_status wait_for_points(const pinned *self, const strata_pending_points *found)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < found->count && status == STRATA_SUCCESS; i++)
        status = strata_point_synchronize_for(self->device, found->points[i]);
    return status;
}

/* Reaps a lane. Errors of a poll are ignored: frees that are not known to be complete stay pending. */
static strata_status reap_lane(pinned *self, pinned_lane *lane, strata_reap_mode mode, size_t *bytes)
{
    strata_pending_points found;
    strata_status status = STRATA_SUCCESS;
    found.after = 0;
    found.count = 0;
    do { /* each stream once, whatever others free meanwhile */
        strata_pending_points_next(&found);
        collect(self, lane, &found);
        if (mode == STRATA_REAP_WAIT) {
            status = wait_for_points(self, &found);
        } else {
            const size_t polled = strata_pending_points_poll(&found, self->device, 0);
            atomic_fetch_add_explicit(&self->polls, polled, memory_order_relaxed);
        }
        *bytes += finish_complete(self, lane);
    } while (strata_pending_points_is_full(&found) && status == STRATA_SUCCESS);
    return status;
}

strata_status pinned_lanes_reap(pinned *self, strata_reap_mode mode, size_t *bytes)
{
    strata_status status = STRATA_SUCCESS;
    *bytes = 0;
    for (size_t i = 0; i < PINNED_LANES && status == STRATA_SUCCESS; i++)
        status = reap_lane(self, &self->lanes[i], mode, bytes);
    return status;
}

/* ---- for allocations and frees ---- */

uint32_t pinned_lane_take(pinned *self, unsigned class)
{
    pinned_lane *lane = pinned_lane_self(self);
    strata_spin_take(&lane->lock);
    lane->wanted |= UINT64_C(1) << class;
    const uint32_t slot = lane->cached[class];
    if (__builtin_expect(slot != 0, 1)) {
        lane->cached[class] = pinned_bytes_of(self, pinned_entry(self, slot))->next;
        lane->cached_bytes -= pinned_class_bytes(class);
    }
    strata_spin_release(&lane->lock);
    return slot;
}

/* Whether a poll is due. With many frees that wait for long it is rare, as it walks over them all. */
static bool is_time_to_poll(const pinned *self, const pinned_lane *lane)
{
    return (lane->since_poll >= POLL_FREES || lane->bytes_since >= self->slabs.slab_bytes / CACHE_OF_SLAB) &&
           lane->since_poll >= lane->pending / 4;
}

/* Keeps `newest` and `of_one`. Threads of a lane may add points of one stream in another order. The lock is held. */
static void note_point(pinned_lane *lane, const strata_entry *entry, const pinned_bytes *bytes)
{
    const bool alone = waits_for_one(entry, bytes);
    if (!lane->first) {
        lane->newest = bytes->point;
        lane->of_one = alone;
    } else if (!alone || strata_point_timeline(bytes->point) != strata_point_timeline(lane->newest)) {
        lane->of_one = false;
    } else if (bytes->point > lane->newest) {
        lane->newest = bytes->point;
    }
}

void pinned_lane_add(pinned *self, strata_entry *entry, uint32_t slot, strata_point point)
{
    pinned_lane *lane = pinned_lane_self(self);
    pinned_bytes *bytes = pinned_bytes_of(self, entry);
    bytes->point = point;
    bytes->next = 0;
    strata_spin_take(&lane->lock);
    note_point(lane, entry, bytes);
    if (lane->first)
        pinned_bytes_of(self, pinned_entry(self, lane->last))->next = slot;
    else
        lane->first = slot;
    lane->last = slot;
    lane->pending++;
    lane->since_poll++;
    lane->bytes_since +=
        atomic_load_explicit(&entry->bytes, memory_order_relaxed) / (bytes->class == PINNED_NO_CLASS ? PASSING : 1);
    const bool poll = is_time_to_poll(self, lane);
    strata_spin_release(&lane->lock);
    size_t freed = 0;
    if (__builtin_expect(poll, 0))
        reap_lane(self, lane, STRATA_REAP_FINISHED, &freed);
}

/* ---- caches ---- */

static void flush_lane(pinned *self, pinned_lane *lane)
{
    uint32_t leaving = 0;
    strata_spin_take(&lane->lock);
    for (unsigned class = 0; class < PINNED_CLASSES; class ++)
        drop_class(self, lane, class, &leaving);
    strata_spin_release(&lane->lock);
    give_list(self, leaving);
}

void pinned_lanes_flush(pinned *self)
{
    for (size_t i = 0; i < PINNED_LANES; i++)
        flush_lane(self, &self->lanes[i]);
}

size_t pinned_lanes_cached(pinned *self)
{
    size_t bytes = 0;
    for (size_t i = 0; i < PINNED_LANES; i++) {
        strata_spin_take(&self->lanes[i].lock);
        bytes += (size_t)self->lanes[i].cached_bytes;
        strata_spin_release(&self->lanes[i].lock);
    }
    return bytes;
}

typedef struct summed {
    strata_summed_free each;
    uint16_t counted; /* timeline whose points were counted; 0: none */
} summed;

static strata_status sum_point(strata_point point, void *data)
{
    summed *to = data;
    return strata_point_timeline(point) == to->counted ? STRATA_SUCCESS : strata_stream_sums_visit(point, &to->each);
}

static void sum_lane(pinned *self, pinned_lane *lane, strata_stream_sums *sums)
{
    strata_spin_take(&lane->lock);
    for (uint32_t slot = lane->first; slot;) {
        strata_entry *entry = pinned_entry(self, slot);
        const pinned_bytes *bytes = pinned_bytes_of(self, entry);
        summed to = {.each = {.sums = sums, .bytes = atomic_load_explicit(&entry->bytes, memory_order_relaxed)},
                     .counted = strata_point_known_complete(bytes->point) ? 0 : strata_point_timeline(bytes->point)};
        strata_stream_sums_add(sums, bytes->point, to.each.bytes);
        strata_uses_visit(entry, sum_point, &to);
        slot = bytes->next;
    }
    strata_spin_release(&lane->lock);
}

void pinned_lanes_sum(pinned *self, strata_stream_sums *sums)
{
    for (size_t i = 0; i < PINNED_LANES; i++)
        sum_lane(self, &self->lanes[i], sums);
}
