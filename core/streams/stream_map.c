/* Finding, identifying and registering streams; use records on them. */
#include "core/streams/stream_map.h"

#include "core/streams/events.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/thread.h"
#include "core/streams/inflight_frees.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct unknown_stream {
    uint64_t id;
    strata_timeline *timeline;
    UT_hash_handle hh;
} unknown_stream;

static strata_lock map_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_STREAM_MAP);
_Atomic(strata_known_table *) strata_known_streams;
_Atomic uint64_t strata_known_changes;

static unknown_stream *unknown; /* guarded by map_lock */
static size_t sweep_at = 64;    /* number that makes a sweep pay off; guarded by map_lock */

bool strata_stream_is_known(CUstream handle)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY)
        return true;
    const strata_known_stream *stream =
        strata_known_find(atomic_load_explicit(&strata_known_streams, memory_order_acquire), (uintptr_t)handle);
    return stream && atomic_load_explicit(&stream->timeline, memory_order_acquire);
}

/* ---- unknown streams ---- */

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

/* Frees the timelines of streams without pending work. map_lock is held. */
static void sweep(bool keep_with_blocks)
{
    unknown_stream *stream, *next;
    HASH_ITER(hh, unknown, stream, next)
    {
        if (!strata_timeline_retire(stream->timeline, keep_with_blocks))
            continue;
        HASH_DEL(unknown, stream);
        strata_host_free(stream);
    }
    size_t left = HASH_COUNT(unknown);
    sweep_at = left < 32 ? 64 : 2 * left;
}

/* If need be, the timeline of a stream with live blocks. map_lock is held. */
static strata_timeline *take_timeline(strata_device *device, strata_timeline_kind kind, CUstream handle, uint64_t id)
{
    strata_timeline *timeline = strata_timeline_take(device, kind, handle, id);
    if (timeline)
        return timeline;
    sweep(false);
    return strata_timeline_take(device, kind, handle, id);
}

/* map_lock is held. */
static strata_timeline *find_or_take_unknown(strata_device *device, uint64_t id)
{
    unknown_stream *stream = NULL;
    HASH_FIND(hh, unknown, &id, sizeof id, stream);
    if (stream)
        return stream->timeline;
    if (HASH_COUNT(unknown) >= sweep_at)
        sweep(true);
    stream = strata_host_zalloc(sizeof *stream);
    if (!stream)
        return NULL;
    stream->id = id;
    stream->timeline = take_timeline(device, STRATA_TIMELINE_UNKNOWN, NULL, id);
    if (!stream->timeline) {
        strata_host_free(stream);
        return NULL;
    }
    HASH_ADD(hh, unknown, id, sizeof stream->id, stream);
    if (!stream->hh.tbl) {
        strata_timeline_retire(stream->timeline, false);
        strata_host_free(stream);
        return NULL;
    }
    return stream->timeline;
}

/* *known: the stream was just registered, and this is its timeline. */
static __attribute__((noinline)) strata_timeline *look_up(strata_device *device, CUstream handle, uint64_t id,
                                                          bool *known)
{
    strata_thread *thread = strata_thread_self();
    strata_lock_take(&map_lock);
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *known = timeline != NULL;
    if (!timeline)
        timeline = find_or_take_unknown(device, id);
    strata_lock_release(&map_lock);
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
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    status = query_identity(handle, id);
    strata_scope_leave(&scope);
    return status;
}

bool strata_stream_is_capturing(strata_device *device, CUstream handle, bool if_unknown)
{
    strata_scope scope;
    bool in_context = strata_scope_for(handle) != 0;
    strata_error_suppress_begin();
    strata_status status = strata_scope_enter(&scope, device, in_context ? STRATA_SCOPE_CONTEXT : 0);
    strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS)
        return if_unknown;
    CUstreamCaptureStatus capture = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = strata_cu.StreamIsCapturing(handle, &capture);
    strata_scope_leave(&scope);
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
    strata_status status = __builtin_expect(strata_scope_for(handle) == 0, 1)
                               ? query_identity(handle, &id)
                               : query_identity_in_context(device, handle, &id);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    bool known;
    strata_timeline *timeline = find_timeline(device, handle, id, &known);
    if (__builtin_expect(!timeline, 0))
        return strata_fail_no_timeline();
    *out = (strata_stream_ref){
        .timeline = timeline, .device = device, .handle = handle, .stream_id = known ? 0 : id, .known = known};
    return STRATA_SUCCESS;
}

