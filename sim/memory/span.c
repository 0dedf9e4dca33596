/* How a memory pool, or cuMemAlloc's space, hands out memory.
 *
 * An extent is a list of spans in address order. A pool's is one large range whose chunks get memory as the pool grows
 * and lose it when the host has waited (sim_space_observe) or is short of memory; those without are holes. A free span
 * for any queue is in the common tree. One whose free is only submitted is in the bin of the free's queue, which may
 * use it at once, since its order protects the bytes; other queues if they are known to come after the free, or by
 * waiting for it. It moves to the common tree when the host has waited for the free, with opportunistic reuse also when
 * the pool is asked for memory after the free is done. Chunks in the common tree can go back to the device. Both are
 * searched for the best fit. Free neighbours with the same users coalesce. */
#include "memory/memory.h"
#include <stdlib.h>
#include <string.h>

static sim_span *span_of(sim_node *node)
{
    return node ? (sim_span *)(void *)((char *)node - offsetof(sim_span, by_size)) : NULL;
}

static sim_tree *tree_of(sim_span *span)
{
    return span->bin ? &span->bin->by_size : &span->extent->space->common;
}

static void put_in_tree(sim_span *span)
{
    sim_tree_insert(tree_of(span), &span->by_size, span->bytes, span->address);
}

static void take_from_tree(sim_span *span)
{
    sim_tree_remove(tree_of(span), &span->by_size);
}

static void unlink_span(sim_span *span)
{
    if (span->previous)
        span->previous->next = span->next;
    else
        span->extent->first = span->next;
    if (span->next)
        span->next->previous = span->previous;
    free(span);
}

static void set_free_point(sim_span *span, uint64_t position, sim_op *op)
{
    span->position = position;
    span->op = op;
    if (op)
        op->span = span;
}

/* Merges two neighbours, free and in no tree, into the left one. */
static void absorb(sim_span *left, sim_span *right)
{
    sim_op *forgotten = right->op;
    if (right->position > left->position) {
        forgotten = left->op;
        set_free_point(left, right->position, right->op);
    }
    if (forgotten)
        forgotten->span = NULL;
    left->bytes += right->bytes;
    unlink_span(right);
}

static bool alike(const sim_span *a, const sim_span *b)
{
    return a && b && a->free && b->free && a->bin == b->bin;
}

/* Puts a free span into its tree, coalesced with its neighbours, and returns the whole. */
static sim_span *settle_in(sim_span *span)
{
    if (alike(span, span->next)) {
        take_from_tree(span->next);
        absorb(span, span->next);
    }
    if (alike(span->previous, span)) {
        sim_span *left = span->previous;
        take_from_tree(left);
        absorb(left, span);
        span = left;
    }
    put_in_tree(span);
    return span;
}

static sim_bin *find_bin(const sim_space *space, const sim_component *component)
{
    if (component->slot >= space->bin_slots || !space->bins[component->slot] ||
        space->bins[component->slot]->component != component->uid)
        return NULL;
    return space->bins[component->slot];
}

static sim_bin *make_bin(sim_space *space, const sim_component *component)
{
    if (component->slot >= space->bin_slots) {
        uint32_t slots = sim_order.component_slots;
        sim_bin **bins = realloc(space->bins, slots * sizeof(*bins));
        if (!bins)
            return NULL;
        memset(bins + space->bin_slots, 0, (slots - space->bin_slots) * sizeof(*bins));
        space->bins = bins;
        space->bin_slots = slots;
    }
    if (!space->bins[component->slot]) {
        sim_bin *bin = calloc(1, sizeof *bin);
        if (bin)
            bin->component = component->uid;
        space->bins[component->slot] = bin;
    }
    return space->bins[component->slot];
}

/* ---- extents ---- */

static bool on_device(const sim_space *space, uint64_t bytes)
{
    return bytes <= space->device->memory->bytes - space->device->memory->used;
}

static bool fits(const sim_space *space, uint64_t bytes)
{
    bool in_limit = space->limit == 0 || (space->reserved <= space->limit && bytes <= space->limit - space->reserved);
    return on_device(space, bytes) && in_limit;
}

static void reserve(sim_space *space, uint64_t bytes)
{
    space->device->memory->used += bytes;
    space->reserved += bytes;
    if (space->reserved > space->reserved_high)
        space->reserved_high = space->reserved;
}

static void unreserve(sim_space *space, uint64_t bytes)
{
    space->device->memory->used -= bytes;
    space->reserved -= bytes;
}

