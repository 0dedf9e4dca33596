/* Timelines: taking and retiring them, recording and querying their events, waiting for their points on the host.
 * timeline_order.c has the waits of streams.
 *
 * Why an epoch may be read without a lock: a use reads it after its work was submitted, and recording an event or
 * querying a stream advances it before the driver call. So if a use read epoch n, its work precedes the call that ends
 * epoch n, which covers it. If it read n + 1, a later event does.
 *
 * Errors under a timeline's lock are suppressed until it is released: the log callback is the program's, and other
 * threads spin.
 *
 * Before a stored event is queried, waited for or recorded on a known stream, the device is asked whether its context
 * is still there: after a reset that Strata has not seen the handle may be another object's, and such a call can crash
 * ("primary_reset.anew" in tests/answers). So is the device of the stream that waits, where it is another one. */
#include "core/streams/timeline.h"

#include "core/streams/events.h"
#include "core/streams/timeline_events.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/thread.h"

_Atomic(strata_timeline *) strata_timelines[STRATA_TIMELINE_LIMIT];
const char strata_no_stream = 0;
_Atomic bool strata_timelines_uncovered;
static _Atomic uint64_t failures;       /* how often work was left without an event; any thread */
static strata_timeline *free_timelines; /* guarded by the stream map's lock */
/* Number 0 is unused. Changes under the stream map's lock; any thread, relaxed. */
static _Atomic uint32_t timeline_count = 1;

static void raise_completed(strata_timeline *timeline, uint64_t epoch)
{
    uint64_t now = atomic_load_explicit(&timeline->completed, memory_order_relaxed);
    while (now < epoch && !atomic_compare_exchange_weak(&timeline->completed, &now, epoch))
        ;
}

/* ---- creation and retirement ---- */

strata_status strata_fail_no_timeline(void)
{
    if (atomic_load_explicit(&timeline_count, memory_order_relaxed) <= STRATA_TIMELINE_LAST)
        return strata_fail_host_memory("a stream's timeline");
    return strata_fail(STRATA_ERROR_BUSY,
                       "too many streams with pending work or live blocks: %d; free blocks or wait for streams",
                       STRATA_TIMELINE_LAST);
}

static strata_timeline *make_timeline(void)
{
    const uint32_t number = atomic_load_explicit(&timeline_count, memory_order_relaxed);
    if (number > STRATA_TIMELINE_LAST)
        return NULL;
    strata_timeline *timeline = strata_host_zalloc_aligned(64, sizeof *timeline);
    if (!timeline)
        return NULL;
    strata_spin_init(&timeline->lock, STRATA_RANK_TIMELINE);
    timeline->number = (uint16_t)number;
    atomic_init(&timeline->epoch, 1);
    atomic_init(&timeline->known_as, STRATA_NO_STREAM);
    atomic_store_explicit(&strata_timelines[number], timeline, memory_order_release);
    atomic_store_explicit(&timeline_count, number + 1, memory_order_relaxed);
    return timeline;
}

strata_timeline *strata_timeline_take(strata_device *device, strata_timeline_kind kind, CUstream stream, uint64_t id)
{
    strata_timeline *timeline = free_timelines;
    if (timeline)
        free_timelines = timeline->next_free;
    else if (!(timeline = make_timeline()))
        return NULL;
    strata_spin_take(&timeline->lock);
    timeline->device = device;
    timeline->kind = kind;
    timeline->stream = stream;
    atomic_store_explicit(&timeline->early, false, memory_order_relaxed);
    timeline->of_device = kind == STRATA_TIMELINE_KNOWN;
    atomic_store_explicit(&timeline->stream_id, id, memory_order_release);
    strata_spin_release(&timeline->lock);
    return timeline;
}

/* Whether some work has no event, and is not known to be complete otherwise. The lock is held. */
static bool is_uncovered(const strata_timeline *timeline)
{
    return timeline->uncovered &&
           timeline->uncovered_epoch > atomic_load_explicit(&timeline->completed, memory_order_relaxed);
}

