/* Questions about copies and fills: their effect, wrong sizes and addresses, and which calls wait. */
#include "ask.h"

#include <stdint.h>
#include <stdlib.h>
#include <string.h>

static bool all_bytes(const unsigned char *bytes, size_t count, unsigned char value)
{
    for (size_t i = 0; i < count; i++) {
        if (bytes[i] != value)
            return false;
    }
    return true;
}

static void ask_round_trip(CUdeviceptr first, CUdeviceptr second, CUstream stream)
{
    enum { BYTES = 1000 };
    unsigned char from[BYTES];
    unsigned char to[BYTES];
    memset(from, 0x5a, sizeof from);
    memset(to, 0, sizeof to);
    ask(cu.MemcpyHtoD(first, from, BYTES), "copy.htod");
    ask(cu.MemcpyDtoD(second + 3, first, BYTES), "copy.dtod");
    ask(cu.MemcpyDtoH(to, second + 3, BYTES), "copy.dtoh");
    ask_yes(all_bytes(to, BYTES, 0x5a), "copy.round_trip");
    memset(from, 0x17, sizeof from);
    ask(cu.MemcpyHtoDAsync(first, from, BYTES, stream), "copy.htod_async");
    ask(cu.MemcpyDtoDAsync(second, first, BYTES, stream), "copy.dtod_async");
    ask(cu.MemcpyDtoHAsync(to, second, BYTES, stream), "copy.dtoh_async");
    ask(cu.StreamSynchronize(stream), "copy.async.synchronize");
    ask_yes(all_bytes(to, BYTES, 0x17), "copy.async.round_trip");
    memset(from, 0x29, sizeof from);
    ask(cu.Memcpy(first, (CUdeviceptr)(uintptr_t)from, BYTES), "copy.unified.host_to_device");
    ask(cu.Memcpy(second, first, BYTES), "copy.unified.device_to_device");
    ask(cu.Memcpy((CUdeviceptr)(uintptr_t)to, second, BYTES), "copy.unified.device_to_host");
    ask_yes(all_bytes(to, BYTES, 0x29), "copy.unified.round_trip");
    memset(from, 0x31, sizeof from);
    ask(cu.Memcpy((CUdeviceptr)(uintptr_t)to, (CUdeviceptr)(uintptr_t)from, BYTES), "copy.unified.host_to_host");
    ask_yes(all_bytes(to, BYTES, 0x31), "copy.unified.host_to_host.bytes");
    ask(cu.MemcpyAsync(second, first, BYTES, stream), "copy.unified_async");
    ask(cu.StreamSynchronize(stream), "copy.unified_async.synchronize");
    /* A copy within the device has started, but may not be complete, when the call returns. */
    ask(cu.MemcpyDtoD(first + 10, first, 500), "copy.dtod.overlapping");
    cu.StreamSynchronize(CU_STREAM_LEGACY);
    ask(cu.MemcpyDtoDAsync(first + 10, first, 500, stream), "copy.dtod_async.overlapping");
    cu.StreamSynchronize(stream);
    ask(cu.MemcpyDtoD(first, first, 500), "copy.dtod.onto_itself");
    ask(cu.StreamSynchronize(stream), "copy.overlapping.synchronize");
}