/* Makes an extent of one span, which is in no tree. NULL without memory. */
static sim_extent *open_extent(sim_space *space, uint64_t bytes)
{
    sim_extent *extent = calloc(1, sizeof *extent);
    sim_span *span = calloc(1, sizeof *span);
    if (!extent || !span || !sim_address_take(bytes, &extent->address))
        goto no_addresses;
    extent->memory = sim_backing_take(bytes);
    if (!extent->memory)
        goto no_backing;
    if (!sim_index_open(&extent->known, bytes / SIM_GRANULE))
        goto no_known;
    if (!sim_index_open(&extent->present, bytes / SIM_GRANULE))
        goto no_present;
    extent->space = space;
    extent->bytes = bytes;
    sim_bytes_close(extent->memory, bytes);
    extent->first = span;
    extent->next = space->extents;
    if (extent->next)
        extent->next->previous = extent;
    space->extents = extent;
    span->extent = extent;
    span->address = extent->address;
    span->bytes = bytes;
    sim_tree_insert(&sim_memory.extents, &extent->by_address, extent->address, 0);
    return extent;

no_present:
    sim_index_close(&extent->known);
no_known:
    sim_backing_give(extent->memory, bytes);
no_backing:
    sim_address_give(extent->address, bytes);
no_addresses:
    free(span);
    free(extent);
    return NULL;
}

static void close_extent(sim_extent *extent)
{
    sim_space *space = extent->space;
    for (sim_span *span = extent->first; span; span = extent->first) {
        extent->first = span->next;
        if (span->op)
            span->op->span = NULL;
        if (!span->hole)
            unreserve(space, span->bytes);
        free(span);
    }
    if (extent->previous)
        extent->previous->next = extent->next;
    else
        space->extents = extent->next;
    if (extent->next)
        extent->next->previous = extent->previous;
    sim_tree_remove(&sim_memory.extents, &extent->by_address);
    sim_extent_vanish(extent);
    sim_index_close(&extent->known);
    sim_index_close(&extent->present);
    sim_bytes_forget(extent->memory, extent->touched);
    sim_backing_give(extent->memory, extent->bytes);
    sim_address_give(extent->address, extent->bytes);
    free(extent);
}

/* ---- growing and shrinking ---- */

/* Cuts a span that is in no tree; the part behind has the same state. False without memory. */
static bool split(sim_span *span, uint64_t bytes)
{
    if (span->bytes == bytes)
        return true;
    sim_span *rest = malloc(sizeof *rest);
    if (!rest)
        return false;
    *rest = *span;
    rest->address += bytes;
    rest->bytes -= bytes;
    rest->previous = span;
    if (rest->next)
        rest->next->previous = rest;
    span->next = rest;
    span->bytes = bytes;
    set_free_point(rest, span->position, span->op);
    span->op = NULL;
    return true;
}

/* Cuts a free span that is in no tree; the part behind goes into its tree. False without memory. */
static bool cut_to(sim_span *span, uint64_t bytes)
{
    bool whole = span->bytes == bytes;
    if (!split(span, bytes))
        return false;
    if (!whole)
        put_in_tree(span->next);
    return true;
}

/* Marks the span's bytes as touched, and for memory debuggers as of no allocation. */
static void touch(const sim_span *span)
{
    sim_extent *extent = span->extent;
    uint64_t begin = span->address - extent->address;
    sim_bytes_close(extent->memory + begin, span->bytes);
    if (begin + span->bytes > extent->touched)
        extent->touched = begin + span->bytes;
}

static sim_span *grow_direct(sim_space *space, uint64_t bytes)
{
    uint64_t size = sim_round_up(bytes, SIM_PAGE);
    sim_extent *extent = fits(space, size) ? open_extent(space, size) : NULL;
    if (!extent)
        return NULL;
    reserve(space, size);
    extent->first->free = true;
    touch(extent->first);
    return extent->first;
}

static bool mappable(const sim_span *span)
{
    return span && (span->hole || (span->free && !span->bin));
}

/* Bytes to map for so many from this span on; UINT64_MAX: something in use is in the way. */
static uint64_t missing_at(const sim_span *span, uint64_t bytes)
{
    uint64_t missing = 0;
    while (mappable(span)) {
        uint64_t part = bytes < span->bytes ? bytes : span->bytes;
        missing += span->hole ? sim_round_up(part, SIM_CHUNK) : 0;
        bytes -= part;
        if (bytes == 0)
            return missing;
        span = span->next;
    }
    return UINT64_MAX;
}

static sim_span *best_place(const sim_space *space, uint64_t bytes, uint64_t *missing)
{
    sim_span *best = NULL;
    *missing = UINT64_MAX;
    for (sim_extent *extent = space->extents; extent; extent = extent->next) {
        for (sim_span *span = extent->first; span; span = span->next) {
            uint64_t here = missing_at(span, bytes);
            if (here < *missing) {
                best = span;
                *missing = here;
            }
        }
    }
    return best;
}

