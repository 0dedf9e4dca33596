/* Cutting segments into ranges: best fit among the free ones, then over runs of neighbours. */
#include "runtime/capture_ranges.h"

#include "core/base/host_memory.h"

/* ---- free ranges by size ---- */

/* The index of the list for ranges of this size: up to seven grains one for each number of them, then eight for each
 * doubling; the last list has all that is larger. */
static size_t size_of(size_t bytes)
{
    const size_t grains = bytes / STRATA_CAPTURE_GRAIN;
    if (grains < 8)
        return grains;
    const unsigned doublings = 63 - (unsigned)__builtin_clzll(grains);
    const size_t size = (doublings - 2) * 8 + ((grains >> (doublings - 3)) & 7);
    return size < STRATA_CAPTURE_SIZES ? size : STRATA_CAPTURE_SIZES - 1;
}

static inline void link_range(strata_capture_ranges *ranges, strata_capture_range *range)
{
    const size_t size = size_of(range->bytes);
    range->size = (uint16_t)size;
    range->same_previous = NULL;
    range->same_next = ranges->free_by_size[size];
    if (range->same_next)
        range->same_next->same_previous = range;
    ranges->free_by_size[size] = range;
    ranges->sizes[size / 64] |= UINT64_C(1) << size % 64;
    range->segment->free_bytes += range->bytes;
}

static void unlink_range(strata_capture_ranges *ranges, strata_capture_range *range)
{
    const size_t size = range->size;
    if (range->same_next)
        range->same_next->same_previous = range->same_previous;
    if (range->same_previous)
        range->same_previous->same_next = range->same_next;
    else if (!(ranges->free_by_size[size] = range->same_next))
        ranges->sizes[size / 64] &= ~(UINT64_C(1) << size % 64);
    range->segment->free_bytes -= range->bytes;
}

/* As unlink_range, for the first range of its list. */
static inline void unlink_first(strata_capture_ranges *ranges, const strata_capture_range *range, size_t size)
{
    ranges->free_by_size[size] = range->same_next;
    if (range->same_next)
        range->same_next->same_previous = NULL;
    else
        ranges->sizes[size / 64] &= ~(UINT64_C(1) << size % 64);
    range->segment->free_bytes -= range->bytes;
}

/* The first size from `size` on that has a free range; STRATA_CAPTURE_SIZES: none. */
static size_t next_size(const strata_capture_ranges *ranges, size_t size)
{
    for (size_t word = size / 64; word < STRATA_CAPTURE_SIZES / 64; word++) {
        uint64_t bits = ranges->sizes[word];
        if (word == size / 64)
            bits &= ~UINT64_C(0) << size % 64;
        if (bits)
            return word * 64 + (size_t)__builtin_ctzll(bits);
    }
    return STRATA_CAPTURE_SIZES;
}

/* ---- finding ---- */

typedef struct run {
    strata_capture_range *first;
    CUdeviceptr start; /* aligned, in `first` */
    size_t bytes;      /* from the start to the end of the run */
} run;

/* Whether work at the place may use the range. A body may use what was freed around it and what its node comes after;
 * of a node's bodies one runs at a time. */
static inline bool may_use(const strata_capture_range *range, strata_capture_place *place)
{
    if (range->live || !range->capture)
        return !range->live;
    while (place && range->capture != place->front->id)
        place = place->around;
    return place && !range->barred && strata_capture_place_is_after_all(place, &range->after);
}

static CUdeviceptr align(CUdeviceptr address, size_t alignment)
{
    return (address + alignment - 1) & ~(CUdeviceptr)(alignment - 1);
}

/* The smallest free range that suffices alone; of the same size, the latest. */
static run find_one(const strata_capture_ranges *ranges, size_t bytes, size_t alignment, strata_capture_place *place)
{
    run best = {0};
    for (size_t size = next_size(ranges, size_of(bytes)); size < STRATA_CAPTURE_SIZES && !best.bytes;
         size = next_size(ranges, size + 1))
        for (strata_capture_range *range = ranges->free_by_size[size]; range && best.bytes != bytes;
             range = range->same_next) {
            const size_t skipped = (size_t)(align(range->address, alignment) - range->address);
            if (range->bytes < bytes || range->bytes - bytes < skipped)
                continue;
            if ((!best.bytes || range->bytes - skipped < best.bytes) && may_use(range, place))
                best = (run){.first = range, .start = range->address + skipped, .bytes = range->bytes - skipped};
        }
    return best;
}

/* The run of usable ranges that begins with `first`; *end: the range behind it. */
static run run_from(strata_capture_range *first, size_t alignment, strata_capture_place *place,
                    strata_capture_range **end)
{
    run found = {.first = first};
    CUdeviceptr behind = first->address;
    for (*end = first; *end && may_use(*end, place); *end = (*end)->next)
        behind += (*end)->bytes;
    found.start = align(first->address, alignment);
    while (found.first != *end && found.start >= found.first->address + found.first->bytes)
        found.first = found.first->next;
    found.bytes = found.first != *end && found.start < behind ? behind - found.start : 0;
    return found;
}

