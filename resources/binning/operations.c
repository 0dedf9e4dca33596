/* Operations of `fixed` and `binning`. Requests that fit no bin go below. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/blocks/blocks.h"
#include "core/blocks/uses.h"
#include "core/stack/completions.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"
#include "resources/binning/internal.h"

static strata_table *table_of(const binning *self)
{
    return strata_resource_table(&self->resource);
}

/* ---- lookup ---- */

static inline bin *bin_for(const binning *self, const strata_request *request)
{
    if (__builtin_expect(!request->bytes || request->alignment > BIN_GRANULE || self->pass_all, 0))
        return NULL;
    size_t most = request->bytes - 1;
    size_t i = self->first_bin[most ? 64 - (unsigned)__builtin_clzll(most) : 0];
    while (i < self->bin_count && self->bins[i]->size <= most)
        i++;
    return i < self->bin_count ? self->bins[i] : NULL;
}

/* The entry of an own block; NULL for a lower layer's or an invalid id. A layer above that quarantines a block changes
 * its generation. */
static inline strata_entry *own_entry(const binning *self, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(table_of(self), id);
    uint64_t made = entry ? atomic_load_explicit(&bin_bytes_in(&self->resource, entry)->made, memory_order_acquire) : 0;
    if (__builtin_expect(made == id.generation, 1))
        return made ? entry : NULL;
    return made && strata_table_names(table_of(self), id, made) ? entry : NULL;
}

/* ---- making blocks ---- */

static inline void fill_facts(strata_block *block, const bin *of, const bin_slot *slot, const strata_request *request)
{
    strata_block_fill(block, request, bin_address(slot), of->size, BIN_GRANULE);
}

static inline void publish(binning *self, bin_slot *slot, uint32_t entry_slot, strata_timeline *alloc_timeline,
                           bool alloc_known, strata_block *block)
{
    strata_entry *entry = strata_table_entry(table_of(self), entry_slot);
    bin_bytes *bytes = bin_bytes_in(&self->resource, entry);
    uint64_t generation = (atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION) + 1;
    atomic_store_explicit(&bytes->where, slot, memory_order_relaxed);
    atomic_store_explicit(&bytes->made, generation, memory_order_release);
    strata_entry_publish(table_of(self), entry_slot, alloc_timeline, alloc_known, block);
}

static __attribute__((cold)) void report_reused(const binning *self, const bin *of, const strata_entry *entry,
                                                uint32_t entry_slot)
{
    uint64_t generation = atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION;
    strata_report_completion_above(
        &self->resource,
        &(strata_completion){
            .kind = STRATA_COMPLETION_REUSED,
            .id = {.table = strata_table_id(table_of(self)), .slot = entry_slot, .generation = generation},
            .bytes = of->size,
            .last = true});
}

/* Reports a slot's retired block, which ends at its reuse. */
static inline void report_if_reused(const binning *self, const bin *of, const strata_entry *entry, uint32_t entry_slot)
{
    if (__builtin_expect(self->resource.stack->completion_sink_count != 0, 0))
        report_reused(self, of, entry, entry_slot);
}

/* Makes a block of a slot of the stream's own list, with the same entry. False: its generations are used up. */
static inline bool hand_out_again(binning *self, bin *of, bin_slot *slot, strata_timeline *timeline,
                                  const strata_request *request, strata_block *out)
{
    uint32_t entry_slot = atomic_load_explicit(&slot->entry_slot, memory_order_relaxed);
    strata_entry *entry = strata_table_entry(table_of(self), entry_slot);
    if (__builtin_expect(!strata_entry_is_renewable(entry), 0))
        return false;
    report_if_reused(self, of, entry, entry_slot);
    strata_entry_renew(entry, bin_bytes_in(&self->resource, entry));
    fill_facts(out, of, slot, request);
    publish(self, slot, entry_slot, timeline, true, out);
    strata_stripe *mine = strata_counters_self(&of->counters, strata_thread_current);
    strata_counters_add_to(&of->counters, mine, BIN_ENDED, 1);
    strata_counters_add_to(&of->counters, mine, BIN_ALLOCATED, 1);
    return true;
}

/* A request on the slow path. */
typedef struct search {
    const strata_request *request;
    strata_stream_ref stream; /* as resolved last */
    bin_slot *slot;
    bin_free_list *from; /* NULL: clean */
    bool waits;          /* the stream waits for other streams */
    bool checked_out;
} search;

