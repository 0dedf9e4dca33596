/* The driver's functions that are hooked, and the real ones behind them.
 *
 * A program reaches a driver function in one of three ways, and in each the real function is found first, by the
 * program's own means; only then is the hook put in its place:
 *
 *   linked to libcuda        the loader binds to the hook, which this library exports under the driver's name
 *   dlsym, dlvsym            lookup.c
 *   cuGetProcAddress         proc_address.c
 *
 * Everything that is not in this list goes to the driver untouched. */
#ifndef STRATA_ADAPTERS_EXEC_HOOKS_H
#define STRATA_ADAPTERS_EXEC_HOOKS_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(symbol, base, version, per_thread): the name that libcuda exports; the name and the CUDA version by which
 * cuGetProcAddress finds the same function; whether stream 0 is the calling thread's default stream. */
#define EXEC_HOOKS(X)                                                               \
    X(cuGetProcAddress, "cuGetProcAddress", 11030, false)                           \
    X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false)                        \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, false)                                     \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, false)                           \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, false)                          \
    X(cuMemFree_v2, "cuMemFree", 3020, false)                                       \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, false)                             \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, true)                         \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, false)             \
    X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, true)         \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, false)                               \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, true)                           \
    X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, false)                       \
    X(cuMemCreate, "cuMemCreate", 10020, false)                                     \
    X(cuMemRelease, "cuMemRelease", 10020, false)                                   \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, false)     \
    X(cuMemMap, "cuMemMap", 10020, false)                                           \
    X(cuMemUnmap, "cuMemUnmap", 10020, false)                                       \
    X(cuArrayCreate_v2, "cuArrayCreate", 3020, false)                               \
    X(cuArray3DCreate_v2, "cuArray3DCreate", 3020, false)                           \
    X(cuArrayDestroy, "cuArrayDestroy", 2000, false)                                \
    X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, false)                \
    X(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, false)              \
    X(cuStreamCreate, "cuStreamCreate", 2000, false)                                \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, false)        \
    X(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050, false)               \
    X(cuStreamDestroy, "cuStreamDestroy", 2000, false)                              \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, false)                           \
    X(cuStreamBeginCapture, "cuStreamBeginCapture", 10000, false)                   \
    X(cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000, true)               \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, false)                \
    X(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, true)            \
    X(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, false)     \
    X(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, true) \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, false)                       \
    X(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, true)                   \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, false)                                 \
    X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, false)                         \
    X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, false)                 \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, false)                  \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, false)                \
    X(cuCtxDestroy, "cuCtxDestroy", 2000, false)                                    \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, false)                                 \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, false)            \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, false)          \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, false)      \
    X(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, false)              \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, false)          \
    X(nvmlDeviceGetMemoryInfo, NULL, 0, false)                                      \
    X(nvmlDeviceGetMemoryInfo_v2, NULL, 0, false)

typedef enum exec_hook {
#define EXEC_HOOK_NUMBER(symbol, base, version, per_thread) EXEC_HOOK_##symbol,
    EXEC_HOOKS(EXEC_HOOK_NUMBER)
#undef EXEC_HOOK_NUMBER
        EXEC_HOOK_COUNT
} exec_hook;

typedef struct exec_hook_row {
    const char *symbol;
    const char *base; /* NULL: not the driver's */
    int version;
    bool per_thread;
} exec_hook_row;
extern const exec_hook_row exec_hook_rows[EXEC_HOOK_COUNT];

/* The hook with this symbol; EXEC_HOOK_COUNT: none, or this process is none that the launcher asked for. No lock, no
 * host memory. */
exec_hook exec_hook_find(const char *symbol);

/* The hook itself: what this library exports under the symbol. */
void *exec_hook_function(exec_hook hook);

/* Remembers the real function that a look-up of the program has found, the first one. False: another one is the real
 * function already. That is the driver behind a library that stands in front of it, and is not to be hooked: the hook
 * would call the library in front. Any thread. */
bool exec_hook_found(exec_hook hook, void *real);

/* The real function: the first that was found; else the one that follows this library in the loader's order, or that
 * a loaded libcuda has. NULL: there is none. Any thread. */
void *exec_hook_real(exec_hook hook);

/* The real function by the hook's symbol, to be called like it. */
#define EXEC_REAL(symbol) ((__typeof__(&symbol))(uintptr_t)exec_hook_real(EXEC_HOOK_##symbol))

/* ---- NVML, of which no header is needed ---- */

typedef struct exec_nvml_memory {
    unsigned long long total, free, used;
} exec_nvml_memory;

typedef struct exec_nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} exec_nvml_memory_v2;

int nvmlDeviceGetMemoryInfo(void *device, exec_nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, exec_nvml_memory_v2 *memory);

#endif
