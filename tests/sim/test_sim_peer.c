/* Two devices of the simulated driver: copies between them, order across them, and which device may reach which memory.
 */
#include "support/sim_vmm.h"

enum { BYTES = 4 << 20 };

/* Both devices with a context, a stream and memory; the first is current. */
static struct {
    CUcontext context[2];
    CUstream stream[2];
    CUdeviceptr memory[2];
} at;

static void set_up(void)
{
    at.context[0] = test_sim_begin();
    OK(p_cuDevicePrimaryCtxRetain(&at.context[1], 1));
    for (int i = 0; i < 2; i++) {
        OK(p_cuCtxSetCurrent(at.context[i]));
        OK(p_cuStreamCreate(&at.stream[i], CU_STREAM_NON_BLOCKING));
        OK(p_cuMemAlloc(&at.memory[i], BYTES));
    }
    OK(p_cuCtxSetCurrent(at.context[0]));
}

static void tear_down(void)
{
    for (int i = 1; i >= 0; i--) {
        OK(p_cuCtxSetCurrent(at.context[i]));
        OK(p_cuCtxSynchronize());
        OK(p_cuStreamDestroy(at.stream[i]));
        OK(p_cuMemFree(at.memory[i]));
    }
    OK(p_cuDevicePrimaryCtxRelease(1));
    test_sim_end();
}

static void under_all_policies(void (*body)(void))
{
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        for (uint64_t seed = 0; seed < (test_policies[i] == STRATA_SIM_RANDOM ? 20U : 1U); seed++) {
            OK(p_set_seed(seed));
            set_up();
            body();
            tear_down();
        }
    }
}

static void copy_there_and_back(void)
{
    OK(p_cuMemsetD8Async(at.memory[0], 0x19, BYTES, at.stream[0]));
    OK(p_cuMemcpyPeerAsync(at.memory[1], at.context[1], at.memory[0], at.context[0], BYTES, at.stream[0]));
    OK(p_cuMemsetD8Async(at.memory[0], 0, BYTES, at.stream[0]));
    OK(p_cuMemcpyDtoDAsync(at.memory[0], at.memory[1], BYTES, at.stream[0]));
    OK(p_cuStreamSynchronize(at.stream[0]));
    assert_int_equal(test_sim_byte(at.memory[0] + BYTES - 1), 0x19);
    assert_int_equal(test_sim_byte(at.memory[1] + BYTES - 1), 0x19);
}

static void copies_between_devices_carry_bytes_without_access(void **state)
{
    (void)state;
    under_all_policies(copy_there_and_back);
}

/* What one device writes, the other reads behind an event. */
static void hand_over(void)
{
    CUevent event;
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(p_cuMemsetD8Async(at.memory[0], 0x2e, BYTES, at.stream[0]));
    OK(p_cuEventRecord(event, at.stream[0]));
    OK(p_cuStreamWaitEvent(at.stream[1], event, 0));
    OK(p_cuMemcpyDtoDAsync(at.memory[1], at.memory[0], BYTES, at.stream[1]));
    OK(p_cuStreamSynchronize(at.stream[1]));
    assert_int_equal(test_sim_byte(at.memory[1] + 17), 0x2e);
    OK(p_cuEventDestroy(event));
}

static void an_event_orders_streams_of_two_devices(void **state)
{
    (void)state;
    under_all_policies(hand_over);
}

static void a_fill_of_another_devices_memory_needs_access(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    set_up();
    assert_int_equal(p_cuMemsetD8(at.memory[1], 5, 16), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuCtxEnablePeerAccess(at.context[1], 0));
    OK(p_cuMemsetD8(at.memory[1], 5, 16));
    OK(p_cuCtxSynchronize());
    assert_int_equal(test_sim_byte(at.memory[1] + 15), 5);
    OK(p_cuCtxSetCurrent(at.context[1]));
    assert_int_equal(p_cuMemsetD8(at.memory[0], 5, 16), CUDA_ERROR_INVALID_VALUE); /* it goes one way */
    OK(p_cuCtxSetCurrent(at.context[0]));
    OK(p_cuCtxDisablePeerAccess(at.context[1]));
    assert_int_equal(p_cuMemsetD8(at.memory[1], 5, 16), CUDA_ERROR_INVALID_VALUE);
    tear_down();
}

