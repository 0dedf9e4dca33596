/* Asks the driver which streams are further: more memory is then known to be complete. */
#include "core/base/error.h"
#include "resources/pool/internal.h"

#include <string.h>

enum {
    POLL_EVERY = 64,      /* requests between polls */
    POLL_SHARE = 8,       /* of free memory waits for others: below, no poll */
    COSTLY_REQUESTS = 16, /* requests a poll for want of memory: polling is costly, */
    COSTLY_OF = 1024,     /* over this many */
};

/* Timelines to ask. A poll is on the way of a request, so it does not clear or look through all 8 KiB: `used` has a bit
 * for each word that is set up. */
typedef struct pool_numbers {
    unsigned count;
    uint64_t used[STRATA_TIMELINE_LIMIT / 64 / 64];
    uint64_t words[STRATA_TIMELINE_LIMIT / 64];
} pool_numbers;

static bool has_number(const pool_numbers *numbers, uint16_t number)
{
    const uint32_t word = number / 64;
    return numbers->used[word / 64] >> word % 64 & 1 && numbers->words[word] >> number % 64 & 1;
}

static void add_number(pool_numbers *numbers, uint16_t number)
{
    const uint32_t word = number / 64;
    const uint64_t used = UINT64_C(1) << word % 64;
    if (has_number(numbers, number))
        return;
    if (!(numbers->used[word / 64] & used))
        numbers->words[word] = 0;
    numbers->used[word / 64] |= used;
    numbers->words[word] |= UINT64_C(1) << number % 64;
    numbers->count++;
}

static void remove_number(pool_numbers *numbers, uint16_t number)
{
    if (!has_number(numbers, number))
        return;
    numbers->words[number / 64] ^= UINT64_C(1) << number % 64;
    numbers->count--;
}

static strata_status record_number(strata_point point, void *data)
{
    add_number(data, strata_point_timeline(point));
    return STRATA_SUCCESS;
}

static void clear(pool_numbers *numbers)
{
    numbers->count = 0;
    memset(numbers->used, 0, sizeof numbers->used);
}

static void list_streams(pool *self, pool_numbers *numbers)
{
    clear(numbers);
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    for (const pool_stream_list *list = self->heap.stream_lists; list; list = list->next)
        if (list->trees[POOL_LARGE].root || list->trees[POOL_SMALL].root || list->trees[POOL_CONTIGUOUS].root)
            add_number(numbers, list->timeline);
    pool_heap_visit_multi_stream(&self->heap, record_number, numbers);
    strata_spin_release(&self->lock);
}

static void poll_word(uint32_t word, uint64_t bits)
{
    for (; bits; bits &= bits - 1)
        strata_timeline_poll_up_to_now(
            strata_timeline_numbered((uint16_t)(word * 64 + (uint32_t)__builtin_ctzll(bits))));
}

/* Requires relaxed capture mode. */
static void poll_all(const pool_numbers *numbers)
{
    for (uint32_t i = 0; i < STRATA_TIMELINE_LIMIT / 64 / 64; i++)
        for (uint64_t bits = numbers->used[i]; bits; bits &= bits - 1) {
            const uint32_t word = i * 64 + (uint32_t)__builtin_ctzll(bits);
            poll_word(word, numbers->words[word]);
        }
}

static void poll_streams(pool *self, const pool_numbers *numbers)
{
    strata_call_scope scope;
    strata_error_suppress_begin();
    const strata_status status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_RELAXED);
    if (status == STRATA_SUCCESS) {
        poll_all(numbers);
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
    atomic_fetch_add_explicit(&self->counts.polls, numbers->count, memory_order_relaxed);
    strata_spin_take(&self->lock);
    pool_heap_process_completed(&self->heap);
    strata_spin_release(&self->lock);
}

unsigned pool_poll_others(pool *self, uint16_t own, bool with_own)
{
    pool_numbers numbers;
    list_streams(self, &numbers);
    if (!with_own)
        remove_number(&numbers, own);
    if (numbers.count)
        poll_streams(self, &numbers);
    return numbers.count - has_number(&numbers, own);
}

void pool_poll(pool *self)
{
    pool_poll_others(self, 0, false); /* no stream's number */
}

void pool_poll_own(pool *self, const pool_need *need)
{
    const uint16_t own = need->stream->timeline->number;
    pool_numbers numbers;
    list_streams(self, &numbers);
    if (!has_number(&numbers, own))
        return;
    clear(&numbers);
    add_number(&numbers, own);
    poll_streams(self, &numbers);
}

/* By the last poll. `lock` is held. */
static bool waits_for_others(const pool *self, const pool_need *need)
{
    const uint16_t number = need->stream->timeline->number;
    return pool_heap_elsewhere(&self->heap, need->side, number) > self->heap.halves[need->side].free_bytes / POLL_SHARE;
}

/* Complete memory fits better than what happens to be the stream's own. `lock` is held. */
bool pool_is_time_to_poll(pool *self, const pool_need *need)
{
    if (!self->takes_finished || atomic_load_explicit(&self->polling_is_costly, memory_order_relaxed) ||
        !waits_for_others(self, need) || ++self->requests_since_poll < POLL_EVERY)
        return false;
    self->requests_since_poll = 0;
    pool_heap_process_completed(&self->heap);
    return waits_for_others(self, need);
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
