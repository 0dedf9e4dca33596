/* Memory of the simulated driver: plain, pinned, stream-ordered; pools and their rules; copies and fills. */
#include "support/sim.h"

#include <semaphore.h>

enum { MIB = 1 << 20 };

static void wait_at(void *data)
{
    while (sem_wait(data) != 0) {
    }
}

static CUstream new_stream(void)
{
    CUstream stream;
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    return stream;
}

static CUmemoryPool new_pool(size_t max_size)
{
    CUmemoryPool pool;
    CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                 .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                                 .maxSize = max_size};
    OK(p_cuMemPoolCreate(&pool, &properties));
    return pool;
}

static uint64_t get(CUmemoryPool pool, CUmemPool_attribute attribute)
{
    cuuint64_t value = 0;
    OK(p_cuMemPoolGetAttribute(pool, attribute, &value));
    return value;
}

static void set(CUmemoryPool pool, CUmemPool_attribute attribute, uint64_t value)
{
    OK(p_cuMemPoolSetAttribute(pool, attribute, &value));
}

static void set_reuse(CUmemoryPool pool, int follow_events, int opportunistic, int internal_dependencies)
{
    OK(p_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES, &follow_events));
    OK(p_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, &opportunistic));
    OK(p_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES, &internal_dependencies));
}

static CUdeviceptr allocate(CUmemoryPool pool, size_t bytes, CUstream stream)
{
    CUdeviceptr address;
    OK(p_cuMemAllocFromPoolAsync(&address, bytes, pool, stream));
    assert_int_equal(address % 512, 0);
    return address;
}

