/* pool(contiguous=SIZE): blocks that other libraries can register whole. */
#include <string.h>
#include <unistd.h>

#include "support/captures.h"
#include "support/pool.h"
#include "support/pool_inside.h"

#include "support/sweep.h"

enum { CHUNK = 2 << 20, LIMIT = 16 << 20 };

static struct {
    PFN_cuMemRetainAllocationHandle_v11000 retain;
    PFN_cuMemGetAllocationPropertiesFromHandle_v10020 properties;
    PFN_cuMemGetAddressRange_v3020 range;
} asked;

static strata_resource *top_of(test_fixture *fixture)
{
    return strata_stack_top(strata_runtime_stack(fixture->runtime));
}

/* The memory at an address, as a library finds it. The handle is released at once: it only names the memory. */
static CUmemGenericAllocationHandle handle_at(CUdeviceptr address, CUmemAllocationProp *properties)
{
    CUmemGenericAllocationHandle handle;
    test_find_driver_call("cuMemRetainAllocationHandle", 11000, &asked.retain);
    test_find_driver_call("cuMemGetAllocationPropertiesFromHandle", 10020, &asked.properties);
    check_cu(asked.retain(&handle, (void *)(uintptr_t)address));
    check_cu(asked.properties(properties, handle));
    check_cu(test_cu()->MemRelease(handle));
    return handle;
}

/* One part, which is the whole chunk: nothing else lies in its memory. */
static void check_contiguous(test_fixture *fixture, const strata_block *block)
{
    strata_pool_hold *hold;
    size_t count = 77;
    check_ok(strata_pool_hold_begin(top_of(fixture), block, &hold));
    const strata_pool_part part = *strata_pool_hold_parts(hold, &count);
    strata_pool_hold_end(hold);
    assert_int_equal(count, 1);
    assert_int_equal(part.offset, 0);
    assert_int_equal(part.bytes, part.handle_bytes);
    assert_int_equal(part.bytes, block->bytes);
    assert_int_equal(block->bytes % CHUNK, 0);
}

static void a_large_block_has_one_handle_and_a_range_of_its_own(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[3];
    for (size_t i = 0; i < 3; i++) {
        blocks[i] = test_allocate(fixture, 5 * MIB, stream);
        check_contiguous(fixture, &blocks[i]);
        assert_int_equal(blocks[i].bytes, 6 * MIB);
        assert_int_equal(blocks[i].requested, 5 * MIB);
        test_fill(blocks[i].address, (unsigned char)(0x50 + i), blocks[i].bytes, stream);
    }
    test_find_driver_call("cuMemGetAddressRange", 3020, &asked.range);
    CUmemAllocationProp properties;
    for (size_t i = 0; i < 3; i++) {
        CUdeviceptr base;
        size_t bytes;
        check_cu(asked.range(&base, &bytes, blocks[i].address + MIB));
        assert_int_equal(base, blocks[i].address);
        assert_int_equal(bytes, blocks[i].bytes);
        assert_int_equal(handle_at(blocks[i].address, &properties),
                         handle_at(blocks[i].address + blocks[i].bytes - 1, &properties));
        check_ends(fixture, &blocks[i], (unsigned char)(0x50 + i), stream);
    }
    assert_int_equal(value_of(fixture->runtime, "pool.contiguous"), 18 * MIB);
    for (size_t i = 0; i < 3; i++)
        test_free_on(fixture, &blocks[i], stream);
    empty_the_pool(fixture);
    assert_int_equal(value_of(fixture->runtime, "pool.contiguous"), 0);
}

