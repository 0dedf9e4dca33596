/* Orders the uses of a block between streams.
 *
 * An entry stores its last write as one point, and the reads since then: one in the entry, others in an array beside
 * it, as a rule one for each stream, in no order. Two writers prepared at the same time may leave two writes; the array
 * has those too, marked as writes.
 *
 * A finished write drops points that are complete, of its stream, or that its stream is known to come after; a finished
 * read drops those of its stream. A read that began between a writer's prepare and its finish is none of these, and
 * stays.
 *
 * Fast path: a block used on one known stream only. Nothing is waited for, nothing changes until an event is recorded
 * there, and no lock is taken. */
#include "core/blocks/uses.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/stream_wait.h"
#include "core/streams/timeline.h"
#include "core/streams/use_records.h"

#include <string.h>

enum { POINTS_AT_ONCE = 32 };

typedef struct entry_points {
    strata_point write, read;
    strata_more_points *more;
} entry_points;

static entry_points load_points(const strata_entry *entry)
{
    return (entry_points){
        .write = atomic_load_explicit(&entry->last_write, memory_order_relaxed),
        .read = atomic_load_explicit(&entry->last_read, memory_order_relaxed),
        .more = atomic_load_explicit(&entry->more, memory_order_relaxed),
    };
}

static inline uint32_t most_points(const entry_points *points)
{
    return 2 + (points->more ? points->more->count : 0);
}

/* Roughly newest first: waiting for one point often covers others, and reads cover the write that they came after. */
static inline strata_point point_at(const entry_points *points, uint32_t index)
{
    uint32_t more = most_points(points) - 2;
    if (index < more)
        return points->more->points[more - 1 - index];
    return index == more ? points->read : points->write;
}

static bool of_timeline(strata_point point, uint16_t timeline)
{
    return strata_point_timeline(point) == timeline;
}

static inline bool only_of(const entry_points *points, uint16_t timeline)
{
    return of_timeline(points->write, timeline) && (!points->read || of_timeline(points->read, timeline)) &&
           !points->more;
}

/* ---- pins ---- */

static strata_status refuse_stale(const strata_table *table, const strata_block *block)
{
    return strata_block_refuse(table, block, STRATA_ERROR_USE_AFTER_FREE);
}

static inline bool lives(const strata_entry *entry, uint64_t generation)
{
    return strata_word_lives(atomic_load_explicit(&entry->word, memory_order_acquire), generation);
}

static inline bool is_creator(const strata_entry *entry)
{
    const strata_thread *thread = strata_thread_current;
    return thread && thread->index && atomic_load_explicit(&entry->creator, memory_order_relaxed) == thread->index;
}

/* The word of the creating thread's pins, with the generation; no pins if it has those of another generation. */
static inline uint64_t load_own_pins(const strata_entry *entry, uint64_t generation)
{
    uint64_t pins = atomic_load_explicit(&entry->own_pins, memory_order_relaxed);
    return pins >> STRATA_WORD_GENERATION == generation ? pins : generation << STRATA_WORD_GENERATION;
}

/* For the thread that created the live block. False if there are too many pins. */
static inline bool pin_own(strata_entry *entry, uint64_t generation)
{
    uint64_t pins = load_own_pins(entry, generation);
    if (__builtin_expect((pins & STRATA_OWN_PINS_MASK) == STRATA_OWN_PINS_MASK, 0))
        return false;
    atomic_store_explicit(&entry->own_pins, pins + 1, memory_order_release);
    return true;
}

static inline void unpin_own(strata_entry *entry)
{
    const uint64_t pins = atomic_load_explicit(&entry->own_pins, memory_order_relaxed);
    const bool last = (pins & STRATA_OWN_PINS_MASK) == 1;
    atomic_store_explicit(&entry->own_pins, last ? 0 : pins - 1, memory_order_release);
}