/* The newest event that covers no work from `epoch` on; NULL if there is none. The lock is held. */
static strata_event *event_before(const strata_timeline *timeline, uint64_t epoch)
{
    strata_event *newest = NULL;
    for (size_t i = 0; i < STRATA_TIMELINE_EVENTS; i++) {
        strata_event *event = timeline->events[i];
        if (event && event->epoch && event->epoch < epoch && (!newest || event->epoch > newest->epoch))
            newest = event;
    }
    return newest;
}

static strata_event *newest_event(const strata_timeline *timeline)
{
    return event_before(timeline, UINT64_MAX);
}

strata_point strata_timeline_last_closed(uint16_t number)
{
    strata_timeline *timeline = strata_timeline_of(strata_point_make(number, 1));
    strata_spin_take(&timeline->lock);
    const strata_event *newest = newest_event(timeline);
    strata_point point = newest ? strata_point_make(number, newest->epoch) : 0;
    strata_spin_release(&timeline->lock);
    return point;
}

bool strata_timeline_is_known(uint16_t number, uint32_t incarnation)
{
    strata_timeline *timeline = strata_timeline_of(strata_point_make(number, 1));
    strata_spin_take(&timeline->lock);
    bool known = timeline->kind == STRATA_TIMELINE_KNOWN &&
                 atomic_load_explicit(&timeline->incarnation, memory_order_relaxed) == incarnation;
    strata_spin_release(&timeline->lock);
    return known;
}

