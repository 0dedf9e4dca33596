/* The driver's functions that are hooked, and NVML's, and the real ones behind them.
 *
 * A program reaches a driver function in one of three ways, and in each the real function is found first, by the
 * program's own means; only then is the hook put in its place:
 *
 *   linked to libcuda        the loader binds to the hook, which this library exports under the driver's name
 *   dlsym, dlvsym            lookup.c
 *   cuGetProcAddress         proc_address.c
 *
 * A function that is not in this list goes to the driver: untouched if it is known to need no hook (covered.c), else
 * through a counter (uncovered.c). */
#ifndef STRATA_ADAPTERS_EXEC_HOOKS_H
#define STRATA_ADAPTERS_EXEC_HOOKS_H

#include <cuda.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

/* X(symbol, base, version, per_thread): the name that the library exports; the name and the CUDA version by which
 * cuGetProcAddress finds the same function; whether stream 0 is the calling thread's default stream. Sorted by the
 * base, which look-ups search for. */
#define EXEC_HOOKS(X)                                                                                  \
    X(cuArray3DCreate_v2, "cuArray3DCreate", 3020, false)                                              \
    X(cuArrayCreate_v2, "cuArrayCreate", 3020, false)                                                  \
    X(cuArrayDestroy, "cuArrayDestroy", 2000, false)                                                   \
    X(cuCtxCreate, "cuCtxCreate", 2000, false)                                                         \
    X(cuCtxCreate_v2, "cuCtxCreate", 3020, false)                                                      \
    X(cuCtxCreate_v3, "cuCtxCreate", 11040, false)                                                     \
    X(cuCtxCreate_v4, "cuCtxCreate", 12050, false)                                                     \
    X(cuCtxDestroy, "cuCtxDestroy", 2000, false)                                                       \
    X(cuCtxDestroy_v2, "cuCtxDestroy", 4000, false)                                                    \
    X(cuCtxDetach, "cuCtxDetach", 2000, false)                                                         \
    X(cuCtxEnablePeerAccess, "cuCtxEnablePeerAccess", 4000, false)                                     \
    X(cuDestroyExternalMemory, "cuDestroyExternalMemory", 10000, false)                                \
    X(cuDeviceGetGraphMemAttribute, "cuDeviceGetGraphMemAttribute", 11040, false)                      \
    X(cuDeviceGraphMemTrim, "cuDeviceGraphMemTrim", 11040, false)                                      \
    X(cuDevicePrimaryCtxRelease, "cuDevicePrimaryCtxRelease", 7000, false)                             \
    X(cuDevicePrimaryCtxRelease_v2, "cuDevicePrimaryCtxRelease", 11000, false)                         \
    X(cuDevicePrimaryCtxReset, "cuDevicePrimaryCtxReset", 7000, false)                                 \
    X(cuDevicePrimaryCtxReset_v2, "cuDevicePrimaryCtxReset", 11000, false)                             \
    X(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000, false)                               \
    X(cuDeviceSetMemPool, "cuDeviceSetMemPool", 11020, false)                                          \
    X(cuDeviceTotalMem_v2, "cuDeviceTotalMem", 3020, false)                                            \
    X(cuGetProcAddress, "cuGetProcAddress", 11030, false)                                              \
    X(cuGetProcAddress_v2, "cuGetProcAddress", 12000, false)                                           \
    X(cuGraphAddMemAllocNode, "cuGraphAddMemAllocNode", 11040, false)                                  \
    X(cuGraphAddNode, "cuGraphAddNode", 12020, false)                                                  \
    X(cuGraphAddNode_v2, "cuGraphAddNode", 12030, false)                                               \
    X(cuGraphLaunch, "cuGraphLaunch", 10000, false)                                                    \
    X(cuGraphLaunch_ptsz, "cuGraphLaunch", 10000, true)                                                \
    X(cuGraphUpload, "cuGraphUpload", 11010, false)                                                    \
    X(cuGraphUpload_ptsz, "cuGraphUpload", 11010, true)                                                \
    X(cuGraphicsMapResources, "cuGraphicsMapResources", 3000, false)                                   \
    X(cuGraphicsMapResources_ptsz, "cuGraphicsMapResources", 7000, true)                               \
    X(cuGraphicsResourceGetMappedPointer_v2, "cuGraphicsResourceGetMappedPointer", 3020, false)        \
    X(cuGraphicsUnmapResources, "cuGraphicsUnmapResources", 3000, false)                               \
    X(cuGraphicsUnmapResources_ptsz, "cuGraphicsUnmapResources", 7000, true)                           \
    X(cuGreenCtxCreate, "cuGreenCtxCreate", 12040, false)                                              \
    X(cuGreenCtxDestroy, "cuGreenCtxDestroy", 12040, false)                                            \
    X(cuGreenCtxStreamCreate, "cuGreenCtxStreamCreate", 12050, false)                                  \
    X(cuImportExternalMemory, "cuImportExternalMemory", 10000, false)                                  \
    X(cuInit, "cuInit", 2000, false)                                                                   \
    X(cuIpcCloseMemHandle, "cuIpcCloseMemHandle", 4010, false)                                         \
    X(cuIpcGetMemHandle, "cuIpcGetMemHandle", 4010, false)                                             \
    X(cuIpcOpenMemHandle, "cuIpcOpenMemHandle", 4010, false)                                           \
    X(cuIpcOpenMemHandle_v2, "cuIpcOpenMemHandle", 11000, false)                                       \
    X(cuMemAlloc_v2, "cuMemAlloc", 3020, false)                                                        \
    X(cuMemAllocAsync, "cuMemAllocAsync", 11020, false)                                                \
    X(cuMemAllocAsync_ptsz, "cuMemAllocAsync", 11020, true)                                            \
    X(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020, false)                                \
    X(cuMemAllocFromPoolAsync_ptsz, "cuMemAllocFromPoolAsync", 11020, true)                            \
    X(cuMemAllocHost, "cuMemAllocHost", 2000, false)                                                   \
    X(cuMemAllocHost_v2, "cuMemAllocHost", 3020, false)                                                \
    X(cuMemAllocManaged, "cuMemAllocManaged", 6000, false)                                             \
    X(cuMemAllocPitch_v2, "cuMemAllocPitch", 3020, false)                                              \
    X(cuMemCreate, "cuMemCreate", 10020, false)                                                        \
    X(cuMemFree_v2, "cuMemFree", 3020, false)                                                          \
    X(cuMemFreeAsync, "cuMemFreeAsync", 11020, false)                                                  \
    X(cuMemFreeAsync_ptsz, "cuMemFreeAsync", 11020, true)                                              \
    X(cuMemFreeHost, "cuMemFreeHost", 2000, false)                                                     \
    X(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 3020, false)                                    \
    X(cuMemGetInfo_v2, "cuMemGetInfo", 3020, false)                                                    \
    X(cuMemHostAlloc, "cuMemHostAlloc", 2020, false)                                                   \
    X(cuMemHostRegister, "cuMemHostRegister", 4000, false)                                             \
    X(cuMemHostRegister_v2, "cuMemHostRegister", 6050, false)                                          \
    X(cuMemHostUnregister, "cuMemHostUnregister", 4000, false)                                         \
    X(cuMemImportFromShareableHandle, "cuMemImportFromShareableHandle", 10020, false)                  \
    X(cuMemMap, "cuMemMap", 10020, false)                                                              \
    X(cuMemPoolCreate, "cuMemPoolCreate", 11020, false)                                                \
    X(cuMemPoolDestroy, "cuMemPoolDestroy", 11020, false)                                              \
    X(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 11020, false)                                    \
    X(cuMemPoolImportPointer, "cuMemPoolImportPointer", 11020, false)                                  \
    X(cuMemPoolSetAttribute, "cuMemPoolSetAttribute", 11020, false)                                    \
    X(cuMemPoolTrimTo, "cuMemPoolTrimTo", 11020, false)                                                \
    X(cuMemRelease, "cuMemRelease", 10020, false)                                                      \
    X(cuMemRetainAllocationHandle, "cuMemRetainAllocationHandle", 11000, false)                        \
    X(cuMemSetAccess, "cuMemSetAccess", 10020, false)                                                  \
    X(cuMemSetMemPool, "cuMemSetMemPool", 13000, false)                                                \
    X(cuMemUnmap, "cuMemUnmap", 10020, false)                                                          \
    X(cuMipmappedArrayCreate, "cuMipmappedArrayCreate", 5000, false)                                   \
    X(cuMipmappedArrayDestroy, "cuMipmappedArrayDestroy", 5000, false)                                 \
    X(cuMulticastCreate, "cuMulticastCreate", 12010, false)                                            \
    X(cuPointerGetAttribute, "cuPointerGetAttribute", 4000, false)                                     \
    X(cuPointerGetAttributes, "cuPointerGetAttributes", 7000, false)                                   \
    X(cuStreamBeginCapture, "cuStreamBeginCapture", 10000, false)                                      \
    X(cuStreamBeginCapture_ptsz, "cuStreamBeginCapture", 10000, true)                                  \
    X(cuStreamBeginCapture_v2, "cuStreamBeginCapture", 10010, false)                                   \
    X(cuStreamBeginCapture_v2_ptsz, "cuStreamBeginCapture", 10010, true)                               \
    X(cuStreamBeginCaptureToGraph, "cuStreamBeginCaptureToGraph", 12030, false)                        \
    X(cuStreamBeginCaptureToGraph_ptsz, "cuStreamBeginCaptureToGraph", 12030, true)                    \
    X(cuStreamCreate, "cuStreamCreate", 2000, false)                                                   \
    X(cuStreamCreateWithPriority, "cuStreamCreateWithPriority", 5050, false)                           \
    X(cuStreamDestroy, "cuStreamDestroy", 2000, false)                                                 \
    X(cuStreamDestroy_v2, "cuStreamDestroy", 4000, false)                                              \
    X(cuStreamEndCapture, "cuStreamEndCapture", 10000, false)                                          \
    X(cuStreamEndCapture_ptsz, "cuStreamEndCapture", 10000, true)                                      \
    X(nvmlDeviceGetAttributes_v2, "nvmlDeviceGetAttributes", 0, false)                                 \
    X(nvmlDeviceGetComputeRunningProcesses, "nvmlDeviceGetComputeRunningProcesses", 0, false)          \
    X(nvmlDeviceGetComputeRunningProcesses_v2, "nvmlDeviceGetComputeRunningProcesses", 0, false)       \
    X(nvmlDeviceGetComputeRunningProcesses_v3, "nvmlDeviceGetComputeRunningProcesses", 0, false)       \
    X(nvmlDeviceGetGraphicsRunningProcesses, "nvmlDeviceGetGraphicsRunningProcesses", 0, false)        \
    X(nvmlDeviceGetGraphicsRunningProcesses_v2, "nvmlDeviceGetGraphicsRunningProcesses", 0, false)     \
    X(nvmlDeviceGetGraphicsRunningProcesses_v3, "nvmlDeviceGetGraphicsRunningProcesses", 0, false)     \
    X(nvmlDeviceGetMPSComputeRunningProcesses, "nvmlDeviceGetMPSComputeRunningProcesses", 0, false)    \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v2, "nvmlDeviceGetMPSComputeRunningProcesses", 0, false) \
    X(nvmlDeviceGetMPSComputeRunningProcesses_v3, "nvmlDeviceGetMPSComputeRunningProcesses", 0, false) \
    X(nvmlDeviceGetMemoryInfo, "nvmlDeviceGetMemoryInfo", 0, false)                                    \
    X(nvmlDeviceGetMemoryInfo_v2, "nvmlDeviceGetMemoryInfo", 0, false)                                 \
    X(nvmlDeviceGetRunningProcessDetailList, "nvmlDeviceGetRunningProcessDetailList", 0, false)