static void its_memory_can_be_exported_and_is_made_for_network_cards(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    CUmemAllocationProp properties;
    CUdevice device;
    int exports = 0, cards = 0;
    check_cu(test_cu()->DeviceGet(&device, 0));
    check_cu(test_cu()->DeviceGetAttribute(&exports, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
                                           device));
    check_cu(
        test_cu()->DeviceGetAttribute(&cards, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, device));
    strata_block large = test_allocate(fixture, 4 * MIB, stream), small = test_allocate(fixture, MIB, stream);
    handle_at(large.address, &properties);
    assert_int_equal(properties.requestedHandleTypes & CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                     exports ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : 0);
    assert_int_equal(properties.allocFlags.gpuDirectRDMACapable, cards);
    handle_at(small.address, &properties);
    assert_int_equal(properties.requestedHandleTypes, CU_MEM_HANDLE_TYPE_NONE);
    test_free_on(fixture, &large, stream);
    test_free_on(fixture, &small, stream);
}

/* Sizes are rounded up to 512 bytes first, as those of all blocks. */
static void blocks_below_the_size_share_memory_as_always(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block below = test_allocate(fixture, 4 * MIB - 512, stream);
    assert_int_equal(below.bytes, 4 * MIB - 512);
    assert_int_equal(value_of(fixture->runtime, "pool.contiguous"), 0);
    strata_block rounded = test_allocate(fixture, 4 * MIB - 511, stream);
    assert_int_equal(rounded.bytes, 4 * MIB);
    check_contiguous(fixture, &rounded);
    assert_int_equal(value_of(fixture->runtime, "pool.contiguous"), 4 * MIB);
    test_free_on(fixture, &rounded, stream);
    test_free_on(fixture, &below, stream);
}

static void freed_memory_serves_blocks_of_its_size_and_no_others(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const strata_block first = leave_behind(fixture, 8 * MIB, 0x51, stream);
    strata_block smaller = test_allocate(fixture, 6 * MIB, stream), shared = test_allocate(fixture, 3 * MIB, stream);
    assert_false(overlap(&first, &smaller));
    assert_false(overlap(&first, &shared));
    strata_block again = test_allocate(fixture, 7 * MIB, stream);
    assert_int_equal(again.address, first.address);
    assert_int_equal(again.bytes, first.bytes);
    check_contiguous(fixture, &again);
    test_fill(again.address, 0x52, again.bytes, stream);
    check_ends(fixture, &again, 0x52, stream);
    test_free_on(fixture, &smaller, stream);
    test_free_on(fixture, &shared, stream);
    test_free_on(fixture, &again, stream);
}

/* Before the fill is over, the memory is another stream's, behind a wait: the checker would report it otherwise. */
static void another_stream_gets_freed_memory_behind_its_work(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    const strata_block first = leave_behind(fixture, 8 * MIB, 0x53, stream);
    strata_block again = test_allocate(fixture, 8 * MIB, other);
    assert_int_equal(again.address, first.address);
    test_write(fixture, &again, 0x54, other);
    check_ends(fixture, &again, 0x54, other);
    test_free_on(fixture, &again, other);
}

/* Reads the live block's handle before and after. */
static void a_live_block_keeps_its_memory_whatever_is_short(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    CUmemAllocationProp properties;
    strata_block block = test_allocate(fixture, 4 * MIB, stream), rest;
    test_write(fixture, &block, 0x55, stream);
    const CUmemGenericAllocationHandle handle = handle_at(block.address, &properties);
    set_limit(fixture, LIMIT);
    leave_behind(fixture, 3 * MIB, 0x56, stream);
    leave_behind(fixture, 6 * MIB, 0x57, stream);
    check_refused(fixture, 14 * MIB, stream);
    check_refused(fixture, 13 * MIB, stream);
    check_ok(try_to_allocate(fixture, 12 * MIB, stream, &rest));
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), LIMIT);
    assert_int_equal(handle_at(block.address, &properties), handle);
    check_ends(fixture, &block, 0x55, stream);
    test_free_on(fixture, &rest, stream);
    test_free_on(fixture, &block, stream);
    empty_the_pool(fixture);
}

