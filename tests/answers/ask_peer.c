/* Questions about two devices: access to each other's memory, copies between them, shared pools and mappings. */
#include "vmm.h"

#include <stdlib.h>
#include <string.h>

enum { BYTES = 4 << 20 };

static struct {
    CUcontext first;
    CUcontext second;
    CUdeviceptr here;
    CUdeviceptr there;
    CUstream stream; /* of the first device */
    CUstream other;
} at;

/* The first device's context is current afterwards. */
static void prepare(void)
{
    at.first = start();
    at.stream = new_stream(CU_STREAM_NON_BLOCKING);
    at.here = new_memory(BYTES);
    warm_up(at.stream);
    cu.DevicePrimaryCtxRetain(&at.second, 1);
    cu.CtxSetCurrent(at.second);
    at.other = new_stream(CU_STREAM_NON_BLOCKING);
    at.there = new_memory(BYTES);
    warm_up(at.other);
    cu.CtxSetCurrent(at.first);
}

static unsigned char byte_of(CUdeviceptr address)
{
    unsigned char byte = 0;
    cu.MemcpyDtoH(&byte, address, 1);
    return byte;
}

static void ask_can_access(int device, int peer, const char *name)
{
    int can = -77;
    CUresult result = cu.DeviceCanAccessPeer(&can, device, peer);
    ask_value(result, can, "peer.can_access.%s", name);
}

static void ask_p2p_attributes(void)
{
    static const char *const names[] = {
        "0", "performance_rank", "access", "native_atomics", "array_access", "partial_atomics", "6"};
    int value = -77;
    for (int i = 0; i <= 6; i++) {
        value = -77;
        CUresult result = cu.DeviceGetP2PAttribute(&value, (CUdevice_P2PAttribute)i, 0, 1);
        ask_value(result, value, "peer.attribute.%s", names[i]);
    }
    const CUdevice_P2PAttribute access = CU_DEVICE_P2P_ATTRIBUTE_ACCESS_SUPPORTED;
    ask(cu.DeviceGetP2PAttribute(&value, access, 0, 0), "peer.attribute.same_device");
    ask(cu.DeviceGetP2PAttribute(&value, access, 0, 99), "peer.attribute.device_99");
    ask(cu.DeviceGetP2PAttribute(&value, access, -1, 1), "peer.attribute.device_minus_one");
    ask(cu.DeviceGetP2PAttribute(NULL, access, 0, 1), "peer.attribute.null_out");
}

static void ask_enabling(void)
{
    CUcontext own = NULL;
    ask(cu.CtxDisablePeerAccess(at.second), "peer.disable.not_enabled");
    ask(cu.CtxEnablePeerAccess(at.second, 1), "peer.enable.flags_1");
    ask(cu.CtxEnablePeerAccess(NULL, 0), "peer.enable.null");
    ask(cu.CtxEnablePeerAccess(at.first, 0), "peer.enable.itself");
    ask(cu.CtxEnablePeerAccess(at.second, 0), "peer.enable");
    ask(cu.CtxEnablePeerAccess(at.second, 0), "peer.enable.twice");
    ask(cu.CtxDisablePeerAccess(at.second), "peer.disable");
    ask(cu.CtxDisablePeerAccess(at.second), "peer.disable.twice");
    ask(cu.CtxDisablePeerAccess(NULL), "peer.disable.null");
    ask(cu.CtxDisablePeerAccess(at.first), "peer.disable.itself");
    CUresult result = cu.CtxCreate(&own, NULL, 0, 0);
    if (result == CUDA_SUCCESS) {
        ask(cu.CtxEnablePeerAccess(at.first, 0), "peer.enable.other_context_of_same_device");
        ask(cu.CtxEnablePeerAccess(at.second, 0), "peer.enable.from_second_context");
        cu.CtxDestroy(own);
    }
    cu.CtxSetCurrent(NULL);
    ask(cu.CtxEnablePeerAccess(at.second, 0), "peer.enable.without_context");
    cu.CtxSetCurrent(at.first);
}