typedef enum exec_hook {
#define EXEC_HOOK_NUMBER(symbol, base, version, per_thread) EXEC_HOOK_##symbol,
    EXEC_HOOKS(EXEC_HOOK_NUMBER)
#undef EXEC_HOOK_NUMBER
        EXEC_HOOK_COUNT
} exec_hook;

typedef struct exec_hook_row {
    const char *symbol;
    const char *base;
    int version; /* 0: NVML's */
    bool per_thread;
} exec_hook_row;
extern const exec_hook_row exec_hook_rows[EXEC_HOOK_COUNT];

/* Compares a symbol, up to its suffix ("_v2", "_ptsz"), with a base. Calls nothing: see exec_is_same. */
static inline int exec_compare_base(const char *symbol, const char *base)
{
    while (*base && *symbol == *base) {
        symbol++;
        base++;
    }
    const char at = *symbol == '_' ? '\0' : *symbol;
    return (unsigned char)at - (unsigned char)*base;
}

/* The first row with the base of a symbol; EXEC_HOOK_COUNT: none. No lock, no host memory. */
exec_hook exec_hook_first_of_base(const char *symbol);

/* Whether a function needs no hook (covered.c): by its symbol or its base. No lock, no host memory. */
bool exec_is_covered(const char *symbol);

