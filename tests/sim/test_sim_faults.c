/* The fault plan of the simulated driver: calls that fail, edges that are dropped, operations that end the device. */
#include "planted/world.h"

static uint32_t plan(strata_sim_fault fault)
{
    uint32_t id;
    fault.size = sizeof fault;
    OK(p_add_fault(&fault, &id));
    return id;
}

static uint64_t reached(uint32_t id)
{
    uint64_t count;
    OK(p_fault_reached(id, &count));
    return count;
}

static void the_nth_call_of_one_entry_point_fails(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    uint32_t id = plan((strata_sim_fault){
        .kind = STRATA_SIM_FAIL_CALL, .nth = 2, .error = CUDA_ERROR_OUT_OF_MEMORY, .entry = "cuMemAllocAsync"});
    CUdeviceptr first = allocate(world.a);
    CUdeviceptr second = 17;
    OK(p_cuStreamQuery(world.b));
    assert_int_equal(p_cuMemAllocAsync(&second, BYTES, world.a), CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(second, 17);
    release(allocate(world.a), world.a);
    assert_int_equal(reached(id), 3);
    release(first, world.a);
    OK(p_clear_faults());
    uint64_t count;
    assert_int_equal(p_fault_reached(id, &count), CUDA_ERROR_INVALID_VALUE);
    world_end(&world);
}

/* A further name counts as the one that was called, an old version as the function itself. */
static void an_entry_point_has_one_name(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    uint32_t create = plan((strata_sim_fault){
        .kind = STRATA_SIM_FAIL_CALL, .nth = 2, .error = CUDA_ERROR_UNKNOWN, .entry = "cuStreamCreate"});
    uint32_t copies = plan((strata_sim_fault){
        .kind = STRATA_SIM_FAIL_CALL, .nth = 9, .error = CUDA_ERROR_UNKNOWN, .entry = "cuMemcpyDtoDAsync_v2"});
    uint32_t versions = plan((strata_sim_fault){
        .kind = STRATA_SIM_FAIL_CALL, .nth = 1, .error = CUDA_ERROR_UNKNOWN, .entry = "cuCtxGetApiVersion"});
    unsigned version;
    assert_int_equal(p_cuCtxGetApiVersion(world.context, &version), CUDA_ERROR_UNKNOWN);
    assert_int_equal(reached(versions), 1);
    CUstream stream = new_stream(0);
    CUstream other;
    OK(p_cuStreamCreateWithPriority(&other, 0, 0));
    OK(p_cuStreamDestroy(other));
    assert_int_equal(p_cuStreamCreate(&other, 0), CUDA_ERROR_UNKNOWN);
    copy(world.a, world.y, world.x);
    assert_int_equal(reached(create), 2);
    assert_int_equal(reached(copies), 1);
    OK(p_cuStreamDestroy(stream));
    OK(p_clear_faults());
    world_end(&world);
}

/* A scenario that frees what it has whatever fails. The sweep ends when it makes no n-th call. */
static bool survives_without_call(uint64_t nth)
{
    CUstream stream = NULL;
    CUevent event = NULL;
    CUdeviceptr memory = 0;
    test_sim_begin();
    uint32_t id = plan((strata_sim_fault){.kind = STRATA_SIM_FAIL_CALL, .nth = nth, .error = CUDA_ERROR_NOT_SUPPORTED});
    unsigned failures = 0;
    failures += p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING) != CUDA_SUCCESS;
    failures += p_cuEventCreate(&event, 0) != CUDA_SUCCESS;
    failures += p_cuMemAlloc(&memory, BYTES) != CUDA_SUCCESS;
    if (stream && event && memory) {
        failures += p_cuMemsetD8Async(memory, 1, BYTES, stream) != CUDA_SUCCESS;
        failures += p_cuEventRecord(event, stream) != CUDA_SUCCESS;
        failures += p_cuEventSynchronize(event) != CUDA_SUCCESS;
    }
    uint64_t calls = reached(id);
    assert_int_equal(failures, calls >= nth ? 1 : 0);
    OK(p_clear_faults());
    if (stream)
        OK(p_cuStreamDestroy(stream));
    if (event)
        OK(p_cuEventDestroy(event));
    OK(p_cuMemFree(memory));
    test_sim_end();
    return calls >= nth;
}