/* In both directions, up to the limit. */
static void free_memory_of_one_kind_makes_room_for_the_other(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, LIMIT);
    leave_behind(fixture, 12 * MIB, 0x58, stream);
    strata_block shared[5];
    for (size_t i = 0; i < 5; i++) { /* 15 MiB in blocks that share chunks */
        check_ok(try_to_allocate(fixture, 3 * MIB, stream, &shared[i]));
        test_write(fixture, &shared[i], (unsigned char)(0x60 + i), stream);
    }
    assert_int_equal(value_of(fixture->runtime, "pool.contiguous"), 0);
    for (size_t i = 0; i < 5; i++) {
        check_ends(fixture, &shared[i], (unsigned char)(0x60 + i), stream);
        test_free_on(fixture, &shared[i], stream);
    }
    strata_block whole;
    check_ok(try_to_allocate(fixture, LIMIT, stream, &whole));
    check_contiguous(fixture, &whole);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), LIMIT);
    assert_true(value_of(fixture->runtime, "pool.reserved.peak") <= LIMIT);
    test_free_on(fixture, &whole, stream);
    empty_the_pool(fixture);
}

/* On the host only where the request would be refused. */
static void a_request_waits_for_free_memory_of_other_sizes_before_it_is_refused(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, LIMIT);
    leave_behind(fixture, 6 * MIB, 0x59, other);
    leave_behind(fixture, 8 * MIB, 0x5a, stream);
    strata_block whole;
    check_ok(try_to_allocate(fixture, 14 * MIB, stream, &whole));
    check_contiguous(fixture, &whole);
    test_free_on(fixture, &whole, stream);
    empty_the_pool(fixture);
}

/* The chunks moved while work could still use them: they are mapped where that work is, too. */
static void what_moved_in_stream_order_makes_room_for_a_large_block(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    empty_the_pool(fixture);
    set_limit(fixture, LIMIT);
    for (unsigned round = 0; round < 2; round++) {
        strata_block parts[8], moved, large;
        const uint64_t before = value_of(fixture->runtime, "pool.chunks.moved");
        for (size_t i = 0; i < 8; i++)
            parts[i] = test_allocate(fixture, 2 * MIB, stream);
        test_stall *stall = test_stall_begin(stream);
        for (size_t i = 0; i < 8; i += 2) {
            test_write(fixture, &parts[i], 0x11, stream);
            test_free_on(fixture, &parts[i], stream);
        }
        strata_status status = try_to_allocate(fixture, 3 * MIB, stream, &moved);
        const bool served = status == STRATA_SUCCESS;
        if (round)
            test_stall_release(stall);
        else
            test_stall_end(stall);
        check_ok(status);
        assert_true(test_is_swept() || (served && value_of(fixture->runtime, "pool.chunks.moved") > before));
        for (size_t i = 1; i < 8; i += 2)
            test_free_on(fixture, &parts[i], stream);
        test_free_on(fixture, &moved, stream);
        status = try_to_allocate(fixture, LIMIT, stream, &large);
        test_stall_end_all();
        check_ok(status);
        test_write(fixture, &large, 0x22, stream);
        check_ends(fixture, &large, 0x22, stream);
        test_free_on(fixture, &large, stream);
        empty_the_pool(fixture);
    }
}

static void a_refused_request_gives_nothing_back(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, LIMIT);
    strata_block block = test_allocate(fixture, 4 * MIB, stream);
    leave_behind(fixture, 8 * MIB, 0x5b, stream);
    test_synchronize(stream);
    const uint64_t reserved = value_of(fixture->runtime, "pool.reserved");
    check_refused(fixture, 13 * MIB, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), reserved);
    test_free_on(fixture, &block, stream);
    empty_the_pool(fixture);
}