/* Gives a hole's first bytes memory, in whole chunks: they become a free span in no tree. False without memory. */
static bool fill_hole(sim_span *hole, uint64_t bytes)
{
    uint64_t size = sim_round_up(bytes < hole->bytes ? bytes : hole->bytes, SIM_CHUNK);
    if (!split(hole, size))
        return false;
    hole->hole = false;
    hole->free = true;
    touch(hole);
    reserve(hole->extent->space, size);
    return true;
}

/* Joins a span with those behind it until it has at least so many bytes, and takes it out of its tree. False: without
 * memory; the span is in its tree. */
static bool join_from(sim_span *span, uint64_t bytes)
{
    if (span->hole) {
        if (!fill_hole(span, bytes))
            return false;
    } else {
        take_from_tree(span);
    }
    while (span->bytes < bytes) {
        sim_span *next = span->next;
        if (next->hole) {
            if (!fill_hole(next, bytes - span->bytes)) {
                put_in_tree(span);
                return false;
            }
        } else {
            take_from_tree(next);
        }
        absorb(span, next);
    }
    return true;
}

/* Makes an extent that is one hole of at least so many bytes, if possible with room for all that the pool may hold. */
static sim_span *open_range(sim_space *space, uint64_t bytes)
{
    uint64_t most =
        space->limit > 0 && space->limit < space->device->memory->bytes ? space->limit : space->device->memory->bytes;
    uint64_t room = sim_debugger_is_valgrind() ? SIM_SMALL_RANGE : SIM_MOST_RANGE;
    uint64_t range = sim_round_up(most < room ? most : room, SIM_CHUNK);
    sim_extent *extent = range > bytes ? open_extent(space, range) : NULL;
    if (!extent)
        extent = open_extent(space, bytes);
    if (!extent)
        return NULL;
    extent->first->hole = true;
    return extent->first;
}

static sim_span *grow_pool(sim_space *space, uint64_t bytes)
{
    uint64_t missing;
    sim_span *span = best_place(space, bytes, &missing);
    if (!span) {
        missing = sim_round_up(bytes, SIM_CHUNK);
        span = fits(space, missing) ? open_range(space, missing) : NULL;
    }
    return span && fits(space, missing) && join_from(span, bytes) ? span : NULL;
}

/* Returns a span with memory from the device, which is in no tree, and may be larger; NULL: there is none. */
static sim_span *grow(sim_space *space, uint64_t bytes)
{
    if (bytes > SIM_MOST_MEMORY)
        return NULL;
    return space->direct ? grow_direct(space, bytes) : grow_pool(space, bytes);
}

static bool extent_idle(const sim_extent *extent)
{
    return !extent->first->next && extent->first->free && !extent->first->bin;
}

static void coalesce_holes(sim_span *left, sim_span *right)
{
    if (left && right && left->hole && right->hole) {
        left->bytes += right->bytes;
        unlink_span(right);
    }
}

/* Gives back at most so many bytes of a common span's chunks, the last ones first. */
static void make_hole(sim_span *span, uint64_t most)
{
    sim_extent *extent = span->extent;
    uint64_t begin = span->address - extent->address;
    uint64_t first = sim_round_up(begin, SIM_CHUNK);
    uint64_t last = (begin + span->bytes) / SIM_CHUNK * SIM_CHUNK;
    if (last <= first)
        return;
    if (last - first > most)
        first = last - most / SIM_CHUNK * SIM_CHUNK;
    take_from_tree(span);
    if (!cut_to(span, last - begin)) {
        put_in_tree(span);
        return;
    }
    if (first > begin) {
        bool cut = split(span, first - begin);
        put_in_tree(span);
        if (!cut)
            return;
        span = span->next;
    }
    span->free = false;
    span->hole = true;
    sim_backing_empty(extent->memory + first, last - first);
    unreserve(extent->space, last - first);
    coalesce_holes(span, span->next);
    coalesce_holes(span->previous, span);
}

/* One extent stays, even if empty: the pool grows there again. */
void sim_space_shrink(sim_space *space, uint64_t keep)
{
    sim_span *span = span_of(sim_tree_ceiling(&space->common, SIM_CHUNK, 0));
    while (span && space->reserved > keep && space->reserved - keep >= SIM_CHUNK) {
        uint64_t bytes = span->bytes;
        uint64_t address = span->address;
        sim_extent *extent = span->extent;
        make_hole(span, space->reserved - keep);
        bool empty = extent->first->hole && !extent->first->next;
        if (empty && (extent->previous || extent->next))
            close_extent(extent);
        span = span_of(sim_tree_ceiling(&space->common, bytes, address + 1));
    }
}

