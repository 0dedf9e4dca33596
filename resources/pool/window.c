/* Placement across several holes, for a request that would otherwise be refused, and while little is left below a
 * limit:
 *
 *     | block | free, of A | hole | free | hole ........ | block | free | hole | free, of B | block |
 *               └───────────── a window ──────┘                    └────── another ──────┘
 *
 * A window is a range of the request's size without a block. The chosen one touches the fewest granules: those to be
 * mapped, and its wholly free ones. If any window can be filled, this one can, and it leaves the most for others. The
 * best window begins or ends with an extent, since a shift in between gains nothing. So two walks over the extents find
 * it; each step adds an extent at one end and drops one at the other.
 *
 * A hole is filled exactly, by whole chunks from elsewhere: if all are too large, one is returned to the device and
 * smaller ones are made. */
#include "resources/pool/window.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/pool/overhead.h"

typedef struct pool_search {
    const pool *self;
    const pool_terms *terms;
    uint16_t timeline;         /* of the request's stream */
    uint64_t bytes;            /* of a window */
    uint64_t can_make;         /* may be made */
    uint64_t remappable_bytes; /* from anywhere; UINT64_MAX: not computed */
} pool_search;

/* ---- searching ---- */

static bool is_usable(const pool_search *search, const pool_extent *extent)
{
    if (extent->state != POOL_FREE || !search->terms->alone)
        return extent->state == POOL_FREE || extent->state == POOL_HOLE;
    return extent->timeline == POOL_TIMELINE_NONE || extent->timeline == search->timeline;
}

static bool can_fill(pool_search *search, const pool_window *window)
{
    const bool may_wait = search->terms->may_wait;
    if (window->needed <= search->can_make)
        return true;
    if (search->remappable_bytes == UINT64_MAX)
        search->remappable_bytes = pool_remappable_bytes(search->self, 0, UINT64_MAX, UINT64_MAX, may_wait);
    const uint64_t missing = window->needed - search->can_make;
    return missing <= search->remappable_bytes &&
           missing <= search->remappable_bytes -
                          pool_remappable_bytes(search->self, window->from, window->to, UINT64_MAX, may_wait);
}

typedef struct pool_walk {
    bool forwards;
    uint32_t first, next;             /* first extent in this direction; the one after the last */
    uint64_t bytes, needed, granules; /* of these extents */
} pool_walk;

static uint32_t step(const pool *self, const pool_walk *walk, uint32_t slot)
{
    const pool_extent *extent = pool_extent_at(&self->heap, slot);
    return walk->forwards ? extent->next : extent->previous;
}

static uint64_t hole_bytes(const pool *self, uint32_t slot)
{
    return pool_extent_at(&self->heap, slot)->state == POOL_HOLE ? pool_bytes_of(pool_entry(&self->heap, slot)) : 0;
}

static uint64_t touched_by(const pool *self, const pool_walk *walk, uint32_t slot, uint64_t bytes)
{
    const pool_touched touched = pool_pages_touched(self, pool_entry(&self->heap, slot), bytes);
    return walk->forwards ? touched.at_start : touched.at_end;
}

/* Adds extents until the next one completes the window. False: a block comes first. */
static bool fill(const pool_search *search, pool_walk *walk)
{
    const pool *self = search->self;
    while (walk->next && is_usable(search, pool_extent_at(&self->heap, walk->next))) {
        const uint64_t bytes = pool_bytes_of(pool_entry(&self->heap, walk->next));
        if (walk->bytes + bytes >= search->bytes)
            return true;
        walk->bytes += bytes;
        walk->needed += hole_bytes(self, walk->next);
        walk->granules += touched_by(self, walk, walk->next, bytes);
        walk->next = step(self, walk, walk->next);
    }
    return false;
}

static pool_window window_at(const pool_search *search, const pool_walk *walk)
{
    const pool *self = search->self;
    const strata_entry *first = pool_entry(&self->heap, walk->first);
    const CUdeviceptr start = pool_address_of(first), end = start + pool_bytes_of(first);
    const CUdeviceptr from = walk->forwards ? start : end - search->bytes;
    const uint64_t rest = search->bytes - walk->bytes; /* of the last extent */
    return (pool_window){
        .from = from,
        .to = from + search->bytes,
        .needed = walk->needed + (hole_bytes(self, walk->next) ? pool_in_granules(self, rest) : 0),
        .granules = walk->granules + touched_by(self, walk, walk->next, rest),
    };
}

static void drop_first(const pool *self, pool_walk *walk)
{
    const uint32_t first = walk->first;
    walk->first = step(self, walk, first);
    if (first == walk->next) {
        walk->next = walk->first;
        return;
    }
    walk->bytes -= pool_bytes_of(pool_entry(&self->heap, first));
    walk->needed -= hole_bytes(self, first);
    walk->granules -= touched_by(self, walk, first, pool_bytes_of(pool_entry(&self->heap, first)));
}