/* ---- use records ---- */

/* False if another stream has the timeline now. */
static bool lock_unknown(const strata_stream_ref *stream)
{
    strata_spin_take(&stream->timeline->lock);
    if (atomic_load_explicit(&stream->timeline->stream_id, memory_order_relaxed) == stream->stream_id)
        return true;
    strata_spin_release(&stream->timeline->lock);
    return false;
}

/* Locks the timeline of an unknown stream that was just found; identifies the stream again if it has become known or
 * lost the timeline. */
static strata_status lock_or_resolve(strata_stream_ref *stream, bool *held)
{
    strata_status status = STRATA_SUCCESS;
    *held = false;
    while (status == STRATA_SUCCESS && !stream->known && !(*held = lock_unknown(stream)))
        status = strata_stream_resolve(stream->device, stream->handle, stream);
    return status;
}

static strata_status identify_and_lock(strata_device *device, CUstream handle, strata_stream_ref *stream, bool *held)
{
    strata_status status = strata_stream_identify(device, handle, stream);
    *held = false;
    return status == STRATA_SUCCESS ? lock_or_resolve(stream, held) : status;
}

static strata_status resolve_and_lock(strata_device *device, CUstream handle, strata_stream_ref *stream, bool *held)
{
    *held = false;
    strata_timeline *timeline = strata_known_timeline(device, handle);
    *stream = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return timeline ? STRATA_SUCCESS : identify_and_lock(device, handle, stream, held);
}

/* Whether the batch's end will record the event. */
static bool in_recording_batch(const strata_thread *thread, CUstream handle)
{
    return thread && thread->batch.recording && thread->batch.handle == handle;
}

strata_status strata_use_record_begin_unknown(strata_use_record *record, strata_device *device, CUstream handle)
{
    record->held = false;
    if (in_recording_batch(strata_thread_current, handle))
        return strata_stream_identify(device, handle, &record->stream);
    return identify_and_lock(device, handle, &record->stream, &record->held);
}

strata_status strata_use_record_begin_on(strata_use_record *record, const strata_stream_ref *stream)
{
    record->stream = *stream;
    record->held = false;
    if (stream->known || in_recording_batch(strata_thread_current, stream->handle))
        return STRATA_SUCCESS;
    return lock_or_resolve(&record->stream, &record->held);
}

static strata_status close_early(strata_timeline *timeline, CUstream handle)
{
    if (!timeline->early)
        return STRATA_SUCCESS;
    strata_status status = STRATA_SUCCESS;
    strata_spin_take(&timeline->lock);
    if (timeline->kind == STRATA_TIMELINE_KNOWN)
        status = strata_timeline_record(timeline, handle);
    strata_spin_release(&timeline->lock);
    return status;
}

strata_status strata_use_record_end_slow(strata_use_record *record)
{
    const strata_stream_ref *stream = &record->stream;
    if (stream->known) {
        const strata_thread *thread = strata_thread_current;
        bool in_batch = thread && thread->batch.timeline == stream->timeline;
        return in_batch ? STRATA_SUCCESS : close_early(stream->timeline, stream->handle);
    }
    if (!record->held)
        return STRATA_SUCCESS;
    strata_status status = strata_timeline_record_now(stream->timeline, stream->handle);
    strata_spin_release(&stream->timeline->lock);
    return status;
}

void strata_use_record_cancel(strata_use_record *record)
{
    if (record->held)
        strata_spin_release(&record->stream.timeline->lock);
}

strata_status strata_stream_point(const strata_stream_ref *stream, strata_point *point)
{
    strata_use_record record;
    const strata_status status = strata_use_record_begin_on(&record, stream);
    if (status != STRATA_SUCCESS)
        return status;
    *point = strata_timeline_now(record.stream.timeline);
    return strata_use_record_end(&record);
}