/* Queries an event; an error if the device was reset or the driver refuses. Raises nothing. */
static CUresult query_event(strata_timeline *timeline, CUevent event)
{
    strata_call_scope scope;
    strata_error_suppress_begin();
    strata_status status = strata_check_device_now(timeline->device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, timeline->device, STRATA_CALL_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    CUresult result = strata_cu.EventQuery(event);
    strata_call_scope_leave(&scope);
    return result;
}

static strata_status make_event(strata_device *device, strata_event **out)
{
    *out = NULL;
    strata_event *event = strata_host_zalloc(sizeof *event);
    if (!event)
        return strata_fail_host_memory("an event");
    strata_status status = strata_device_take_event(device, &event->handle);
    if (status != STRATA_SUCCESS) {
        strata_host_free(event);
        return status;
    }
    event->device = device;
    atomic_init(&event->refs, 1);
    *out = event;
    return STRATA_SUCCESS;
}

void strata_timeline_drop_event(strata_event *event)
{
    if (!event || atomic_fetch_sub_explicit(&event->refs, 1, memory_order_acq_rel) != 1)
        return;
    strata_device_give_event(event->device, event->handle);
    strata_clock_unref(event->clock);
    strata_host_free(event);
}

/* The lock is held. */
static bool has_one_reference(const strata_event *event)
{
    return atomic_load_explicit(&event->refs, memory_order_acquire) == 1;
}

/* Takes the timeline from its stream: all its points are complete. The lock is held. */
static void detach_stream(strata_timeline *timeline)
{
    uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    raise_completed(timeline, epoch);
    atomic_store_explicit(&timeline->epoch, epoch + 1, memory_order_release);
    atomic_store_explicit(&timeline->stream_id, 0, memory_order_release);
    atomic_fetch_add_explicit(&timeline->incarnation, 1, memory_order_relaxed);
    timeline->kind = STRATA_TIMELINE_FREE;
    timeline->stream = NULL;
    timeline->handle_holds = 0;
    timeline->uncovered = false;
    timeline->first_epoch = epoch + 1;
    timeline->next_event = 0;
    strata_clock_unref(timeline->clock);
    timeline->clock = NULL;
    for (size_t i = 0; i < STRATA_TIMELINE_EVENTS; i++) {
        strata_timeline_drop_event(timeline->events[i]);
        timeline->events[i] = NULL;
    }
}

void strata_timeline_hold(strata_timeline *timeline)
{
    strata_spin_take(&timeline->lock); /* a thread that finds the stream here now keeps it here */
    atomic_fetch_add_explicit(&timeline->holders, 1, memory_order_relaxed);
    strata_spin_release(&timeline->lock);
}

static bool has_live_blocks(const strata_timeline *timeline)
{
    return atomic_load_explicit(&timeline->holders, memory_order_acquire) ||
           atomic_load_explicit(&timeline->live_blocks, memory_order_relaxed);
}

bool strata_timeline_retire(strata_timeline *timeline, bool keep_with_blocks)
{
    strata_spin_take(&timeline->lock);
    uint64_t completed = atomic_load_explicit(&timeline->completed, memory_order_relaxed);
    const strata_event *newest = newest_event(timeline);
    bool done = timeline->kind == STRATA_TIMELINE_UNKNOWN && !timeline->recording_batches && !is_uncovered(timeline) &&
                !timeline->host_waits &&
                (!newest || newest->epoch <= completed || query_event(timeline, newest->handle) == CUDA_SUCCESS);
    done = done && !(keep_with_blocks && has_live_blocks(timeline));
    for (size_t i = 0; done && i < STRATA_TIMELINE_EVENTS; i++)
        done = !timeline->events[i] || has_one_reference(timeline->events[i]);
    if (done)
        detach_stream(timeline);
    strata_spin_release(&timeline->lock);
    if (done) {
        timeline->next_free = free_timelines;
        free_timelines = timeline;
    }
    return done;
}

void strata_timeline_forget(strata_timeline *timeline)
{
    strata_spin_take(&timeline->lock);
    atomic_store_explicit(&timeline->known_as, STRATA_NO_STREAM, memory_order_release);
    detach_stream(timeline);
    strata_spin_release(&timeline->lock);
    if (timeline == timeline->device->legacy)
        return; /* the lost device keeps it */
    timeline->next_free = free_timelines;
    free_timelines = timeline;
}

/* ---- recording ---- */

/* Replaces the oldest event by a recorded one. The lock is held. */
static void replace_oldest(strata_timeline *timeline, strata_event *event)
{
    strata_event **slot = &timeline->events[timeline->next_event];
    if (*slot != event) {
        strata_timeline_drop_event(*slot);
        *slot = event;
    }
    timeline->next_event = (timeline->next_event + 1) % STRATA_TIMELINE_EVENTS;
}

/* The oldest event, or a new one if a thread waits for the oldest or the stream is of another device. Once recorded it
 * takes the oldest's place, which covers its epochs until then. The lock is held. */
static strata_status pick_event(strata_timeline *timeline, strata_event **out)
{
    strata_event *event = timeline->events[timeline->next_event];
    strata_status status = STRATA_SUCCESS;
    if (!event || !has_one_reference(event) || event->device != timeline->device)
        status = make_event(timeline->device, &event);
    *out = event;
    return status;
}

/* Drops an event from pick_event that could not be recorded, if it is new. The lock is held. */
static __attribute__((cold)) void drop_picked(const strata_timeline *timeline, strata_event *event)
{
    if (event && event != timeline->events[timeline->next_event])
        strata_timeline_drop_event(event);
}

static CUresult record_on(strata_device *device, CUevent event, CUstream handle)
{
    strata_call_scope scope;
    const strata_status status = strata_call_scope_enter(&scope, device, strata_call_scope_for(handle));
    if (status != STRATA_SUCCESS) /* a capture may just have begun that includes the legacy stream */
        return status == STRATA_ERROR_STREAM_CAPTURE ? CUDA_ERROR_STREAM_CAPTURE_IMPLICIT : CUDA_ERROR_INVALID_CONTEXT;
    const CUresult result =
        strata_stream_is_forked(handle) ? CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED : strata_cu.EventRecord(event, handle);
    strata_call_scope_leave(&scope);
    return result;
}

/* Notes that the event was recorded and covers the epoch. The lock is held. */
static void cover(strata_timeline *timeline, strata_event *event, uint64_t epoch)
{
    event->epoch = epoch;
    if (event->clock != timeline->clock) {
        strata_clock_unref(event->clock);
        event->clock = strata_clock_ref(timeline->clock);
    }
    timeline->uncovered = false;
    timeline->of_device = true;
}

/* A stream accepts only events of its own context: finds the device of an unknown stream that was first used with
 * another one, and records one of its events. The lock is held. */
static __attribute__((cold)) CUresult record_elsewhere(strata_timeline *timeline, uint64_t epoch, CUstream handle)
{
    for (int ordinal = 0; ordinal < STRATA_DEVICE_LIMIT; ordinal++) {
        strata_device *device = strata_device_if_open(ordinal);
        strata_event *event = NULL;
        if (!device || device == timeline->device || strata_check_device_now(device) != STRATA_SUCCESS ||
            make_event(device, &event) != STRATA_SUCCESS)
            continue;
        if (record_on(device, event->handle, handle) == CUDA_SUCCESS) {
            timeline->device = device;
            replace_oldest(timeline, event);
            cover(timeline, event, epoch);
            return CUDA_SUCCESS;
        }
        strata_timeline_drop_event(event);
    }
    return CUDA_ERROR_INVALID_HANDLE;
}

/* Records the open event or a picked one for `epoch`. After a failure it is unchanged, or destroyed if it is new. The
 * lock is held. */
static inline CUresult record_event(strata_timeline *timeline, strata_event *event, bool picked, uint64_t epoch,
                                    CUstream handle)
{
    CUresult result = record_on(timeline->device, event->handle, handle);
    if (__builtin_expect(result == CUDA_SUCCESS, 1)) {
        if (picked)
            replace_oldest(timeline, event);
        cover(timeline, event, epoch);
        return result;
    }
    if (picked)
        drop_picked(timeline, event);
    if (result == CUDA_ERROR_INVALID_HANDLE && timeline->kind == STRATA_TIMELINE_UNKNOWN) {
        strata_error_suppress_begin();
        result = record_elsewhere(timeline, epoch, handle);
        strata_error_suppress_end(false);
    }
    return result;
}

strata_status strata_timeline_record(strata_timeline *timeline, CUstream handle)
{
    strata_event *event;
    strata_status status = strata_check_call_scope(timeline->device, strata_call_scope_for(handle));
    if (status == STRATA_SUCCESS)
        status = pick_event(timeline, &event);
    if (status != STRATA_SUCCESS)
        return status;
    uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    atomic_store_explicit(&timeline->epoch, epoch + 1, memory_order_seq_cst);
    CUresult result = record_event(timeline, event, true, epoch, handle);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuEventRecord", "recording an event on a stream%s",
                                                       strata_stream_hint(result));
}

