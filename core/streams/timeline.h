/* Timelines: one for each stream that matters, shared by all runtimes of the process, with the events that close its
 * epochs.
 *
 * A stream that Strata knows has its handle here, and an event is recorded when somebody needs one. The handle of any
 * other stream is good only during the call that brought it, so its event is recorded in that call. */
#ifndef STRATA_CORE_STREAMS_TIMELINE_H
#define STRATA_CORE_STREAMS_TIMELINE_H

#include "core/base/lock.h"
#include "core/streams/clock.h"
#include "core/streams/device.h"

enum {
    STRATA_TIMELINE_LIMIT = 1 << 16, /* numbers are below it */
    STRATA_TIMELINE_LAST =
        STRATA_TIMELINE_LIMIT - 2, /* the highest that a stream gets; the next one and 0 are none's */
    STRATA_TIMELINE_EVENTS =
        8, /* how many closed epochs a timeline can tell apart; older ones wait for a later event */
};

/* A recorded event. Its timeline has one reference, and whoever is about to wait for it another. It is recorded again
 * only while the timeline's is the only one; if somebody still waits when its turn comes, another takes its place, so
 * that recording never waits for a thread that waits for the device. */
typedef struct strata_event {
    CUevent handle;        /* constant, like the device */
    strata_device *device; /* whose free events it comes from and goes back to */
    uint64_t epoch;        /* the last one that it covers; changes under the timeline's lock, with one reference */
    strata_clock *clock;   /* what the stream had waited for when it was recorded; the same */
    _Atomic uint32_t refs; /* raised under the timeline's lock, lowered by any thread; the last one ends it */
} strata_event;

typedef enum strata_timeline_kind {
    STRATA_TIMELINE_FREE = 0, /* all of its points are complete; waits for another stream */
    STRATA_TIMELINE_KNOWN,
    STRATA_TIMELINE_UNKNOWN,
} strata_timeline_kind;

typedef struct strata_timeline {
    strata_spin lock;
    uint16_t number;              /* constant */
    _Atomic uint32_t incarnation; /* counts the streams that had it before; changes as one leaves, read by any thread */
    _Atomic uint64_t epoch;       /* of work that is submitted now. Written under the lock, read by any thread. */
    _Atomic uint64_t completed;   /* points up to here are complete. Only grows; any thread. */
    _Atomic uint64_t
        stream_id; /* of an unknown stream, or 0. Written under the map's and this lock, read by any thread. */
    /* Live blocks that were allocated here while the stream was unknown, modulo 2^32, but for those that holders count.
     * Any thread. See retire. */
    _Atomic uint32_t live_blocks;
    _Atomic uint32_t holders;   /* raised under the lock, lowered by any thread */
    _Atomic(CUstream) known_as; /* the stream's handle, NULL for the legacy one, while it is known and no event is
                                   recorded early there; else STRATA_NO_STREAM. Written under the map's lock, read by
                                   any thread. */
    bool early;                 /* known: close the epoch at each launch. Written before the stream becomes known. */
    strata_timeline_kind kind;  /* the rest is guarded by the lock */
    CUstream stream;            /* while KNOWN */
    strata_device *device;      /* whose events can be recorded on the stream */
    strata_clock *clock;        /* what the stream has waited for */
    strata_event *events[STRATA_TIMELINE_EVENTS]; /* NULL until first needed */
    unsigned next_event;                          /* to record: the oldest */
    bool uncovered; /* recording and waiting failed: there is work that no event covers, until one is recorded */
    unsigned notes; /* batches that have put the current point into blocks and will record its event */
    struct strata_timeline *next_free; /* guarded by the stream map's lock */
} strata_timeline;

/* No stream's handle. */
extern const char strata_no_stream __attribute__((visibility("hidden")));
#define STRATA_NO_STREAM ((CUstream)(uintptr_t)&strata_no_stream)

/* A stream during one call. */
typedef struct strata_stream_ref {
    strata_timeline *timeline;
    strata_device *device; /* whose context the call runs in */
    CUstream handle;
    uint64_t stream_id; /* of an unknown stream */
    bool known;
} strata_stream_ref;

/* By number. Set once each, under the stream map's lock; timelines are reused and never freed. */
extern _Atomic(strata_timeline *) strata_timelines[STRATA_TIMELINE_LIMIT] __attribute__((visibility("hidden")));

/* Whether any ever had work that could be neither marked nor waited for. Set once; any thread. */
extern _Atomic bool strata_timelines_uncovered __attribute__((visibility("hidden")));

/* The timeline of that number; NULL if there never was one. */
static inline strata_timeline *strata_timeline_numbered(uint16_t number)
{
    return atomic_load_explicit(&strata_timelines[number], memory_order_acquire);
}

/* The timeline of a point; never NULL for a point that exists. */
static inline strata_timeline *strata_timeline_of(strata_point point)
{
    return strata_timeline_numbered(strata_point_timeline(point));
}

/* Whether the timeline is that of the known stream behind `handle`, where no event is recorded early. False also for
 * the legacy stream under its other handle. */
static inline bool strata_timeline_is_late(const strata_timeline *timeline, CUstream handle)
{
    return atomic_load_explicit(&timeline->known_as, memory_order_acquire) == handle;
}

/* The point "up to here" of a stream. */
static inline strata_point strata_timeline_now(const strata_timeline *timeline)
{
    return strata_point_make(timeline->number, atomic_load_explicit(&timeline->epoch, memory_order_acquire));
}