/* The hook with this symbol; EXEC_HOOK_COUNT: none, or Strata is not for this process. No lock, no host memory. */
exec_hook exec_hook_find(const char *symbol);

/* The hook itself: what this library exports under the symbol. */
void *exec_hook_function(exec_hook hook);

/* Remembers the first real function that a look-up of the program has found. False: another one is the real function
 * already, since a library stands in front of the driver, and `real` must not be hooked: the hook would call the
 * library in front. Any thread. */
bool exec_hook_found(exec_hook hook, void *real);

extern _Atomic(void *) exec_hook_reals[EXEC_HOOK_COUNT]; /* set once; any thread */

/* As exec_hook_real, for a hook whose real function was not found yet. */
void *exec_hook_real_slow(exec_hook hook);

/* The real function: the first that was found; else the one that follows this library in the loader's order, or that
 * a loaded libcuda has. NULL: there is none. Any thread. */
static inline void *exec_hook_real(exec_hook hook)
{
    void *real = atomic_load_explicit(&exec_hook_reals[hook], memory_order_acquire);
    return __builtin_expect(real != NULL, 1) ? real : exec_hook_real_slow(hook);
}

/* The real function by the hook's symbol, to be called like it. */
#define EXEC_REAL(symbol) ((__typeof__(&symbol))(uintptr_t)exec_hook_real(EXEC_HOOK_##symbol))

