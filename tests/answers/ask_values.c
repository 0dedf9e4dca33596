/* Questions about values that streams write and wait for. The host can write the memory of every wait here, and ends
 * it. */
#include "vmm.h"

#include <stdint.h>
#include <string.h>
#include <time.h>

/* Pinned memory, which streams wait for and the host writes. */
static struct {
    volatile uint32_t *word;
    volatile uint64_t *wide;
    CUdeviceptr word_at;
    CUdeviceptr wide_at;
    CUdeviceptr device;
    CUstream stream;
    CUstream other;
} at;

static void prepare(void)
{
    void *pinned = NULL;
    start();
    at.stream = new_stream(CU_STREAM_NON_BLOCKING);
    at.other = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(at.stream);
    warm_up(at.other);
    cu.MemHostAlloc(&pinned, 4096, 0);
    memset(pinned, 0, 4096);
    at.word = pinned;
    at.wide = (uint64_t *)pinned + 1;
    at.word_at = (CUdeviceptr)(uintptr_t)at.word;
    at.wide_at = (CUdeviceptr)(uintptr_t)at.wide;
    at.device = new_memory(4096);
}

static uint64_t device_number(size_t bytes)
{
    uint64_t number = 0;
    cu.MemcpyDtoH(&number, at.device, bytes);
    return number;
}

static void ask_writes(void)
{
    ask(cu.StreamWriteValue32(at.stream, at.word_at, 5, 0), "value.write_32.pinned");
    ask(cu.StreamSynchronize(at.stream), "value.write_32.pinned.synchronize");
    ask_yes(*at.word == 5, "value.write_32.pinned.written");
    ask(cu.StreamWriteValue64(at.stream, at.wide_at, UINT64_MAX - 1, 0), "value.write_64.pinned");
    cu.StreamSynchronize(at.stream);
    ask_yes(*at.wide == UINT64_MAX - 1 && at.word[1] == 0, "value.write_64.pinned.written");
    cu.MemsetD8(at.device, 0, 4096);
    cu.CtxSynchronize();
    ask(cu.StreamWriteValue32(at.stream, at.device, 0x12345678, 0), "value.write_32.device");
    ask(cu.StreamSynchronize(at.stream), "value.write_32.device.synchronize");
    ask_yes(device_number(8) == 0x12345678, "value.write_32.device.written");
    ask(cu.StreamWriteValue64(at.stream, at.device, 0x123456789abcdef0, 0), "value.write_64.device");
    cu.StreamSynchronize(at.stream);
    ask_yes(device_number(8) == 0x123456789abcdef0, "value.write_64.device.written");
    ask(cu.StreamWriteValue32(NULL, at.device, 1, 0), "value.write_32.null_stream");
    ask(cu.StreamWriteValue32(CU_STREAM_PER_THREAD, at.device, 1, 0), "value.write_32.per_thread_stream");
    cu.CtxSynchronize();
}