strata_clock *strata_use_record_clock(const strata_use_record *record)
{
    const strata_thread *thread = strata_thread_current;
    if (in_recording_batch(thread, record->stream.handle))
        return thread->batch.clock;
    return strata_timeline_clock(&record->stream, record->held);
}

void strata_use_record_clock_done(const strata_use_record *record, strata_clock *clock)
{
    if (!in_recording_batch(strata_thread_current, record->stream.handle))
        strata_clock_unref(clock);
}

bool strata_use_record_follows(const strata_use_record *record, const strata_clock *clock, strata_point point)
{
    return strata_timeline_follows(&record->stream, clock, point);
}

strata_status strata_batch_begin(strata_device *device, CUstream handle, bool recording)
{
    strata_thread *thread = strata_thread_self();
    if (!thread)
        return strata_fail_host_memory("a thread's state");
    strata_stream_ref stream;
    bool held = false;
    strata_status status =
        recording ? resolve_and_lock(device, handle, &stream, &held) : strata_stream_resolve(device, handle, &stream);
    if (status != STRATA_SUCCESS)
        return status;
    thread->batch = (strata_stream_batch){
        .handle = handle,
        .timeline = stream.timeline,
        .stream_id = stream.stream_id,
        .known = stream.known,
        .recording = recording,
    };
    if (recording)
        thread->batch.clock = strata_timeline_clock(&stream, held);
    if (held) {
        strata_timeline_close(stream.timeline);
        stream.timeline->recording_batches++;
        strata_spin_release(&stream.timeline->lock);
    }
    return STRATA_SUCCESS;
}

strata_status strata_batch_end(void)
{
    strata_thread *thread = strata_thread_current;
    strata_stream_batch batch = thread->batch;
    thread->batch = (strata_stream_batch){0};
    if (!batch.recording)
        return STRATA_SUCCESS;
    strata_clock_unref(batch.clock);
    if (batch.known)
        return close_early(batch.timeline, batch.handle);
    strata_spin_take(&batch.timeline->lock);
    strata_status status = strata_timeline_record_now(batch.timeline, batch.handle);
    batch.timeline->recording_batches--;
    if (batch.timeline->kind == STRATA_TIMELINE_KNOWN) /* registered meanwhile: no other call records this event */
        strata_timeline_close(batch.timeline);
    strata_spin_release(&batch.timeline->lock);
    return status;
}

/* ---- known streams ---- */

static strata_known_table *grow(strata_known_table *old)
{
    size_t capacity = old ? 2 * old->capacity : 64;
    strata_known_table *table = strata_host_zalloc(sizeof *table + capacity * sizeof table->streams[0]);
    if (!table)
        return NULL;
    table->outgrown = old;
    table->capacity = capacity;
    for (size_t i = 0; old && i < old->capacity; i++) {
        uintptr_t handle = atomic_load_explicit(&old->streams[i].handle, memory_order_relaxed);
        strata_timeline *timeline = atomic_load_explicit(&old->streams[i].timeline, memory_order_relaxed);
        if (!handle || !timeline)
            continue;
        size_t at = strata_known_hash(handle);
        while (atomic_load_explicit(&table->streams[at & (capacity - 1)].handle, memory_order_relaxed))
            at++;
        strata_known_stream *stream = &table->streams[at & (capacity - 1)];
        atomic_store_explicit(&stream->timeline, timeline, memory_order_relaxed);
        atomic_store_explicit(&stream->handle, handle, memory_order_relaxed);
        table->used++;
    }
    atomic_store_explicit(&strata_known_streams, table, memory_order_release);
    return table;
}

