/* What all files of questions use: the driver that is asked, the output of answers, and a gate that holds a stream.
 *
 * The program asks a CUDA driver correct and wrong questions and writes a line for each:
 *     stream.wait_event.null_event = CUDA_ERROR_INVALID_HANDLE
 * Answers are facts that the same driver gives every time on the same kind of GPU. Addresses, handles, ids and clocks
 * are therefore never written, only their properties: equal or not, aligned or not.
 *
 * Questions are grouped in sections. Each section runs in a process of its own, so a crash, a hang or a poisoned
 * context loses the rest of one section, and is an answer itself. */
#ifndef STRATA_TESTS_ANSWERS_ASK_H
#define STRATA_TESTS_ANSWERS_ASK_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdbool.h>
#include <stddef.h>

/* X(name, version): the entry point cu<name> with its ABI of that CUDA version. */
#define ENTRY_POINTS(X)                            \
    X(Init, 2000)                                  \
    X(DriverGetVersion, 2020)                      \
    X(GetErrorName, 6000)                          \
    X(GetErrorString, 6000)                        \
    X(DeviceGetCount, 2000)                        \
    X(DeviceGet, 2000)                             \
    X(DeviceGetName, 2000)                         \
    X(DeviceGetUuid, 11040)                        \
    X(DeviceTotalMem, 3020)                        \
    X(DeviceGetAttribute, 2000)                    \
    X(DeviceGetPCIBusId, 4010)                     \
    X(DeviceGetDefaultMemPool, 11020)              \
    X(DeviceGetMemPool, 11020)                     \
    X(DeviceSetMemPool, 11020)                     \
    X(DevicePrimaryCtxRetain, 7000)                \
    X(DevicePrimaryCtxRelease, 11000)              \
    X(DevicePrimaryCtxReset, 11000)                \
    X(DevicePrimaryCtxGetState, 7000)              \
    X(DevicePrimaryCtxSetFlags, 11000)             \
    X(CtxCreate, 12050)                            \
    X(CtxDestroy, 4000)                            \
    X(CtxGetCurrent, 4000)                         \
    X(CtxSetCurrent, 4000)                         \
    X(CtxPushCurrent, 4000)                        \
    X(CtxPopCurrent, 4000)                         \
    X(CtxGetDevice, 2000)                          \
    X(CtxGetFlags, 7000)                           \
    X(CtxGetId, 12000)                             \
    X(CtxGetApiVersion, 3020)                      \
    X(CtxGetStreamPriorityRange, 5050)             \
    X(CtxSynchronize, 2000)                        \
    X(StreamCreate, 2000)                          \
    X(StreamCreateWithPriority, 5050)              \
    X(StreamDestroy, 4000)                         \
    X(StreamQuery, 2000)                           \
    X(StreamSynchronize, 2000)                     \
    X(StreamWaitEvent, 3020)                       \
    X(StreamGetId, 12000)                          \
    X(StreamGetCtx, 9020)                          \
    X(StreamGetDevice, 12080)                      \
    X(StreamGetFlags, 5050)                        \
    X(StreamGetPriority, 5050)                     \
    X(StreamIsCapturing, 10000)                    \
    X(StreamGetCaptureInfo, 12030)                 \
    X(StreamBeginCapture, 10010)                   \
    X(StreamBeginCaptureToGraph, 12030)            \
    X(StreamEndCapture, 10000)                     \
    X(StreamUpdateCaptureDependencies, 12030)      \
    X(ThreadExchangeStreamCaptureMode, 10010)      \
    X(LaunchHostFunc, 10000)                       \
    X(StreamAddCallback, 5000)                     \
    X(EventCreate, 2000)                           \
    X(EventDestroy, 4000)                          \
    X(EventRecord, 2000)                           \
    X(EventRecordWithFlags, 11010)                 \
    X(EventQuery, 2000)                            \
    X(EventSynchronize, 2000)                      \
    X(EventElapsedTime, 2000)                      \
    X(MemGetInfo, 3020)                            \
    X(MemAlloc, 3020)                              \
    X(MemFree, 3020)                               \
    X(MemGetAddressRange, 3020)                    \
    X(MemHostAlloc, 2020)                          \
    X(MemFreeHost, 2000)                           \
    X(MemHostGetDevicePointer, 3020)               \
    X(MemHostGetFlags, 2030)                       \
    X(PointerGetAttribute, 4000)                   \
    X(PointerGetAttributes, 7000)                  \
    X(PointerSetAttribute, 6000)                   \
    X(MemAllocAsync, 11020)                        \
    X(MemAllocFromPoolAsync, 11020)                \
    X(MemFreeAsync, 11020)                         \
    X(MemPoolCreate, 11020)                        \
    X(MemPoolDestroy, 11020)                       \
    X(MemPoolSetAttribute, 11020)                  \
    X(MemPoolGetAttribute, 11020)                  \
    X(MemPoolSetAccess, 11020)                     \
    X(MemPoolGetAccess, 11020)                     \
    X(MemPoolTrimTo, 11020)                        \
    X(MemPoolExportToShareableHandle, 11020)       \
    X(Memcpy, 4000)                                \
    X(MemcpyAsync, 4000)                           \
    X(MemcpyHtoD, 3020)                            \
    X(MemcpyDtoH, 3020)                            \
    X(MemcpyDtoD, 3020)                            \
    X(MemcpyHtoDAsync, 3020)                       \
    X(MemcpyDtoHAsync, 3020)                       \
    X(MemcpyDtoDAsync, 3020)                       \
    X(MemsetD8, 3020)                              \
    X(MemsetD16, 3020)                             \
    X(MemsetD32, 3020)                             \
    X(MemsetD8Async, 3020)                         \
    X(MemsetD16Async, 3020)                        \
    X(MemsetD32Async, 3020)                        \
    X(MemsetD2D8, 3020)                            \
    X(MemsetD2D16, 3020)                           \
    X(MemsetD2D32, 3020)                           \
    X(MemsetD2D8Async, 3020)                       \
    X(MemsetD2D16Async, 3020)                      \
    X(MemsetD2D32Async, 3020)                      \
    X(ModuleLoadData, 2000)                        \
    X(ModuleUnload, 2000)                          \
    X(ModuleGetFunction, 2000)                     \
    X(LaunchKernel, 4000)                          \
    X(GraphCreate, 10000)                          \
    X(GraphDestroy, 10000)                         \
    X(GraphClone, 10000)                           \
    X(GraphNodeFindInClone, 10000)                 \
    X(GraphAddNode, 12020)                         \
    X(GraphConditionalHandleCreate, 12030)         \
    X(GraphAddEmptyNode, 10000)                    \
    X(GraphAddKernelNode, 12000)                   \
    X(GraphAddMemcpyNode, 10000)                   \
    X(GraphAddMemsetNode, 10000)                   \
    X(GraphAddHostNode, 10000)                     \
    X(GraphAddChildGraphNode, 10000)               \
    X(GraphAddEventRecordNode, 11010)              \
    X(GraphAddEventWaitNode, 11010)                \
    X(GraphAddMemAllocNode, 11040)                 \
    X(GraphAddMemFreeNode, 11040)                  \
    X(GraphKernelNodeGetParams, 12000)             \
    X(GraphKernelNodeSetParams, 12000)             \
    X(GraphMemcpyNodeGetParams, 10000)             \
    X(GraphMemcpyNodeSetParams, 10000)             \
    X(GraphMemsetNodeGetParams, 10000)             \
    X(GraphMemsetNodeSetParams, 10000)             \
    X(GraphHostNodeGetParams, 10000)               \
    X(GraphHostNodeSetParams, 10000)               \
    X(GraphChildGraphNodeGetGraph, 10000)          \
    X(GraphEventRecordNodeGetEvent, 11010)         \
    X(GraphEventRecordNodeSetEvent, 11010)         \
    X(GraphEventWaitNodeGetEvent, 11010)           \
    X(GraphEventWaitNodeSetEvent, 11010)           \
    X(GraphMemAllocNodeGetParams, 11040)           \
    X(GraphMemFreeNodeGetParams, 11040)            \
    X(GraphNodeGetType, 10000)                     \
    X(GraphGetNodes, 10000)                        \
    X(GraphGetRootNodes, 10000)                    \
    X(GraphGetEdges, 12030)                        \
    X(GraphNodeGetDependencies, 12030)             \
    X(GraphNodeGetDependentNodes, 12030)           \
    X(GraphAddDependencies, 12030)                 \
    X(GraphRemoveDependencies, 12030)              \
    X(GraphDestroyNode, 10000)                     \
    X(GraphInstantiateWithFlags, 11040)            \
    X(GraphInstantiateWithParams, 12000)           \
    X(GraphExecGetFlags, 12000)                    \
    X(GraphUpload, 11010)                          \
    X(GraphLaunch, 10000)                          \
    X(GraphExecUpdate, 12000)                      \
    X(GraphExecKernelNodeSetParams, 12000)         \
    X(GraphExecMemcpyNodeSetParams, 10020)         \
    X(GraphExecMemsetNodeSetParams, 10020)         \
    X(GraphExecHostNodeSetParams, 10020)           \
    X(GraphExecChildGraphNodeSetParams, 11010)     \
    X(GraphExecEventRecordNodeSetEvent, 11010)     \
    X(GraphExecEventWaitNodeSetEvent, 11010)       \
    X(GraphNodeSetEnabled, 11060)                  \
    X(GraphNodeGetEnabled, 11060)                  \
    X(GraphExecDestroy, 10000)                     \
    X(GraphDebugDotPrint, 11030)                   \
    X(DeviceGetGraphMemAttribute, 11040)           \
    X(DeviceSetGraphMemAttribute, 11040)           \
    X(DeviceGraphMemTrim, 11040)                   \
    X(UserObjectCreate, 11030)                     \
    X(UserObjectRetain, 11030)                     \
    X(UserObjectRelease, 11030)                    \
    X(GraphRetainUserObject, 11030)                \
    X(GraphReleaseUserObject, 11030)               \
    X(MemAddressReserve, 10020)                    \
    X(MemAddressFree, 10020)                       \
    X(MemCreate, 10020)                            \
    X(MemRelease, 10020)                           \
    X(MemMap, 10020)                               \
    X(MemUnmap, 10020)                             \
    X(MemSetAccess, 10020)                         \
    X(MemGetAccess, 10020)                         \
    X(MemExportToShareableHandle, 10020)           \
    X(MemImportFromShareableHandle, 10020)         \
    X(MemGetAllocationGranularity, 10020)          \
    X(MemGetAllocationPropertiesFromHandle, 10020) \
    X(MemRetainAllocationHandle, 11000)            \
    X(MemAllocPitch, 3020)                         \
    X(Memcpy2D, 3020)                              \
    X(Memcpy2DUnaligned, 3020)                     \
    X(Memcpy2DAsync, 3020)                         \
    X(Memcpy3D, 3020)                              \
    X(Memcpy3DAsync, 3020)                         \
    X(MemAllocManaged, 6000)                       \
    X(MemPrefetchAsync, 12020)                     \
    X(MemAdvise, 12020)                            \
    X(MemRangeGetAttribute, 8000)                  \
    X(MemHostRegister, 6050)                       \
    X(MemHostUnregister, 4000)                     \
    X(StreamWriteValue32, 11070)                   \
    X(StreamWriteValue64, 11070)                   \
    X(StreamWaitValue32, 11070)                    \
    X(StreamWaitValue64, 11070)                    \
    X(StreamBatchMemOp, 11070)                     \
    X(DeviceCanAccessPeer, 4000)                   \
    X(DeviceGetP2PAttribute, 8000)                 \
    X(CtxEnablePeerAccess, 4000)                   \
    X(CtxDisablePeerAccess, 4000)                  \
    X(MemcpyPeer, 4000)                            \
    X(MemcpyPeerAsync, 4000)