static __attribute__((cold)) strata_status refuse_pin(const strata_block *block)
{
    return strata_fail(STRATA_ERROR_BUSY,
                       "block 0x%llx (tag \"%s\", generation %llu) has too many unfinished uses; is a finish missing?",
                       (unsigned long long)block->address, strata_tag_name(block->tag),
                       (unsigned long long)block->id.generation);
}

static strata_status pin(const strata_table *table, strata_entry *entry, const strata_block *block)
{
    uint64_t generation = block->id.generation, word = atomic_load_explicit(&entry->word, memory_order_acquire);
    if (strata_word_lives(word, generation) && is_creator(entry))
        return pin_own(entry, generation) ? STRATA_SUCCESS : refuse_pin(block);
    for (unsigned spins = 0; strata_word_lives(word, generation);) {
        if ((word & STRATA_WORD_PINS_MASK) == STRATA_WORD_PINS_MASK)
            return refuse_pin(block);
        if (word & STRATA_WORD_LOCKED) {
            strata_backoff(&spins);
            word = atomic_load_explicit(&entry->word, memory_order_acquire);
        } else if (atomic_compare_exchange_weak_explicit(&entry->word, &word, word + STRATA_WORD_PIN,
                                                         memory_order_acquire, memory_order_acquire)) {
            return STRATA_SUCCESS;
        }
    }
    return refuse_stale(table, block);
}

/* False if there is no pin that this thread may drop: its own, or a shared one, of any thread. */
static bool unpin(strata_entry *entry, uint64_t generation)
{
    if (is_creator(entry)) {
        if (!strata_entry_own_pins(entry, generation))
            return false;
        unpin_own(entry);
        return true;
    }
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    for (unsigned spins = 0; strata_word_lives(word, generation) && (word & STRATA_WORD_PINS_MASK);) {
        if (word & STRATA_WORD_LOCKED) {
            strata_backoff(&spins);
            word = atomic_load_explicit(&entry->word, memory_order_relaxed);
        } else if (atomic_compare_exchange_weak_explicit(&entry->word, &word, word - STRATA_WORD_PIN,
                                                         memory_order_release, memory_order_relaxed)) {
            return true;
        }
    }
    return false;
}

/* Whether the block has a pin that this thread may drop. Another thread's shared pin looks like this thread's. */
static bool is_pinned(const strata_entry *entry, uint64_t generation)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
    if (!strata_word_lives(word, generation))
        return false;
    if (!is_creator(entry))
        return (word & STRATA_WORD_PINS_MASK) != 0;
    return strata_entry_own_pins(entry, generation) != 0;
}

/* ---- room for points ---- */

/* Makes room for `extra` further points; false without host memory. The array is read only under the entry's lock, so
 * an outgrown one is freed at once. */
static bool reserve(strata_entry *entry, uint64_t generation, uint32_t extra)
{
    if (!strata_entry_lock(entry, generation))
        return true; /* stale: the next check raises it */
    const strata_more_points *now = atomic_load_explicit(&entry->more, memory_order_relaxed);
    uint32_t wanted = (now ? now->count : 0) + extra;
    bool enough = now && now->capacity >= wanted;
    strata_entry_unlock(entry);
    if (enough)
        return true;
    uint32_t capacity = wanted < 6 ? 6 : 2 * wanted;
    strata_more_points *larger = strata_host_zalloc(sizeof *larger + capacity * sizeof larger->points[0]);
    if (!larger)
        return false;
    larger->capacity = capacity;
    strata_more_points *spare = larger;
    if (strata_entry_lock(entry, generation)) {
        strata_more_points *old = atomic_load_explicit(&entry->more, memory_order_relaxed);
        if (!old || old->capacity < capacity) {
            if (old) {
                larger->count = old->count;
                memcpy(larger->points, old->points, old->count * sizeof old->points[0]);
            }
            atomic_store_explicit(&entry->more, larger, memory_order_relaxed);
            spare = old;
        }
        strata_entry_unlock(entry);
    }
    strata_host_free(spare);
    return true;
}

