/* Requests that no cache serves. The steps, in order: free memory that waits for no other stream; memory that polling
 * finds complete; memory that can be waited for; new or remapped memory (grow.c). Where polling is costly, new memory
 * may come earlier. */
#include "core/base/error.h"
#include "resources/owners/out_of_memory.h"
#include "resources/pool/thread_cache.h"

/* ---- free memory ---- */

enum {
    TIGHT_SHARE = 16, /* tight: all but this part of the limit is reserved */
    TIGHT_FITS = 32,  /* fits that are compared then */
    SCARCE_SHARE = 10 /* scarce: free memory and what may be made are at most this part of the limit */
};

pool_live pool_live_now(const pool *self)
{
    pool_live live = {
        .bytes = atomic_load_explicit(&self->live_bytes_elsewhere, memory_order_relaxed),
        .blocks = atomic_load_explicit(&self->live_blocks_elsewhere, memory_order_relaxed),
    };
    const pool_thread_cache *local;
    for (uint32_t position = 0; (local = strata_per_thread_next(&self->thread_caches, &position));) {
        live.bytes += atomic_load_explicit(&local->live_bytes, memory_order_relaxed);
        live.blocks += (int64_t)atomic_load_explicit(&local->hits, memory_order_relaxed);
        live.blocks += atomic_load_explicit(&local->live_beside_hits, memory_order_relaxed);
    }
    return (pool_live){live.bytes > 0 ? live.bytes : 0, live.blocks > 0 ? live.blocks : 0};
}

uint64_t pool_peak_with(const pool *self, const pool_need *need)
{
    const uint64_t live = pool_live_bytes(self) + need->bytes;
    return live > self->peak_live ? live : self->peak_live;
}

void pool_record_peak(pool *self, const pool_need *need)
{
    self->peak_live = pool_peak_with(self, need);
}

pool_touched pool_pages_touched(const pool *self, const strata_entry *range, uint64_t bytes)
{
    if (!self->store.source->remappable)
        return (pool_touched){0};
    const CUdeviceptr start = pool_address_of(range), end = start + pool_bytes_of(range);
    const uint64_t granule = self->store.granule, first = (start + granule - 1) / granule, last = end / granule;
    if (first >= last)
        return (pool_touched){0};
    const uint64_t upto = (start + bytes + granule - 1) / granule, from = (end - bytes) / granule;
    return (pool_touched){(upto < last ? upto : last) - first, last - (from > first ? from : first)};
}

bool pool_is_tight(const pool *self, uint64_t reserved)
{
    const uint64_t limit = atomic_load_explicit(&self->limit, memory_order_relaxed);
    return limit && reserved > limit - limit / TIGHT_SHARE;
}

/* Near the limit, fits that leave more whole granules are worth a search. */
static bool is_tight(const pool *self)
{
    return pool_is_tight(self, atomic_load_explicit(&self->reserved, memory_order_relaxed));
}

uint32_t pool_cut_out(pool *self, uint32_t slot, const pool_need *need)
{
    pool_heap *heap = &self->heap;
    const strata_entry *entry = pool_entry(heap, slot);
    const CUdeviceptr address = pool_address_of(entry), end = address + pool_bytes_of(entry);
    const pool_touched started = is_tight(self) ? pool_pages_touched(self, entry, need->bytes) : (pool_touched){0};
    uint64_t before = -address & (need->alignment - 1);
    if (started.at_end < started.at_start)
        before = ((end - need->bytes) & ~(need->alignment - 1)) - address;
    if (before) {
        const uint32_t aligned = pool_heap_split(heap, slot, before);
        pool_heap_give(heap, slot, POOL_FREE);
        if (!aligned)
            return 0;
        slot = aligned;
    }
    if (pool_bytes_of(pool_entry(heap, slot)) == need->bytes)
        return slot;
    const uint32_t rest = pool_heap_split(heap, slot, need->bytes);
    pool_heap_give(heap, rest ? rest : slot, POOL_FREE);
    return rest ? slot : 0;
}

