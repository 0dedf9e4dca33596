/* The program's non-blocking streams, noticed as they are made, and its captures under way.
 *
 * A stream's handle is good until cuStreamDestroy, which comes here first and waits for every thread that uses the
 * handles. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "core/base/host_memory.h"
#include "driver/driver.h"

#include <dlfcn.h>
#include <string.h>

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct noticed_stream {
    CUstream handle;
    CUcontext context; /* the primary one of its device */
    CUcontext own;     /* the one in which it was made */
    UT_hash_handle hh;
} noticed_stream;

typedef struct captured_stream {
    CUstream handle;
    CUcontext own; /* the thread's, when the capture began */
    UT_hash_handle hh;
} captured_stream;

static pthread_rwlock_t lock = PTHREAD_RWLOCK_INITIALIZER;
static noticed_stream *noticed;   /* guarded by the lock */
static captured_stream *captured; /* guarded by the lock */
static _Atomic size_t captures;   /* their number; written under the lock, read by any thread */
static _Atomic bool any;          /* a stream was noticed; for good */

bool exec_streams_any(void)
{
    return atomic_load_explicit(&any, memory_order_acquire);
}

void exec_streams_visit(CUcontext context, void (*visit)(CUstream stream, void *data), void *data)
{
    pthread_rwlock_rdlock(&lock);
    for (const noticed_stream *stream = noticed; stream; stream = stream->hh.next)
        if (stream->context == context)
            visit(stream->handle, data);
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
    if (!exec_captures_under_way())
        exec_free_kept_back();
}

static CUcontext current_context(void)
{
    CUcontext context = NULL;
    if (exec_open_driver())
        strata_cu.CtxGetCurrent(&context);
    return context;
}