void ask_peer_access(void)
{
    int count = 0;
    prepare();
    cu.DeviceGetCount(&count);
    ask_yes(count >= 2, "peer.devices.at_least_2");
    ask_can_access(0, 1, "first_second");
    ask_can_access(1, 0, "second_first");
    ask_can_access(0, 0, "itself");
    ask_can_access(0, 99, "device_99");
    ask_can_access(-1, 0, "device_minus_one");
    ask(cu.DeviceCanAccessPeer(NULL, 0, 1), "peer.can_access.null_out");
    ask_p2p_attributes();
    ask_pointer_attributes("peer_memory", at.there, at.there, at.second, NULL);
    ask_enabling();
    ask(cu.CtxEnablePeerAccess(at.second, 0), "peer.enable.again");
    ask_pointer_attributes("peer_memory_enabled", at.there, at.there, at.second, NULL);
    ask(cu.CtxSynchronize(), "peer.access.context_is_usable");
}

/* ---- copies ---- */

static void fill_both(unsigned char here, unsigned char there)
{
    cu.MemsetD8(at.here, here, BYTES);
    cu.CtxSynchronize();
    cu.CtxSetCurrent(at.second);
    cu.MemsetD8(at.there, there, BYTES);
    cu.CtxSynchronize();
    cu.CtxSetCurrent(at.first);
}

/* Every way to copy between the devices, with the first device's context current. */
static void ask_ways(const char *moment)
{
    unsigned char host[64];
    CUDA_MEMCPY2D rows = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = at.there,
        .srcPitch = 512,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = at.here,
        .dstPitch = 512,
        .WidthInBytes = 100,
        .Height = 8,
    };
    fill_both(1, 2);
    ask(cu.MemcpyPeer(at.here, at.first, at.there, at.second, BYTES), "peer_copy.%s.peer_to_here", moment);
    cu.CtxSynchronize();
    ask_number(byte_of(at.here + BYTES - 1), "peer_copy.%s.peer_to_here.byte", moment);
    fill_both(3, 4);
    ask(cu.MemcpyPeerAsync(at.there, at.second, at.here, at.first, BYTES, at.stream),
        "peer_copy.%s.peer_async_to_there", moment);
    ask(cu.StreamSynchronize(at.stream), "peer_copy.%s.peer_async_to_there.synchronize", moment);
    ask_number(byte_of(at.there + BYTES - 1), "peer_copy.%s.peer_async_to_there.byte", moment);
    fill_both(5, 6);
    ask(cu.MemcpyDtoD(at.here, at.there, BYTES), "peer_copy.%s.dtod", moment);
    cu.CtxSynchronize();
    ask_number(byte_of(at.here), "peer_copy.%s.dtod.byte", moment);
    fill_both(7, 8);
    ask(cu.MemcpyDtoDAsync(at.there, at.here, BYTES, at.stream), "peer_copy.%s.dtod_async", moment);
    cu.StreamSynchronize(at.stream);
    ask_number(byte_of(at.there), "peer_copy.%s.dtod_async.byte", moment);
    fill_both(9, 10);
    ask(cu.Memcpy(at.here, at.there, BYTES), "peer_copy.%s.unified", moment);
    cu.CtxSynchronize();
    ask_number(byte_of(at.here), "peer_copy.%s.unified.byte", moment);
    ask(cu.MemcpyDtoDAsync(at.here, at.there, BYTES, at.other), "peer_copy.%s.dtod_on_stream_of_other_device", moment);
    ask(cu.StreamSynchronize(at.other), "peer_copy.%s.dtod_on_stream_of_other_device.synchronize", moment);
    ask(cu.MemcpyDtoH(host, at.there, sizeof host), "peer_copy.%s.dtoh_of_other_device", moment);
    ask(cu.MemcpyHtoD(at.there, host, sizeof host), "peer_copy.%s.htod_of_other_device", moment);
    ask(cu.MemsetD8(at.there, 0x21, 64), "peer_copy.%s.memset_of_other_device", moment);
    ask(cu.CtxSynchronize(), "peer_copy.%s.memset_of_other_device.synchronize", moment);
    fill_both(11, 12);
    ask(cu.Memcpy2D(&rows), "peer_copy.%s.copy_2d", moment);
    cu.CtxSynchronize();
    ask_number(byte_of(at.here + 512 * 7 + 99), "peer_copy.%s.copy_2d.byte", moment);
    ask(cu.CtxSynchronize(), "peer_copy.%s.context_is_usable", moment);
}

