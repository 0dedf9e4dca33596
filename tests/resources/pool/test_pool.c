/* pool: obstacles to a request, from a capture, the driver, or another thread. */
#include <pthread.h>
#include <stdio.h>
#include <string.h>

#include "support/beside.h"
#include "support/captures.h"
#include "support/faults.h"
#include "support/fixture.h"
#include "support/sweep.h"

enum { MIB = 1 << 20, GRANULE = 2 * MIB /* mapping granularity of the simulated device and of an H200 */ };

static bool has_granule(void)
{
    return test_sim_control() != NULL; /* another device may have another one */
}

static bool overlap(const strata_block *a, const strata_block *b)
{
    return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

/* ---- waiting for frees ---- */

/* Free memory may still have pending work. A full reap waits for it, once for each stream. */
static void waiting_for_frees_waits_for_the_work_on_free_memory(test_fixture *fixture)
{
    enum { STREAMS = 3, EACH = 4 };
    for (int s = 0; s < STREAMS; s++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
        strata_block blocks[EACH];
        for (int i = 0; i < EACH; i++) {
            blocks[i] = test_allocate(fixture, 100000, stream);
            test_write(fixture, &blocks[i], 0x11, stream);
        }
        for (int i = 0; i < EACH; i++)
            test_free_on(fixture, &blocks[i], stream);
    }
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_calls_of(&calls, "cuEventSynchronize"), STREAMS);
    test_calls_begin(&calls);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_calls_total(&calls), test_calls_of(&calls, "cuCtxGetId")); /* whether there was a reset */
}

/* Otherwise its memory would be unmapped under the work. */
static void a_pool_whose_memory_cannot_be_waited_for_is_not_destroyed(test_fixture *fixture)
{
    strata_runtime *second;
    strata_block block;
    CUstream captured;
    check_cu(test_cu()->StreamCreate(&captured, CU_STREAM_DEFAULT));
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &second));
    check_ok(strata_runtime_allocate(second, 4096, NULL, &block));
    check_ok(strata_runtime_prepare_block_use(second, &block, NULL, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, 4096, NULL);
    check_ok(strata_runtime_finish_block_use(second, &block, NULL, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(second, &block));
    test_begin_capture(captured);
    check_status(strata_runtime_destroy(second), STRATA_ERROR_STREAM_CAPTURE);
    assert_int_equal(test_end_capture(captured), 0);
    check_ok(strata_runtime_destroy(second));
    check_cu(test_cu()->StreamDestroy(captured));
}

/* ---- failed allocations ---- */

/* The failed allocation made the stream wait for the memory's last work, and the memory keeps that. */
static void check_memory_of_failure(test_fixture *fixture, bool cached)
{
    if (!has_granule())
        return;
    test_use_events(fixture, STRATA_EVENTS_EARLY);
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_POOL);
    strata_block old = test_allocate(fixture, GRANULE, first), none;
    test_stall *stall = test_stall_begin(first);
    test_write(fixture, &old, 0x11, first);
    const unsigned char *seen = test_copy_back(fixture, old.address, 4096, first);
    test_free_on(fixture, &old, first);
    if (!cached)
        check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, NULL)); /* out of the thread's caches */
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, false, CUDA_ERROR_UNKNOWN);
    strata_status status = strata_runtime_allocate(fixture->runtime, GRANULE, first, &none);
    assert_int_equal(test_fault_end(), 1);
    check_status(status, STRATA_ERROR_DRIVER);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block next = test_allocate(fixture, GRANULE, second);
    assert_true(overlap(&old, &next));
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 1);
    test_write(fixture, &next, 0x22, second);
    test_stall_end(stall);
    test_synchronize(second);
    check_bytes(seen, 0x11, 4096);
    test_free_on(fixture, &next, second);
}

static void memory_of_an_allocation_that_fails_is_still_waited_for(test_fixture *fixture)
{
    check_memory_of_failure(fixture, true);
}

static void memory_that_no_cache_had_of_an_allocation_that_fails_is_still_waited_for(test_fixture *fixture)
{
    check_memory_of_failure(fixture, false);
}

