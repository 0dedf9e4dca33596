/* Frees within a capture: queued by stream, performed when the capture has ended. */
#include "core/stack/capture_frees.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/thread.h"
#include "core/streams/inflight_frees.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"

typedef struct capture_free {
    struct capture_free *next;
    strata_resource *owner;
    strata_capture_frees_perform perform;
    strata_entry *entry; /* retired */
    strata_block block;
    strata_point after; /* what the legacy stream, which replaces the named one, must wait for; or 0 */
} capture_free;

/* The frees of one stream, in order. What forbids the first forbids all: only the first is tried. */
typedef struct strata_capture_frees_queue {
    struct strata_capture_frees_queue *next;
    CUstream stream;
    uint64_t thread; /* of the per-thread stream: serial of the thread that freed; 0: unknown, or another stream */
    capture_free *first, **end; /* `end`: where the next one is linked in */
} capture_queue;

/* Queues that one thread has taken out. Guarded by the set's lock. */
typedef struct strata_capture_frees_batch {
    struct strata_capture_frees_batch *next;
    const strata_thread *thread; /* NULL: it has no state */
    uint64_t number;             /* from 1, in order */
} capture_batch;

void strata_capture_frees_init(strata_capture_frees *set, strata_device *device)
{
    set->device = device;
    strata_lock_init(&set->lock, STRATA_RANK_OWNER);
}

void strata_capture_frees_destroy(strata_capture_frees *set)
{
    for (capture_queue *queue = set->queues, *next; queue; queue = next) {
        next = queue->next;
        for (capture_free *one = queue->first, *after; one; one = after) {
            after = one->next;
            strata_host_free(one);
        }
        strata_host_free(queue);
    }
    strata_lock_destroy(&set->lock);
}

static uint64_t this_thread(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? thread->serial : 0;
}

/* The lock is held. */
static void count(strata_capture_frees *set, int by)
{
    size_t now = atomic_load_explicit(&set->count, memory_order_relaxed);
    atomic_store_explicit(&set->count, now + (size_t)by, memory_order_release);
}

static void append(capture_queue *queue, capture_free *first, capture_free **end)
{
    *queue->end = first;
    queue->end = end;
}

/* If the stream has a queue, appends the frees to it. The lock is held. */
static void add_queue(strata_capture_frees *set, capture_queue *queue)
{
    capture_queue *there = queue->first ? set->queues : NULL;
    while (there && (there->stream != queue->stream || there->thread != queue->thread))
        there = there->next;
    if (queue->first && !there) {
        queue->next = set->queues;
        set->queues = queue;
        return;
    }
    if (there)
        append(there, queue->first, queue->end);
    strata_host_free(queue);
}

/* The lock is held. */
static void begin_batch(strata_capture_frees *set, capture_batch *batch)
{
    *batch = (capture_batch){.next = set->batches, .thread = strata_thread_self(), .number = ++set->batch_count};
    set->batches = batch;
}

/* The lock is held. */
static void end_batch(strata_capture_frees *set, const capture_batch *batch)
{
    capture_batch **link = &set->batches;
    while (*link != batch)
        link = &(*link)->next;
    *link = batch->next;
}

/* A capture that includes the legacy stream blocks the free; the free's stream is not captured. Records an event on
 * that stream and moves the free to the legacy stream: the stream need not be named again, nor the end of the capture
 * reported. If no event can be recorded, the free stays with its stream. */
static void move_to_legacy(strata_device *device, capture_queue *queue)
{
    capture_free *one = queue->first;
    strata_stream_ref stream;
    strata_point point = 0;
    if (queue->stream == STRATA_STREAM_GONE || (uintptr_t)queue->stream <= (uintptr_t)CU_STREAM_LEGACY ||
        strata_stream_is_capturing(device, queue->stream, true))
        return;
    strata_error_suppress_begin();
    strata_status status = strata_stream_resolve(device, queue->stream, &stream);
    if (status == STRATA_SUCCESS)
        status = strata_stream_point(&stream, &point);
    if (status == STRATA_SUCCESS) {
        one->after = point;
        queue->stream = CU_STREAM_LEGACY;
    }
    strata_error_suppress_end(false);
}

strata_status strata_capture_frees_add(strata_capture_frees *set, strata_resource *owner,
                                       strata_capture_frees_perform perform, strata_entry *entry,
                                       const strata_block *block, CUstream stream)
{
    capture_free *one = strata_host_zalloc(sizeof *one);
    capture_queue *queue = one ? strata_host_zalloc(sizeof *queue) : NULL;
    if (!queue) {
        strata_host_free(one);
        return strata_fail_host_memory("a free inside a capture");
    }
    one->owner = owner;
    one->perform = perform;
    one->entry = entry;
    one->block = *block;
    *queue = (capture_queue){.stream = stream, .first = one, .end = &one->next};
    move_to_legacy(set->device, queue);
    queue->thread = queue->stream == CU_STREAM_PER_THREAD ? this_thread() : 0;
    strata_lock_take(&set->lock);
    add_queue(set, queue);
    count(set, 1);
    strata_lock_release(&set->lock);
    return STRATA_SUCCESS;
}

static bool queue_has(const capture_queue *queue, CUdeviceptr address)
{
    const capture_free *one = queue->first;
    while (one && address - one->block.address >= one->block.bytes)
        one = one->next;
    return one != NULL;
}

bool strata_capture_frees_has(strata_capture_frees *set, CUdeviceptr address)
{
    if (!strata_capture_frees_any(set))
        return false;
    strata_lock_take(&set->lock);
    const capture_queue *queue = set->queues;
    while (queue && !queue_has(queue, address))
        queue = queue->next;
    strata_lock_release(&set->lock);
    return queue != NULL;
}

