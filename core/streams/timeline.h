/* Timelines, one for each stream in use, with the events that close its epochs. All runtimes share them.
 *
 * A known stream's event is recorded when a wait needs one. An unknown stream's handle is valid only during the call
 * that brought it, so its event is recorded in that call. */
#ifndef STRATA_CORE_STREAMS_TIMELINE_H
#define STRATA_CORE_STREAMS_TIMELINE_H

#include "core/base/lock.h"
#include "core/streams/clock.h"
#include "core/streams/device.h"

enum {
    STRATA_TIMELINE_LIMIT = 1 << 16,
    STRATA_TIMELINE_LAST = STRATA_TIMELINE_LIMIT - 2, /* 0 and the next number are no stream's */
    STRATA_TIMELINE_EVENTS = 8, /* closed epochs told apart; a wait for an older one waits for a later event */
};

/* The timeline and each thread about to wait hold a reference. An event is recorded again only while the timeline's is
 * alone: recording never waits for a thread that waits for the device. */
typedef struct strata_event {
    CUevent handle;        /* constant, like the device */
    strata_device *device; /* whose free events it belongs to */
    uint64_t epoch;        /* last covered; changes under the timeline's lock, with one reference */
    strata_clock *clock;   /* the stream's when it was recorded; same rule */
    _Atomic uint32_t refs; /* raised under the timeline's lock, lowered by any thread */
} strata_event;

typedef enum strata_timeline_kind {
    STRATA_TIMELINE_FREE = 0, /* all its points are complete */
    STRATA_TIMELINE_KNOWN,
    STRATA_TIMELINE_UNKNOWN,
} strata_timeline_kind;

typedef struct strata_timeline {
    strata_spin lock;
    uint16_t number;              /* constant */
    _Atomic uint32_t incarnation; /* number of earlier streams; any thread */
    _Atomic uint64_t epoch;       /* of work submitted now; written under the lock, read by any thread */
    _Atomic uint64_t completed;   /* up to this epoch; only grows; any thread */
    _Atomic uint64_t
        stream_id; /* of an unknown stream, or 0; written under the map's and this lock, read by any thread */
    /* Live blocks that were allocated while the stream was unknown, modulo 2^32, less those that holders count. Any
     * thread. */
    _Atomic uint32_t live_blocks;
    _Atomic uint32_t holders;   /* raised under the lock, lowered by any thread */
    _Atomic(CUstream) known_as; /* the handle (NULL: the legacy stream) while known and not `early`, else
                                   STRATA_NO_STREAM; written under the map's lock, read by any thread */
    _Atomic bool early;         /* known: each launch closes the epoch; written under the lock before the stream becomes
                                   known, read by any thread, relaxed: a use that began before a reset may still read it
                                   when the timeline is the next stream's */
    strata_timeline_kind kind;  /* the rest is guarded by the lock */
    CUstream stream;            /* while KNOWN */
    strata_device *device;      /* whose events the stream accepts */
    strata_clock *clock;        /* what the stream has waited for */
    strata_event *events[STRATA_TIMELINE_EVENTS];
    unsigned next_event;               /* the oldest */
    bool of_device;                    /* the stream is known to be of the device's context */
    bool uncovered;                    /* recording and waiting failed: some work has no event */
    uint64_t uncovered_epoch;          /* the last epoch of that work */
    uint64_t uncovered_at;             /* the number of that failure among those of all timelines */
    unsigned recording_batches;        /* that stored the current point in blocks and will record its event */
    unsigned host_waits;               /* threads that wait for the stream by its handle, without the lock */
    unsigned handle_holds;             /* of strata_stream_hold */
    uint64_t first_epoch;              /* of this incarnation */
    struct strata_timeline *next_free; /* guarded by the stream map's lock */
} strata_timeline;

/* A handle that no stream has. */
extern const char strata_no_stream __attribute__((visibility("hidden")));
#define STRATA_NO_STREAM ((CUstream)(uintptr_t)&strata_no_stream)

/* A stream during one call. */
typedef struct strata_stream_ref {
    strata_timeline *timeline;
    strata_device *device; /* whose context the call uses */
    CUstream handle;
    uint64_t stream_id; /* of an unknown stream */
    bool known;
} strata_stream_ref;

/* By number. Set once, under the map's lock; timelines are reused and never freed. */
extern _Atomic(strata_timeline *) strata_timelines[STRATA_TIMELINE_LIMIT] __attribute__((visibility("hidden")));

/* Whether any timeline ever had work without an event. Any thread. */
extern _Atomic bool strata_timelines_uncovered __attribute__((visibility("hidden")));