pool_result pool_take_fit(pool *self, const pool_need *need, uint32_t fit, uint32_t *slot)
{
    if (!fit)
        return POOL_NOTHING;
    pool_heap_take(&self->heap, fit);
    *slot = pool_cut_out(self, fit, need);
    return *slot ? POOL_FOUND : POOL_FAILED;
}

/* Of a fit and the next larger ones, the one that touches the fewest granules. */
static uint32_t least_fragmenting(pool *self, uint32_t fit, uint64_t bytes)
{
    uint32_t best = fit;
    uint64_t least = UINT64_MAX;
    for (unsigned i = 0; fit && least && i < TIGHT_FITS; i++) {
        const pool_touched started = pool_pages_touched(self, pool_entry(&self->heap, fit), bytes);
        const uint64_t here = started.at_end < started.at_start ? started.at_end : started.at_start;
        if (here < least) {
            best = fit;
            least = here;
        }
        fit = pool_heap_next(&self->heap, fit);
    }
    return best;
}

/* Whether little is left below the limit, free or to be made. The lock is held. */
static bool is_scarce(const pool *self)
{
    const uint64_t limit = atomic_load_explicit(&self->limit, memory_order_relaxed);
    const uint64_t reserved = atomic_load_explicit(&self->reserved, memory_order_relaxed);
    return limit && (limit > reserved ? limit - reserved : 0) + self->heap.free_bytes <= limit / SCARCE_SHARE;
}

/* Where memory is scarce, requests fail for want of whole granules, not bytes: partly used ones add up. A request that
 * would touch some is served by the ends of two free extents with remapped memory between them, if that touches fewer.
 */
static pool_result find_across_holes(pool *self, const pool_need *need, uint32_t *slot)
{
    if (need->bytes < self->store.granule || !self->store.source->remappable)
        return POOL_NOTHING;
    const uint64_t bytes = pool_room_for(need);
    strata_spin_take(&self->lock);
    uint32_t fit = is_scarce(self) ? pool_heap_find(&self->heap, need->stream->timeline->number, bytes) : 0;
    fit = least_fragmenting(self, fit, bytes);
    const pool_touched started =
        fit ? pool_pages_touched(self, pool_entry(&self->heap, fit), bytes) : (pool_touched){0};
    strata_spin_release(&self->lock);
    const uint64_t least = started.at_end < started.at_start ? started.at_end : started.at_start;
    return least ? pool_remap_least_fragmenting(self, need, least, slot) : POOL_NOTHING;
}

static pool_result find_own(pool *self, const pool_need *need, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    const uint16_t number = need->stream->timeline->number;
    const uint64_t bytes = pool_room_for(need);
    const uint32_t fit = is_tight(self) ? least_fragmenting(self, pool_heap_find(&self->heap, number, bytes), bytes)
                                        : pool_heap_find_before_end(&self->heap, number, bytes);
    pool_result found = pool_take_fit(self, need, fit, slot);
    strata_spin_release(&self->lock);
    return found;
}

/* ---- complete memory of other streams ---- */

enum {
    POLL_EVERY = 64, /* requests to the heap between polls */
    POLL_TIGHT = 4,  /* the same near the limit */
    POLL_SHARE = 8,  /* polls only if more than this part of the free memory waits for others */
};

/* A set of timelines, by number. */
typedef struct pool_numbers {
    uint64_t words[STRATA_TIMELINE_LIMIT / 64];
} pool_numbers;

static strata_status record_number(strata_point point, void *data)
{
    pool_numbers *numbers = data;
    const uint16_t number = strata_point_timeline(point);
    numbers->words[number / 64] |= UINT64_C(1) << number % 64;
    return STRATA_SUCCESS;
}