/* ---- prepare ---- */

/* Copies the points that a use with `access` must come after. If they do not fit it copies none, and *count is an upper
 * bound of their number. False: the identity is stale. */
static bool copy_points(strata_entry *entry, uint64_t generation, strata_access access, strata_point *points,
                        uint32_t capacity, uint32_t *count)
{
    if (!strata_entry_lock(entry, generation))
        return false;
    entry_points now = load_points(entry);
    uint32_t most = most_points(&now);
    *count = most;
    if (most <= capacity) {
        *count = 0;
        for (uint32_t i = 0; i < most; i++) {
            strata_point point = point_at(&now, i);
            if (point && (access & STRATA_ACCESS_WRITE || strata_point_writes(point)))
                points[(*count)++] = point;
        }
    }
    strata_entry_unlock(entry);
    return true;
}

/* The stream, or with NULL the calling thread, waits for the points that a use with `access` must come after. The
 * program does not order uses recorded meanwhile with this one. */
static strata_status wait_for_points(const strata_table *table, strata_entry *entry, const strata_block *block,
                                     const strata_stream_ref *stream, strata_access access)
{
    strata_point few[POINTS_AT_ONCE];
    strata_point *points = few;
    uint32_t capacity = POINTS_AT_ONCE, count = 0;
    strata_status status = STRATA_SUCCESS;
    for (;;) {
        if (!copy_points(entry, block->id.generation, access, points, capacity, &count)) {
            status = refuse_stale(table, block);
            goto done;
        }
        if (count <= capacity)
            break;
        if (points != few)
            strata_host_free(points);
        capacity = 2 * count;
        points = strata_host_zalloc(capacity * sizeof *points);
        if (!points)
            return strata_fail_host_memory("the uses of a block");
    }
    for (uint32_t i = 0; i < count && status == STRATA_SUCCESS; i++)
        status =
            stream ? strata_timeline_order(stream, points[i]) : strata_point_synchronize_for(table->device, points[i]);
done:
    if (points != few)
        strata_host_free(points);
    return status;
}

static uint32_t uses_under_way(const strata_entry *entry)
{
    uint64_t word = atomic_load_explicit(&entry->word, memory_order_relaxed);
    uint64_t own = atomic_load_explicit(&entry->own_pins, memory_order_relaxed);
    return (uint32_t)((word & STRATA_WORD_PINS_MASK) / STRATA_WORD_PIN + (own & STRATA_OWN_PINS_MASK));
}

/* How many points the array may need room for: the two in the entry, and one for each use in progress. */
static uint32_t points_to_come(const strata_entry *entry)
{
    return uses_under_way(entry) + 2;
}

/* Whether recording the use may need the array. A single writer comes after all points that it waited for; a reader
 * needs the array if another stream's read is in the entry. */
static bool may_need_room(const strata_entry *entry, const entry_points *points, uint16_t timeline,
                          strata_access access)
{
    if (points->more || uses_under_way(entry) > 1)
        return true;
    return !(access & STRATA_ACCESS_WRITE) && points->read && !of_timeline(points->read, timeline);
}

/* Makes the stream wait, after making room for the use's record. */
static strata_status prepare_pinned(strata_table *table, strata_entry *entry, const strata_block *block,
                                    const strata_stream_ref *stream, strata_access access)
{
    entry_points points = load_points(entry);
    if (only_of(&points, stream->timeline->number))
        return STRATA_SUCCESS;
    if (may_need_room(entry, &points, stream->timeline->number, access) &&
        !reserve(entry, block->id.generation, points_to_come(entry)))
        return strata_fail_host_memory("the uses of a block");
    return wait_for_points(table, entry, block, stream, access);
}

