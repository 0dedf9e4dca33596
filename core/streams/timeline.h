/* Timelines, one for each stream in use, shared by all runtimes of the process, with the events that close their
 * epochs.
 *
 * A known stream's handle is stored here, and its event is recorded when a wait needs one. An unknown stream's handle
 * is valid only during the call that brought it, so its event is recorded in that call. */
#ifndef STRATA_CORE_STREAMS_TIMELINE_H
#define STRATA_CORE_STREAMS_TIMELINE_H

#include "core/base/lock.h"
#include "core/streams/clock.h"
#include "core/streams/device.h"

enum {
    STRATA_TIMELINE_LIMIT = 1 << 16, /* numbers are below it */
    STRATA_TIMELINE_LAST =
        STRATA_TIMELINE_LIMIT - 2, /* the highest number of a stream; 0 and the next one are unused */
    STRATA_TIMELINE_EVENTS = 8,    /* closed epochs that a timeline can tell apart; older ones wait for a later event */
};

/* A recorded event. Its timeline holds one reference, each thread about to wait for it another. It is recorded again
 * only with the timeline's reference alone; otherwise another event takes its place, so that recording never waits for
 * a thread that waits for the device. */
typedef struct strata_event {
    CUevent handle;        /* constant, like the device */
    strata_device *device; /* owner of the free event */
    uint64_t epoch;        /* the last epoch it covers; changes under the timeline's lock, with one reference */
    strata_clock *clock;   /* the stream's clock when it was recorded; same rule */
    _Atomic uint32_t refs; /* raised under the timeline's lock, lowered by any thread; the last one destroys it */
} strata_event;

typedef enum strata_timeline_kind {
    STRATA_TIMELINE_FREE = 0, /* all its points are complete; can go to another stream */
    STRATA_TIMELINE_KNOWN,
    STRATA_TIMELINE_UNKNOWN,
} strata_timeline_kind;

typedef struct strata_timeline {
    strata_spin lock;
    uint16_t number;              /* constant */
    _Atomic uint32_t incarnation; /* number of streams that had it before; changes as one leaves, read by any thread */
    _Atomic uint64_t epoch;       /* of work submitted now; written under the lock, read by any thread */
    _Atomic uint64_t completed;   /* points up to here are complete; only grows; any thread */
    _Atomic uint64_t
        stream_id; /* of an unknown stream, or 0; written under the map's and this lock, read by any thread */
    /* Live blocks allocated here while the stream was unknown, modulo 2^32, without those that holders count. Any
     * thread. See strata_timeline_retire. */
    _Atomic uint32_t live_blocks;
    _Atomic uint32_t holders;   /* raised under the lock, lowered by any thread */
    _Atomic(CUstream) known_as; /* the stream's handle (NULL: the legacy one) while it is known and not `early`; else
                                   STRATA_NO_STREAM; written under the map's lock, read by any thread */
    bool early;                 /* known: close the epoch at each launch; written before the stream becomes known */
    strata_timeline_kind kind;  /* the rest is guarded by the lock */
    CUstream stream;            /* while KNOWN */
    strata_device *device;      /* the device whose events the stream accepts */
    strata_clock *clock;        /* points that the stream has waited for */
    strata_event *events[STRATA_TIMELINE_EVENTS]; /* created on first use */
    unsigned next_event;                          /* the oldest: recorded next */
    bool uncovered;                               /* recording and waiting failed: some work has no event yet */
    unsigned recording_batches;        /* batches that stored the current point in blocks and will record its event */
    struct strata_timeline *next_free; /* guarded by the stream map's lock */
} strata_timeline;

/* A handle that no stream has. */
extern const char strata_no_stream __attribute__((visibility("hidden")));
#define STRATA_NO_STREAM ((CUstream)(uintptr_t)&strata_no_stream)

/* A stream during one call. */
typedef struct strata_stream_ref {
    strata_timeline *timeline;
    strata_device *device; /* the device whose context the call uses */
    CUstream handle;
    uint64_t stream_id; /* of an unknown stream */
    bool known;
} strata_stream_ref;