/* The driver that is asked. Filled once by driver_open, then read only. A missing entry point is NULL, and the section
 * that calls it ends there; entry_points.* tells which are missing. */
struct driver {
    PFN_cuGetProcAddress_v12000 GetProcAddress;
#define MEMBER(name, version) PFN_cu##name##_v##version name;
    ENTRY_POINTS(MEMBER)
#undef MEMBER
};
extern struct driver cu;

/* Opens the driver at `path` and fills cu. False: it cannot be opened or has no cuGetProcAddress_v2; stderr has the
 * reason. */
bool driver_open(const char *path);

/* Answers entry_points.*: whether the driver has each entry point. */
void driver_ask_entry_points(void);

/* The name of a result as in cuda.h, or its number in the same form. */
const char *result_name(CUresult result);

/* Calls `visit` with every result code of cuda.h and its name. */
void result_visit(void (*visit)(CUresult code, const char *name));

/* Writes an answer. The question is a printf format with arguments, and must be asked only once in a run. The line has
 * left the process when the call returns. */
void ask(CUresult result, const char *question, ...) __attribute__((format(printf, 2, 3)));
void ask_yes(bool fact, const char *question, ...) __attribute__((format(printf, 2, 3)));
void ask_number(long long number, const char *question, ...) __attribute__((format(printf, 2, 3)));
void ask_text(const char *text, const char *question, ...) __attribute__((format(printf, 2, 3)));
/* Writes the number if the call succeeded, else the error's name. The call must be an earlier statement: an argument
 * may be evaluated after the number was read. */