__attribute__((noinline)) static strata_status prepare_slow(strata_table *table, strata_entry *entry,
                                                            const strata_block *block, const strata_stream_ref *stream,
                                                            strata_access access)
{
    /* The thread gets its number before it pins: a later number could be that of the ended thread that created the
     * block, and the pin would be looked for in the wrong place. */
    if (!strata_thread_self())
        return strata_fail_host_memory("a thread's state");
    strata_status status = pin(table, entry, block);
    if (status != STRATA_SUCCESS)
        return status;
    status = prepare_pinned(table, entry, block, stream, access);
    if (status != STRATA_SUCCESS)
        unpin(entry, block->id.generation);
    return status;
}

strata_status strata_block_prepare_use(strata_resource *owner, const strata_block *block, CUstream handle,
                                       strata_access access)
{
    strata_table *table = strata_resource_table(owner);
    strata_entry *entry = strata_table_lookup(table, block->id);
    if (__builtin_expect(!entry || !lives(entry, block->id.generation), 0))
        return refuse_stale(table, block);
    strata_stream_ref stream;
    strata_status status = strata_stream_resolve(table->device, handle, &stream);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    entry_points points = load_points(entry);
    if (only_of(&points, stream.timeline->number) && is_creator(entry) && pin_own(entry, block->id.generation))
        return STRATA_SUCCESS;
    return prepare_slow(table, entry, block, &stream, access);
}

/* ---- finish ---- */

static void compact(strata_more_points *more, const strata_use_record *record, const strata_clock *clock)
{
    uint32_t kept = 0;
    for (uint32_t i = 0; more && i < more->count; i++)
        if (!strata_use_record_follows(record, clock, more->points[i]))
            more->points[kept++] = more->points[i];
    if (more)
        more->count = kept;
}

static bool append(strata_more_points *more, strata_point point)
{
    if (!more || more->count == more->capacity)
        return false;
    more->points[more->count++] = point;
    return true;
}

/* Records a write at `point`. The entry is locked. False if there is no room; then only points that can be dropped are
 * gone. */
static bool record_write(strata_entry *entry, const strata_use_record *record, const strata_clock *clock,
                         strata_point point)
{
    entry_points now = load_points(entry);
    bool keep_write = !strata_use_record_follows(record, clock, now.write);
    bool keep_read = now.read && !strata_use_record_follows(record, clock, now.read);
    compact(now.more, record, clock);
    uint32_t room = now.more ? now.more->capacity - now.more->count : 0;
    if ((uint32_t)keep_write > room)
        return false;
    if (keep_write)
        append(now.more, now.write);
    atomic_store_explicit(&entry->last_write, point | STRATA_POINT_WRITE, memory_order_relaxed);
    if (!keep_read)
        atomic_store_explicit(&entry->last_read, 0, memory_order_relaxed);
    return true;
}

static bool record_read(strata_entry *entry, strata_point point)
{
    entry_points now = load_points(entry);
    uint16_t timeline = strata_point_timeline(point);
    if (!now.read || of_timeline(now.read, timeline) || strata_point_known_complete(now.read)) {
        atomic_store_explicit(&entry->last_read, point, memory_order_relaxed);
        return true;
    }
    uint32_t kept = 0;
    for (uint32_t i = 0; now.more && i < now.more->count; i++) {
        strata_point other = now.more->points[i];
        bool replaced = of_timeline(other, timeline) && !strata_point_writes(other);
        if (!replaced && !strata_point_known_complete(other))
            now.more->points[kept++] = other;
    }
    if (now.more)
        now.more->count = kept;
    if (append(now.more, point))
        return true;
    if (!of_timeline(now.write, timeline))
        return false;
    /* No room, but the last write is of the same stream: a later point covers both, and makes readers wait longer. */
    atomic_store_explicit(&entry->last_write, point | STRATA_POINT_WRITE, memory_order_relaxed);
    return true;
}