static void ask_wrong_copies(void)
{
    ask(cu.MemcpyPeer(at.here, at.first, at.there, at.second, 0), "peer_copy.0_bytes");
    ask(cu.MemcpyPeer(at.here, NULL, at.there, at.second, 64), "peer_copy.null_target_context");
    ask(cu.MemcpyPeer(at.here, at.first, at.there, NULL, 64), "peer_copy.null_source_context");
    ask(cu.MemcpyPeer(at.here, at.second, at.there, at.first, 64), "peer_copy.contexts_swapped");
    ask(cu.MemcpyPeer(at.here, at.first, at.here + 128, at.first, 64), "peer_copy.within_a_device");
    ask(cu.MemcpyPeer(at.here, at.first, at.there, at.second, BYTES + 1), "peer_copy.1_past");
    ask(cu.MemcpyPeer(0, at.first, at.there, at.second, 64), "peer_copy.target_0");
    ask(cu.MemcpyPeer(at.here, at.first, 0x1000, at.second, 64), "peer_copy.source_foreign");
    ask(cu.MemcpyPeerAsync(at.here, at.first, at.there, at.second, 0, at.stream), "peer_copy.async.0_bytes");
    ask(cu.MemcpyPeerAsync(at.here, at.first, at.there, at.second, BYTES + 1, at.stream), "peer_copy.async.1_past");
    ask(cu.MemcpyPeerAsync(at.here, at.first, at.there, at.second, 64, at.other), "peer_copy.async.other_stream");
    ask(cu.StreamSynchronize(at.other), "peer_copy.async.other_stream.synchronize");
    cu.CtxSetCurrent(NULL);
    ask(cu.MemcpyPeer(at.here, at.first, at.there, at.second, 64), "peer_copy.without_context");
    ask(cu.MemcpyPeerAsync(at.here, at.first, at.there, at.second, 64, at.stream), "peer_copy.async.without_context");
    cu.CtxSetCurrent(at.first);
    ask(cu.CtxSynchronize(), "peer_copy.wrong.context_is_usable");
}

/* Which held streams a copy between devices waits for. */
static void ask_peer_copy_waits(void)
{
    struct {
        const char *name;
        CUcontext context;
        unsigned flags;
    } const held[] = {
        {"first_blocking", at.first, CU_STREAM_DEFAULT},
        {"first_non_blocking", at.first, CU_STREAM_NON_BLOCKING},
        {"second_blocking", at.second, CU_STREAM_DEFAULT},
        {"second_non_blocking", at.second, CU_STREAM_NON_BLOCKING},
    };
    for (size_t i = 0; i < sizeof held / sizeof held[0]; i++) {
        cu.CtxSetCurrent(held[i].context);
        CUstream stream = new_stream(held[i].flags);
        warm_up(stream);
        struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
        cu.CtxSetCurrent(at.first);
        cu.MemcpyPeer(at.here, at.first, at.there, at.second, 64);
        ask_yes(!gate_release(gate), "peer_copy.waits.%s", held[i].name);
        cu.CtxSynchronize();
        cu.CtxSetCurrent(at.second);
        cu.CtxSynchronize();
        cu.CtxSetCurrent(at.first);
    }
}

