/* The bare driver: entry points of the library that Strata has opened, found by name and version and called directly.
 */
#ifndef STRATA_BENCH_BARE_H
#define STRATA_BENCH_BARE_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stddef.h>

/* X(name without "cu", version). */
#define BARE_ENTRY_POINTS(X)             \
    X(GetErrorName, 6000)                \
    X(DeviceGet, 2000)                   \
    X(DevicePrimaryCtxRetain, 7000)      \
    X(CtxSetCurrent, 4000)               \
    X(StreamCreate, 2000)                \
    X(StreamDestroy, 4000)               \
    X(StreamSynchronize, 2000)           \
    X(StreamWaitEvent, 3020)             \
    X(StreamIsCapturing, 10000)          \
    X(StreamGetId, 12000)                \
    X(StreamBeginCapture, 10010)         \
    X(StreamEndCapture, 10000)           \
    X(StreamGetCaptureInfo, 11030)       \
    X(GraphInstantiateWithParams, 12000) \
    X(GraphLaunch, 10000)                \
    X(GraphExecDestroy, 10000)           \
    X(GraphDestroy, 10000)               \
    X(EventCreate, 2000)                 \
    X(EventDestroy, 4000)                \
    X(EventRecord, 2000)                 \
    X(EventElapsedTime, 2000)            \
    X(MemAlloc, 3020)                    \
    X(MemGetInfo, 3020)                  \
    X(MemFree, 3020)                     \
    X(MemAllocFromPoolAsync, 11020)      \
    X(MemFreeAsync, 11020)               \
    X(MemPoolCreate, 11020)              \
    X(MemPoolDestroy, 11020)             \
    X(MemPoolSetAttribute, 11020)        \
    X(MemPoolGetAttribute, 11020)        \
    X(MemPoolTrimTo, 11020)              \
    X(MemsetD8Async, 3020)               \
    X(MemsetD32Async, 3020)              \
    X(MemcpyDtoHAsync, 3020)             \
    X(MemcpyHtoDAsync, 3020)             \
    X(MemHostAlloc, 2020)                \
    X(MemFreeHost, 2000)                 \
    X(CtxSynchronize, 2000)              \
    X(ModuleLoadData, 2000)              \
    X(ModuleGetFunction, 2000)           \
    X(LaunchKernel, 4000)

typedef struct bare_driver {
#define BARE_FIELD(name, version) PFN_cu##name##_v##version name;
    BARE_ENTRY_POINTS(BARE_FIELD)
#undef BARE_FIELD
} bare_driver;

/* Written once by bare_open, before threads start. */
extern bare_driver bare;

/* `path`: a library that is loaded. Exits if it lacks an entry point. */
void bare_open(const char *path);

_Noreturn void bare_failed(CUresult result, const char *call);

/* Exits if the call failed: its time would mean nothing. */
static inline void bare_check(CUresult result, const char *call)
{
    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        bare_failed(result, call);
}

enum { BARE_STREAMS = 9, BARE_EVENTS = 16, BARE_STREAM_BYTES = 4096 };

/* The objects of the bare side: a pool that keeps its memory, streams, and events without timing.
 *
 * Each stream has memory of the pool, as Strata's streams have: cuEventRecord on a stream that stream-ordered memory
 * was ever allocated on is slower, by 28 ns of 132 on the H200's host. */
typedef struct bare_objects {
    CUmemoryPool pool;
    CUstream streams[BARE_STREAMS];
    CUdeviceptr memory[BARE_STREAMS];
    CUevent events[BARE_EVENTS];
    unsigned rotation;
} bare_objects;

void bare_make(bare_objects *objects, int ordinal);
void bare_destroy(bare_objects *objects);

void bare_drain(void *objects);

/* One of two streams waits for the other, alternately. */
void bare_hand_over(void *objects, size_t operations);

#endif
