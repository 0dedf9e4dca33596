/* Questions about managed memory: allocation, use by the host, prefetch, and advice. */
#include "ask.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum { BYTES = 256 * 1024 };

static CUdeviceptr new_managed(void)
{
    CUdeviceptr address = 0;
    cu.MemAllocManaged(&address, BYTES, CU_MEM_ATTACH_GLOBAL);
    return address;
}

static void ask_allocations(void)
{
    static const unsigned flags[] = {0, CU_MEM_ATTACH_GLOBAL, CU_MEM_ATTACH_HOST, 3, CU_MEM_ATTACH_SINGLE, 8, 99};
    CUdeviceptr address;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        address = 0x1234;
        CUresult result = cu.MemAllocManaged(&address, BYTES, flags[i]);
        ask(result, "managed.alloc.flags_%u", flags[i]);
        if (result == CUDA_SUCCESS)
            cu.MemFree(address);
    }
    address = 0x1234;
    ask(cu.MemAllocManaged(&address, 0, CU_MEM_ATTACH_GLOBAL), "managed.alloc.0");
    ask_text(address == 0x1234 ? "untouched" : address == 0 ? "null" : "set", "managed.alloc.0.address");
    ask(cu.MemAllocManaged(NULL, BYTES, CU_MEM_ATTACH_GLOBAL), "managed.alloc.null");
    CUresult result = cu.MemAllocManaged(&address, 1000, CU_MEM_ATTACH_GLOBAL);
    ask_fact(result, address % 512 == 0, "managed.alloc.1000.aligned_512");
    CUdeviceptr base = 0;
    size_t bytes = 0;
    result = cu.MemGetAddressRange(&base, &bytes, address + 500);
    ask_value(result, (long long)bytes, "managed.alloc.1000.range");
    ask(cu.MemFree(address), "managed.free");
    ask(cu.MemFree(address), "managed.free.twice");
}

static void ask_bytes(CUstream stream)
{
    CUdeviceptr address = new_managed();
    CUdeviceptr plain = new_memory(BYTES);
    unsigned char *host = (unsigned char *)(uintptr_t)address;
    unsigned char back[16];
    if (address == 0)
        return;
    memset(host, 0x21, BYTES);
    ask(cu.MemcpyDtoD(plain, address, BYTES), "managed.copy.dtod");
    cu.MemcpyDtoH(back, plain, sizeof back);
    ask_yes(back[0] == 0x21 && back[15] == 0x21, "managed.copy.dtod.bytes");
    ask(cu.MemsetD8Async(address, 0x32, BYTES, stream), "managed.memset");
    ask(cu.StreamSynchronize(stream), "managed.memset.synchronize");
    ask_yes(host[0] == 0x32 && host[BYTES - 1] == 0x32, "managed.memset.bytes_on_host");
    ask(pattern_fill(pattern_fill_function(), address, BYTES, 3, stream), "managed.kernel");
    ask(cu.StreamSynchronize(stream), "managed.kernel.synchronize");
    ask_yes(host[0] == pattern_byte(3, 0) && host[BYTES - 1] == pattern_byte(3, BYTES - 1), "managed.kernel.bytes");
    memset(back, 0x43, sizeof back);
    ask(cu.MemcpyHtoD(address, back, sizeof back), "managed.copy.htod");
    ask(cu.MemcpyDtoH(back, address, sizeof back), "managed.copy.dtoh");
    ask_yes(host[3] == 0x43, "managed.copy.htod.bytes_on_host");
    ask(cu.MemcpyHtoD(plain, host, sizeof back), "managed.copy.as_host_source");
    ask(cu.MemcpyDtoH(host, plain, sizeof back), "managed.copy.as_host_target");
    ask(cu.MemsetD8(address, 0, BYTES + 1), "managed.memset.1_past");
    ask(cu.MemcpyHtoD(plain, host, BYTES + 1), "managed.copy.1_past");
    ask(cu.MemFreeAsync(address, stream), "managed.free_async");
    ask(cu.StreamSynchronize(stream), "managed.free_async.synchronize");
    cu.MemFree(plain);
}

