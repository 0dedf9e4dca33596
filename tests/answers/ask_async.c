/* Questions about stream-ordered allocation: sizes, wrong frees, frees on other streams, frees by cuMemFree. */
#include "ask.h"

#include <stdint.h>

static const char *kind_of_address(CUdeviceptr address)
{
    return address == 0x1234 ? "untouched" : address == 0 ? "null" : "set";
}

static void ask_sizes(CUmemoryPool pool, CUstream stream)
{
    CUresult result;
    CUdeviceptr address = 0x1234;
    ask(cu.MemAllocFromPoolAsync(&address, 0, pool, stream), "async.alloc.0");
    ask_text(kind_of_address(address), "async.alloc.0.address");
    ask(cu.MemFreeAsync(address, stream), "async.alloc.0.free");
    address = 0x1234;
    ask(cu.MemAllocAsync(&address, 0, stream), "async.alloc_default.0");
    ask_text(kind_of_address(address), "async.alloc_default.0.address");
    address = 0x1234;
    ask(cu.MemAllocFromPoolAsync(&address, PIB, pool, stream), "async.alloc.pebibyte");
    ask_text(kind_of_address(address), "async.alloc.pebibyte.address");
    ask(cu.MemAllocFromPoolAsync(&address, SIZE_MAX, pool, stream), "async.alloc.size_max");
    ask(cu.MemAllocAsync(&address, PIB, stream), "async.alloc_default.pebibyte");
    ask(cu.MemAllocFromPoolAsync(NULL, 4096, pool, stream), "async.alloc.null_out");
    ask(cu.MemAllocAsync(NULL, 4096, stream), "async.alloc_default.null_out");
    ask(cu.MemAllocFromPoolAsync(&address, 4096, NULL, stream), "async.alloc.null_pool");
    ask(cu.StreamSynchronize(stream), "async.alloc.synchronize");
    static const size_t sizes[] = {1, 255, 257, 511, 513, 4097, MIB + 1, 3 * MIB + 1};
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        CUdeviceptr first = 0;
        CUdeviceptr second = 0;
        CUdeviceptr base = 0;
        size_t bytes = 0;
        cu.MemAllocFromPoolAsync(&first, sizes[i], pool, stream);
        cu.MemAllocFromPoolAsync(&second, sizes[i], pool, stream);
        ask_number((long long)((first | second) % 512), "async.alloc_%zu.modulo_512", sizes[i]);
        result = cu.MemGetAddressRange(&base, &bytes, first);
        ask_value(result, (long long)bytes, "async.alloc_%zu.range_bytes", sizes[i]);
        ask_yes(base == first, "async.alloc_%zu.range_base", sizes[i]);
        cu.MemFreeAsync(first, stream);
        cu.MemFreeAsync(second, stream);
    }
    cu.StreamSynchronize(stream);
}

static void ask_wrong_frees(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr address = 0;
    int local = 0;
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    ask(cu.MemFreeAsync(0, stream), "async.free.0");
    ask(cu.MemFreeAsync(address + 1, stream), "async.free.interior_1");
    ask(cu.MemFreeAsync(address + 512, stream), "async.free.interior_512");
    ask(cu.MemFreeAsync(0x1000, stream), "async.free.foreign");
    ask(cu.MemFreeAsync((CUdeviceptr)(uintptr_t)&local, stream), "async.free.host_stack");
    ask(cu.MemFreeAsync(address, stream), "async.free");
    ask(cu.MemFreeAsync(address, stream), "async.free.twice");
    cu.StreamSynchronize(stream);
    ask(cu.MemFreeAsync(address, stream), "async.free.twice.after_synchronize");
    ask(cu.MemFree(address), "async.free.then_mem_free");
    ask(cu.StreamSynchronize(stream), "async.free.synchronize");
}

