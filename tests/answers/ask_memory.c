/* Questions about cuMemAlloc and pinned host memory: sizes, alignment, wrong frees, waits for running work. */
#include "ask.h"

#include <stdint.h>
#include <stdlib.h>

static void ask_alignment(void)
{
    CUresult result;
    static const size_t sizes[] = {1, 256, 257, 512, 4096, 65537, MIB + 1, 2 * MIB, 33 * MIB};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUdeviceptr first = new_memory(sizes[i]);
        CUdeviceptr second = new_memory(sizes[i]);
        CUdeviceptr base = 0;
        size_t bytes = 0;
        ask_yes(first != 0 && second != 0 && first != second, "memory.alloc_%zu.distinct", sizes[i]);
        ask_number((long long)((first | second) % 256), "memory.alloc_%zu.modulo_256", sizes[i]);
        ask_number((long long)((first | second) % 512), "memory.alloc_%zu.modulo_512", sizes[i]);
        result = cu.MemGetAddressRange(&base, &bytes, first);
        ask_value(result, (long long)bytes, "memory.alloc_%zu.range_bytes", sizes[i]);
        ask_yes(base == first, "memory.alloc_%zu.range_base", sizes[i]);
        cu.MemFree(first);
        cu.MemFree(second);
    }
}

static void ask_ranges(void)
{
    CUresult result;
    CUdeviceptr address = new_memory(64 * KIB);
    CUdeviceptr base = 0;
    size_t bytes = 0;
    result = cu.MemGetAddressRange(&base, &bytes, address + 5000);
    ask_fact(result, base == address && bytes == 64 * KIB, "memory.range.interior");
    result = cu.MemGetAddressRange(&base, &bytes, address + 64 * KIB - 1);
    ask_fact(result, base == address, "memory.range.last_byte");
    ask(cu.MemGetAddressRange(NULL, &bytes, address), "memory.range.null_base");
    ask(cu.MemGetAddressRange(&base, NULL, address), "memory.range.null_size");
    ask(cu.MemGetAddressRange(NULL, NULL, address), "memory.range.both_null");
    ask(cu.MemGetAddressRange(&base, &bytes, 0), "memory.range.address_0");
    ask(cu.MemGetAddressRange(&base, &bytes, 0x1000), "memory.range.foreign");
    cu.MemFree(address);
    ask(cu.MemGetAddressRange(&base, &bytes, address), "memory.range.freed");
}

static void ask_frees(void)
{
    CUdeviceptr address = new_memory(64 * KIB);
    int local = 0;
    ask(cu.MemFree(0), "memory.free.0");
    ask(cu.MemFree(address + 1), "memory.free.interior_1");
    ask(cu.MemFree(address + 512), "memory.free.interior_512");
    ask(cu.MemFree(0x1000), "memory.free.foreign");
    ask(cu.MemFree((CUdeviceptr)(uintptr_t)&local), "memory.free.host_stack");
    ask(cu.MemFree(address), "memory.free");
    ask(cu.MemFree(address), "memory.free.twice");
    ask(cu.CtxSynchronize(), "memory.free.context_is_usable");
}