/* The entry of a handle, created if missing; NULL without memory. map_lock is held. */
static strata_known_stream *enter_known(uintptr_t handle)
{
    strata_known_table *table = atomic_load_explicit(&strata_known_streams, memory_order_relaxed);
    strata_known_stream *stream = strata_known_find(table, handle);
    if (stream)
        return stream;
    if ((!table || 2 * (table->used + 1) > table->capacity) && !(table = grow(table)))
        return NULL;
    size_t at = strata_known_hash(handle);
    while (atomic_load_explicit(&table->streams[at & (table->capacity - 1)].handle, memory_order_relaxed))
        at++;
    stream = &table->streams[at & (table->capacity - 1)];
    atomic_store_explicit(&stream->handle, handle, memory_order_release);
    table->used++;
    return stream;
}

/* Changes a known stream's timeline. map_lock is held. */
static void set_known(strata_known_stream *stream, strata_timeline *timeline)
{
    atomic_store_explicit(&stream->timeline, timeline, memory_order_release);
    atomic_fetch_add_explicit(&strata_known_changes, 1, memory_order_release);
}

/* A stream that was used before its registration keeps its timeline. map_lock is held. */
static strata_timeline *adopt(strata_device *device, CUstream handle, uint64_t id, bool early)
{
    unknown_stream *stream = NULL;
    HASH_FIND(hh, unknown, &id, sizeof id, stream);
    strata_timeline *timeline;
    if (stream) {
        timeline = stream->timeline;
        HASH_DEL(unknown, stream);
        strata_host_free(stream);
    } else {
        timeline = take_timeline(device, STRATA_TIMELINE_KNOWN, handle, 0);
    }
    if (!timeline)
        return NULL;
    strata_spin_take(&timeline->lock);
    strata_timeline_close(timeline);
    timeline->device = device;
    timeline->kind = STRATA_TIMELINE_KNOWN;
    timeline->stream = handle;
    timeline->early = early;
    atomic_store_explicit(&timeline->stream_id, 0, memory_order_release);
    atomic_store_explicit(&timeline->known_as, early ? STRATA_NO_STREAM : handle, memory_order_release);
    strata_spin_release(&timeline->lock);
    return timeline;
}

/* Whether the stream belongs to the device's context: only then does it accept that context's events. The context's
 * handle says less: a stream can belong to another than the one it was created in. */
static strata_status check_context(strata_device *device, CUstream handle)
{
    CUevent event;
    strata_status status = strata_device_take_event(device, &event);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.EventRecord(event, handle);
    strata_device_give_event(device, event);
    if (result == CUDA_ERROR_INVALID_HANDLE)
        return strata_fail(STRATA_ERROR_WRONG_DEVICE, "the stream does not belong to the primary context of device %d",
                           device->ordinal);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuEventRecord", "registering a stream");
}

strata_status strata_timeline_open_legacy(strata_device *device, strata_timeline **out)
{
    strata_lock_take(&map_lock);
    *out = take_timeline(device, STRATA_TIMELINE_KNOWN, CU_STREAM_LEGACY, 0);
    if (*out)
        atomic_store_explicit(&(*out)->known_as, NULL, memory_order_release);
    strata_lock_release(&map_lock);
    return *out ? STRATA_SUCCESS : strata_fail_no_timeline();
}

static strata_status check_registration(strata_device *device, CUstream handle, uint64_t *id)
{
    if (handle == NULL || handle == CU_STREAM_LEGACY || handle == CU_STREAM_PER_THREAD)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "a default stream cannot be registered: the legacy one is known by "
                           "itself, and the per-thread one has no name for other threads");
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT);
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
    else
        status = check_context(device, handle);
    strata_scope_leave(&scope);
    return status;
}

strata_status strata_stream_register(strata_device *device, CUstream handle, bool early)
{
    uint64_t id = 0;
    strata_status status = check_registration(device, handle, &id);
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&map_lock);
    strata_known_stream *stream = enter_known((uintptr_t)handle);
    strata_timeline *timeline = NULL;
    bool taken = stream && atomic_load_explicit(&stream->timeline, memory_order_relaxed);
    if (stream && !taken && (timeline = adopt(device, handle, id, early)))
        set_known(stream, timeline);
    strata_lock_release(&map_lock);
    if (taken)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the stream is registered already; if it was destroyed since, it "
                           "had to be unregistered before");
    return timeline ? STRATA_SUCCESS : strata_fail_no_timeline();
}