/* An event that is about to be used must not cover later work. */
static void close_open_epoch(strata_timeline *timeline, const strata_event *event)
{
    uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    if (event->epoch == epoch)
        atomic_store_explicit(&timeline->epoch, epoch + 1, memory_order_release);
}

void strata_timeline_close(strata_timeline *timeline)
{
    const strata_event *event = strata_timeline_open_event(timeline);
    if (event)
        close_open_epoch(timeline, event);
}

/* Later work has another epoch: a wait for the device that begins from now on covers what was submitted so far. The
 * lock is held. */
static void leave_uncovered(strata_timeline *timeline, uint64_t epoch)
{
    atomic_store_explicit(&timeline->epoch, epoch + 1, memory_order_seq_cst);
    timeline->uncovered = true;
    timeline->uncovered_epoch = epoch;
    timeline->uncovered_at = atomic_fetch_add(&failures, 1) + 1;
    atomic_store_explicit(&strata_timelines_uncovered, true, memory_order_release);
}

strata_point strata_timeline_leave_uncovered(strata_timeline *timeline)
{
    strata_spin_take(&timeline->lock);
    const uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    timeline->of_device = true;
    leave_uncovered(timeline, epoch);
    strata_spin_release(&timeline->lock);
    return strata_point_make(timeline->number, epoch);
}

/* Waits for the stream, since no event could be recorded. If that fails, the work is left without an event. The lock is
 * held. */
static __attribute__((cold)) strata_status synchronize_instead(strata_timeline *timeline, CUstream handle)
{
    uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    strata_event *open = strata_timeline_open_event(timeline);
    strata_status status = strata_stream_synchronize(timeline->device, handle);
    if (status == STRATA_SUCCESS) {
        atomic_store_explicit(&timeline->epoch, epoch + 1, memory_order_release);
        raise_completed(timeline, epoch);
        return STRATA_SUCCESS;
    }
    if (open) /* it does not cover the latest work */
        open->epoch = epoch - 1;
    leave_uncovered(timeline, epoch);
    return status;
}

/* Records a picked event for an unknown stream's current epoch. The lock is held. */
static __attribute__((noinline)) bool open_epoch(strata_timeline *timeline, uint64_t epoch, CUstream handle)
{
    strata_event *event;
    strata_error_suppress_begin();
    pick_event(timeline, &event);
    strata_error_suppress_end(false);
    return event && record_event(timeline, event, true, epoch, handle) == CUDA_SUCCESS;
}

