/* What every file of questions stands on: the driver being asked, the answers being written, and a gate to hold a
 * stream.
 *
 * The program asks a CUDA driver its ordinary and its wrong questions and writes one line for each:
 *     stream.wait_event.null_event = CUDA_ERROR_INVALID_HANDLE
 * Answers are facts that the same driver on the same kind of GPU gives every time. Addresses, handles, ids and clocks
 * are therefore never written, only what can be said about them: equal or not, aligned or not.
 *
 * The questions are grouped in sections, and every section is asked in a process of its own, so that a crash, a hang or
 * a poisoned context costs the rest of one section and is itself an answer. */
#ifndef STRATA_TESTS_ANSWERS_ASK_H
#define STRATA_TESTS_ANSWERS_ASK_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>
#include <stddef.h>

/* X(name, version): the entry point cu<name> with the ABI that it had in that CUDA version. */
#define ENTRY_POINTS(X)                       \
    X(Init, 2000)                             \
    X(DriverGetVersion, 2020)                 \
    X(GetErrorName, 6000)                     \
    X(GetErrorString, 6000)                   \
    X(DeviceGetCount, 2000)                   \
    X(DeviceGet, 2000)                        \
    X(DeviceGetName, 2000)                    \
    X(DeviceGetUuid, 11040)                   \
    X(DeviceTotalMem, 3020)                   \
    X(DeviceGetAttribute, 2000)               \
    X(DeviceGetPCIBusId, 4010)                \
    X(DeviceGetDefaultMemPool, 11020)         \
    X(DeviceGetMemPool, 11020)                \
    X(DeviceSetMemPool, 11020)                \
    X(DevicePrimaryCtxRetain, 7000)           \
    X(DevicePrimaryCtxRelease, 11000)         \
    X(DevicePrimaryCtxReset, 11000)           \
    X(DevicePrimaryCtxGetState, 7000)         \
    X(DevicePrimaryCtxSetFlags, 11000)        \
    X(CtxCreate, 12050)                       \
    X(CtxDestroy, 4000)                       \
    X(CtxGetCurrent, 4000)                    \
    X(CtxSetCurrent, 4000)                    \
    X(CtxPushCurrent, 4000)                   \
    X(CtxPopCurrent, 4000)                    \
    X(CtxGetDevice, 2000)                     \
    X(CtxGetFlags, 7000)                      \
    X(CtxGetId, 12000)                        \
    X(CtxGetApiVersion, 3020)                 \
    X(CtxGetStreamPriorityRange, 5050)        \
    X(CtxSynchronize, 2000)                   \
    X(StreamCreate, 2000)                     \
    X(StreamCreateWithPriority, 5050)         \
    X(StreamDestroy, 4000)                    \
    X(StreamQuery, 2000)                      \
    X(StreamSynchronize, 2000)                \
    X(StreamWaitEvent, 3020)                  \
    X(StreamGetId, 12000)                     \
    X(StreamGetCtx, 9020)                     \
    X(StreamGetDevice, 12080)                 \
    X(StreamGetFlags, 5050)                   \
    X(StreamGetPriority, 5050)                \
    X(StreamIsCapturing, 10000)               \
    X(StreamGetCaptureInfo, 12030)            \
    X(ThreadExchangeStreamCaptureMode, 10010) \
    X(LaunchHostFunc, 10000)                  \
    X(EventCreate, 2000)                      \
    X(EventDestroy, 4000)                     \
    X(EventRecord, 2000)                      \
    X(EventRecordWithFlags, 11010)            \
    X(EventQuery, 2000)                       \
    X(EventSynchronize, 2000)                 \
    X(EventElapsedTime, 2000)                 \
    X(MemGetInfo, 3020)                       \
    X(MemAlloc, 3020)                         \
    X(MemFree, 3020)                          \
    X(MemGetAddressRange, 3020)               \
    X(MemHostAlloc, 2020)                     \
    X(MemFreeHost, 2000)                      \
    X(MemHostGetDevicePointer, 3020)          \
    X(MemHostGetFlags, 2030)                  \
    X(PointerGetAttribute, 4000)              \
    X(MemAllocAsync, 11020)                   \
    X(MemAllocFromPoolAsync, 11020)           \
    X(MemFreeAsync, 11020)                    \
    X(MemPoolCreate, 11020)                   \
    X(MemPoolDestroy, 11020)                  \
    X(MemPoolSetAttribute, 11020)             \
    X(MemPoolGetAttribute, 11020)             \
    X(MemPoolSetAccess, 11020)                \
    X(MemPoolGetAccess, 11020)                \
    X(MemPoolTrimTo, 11020)                   \
    X(MemPoolExportToShareableHandle, 11020)  \
    X(Memcpy, 4000)                           \
    X(MemcpyAsync, 4000)                      \
    X(MemcpyHtoD, 3020)                       \
    X(MemcpyDtoH, 3020)                       \
    X(MemcpyDtoD, 3020)                       \
    X(MemcpyHtoDAsync, 3020)                  \
    X(MemcpyDtoHAsync, 3020)                  \
    X(MemcpyDtoDAsync, 3020)                  \
    X(MemsetD8, 3020)                         \
    X(MemsetD16, 3020)                        \
    X(MemsetD32, 3020)                        \
    X(MemsetD8Async, 3020)                    \
    X(MemsetD16Async, 3020)                   \
    X(MemsetD32Async, 3020)                   \
    X(ModuleLoadData, 2000)                   \
    X(ModuleUnload, 2000)                     \
    X(ModuleGetFunction, 2000)                \
    X(LaunchKernel, 4000)

