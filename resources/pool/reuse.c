/* Free memory of a stream and of others. */
#include "resources/pool/thread_cache.h"

static pool_result find_own(pool_search *search)
{
    pool *self = search->self;
    const pool_need *need = search->need;
    const uint16_t number = need->stream->timeline->number;
    const uint64_t bytes = pool_room_for(need);
    const uint32_t fit = pool_heap_find(&self->heap, need->side, number, bytes);
    return pool_take_fit(self, need, pool_least_fragmenting(self, fit, bytes), search->slot);
}

pool_result pool_find_own(pool_search *search)
{
    strata_spin_take(&search->self->lock);
    const pool_result found = find_own(search);
    strata_spin_release(&search->self->lock);
    return found;
}

/* Holds the lock once, as most misses end here. */
pool_result pool_find_first(pool_search *search)
{
    pool *self = search->self;
    strata_spin_take(&self->lock);
    atomic_store_explicit(&self->counts.misses, atomic_load_explicit(&self->counts.misses, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    if (pool_is_time_to_poll(self, search->need)) {
        strata_spin_release(&self->lock);
        pool_poll(self, POOL_TIMELINE_NONE);
        strata_spin_take(&self->lock);
    }
    pool_stream_cache_give_large(self, search->local, search->need->stream->timeline);
    pool_ask_for_better_fit(self, search->need);
    const pool_result found = find_own(search);
    strata_spin_release(&self->lock);
    return found;
}

/* The request's own stream too, where memory is fixed or polling is costly: its pending memory fits already. */
pool_result pool_find_finished(pool_search *search)
{
    pool *self = search->self;
    const uint16_t own = search->need->stream->timeline->number;
    const bool with_own =
        !self->store.source->remappable || atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed);
    self->polls_in_need += pool_poll(self, with_own ? POOL_TIMELINE_NONE : own);
    return pool_find_own(search);
}

typedef struct following {
    const strata_stream_ref *stream;
    const strata_clock *clock;
} following;

static strata_status check_point(strata_point point, void *data)
{
    const following *by = data;
    return strata_timeline_follows(by->stream, by->clock, point) ? STRATA_SUCCESS : STRATA_ERROR_STREAM_CAPTURE;
}

static bool is_followed(const strata_entry *entry, void *data)
{
    return strata_uses_visit(entry, check_point, data) == STRATA_SUCCESS;
}

static pool_result take_accepted(pool *self, const pool_need *need, pool_accepts accepts, void *data, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    const uint32_t fit = pool_heap_find_elsewhere(&self->heap, need->side, pool_room_for(need), accepts, data);
    const pool_result found = pool_take_fit(self, need, fit, slot);
    strata_spin_release(&self->lock);
    return found;
}

/* Takes memory whose points the stream already follows. */
static pool_result find_followed(pool *self, const pool_need *need, uint32_t *slot)
{
    strata_clock *clock = strata_timeline_clock(need->stream, false);
    following by = {need->stream, clock};
    const pool_result found = take_accepted(self, need, is_followed, &by, slot);
    strata_clock_unref(clock);
    return found;
}

static strata_status check_legacy(strata_point point, void *legacy)
{
    return strata_timeline_of(point) == legacy ? STRATA_ERROR_STREAM_CAPTURE : STRATA_SUCCESS;
}

static bool avoids_legacy(const strata_entry *entry, void *legacy)
{
    return strata_uses_visit(entry, check_legacy, legacy) == STRATA_SUCCESS;
}

/* Takes memory of other streams, behind a wait. While a blocking stream is captured, the legacy stream cannot be waited
 * for: then without its memory. */
static pool_result find_elsewhere(pool *self, const pool_need *need, pool_outcome *outcome, uint32_t *slot)
{
    strata_spin_take(&self->lock);
    pool_result found = pool_take_others(self, need, slot);
    strata_spin_release(&self->lock);
    if (found != POOL_FOUND || pool_wait_for_extent(self, need, *slot, outcome))
        return found;
    if (outcome->wait_error.status != STRATA_ERROR_STREAM_CAPTURE)
        return POOL_NOTHING;
    found = take_accepted(self, need, avoids_legacy, self->device->legacy, slot);
    return found == POOL_FOUND && !pool_wait_for_extent(self, need, *slot, outcome) ? POOL_NOTHING : found;
}

pool_result pool_find_others(pool_search *search)
{
    pool *self = search->self;
    if (self->waits)
        return find_elsewhere(self, search->need, search->outcome, search->slot);
    return self->follows ? find_followed(self, search->need, search->slot) : POOL_NOTHING;
}