/* The error names the call, the attempt leaves nothing behind, and the next request succeeds. */
static void an_allocation_that_the_driver_refuses_says_which_call_and_keeps_nothing(test_fixture *fixture)
{
    static const struct {
        test_fault_call call;
        const char *name;
    } calls[] = {
        {TEST_FAULT_MEM_CREATE, "cuMemCreate"},
        {TEST_FAULT_MEM_MAP, "cuMemMap"},
        {TEST_FAULT_MEM_SET_ACCESS, "cuMemSetAccess"},
    };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block;
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        const size_t reserved = test_usage(fixture).reserved_bytes;
        test_fault_begin(calls[i].call, 1, true, CUDA_ERROR_UNKNOWN);
        strata_status status = strata_runtime_allocate(fixture->runtime, 8 * MIB, stream, &block);
        assert_true(test_fault_end() >= 1);
        check_status(status, STRATA_ERROR_DRIVER);
        check_last_error(STRATA_ERROR_DRIVER, calls[i].name);
        assert_string_equal(strata_last_error()->driver_call, calls[i].name);
        assert_true(test_usage(fixture).reserved_bytes == reserved);
    }
    block = test_allocate(fixture, 8 * MIB, stream);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static CUresult CUDAAPI refuse_access(CUdeviceptr address, size_t bytes, const CUmemAccessDesc *access, size_t count)
{
    (void)address, (void)bytes, (void)access, (void)count;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_to_unmap(CUdeviceptr address, size_t bytes)
{
    (void)address, (void)bytes;
    return CUDA_ERROR_UNKNOWN;
}

/* Memory that can be neither used nor unmapped is held until the pool is destroyed, and its addresses are not used
 * again. */
static void addresses_that_cannot_be_unmapped_are_not_mapped_again(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const strata_entry_table real = strata_cu;
    strata_block block;
    strata_cu.MemSetAccess = refuse_access;
    strata_cu.MemUnmap = refuse_to_unmap;
    strata_status status = strata_runtime_allocate(fixture->runtime, 8 * MIB, stream, &block);
    strata_cu.MemSetAccess = real.MemSetAccess;
    strata_cu.MemUnmap = real.MemUnmap;
    check_status(status, STRATA_ERROR_DRIVER);
    block = test_allocate(fixture, 8 * MIB, stream);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

/* ---- returning memory ---- */

/* The first trim keeps what it has returned; the next one returns the rest. */
static void a_trim_that_the_driver_refuses_says_so_and_the_next_one_goes_on(test_fixture *fixture)
{
    static const struct {
        test_fault_call call;
        const char *name;
    } calls[] = {{TEST_FAULT_MEM_UNMAP, "cuMemUnmap"}, {TEST_FAULT_MEM_RELEASE, "cuMemRelease"}};
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < 2; i++) {
        strata_block block = test_allocate(fixture, 64 * MIB, stream);
        test_write(fixture, &block, 0x11, stream);
        test_free_on(fixture, &block, stream);
        const size_t before = test_usage(fixture).reserved_bytes;
        size_t first = 1, second = 1;
        test_fault_begin(calls[i].call, 2, false, CUDA_ERROR_UNKNOWN);
        strata_status status = strata_runtime_trim(fixture->runtime, 0, &first);
        assert_int_equal(test_fault_end(), 1);
        check_status(status, STRATA_ERROR_DRIVER);
        check_last_error(STRATA_ERROR_DRIVER, calls[i].name);
        assert_true(first > 0 && test_usage(fixture).reserved_bytes == before - first);
        check_ok(strata_runtime_trim(fixture->runtime, 0, &second));
        assert_true(first + second == before && test_usage(fixture).reserved_bytes == 0);
    }
}

static void trim_beside(void *data)
{
    size_t freed;
    strata_runtime_trim(((test_fixture *)data)->runtime, 0, &freed);
}

static void a_refused_trim_is_logged_while_other_threads_trim_the_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    test_beside beside;
    size_t freed;
    if (test_is_swept())
        return;
    strata_block block = test_allocate(fixture, 64 * MIB, stream);
    test_write(fixture, &block, 0x11, stream);
    test_free_on(fixture, &block, stream);
    test_beside_begin(&beside, trim_beside, fixture);
    test_fault_begin(TEST_FAULT_MEM_UNMAP, 2, false, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_runtime_trim(fixture->runtime, 0, &freed);
    test_fault_end();
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_DRIVER);
}

/* ---- memory that cannot be waited for ---- */