/* Whether the stream is being captured; unknown ones were checked before. */
static bool is_captured(const binning *self, const search *for_it)
{
    return for_it->stream.known &&
           strata_stream_is_capturing(self->resource.stack->device, for_it->stream.handle, true);
}

static bool follows(const strata_stream_ref *stream, strata_point point)
{
    strata_clock *clock = strata_timeline_clock(stream, false);
    bool after = strata_timeline_follows(stream, clock, point);
    strata_clock_unref(clock);
    return after;
}

/* Orders the stream after the chunk's allocation. A capturing stream cannot wait for that: the host does; the chunk
 * stream only allocates and frees. */
static inline __attribute__((always_inline)) strata_status follow_chunk(const binning *self, const search *found)
{
    strata_point point = atomic_load_explicit(&found->slot->chunk->point, memory_order_relaxed);
    if (!point || strata_point_known_complete(point) || follows(&found->stream, point))
        return STRATA_SUCCESS;
    return is_captured(self, found) ? strata_point_synchronize(point) : strata_timeline_wait(&found->stream, point);
}

static __attribute__((cold)) strata_status follow_slot(const binning *self, search *found)
{
    if (!found->from)
        return follow_chunk(self, found);
    found->waits = true;
    return bin_slot_visit(self, found->from, found->slot, strata_point_try_order, &found->stream);
}

/* Begins the use record of a block. An unknown stream's timeline may have been reused since: the list or a skipped wait
 * may be another stream's, so everything is waited for. */
static strata_status begin_record(const binning *self, search *found, strata_use_record *record)
{
    strata_status status = strata_use_record_begin_on(record, &found->stream);
    while (__builtin_expect(status == STRATA_SUCCESS && record->stream.timeline != found->stream.timeline, 0)) {
        strata_use_record_cancel(record);
        found->stream = record->stream;
        if ((status = follow_slot(self, found)) == STRATA_SUCCESS)
            status = strata_use_record_begin_on(record, &found->stream);
    }
    return status;
}

/* Makes a block of a found slot, with a new entry, behind what the slot waits for. On failure the slot is unchanged. */
static strata_status make_block(binning *self, bin *of, search *found, strata_block *out)
{
    strata_use_record record;
    bin_slot *slot = found->slot;
    uint32_t before = atomic_load_explicit(&slot->entry_slot, memory_order_relaxed);
    uint32_t entry_slot = strata_table_take_slot(table_of(self));
    if (!entry_slot)
        return strata_fail_host_memory("a block");
    strata_block block;
    fill_facts(&block, of, slot, found->request);
    strata_status status = begin_record(self, found, &record);
    if (status == STRATA_SUCCESS) {
        publish(self, slot, entry_slot, record.stream.timeline, record.stream.known, &block);
        status = strata_use_record_end(&record);
    }
    if (status != STRATA_SUCCESS) {
        strata_entry_destroy(table_of(self), strata_table_entry(table_of(self), entry_slot), entry_slot);
        return status;
    }
    atomic_store_explicit(&slot->entry_slot, entry_slot, memory_order_release); /* visible to lookups by address */
    strata_thread *thread = strata_thread_self();
    if (before) {
        strata_entry *entry = strata_table_entry(table_of(self), before);
        report_if_reused(self, of, entry, before);
        strata_entry_destroy(table_of(self), entry, before);
        strata_counters_add(&of->counters, thread, BIN_ENDED, 1);
    }
    strata_counters_add(&of->counters, thread, BIN_ALLOCATED, 1);
    *out = block;
    return STRATA_SUCCESS;
}

/* ---- allocating ---- */

/* Takes the newest slot of the stream's list, which a failure puts back. */
static bool take_own(bin *of, search *found)
{
    bin_free_list *list = bin_free_list_of(of, found->stream.timeline->number);
    if (!list || bin_free_list_is_empty(list))
        return false;
    bin_checkout_begin(of);
    found->from = list;
    found->slot = bin_free_list_take(list);
    found->checked_out = found->slot != NULL;
    if (!found->slot)
        bin_checkout_end(of);
    return found->slot != NULL;
}

static bool take_clean(bin *of, search *found)
{
    found->from = NULL;
    found->slot = bin_take_clean(of);
    return found->slot != NULL;
}

static void put_back(bin *of, const search *found)
{
    if (!found->from)
        bin_put_clean(of, found->slot);
    else if (found->waits)
        bin_free_list_put_oldest(found->from, found->slot);
    else
        bin_free_list_put(found->from, found->slot);
}