/* The streams that free memory waits for, by what is known. */
static void list_streams(pool *self, pool_numbers *numbers)
{
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    for (const pool_stream_list *list = self->heap.stream_lists; list; list = list->next)
        if (list->tree.root)
            record_number(strata_point_make(list->timeline, 1), numbers);
    pool_heap_visit_multi_stream(&self->heap, record_number, numbers);
    strata_spin_release(&self->lock);
}

static unsigned count_numbers(const pool_numbers *numbers)
{
    unsigned count = 0;
    for (uint32_t word = 0; word < STRATA_TIMELINE_LIMIT / 64; word++)
        count += (unsigned)__builtin_popcountll(numbers->words[word]);
    return count;
}

/* The thread's capture mode is relaxed. */
static void poll_all(const pool_numbers *numbers)
{
    for (uint32_t word = 0; word < STRATA_TIMELINE_LIMIT / 64; word++)
        for (uint64_t bits = numbers->words[word]; bits; bits &= bits - 1)
            strata_timeline_poll_up_to_now(
                strata_timeline_numbered((uint16_t)(word * 64 + (uint32_t)__builtin_ctzll(bits))));
}

static void poll_streams(pool *self, const pool_numbers *numbers, unsigned count)
{
    strata_scope scope;
    strata_error_suppress_begin();
    const strata_status status = strata_scope_enter(&scope, self->device, STRATA_SCOPE_RELAXED);
    if (status == STRATA_SUCCESS) {
        poll_all(numbers);
        strata_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
    atomic_fetch_add_explicit(&self->counts.asked, count, memory_order_relaxed);
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    strata_spin_release(&self->lock);
}

/* Polls all streams that free memory waits for; the stream with the number `own` only with `along`. Returns how many
 * others there were. */
static unsigned poll_others(pool *self, uint16_t own, bool along)
{
    pool_numbers numbers = {0};
    list_streams(self, &numbers);
    const uint64_t mine = numbers.words[own / 64] & UINT64_C(1) << own % 64;
    numbers.words[own / 64] ^= along ? 0 : mine;
    const unsigned count = count_numbers(&numbers);
    if (count)
        poll_streams(self, &numbers, count);
    return count - (along && mine);
}

void pool_poll(pool *self)
{
    poll_others(self, 0, false); /* 0 is no stream's number */
}

void pool_poll_own(pool *self, const pool_need *need)
{
    const uint16_t own = need->stream->timeline->number;
    pool_numbers numbers = {0}, mine = {0};
    list_streams(self, &numbers);
    mine.words[own / 64] = numbers.words[own / 64] & UINT64_C(1) << own % 64;
    if (mine.words[own / 64])
        poll_streams(self, &mine, 1);
}

/* Polls the other streams and tries again. The request's own stream is polled too where memory is fixed or polling is
 * costly: its pending memory fits already. map_lock is held. */
static pool_result find_finished(pool *self, const pool_need *need, uint32_t *slot)
{
    const uint16_t own = need->stream->timeline->number;
    const bool along =
        !self->store.source->remappable || atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed);
    self->adaptive.polls_in_need += poll_others(self, own, along);
    return find_own(self, need, slot);
}

/* Whether much of the free memory waited for other streams when it was last processed. The lock is held. */
static bool waits_for_others(const pool *self, const pool_need *need)
{
    return pool_heap_elsewhere(&self->heap, need->stream->timeline->number) > self->heap.free_bytes / POLL_SHARE;
}

/* Whether that is still so, and the last poll is long ago: complete memory fits better than what happens to be the
 * stream's own. */
static bool is_time_to_poll(pool *self, const pool_need *need)
{
    const bool tight = is_tight(self);
    if (!tight && atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed))
        return false;
    const uint32_t every = tight ? POLL_TIGHT : POLL_EVERY;
    strata_spin_take(&self->lock);
    bool due = waits_for_others(self, need) && ++self->requests_since_poll >= every;
    if (due) {
        self->requests_since_poll = 0;
        pool_heap_process_completed(&self->heap);
        due = waits_for_others(self, need);
    }
    strata_spin_release(&self->lock);
    return due;
}