strata_status strata_timeline_record_now(strata_timeline *timeline, CUstream handle)
{
    uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    strata_event *open = strata_timeline_open_event(timeline);
    if (__builtin_expect(open != NULL, 1) ? record_event(timeline, open, false, epoch, handle) == CUDA_SUCCESS
                                          : open_epoch(timeline, epoch, handle))
        return STRATA_SUCCESS;
    return synchronize_instead(timeline, handle);
}

/* The earliest event that covers the epoch, or NULL. The lock is held. */
static strata_event *covering_event(strata_timeline *timeline, uint64_t epoch)
{
    strata_event *best = NULL;
    for (size_t i = 0; i < STRATA_TIMELINE_EVENTS; i++) {
        strata_event *event = timeline->events[i];
        if (event && event->epoch >= epoch && (!best || event->epoch < best->epoch))
            best = event;
    }
    return best;
}

/* Whether the calling thread has a recording batch on the stream, and so its handle. */
static bool in_own_batch(const strata_timeline *timeline)
{
    const strata_thread *thread = strata_thread_current;
    return thread && thread->batch.timeline == timeline && thread->batch.recording;
}

/* The last event of a stream that was known covers later points too: their work was submitted before the stream was
 * unregistered and this event recorded. NULL if no event is left: the point is complete. The lock is held. */
static __attribute__((cold)) strata_event *last_event_for(strata_timeline *timeline, uint64_t epoch)
{
    if (atomic_load_explicit(&timeline->epoch, memory_order_relaxed) == epoch)
        atomic_store_explicit(&timeline->epoch, epoch + 1, memory_order_release);
    strata_event *event = newest_event(timeline);
    if (!event)
        raise_completed(timeline, epoch);
    return event;
}

/* Whether events cover all recorded uses. The lock is held. */
static bool all_recorded(const strata_timeline *timeline)
{
    return timeline->kind != STRATA_TIMELINE_KNOWN && !timeline->recording_batches && !is_uncovered(timeline);
}

/* To be called before the stream is queried or waited for, see the top. Returns the old epoch. The lock is held. */
static uint64_t advance_epoch(strata_timeline *timeline)
{
    const uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    atomic_store_explicit(&timeline->epoch, epoch + 1, memory_order_seq_cst);
    return epoch;
}

/* For want of an event, waits on the host for all work submitted to the stream. The lock is held, but not during the
 * wait: strata_timeline_await_host_waits keeps the handle valid. */
static __attribute__((cold)) strata_status wait_on_host(strata_timeline *timeline, CUstream handle)
{
    strata_device *device = timeline->device;
    const uint64_t epoch = advance_epoch(timeline);
    timeline->host_waits++;
    strata_spin_release(&timeline->lock);
    const strata_status status = strata_stream_synchronize(device, handle);
    if (status == STRATA_SUCCESS)
        raise_completed(timeline, epoch);
    strata_spin_take(&timeline->lock);
    timeline->host_waits--;
    return status;
}

void strata_timeline_await_host_waits(strata_timeline *timeline)
{
    unsigned spins = 0;
    strata_spin_take(&timeline->lock);
    while (timeline->host_waits) {
        strata_spin_release(&timeline->lock);
        strata_backoff(&spins);
        strata_spin_take(&timeline->lock);
    }
    strata_spin_release(&timeline->lock);
}

/* Records an event, or waits until there is nothing to record. The lock is held; the wait releases it meanwhile. Errors
 * are suppressed. */
static strata_status record_or_wait(strata_timeline *timeline, CUstream handle)
{
    const strata_status status = strata_timeline_record(timeline, handle);
    return __builtin_expect(strata_lacks_memory(status), 0) ? wait_on_host(timeline, handle) : status;
}