/* By number. Set once each, under the stream map's lock; timelines are reused and never freed. */
extern _Atomic(strata_timeline *) strata_timelines[STRATA_TIMELINE_LIMIT] __attribute__((visibility("hidden")));

/* True once any timeline had work that could be neither marked nor waited for. Any thread. */
extern _Atomic bool strata_timelines_uncovered __attribute__((visibility("hidden")));

/* The timeline with that number; NULL if it was never created. */
static inline strata_timeline *strata_timeline_numbered(uint16_t number)
{
    return atomic_load_explicit(&strata_timelines[number], memory_order_acquire);
}

/* The timeline of an existing point; never NULL. */
static inline strata_timeline *strata_timeline_of(strata_point point)
{
    return strata_timeline_numbered(strata_point_timeline(point));
}

/* True for the known stream behind `handle` if its events are not recorded early. False also for the legacy stream
 * under its other handle. */
static inline bool strata_timeline_is_late(const strata_timeline *timeline, CUstream handle)
{
    return atomic_load_explicit(&timeline->known_as, memory_order_acquire) == handle;
}

/* The point "up to here" of a stream. */
static inline strata_point strata_timeline_now(const strata_timeline *timeline)
{
    return strata_point_make(timeline->number, atomic_load_explicit(&timeline->epoch, memory_order_acquire));
}

/* Counts a block of an unknown stream as it comes to life, and as it ends. The caller keeps the timeline from being
 * retired meanwhile. */
static inline void strata_timeline_add_block(strata_timeline *timeline)
{
    atomic_fetch_add_explicit(&timeline->live_blocks, 1, memory_order_relaxed);
}

static inline void strata_timeline_remove_block(uint16_t number)
{
    atomic_fetch_sub_explicit(&strata_timeline_of(strata_point_make(number, 0))->live_blocks, 1, memory_order_relaxed);
}

/* From now on the caller counts such blocks itself: those that came to life less those that ended, modulo 2^32. Until
 * it hands its count back, the timeline is kept as if it had live blocks. */
void strata_timeline_hold(strata_timeline *timeline);

static inline void strata_timeline_unhold(strata_timeline *timeline, uint32_t live_blocks)
{
    atomic_fetch_add_explicit(&timeline->live_blocks, live_blocks, memory_order_relaxed);
    atomic_fetch_sub_explicit(&timeline->holders, 1, memory_order_release);
}

/* Whether the work up to `point` is known to be complete; no driver call. */
static inline bool strata_point_known_complete(strata_point point)
{
    return strata_point_epoch(point) <=
           atomic_load_explicit(&strata_timeline_of(point)->completed, memory_order_relaxed);
}

/* The same, with acquire order: for a thread that then reads host memory which the work wrote, although another thread
 * asked the driver. */
static inline bool strata_point_seen_complete(strata_point point)
{
    return strata_point_epoch(point) <=
           atomic_load_explicit(&strata_timeline_of(point)->completed, memory_order_acquire);
}

/* Makes the stream's later work wait for `point` at the lowest cost: nothing if the stream is already ordered after it,
 * else one wait, and one record if no event covers the point. Errors: DRIVER, and what the driver's result maps to. */
strata_status strata_timeline_wait(const strata_stream_ref *stream, strata_point point);

/* Whether the stream is known to come after `point`. `clock` is the stream's, from strata_timeline_clock. */
bool strata_timeline_follows(const strata_stream_ref *stream, const strata_clock *clock, strata_point point);

/* A reference to the stream's clock; NULL if the timeline has gone to another stream meanwhile. `held`: the caller
 * holds the timeline's lock. */
strata_clock *strata_timeline_clock(const strata_stream_ref *stream, bool held);

/* The event that covers an unknown stream's current epoch so far, if it was not looked at; else NULL. Events are
 * recorded in turn, so it is the last one. The lock is held. */