/* The smallest run that suffices. Neighbours of different order are not joined, so a run may where no range does. */
static run find_run(const strata_capture_ranges *ranges, size_t bytes, size_t alignment, strata_capture_place *place)
{
    run best = {0};
    for (strata_capture_segment *segment = ranges->segments; segment; segment = segment->next) {
        strata_capture_range *end;
        for (strata_capture_range *range = segment->free_bytes >= bytes ? segment->first : NULL; range;
             range = end ? end->next : NULL) {
            const run found = run_from(range, alignment, place, &end);
            if (found.bytes >= bytes && (!best.bytes || found.bytes < best.bytes))
                best = found;
        }
    }
    return best;
}

/* ---- cutting and joining ---- */

/* Cuts a free range that is not linked after `bytes`; the second part, which is new, is linked. False without host
 * memory. */
static bool cut(strata_capture_ranges *ranges, strata_capture_range *range, size_t bytes)
{
    strata_capture_range *rest = ranges->spare ? ranges->spare : strata_host_zalloc(sizeof *rest);
    if (!rest)
        return false;
    ranges->spare = rest->next;
    *rest = (strata_capture_range){.previous = range,
                                   .next = range->next,
                                   .segment = range->segment,
                                   .address = range->address + bytes,
                                   .bytes = range->bytes - bytes,
                                   .capture = range->capture,
                                   .barred = range->barred};
    if (!strata_nodes_add(&rest->after, strata_nodes_items(&range->after), range->after.count))
        rest->barred = true;
    if (rest->next)
        rest->next->previous = rest;
    range->next = rest;
    range->bytes = bytes;
    link_range(ranges, rest);
    return true;
}

/* Joins a range with the next one. Neither is linked. */
static void absorb_next(strata_capture_ranges *ranges, strata_capture_range *range)
{
    strata_capture_range *next = range->next;
    range->bytes += next->bytes;
    range->next = next->next;
    if (range->next)
        range->next->previous = range;
    strata_nodes_free(&next->after);
    next->next = ranges->spare;
    ranges->spare = next;
}

static void forget_order(strata_capture_range *range)
{
    strata_nodes_free(&range->after);
    range->capture = 0;
    range->barred = false;
}

/* The range that begins at the run's start, cut off if need be, not linked; NULL without host memory. */
static strata_capture_range *begin_run(strata_capture_ranges *ranges, const run *found)
{
    strata_capture_range *range = found->first;
    unlink_range(ranges, range);
    if (found->start == range->address)
        return range;
    const bool was_cut = cut(ranges, range, (size_t)(found->start - range->address));
    link_range(ranges, range);
    if (!was_cut)
        return NULL;
    unlink_range(ranges, range->next);
    return range->next;
}

/* Cuts a run after its first `bytes`. Its first range is `range`, which is not linked. False without host memory. */
static bool end_run(strata_capture_ranges *ranges, strata_capture_range *range, size_t bytes)
{
    strata_capture_range *last = range;
    size_t before = 0; /* bytes of the ranges before the last one */
    for (; before + last->bytes < bytes; last = last->next)
        before += last->bytes;
    if (before + last->bytes == bytes)
        return true;
    if (last != range)
        unlink_range(ranges, last);
    const bool was_cut = cut(ranges, last, bytes - before);
    if (last != range)
        link_range(ranges, last);
    return was_cut;
}

/* Takes the range of this size that was freed last, if it fits as it is: most requests of a capture come again. NULL:
 * take_best has to look for one. */
static strata_capture_range *take_latest(strata_capture_ranges *ranges, size_t bytes, size_t alignment,
                                         strata_capture_place *place)
{
    const size_t size = size_of(bytes);
    strata_capture_range *range = ranges->free_by_size[size];
    if (!range || range->bytes != bytes || range->address & (alignment - 1) || !may_use(range, place))
        return NULL;
    unlink_first(ranges, range, size);
    return range;
}

/* Takes the best range, or joins the best run of ranges; not linked. NULL: there is none, or *failed: no memory. */
static strata_capture_range *take_best(strata_capture_ranges *ranges, size_t bytes, size_t alignment,
                                       strata_capture_place *place, bool *failed)
{
    run best = find_one(ranges, bytes, alignment, place);
    if (!best.bytes)
        best = find_run(ranges, bytes, alignment, place);
    if (!best.bytes)
        return NULL;
    strata_capture_range *range = begin_run(ranges, &best);
    *failed = !range;
    if (*failed)
        return NULL;
    *failed = !end_run(ranges, range, bytes);
    if (*failed) {
        link_range(ranges, range);
        return NULL;
    }
    while (range->bytes < bytes) {
        unlink_range(ranges, range->next);
        absorb_next(ranges, range);
    }
    return range;
}

static inline strata_capture_range *begin_use(strata_capture_ranges *ranges, strata_capture_range *range)
{
    range->live = true;
    range->segment->live++;
    ranges->in_use += range->bytes;
    forget_order(range);
    return range;
}

