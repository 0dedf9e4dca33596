/* Slots of a bin: free lists, clean slots in chunks, and completion. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "core/stack/completions.h"
#include "core/stack/stream_frees.h"
#include "resources/binning/internal.h"
#include "resources/owners/pending_points.h"

static void list_init(bin_free_list *list, uint16_t timeline)
{
    strata_spin_init(&list->lock, STRATA_RANK_INDEX);
    list->timeline = timeline;
}

bin *bin_make(size_t size, size_t chunk_bytes)
{
    bin *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return NULL;
    self->size = size;
    self->chunk_bytes = chunk_bytes;
    self->slots = (uint32_t)(chunk_bytes / size);
    list_init(&self->mixed, 0);
    atomic_store_explicit(&self->first_list, &self->mixed, memory_order_relaxed);
    strata_spin_init(&self->lock, STRATA_RANK_INDEX);
    return self;
}

static void free_chunks(bin_chunk *first)
{
    for (bin_chunk *chunk = first, *next; chunk; chunk = next) {
        next = chunk->after;
        strata_host_free(chunk);
    }
}

void bin_destroy(bin *self)
{
    if (!self)
        return;
    free_chunks(self->first_chunk);
    free_chunks(self->empty);
    for (size_t i = 0; i < STRATA_TIMELINE_LIMIT / BIN_LISTS_PER_ARRAY; i++)
        strata_host_free(atomic_load_explicit(&self->lists[i], memory_order_relaxed));
    strata_counters_destroy(&self->counters);
    strata_host_free(self);
}

/* ---- lists ---- */

static bin_free_list *lists_made(bin *self, uint16_t timeline)
{
    _Atomic(bin_free_list *) *at = &self->lists[timeline / BIN_LISTS_PER_ARRAY];
    bin_free_list *now = atomic_load_explicit(at, memory_order_acquire);
    if (now)
        return now;
    bin_free_list *lists = strata_host_zalloc_aligned(64, BIN_LISTS_PER_ARRAY * sizeof *lists);
    if (!lists)
        return NULL;
    for (unsigned i = 0; i < BIN_LISTS_PER_ARRAY; i++)
        list_init(&lists[i], (uint16_t)(timeline / BIN_LISTS_PER_ARRAY * BIN_LISTS_PER_ARRAY + i));
    if (atomic_compare_exchange_strong_explicit(at, &now, lists, memory_order_acq_rel, memory_order_acquire))
        return lists;
    strata_host_free(lists);
    return now;
}

bin_free_list *bin_free_list_make(bin *self, uint16_t timeline)
{
    bin_free_list *lists = lists_made(self, timeline);
    if (!lists)
        return &self->mixed;
    bin_free_list *list = &lists[timeline % BIN_LISTS_PER_ARRAY];
    if (atomic_load_explicit(&list->made, memory_order_acquire))
        return list;
    strata_spin_take(&self->lock);
    if (!atomic_load_explicit(&list->made, memory_order_relaxed)) {
        list->next = atomic_load_explicit(&self->first_list, memory_order_relaxed);
        atomic_store_explicit(&self->first_list, list, memory_order_release);
        atomic_store_explicit(&list->made, true, memory_order_release);
    }
    strata_spin_release(&self->lock);
    return list;
}

bin_slot *bin_free_list_take_oldest(bin_free_list *list)
{
    strata_spin_take(&list->lock);
    bin_slot *slot = list->oldest;
    if (slot) {
        list->oldest = slot->newer;
        *(slot->newer ? &slot->newer->older : &list->newest) = NULL;
        bin_free_list_add(list, -1);
    }
    strata_spin_release(&list->lock);
    return slot;
}

void bin_free_list_put_oldest(bin_free_list *list, bin_slot *slot)
{
    strata_spin_take(&list->lock);
    slot->newer = list->oldest;
    slot->older = NULL;
    *(list->oldest ? &list->oldest->older : &list->newest) = slot;
    list->oldest = slot;
    bin_free_list_add(list, 1);
    strata_spin_release(&list->lock);
}

bin_free_list *bin_longest_free_list(bin *self)
{
    bin_free_list *longest = NULL;
    uint32_t most = 0;
    for (bin_free_list *list = atomic_load_explicit(&self->first_list, memory_order_acquire); list; list = list->next) {
        uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed);
        if (count <= most)
            continue;
        most = count;
        longest = list;
    }
    return longest;
}

/* ---- points of a slot ---- */