static inline strata_event *strata_timeline_open_event(strata_timeline *timeline)
{
    unsigned last = (timeline->next_event + STRATA_TIMELINE_EVENTS - 1) % STRATA_TIMELINE_EVENTS;
    strata_event *event = timeline->events[last];
    return event && event->epoch == atomic_load_explicit(&timeline->epoch, memory_order_relaxed) ? event : NULL;
}

/* Asks the driver whether `point` is complete; does not wait. */
bool strata_point_query(strata_point point);

/* Polls the timeline's events; does not wait. */
void strata_timeline_poll(strata_timeline *timeline);

/* As strata_timeline_poll, up to the work submitted now if the stream is known and its events are complete: queries the
 * stream itself. A busy stream gets another event for the next poll; a default stream always does. The calling thread's
 * capture mode is relaxed. */
void strata_timeline_poll_up_to_now(strata_timeline *timeline);

/* Blocks the calling thread until `point` is complete. */
strata_status strata_point_synchronize(strata_point point);

/* Blocks until all work submitted to the stream so far is complete. A default stream is waited for through an event,
 * others directly. `held`: the caller holds the timeline's lock, which is released. */
strata_status strata_timeline_synchronize(const strata_stream_ref *stream, bool held);

/* Closes the current epoch with an event; the lock is held. */
strata_status strata_timeline_record(strata_timeline *timeline, CUstream handle);

/* As strata_timeline_record, for a handle that is valid only now: if the event cannot be recorded, waits for the stream
 * on the host, so that no work is left without an event. */
strata_status strata_timeline_record_now(strata_timeline *timeline, CUstream handle);

/* Ends an epoch that an event covers so far: later use records need another event. The lock is held. */
void strata_timeline_close(strata_timeline *timeline);

/* Ensures that an event closes the epoch of `point`; on known streams only, where it can be done later. */
strata_status strata_timeline_close_epoch(strata_point point);

/* The newest point of a timeline that an event covers; 0 if there is none. */
strata_point strata_timeline_last_closed(uint16_t number);

/* Whether the stream that had the timeline in that incarnation still has it, and is known. */
bool strata_timeline_is_known(uint16_t number, uint32_t incarnation);

/* Fast path for a use on an unknown stream: records the current epoch's event again, which then covers all work since.
 * No point in the block changes. False if another thread may have used the event, or the stream has no such event. The
 * epoch must be that of `point`, the block's last one. */
static inline bool strata_timeline_rerecord(const strata_stream_ref *stream, strata_point point)
{
    strata_timeline *timeline = stream->timeline;
    bool recorded = false;
    strata_spin_take(&timeline->lock);
    const strata_event *event = strata_timeline_open_event(timeline);
    if (event && event->epoch == strata_point_epoch(point) && event->clock == timeline->clock &&
        !timeline->recording_batches && !strata_scope_for(stream->handle) &&
        atomic_load_explicit(&timeline->stream_id, memory_order_relaxed) == stream->stream_id)
        recorded = strata_cu.EventRecord(event->handle, stream->handle) == CUDA_SUCCESS;
    strata_spin_release(&timeline->lock);
    return recorded;
}

/* ---- for core/streams/stream_map.c, which holds its own lock around these ---- */

/* A timeline for a stream, reused or new. NULL at the limit or without memory; strata_fail_no_timeline raises which. */
strata_status strata_fail_no_timeline(void);
strata_timeline *strata_timeline_take(strata_device *device, strata_timeline_kind kind, CUstream stream, uint64_t id);

/* Frees the timeline if all its points are complete, which it asks the driver. With `keep_with_blocks`, not while
 * blocks live that were allocated on its stream: they could no longer be matched with the stream if it is registered
 * later or is the calling thread's own. */
bool strata_timeline_retire(strata_timeline *timeline, bool keep_with_blocks);

/* The legacy default stream of a device, known from the start. */
strata_status strata_timeline_open_legacy(strata_device *device, strata_timeline **out);

#endif