static void ask_wrong_writes(void)
{
    static const unsigned flags[] = {1, 2, 3, 0x80000000};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        ask(cu.StreamWriteValue32(at.stream, at.device, 1, flags[i]), "value.write_32.flags_%x", flags[i]);
        ask(cu.StreamWriteValue64(at.stream, at.device, 1, flags[i]), "value.write_64.flags_%x", flags[i]);
    }
    int local = 0;
    CUdeviceptr pooled = 0;
    CUdeviceptr managed = 0;
    CUdeviceptr gone = new_memory(64 * MIB);
    cu.MemFree(gone);
    cu.MemAllocAsync(&pooled, 4096, at.stream);
    cu.MemAllocManaged(&managed, 4096, CU_MEM_ATTACH_GLOBAL);
    cu.StreamSynchronize(at.stream);
    ask(cu.StreamWriteValue32(at.stream, at.device + 1, 1, 0), "value.write_32.misaligned_1");
    ask(cu.StreamWriteValue32(at.stream, at.device + 2, 1, 0), "value.write_32.misaligned_2");
    ask(cu.StreamWriteValue64(at.stream, at.device + 4, 1, 0), "value.write_64.misaligned_4");
    ask(cu.StreamWriteValue64(at.stream, at.device + 1, 1, 0), "value.write_64.misaligned_1");
    ask(cu.StreamWriteValue32(at.stream, 0, 1, 0), "value.write_32.address_0");
    ask(cu.StreamWriteValue64(at.stream, 0, 1, 0), "value.write_64.address_0");
    ask(cu.StreamWriteValue32(at.stream, gone, 1, 0), "value.write_32.freed");
    ask(cu.StreamWriteValue32(at.stream, 0x1000, 1, 0), "value.write_32.foreign");
    ask(cu.StreamWriteValue32(at.stream, (CUdeviceptr)(uintptr_t)&local, 1, 0), "value.write_32.host_stack");
    ask(cu.StreamWriteValue32(at.stream, pooled, 1, 0), "value.write_32.pooled");
    ask(cu.StreamWriteValue32(at.stream, managed, 1, 0), "value.write_32.managed");
    ask(cu.StreamWriteValue64(at.stream, managed, 1, 0), "value.write_64.managed");
    ask(cu.StreamWaitValue32(at.stream, managed, 0, 0), "value.wait_32.managed");
    ask(cu.StreamSynchronize(at.stream), "value.write.synchronize");
    cu.MemFree(pooled);
    cu.MemFree(managed);
    ask(cu.CtxSynchronize(), "value.write.context_is_usable");
}

