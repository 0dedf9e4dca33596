/* How a memory pool, and what is behind cuMemAlloc, hands out memory.
 *
 * Memory is taken from the device in extents, and each extent is a list of spans in the order of their addresses. A
 * free span that anybody may use is in the pool's common tree. A span whose free is only submitted is in the bin of the
 * queue that it was freed on: that queue may use it at once, since its own order protects the bytes; others may if they
 * are known to come after the free, or by waiting for it. When the free is done the span moves to the common tree. Both
 * are searched for the best fit. Free neighbours melt together where the same users may have both. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

static struct sim_span *span_of(struct sim_node *node)
{
    return node ? (struct sim_span *)(void *)((char *)node - offsetof(struct sim_span, by_size)) : NULL;
}

static struct sim_tree *tree_of(struct sim_span *span)
{
    return span->bin ? &span->bin->by_size : &span->extent->space->common;
}

static void put_in_tree(struct sim_span *span)
{
    sim_tree_insert(tree_of(span), &span->by_size, span->bytes, span->address);
}

static void take_from_tree(struct sim_span *span)
{
    sim_tree_remove(tree_of(span), &span->by_size);
}

static void unlink_span(struct sim_span *span)
{
    if (span->previous) {
        span->previous->next = span->next;
    } else {
        span->extent->first = span->next;
    }
    if (span->next) {
        span->next->previous = span->previous;
    }
    free(span);
}

static void set_free_point(struct sim_span *span, uint64_t position, struct sim_op *op)
{
    span->position = position;
    span->op = op;
    if (op) {
        op->span = span;
    }
}

/* Melts the free span `right` into its free left neighbour; both are in no tree. */
static void absorb(struct sim_span *left, struct sim_span *right)
{
    struct sim_op *forgotten = right->op;
    if (right->position > left->position) {
        forgotten = left->op;
        set_free_point(left, right->position, right->op);
    }
    if (forgotten) {
        forgotten->span = NULL;
    }
    left->bytes += right->bytes;
    unlink_span(right);
}

static bool alike(const struct sim_span *a, const struct sim_span *b)
{
    return a && b && a->free && b->free && a->bin == b->bin;
}

/* Puts a free span, which is in no tree, where it belongs, melted with its neighbours. */
static struct sim_span *settle_in(struct sim_span *span)
{
    if (alike(span, span->next)) {
        take_from_tree(span->next);
        absorb(span, span->next);
    }
    if (alike(span->previous, span)) {
        struct sim_span *left = span->previous;
        take_from_tree(left);
        absorb(left, span);
        span = left;
    }
    put_in_tree(span);
    return span;
}

static struct sim_bin *find_bin(const struct sim_space *space, uint32_t slot, uint64_t queue_uid)
{
    if (slot >= space->bin_slots || !space->bins[slot] || space->bins[slot]->queue_uid != queue_uid) {
        return NULL;
    }
    return space->bins[slot];
}

static struct sim_bin *make_bin(struct sim_space *space, const struct sim_queue *queue)
{
    if (queue->slot >= space->bin_slots) {
        uint32_t slots = sim.queue_slots;
        struct sim_bin **bins = realloc(space->bins, slots * sizeof(*bins));
        if (!bins) {
            return NULL;
        }
        memset(bins + space->bin_slots, 0, (slots - space->bin_slots) * sizeof(*bins));
        space->bins = bins;
        space->bin_slots = slots;
    }
    if (!space->bins[queue->slot]) {
        struct sim_bin *bin = calloc(1, sizeof *bin);
        if (bin) {
            bin->queue_uid = queue->uid;
        }
        space->bins[queue->slot] = bin;
    }
    return space->bins[queue->slot];
}

/* ---- extents ---- */

static bool extent_idle(const struct sim_extent *extent)
{
    return !extent->first->next && extent->first->free && !extent->first->bin;
}