void ask_memory(void)
{
    CUdeviceptr address = 0x1234;
    size_t before = 0;
    size_t after = 0;
    size_t total = 0;
    size_t device_total = 0;
    start();
    warm_up(NULL);
    ask(cu.MemAlloc(&address, 0), "memory.alloc.0");
    ask_text(address == 0x1234 ? "untouched" : address == 0 ? "null" : "set", "memory.alloc.0.address");
    address = 0x1234;
    ask(cu.MemAlloc(&address, PIB), "memory.alloc.pebibyte");
    ask_text(address == 0x1234 ? "untouched" : address == 0 ? "null" : "set", "memory.alloc.pebibyte.address");
    ask(cu.MemAlloc(&address, SIZE_MAX), "memory.alloc.size_max");
    ask(cu.MemAlloc(NULL, 4096), "memory.alloc.null");
    ask_alignment();
    ask_ranges();
    ask_frees();
    ask(cu.MemGetInfo(&before, &total), "memory.info");
    cu.DeviceTotalMem(&device_total, 0);
    ask_yes(total == device_total, "memory.info.total_is_device_total");
    ask_yes(before > 0 && before < total, "memory.info.free_below_total");
    address = new_memory(256 * MIB);
    cu.MemGetInfo(&after, &total);
    ask_yes(before - after >= 256 * MIB && before > after, "memory.info.alloc_256_mib.free_falls_by_as_much");
    ask_yes(before - after < 512 * MIB, "memory.info.alloc_256_mib.free_falls_by_less_than_twice");
    cu.MemFree(address);
    cu.MemGetInfo(&after, &total);
    ask_yes(after == before, "memory.info.free_256_mib.free_is_back");
    ask(cu.MemGetInfo(NULL, &total), "memory.info.null_free");
    ask(cu.MemGetInfo(&before, NULL), "memory.info.null_total");
    ask(cu.MemGetInfo(NULL, NULL), "memory.info.both_null");
}

/* `bytes` are those of the device memory. `ends`: the stream is destroyed while its work is under way. */
static void ask_wait_of(const char *call, size_t bytes, CUstream stream, const char *kind, bool ends)
{
    CUdeviceptr address = new_memory(bytes);
    void *pinned = NULL;
    cu.MemHostAlloc(&pinned, 4 * MIB, 0);
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    CUdeviceptr other = 0;
    void *host = NULL;
    if (ends)
        cu.StreamDestroy(stream);
    switch (call[0]) {
    case 'a':
        other = new_memory(bytes);
        break;
    case 'f':
        cu.MemFree(address);
        address = 0;
        break;
    case 'p':
        cu.MemHostAlloc(&host, 4 * MIB, 0);
        break;
    case 'h':
        cu.MemFreeHost(pinned);
        pinned = NULL;
        break;
    default:
        cu.MemGetInfo(&bytes, &bytes);
    }
    ask_yes(!gate_release(gate), "memory_waits.%s.%s_held", call, kind);
    cu.CtxSynchronize();
    cu.MemFree(address);
    cu.MemFree(other);
    if (pinned != NULL)
        cu.MemFreeHost(pinned);
    if (host != NULL)
        cu.MemFreeHost(host);
}

static void ask_wait(const char *call, CUstream stream, const char *kind, bool ends)
{
    ask_wait_of(call, 4 * MIB, stream, kind, ends);
}

/* As little as core/streams/device_wait.c frees: a driver might keep it, and wait for nothing. */
static void ask_wait_of_little(CUstream blocking, CUstream non_blocking)
{
    CUstream ends = new_stream(CU_STREAM_NON_BLOCKING);
    ask_wait_of("free_4096", 4096, blocking, "blocking", false);
    ask_wait_of("free_4096", 4096, non_blocking, "non_blocking", false);
    ask_wait_of("free_4096", 4096, ends, "destroyed_non_blocking", true);
}

void ask_memory_waits(void)
{
    static const char *const calls[] = {"alloc", "free", "pinned_alloc", "host_free", "info"};
    start();
    CUstream streams[] = {new_stream(CU_STREAM_DEFAULT), new_stream(CU_STREAM_NON_BLOCKING)};
    warm_up(streams[0]);
    warm_up(streams[1]);
    cu.MemFree(new_memory(4 * MIB));
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        ask_wait(calls[i], streams[0], "blocking", false);
        ask_wait(calls[i], streams[1], "non_blocking", false);
    }
    for (size_t i = 1; i < sizeof calls / sizeof calls[0]; i += 2) {
        CUstream blocking = new_stream(CU_STREAM_DEFAULT), non_blocking = new_stream(CU_STREAM_NON_BLOCKING);
        ask_wait(calls[i], blocking, "destroyed_blocking", true);
        ask_wait(calls[i], non_blocking, "destroyed_non_blocking", true);
    }
    ask_wait_of_little(streams[0], streams[1]);
}

