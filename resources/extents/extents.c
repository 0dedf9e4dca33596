/* Extents: cut, joined, given and found. */
#include "resources/extents/extents.h"

#include "core/base/host_memory.h"
#include "core/blocks/uses.h"

enum {
    FIT_PART = 8,   /* of a request: a fit that is larger by no more is good */
    FIT_BETTER = 2, /* times less is left of a much better one */
};

uint32_t pool_heap_first_hole(const pool_heap *heap, pool_side side)
{
    return pool_tree_from(heap, &heap->halves[side].holes, (pool_key){0, 0});
}

uint32_t pool_heap_next_hole(const pool_heap *heap, uint32_t slot)
{
    return pool_tree_next(heap, &heap->halves[pool_extent_at(heap, slot)->side].holes, slot);
}

uint64_t pool_heap_largest_hole(const pool_heap *heap, pool_side side)
{
    return pool_tree_largest(heap, &heap->halves[side].holes);
}

uint64_t pool_heap_largest(const pool_heap *heap)
{
    uint64_t largest = 0;
    for (const pool_stream_list *list = heap->stream_lists; list; list = list->next)
        for (int side = 0; side < POOL_SIDES; side++) {
            const uint64_t here = pool_tree_largest(heap, &list->trees[side]);
            largest = here > largest ? here : largest;
        }
    return largest;
}

/* ---- lists by stream ---- */

static pool_stream_list *find_stream_list(const pool_heap *heap, uint16_t timeline)
{
    pool_stream_list *page = heap->list_pages[timeline / POOL_LISTS_PER_PAGE];
    return page && page[timeline % POOL_LISTS_PER_PAGE].timeline ? &page[timeline % POOL_LISTS_PER_PAGE] : NULL;
}

/* A stream's list, made if missing; NULL without host memory. */
static pool_stream_list *stream_list_of(pool_heap *heap, uint16_t timeline)
{
    pool_stream_list **page = &heap->list_pages[timeline / POOL_LISTS_PER_PAGE];
    if (!*page && !(*page = strata_host_zalloc(POOL_LISTS_PER_PAGE * sizeof **page)))
        return NULL;
    pool_stream_list *list = &(*page)[timeline % POOL_LISTS_PER_PAGE];
    if (!list->timeline) {
        list->timeline = timeline;
        list->next = heap->stream_lists;
        heap->stream_lists = list;
    }
    return list;
}

/* The tree for memory that waits for *number; without host memory for a list the multi-stream tree, and *number says
 * so. */
static pool_tree *tree_for(pool_heap *heap, pool_side side, uint16_t *number)
{
    if (*number == POOL_TIMELINE_NONE)
        return &heap->complete.trees[side];
    pool_stream_list *list = *number == POOL_TIMELINE_MULTI ? NULL : stream_list_of(heap, *number);
    if (list)
        return &list->trees[side];
    *number = POOL_TIMELINE_MULTI;
    return &heap->multi_stream.trees[side];
}

static pool_tree *tree_of(pool_heap *heap, const pool_extent *extent)
{
    if (extent->state == POOL_HOLE)
        return &heap->halves[extent->side].holes;
    if (extent->timeline == POOL_TIMELINE_NONE)
        return &heap->complete.trees[extent->side];
    if (extent->timeline == POOL_TIMELINE_MULTI)
        return &heap->multi_stream.trees[extent->side];
    pool_stream_list *page = heap->list_pages[extent->timeline / POOL_LISTS_PER_PAGE]; /* exists */
    return &page[extent->timeline % POOL_LISTS_PER_PAGE].trees[extent->side];
}

/* ---- extents ---- */

void pool_heap_begin(pool_heap *heap, strata_table *table, uint32_t offset)
{
    heap->table = table;
    heap->offset = offset;
    heap->multi_stream.timeline = POOL_TIMELINE_MULTI;
    heap->multi_stream.next = &heap->complete;
    heap->stream_lists = &heap->multi_stream;
}

static uint32_t take_slot(pool_heap *heap)
{
    return strata_table_take_slot(heap->table);
}

static void give_slot(pool_heap *heap, uint32_t slot)
{
    strata_entry *entry = pool_entry(heap, slot);
    pool_points_clear(entry);
    if (strata_entry_is_renewable(entry))
        strata_table_give_slot(heap->table, slot);
}

static void set_range(strata_entry *entry, CUdeviceptr address, uint64_t bytes)
{
    atomic_store_explicit(&entry->address, address, memory_order_release);
    atomic_store_explicit(&entry->bytes, bytes, memory_order_release);
}