static strata_status record_use(strata_table *table, strata_entry *entry, const strata_block *block,
                                const strata_use_record *record, strata_access access)
{
    strata_point point = strata_timeline_now(record->stream.timeline);
    entry_points points = load_points(entry);
    if (!atomic_load_explicit(&entry->touched, memory_order_relaxed))
        atomic_store_explicit(&entry->touched, true, memory_order_relaxed);
    if (strata_uses_are_noted(entry, point, access))
        return STRATA_SUCCESS;
    bool alone = only_of(&points, record->stream.timeline->number);
    strata_clock *clock = alone ? NULL : strata_use_record_clock(record);
    strata_status status = STRATA_SUCCESS;
    for (bool recorded = false; !recorded && status == STRATA_SUCCESS;) {
        if (!strata_entry_lock(entry, block->id.generation)) {
            status = refuse_stale(table, block);
            break;
        }
        point = strata_timeline_now(record->stream.timeline); /* not before any stored point, nor the clock */
        recorded = access & STRATA_ACCESS_WRITE ? record_write(entry, record, clock, point) : record_read(entry, point);
        strata_entry_unlock(entry);
        if (!recorded && !reserve(entry, block->id.generation, points_to_come(entry)))
            status = strata_fail_host_memory("the uses of a block");
    }
    strata_use_record_clock_done(record, clock);
    return status;
}

/* ---- uses that cannot be recorded ---- */

/* The later point of two of one timeline; a write if either is. */
static strata_point join(strata_point one, strata_point other)
{
    return (strata_point_epoch(other) > strata_point_epoch(one) ? other : one) | ((one | other) & STRATA_POINT_WRITE);
}

/* Adds a point, or joins it with one of its timeline. False if there is no room. */
static bool add_point(strata_more_points *more, strata_point point)
{
    for (uint32_t i = 0; more && i < more->count; i++)
        if (of_timeline(more->points[i], strata_point_timeline(point))) {
            more->points[i] = join(more->points[i], point);
            return true;
        }
    return append(more, point);
}

/* A write becomes the last one, beside the one before, which it is not known to come after. The entry is locked. */
static bool add_uncovered(strata_entry *entry, strata_point point)
{
    const entry_points now = load_points(entry);
    if (!strata_point_writes(point))
        return add_point(now.more, point);
    const bool joins = of_timeline(now.write, strata_point_timeline(point));
    if (!joins && !add_point(now.more, now.write))
        return false;
    atomic_store_explicit(&entry->last_write, joins ? join(now.write, point) : point, memory_order_relaxed);
    return true;
}

static void note_uncovered(strata_entry *entry, uint64_t generation, strata_point point)
{
    for (bool added = false; !added;) {
        if (!strata_entry_lock(entry, generation))
            return;
        added = add_uncovered(entry, point);
        atomic_store_explicit(&entry->touched, true, memory_order_relaxed);
        strata_entry_unlock(entry);
        if (!added && !reserve(entry, generation, points_to_come(entry)))
            return;
    }
}

/* Leaves a use uncovered whose stream is not known, and may be any device's: a wait for all of them completes it.
 * Without host memory it is missed. */
static void leave_unidentified(strata_entry *entry, const strata_block *block, strata_access access)
{
    for (int ordinal = 0; ordinal < STRATA_DEVICE_LIMIT; ordinal++) {
        strata_device *device = strata_device_if_open(ordinal);
        if (!device || strata_device_is_lost(device))
            continue;
        const strata_point point = strata_stream_leave_unidentified(device);
        if (point)
            note_uncovered(entry, block->id.generation,
                           access & STRATA_ACCESS_WRITE ? point | STRATA_POINT_WRITE : point);
    }
}

/* For a use that could not be noted, because of `failure`: waits for its stream, or leaves it uncovered. */
static __attribute__((cold)) strata_status wait_or_leave(const strata_table *table, strata_entry *entry,
                                                         const strata_block *block, CUstream handle,
                                                         strata_access access, strata_status failure)
{
    const strata_status status = strata_stream_wait_instead(table->device, handle, failure);
    if (status != STRATA_SUCCESS && strata_stream_wait_can_help(failure))
        leave_unidentified(entry, block, access);
    return status;
}