void ask_value(CUresult result, long long number, const char *question, ...) __attribute__((format(printf, 3, 4)));
/* Writes yes or no if the call succeeded, else the error's name. */
void ask_fact(CUresult result, bool fact, const char *question, ...) __attribute__((format(printf, 3, 4)));

#define KIB ((size_t)1024)
#define MIB (1024 * KIB)
#define GIB (1024 * MIB)
#define PIB (1024 * 1024 * GIB)

/* Limit for work that nothing holds back, in milliseconds; idle GPUs need far less. */
enum { PATIENCE_MS = 250 };

/* Initialises the driver and makes the primary context of device 0 current. */
CUcontext start(void);

/* Runs a fill and a host function on the stream to the end, so that nothing is loaded lazily later. */
void warm_up(CUstream stream);

CUstream new_stream(unsigned flags);
CUevent new_event(void);
CUdeviceptr new_memory(size_t bytes);

/* A mempool of device 0 with default attributes; max_bytes 0: no maximum. */
CUmemoryPool new_pool(size_t max_bytes);
unsigned long long pool_number(CUmemoryPool pool, CUmemPool_attribute attribute);
CUmemPoolProps pool_properties(void);

/* Queries until the answer is not CUDA_ERROR_NOT_READY, for at most PATIENCE_MS. */
CUresult await_event(CUevent event);
CUresult await_stream(CUstream stream);