/* Keeps the timeline as an unknown stream's until its work is complete and in-flight frees are over. map_lock is held.
 */
static strata_status leave_known(strata_timeline *timeline, CUstream handle, uint64_t id)
{
    strata_spin_take(&timeline->lock);
    strata_status status = strata_timeline_record_now(timeline, handle);
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

/* Inserts the timeline into the map first, which may need host memory: in no map it would be lost. On an error the
 * caller keeps the entry. map_lock is held. */
static strata_status enter_and_leave_known(strata_timeline *timeline, CUstream handle, unknown_stream *entry,
                                           uint64_t id)
{
    entry->id = id;
    entry->timeline = timeline;
    HASH_ADD(hh, unknown, id, sizeof entry->id, entry);
    if (!entry->hh.tbl)
        return strata_fail_host_memory("an unregistered stream");
    strata_status status = leave_known(timeline, handle, id);
    if (status != STRATA_SUCCESS)
        HASH_DEL(unknown, entry);
    return status;
}

/* From now on no use is recorded on the known stream: later callers wait for the map and find the unknown one. The
 * event recorded here covers the work of earlier ones. map_lock is held. */
static strata_status leave_and_forget(strata_known_stream *stream, strata_timeline *timeline, unknown_stream *entry,
                                      uint64_t id)
{
    const CUstream handle = timeline->stream;
    set_known(stream, NULL);
    const strata_status status = enter_and_leave_known(timeline, handle, entry, id);
    if (status != STRATA_SUCCESS)
        set_known(stream, timeline);
    return status;
}

strata_status strata_stream_unregister(strata_device *device, CUstream handle, strata_stream_ref *left)
{
    uint64_t id = 0;
    strata_scope scope;
    if (handle == NULL || handle == CU_STREAM_LEGACY || !strata_stream_is_known(handle))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the stream is not registered");
    strata_status status = strata_scope_enter(&scope, device, strata_scope_for(handle));
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = identify(handle, &id);
    strata_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuStreamGetId", "unregistering a stream");
    unknown_stream *entry = strata_host_zalloc(sizeof *entry);
    if (!entry)
        return strata_fail_host_memory("an unregistered stream");
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
        if (HASH_COUNT(unknown) >= sweep_at)
            sweep(true);
    }
    strata_lock_release(&map_lock);
    strata_host_free(entry);
    return status;
}

void strata_stream_await_frees(const strata_stream_ref *left)
{
    strata_timeline *timeline = left->timeline;
    strata_inflight_frees_await();
    strata_error_suppress_begin(); /* a wait for the stream raises what has no event */
    strata_spin_take(&timeline->lock);
    if (atomic_load_explicit(&timeline->stream_id, memory_order_relaxed) == left->stream_id)
        strata_timeline_record_now(timeline, left->handle);
    strata_spin_release(&timeline->lock);
    strata_error_suppress_end(false);
    strata_timeline_unhold(timeline, 0);
}

/* ---- streams that Strata creates ---- */

strata_status strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out)
{
    *out = NULL;
    strata_scope scope;
    CUstream stream;
    strata_status status = strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        status = strata_fail_driver(result, "cuStreamCreate", "making %s", what);
    else if ((status = strata_stream_register(device, stream, early)) != STRATA_SUCCESS)
        strata_cu.StreamDestroy(stream);
    else
        *out = stream;
    strata_scope_leave(&scope);
    return status;
}

strata_status strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone)
{
    *gone = false;
    strata_scope scope;
    strata_status status = strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    strata_stream_ref left;
    status = strata_stream_unregister(device, stream, &left);
    if (status == STRATA_SUCCESS) {
        *gone = true;
        strata_stream_await_frees(&left);
        CUresult result = strata_cu.StreamDestroy(stream);
        if (result != CUDA_SUCCESS)
            status = strata_fail_driver(result, "cuStreamDestroy", "ending a stream that Strata made");
    }
    strata_scope_leave(&scope);
    return status;
}