static void misuse_is_answered_and_the_context_lives_on(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUdeviceptr address;
    CUdeviceptr pooled;
    CUdeviceptr none;
    void *host = NULL;
    OK(p_cuMemAlloc(&address, 1000));
    OK(p_cuMemAllocAsync(&pooled, 1000, NULL));
    assert_int_equal(p_cuMemAlloc(&none, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(none, 0);
    assert_int_equal(p_cuMemAlloc(NULL, 1), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemAlloc(&none, (size_t)1 << 50), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(p_cuMemAllocAsync(&none, (size_t)1 << 50, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(none, 0);
    assert_int_equal(p_cuMemAllocAsync(NULL, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemFree(address + 512), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemFree((CUdeviceptr)(uintptr_t)&host), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemFreeAsync((CUdeviceptr)(uintptr_t)&host, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemFreeHost(&host), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemHostAlloc(&host, 0, 0));
    assert_null(host);
    assert_int_equal(p_cuMemHostAlloc(&host, 1, 0x80), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemsetD8Async(address, 0, 1001, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemsetD32Async(address + 2, 0, 1, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemFreeAsync(pooled, NULL));
    assert_int_equal(p_cuMemFreeAsync(pooled, NULL), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemFree(address));
    assert_int_equal(p_cuMemFree(address), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemFree(0));
    OK(p_cuMemAllocAsync(&address, 0, NULL));
    test_sim_end();
}

static void plain_memory_is_taken_in_pages_and_given_back(void **state)
{
    (void)state;
    test_sim_begin();
    CUdeviceptr small[2];
    CUdeviceptr base;
    size_t bytes;
    size_t before;
    size_t after;
    size_t total;
    OK(p_cuMemGetInfo(&before, &total));
    OK(p_cuMemAlloc(&small[0], 1));
    OK(p_cuMemAlloc(&small[1], 1000));
    OK(p_cuMemGetInfo(&after, &total));
    assert_int_equal(before - after, 2 * MIB);
    OK(p_cuMemGetAddressRange(&base, &bytes, small[1] + 999));
    assert_int_equal(base, small[1]);
    assert_int_equal(bytes, 1000);
    assert_int_equal(p_cuMemGetAddressRange(&base, &bytes, small[1] + 1000), CUDA_ERROR_NOT_FOUND);
    OK(p_cuMemFree(small[0]));
    OK(p_cuMemFree(small[1]));
    OK(p_cuMemGetInfo(&after, &total));
    assert_int_equal(before, after);
    test_sim_end();
}

static void memory_runs_out_and_comes_back(void **state)
{
    (void)state;
    test_sim_begin();
    size_t free_bytes;
    size_t total;
    CUdeviceptr most;
    CUdeviceptr more;
    OK(p_cuMemGetInfo(&free_bytes, &total));
    OK(p_cuMemAlloc(&most, free_bytes - 2 * MIB));
    assert_int_equal(p_cuMemAlloc(&more, 3 * MIB), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(p_cuMemAllocAsync(&more, 3 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(p_cuMemAllocAsync(&more, 1 * MIB, NULL), CUDA_ERROR_OUT_OF_MEMORY); /* a pool takes 32 MiB */
    OK(p_cuMemAlloc(&more, 1 * MIB));
    OK(p_cuMemFree(more));
    OK(p_cuMemFree(most));
    OK(p_cuMemAlloc(&more, free_bytes / 2));
    OK(p_cuMemFree(more));
    test_sim_end();
}

static void a_pool_counts_what_it_holds_and_hands_out(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool(0);
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    CUdeviceptr small = allocate(pool, 1000, stream);
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 1000);
    CUdeviceptr large = allocate(pool, 33 * MIB, stream);
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
    OK(p_cuMemFreeAsync(small, stream));
    OK(p_cuMemFreeAsync(large, stream));
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 0);
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 1000 + 33 * MIB);
    uint64_t one = 1;
    assert_int_equal(p_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &one), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &one), CUDA_ERROR_INVALID_VALUE);
    set(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, 0);
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH), 0);
    OK(p_cuMemPoolTrimTo(pool, 0));
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
    OK(p_cuStreamSynchronize(stream));
    OK(p_cuMemPoolTrimTo(pool, 40 * MIB));
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 64 * MIB);
    OK(p_cuMemPoolTrimTo(pool, 30 * MIB));
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    OK(p_cuMemPoolTrimTo(pool, 0));
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH), 64 * MIB);
    OK(p_cuMemPoolDestroy(pool));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void a_pool_gives_back_beyond_its_threshold_when_the_host_synchronizes(void **state)
{
    (void)state;
    test_sim_begin();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool(0);
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0);
    OK(p_cuMemFreeAsync(allocate(pool, MIB, stream), stream));
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 0);
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 32 * MIB);
    OK(p_cuMemFreeAsync(allocate(pool, MIB, stream), stream));
    OK(p_cuCtxSynchronize());
    assert_int_equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MIB);
    OK(p_cuMemPoolDestroy(pool));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void a_pool_stops_at_its_maximum(void **state)
{
    (void)state;
    test_sim_begin();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool(33 * MIB); /* in chunks of 32 MiB: 64 MiB */
    CUdeviceptr address;
    CUdeviceptr first = allocate(pool, 63 * MIB, stream);
    assert_int_equal(p_cuMemAllocFromPoolAsync(&address, 2 * MIB, pool, stream), CUDA_ERROR_OUT_OF_MEMORY);
    CUdeviceptr second = allocate(pool, MIB, stream);
    OK(p_cuMemFreeAsync(first, stream));
    OK(p_cuMemFreeAsync(second, stream));
    OK(p_cuMemPoolDestroy(pool));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

/* Two streams, under the policy late: the free on `first` is only submitted. */
static void memory_moves_between_streams_only_as_the_policies_allow(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream first = new_stream();
    CUstream second = new_stream();
    CUevent event;
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    CUmemoryPool pool = new_pool(0);
    set(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, UINT64_MAX);
    enum { BYTES = 32 * MIB };

    set_reuse(pool, 0, 0, 0);
    CUdeviceptr a = allocate(pool, BYTES, first);
    OK(p_cuMemFreeAsync(a, first));
    CUdeviceptr b = allocate(pool, BYTES, second);
    assert_true(a != b);
    CUdeviceptr again = allocate(pool, BYTES, first);
    assert_int_equal(again, a);
    OK(p_cuMemFreeAsync(a, first));

    OK(p_cuEventRecord(event, first));
    OK(p_cuStreamWaitEvent(second, event, 0));
    CUdeviceptr c = allocate(pool, BYTES, second);
    assert_true(c != a);
    set_reuse(pool, 1, 0, 0);
    CUdeviceptr d = allocate(pool, BYTES, second);
    assert_int_equal(d, a);
    OK(p_cuEventRecord(event, second));
    OK(p_cuStreamWaitEvent(first, event, 0));
    OK(p_cuMemFreeAsync(d, first));
    CUdeviceptr e = allocate(pool, BYTES, second);
    assert_true(e != a);

    set_reuse(pool, 0, 0, 1);
    CUdeviceptr f = allocate(pool, BYTES, second);
    assert_true(f != a); /* as long as there is fresh memory */

    set_reuse(pool, 0, 1, 0);
    CUdeviceptr g = allocate(pool, BYTES, second);
    assert_true(g != a);
    OK(p_cuEventRecord(event, first));
    for (int i = 0; i < 100 && p_cuEventQuery(event) == CUDA_ERROR_NOT_READY; i++) {
    }
    CUdeviceptr h = allocate(pool, BYTES, second);
    assert_int_equal(h, a);

    CUdeviceptr all[] = {b, c, e, f, g, h};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++)
        OK(p_cuMemFreeAsync(all[i], second));
    OK(p_cuMemPoolDestroy(pool));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(first));
    OK(p_cuStreamDestroy(second));
    test_sim_end();
}