static void ask_mapped(void)
{
    CUdeviceptr range = vmm_map(PAGE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    uint32_t number = 0;
    ask(cu.StreamWriteValue32(at.stream, range, 31, 0), "value.write_32.mapped");
    ask(cu.StreamSynchronize(at.stream), "value.write_32.mapped.synchronize");
    cu.MemcpyDtoH(&number, range, sizeof number);
    ask_number(number, "value.write_32.mapped.written");
    ask(cu.StreamWaitValue32(at.stream, range, 31, CU_STREAM_WAIT_VALUE_EQ), "value.wait_32.mapped");
    ask(await_stream(at.stream), "value.wait_32.mapped.settled");
    vmm_allow(range, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_READ);
    ask(cu.StreamWriteValue32(at.stream, range + 8, 1, 0), "value.write_32.mapped_read_only");
    ask(await_stream(at.stream), "value.mapped_read_only.settled");
    vmm_allow(range, PAGE, 0, CU_MEM_ACCESS_FLAGS_PROT_NONE);
    ask(cu.StreamWriteValue32(at.stream, range + 8, 1, 0), "value.write_32.mapped_no_access");
    ask(await_stream(at.stream), "value.mapped_no_access.settled");
    ask(cu.CtxSynchronize(), "value.mapped.context_is_usable");
}

void ask_value_writes(void)
{
    prepare();
    ask_writes();
    ask_wrong_writes();
    ask_mapped();
}

/* ---- waits ---- */

static bool completes(CUstream stream)
{
    return await_stream(stream) == CUDA_SUCCESS;
}

/* Whether a wait for `value` ends while the memory is `memory`; then `way_out` ends it. */
static void ask_wait_32(uint32_t memory, uint32_t value, unsigned flags, uint32_t way_out, const char *name)
{
    *at.word = memory;
    CUresult result = cu.StreamWaitValue32(at.stream, at.word_at, value, flags);
    ask(result, "value.wait_32.%s", name);
    if (result != CUDA_SUCCESS)
        return;
    ask_yes(completes(at.stream), "value.wait_32.%s.over", name);
    *at.word = way_out;
    ask_yes(completes(at.stream), "value.wait_32.%s.over_after_write", name);
}

static void ask_wait_64(uint64_t memory, uint64_t value, unsigned flags, uint64_t way_out, const char *name)
{
    *at.wide = memory;
    CUresult result = cu.StreamWaitValue64(at.stream, at.wide_at, value, flags);
    ask(result, "value.wait_64.%s", name);
    if (result != CUDA_SUCCESS)
        return;
    ask_yes(completes(at.stream), "value.wait_64.%s.over", name);
    *at.wide = way_out;
    ask_yes(completes(at.stream), "value.wait_64.%s.over_after_write", name);
}

static void ask_comparisons(void)
{
    const uint64_t high = UINT64_C(1) << 40;
    ask_wait_32(5, 5, CU_STREAM_WAIT_VALUE_GEQ, 5, "geq.equal");
    ask_wait_32(6, 5, CU_STREAM_WAIT_VALUE_GEQ, 5, "geq.greater");
    ask_wait_32(4, 5, CU_STREAM_WAIT_VALUE_GEQ, 5, "geq.less");
    ask_wait_32(0, UINT32_MAX, CU_STREAM_WAIT_VALUE_GEQ, UINT32_MAX, "geq.wrapped");
    ask_wait_32(0x80000005, 5, CU_STREAM_WAIT_VALUE_GEQ, 5, "geq.half_ahead");
    ask_wait_32(0x80000004, 5, CU_STREAM_WAIT_VALUE_GEQ, 5, "geq.less_than_half_ahead");
    ask_wait_32(5, 5, CU_STREAM_WAIT_VALUE_EQ, 5, "eq.equal");
    ask_wait_32(6, 5, CU_STREAM_WAIT_VALUE_EQ, 5, "eq.greater");
    ask_wait_32(6, 2, CU_STREAM_WAIT_VALUE_AND, 2, "and.common_bit");
    ask_wait_32(4, 2, CU_STREAM_WAIT_VALUE_AND, 2, "and.no_common_bit");
    ask_wait_32(0xfffffff0, 0xf, CU_STREAM_WAIT_VALUE_NOR, 0, "nor.all_bits");
    ask_wait_32(0xffffffe0, 0xf, CU_STREAM_WAIT_VALUE_NOR, 0, "nor.a_bit_missing");
    ask_wait_64(high, high, CU_STREAM_WAIT_VALUE_GEQ, high, "geq.equal");
    ask_wait_64(5, high, CU_STREAM_WAIT_VALUE_GEQ, high, "geq.less");
    ask_wait_64(0, UINT64_MAX, CU_STREAM_WAIT_VALUE_GEQ, UINT64_MAX, "geq.wrapped");
    ask_wait_64(high, 0, CU_STREAM_WAIT_VALUE_EQ, 0, "eq.high_word_differs");
    ask_wait_64(high + 1, high, CU_STREAM_WAIT_VALUE_AND, high, "and.high_bit");
    ask_wait_64(1, high, CU_STREAM_WAIT_VALUE_AND, high, "and.low_bit_only");
    ask_wait_64(~(uint64_t)0xf, 0xf, CU_STREAM_WAIT_VALUE_NOR, 0, "nor.all_bits");
}

static void ask_wrong_waits(void)
{
    static const unsigned flags[] = {4, 5, 0x10, 0x40000000, 0x40000001, 0x80000000};
    *at.word = 0;
    *at.wide = 0;
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        ask(cu.StreamWaitValue32(at.stream, at.word_at, 0, flags[i]), "value.wait_32.flags_%x", flags[i]);
        ask(cu.StreamWaitValue64(at.stream, at.wide_at, 0, flags[i]), "value.wait_64.flags_%x", flags[i]);
    }
    int local = 0;
    ask(cu.StreamWaitValue32(at.stream, at.word_at + 1, 0, 0), "value.wait_32.misaligned_1");
    ask(cu.StreamWaitValue32(at.stream, at.word_at + 2, 0, 0), "value.wait_32.misaligned_2");
    ask(cu.StreamWaitValue64(at.stream, at.wide_at + 4, 0, 0), "value.wait_64.misaligned_4");
    ask(cu.StreamWaitValue32(at.stream, 0, 0, 0), "value.wait_32.address_0");
    ask(cu.StreamWaitValue64(at.stream, 0, 0, 0), "value.wait_64.address_0");
    ask(cu.StreamWaitValue32(at.stream, (CUdeviceptr)(uintptr_t)&local, 0, 0), "value.wait_32.host_stack");
    ask(cu.StreamWaitValue32(at.stream, 0x1000, 0, 0), "value.wait_32.foreign");
    ask_yes(completes(at.stream), "value.wait.settles");
    ask(cu.CtxSynchronize(), "value.wait.context_is_usable");
}