uint32_t pool_heap_enter(pool_heap *heap, pool_side side, CUdeviceptr base, uint64_t bytes)
{
    const uint32_t slot = take_slot(heap);
    if (!slot)
        return 0;
    pool_points_clear(pool_entry(heap, slot)); /* of its last block */
    set_range(pool_entry(heap, slot), base, bytes);
    if (!strata_index_insert(&heap->index, base, slot)) {
        give_slot(heap, slot);
        return 0;
    }
    *pool_extent_at(heap, slot) = (pool_extent){.state = POOL_TAKEN, .side = (uint8_t)side};
    heap->halves[side].range_bytes += bytes;
    return slot;
}

void pool_heap_leave(pool_heap *heap, uint32_t slot)
{
    const strata_entry *entry = pool_entry(heap, slot);
    heap->halves[pool_extent_at(heap, slot)->side].range_bytes -= pool_bytes_of(entry);
    strata_index_remove(&heap->index, pool_address_of(entry));
    give_slot(heap, slot);
}

bool pool_heap_enter_holes(pool_heap *heap, CUdeviceptr base, CUdeviceptr small, uint64_t bytes)
{
    const uint32_t first = pool_heap_enter(heap, POOL_LARGE, base, small - base);
    const uint32_t second = first ? pool_heap_enter(heap, POOL_SMALL, small, base + bytes - small) : 0;
    if (first && !second)
        pool_heap_leave(heap, first);
    if (!second)
        return false;
    pool_heap_give(heap, first, POOL_HOLE);
    pool_heap_give(heap, second, POOL_HOLE);
    return true;
}

void pool_heap_destroy(pool_heap *heap)
{
    for (size_t i = 0; i < sizeof heap->list_pages / sizeof *heap->list_pages; i++)
        strata_host_free(heap->list_pages[i]);
    strata_index_destroy(&heap->index);
}

uint32_t pool_heap_split(pool_heap *heap, uint32_t slot, uint64_t front)
{
    const uint32_t rest = take_slot(heap);
    if (!rest)
        return 0;
    strata_entry *entry = pool_entry(heap, slot), *behind = pool_entry(heap, rest);
    pool_extent *extent = pool_extent_in(heap, entry), *extent_behind = pool_extent_in(heap, behind);
    const CUdeviceptr address = pool_address_of(entry) + front;
    pool_points_clear(behind); /* of its last block */
    if (!pool_points_add_all(behind, entry) || !strata_index_insert(&heap->index, address, rest)) {
        give_slot(heap, rest);
        return 0;
    }
    set_range(behind, address, pool_bytes_of(entry) - front);
    set_range(entry, pool_address_of(entry), front);
    extent_behind->state = extent->state;
    extent_behind->side = extent->side;
    extent_behind->previous = slot;
    extent_behind->next = extent->next;
    if (extent->next)
        pool_extent_at(heap, extent->next)->previous = rest;
    extent->next = rest;
    return rest;
}

uint32_t pool_heap_renumber(pool_heap *heap, uint32_t slot)
{
    const uint32_t number = take_slot(heap);
    if (!number)
        return 0;
    strata_entry *old = pool_entry(heap, slot), *entry = pool_entry(heap, number);
    const CUdeviceptr address = pool_address_of(old);
    pool_points_clear(entry);
    if (!pool_points_add_all(entry, old) || !strata_index_insert(&heap->index, address, number)) {
        give_slot(heap, number);
        return 0;
    }
    const pool_extent extent = *pool_extent_in(heap, old);
    *pool_extent_in(heap, entry) = extent;
    set_range(entry, address, pool_bytes_of(old));
    if (extent.previous)
        pool_extent_at(heap, extent.previous)->next = number;
    if (extent.next)
        pool_extent_at(heap, extent.next)->previous = number;
    give_slot(heap, slot);
    return number;
}

static void join(pool_heap *heap, uint32_t slot, uint32_t behind)
{
    strata_entry *entry = pool_entry(heap, slot), *gone = pool_entry(heap, behind);
    pool_extent *extent = pool_extent_in(heap, entry);
    set_range(entry, pool_address_of(entry), pool_bytes_of(entry) + pool_bytes_of(gone));
    strata_index_remove(&heap->index, pool_address_of(gone));
    extent->next = pool_extent_in(heap, gone)->next;
    if (extent->next)
        pool_extent_at(heap, extent->next)->previous = slot;
    give_slot(heap, behind);
}

