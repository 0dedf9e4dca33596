/* Identifying streams, registering and unregistering them. */
#include "core/streams/stream_map.h"

#include "core/base/error.h"
#include "core/base/thread.h"
#include "core/streams/events.h"
#include "core/streams/inflight_frees.h"
#include "core/streams/unknown_streams.h"

static strata_lock map_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_STREAM_MAP);

/* ---- identifying ---- */

/* Without ids from the driver each use is a stream of its own: no wait is saved, none is missed. */
static __attribute__((cold)) CUresult make_identity(uint64_t *id)
{
    static _Atomic uint64_t uses;
    *id = UINT64_C(1) << 63 | (atomic_fetch_add(&uses, 1) + 1);
    return CUDA_SUCCESS;
}

static inline CUresult identify(CUstream handle, uint64_t *id)
{
    if (__builtin_expect(!strata_cu.StreamGetId, 0))
        return make_identity(id);
    unsigned long long driver_id = 0;
    CUresult result = strata_cu.StreamGetId(handle, &driver_id);
    *id = strata_stream_id_of(driver_id);
    return result;
}

/* Finds or takes an unknown stream's timeline under the map's lock. *known: the stream was registered meanwhile. NULL:
 * no timeline is left, or a new stream's device was reset. */
static __attribute__((noinline)) strata_timeline *look_up(strata_device *device, CUstream handle, uint64_t id,
                                                          bool *known)
{
    bool is_new = false;
    strata_thread *thread = strata_thread_self();
    strata_lock_take(&map_lock);
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *known = timeline != NULL;
    if (!timeline)
        timeline = strata_unknown_find_or_take(device, id, &is_new);
    strata_lock_release(&map_lock);
    if (is_new && timeline && !strata_device_has_its_context(device)) {
        strata_devices_look();
        return NULL;
    }
    if (thread && timeline && !*known)
        thread->streams[id % STRATA_STREAM_CACHE_SIZE] =
            (strata_stream_cache_line){.stream_id = id, .timeline = timeline};
    return timeline;
}

static inline strata_timeline *find_timeline(strata_device *device, CUstream handle, uint64_t id, bool *known)
{
    *known = false;
    const strata_thread *thread = strata_thread_current;
    const strata_stream_cache_line *line = thread ? &thread->streams[id % STRATA_STREAM_CACHE_SIZE] : NULL;
    if (__builtin_expect(line && line->stream_id == id &&
                             atomic_load_explicit(&line->timeline->stream_id, memory_order_acquire) == id,
                         1))
        return line->timeline;
    return look_up(device, handle, id, known);
}

static __attribute__((cold)) strata_status refuse_stream(CUresult result, const char *call)
{
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, call, "identifying a stream%s", strata_stream_hint(result));
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "the stream is being captured into a graph; memory that comes from outside the graph cannot be "
                       "ordered inside it. Allocate before the capture or on another stream, and name the blocks "
                       "around the graph's launches");
}

static __attribute__((cold)) strata_status refuse_look_up(const strata_device *device)
{
    const strata_status status = strata_check_device(device);
    return status == STRATA_SUCCESS ? strata_fail_no_timeline() : status;
}

static inline strata_status query_identity(CUstream handle, uint64_t *id)
{
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = strata_cu.StreamIsCapturing(handle, &capture);
    if (__builtin_expect(result != CUDA_SUCCESS || capture != CU_STREAM_CAPTURE_STATUS_NONE, 0))
        return refuse_stream(result, "cuStreamIsCapturing");
    result = identify(handle, id);
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? STRATA_SUCCESS : refuse_stream(result, "cuStreamGetId");
}

static __attribute__((noinline)) strata_status query_identity_in_context(strata_device *device, CUstream handle,
                                                                         uint64_t *id)
{
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    status = query_identity(handle, id);
    strata_call_scope_leave(&scope);
    return status;
}

/* DEVICE_RESET if the stream is known as one of another device than `device`, whose streams a reset has ended. */
static strata_status check_known_elsewhere(const strata_device *device, CUstream handle)
{
    const strata_timeline *known = strata_known_timeline(device, handle);
    return known && known->device != device ? strata_check_device_now(known->device) : STRATA_SUCCESS;
}