static void begin_behind(const pool *self, pool_walk *walk, uint32_t wall)
{
    const uint32_t first = wall ? step(self, walk, wall) : 0;
    *walk = (pool_walk){.forwards = walk->forwards, .first = first, .next = first};
}

static bool is_better(const pool_window *a, const pool_window *b)
{
    return a->granules != b->granules ? a->granules < b->granules : a->needed < b->needed;
}

static void walk_windows(pool_search *search, bool forwards, pool_window *best)
{
    const pool_heap *heap = &search->self->heap;
    const uint32_t first = forwards ? pool_heap_from(heap, 0) : pool_heap_around(heap, UINT64_MAX);
    pool_walk walk = {.forwards = forwards, .first = first, .next = first};
    while (walk.first) {
        if (!fill(search, &walk)) {
            begin_behind(search->self, &walk, walk.next);
            continue;
        }
        const pool_window window = window_at(search, &walk);
        if (window.needed && is_better(&window, best) && can_fill(search, &window))
            *best = window;
        drop_first(search->self, &walk);
    }
}

/* .needed is 0: none. `lock` is held. */
static pool_window find_window(const pool *self, const pool_need *need, const pool_terms *terms)
{
    const uint64_t reserved = self->store.reserved;
    pool_search search = {
        .self = self,
        .terms = terms,
        .timeline = need->stream->timeline->number,
        .bytes = pool_room_for(need),
        .can_make = terms->most > reserved ? terms->most - reserved : 0,
        .remappable_bytes = UINT64_MAX,
    };
    pool_window best = {.granules = terms->granules};
    walk_windows(&search, true, &best);
    walk_windows(&search, false, &best);
    return best;
}

/* ---- taking its holes ---- */

/* Keeps a hole's part in the window, in whole granules. 0 without host memory. */
static uint32_t cut_hole(pool *self, const pool_window *window, uint32_t slot)
{
    pool_heap *heap = &self->heap;
    const strata_entry *entry = pool_entry(heap, slot);
    const CUdeviceptr start = pool_address_of(entry), end = start + pool_bytes_of(entry);
    const CUdeviceptr to = window->to < end ? start + pool_in_granules(self, window->to - start) : end;
    const CUdeviceptr from = window->from > start ? end - pool_in_granules(self, end - window->from) : start;
    if (to < end) {
        const uint32_t rest = pool_heap_split(heap, slot, to - start);
        pool_heap_give(heap, rest ? rest : slot, POOL_HOLE);
        if (!rest)
            return 0;
    }
    if (from == start)
        return slot;
    const uint32_t kept = pool_heap_split(heap, slot, from - start);
    pool_heap_give(heap, slot, POOL_HOLE);
    return kept;
}

static uint32_t next_hole(const pool *self, uint32_t slot)
{
    return pool_extent_at(&self->heap, slot)->chain;
}

static void give_holes(pool *self, uint32_t first)
{
    for (uint32_t slot = first, next; slot; slot = next) {
        next = next_hole(self, slot);
        pool_heap_give(&self->heap, slot, POOL_HOLE);
    }
}

/* Returns the first hole; 0 without host memory: none is taken. `lock` is held. */
static uint32_t take_holes(pool *self, const pool_window *window)
{
    pool_heap *heap = &self->heap;
    uint32_t first = 0, last = 0;
    for (uint32_t slot = pool_heap_around(heap, window->from); slot; slot = pool_extent_at(heap, slot)->next) {
        if (pool_address_of(pool_entry(heap, slot)) >= window->to)
            break;
        if (pool_extent_at(heap, slot)->state != POOL_HOLE)
            continue;
        pool_heap_take(heap, slot);
        if (!(slot = cut_hole(self, window, slot))) {
            give_holes(self, first);
            return 0;
        }
        pool_extent_at(heap, slot)->state = POOL_AWAY;
        pool_extent_at(heap, slot)->chain = 0;
        if (last)
            pool_extent_at(heap, last)->chain = slot;
        first = first ? first : slot;
        last = slot;
    }
    return first;
}

bool pool_window_take(pool *self, const pool_need *need, const pool_terms *terms, pool_window *window)
{
    strata_spin_take(&self->lock);
    *window = find_window(self, need, terms);
    window->holes = window->needed ? take_holes(self, window) : 0;
    strata_spin_release(&self->lock);
    return window->holes != 0;
}

void pool_window_leave(pool *self, const pool_window *window)
{
    strata_spin_take(&self->lock);
    give_holes(self, window->holes);
    strata_spin_release(&self->lock);
}