static void ask_prefetch(CUdeviceptr address, size_t bytes, CUmemLocationType type, int id, unsigned flags,
                         CUstream stream, const char *name)
{
    CUmemLocation location = {.type = type, .id = id};
    ask(cu.MemPrefetchAsync(address, bytes, location, flags, stream), "managed.prefetch.%s", name);
}

static void ask_prefetches(CUstream stream)
{
    const CUmemLocationType device = CU_MEM_LOCATION_TYPE_DEVICE;
    CUdeviceptr address = new_managed();
    CUdeviceptr plain = new_memory(BYTES);
    void *pinned = NULL;
    void *pageable = calloc(1, BYTES);
    cu.MemHostAlloc(&pinned, BYTES, 0);
    *(unsigned char *)(uintptr_t)address = 0;
    ask_prefetch(address, BYTES, device, 0, 0, stream, "device");
    ask_prefetch(address, BYTES, CU_MEM_LOCATION_TYPE_HOST, 0, 0, stream, "host");
    ask_prefetch(address, BYTES, CU_MEM_LOCATION_TYPE_HOST, 7, 0, stream, "host_id_7");
    ask_prefetch(address, BYTES, CU_MEM_LOCATION_TYPE_HOST_NUMA, 0, 0, stream, "host_numa_0");
    ask_prefetch(address, BYTES, CU_MEM_LOCATION_TYPE_HOST_NUMA, 99, 0, stream, "host_numa_99");
    ask_prefetch(address, BYTES, CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, 0, 0, stream, "host_numa_current");
    ask_prefetch(address, BYTES, CU_MEM_LOCATION_TYPE_INVALID, 0, 0, stream, "location_0");
    ask_prefetch(address, BYTES, (CUmemLocationType)99, 0, 0, stream, "location_99");
    ask_prefetch(address, BYTES, device, 99, 0, stream, "device_99");
    ask_prefetch(address, BYTES, device, -1, 0, stream, "device_minus_one");
    ask_prefetch(address, BYTES, device, 0, 1, stream, "flags_1");
    ask_prefetch(address, 0, device, 0, 0, stream, "0_bytes");
    ask_prefetch(address, 1, device, 0, 0, stream, "1_byte");
    ask_prefetch(address + 100, 1000, device, 0, 0, stream, "interior");
    ask_prefetch(address, BYTES + 1, device, 0, 0, stream, "1_past");
    ask_prefetch(address, 64 * MIB, device, 0, 0, stream, "64_mib");
    ask_prefetch(0, BYTES, device, 0, 0, stream, "address_0");
    ask_prefetch(plain, BYTES, device, 0, 0, stream, "plain_memory");
    ask_prefetch((CUdeviceptr)(uintptr_t)pinned, BYTES, device, 0, 0, stream, "pinned_memory");
    ask_prefetch(0x1000, BYTES, device, 0, 0, stream, "foreign");
    ask_prefetch(address, BYTES, device, 0, 0, NULL, "null_stream");
    ask(cu.StreamSynchronize(stream), "managed.prefetch.synchronize");
    cu.CtxSynchronize();
    ask_yes(*(const unsigned char *)(uintptr_t)address == 0, "managed.prefetch.host_reads");
    cu.MemFree(address);
    ask_prefetch(address, BYTES, device, 0, 0, stream, "freed");
    cu.MemFree(plain);
    cu.MemFreeHost(pinned);
    free(pageable);
}

