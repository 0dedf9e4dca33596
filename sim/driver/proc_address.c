/* cuGetProcAddress: entry points by name, CUDA version and default stream. */
#include "driver/enter.h"
#include <string.h>

typedef void (*entry_point)(void);

#define ENTRY(function) ((entry_point)(function))

/* Sorted by name, newest version first. */
static const struct {
    const char *name;
    int version; /* first CUDA version with this ABI */
    entry_point legacy;
    entry_point per_thread; /* NULL: as `legacy` */
} entries[] = {
    {"cuCtxCreate", 12050, ENTRY(cuCtxCreate_v4), NULL},
    {"cuCtxCreate", 11040, ENTRY(cuCtxCreate_v3), NULL},
    {"cuCtxCreate", 3020, ENTRY(cuCtxCreate_v2), NULL},
    {"cuCtxCreate", 2000, ENTRY(cuCtxCreate), NULL},
    {"cuCtxDestroy", 4000, ENTRY(cuCtxDestroy_v2), NULL},
    {"cuCtxDestroy", 2000, ENTRY(cuCtxDestroy), NULL},
    {"cuCtxDisablePeerAccess", 4000, ENTRY(cuCtxDisablePeerAccess), NULL},
    {"cuCtxEnablePeerAccess", 4000, ENTRY(cuCtxEnablePeerAccess), NULL},
    {"cuCtxGetApiVersion", 3020, ENTRY(cuCtxGetApiVersion), NULL},
    {"cuCtxGetCurrent", 4000, ENTRY(cuCtxGetCurrent), NULL},
    {"cuCtxGetDevice", 13000, ENTRY(cuCtxGetDevice_v2), NULL},
    {"cuCtxGetDevice", 2000, ENTRY(cuCtxGetDevice), NULL},
    {"cuCtxGetFlags", 7000, ENTRY(cuCtxGetFlags), NULL},
    {"cuCtxGetId", 12000, ENTRY(cuCtxGetId), NULL},
    {"cuCtxGetStreamPriorityRange", 5050, ENTRY(cuCtxGetStreamPriorityRange), NULL},
    {"cuCtxPopCurrent", 4000, ENTRY(cuCtxPopCurrent_v2), NULL},
    {"cuCtxPopCurrent", 2000, ENTRY(cuCtxPopCurrent), NULL},
    {"cuCtxPushCurrent", 4000, ENTRY(cuCtxPushCurrent_v2), NULL},
    {"cuCtxPushCurrent", 2000, ENTRY(cuCtxPushCurrent), NULL},
    {"cuCtxSetCurrent", 4000, ENTRY(cuCtxSetCurrent), NULL},
    {"cuCtxSynchronize", 13000, ENTRY(cuCtxSynchronize_v2), NULL},
    {"cuCtxSynchronize", 2000, ENTRY(cuCtxSynchronize), NULL},
    {"cuDeviceCanAccessPeer", 4000, ENTRY(cuDeviceCanAccessPeer), NULL},
    {"cuDeviceComputeCapability", 2000, ENTRY(cuDeviceComputeCapability), NULL},
    {"cuDeviceGet", 2000, ENTRY(cuDeviceGet), NULL},
    {"cuDeviceGetAttribute", 2000, ENTRY(cuDeviceGetAttribute), NULL},
    {"cuDeviceGetByPCIBusId", 4010, ENTRY(cuDeviceGetByPCIBusId), NULL},
    {"cuDeviceGetCount", 2000, ENTRY(cuDeviceGetCount), NULL},
    {"cuDeviceGetDefaultMemPool", 11020, ENTRY(cuDeviceGetDefaultMemPool), NULL},
    {"cuDeviceGetGraphMemAttribute", 11040, ENTRY(cuDeviceGetGraphMemAttribute), NULL},
    {"cuDeviceGetMemPool", 11020, ENTRY(cuDeviceGetMemPool), NULL},
    {"cuDeviceGetName", 2000, ENTRY(cuDeviceGetName), NULL},
    {"cuDeviceGetP2PAttribute", 8000, ENTRY(cuDeviceGetP2PAttribute), NULL},
    {"cuDeviceGetPCIBusId", 4010, ENTRY(cuDeviceGetPCIBusId), NULL},
    {"cuDeviceGetUuid", 11040, ENTRY(cuDeviceGetUuid_v2), NULL},
    {"cuDeviceGetUuid", 9020, ENTRY(cuDeviceGetUuid), NULL},
    {"cuDeviceGraphMemTrim", 11040, ENTRY(cuDeviceGraphMemTrim), NULL},
    {"cuDevicePrimaryCtxGetState", 7000, ENTRY(cuDevicePrimaryCtxGetState), NULL},
    {"cuDevicePrimaryCtxRelease", 11000, ENTRY(cuDevicePrimaryCtxRelease_v2), NULL},
    {"cuDevicePrimaryCtxRelease", 7000, ENTRY(cuDevicePrimaryCtxRelease), NULL},
    {"cuDevicePrimaryCtxReset", 11000, ENTRY(cuDevicePrimaryCtxReset_v2), NULL},
    {"cuDevicePrimaryCtxReset", 7000, ENTRY(cuDevicePrimaryCtxReset), NULL},
    {"cuDevicePrimaryCtxRetain", 7000, ENTRY(cuDevicePrimaryCtxRetain), NULL},
    {"cuDevicePrimaryCtxSetFlags", 11000, ENTRY(cuDevicePrimaryCtxSetFlags_v2), NULL},
    {"cuDevicePrimaryCtxSetFlags", 7000, ENTRY(cuDevicePrimaryCtxSetFlags), NULL},
    {"cuDeviceSetGraphMemAttribute", 11040, ENTRY(cuDeviceSetGraphMemAttribute), NULL},
    {"cuDeviceSetMemPool", 11020, ENTRY(cuDeviceSetMemPool), NULL},
    {"cuDeviceTotalMem", 3020, ENTRY(cuDeviceTotalMem_v2), NULL},
    {"cuDriverGetVersion", 2020, ENTRY(cuDriverGetVersion), NULL},
    {"cuEventCreate", 2000, ENTRY(cuEventCreate), NULL},
    {"cuEventDestroy", 4000, ENTRY(cuEventDestroy_v2), NULL},
    {"cuEventDestroy", 2000, ENTRY(cuEventDestroy), NULL},
    {"cuEventElapsedTime", 12080, ENTRY(cuEventElapsedTime_v2), NULL},
    {"cuEventElapsedTime", 2000, ENTRY(cuEventElapsedTime), NULL},
    {"cuEventQuery", 2000, ENTRY(cuEventQuery), NULL},
    {"cuEventRecord", 2000, ENTRY(cuEventRecord), ENTRY(cuEventRecord_ptsz)},
    {"cuEventRecordWithFlags", 11010, ENTRY(cuEventRecordWithFlags), ENTRY(cuEventRecordWithFlags_ptsz)},
    {"cuEventSynchronize", 2000, ENTRY(cuEventSynchronize), NULL},
    {"cuFuncGetAttribute", 2020, ENTRY(cuFuncGetAttribute), NULL},
    {"cuFuncGetParamInfo", 12040, ENTRY(cuFuncGetParamInfo), NULL},
    {"cuGetErrorName", 6000, ENTRY(cuGetErrorName), NULL},
    {"cuGetErrorString", 6000, ENTRY(cuGetErrorString), NULL},
    {"cuGetProcAddress", 12000, ENTRY(cuGetProcAddress_v2), NULL},
    {"cuGetProcAddress", 12000, ENTRY(cuGetProcAddress_v2), NULL},
    {"cuGetProcAddress", 11030, ENTRY(cuGetProcAddress), NULL},
    {"cuGetProcAddress", 11030, ENTRY(cuGetProcAddress), NULL},
    {"cuGraphAddChildGraphNode", 10000, ENTRY(cuGraphAddChildGraphNode), NULL},
    {"cuGraphAddDependencies", 12030, ENTRY(cuGraphAddDependencies_v2), NULL},
    {"cuGraphAddDependencies", 10000, ENTRY(cuGraphAddDependencies), NULL},
    {"cuGraphAddEmptyNode", 10000, ENTRY(cuGraphAddEmptyNode), NULL},
    {"cuGraphAddEventRecordNode", 11010, ENTRY(cuGraphAddEventRecordNode), NULL},
    {"cuGraphAddEventWaitNode", 11010, ENTRY(cuGraphAddEventWaitNode), NULL},
    {"cuGraphAddHostNode", 10000, ENTRY(cuGraphAddHostNode), NULL},
    {"cuGraphAddKernelNode", 12000, ENTRY(cuGraphAddKernelNode_v2), NULL},
    {"cuGraphAddKernelNode", 10000, ENTRY(cuGraphAddKernelNode), NULL},
    {"cuGraphAddMemAllocNode", 11040, ENTRY(cuGraphAddMemAllocNode), NULL},
    {"cuGraphAddMemFreeNode", 11040, ENTRY(cuGraphAddMemFreeNode), NULL},
    {"cuGraphAddMemcpyNode", 10000, ENTRY(cuGraphAddMemcpyNode), NULL},
    {"cuGraphAddMemsetNode", 10000, ENTRY(cuGraphAddMemsetNode), NULL},
    {"cuGraphAddNode", 12030, ENTRY(cuGraphAddNode_v2), NULL},
    {"cuGraphAddNode", 12020, ENTRY(cuGraphAddNode), NULL},
    {"cuGraphChildGraphNodeGetGraph", 10000, ENTRY(cuGraphChildGraphNodeGetGraph), NULL},
    {"cuGraphClone", 10000, ENTRY(cuGraphClone), NULL},
    {"cuGraphConditionalHandleCreate", 12030, ENTRY(cuGraphConditionalHandleCreate), NULL},
    {"cuGraphCreate", 10000, ENTRY(cuGraphCreate), NULL},
    {"cuGraphDebugDotPrint", 11030, ENTRY(cuGraphDebugDotPrint), NULL},
    {"cuGraphDestroy", 10000, ENTRY(cuGraphDestroy), NULL},
    {"cuGraphDestroyNode", 10000, ENTRY(cuGraphDestroyNode), NULL},
    {"cuGraphEventRecordNodeGetEvent", 11010, ENTRY(cuGraphEventRecordNodeGetEvent), NULL},
    {"cuGraphEventRecordNodeSetEvent", 11010, ENTRY(cuGraphEventRecordNodeSetEvent), NULL},
    {"cuGraphEventWaitNodeGetEvent", 11010, ENTRY(cuGraphEventWaitNodeGetEvent), NULL},
    {"cuGraphEventWaitNodeSetEvent", 11010, ENTRY(cuGraphEventWaitNodeSetEvent), NULL},
    {"cuGraphExecChildGraphNodeSetParams", 11010, ENTRY(cuGraphExecChildGraphNodeSetParams), NULL},
    {"cuGraphExecDestroy", 10000, ENTRY(cuGraphExecDestroy), NULL},
    {"cuGraphExecEventRecordNodeSetEvent", 11010, ENTRY(cuGraphExecEventRecordNodeSetEvent), NULL},
    {"cuGraphExecEventWaitNodeSetEvent", 11010, ENTRY(cuGraphExecEventWaitNodeSetEvent), NULL},
    {"cuGraphExecGetFlags", 12000, ENTRY(cuGraphExecGetFlags), NULL},
    {"cuGraphExecHostNodeSetParams", 10020, ENTRY(cuGraphExecHostNodeSetParams), NULL},
    {"cuGraphExecKernelNodeSetParams", 12000, ENTRY(cuGraphExecKernelNodeSetParams_v2), NULL},
    {"cuGraphExecKernelNodeSetParams", 10010, ENTRY(cuGraphExecKernelNodeSetParams), NULL},
    {"cuGraphExecMemcpyNodeSetParams", 10020, ENTRY(cuGraphExecMemcpyNodeSetParams), NULL},
    {"cuGraphExecMemsetNodeSetParams", 10020, ENTRY(cuGraphExecMemsetNodeSetParams), NULL},
    {"cuGraphExecUpdate", 12000, ENTRY(cuGraphExecUpdate_v2), NULL},
    {"cuGraphExecUpdate", 10020, ENTRY(cuGraphExecUpdate), NULL},
    {"cuGraphGetEdges", 12030, ENTRY(cuGraphGetEdges_v2), NULL},
    {"cuGraphGetEdges", 10000, ENTRY(cuGraphGetEdges), NULL},
    {"cuGraphGetNodes", 10000, ENTRY(cuGraphGetNodes), NULL},
    {"cuGraphGetRootNodes", 10000, ENTRY(cuGraphGetRootNodes), NULL},
    {"cuGraphHostNodeGetParams", 10000, ENTRY(cuGraphHostNodeGetParams), NULL},
    {"cuGraphHostNodeSetParams", 10000, ENTRY(cuGraphHostNodeSetParams), NULL},
    {"cuGraphInstantiate", 12000, ENTRY(cuGraphInstantiateWithFlags), NULL},
    {"cuGraphInstantiate", 11000, ENTRY(cuGraphInstantiate_v2), NULL},
    {"cuGraphInstantiate", 10000, ENTRY(cuGraphInstantiate), NULL},
    {"cuGraphInstantiateWithFlags", 11040, ENTRY(cuGraphInstantiateWithFlags), NULL},
    {"cuGraphInstantiateWithParams", 12000, ENTRY(cuGraphInstantiateWithParams),
     ENTRY(cuGraphInstantiateWithParams_ptsz)},
    {"cuGraphKernelNodeGetParams", 12000, ENTRY(cuGraphKernelNodeGetParams_v2), NULL},
    {"cuGraphKernelNodeGetParams", 10000, ENTRY(cuGraphKernelNodeGetParams), NULL},
    {"cuGraphKernelNodeSetParams", 12000, ENTRY(cuGraphKernelNodeSetParams_v2), NULL},
    {"cuGraphKernelNodeSetParams", 10000, ENTRY(cuGraphKernelNodeSetParams), NULL},
    {"cuGraphLaunch", 10000, ENTRY(cuGraphLaunch), ENTRY(cuGraphLaunch_ptsz)},
    {"cuGraphMemAllocNodeGetParams", 11040, ENTRY(cuGraphMemAllocNodeGetParams), NULL},
    {"cuGraphMemFreeNodeGetParams", 11040, ENTRY(cuGraphMemFreeNodeGetParams), NULL},
    {"cuGraphMemcpyNodeGetParams", 10000, ENTRY(cuGraphMemcpyNodeGetParams), NULL},
    {"cuGraphMemcpyNodeSetParams", 10000, ENTRY(cuGraphMemcpyNodeSetParams), NULL},
    {"cuGraphMemsetNodeGetParams", 10000, ENTRY(cuGraphMemsetNodeGetParams), NULL},
    {"cuGraphMemsetNodeSetParams", 10000, ENTRY(cuGraphMemsetNodeSetParams), NULL},
    {"cuGraphNodeFindInClone", 10000, ENTRY(cuGraphNodeFindInClone), NULL},
    {"cuGraphNodeGetDependencies", 12030, ENTRY(cuGraphNodeGetDependencies_v2), NULL},
    {"cuGraphNodeGetDependencies", 10000, ENTRY(cuGraphNodeGetDependencies), NULL},
    {"cuGraphNodeGetDependentNodes", 12030, ENTRY(cuGraphNodeGetDependentNodes_v2), NULL},
    {"cuGraphNodeGetDependentNodes", 10000, ENTRY(cuGraphNodeGetDependentNodes), NULL},
    {"cuGraphNodeGetEnabled", 11060, ENTRY(cuGraphNodeGetEnabled), NULL},
    {"cuGraphNodeGetType", 10000, ENTRY(cuGraphNodeGetType), NULL},
    {"cuGraphNodeSetEnabled", 11060, ENTRY(cuGraphNodeSetEnabled), NULL},
    {"cuGraphReleaseUserObject", 11030, ENTRY(cuGraphReleaseUserObject), NULL},
    {"cuGraphRemoveDependencies", 12030, ENTRY(cuGraphRemoveDependencies_v2), NULL},
    {"cuGraphRemoveDependencies", 10000, ENTRY(cuGraphRemoveDependencies), NULL},
    {"cuGraphRetainUserObject", 11030, ENTRY(cuGraphRetainUserObject), NULL},
    {"cuGraphUpload", 11010, ENTRY(cuGraphUpload), ENTRY(cuGraphUpload_ptsz)},
    {"cuInit", 2000, ENTRY(cuInit), NULL},
    {"cuLaunchHostFunc", 10000, ENTRY(cuLaunchHostFunc), ENTRY(cuLaunchHostFunc_ptsz)},
    {"cuLaunchKernel", 4000, ENTRY(cuLaunchKernel), ENTRY(cuLaunchKernel_ptsz)},
    {"cuMemAddressFree", 10020, ENTRY(cuMemAddressFree), NULL},
    {"cuMemAddressReserve", 10020, ENTRY(cuMemAddressReserve), NULL},
    {"cuMemAdvise", 12020, ENTRY(cuMemAdvise_v2), NULL},
    {"cuMemAdvise", 8000, ENTRY(cuMemAdvise), NULL},
    {"cuMemAlloc", 3020, ENTRY(cuMemAlloc_v2), NULL},
    {"cuMemAllocAsync", 11020, ENTRY(cuMemAllocAsync), ENTRY(cuMemAllocAsync_ptsz)},
    {"cuMemAllocFromPoolAsync", 11020, ENTRY(cuMemAllocFromPoolAsync), ENTRY(cuMemAllocFromPoolAsync_ptsz)},
    {"cuMemAllocHost", 3020, ENTRY(cuMemAllocHost_v2), NULL},
    {"cuMemAllocHost", 2000, ENTRY(cuMemAllocHost), NULL},
    {"cuMemAllocManaged", 6000, ENTRY(cuMemAllocManaged), NULL},
    {"cuMemAllocPitch", 3020, ENTRY(cuMemAllocPitch_v2), NULL},
    {"cuMemCreate", 10020, ENTRY(cuMemCreate), NULL},
    {"cuMemExportToShareableHandle", 10020, ENTRY(cuMemExportToShareableHandle), NULL},
    {"cuMemFree", 3020, ENTRY(cuMemFree_v2), NULL},
    {"cuMemFreeAsync", 11020, ENTRY(cuMemFreeAsync), ENTRY(cuMemFreeAsync_ptsz)},
    {"cuMemFreeHost", 2000, ENTRY(cuMemFreeHost), NULL},
    {"cuMemGetAccess", 10020, ENTRY(cuMemGetAccess), NULL},
    {"cuMemGetAddressRange", 3020, ENTRY(cuMemGetAddressRange_v2), NULL},
    {"cuMemGetAllocationGranularity", 10020, ENTRY(cuMemGetAllocationGranularity), NULL},
    {"cuMemGetAllocationPropertiesFromHandle", 10020, ENTRY(cuMemGetAllocationPropertiesFromHandle), NULL},
    {"cuMemGetInfo", 3020, ENTRY(cuMemGetInfo_v2), NULL},
    {"cuMemHostAlloc", 2020, ENTRY(cuMemHostAlloc), NULL},
    {"cuMemHostGetDevicePointer", 3020, ENTRY(cuMemHostGetDevicePointer_v2), NULL},
    {"cuMemHostGetFlags", 2030, ENTRY(cuMemHostGetFlags), NULL},
    {"cuMemHostRegister", 6050, ENTRY(cuMemHostRegister_v2), NULL},
    {"cuMemHostRegister", 4000, ENTRY(cuMemHostRegister), NULL},
    {"cuMemHostUnregister", 4000, ENTRY(cuMemHostUnregister), NULL},
    {"cuMemImportFromShareableHandle", 10020, ENTRY(cuMemImportFromShareableHandle), NULL},
    {"cuMemMap", 10020, ENTRY(cuMemMap), NULL},
    {"cuMemPoolCreate", 11020, ENTRY(cuMemPoolCreate), NULL},
    {"cuMemPoolDestroy", 11020, ENTRY(cuMemPoolDestroy), NULL},
    {"cuMemPoolGetAccess", 11020, ENTRY(cuMemPoolGetAccess), NULL},
    {"cuMemPoolGetAttribute", 11020, ENTRY(cuMemPoolGetAttribute), NULL},
    {"cuMemPoolSetAccess", 11020, ENTRY(cuMemPoolSetAccess), NULL},
    {"cuMemPoolSetAttribute", 11020, ENTRY(cuMemPoolSetAttribute), NULL},
    {"cuMemPoolTrimTo", 11020, ENTRY(cuMemPoolTrimTo), NULL},
    {"cuMemPrefetchAsync", 12020, ENTRY(cuMemPrefetchAsync_v2), ENTRY(cuMemPrefetchAsync_v2_ptsz)},
    {"cuMemPrefetchAsync", 8000, ENTRY(cuMemPrefetchAsync), ENTRY(cuMemPrefetchAsync_ptsz)},
    {"cuMemRangeGetAttribute", 8000, ENTRY(cuMemRangeGetAttribute), NULL},
    {"cuMemRelease", 10020, ENTRY(cuMemRelease), NULL},
    {"cuMemRetainAllocationHandle", 11000, ENTRY(cuMemRetainAllocationHandle), NULL},
    {"cuMemSetAccess", 10020, ENTRY(cuMemSetAccess), NULL},
    {"cuMemUnmap", 10020, ENTRY(cuMemUnmap), NULL},
    {"cuMemcpy", 4000, ENTRY(cuMemcpy), ENTRY(cuMemcpy_ptds)},
    {"cuMemcpy2D", 3020, ENTRY(cuMemcpy2D_v2), ENTRY(cuMemcpy2D_v2_ptds)},
    {"cuMemcpy2DAsync", 3020, ENTRY(cuMemcpy2DAsync_v2), ENTRY(cuMemcpy2DAsync_v2_ptsz)},
    {"cuMemcpy2DUnaligned", 3020, ENTRY(cuMemcpy2DUnaligned_v2), ENTRY(cuMemcpy2DUnaligned_v2_ptds)},
    {"cuMemcpy3D", 3020, ENTRY(cuMemcpy3D_v2), ENTRY(cuMemcpy3D_v2_ptds)},
    {"cuMemcpy3DAsync", 3020, ENTRY(cuMemcpy3DAsync_v2), ENTRY(cuMemcpy3DAsync_v2_ptsz)},
    {"cuMemcpyAsync", 4000, ENTRY(cuMemcpyAsync), ENTRY(cuMemcpyAsync_ptsz)},
    {"cuMemcpyDtoD", 3020, ENTRY(cuMemcpyDtoD_v2), ENTRY(cuMemcpyDtoD_v2_ptds)},
    {"cuMemcpyDtoDAsync", 3020, ENTRY(cuMemcpyDtoDAsync_v2), ENTRY(cuMemcpyDtoDAsync_v2_ptsz)},
    {"cuMemcpyDtoH", 3020, ENTRY(cuMemcpyDtoH_v2), ENTRY(cuMemcpyDtoH_v2_ptds)},
    {"cuMemcpyDtoHAsync", 3020, ENTRY(cuMemcpyDtoHAsync_v2), ENTRY(cuMemcpyDtoHAsync_v2_ptsz)},
    {"cuMemcpyHtoD", 3020, ENTRY(cuMemcpyHtoD_v2), ENTRY(cuMemcpyHtoD_v2_ptds)},
    {"cuMemcpyHtoDAsync", 3020, ENTRY(cuMemcpyHtoDAsync_v2), ENTRY(cuMemcpyHtoDAsync_v2_ptsz)},
    {"cuMemcpyPeer", 4000, ENTRY(cuMemcpyPeer), ENTRY(cuMemcpyPeer_ptds)},
    {"cuMemcpyPeerAsync", 4000, ENTRY(cuMemcpyPeerAsync), ENTRY(cuMemcpyPeerAsync_ptsz)},
    {"cuMemsetD16", 3020, ENTRY(cuMemsetD16_v2), ENTRY(cuMemsetD16_v2_ptds)},
    {"cuMemsetD16Async", 3020, ENTRY(cuMemsetD16Async), ENTRY(cuMemsetD16Async_ptsz)},
    {"cuMemsetD2D16", 3020, ENTRY(cuMemsetD2D16_v2), ENTRY(cuMemsetD2D16_v2_ptds)},
    {"cuMemsetD2D16Async", 3020, ENTRY(cuMemsetD2D16Async), ENTRY(cuMemsetD2D16Async_ptsz)},
    {"cuMemsetD2D32", 3020, ENTRY(cuMemsetD2D32_v2), ENTRY(cuMemsetD2D32_v2_ptds)},
    {"cuMemsetD2D32Async", 3020, ENTRY(cuMemsetD2D32Async), ENTRY(cuMemsetD2D32Async_ptsz)},
    {"cuMemsetD2D8", 3020, ENTRY(cuMemsetD2D8_v2), ENTRY(cuMemsetD2D8_v2_ptds)},
    {"cuMemsetD2D8Async", 3020, ENTRY(cuMemsetD2D8Async), ENTRY(cuMemsetD2D8Async_ptsz)},
    {"cuMemsetD32", 3020, ENTRY(cuMemsetD32_v2), ENTRY(cuMemsetD32_v2_ptds)},
    {"cuMemsetD32Async", 3020, ENTRY(cuMemsetD32Async), ENTRY(cuMemsetD32Async_ptsz)},
    {"cuMemsetD8", 3020, ENTRY(cuMemsetD8_v2), ENTRY(cuMemsetD8_v2_ptds)},
    {"cuMemsetD8Async", 3020, ENTRY(cuMemsetD8Async), ENTRY(cuMemsetD8Async_ptsz)},
    {"cuModuleGetFunction", 2000, ENTRY(cuModuleGetFunction), NULL},
    {"cuModuleGetGlobal", 3020, ENTRY(cuModuleGetGlobal_v2), NULL},
    {"cuModuleLoadData", 2000, ENTRY(cuModuleLoadData), NULL},
    {"cuModuleLoadDataEx", 2010, ENTRY(cuModuleLoadDataEx), NULL},
    {"cuModuleUnload", 2000, ENTRY(cuModuleUnload), NULL},
    {"cuPointerGetAttribute", 4000, ENTRY(cuPointerGetAttribute), NULL},
    {"cuPointerGetAttributes", 7000, ENTRY(cuPointerGetAttributes), NULL},
    {"cuPointerSetAttribute", 6000, ENTRY(cuPointerSetAttribute), NULL},
    {"cuStreamAddCallback", 5000, ENTRY(cuStreamAddCallback), ENTRY(cuStreamAddCallback_ptsz)},
    {"cuStreamBatchMemOp", 11070, ENTRY(cuStreamBatchMemOp_v2), ENTRY(cuStreamBatchMemOp_v2_ptsz)},
    {"cuStreamBeginCapture", 10010, ENTRY(cuStreamBeginCapture_v2), ENTRY(cuStreamBeginCapture_v2_ptsz)},
    {"cuStreamBeginCapture", 10000, ENTRY(cuStreamBeginCapture), ENTRY(cuStreamBeginCapture_ptsz)},
    {"cuStreamBeginCaptureToGraph", 12030, ENTRY(cuStreamBeginCaptureToGraph), ENTRY(cuStreamBeginCaptureToGraph_ptsz)},
    {"cuStreamBeginRecaptureToGraph", 13030, ENTRY(cuStreamBeginRecaptureToGraph),
     ENTRY(cuStreamBeginRecaptureToGraph_ptsz)},
    {"cuStreamCreate", 2000, ENTRY(cuStreamCreate), NULL},
    {"cuStreamCreateWithPriority", 5050, ENTRY(cuStreamCreateWithPriority), NULL},
    {"cuStreamDestroy", 4000, ENTRY(cuStreamDestroy_v2), NULL},
    {"cuStreamDestroy", 2000, ENTRY(cuStreamDestroy), NULL},
    {"cuStreamEndCapture", 10000, ENTRY(cuStreamEndCapture), ENTRY(cuStreamEndCapture_ptsz)},
    {"cuStreamGetCaptureInfo", 12030, ENTRY(cuStreamGetCaptureInfo_v3), ENTRY(cuStreamGetCaptureInfo_v3_ptsz)},
    {"cuStreamGetCaptureInfo", 11030, ENTRY(cuStreamGetCaptureInfo_v2), ENTRY(cuStreamGetCaptureInfo_v2_ptsz)},
    {"cuStreamGetCaptureInfo", 10010, ENTRY(cuStreamGetCaptureInfo), ENTRY(cuStreamGetCaptureInfo_ptsz)},
    {"cuStreamGetCtx", 9020, ENTRY(cuStreamGetCtx), ENTRY(cuStreamGetCtx_ptsz)},
    {"cuStreamGetDevice", 12080, ENTRY(cuStreamGetDevice), ENTRY(cuStreamGetDevice_ptsz)},
    {"cuStreamGetFlags", 5050, ENTRY(cuStreamGetFlags), ENTRY(cuStreamGetFlags_ptsz)},
    {"cuStreamGetId", 12000, ENTRY(cuStreamGetId), ENTRY(cuStreamGetId_ptsz)},
    {"cuStreamGetPriority", 5050, ENTRY(cuStreamGetPriority), ENTRY(cuStreamGetPriority_ptsz)},
    {"cuStreamIsCapturing", 10000, ENTRY(cuStreamIsCapturing), ENTRY(cuStreamIsCapturing_ptsz)},
    {"cuStreamQuery", 2000, ENTRY(cuStreamQuery), ENTRY(cuStreamQuery_ptsz)},
    {"cuStreamSynchronize", 2000, ENTRY(cuStreamSynchronize), ENTRY(cuStreamSynchronize_ptsz)},
    {"cuStreamUpdateCaptureDependencies", 12030, ENTRY(cuStreamUpdateCaptureDependencies_v2),
     ENTRY(cuStreamUpdateCaptureDependencies_v2_ptsz)},
    {"cuStreamUpdateCaptureDependencies", 11030, ENTRY(cuStreamUpdateCaptureDependencies),
     ENTRY(cuStreamUpdateCaptureDependencies_ptsz)},
    {"cuStreamWaitEvent", 3020, ENTRY(cuStreamWaitEvent), ENTRY(cuStreamWaitEvent_ptsz)},
    {"cuStreamWaitValue32", 11070, ENTRY(cuStreamWaitValue32_v2), ENTRY(cuStreamWaitValue32_v2_ptsz)},
    {"cuStreamWaitValue64", 11070, ENTRY(cuStreamWaitValue64_v2), ENTRY(cuStreamWaitValue64_v2_ptsz)},
    {"cuStreamWriteValue32", 11070, ENTRY(cuStreamWriteValue32_v2), ENTRY(cuStreamWriteValue32_v2_ptsz)},
    {"cuStreamWriteValue64", 11070, ENTRY(cuStreamWriteValue64_v2), ENTRY(cuStreamWriteValue64_v2_ptsz)},
    {"cuThreadExchangeStreamCaptureMode", 10010, ENTRY(cuThreadExchangeStreamCaptureMode), NULL},
    {"cuUserObjectCreate", 11030, ENTRY(cuUserObjectCreate), NULL},
    {"cuUserObjectRelease", 11030, ENTRY(cuUserObjectRelease), NULL},
    {"cuUserObjectRetain", 11030, ENTRY(cuUserObjectRetain), NULL},
};