/* Whether any timeline ever had work without an event. */
static inline bool strata_timelines_any_uncovered(void)
{
    return atomic_load_explicit(&strata_timelines_uncovered, memory_order_acquire);
}
/* Whether streams of the device's context that are not known any more have work without an event, which only a wait for
 * the device shows to be complete. */
bool strata_timelines_need_device_wait(const strata_device *device);
/* How often work was left without an event so far. */
uint64_t strata_timelines_failures(void);
/* After a wait for the device that began when strata_timelines_failures was `failures`: what was left without an event
 * by then is complete. */
void strata_timelines_note_device_wait(const strata_device *device, uint64_t failures);

/* The timeline with a number; NULL if it was never created. */
static inline strata_timeline *strata_timeline_numbered(uint16_t number)
{
    return atomic_load_explicit(&strata_timelines[number], memory_order_acquire);
}

static inline strata_timeline *strata_timeline_of(strata_point point)
{
    return strata_timeline_numbered(strata_point_timeline(point));
}

/* Whether this is the known, not early stream behind `handle`. False for the legacy stream's other handle. */
static inline bool strata_timeline_is_late(const strata_timeline *timeline, CUstream handle)
{
    return atomic_load_explicit(&timeline->known_as, memory_order_acquire) == handle;
}

static inline bool strata_timeline_is_early(const strata_timeline *timeline)
{
    return atomic_load_explicit(&timeline->early, memory_order_relaxed);
}

static inline strata_point strata_timeline_now(const strata_timeline *timeline)
{
    return strata_point_make(timeline->number, atomic_load_explicit(&timeline->epoch, memory_order_acquire));
}

/* Counts a block of the timeline's unknown stream. The caller keeps the timeline from being retired. */
static inline void strata_timeline_add_block(strata_timeline *timeline)
{
    atomic_fetch_add_explicit(&timeline->live_blocks, 1, memory_order_relaxed);
}

static inline void strata_timeline_remove_block(uint16_t number)
{
    atomic_fetch_sub_explicit(&strata_timeline_of(strata_point_make(number, 0))->live_blocks, 1, memory_order_relaxed);
}

/* From now on the caller counts the stream's blocks itself, modulo 2^32. Until it hands its count back, the timeline is
 * kept as with live blocks. */
void strata_timeline_hold(strata_timeline *timeline);

static inline void strata_timeline_unhold(strata_timeline *timeline, uint32_t live_blocks)
{
    atomic_fetch_add_explicit(&timeline->live_blocks, live_blocks, memory_order_relaxed);
    atomic_fetch_sub_explicit(&timeline->holders, 1, memory_order_release);
}

/* Whether the point is complete as far as is known. Makes no driver call. */
static inline bool strata_point_known_complete(strata_point point)
{
    return strata_point_epoch(point) <=
           atomic_load_explicit(&strata_timeline_of(point)->completed, memory_order_relaxed);
}

/* As strata_point_known_complete, with acquire order: the caller may then read host memory that the work wrote. */
static inline bool strata_point_seen_complete(strata_point point)
{
    return strata_point_epoch(point) <=
           atomic_load_explicit(&strata_timeline_of(point)->completed, memory_order_acquire);
}

/* The device whose context a known stream belongs to; of another stream the one that it is used with. */
strata_device *strata_timeline_own_device(const strata_stream_ref *stream);

/* The stream's later work waits for `point`: no driver call if it is ordered after the point already, else one wait,
 * and one record if no event covers the point. Errors: of the driver's result. */
strata_status strata_timeline_wait(const strata_stream_ref *stream, strata_point point);

/* As strata_timeline_wait, but where memory lacks for the event or the wait, the calling thread waits: for frees and
 * uses, which cannot take other memory instead. */
strata_status strata_timeline_order(const strata_stream_ref *stream, strata_point point);

/* Whether the stream is known to come after `point`. `clock`: from strata_timeline_clock. */
bool strata_timeline_follows(const strata_stream_ref *stream, const strata_clock *clock, strata_point point);

/* A reference to the stream's clock; NULL if another stream has the timeline now. `held`: the caller has its lock. */
strata_clock *strata_timeline_clock(const strata_stream_ref *stream, bool held);

/* The event, recorded last, that covers an unknown stream's current epoch so far, if unused; else NULL. The lock is
 * held. */
static inline strata_event *strata_timeline_open_event(strata_timeline *timeline)
{
    unsigned last = (timeline->next_event + STRATA_TIMELINE_EVENTS - 1) % STRATA_TIMELINE_EVENTS;
    strata_event *event = timeline->events[last];
    return event && event->epoch == atomic_load_explicit(&timeline->epoch, memory_order_relaxed) ? event : NULL;
}