/* In a stream's own list, the free comes after every use: its point is enough. */
strata_status bin_slot_visit(const binning *layer, const bin_free_list *of, const bin_slot *slot,
                             strata_status (*visit)(strata_point point, void *data), void *data)
{
    strata_status status = slot->freed ? visit(slot->freed, data) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS && !of->timeline)
        status = strata_uses_visit(bin_entry(layer, slot), visit, data);
    return status;
}

static strata_status check_complete(strata_point point, void *data)
{
    (void)data;
    return strata_point_known_complete(point) ? STRATA_SUCCESS : STRATA_ERROR_BUSY;
}

static bool is_complete(const binning *layer, const bin_free_list *of, const bin_slot *slot)
{
    return bin_slot_visit(layer, of, slot, check_complete, NULL) == STRATA_SUCCESS;
}

/* The lock is held. */
static void unlink_slot(bin_free_list *list, bin_slot *slot)
{
    *(slot->older ? &slot->older->newer : &list->oldest) = slot->newer;
    *(slot->newer ? &slot->newer->older : &list->newest) = slot->older;
    bin_free_list_add(list, -1);
}

/* Begins to own retired slots; false while a thread scans. */
static bool try_checkout(bin *self)
{
    atomic_fetch_add_explicit(&self->checked_out, 1,
                              memory_order_seq_cst); /* before the read of scans; begin_scan: the reverse */
    if (__builtin_expect(!atomic_load_explicit(&self->scans, memory_order_seq_cst), 1))
        return true;
    bin_checkout_end(self);
    return false;
}

static __attribute__((cold)) void wait_for_scans(const bin *self)
{
    for (unsigned spins = 0; atomic_load_explicit(&self->scans, memory_order_acquire);)
        strata_backoff(&spins);
}

void bin_checkout_begin(bin *self)
{
    while (!try_checkout(self))
        wait_for_scans(self);
}

/* Waits until no thread owns retired slots; prevents new checkouts. */
static void begin_scan(bin *self)
{
    atomic_fetch_add_explicit(&self->scans, 1, memory_order_seq_cst);
    for (unsigned spins = 0; atomic_load_explicit(&self->checked_out, memory_order_seq_cst);)
        strata_backoff(&spins);
}

static void end_scan(bin *self)
{
    atomic_fetch_sub_explicit(&self->scans, 1, memory_order_release);
}

/* Takes complete slots out of a list, from among the `most` oldest of the mixed one: a stream's frees complete in
 * order. False: a scan is in progress. The lock is held. */
static inline bool unlink_complete(const binning *layer, bin *self, bin_free_list *list, uint32_t most,
                                   bin_slot **chain)
{
    bin_slot *taken = NULL, *next;
    uint32_t looked_at = 0;
    for (bin_slot *slot = list->oldest; slot && looked_at++ < most; slot = next) {
        next = slot->newer;
        if (is_complete(layer, list, slot)) {
            if (!taken && !try_checkout(self))
                return false;
            unlink_slot(list, slot);
            slot->older = taken;
            taken = slot;
        } else if (list->timeline) {
            break;
        }
    }
    *chain = taken;
    return true;
}

/* Takes complete slots out of a list, linked by `older` and checked out; NULL: none. */
static bin_slot *take_complete(const binning *layer, bin *self, bin_free_list *list, uint32_t most)
{
    bin_slot *chain = NULL;
    while (!bin_free_list_is_empty(list)) {
        strata_spin_take(&list->lock);
        bool looked = unlink_complete(layer, self, list, most, &chain);
        strata_spin_release(&list->lock);
        if (__builtin_expect(looked, 1))
            break;
        wait_for_scans(self);
    }
    return chain;
}

/* ---- clean slots ---- */

static void unlink_chunk(bin *self, bin_chunk *chunk)
{
    *(chunk->before ? &chunk->before->after : &self->first_chunk) = chunk->after;
    *(chunk->after ? &chunk->after->before : &self->last_chunk) = chunk->before;
}

static void link_first(bin *self, bin_chunk *chunk)
{
    chunk->before = NULL;
    chunk->after = self->first_chunk;
    *(self->first_chunk ? &self->first_chunk->before : &self->last_chunk) = chunk;
    self->first_chunk = chunk;
}

static void link_last(bin *self, bin_chunk *chunk)
{
    chunk->after = NULL;
    chunk->before = self->last_chunk;
    *(self->last_chunk ? &self->last_chunk->after : &self->first_chunk) = chunk;
    self->last_chunk = chunk;
}

static void link_empty(bin *self, bin_chunk *chunk)
{
    chunk->after = self->empty;
    self->empty = chunk;
}