/* ---- recording ---- */

/* *noted: the entry has the use; without its event it is uncovered. */
static strata_status record_on(strata_table *table, strata_entry *entry, const strata_block *block,
                               const strata_stream_ref *stream, strata_access access, bool *noted)
{
    strata_use_record record;
    strata_status status = strata_use_record_begin_on(&record, stream);
    *noted = false;
    if (status != STRATA_SUCCESS)
        return status;
    status = record_use(table, entry, block, &record, access);
    *noted = status == STRATA_SUCCESS;
    strata_status end = strata_use_record_end(&record);
    return status == STRATA_SUCCESS ? end : status;
}

static strata_status record_or_wait(strata_table *table, strata_entry *entry, const strata_block *block,
                                    const strata_stream_ref *stream, strata_access access)
{
    /* no driver call; preparing made room */
    const bool plain = stream->known && !strata_timeline_is_early(stream->timeline);
    if (!plain)
        strata_error_suppress_begin();
    bool noted;
    strata_status status = record_on(table, entry, block, stream, access, &noted);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        status = noted ? strata_stream_wait_unmarked(stream, status)
                       : wait_or_leave(table, entry, block, stream->handle, access, status);
    if (!plain)
        strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Whether the pin is the thread's own and noting the use changes nothing in the entry. */
static inline bool finish_is_fast(const strata_entry *entry, uint64_t generation, strata_point point,
                                  strata_access access)
{
    return is_creator(entry) && strata_entry_own_pins(entry, generation) && strata_uses_are_noted(entry, point, access);
}

static __attribute__((cold)) strata_status refuse_unprepared(const strata_block *block)
{
    return strata_fail(
        STRATA_ERROR_STREAM_MISUSE,
        "finish without prepare: this thread has no prepared use of block 0x%llx (tag \"%s\", generation %llu)",
        (unsigned long long)block->address, strata_tag_name(block->tag), (unsigned long long)block->id.generation);
}

/* `stream` is NULL if the work was not submitted. */
__attribute__((noinline)) static strata_status finish_slow(strata_table *table, strata_entry *entry,
                                                           const strata_block *block, const strata_stream_ref *stream,
                                                           strata_access access)
{
    if (!is_pinned(entry, block->id.generation))
        return refuse_unprepared(block);
    strata_status status = stream ? record_or_wait(table, entry, block, stream, access) : STRATA_SUCCESS;
    unpin(entry, block->id.generation);
    return status;
}

/* As strata_stream_identify. After a failure errors stay suppressed, until finish_unidentified. */
static __attribute__((noinline)) strata_status identify_to_finish(strata_device *device, CUstream handle,
                                                                  strata_stream_ref *stream)
{
    strata_error_suppress_begin();
    const strata_status status = strata_stream_identify(device, handle, stream);
    if (status == STRATA_SUCCESS)
        strata_error_suppress_end(false);
    return status;
}

/* The struct is stored as a whole: finish_slow's callees load it in larger parts. */
static inline strata_status resolve_to_finish(strata_device *device, CUstream handle, strata_stream_ref *out)
{
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *out = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return __builtin_expect(timeline != NULL, 1) ? STRATA_SUCCESS : identify_to_finish(device, handle, out);
}

/* Finishes a use by waiting for the stream. `failure`: why the stream was not identified. */
static __attribute__((cold)) strata_status finish_unidentified(strata_table *table, strata_entry *entry,
                                                               const strata_block *block, CUstream handle,
                                                               strata_access access, strata_status failure)
{
    strata_status status;
    if (is_pinned(entry, block->id.generation)) {
        status = wait_or_leave(table, entry, block, handle, access, failure);
        unpin(entry, block->id.generation);
    } else {
        status = refuse_unprepared(block);
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

strata_status strata_block_finish_use(strata_resource *owner, const strata_block *block, CUstream handle,
                                      strata_access access)
{
    strata_table *table = strata_resource_table(owner);
    strata_entry *entry = strata_table_lookup(table, block->id);
    if (__builtin_expect(!entry || !lives(entry, block->id.generation), 0))
        return refuse_stale(table, block);
    if (__builtin_expect(access == STRATA_ACCESS_NONE, 0))
        return finish_slow(table, entry, block, NULL, access);
    strata_stream_ref stream;
    strata_status status = resolve_to_finish(table->device, handle, &stream);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return finish_unidentified(table, entry, block, handle, access, status);
    strata_point point = strata_timeline_now(stream.timeline);
    bool fast = finish_is_fast(entry, block->id.generation, point, access) &&
                (stream.known ? !strata_timeline_is_early(stream.timeline) : strata_timeline_rerecord(&stream, point));
    if (__builtin_expect(!fast, 0))
        return finish_slow(table, entry, block, &stream, access);
    unpin_own(entry);
    return STRATA_SUCCESS;
}

/* `leave`: the work is left uncovered if its stream is not identified, nor waited for. */
static strata_status record_on_handle(strata_table *table, const strata_block *block, CUstream handle,
                                      strata_access access, bool leave)
{
    strata_entry *entry = strata_table_lookup(table, block->id);
    if (!entry || !lives(entry, block->id.generation))
        return refuse_stale(table, block);
    strata_stream_ref stream;
    strata_error_suppress_begin();
    strata_status status = strata_stream_resolve(table->device, handle, &stream);
    if (status == STRATA_SUCCESS)
        status = record_or_wait(table, entry, block, &stream, access);
    else
        status = leave ? wait_or_leave(table, entry, block, handle, access, status)
                       : strata_stream_wait_instead(table->device, handle, status);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

strata_status strata_block_record_use(strata_resource *owner, const strata_block *block, CUstream handle,
                                      strata_access access)
{
    if (!owner || !owner->stack || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_block_record_use: owner or block is NULL");
    return record_on_handle(strata_resource_table(owner), block, handle, access, true);
}

strata_status strata_uses_record_free(strata_table *table, const strata_block *block, CUstream handle)
{
    return record_on_handle(table, block, handle, STRATA_ACCESS_READ, false);
}

strata_status strata_uses_wait(strata_table *table, const strata_block *block, const strata_stream_ref *stream,
                               strata_access access)
{
    strata_entry *entry = strata_table_lookup(table, block->id);
    if (!entry || !lives(entry, block->id.generation))
        return refuse_stale(table, block);
    return prepare_pinned(table, entry, block, stream, access);
}

strata_status strata_uses_note(strata_table *table, const strata_block *block, const strata_stream_ref *stream,
                               strata_access access)
{
    strata_entry *entry = strata_table_lookup(table, block->id);
    if (!entry || !lives(entry, block->id.generation))
        return refuse_stale(table, block);
    return record_or_wait(table, entry, block, stream, access);
}

/* Whether the entry has the point, or a later one of its timeline; true also if the point is complete. */
static bool covers(const entry_points *points, strata_point point)
{
    for (uint32_t i = 0; i < most_points(points); i++) {
        const strata_point one = point_at(points, i);
        if (one && of_timeline(one, strata_point_timeline(point)) &&
            strata_point_epoch(one) >= strata_point_epoch(point))
            return true;
    }
    return strata_point_known_complete(point);
}

strata_status strata_uses_note_point(strata_table *table, const strata_block *block, strata_point point)
{
    strata_entry *entry = strata_table_lookup(table, block->id);
    for (bool noted = !point; !noted;) {
        if (!entry || !strata_entry_lock(entry, block->id.generation))
            return refuse_stale(table, block);
        const entry_points now = load_points(entry);
        noted = covers(&now, point) || record_read(entry, point);
        strata_entry_unlock(entry);
        if (!noted && !reserve(entry, block->id.generation, points_to_come(entry)))
            return strata_fail_host_memory("the uses of a block");
    }
    return STRATA_SUCCESS;
}

/* A new array for a copy of `more`, or NULL if there is none. False without host memory. */
static bool copy_more(const strata_more_points *more, strata_more_points **out)
{
    *out = NULL;
    if (!more || !more->count)
        return true;
    const size_t bytes = sizeof *more + more->count * sizeof more->points[0];
    strata_more_points *copy = strata_host_zalloc(bytes);
    if (!copy)
        return false;
    memcpy(copy, more, bytes);
    copy->capacity = more->count;
    *out = copy;
    return true;
}

bool strata_uses_inherit_slow(strata_entry *source, uint64_t generation, strata_entry *target)
{
    strata_more_points *more;
    if (!strata_entry_lock(source, generation))
        return true;
    const entry_points points = load_points(source);
    const bool copied = copy_more(points.more, &more);
    strata_entry_unlock(source);
    if (!copied)
        return false;
    atomic_store_explicit(&target->last_write, points.write, memory_order_relaxed);
    atomic_store_explicit(&target->last_read, points.read, memory_order_relaxed);
    atomic_store_explicit(&target->more, more, memory_order_relaxed);
    return true;
}

strata_status strata_uses_synchronize(strata_table *table, const strata_block *block)
{
    strata_entry *entry = strata_table_lookup(table, block->id);
    return entry ? wait_for_points(table, entry, block, NULL, STRATA_ACCESS_WRITE) : refuse_stale(table, block);
}

bool strata_uses_untouched(const strata_table *table, strata_block_id id)
{
    const strata_entry *entry = strata_table_lookup(table, id);
    if (!entry || strata_table_state(table, id) != STRATA_BLOCK_LIVE)
        return false;
    return !atomic_load_explicit(&entry->touched, memory_order_relaxed);
}

strata_point strata_uses_last_write(const strata_table *table, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(table, id);
    if (!entry || !strata_entry_lock(entry, id.generation))
        return 0;
    const strata_point write = atomic_load_explicit(&entry->last_write, memory_order_relaxed);
    strata_entry_unlock(entry);
    return write & ~STRATA_POINT_WRITE;
}

void strata_uses_forget_touch(strata_table *table, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(table, id);
    if (entry)
        atomic_store_explicit(&entry->touched, false, memory_order_relaxed);
}

strata_status strata_uses_end_of_alloc_stream(const strata_entry *entry, const strata_block *block, strata_point *end)
{
    uint16_t alloc_timeline = atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed);
    *end = 0;
    if (strata_timeline_is_known(alloc_timeline, atomic_load_explicit(&entry->alloc_incarnation, memory_order_relaxed)))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "block 0x%llx (tag \"%s\", generation %llu) was freed with STRATA_STREAM_GONE, but its "
                           "stream is still known; free it on that stream",
                           (unsigned long long)block->address, strata_tag_name(block->tag),
                           (unsigned long long)block->id.generation);
    *end = strata_timeline_last_closed(alloc_timeline);
    return STRATA_SUCCESS;
}

strata_status strata_uses_visit(const strata_entry *entry, strata_status (*visit)(strata_point point, void *data),
                                void *data)
{
    entry_points points = load_points(entry);
    for (uint32_t i = 0; i < most_points(&points); i++) {
        strata_point point = point_at(&points, i);
        strata_status status = point ? visit(point, data) : STRATA_SUCCESS;
        if (status != STRATA_SUCCESS)
            return status;
    }
    return STRATA_SUCCESS;
}

strata_status strata_point_order(strata_point point, void *stream)
{
    return strata_timeline_order(stream, point);
}

strata_status strata_point_try_order(strata_point point, void *stream)
{
    return strata_timeline_wait(stream, point);
}

strata_status strata_point_wait(strata_point point, void *device)
{
    return strata_point_synchronize_for(device, point);
}