/* ---- taking ---- */

static CUresult use(sim_span *span, uint64_t asked)
{
    if (!cut_to(span, sim_round_up(asked, SIM_GRANULE))) {
        put_in_tree(span);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (span->op) {
        span->op->span = NULL;
        span->op = NULL;
    }
    sim_space *space = span->extent->space;
    span->free = false;
    span->bin = NULL;
    span->position = 0;
    span->asked = asked;
    space->used += asked;
    if (space->used > space->used_high)
        space->used_high = space->used;
    return CUDA_SUCCESS;
}

static sim_span *best_fit(const sim_tree *tree, uint64_t bytes)
{
    return span_of(sim_tree_ceiling(tree, bytes, 0));
}

/* Finds a span that needs no wait: the queue's own frees, and common ones. */
static sim_span *find_own(const sim_space *space, const sim_queue *queue, uint64_t bytes)
{
    sim_span *common = best_fit(&space->common, bytes);
    const sim_bin *bin = queue ? find_bin(space, queue->component) : NULL;
    sim_span *own = bin ? best_fit(&bin->by_size, bytes) : NULL;
    if (own && (!common || own->bytes <= common->bytes))
        return own;
    return common;
}

/* Finds a span among other queues' frees that this queue is known to come after. */
static sim_span *find_followed(const sim_space *space, const sim_queue *queue, uint64_t bytes)
{
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        const sim_bin *bin = space->bins[slot];
        uint64_t known = bin ? sim_clock_position(queue->knows, slot, bin->component) : 0;
        if (known == 0)
            continue;
        sim_span *span = best_fit(&bin->by_size, bytes);
        while (span && span->position > known)
            span = span_of(sim_tree_ceiling(&bin->by_size, span->bytes, span->address + 1));
        if (span)
            return span;
    }
    return NULL;
}

static sim_span *find_pending(const sim_space *space, uint64_t bytes)
{
    sim_span *best = NULL;
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        const sim_bin *bin = space->bins[slot];
        sim_span *span = bin ? best_fit(&bin->by_size, bytes) : NULL;
        if (span && (!best || span->bytes < best->bytes))
            best = span;
    }
    return best;
}

/* Lets all frees run, as if the device had had time enough, but those behind an unfinished host function. */
static void let_frees_finish(sim_space *space)
{
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        const sim_bin *bin = space->bins[slot];
        sim_span *span = bin ? best_fit(&bin->by_size, 0) : NULL;
        while (span) {
            if (span->op)
                sim_op_need(span->op);
            span = span_of(sim_tree_ceiling(&bin->by_size, span->bytes, span->address + 1));
        }
    }
    sim_run_chosen();
}

/* Makes other pools give back what the host has seen to be free, as an H200 does (docs/measurements.md). */
static void make_room(sim_space *space)
{
    let_frees_finish(space);
    if (space->opportunistic)
        sim_space_settle(space);
    for (sim_space *other = space->device->memory->spaces; other; other = other->next)
        sim_space_shrink(other, 0);
}

bool sim_device_make_room(sim_device *device, uint64_t bytes)
{
    if (!on_device(&device->memory->direct, bytes))
        make_room(&device->memory->direct);
    return on_device(&device->memory->direct, bytes);
}

static sim_span *take_ordered(sim_space *space, const sim_queue *queue, uint64_t bytes)
{
    if (space->opportunistic && space->unsettled)
        sim_space_settle(space);
    sim_span *span = find_own(space, queue, bytes);
    if (!span && queue && space->follow_events)
        span = find_followed(space, queue, bytes);
    if (span)
        take_from_tree(span);
    return span;
}

static sim_span *take_pending(sim_space *space, const sim_queue *queue, uint64_t bytes, sim_op **wait_for)
{
    sim_span *span = queue && space->internal_dependencies ? find_pending(space, bytes) : NULL;
    if (span) {
        *wait_for = span->op ? sim_op_hold(span->op) : NULL;
        take_from_tree(span);
    }
    return span;
}