static inline void count(pool_heap *heap, uint32_t slot, pool_state from, pool_state to)
{
    const uint64_t bytes = pool_bytes_of(pool_entry(heap, slot));
    pool_half *half = &heap->halves[pool_extent_at(heap, slot)->side];
    half->free_bytes += to == POOL_FREE ? bytes : 0;
    half->free_bytes -= from == POOL_FREE ? bytes : 0;
    half->away_bytes += to == POOL_AWAY ? bytes : 0;
    half->away_bytes -= from == POOL_AWAY ? bytes : 0;
}

void pool_heap_take(pool_heap *heap, uint32_t slot)
{
    pool_extent *extent = pool_extent_at(heap, slot);
    pool_tree_leave(heap, tree_of(heap, extent), slot);
    count(heap, slot, (pool_state)extent->state, POOL_TAKEN);
    extent->state = POOL_TAKEN;
}

void pool_heap_put_away(pool_heap *heap, uint32_t slot)
{
    count(heap, slot, POOL_TAKEN, POOL_AWAY);
    pool_extent_at(heap, slot)->state = POOL_AWAY;
}

void pool_heap_take_away(pool_heap *heap, uint32_t slot)
{
    pool_heap_take(heap, slot);
    pool_heap_put_away(heap, slot);
}

/* Whether an extent that becomes free and waits for `timeline` takes in complete neighbours, which then wait too: if
 * nearly all pending memory waits for it, no other stream misses them. Of the legacy stream, too, for which some
 * captures cannot wait: a program that uses it alone would need up to half as much again. */
static bool should_join_complete(const pool_heap *heap, pool_side side, const pool_tree *tree, uint16_t timeline)
{
    enum { OTHERS_SHARE = 8 };
    if (!heap->joins_complete || timeline == POOL_TIMELINE_NONE || timeline == POOL_TIMELINE_MULTI)
        return false;
    const pool_half *half = &heap->halves[side];
    const uint64_t pending = half->free_bytes - heap->complete.trees[side].bytes, others = pending - tree->bytes;
    return others <= pending / OTHERS_SHARE;
}

static bool can_join(const pool_heap *heap, uint32_t slot, pool_state state, uint16_t timeline, uint64_t complete)
{
    const strata_entry *entry = slot ? pool_entry(heap, slot) : NULL;
    const pool_extent *extent = slot ? pool_extent_at(heap, slot) : NULL;
    if (!extent || extent->state != state)
        return false;
    return state == POOL_HOLE || extent->timeline == timeline ||
           (extent->timeline == POOL_TIMELINE_NONE && pool_bytes_of(entry) <= complete);
}

void pool_heap_give(pool_heap *heap, uint32_t slot, pool_state state)
{
    strata_entry *entry = pool_entry(heap, slot);
    pool_extent *extent = pool_extent_in(heap, entry);
    uint16_t timeline = POOL_TIMELINE_NONE;
    if (state == POOL_FREE)
        timeline = pool_points_timeline(entry);
    else
        pool_points_clear(entry);
    const pool_side side = (pool_side)extent->side;
    pool_tree *tree = state == POOL_HOLE ? &heap->halves[side].holes : tree_for(heap, side, &timeline);
    const uint64_t complete =
        state == POOL_FREE && should_join_complete(heap, side, tree, timeline) ? pool_bytes_of(entry) : 0;
    count(heap, slot, extent->state == POOL_AWAY ? POOL_AWAY : POOL_TAKEN, state);
    /* Points of one stream merge, of several need room. */
    const uint32_t next = extent->next;
    if (can_join(heap, next, state, timeline, complete) && pool_points_add_all(entry, pool_entry(heap, next))) {
        pool_tree_leave(heap, tree_of(heap, pool_extent_at(heap, next)), next);
        join(heap, slot, next);
    }
    const uint32_t previous = extent->previous;
    if (can_join(heap, previous, state, timeline, complete) && pool_points_add_all(pool_entry(heap, previous), entry)) {
        pool_tree_leave(heap, tree_of(heap, pool_extent_at(heap, previous)), previous);
        join(heap, previous, slot);
        slot = previous;
        extent = pool_extent_at(heap, slot);
    }
    extent->state = (uint8_t)state;
    extent->timeline = timeline;
    pool_tree_enter(heap, tree, slot);
}

/* ---- searching ---- */

