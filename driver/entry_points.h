/* Every CUDA driver entry point that Strata, its tools, examples and tests call, except cuGetProcAddress, which dlsym
 * finds.
 *
 * X(need, name, version, parameters, arguments)
 *   need        REQUIRED: a driver without it is refused. OPTIONAL: its absence is a capability that is false.
 *   name        the driver's name without "cu"
 *   version     the CUDA version of the requested ABI, as in PFN_cu<name>_v<version>
 *   parameters, arguments   for the counting wrappers of driver/calls.c
 *
 * Streams have their legacy meaning; the public headers translate stream 0 for programs built with
 * CUDA_API_PER_THREAD_DEFAULT_STREAM. */
#ifndef STRATA_DRIVER_ENTRY_POINTS_H
#define STRATA_DRIVER_ENTRY_POINTS_H

/* clang-format off */
#define STRATA_ENTRY_POINTS(X)                                                                                                     \
    /* start, versions, error names */                                                                                             \
    X(REQUIRED, Init, 2000, (unsigned flags), (flags))                                                                             \
    X(REQUIRED, DriverGetVersion, 2020, (int *version), (version))                                                                 \
    X(REQUIRED, GetErrorName, 6000, (CUresult error, const char **text), (error, text))                                            \
    X(REQUIRED, GetErrorString, 6000, (CUresult error, const char **text), (error, text))                                          \
    /* devices */                                                                                                                  \
    X(REQUIRED, DeviceGetCount, 2000, (int *count), (count))                                                                       \
    X(REQUIRED, DeviceGet, 2000, (CUdevice *device, int ordinal), (device, ordinal))                                               \
    X(REQUIRED, DeviceGetName, 2000, (char *name, int length, CUdevice device), (name, length, device))                            \
    X(OPTIONAL, DeviceGetUuid, 11040, (CUuuid *uuid, CUdevice device), (uuid, device))                                             \
    X(REQUIRED, DeviceTotalMem, 3020, (size_t *bytes, CUdevice device), (bytes, device))                                           \
    X(REQUIRED, DeviceGetAttribute, 2000, (int *value, CUdevice_attribute attribute, CUdevice device), (value, attribute, device)) \
    X(OPTIONAL, DeviceCanAccessPeer, 4000, (int *can, CUdevice device, CUdevice peer), (can, device, peer))                        \
    X(OPTIONAL, DeviceGetPCIBusId, 4010, (char *id, int length, CUdevice device), (id, length, device))                            \
    X(OPTIONAL, DeviceGetDefaultMemPool, 11020, (CUmemoryPool *pool, CUdevice device), (pool, device))                             \
    X(OPTIONAL, DeviceGetMemPool, 11020, (CUmemoryPool *pool, CUdevice device), (pool, device))                                    \
    X(OPTIONAL, DeviceSetMemPool, 11020, (CUdevice device, CUmemoryPool pool), (device, pool))                                     \
    /* contexts */                                                                                                                 \
    X(REQUIRED, DevicePrimaryCtxRetain, 7000, (CUcontext *context, CUdevice device), (context, device))                            \
    X(REQUIRED, DevicePrimaryCtxRelease, 11000, (CUdevice device), (device))                                                       \
    X(OPTIONAL, DevicePrimaryCtxReset, 11000, (CUdevice device), (device))                                                         \
    X(OPTIONAL, DevicePrimaryCtxGetState, 7000, (CUdevice device, unsigned *flags, int *active), (device, flags, active))          \
    X(OPTIONAL, CtxGetDevice, 2000, (CUdevice *device), (device))                                                                  \
    X(REQUIRED, CtxGetCurrent, 4000, (CUcontext *context), (context))                                                              \
    X(OPTIONAL, CtxGetId, 12000, (CUcontext context, unsigned long long *id), (context, id))                                       \
    X(REQUIRED, CtxSetCurrent, 4000, (CUcontext context), (context))                                                               \
    X(OPTIONAL, CtxPushCurrent, 4000, (CUcontext context), (context))                                                              \
    X(OPTIONAL, CtxPopCurrent, 4000, (CUcontext *context), (context))                                                              \
    X(OPTIONAL, CtxGetStreamPriorityRange, 5050, (int *least, int *greatest), (least, greatest))                                   \
    X(OPTIONAL, CtxSynchronize, 2000, (void), ())                                                                                  \
    /* streams */                                                                                                                  \
    X(REQUIRED, StreamCreate, 2000, (CUstream *stream, unsigned flags), (stream, flags))                                           \
    X(REQUIRED, StreamDestroy, 4000, (CUstream stream), (stream))                                                                  \
    X(OPTIONAL, StreamCreateWithPriority, 5050, (CUstream *stream, unsigned flags, int priority), (stream, flags, priority)) \
    X(REQUIRED, StreamQuery, 2000, (CUstream stream), (stream))                                                                    \
    X(OPTIONAL, StreamGetCtx, 9020, (CUstream stream, CUcontext *context), (stream, context))                                      \
    X(REQUIRED, StreamSynchronize, 2000, (CUstream stream), (stream))                                                              \
    X(REQUIRED, StreamWaitEvent, 3020, (CUstream stream, CUevent event, unsigned flags), (stream, event, flags))                   \
    X(OPTIONAL, StreamGetId, 12000, (CUstream stream, unsigned long long *id), (stream, id))                                       \
    X(REQUIRED, StreamIsCapturing, 10000, (CUstream stream, CUstreamCaptureStatus *status), (stream, status))                      \
    X(REQUIRED, ThreadExchangeStreamCaptureMode, 10010, (CUstreamCaptureMode *mode), (mode))                                       \
    X(OPTIONAL, StreamBeginCapture, 10010, (CUstream stream, CUstreamCaptureMode mode), (stream, mode))                             \
    X(OPTIONAL, StreamBeginCaptureToGraph, 12030, (CUstream stream, CUgraph graph, const CUgraphNode *dependencies, const CUgraphEdgeData *edges, size_t count, CUstreamCaptureMode mode), (stream, graph, dependencies, edges, count, mode)) \
    X(OPTIONAL, StreamEndCapture, 10000, (CUstream stream, CUgraph *graph), (stream, graph))                                       \
    X(OPTIONAL, StreamGetCaptureInfo, 11030, (CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph, const CUgraphNode **nodes, size_t *count), (stream, status, id, graph, nodes, count)) \
    X(OPTIONAL, StreamUpdateCaptureDependencies, 11030, (CUstream stream, CUgraphNode *nodes, size_t count, unsigned flags), (stream, nodes, count, flags)) \
    X(OPTIONAL, StreamWriteValue64, 11070, (CUstream stream, CUdeviceptr address, cuuint64_t value, unsigned flags), (stream, address, value, flags)) \
    X(OPTIONAL, LaunchHostFunc, 10000, (CUstream stream, CUhostFn function, void *data), (stream, function, data))                 \
    /* events */                                                                                                                   \
    X(REQUIRED, EventCreate, 2000, (CUevent *event, unsigned flags), (event, flags))                                               \
    X(REQUIRED, EventDestroy, 4000, (CUevent event), (event))                                                                      \
    X(REQUIRED, EventRecord, 2000, (CUevent event, CUstream stream), (event, stream))                                              \
    X(REQUIRED, EventQuery, 2000, (CUevent event), (event))                                                                        \
    X(REQUIRED, EventSynchronize, 2000, (CUevent event), (event))                                                                  \
    /* graphs */                                                                                                                   \
    X(OPTIONAL, GraphInstantiateWithParams, 12000, (CUgraphExec *exec, CUgraph graph, CUDA_GRAPH_INSTANTIATE_PARAMS *parameters), (exec, graph, parameters)) \
    X(OPTIONAL, GraphLaunch, 10000, (CUgraphExec exec, CUstream stream), (exec, stream))                                           \
    X(OPTIONAL, GraphUpload, 11010, (CUgraphExec exec, CUstream stream), (exec, stream))                                           \
    X(OPTIONAL, GraphExecUpdate, 12000, (CUgraphExec exec, CUgraph graph, CUgraphExecUpdateResultInfo *info), (exec, graph, info))     \
    X(OPTIONAL, GraphExecKernelNodeSetParams, 12000, (CUgraphExec exec, CUgraphNode node, const CUDA_KERNEL_NODE_PARAMS *parameters), (exec, node, parameters)) \
    X(OPTIONAL, GraphExecMemcpyNodeSetParams, 10020, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMCPY3D *copy, CUcontext context), (exec, node, copy, context)) \
    X(OPTIONAL, GraphExecMemsetNodeSetParams, 10020, (CUgraphExec exec, CUgraphNode node, const CUDA_MEMSET_NODE_PARAMS *fill, CUcontext context), (exec, node, fill, context)) \
    X(OPTIONAL, GraphAddChildGraphNode, 10000, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraph child), (node, graph, dependencies, count, child)) \
    X(OPTIONAL, GraphAddNode, 12020, (CUgraphNode *node, CUgraph graph, const CUgraphNode *dependencies, size_t count, CUgraphNodeParams *parameters), (node, graph, dependencies, count, parameters)) \
    X(OPTIONAL, GraphAddDependencies, 10000, (CUgraph graph, const CUgraphNode *from, const CUgraphNode *to, size_t count), (graph, from, to, count)) \
    X(OPTIONAL, GraphConditionalHandleCreate, 12030, (CUgraphConditionalHandle *handle, CUgraph graph, CUcontext context, unsigned initial, unsigned flags), (handle, graph, context, initial, flags)) \
    X(OPTIONAL, GraphExecDestroy, 10000, (CUgraphExec exec), (exec))                                                               \
    X(OPTIONAL, GraphDestroy, 10000, (CUgraph graph), (graph))                                                                     \
    X(OPTIONAL, GraphDebugDotPrint, 11030, (CUgraph graph, const char *path, unsigned flags), (graph, path, flags))                \
    X(OPTIONAL, GraphGetNodes, 10000, (CUgraph graph, CUgraphNode *nodes, size_t *count), (graph, nodes, count))                   \
    X(OPTIONAL, GraphNodeGetDependencies, 10000, (CUgraphNode node, CUgraphNode *nodes, size_t *count), (node, nodes, count))      \
    X(OPTIONAL, GraphNodeGetType, 10000, (CUgraphNode node, CUgraphNodeType *type), (node, type))                                  \
    /* memory */                                                                                                                   \
    X(REQUIRED, MemGetInfo, 3020, (size_t *free_bytes, size_t *total_bytes), (free_bytes, total_bytes))                            \
    X(REQUIRED, MemAlloc, 3020, (CUdeviceptr *address, size_t bytes), (address, bytes))                                            \
    X(OPTIONAL, MemHostRegister, 6050, (void *address, size_t bytes, unsigned flags), (address, bytes, flags)) \
    X(OPTIONAL, MemHostUnregister, 4000, (void *address), (address)) \
    X(OPTIONAL, MemHostGetDevicePointer, 3020, (CUdeviceptr *device, void *address, unsigned flags), (device, address, flags)) \
    X(REQUIRED, MemFree, 3020, (CUdeviceptr address), (address))                                                                   \
    X(REQUIRED, MemHostAlloc, 2020, (void **address, size_t bytes, unsigned flags), (address, bytes, flags))                       \
    X(REQUIRED, MemFreeHost, 2000, (void *address), (address))                                                                     \
    X(OPTIONAL, MemGetAddressRange, 3020, (CUdeviceptr *start, size_t *bytes, CUdeviceptr address), (start, bytes, address))       \
    X(REQUIRED, PointerGetAttribute, 4000, (void *value, CUpointer_attribute attribute, CUdeviceptr address), (value, attribute, address)) \
    /* managed memory */                                                                                                           \
    X(OPTIONAL, MemAllocManaged, 6000, (CUdeviceptr *address, size_t bytes, unsigned flags), (address, bytes, flags))              \
    X(OPTIONAL, MemPrefetchAsync, 12020, (CUdeviceptr address, size_t bytes, CUmemLocation to, unsigned flags, CUstream stream), (address, bytes, to, flags, stream))\
    X(OPTIONAL, MemAdvise, 12020, (CUdeviceptr address, size_t bytes, CUmem_advise advice, CUmemLocation location), (address, bytes, advice, location))\
    /* stream-ordered memory */                                                                                                    \
    X(OPTIONAL, MemAllocFromPoolAsync, 11020, (CUdeviceptr *address, size_t bytes, CUmemoryPool pool, CUstream stream), (address, bytes, pool, stream)) \
    X(OPTIONAL, MemFreeAsync, 11020, (CUdeviceptr address, CUstream stream), (address, stream))                                    \
    X(OPTIONAL, MemPoolCreate, 11020, (CUmemoryPool *pool, const CUmemPoolProps *properties), (pool, properties))                  \
    X(OPTIONAL, MemPoolDestroy, 11020, (CUmemoryPool pool), (pool))                                                                \
    X(OPTIONAL, MemPoolSetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value)) \
    X(OPTIONAL, MemPoolGetAttribute, 11020, (CUmemoryPool pool, CUmemPool_attribute attribute, void *value), (pool, attribute, value)) \
    X(OPTIONAL, MemPoolTrimTo, 11020, (CUmemoryPool pool, size_t keep_bytes), (pool, keep_bytes))                                  \
    /* virtual memory */                                                                                                           \
    X(OPTIONAL, MemGetAllocationGranularity, 10020, (size_t *granularity, const CUmemAllocationProp *properties, CUmemAllocationGranularity_flags which), (granularity, properties, which)) \
    X(OPTIONAL, MemAddressReserve, 10020, (CUdeviceptr *address, size_t bytes, size_t alignment, CUdeviceptr wish, unsigned long long flags), (address, bytes, alignment, wish, flags)) \
    X(OPTIONAL, MemAddressFree, 10020, (CUdeviceptr address, size_t bytes), (address, bytes))                                      \
    X(OPTIONAL, MemCreate, 10020, (CUmemGenericAllocationHandle *handle, size_t bytes, const CUmemAllocationProp *properties, unsigned long long flags), (handle, bytes, properties, flags)) \
    X(OPTIONAL, MemRelease, 10020, (CUmemGenericAllocationHandle handle), (handle))                                                \
    X(OPTIONAL, MemMap, 10020, (CUdeviceptr address, size_t bytes, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags), (address, bytes, offset, handle, flags)) \
    X(OPTIONAL, MemUnmap, 10020, (CUdeviceptr address, size_t bytes), (address, bytes))                                            \
    X(OPTIONAL, MemSetAccess, 10020, (CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count), (address, bytes, access, count)) \
    X(OPTIONAL, MemExportToShareableHandle, 10020, (void *shareable, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType type, unsigned long long flags), (shareable, handle, type, flags)) \
    /* copies and fills */                                                                                                         \
    X(REQUIRED, MemcpyHtoDAsync, 3020, (CUdeviceptr to, const void *from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(REQUIRED, MemcpyDtoHAsync, 3020, (void *to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream))     \
    X(OPTIONAL, MemcpyDtoDAsync, 3020, (CUdeviceptr to, CUdeviceptr from, size_t bytes, CUstream stream), (to, from, bytes, stream)) \
    X(REQUIRED, MemsetD8Async, 3020, (CUdeviceptr to, unsigned char value, size_t count, CUstream stream), (to, value, count, stream)) \
    X(OPTIONAL, MemsetD32Async, 3020, (CUdeviceptr to, unsigned value, size_t count, CUstream stream), (to, value, count, stream)) \
    /* modules and kernels */                                                                                                      \
    X(REQUIRED, ModuleLoadData, 2000, (CUmodule *module, const void *image), (module, image))                                      \
    X(REQUIRED, ModuleUnload, 2000, (CUmodule module), (module))                                                                   \
    X(REQUIRED, ModuleGetFunction, 2000, (CUfunction *function, CUmodule module, const char *name), (function, module, name))      \
    X(OPTIONAL, FuncGetParamInfo, 12040, (CUfunction function, size_t index, size_t *offset, size_t *bytes), (function, index, offset, bytes)) \
    X(REQUIRED, LaunchKernel, 4000, (CUfunction function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared_bytes, CUstream stream, void **parameters, void **extra), (function, gx, gy, gz, bx, by, bz, shared_bytes, stream, parameters, extra))
/* clang-format on */

#endif