/* The driver being asked. Filled once by driver_open, read-only afterwards. An entry point that the driver lacks is
 * NULL, and the section that calls it ends there; entry_points.* says which ones are absent. */
struct driver {
    PFN_cuGetProcAddress_v12000 GetProcAddress;
#define MEMBER(name, version) PFN_cu##name##_v##version name;
    ENTRY_POINTS(MEMBER)
#undef MEMBER
};
extern struct driver cu;

/* Opens the driver at path and fills cu. false: it cannot be opened or has no cuGetProcAddress_v2; stderr says why. */
bool driver_open(const char *path);

/* Answers entry_points.*: whether the driver has each entry point. */
void driver_ask_entry_points(void);

/* The name of a result as cuda.h spells it; a number in the same form for a code that cuda.h does not have. */
const char *result_name(CUresult result);

/* Calls visit with every result code of cuda.h and its name. */
void result_visit(void (*visit)(CUresult code, const char *name));

/* Writing an answer. The question is a printf format and its arguments; a question must be asked only once in a run.
 * Each line is out of the process when the call returns. */
void ask(CUresult result, const char *question, ...) __attribute__((format(printf, 2, 3)));
void ask_yes(bool fact, const char *question, ...) __attribute__((format(printf, 2, 3)));
void ask_number(long long number, const char *question, ...) __attribute__((format(printf, 2, 3)));
void ask_text(const char *text, const char *question, ...) __attribute__((format(printf, 2, 3)));
/* The number if the call that gave it succeeded, else the error's name. The call stands in a statement before: as an
 * argument it might be made after the number was read. */
void ask_value(CUresult result, long long number, const char *question, ...) __attribute__((format(printf, 3, 4)));
/* yes or no if the call that gave it succeeded, else the error's name. */
void ask_fact(CUresult result, bool fact, const char *question, ...) __attribute__((format(printf, 3, 4)));

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define PIB (1024 * 1024 * GIB)

/* How long work that nothing holds back may take, in milliseconds: idle GPUs need far less. */
enum { PATIENCE_MS = 250 };

/* Initialises the driver and makes the primary context of device 0 current. */
CUcontext start(void);

/* Runs one fill and one host function on the stream to the end, so that nothing is loaded lazily later. */
void warm_up(CUstream stream);

CUstream new_stream(unsigned flags);
CUevent new_event(void);
CUdeviceptr new_memory(size_t bytes);

/* A mempool of device 0 with the driver's default attributes; max_bytes 0 is no maximum. */
CUmemoryPool new_pool(size_t max_bytes);
unsigned long long pool_number(CUmemoryPool pool, CUmemPool_attribute attribute);
CUmemPoolProps pool_properties(void);

/* Asks again until the answer is not CUDA_ERROR_NOT_READY, PATIENCE_MS at most. */
CUresult settle_event(CUevent event);
CUresult settle_stream(CUstream stream);

/* A gate holds a stream: a host function that blocks until the gate is released, or opens by itself after some time, so
 * that no question can hang. */
struct gate;
enum { GATE_LONG_MS = 5000, GATE_MIDDLE_MS = 700, GATE_SHORT_MS = 500 };

struct gate *gate_hold(CUstream stream, int milliseconds);

/* Opens the gate. false: it had opened by itself before, because the calls made meanwhile waited for the stream. */
bool gate_release(struct gate *gate);

/* The text of a module with the kernel strata_pattern_fill(u64 address, u64 bytes, u64 seed), and the byte it writes.
 */
extern const char pattern_module[];
unsigned char pattern_byte(unsigned long long seed, size_t offset);
CUfunction pattern_fill_function(void);

/* Launches the fill on one block of 256 threads. */
CUresult pattern_fill(CUfunction function, CUdeviceptr address, size_t bytes, unsigned long long seed, CUstream stream);

/* The sections, each in the file that is named for its subject. */
void ask_before_init(void);
void ask_init(void);
void ask_error_names(void);
void ask_devices(void);
void ask_primary_contexts(void);
void ask_primary_reset(void);
void ask_contexts(void);
void ask_without_context(void);
void ask_other_context(void);
void ask_streams(void);
void ask_stream_ids(void);
void ask_stream_handles(void);
void ask_stream_order(void);
void ask_special_stream_destroy(void);
void ask_captures(void);
void ask_events(void);
void ask_event_order(void);
void ask_memory(void);
void ask_memory_waits(void);
void ask_pinned(void);
void ask_pointers(void);
void ask_async(void);
void ask_pools(void);
void ask_pool_attributes(void);
void ask_pool_sizes(void);
void ask_pool_release(void);
void ask_pool_reuse(void);
void ask_copies(void);
void ask_fills(void);
void ask_copy_ranges(void);
void ask_copy_waits(void);
void ask_host_functions(void);
void ask_modules(void);
void ask_launches(void);
void ask_poison(void);
void ask_exit_before_open(void);
void ask_exit(void);
void ask_fork(void);

#endif