/* Events and waits across devices. */
static void ask_events_across(void)
{
    CUevent event = new_event();
    ask(cu.EventRecord(event, at.other), "peer.event.record_on_stream_of_other_device");
    ask(cu.EventRecord(event, at.stream), "peer.event.record");
    ask(cu.StreamWaitEvent(at.other, event, 0), "peer.event.wait_on_stream_of_other_device");
    ask(cu.StreamSynchronize(at.other), "peer.event.wait.synchronize");
    ask(cu.MemFree(at.there), "peer.free_of_other_device");
}

void ask_peer_copies(void)
{
    prepare();
    ask_ways("not_enabled");
    cu.CtxEnablePeerAccess(at.second, 0);
    ask_ways("enabled");
    ask_wrong_copies();
    ask_peer_copy_waits();
    ask_events_across();
}

/* ---- pools ---- */

static CUresult set_pool_access(CUmemoryPool pool, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
    return cu.MemPoolSetAccess(pool, &access, 1);
}

static void ask_pool_access(CUmemoryPool pool, const char *moment)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1};
    CUmemAccess_flags flags = (CUmemAccess_flags)77;
    CUresult result = cu.MemPoolGetAccess(&flags, pool, &location);
    ask_value(result, flags, "peer_pool.access.%s", moment);
}

static void ask_foreign_streams(CUmemoryPool pool, const char *moment)
{
    CUdeviceptr address = 0;
    CUresult result = cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, at.other);
    ask(result, "peer_pool.%s.alloc_on_stream_of_other_device", moment);
    if (result == CUDA_SUCCESS) {
        ask(cu.MemsetD8Async(address, 1, 64, at.other), "peer_pool.%s.memset_on_stream_of_other_device", moment);
        ask(cu.MemFreeAsync(address, at.other), "peer_pool.%s.free_on_stream_of_other_device", moment);
    }
    ask(cu.StreamSynchronize(at.other), "peer_pool.%s.synchronize_of_other_stream", moment);
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, at.stream);
    cu.StreamSynchronize(at.stream);
    ask(cu.MemcpyDtoDAsync(at.there, address, 64, at.stream), "peer_pool.%s.copy_to_other_device", moment);
    ask(cu.StreamSynchronize(at.stream), "peer_pool.%s.copy_to_other_device.synchronize", moment);
    ask(cu.MemcpyDtoDAsync(at.there, address, 64, at.other), "peer_pool.%s.copy_on_stream_of_other_device", moment);
    ask(cu.StreamSynchronize(at.other), "peer_pool.%s.copy_on_stream_of_other_device.synchronize", moment);
    ask(cu.MemFreeAsync(address, at.other), "peer_pool.%s.freed_on_stream_of_other_device", moment);
    ask(cu.StreamSynchronize(at.other), "peer_pool.%s.freed_on_stream_of_other_device.synchronize", moment);
}

void ask_peer_pools(void)
{
    prepare();
    CUmemoryPool pool = new_pool(0);
    ask_pool_access(pool, "fresh");
    ask_foreign_streams(pool, "no_access");
    ask(set_pool_access(pool, 1, CU_MEM_ACCESS_FLAGS_PROT_READ), "peer_pool.set_access.read");
    ask(set_pool_access(pool, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "peer_pool.set_access.read_write");
    ask_pool_access(pool, "read_write");
    ask_foreign_streams(pool, "access");
    ask(set_pool_access(pool, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE), "peer_pool.set_access.none");
    ask_pool_access(pool, "none");
    ask(cu.DeviceSetMemPool(1, pool), "peer_pool.as_pool_of_other_device");
    cu.MemPoolDestroy(pool);
    ask(cu.CtxSynchronize(), "peer_pool.context_is_usable");
}

/* ---- maps ---- */

static void ask_map_access(CUdeviceptr address, int device, const char *name)
{
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device};
    unsigned long long flags = 77;
    CUresult result = cu.MemGetAccess(&flags, &location, address);
    ask_value(result, (long long)flags, "peer_map.access.%s", name);
}