/* The rest of strata_capture_ranges_take, out of the way of most calls. */
static __attribute__((noinline)) strata_capture_range *
take_other(strata_capture_ranges *ranges, size_t bytes, size_t alignment, strata_capture_place *place, bool *failed)
{
    strata_capture_range *range = take_best(ranges, bytes, alignment, place, failed);
    return range ? begin_use(ranges, range) : NULL;
}

strata_capture_range *strata_capture_ranges_take(strata_capture_ranges *ranges, size_t bytes, size_t alignment,
                                                 strata_capture_place *place, bool *failed)
{
    *failed = false;
    strata_capture_range *range = take_latest(ranges, bytes, alignment, place);
    return range ? begin_use(ranges, range) : take_other(ranges, bytes, alignment, place, failed);
}

bool strata_capture_ranges_add(strata_capture_ranges *ranges, const strata_block *block, strata_entry *entry)
{
    strata_capture_segment *segment = strata_host_zalloc(sizeof *segment);
    strata_capture_range *range = segment ? strata_host_zalloc(sizeof *range) : NULL;
    if (!range) {
        strata_host_free(segment);
        return false;
    }
    *range = (strata_capture_range){.segment = segment, .address = block->address, .bytes = block->bytes};
    *segment = (strata_capture_segment){.next = ranges->segments, .block = *block, .entry = entry, .first = range};
    ranges->segments = segment;
    link_range(ranges, range);
    ranges->reserved += block->bytes;
    return true;
}

/* Whether the range, which was freed at the place, can be joined with a neighbour: what comes after the range's nodes
 * comes after the neighbour's, too. */
static inline bool covers(const strata_capture_range *range, const strata_capture_range *neighbour,
                          strata_capture_place *place)
{
    if (!neighbour || neighbour->live || neighbour->capture != range->capture)
        return false;
    if (!range->capture)
        return true;
    return place && !range->barred && !neighbour->barred && strata_capture_place_is_after_all(place, &neighbour->after);
}

/* Makes a live range free, joins it with its neighbours, and links it. */
static void free_range(strata_capture_ranges *ranges, strata_capture_range *range, strata_capture_place *place)
{
    range->live = false;
    range->segment->live--;
    ranges->in_use -= range->bytes;
    while (covers(range, range->next, place)) {
        unlink_range(ranges, range->next);
        absorb_next(ranges, range);
    }
    while (covers(range, range->previous, place)) {
        strata_capture_range *previous = range->previous;
        unlink_range(ranges, previous);
        strata_nodes_free(&previous->after);
        previous->after = range->after;
        range->after = (strata_nodes){0};
        absorb_next(ranges, previous);
        range = previous;
    }
    link_range(ranges, range);
}

void strata_capture_ranges_give(strata_capture_ranges *ranges, strata_capture_range *range)
{
    forget_order(range);
    free_range(ranges, range, NULL);
}

void strata_capture_ranges_give_within(strata_capture_ranges *ranges, strata_capture_range *range, cuuint64_t capture,
                                       strata_capture_place *place)
{
    range->capture = capture;
    range->barred = false;
    free_range(ranges, range, place);
}

void strata_capture_ranges_give_barred(strata_capture_ranges *ranges, strata_capture_range *range, cuuint64_t capture)
{
    forget_order(range);
    range->capture = capture;
    range->barred = true;
    free_range(ranges, range, NULL);
}

/* Joins a free range with those behind it, if they are free for all. */
static void join_next(strata_capture_ranges *ranges, strata_capture_range *range)
{
    if (range->live || range->capture || !covers(range, range->next, NULL))
        return;
    unlink_range(ranges, range);
    while (covers(range, range->next, NULL)) {
        unlink_range(ranges, range->next);
        absorb_next(ranges, range);
    }
    link_range(ranges, range);
}

void strata_capture_ranges_body_ended(strata_capture_ranges *ranges, cuuint64_t body, cuuint64_t around,
                                      CUgraphNode node)
{
    for (strata_capture_segment *segment = ranges->segments; segment; segment = segment->next)
        for (strata_capture_range *range = segment->first; range; range = range->next)
            if (!range->live && range->capture == body) {
                strata_nodes_free(&range->after);
                strata_nodes_push(&range->after, node); /* the first needs no host memory */
                range->capture = around;
            }
}

void strata_capture_ranges_capture_ended(strata_capture_ranges *ranges, cuuint64_t capture)
{
    for (strata_capture_segment *segment = ranges->segments; segment; segment = segment->next) {
        for (strata_capture_range *range = segment->first; range; range = range->next)
            if (!range->live && range->capture == capture)
                forget_order(range);
        for (strata_capture_range *range = segment->first; range; range = range->next)
            join_next(ranges, range);
    }
}

void strata_capture_ranges_free(strata_capture_ranges *ranges)
{
    for (strata_capture_segment *segment = ranges->segments, *next; segment; segment = next) {
        next = segment->next;
        for (strata_capture_range *range = segment->first, *after; range; range = after) {
            after = range->next;
            strata_nodes_free(&range->after);
            strata_host_free(range);
        }
        strata_host_free(segment);
    }
    for (strata_capture_range *range = ranges->spare, *after; range; range = after) {
        after = range->next;
        strata_host_free(range);
    }
    *ranges = (strata_capture_ranges){0};
}
