/* pool: device memory in large pieces, handed out without a driver call.
 *
 * A request that a thread's cache serves (resources/pool/cache.h) makes a block of a piece that is there already; every
 * other goes the ways of resources/pool/find.c. A free gives the piece to the thread's cache, or to the heap with what
 * it waits for (resources/pool/points.h). For whoever counts above, a freed block's bytes are free at once: the pool
 * hands them out again, in order. */
#include "core/block_paths.h"
#include "core/error.h"
#include "core/memory.h"
#include "core/own_stream.h"
#include "resources/pool/cache.h"
#include "resources/pool/ops.h"

#include <limits.h>

enum { MOST_ALIGNMENT = 1 << 30 };

/* Where nobody says how large: the largest frame, and the slack in thousandths, of memory that can be moved and of such
 * as stays. */
enum {
    FRAME_MAPPED = 16 << 20,
    FRAME_STILL = 64 << 20,
    SLACK_MAPPED = 44,
    SLACK_STILL = 500,
};

/* ---- blocks ---- */

static inline void count_live(pool_cell *cell, int64_t bytes, int64_t blocks)
{
    atomic_store_explicit(&cell->live_bytes, atomic_load_explicit(&cell->live_bytes, memory_order_relaxed) + bytes,
                          memory_order_relaxed);
    atomic_store_explicit(&cell->live_blocks, atomic_load_explicit(&cell->live_blocks, memory_order_relaxed) + blocks,
                          memory_order_relaxed);
}

/* The same for a thread that may have no cell: there are no more numbers, or there is no host memory. */
static void count_live_somewhere(pool *self, pool_cell *cell, int64_t bytes, int64_t blocks)
{
    if (cell) {
        count_live(cell, bytes, blocks);
        return;
    }
    atomic_fetch_add_explicit(&self->live_bytes_elsewhere, bytes, memory_order_relaxed);
    atomic_fetch_add_explicit(&self->live_blocks_elsewhere, blocks, memory_order_relaxed);
}

static inline pool_cell *my_cell(pool *self)
{
    return strata_cells_mine(&self->cells, strata_thread_current);
}

/* Makes a block of a piece of the caller's; its points are paid. */
static inline void publish(pool *self, uint32_t slot, strata_timeline *timeline, bool known,
                           const strata_request *request, strata_block *out)
{
    strata_entry *entry = pool_entry(&self->heap, slot);
    strata_block_fill(out, request, pool_address_of(entry), (size_t)pool_bytes_of(entry),
                      request->alignment > POOL_GRANULE ? request->alignment : POOL_GRANULE);
    strata_entry_zero_layers(entry, pool_piece_in(&self->heap, entry));
    strata_entry_publish(self->heap.table, slot, timeline, known, out);
}

/* ---- allocating ---- */

static void give_piece(pool *self, uint32_t slot)
{
    strata_spin_take(&self->lock);
    pool_heap_give(&self->heap, slot, POOL_FREE);
    strata_spin_release(&self->lock);
}

/* A piece whose entry has had all its blocks gets another one. False without host memory: then it is free again. */
static bool renew_piece(pool *self, uint32_t *slot)
{
    if (__builtin_expect(strata_entry_is_renewable(pool_entry(&self->heap, *slot)), 1))
        return true;
    strata_spin_take(&self->lock);
    const uint32_t number = pool_heap_renumber(&self->heap, *slot);
    if (!number)
        pool_heap_give(&self->heap, *slot, POOL_FREE);
    strata_spin_release(&self->lock);
    *slot = number;
    return number != 0;
}

static strata_status check_request(const pool *self, const strata_request *request)
{
    strata_status status = strata_check_alignment(&self->resource, request, MOST_ALIGNMENT);
    if (status != STRATA_SUCCESS || request->bytes <= self->pages.bytes)
        return status;
    return strata_fail_allocation_in_steps((strata_resource *)&self->resource, request, CUDA_ERROR_OUT_OF_MEMORY,
                                           self->pages.source->make_call, self->pages.granule);
}

static strata_status make_wait(strata_point point, void *stream)
{
    return strata_timeline_wait(stream, point);
}

/* Begins the note of an allocation, with the stream's timeline as it is now. The timeline of an unknown stream may have
 * gone to another one since the piece was found by its number: then what the piece still says is waited for. */