static void a_sweep_fails_each_call_once(void **state)
{
    (void)state;
    uint64_t nth = 1;
    while (survives_without_call(nth))
        nth++;
    assert_int_equal(nth, 7);
}

/* Under every policy: the copy runs before the fill that it waits for, or would, were it not for the record. */
static void a_dropped_record_leaves_the_event_as_it_was(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    uint32_t id =
        plan((strata_sim_fault){.kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = STRATA_SIM_EDGE_EVENT_RECORD});
    shut_gate(&world, world.a);
    OK(p_cuEventRecord(world.event, world.a));
    assert_int_equal(reached(id), 1);
    OK(p_cuEventQuery(world.event));
    OK(p_cuEventRecord(world.event, world.a));
    assert_int_equal(p_cuEventQuery(world.event), CUDA_ERROR_NOT_READY);
    open_gate(&world);
    OK(p_clear_faults());
    world_end(&world);
}

static void a_dropped_synchronization_returns_at_once(void **state)
{
    (void)state;
    static const uint32_t edges[] = {STRATA_SIM_EDGE_STREAM_SYNCHRONIZE, STRATA_SIM_EDGE_EVENT_SYNCHRONIZE,
                                     STRATA_SIM_EDGE_CONTEXT_SYNCHRONIZE, STRATA_SIM_EDGE_STREAM_QUERY,
                                     STRATA_SIM_EDGE_EVENT_QUERY};
    struct world world = world_begin(0);
    for (size_t i = 0; i < sizeof edges / sizeof edges[0]; i++)
        plan((strata_sim_fault){.kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = edges[i]});
    shut_gate(&world, world.a);
    OK(p_cuEventRecord(world.event, world.a));
    OK(p_cuStreamSynchronize(world.a));
    OK(p_cuEventSynchronize(world.event));
    OK(p_cuCtxSynchronize());
    OK(p_cuStreamQuery(world.a));
    OK(p_cuEventQuery(world.event));
    assert_int_equal(p_cuEventQuery(world.event), CUDA_ERROR_NOT_READY);
    open_gate(&world);
    OK(p_clear_faults());
    world_end(&world);
}

static void a_dropped_wait_does_not_hold_the_stream(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    plan((strata_sim_fault){.kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = STRATA_SIM_EDGE_EVENT_WAIT});
    shut_gate(&world, world.a);
    hand_over(world.event, world.a, world.b);
    OK(p_cuStreamSynchronize(world.b));
    assert_int_equal(p_cuStreamQuery(world.a), CUDA_ERROR_NOT_READY);
    open_gate(&world);
    OK(p_clear_faults());
    world_end(&world);
}

static void latencies_are_what_events_measure(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    CUevent start;
    CUevent end;
    float milliseconds;
    OK(p_cuEventCreate(&start, CU_EVENT_DEFAULT));
    OK(p_cuEventCreate(&end, CU_EVENT_DEFAULT));
    OK(p_set_latency(STRATA_SIM_WORK_EVENT, 0, 0));
    OK(p_set_latency(STRATA_SIM_WORK_FILL, 3000000, BYTES));
    OK(p_cuEventRecord(start, world.a));
    fill(world.a, world.x);
    OK(p_cuEventRecord(end, world.a));
    OK(p_cuEventSynchronize(end));
    OK(p_cuEventElapsedTime(&milliseconds, start, end));
    assert_float_equal(milliseconds, 3.001, 1e-6);
    assert_int_equal(p_set_latency(STRATA_SIM_KINDS, 0, 0), CUDA_ERROR_INVALID_VALUE);
    OK(p_set_latency(STRATA_SIM_WORK_EVENT, 100, 0));
    OK(p_set_latency(STRATA_SIM_WORK_FILL, 2000, 4000000));
    OK(p_cuEventDestroy(start));
    OK(p_cuEventDestroy(end));
    world_end(&world);
}