static void ask_zero_and_null(CUdeviceptr memory, CUstream stream)
{
    unsigned char byte = 0;
    ask(cu.MemcpyHtoD(memory, &byte, 0), "copy.htod.0_bytes");
    ask(cu.MemcpyDtoH(&byte, memory, 0), "copy.dtoh.0_bytes");
    ask(cu.MemcpyDtoD(memory, memory, 0), "copy.dtod.0_bytes");
    ask(cu.Memcpy(memory, memory, 0), "copy.unified.0_bytes");
    ask(cu.MemcpyHtoDAsync(memory, &byte, 0, stream), "copy.htod_async.0_bytes");
    ask(cu.MemcpyDtoHAsync(&byte, memory, 0, stream), "copy.dtoh_async.0_bytes");
    ask(cu.MemcpyDtoDAsync(memory, memory, 0, stream), "copy.dtod_async.0_bytes");
    ask(cu.MemcpyHtoD(0, NULL, 0), "copy.htod.0_bytes.null");
    ask(cu.MemcpyDtoH(NULL, 0, 0), "copy.dtoh.0_bytes.null");
    ask(cu.MemcpyDtoD(0, 0, 0), "copy.dtod.0_bytes.null");
    ask(cu.MemcpyDtoDAsync(0, 0, 0, stream), "copy.dtod_async.0_bytes.null");
    ask(cu.MemcpyHtoD(0, &byte, 1), "copy.htod.address_0");
    ask(cu.MemcpyDtoH(&byte, 0, 1), "copy.dtoh.address_0");
    ask(cu.MemcpyDtoD(0, memory, 1), "copy.dtod.to_0");
    ask(cu.MemcpyDtoD(memory, 0, 1), "copy.dtod.from_0");
    ask(cu.MemcpyHtoD(memory, NULL, 16), "copy.htod.null_host");
    ask(cu.MemcpyDtoH(NULL, memory, 16), "copy.dtoh.null_host");
    ask(cu.MemcpyHtoDAsync(memory, NULL, 16, stream), "copy.htod_async.null_host");
    ask(cu.MemcpyDtoHAsync(NULL, memory, 16, stream), "copy.dtoh_async.null_host");
    ask(cu.StreamSynchronize(stream), "copy.zero_and_null.synchronize");
}

void ask_copies(void)
{
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    CUdeviceptr first = new_memory(64 * KIB);
    CUdeviceptr second = 0;
    CUmemoryPool pool = new_pool(0);
    cu.MemAllocFromPoolAsync(&second, 64 * KIB, pool, stream);
    cu.StreamSynchronize(stream);
    ask_round_trip(first, second, stream);
    ask_zero_and_null(first, stream);
}

void ask_fills(void)
{
    unsigned char bytes[64];
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    CUdeviceptr memory = new_memory(64 * KIB);
    ask(cu.MemsetD8(memory, 0xab, 64), "fill.d8");
    cu.MemcpyDtoH(bytes, memory, sizeof bytes);
    ask_yes(all_bytes(bytes, 64, 0xab), "fill.d8.bytes");
    ask(cu.MemsetD16(memory, 0x1234, 32), "fill.d16");
    cu.MemcpyDtoH(bytes, memory, sizeof bytes);
    ask_yes(bytes[0] == 0x34 && bytes[1] == 0x12 && bytes[62] == 0x34 && bytes[63] == 0x12, "fill.d16.bytes");
    ask(cu.MemsetD32(memory, 0x12345678, 16), "fill.d32");
    cu.MemcpyDtoH(bytes, memory, sizeof bytes);
    ask_yes(bytes[0] == 0x78 && bytes[3] == 0x12 && bytes[63] == 0x12, "fill.d32.bytes");
    ask(cu.MemsetD8Async(memory + 1, 0xcd, 62, stream), "fill.d8_async");
    ask(cu.StreamSynchronize(stream), "fill.d8_async.synchronize");
    cu.MemcpyDtoH(bytes, memory, sizeof bytes);
    ask_yes(all_bytes(bytes + 1, 62, 0xcd) && bytes[0] == 0x78 && bytes[63] == 0x12, "fill.d8_async.bytes");
    ask(cu.MemsetD16Async(memory, 0x1234, 32, stream), "fill.d16_async");
    ask(cu.MemsetD32Async(memory, 0x12345678, 16, stream), "fill.d32_async");
    ask(cu.MemsetD16(memory + 1, 0, 8), "fill.d16.misaligned");
    ask(cu.MemsetD32(memory + 1, 0, 8), "fill.d32.misaligned_1");
    ask(cu.MemsetD32(memory + 2, 0, 8), "fill.d32.misaligned_2");
    ask(cu.MemsetD16Async(memory + 1, 0, 8, stream), "fill.d16_async.misaligned");
    ask(cu.MemsetD32Async(memory + 1, 0, 8, stream), "fill.d32_async.misaligned_1");
    ask(cu.MemsetD32Async(memory + 2, 0, 8, stream), "fill.d32_async.misaligned_2");
    ask(cu.MemsetD16(memory + 1, 0, 0), "fill.d16.misaligned.0_count");
    ask(cu.MemsetD8(memory, 0, 0), "fill.d8.0_count");
    ask(cu.MemsetD16(memory, 0, 0), "fill.d16.0_count");
    ask(cu.MemsetD32(memory, 0, 0), "fill.d32.0_count");
    ask(cu.MemsetD8Async(memory, 0, 0, stream), "fill.d8_async.0_count");
    ask(cu.MemsetD32Async(memory, 0, 0, stream), "fill.d32_async.0_count");
    ask(cu.MemsetD8(0, 0, 0), "fill.d8.0_count.address_0");
    ask(cu.MemsetD8Async(0, 0, 0, stream), "fill.d8_async.0_count.address_0");
    ask(cu.MemsetD8(0, 0, 1), "fill.d8.address_0");
    ask(cu.MemsetD8Async(0, 0, 1, stream), "fill.d8_async.address_0");
    ask(cu.StreamSynchronize(stream), "fill.synchronize");
}