/* ---- memory that can be waited for ---- */

static strata_status make_wait(strata_point point, void *stream)
{
    return strata_timeline_wait(stream, point);
}

bool pool_wait_for_extent(pool *self, const pool_need *need, uint32_t slot, pool_outcome *outcome)
{
    const uint16_t timeline = pool_points_timeline(pool_entry(&self->heap, slot));
    strata_error_suppress_begin();
    strata_status status = strata_uses_visit(pool_entry(&self->heap, slot), make_wait, (void *)need->stream);
    if (status != STRATA_SUCCESS && outcome) {
        outcome->why = *strata_error_suppressed();
        outcome->alone = true;
    }
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS) {
        const bool others = timeline != POOL_TIMELINE_NONE && timeline != need->stream->timeline->number;
        atomic_fetch_add_explicit(&self->counts.handed, others, memory_order_relaxed);
        return true;
    }
    pool_give_extent(self, slot);
    return false;
}

/* A magazine of that size, waited for as a whole: the first extent serves the request, the rest goes to a known
 * stream's cache or the heap. */
static pool_result find_in_depot(pool *self, const pool_need *need, pool_thread_cache *local, uint32_t *slot)
{
    if (need->alignment > POOL_GRANULE || !self->waits)
        return POOL_NOTHING;
    pool_thread_cache *keeps = need->stream->known ? local : NULL;
    const uint32_t first = pool_depot_take(self, keeps, pool_granules(need->bytes));
    if (!first)
        return POOL_NOTHING;
    const bool waited = pool_wait_for_extent(self, need, first, NULL);
    if (keeps)
        pool_stream_cache_fill(self, keeps, waited ? need->stream->timeline : NULL);
    if (!waited)
        return POOL_NOTHING;
    *slot = first;
    return POOL_FOUND;
}

typedef struct following {
    const strata_stream_ref *stream;
    const strata_clock *clock;
    bool all;
} following;

static strata_status check_point(strata_point point, void *data)
{
    following *by = data;
    by->all = by->all && strata_timeline_follows(by->stream, by->clock, point);
    return STRATA_SUCCESS;
}

static bool is_followed(const strata_entry *entry, void *data)
{
    following *by = data;
    by->all = true;
    strata_uses_visit(entry, check_point, by);
    return by->all;
}

/* Best fit of memory whose points the stream follows. */
static pool_result find_followed(pool *self, const pool_need *need, uint32_t *slot)
{
    strata_clock *clock = strata_timeline_clock(need->stream, false);
    following by = {need->stream, clock, true};
    strata_spin_take(&self->lock);
    const uint32_t fit = pool_heap_find_accepted(&self->heap, pool_room_for(need), is_followed, &by);
    const pool_result found = pool_take_fit(self, need, fit, slot);
    strata_spin_release(&self->lock);
    strata_clock_unref(clock);
    return found;
}

/* Neighbours that suffice together. The lock is held. */
static pool_result take_run(pool *self, const pool_need *need, uint16_t timeline, uint32_t *slot)
{
    const CUdeviceptr start = pool_heap_find_run(&self->heap, timeline, pool_room_for(need));
    if (!start)
        return POOL_NOTHING;
    const uint32_t taken = pool_heap_take_range(&self->heap, start, pool_room_for(need));
    *slot = taken ? pool_cut_out(self, taken, need) : 0;
    return *slot ? POOL_FOUND : POOL_FAILED;
}

pool_result pool_take_others(pool *self, const pool_need *need, uint32_t *slot)
{
    const uint32_t fit = pool_heap_find_elsewhere(&self->heap, pool_room_for(need));
    pool_result found = pool_take_fit(self, need, fit, slot);
    return found == POOL_NOTHING ? take_run(self, need, POOL_TIMELINE_MULTI, slot) : found;
}