static void access_to_a_context_ends_with_that_context(void **state)
{
    (void)state;
    CUcontext other;
    CUdeviceptr memory;
    OK(p_set_policy(STRATA_SIM_EARLY));
    set_up();
    OK(p_cuCtxCreate(&other, 0, 1));
    OK(p_cuMemAlloc(&memory, BYTES));
    OK(p_cuCtxSetCurrent(at.context[0]));
    OK(p_cuCtxEnablePeerAccess(other, 0));
    OK(p_cuMemsetD8(memory, 5, 16));
    assert_int_equal(p_cuMemsetD8(at.memory[1], 5, 16), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuCtxDestroy(other));
    OK(p_cuCtxSetCurrent(at.context[1]));
    OK(p_cuCtxCreate(&other, 0, 1));
    OK(p_cuMemAlloc(&memory, BYTES));
    OK(p_cuCtxSetCurrent(at.context[0]));
    assert_int_equal(p_cuMemsetD8(memory, 5, 16), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuCtxDestroy(other));
    tear_down();
}

static size_t free_of(int device)
{
    size_t bytes;
    size_t total;
    OK(p_cuCtxSetCurrent(at.context[device]));
    OK(p_cuMemGetInfo(&bytes, &total));
    OK(p_cuCtxSetCurrent(at.context[0]));
    return bytes;
}

static void a_handle_takes_memory_of_its_device_whoever_maps_it(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_RANDOM));
    set_up();
    size_t before[2] = {free_of(0), free_of(1)};
    CUmemGenericAllocationHandle handle = test_sim_create(1, BYTES, CU_MEM_HANDLE_TYPE_NONE);
    CUdeviceptr range = test_sim_reserve(BYTES);
    test_sim_map(range, BYTES, handle);
    assert_int_equal(before[0] - free_of(0), 0);
    assert_int_equal(before[1] - free_of(1), BYTES);
    OK(p_cuMemsetD8(range, 0x41, BYTES));
    OK(p_cuCtxSynchronize());
    assert_int_equal(p_cuMemsetD8Async(range, 0, 16, at.stream[1]), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuMemcpyDtoDAsync(at.memory[1], range, 16, at.stream[1]), CUDA_ERROR_INVALID_VALUE);
    test_sim_allow(range, BYTES, 1, CU_MEM_ACCESS_FLAGS_PROT_READ);
    OK(p_cuMemcpyDtoDAsync(at.memory[1], range, BYTES, at.stream[1]));
    OK(p_cuStreamSynchronize(at.stream[1]));
    assert_int_equal(test_sim_byte(at.memory[1] + BYTES - 1), 0x41);
    assert_int_equal(p_cuMemsetD8Async(range, 0, 16, at.stream[1]), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemUnmap(range, BYTES));
    OK(p_cuMemRelease(handle));
    OK(p_cuMemAddressFree(range, BYTES));
    tear_down();
}

static void memory_of_a_pool_moves_to_a_stream_of_another_device(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        set_up();
        CUmemoryPool pool;
        CUdeviceptr address;
        CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                     .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
        CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 1},
                                  .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
        OK(p_cuMemPoolCreate(&pool, &properties));
        OK(p_cuMemAllocFromPoolAsync(&address, BYTES, pool, at.stream[1]));
        assert_int_equal(p_cuMemsetD8Async(address, 1, 16, at.stream[1]), CUDA_ERROR_INVALID_VALUE);
        OK(p_cuMemPoolSetAccess(pool, &access, 1));
        OK(p_cuMemsetD8Async(address, 9, BYTES, at.stream[1]));
        OK(p_cuMemcpyDtoDAsync(at.memory[0], address, BYTES, at.stream[1]));
        OK(p_cuMemFreeAsync(address, at.stream[1]));
        OK(p_cuStreamSynchronize(at.stream[1]));
        assert_int_equal(test_sim_byte(at.memory[0] + BYTES - 1), 9);
        OK(p_cuMemPoolDestroy(pool));
        tear_down();
    }
}

int main(void)
{
    test_sim_open();
    if (p_set_devices(2) != CUDA_SUCCESS || p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(copies_between_devices_carry_bytes_without_access),
        cmocka_unit_test(an_event_orders_streams_of_two_devices),
        cmocka_unit_test(a_fill_of_another_devices_memory_needs_access),
        cmocka_unit_test(access_to_a_context_ends_with_that_context),
        cmocka_unit_test(a_handle_takes_memory_of_its_device_whoever_maps_it),
        cmocka_unit_test(memory_of_a_pool_moves_to_a_stream_of_another_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