/* Free memory of so many sizes seldom serves the next one, however much of it there is. */
static void memory_exchanged_for_other_sizes_buys_a_tenth_at_most(test_fixture *fixture)
{
    enum { SIZES = 31, REQUESTS = 12 * SIZES, STAYS = 64, LARGEST = 8 + 2 * SIZES };
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block stays = test_allocate(fixture, STAYS * MIB, stream);
    for (size_t i = 0; i < REQUESTS; i++) {
        strata_block block = test_allocate(fixture, (8 + 2 * (7 * i % SIZES)) * MIB, stream);
        test_free_on(fixture, &block, stream);
    }
    assert_in_range(value_of(fixture->runtime, "pool.bought"), 0, 100);
    assert_in_range(value_of(fixture->runtime, "pool.reserved"), STAYS * MIB, (STAYS + LARGEST) * MIB * 6 / 5);
    test_free_on(fixture, &stays, stream);
}

static void a_wider_alignment_than_the_chunks_is_kept(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[2];
    for (size_t i = 0; i < 2; i++) {
        const strata_request request = {.bytes = 4 * MIB, .stream = stream, .alignment = i ? 8 * MIB : 4096};
        check_ok(strata_runtime_allocate_request(fixture->runtime, &request, &blocks[i]));
        assert_int_equal(blocks[i].address % request.alignment, 0);
        check_contiguous(fixture, &blocks[i]);
    }
    test_free_on(fixture, &blocks[0], stream);
    test_free_on(fixture, &blocks[1], stream);
    empty_the_pool(fixture);
}

/* ---- failures ---- */

static struct {
    PFN_cuMemCreate_v10020 create;
    CUresult answer;
    unsigned asked, made;
} fabric;

static CUresult CUDAAPI refuse_fabric(CUmemGenericAllocationHandle *handle, size_t bytes,
                                      const CUmemAllocationProp *properties, unsigned long long flags)
{
    if ((unsigned)properties->requestedHandleTypes & CU_MEM_HANDLE_TYPE_FABRIC) {
        fabric.asked++;
        return fabric.answer;
    }
    const CUresult result = fabric.create(handle, bytes, properties, flags);
    fabric.made += result == CUDA_SUCCESS;
    return result;
}

/* A device that says it has fabric handles, on a machine that makes none. */
static void handles_that_the_machine_refuses_are_left_out(test_fixture *fixture)
{
    static const CUresult answers[] = {CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    pool *self = pool_inside(fixture->runtime);
    for (size_t i = 0; i < 2; i++) {
        strata_block blocks[2] = {0};
        strata_status status[2];
        const CUmemAllocationHandleType types =
            (CUmemAllocationHandleType)((unsigned)self->store.contiguous.requestedHandleTypes &
                                        ~(unsigned)CU_MEM_HANDLE_TYPE_FABRIC);
        self->store.contiguous.requestedHandleTypes =
            (CUmemAllocationHandleType)((unsigned)types | CU_MEM_HANDLE_TYPE_FABRIC);
        fabric.create = strata_cu.MemCreate;
        fabric.answer = answers[i];
        fabric.asked = fabric.made = 0;
        strata_cu.MemCreate = refuse_fabric;
        for (size_t j = 0; j < 2; j++)
            status[j] = strata_runtime_allocate(fixture->runtime, 4 * MIB, stream, &blocks[j]);
        strata_cu.MemCreate = fabric.create;
        check_ok(status[0]);
        check_ok(status[1]);
        assert_int_equal(fabric.asked, 1); /* once for good */
        assert_int_equal(fabric.made, 2);
        assert_int_equal(self->store.contiguous.requestedHandleTypes, types);
        test_free_on(fixture, &blocks[0], stream);
        test_free_on(fixture, &blocks[1], stream);
        empty_the_pool(fixture);
    }
}

static void fail_calls(const char *call, uint64_t times)
{
    for (uint64_t nth = 1; nth <= times; nth++) {
        const strata_sim_fault fault = {.size = sizeof fault, .entry = call, .nth = nth, .error = CUDA_ERROR_UNKNOWN};
        check_cu(test_sim_control()->add_fault(&fault, NULL));
    }
}

/* Each call that makes the chunk fails as often as it is tried, each that returns it once. */
static void a_call_that_fails_leaves_nothing_behind(test_fixture *fixture)
{
    static const char *const made_by[] = {"cuMemCreate", "cuMemAddressReserve", "cuMemMap", "cuMemSetAccess"};
    static const char *const returned_by[] = {"cuMemUnmap", "cuMemRelease", "cuMemAddressFree"};
    test_needs_simulated_driver("faults are the simulated driver's");
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_sim_accounts before, after;
    strata_block block;
    empty_the_pool(fixture);
    check_cu(test_sim_control()->get_accounts(&before));
    for (size_t i = 0; i < sizeof made_by / sizeof made_by[0]; i++) {
        fail_calls(made_by[i], 20);
        const strata_status status = try_to_allocate(fixture, 4 * MIB, stream, &block);
        test_sim_control()->clear_faults();
        check_status(status, STRATA_ERROR_DRIVER);
        check_last_error(STRATA_ERROR_DRIVER, made_by[i]);
        assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 0);
    }
    for (size_t i = 0; i < sizeof returned_by / sizeof returned_by[0]; i++) {
        leave_behind(fixture, 4 * MIB, 0x5c, stream);
        test_synchronize(stream);
        fail_calls(returned_by[i], 1);
        const strata_status status = strata_runtime_trim(fixture->runtime, 0, NULL);
        test_sim_control()->clear_faults();
        check_status(status, STRATA_ERROR_DRIVER);
        check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
        assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 0);
    }
    check_cu(test_sim_control()->get_accounts(&after));
    assert_int_equal(after.reserved_bytes, before.reserved_bytes);
    assert_int_equal(after.memory_handles, before.memory_handles);
    assert_int_equal(after.memory_maps, before.memory_maps);
    assert_int_equal(after.address_ranges, before.address_ranges);
}