enum { ENTRIES = sizeof entries / sizeof entries[0] };

static size_t first_of_name(const char *name)
{
    size_t low = 0;
    size_t high = ENTRIES;
    while (low < high) {
        size_t middle = low + (high - low) / 2;
        if (strcmp(entries[middle].name, name) < 0)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

bool sim_entry_known(const char *name)
{
    size_t first = first_of_name(name);
    return first < ENTRIES && strcmp(entries[first].name, name) == 0;
}

/* Finds the newest form that the version asks for; of what is newer than the driver, nothing is found. */
static CUdriverProcAddressQueryResult find(const char *name, int version, int newest, bool per_thread,
                                           entry_point *found)
{
    size_t first = first_of_name(name);
    while (first < ENTRIES && strcmp(entries[first].name, name) == 0 && entries[first].version > newest)
        first++;
    size_t i = first;
    *found = NULL;
    while (i < ENTRIES && strcmp(entries[i].name, name) == 0) {
        if (entries[i].version <= version) {
            *found = per_thread && entries[i].per_thread ? entries[i].per_thread : entries[i].legacy;
            return CU_GET_PROC_ADDRESS_SUCCESS;
        }
        i++;
    }
    return i == first ? CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND : CU_GET_PROC_ADDRESS_VERSION_NOT_SUFFICIENT;
}

/* A missing name is reported by the status alone; a version newer than the driver is an error. A negative version
 * counts as the newest. */
CUresult cuGetProcAddress_v2(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags,
                             CUdriverProcAddressQueryResult *symbolStatus)
{
    cuuint64_t known = CU_GET_PROC_ADDRESS_LEGACY_STREAM | CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM;
    int newest = sim_version();
    if (!symbol || !pfn || (flags & ~known) != 0 || cudaVersion > newest)
        return CUDA_ERROR_INVALID_VALUE;
    entry_point found;
    bool per_thread = (flags & CU_GET_PROC_ADDRESS_PER_THREAD_DEFAULT_STREAM) != 0;
    CUdriverProcAddressQueryResult status =
        find(symbol, cudaVersion < 0 ? newest : cudaVersion, newest, per_thread, &found);
    if (status != CU_GET_PROC_ADDRESS_SUCCESS && sim_lock()) {
        sim_missing_note(symbol);
        pthread_mutex_unlock(&sim.lock);
    }
    memcpy(pfn, &found, sizeof *pfn);
    if (symbolStatus)
        *symbolStatus = status;
    return CUDA_SUCCESS;
}

/* This older form has no status: a missing name is an error. */
CUresult cuGetProcAddress(const char *symbol, void **pfn, int cudaVersion, cuuint64_t flags)
{
    CUdriverProcAddressQueryResult status;
    CUresult result = cuGetProcAddress_v2(symbol, pfn, cudaVersion, flags, &status);
    if (result == CUDA_SUCCESS && status != CU_GET_PROC_ADDRESS_SUCCESS)
        return CUDA_ERROR_NOT_FOUND;
    return result;
}