static bin_chunk *take_empty(bin *self, bool orphans)
{
    bin_chunk **link = &self->empty, *chunk;
    while ((chunk = *link) && chunk->orphan && !orphans)
        link = &chunk->after;
    if (chunk)
        *link = chunk->after;
    return chunk;
}

static void link_chunk(bin *self, bin_chunk *chunk)
{
    if (chunk->orphan || chunk->clean_count == chunk->count)
        link_empty(self, chunk);
    else if (chunk->clean)
        link_first(self, chunk);
    else
        link_last(self, chunk);
}

bin_slot *bin_take_clean(bin *self)
{
    strata_spin_take(&self->lock);
    bin_chunk *chunk = self->first_chunk;
    const bool in_use = chunk && chunk->clean;
    chunk = in_use ? chunk : take_empty(self, false);
    bin_slot *slot = chunk ? chunk->clean : NULL;
    if (slot) {
        chunk->clean = slot->older;
        chunk->clean_count--;
        if (in_use && !chunk->clean_count)
            unlink_chunk(self, chunk);
        if (!in_use || !chunk->clean_count)
            link_chunk(self, chunk);
    }
    strata_spin_release(&self->lock);
    return slot;
}

void bin_put_clean(bin *self, bin_slot *slot)
{
    bin_chunk *chunk = slot->chunk;
    strata_spin_take(&self->lock);
    slot->older = chunk->clean;
    chunk->clean = slot;
    chunk->clean_count++;
    if (chunk->clean_count == 1 || chunk->clean_count == chunk->count) {
        unlink_chunk(self, chunk);
        link_chunk(self, chunk);
    }
    strata_spin_release(&self->lock);
}

void bin_enter_chunk(bin *self, bin_chunk *chunk)
{
    strata_spin_take(&self->lock);
    link_chunk(self, chunk);
    strata_spin_release(&self->lock);
}

bin_chunk *bin_take_empty_chunk(bin *self)
{
    strata_spin_take(&self->lock);
    bin_chunk *chunk = take_empty(self, true);
    strata_spin_release(&self->lock);
    return chunk;
}

void bin_finish(const binning *layer, bin *self, bin_slot *slot)
{
    const strata_resource *resource = &layer->resource;
    strata_table *table = strata_resource_table(resource);
    strata_entry *entry = bin_entry(layer, slot);
    uint32_t entry_slot = atomic_load_explicit(&slot->entry_slot, memory_order_relaxed);
    uint64_t generation = atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION;
    if (resource->stack->completion_sink_count)
        strata_report_completion_above(
            resource,
            &(strata_completion){.kind = STRATA_COMPLETION_FINISHED,
                                 .id = {.table = strata_table_id(table), .slot = entry_slot, .generation = generation},
                                 .bytes = self->size,
                                 .last = true});
    if (atomic_load_explicit(&slot->chunk->point, memory_order_relaxed)) /* uses of the slot came later */
        atomic_store_explicit(&slot->chunk->point, 0, memory_order_relaxed);
    atomic_store_explicit(&slot->entry_slot, 0, memory_order_relaxed);
    strata_entry_destroy(table, entry, entry_slot);
    strata_counters_add(&self->counters, strata_thread_self(), BIN_ENDED, 1);
    bin_put_clean(self, slot);
}

/* ---- completion ---- */

static size_t finish_chain(const binning *layer, bin *self, bin_slot *chain)
{
    size_t bytes = 0;
    for (bin_slot *slot = chain, *next; slot; slot = next) {
        next = slot->older;
        bin_finish(layer, self, slot);
        bytes += self->size;
    }
    return bytes;
}

/* Asks how far a point's stream is, after closing a known stream's epoch. After a failure a later poll tries again. */
static strata_status poll_point(strata_point point, void *device)
{
    if (!strata_point_known_complete(point) && strata_timeline_close_epoch_for(device, point) == STRATA_SUCCESS)
        strata_timeline_poll(strata_timeline_of(point));
    return STRATA_SUCCESS;
}

/* Polls a list's stream: its newest free tells how far the stream is. */
static void poll_stream(bin_free_list *list)
{
    strata_spin_take(&list->lock);
    strata_point point = list->newest ? list->newest->freed : 0;
    strata_spin_release(&list->lock);
    if (point)
        poll_point(point, NULL);
}

static strata_status collect(strata_point point, void *pending)
{
    strata_pending_points_add(pending, point);
    return STRATA_SUCCESS;
}

