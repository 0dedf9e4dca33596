/* The program's streams that the legacy stream does not wait for, noticed as they are made, and its captures under way.
 *
 * A stream's handle is good until cuStreamDestroy, which forgets it here first, and so waits for every thread that uses
 * the handles; or until its context's end, before which it is marked as ending. */
#include "adapters/exec/exec.h"

#include "core/base/host_memory.h"
#include "driver/driver.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct noticed_stream {
    CUstream handle;
    int ordinal;   /* of its device */
    CUcontext own; /* the context in which it was made; the handle of its green context, if it was made by that */
    bool ending;   /* its context is about to end: no call takes the handle any more */
    UT_hash_handle hh;
} noticed_stream;

typedef struct captured_stream {
    CUstream handle;
    CUcontext own;    /* the stream's; as above if that was noticed */
    pthread_t thread; /* that begins the capture; another one means another stream by CU_STREAM_PER_THREAD */
    UT_hash_handle hh;
} captured_stream;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static noticed_stream *noticed;   /* guarded by the lock */
static captured_stream *captured; /* guarded by the lock */
static _Atomic size_t captures;   /* their number; written under the lock, read by any thread */
static _Atomic bool any;          /* a stream was noticed; for good */

bool exec_streams_any(void)
{
    return atomic_load_explicit(&any, memory_order_acquire) || exec_contexts_any();
}

static bool uses(const noticed_stream *stream, int ordinal)
{
    return stream->ordinal == ordinal || exec_context_uses(stream->own, ordinal);
}

void exec_streams_visit(int ordinal, CUcontext own, void (*visit)(CUstream stream, void *data), void *data)
{
    pthread_rwlock_rdlock(&lock);
    for (const noticed_stream *stream = noticed; stream; stream = stream->hh.next)
        if ((!own || stream->own == own) && !stream->ending && uses(stream, ordinal))
            visit(stream->handle, data);
    pthread_rwlock_unlock(&lock);
}

void exec_streams_mark_ending(CUcontext own, bool ending)
{
    if (exec_is_forked() || !own)
        return;
    pthread_rwlock_wrlock(&lock);
    for (noticed_stream *stream = noticed; stream; stream = stream->hh.next)
        if (stream->own == own)
            stream->ending = ending;
    pthread_rwlock_unlock(&lock);
}

/* Under the lock. */
static void forget_captures(CUcontext context)
{
    captured_stream *stream, *next;
    HASH_ITER(hh, captured, stream, next)
    {
        if (stream->own != context)
            continue;
        HASH_DEL(captured, stream);
        strata_host_free(stream);
        atomic_fetch_sub(&captures, 1);
    }
}

void exec_streams_forget(CUcontext context)
{
    noticed_stream *stream, *next;
    if (exec_is_forked())
        return;
    pthread_rwlock_wrlock(&lock);
    HASH_ITER(hh, noticed, stream, next)
    {
        if (stream->own != context)
            continue;
        HASH_DEL(noticed, stream);
        strata_host_free(stream);
    }
    forget_captures(context);
    pthread_rwlock_unlock(&lock);
}

/* ---- streams ---- */

bool exec_stream_notice(CUstream handle, int ordinal, CUcontext own)
{
    noticed_stream *stream = strata_host_zalloc(sizeof *stream), *stale = NULL;
    if (!stream)
        return false;
    *stream = (noticed_stream){.handle = handle, .ordinal = ordinal, .own = own};
    pthread_rwlock_wrlock(&lock);
    HASH_FIND(hh, noticed, &handle, sizeof handle, stale);
    if (stale) { /* its end was not seen */
        HASH_DEL(noticed, stale);
        strata_host_free(stale);
    }
    HASH_ADD(hh, noticed, handle, sizeof stream->handle, stream);
    const bool added = stream->hh.tbl != NULL;
    atomic_store_explicit(&any, true, memory_order_release);
    pthread_rwlock_unlock(&lock);
    if (!added)
        strata_host_free(stream);
    return added;
}

bool exec_stream_uses(CUstream handle, int ordinal)
{
    noticed_stream *stream = NULL;
    if (exec_is_forked())
        return false;
    pthread_rwlock_rdlock(&lock);
    HASH_FIND(hh, noticed, &handle, sizeof handle, stream);
    const bool found = stream && !stream->ending && uses(stream, ordinal);
    pthread_rwlock_unlock(&lock);
    return found;
}

void exec_stream_forget(CUstream handle)
{
    noticed_stream *stream = NULL;
    if (exec_is_forked())
        return;
    pthread_rwlock_wrlock(&lock);
    HASH_FIND(hh, noticed, &handle, sizeof handle, stream);
    if (stream) {
        HASH_DEL(noticed, stream);
        strata_host_free(stream);
    }
    pthread_rwlock_unlock(&lock);
}

/* ---- captures ---- */

bool exec_captures_under_way(void)
{
    return atomic_load_explicit(&captures, memory_order_acquire) != 0;
}

bool exec_is_captured(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    return exec_captures_under_way() &&
           (strata_cu.StreamIsCapturing(stream, &status) != CUDA_SUCCESS || status != CU_STREAM_CAPTURE_STATUS_NONE);
}

/* Results of a real driver: capture_calls.*.own_free_plain in tests/answers/h200.txt. */
CUresult exec_capture_answers_free(CUstream stream)
{
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    if (!exec_captures_under_way() || strata_cu.StreamIsCapturing(stream, &status) != CUDA_SUCCESS ||
        status == CU_STREAM_CAPTURE_STATUS_NONE)
        return CUDA_SUCCESS;
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? CUDA_ERROR_INVALID_VALUE : CUDA_ERROR_STREAM_CAPTURE_INVALIDATED;
}

bool exec_capture_note(CUstream handle, CUcontext own)
{
    captured_stream *stream = strata_host_zalloc(sizeof *stream);
    const noticed_stream *known = NULL;
    if (!stream)
        return false;
    pthread_rwlock_wrlock(&lock);
    HASH_FIND(hh, noticed, &handle, sizeof handle, known);
    *stream = (captured_stream){.handle = handle, .own = known ? known->own : own, .thread = pthread_self()};
    HASH_ADD(hh, captured, handle, sizeof stream->handle, stream);
    const bool added = stream->hh.tbl != NULL;
    if (added)
        atomic_fetch_add(&captures, 1);
    pthread_rwlock_unlock(&lock);
    if (!added)
        strata_host_free(stream);
    return added;
}

/* Default streams have one handle in all contexts and threads. */
static bool is_of(const captured_stream *stream, CUstream handle, CUcontext own)
{
    return stream->handle == handle &&
           (!exec_is_default(handle) || (stream->own == own && pthread_equal(stream->thread, pthread_self())));
}

/* Under the lock. A list is enough, as captures are few. */
static captured_stream *find_captured(CUstream handle, CUcontext own)
{
    captured_stream *stream = captured;
    while (stream && !is_of(stream, handle, own))
        stream = stream->hh.next;
    return stream;
}

bool exec_capture_forget(CUstream handle, CUcontext own)
{
    if (exec_is_forked())
        return false;
    pthread_rwlock_wrlock(&lock);
    captured_stream *stream = find_captured(handle, own);
    const bool found = stream != NULL;
    if (found) {
        HASH_DEL(captured, stream);
        strata_host_free(stream);
        atomic_fetch_sub(&captures, 1);
    }
    pthread_rwlock_unlock(&lock);
    return found;
}
