/* From a stream handle to its timeline, and the uses that a call records there.
 *
 * Known streams are found by handle without a lock. The driver identifies others at each use: first whether the stream
 * is being captured, because any other query would invalidate the capture, then its id, which is never reused. */
#ifndef STRATA_CORE_STREAMS_STREAM_MAP_H
#define STRATA_CORE_STREAMS_STREAM_MAP_H

#include "core/streams/known_streams.h"

/* As in strata_stream_ref, where 0 means no stream. */
static inline uint64_t strata_stream_id_of(unsigned long long driver_id)
{
    return driver_id + 1;
}

/* Finds the stream behind `handle` for use with `device`. No driver call within a batch on that stream. Errors:
 * STREAM_CAPTURE (it is being captured), DRIVER, OUT_OF_HOST_MEMORY. */
strata_status strata_stream_identify(strata_device *device, CUstream handle, strata_stream_ref *out);

static inline strata_status strata_stream_resolve(strata_device *device, CUstream handle, strata_stream_ref *out)
{
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *out = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return __builtin_expect(timeline != NULL, 1) ? STRATA_SUCCESS : strata_stream_identify(device, handle, out);
}

/* Whether `handle` names the stream with that id and is not being captured; also false if the driver does not say.
 * Raises nothing. */
static inline bool strata_stream_has_id(CUstream handle, uint64_t id)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned long long driver_id = 0;
    return strata_scope_for(handle) == 0 && strata_cu.StreamGetId &&
           strata_cu.StreamIsCapturing(handle, &capture) == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE &&
           strata_cu.StreamGetId(handle, &driver_id) == CUDA_SUCCESS && strata_stream_id_of(driver_id) == id;
}

/* Whether the stream accepts only a graph's work now: it is being captured, or it is the legacy stream while a blocking
 * stream is. `if_unknown`: the answer if the driver gives none. A capture survives the call; it raises nothing. */
bool strata_stream_is_capturing(strata_device *device, CUstream handle, bool if_unknown);

/* Brackets the use records of one call, after its work was submitted. In between, the stream's point may be stored in
 * blocks. For an unknown stream, the end records the event that covers it; inside a batch, the batch's end does. */
typedef struct strata_use_record {
    strata_stream_ref stream;
    bool held; /* until the end: the timeline's lock */
} strata_use_record;

strata_status strata_use_record_begin_unknown(strata_use_record *record, strata_device *device, CUstream handle);

/* For a stream that this call has identified already. */
strata_status strata_use_record_begin_on(strata_use_record *record, const strata_stream_ref *stream);
strata_status strata_use_record_end_slow(strata_use_record *record);

static inline strata_status strata_use_record_begin(strata_use_record *record, strata_device *device, CUstream handle)
{
    strata_timeline *timeline = strata_known_timeline(device, handle);
    record->held = false;
    record->stream = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return __builtin_expect(timeline != NULL, 1) ? STRATA_SUCCESS
                                                 : strata_use_record_begin_unknown(record, device, handle);
}

static inline strata_status strata_use_record_end(strata_use_record *record)
{
    bool nothing = record->stream.known && !record->stream.timeline->early;
    return __builtin_expect(nothing, 1) ? STRATA_SUCCESS : strata_use_record_end_slow(record);
}

/* Instead of end: nothing was submitted. */
void strata_use_record_cancel(strata_use_record *record);

/* All work submitted to the stream so far, as a point that an event covers or can cover. The point is of the stream's
 * current timeline, which may be another one than `stream` has. */
strata_status strata_stream_point(const strata_stream_ref *stream, strata_point *point);

/* `clock`: from strata_use_record_clock. */
bool strata_use_record_follows(const strata_use_record *record, const strata_clock *clock, strata_point point);
strata_clock *strata_use_record_clock(const strata_use_record *record);
void strata_use_record_clock_done(const strata_use_record *record, strata_clock *clock);

/* A batch of calls for one piece of work on one stream, which is identified once. With `recording`, one event at the
 * end covers all use records, also on a stream with early events. One batch for each thread. */
strata_status strata_batch_begin(strata_device *device, CUstream handle, bool recording);
strata_status strata_batch_end(void);

/* Makes a stream known. */
strata_status strata_stream_register(strata_device *device, CUstream handle, bool early);

/* Makes the stream unknown again, after recording an event. *left is the unknown stream. Each success is followed by
 * the second call, which waits for in-flight frees that had found the known stream (core/streams/inflight_frees.h) and
 * records an event after them. Its caller holds no lock that a free or a layer's callback may take. */
strata_status strata_stream_unregister(strata_device *device, CUstream handle, strata_stream_ref *left);
void strata_stream_await_frees(const strata_stream_ref *left);

bool strata_stream_is_known(CUstream handle);

/* ---- streams that Strata creates for itself or its users: non-blocking and known from the start ---- */

/* Creates and registers a stream; `what` it is for goes into the error. *out is NULL on failure. */
strata_status strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out);

/* *gone: the stream is no longer registered, so there is nothing to try again, even if the driver failed to destroy it.
 */
strata_status strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone);

#endif