/* Polls for some slots of the mixed list and moves them to its end: they stay listed for other threads. */
static void poll_mixed(const binning *layer, bin_free_list *list)
{
    enum { MOST = 8 };
    strata_pending_points pending = {0};
    strata_spin_take(&list->lock);
    uint32_t count = atomic_load_explicit(&list->count, memory_order_relaxed);
    for (uint32_t i = 0; i < count && i < MOST; i++) {
        bin_slot *slot = list->oldest;
        bin_slot_visit(layer, list, slot, collect, &pending);
        unlink_slot(list, slot);
        bin_free_list_link_newest(list, slot);
    }
    strata_spin_release(&list->lock);
    for (size_t i = 0; i < pending.count; i++)
        poll_point(pending.points[i], NULL);
}

/* As bin_sweep; each look checks the `most` oldest slots of the mixed list. */
static size_t sweep(const binning *layer, bin *self, bool poll, uint32_t most)
{
    size_t bytes = 0;
    for (bin_free_list *list = atomic_load_explicit(&self->first_list, memory_order_acquire); list; list = list->next) {
        if (bin_free_list_is_empty(list))
            continue;
        if (poll) {
            strata_error_suppress_begin();
            if (list->timeline)
                poll_stream(list);
            else
                poll_mixed(layer, list);
            strata_error_suppress_end(false);
        }
        bin_slot *chain;
        while ((chain = take_complete(layer, self, list, most))) { /* a long list takes several rounds */
            bytes += finish_chain(layer, self, chain);
            bin_checkout_end(self);
        }
    }
    return bytes;
}

size_t bin_sweep(const binning *layer, bin *self, bool poll)
{
    return sweep(layer, self, poll, BIN_SCAN_LIMIT);
}

static void collect_list(const binning *layer, bin_free_list *list, strata_pending_points *pending)
{
    strata_spin_take(&list->lock);
    for (const bin_slot *slot = list->oldest; slot; slot = slot->newer)
        bin_slot_visit(layer, list, slot, collect, pending);
    strata_spin_release(&list->lock);
}

/* Waits for or polls each stream's newest point, then finishes complete slots. Slots stay listed, for other threads
 * that wait for all frees. Meanwhile any number of pending slots may have come to stand before a slot that is now
 * complete (poll_mixed): all of the mixed list is checked. */
static strata_status complete_all(const binning *layer, bin *self,
                                  strata_status (*each)(strata_point point, void *device), size_t *bytes)
{
    strata_status status = STRATA_SUCCESS;
    strata_pending_points pending = {0};
    do { /* each stream once, despite new frees */
        strata_pending_points_next(&pending);
        begin_scan(self);
        for (bin_free_list *list = atomic_load_explicit(&self->first_list, memory_order_acquire); list;
             list = list->next)
            collect_list(layer, list, &pending);
        end_scan(self);
        for (size_t i = 0; i < pending.count && status == STRATA_SUCCESS; i++)
            status = each(pending.points[i], layer->resource.stack->device);
        *bytes += sweep(layer, self, false, UINT32_MAX);
    } while (strata_pending_points_is_full(&pending) && status == STRATA_SUCCESS);
    begin_scan(self); /* waits for other threads' finishes */
    end_scan(self);
    return status;
}

void bin_sum_frees(const binning *layer, bin *self, strata_stream_sums *sums)
{
    strata_summed_free freed = {sums, self->size};
    begin_scan(self);
    for (bin_free_list *list = atomic_load_explicit(&self->first_list, memory_order_acquire); list; list = list->next) {
        strata_spin_take(&list->lock);
        for (const bin_slot *slot = list->oldest; slot; slot = slot->newer)
            bin_slot_visit(layer, list, slot, strata_stream_sums_visit, &freed);
        strata_spin_release(&list->lock);
    }
    end_scan(self);
}

strata_status bin_wait(const binning *layer, bin *self, size_t *bytes)
{
    return complete_all(layer, self, strata_point_wait, bytes);
}

size_t bin_poll(const binning *layer, bin *self)
{
    size_t bytes = 0;
    strata_error_suppress_begin();
    complete_all(layer, self, poll_point, &bytes);
    strata_error_suppress_end(false);
    return bytes;
}

void bin_count(const bin *self, size_t *live, size_t *retired)
{
    int64_t ended = strata_counters_sum(&self->counters, BIN_ENDED);
    int64_t freed = strata_counters_sum(&self->counters, BIN_FREED);
    int64_t allocated = strata_counters_sum(&self->counters, BIN_ALLOCATED);
    *live = strata_counters_between(freed, allocated);
    *retired = strata_counters_between(ended, freed);
}
