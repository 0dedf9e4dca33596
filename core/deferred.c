/* The list of frees that wait for the end of a capture. */
#include "core/deferred.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/stream_map.h"
#include "core/thread.h"

typedef struct strata_deferred_free {
    struct strata_deferred_free *next;
    strata_resource *owner;
    strata_deferred_carry_out carry_out;
    strata_entry *entry; /* retired: nobody else has it */
    strata_block block;
    CUstream stream;
    strata_point after; /* 0, or what the legacy stream, which stands in for the one that was named, has to wait for */
    uint64_t thread; /* serial of the thread that freed: the per-thread stream is another for each; 0: nobody knows */
} deferred_free;

/* What one thread has taken out of the list, until the last of it is done or back. Guarded by the set's lock. */
typedef struct strata_deferred_batch {
    struct strata_deferred_batch *next;
    const strata_thread *thread; /* whose it is; NULL: nobody knows */
    uint64_t number;             /* from 1, in the order in which they began */
} deferred_batch;

void strata_deferred_init(strata_deferred *set, strata_device *device)
{
    set->device = device;
    strata_lock_init(&set->lock, STRATA_RANK_OWNER);
}

void strata_deferred_end(strata_deferred *set)
{
    while (set->frees) {
        deferred_free *one = set->frees;
        set->frees = one->next;
        strata_host_free(one);
    }
    strata_lock_destroy(&set->lock);
}

static uint64_t this_thread(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? thread->serial : 0;
}

/* The lock is held. */
static void count(strata_deferred *set, int by)
{
    size_t now = atomic_load_explicit(&set->count, memory_order_relaxed);
    atomic_store_explicit(&set->count, now + (size_t)by, memory_order_release);
}

/* The lock is held. */
static void link_in(strata_deferred *set, deferred_free *one)
{
    one->next = set->frees;
    set->frees = one;
}

/* The lock is held. */
static void begin_batch(strata_deferred *set, deferred_batch *batch)
{
    *batch = (deferred_batch){.next = set->batches, .thread = strata_thread_self(), .number = ++set->batch_count};
    set->batches = batch;
}

/* The same. */
static void end_batch(strata_deferred *set, const deferred_batch *batch)
{
    deferred_batch **link = &set->batches;
    while (*link != batch)
        link = &(*link)->next;
    *link = batch->next;
}

/* A capture elsewhere that the legacy stream is part of is in the way, and not one of the free's own stream: nobody
 * need name that again, or say when the capture ends. What it has been given is marked, and the free becomes the legacy
 * stream's. If it cannot be marked the free stays that stream's own. */
static void move_to_legacy(strata_device *device, deferred_free *one)
{
    strata_stream_ref stream;
    strata_note note;
    if (one->stream == STRATA_STREAM_GONE || (uintptr_t)one->stream <= (uintptr_t)CU_STREAM_LEGACY ||
        strata_stream_is_capturing(device, one->stream, true))
        return;
    strata_error_hush();
    strata_status status = strata_stream_resolve(device, one->stream, &stream);
    if (status == STRATA_SUCCESS)
        status = strata_note_begin_on(&note, &stream);
    if (status == STRATA_SUCCESS) {
        const strata_point point = strata_timeline_now(note.stream.timeline);
        status = strata_note_end(&note);
        one->after = status == STRATA_SUCCESS ? point : 0;
        one->stream = status == STRATA_SUCCESS ? CU_STREAM_LEGACY : one->stream;
    }
    strata_error_unhush(false);
}

strata_status strata_deferred_add(strata_deferred *set, strata_resource *owner, strata_deferred_carry_out carry_out,
                                  strata_entry *entry, const strata_block *block, CUstream stream)
{
    deferred_free *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return strata_fail_host_memory("a free inside a capture");
    one->owner = owner;
    one->carry_out = carry_out;
    one->entry = entry;
    one->block = *block;
    one->stream = stream;
    one->thread = this_thread();
    move_to_legacy(set->device, one);
    strata_lock_take(&set->lock);
    link_in(set, one);
    count(set, 1);
    strata_lock_release(&set->lock);
    return STRATA_SUCCESS;
}

