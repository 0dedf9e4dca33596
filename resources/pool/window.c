/* A place across several voids, for a request that would be refused otherwise, and while little is left below a limit:
 *
 *     | block | free, of A | void | free | void ........ | block | free | void | free, of B | block |
 *               └───────────── a window ──────┘                    └────── another ──────┘
 *
 * A *window* is so many bytes as the request needs, with no block in it. The one is taken in which the request begins
 * to use the fewest granules: those that have to be mapped, and those in it that lie free as a whole. If there is
 * enough for any window, there is for that one, as all granules that are had are either mapped in it or in it already;
 * and it leaves the most to others. Only windows can have the fewest that begin where a piece does, or end where one
 * does: between, moving one by a byte changes nothing, or only what is mapped at one end. So two walks over the pieces
 * find it, each step of which takes a piece in at one end and lets one go at the other.
 *
 * What is mapped comes from elsewhere. A void between two free pieces is filled exactly, and frames are mapped as a
 * whole; so where all frames that are left are too large, one goes back to the device, and smaller ones are made of
 * what may be reserved then. */
#include "resources/pool/window.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "resources/pool/overhead.h"

/* What is the same for all windows. */
typedef struct pool_search {
    const pool *self;
    const pool_terms *terms;
    uint16_t timeline;      /* the request's stream */
    uint64_t bytes;         /* of a window */
    uint64_t can_make;      /* bytes, within what may be reserved */
    uint64_t is_remappable; /* from wherever; UINT64_MAX: nobody has looked */
} pool_search;

/* ---- searching ---- */

static uint64_t in_granules(const pool *self, uint64_t bytes)
{
    const uint64_t granule = self->store.granule;
    return (bytes + granule - 1) / granule * granule;
}

/* Whether a piece can lie in a window. */
static bool is_usable(const pool_search *search, const pool_extent *extent)
{
    if (extent->state != POOL_FREE || !search->terms->alone)
        return extent->state == POOL_FREE || extent->state == POOL_HOLE;
    return extent->timeline == POOL_TIMELINE_NONE || extent->timeline == search->timeline;
}

/* Whether enough can be had for a window: made, or moved from where it is not. */
static bool can_fill(pool_search *search, const pool_window *window)
{
    const bool may_wait = search->terms->may_wait;
    if (window->needed <= search->can_make)
        return true;
    if (search->is_remappable == UINT64_MAX)
        search->is_remappable = pool_remappable_bytes(search->self, 0, UINT64_MAX, UINT64_MAX, may_wait);
    const uint64_t missing = window->needed - search->can_make;
    return missing <= search->is_remappable &&
           missing <= search->is_remappable -
                          pool_remappable_bytes(search->self, window->from, window->to, UINT64_MAX, may_wait);
}

/* One of the two walks: forwards, where windows begin with a piece, or backwards, where they end with one. */
typedef struct pool_walk {
    bool forwards;
    uint32_t first, next; /* the window's first piece in this direction, and the one behind those that are in it */
    uint64_t bytes, needed, granules; /* of those, as in a window */
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

/* The granules that a window begins to use which has so many of a piece's bytes. */
static uint64_t touched_by(const pool *self, const pool_walk *walk, uint32_t slot, uint64_t bytes)
{
    const pool_touched started = pool_pages_touched(self, pool_entry(&self->heap, slot), bytes);
    return walk->forwards ? started.at_start : started.at_end;
}

/* Takes pieces in until the window lacks no more than the next one has. False if there is a wall before. */
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

/* The window where the walk is. */
static pool_window window_at(const pool_search *search, const pool_walk *walk)
{
    const pool *self = search->self;
    const strata_entry *first = pool_entry(&self->heap, walk->first);
    const CUdeviceptr start = pool_address_of(first), end = start + pool_bytes_of(first);
    const CUdeviceptr from = walk->forwards ? start : end - search->bytes;
    const uint64_t rest = search->bytes - walk->bytes; /* of the last piece */
    return (pool_window){
        .from = from,
        .to = from + search->bytes,
        .needed = walk->needed + (hole_bytes(self, walk->next) ? in_granules(self, rest) : 0),
        .granules = walk->granules + touched_by(self, walk, walk->next, rest),
    };
}

/* The next window begins with the second piece of this one. */
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

/* Whether one window is better used than the other; in both something has to be mapped. */
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

/* The best window of those that enough can be had for; .needed is 0 if there is none. The lock is held. */
static pool_window find_window(const pool *self, const pool_need *need, const pool_terms *terms)
{
    const uint64_t reserved = self->store.reserved;
    pool_search search = {
        .self = self,
        .terms = terms,
        .timeline = need->stream->timeline->number,
        .bytes = pool_room_for(need),
        .can_make = terms->most > reserved ? terms->most - reserved : 0,
        .is_remappable = UINT64_MAX,
    };
    pool_window best = {.granules = terms->granules};
    walk_windows(&search, true, &best);
    walk_windows(&search, false, &best);
    return best;
}

/* ---- taking its voids ---- */

/* What of a void is in a window, as whole granules; the rest becomes void again. 0 without host memory. */
static uint32_t cut_hole(pool *self, const pool_window *window, uint32_t slot)
{
    pool_heap *heap = &self->heap;
    const strata_entry *entry = pool_entry(heap, slot);
    const CUdeviceptr start = pool_address_of(entry), end = start + pool_bytes_of(entry);
    const CUdeviceptr to = window->to < end ? start + in_granules(self, window->to - start) : end;
    const CUdeviceptr from = window->from > start ? end - in_granules(self, end - window->from) : start;
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

/* Makes taken voids, through `chain`, void again. */
static void give_holes(pool *self, uint32_t first)
{
    for (uint32_t slot = first, next; slot; slot = next) {
        next = next_hole(self, slot);
        pool_heap_give(&self->heap, slot, POOL_HOLE);
    }
}

/* Takes the voids in a window: the first one, each with the next one in `chain`. 0 without host memory: then none is
 * taken. The lock is held. */
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

/* Adds frames to a list until there are how->needed bytes in it, and no more: such as are moved, new ones, or new ones
 * in place of one that is too large. */
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

/* Has frames for all voids, one void's behind the other's. */
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

/* The next frames of a list that a void is filled with. */
static pool_chunk_list chunks_of(const pool *self, const pool_chunk_list *all, size_t from, uint64_t bytes)
{
    pool_chunk_list chunks = {.numbers = all->numbers + from};
    while (chunks.bytes < bytes)
        chunks.bytes += pool_chunk_bytes(&self->store.chunks[chunks.numbers[chunks.count++]]);
    return chunks;
}

/* Maps the frames in the voids. On failure some may be mapped. */
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

/* Makes the voids that were filled free memory, and takes the request out of the window. If others have taken some of
 * it meanwhile, there is nothing. */
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

/* What cannot be mapped goes back to the device; addresses that something is left at, because it could not be unmapped,
 * are nobody's from then on. */
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
    if (!terms->may_wait) /* which waits for work, with growth let go */
        pool_overhead_record_moves(self, began + chunks.making_ns, chunks.moved);
    pool_record_reserved(self);
    if (mapped)
        return cut_out(self, need, window, outcome, slot);
    if (gone)
        pool_window_leave(self, window);
    return POOL_NOTHING;
}