/* Past the end of one allocation. A fault here would poison the context, so it is a section of its own. */
void ask_copy_ranges(void)
{
    enum { BYTES = 4 * 1024 * 1024 };
    start();
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    CUdeviceptr memory = new_memory(BYTES);
    CUdeviceptr other = new_memory(2 * BYTES);
    unsigned char *host = calloc(2, BYTES);
    if (host == NULL)
        return;
    const CUdeviceptr foreign = 0x7f0000000000ULL / 3 * 2;
    ask(cu.MemcpyHtoD(memory + BYTES - 16, host, 16), "copy_range.htod.last_16");
    ask(cu.MemcpyHtoD(memory, host, BYTES + 1), "copy_range.htod.1_past");
    ask(cu.MemcpyDtoH(host, memory, BYTES + 1), "copy_range.dtoh.1_past");
    ask(cu.MemcpyDtoD(other, memory, BYTES + 1), "copy_range.dtod.source_1_past");
    ask(cu.MemcpyDtoD(memory, other, BYTES + 1), "copy_range.dtod.target_1_past");
    ask(cu.MemcpyDtoD(memory + BYTES - 8, other, 16), "copy_range.dtod.target_8_past");
    ask(cu.MemsetD8(memory, 0, BYTES + 1), "copy_range.memset_d8.1_past");
    ask(cu.MemsetD32(memory, 0, BYTES / 4 + 1), "copy_range.memset_d32.1_past");
    ask(cu.MemcpyHtoDAsync(memory, host, BYTES + 1, stream), "copy_range.htod_async.1_past");
    ask(cu.MemcpyDtoHAsync(host, memory, BYTES + 1, stream), "copy_range.dtoh_async.1_past");
    ask(cu.MemcpyDtoDAsync(other, memory, BYTES + 1, stream), "copy_range.dtod_async.source_1_past");
    ask(cu.MemsetD8Async(memory, 0, BYTES + 1, stream), "copy_range.memset_d8_async.1_past");
    ask(cu.StreamSynchronize(stream), "copy_range.past.synchronize");
    cu.MemFree(memory);
    ask(cu.MemcpyHtoD(memory, host, 16), "copy_range.htod.freed");
    ask(cu.MemsetD8(memory, 0, 16), "copy_range.memset_d8.freed");
    ask(cu.MemsetD8Async(memory, 0, 16, stream), "copy_range.memset_d8_async.freed");
    ask(cu.StreamSynchronize(stream), "copy_range.freed.synchronize");
    ask(cu.MemcpyHtoD(foreign, host, 16), "copy_range.htod.foreign");
    ask(cu.MemcpyDtoH(host, foreign, 16), "copy_range.dtoh.foreign");
    ask(cu.MemcpyDtoD(other, foreign, 16), "copy_range.dtod.foreign");
    ask(cu.MemsetD8(foreign, 0, 16), "copy_range.memset_d8.foreign");
    ask(cu.MemsetD8Async(foreign, 0, 16, stream), "copy_range.memset_d8_async.foreign");
    ask(cu.MemcpyDtoDAsync(other, foreign, 16, stream), "copy_range.dtod_async.foreign");
    ask(cu.StreamSynchronize(stream), "copy_range.foreign.synchronize");
    ask(cu.CtxSynchronize(), "copy_range.context_is_usable");
    free(host);
}

struct copy {
    CUdeviceptr memory;
    CUdeviceptr other;
    void *pinned;
    void *registered;
    void *pageable;
    CUstream stream;
};