/* Takes the oldest slot of the longest list. False if there is none, or the wait fails. */
static bool take_pending(const binning *self, bin *of, search *found)
{
    bin_free_list *list = bin_longest_free_list(of);
    if (!list || is_captured(self, found))
        return false;
    bin_checkout_begin(of);
    if (!(found->slot = bin_free_list_take_oldest(list))) {
        bin_checkout_end(of);
        return false;
    }
    found->from = list;
    found->waits = found->checked_out = true;
    strata_error_suppress_begin();
    strata_status status = bin_slot_visit(self, list, found->slot, strata_point_try_order, &found->stream);
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS)
        return true;
    put_back(of, found);
    bin_checkout_end(of);
    found->waits = found->checked_out = false;
    return false;
}

/* Takes a slot of the bin's chunks, whatever stream it waits for. */
static bool take_of_others(const binning *self, bin *of, search *found)
{
    return take_clean(of, found) || (bin_sweep(self, of, false) && take_clean(of, found)) ||
           (bin_sweep(self, of, true) && take_clean(of, found)) || take_pending(self, of, found);
}

/* Lets one thread allocate a chunk, perhaps for all; and a caller that waited long. False: another thread was
 * allocating. */
static bool begin_to_grow(bin *of)
{
    enum { TURNS = 2000 };
    if (!atomic_exchange_explicit(&of->growing, true, memory_order_acquire))
        return true;
    for (unsigned spins = 0; spins < TURNS;) {
        if (!atomic_load_explicit(&of->growing, memory_order_relaxed))
            return false;
        strata_backoff(&spins);
    }
    return true;
}

static strata_status find_slot(binning *self, bin *of, search *found)
{
    enum { TIMES = 3 };
    for (int i = 0;; i++) {
        if (take_own(of, found) || take_of_others(self, of, found))
            return STRATA_SUCCESS;
        if (begin_to_grow(of) || i == TIMES)
            break;
    }
    strata_status status = STRATA_SUCCESS;
    if (!take_clean(of, found)) /* another thread's chunk may serve */
        status = bin_grow(self, of, found->request, &found->slot);
    atomic_store_explicit(&of->growing, false, memory_order_release);
    return status;
}

static void count_search(bin *of, const search *found)
{
    if (found->waits)
        atomic_fetch_add_explicit(&of->waited, 1, memory_order_relaxed);
    else if (!found->from)
        atomic_fetch_add_explicit(&of->from_clean, 1, memory_order_relaxed);
}

/* Allocates for any stream, from any slot. */
static __attribute__((noinline)) strata_status allocate_slow(binning *self, bin *of, const strata_request *request,
                                                             strata_block *out)
{
    strata_stack *stack = self->resource.stack;
    search found = {.request = request};
    *out = (strata_block){0};
    strata_status status = strata_stream_resolve(stack->device, request->stream, &found.stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_capture_frees_try_flush_any(&stack->capture_frees, request->stream);
    if ((status = find_slot(self, of, &found)) != STRATA_SUCCESS)
        return status;
    if (!found.from)
        status = follow_chunk(self, &found);
    if (status == STRATA_SUCCESS)
        status = make_block(self, of, &found, out);
    if (status == STRATA_SUCCESS)
        count_search(of, &found);
    else
        put_back(of, &found);
    if (found.checked_out)
        bin_checkout_end(of);
    return status;
}

static __attribute__((cold)) strata_status refuse_larger(const binning *self, const strata_request *request)
{
    const size_t size = self->bins[self->bin_count - 1]->size;
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->requested = request->bytes;
    error->limit = size;
    error->tag = request->tag;
    return strata_error_raise(error,
                              "fixed: request of %s (tag \"%.100s\") exceeds the block size of %s; larger=pass sends "
                              "such requests to the layer below",
                              strata_size_text(request->bytes).text, strata_tag_name(request->tag),
                              strata_size_text(size).text);
}

/* Passes a request that fits no bin. If it does not fit below, empty chunks make room. */
static __attribute__((noinline)) strata_status pass(binning *self, const strata_request *request, strata_block *out)
{
    strata_resource *below = self->resource.upstream;
    *out = (strata_block){0};
    if (self->refuse_larger && request->bytes > self->bins[self->bin_count - 1]->size) {
        const strata_status status = refuse_larger(self, request);
        strata_request_refused(&self->resource, request, status);
        return status;
    }
    strata_error_suppress_begin();
    strata_status status = below->ops->allocate(below, request, out);
    for (bin_effort effort = BIN_POLL; effort < BIN_EFFORTS; effort++) {
        const strata_error why = *strata_error_suppressed();
        size_t given;
        if (!bin_wants_room(self, status, &why, request->bytes))
            break;
        bins_make_room(self, effort, SIZE_MAX, &given);
        if (given)
            status = below->ops->allocate(below, request, out);
        else if (why.status == status)
            strata_error_raise_again(&why);
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status == STRATA_SUCCESS)
        atomic_fetch_add_explicit(&self->passed, 1, memory_order_relaxed);
    return status;
}

static strata_status binning_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    binning *self = (binning *)resource;
    bin *of = bin_for(self, request);
    if (__builtin_expect(!of, 0))
        return pass(self, request, out);
    strata_timeline *timeline = strata_known_timeline(resource->stack->device, request->stream);
    bin_free_list *list =
        timeline && !strata_timeline_is_early(timeline) ? bin_free_list_of(of, timeline->number) : NULL;
    bin_slot *slot = list && !bin_free_list_is_empty(list) ? bin_free_list_take(list) : NULL;
    if (__builtin_expect(slot != NULL, 1)) {
        if (__builtin_expect(hand_out_again(self, of, slot, timeline, request, out), 1))
            return STRATA_SUCCESS;
        bin_free_list_put(list, slot);
    }
    return allocate_slow(self, of, request, out);
}