static void release_extent(struct sim_extent *extent)
{
    struct sim_space *space = extent->space;
    if (extent->previous) {
        extent->previous->next = extent->next;
    } else {
        space->extents = extent->next;
    }
    if (extent->next) {
        extent->next->previous = extent->previous;
    }
    space->reserved -= extent->bytes;
    space->device->used -= extent->bytes;
    sim_tree_remove(&sim.extents, &extent->by_address);
    sim_index_close(&extent->known);
    sim_index_close(&extent->present);
    sim_backing_give(extent->memory, extent->bytes);
    sim_address_give(extent->address, extent->bytes);
    free(extent);
}

static void release_idle(struct sim_extent *extent)
{
    take_from_tree(extent->first);
    free(extent->first);
    release_extent(extent);
}

void sim_space_shrink(struct sim_space *space, uint64_t keep)
{
    struct sim_extent *extent = space->extents;
    while (extent && space->reserved > keep) {
        struct sim_extent *next = extent->next;
        if (extent_idle(extent) && space->reserved - extent->bytes >= keep) {
            release_idle(extent);
        }
        extent = next;
    }
}

static struct sim_extent *map_extent(struct sim_space *space, uint64_t bytes)
{
    struct sim_extent *extent = calloc(1, sizeof *extent);
    struct sim_span *span = calloc(1, sizeof *span);
    if (!extent || !span || !sim_address_take(bytes, &extent->address)) {
        goto no_addresses;
    }
    extent->memory = sim_backing_take(bytes);
    if (!extent->memory) {
        goto no_backing;
    }
    if (!sim_index_open(&extent->known, bytes / SIM_GRANULE)) {
        goto no_known;
    }
    if (!sim_index_open(&extent->present, bytes / SIM_GRANULE)) {
        goto no_present;
    }
    extent->space = space;
    extent->bytes = bytes;
    extent->first = span;
    span->extent = extent;
    span->address = extent->address;
    span->bytes = bytes;
    span->free = true;
    sim_tree_insert(&sim.extents, &extent->by_address, extent->address, 0);
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

static bool fits(const struct sim_space *space, uint64_t bytes)
{
    const struct sim_device *device = space->device;
    bool on_device = bytes <= device->memory - device->used;
    bool in_limit = space->limit == 0 || (space->reserved <= space->limit && bytes <= space->limit - space->reserved);
    return on_device && in_limit;
}

/* Takes an extent that holds `bytes`, larger than needed if there is room. The new span is in no tree. */
static struct sim_span *grow(struct sim_space *space, uint64_t bytes)
{
    if (bytes > SIM_MOST_MEMORY) {
        return NULL;
    }
    uint64_t size = sim_round_up(bytes, SIM_PAGE);
    if (size < space->growth && fits(space, space->growth)) {
        size = space->growth;
    }
    if (!fits(space, size)) {
        return NULL;
    }
    struct sim_extent *extent = map_extent(space, size);
    if (!extent) {
        return NULL;
    }
    extent->next = space->extents;
    if (extent->next) {
        extent->next->previous = extent;
    }
    space->extents = extent;
    space->reserved += size;
    space->device->used += size;
    if (space->reserved > space->reserved_high) {
        space->reserved_high = space->reserved;
    }
    return extent->first;
}

/* ---- taking ---- */

/* Cuts a free span that is in no tree to size; the rest stays free as the whole was. */
static bool cut_to(struct sim_span *span, uint64_t bytes)
{
    if (span->bytes == bytes) {
        return true;
    }
    struct sim_span *rest = malloc(sizeof *rest);
    if (!rest) {
        return false;
    }
    *rest = *span;
    rest->address += bytes;
    rest->bytes -= bytes;
    rest->previous = span;
    if (rest->next) {
        rest->next->previous = rest;
    }
    span->next = rest;
    span->bytes = bytes;
    set_free_point(rest, span->position, span->op);
    span->op = NULL;
    put_in_tree(rest);
    return true;
}

static CUresult use(struct sim_span *span, uint64_t bytes)
{
    if (!cut_to(span, bytes)) {
        put_in_tree(span);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (span->op) {
        span->op->span = NULL;
        span->op = NULL;
    }
    struct sim_space *space = span->extent->space;
    span->free = false;
    span->bin = NULL;
    span->position = 0;
    space->used += bytes;
    if (space->used > space->used_high) {
        space->used_high = space->used;
    }
    return CUDA_SUCCESS;
}

static struct sim_span *best_fit(const struct sim_tree *tree, uint64_t bytes)
{
    return span_of(sim_tree_ceiling(tree, bytes, 0));
}

/* Among what this queue may use without asking: its own frees and what is anybody's. */
static struct sim_span *find_own(const struct sim_space *space, const struct sim_queue *queue, uint64_t bytes)
{
    struct sim_span *common = best_fit(&space->common, bytes);
    const struct sim_bin *bin = queue ? find_bin(space, queue->slot, queue->uid) : NULL;
    struct sim_span *own = bin ? best_fit(&bin->by_size, bytes) : NULL;
    if (own && (!common || own->bytes <= common->bytes)) {
        return own;
    }
    return common;
}

/* Among spans freed on other queues, where this queue is known to come after the free. */
static struct sim_span *find_followed(const struct sim_space *space, const struct sim_queue *queue, uint64_t bytes)
{
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        const struct sim_bin *bin = space->bins[slot];
        uint64_t known = bin ? sim_clock_position(queue->knows, slot, bin->queue_uid) : 0;
        if (known == 0) {
            continue;
        }
        struct sim_span *span = best_fit(&bin->by_size, bytes);
        while (span && span->position > known) {
            span = span_of(sim_tree_ceiling(&bin->by_size, span->bytes, span->address + 1));
        }
        if (span) {
            return span;
        }
    }
    return NULL;
}

/* The best fit among all spans whose frees are only submitted. */
static struct sim_span *find_pending(const struct sim_space *space, uint64_t bytes)
{
    struct sim_span *best = NULL;
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        const struct sim_bin *bin = space->bins[slot];
        struct sim_span *span = bin ? best_fit(&bin->by_size, bytes) : NULL;
        if (span && (!best || span->bytes < best->bytes)) {
            best = span;
        }
    }
    return best;
}