/* ---- filling them ---- */

/* Adds exactly how->needed bytes: remapped chunks, new ones, or new ones instead of a chunk that is too large. */
static CUresult collect(pool *self, const pool_remap_terms *how, uint64_t most, pool_chunk_list *chunks,
                        pool_outcome *outcome)
{
    CUresult result = CUDA_SUCCESS;
    while (result == CUDA_SUCCESS && chunks->bytes < how->needed) {
        pool_chunk_list_collect(self, how, chunks, &outcome->host);
        const uint64_t missing = how->needed - chunks->bytes;
        if (outcome->host)
            result = CUDA_ERROR_OUT_OF_MEMORY;
        else if (missing && self->store.reserved + missing <= most)
            result = pool_chunk_list_make(self, 0, how->needed, chunks, outcome);
        else if (missing && !pool_chunk_list_give_back(self, how, self->store.reserved + missing - most))
            result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    return result;
}

static CUresult collect_for_holes(pool *self, const pool_terms *terms, const pool_window *window,
                                  pool_chunk_list *chunks, pool_outcome *outcome)
{
    CUresult result = CUDA_SUCCESS;
    uint64_t bytes = 0;
    for (uint32_t slot = window->holes; slot && result == CUDA_SUCCESS; slot = next_hole(self, slot)) {
        bytes += pool_bytes_of(pool_entry(&self->heap, slot));
        const pool_remap_terms how = {window->from, window->to, bytes, bytes, terms->may_wait};
        result = collect(self, &how, terms->most, chunks, outcome);
    }
    return result;
}

static pool_chunk_list chunks_of(const pool *self, const pool_chunk_list *all, size_t from, uint64_t bytes)
{
    pool_chunk_list chunks = {.numbers = all->numbers + from};
    while (chunks.bytes < bytes)
        chunks.bytes += pool_chunk_bytes(&self->store.chunks[chunks.numbers[chunks.count++]]);
    return chunks;
}

/* After a failure some may be mapped. */
static CUresult map_in_holes(pool *self, uint32_t first, const pool_chunk_list *all, const char **call)
{
    CUresult result = CUDA_SUCCESS;
    size_t used = 0;
    for (uint32_t slot = first; slot && result == CUDA_SUCCESS; slot = next_hole(self, slot)) {
        const strata_entry *entry = pool_entry(&self->heap, slot);
        const pool_chunk_list chunks = chunks_of(self, all, used, pool_bytes_of(entry));
        result = pool_chunk_list_map(self, &chunks, pool_address_of(entry), call);
        used += chunks.count;
    }
    return result;
}

/* Cuts the block out of the filled window. POOL_NOTHING: other threads took part of it. */
static pool_result cut_out(pool *self, const pool_need *need, const pool_window *window, pool_outcome *outcome,
                           uint32_t *slot)
{
    pool_result found = POOL_NOTHING;
    strata_spin_take(&self->lock);
    for (uint32_t mapped = window->holes, next; mapped; mapped = next) {
        next = next_hole(self, mapped);
        pool_decay_record(self, mapped);
        pool_heap_give(&self->heap, mapped, POOL_FREE);
    }
    const uint32_t taken = pool_heap_take_range(&self->heap, window->from, window->to - window->from);
    if (taken) {
        *slot = pool_cut_out(self, taken, need);
        found = *slot ? POOL_FOUND : POOL_FAILED;
    }
    strata_spin_release(&self->lock);
    if (found == POOL_FOUND && !pool_wait_for_extent(self, need, *slot, outcome))
        found = POOL_NOTHING;
    return found;
}

/* Returns chunks that cannot be mapped. If an unmap fails, the range is leaked: it is never put back on the free list.
 */
pool_result pool_window_fill(pool *self, const pool_need *need, const pool_terms *terms, const pool_window *window,
                             pool_outcome *outcome, uint32_t *slot)
{
    pool_chunk_list chunks = {0};
    const uint64_t began = pool_overhead_clock(self);
    outcome->result = collect_for_holes(self, terms, window, &chunks, outcome);
    if (outcome->result == CUDA_SUCCESS)
        outcome->result = map_in_holes(self, window->holes, &chunks, &outcome->call);
    const bool mapped = outcome->result == CUDA_SUCCESS;
    const bool gone = mapped || pool_chunk_list_drop(self, chunks.numbers, chunks.count);
    strata_host_free(chunks.numbers);
    if (!terms->may_wait) /* which would release map_lock */
        pool_overhead_record_remapping(self, began + chunks.making_ns, chunks.remapped);
    pool_record_reserved(self);
    if (mapped)
        return cut_out(self, need, window, outcome, slot);
    if (gone)
        pool_window_leave(self, window);
    return POOL_NOTHING;
}