/* Queries of a stream that waits for a value, and work that does not wait for it. */
static void ask_held_stream(void)
{
    CUevent event = new_event();
    *at.word = 0;
    cu.StreamWaitValue32(at.stream, at.word_at, 1, CU_STREAM_WAIT_VALUE_EQ);
    cu.MemsetD8Async(at.device, 1, 16, at.stream);
    cu.EventRecord(event, at.stream);
    ask(await_stream(at.stream), "value.wait.held.stream_query");
    ask(await_event(event), "value.wait.held.event_query");
    ask(cu.MemsetD8Async(at.device + 64, 1, 16, at.other), "value.wait.held.other_stream");
    ask_yes(completes(at.other), "value.wait.held.other_stream_goes_on");
    *at.word = 1;
    ask_yes(completes(at.stream), "value.wait.held.over");
    ask(cu.EventQuery(event), "value.wait.held.event_over");
}

/* One stream waits for a value that another writes. */
static void ask_hand_over(void)
{
    struct gate *gate;
    cu.MemsetD8(at.device, 0, 4096);
    cu.CtxSynchronize();
    gate = gate_hold(at.other, GATE_LONG_MS);
    ask(cu.StreamWaitValue32(at.stream, at.device, 7, CU_STREAM_WAIT_VALUE_EQ), "value.hand_over.wait");
    ask(cu.MemsetD8Async(at.device + 64, 2, 16, at.stream), "value.hand_over.then_memset");
    ask(cu.StreamWriteValue32(at.other, at.device, 7, 0), "value.hand_over.write");
    ask(await_stream(at.stream), "value.hand_over.before");
    ask_yes(gate_release(gate), "value.hand_over.nothing_waited");
    ask(await_stream(at.stream), "value.hand_over.after");
    /* Other work may write the value. */
    gate = gate_hold(at.other, GATE_LONG_MS);
    cu.StreamWaitValue32(at.stream, at.device, 0x05050505, CU_STREAM_WAIT_VALUE_EQ);
    cu.MemsetD8Async(at.device, 5, 4, at.other);
    gate_release(gate);
    ask(await_stream(at.stream), "value.hand_over.by_memset");
    gate = gate_hold(at.other, GATE_LONG_MS);
    cu.StreamWaitValue64(at.stream, at.device + 8, 1, CU_STREAM_WAIT_VALUE_GEQ);
    *at.wide = 1;
    cu.MemcpyHtoDAsync(at.device + 8, (const void *)(uintptr_t)at.wide_at, 8, at.other);
    gate_release(gate);
    ask(await_stream(at.stream), "value.hand_over.by_copy");
    ask(cu.CtxSynchronize(), "value.hand_over.synchronize");
}

void ask_value_waits(void)
{
    prepare();
    ask_comparisons();
    ask_wrong_waits();
    ask_held_stream();
    ask_hand_over();
}

/* ---- batches ---- */

static CUstreamBatchMemOpParams write_32(CUdeviceptr address, uint32_t value)
{
    CUstreamBatchMemOpParams op = {.pad = {0}};
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    op.writeValue.address = address;
    op.writeValue.value = value;
    return op;
}

static CUstreamBatchMemOpParams write_64(CUdeviceptr address, uint64_t value)
{
    CUstreamBatchMemOpParams op = {.pad = {0}};
    op.writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    op.writeValue.address = address;
    op.writeValue.value64 = value;
    return op;
}