static uint32_t better(const pool_heap *heap, uint32_t a, uint32_t b)
{
    if (!a || !b)
        return a ? a : b;
    return pool_is_before(pool_key_of(pool_entry(heap, b)), pool_key_of(pool_entry(heap, a))) ? b : a;
}

uint32_t pool_heap_next(pool_heap *heap, uint32_t slot)
{
    return pool_tree_next(heap, tree_of(heap, pool_extent_at(heap, slot)), slot);
}

uint32_t pool_heap_find(pool_heap *heap, pool_side side, uint16_t timeline, uint64_t bytes)
{
    const pool_key least = {bytes, 0};
    const pool_stream_list *list = find_stream_list(heap, timeline);
    const uint32_t own = list ? pool_tree_from(heap, &list->trees[side], least) : 0;
    return better(heap, own, pool_tree_from(heap, &heap->complete.trees[side], least));
}

/* Best fit of a tree; with `accepts`, the first accepted one among the smallest. */
static uint32_t find_in(pool_heap *heap, const pool_tree *tree, uint64_t bytes, pool_accepts accepts, void *data)
{
    uint32_t slot = pool_tree_from(heap, tree, (pool_key){bytes, 0});
    for (unsigned i = 0; slot && accepts && i < POOL_ACCEPTS; i++, slot = pool_heap_next(heap, slot))
        if (accepts(pool_entry(heap, slot), data))
            return slot;
    return accepts ? 0 : slot;
}

uint32_t pool_heap_find_elsewhere(pool_heap *heap, pool_side side, uint64_t bytes, pool_accepts accepts, void *data)
{
    uint32_t found = 0;
    for (const pool_stream_list *list = heap->stream_lists; list; list = list->next)
        found = better(heap, found, find_in(heap, &list->trees[side], bytes, accepts, data));
    return found;
}

uint32_t pool_heap_find_better(pool_heap *heap, pool_side side, uint16_t timeline, uint64_t bytes)
{
    const uint32_t fit = pool_heap_elsewhere(heap, side, timeline) ? pool_heap_find(heap, side, timeline, bytes) : 0;
    const uint64_t rest = fit ? pool_bytes_of(pool_entry(heap, fit)) - bytes : 0;
    if (rest <= bytes / FIT_PART)
        return 0;
    const uint32_t found = pool_heap_find_elsewhere(heap, side, bytes, NULL, NULL);
    return pool_bytes_of(pool_entry(heap, found)) - bytes <= rest / FIT_BETTER ? found : 0;
}

size_t pool_heap_look(const pool_heap *heap, CUdeviceptr *from, pool_seen_extent seen[POOL_SEEN_MOST])
{
    size_t count = 0;
    uint32_t slot = pool_heap_from(heap, *from);
    for (; slot && count < POOL_SEEN_MOST; slot = pool_heap_behind(heap, slot)) {
        const strata_entry *entry = pool_entry(heap, slot);
        const pool_extent *extent = pool_extent_at(heap, slot);
        seen[count++] = (pool_seen_extent){
            .address = pool_address_of(entry),
            .bytes = pool_bytes_of(entry),
            .requested = atomic_load_explicit(&entry->requested, memory_order_relaxed),
            .word = atomic_load_explicit(&entry->word, memory_order_acquire),
            .timeline = extent->timeline,
            .state = extent->state,
            .side = extent->side,
            .tag = atomic_load_explicit(&entry->tag, memory_order_relaxed),
        };
        *from = pool_address_of(entry) + pool_bytes_of(entry);
    }
    return count;
}

void pool_heap_visit_pending(const pool_heap *heap, strata_status (*visit)(strata_point point, void *data), void *data)
{
    for (const pool_stream_list *list = heap->stream_lists; list && list != &heap->multi_stream; list = list->next)
        if (list->trees[POOL_LARGE].bytes || list->trees[POOL_SMALL].bytes || list->trees[POOL_CONTIGUOUS].bytes)
            visit(strata_timeline_now(strata_timeline_numbered(list->timeline)), data);
    for (const pool_tree *tree = heap->multi_stream.trees; tree < heap->multi_stream.trees + POOL_SIDES; tree++)
        for (uint32_t slot = pool_tree_first(heap, tree); slot; slot = pool_tree_next(heap, tree, slot))
            strata_uses_visit(pool_entry(heap, slot), visit, data);
}