/* There is memory, so the error is that of the wait, not out of memory. */
static void a_wait_that_fails_is_what_an_allocation_fails_for(test_fixture *fixture)
{
    strata_runtime *small;
    strata_block all, block;
    char text[64];
    snprintf(text, sizeof text, "pool(max_size=%d)", GRANULE);
    CUstream first = test_stream(fixture, TEST_STREAM_POOL), second = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &small));
    check_ok(strata_runtime_allocate(small, GRANULE, first, &all));
    test_stall *stall = test_stall_begin(first);
    check_ok(strata_runtime_deallocate(small, &all));
    test_fault_begin(TEST_FAULT_EVENT_RECORD, 1, true, CUDA_ERROR_UNKNOWN);
    strata_status status = strata_runtime_allocate(small, MIB, second, &block);
    assert_true(test_fault_end() >= 1);
    check_status(status, STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER, "cuEventRecord");
    check_ok(strata_runtime_allocate(small, MIB, second, &block));
    test_stall_end(stall);
    assert_true(overlap(&all, &block));
    check_ok(strata_runtime_deallocate(small, &block));
    check_ok(strata_runtime_destroy(small));
}

/* New memory is made without the free memory beside it; what was made beside that at first waits for the legacy stream,
 * as it was joined with it. */
static void memory_beside_what_cannot_be_waited_for_serves_by_itself(test_fixture *fixture)
{
    if (!has_granule())
        return;
    CUstream captured, stream = test_stream(fixture, TEST_STREAM_POOL);
    check_cu(test_cu()->StreamCreate(&captured, CU_STREAM_DEFAULT));
    strata_block old = test_allocate(fixture, GRANULE, NULL);
    test_write(fixture, &old, 0x11, NULL);
    test_free_on(fixture, &old, NULL);
    test_begin_capture(captured);
    strata_block block;
    strata_status status = strata_runtime_allocate(fixture->runtime, GRANULE + MIB, stream, &block);
    assert_int_equal(test_end_capture(captured), 0);
    check_ok(status);
    assert_false(overlap(&old, &block));
    assert_true(test_usage(fixture).reserved_bytes <= 4 * (size_t)GRANULE);
    test_write(fixture, &block, 0x22, stream);
    test_free_on(fixture, &block, stream);
    check_cu(test_cu()->StreamDestroy(captured));
}

/* ---- remapped memory ---- */

/* Two large free extents with a hole between them, and a small live block at each outer end: there is just enough
 * beside one of them if the other's memory is remapped. */
static void memory_on_the_other_side_of_a_hole_is_remapped_for_a_request(test_fixture *fixture)
{
    enum { COUNT = 5, SIDE = 15 * MIB, MIDDLE = 16 * MIB };
    static const size_t sizes[COUNT] = {MIB, SIDE, MIDDLE, SIDE, MIB};
    strata_runtime *runtime;
    CUstream stream;
    size_t released;
    if (!has_granule())
        return;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    strata_block blocks[COUNT], block;
    for (int i = 0; i < COUNT; i++) {
        check_ok(strata_runtime_allocate(runtime, sizes[i], stream, &blocks[i]));
        assert_true(i == 0 || blocks[i].address == blocks[i - 1].address + blocks[i - 1].bytes);
    }
    check_ok(strata_runtime_deallocate(runtime, &blocks[2]));
    check_ok(strata_runtime_trim(runtime, 0, &released));
    assert_int_equal(released, MIDDLE);
    check_ok(strata_control_set_text(strata_runtime_stack(runtime), "pool.limit", "32MiB"));
    check_ok(strata_runtime_deallocate(runtime, &blocks[1]));
    check_ok(strata_runtime_deallocate(runtime, &blocks[3]));
    check_ok(strata_runtime_allocate(runtime, 2 * SIDE - MIB, stream, &block));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_deallocate(runtime, &blocks[0]));
    check_ok(strata_runtime_deallocate(runtime, &blocks[4]));
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