static CUresult htod_pinned(const struct copy *copy)
{
    return cu.MemcpyHtoDAsync(copy->memory, copy->pinned, MIB, copy->stream);
}

static CUresult htod_pageable(const struct copy *copy)
{
    return cu.MemcpyHtoDAsync(copy->memory, copy->pageable, MIB, copy->stream);
}

static CUresult htod_pageable_small(const struct copy *copy)
{
    return cu.MemcpyHtoDAsync(copy->memory, copy->pageable, KIB, copy->stream);
}

static CUresult dtoh_pinned(const struct copy *copy)
{
    return cu.MemcpyDtoHAsync(copy->pinned, copy->memory, MIB, copy->stream);
}

static CUresult dtoh_pageable(const struct copy *copy)
{
    return cu.MemcpyDtoHAsync(copy->pageable, copy->memory, MIB, copy->stream);
}

static CUresult dtod(const struct copy *copy)
{
    return cu.MemcpyDtoDAsync(copy->other, copy->memory, MIB, copy->stream);
}

static CUresult fill(const struct copy *copy)
{
    return cu.MemsetD8Async(copy->memory, 1, MIB, copy->stream);
}

static CUresult fill_pinned(const struct copy *copy)
{
    return cu.MemsetD8Async((CUdeviceptr)(uintptr_t)copy->pinned, 1, MIB, copy->stream);
}

static CUresult fill_registered(const struct copy *copy)
{
    return cu.MemsetD8Async((CUdeviceptr)(uintptr_t)copy->registered, 1, MIB, copy->stream);
}

static CUresult htod_sync(const struct copy *copy)
{
    return cu.MemcpyHtoD(copy->memory, copy->pageable, MIB);
}

static CUresult dtoh_sync(const struct copy *copy)
{
    return cu.MemcpyDtoH(copy->pageable, copy->memory, MIB);
}

static CUresult dtod_sync(const struct copy *copy)
{
    return cu.MemcpyDtoD(copy->other, copy->memory, MIB);
}

static CUresult fill_sync(const struct copy *copy)
{
    return cu.MemsetD8(copy->memory, 1, MIB);
}

void ask_copy_waits(void)
{
    static const struct {
        const char *name;
        CUresult (*call)(const struct copy *);
    } calls[] = {
        {"htod_async_pinned", htod_pinned},
        {"htod_async_pageable", htod_pageable},
        {"htod_async_pageable_1_kib", htod_pageable_small},
        {"dtoh_async_pinned", dtoh_pinned},
        {"dtoh_async_pageable", dtoh_pageable},
        {"dtod_async", dtod},
        {"memset_async", fill},
        {"memset_async_pinned", fill_pinned},
        {"memset_async_registered", fill_registered},
        {"htod", htod_sync},
        {"dtoh", dtoh_sync},
        {"dtod", dtod_sync},
        {"memset", fill_sync},
    };
    start();
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    CUstream non_blocking = new_stream(CU_STREAM_NON_BLOCKING);
    struct copy copy = {.memory = new_memory(MIB), .other = new_memory(MIB), .pageable = calloc(1, MIB)};
    cu.MemHostAlloc(&copy.pinned, MIB, 0);
    copy.registered = aligned_alloc(MIB, MIB);
    cu.MemHostRegister(copy.registered, MIB, 0);
    warm_up(blocking);
    warm_up(non_blocking);
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        copy.stream = blocking;
        calls[i].call(&copy);
        cu.CtxSynchronize();
        struct gate *gate = gate_hold(blocking, GATE_SHORT_MS);
        ask(calls[i].call(&copy), "copy_waits.%s.blocking_held.result", calls[i].name);
        ask_yes(!gate_release(gate), "copy_waits.%s.blocking_held", calls[i].name);
        cu.CtxSynchronize();
        copy.stream = non_blocking;
        gate = gate_hold(non_blocking, GATE_SHORT_MS);
        calls[i].call(&copy);
        ask_yes(!gate_release(gate), "copy_waits.%s.non_blocking_held", calls[i].name);
        cu.CtxSynchronize();
    }
    cu.MemHostUnregister(copy.registered);
    free(copy.registered);
    free(copy.pageable);
}