static strata_status begin_note(strata_note *note, strata_stream_ref *stream, const strata_entry *entry)
{
    strata_status status = strata_note_begin_on(note, stream);
    while (__builtin_expect(status == STRATA_SUCCESS && note->stream.timeline != stream->timeline, 0)) {
        strata_note_cancel(note);
        *stream = note->stream;
        if ((status = strata_uses_visit(entry, make_wait, stream)) == STRATA_SUCCESS)
            status = strata_note_begin_on(note, stream);
    }
    return status;
}

/* Makes a block of a piece out of a cache, whose points say what there is to wait for. */
static inline __attribute__((always_inline)) void publish_again(pool *self, pool_cell *cell, strata_entry *entry,
                                                                uint32_t slot, const pool_cache *cache, bool known,
                                                                uint64_t granules, const strata_request *request,
                                                                strata_block *out)
{
    const uint32_t turn = atomic_load_explicit(&cache->timeline->turn, memory_order_relaxed);
    strata_entry_zero_layers(entry, pool_piece_in(&self->heap, entry));
    strata_entry_publish_again(self->heap.table, entry, slot, cache->origin,
                               strata_entry_beginning(turn, POOL_GRANULE, known), POOL_GRANULE, request, out);
    count_live(cell, (int64_t)(granules * POOL_GRANULE), 1);
    atomic_store_explicit(&cell->hits, atomic_load_explicit(&cell->hits, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Makes a block for an unknown stream out of the thread's cache for it. The piece's point is the block's first one, and
 * there is nothing to record: an event covers it. False if there is no such piece. */
static bool make_for_unknown(pool *self, pool_cell *cell, pool_cache *cache, const strata_request *request,
                             strata_block *out)
{
    uint32_t slot;
    if (request->alignment > POOL_GRANULE)
        return false;
    const uint64_t granules = pool_all_granules(request->bytes);
    strata_entry *entry = pool_cache_take(self, cell, cache, granules, &slot);
    if (!entry)
        return false;
    cache->homed++;
    publish_again(self, cell, entry, slot, cache, false, granules, request, out);
    return true;
}

/* Makes a block of a piece that no cache had. */
static strata_status allocate_from_heap(pool *self, pool_cell *cell, const strata_request *request,
                                        strata_stream_ref stream, strata_block *out)
{
    uint32_t slot;
    const pool_want want = {
        .stream = &stream,
        .bytes = (request->bytes + POOL_GRANULE - 1) & ~(uint64_t)(POOL_GRANULE - 1),
        .alignment = request->alignment > POOL_GRANULE ? request->alignment : POOL_GRANULE,
    };
    strata_status status = pool_find(self, &want, request, &slot);
    if (status != STRATA_SUCCESS)
        return status;
    if (!renew_piece(self, &slot))
        return strata_fail_host_memory("a block");
    strata_note note;
    if ((status = begin_note(&note, &stream, pool_entry(&self->heap, slot))) != STRATA_SUCCESS) {
        give_piece(self, slot);
        return status;
    }
    const pool_points points = pool_points_set_aside(pool_entry(&self->heap, slot));
    publish(self, slot, note.stream.timeline, note.stream.known, request, out);
    status = strata_note_end(&note);
    if (status == STRATA_SUCCESS) {
        pool_points_drop(points);
        count_live_somewhere(self, cell, (int64_t)out->bytes, 1);
        return STRATA_SUCCESS;
    }
    strata_entry_end_life(pool_entry(&self->heap, slot)); /* nothing was submitted for it */
    pool_points_put_back(pool_entry(&self->heap, slot), points);
    give_piece(self, slot);
    *out = (strata_block){0};
    return status;
}

/* Whatever the request and its stream are. */
static __attribute__((noinline)) strata_status allocate_slowly(pool *self, const strata_request *request,
                                                               strata_block *out)
{
    *out = (strata_block){0};
    strata_stream_ref stream;
    strata_status status = check_request(self, request);
    if (status != STRATA_SUCCESS || !request->bytes)
        return status;
    strata_deferred_settle_quietly(&self->resource.stack->deferred, request->stream);
    if ((status = strata_stream_resolve(self->device, request->stream, &stream)) != STRATA_SUCCESS)
        return status;
    pool_cell *cell = strata_cells_mine(&self->cells, strata_thread_self());
    pool_cache *cache = cell && !stream.known ? pool_cache_of(cell, stream.timeline) : NULL;
    if (cache) {
        *pool_cache_place(cell, request->stream) = cache;
        if (make_for_unknown(self, cell, cache, request, out))
            return STRATA_SUCCESS;
    }
    return allocate_from_heap(self, cell, request, stream, out);
}

static __attribute__((noinline)) strata_status allocate_unknown(pool *self, pool_cell *cell,
                                                                const strata_request *request, strata_block *out)
{
    const bool plain = request->bytes && !strata_deferred_any(&self->resource.stack->deferred);
    uint64_t id;
    pool_cache *cache = plain ? pool_cache_of_unknown_at(cell, request->stream, &id) : NULL;
    if (__builtin_expect(!cache, 0))
        return allocate_slowly(self, request, out);
    if (__builtin_expect(make_for_unknown(self, cell, cache, request, out), 1))
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    const strata_status status = check_request(self, request);
    const strata_stream_ref stream = {cache->timeline, self->device, request->stream, id, false};
    return status == STRATA_SUCCESS ? allocate_from_heap(self, cell, request, stream, out) : status;
}

/* The thread's cache for a known stream, put in the handle's place; NULL: there is none, or events are recorded early
 * there. */
static pool_cache *find_cache(pool_cell *cell, const strata_timeline *timeline, CUstream handle)
{
    pool_cache *cache = timeline->early ? NULL : pool_cache_of(cell, timeline);
    if (cache)
        *pool_cache_place(cell, handle) = cache;
    return cache;
}

/* A block for a known stream, of a piece out of the thread's cache for it. */
static inline __attribute__((always_inline)) void make_for_known(pool *self, pool_cell *cell, strata_entry *entry,
                                                                 uint32_t slot, const pool_cache *cache,
                                                                 uint64_t granules, const strata_request *request,
                                                                 strata_block *out)
{
    atomic_store_explicit(&entry->last_write, strata_timeline_now(cache->timeline) | STRATA_POINT_WRITE,
                          memory_order_relaxed);
    publish_again(self, cell, entry, slot, cache, true, granules, request, out);
}

/* All that is not the plain case of pool_allocate. */
static __attribute__((noinline)) strata_status allocate_elsewhere(pool *self, const strata_request *request,
                                                                  strata_block *out)
{
    pool_cell *cell = my_cell(self);
    if (!cell || request->alignment > POOL_GRANULE)
        return allocate_slowly(self, request, out);
    const strata_timeline *timeline = strata_known_timeline(self->device, request->stream);
    if (!timeline)
        return allocate_unknown(self, cell, request, out);
    uint32_t slot;
    const uint64_t granules = pool_all_granules(request->bytes);
    pool_cache *cache = find_cache(cell, timeline, request->stream);
    strata_entry *entry = cache ? pool_cache_take(self, cell, cache, granules, &slot) : NULL;
    if (!entry)
        return allocate_slowly(self, request, out);
    make_for_known(self, cell, entry, slot, cache, granules, request, out);
    return STRATA_SUCCESS;
}

/* The cell that the calling thread has used before, or NULL. */
static inline pool_cell *my_cell_at_once(const pool *self)
{
    const strata_thread *thread = strata_thread_current;
    return __builtin_expect(thread != NULL, 1) ? thread->cells[self->cells.number] : NULL;
}

/* The plain case, with no call of anything in it but in another's place, so that no register has to be saved. */
static strata_status pool_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    pool *self = (pool *)resource;
    pool_cell *cell = my_cell_at_once(self);
    if (__builtin_expect(!cell || request->alignment > POOL_GRANULE, 0))
        return allocate_elsewhere(self, request, out);
    pool_cache *cache = pool_cache_at(cell, request->stream);
    if (__builtin_expect(!cache || !pool_cell_enter_lightly(self, cell), 0))
        return allocate_elsewhere(self, request, out);
    uint32_t slot;
    const uint64_t granules = pool_all_granules(request->bytes);
    strata_entry *entry = pool_bin_take(&self->heap, cache, granules, &slot);
    pool_cell_leave(cell);
    if (__builtin_expect(!entry, 0))
        return allocate_elsewhere(self, request, out);
    make_for_known(self, cell, entry, slot, cache, granules, request, out);
    return STRATA_SUCCESS;
}

/* ---- freeing ---- */

/* The end of a block whose points are those of its memory now. */
static inline void end_block(strata_entry *entry, uint64_t generation)
{
    if (__builtin_expect(!atomic_load_explicit(&entry->home_known, memory_order_relaxed), 0))
        strata_timeline_leave_home(atomic_load_explicit(&entry->home, memory_order_relaxed));
    atomic_store_explicit(&entry->word, generation << STRATA_WORD_GENERATION | STRATA_BLOCK_FREED,
                          memory_order_release);
}

static inline void report(pool *self, strata_block_id id, uint64_t bytes)
{
    if (self->resource.stack->interested_count)
        strata_report_completion_above(&self->resource,
                                       &(strata_completion){.id = id, .bytes = (size_t)bytes, .last = true});
}

/* Adds a point to a retired block's, or waits on the host until there is nothing to add. */
static strata_status add_or_wait(strata_entry *entry, strata_point point)
{
    return pool_points_add(entry, point) ? STRATA_SUCCESS : strata_point_synchronize(point);
}

typedef struct freeing {
    const strata_stream_ref *stream;
    const strata_clock *clock;
} freeing;

/* What the freeing stream comes after, whoever comes after that comes after, too. */
static bool is_followed(strata_point point, void *data)
{
    const freeing *by = data;
    return strata_point_timeline(point) != by->stream->timeline->number &&
           strata_timeline_follows(by->stream, by->clock, point);
}

/* Without host memory for the stream's timeline the stream is waited for: then there is nothing to add. *stream is the
 * stream, if it was found. */
static strata_status add_free_on(pool *self, strata_entry *entry, CUstream handle, strata_stream_ref *stream)
{
    strata_note note;
    strata_status status = strata_stream_resolve(self->device, handle, stream);
    if (status == STRATA_SUCCESS)
        status = strata_note_begin_on(&note, stream);
    if (status != STRATA_SUCCESS)
        stream->timeline = NULL;
    if (status == STRATA_ERROR_OUT_OF_HOST_MEMORY)
        return strata_uses_wait_instead(self->device, handle, status);
    if (status != STRATA_SUCCESS)
        return status;
    *stream = note.stream;
    strata_clock *clock = strata_note_clock(&note); /* before the point: that covers all that the clock does */
    const strata_point point = strata_timeline_now(stream->timeline);
    const bool added = pool_points_add(entry, point);
    if ((status = strata_note_end(&note)) == STRATA_SUCCESS && !added)
        status = strata_point_synchronize(point);
    if (status == STRATA_SUCCESS)
        pool_points_forget(entry, is_followed, &(freeing){stream, clock});
    strata_note_clock_done(&note, clock);
    return status;
}

static strata_status add_end_of_home(strata_entry *entry, const strata_block *block)
{
    strata_point end;
    strata_status status = strata_uses_end_of_home(entry, block, &end);
    return status == STRATA_SUCCESS && end ? add_or_wait(entry, end) : status;
}

/* Work that no event marks, on a stream whose handle is not known, may never be waited for: then the block is not
 * freed, as nobody could have its memory. */
static strata_status check_marked(strata_point point, void *data)
{
    (void)data;
    const uint16_t number = strata_point_timeline(point);
    const strata_timeline *timeline = strata_timeline_of(point);
    if (strata_point_known_complete(point) ||
        strata_timeline_is_known(number, atomic_load_explicit(&timeline->turn, memory_order_relaxed)) ||
        strata_point_epoch(strata_timeline_last_closed(number)) >= strata_point_epoch(point))
        return STRATA_SUCCESS;
    return strata_point_synchronize(point);
}

/* Keeps a piece for the unknown stream on which it was freed, if it waits for nothing else, or gives it to the heap. A
 * known stream's comes here with events that are recorded early, and then others are about to ask for its memory. */
static void keep_for_unknown(pool *self, pool_cell *cell, strata_entry *entry, uint32_t slot,
                             const strata_stream_ref *stream)
{
    strata_timeline *timeline = stream->timeline;
    const bool own = cell && timeline && !stream->known && strata_entry_is_renewable(entry) &&
                     pool_points_home(entry) == timeline->number;
    if (!own) {
        give_piece(self, slot);
        return;
    }
    pool_points_join(entry);
    pool_cache_keep_slowly(self, cell, timeline, stream->handle, slot);
}

/* Makes a retired block's memory free: it waits for all that was noted, and for the freeing stream. With a cell, the
 * calling thread may keep it. */
static strata_status free_in_order(pool *self, pool_cell *cell, strata_entry *entry, const strata_block *block,
                                   CUstream handle)
{
    strata_stream_ref stream = {.handle = handle};
    strata_status status =
        handle == STRATA_STREAM_GONE ? add_end_of_home(entry, block) : add_free_on(self, entry, handle, &stream);
    if (status == STRATA_SUCCESS)
        status = strata_uses_visit(entry, check_marked, NULL);
    if (status != STRATA_SUCCESS)
        return status;
    report(self, block->id, pool_bytes_of(entry));
    end_block(entry, block->id.generation);
    keep_for_unknown(self, cell, entry, block->id.slot, &stream);
    return STRATA_SUCCESS;
}

static strata_status carry_out(strata_resource *resource, strata_entry *entry, const strata_block *block,
                               CUstream stream, bool finished)
{
    pool *self = (pool *)resource;
    const uint64_t bytes = pool_bytes_of(entry);
    strata_status status = STRATA_SUCCESS;
    if (!finished) {
        status = free_in_order(self, NULL, entry, block, stream);
    } else {
        report(self, block->id, bytes);
        end_block(entry, block->id.generation);
        give_piece(self, block->id.slot);
    }
    if (status == STRATA_SUCCESS)
        strata_counters_add(&self->deferred, strata_thread_self(), 0, -(int64_t)bytes);
    return status;
}

static strata_status defer(pool *self, strata_entry *entry, const strata_block *block, CUstream stream)
{
    strata_thread *thread = strata_thread_self();
    const int64_t bytes = (int64_t)pool_bytes_of(entry);
    strata_counters_add(&self->deferred, thread, 0, bytes); /* before another thread may carry it out */
    strata_status status =
        strata_deferred_add(&self->resource.stack->deferred, &self->resource, carry_out, entry, block, stream);
    if (status != STRATA_SUCCESS)
        strata_counters_add(&self->deferred, thread, 0, -bytes);
    return status;
}

static __attribute__((noinline)) strata_status free_slowly(pool *self, strata_entry *entry, const strata_block *block,
                                                           CUstream stream)
{
    const int64_t bytes = (int64_t)pool_bytes_of(entry);
    pool_cell *cell = strata_cells_mine(&self->cells, strata_thread_self());
    strata_deferred_settle_quietly(&self->resource.stack->deferred, stream);
    strata_error_hush();
    strata_status status = free_in_order(self, cell, entry, block, stream);
    strata_error_unhush(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        status = defer(self, entry, block, stream);
    if (status == STRATA_SUCCESS)
        count_live_somewhere(self, cell, -bytes, -1);
    else
        strata_entry_revive(entry);
    pool_decay_look(self);
    return status;
}

/* Whether the block only ever saw one stream. */
static inline bool saw_one(const strata_entry *entry)
{
    return !atomic_load_explicit(&entry->last_read, memory_order_relaxed) &&
           !atomic_load_explicit(&entry->more, memory_order_relaxed);
}

static inline bool home_was_known(const strata_entry *entry)
{
    return atomic_load_explicit(&entry->home_known, memory_order_relaxed);
}

static inline uint16_t seen_timeline(const strata_entry *entry)
{
    return strata_point_timeline(atomic_load_explicit(&entry->last_write, memory_order_relaxed));
}

/* Frees on a known stream what only another one has seen: nothing is asked, and the memory waits for both. */
static strata_status free_foreign(pool *self, pool_cell *cell, strata_entry *entry, const strata_block *block,
                                  const strata_timeline *timeline)
{
    const uint32_t slot = block->id.slot;
    const uint64_t bytes = block->bytes;
    atomic_store_explicit(&entry->last_read, strata_timeline_now(timeline) | STRATA_POINT_WRITE, memory_order_relaxed);
    report(self, block->id, bytes);
    end_block(entry, block->id.generation);
    count_live(cell, -(int64_t)bytes, -1);
    if (__builtin_expect(!pool_bundle_keep(self, cell, timeline, slot, entry, pool_granules(bytes)), 0))
        pool_bundle_keep_slowly(self, cell, timeline, slot);
    return STRATA_SUCCESS;
}

/* Ends a block that saw one stream and is freed there now. */
static inline void end_seen_block(pool_cell *cell, strata_entry *entry, const strata_block *block, strata_point now)
{
    atomic_store_explicit(&entry->last_write, now | STRATA_POINT_WRITE, memory_order_relaxed);
    atomic_store_explicit(&entry->word, block->id.generation << STRATA_WORD_GENERATION | STRATA_BLOCK_FREED,
                          memory_order_release);
    count_live(cell, -(int64_t)block->bytes, -1);
}

/* The same, and keeps its memory; the cache may be there, or is made. */
static inline __attribute__((always_inline)) void keep_seen_block(pool *self, pool_cell *cell,
                                                                  strata_timeline *timeline, pool_cache *cache,
                                                                  strata_entry *entry, const strata_block *block,
                                                                  strata_point now, CUstream handle)
{
    report(self, block->id, block->bytes);
    end_seen_block(cell, entry, block, now);
    bool kept = cache && pool_cell_enter(self, cell);
    if (kept) {
        kept = pool_bin_put(self, cache, entry, block->id.slot, block->bytes / POOL_GRANULE);
        pool_cell_leave(cell);
    }
    if (!kept)
        pool_cache_keep_slowly(self, cell, timeline, handle, block->id.slot);
}

/* Frees what saw one stream on a known one. */
static strata_status free_known(pool *self, pool_cell *cell, strata_entry *entry, const strata_block *block,
                                strata_timeline *timeline, CUstream handle)
{
    if (timeline->early || !home_was_known(entry))
        return free_slowly(self, entry, block, handle);
    pool_cache_open(self, cell, timeline);
    pool_cache *cache = find_cache(cell, timeline, handle);
    if (seen_timeline(entry) != timeline->number)
        return free_foreign(self, cell, entry, block, timeline);
    keep_seen_block(self, cell, timeline, cache, entry, block, strata_timeline_now(timeline), handle);
    return STRATA_SUCCESS;
}

/* The end of a block of which the thread's cache knows that its stream is unknown. */
static inline void leave_home(pool_cache *cache, const strata_entry *entry)
{
    const uint16_t home = atomic_load_explicit(&entry->home, memory_order_relaxed);
    if (home_was_known(entry))
        return;
    if (__builtin_expect(home == cache->timeline->number, 1))
        cache->homed--;
    else
        strata_timeline_leave_home(home);
}

/* Frees what saw one stream, on that one, which is not known: the event of its last free covers this one too. */
static strata_status free_unknown(pool *self, pool_cell *cell, strata_entry *entry, const strata_block *block,
                                  CUstream handle)
{
    uint64_t id;
    pool_cache *cache = pool_cache_of_unknown_at(cell, handle, &id);
    if (__builtin_expect(!cache || seen_timeline(entry) != cache->timeline->number, 0))
        return free_slowly(self, entry, block, handle);
    const strata_stream_ref stream = {cache->timeline, self->device, handle, id, false};
    const strata_point now = strata_timeline_now(cache->timeline);
    if (__builtin_expect(!strata_own_stream_record(&stream, now), 0))
        return free_slowly(self, entry, block, handle);
    leave_home(cache, entry);
    keep_seen_block(self, cell, cache->timeline, cache, entry, block, now, handle);
    return STRATA_SUCCESS;
}

static inline bool is_plain_free(const pool *self, const strata_entry *entry, const strata_block *block)
{
    return saw_one(entry) && block->id.generation < STRATA_GENERATION_LAST &&
           !strata_deferred_any(&self->resource.stack->deferred);
}

/* A retired block, whatever it saw and wherever it is freed. */
static __attribute__((noinline)) strata_status free_retired(pool *self, strata_entry *entry, const strata_block *block,
                                                            CUstream handle)
{
    pool_cell *cell = my_cell(self);
    if (!cell || handle == STRATA_STREAM_GONE || !is_plain_free(self, entry, block))
        return free_slowly(self, entry, block, handle);
    strata_timeline *timeline = strata_known_timeline(self->device, handle);
    return timeline ? free_known(self, cell, entry, block, timeline, handle)
                    : free_unknown(self, cell, entry, block, handle);
}

/* On a known stream whose cache is in its place. With a call of nothing but in another's place, unless somebody is to
 * hear of the block's end. */
static inline __attribute__((always_inline)) strata_status
free_plainly(pool *self, strata_entry *entry, const strata_block *block, CUstream handle, bool heard)
{
    pool_cell *cell = my_cell_at_once(self);
    if (__builtin_expect(!cell || !is_plain_free(self, entry, block), 0))
        return free_retired(self, entry, block, handle);
    pool_cache *cache = pool_cache_at(cell, handle);
    if (__builtin_expect(!cache || !home_was_known(entry), 0))
        return free_retired(self, entry, block, handle);
    strata_timeline *timeline = cache->timeline;
    if (__builtin_expect(seen_timeline(entry) != timeline->number, 0))
        return free_foreign(self, cell, entry, block, timeline);
    if (heard) {
        keep_seen_block(self, cell, timeline, cache, entry, block, strata_timeline_now(timeline), handle);
        return STRATA_SUCCESS;
    }
    if (__builtin_expect(!pool_cell_enter_lightly(self, cell), 0))
        return free_retired(self, entry, block, handle);
    end_seen_block(cell, entry, block, strata_timeline_now(timeline));
    const uint32_t slot = block->id.slot;
    const bool kept = pool_bin_put(self, cache, entry, slot, block->bytes / POOL_GRANULE);
    pool_cell_leave(cell);
    if (__builtin_expect(!kept, 0))
        pool_cache_keep_slowly(self, cell, timeline, handle, slot);
    return STRATA_SUCCESS;
}

static __attribute__((noinline)) strata_status free_heard(pool *self, strata_entry *entry, const strata_block *block,
                                                          CUstream handle)
{
    return free_plainly(self, entry, block, handle, true);
}

static __attribute__((noinline)) strata_status deallocate_carefully(pool *self, const strata_block *block,
                                                                    CUstream handle)
{
    strata_entry *entry;
    strata_status status = strata_entry_retire_slowly(strata_resource_table(&self->resource), block, &entry);
    return status == STRATA_SUCCESS ? free_retired(self, entry, block, handle) : status;
}

static strata_status pool_deallocate(strata_resource *resource, const strata_block *block, CUstream handle)
{
    pool *self = (pool *)resource;
    strata_entry *entry = strata_entry_retire_plain(strata_resource_table(resource), block);
    if (__builtin_expect(!entry, 0))
        return deallocate_carefully(self, block, handle);
    return resource->stack->interested_count ? free_heard(self, entry, block, handle)
                                             : free_plainly(self, entry, block, handle, false);
}

/* ---- the rest of the interface ---- */

/* The latest point, not known to be complete, that free memory has of the next timeline behind `after`; 0: there is
 * none. With growth, as who holds it may just have taken some. */
static strata_point next_pending(pool *self, uint16_t after)
{
    strata_point next = 0;
    strata_lock_take(&self->growth);
    strata_spin_take(&self->lock);
    if (atomic_load_explicit(&self->begun, memory_order_relaxed))
        next = pool_heap_next_pending(&self->heap, after);
    strata_spin_release(&self->lock);
    strata_lock_release(&self->growth);
    return next;
}

/* Waits on the host for everything that may still touch free memory: for each stream once, whatever is freed
 * meanwhile. Errors: the first. */
static strata_status wait_for_free(pool *self)
{
    strata_status status = STRATA_SUCCESS;
    strata_lock_take(&self->growth);
    pool_caches_flush(self);
    strata_lock_release(&self->growth);
    for (strata_point point = 0; (point = next_pending(self, strata_point_timeline(point)));) {
        const strata_status waited = strata_point_synchronize(point);
        status = status == STRATA_SUCCESS ? waited : status;
    }
    return status;
}

/* Free memory is free at once, so that no bytes become free here but those that a capture had held back. Who waits for
 * all frees has the moment at which memory above the release threshold goes. */
static strata_status pool_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    pool *self = (pool *)resource;
    const int64_t before = strata_counters_sum(&self->deferred, 0);
    strata_deferred_settle_for_reap(&resource->stack->deferred, mode == STRATA_REAP_WAIT);
    const int64_t now = strata_counters_sum(&self->deferred, 0);
    *bytes = before > now ? (size_t)(before - now) : 0;
    if (mode == STRATA_REAP_WAIT && strata_deferred_any(&resource->stack->deferred))
        return strata_deferred_refuse(&resource->stack->deferred);
    strata_status status = mode == STRATA_REAP_WAIT ? wait_for_free(self) : STRATA_SUCCESS;
    if (mode != STRATA_REAP_WAIT)
        pool_decay_look(self);
    else if (status == STRATA_SUCCESS && (status = pool_release(self)) == STRATA_SUCCESS)
        status = pool_decay_step(self, UINT_MAX);
    size_t of_frames;
    if (status == STRATA_SUCCESS && resource->upstream)
        status = resource->upstream->ops->reap(resource->upstream, mode, &of_frames);
    return status;
}

static strata_status pool_trim_op(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    uint64_t released = 0;
    size_t told = 0;
    strata_resource *below = resource->upstream;
    strata_status status = pool_trim((pool *)resource, keep_bytes, &released);
    if (status == STRATA_SUCCESS && below)
        status = below->ops->trim(below, keep_bytes, &told);
    *bytes = told > released ? told : (size_t)released;
    return status;
}

static strata_status pool_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    (void)resource;
    const size_t most = ~(size_t)(POOL_GRANULE - 1); /* what cannot be rounded up, no device has either */
    *bytes = request->bytes > most ? SIZE_MAX : (request->bytes + POOL_GRANULE - 1) & most;
    return STRATA_SUCCESS;
}

/* A freed block is free memory at once. */
static strata_status pool_reusable(strata_resource *resource, const strata_request *request, size_t *bytes,
                                   strata_block_id *of)
{
    (void)resource, (void)request;
    *bytes = 0;
    *of = (strata_block_id){0};
    return STRATA_SUCCESS;
}

static uint32_t pool_capabilities(strata_resource *resource)
{
    const uint32_t own = STRATA_CAPABILITY_STREAM_ORDERED | STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
    strata_resource *below = resource->upstream;
    return own | (below ? below->ops->capabilities(below) & STRATA_CAPABILITY_DEVICE_MEMORY
                        : STRATA_CAPABILITY_DEVICE_MEMORY);
}

static strata_status pool_find_block(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    pool *self = (pool *)resource;
    *out = (strata_block){0};
    strata_spin_take(&self->lock);
    const uint32_t slot = self->begun ? pool_heap_around(&self->heap, address) : 0;
    const bool found =
        slot && strata_entry_describe(self->heap.table, slot, out) && address - out->address < out->bytes;
    strata_spin_release(&self->lock);
    if (found)
        return STRATA_SUCCESS;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

/* Blocks that pieces are cut from are the pool's own affair. */
static bool pool_keeps(strata_resource *resource, strata_block_id id)
{
    const pool_piece *piece = strata_block_layer_bytes(resource, id);
    return piece && piece->state == POOL_FRAME;
}

/* Only now it is known whether a layer stands below. */
static strata_status pool_begin(strata_resource *resource)
{
    pool *self = (pool *)resource;
    if (self->device != resource->stack->device)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE,
                           "layer %u of the stack (pool) gives memory of device %d, the stack is for device %d",
                           resource->position + 1, self->device->ordinal, resource->stack->device->ordinal);
    pool_pages_close(&self->pages); /* of a stack that came to nothing */
    strata_status status = pool_pages_open(&self->pages, resource, self->device, self->given.export_type);
    if (status != STRATA_SUCCESS)
        return status;
    const bool moves = self->pages.source->moves;
    if (!moves && atomic_load_explicit(&self->decay.window, memory_order_relaxed)) {
        pool_pages_close(&self->pages);
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "pool: decay needs memory that the pool maps itself, and %s; leave decay out%s",
                           resource->upstream ? "this one takes its memory from a layer below"
                                              : "the device has no virtual memory management",
                           resource->upstream ? ", or that layer" : "");
    }
    const uint64_t granule = self->pages.granule;
    const uint64_t frame = self->given.frame ? self->given.frame : moves ? FRAME_MAPPED : FRAME_STILL;
    const uint64_t slack = self->given.slack ? self->given.slack : moves ? SLACK_MAPPED : SLACK_STILL;
    self->frame_bytes = (frame + granule - 1) / granule * granule;
    self->slack = (double)slack / 1000;
    return STRATA_SUCCESS;
}