bool strata_stream_is_capturing(strata_device *device, CUstream handle, bool if_unknown)
{
    strata_call_scope scope;
    bool in_context = strata_call_scope_for(handle) != 0;
    strata_error_suppress_begin();
    strata_status status = check_known_elsewhere(device, handle);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, device, in_context ? STRATA_CALL_SCOPE_CONTEXT : 0);
    strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS)
        return if_unknown;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = strata_cu.StreamIsCapturing(handle, &capture);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return result == CUDA_ERROR_STREAM_CAPTURE_IMPLICIT || if_unknown;
    return capture != CU_STREAM_CAPTURE_STATUS_NONE;
}

static inline const strata_stream_batch *batch_of(CUstream handle)
{
    const strata_thread *thread = strata_thread_current;
    return thread && thread->batch.timeline && thread->batch.handle == handle ? &thread->batch : NULL;
}

strata_status strata_stream_identify(strata_device *device, CUstream handle, strata_stream_ref *out)
{
    const strata_stream_batch *batch = batch_of(handle);
    if (batch) {
        *out = (strata_stream_ref){
            .timeline = batch->timeline, .device = device, .handle = handle, .stream_id = batch->stream_id};
        return STRATA_SUCCESS;
    }
    uint64_t id;
    strata_status status = __builtin_expect(strata_call_scope_for(handle) == 0, 1)
                               ? query_identity(handle, &id)
                               : query_identity_in_context(device, handle, &id);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    bool known;
    strata_timeline *timeline = find_timeline(device, handle, id, &known);
    if (__builtin_expect(!timeline, 0))
        return refuse_look_up(device);
    *out = (strata_stream_ref){
        .timeline = timeline, .device = device, .handle = handle, .stream_id = known ? 0 : id, .known = known};
    return STRATA_SUCCESS;
}

/* The driver gives no such id, and make_identity none either. */
static uint64_t identity_of_unidentified(const strata_device *device)
{
    return UINT64_MAX - (uint64_t)device->ordinal;
}

strata_point strata_stream_leave_unidentified(strata_device *device)
{
    bool is_new;
    strata_lock_take(&map_lock); /* until the point is taken: a sweep would retire the timeline */
    strata_timeline *timeline = NULL;
    if (!strata_device_is_lost(device)) /* its streams may have been forgotten already */
        timeline = strata_unknown_find_or_take(device, identity_of_unidentified(device), &is_new);
    const strata_point point = timeline ? strata_timeline_leave_uncovered(timeline) : 0;
    strata_lock_release(&map_lock);
    return point;
}

/* ---- registering ---- */

/* A stream that was used before its registration keeps its timeline. map_lock is held. */
static strata_timeline *adopt(strata_device *device, CUstream handle, uint64_t id, bool early)
{
    strata_timeline *timeline = strata_unknown_take_out(id);
    if (!timeline && !(timeline = strata_unknown_take_timeline(device, STRATA_TIMELINE_KNOWN, handle, 0)))
        return NULL;
    strata_spin_take(&timeline->lock);
    strata_timeline_close(timeline);
    timeline->device = device;
    timeline->kind = STRATA_TIMELINE_KNOWN;
    timeline->stream = handle;
    atomic_store_explicit(&timeline->early, early, memory_order_relaxed);
    timeline->of_device = true;
    atomic_store_explicit(&timeline->stream_id, 0, memory_order_release);
    atomic_store_explicit(&timeline->known_as, early ? STRATA_NO_STREAM : handle, memory_order_release);
    strata_spin_release(&timeline->lock);
    return timeline;
}

/* A stream accepts only events of the context that it belongs to. Its context handle says less: a stream can belong to
 * another than the one it was created in. */
static strata_status check_context(strata_device *device, CUstream handle)
{
    CUevent event;
    strata_status status = strata_device_take_event(device, &event);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.EventRecord(event, handle);
    strata_device_give_event(device, event);
    if (result == CUDA_ERROR_INVALID_HANDLE && strata_check_device_now(device) == STRATA_SUCCESS)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE, "the stream does not belong to the primary context of device %d",
                           device->ordinal);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuEventRecord", "registering a stream");
}