/* The allocation that reuses a block by an inserted dependency must wait for the work before the free. */
static void an_internal_dependency_is_really_there(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        test_sim_begin();
        CUstream first = new_stream();
        CUstream second = new_stream();
        CUmemoryPool pool = new_pool(32 * MIB);
        sem_t gate;
        assert_int_equal(sem_init(&gate, 0, 0), 0);
        CUdeviceptr a = allocate(pool, 32 * MIB, first);
        OK(p_cuLaunchHostFunc(first, wait_at, &gate));
        OK(p_cuMemsetD8Async(a, 1, 8, first));
        OK(p_cuMemFreeAsync(a, first));
        CUdeviceptr b = allocate(pool, 32 * MIB, second);
        assert_int_equal(a, b);
        OK(p_cuMemsetD8Async(b, 2, 8, second));
        for (int poll = 0; poll < 10; poll++)
            assert_int_equal(p_cuStreamQuery(second), CUDA_ERROR_NOT_READY);
        sem_post(&gate);
        unsigned char bytes[8];
        OK(p_cuMemcpyDtoHAsync(bytes, b, 8, second));
        assert_int_equal(bytes[7], 2);
        OK(p_cuMemFreeAsync(b, second));
        sem_destroy(&gate); /* the host function is over: the copy came after it */
        OK(p_cuStreamDestroy(first));
        OK(p_cuStreamDestroy(second));
        OK(p_cuMemPoolDestroy(pool));
        test_sim_end();
    }
}

static void a_destroyed_pool_lives_until_its_last_block_is_freed(void **state)
{
    (void)state;
    test_sim_begin();
    CUstream stream = new_stream();
    CUmemoryPool pool = new_pool(0);
    CUdeviceptr address = allocate(pool, 100, stream);
    OK(p_cuMemPoolDestroy(pool));
    uint64_t value;
    CUdeviceptr other;
    assert_int_equal(p_cuMemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemAllocFromPoolAsync(&other, 1, pool, stream), CUDA_ERROR_INVALID_VALUE);
    unsigned char byte = 0;
    OK(p_cuMemsetD8Async(address, 7, 100, stream));
    OK(p_cuMemcpyDtoHAsync(&byte, address + 99, 1, stream));
    assert_int_equal(byte, 7);
    OK(p_cuMemFreeAsync(address, stream));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void memory_of_a_destroyed_stream_is_freed_on_another(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        test_sim_begin();
        CUstream first = new_stream();
        CUstream second = new_stream();
        CUdeviceptr address;
        CUevent allocated;
        OK(p_cuEventCreate(&allocated, CU_EVENT_DISABLE_TIMING));
        OK(p_cuMemAllocAsync(&address, 100, first));
        OK(p_cuEventRecord(allocated, first));
        OK(p_cuStreamDestroy(first));
        OK(p_cuStreamWaitEvent(second, allocated, 0));
        OK(p_cuMemFreeAsync(address, second));
        OK(p_cuEventDestroy(allocated));
        OK(p_cuStreamDestroy(second));
        test_sim_end();
    }
}

