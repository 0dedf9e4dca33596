/* The driver's functions that these programs call. */
#ifndef STRATA_TEST_EXEC_CALLS_H
#define STRATA_TEST_EXEC_CALLS_H

#define __CUDA_API_VERSION_INTERNAL /* every form under its own name */
#include <cuda.h>

/* X(name, symbol, version): as cuGetProcAddress takes it, and as libcuda exports it. */
#define CALLS(X)                                                             \
    X(cuInit, cuInit, 2000)                                                  \
    X(cuDevicePrimaryCtxRetain, cuDevicePrimaryCtxRetain, 7000)              \
    X(cuDevicePrimaryCtxRelease, cuDevicePrimaryCtxRelease_v2, 11000)        \
    X(cuDevicePrimaryCtxReset, cuDevicePrimaryCtxReset_v2, 11000)            \
    X(cuDevicePrimaryCtxGetState, cuDevicePrimaryCtxGetState, 7000)          \
    X(cuCtxCreate, cuCtxCreate_v2, 3020)                                     \
    X(cuCtxDestroy, cuCtxDestroy_v2, 4000)                                   \
    X(cuCtxEnablePeerAccess, cuCtxEnablePeerAccess, 4000)                    \
    X(cuDeviceGetCount, cuDeviceGetCount, 2000)                              \
    X(cuDeviceSetMemPool, cuDeviceSetMemPool, 11020)                         \
    X(cuMemPoolCreate, cuMemPoolCreate, 11020)                               \
    X(cuMemPoolDestroy, cuMemPoolDestroy, 11020)                             \
    X(cuMemAllocFromPoolAsync, cuMemAllocFromPoolAsync, 11020)               \
    X(cuMemPoolGetAttribute, cuMemPoolGetAttribute, 11020)                   \
    X(cuMemPoolSetAttribute, cuMemPoolSetAttribute, 11020)                   \
    X(cuMemPoolTrimTo, cuMemPoolTrimTo, 11020)                               \
    X(cuDeviceGetDefaultMemPool, cuDeviceGetDefaultMemPool, 11020)           \
    X(cuDeviceGetGraphMemAttribute, cuDeviceGetGraphMemAttribute, 11040)     \
    X(cuDeviceGraphMemTrim, cuDeviceGraphMemTrim, 11040)                     \
    X(cuGraphCreate, cuGraphCreate, 10000)                                   \
    X(cuGraphAddMemAllocNode, cuGraphAddMemAllocNode, 11040)                 \
    X(cuGraphAddMemFreeNode, cuGraphAddMemFreeNode, 11040)                   \
    X(cuGraphInstantiate, cuGraphInstantiateWithFlags, 12000)                \
    X(cuGraphLaunch, cuGraphLaunch, 10000)                                   \
    X(cuGraphDestroy, cuGraphDestroy, 10000)                                 \
    X(cuGraphExecDestroy, cuGraphExecDestroy, 10000)                         \
    X(cuCtxGetCurrent, cuCtxGetCurrent, 4000)                                \
    X(cuCtxSetCurrent, cuCtxSetCurrent, 4000)                                \
    X(cuCtxSynchronize, cuCtxSynchronize, 2000)                              \
    X(cuDeviceTotalMem, cuDeviceTotalMem_v2, 3020)                           \
    X(cuMemGetInfo, cuMemGetInfo_v2, 3020)                                   \
    X(cuMemAlloc, cuMemAlloc_v2, 3020)                                       \
    X(cuMemAllocPitch, cuMemAllocPitch_v2, 3020)                             \
    X(cuMemAllocManaged, cuMemAllocManaged, 6000)                            \
    X(cuMemFree, cuMemFree_v2, 3020)                                         \
    X(cuMemAllocAsync, cuMemAllocAsync, 11020)                               \
    X(cuMemFreeAsync, cuMemFreeAsync, 11020)                                 \
    X(cuMemAllocHost, cuMemAllocHost_v2, 3020)                               \
    X(cuMemHostAlloc, cuMemHostAlloc, 2020)                                  \
    X(cuMemFreeHost, cuMemFreeHost, 2000)                                    \
    X(cuMemHostRegister, cuMemHostRegister_v2, 6050)                         \
    X(cuMemHostUnregister, cuMemHostUnregister, 4000)                        \
    X(cuMemGetAddressRange, cuMemGetAddressRange_v2, 3020)                   \
    X(cuPointerGetAttributes, cuPointerGetAttributes, 7000)                  \
    X(cuPointerGetAttribute, cuPointerGetAttribute, 4000)                    \
    X(cuMemsetD8, cuMemsetD8_v2, 3020)                                       \
    X(cuMemsetD8Async, cuMemsetD8Async, 3020)                                \
    X(cuMemcpyDtoH, cuMemcpyDtoH_v2, 3020)                                   \
    X(cuMemcpyDtoHAsync, cuMemcpyDtoHAsync_v2, 3020)                         \
    X(cuStreamCreate, cuStreamCreate, 2000)                                  \
    X(cuStreamCreateWithPriority, cuStreamCreateWithPriority, 5050)          \
    X(cuStreamDestroy, cuStreamDestroy_v2, 4000)                             \
    X(cuStreamSynchronize, cuStreamSynchronize, 2000)                        \
    X(cuStreamBeginCapture, cuStreamBeginCapture_v2, 10010)                  \
    X(cuStreamEndCapture, cuStreamEndCapture, 10000)                         \
    X(cuLaunchHostFunc, cuLaunchHostFunc, 10000)                             \
    X(cuMemGetAllocationGranularity, cuMemGetAllocationGranularity, 10020)   \
    X(cuMemAddressReserve, cuMemAddressReserve, 10020)                       \
    X(cuMemAddressFree, cuMemAddressFree, 10020)                             \
    X(cuMemCreate, cuMemCreate, 10020)                                       \
    X(cuMemRelease, cuMemRelease, 10020)                                     \
    X(cuMemRetainAllocationHandle, cuMemRetainAllocationHandle, 11000)       \
    X(cuMemExportToShareableHandle, cuMemExportToShareableHandle, 10020)     \
    X(cuMemImportFromShareableHandle, cuMemImportFromShareableHandle, 10020) \
    X(cuMemSetAccess, cuMemSetAccess, 10020)                                 \
    X(cuMemMap, cuMemMap, 10020)                                             \
    X(cuMemUnmap, cuMemUnmap, 10020)

#endif