uint64_t pool_heap_elsewhere(const pool_heap *heap, pool_side side, uint16_t timeline)
{
    const pool_stream_list *list = find_stream_list(heap, timeline);
    return heap->halves[side].free_bytes - heap->complete.trees[side].bytes - (list ? list->trees[side].bytes : 0);
}

uint32_t pool_heap_from(const pool_heap *heap, CUdeviceptr address)
{
    CUdeviceptr start;
    return strata_index_ceiling(&heap->index, address, &start);
}

uint32_t pool_heap_behind(const pool_heap *heap, uint32_t slot)
{
    const strata_entry *entry = pool_entry(heap, slot);
    const uint32_t next = pool_extent_at(heap, slot)->next;
    return next ? next : pool_heap_from(heap, pool_address_of(entry) + pool_bytes_of(entry));
}

uint32_t pool_heap_around(const pool_heap *heap, CUdeviceptr address)
{
    CUdeviceptr start;
    return strata_index_floor(&heap->index, address, &start);
}

bool pool_heap_is_taken(const pool_heap *heap, CUdeviceptr address, uint64_t bytes)
{
    const uint32_t slot = pool_heap_around(heap, address);
    const strata_entry *entry = slot ? pool_entry(heap, slot) : NULL;
    const uint64_t before = slot ? address - pool_address_of(entry) : 0;
    return slot && pool_extent_at(heap, slot)->state == POOL_TAKEN && before < pool_bytes_of(entry) &&
           bytes <= pool_bytes_of(entry) - before;
}

/* Moves extents whose complete points are dropped now to their tree. A moved one may return to this tree, joined. */
static void process_tree(pool_heap *heap, const pool_tree *tree)
{
    for (uint32_t slot = pool_tree_first(heap, tree), next; slot; slot = next) {
        strata_entry *entry = pool_entry(heap, slot);
        const pool_key key = pool_key_of(entry);
        pool_points_forget_complete(entry);
        if (pool_points_timeline(entry) == pool_extent_at(heap, slot)->timeline) {
            next = pool_tree_next(heap, tree, slot);
        } else {
            pool_heap_take(heap, slot);
            pool_heap_give(heap, slot, POOL_FREE);
            next = pool_tree_behind(heap, tree, key);
        }
    }
}

/* Whether the list's stream got further since it was last processed: else nothing changes. Of several streams that is
 * unknown. */
static bool made_progress(pool_stream_list *list)
{
    if (list->timeline == POOL_TIMELINE_MULTI)
        return true;
    const uint64_t before = list->processed_to;
    list->processed_to =
        atomic_load_explicit(&strata_timeline_numbered(list->timeline)->completed, memory_order_relaxed);
    return list->processed_to != before;
}

void pool_heap_process_completed(pool_heap *heap)
{
    for (pool_stream_list *list = heap->stream_lists; list; list = list->next) {
        const bool progress = list != &heap->complete && made_progress(list);
        for (pool_tree *tree = list->trees; list != &heap->complete && tree < list->trees + POOL_SIDES; tree++) {
            if (!tree->bytes || (!tree->entered && !progress))
                continue;
            tree->entered = false;
            process_tree(heap, tree);
        }
    }
}

static bool waits_only_for(const pool_heap *heap, uint32_t slot, uint16_t timeline)
{
    const pool_extent *extent = slot ? pool_extent_at(heap, slot) : NULL;
    return extent && extent->state == POOL_FREE &&
           (timeline == POOL_TIMELINE_MULTI || extent->timeline == POOL_TIMELINE_NONE || extent->timeline == timeline);
}

uint32_t pool_heap_free_at(const pool_heap *heap, CUdeviceptr address, uint64_t bytes)
{
    const uint32_t first = pool_heap_around(heap, address);
    for (uint32_t slot = first; slot; slot = pool_extent_at(heap, slot)->next) {
        const strata_entry *entry = pool_entry(heap, slot);
        if (pool_extent_at(heap, slot)->state != POOL_FREE)
            return 0;
        if (pool_address_of(entry) + pool_bytes_of(entry) >= address + bytes)
            return first;
    }
    return 0;
}

static pool_work work_on(const pool_heap *heap, uint32_t slot, uint16_t own)
{
    const strata_entry *entry = pool_entry(heap, slot);
    if (pool_extent_at(heap, slot)->timeline == POOL_TIMELINE_NONE || pool_is_complete(entry))
        return POOL_OVER;
    return own != POOL_TIMELINE_NONE && pool_points_timeline(entry) == own ? POOL_IN_ORDER : POOL_OTHERS;
}

