/* From a stream handle to its timeline, and the notes that a call leaves there.
 *
 * Known streams are found by handle without a lock. Any other is identified by the driver at each use: first whether it
 * is being captured, because every other question would kill the capture, then by its id, which is never given twice.
 */
#ifndef STRATA_CORE_STREAMS_STREAM_MAP_H
#define STRATA_CORE_STREAMS_STREAM_MAP_H

#include "core/streams/known_streams.h"

/* The driver's id as it stands in a strata_stream_ref, where 0 is "no stream". */
static inline uint64_t strata_stream_id_of(unsigned long long driver_id)
{
    return driver_id + 1;
}

/* Finds the stream behind `handle` as it is used with `device`. Errors: STREAM_CAPTURE (it is being captured), DRIVER,
 * OUT_OF_HOST_MEMORY. Within a batch of the same stream, asks nobody. */
strata_status strata_stream_identify(strata_device *device, CUstream handle, strata_stream_ref *out);

static inline strata_status strata_stream_resolve(strata_device *device, CUstream handle, strata_stream_ref *out)
{
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *out = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return __builtin_expect(timeline != NULL, 1) ? STRATA_SUCCESS : strata_stream_identify(device, handle, out);
}

/* Whether the stream behind `handle` is the one with that id, as strata_stream_ref has it, and is not being captured. A
 * short way: false also where it does not say, or the driver does not. Raises nothing. */
static inline bool strata_stream_has_id(CUstream handle, uint64_t id)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned long long driver_id = 0;
    return strata_scope_for(handle) == 0 && strata_cu.StreamGetId &&
           strata_cu.StreamIsCapturing(handle, &capture) == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE &&
           strata_cu.StreamGetId(handle, &driver_id) == CUDA_SUCCESS && strata_stream_id_of(driver_id) == id;
}

/* Whether nothing but work of a graph can be submitted to the stream now: it is being captured, or it is the legacy
 * stream and a blocking one is; `if_unknown` where the driver does not say. Asks only what a capture survives; raises
 * nothing. */
bool strata_stream_is_capturing(strata_device *device, CUstream handle, bool if_unknown);

/* Brackets what a call notes on a stream after its work was submitted. Between begin and end the stream's point may be
 * put into blocks; for an unknown stream the end records the event that covers it. Inside a batch, the batch's end
 * does. */
typedef struct strata_use_record {
    strata_stream_ref stream;
    bool held; /* the timeline's lock is held until the end */
} strata_use_record;

strata_status strata_use_record_begin_unknown(strata_use_record *note, strata_device *device, CUstream handle);

/* The same for a stream that was resolved in this call. */
strata_status strata_use_record_begin_on(strata_use_record *note, const strata_stream_ref *stream);
strata_status strata_use_record_end_slow(strata_use_record *note);

static inline strata_status strata_use_record_begin(strata_use_record *note, strata_device *device, CUstream handle)
{
    strata_timeline *timeline = strata_known_timeline(device, handle);
    note->held = false;
    note->stream = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return __builtin_expect(timeline != NULL, 1) ? STRATA_SUCCESS
                                                 : strata_use_record_begin_unknown(note, device, handle);
}

static inline strata_status strata_use_record_end(strata_use_record *note)
{
    bool nothing = note->stream.known && !note->stream.timeline->early;
    return __builtin_expect(nothing, 1) ? STRATA_SUCCESS : strata_use_record_end_slow(note);
}

/* Instead of end: nothing was submitted. */
void strata_use_record_cancel(strata_use_record *note);

/* Whether the stream of `note` comes after `point`. `clock`: see strata_use_record_clock. */
bool strata_use_record_follows(const strata_use_record *note, const strata_clock *clock, strata_point point);
strata_clock *strata_use_record_clock(const strata_use_record *note);
void strata_use_record_clock_done(const strata_use_record *note, strata_clock *clock);

/* A batch: several calls for one piece of work on one stream. The stream is identified once, and with `noting`, all
 * notes are covered by one event, recorded at the end; on a stream with early events too. Batches do not nest; one a
 * thread. */
strata_status strata_batch_begin(strata_device *device, CUstream handle, bool recording);
strata_status strata_batch_end(void);

/* Makes a stream known. */
strata_status strata_stream_register(strata_device *device, CUstream handle, bool early);

/* Takes that back after recording an event. *left is the unknown stream that it is from then on, for the second half,
 * which each success is followed by: that waits for frees on other threads which had found the known one
 * (core/streams/inflight_frees.h) and marks what they did, too, so that afterwards only who is given the handle names
 * it. It is called with no lock held that a free or a layer's callback may take. */
strata_status strata_stream_unregister(strata_device *device, CUstream handle, strata_stream_ref *left);
void strata_stream_await_frees(const strata_stream_ref *left);

bool strata_stream_is_known(CUstream handle);

#endif
