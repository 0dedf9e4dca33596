/* Several devices: which may reach whose memory, and copies between them. Every device can reach every other one, as
 * where all are linked with all; access is something that one context is given to another one's memory. Copies need
 * none of it. */
#include "sim.h"
#include <stdlib.h>

/* A context that another one has access to. Its uid tells it from a later one with the same handle. */
typedef struct sim_peer {
    struct sim_peer *next;
    uint64_t uid;
} sim_peer;

static sim_peer **find(sim_context *context, const sim_context *peer)
{
    sim_peer **link = &context->peers;
    while (*link && (*link)->uid != peer->uid)
        link = &(*link)->next;
    return link;
}

bool sim_peer_enabled(const sim_context *context, const sim_context *peer)
{
    const sim_peer *known = context->peers;
    while (known && known->uid != peer->uid)
        known = known->next;
    return known != NULL;
}

void sim_peers_free(sim_context *context)
{
    while (context->peers) {
        sim_peer *next = context->peers->next;
        free(context->peers);
        context->peers = next;
    }
}

static CUresult enable(sim_context *context, sim_context *peer, unsigned flags)
{
    if (!sim_context_valid(peer))
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (peer->device == context->device)
        return CUDA_ERROR_PEER_ACCESS_UNSUPPORTED;
    if (sim_peer_enabled(context, peer))
        return CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED;
    sim_peer *made = malloc(sizeof *made);
    if (!made)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *made = (sim_peer){.next = context->peers, .uid = peer->uid};
    context->peers = made;
    return CUDA_SUCCESS;
}

CUresult cuCtxEnablePeerAccess(CUcontext peerContext, unsigned int Flags)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    return sim_leave(enable(context, peerContext, Flags));
}

CUresult cuCtxDisablePeerAccess(CUcontext peerContext)
{
    sim_context *context;
    CUresult result = sim_enter_context(&context);
    if (result != CUDA_SUCCESS)
        return result;
    if (!sim_context_valid(peerContext))
        return sim_leave(CUDA_ERROR_INVALID_CONTEXT);
    sim_peer **link = find(context, peerContext);
    sim_peer *peer = *link;
    if (!peer)
        return sim_leave(CUDA_ERROR_PEER_ACCESS_NOT_ENABLED);
    *link = peer->next;
    free(peer);
    return sim_leave(CUDA_SUCCESS);
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

/* ---- copies ---- */

/* Addresses say what they belong to: the contexts that the calls name are not looked at. */
CUresult cuMemcpyPeer(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                      size_t ByteCount)
{
    (void)dstContext;
    (void)srcContext;
    sim_called_as(__func__);
    return cuMemcpyDtoD_v2(dstDevice, srcDevice, ByteCount);
}

CUresult cuMemcpyPeerAsync(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount, CUstream hStream)
{
    (void)dstContext;
    (void)srcContext;
    sim_called_as(__func__);
    return cuMemcpyDtoDAsync_v2(dstDevice, srcDevice, ByteCount, hStream);
}

CUresult cuMemcpyPeer_ptds(CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext,
                           size_t ByteCount)
{
    (void)dstContext;
    (void)srcContext;
    sim_called_as(__func__);
    return cuMemcpyDtoD_v2_ptds(dstDevice, srcDevice, ByteCount);
}