/* Which calls on managed memory wait for a held stream. */
static void ask_waits(CUstream stream)
{
    CUdeviceptr address = new_managed();
    CUdeviceptr plain = new_memory(BYTES);
    void *pinned = NULL;
    cu.MemHostAlloc(&pinned, BYTES, 0);
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemsetD8Async(address, 1, BYTES, stream);
    ask_yes(!gate_release(gate), "managed.waits.memset_async");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemcpyDtoDAsync(plain, address, BYTES, stream);
    ask_yes(!gate_release(gate), "managed.waits.dtod_async_from");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemcpyDtoDAsync(address, plain, BYTES, stream);
    ask_yes(!gate_release(gate), "managed.waits.dtod_async_to");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemcpyHtoDAsync(address, pinned, BYTES, stream);
    ask_yes(!gate_release(gate), "managed.waits.htod_async_pinned");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemPrefetchAsync(address, BYTES, (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE}, 0, stream);
    ask_yes(!gate_release(gate), "managed.waits.prefetch");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    CUdeviceptr other = new_managed();
    ask_yes(!gate_release(gate), "managed.waits.alloc");
    cu.CtxSynchronize();
    gate = gate_hold(stream, GATE_SHORT_MS);
    cu.MemFree(other);
    ask_yes(!gate_release(gate), "managed.waits.free");
    cu.CtxSynchronize();
    cu.MemFree(address);
    cu.MemFree(plain);
    cu.MemFreeHost(pinned);
}

void ask_managed(void)
{
    CUcontext context = start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    ask_allocations();
    CUdeviceptr address = new_managed();
    ask_pointer_attributes("managed", address + 4096, address, context, NULL);
    cu.MemFree(address);
    ask_bytes(stream);
    ask_prefetches(stream);
    ask_waits(stream);
    ask(cu.CtxSynchronize(), "managed.context_is_usable");
}

/* ---- advice ---- */

static void ask_advice(CUdeviceptr address, CUmem_advise advice, const char *name)
{
    static const struct {
        const char *name;
        CUmemLocation location;
    } locations[] = {
        {"device_0", {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}},
        {"device_99", {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99}},
        {"device_minus_one", {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = -1}},
        {"host", {.type = CU_MEM_LOCATION_TYPE_HOST}},
        {"host_numa_0", {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA}},
        {"host_numa_current", {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT}},
        {"location_0", {.type = CU_MEM_LOCATION_TYPE_INVALID}},
        {"location_99", {.type = (CUmemLocationType)99}},
    };
    for (size_t i = 0; i < sizeof locations / sizeof locations[0]; i++)
        ask(cu.MemAdvise(address, BYTES, advice, locations[i].location), "managed.advise.%s.%s", name,
            locations[i].name);
}

static void ask_attribute(CUdeviceptr address, CUmem_range_attribute attribute, const char *name)
{
    int value = -77;
    CUresult result = cu.MemRangeGetAttribute(&value, sizeof value, attribute, address, BYTES);
    ask_value(result, value, "managed.range.%s", name);
}

/* Every range attribute of four bytes. */
static void ask_attributes(CUdeviceptr address, const char *moment)
{
    static const char *const names[] = {"read_mostly",    "preferred",    "accessed_by",        "last_prefetch",
                                        "preferred_type", "preferred_id", "last_prefetch_type", "last_prefetch_id"};
    for (int i = 0; i < 8; i++) {
        int value = -77;
        CUresult result = cu.MemRangeGetAttribute(&value, sizeof value, (CUmem_range_attribute)(i + 1), address, BYTES);
        ask_value(result, value, "managed.range.%s.%s", names[i], moment);
    }
}

static void ask_wrong_attributes(CUdeviceptr address)
{
    int values[4] = {0};
    CUdeviceptr plain = new_memory(BYTES);
    const CUmem_range_attribute mostly = CU_MEM_RANGE_ATTRIBUTE_READ_MOSTLY;
    ask(cu.MemRangeGetAttribute(NULL, 4, mostly, address, BYTES), "managed.range.null_out");
    ask(cu.MemRangeGetAttribute(values, 3, mostly, address, BYTES), "managed.range.3_bytes");
    ask(cu.MemRangeGetAttribute(values, 8, mostly, address, BYTES), "managed.range.8_bytes");
    ask(cu.MemRangeGetAttribute(values, 4, mostly, address, 0), "managed.range.count_0");
    ask(cu.MemRangeGetAttribute(values, 4, mostly, address, BYTES + 1), "managed.range.1_past");
    ask(cu.MemRangeGetAttribute(values, 4, mostly, plain, BYTES), "managed.range.plain_memory");
    ask(cu.MemRangeGetAttribute(values, 4, (CUmem_range_attribute)99, address, BYTES), "managed.range.unknown");
    CUresult result =
        cu.MemRangeGetAttribute(values, sizeof values, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, BYTES);
    ask_value(result, values[0], "managed.range.accessed_by.of_4");
    ask_value(result, values[1], "managed.range.accessed_by.of_4.second");
    ask_attribute(address + 4096, mostly, "read_mostly.beyond");
    cu.MemFree(plain);
}