/* The device had all the time it needed: what can run without a host function that is not done runs. */
static void let_frees_finish(struct sim_space *space)
{
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        const struct sim_bin *bin = space->bins[slot];
        struct sim_span *span = bin ? best_fit(&bin->by_size, 0) : NULL;
        while (span) {
            if (span->op) {
                sim_op_need(span->op);
            }
            span = span_of(sim_tree_ceiling(&bin->by_size, span->bytes, span->address + 1));
        }
    }
    sim_run_chosen();
}

/* Makes room on the device: unused memory of every pool goes back. */
static void make_room(struct sim_space *space)
{
    let_frees_finish(space);
    for (struct sim_space *other = space->device->spaces; other; other = other->next) {
        if (other != space) {
            let_frees_finish(other);
        }
        sim_space_shrink(other, 0);
    }
}

static struct sim_span *find(struct sim_space *space, struct sim_queue *queue, uint64_t bytes, struct sim_op **wait_for)
{
    struct sim_span *span = find_own(space, queue, bytes);
    if (!span && queue && space->follow_events) {
        span = find_followed(space, queue, bytes);
    }
    if (!span && queue && space->internal_dependencies) {
        span = find_pending(space, bytes);
        *wait_for = span && span->op ? sim_op_hold(span->op) : NULL;
    }
    if (span) {
        take_from_tree(span);
    }
    return span;
}