/* A gate holds a stream: a host function that blocks until the gate is released. It opens by itself after a time, so
 * that no question hangs. */
struct gate;
enum { GATE_LONG_MS = 5000, GATE_MIDDLE_MS = 700, GATE_SHORT_MS = 500 };

struct gate *gate_hold(CUstream stream, int milliseconds);

/* Opens the gate. False: it had opened by itself, since calls made meanwhile waited for the stream. */
bool gate_release(struct gate *gate);

/* The text of a module with the kernel strata_pattern_fill(u64 address, u64 bytes, u64 seed), and the byte that it
 * writes. */
extern const char pattern_module[];
unsigned char pattern_byte(unsigned long long seed, size_t offset);
CUfunction pattern_fill_function(void);

/* Launches the fill on one block of 256 threads. */
CUresult pattern_fill(CUfunction function, CUdeviceptr address, size_t bytes, unsigned long long seed, CUstream stream);

/* Asks every pointer attribute of an address in an allocation at `base`, as pointer.<name>.*. */
void ask_pointer_attributes(const char *name, CUdeviceptr address, CUdeviceptr base, CUcontext context,
                            CUmemoryPool pool);

/* The sections, each in the file named for its subject. */
void ask_before_init(void);
void ask_init(void);
void ask_error_names(void);
void ask_devices(void);
void ask_primary_contexts(void);
void ask_primary_reset(void);
void ask_reset_streams(void);
void ask_reset_streams_anew(void);
void ask_reset_memory(void);
void ask_reset_memory_anew(void);
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
void ask_capture_begin(void);
void ask_capture_fork(void);
void ask_capture_graphs(void);
void ask_capture_memory(void);
void ask_capture_to_graph(void);
void ask_capture_dependencies(void);
void ask_capture_destroyed(void);
void ask_capture_calls_global(void);
void ask_capture_calls_thread_local(void);
void ask_capture_calls_relaxed(void);
void ask_capture_legacy(void);
void ask_capture_exchanged(void);
void ask_capture_features(void);
void ask_graph_create(void);
void ask_graph_nodes(void);
void ask_graph_memory_nodes(void);
void ask_graph_circle(void);
void ask_graph_structure(void);
void ask_graph_params(void);
void ask_graph_objects(void);
void ask_graph_dot(void);
void ask_graph_instantiate(void);
void ask_graph_order(void);
void ask_graph_update(void);
void ask_graph_memory(void);
void ask_conditional_handles(void);
void ask_conditional_nodes(void);
void ask_conditional_bodies(void);
void ask_conditional_runs(void);
void ask_conditional_captures(void);
void ask_poison(void);
void ask_vmm_properties(void);
void ask_vmm_reserve(void);
void ask_vmm_create(void);
void ask_vmm_map(void);
void ask_vmm_unmap(void);
void ask_vmm_info(void);
void ask_vmm_access(void);
void ask_vmm_ranges(void);
void ask_vmm_host(void);
void ask_vmm_share(void);
void ask_vmm_no_access(void);
void ask_vmm_read_only(void);
void ask_memory_attributes(void);
void ask_copies_2d(void);
void ask_fills_2d(void);
void ask_copy_2d_waits(void);
void ask_managed(void);
void ask_managed_advice(void);
void ask_registered(void);
void ask_value_writes(void);
void ask_value_waits(void);
void ask_value_batches(void);
void ask_peer_access(void);
void ask_peer_copies(void);
void ask_peer_pools(void);
void ask_peer_maps(void);
void ask_peer_faults(void);
void ask_peer_copies_of_maps(void);
void ask_exit_before_open(void);
void ask_exit(void);
void ask_fork(void);

#endif
