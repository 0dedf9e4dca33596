/* The program's non-blocking streams, noticed as they are made, and its captures under way.
 *
 * A stream's handle is good until cuStreamDestroy, which comes here first and waits for every thread that uses the
 * handles. */
#include "adapters/exec/exec.h"

#include "core/base/host_memory.h"
#include "driver/driver.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct noticed_stream {
    CUstream handle;
    CUcontext context;
    UT_hash_handle hh;
} noticed_stream;

typedef struct captured_stream {
    CUstream handle;
    UT_hash_handle hh;
} captured_stream;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static noticed_stream *noticed;   /* guarded by the lock */
static captured_stream *captured; /* guarded by the lock */
static _Atomic size_t captures;   /* their number; written under the lock, read by any thread */

void exec_streams_visit(CUcontext context, void (*visit)(CUstream stream, void *data), void *data)
{
    pthread_rwlock_rdlock(&lock);
    for (const noticed_stream *stream = noticed; stream; stream = stream->hh.next)
        if (stream->context == context)
            visit(stream->handle, data);
    pthread_rwlock_unlock(&lock);
}

void exec_streams_forget(CUcontext context)
{
    noticed_stream *stream, *next;
    pthread_rwlock_wrlock(&lock);
    HASH_ITER(hh, noticed, stream, next)
    {
        if (stream->context != context)
            continue;
        HASH_DEL(noticed, stream);
        strata_host_free(stream);
    }
    pthread_rwlock_unlock(&lock);
}

/* False without memory: then the stream cannot be used safely. */
static bool notice(CUstream handle, CUcontext context)
{
    noticed_stream *stream = strata_host_zalloc(sizeof *stream);
    if (!stream)
        return false;
    *stream = (noticed_stream){.handle = handle, .context = context};
    pthread_rwlock_wrlock(&lock);
    HASH_ADD(hh, noticed, handle, sizeof stream->handle, stream);
    const bool added = stream->hh.tbl != NULL;
    pthread_rwlock_unlock(&lock);
    if (!added)
        strata_host_free(stream);
    return added;
}

/* The context of a stream. NULL: it was not noticed. */
static CUcontext context_of(CUstream handle)
{
    noticed_stream *stream = NULL;
    pthread_rwlock_rdlock(&lock);
    HASH_FIND(hh, noticed, &handle, sizeof handle, stream);
    const CUcontext context = stream ? stream->context : NULL;
    pthread_rwlock_unlock(&lock);
    return context;
}

static void unnotice(CUstream handle)
{
    noticed_stream *stream = NULL;
    pthread_rwlock_wrlock(&lock);
    HASH_FIND(hh, noticed, &handle, sizeof handle, stream);
    if (stream) {
        HASH_DEL(noticed, stream);
        strata_host_free(stream);
    }
    pthread_rwlock_unlock(&lock);
}

static exec_device *device_with(CUcontext context)
{
    for (size_t i = 0; context && i < exec_device_bound(); i++) {
        exec_device *device = exec_device_at(i);
        if (device && device->context == context)
            return device;
    }
    return NULL;
}

/* ---- streams ---- */

static CUresult destroy(CUstream stream)
{
    __typeof__(&cuStreamDestroy_v2) real = EXEC_REAL(cuStreamDestroy_v2);
    return real ? real(stream) : CUDA_ERROR_NOT_FOUND;
}