/* ---- freeing ---- */

typedef struct follow_query {
    const strata_stream_ref *stream;
    const strata_clock *clock;
} follow_query;

static strata_status check_followed(strata_point point, void *data)
{
    const follow_query *of = data;
    bool followed = strata_timeline_follows(of->stream, of->clock, point) || strata_point_query(point);
    return followed ? STRATA_SUCCESS : STRATA_ERROR_BUSY;
}

/* Whether the freed block waits for the stream only. */
static bool waits_for_alone(const strata_entry *entry, const strata_stream_ref *stream)
{
    if (strata_uses_only_on(entry, stream->timeline))
        return true;
    strata_clock *clock = strata_timeline_clock(stream, false);
    follow_query of = {.stream = stream, .clock = clock};
    bool alone = strata_uses_visit(entry, check_followed, &of) == STRATA_SUCCESS;
    strata_clock_unref(clock);
    return alone;
}

static inline void count_free(bin *of, int64_t by)
{
    strata_counters_add(&of->counters, strata_thread_self(), BIN_FREED, by);
}

/* Puts a freed slot into a list: any thread may take it then. */
static void put_in_list(bin *of, bin_slot *slot, strata_point point, bin_free_list *list)
{
    slot->freed = point;
    if (!slot->deferred)
        count_free(of, 1);
    slot->deferred = false;
    bin_free_list_put(list, slot);
}

/* Frees a slot behind its uses and the freeing stream. `finished`: that stream's work is complete. */
static strata_status free_in_order(bin *of, bin_slot *slot, const strata_entry *entry, const strata_block *block,
                                   CUstream stream, strata_device *device, bool finished)
{
    strata_stream_ref ref;
    strata_point point = 0;
    if (finished || stream == STRATA_STREAM_GONE) {
        strata_status status = finished ? STRATA_SUCCESS : strata_uses_end_of_alloc_stream(entry, block, &point);
        if (status == STRATA_SUCCESS)
            put_in_list(of, slot, point, &of->mixed);
        return status;
    }
    strata_status status = strata_stream_resolve(device, stream, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    bool alone = waits_for_alone(entry, &ref);
    if ((status = strata_stream_point(&ref, &point)) == STRATA_SUCCESS)
        put_in_list(of, slot, point, alone ? bin_free_list_make(of, strata_point_timeline(point)) : &of->mixed);
    return status;
}

static bin_slot *slot_of(const binning *self, const strata_entry *entry)
{
    return atomic_load_explicit(&bin_bytes_in(&self->resource, entry)->where, memory_order_relaxed);
}

static strata_status perform_free(strata_resource *resource, strata_entry *entry, const strata_block *block,
                                  CUstream stream, bool finished)
{
    bin_slot *slot = slot_of((binning *)resource, entry);
    return free_in_order(slot->chunk->bin, slot, entry, block, stream, resource->stack->device, finished);
}

static strata_status defer(binning *self, bin_slot *slot, strata_entry *entry, const strata_block *block,
                           CUstream stream)
{
    bin *of = slot->chunk->bin;
    slot->deferred = true;
    count_free(of, 1); /* before another thread can perform the free */
    strata_status status = strata_capture_frees_add(&self->resource.stack->capture_frees, &self->resource, perform_free,
                                                    entry, block, stream);
    if (status == STRATA_SUCCESS)
        return status;
    count_free(of, -1);
    slot->deferred = false;
    return status;
}

/* Frees a retired block, or defers that. */
static __attribute__((noinline)) strata_status free_or_defer(binning *self, bin_slot *slot, strata_entry *entry,
                                                             const strata_block *block, CUstream stream)
{
    strata_stack *stack = self->resource.stack;
    strata_capture_frees_try_flush_any(&stack->capture_frees, stream);
    strata_error_suppress_begin();
    strata_status status = free_in_order(slot->chunk->bin, slot, entry, block, stream, stack->device, false);
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status == STRATA_ERROR_STREAM_CAPTURE)
        status = defer(self, slot, entry, block, stream);
    if (status != STRATA_SUCCESS)
        strata_entry_revive(entry);
    return status;
}