/* Whether the point is complete; asks the driver. */
bool strata_point_query(strata_point point);

/* Asks the driver which of the timeline's events are complete. */
void strata_timeline_poll(strata_timeline *timeline);

/* As strata_timeline_poll, and queries a known stream itself once its events are complete. A busy stream gets another
 * event for the next poll; a default stream always does. The thread's capture mode is relaxed. */
void strata_timeline_poll_up_to_now(strata_timeline *timeline);

/* Block until the point is complete. The second is for memory of `device`, which may be NULL: to it, work of another
 * device's context that was reset is complete. */
strata_status strata_point_synchronize(strata_point point);
strata_status strata_point_synchronize_for(const strata_device *device, strata_point point);

/* Blocks until all work submitted to the stream so far is complete: of a default stream, through an event. `held`: the
 * caller has the lock, which is released. */
strata_status strata_timeline_synchronize(const strata_stream_ref *stream, bool held);

/* As strata_timeline_synchronize, of any stream without an event. */
strata_status strata_timeline_synchronize_unmarked(const strata_stream_ref *stream);

/* Closes the current epoch with an event. The lock is held. */
strata_status strata_timeline_record(strata_timeline *timeline, CUstream handle);

/* Waits on the host for the newest event of each stream that is known to be complete, so for no work: the driver's
 * pools count memory as free for other uses only once the host has waited (docs/measurements.md). */
void strata_timelines_show_completed(strata_device *device);

/* As strata_timeline_record, for a handle that is valid only now; the epoch stays open, and the next call records the
 * event again. If no event can be recorded, waits for the stream on the host. The lock is held. */
strata_status strata_timeline_record_now(strata_timeline *timeline, CUstream handle);

/* For work that was left without an event on a stream which no call identifies: the timeline's point until now, which a
 * wait for its device completes. */
strata_point strata_timeline_leave_uncovered(strata_timeline *timeline);

/* Ends an epoch that an event covers so far: later use records need another event. The lock is held. */
void strata_timeline_close(strata_timeline *timeline);

/* Whether a call failed for want of memory, of the driver or of the host. */
static inline bool strata_lacks_memory(strata_status status)
{
    return status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_HOST_MEMORY;
}

/* Ensures that an event closes the epoch of `point`. Only a known stream may need one now. Waits for nothing.
 * The second as strata_point_synchronize_for. */
strata_status strata_timeline_close_epoch(strata_point point);
strata_status strata_timeline_close_epoch_for(const strata_device *device, strata_point point);

/* The newest point that an event covers; 0: none. */
strata_point strata_timeline_last_closed(uint16_t number);

/* After a stream has become unknown, before its owner may destroy it: waits until no thread uses the handle. The caller
 * holds no lock. */
void strata_timeline_await_host_waits(strata_timeline *timeline);

/* Whether the stream of that incarnation still has the timeline, and is known. */
bool strata_timeline_is_known(uint16_t number, uint32_t incarnation);

/* Fast path for a use on an unknown stream: records the current epoch's event again, to cover all work since. False if
 * another thread may have used the event. The epoch must be that of `point`, the block's last one. */
static inline bool strata_timeline_rerecord(const strata_stream_ref *stream, strata_point point)
{
    strata_timeline *timeline = stream->timeline;
    bool recorded = false;
    strata_spin_take(&timeline->lock);
    const strata_event *event = strata_timeline_open_event(timeline);
    if (event && event->epoch == strata_point_epoch(point) && event->clock == timeline->clock &&
        !timeline->recording_batches && !strata_call_scope_for(stream->handle) &&
        atomic_load_explicit(&timeline->stream_id, memory_order_relaxed) == stream->stream_id)
        recorded = strata_cu.EventRecord(event->handle, stream->handle) == CUDA_SUCCESS;
    strata_spin_release(&timeline->lock);
    return recorded;
}

/* Raises why there was no timeline: at the limit or without memory. */
strata_status strata_fail_no_timeline(void);

/* ---- for the stream map; its lock is held ---- */

/* Takes a free timeline for a stream, or creates one; NULL if none is left, or without host memory. */
strata_timeline *strata_timeline_take(strata_device *device, strata_timeline_kind kind, CUstream stream, uint64_t id);

/* Frees the timeline if all its points are complete, which it asks the driver. `keep_with_blocks`: not while blocks
 * live that were allocated on its stream, since they could no longer be matched with it. */
bool strata_timeline_retire(strata_timeline *timeline, bool keep_with_blocks);

/* The stream is gone with its context, and its work with it: all its points are complete, and its number is free. */
void strata_timeline_forget(strata_timeline *timeline);

#endif