void ask_peer_maps(void)
{
    prepare();
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = vmm_properties(1);
    ask(cu.MemCreate(&handle, BYTES, &properties, 0), "peer_map.create_on_other_device");
    CUdeviceptr range = vmm_reserve(2 * BYTES);
    ask(cu.MemMap(range, BYTES, 0, handle, 0), "peer_map.map");
    CUmemGenericAllocationHandle own = vmm_create(BYTES);
    ask(cu.MemMap(range + BYTES, BYTES, 0, own, 0), "peer_map.map_own_beside");
    ask_map_access(range, 0, "first.never_set");
    ask_map_access(range, 1, "second.never_set");
    ask(vmm_allow(range, BYTES, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "peer_map.set_access.first");
    ask_map_access(range, 1, "second.only_first_set");
    ask_pointer_attributes("peer_map", range, range, at.second, NULL);
    ask(cu.MemsetD8(range, 5, BYTES), "peer_map.memset_from_first");
    ask(cu.CtxSynchronize(), "peer_map.memset_from_first.synchronize");
    ask_number(byte_of(range), "peer_map.memset_from_first.byte");
    ask(vmm_allow(range, 2 * BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE), "peer_map.set_access.second_over_both");
    ask_map_access(range + BYTES, 0, "own.first.never_set");
    ask_map_access(range, 0, "first.second_set_later");
    cu.CtxSetCurrent(at.second);
    ask(cu.MemsetD8(range, 6, 2 * BYTES), "peer_map.memset_from_second");
    ask(cu.CtxSynchronize(), "peer_map.memset_from_second.synchronize");
    cu.CtxSetCurrent(at.first);
    ask_number(byte_of(range), "peer_map.memset_from_second.byte");
    ask(vmm_allow(range, BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_NONE), "peer_map.set_access.second_none");
    ask_map_access(range, 1, "second.none");
    ask_map_access(range, 0, "first.second_none");
    CUmemAccessDesc both[2] = {
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE},
        {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1}, .flags = CU_MEM_ACCESS_FLAGS_PROT_READ},
    };
    ask(cu.MemSetAccess(range, BYTES, both, 2), "peer_map.set_access.both");
    ask_map_access(range, 0, "first.both");
    ask_map_access(range, 1, "second.both");
    cu.MemUnmap(range, 2 * BYTES);
    cu.MemRelease(handle);
    cu.MemRelease(own);
    cu.MemAddressFree(range, 2 * BYTES);
    ask(cu.CtxSynchronize(), "peer_map.context_is_usable");
}

/* ---- work without access ---- */

enum fault {
    KERNEL_PLAIN,
    KERNEL_ENABLED,
    KERNEL_MAPPED,
    COPY_MAPPED,
    MEMSET_MAPPED,
    DTOH_MAPPED,
    POOL_KERNEL,
    COPY_MAPPED_THERE, /* from here on: the second section's */
    COPY_MAPPED_THERE_CURRENT,
    COPY_MAPPED_WITHIN,
    PEER_MAPPED,
    PEER_ASYNC_MAPPED,
    PEER_MAPPED_TARGET,
    FAULTS
};

static const char *const fault_names[FAULTS] = {
    [KERNEL_PLAIN] = "kernel_plain",
    [KERNEL_ENABLED] = "kernel_plain_enabled",
    [KERNEL_MAPPED] = "kernel_mapped",
    [COPY_MAPPED] = "copy_mapped",
    [MEMSET_MAPPED] = "memset_mapped",
    [DTOH_MAPPED] = "dtoh_mapped",
    [POOL_KERNEL] = "kernel_pooled",
    [COPY_MAPPED_THERE] = "copy_mapped_there",
    [COPY_MAPPED_THERE_CURRENT] = "copy_mapped_there_current",
    [COPY_MAPPED_WITHIN] = "copy_mapped_within",
    [PEER_MAPPED] = "peer_mapped",
    [PEER_ASYNC_MAPPED] = "peer_async_mapped",
    [PEER_MAPPED_TARGET] = "peer_mapped_target",
};