/* A block of an unknown stream comes to life, and ends. The caller keeps the timeline from being retired meanwhile. */
static inline void strata_timeline_add_block(strata_timeline *timeline)
{
    atomic_fetch_add_explicit(&timeline->live_blocks, 1, memory_order_relaxed);
}

static inline void strata_timeline_remove_block(uint16_t number)
{
    atomic_fetch_sub_explicit(&strata_timeline_of(strata_point_make(number, 0))->live_blocks, 1, memory_order_relaxed);
}

/* From here on the caller counts such blocks for itself: as many as came to life there less those that ended, modulo
 * 2^32. Until it says how many those are, the timeline stays the stream's like one with live blocks. */
void strata_timeline_hold(strata_timeline *timeline);

static inline void strata_timeline_unhold(strata_timeline *timeline, uint32_t live_blocks)
{
    atomic_fetch_add_explicit(&timeline->live_blocks, live_blocks, memory_order_relaxed);
    atomic_fetch_sub_explicit(&timeline->holders, 1, memory_order_release);
}

/* Whether all work up to `point` is known to be complete; asks nobody. */
static inline bool strata_point_known_complete(strata_point point)
{
    return strata_point_epoch(point) <=
           atomic_load_explicit(&strata_timeline_of(point)->completed, memory_order_relaxed);
}

/* The same, for a thread that then reads what the work wrote to host memory: another thread may have asked the driver,
 * and what that one was told is known to this one, too. */
static inline bool strata_point_seen_complete(strata_point point)
{
    return strata_point_epoch(point) <=
           atomic_load_explicit(&strata_timeline_of(point)->completed, memory_order_acquire);
}

/* Makes the stream's later work wait for `point`, at the lowest cost: nothing if the stream comes after it already,
 * else one wait, and one record if no event covers the point yet. Errors: DRIVER and what the driver's answer maps to.
 */
strata_status strata_timeline_wait(const strata_stream_ref *stream, strata_point point);

/* Whether the stream comes after `point` by what is known now. `clock` is the stream's, from strata_timeline_clock. */
bool strata_timeline_follows(const strata_stream_ref *stream, const strata_clock *clock, strata_point point);

/* A reference to the stream's clock; NULL if the timeline has gone to another stream since this one was found. With
 * `held` the caller has the timeline's lock. */
strata_clock *strata_timeline_clock(const strata_stream_ref *stream, bool held);

/* The event that covers the current epoch of an unknown stream so far, if nobody has looked at it; else NULL. Events
 * are recorded in turn, so it is the last one. The lock is held. */
static inline strata_event *strata_timeline_open_event(strata_timeline *timeline)
{
    unsigned last = (timeline->next_event + STRATA_TIMELINE_EVENTS - 1) % STRATA_TIMELINE_EVENTS;
    strata_event *event = timeline->events[last];
    return event && event->epoch == atomic_load_explicit(&timeline->epoch, memory_order_relaxed) ? event : NULL;
}

/* Asks the driver whether `point` is complete; never waits. */
bool strata_point_query(strata_point point);

/* Asks the driver how far the timeline is, whatever is still under way at its end; never waits. */
void strata_timeline_poll(strata_timeline *timeline);

/* The same up to what was submitted until now, where the stream is known and its events are over: the stream itself is
 * asked, and one that still works gets another event, for the next time; a default stream gets one in any case. The
 * calling thread's capture mode is relaxed. */
void strata_timeline_poll_up_to_now(strata_timeline *timeline);

/* Blocks the calling thread until `point` is complete. */
strata_status strata_point_synchronize(strata_point point);

/* The same for all that was submitted to the stream until now. One of the program's own is waited for itself, where a
 * default stream takes an event. With `held` the caller has the timeline's lock, which is released. */
strata_status strata_timeline_synchronize(const strata_stream_ref *stream, bool held);

/* Closes the current epoch with an event; the lock is held. */
strata_status strata_timeline_record(strata_timeline *timeline, CUstream handle);

/* The same for a handle that is good only now: where the event cannot be recorded, waits for the stream on the host
 * instead, so that no work is left that nobody could ever wait for. */
strata_status strata_timeline_record_now(strata_timeline *timeline, CUstream handle);

/* Ends an epoch that an event covers so far: what is noted from now on needs another event. The lock is held. */
void strata_timeline_close(strata_timeline *timeline);

/* Makes sure that an event closes the epoch of `point`: on known streams only, where it may be done later. */
strata_status strata_timeline_close_epoch(strata_point point);

/* The newest point of a timeline that an event covers; 0 if there is none. */
strata_point strata_timeline_last_closed(uint16_t number);

/* Whether the stream that had the timeline in that turn has it still, and is known. */
bool strata_timeline_is_known(uint16_t number, uint32_t incarnation);

/* ---- for core/streams/stream_map.c, which holds its own lock around these ---- */

/* A timeline for a stream: a free one or a new one. NULL at the limit or without memory, which
 * strata_fail_no_timeline tells apart. */
strata_status strata_fail_no_timeline(void);
strata_timeline *strata_timeline_take(strata_device *device, strata_timeline_kind kind, CUstream stream, uint64_t id);

/* Frees the timeline if all its points are complete, which is asked of the driver. With `keep_with_blocks`, not while
 * blocks live that were allocated on its stream: once the number is another stream's, nobody can tell that they belong
 * to this one, should it be registered, or be the calling thread's own. */
bool strata_timeline_retire(strata_timeline *timeline, bool keep_with_blocks);

/* The legacy default stream of a device, known from the start. */
strata_status strata_timeline_open_legacy(strata_device *device, strata_timeline **out);

#endif