static void ask_mixed_frees(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr address = 0;
    CUdeviceptr plain = new_memory(64 * KIB);
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    ask(cu.MemFree(address + 512), "async.mem_free.interior");
    ask(cu.MemFree(address), "async.mem_free");
    ask(cu.MemFree(address), "async.mem_free.twice");
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "async.mem_free.used_after");
    ask(cu.MemFreeAsync(plain + 512, stream), "async.free_of_mem_alloc.interior");
    ask(cu.MemFreeAsync(plain, stream), "async.free_of_mem_alloc");
    ask(cu.StreamSynchronize(stream), "async.free_of_mem_alloc.synchronize");
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    struct gate *gate = gate_hold(stream, GATE_SHORT_MS);
    ask(cu.MemFree(address), "async.mem_free.while_held");
    ask_yes(!gate_release(gate), "async.mem_free.waits");
    cu.StreamSynchronize(stream);
    gate = gate_hold(stream, GATE_LONG_MS);
    ask(cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream), "async.alloc.while_held");
    ask(cu.MemFreeAsync(address, stream), "async.free.while_held");
    ask_yes(gate_release(gate), "async.alloc_and_free.return_at_once");
    cu.StreamSynchronize(stream);
}

/* Stream-ordered memory freed by the plain call. */
static void ask_plain_free(CUstream stream)
{
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr address = 0;
    CUdeviceptr again = 0;
    cuuint64_t keep = UINT64_MAX;
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    cu.MemFree(address);
    cu.MemAllocFromPoolAsync(&again, 64 * KIB, pool, stream);
    ask_yes(again == address, "async.plain_free.memory_is_reused");
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "async.plain_free.reused.used");
    cu.MemFreeAsync(again, stream);
    cu.StreamSynchronize(stream);
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "async.plain_free.freed.used");
    cu.MemPoolTrimTo(pool, 0);
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), "async.plain_free.trimmed.reserved");
    cu.MemPoolDestroy(pool);
}

static void ask_other_streams(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr address = 0;
    CUstream gone = new_stream(CU_STREAM_NON_BLOCKING);
    CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(other);
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, gone);
    cu.StreamSynchronize(gone);
    cu.StreamDestroy(gone);
    ask(cu.MemFreeAsync(address, stream), "async.free.allocating_stream_destroyed");
    cu.StreamSynchronize(stream);
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    cu.StreamSynchronize(stream);
    ask(cu.MemFreeAsync(address, other), "async.free.on_other_stream");
    ask(cu.StreamSynchronize(other), "async.free.on_other_stream.synchronize");
    static const CUstream special[] = {NULL, CU_STREAM_LEGACY, CU_STREAM_PER_THREAD};
    static const char *const names[] = {"null", "legacy", "per_thread"};
    for (int i = 0; i < 3; i++) {
        address = 0;
        ask(cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, special[i]), "async.%s.alloc", names[i]);
        ask(cu.MemsetD8Async(address, 1, 64 * KIB, special[i]), "async.%s.memset", names[i]);
        ask(cu.MemFreeAsync(address, special[i]), "async.%s.free", names[i]);
        ask(cu.StreamSynchronize(special[i]), "async.%s.synchronize", names[i]);
    }
}

static void ask_used(CUmemoryPool pool, CUstream stream)
{
    CUdeviceptr address = 0;
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "async.used.after_alloc");
    struct gate *gate = gate_hold(stream, GATE_LONG_MS);
    cu.MemFreeAsync(address, stream);
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "async.used.free_pending");
    CUdeviceptr again = 0;
    cu.MemAllocFromPoolAsync(&again, 64 * KIB, pool, stream);
    ask_yes(again == address, "async.same_stream.pending_free_is_reused");
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "async.used.reused");
    cu.MemFreeAsync(again, stream);
    gate_release(gate);
    cu.StreamSynchronize(stream);
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "async.used.free_complete");
    cu.MemAllocFromPoolAsync(&again, 64 * KIB, pool, stream);
    ask_yes(again == address, "async.same_stream.complete_free_is_reused");
    cu.MemFreeAsync(again, stream);
    cu.MemAllocFromPoolAsync(&again, 4 * KIB, pool, stream);
    ask_yes(again == address, "async.same_stream.smaller_request_takes_the_front");
    cu.MemFreeAsync(again, stream);
    cu.StreamSynchronize(stream);
}

void ask_async(void)
{
    start();
    CUmemoryPool pool = new_pool(0);
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    warm_up(NULL);
    warm_up(CU_STREAM_PER_THREAD);
    cuuint64_t keep = UINT64_MAX;
    cu.MemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &keep);
    ask_sizes(pool, stream);
    ask_wrong_frees(pool, stream);
    ask_mixed_frees(pool, stream);
    ask_plain_free(stream);
    ask_other_streams(pool, stream);
    ask_used(pool, stream);
    ask(cu.MemPoolDestroy(pool), "async.pool_destroy");
}
