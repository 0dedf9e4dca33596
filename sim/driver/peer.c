/* Entry points: several devices. */
#include "driver/enter.h"

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(sim_peer_enable(context, peerContext, Flags));
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_context_valid(peerContext))
        return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
    return sim_leave(sim_peer_disable(context, peerContext));
}

CUresult cuDeviceCanAccessPeer(int *canAccessPeer, CUdevice dev, CUdevice peerDev)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!canAccessPeer)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_device_of(dev) || !sim_device_of(peerDev))
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    *canAccessPeer = dev != peerDev;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetP2PAttribute(int *value, CUdevice_P2PAttribute attrib, CUdevice srcDevice, CUdevice dstDevice)
{
    static const int values[] = {
        [CU_DEVICE_P2P_ATTRIBUTE_PERFORMANCE_RANK] = 0,
        [CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED] = 1,
        [CU_DEVICE_P2P_ATTRIBUTE_NATIVE_ATOMIC_SUPPORTED] = 1,
        [CU_DEVICE_P2P_ATTRIBUTE_CUDA_ARRAY_ACCESS_SUPPORTED] = 1,
        [CU_DEVICE_P2P_ATTRIBUTE_ONLY_PARTIAL_NATIVE_ATOMIC_SUPPORTED] = 0,
    };
    enum { VALUES = sizeof values / sizeof values[0] };
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!value || (unsigned)attrib == 0 || (unsigned)attrib >= VALUES)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_device_of(srcDevice) || !sim_device_of(dstDevice) || srcDevice == dstDevice)
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    *value = values[attrib];
    return sim_leave(CUDA_SUCCESS);
}