static void memory_unused_for_a_time_goes_back(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const uint64_t soon = 1000; /* ns */
    leave_behind(fixture, 4 * MIB, 0x5d, stream);
    check_cu(test_cu()->CtxSynchronize());
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), "pool.decay", NULL, &soon));
    for (int i = 0; i < 200 && value_of(fixture->runtime, "pool.contiguous"); i++) {
        usleep(1000);
        leave_behind(fixture, 3 * MIB, 0x5e, stream);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    }
    assert_int_equal(value_of(fixture->runtime, "pool.contiguous"), 0);
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), "pool.decay", NULL, &(uint64_t){0}));
    empty_the_pool(fixture);
}

/* What is charged is what the chunk takes. */
static void a_budget_counts_the_whole_chunk(test_fixture *fixture)
{
    needs_granule(CHUNK);
    strata_runtime *runtime;
    strata_block block, more;
    (void)fixture;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "budget(limit=8MiB), pool(contiguous=4MiB)"},
                                   &runtime));
    check_ok(strata_runtime_allocate(runtime, 5 * MIB, 0, &block));
    assert_int_equal(block.bytes, 6 * MIB);
    assert_int_equal(value_of(runtime, "budget.in_use"), 6 * MIB);
    const strata_status status = strata_runtime_allocate(runtime, 4 * MIB, 0, &more);
    check_ok(strata_runtime_deallocate(runtime, &block));
    assert_int_equal(value_of(runtime, "budget.in_use"), 0);
    check_ok(strata_runtime_destroy(runtime));
    check_status(status, STRATA_ERROR_OUT_OF_BUDGET);
}