void ask_managed_advice(void)
{
    static const char *const names[] = {"read_mostly",     "unset_read_mostly", "preferred",
                                        "unset_preferred", "accessed_by",       "unset_accessed_by"};
    const CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST, .id = 0};
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    CUdeviceptr address = new_managed();
    CUdeviceptr plain = new_memory(BYTES);
    for (int advice = 1; advice <= 6; advice++)
        ask_advice(address, (CUmem_advise)advice, names[advice - 1]);
    cu.MemFree(address);
    address = new_managed();
    ask_attributes(address, "fresh");
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, here);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, here);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, here);
    cu.MemPrefetchAsync(address, BYTES, here, 0, stream);
    cu.StreamSynchronize(stream);
    ask_attributes(address, "advised_device");
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_UNSET_READ_MOSTLY, here);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, host);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_UNSET_ACCESSED_BY, here);
    cu.MemPrefetchAsync(address, BYTES, host, 0, stream);
    cu.StreamSynchronize(stream);
    ask_attributes(address, "advised_host");
    const CUmemLocation node = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA, .id = 0};
    const CUmemLocation current = {.type = CU_MEM_LOCATION_TYPE_HOST_NUMA_CURRENT, .id = 0};
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, node);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, host);
    cu.MemPrefetchAsync(address, BYTES, node, 0, stream);
    cu.StreamSynchronize(stream);
    ask_attributes(address, "advised_node");
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, current);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_SET_ACCESSED_BY, here);
    cu.MemPrefetchAsync(address, BYTES, current, 0, stream);
    cu.StreamSynchronize(stream);
    ask_attributes(address, "advised_current_node");
    int both[3] = {0};
    CUresult listed = cu.MemRangeGetAttribute(both, sizeof both, CU_MEM_RANGE_ATTRIBUTE_ACCESSED_BY, address, BYTES);
    ask_value(listed, both[0], "managed.range.accessed_by.host_and_device");
    ask_value(listed, both[1], "managed.range.accessed_by.host_and_device.second");
    ask_value(listed, both[2], "managed.range.accessed_by.host_and_device.third");
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_UNSET_ACCESSED_BY, host);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_UNSET_ACCESSED_BY, here);
    cu.MemAdvise(address, BYTES, CU_MEM_ADVISE_UNSET_PREFERRED_LOCATION, here);
    cu.MemAdvise(address, 64 * KIB, CU_MEM_ADVISE_SET_READ_MOSTLY, here);
    cu.MemPrefetchAsync(address, 64 * KIB, here, 0, stream);
    cu.StreamSynchronize(stream);
    ask_attributes(address, "first_part");
    ask(cu.MemAdvise(address, 0, CU_MEM_ADVISE_SET_READ_MOSTLY, here), "managed.advise.0_bytes");
    ask(cu.MemAdvise(address + 100, 1000, CU_MEM_ADVISE_SET_READ_MOSTLY, here), "managed.advise.interior");
    ask(cu.MemAdvise(address, BYTES + 1, CU_MEM_ADVISE_SET_READ_MOSTLY, here), "managed.advise.1_past");
    ask(cu.MemAdvise(plain, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, here), "managed.advise.plain_memory");
    ask(cu.MemAdvise(0, BYTES, CU_MEM_ADVISE_SET_READ_MOSTLY, here), "managed.advise.address_0");
    ask(cu.MemAdvise(address, BYTES, (CUmem_advise)0, here), "managed.advise.0");
    ask(cu.MemAdvise(address, BYTES, (CUmem_advise)99, here), "managed.advise.99");
    ask_wrong_attributes(address);
    cu.MemFree(address);
    cu.MemFree(plain);
    ask(cu.CtxSynchronize(), "managed.advise.context_is_usable");
}