static strata_status binning_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    binning *self = (binning *)resource;
    strata_entry *entry = own_entry(self, block->id);
    if (!entry)
        return resource->upstream->ops->deallocate(resource->upstream, block, stream);
    strata_status status = strata_entry_retire(table_of(self), block, &entry);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    bin_slot *slot = slot_of(self, entry);
    bin *of = slot->chunk->bin;
    strata_timeline *timeline = strata_known_timeline(resource->stack->device, stream);
    bin_free_list *list =
        timeline && strata_uses_only_on(entry, timeline) ? bin_free_list_of(of, timeline->number) : NULL;
    if (__builtin_expect(!list, 0))
        return free_or_defer(self, slot, entry, block, stream);
    slot->freed = strata_timeline_now(timeline);
    count_free(of, 1);
    bin_free_list_put(list, slot);
    return STRATA_SUCCESS;
}

/* ---- uses ---- */

static strata_status binning_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    strata_resource *below = resource->upstream;
    if (own_entry((binning *)resource, block->id))
        return strata_block_prepare_use(resource, block, stream, access);
    return below->ops->prepare_use(below, block, stream, access);
}

static strata_status binning_finish(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    strata_resource *below = resource->upstream;
    if (own_entry((binning *)resource, block->id))
        return strata_block_finish_use(resource, block, stream, access);
    return below->ops->finish_use(below, block, stream, access);
}

static strata_status binning_record(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    strata_resource *below = resource->upstream;
    if (own_entry((binning *)resource, block->id))
        return strata_block_record_use(resource, block, stream, access);
    return below->ops->record_use(below, block, stream, access);
}

/* ---- giving back ---- */

static strata_status binning_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    binning *self = (binning *)resource;
    strata_resource *below = resource->upstream;
    strata_capture_frees *deferred = &resource->stack->capture_frees;
    strata_status status = STRATA_SUCCESS;
    size_t own = 0;
    *bytes = 0;
    strata_capture_frees_flush_for_reap(deferred, mode == STRATA_REAP_WAIT);
    for (size_t i = 0; i < self->bin_count && status == STRATA_SUCCESS; i++) {
        if (mode == STRATA_REAP_WAIT)
            status = bin_wait(self, self->bins[i], &own);
        else
            own += bin_sweep(self, self->bins[i], true);
    }
    if (status == STRATA_SUCCESS)
        status = below->ops->reap(below, mode, bytes);
    if (status == STRATA_SUCCESS && mode == STRATA_REAP_WAIT && strata_capture_frees_any(deferred))
        status = strata_capture_frees_refuse(deferred);
    *bytes += own;
    return status;
}

/* Bytes that the layers below reserve; 0: unknown. */
static size_t reserved_below(const binning *self)
{
    strata_resource *below = self->resource.upstream;
    strata_usage usage = {0};
    strata_error_suppress_begin();
    strata_status status = below->ops->usage(below, &usage);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS ? usage.reserved_bytes : 0;
}