static CUstreamBatchMemOpParams wait_32(CUdeviceptr address, uint32_t value, unsigned flags)
{
    CUstreamBatchMemOpParams op = {.pad = {0}};
    op.waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    op.waitValue.address = address;
    op.waitValue.value = value;
    op.waitValue.flags = flags;
    return op;
}

static CUstreamBatchMemOpParams bare(int operation, unsigned flags)
{
    CUstreamBatchMemOpParams op = {.pad = {0}};
    op.memoryBarrier.operation = (CUstreamBatchMemOpType)operation;
    op.memoryBarrier.flags = flags;
    return op;
}

static void ask_single(CUstreamBatchMemOpParams op, const char *name)
{
    ask(cu.StreamBatchMemOp(at.stream, 1, &op, 0), "value.batch.%s", name);
    ask(await_stream(at.stream), "value.batch.%s.settled", name);
}

static void ask_batch_bytes(void)
{
    *at.word = 0;
    *at.wide = 0;
    CUstreamBatchMemOpParams ops[] = {
        write_32(at.device, 1),
        write_64(at.wide_at, 99),
        wait_32(at.word_at, 3, CU_STREAM_WAIT_VALUE_EQ),
        write_32(at.device, 2),
    };
    ask(cu.StreamBatchMemOp(at.stream, 4, ops, 0), "value.batch.four");
    ask(await_stream(at.stream), "value.batch.four.held");
    ask_number((long long)*at.wide, "value.batch.four.held.second");
    *at.word = 3;
    ask(await_stream(at.stream), "value.batch.four.over");
    ask_number((long long)device_number(4), "value.batch.four.fourth");
}

static void ask_batch_sizes(void)
{
    static CUstreamBatchMemOpParams many[300];
    for (uint32_t i = 0; i < 300; i++)
        many[i] = write_32(at.device + (CUdeviceptr)i * 4, i);
    static const unsigned counts[] = {0, 1, 255, 256, 257, 300};
    for (size_t i = 0; i < sizeof counts / sizeof counts[0]; i++)
        ask(cu.StreamBatchMemOp(at.stream, counts[i], many, 0), "value.batch.count_%u", counts[i]);
    ask(cu.StreamBatchMemOp(at.stream, 0, NULL, 0), "value.batch.count_0.null");
    ask(cu.StreamBatchMemOp(at.stream, 1, many, 1), "value.batch.flags_1");
    ask(cu.StreamBatchMemOp(NULL, 1, many, 0), "value.batch.null_stream");
    cu.CtxSynchronize();
    /* A wrong operation: is the one before it done? */
    cu.MemsetD8(at.device, 0, 4096);
    cu.CtxSynchronize();
    CUstreamBatchMemOpParams two[] = {write_32(at.device, 8), write_32(at.device + 1, 9)};
    ask(cu.StreamBatchMemOp(at.stream, 2, two, 0), "value.batch.second_wrong");
    ask(cu.StreamSynchronize(at.stream), "value.batch.second_wrong.synchronize");
    ask_number((long long)device_number(4), "value.batch.second_wrong.first");
}

void ask_value_batches(void)
{
    prepare();
    ask_batch_bytes();
    ask_batch_sizes();
    ask_single(bare(CU_STREAM_MEM_OP_BARRIER, CU_STREAM_MEMORY_BARRIER_TYPE_SYS), "barrier_system");
    ask_single(bare(CU_STREAM_MEM_OP_BARRIER, CU_STREAM_MEMORY_BARRIER_TYPE_GPU), "barrier_gpu");
    ask_single(bare(CU_STREAM_MEM_OP_BARRIER, 2), "barrier_2");
    ask_single(bare(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 0), "flush");
    ask_single(bare(CU_STREAM_MEM_OP_FLUSH_REMOTE_WRITES, 1), "flush_flags_1");
    ask_single(write_32(0, 1), "write_address_0");
    ask_single(bare(0, 0), "operation_0");
    ask_single(bare(7, 0), "operation_7");
    ask_single(bare(99, 0), "operation_99");
    ask(cu.CtxSynchronize(), "value.batch.context_is_usable");
}
