/* Asks the driver which streams are further: more memory is then known to be complete. */
#include "core/base/error.h"
#include "resources/pool/internal.h"

enum {
    POLL_EVERY = 64,      /* requests between polls */
    POLL_SHARE = 8,       /* of free memory waits for others: below, no poll */
    COSTLY_REQUESTS = 16, /* requests a poll for want of memory: polling is costly, */
    COSTLY_OF = 1024,     /* over this many */
};

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

static void list_streams(pool *self, pool_numbers *numbers)
{
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    for (const pool_stream_list *list = self->heap.stream_lists; list; list = list->next)
        if (list->trees[POOL_LARGE].root || list->trees[POOL_SMALL].root)
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

/* Requires relaxed capture mode. */
static void poll_all(const pool_numbers *numbers)
{
    for (uint32_t word = 0; word < STRATA_TIMELINE_LIMIT / 64; word++)
        for (uint64_t bits = numbers->words[word]; bits; bits &= bits - 1)
            strata_timeline_poll_up_to_now(
                strata_timeline_numbered((uint16_t)(word * 64 + (uint32_t)__builtin_ctzll(bits))));
}

static void poll_streams(pool *self, const pool_numbers *numbers, unsigned count)
{
    strata_call_scope scope;
    strata_error_suppress_begin();
    const strata_status status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_RELAXED);
    if (status == STRATA_SUCCESS) {
        poll_all(numbers);
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
    atomic_fetch_add_explicit(&self->counts.polls, count, memory_order_relaxed);
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    strata_spin_release(&self->lock);
}

unsigned pool_poll_others(pool *self, uint16_t own, bool with_own)
{
    pool_numbers numbers = {0};
    list_streams(self, &numbers);
    const uint64_t own_bits = numbers.words[own / 64] & UINT64_C(1) << own % 64;
    numbers.words[own / 64] ^= with_own ? 0 : own_bits;
    const unsigned count = count_numbers(&numbers);
    if (count)
        poll_streams(self, &numbers, count);
    return count - (with_own && own_bits);
}

void pool_poll(pool *self)
{
    pool_poll_others(self, 0, false); /* no stream's number */
}

void pool_poll_own(pool *self, const pool_need *need)
{
    const uint16_t own = need->stream->timeline->number;
    pool_numbers numbers = {0}, own_bits = {0};
    list_streams(self, &numbers);
    own_bits.words[own / 64] = numbers.words[own / 64] & UINT64_C(1) << own % 64;
    if (own_bits.words[own / 64])
        poll_streams(self, &own_bits, 1);
}

/* By the last poll. `lock` is held. */
static bool waits_for_others(const pool *self, const pool_need *need)
{
    const uint16_t number = need->stream->timeline->number;
    return pool_heap_elsewhere(&self->heap, need->side, number) > self->heap.halves[need->side].free_bytes / POLL_SHARE;
}

/* Complete memory fits better than what happens to be the stream's own. */
bool pool_is_time_to_poll(pool *self, const pool_need *need)
{
    if (atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed))
        return false;
    strata_spin_take(&self->lock);
    bool due = waits_for_others(self, need) && ++self->requests_since_poll >= POLL_EVERY;
    if (due) {
        self->requests_since_poll = 0;
        pool_heap_process_completed(&self->heap);
        due = waits_for_others(self, need);
    }
    strata_spin_release(&self->lock);
    return due;
}

/* With more memory, each stream finds its own. */
void pool_weigh_polling(pool *self)
{
    const uint64_t misses = atomic_load_explicit(&self->counts.misses, memory_order_relaxed);
    const uint64_t requests = misses - self->misses_weighed;
    if (requests < COSTLY_OF)
        return;
    if (COSTLY_REQUESTS * self->polls_in_need >= requests) {
        atomic_store_explicit(&self->polling_is_costly, true, memory_order_relaxed);
        pool_policy_spare_polls(self);
    }
    self->misses_weighed = misses;
    self->polls_in_need = 0;
}
