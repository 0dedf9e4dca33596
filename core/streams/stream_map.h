/* From a stream handle to its timeline.
 *
 * Known streams are found by handle without a lock. The driver identifies others at each use: first whether the stream
 * is being captured, since any other query would invalidate the capture, then its id, which is never reused. */
#ifndef STRATA_CORE_STREAMS_STREAM_MAP_H
#define STRATA_CORE_STREAMS_STREAM_MAP_H

#include "core/streams/known_streams.h"

/* The id in a strata_stream_ref, where 0 means no stream. */
static inline uint64_t strata_stream_id_of(unsigned long long driver_id)
{
    return driver_id + 1;
}

/* Finds the stream behind `handle`, for use with `device`. No driver call within a batch on that stream. Errors:
 * STREAM_CAPTURE (it is being captured), DRIVER, OUT_OF_HOST_MEMORY, BUSY (too many timelines). */
strata_status strata_stream_identify(strata_device *device, CUstream handle, strata_stream_ref *out);

static inline strata_status strata_stream_resolve(strata_device *device, CUstream handle, strata_stream_ref *out)
{
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *out = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return __builtin_expect(timeline != NULL, 1) ? STRATA_SUCCESS : strata_stream_identify(device, handle, out);
}

/* For submitted work whose stream could be neither identified nor waited for: a point that only a wait for the device
 * completes, of a timeline that all such work shares. 0: no timeline is left, no host memory, or
 * the device was reset. */
strata_point strata_stream_leave_unidentified(strata_device *device);

/* Whether the handle names the stream with the id. False also while the stream is being captured, and if the driver
 * does not say. Raises nothing. */
static inline bool strata_stream_has_id(CUstream handle, uint64_t id)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    unsigned long long driver_id = 0;
    return strata_call_scope_for(handle) == 0 && strata_cu.StreamGetId &&
           strata_cu.StreamIsCapturing(handle, &capture) == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE &&
           strata_cu.StreamGetId(handle, &driver_id) == CUDA_SUCCESS && strata_stream_id_of(driver_id) == id;
}

/* Whether the stream accepts only a graph's work now: it is being captured, or is the legacy stream while a blocking
 * stream is. `if_unknown`: the result if the driver gives none, or the stream is known and a reset of its
 * device has ended it. A capture survives the call. Raises nothing. */
bool strata_stream_is_capturing(strata_device *device, CUstream handle, bool if_unknown);

/* The program has just made a stream: a known one that had its handle, and that a reset of its device has ended, is
 * forgotten. */
void strata_stream_was_made(CUstream handle);

/* Makes a stream known. `early`: each launch closes its epoch. */
strata_status strata_stream_register(strata_device *device, CUstream handle, bool early);

/* Makes the stream unknown again, as *left, after recording an event. After a success the second call is due: it waits
 * for in-flight frees that had found the known stream (core/streams/inflight_frees.h) and records an event after them.
 * Its caller holds no lock that a free or a layer's callback may take. */
strata_status strata_stream_unregister(strata_device *device, CUstream handle, strata_stream_ref *left);
void strata_stream_await_frees(const strata_stream_ref *left);

/* After the reset of a device's context: its streams are gone and their work is over. No driver call. */
void strata_streams_forget(const strata_device *lost);

/* The timeline of a device's legacy stream, known from the start. */
strata_status strata_timeline_open_legacy(strata_device *device, strata_timeline **out);

#endif
