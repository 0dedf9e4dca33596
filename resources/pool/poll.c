/* Asks the driver which streams are further: more memory is then known to be complete. */
#include "resources/owners/pending_points.h"
#include "resources/pool/internal.h"

enum {
    POLL_EVERY = 64,      /* requests between polls */
    POLL_SHARE = 8,       /* of free memory waits for others: below, no poll */
    COSTLY_REQUESTS = 16, /* requests a poll for want of memory: polling is costly, */
    COSTLY_OF = 1024,     /* over this many */
    VAIN_MOST = 63,       /* requests between questions that were all in vain */
};

/* Lists the next streams that free memory waits for. */
static void list_streams(pool *self, strata_pending_points *found)
{
    strata_pending_points_next(found);
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    pool_heap_visit_pending(&self->heap, strata_pending_points_visit, found);
    strata_spin_release(&self->lock);
}

/* Polls the listed streams and processes completed extents. Returns how many it polled. */
static size_t poll_streams(pool *self, const strata_pending_points *found, uint16_t except)
{
    const size_t polled = strata_pending_points_poll(found, self->device, except);
    if (!polled)
        return 0;
    atomic_fetch_add_explicit(&self->counts.polls, polled, memory_order_relaxed);
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    strata_spin_release(&self->lock);
    return polled;
}

size_t pool_poll(pool *self, uint16_t except)
{
    strata_pending_points found = {.count = 0};
    size_t polled = 0;
    do {
        list_streams(self, &found);
        polled += poll_streams(self, &found, except);
    } while (strata_pending_points_is_full(&found));
    return polled;
}

void pool_poll_own(pool *self, const pool_need *need)
{
    const uint16_t own = need->stream->timeline->number;
    strata_pending_points found = {.after = (uint16_t)(own - 1)};
    list_streams(self, &found);
    found.count = found.count && strata_point_timeline(found.points[0]) == own;
    poll_streams(self, &found, POOL_TIMELINE_NONE);
}

/* Whether much free memory waits for other streams, as far as the last poll showed. `lock` is held. */
static bool waits_for_others(const pool *self, const pool_need *need)
{
    const uint16_t number = need->stream->timeline->number;
    return pool_heap_elsewhere(&self->heap, need->side, number) > self->heap.halves[need->side].free_bytes / POLL_SHARE;
}

/* A poll pays: complete memory fits better than what happens to be the stream's own. `lock` is held. */
bool pool_is_time_to_poll(pool *self, const pool_need *need)
{
    if (!self->takes_finished || atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed) ||
        !waits_for_others(self, need) || ++self->requests_since_poll < POLL_EVERY)
        return false;
    self->requests_since_poll = 0;
    pool_heap_process_completed(&self->heap);
    return waits_for_others(self, need);
}

/* Where each stream cuts its own memory, though another's fits, what is free comes in ever smaller parts: eight streams
 * held 1.65 times what was live, not 1.2. A request asks about one stream on the average. */
void pool_ask_for_better_fit(pool *self, const pool_need *need)
{
    const uint16_t number = need->stream->timeline->number;
    if (!self->takes_finished || !pool_policy_moves(self) || need->side != POOL_LARGE ||
        (self->quiet_left && self->quiet_left--))
        return;
    const uint64_t bytes = pool_room_for(need);
    const uint32_t better = pool_heap_find_better(&self->heap, need->side, number, bytes);
    if (!better)
        return;
    strata_spin_release(&self->lock);
    const size_t asked = pool_poll(self, POOL_TIMELINE_NONE);
    strata_spin_take(&self->lock);
    const bool vain = pool_heap_find_better(&self->heap, need->side, number, bytes) == better;
    self->vain = vain && self->vain < VAIN_MOST ? 2 * self->vain + 1 : vain * self->vain;
    self->quiet_left = self->vain > asked ? self->vain : (uint32_t)asked;
}

/* Costly polls let the pool hold more memory, in which each stream finds its own. */
void pool_weigh_polling(pool *self)
{
    const uint64_t misses = atomic_load_explicit(&self->counts.misses, memory_order_relaxed);
    const uint64_t requests = misses - self->misses_weighed;
    if (requests < COSTLY_OF)
        return;
    if (COSTLY_REQUESTS * self->polls_in_need >= requests) {
        atomic_store_explicit(&self->polling_is_costly, true, memory_order_relaxed);
        uint64_t *share = &self->policy.polling_share;
        if (!*share || COSTLY_REQUESTS / 2 * self->polls_in_need >= requests) /* of which memory spares few */
            *share = POOL_SHARE_POLLING;
        else if (*share < POOL_POLLING_MOST)
            *share += POOL_SHARE_POLLED;
    }
    self->misses_weighed = misses;
    self->polls_in_need = 0;
}