strata_status strata_timeline_open_legacy(strata_device *device, strata_timeline **out)
{
    strata_lock_take(&map_lock);
    *out = strata_unknown_take_timeline(device, STRATA_TIMELINE_KNOWN, CU_STREAM_LEGACY, 0);
    if (*out)
        atomic_store_explicit(&(*out)->known_as, NULL, memory_order_release);
    strata_lock_release(&map_lock);
    return *out ? STRATA_SUCCESS : strata_fail_no_timeline();
}

static strata_status check_registration(strata_device *device, CUstream handle, uint64_t *id)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "default streams cannot be registered: the legacy one is always "
                                                       "known, the per-thread one has no handle for other threads");
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    const char *call = "cuStreamIsCapturing";
    CUresult result = strata_cu.StreamIsCapturing(handle, &capture);
    if (result == CUDA_SUCCESS && capture == CU_STREAM_CAPTURE_STATUS_NONE) {
        call = "cuStreamGetId";
        result = identify(handle, id);
    }
    if (result != CUDA_SUCCESS)
        status = strata_fail_driver(result, call, "registering a stream");
    else if (capture != CU_STREAM_CAPTURE_STATUS_NONE)
        status = strata_fail(STRATA_ERROR_STREAM_CAPTURE, "a stream cannot be registered while it is being captured");
    else if ((status = strata_check_device_now(device)) == STRATA_SUCCESS) /* one of before may have its handle */
        status = check_context(device, handle);
    strata_call_scope_leave(&scope);
    return status;
}

/* Whether the timeline is of another device than this one (NULL: of any), whose streams a reset has ended: the driver
 * may give their handles out again. */
static bool has_ended(const strata_timeline *timeline, const strata_device *device)
{
    return timeline && timeline->device != device && !strata_device_has_its_context(timeline->device);
}

/* Enters a stream as known; *out is its timeline, or NULL without memory. Returns whether another stream has the
 * handle. map_lock is held. */
static bool enter_known(strata_device *device, CUstream handle, uint64_t id, bool early, strata_timeline **out)
{
    strata_known_stream *stream = strata_known_enter((uintptr_t)handle);
    strata_timeline *before = stream ? atomic_load_explicit(&stream->timeline, memory_order_relaxed) : NULL;
    *out = NULL;
    if (has_ended(before, device)) {
        strata_known_set(stream, NULL);
        strata_timeline_forget(before);
    } else if (before) {
        return true;
    }
    if (stream && (*out = adopt(device, handle, id, early)))
        strata_known_set(stream, *out);
    return false;
}

void strata_stream_was_made(CUstream handle)
{
    if (!strata_stream_is_known(handle))
        return;
    strata_lock_take(&map_lock);
    strata_known_stream *stream =
        strata_known_find(atomic_load_explicit(&strata_known_streams, memory_order_relaxed), (uintptr_t)handle);
    strata_timeline *before = stream ? atomic_load_explicit(&stream->timeline, memory_order_relaxed) : NULL;
    if (has_ended(before, NULL)) {
        strata_known_set(stream, NULL);
        strata_timeline_forget(before);
    }
    strata_lock_release(&map_lock);
}

strata_status strata_stream_register(strata_device *device, CUstream handle, bool early)
{
    uint64_t id = 0;
    strata_timeline *timeline;
    strata_status status = check_registration(device, handle, &id);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&map_lock);
    const bool taken = enter_known(device, handle, id, early, &timeline);
    strata_lock_release(&map_lock);
    if (taken)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the stream is already registered; a stream must be unregistered before it is destroyed");
    return timeline ? STRATA_SUCCESS : strata_fail_no_timeline();
}

static __attribute__((cold)) strata_status refuse_held(void)
{
    return strata_fail(STRATA_ERROR_BUSY, "the stream is held as the last writer of a reference; release it with "
                                          "strata_last_write_release before the stream is unregistered");
}

/* Keeps the timeline as an unknown stream's until its work is complete and in-flight frees are over. map_lock is held.
 */