/* Calls the real function and returns its result; CUDA_ERROR_NOT_FOUND: there is none. */
#define EXEC_CALL(symbol, ...) \
    (exec_hook_real(EXEC_HOOK_##symbol) ? EXEC_REAL(symbol)(__VA_ARGS__) : CUDA_ERROR_NOT_FOUND)

/* ---- NVML, of which no header is needed ---- */

typedef struct exec_nvml_memory {
    unsigned long long total, free, used;
} exec_nvml_memory;

typedef struct exec_nvml_memory_v2 {
    unsigned version;
    unsigned long long total, reserved, free, used;
} exec_nvml_memory_v2;

typedef struct exec_nvml_process {
    unsigned process;
    unsigned long long used; /* all ones: not known */
} exec_nvml_process;

typedef struct exec_nvml_process_v2 {
    unsigned process;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
} exec_nvml_process_v2; /* of the third version, too */

typedef struct exec_nvml_process_detail {
    unsigned process;
    unsigned long long used;
    unsigned gpu_instance, compute_instance;
    unsigned long long protected_bytes;
} exec_nvml_process_detail;

typedef struct exec_nvml_process_details {
    unsigned version, mode, count;
    exec_nvml_process_detail *processes;
} exec_nvml_process_details;

typedef struct exec_nvml_attributes {
    unsigned counts[8];
    unsigned long long mebibytes;
} exec_nvml_attributes;

int nvmlDeviceGetMemoryInfo(void *device, exec_nvml_memory *memory);
int nvmlDeviceGetMemoryInfo_v2(void *device, exec_nvml_memory_v2 *memory);
int nvmlDeviceGetComputeRunningProcesses(void *device, unsigned *count, exec_nvml_process *processes);
int nvmlDeviceGetComputeRunningProcesses_v2(void *device, unsigned *count, exec_nvml_process_v2 *processes);
int nvmlDeviceGetComputeRunningProcesses_v3(void *device, unsigned *count, exec_nvml_process_v2 *processes);
int nvmlDeviceGetGraphicsRunningProcesses(void *device, unsigned *count, exec_nvml_process *processes);
int nvmlDeviceGetGraphicsRunningProcesses_v2(void *device, unsigned *count, exec_nvml_process_v2 *processes);
int nvmlDeviceGetGraphicsRunningProcesses_v3(void *device, unsigned *count, exec_nvml_process_v2 *processes);
int nvmlDeviceGetMPSComputeRunningProcesses(void *device, unsigned *count, exec_nvml_process *processes);
int nvmlDeviceGetMPSComputeRunningProcesses_v2(void *device, unsigned *count, exec_nvml_process_v2 *processes);
int nvmlDeviceGetMPSComputeRunningProcesses_v3(void *device, unsigned *count, exec_nvml_process_v2 *processes);
int nvmlDeviceGetRunningProcessDetailList(void *device, exec_nvml_process_details *details);
int nvmlDeviceGetAttributes_v2(void *device, exec_nvml_attributes *attributes);

#endif