/* As event_for. The lock is held, but not throughout, and errors are suppressed. */
static strata_status event_for_locked(strata_timeline *timeline, strata_point point, bool may_wait, strata_event **out,
                                      uint64_t *covered)
{
    uint64_t epoch = strata_point_epoch(point);
    strata_event *event;
    for (unsigned spins = 0;;) {
        /* Acquire: another thread may have waited, and the caller may read host memory that the work wrote. */
        if (epoch <= atomic_load_explicit(&timeline->completed, memory_order_acquire))
            return STRATA_SUCCESS;
        event = covering_event(timeline, epoch);
        if (event || timeline->kind == STRATA_TIMELINE_KNOWN || !timeline->recording_batches || in_own_batch(timeline))
            break;
        strata_spin_release(&timeline->lock); /* a batch of another thread is about to record it */
        strata_backoff(&spins);
        strata_spin_take(&timeline->lock);
    }
    bool nameable = timeline->kind == STRATA_TIMELINE_KNOWN || in_own_batch(timeline);
    if (!event && nameable) {
        CUstream handle =
            timeline->kind == STRATA_TIMELINE_KNOWN ? timeline->stream : strata_thread_current->batch.handle;
        strata_status status = may_wait ? record_or_wait(timeline, handle) : strata_timeline_record(timeline, handle);
        if (status != STRATA_SUCCESS || strata_point_seen_complete(point))
            return status;
        event = covering_event(timeline, epoch);
    }
    if (!event && !all_recorded(timeline))
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "the completion of work on a stream is unknown: recording its event had failed, and so had "
                           "waiting for it. It is known once a later use of that stream %s",
                           timeline->of_device ? "is recorded, or after strata_runtime_reap_pending of any runtime, "
                                                 "which waits for the device"
                                               : "is recorded; its device is unknown, so that waits for devices do "
                                                 "not tell");
    if (!event && !(event = last_event_for(timeline, epoch)))
        return STRATA_SUCCESS;
    close_open_epoch(timeline, event);
    *covered = event->epoch > epoch ? event->epoch : epoch;
    atomic_fetch_add_explicit(&event->refs, 1, memory_order_relaxed);
    *out = event;
    return STRATA_SUCCESS;
}

/* Marks an epoch as complete whose work a reset has ended. The lock is held. */
static void complete_lost(strata_timeline *timeline, uint64_t epoch)
{
    if (epoch >= atomic_load_explicit(&timeline->epoch, memory_order_relaxed))
        advance_epoch(timeline);
    raise_completed(timeline, epoch);
}