/* Whether the queue's stream can be named in a driver call now, in a call that was passed the stream `passed`. */
static bool can_be_named(const capture_queue *queue, CUstream passed)
{
    if (passed == STRATA_STREAM_GONE || queue->stream == STRATA_STREAM_GONE || strata_stream_is_known(queue->stream))
        return true;
    return queue->stream == passed &&
           (passed != CU_STREAM_PER_THREAD || (queue->thread && queue->thread == this_thread()));
}

/* Takes out the queues that can be named. Their frees stay counted until they are done. */
static capture_queue *take_queues(strata_capture_frees *set, CUstream passed, capture_batch *batch)
{
    capture_queue *taken = NULL;
    strata_lock_take(&set->lock);
    for (capture_queue **link = &set->queues; *link;) {
        capture_queue *queue = *link;
        if (!can_be_named(queue, passed)) {
            link = &queue->next;
            continue;
        }
        *link = queue->next;
        queue->next = taken;
        taken = queue;
    }
    if (taken)
        begin_batch(set, batch);
    strata_lock_release(&set->lock);
    return taken;
}

static void finish_free(strata_capture_frees *set, capture_free *one)
{
    strata_lock_take(&set->lock);
    count(set, -1);
    strata_lock_release(&set->lock);
    strata_host_free(one);
}

/* Returns the rest of a queue; the batch ends with the last one. */
static void return_queue(strata_capture_frees *set, const capture_batch *batch, capture_queue *queue, bool last)
{
    strata_lock_take(&set->lock);
    add_queue(set, queue);
    if (last)
        end_batch(set, batch);
    strata_lock_release(&set->lock);
}

/* Whether another thread has a batch with a number up to `by`. The lock is held. */
static bool is_in_progress(const strata_capture_frees *set, uint64_t by)
{
    const strata_thread *self = strata_thread_self();
    for (const capture_batch *batch = set->batches; batch; batch = batch->next)
        if (batch->number <= by && (!self || batch->thread != self))
            return true;
    return false;
}

/* Waits for the present batches of other threads. */
static void wait_for_others(strata_capture_frees *set)
{
    unsigned spins = 0;
    strata_lock_take(&set->lock);
    for (const uint64_t by = set->batch_count; is_in_progress(set, by);) {
        strata_lock_release(&set->lock);
        strata_backoff(&spins);
        strata_lock_take(&set->lock);
    }
    strata_lock_release(&set->lock);
}

/* Performs one free. `stream` is not being captured. */
static strata_status perform_free(const strata_capture_frees *set, const capture_free *one, CUstream stream,
                                  bool finished)
{
    strata_stream_ref legacy;
    strata_status status = STRATA_SUCCESS;
    if (one->after && !finished)
        status = strata_stream_resolve(set->device, stream, &legacy);
    if (one->after && !finished && status == STRATA_SUCCESS)
        status = strata_timeline_order(&legacy, one->after);
    return status == STRATA_SUCCESS ? one->perform(one->owner, one->entry, &one->block, stream, finished) : status;
}

/* Performs what is possible; the rest stays, in order. Another thread may destroy the stream meanwhile. */
static strata_status perform_queue(strata_capture_frees *set, capture_queue *queue, CUstream passed)
{
    strata_thread *thread = strata_thread_self();
    const bool finished = passed == STRATA_STREAM_GONE, names = !finished && queue->stream != STRATA_STREAM_GONE;
    strata_status status = STRATA_SUCCESS;
    for (capture_free **link = &queue->first; *link;) {
        capture_free *one = *link;
        strata_inflight_free_begin(thread);
        const bool can =
            !names || (can_be_named(queue, passed) && !strata_stream_is_capturing(set->device, queue->stream, false));
        const strata_status freed = can ? perform_free(set, one, queue->stream, finished) : STRATA_SUCCESS;
        strata_inflight_free_end(thread);
        if (!can)
            return status;
        status = status == STRATA_SUCCESS ? freed : status;
        if (freed != STRATA_SUCCESS) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        queue->end = one->next ? queue->end : link;
        finish_free(set, one);
    }
    return status;
}

static strata_status flush(strata_capture_frees *set, CUstream passed)
{
    capture_batch batch;
    strata_status status = STRATA_SUCCESS;
    for (capture_queue *queue = take_queues(set, passed, &batch), *next; queue; queue = next) {
        next = queue->next;
        const strata_status freed = perform_queue(set, queue, passed);
        status = status == STRATA_SUCCESS ? freed : status;
        return_queue(set, &batch, queue, !next);
    }
    return status;
}

strata_status strata_capture_frees_flush(strata_capture_frees *set, CUstream passed)
{
    wait_for_others(set);
    return flush(set, passed);
}

void strata_capture_frees_try_flush(strata_capture_frees *set, CUstream passed)
{
    strata_error_suppress_begin();
    flush(set, passed);
    strata_error_suppress_end(false);
}

void strata_capture_frees_flush_for_reap(strata_capture_frees *set, bool wait)
{
    if (!atomic_load_explicit(&set->count,
                              memory_order_acquire)) /* acquire: the caller sees the memory that the last one freed */
        return;
    if (wait)
        wait_for_others(set);
    strata_capture_frees_try_flush(set, CU_STREAM_LEGACY);
    if (wait)
        wait_for_others(set); /* threads that took some in between */
}

strata_status strata_capture_frees_refuse(const strata_capture_frees *set)
{
    const size_t count = atomic_load_explicit(&set->count, memory_order_relaxed);
    return strata_fail(
        STRATA_ERROR_STREAM_CAPTURE,
        "%zu block%s freed inside captures that may not have ended; if they have, call strata_stack_captures_ended",
        count, count == 1 ? " was" : "s were");
}
