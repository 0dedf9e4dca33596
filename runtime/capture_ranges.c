/* Cutting segments into ranges: best fit over runs of neighbours that the work may use. */
#include "runtime/capture_ranges.h"

#include "core/base/host_memory.h"

typedef struct run {
    strata_capture_segment *segment;
    strata_capture_range *first;
    CUdeviceptr start; /* aligned, in `first` */
    size_t bytes;      /* from the start to the end of the run */
} run;

static bool may_use(const strata_capture_range *range, strata_capture_place *place)
{
    if (range->live)
        return false;
    if (range->capture != place->front->id || !range->capture)
        return true;
    if (range->barred)
        return false;
    if (range->plain && range->stream == place->stream)
        return true;
    for (size_t i = 0; i < range->after.count; i++)
        if (!strata_ancestors_have(&place->ancestors, strata_nodes_items(&range->after)[i]))
            return false;
    return true;
}

/* The run of usable ranges that begins with `first`; *end: the range behind it. */
static run run_from(strata_capture_segment *segment, strata_capture_range *first, size_t alignment,
                    strata_capture_place *place, strata_capture_range **end)
{
    run found = {.segment = segment, .first = first};
    CUdeviceptr behind = first->address;
    for (*end = first; *end && may_use(*end, place); *end = (*end)->next)
        behind += (*end)->bytes;
    found.start = (first->address + alignment - 1) & ~(CUdeviceptr)(alignment - 1);
    while (found.first != *end && found.start >= found.first->address + found.first->bytes)
        found.first = found.first->next;
    found.bytes = found.first != *end && found.start < behind ? behind - found.start : 0;
    return found;
}

static run find_best(strata_capture_ranges *ranges, size_t bytes, size_t alignment, strata_capture_place *place)
{
    run best = {0};
    for (strata_capture_segment *segment = ranges->segments; segment; segment = segment->next) {
        strata_capture_range *end;
        for (strata_capture_range *range = segment->first; range; range = end ? end->next : NULL) {
            const run found = run_from(segment, range, alignment, place, &end);
            if (found.bytes >= bytes && (!best.bytes || found.bytes < best.bytes))
                best = found;
        }
    }
    return best;
}

/* Cuts a free range, of which the second part is new. False without host memory. */
static bool cut(strata_capture_ranges *ranges, strata_capture_range *range, size_t bytes)
{
    strata_capture_range *rest = ranges->spare ? ranges->spare : strata_host_zalloc(sizeof *rest);
    if (!rest)
        return false;
    ranges->spare = rest->next;
    *rest = (strata_capture_range){.previous = range,
                                   .next = range->next,
                                   .address = range->address + bytes,
                                   .bytes = range->bytes - bytes,
                                   .capture = range->capture,
                                   .stream = range->stream,
                                   .plain = range->plain,
                                   .barred = range->barred};
    if (!strata_nodes_add(&rest->after, strata_nodes_items(&range->after), range->after.count))
        rest->barred = true;
    if (rest->next)
        rest->next->previous = rest;
    range->next = rest;
    range->bytes = bytes;
    return true;
}

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
    range->stream = NULL;
    range->plain = range->barred = false;
}

strata_capture_range *strata_capture_ranges_take(strata_capture_ranges *ranges, size_t bytes, size_t alignment,
                                                 strata_capture_place *place, strata_capture_segment **segment,
                                                 bool *failed)
{
    const run best = find_best(ranges, bytes, alignment, place);
    *failed = false;
    if (!best.bytes)
        return NULL;
    strata_capture_range *range = best.first, *last;
    if (best.start > range->address) {
        *failed = !cut(ranges, range, (size_t)(best.start - range->address));
        if (*failed)
            return NULL;
        range = range->next;
    }
    size_t before = 0; /* bytes of the ranges before the last one */
    for (last = range; before + last->bytes < bytes; last = last->next)
        before += last->bytes;
    *failed = before + last->bytes > bytes && !cut(ranges, last, bytes - before);
    if (*failed)
        return NULL;
    while (range->bytes < bytes)
        absorb_next(ranges, range);
    forget_order(range);
    range->live = true;
    best.segment->live++;
    ranges->in_use += bytes;
    *segment = best.segment;
    return range;
}

bool strata_capture_ranges_add(strata_capture_ranges *ranges, const strata_block *block)
{
    strata_capture_segment *segment = strata_host_zalloc(sizeof *segment);
    strata_capture_range *range = segment ? strata_host_zalloc(sizeof *range) : NULL;
    if (!range) {
        strata_host_free(segment);
        return false;
    }
    *range = (strata_capture_range){.address = block->address, .bytes = block->bytes};
    *segment = (strata_capture_segment){.next = ranges->segments, .block = *block, .first = range};
    ranges->segments = segment;
    ranges->reserved += block->bytes;
    return true;
}

/* Whether one range can stand for both. */
static bool are_alike(const strata_capture_range *a, const strata_capture_range *b)
{
    if (a->live || b->live || a->capture != b->capture)
        return false;
    return !a->capture || (a->plain && b->plain && a->stream == b->stream && !a->barred && !b->barred);
}

/* Without host memory for the nodes of both they stay two. */
static void join_next(strata_capture_ranges *ranges, strata_capture_range *range)
{
    while (range->next && are_alike(range, range->next) &&
           strata_nodes_add(&range->after, strata_nodes_items(&range->next->after), range->next->after.count))
        absorb_next(ranges, range);
}

static void free_range(strata_capture_ranges *ranges, strata_capture_segment *segment, strata_capture_range *range)
{
    range->live = false;
    segment->live--;
    ranges->in_use -= range->bytes;
    join_next(ranges, range);
    if (range->previous)
        join_next(ranges, range->previous);
}

void strata_capture_ranges_give(strata_capture_ranges *ranges, strata_capture_segment *segment,
                                strata_capture_range *range)
{
    forget_order(range);
    free_range(ranges, segment, range);
}

void strata_capture_ranges_give_within(strata_capture_ranges *ranges, strata_capture_segment *segment,
                                       strata_capture_range *range, cuuint64_t capture, CUstream stream, bool plain,
                                       strata_nodes *after)
{
    range->capture = capture;
    range->stream = stream;
    range->plain = plain;
    range->barred = false;
    range->after = *after;
    *after = (strata_nodes){0};
    free_range(ranges, segment, range);
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