static strata_status check_legacy(strata_point point, void *legacy)
{
    return strata_timeline_of(point) == legacy ? STRATA_ERROR_STREAM_CAPTURE : STRATA_SUCCESS;
}

static bool spares_legacy(const strata_entry *entry, void *legacy)
{
    return strata_uses_visit(entry, check_legacy, legacy) == STRATA_SUCCESS;
}

/* Best fit of memory that does not wait for the legacy stream, which cannot be waited for while a blocking stream is
 * captured. */
static pool_result find_beside_legacy(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    const uint32_t fit = pool_heap_find_accepted(&self->heap, pool_room_for(need), spares_legacy, self->device->legacy);
    const pool_result found = pool_take_fit(self, need, fit, slot);
    strata_spin_release(&self->lock);
    return found == POOL_FOUND && !pool_wait_for_extent(self, need, *slot, outcome) ? POOL_NOTHING : found;
}

static pool_result find_elsewhere(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    const pool_result found = pool_take_others(self, need, slot);
    strata_spin_release(&self->lock);
    if (found != POOL_FOUND || pool_wait_for_extent(self, need, *slot, outcome))
        return found;
    return outcome->why.status == STRATA_ERROR_STREAM_CAPTURE ? find_beside_legacy(self, need, outcome, slot)
                                                              : POOL_NOTHING;
}

/* ---- the steps ---- */

/* The addresses for mapping are one hole at first. */
static bool begin_heap(pool *self)
{
    if (!self->store.source->remappable)
        return true;
    const uint32_t slot = pool_heap_enter(&self->heap, self->store.base, self->store.bytes);
    if (!slot)
        return false;
    pool_heap_give(&self->heap, slot, POOL_HOLE);
    return true;
}

/* The heap starts with the first request, when the table exists. */
static bool begin(pool *self)
{
    strata_spin_take(&self->lock);
    bool started = atomic_load_explicit(&self->started, memory_order_relaxed);
    if (!started) {
        self->heap.table = strata_resource_table(&self->resource);
        self->heap.offset = self->resource.block_offset;
        self->heap.joins_complete = self->store.source->remappable && self->takes_finished && self->waits;
        started = begin_heap(self);
        atomic_store_explicit(&self->started, started, memory_order_release);
    }
    strata_spin_release(&self->lock);
    return started;
}

/* Memory of other streams, as the reuse policies allow. */
static pool_result find_others(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    pool_result found = self->takes_finished ? find_finished(self, need, slot) : find_own(self, need, slot);
    if (found == POOL_NOTHING && self->waits)
        found = find_elsewhere(self, need, outcome, slot);
    else if (found == POOL_NOTHING && self->follows)
        found = find_followed(self, need, slot);
    return found;
}

pool_result pool_find_again(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    const pool_result found = find_others(self, need, outcome, slot);
    strata_lock_release(&self->map_lock);
    return found;
}

enum { MOST_TRIES = 100 }; /* for a request whose memory other threads take */

/* Own and complete memory with neighbours joined; without a poll. */
static pool_result find_own_run(pool *self, const pool_need *need, uint32_t *slot)
{
    if (self->takes_finished) {
        strata_spin_take(&self->lock);
        pool_heap_process_completed(&self->heap);
        strata_spin_release(&self->lock);
    }
    pool_result found = find_own(self, need, slot);
    if (found == POOL_NOTHING) {
        strata_spin_take(&self->lock);
        found = take_run(self, need, need->stream->timeline->number, slot);
        strata_spin_release(&self->lock);
    }
    return found;
}

static pool_result find_under_map_lock(pool *self, const pool_need *need, bool may_wait, pool_outcome *outcome,
                                       uint32_t *slot)
{
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    pool_result found = find_own_run(self, need, slot);
    if (found == POOL_NOTHING)
        found = pool_grow_ahead(self, need, outcome, slot);
    if (found == POOL_NOTHING)
        found = find_others(self, need, outcome, slot);
    if (found == POOL_NOTHING)
        found = pool_grow_or_remap(self, need, may_wait, outcome, slot);
    if (found == POOL_FOUND)
        pool_record_peak(self, need);
    strata_lock_release(&self->map_lock);
    return found;
}