/* Whether the stream of a free can be named now. */
static bool can_be_named(const deferred_free *one, CUstream passed)
{
    if (passed == STRATA_STREAM_GONE || one->stream == STRATA_STREAM_GONE || strata_stream_is_known(one->stream))
        return true;
    return one->stream == passed && (passed != CU_STREAM_PER_THREAD || (one->thread && one->thread == this_thread()));
}

/* Takes out those that may be carried out, the first that was asked for first. They count until they are done. */
static deferred_free *take(strata_deferred *set, CUstream passed, deferred_batch *batch)
{
    deferred_free *taken = NULL;
    strata_lock_take(&set->lock);
    for (deferred_free **link = &set->frees; *link;) {
        deferred_free *one = *link;
        if (!can_be_named(one, passed)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        one->next = taken;
        taken = one;
    }
    if (taken)
        begin_batch(set, batch);
    strata_lock_release(&set->lock);
    return taken;
}

/* What was taken is done, or goes back; the batch ends with the last of it. */
static void let_go(strata_deferred *set, deferred_batch *batch, deferred_free *one, bool done, bool last)
{
    strata_lock_take(&set->lock);
    if (done)
        count(set, -1);
    else
        link_in(set, one);
    if (last)
        end_batch(set, batch);
    strata_lock_release(&set->lock);
    if (done)
        strata_host_free(one);
}

/* Whether another thread has a batch in hand that began by then. The lock is held. */
static bool is_in_hand(const strata_deferred *set, uint64_t by)
{
    const strata_thread *self = strata_thread_self();
    for (const deferred_batch *batch = set->batches; batch; batch = batch->next)
        if (batch->number <= by && (!self || batch->thread != self))
            return true;
    return false;
}

/* Waits until other threads are done with what they have in hand now. */
static void wait_for_others(strata_deferred *set)
{
    unsigned turn = 0;
    strata_lock_take(&set->lock);
    for (const uint64_t by = set->batch_count; is_in_hand(set, by);) {
        strata_lock_release(&set->lock);
        strata_backoff(&turn);
        strata_lock_take(&set->lock);
    }
    strata_lock_release(&set->lock);
}

static strata_status carry_out(const strata_deferred *set, const deferred_free *one, CUstream passed, bool *done)
{
    bool finished = passed == STRATA_STREAM_GONE, names = !finished && one->stream != STRATA_STREAM_GONE;
    *done = false;
    if (names && strata_stream_is_capturing(set->device, one->stream, false))
        return STRATA_SUCCESS;
    strata_stream_ref legacy;
    strata_status status = STRATA_SUCCESS;
    if (one->after && !finished)
        status = strata_stream_resolve(set->device, one->stream, &legacy);
    if (one->after && !finished && status == STRATA_SUCCESS)
        status = strata_timeline_wait(&legacy, one->after);
    if (status != STRATA_SUCCESS)
        return status;
    status = one->carry_out(one->owner, one->entry, &one->block, one->stream, finished);
    *done = status == STRATA_SUCCESS;
    return status;
}

static strata_status settle(strata_deferred *set, CUstream passed)
{
    deferred_batch batch;
    strata_status status = STRATA_SUCCESS;
    for (deferred_free *one = take(set, passed, &batch), *next; one; one = next) {
        next = one->next;
        bool done;
        strata_status freed = carry_out(set, one, passed, &done);
        status = status == STRATA_SUCCESS ? freed : status;
        let_go(set, &batch, one, done, !next);
    }
    return status;
}

strata_status strata_deferred_settle(strata_deferred *set, CUstream passed)
{
    wait_for_others(set);
    return settle(set, passed);
}

void strata_deferred_settle_beside(strata_deferred *set, CUstream passed)
{
    strata_error_hush();
    settle(set, passed);
    strata_error_unhush(false);
}

void strata_deferred_settle_for_reap(strata_deferred *set, bool wait)
{
    if (!atomic_load_explicit(&set->count, memory_order_acquire)) /* then the caller sees where the last one went */
        return;
    if (wait)
        wait_for_others(set);
    strata_deferred_settle_beside(set, CU_STREAM_LEGACY);
    if (wait)
        wait_for_others(set); /* who came by in between */
}

strata_status strata_deferred_refuse(const strata_deferred *set)
{
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "%zu blocks were freed inside captures whose end was not seen; if they have ended, say so with "
                       "strata_stack_captures_ended",
                       atomic_load_explicit(&set->count, memory_order_relaxed));
}