CUresult sim_space_take(struct sim_space *space, struct sim_queue *queue, uint64_t bytes, struct sim_span **span,
                        struct sim_op **wait_for)
{
    *wait_for = NULL;
    struct sim_span *found = find(space, queue, bytes, wait_for);
    if (!found) {
        found = grow(space, bytes);
    }
    if (!found) {
        let_frees_finish(space);
        found = find(space, queue, bytes, wait_for);
    }
    if (!found) {
        make_room(space);
        found = grow(space, bytes);
    }
    if (!found) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    CUresult result = use(found, bytes);
    if (result != CUDA_SUCCESS) {
        sim_op_drop(*wait_for);
        return result;
    }
    *span = found;
    return CUDA_SUCCESS;
}

/* ---- giving ---- */

bool sim_space_expect(struct sim_space *space, const struct sim_queue *queue)
{
    return make_bin(space, queue) != NULL;
}

static void now_common(struct sim_span *span)
{
    span->bin = NULL;
    span->position = 0;
    span = settle_in(span);
    if (span->extent->space->direct && extent_idle(span->extent)) {
        release_idle(span->extent);
    }
}

void sim_space_give(struct sim_span *span, struct sim_op *op)
{
    struct sim_space *space = span->extent->space;
    space->used -= span->bytes;
    span->free = true;
    struct sim_bin *bin = op ? find_bin(space, op->queue->slot, op->queue->uid) : NULL;
    if (!bin) {
        now_common(span);
        return;
    }
    span->bin = bin;
    set_free_point(span, op->position, op);
    settle_in(span);
}

void sim_space_freed(struct sim_span *span)
{
    span->op = NULL;
    if (span->extent->space->opportunistic) {
        take_from_tree(span);
        now_common(span);
    }
}

static void settle_bin(struct sim_bin *bin)
{
    struct sim_span *span = best_fit(&bin->by_size, 0);
    while (span) {
        uint64_t bytes = span->bytes;
        uint64_t address = span->address;
        if (!span->op) {
            take_from_tree(span);
            now_common(span);
        }
        span = span_of(sim_tree_ceiling(&bin->by_size, bytes, address + 1));
    }
}

void sim_space_settle(struct sim_space *space)
{
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        if (space->bins[slot]) {
            settle_bin(space->bins[slot]);
        }
    }
}

/* What finished before the host looked is ordered before all that the host submits from now on; and this is when a pool
 * gives back what it holds beyond its threshold. */
void sim_space_observe(struct sim_space *space)
{
    if (!space->opportunistic) {
        sim_space_settle(space);
    }
    if (space->reserved > space->keep) {
        sim_space_shrink(space, space->keep);
    }
}

void sim_space_forget_queue(struct sim_space *space, const struct sim_queue *queue)
{
    struct sim_bin *bin = find_bin(space, queue->slot, queue->uid);
    if (bin) {
        settle_bin(bin);
        space->bins[queue->slot] = NULL;
        free(bin);
    }
}

/* ---- a space ---- */

void sim_space_open(struct sim_space *space, struct sim_device *device)
{
    *space = (struct sim_space){
        .device = device,
        .growth = SIM_POOL_GROWTH,
        .follow_events = true,
        .opportunistic = true,
        .internal_dependencies = true,
    };
    space->next = device->spaces;
    if (space->next) {
        space->next->previous = space;
    }
    device->spaces = space;
}

static void close_extent(struct sim_extent *extent)
{
    struct sim_span *span = extent->first;
    while (span) {
        struct sim_span *next = span->next;
        if (span->op) {
            span->op->span = NULL;
        }
        free(span);
        span = next;
    }
    release_extent(extent);
}

void sim_space_close(struct sim_space *space)
{
    while (space->extents) {
        close_extent(space->extents);
    }
    for (uint32_t slot = 0; slot < space->bin_slots; slot++) {
        free(space->bins[slot]);
    }
    free(space->bins);
    if (space->direct) {
        return;
    }
    if (space->previous) {
        space->previous->next = space->next;
    } else {
        space->device->spaces = space->next;
    }
    if (space->next) {
        space->next->previous = space->previous;
    }
}