/* False without memory: then the stream cannot be used safely. */
static bool notice(CUstream handle, CUcontext context, CUcontext own)
{
    noticed_stream *stream = strata_host_zalloc(sizeof *stream);
    if (!stream)
        return false;
    *stream = (noticed_stream){.handle = handle, .context = context, .own = own};
    pthread_rwlock_wrlock(&lock);
    HASH_ADD(hh, noticed, handle, sizeof stream->handle, stream);
    const bool added = stream->hh.tbl != NULL;
    atomic_store_explicit(&any, true, memory_order_release);
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

static CUresult notice_new(exec_device *device, CUstream stream, CUcontext own)
{
    if (!notice(stream, device->context, own)) {
        destroy(stream);
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    exec_order_new_stream(device, stream);
    return CUDA_SUCCESS;
}

/* A stream of another context of the device may use the stack's memory, too; the legacy stream does not wait for it. */
static CUresult created(CUresult result, const CUstream *stream, unsigned flags)
{
    if (result != CUDA_SUCCESS)
        return result;
    const exec_here here = exec_device_here();
    if (here.primary)
        return flags & CU_STREAM_NON_BLOCKING ? notice_new(here.device, *stream, here.device->context) : result;
    exec_device *device = exec_device_if_ready();
    return device ? notice_new(device, *stream, current_context()) : result;
}

/* The context of a green context. NULL: the driver has no such function, or no such context. */
static CUcontext context_of_green(CUgreenCtx green)
{
    CUcontext context = NULL;
    CUresult (*get)(CUcontext *, CUgreenCtx);
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? exec_loader_dlsym(library, "cuCtxFromGreenCtx") : NULL;
    memcpy(&get, &found, sizeof get);
    if (get && get(&context, green) != CUDA_SUCCESS)
        context = NULL;
    if (library)
        dlclose(library);
    return context;
}

/* A green context is a part of the primary one's device, and uses its memory. */
EXEC_EXPORT CUresult CUDAAPI cuGreenCtxStreamCreate(CUstream *stream, CUgreenCtx green, unsigned flags, int priority)
{
    __typeof__(&cuGreenCtxStreamCreate) real = EXEC_REAL(cuGreenCtxStreamCreate);
    const CUresult result = real ? real(stream, green, flags, priority) : CUDA_ERROR_NOT_FOUND;
    const CUcontext context = result == CUDA_SUCCESS ? context_of_green(green) : NULL;
    exec_device *device = context ? exec_device_of(context) : NULL;
    return device ? notice_new(device, *stream, context) : result;
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

static void forget_stream(CUstream stream)
{
    exec_device *device = device_with(context_of(stream));
    if (device) /* frees look at the stream until its last work is ordered */
        exec_order_last_word(device, stream);
    unnotice(stream);
    capture_ended(stream);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamDestroy_v2(CUstream stream)
{
    forget_stream(stream);
    return destroy(stream);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamDestroy(CUstream stream)
{
    __typeof__(&cuStreamDestroy) real = EXEC_REAL(cuStreamDestroy);
    forget_stream(stream);
    return real ? real(stream) : CUDA_ERROR_NOT_FOUND;
}

/* ---- captures ---- */

bool exec_captures_under_way(void)
{
    return atomic_load_explicit(&captures, memory_order_acquire) != 0;
}

/* Without memory it is not noticed; Strata itself finds out then that the stream is captured. */
static void capture_begins(CUstream handle)
{
    captured_stream *stream = strata_host_zalloc(sizeof *stream);
    if (!stream)
        return;
    stream->handle = handle;
    stream->own = current_context();
    pthread_rwlock_wrlock(&lock);
    HASH_ADD(hh, captured, handle, sizeof stream->handle, stream);
    if (stream->hh.tbl)
        atomic_fetch_add(&captures, 1);
    else
        strata_host_free(stream);
    pthread_rwlock_unlock(&lock);
}

static void for_each_device(void (*work)(exec_device *device))
{
    for (size_t i = 0; i < exec_device_bound(); i++)
        if (exec_device_at(i))
            work(exec_device_at(i));
}

/* True: it was the last one. */
static bool forget_capture(CUstream handle)
{
    captured_stream *stream = NULL;
    pthread_rwlock_wrlock(&lock);
    HASH_FIND(hh, captured, &handle, sizeof handle, stream);
    const bool found = stream != NULL;
    if (found) {
        HASH_DEL(captured, stream);
        strata_host_free(stream);
        atomic_fetch_sub(&captures, 1);
    }
    pthread_rwlock_unlock(&lock);
    return found && !exec_captures_under_way();
}

static void capture_ended(CUstream handle)
{
    if (!exec_captures_under_way())
        return;
    const bool last = forget_capture(handle);
    for_each_device(exec_order_after_capture);
    if (last)
        exec_free_kept_back();
}

/* From before the real call on, so that no thread finds the stream captured and no capture under way. */
static void expect_capture(CUstream stream)
{
    for_each_device(exec_order_before_capture);
    capture_begins(stream);
}

static CUresult begun(CUresult result, CUstream stream)
{
    if (result != CUDA_SUCCESS)
        capture_ended(stream);
    return result;
}

/* A capture that another thread must end goes on. */
static CUresult ended(CUresult result, CUstream stream)
{
    if (result != CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD)
        capture_ended(stream);
    return result;
}

/* `meant`: with the program's stream 0 spelt out. */
#define BEGIN_CAPTURE(name, meant, ...)       \
    __typeof__(&name) real = EXEC_REAL(name); \
    expect_capture(meant);                    \
    return begun(real ? real(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND, meant)

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCapture(CUstream stream)
{
    BEGIN_CAPTURE(cuStreamBeginCapture, stream, stream);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCapture_ptsz(CUstream stream)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_ptsz, exec_own_default(stream), stream);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCapture_v2(CUstream stream, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_v2, stream, stream, mode);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCapture_v2_ptsz(CUstream stream, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCapture_v2_ptsz, exec_own_default(stream), stream, mode);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToGraph(CUstream stream, CUgraph graph,
                                                         const CUgraphNode *dependencies, const CUgraphEdgeData *edges,
                                                         size_t count, CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCaptureToGraph, stream, stream, graph, dependencies, edges, count, mode);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamBeginCaptureToGraph_ptsz(CUstream stream, CUgraph graph,
                                                              const CUgraphNode *dependencies,
                                                              const CUgraphEdgeData *edges, size_t count,
                                                              CUstreamCaptureMode mode)
{
    BEGIN_CAPTURE(cuStreamBeginCaptureToGraph_ptsz, exec_own_default(stream), stream, graph, dependencies, edges, count,
                  mode);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamEndCapture(CUstream stream, CUgraph *graph)
{
    __typeof__(&cuStreamEndCapture) real = EXEC_REAL(cuStreamEndCapture);
    return ended(real ? real(stream, graph) : CUDA_ERROR_NOT_FOUND, stream);
}

EXEC_EXPORT CUresult CUDAAPI cuStreamEndCapture_ptsz(CUstream stream, CUgraph *graph)
{
    __typeof__(&cuStreamEndCapture_ptsz) real = EXEC_REAL(cuStreamEndCapture_ptsz);
    return ended(real ? real(stream, graph) : CUDA_ERROR_NOT_FOUND, exec_own_default(stream));
}