static strata_status binning_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    binning *self = (binning *)resource;
    strata_resource *below = resource->upstream;
    strata_status status = STRATA_SUCCESS;
    size_t before = reserved_below(self), given, told = 0;
    *bytes = 0;
    if (before ? keep_bytes < before : keep_bytes != SIZE_MAX) {
        for (size_t i = 0; i < self->bin_count; i++)
            bin_poll(self, self->bins[i]);
        status = bins_give_back(self, before ? before - keep_bytes : SIZE_MAX, &given);
    }
    if (status == STRATA_SUCCESS)
        status = below->ops->trim(below, keep_bytes, &told);
    size_t after = before ? reserved_below(self) : 0;
    size_t gone = after && before > after ? before - after : 0;
    *bytes = gone > told ? gone : told;
    return status;
}

static void binning_destroy_chunks(binning *self)
{
    if (self->resource.stack && strata_device_is_usable(self->resource.stack->device))
        bins_close(self);
}

void binning_destroy(strata_resource *resource)
{
    binning *self = (binning *)resource;
    binning_destroy_chunks(self);
    for (size_t i = 0; i < self->bin_count; i++)
        bin_destroy(self->bins[i]);
    strata_host_free(self->index);
    strata_lock_destroy(&self->making);
    strata_host_free(self->bins);
    strata_host_free(self);
}

/* ---- asking ---- */

static strata_status binning_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    const bin *of = bin_for((binning *)resource, request);
    if (!of)
        return resource->upstream->ops->charge(resource->upstream, request, bytes);
    *bytes = of->size;
    return STRATA_SUCCESS;
}

/* A request would get the newest slot of the stream's list. */
static strata_status binning_reusable(strata_resource *resource, const strata_request *request, size_t *bytes,
                                      strata_block_id *of)
{
    binning *self = (binning *)resource;
    bin *from = bin_for(self, request);
    if (!from)
        return resource->upstream->ops->reusable(resource->upstream, request, bytes, of);
    *bytes = 0;
    *of = (strata_block_id){0};
    const strata_timeline *timeline = strata_known_timeline(resource->stack->device, request->stream);
    bin_free_list *list = timeline ? bin_free_list_of(from, timeline->number) : NULL;
    if (!list || bin_free_list_is_empty(list))
        return STRATA_SUCCESS;
    strata_spin_take(&list->lock);
    if (list->newest) {
        const strata_entry *entry = bin_entry(self, list->newest);
        *bytes = from->size;
        *of = (strata_block_id){.table = strata_table_id(table_of(self)),
                                .slot = atomic_load_explicit(&list->newest->entry_slot, memory_order_relaxed),
                                .generation =
                                    atomic_load_explicit(&entry->word, memory_order_relaxed) >> STRATA_WORD_GENERATION};
    }
    strata_spin_release(&list->lock);
    return STRATA_SUCCESS;
}

static strata_status binning_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    bool of_chunk;
    if (bins_find((binning *)resource, address, &of_chunk, out))
        return STRATA_SUCCESS;
    if (!of_chunk)
        return resource->upstream->ops->find(resource->upstream, address, out);
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

static bool binning_owns_internally(strata_resource *resource, strata_block_id id)
{
    const strata_entry *entry = strata_table_lookup(strata_resource_table(resource), id);
    const bin_bytes *bytes = entry ? bin_bytes_in(resource, entry) : NULL;
    return bytes && !atomic_load_explicit(&bytes->made, memory_order_relaxed) &&
           atomic_load_explicit(&bytes->where, memory_order_relaxed);
}

static void binning_sum_frees(strata_resource *resource, struct strata_stream_sums *sums)
{
    const binning *self = (const binning *)resource;
    for (size_t i = 0; i < self->bin_count; i++)
        bin_sum_frees(self, self->bins[i], sums);
}

#define OPS(layer_name)                                                                                         \
    {                                                                                                           \
        .size = sizeof(strata_resource_ops), .block_bytes = sizeof(bin_bytes), .name = (layer_name),            \
        .allocate = binning_allocate, .deallocate = binning_deallocate, .prepare_use = binning_prepare,         \
        .finish_use = binning_finish, .record_use = binning_record, .reap = binning_reap, .trim = binning_trim, \
        .usage = binning_usage, .charge = binning_charge, .find = binning_find, .destroy = binning_destroy,     \
        .sum_frees = binning_sum_frees, .give_back = binning_give_back, .reusable = binning_reusable,           \
        .values = binning_values, .value_count = BINNING_VALUES, .get_value = binning_get_value,                \
        .describe = binning_describe, .owns_internally = binning_owns_internally, .transparent = true,          \
    }

const strata_resource_ops strata_fixed_ops = OPS("fixed"), strata_binning_ops = OPS("binning");
