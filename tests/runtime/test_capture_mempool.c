/* Capture pools whose driver pool is the device's current one for a time. */
#include "support/captures.h"
#include "support/graphs.h"
#include "support/refusals.h"
#include "support/sweep.h"

static CUdevice device(void)
{
    CUdevice found;
    check_cu(test_cu()->DeviceGet(&found, 0));
    return found;
}

static CUmemoryPool current(void)
{
    CUmemoryPool pool;
    check_cu(test_cu()->DeviceGetMemPool(&pool, device()));
    return pool;
}

static uint64_t reserved(CUmemoryPool pool)
{
    cuuint64_t bytes;
    check_cu(test_cu()->MemPoolGetAttribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

/* As cudaMallocAsync and cudaFreeAsync do. */
static void allocate_and_free(CUstream stream)
{
    CUresult (*allocate)(CUdeviceptr *, size_t, CUstream);
    CUdeviceptr address;
    test_find_driver_call("cuMemAllocAsync", 11020, &allocate);
    check_cu(allocate(&address, BYTES, stream));
    test_fill(address, 1, BYTES, stream);
    check_cu(test_cu()->MemFreeAsync(address, stream));
    test_synchronize(stream);
}

static strata_capture_pool *active;

static void activate(strata_capture_pool *pool)
{
    check_ok(strata_capture_pool_activate(pool));
    active = pool;
}

static void deactivate(strata_capture_pool *pool)
{
    check_ok(strata_capture_pool_deactivate(pool));
    active = NULL;
}

static void clear_all_away(void)
{
    strata_error_suppress_begin();
    if (active)
        strata_capture_pool_deactivate(active);
    active = NULL;
    strata_error_suppress_end(false);
    clear_away();
}

static void memory_of_other_code_comes_from_the_active_pool_and_stays_there(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_capture_pool *pool = make_pool(fixture);
    const CUmemoryPool before = current();
    const uint64_t held = reserved(before);
    activate(pool);
    const CUmemoryPool own = current();
    assert_ptr_not_equal(own, before);
    allocate_and_free(stream);
    assert_true(reserved(own) >= BYTES);
    assert_int_equal(reserved(before), held);
    deactivate(pool);
    assert_ptr_equal(current(), before);
    assert_true(reserved(own) >= BYTES);
    activate(pool);
    assert_ptr_equal(current(), own);
    deactivate(pool);
    check_ok(release_pool(pool));
}

static void one_pool_is_active_at_a_time(test_fixture *fixture)
{
    strata_capture_pool *pool = make_pool(fixture), *other = make_pool(fixture);
    const CUmemoryPool before = current();
    check_status(strata_capture_pool_deactivate(pool), STRATA_ERROR_INVALID_VALUE);
    activate(pool);
    const CUmemoryPool own = current();
    check_status(strata_capture_pool_activate(other), STRATA_ERROR_BUSY);
    check_status(strata_capture_pool_activate(pool), STRATA_ERROR_BUSY);
    check_status(strata_capture_pool_deactivate(other), STRATA_ERROR_INVALID_VALUE);
    assert_ptr_equal(current(), own);
    deactivate(pool);
    activate(other);
    deactivate(other);
    assert_ptr_equal(current(), before);
    check_status(strata_capture_pool_activate(NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_pool_deactivate(NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(release_pool(other));
    check_ok(release_pool(pool));
}

static void an_active_pool_outlives_its_handle(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_capture_pool *pool = make_pool(fixture);
    const CUmemoryPool before = current();
    activate(pool);
    check_ok(release_pool(pool));
    allocate_and_free(stream);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    deactivate(pool);
    assert_ptr_equal(current(), before);
}

/* The pool is ended later: it is not active all the same, and may be gone by the next call. */
static void a_deactivation_reports_no_error_of_its_pools_end(test_fixture *fixture)
{
    if (!test_sim_control() || test_is_swept())
        return; /* the simulated driver fails on purpose */
    strata_capture_pool *pool = make_pool(fixture);
    const CUmemoryPool before = current();
    activate(pool);
    check_ok(release_pool(pool));
    test_refuse("cuMemPoolDestroy", 1, 1, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_capture_pool_deactivate(pool);
    test_refuse_no_more();
    active = NULL;
    check_ok(status);
    assert_ptr_equal(current(), before);
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* ends the pool */
}

static CUmemoryPool make_mempool(void)
{
    CUmemoryPool pool;
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device()}};
    check_cu(test_cu()->MemPoolCreate(&pool, &properties));
    return pool;
}

static void a_pool_that_other_code_makes_current_stays(test_fixture *fixture)
{
    strata_capture_pool *pool = make_pool(fixture);
    const CUmemoryPool before = current(), other = make_mempool();
    activate(pool);
    check_cu(test_cu()->DeviceSetMemPool(device(), other));
    deactivate(pool);
    assert_ptr_equal(current(), other);
    check_cu(test_cu()->DeviceSetMemPool(device(), before));
    check_cu(test_cu()->MemPoolDestroy(other));
    check_ok(release_pool(pool));
}

static void captures_go_on_while_a_pool_is_activated_and_ended(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_capture_pool *pool = make_pool(fixture);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x41, stream);
    activate(pool);
    deactivate(pool);
    check_ok(release_pool(pool)); /* with the driver's pool */
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x41, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

int main(void)
{
    static const char *const stacks[] = {"async", "pool"};
    static const test_case cases[] = {
        TEST_CASE(memory_of_other_code_comes_from_the_active_pool_and_stays_there),
        TEST_CASE(one_pool_is_active_at_a_time),
        TEST_CASE(an_active_pool_outlives_its_handle),
        TEST_CASE(a_deactivation_reports_no_error_of_its_pools_end),
        TEST_CASE(a_pool_that_other_code_makes_current_stays),
        TEST_CASE(captures_go_on_while_a_pool_is_activated_and_ended),
    };
    test_before_clearing = clear_all_away;
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