static void a_device_has_a_default_and_a_current_pool(void **state)
{
    (void)state;
    test_sim_begin();
    CUmemoryPool standard;
    CUmemoryPool current;
    CUmemoryPool own = new_pool(0);
    CUdeviceptr address;
    CUmemoryPool of_address;
    OK(p_cuDeviceGetDefaultMemPool(&standard, 0));
    OK(p_cuDeviceGetMemPool(&current, 0));
    assert_ptr_equal(standard, current);
    assert_int_equal(p_cuMemPoolDestroy(standard), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuDeviceSetMemPool(0, own));
    OK(p_cuMemAllocAsync(&address, 8, NULL));
    OK(p_cuPointerGetAttribute(&of_address, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address));
    assert_ptr_equal(of_address, own);
    OK(p_cuMemFreeAsync(address, NULL));
    OK(p_cuMemPoolDestroy(own));
    OK(p_cuDeviceGetMemPool(&current, 0));
    assert_ptr_equal(standard, current);
    test_sim_end();
}

static void pool_access_is_the_owners_and_cannot_be_taken(void **state)
{
    (void)state;
    test_sim_begin();
    CUmemoryPool pool = new_pool(0);
    CUmemAccess_flags flags;
    CUmemLocation here = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    CUmemAccessDesc none = {.location = here, .flags = CU_MEM_ACCESS_FLAGS_PROT_NONE};
    CUmemAccessDesc elsewhere = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 99},
                                 .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    OK(p_cuMemPoolGetAccess(&flags, pool, &here));
    assert_int_equal(flags, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
    assert_int_equal(p_cuMemPoolSetAccess(pool, &none, 1), CUDA_ERROR_INVALID_DEVICE);
    assert_int_equal(p_cuMemPoolSetAccess(pool, &elsewhere, 1), CUDA_ERROR_INVALID_DEVICE);
    OK(p_cuMemPoolDestroy(pool));
    test_sim_end();
}