/* Work may still be on its way to memory that was freed in stream order. */
static strata_status synchronize(strata_point point, void *data)
{
    (void)data;
    return strata_point_synchronize(point);
}

static void wait_for_all(pool *self)
{
    for (uint32_t slot = pool_heap_from(&self->heap, 0); slot; slot = pool_heap_behind(&self->heap, slot))
        if (pool_piece_at(&self->heap, slot)->state != POOL_VOID)
            strata_uses_visit(pool_entry(&self->heap, slot), synchronize, NULL);
}

static void pool_destroy(strata_resource *resource)
{
    pool *self = (pool *)resource;
    if (self->begun && strata_door_now() == STRATA_DOOR_OPEN) {
        strata_error_hush();
        wait_for_all(self);
        strata_error_unhush(false);
    }
    pool_holds_end(self);
    pool_pages_close(&self->pages);
    pool_decay_end(self);
    pool_caches_end(self);
    pool_heap_end(&self->heap);
    strata_counters_end(&self->deferred);
    strata_lock_destroy(&self->growth);
    strata_lock_destroy(&self->patience);
    strata_host_free(self);
}

/* ---- as a resource ---- */

const strata_resource_ops pool_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(pool_piece),
    .passes_facts = true,
    .name = "pool",
    .allocate = pool_allocate,
    .deallocate = pool_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = pool_reap,
    .trim = pool_trim_op,
    .usage = pool_usage,
    .charge = pool_charge,
    .capabilities = pool_capabilities,
    .find = pool_find_block,
    .destroy = pool_destroy,
    .reusable = pool_reusable,
    .keeps = pool_keeps,
    .begin = pool_begin,
    .values = pool_values,
    .value_count = POOL_VALUE_COUNT,
    .get_value = pool_get_value,
    .set_value = pool_set_value,
    .describe = pool_describe,
};