/* The overhead would allow new memory, but the device has none. */
static void memory_is_remapped_if_the_device_has_no_more(test_fixture *fixture)
{
    enum { COUNT = 4, LARGE = 16 * MIB };
    static const size_t sizes[COUNT] = {LARGE, GRANULE, LARGE, GRANULE};
    strata_runtime *runtime;
    CUstream stream;
    (void)fixture;
    if (!has_granule())
        return;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool(overhead=1000, decay=0)"}, &runtime));
    check_ok(strata_runtime_stream_acquire(runtime, &stream));
    strata_block blocks[COUNT], block;
    for (int i = 0; i < COUNT; i++)
        check_ok(strata_runtime_allocate(runtime, sizes[i], stream, &blocks[i]));
    check_ok(strata_runtime_deallocate(runtime, &blocks[0]));
    check_ok(strata_runtime_deallocate(runtime, &blocks[2]));
    test_synchronize(stream);
    test_fault_begin(TEST_FAULT_MEM_CREATE, 1, true, CUDA_ERROR_OUT_OF_MEMORY);
    strata_status status = strata_runtime_allocate(runtime, LARGE + 4 * GRANULE, stream, &block);
    assert_true(test_fault_end() >= 1);
    check_ok(status);
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_deallocate(runtime, &blocks[1]));
    check_ok(strata_runtime_deallocate(runtime, &blocks[3]));
    check_ok(strata_runtime_stream_release(runtime, stream));
    check_ok(strata_runtime_destroy(runtime));
}

/* ---- another thread ---- */

static struct {
    test_fixture *fixture;
    CUstream stream;
    strata_block block;
    unsigned calls;
    CUresult(CUDAAPI *create)(CUmemGenericAllocationHandle *, size_t, const CUmemAllocationProp *, unsigned long long);
} quick;

static void *take_what_is_free(void *data)
{
    (void)data;
    test_make_current();
    quick.block = test_allocate(quick.fixture, MIB, quick.stream);
    test_leave_thread();
    return NULL;
}

/* The first time, another thread takes the free memory beside the hole that the new memory is for. */
static CUresult CUDAAPI create_slow(CUmemGenericAllocationHandle *handle, size_t bytes,
                                    const CUmemAllocationProp *properties, unsigned long long flags)
{
    if (!quick.calls++) {
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, take_what_is_free, NULL), 0);
        assert_int_equal(pthread_join(thread, NULL), 0);
    }
    return quick.create(handle, bytes, properties, flags);
}

static void an_allocation_that_loses_its_neighbour_to_another_thread_grows_again(test_fixture *fixture)
{
    if (!has_granule())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block half = test_allocate(fixture, MIB, stream), block; /* and a MiB behind it is free */
    memset(&quick, 0, sizeof quick);
    quick.fixture = fixture;
    quick.stream = stream;
    quick.create = strata_cu.MemCreate;
    strata_cu.MemCreate = create_slow;
    strata_status status = strata_runtime_allocate(fixture->runtime, GRANULE + MIB, stream, &block);
    strata_cu.MemCreate = quick.create;
    check_ok(status);
    assert_true(quick.block.address == half.address + half.bytes);
    assert_true(quick.calls >= 2);
    assert_true(block.bytes == GRANULE + MIB && !overlap(&block, &quick.block) && !overlap(&block, &half));
    test_write(fixture, &block, 0x33, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_runtime_deallocate(fixture->runtime, &quick.block));
    check_ok(strata_runtime_deallocate(fixture->runtime, &half));
}

int main(void)
{
    static const char *const stacks[] = {"pool(chunk=8MiB, decay=0)"};
    static const test_case cases[] = {
        TEST_CASE(waiting_for_frees_waits_for_the_work_on_free_memory),
        TEST_CASE(a_pool_whose_memory_cannot_be_waited_for_is_not_destroyed),
        TEST_CASE(memory_of_an_allocation_that_fails_is_still_waited_for),
        TEST_CASE(memory_that_no_cache_had_of_an_allocation_that_fails_is_still_waited_for),
        TEST_CASE(an_allocation_that_the_driver_refuses_says_which_call_and_keeps_nothing),
        TEST_CASE(addresses_that_cannot_be_unmapped_are_not_mapped_again),
        TEST_CASE(a_trim_that_the_driver_refuses_says_so_and_the_next_one_goes_on),
        TEST_CASE(a_refused_trim_is_logged_while_other_threads_trim_the_pool),
        TEST_CASE(a_wait_that_fails_is_what_an_allocation_fails_for),
        TEST_CASE(memory_beside_what_cannot_be_waited_for_serves_by_itself),
        TEST_CASE(memory_on_the_other_side_of_a_hole_is_remapped_for_a_request),
        TEST_CASE(memory_is_remapped_if_the_device_has_no_more),
        TEST_CASE(an_allocation_that_loses_its_neighbour_to_another_thread_grows_again),
    };
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