/* Mapped memory of the second device, which only that device may access. */
static CUdeviceptr map_there(void)
{
    CUmemGenericAllocationHandle handle = 0;
    CUmemAllocationProp properties = vmm_properties(1);
    cu.MemCreate(&handle, BYTES, &properties, 0);
    CUdeviceptr range = vmm_reserve(BYTES);
    cu.MemMap(range, BYTES, 0, handle, 0);
    vmm_allow(range, BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    return range;
}

static CUdeviceptr pooled_there(void)
{
    CUdeviceptr address = 0;
    cu.CtxSetCurrent(at.second);
    cu.MemAllocAsync(&address, BYTES, at.other);
    cu.StreamSynchronize(at.other);
    cu.CtxSetCurrent(at.first);
    return address;
}

static CUresult touch(enum fault fault)
{
    unsigned char byte = 0;
    switch (fault) {
    case KERNEL_ENABLED:
        cu.CtxEnablePeerAccess(at.second, 0);
        return pattern_fill(pattern_fill_function(), at.there, 64, 1, at.stream);
    case KERNEL_MAPPED:
        return pattern_fill(pattern_fill_function(), map_there(), 64, 1, at.stream);
    case COPY_MAPPED:
        return cu.MemcpyDtoDAsync(at.here, map_there(), 64, at.stream);
    case COPY_MAPPED_THERE:
        return cu.MemcpyDtoDAsync(at.here, map_there(), 64, at.other);
    case COPY_MAPPED_THERE_CURRENT:
        cu.CtxSetCurrent(at.second);
        return cu.MemcpyDtoDAsync(at.here, map_there(), 64, at.other);
    case COPY_MAPPED_WITHIN: /* the second device's own memory */
        return cu.MemcpyDtoDAsync(at.there, map_there(), 64, at.other);
    case PEER_MAPPED:
        return cu.MemcpyPeer(at.here, at.first, map_there(), at.second, 64);
    case PEER_ASYNC_MAPPED:
        return cu.MemcpyPeerAsync(at.here, at.first, map_there(), at.second, 64, at.stream);
    case PEER_MAPPED_TARGET:
        return cu.MemcpyPeerAsync(map_there(), at.second, at.here, at.first, 64, at.stream);
    case MEMSET_MAPPED:
        return cu.MemsetD8Async(map_there(), 1, 64, at.stream);
    case DTOH_MAPPED:
        return cu.MemcpyDtoH(&byte, map_there(), 1);
    case POOL_KERNEL:
        return pattern_fill(pattern_fill_function(), pooled_there(), 64, 1, at.stream);
    case KERNEL_PLAIN:
    case FAULTS:
        break;
    }
    return pattern_fill(pattern_fill_function(), at.there, 64, 1, at.stream);
}

static void ask_fault(const void *data)
{
    enum fault fault = *(const enum fault *)data;
    const char *name = fault_names[fault];
    prepare();
    ask(touch(fault), "peer_fault.%s", name);
    cu.CtxSetCurrent(at.first);
    ask(cu.StreamSynchronize(at.stream), "peer_fault.%s.synchronize", name);
    ask(cu.MemsetD8(at.here, 1, 16), "peer_fault.%s.context_afterwards", name);
    cu.CtxSetCurrent(at.second);
    ask(cu.MemsetD8(at.there, 1, 16), "peer_fault.%s.other_context_afterwards", name);
}

static void ask_faults(enum fault from, enum fault to)
{
    for (enum fault fault = from; fault < to; fault++)
        in_child(ask_fault, &fault, fault_names[fault]);
}

void ask_peer_faults(void)
{
    ask_faults(KERNEL_PLAIN, COPY_MAPPED_THERE);
}

void ask_peer_copies_of_maps(void)
{
    ask_faults(COPY_MAPPED_THERE, FAULTS);
}