static strata_status leave_known(strata_timeline *timeline, CUstream handle, uint64_t id)
{
    strata_spin_take(&timeline->lock);
    strata_status status = timeline->handle_holds ? refuse_held() : strata_timeline_record_now(timeline, handle);
    if (status == STRATA_SUCCESS) {
        atomic_fetch_add_explicit(&timeline->holders, 1, memory_order_relaxed);
        timeline->kind = STRATA_TIMELINE_UNKNOWN;
        timeline->stream = NULL;
        atomic_store_explicit(&timeline->known_as, STRATA_NO_STREAM, memory_order_release);
        atomic_store_explicit(&timeline->stream_id, id, memory_order_release);
    }
    strata_spin_release(&timeline->lock);
    return status;
}

/* Inserts the timeline into the map first, since that may fail without host memory: in no map it would be lost. On an
 * error the caller keeps the entry. map_lock is held. */
static strata_status enter_and_leave_known(strata_timeline *timeline, CUstream handle, strata_unknown_stream *entry,
                                           uint64_t id)
{
    if (!strata_unknown_enter(entry, id, timeline))
        return strata_fail_host_memory("an unregistered stream");
    strata_status status = leave_known(timeline, handle, id);
    if (status != STRATA_SUCCESS)
        strata_unknown_remove(entry);
    return status;
}

/* From now on no use is recorded on the known stream: later callers wait for the map and find the unknown one. The
 * event recorded here covers the work of earlier ones. map_lock is held. */
static strata_status leave_and_forget(strata_known_stream *stream, strata_timeline *timeline,
                                      strata_unknown_stream *entry, uint64_t id)
{
    const CUstream handle = timeline->stream;
    strata_known_set(stream, NULL);
    const strata_status status = enter_and_leave_known(timeline, handle, entry, id);
    if (status != STRATA_SUCCESS)
        strata_known_set(stream, timeline);
    return status;
}

strata_status strata_stream_unregister(strata_device *device, CUstream handle, strata_stream_ref *left)
{
    uint64_t id = 0;
    strata_call_scope scope;
    if (handle == NULL || handle == CU_STREAM_LEGACY || !strata_stream_is_known(handle))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the stream is not registered");
    strata_status status = strata_call_scope_enter(&scope, device, strata_call_scope_for(handle));
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = identify(handle, &id);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuStreamGetId", "unregistering a stream");
    strata_unknown_stream *entry = strata_unknown_prepare();
    if (!entry)
        return strata_fail_host_memory("an unregistered stream");
    strata_error_suppress_begin(); /* until the map's lock is released */
    strata_lock_take(&map_lock);
    strata_known_stream *stream =
        strata_known_find(atomic_load_explicit(&strata_known_streams, memory_order_relaxed), (uintptr_t)handle);
    strata_timeline *timeline = stream ? atomic_load_explicit(&stream->timeline, memory_order_relaxed) : NULL;
    if (!timeline || timeline->device != device)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "the stream is not registered with this device");
    else
        status = leave_and_forget(stream, timeline, entry, id);
    if (status == STRATA_SUCCESS) {
        *left = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .stream_id = id};
        entry = NULL;
        strata_unknown_sweep_if_due();
    }
    strata_lock_release(&map_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    strata_unknown_drop(entry);
    return status;
}

void strata_stream_await_frees(const strata_stream_ref *left)
{
    strata_timeline *timeline = left->timeline;
    strata_inflight_frees_await();
    strata_timeline_await_host_waits(timeline);
    strata_error_suppress_begin(); /* a wait for the stream raises what has no event */
    strata_spin_take(&timeline->lock);
    if (atomic_load_explicit(&timeline->stream_id, memory_order_relaxed) == left->stream_id)
        strata_timeline_record_now(timeline, left->handle);
    strata_spin_release(&timeline->lock);
    strata_error_suppress_end(false);
    strata_timeline_unhold(timeline, 0);
}

/* ---- after a reset ---- */

void strata_streams_forget(const strata_device *lost)
{
    strata_lock_take(&map_lock);
    strata_known_forget(lost);
    strata_unknown_forget(lost);
    strata_timeline_forget(lost->legacy);
    strata_lock_release(&map_lock);
}