/* In this order: what needs no wait, fresh memory, what must be waited for, and what other pools give back. */
CUresult sim_space_take(sim_space *space, sim_queue *queue, uint64_t asked, sim_span **span, sim_op **wait_for)
{
    uint64_t bytes = sim_round_up(asked, SIM_GRANULE);
    *wait_for = NULL;
    sim_span *found = take_ordered(space, queue, bytes);
    if (!found)
        found = grow(space, bytes);
    if (!found)
        found = take_pending(space, queue, bytes, wait_for);
    if (!found) {
        let_frees_finish(space);
        found = take_ordered(space, queue, bytes);
    }
    if (!found) {
        make_room(space);
        found = grow(space, bytes);
    }
    if (!found)
        return CUDA_ERROR_OUT_OF_MEMORY;
    CUresult result = use(found, asked);
    if (result != CUDA_SUCCESS) {
        sim_op_drop(*wait_for);
        return result;
    }
    *span = found;
    return CUDA_SUCCESS;
}

/* ---- giving ---- */

bool sim_space_expect(sim_space *space, const sim_queue *queue)
{
    return make_bin(space, queue->component) != NULL;
}

static void now_common(sim_span *span)
{
    span->bin = NULL;
    span->position = 0;
    span = settle_in(span);
    if (span->extent->space->direct && extent_idle(span->extent)) {
        take_from_tree(span);
        close_extent(span->extent);
    }
}

void sim_space_give(sim_span *span, sim_op *op)
{
    sim_space *space = span->extent->space;
    space->used -= span->asked;
    span->free = true;
    sim_bin *bin = op ? find_bin(space, op->queue->component) : NULL;
    if (!bin) {
        now_common(span);
        return;
    }
    span->bin = bin;
    set_free_point(span, op->at.position, op);
    settle_in(span);
}

void sim_space_freed(sim_span *span)
{
    span->op = NULL;
    if (span->bin && span->position > span->bin->finished)
        span->bin->finished = span->position;
    span->extent->space->unsettled = true;
}

/* Moves the spans that were freed up to that position, and whose frees have run, to the common tree. */
static void settle_bin(sim_bin *bin, uint64_t position)
{
    sim_span *span = best_fit(&bin->by_size, 0);
    while (span) {
        uint64_t bytes = span->bytes;
        uint64_t address = span->address;
        if (!span->op && span->position <= position) {
            take_from_tree(span);
            now_common(span);
        }
        span = span_of(sim_tree_ceiling(&bin->by_size, bytes, address + 1));
    }
}

void sim_space_settle(sim_space *space)
{
    for (uint32_t slot = 0; slot < space->bin_slots; slot++)
        if (space->bins[slot])
            settle_bin(space->bins[slot], UINT64_MAX);
    space->unsettled = false;
}

static uint64_t seen_position(const sim_point *seen, uint32_t slot, uint64_t component)
{
    if (!seen)
        return UINT64_MAX;
    if (seen->slot == slot && seen->component == component)
        return seen->position;
    return sim_clock_position(seen->knows, slot, component);
}

/* Settles the frees that the host has seen finished. True: there are some. */
static bool news(sim_space *space, const sim_point *seen)
{
    bool any = space->unseen && !seen;
    space->unseen = space->unseen && seen;
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        sim_bin *bin = space->bins[slot];
        if (bin && bin->finished > bin->seen && bin->finished <= seen_position(seen, slot, bin->component)) {
            bin->seen = bin->finished;
            settle_bin(bin, bin->seen);
            any = true;
        }
    }
    return any;
}

/* What the host has seen finished comes before all that it submits from now on. If that is news, a pool returns what
 * exceeds its threshold. */
void sim_space_observe(sim_space *space, const sim_point *seen)
{
    if (!news(space, seen))
        return;
    if (space->reserved > space->keep)
        sim_space_shrink(space, space->keep);
}

void sim_space_forget_queue(sim_space *space, const sim_queue *queue)
{
    sim_bin *bin = find_bin(space, queue->component);
    if (bin) {
        settle_bin(bin, UINT64_MAX);
        space->unseen = space->unseen || bin->finished > bin->seen;
        space->bins[queue->component->slot] = NULL;
        free(bin);
    }
}

/* ---- a space ---- */

void sim_space_open(sim_space *space, sim_device *device)
{
    *space = (sim_space){
        .device = device,
        .follow_events = true,
        .opportunistic = true,
        .internal_dependencies = true,
    };
    space->next = device->memory->spaces;
    if (space->next)
        space->next->previous = space;
    device->memory->spaces = space;
}

void sim_space_close(sim_space *space)
{
    while (space->extents)
        close_extent(space->extents);
    for (uint32_t slot = 0; slot < space->bin_slots; slot++)
        free(space->bins[slot]);
    free(space->bins);
    if (space->direct)
        return;
    if (space->previous)
        space->previous->next = space->next;
    else
        space->device->memory->spaces = space->next;
    if (space->next)
        space->next->previous = space->previous;
}