static void a_fault_that_says_nothing_is_refused(void **state)
{
    (void)state;
    static const strata_sim_fault wrong[] = {
        {.kind = STRATA_SIM_FAIL_CALL, .nth = 0, .error = CUDA_ERROR_UNKNOWN},
        {.kind = STRATA_SIM_FAIL_CALL, .nth = 1, .error = CUDA_SUCCESS},
        {.kind = STRATA_SIM_FAIL_CALL, .nth = 1, .error = CUDA_ERROR_UNKNOWN, .entry = "cuMemAlok"},
        {.kind = STRATA_SIM_FAIL_OPERATION, .nth = 1, .error = CUDA_SUCCESS},
        {.kind = STRATA_SIM_FAIL_CALL, .nth = 1, .error = CUDA_ERROR_UNKNOWN, .entry = "cuDriverGetVersion"},
        {.kind = STRATA_SIM_FAIL_CALL, .nth = 1, .error = CUDA_ERROR_UNKNOWN, .entry = "cuGetErrorName"},
        {.kind = STRATA_SIM_FAIL_CALL, .nth = 1, .error = CUDA_ERROR_UNKNOWN, .entry = "cuGetErrorString"},
        {.kind = STRATA_SIM_FAIL_CALL, .nth = 1, .error = CUDA_ERROR_UNKNOWN, .entry = "cuGetProcAddress_v2"},
        {.kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = 0},
        {.kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = 0x100},
        {.kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = UINT32_MAX},
        {.kind = (strata_sim_fault_kind)7, .nth = 1},
    };
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        strata_sim_fault fault = wrong[i];
        fault.size = sizeof fault;
        assert_int_equal(p_add_fault(&fault, NULL), CUDA_ERROR_INVALID_VALUE);
    }
    strata_sim_fault fault = {.kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = 1};
    assert_int_equal(p_add_fault(&fault, NULL), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_add_fault(NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    fault.size = sizeof fault;
    for (int i = 0; i < 32; i++)
        OK(p_add_fault(&fault, NULL));
    assert_int_equal(p_add_fault(&fault, NULL), CUDA_ERROR_OUT_OF_MEMORY);
    OK(p_clear_faults());
}

/* The last test, since the device is gone for the rest of the process. */
static void the_nth_operation_of_a_stream_ends_the_device(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    uint32_t id = plan((strata_sim_fault){
        .kind = STRATA_SIM_FAIL_OPERATION, .nth = 2, .error = CUDA_ERROR_ECC_UNCORRECTABLE, .stream = world.b});
    fill(world.a, world.x);
    fill(world.a, world.x);
    fill(world.b, world.y);
    OK(p_cuCtxSynchronize());
    OK(p_cuMemsetD8Async(world.y, 2, BYTES, world.b));
    assert_int_equal(p_cuStreamSynchronize(world.b), CUDA_ERROR_ECC_UNCORRECTABLE);
    assert_int_equal(p_cuMemsetD8Async(world.y, 2, BYTES, world.a), CUDA_ERROR_ECC_UNCORRECTABLE);
    assert_int_equal(reached(id), 2);
}

int main(void)
{
    test_sim_open();
    if (p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS || p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_nth_call_of_one_entry_point_fails),
        cmocka_unit_test(an_entry_point_has_one_name),
        cmocka_unit_test(a_sweep_fails_each_call_once),
        cmocka_unit_test(a_dropped_record_leaves_the_event_as_it_was),
        cmocka_unit_test(a_dropped_synchronization_returns_at_once),
        cmocka_unit_test(a_dropped_wait_does_not_hold_the_stream),
        cmocka_unit_test(latencies_are_what_events_measure),
        cmocka_unit_test(a_fault_that_says_nothing_is_refused),
        cmocka_unit_test(the_nth_operation_of_a_stream_ends_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