static void plain_host_memory_is_read_when_the_copy_is_called_for(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream stream = new_stream();
    CUdeviceptr address;
    char host[16] = "before";
    char back[16];
    OK(p_cuMemAlloc(&address, sizeof host));
    OK(p_cuMemcpyHtoDAsync(address, host, sizeof host, stream));
    strcpy(host, "after");
    OK(p_cuMemcpyDtoHAsync(back, address, sizeof back, stream));
    assert_string_equal(back, "before");
    OK(p_cuMemFree(address));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void pinned_host_memory_is_read_when_the_copy_runs(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream stream = new_stream();
    CUdeviceptr address;
    char *pinned;
    OK(p_cuMemHostAlloc((void **)&pinned, 64, 0));
    OK(p_cuMemAlloc(&address, 16));
    strcpy(pinned, "before");
    OK(p_cuMemcpyHtoDAsync(address, pinned, 16, stream));
    strcpy(pinned, "after");
    OK(p_cuMemcpyDtoHAsync(pinned + 16, address, 16, stream));
    OK(p_cuStreamSynchronize(stream));
    assert_string_equal(pinned + 16, "after");
    OK(p_cuMemFree(address));
    OK(p_cuMemFreeHost(pinned));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void fills_write_their_width(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUdeviceptr address;
    unsigned char bytes[16];
    OK(p_cuMemAlloc(&address, sizeof bytes));
    OK(p_cuMemsetD8Async(address, 0xAA, 16, NULL));
    OK(p_cuMemsetD16Async(address + 2, 0x1234, 2, NULL));
    OK(p_cuMemsetD32Async(address + 8, 0x55667788, 1, NULL));
    OK(p_cuMemcpyDtoH(bytes, address, sizeof bytes));
    static const unsigned char expected[16] = {0xAA, 0xAA, 0x34, 0x12, 0x34, 0x12, 0xAA, 0xAA,
                                               0x88, 0x77, 0x66, 0x55, 0xAA, 0xAA, 0xAA, 0xAA};
    assert_memory_equal(bytes, expected, sizeof bytes);
    OK(p_cuMemFree(address));
    test_sim_end();
}

static void an_address_knows_what_it_belongs_to(void **state)
{
    (void)state;
    CUcontext context = test_sim_begin();
    CUdeviceptr address;
    CUdeviceptr start;
    CUcontext of_address;
    unsigned type;
    int ordinal;
    void *host;
    void *pinned;
    OK(p_cuMemAlloc(&address, 1000));
    OK(p_cuMemHostAlloc(&pinned, 100, 0));
    CUpointer_attribute asked[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE, CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL,
                                   CU_POINTER_ATTRIBUTE_RANGE_START_ADDR};
    void *answers[] = {&type, &ordinal, &start};
    OK(p_cuPointerGetAttributes(3, asked, answers, address + 999));
    assert_int_equal(type, CU_MEMORYTYPE_DEVICE);
    assert_int_equal(ordinal, 0);
    assert_int_equal(start, address);
    OK(p_cuPointerGetAttribute(&of_address, CU_POINTER_ATTRIBUTE_CONTEXT, address));
    assert_ptr_equal(of_address, context);
    OK(p_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)pinned));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    OK(p_cuPointerGetAttribute(&host, CU_POINTER_ATTRIBUTE_HOST_POINTER, (CUdeviceptr)(uintptr_t)pinned));
    assert_ptr_equal(host, pinned);
    assert_int_equal(p_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, (CUdeviceptr)(uintptr_t)&type),
                     CUDA_ERROR_INVALID_VALUE);
    OK(p_cuPointerGetAttributes(3, asked, answers, (CUdeviceptr)(uintptr_t)&type));
    assert_int_equal(type, 0);
    assert_int_equal(ordinal, CU_DEVICE_INVALID);
    OK(p_cuMemFree(address));
    OK(p_cuMemFreeHost(pinned));
    test_sim_end();
}

static void freeing_plain_memory_waits_for_the_work_of_its_context(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream stream = new_stream();
    CUdeviceptr address;
    OK(p_cuMemAlloc(&address, 4096));
    OK(p_cuMemsetD8Async(address, 1, 4096, stream));
    OK(p_cuMemFree(address));
    OK(p_cuStreamQuery(stream));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

int main(void)
{
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(misuse_is_answered_and_the_context_lives_on),
        cmocka_unit_test(plain_memory_is_taken_in_pages_and_given_back),
        cmocka_unit_test(memory_runs_out_and_comes_back),
        cmocka_unit_test(a_pool_counts_what_it_holds_and_hands_out),
        cmocka_unit_test(a_pool_gives_back_beyond_its_threshold_when_the_host_synchronizes),
        cmocka_unit_test(a_pool_stops_at_its_maximum),
        cmocka_unit_test(memory_moves_between_streams_only_as_the_policies_allow),
        cmocka_unit_test(an_internal_dependency_is_really_there),
        cmocka_unit_test(a_destroyed_pool_lives_until_its_last_block_is_freed),
        cmocka_unit_test(memory_of_a_destroyed_stream_is_freed_on_another),
        cmocka_unit_test(a_device_has_a_default_and_a_current_pool),
        cmocka_unit_test(pool_access_is_the_owners_and_cannot_be_taken),
        cmocka_unit_test(plain_host_memory_is_read_when_the_copy_is_called_for),
        cmocka_unit_test(pinned_host_memory_is_read_when_the_copy_runs),
        cmocka_unit_test(fills_write_their_width),
        cmocka_unit_test(an_address_knows_what_it_belongs_to),
        cmocka_unit_test(freeing_plain_memory_waits_for_the_work_of_its_context),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