static void ask_pinned_flags(void)
{
    static const unsigned flags[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 0x10, 0xffffffffU};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        void *host = NULL;
        unsigned got = 77;
        CUdeviceptr address = 0;
        CUresult result = cu.MemHostAlloc(&host, 64 * KIB, flags[i]);
        ask(result, "pinned.alloc.flags_%#x", flags[i]);
        if (result != CUDA_SUCCESS)
            continue;
        result = cu.MemHostGetFlags(&got, host);
        ask_value(result, got, "pinned.alloc.flags_%#x.got", flags[i]);
        result = cu.MemHostGetDevicePointer(&address, host, 0);
        ask_fact(result, address == (CUdeviceptr)(uintptr_t)host,
                 "pinned.alloc.flags_%#x.device_address_is_host_address", flags[i]);
        ask(cu.MemFreeHost(host), "pinned.alloc.flags_%#x.free", flags[i]);
    }
}

void ask_pinned(void)
{
    CUresult result;
    char *host = NULL;
    void *none = NULL;
    CUdeviceptr address = 0;
    CUdeviceptr base = 0;
    size_t bytes = 0;
    unsigned flags = 0;
    start();
    ask_pinned_flags();
    ask(cu.MemHostAlloc(&none, 0, 0), "pinned.alloc.0");
    ask_yes(none == NULL, "pinned.alloc.0.null");
    ask(cu.MemHostAlloc(&none, PIB, 0), "pinned.alloc.pebibyte");
    ask(cu.MemHostAlloc(NULL, 4096, 0), "pinned.alloc.null");
    void *made = NULL;
    cu.MemHostAlloc(&made, 1000, 0);
    ask_number((long long)((uintptr_t)made % 512), "pinned.alloc_1000.modulo_512");
    result = cu.MemGetAddressRange(&base, &bytes, (CUdeviceptr)(uintptr_t)made);
    ask_value(result, (long long)bytes, "pinned.alloc_1000.range_bytes");
    cu.MemFreeHost(made);
    made = NULL;
    cu.MemHostAlloc(&made, 64 * KIB, 0);
    host = made;
    result = cu.MemHostGetDevicePointer(&address, host + 100, 0);
    ask_fact(result, address == (CUdeviceptr)(uintptr_t)(host + 100), "pinned.device_pointer.interior");
    ask(cu.MemHostGetDevicePointer(&address, host, 1), "pinned.device_pointer.flags_1");
    ask(cu.MemHostGetDevicePointer(NULL, host, 0), "pinned.device_pointer.null_out");
    ask(cu.MemHostGetDevicePointer(&address, NULL, 0), "pinned.device_pointer.null");
    ask(cu.MemHostGetFlags(NULL, host), "pinned.get_flags.null_out");
    ask(cu.MemHostGetFlags(&flags, host + 100), "pinned.get_flags.interior");
    ask(cu.MemHostGetFlags(&flags, NULL), "pinned.get_flags.null");
    void *pageable = malloc(64 * KIB);
    ask(cu.MemHostGetFlags(&flags, pageable), "pinned.get_flags.pageable");
    ask(cu.MemFreeHost(pageable), "pinned.free.pageable");
    free(pageable);
    ask(cu.MemFreeHost(NULL), "pinned.free.null");
    ask(cu.MemFreeHost(host + 100), "pinned.free.interior");
    ask(cu.MemFree((CUdeviceptr)(uintptr_t)host), "pinned.free.by_mem_free");
    ask(cu.MemFreeAsync((CUdeviceptr)(uintptr_t)host, NULL), "pinned.free.by_mem_free_async");
    ask(cu.MemFreeHost(host), "pinned.free");
    ask(cu.MemFreeHost(host), "pinned.free.twice");
    CUdeviceptr device = new_memory(4 * KIB);
    void *device_address = NULL;
    device_address = (void *)(uintptr_t)device;
    ask(cu.MemFreeHost(device_address), "pinned.free.of_device_memory");
    ask(cu.MemFree(device), "pinned.free.of_device_memory.still_there");
    ask(cu.CtxSynchronize(), "pinned.context_is_usable");
}