/* Serialised, so that no request is refused for memory that another thread is about to free. Memory mapped for a
 * request may be taken by other threads, which need no lock: the request then tries again, a bounded number of times.
 */
static pool_result find_under_oom_lock(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    pool_result found;
    unsigned ticket = 0;
    strata_lock_take(&self->oom_lock);
    do {
        outcome->result = CUDA_ERROR_OUT_OF_MEMORY;
        found = find_under_map_lock(self, need, true, outcome, slot);
    } while (found == POOL_NOTHING && outcome->result == CUDA_SUCCESS && ++ticket < MOST_TRIES);
    strata_lock_release(&self->oom_lock);
    return found;
}

/* Search with a remappable source. */
static pool_result find_mapped(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    const pool_result found = find_under_map_lock(self, need, false, outcome, slot);
    return found == POOL_NOTHING ? find_under_oom_lock(self, need, outcome, slot) : found;
}

static strata_status find_with_all_means(pool *self, const pool_need *need, const strata_request *request,
                                         uint32_t *slot)
{
    const pool_chunk_source *source = self->store.source;
    pool_outcome outcome = {.result = CUDA_ERROR_OUT_OF_MEMORY, .call = source->make_call, .alone = !self->waits};
    const pool_result found =
        source->remappable ? find_mapped(self, need, &outcome, slot) : pool_find_fixed(self, need, &outcome, slot);
    if (found == POOL_FOUND)
        return STRATA_SUCCESS;
    if (found == POOL_FAILED || outcome.host)
        return strata_fail_host_memory("a piece of a pool");
    if (outcome.why.status != STRATA_SUCCESS)
        return strata_error_raise_again(&outcome.why);
    if (outcome.initial)
        return pool_refuse_initial(self, request, &outcome);
    if (outcome.below.status != STRATA_SUCCESS)
        return pool_refuse_fixed(self, request, &outcome.below);
    const CUresult result = outcome.result == CUDA_SUCCESS ? CUDA_ERROR_OUT_OF_MEMORY : outcome.result;
    return strata_fail_allocation_in_steps(&self->resource, request, result, outcome.call, self->store.granule);
}

static strata_status find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot)
{
    atomic_fetch_add_explicit(&self->counts.misses, 1, memory_order_relaxed);
    if (__builtin_expect(!atomic_load_explicit(&self->started, memory_order_acquire), 0) && !begin(self))
        return strata_fail_host_memory("a pool");
    pool_thread_cache *local = strata_per_thread_self(&self->thread_caches, strata_thread_self());
    if (self->takes_finished && is_time_to_poll(self, need))
        pool_poll(self);
    pool_stream_cache_give(self, local, need->stream->timeline, false);
    pool_result found = find_across_holes(self, need, slot);
    if (found == POOL_NOTHING)
        found = find_own(self, need, slot);
    if (found == POOL_NOTHING)
        found = find_in_depot(self, need, local, slot);
    if (found == POOL_NOTHING && pool_stream_cache_give(self, local, need->stream->timeline, true))
        found = find_own(self, need, slot);
    if (found == POOL_FOUND)
        return STRATA_SUCCESS;
    if (found == POOL_FAILED)
        return strata_fail_host_memory("a piece of a pool");
    return find_with_all_means(self, need, request, slot);
}

strata_status pool_find(pool *self, const pool_need *need, const strata_request *request, uint32_t *slot)
{
    pool_decay_step_if_due(self);
    strata_status status = find(self, need, request, slot);
    if (status == STRATA_SUCCESS)
        pool_decay_record(self, *slot);
    return status;
}