static void it_is_exported_by_one_handle(test_fixture *fixture)
{
    needs_granule(CHUNK);
    strata_runtime *runtime;
    strata_block block;
    strata_pool_hold *hold;
    size_t count = 0;
    (void)fixture;
    check_ok(
        strata_runtime_create(&(strata_runtime_config){.stack_text = "pool(contiguous=4MiB, export=fd)"}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 4 * MIB, 0, &block));
    check_ok(strata_pool_export(strata_stack_top(strata_runtime_stack(runtime)), &block, &hold));
    const strata_pool_part *part = strata_pool_hold_parts(hold, &count);
    assert_int_equal(count, 1);
    assert_int_equal(part->handle_bytes, 4 * MIB);
    assert_true(part->fd >= 0);
    assert_int_equal(close(part->fd), 0);
    strata_pool_hold_end(hold);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

/* Until the initial size was reserved once, no request is served; such blocks are a part of it. */
static void the_initial_size_comes_first(test_fixture *fixture)
{
    needs_granule(CHUNK);
    strata_runtime *runtime;
    strata_block block;
    (void)fixture;
    check_ok(strata_runtime_create(
        &(strata_runtime_config){.stack_text = "pool(contiguous=4MiB, initial_size=8MiB, max_size=12MiB)"}, &runtime));
    check_ok(strata_runtime_allocate(runtime, 4 * MIB, 0, &block));
    assert_int_equal(value_of(runtime, "pool.reserved"), 8 * MIB);
    assert_int_equal(value_of(runtime, "pool.reserved.peak"), 8 * MIB);
    assert_int_equal(value_of(runtime, "pool.contiguous"), 4 * MIB);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
}

static void options_that_cannot_be_kept_are_refused_with_a_reason(test_fixture *fixture)
{
    static const struct {
        const char *stack;
        strata_status status;
        const char *words;
    } rows[] = {
        {"pool(contiguous=4KiB)", STRATA_ERROR_INVALID_VALUE, "at least 1 MiB"},
        {"pool(contiguous=4MiB, deterministic=on)", STRATA_ERROR_INVALID_VALUE, "deterministic"},
        {"pool(contiguous=4MiB), direct", STRATA_ERROR_UNSUPPORTED, "leave out contiguous"},
        {"pool(contiguous=4MiB), async", STRATA_ERROR_UNSUPPORTED, "leave out contiguous"},
    };
    (void)fixture;
    for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
        strata_runtime *runtime = (strata_runtime *)&rows;
        check_status(strata_runtime_create(&(strata_runtime_config){.stack_text = rows[i].stack}, &runtime),
                     rows[i].status);
        check_last_error(rows[i].status, rows[i].words);
        assert_null(runtime);
    }
}

int main(void)
{
    static const char *const stacks[] = {"pool(contiguous=4MiB, chunk=2MiB, decay=0)"};
    static const test_case cases[] = {
        TEST_CASE(a_call_that_fails_leaves_nothing_behind), /* not in sweeps: it has faults of its own */
        TEST_CASE(memory_unused_for_a_time_goes_back),      /* depends on the clock */
        TEST_CASE(handles_that_the_machine_refuses_are_left_out),
        TEST_CASE(a_large_block_has_one_handle_and_a_range_of_its_own),
        TEST_CASE(its_memory_can_be_exported_and_is_made_for_network_cards),
        TEST_CASE(blocks_below_the_size_share_memory_as_always),
        TEST_CASE(freed_memory_serves_blocks_of_its_size_and_no_others),
        TEST_CASE(another_stream_gets_freed_memory_behind_its_work),
        TEST_CASE(a_live_block_keeps_its_memory_whatever_is_short),
        TEST_CASE(free_memory_of_one_kind_makes_room_for_the_other),
        TEST_CASE(a_request_waits_for_free_memory_of_other_sizes_before_it_is_refused),
        TEST_CASE(what_moved_in_stream_order_makes_room_for_a_large_block),
        TEST_CASE(a_refused_request_gives_nothing_back),
        TEST_CASE(memory_exchanged_for_other_sizes_buys_a_tenth_at_most),
        TEST_CASE(a_wider_alignment_than_the_chunks_is_kept),
        TEST_CASE(a_budget_counts_the_whole_chunk),
        TEST_CASE(it_is_exported_by_one_handle),
        TEST_CASE(the_initial_size_comes_first),
        TEST_CASE(options_that_cannot_be_kept_are_refused_with_a_reason),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    const size_t first = test_is_swept() ? 3 : 0;
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases + first, sizeof cases / sizeof cases[0] - first);
}