strata_status strata_timeline_event_for(strata_point point, const strata_device *asking, bool may_wait,
                                        strata_event **out, uint64_t *covered)
{
    strata_timeline *timeline = strata_timeline_of(point);
    *out = NULL;
    strata_error_suppress_begin();
    strata_spin_take(&timeline->lock);
    strata_status status =
        strata_point_known_complete(point) ? STRATA_SUCCESS : strata_check_device_now(timeline->device);
    if (status == STRATA_SUCCESS) {
        status = event_for_locked(timeline, point, may_wait, out, covered);
    } else if (asking && asking != timeline->device && strata_device_has_its_context(asking)) {
        complete_lost(timeline, strata_point_epoch(point));
        status = STRATA_SUCCESS;
    }
    strata_spin_release(&timeline->lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

strata_status strata_timeline_close_epoch(strata_point point)
{
    return strata_timeline_close_epoch_for(NULL, point);
}

strata_status strata_timeline_close_epoch_for(const strata_device *device, strata_point point)
{
    strata_event *event;
    uint64_t covered;
    strata_status status = strata_timeline_event_for(point, device, false, &event, &covered);
    if (event)
        strata_timeline_drop_event(event);
    return status;
}

/* ---- polling and waiting ---- */

bool strata_point_query(strata_point point)
{
    if (strata_point_known_complete(point))
        return true;
    strata_timeline *timeline = strata_timeline_of(point);
    const uint64_t epoch = strata_point_epoch(point);
    strata_spin_take(&timeline->lock);
    strata_event *event = covering_event(timeline, epoch);
    if (!event && all_recorded(timeline))
        event = last_event_for(timeline, epoch);
    if (event)
        close_open_epoch(timeline, event);
    if (event && query_event(timeline, event->handle) == CUDA_SUCCESS)
        raise_completed(timeline, event->epoch > epoch ? event->epoch : epoch);
    strata_spin_release(&timeline->lock);
    return strata_point_known_complete(point);
}

/* Whether all events are known to be complete. The lock is held. */
static bool is_past_its_events(const strata_timeline *timeline)
{
    const strata_event *newest = newest_event(timeline);
    return !newest || newest->epoch <= atomic_load_explicit(&timeline->completed, memory_order_relaxed);
}

/* Queries events, from the newest on, until one is complete. The lock is held, the capture mode relaxed. */
static void poll_events(strata_timeline *timeline)
{
    const uint64_t completed = atomic_load_explicit(&timeline->completed, memory_order_relaxed);
    strata_event *event = newest_event(timeline);
    for (; event && event->epoch > completed; event = event_before(timeline, event->epoch)) {
        close_open_epoch(timeline, event);
        if (strata_cu.EventQuery(event->handle) != CUDA_SUCCESS)
            continue;
        raise_completed(timeline, event->epoch);
        break;
    }
}

void strata_timeline_poll(strata_timeline *timeline)
{
    strata_call_scope scope;
    strata_error_suppress_begin();
    strata_spin_take(&timeline->lock);
    if (!is_past_its_events(timeline) && strata_check_device_now(timeline->device) == STRATA_SUCCESS &&
        strata_call_scope_enter(&scope, timeline->device, STRATA_CALL_SCOPE_RELAXED) == STRATA_SUCCESS) {
        poll_events(timeline);
        strata_call_scope_leave(&scope);
    }
    strata_spin_release(&timeline->lock);
    strata_error_suppress_end(false);
}

/* A query of a default stream does not cover the streams that it is ordered after. */
static bool is_created_stream(CUstream handle)
{
    return (uintptr_t)handle > (uintptr_t)CU_STREAM_PER_THREAD;
}

/* Whether a known stream is idle. The lock is held, the capture mode relaxed. */
static CUresult query_stream(strata_timeline *timeline)
{
    const uint64_t epoch = advance_epoch(timeline);
    const CUresult result = strata_cu.StreamQuery(timeline->stream);
    if (result == CUDA_SUCCESS)
        raise_completed(timeline, epoch);
    return result;
}

void strata_timeline_poll_up_to_now(strata_timeline *timeline)
{
    strata_error_suppress_begin();
    strata_spin_take(&timeline->lock);
    const bool usable = strata_check_device_now(timeline->device) == STRATA_SUCCESS;
    if (usable)
        poll_events(timeline);
    if (usable && timeline->kind == STRATA_TIMELINE_KNOWN && is_past_its_events(timeline) &&
        !strata_stream_is_forked(timeline->stream)) {
        const bool created = is_created_stream(timeline->stream);
        const bool recorded = (!created || query_stream(timeline) == CUDA_ERROR_NOT_READY) &&
                              strata_timeline_record(timeline, timeline->stream) == STRATA_SUCCESS;
        if (recorded && !created)
            poll_events(timeline);
    }
    strata_spin_release(&timeline->lock);
    strata_error_suppress_end(false);
}

strata_status strata_point_synchronize(strata_point point)
{
    return strata_point_synchronize_for(NULL, point);
}

strata_status strata_point_synchronize_for(const strata_device *device, strata_point point)
{
    strata_event *event;
    uint64_t covered;
    strata_status status = strata_timeline_event_for(point, device, true, &event, &covered);
    if (!event)
        return status;
    strata_call_scope scope;
    status = strata_call_scope_enter(&scope, event->device, STRATA_CALL_SCOPE_RELAXED);
    if (status == STRATA_SUCCESS) {
        CUresult result = strata_cu.EventSynchronize(event->handle);
        strata_call_scope_leave(&scope);
        if (result == CUDA_SUCCESS)
            raise_completed(strata_timeline_of(point), covered);
        else
            status = strata_fail_driver(result, "cuEventSynchronize", "waiting for a stream");
    }
    strata_timeline_drop_event(event);
    return status;
}

/* A reference to the newest event that is known to be complete; NULL if there is none. */
static strata_event *newest_complete_event(strata_timeline *timeline, const strata_device *device)
{
    strata_spin_take(&timeline->lock);
    const uint64_t completed = atomic_load_explicit(&timeline->completed, memory_order_relaxed);
    strata_event *event = timeline->device == device ? event_before(timeline, completed + 1) : NULL;
    if (event)
        atomic_fetch_add_explicit(&event->refs, 1, memory_order_relaxed);
    strata_spin_release(&timeline->lock);
    return event;
}

void strata_timelines_show_completed(strata_device *device)
{
    strata_timeline *timeline;
    strata_call_scope scope;
    if (!strata_device_has_its_context(device) ||
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_RELAXED) != STRATA_SUCCESS)
        return;
    for (uint16_t number = 1; number <= STRATA_TIMELINE_LAST && (timeline = strata_timeline_numbered(number));
         number++) {
        strata_event *event = newest_complete_event(timeline, device);
        if (event)
            strata_cu.EventSynchronize(event->handle);
        strata_timeline_drop_event(event);
    }
    strata_call_scope_leave(&scope);
}

/* Whether the handle still names the stream that has the timeline. The lock is held. */
static bool is_handle_of(const strata_stream_ref *stream)
{
    return strata_timeline_belongs_to(stream) &&
           (!stream->known || !is_created_stream(stream->handle) || stream->timeline->stream == stream->handle);
}

strata_status strata_timeline_synchronize(const strata_stream_ref *stream, bool held)
{
    strata_timeline *timeline = stream->timeline;
    strata_status status = STRATA_SUCCESS;
    strata_error_suppress_begin();
    if (!held)
        strata_spin_take(&timeline->lock);
    const bool created = is_created_stream(stream->handle), known = is_handle_of(stream);
    uint64_t epoch = atomic_load_explicit(&timeline->epoch, memory_order_relaxed);
    if (known && created && timeline->device != stream->device)
        status = strata_check_device_now(timeline->device);
    if (known && created)
        advance_epoch(timeline);
    else if (known && (status = strata_check_device_now(timeline->device)) == STRATA_SUCCESS)
        status = record_or_wait(timeline, stream->handle);
    strata_spin_release(&timeline->lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status != STRATA_SUCCESS)
        return status;
    if (known && !created)
        return strata_point_synchronize(strata_point_make(timeline->number, epoch));
    status = strata_stream_synchronize(stream->device, stream->handle);
    if (status == STRATA_SUCCESS && known)
        raise_completed(timeline, epoch);
    return status;
}

strata_status strata_timeline_synchronize_unmarked(const strata_stream_ref *stream)
{
    strata_timeline *timeline = stream->timeline;
    strata_spin_take(&timeline->lock);
    const bool known = is_handle_of(stream);
    const uint64_t epoch = known ? advance_epoch(timeline) : 0;
    strata_spin_release(&timeline->lock);
    const strata_status status = strata_stream_synchronize(stream->device, stream->handle);
    if (status == STRATA_SUCCESS && known)
        raise_completed(timeline, epoch);
    return status;
}

/* ---- work without an event ---- */

uint64_t strata_timelines_failures(void)
{
    return atomic_load(&failures);
}

/* The next timeline from *number on whose work without an event a wait for the device covers: any, or only one that is
 * covered by nothing else. It is locked. NULL: none. */
static strata_timeline *next_uncovered(const strata_device *device, uint16_t *number, bool only_gone)
{
    strata_timeline *timeline;
    for (; *number <= STRATA_TIMELINE_LAST && (timeline = strata_timeline_numbered(*number)); ++*number) {
        strata_spin_take(&timeline->lock);
        if (is_uncovered(timeline) && timeline->of_device && timeline->device == device &&
            !(only_gone && timeline->kind == STRATA_TIMELINE_KNOWN))
            return timeline;
        strata_spin_release(&timeline->lock);
    }
    return NULL;
}

bool strata_timelines_need_device_wait(const strata_device *device)
{
    uint16_t number = 1;
    if (!strata_timelines_any_uncovered())
        return false;
    strata_timeline *timeline = next_uncovered(device, &number, true);
    if (timeline)
        strata_spin_release(&timeline->lock);
    return timeline != NULL;
}

void strata_timelines_note_device_wait(const strata_device *device, uint64_t before)
{
    strata_timeline *timeline;
    for (uint16_t number = 1; before && (timeline = next_uncovered(device, &number, false)); number++) {
        if (timeline->uncovered_at <= before) {
            raise_completed(timeline, timeline->uncovered_epoch);
            timeline->uncovered = false;
        }
        strata_spin_release(&timeline->lock);
    }
}