pool_work pool_heap_work_on(const pool_heap *heap, uint32_t slot, CUdeviceptr end, uint16_t own)
{
    pool_work most = slot ? POOL_OVER : POOL_IN_USE;
    for (; slot && pool_address_of(pool_entry(heap, slot)) < end; slot = pool_extent_at(heap, slot)->next) {
        const pool_work here = work_on(heap, slot, own);
        most = here > most ? here : most;
    }
    return most;
}

/* Frees all but the first `bytes` of an extent. False without host memory. */
static bool shorten(pool_heap *heap, uint32_t slot, uint64_t bytes)
{
    if (pool_bytes_of(pool_entry(heap, slot)) <= bytes)
        return true;
    const uint32_t rest = pool_heap_split(heap, slot, bytes);
    if (rest)
        pool_heap_give(heap, rest, POOL_FREE);
    return rest != 0;
}

/* Joins the free extent behind, or a part of it, up to `bytes` in all. False without host memory. */
static bool append(pool_heap *heap, uint32_t slot, uint64_t bytes)
{
    const uint32_t next = pool_extent_at(heap, slot)->next;
    pool_heap_take(heap, next);
    if (!shorten(heap, next, bytes - pool_bytes_of(pool_entry(heap, slot))) ||
        !pool_points_add_all(pool_entry(heap, slot), pool_entry(heap, next))) {
        pool_heap_give(heap, next, POOL_FREE);
        return false;
    }
    join(heap, slot, next);
    return true;
}

uint32_t pool_heap_take_range(pool_heap *heap, CUdeviceptr address, uint64_t bytes)
{
    uint32_t slot = pool_heap_free_at(heap, address, bytes);
    if (!slot)
        return 0;
    pool_heap_take(heap, slot);
    const uint64_t before = address - pool_address_of(pool_entry(heap, slot));
    if (before) {
        const uint32_t rest = pool_heap_split(heap, slot, before);
        pool_heap_give(heap, slot, POOL_FREE);
        if (!rest)
            return 0;
        slot = rest;
    }
    bool whole = shorten(heap, slot, bytes);
    while (whole && pool_bytes_of(pool_entry(heap, slot)) < bytes)
        whole = append(heap, slot, bytes);
    if (!whole)
        pool_heap_give(heap, slot, POOL_FREE);
    return whole ? slot : 0;
}

typedef struct run_search {
    uint64_t bytes, least;
    CUdeviceptr best;
    uint16_t timeline; /* POOL_TIMELINE_MULTI: any */
} run_search;

/* Checks a pending extent's run, if it is the run's first pending one. A complete extent before it begins the run:
 * complete neighbours are one extent. */
static void check_run(const pool_heap *heap, uint32_t slot, run_search *search)
{
    const uint32_t previous = pool_extent_at(heap, slot)->previous;
    if (waits_only_for(heap, previous, search->timeline)) {
        const pool_extent *before = pool_extent_at(heap, previous);
        if (before->timeline != POOL_TIMELINE_NONE || waits_only_for(heap, before->previous, search->timeline))
            return;
        slot = previous;
    }
    const CUdeviceptr start = pool_address_of(pool_entry(heap, slot));
    uint64_t run = 0;
    for (; waits_only_for(heap, slot, search->timeline); slot = pool_extent_at(heap, slot)->next)
        run += pool_bytes_of(pool_entry(heap, slot));
    if (run < search->bytes || run > search->least || (run == search->least && start > search->best))
        return;
    search->least = run;
    search->best = start;
}

/* Looks at pending extents alone: every run of several extents has one. */
CUdeviceptr pool_heap_find_run(const pool_heap *heap, pool_side side, uint16_t timeline, uint64_t bytes)
{
    run_search search = {.bytes = bytes, .least = UINT64_MAX, .timeline = timeline};
    const bool all = timeline == POOL_TIMELINE_MULTI;
    if (heap->halves[side].free_bytes - (all ? 0 : pool_heap_elsewhere(heap, side, timeline)) < bytes)
        return 0;
    for (const pool_stream_list *list = heap->stream_lists; list; list = list->next) {
        if (list == &heap->complete || !(all || list->timeline == timeline))
            continue;
        const pool_tree *tree = &list->trees[side];
        for (uint32_t slot = pool_tree_first(heap, tree); slot; slot = pool_tree_next(heap, tree, slot))
            check_run(heap, slot, &search);
    }
    return search.best;
}