static CUresult notice_new(exec_device *device, CUstream stream)
{
    if (!notice(stream, device->context)) {
        destroy(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec_order_new_stream(device, stream);
    return CUDA_SUCCESS;
}

static CUresult created(CUresult result, const CUstream *stream, unsigned flags)
{
    if (result != CUDA_SUCCESS || !(flags & CU_STREAM_NON_BLOCKING))
        return result;
    const exec_here here = exec_device_here();
    return here.primary ? notice_new(here.device, *stream) : result;
}

/* A green context is a part of the primary one's device, and uses its memory. */
EXEC_EXPORT CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority)
{
    __typeof__(&cuGreenCtxStreamCreate) real = EXEC_REAL(cuGreenCtxStreamCreate);
    const CUresult result = real ? real(stream, green, flags, priority) : CUDA_ERROR_NOT_FOUND;
    CUcontext context;
    exec_device *device = NULL;
    if (result == CUDA_SUCCESS && exec_open_driver() && strata_cu.CtxFromGreenCtx &&
        strata_cu.CtxFromGreenCtx(&context, green) == CUDA_SUCCESS)
        device = exec_device_of(context);
    return device ? notice_new(device, *stream) : result;
}

EXEC_EXPORT CUresult CUDAAPI cuStreamCreate(CUstream *stream, unsigned flags)
{
    __typeof__(&cuStreamCreate) real = EXEC_REAL(cuStreamCreate);
    return created(real ? real(stream, flags) : CUDA_ERROR_NOT_FOUND, stream, flags);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamCreateWithPriority(CUstream *stream, unsigned flags, int priority)
{
    __typeof__(&cuStreamCreateWithPriority) real = EXEC_REAL(cuStreamCreateWithPriority);
    return created(real ? real(stream, flags, priority) : CUDA_ERROR_NOT_FOUND, stream, flags);
}

static void capture_ended(CUstream stream);

EXEC_EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
    exec_device *device = device_with(context_of(stream));
    if (device) /* frees look at the stream until its last work is ordered */
        exec_order_last_word(device, stream);
    unnotice(stream);
    capture_ended(stream);
    return destroy(stream);
}

EXEC_EXPORT CUresult CUDAAPI cuCtxDestroy_v2(CUcontext context)
{
    __typeof__(&cuCtxDestroy_v2) real = EXEC_REAL(cuCtxDestroy_v2);
    const CUresult result = real ? real(context) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS) {
        exec_streams_forget(context);
        exec_device_context_ended();
    }
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuDevicePrimaryCtxReset_v2(CUdevice device)
{
    __typeof__(&cuDevicePrimaryCtxReset_v2) real = EXEC_REAL(cuDevicePrimaryCtxReset_v2);
    const CUresult result = real ? real(device) : CUDA_ERROR_NOT_FOUND;
    if (result == CUDA_SUCCESS)
        exec_device_was_reset(device);
    return result;
}

/* ---- captures ---- */

bool exec_captures_under_way(void)
{
    return atomic_load_explicit(&captures, memory_order_acquire) != 0;
}

/* Without memory it is not noticed; Strata itself finds out then that the stream is captured. */
static void capture_began(CUstream handle)
{
    captured_stream *stream = strata_host_zalloc(sizeof *stream);
    if (!stream)
        return;
    stream->handle = handle;
    pthread_rwlock_wrlock(&lock);
    HASH_ADD(hh, captured, handle, sizeof stream->handle, stream);
    if (stream->hh.tbl)
        atomic_fetch_add(&captures, 1);
    else
        strata_host_free(stream);
    pthread_rwlock_unlock(&lock);
}

static void capture_ended(CUstream handle)
{
    captured_stream *stream = NULL;
    if (!exec_captures_under_way())
        return;
    pthread_rwlock_wrlock(&lock);
    HASH_FIND(hh, captured, &handle, sizeof handle, stream);
    if (stream) {
        HASH_DEL(captured, stream);
        strata_host_free(stream);
        atomic_fetch_sub(&captures, 1);
    }
    pthread_rwlock_unlock(&lock);
}

static CUresult begun(CUresult result, CUstream stream)
{
    if (result == CUDA_SUCCESS)
        capture_began(stream);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    __typeof__(&cuStreamBeginCapture_v2) real = EXEC_REAL(cuStreamBeginCapture_v2);
    return begun(real ? real(stream, mode) : CUDA_ERROR_NOT_FOUND, stream);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    __typeof__(&cuStreamBeginCapture_v2_ptsz) real = EXEC_REAL(cuStreamBeginCapture_v2_ptsz);
    return begun(real ? real(stream, mode) : CUDA_ERROR_NOT_FOUND, exec_own_default(stream));
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                                         const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                                         size_t count, CUstreamCaptureMode mode)
{
    __typeof__(&cuStreamBeginCaptureToGraph) real = EXEC_REAL(cuStreamBeginCaptureToGraph);
    return begun(real ? real(stream, graph, dependencies, edges, count, mode) : CUDA_ERROR_NOT_FOUND, stream);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                              const CUgraphNode *dependencies,
                                                              const CUgraphEdgeData *edges, size_t count,
                                                              CUstreamCaptureMode mode)
{
    __typeof__(&cuStreamBeginCaptureToGraph_ptsz) real = EXEC_REAL(cuStreamBeginCaptureToGraph_ptsz);
    return begun(real ? real(stream, graph, dependencies, edges, count, mode) : CUDA_ERROR_NOT_FOUND,
                 exec_own_default(stream));
}

EXEC_EXPORT CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    __typeof__(&cuStreamEndCapture) real = EXEC_REAL(cuStreamEndCapture);
    const CUresult result = real ? real(stream, graph) : CUDA_ERROR_NOT_FOUND;
    capture_ended(stream);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    __typeof__(&cuStreamEndCapture_ptsz) real = EXEC_REAL(cuStreamEndCapture_ptsz);
    const CUresult result = real ? real(stream, graph) : CUDA_ERROR_NOT_FOUND;
    capture_ended(exec_own_default(stream));
    return result;
}
