/* A program's whole life, from opening the driver on, in which the first, second, third, … driver call fails. Each time
 * one call of the library may answer an error, with words; made again, it works, and so does everything after it. And
 * a driver that says it has shut down is believed. Every life is a process of its own, since a process opens the driver
 * once. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "support/child.h"
#include "support/effort.h"

#include "core/streams/known_streams.h"
#include "driver/kernels/kernels.h"

enum { BYTES = 4096, MOST_CALLS = 1000, LIFE_WITHOUT_FAULT = 3 };

/* ---- in children ---- */

static PFN_strata_sim_fault_reached fault_reached;
static uint32_t planned;
static bool failed; /* the one failure that there may be */

static void find_function(void *library, const char *name, void *function)
{
    void *found = dlsym(library, name);
    child_check(found);
    memcpy(function, &found, sizeof found);
}

static void plan_fault(const char *entry, uint64_t nth, CUresult error)
{
    PFN_strata_sim_add_fault add_fault;
    void *library = dlopen(getenv("STRATA_SIM_LIBRARY"), RTLD_NOW | RTLD_LOCAL);
    child_check(library);
    find_function(library, "strata_sim_add_fault", &add_fault);
    find_function(library, "strata_sim_fault_reached", &fault_reached);
    strata_sim_fault fault = {
        .size = sizeof fault, .kind = STRATA_SIM_FAIL_CALL, .nth = nth, .error = error, .entry = entry};
    child_check(add_fault(&fault, &planned) == CUDA_SUCCESS);
}

/* Whether a call is to be made again. */
static bool again(strata_status status)
{
    if (status == STRATA_SUCCESS)
        return false;
    child_check(!failed);
    child_check(strata_last_error()->status == status && strata_last_error()->message[0]);
    failed = true;
    return true;
}

static bool again_cu(CUresult result)
{
    if (result == CUDA_SUCCESS)
        return false;
    child_check(!failed);
    failed = true;
    return true;
}

/* One block, read and written on both streams in each of the ways that there are, and freed on the second. */
static void use_block(strata_runtime *runtime, CUstream first, CUstream second)
{
    strata_block block;
    strata_launch launch;
    while (again(strata_runtime_allocate(runtime, BYTES, first, &block)))
        child_check(block.address == 0);
    while (again(strata_runtime_prepare_block_use(runtime, &block, first, STRATA_ACCESS_WRITE))) {
    }
    while (again_cu(strata_kernel_pattern_fill(block.address, BYTES, 7, first))) {
    }
    while (again(strata_runtime_finish_block_use(runtime, &block, first, STRATA_ACCESS_WRITE))) {
    }
    while (again(strata_runtime_prepare_block_use(runtime, &block, second, STRATA_ACCESS_READ))) {
    }
    while (again(strata_runtime_finish_block_use(runtime, &block, second, STRATA_ACCESS_READ))) {
    }
    while (again(strata_launch_begin(&launch, runtime, second, STRATA_LAUNCH_STRICT))) {
    }
    child_ok(strata_launch_use(&launch, &block, STRATA_ACCESS_READ_WRITE));
    while (again(strata_launch_preflight(&launch))) {
    }
    (void)again(strata_launch_commit(&launch)); /* whatever it answers, the uses were noted or waited for */
    while (again(strata_launch_end(&launch))) {
    }
    while (again(strata_runtime_record_block_use(runtime, &block, first, STRATA_ACCESS_READ))) {
    }
    while (again(strata_runtime_deallocate_on(runtime, &block, second))) {
    }
}

static void live_on(const char *stack)
{
    strata_runtime *runtime;
    CUstream pooled, own, unknown;
    strata_usage usage;
    size_t released;
    const strata_runtime_config config = {.stack_text = stack};
    while (again(strata_runtime_create(&config, &runtime)))
        child_check(!runtime);
    while (again(strata_runtime_stream_acquire(runtime, &pooled)))
        child_check(!pooled);
    while (again_cu(strata_cu.StreamCreate(&own, CU_STREAM_NON_BLOCKING))) {
    }
    while (again_cu(strata_cu.StreamCreate(&unknown, CU_STREAM_NON_BLOCKING))) {
    }
    while (again(strata_runtime_register_stream(runtime, own))) {
    }
    use_block(runtime, pooled, own);
    use_block(runtime, unknown, pooled);
    use_block(runtime, NULL, unknown);
    while (again(strata_runtime_unregister_stream(runtime, own))) {
    }
    use_block(runtime, own, CU_STREAM_PER_THREAD);
    child_ok(strata_runtime_stream_release(runtime, pooled));
    while (again(strata_runtime_trim(runtime, 0, &released))) {
    }
    while (again(strata_runtime_usage(runtime, &usage))) {
    }
    child_check(usage.live_blocks == 0);
    while (again(strata_runtime_reap_pending(runtime))) {
    }
    while (again(strata_runtime_destroy(runtime))) {
    }
    while (again_cu(strata_cu.StreamDestroy(own))) {
    }
    while (again_cu(strata_cu.StreamDestroy(unknown))) {
    }
}

static void make_current(void)
{
    CUdevice device;
    CUcontext context;
    while (again_cu(strata_cu.DeviceGet(&device, 0))) {
    }
    while (again_cu(strata_cu.DevicePrimaryCtxRetain(&context, device))) {
    }
    while (again_cu(strata_cu.CtxSetCurrent(context))) {
    }
}

static void life_with_a_failing_call(void)
{
    uint64_t nth = strtoull(getenv("STRATA_TEST_NTH"), NULL, 10), reached;
    strata_driver_info info;
    strata_device_info device;
    strata_runtime *runtime;
    plan_fault(NULL, nth, (CUresult)strtol(getenv("STRATA_TEST_ERROR"), NULL, 10));
    while (again(strata_driver_get_info(&info)))
        child_check(info.device_count == 0);
    while (again(strata_device_get_info(0, &device))) {
    }
    while (again(strata_runtime_get(0, &runtime)))
        child_check(!runtime);
    make_current();
    while (again_cu(strata_kernels_load())) {
    }
    live_on(getenv("STRATA_TEST_STACK"));
    child_check(fault_reached(planned, &reached) == CUDA_SUCCESS);
    child_check(failed <= (reached >= nth));
    test_child_leave(reached >= nth ? 0 : LIFE_WITHOUT_FAULT);
}

static void driver_that_says_it_has_shut_down_is_believed(void)
{
    strata_runtime *runtime;
    strata_block block, none;
    CUstream stream;
    child_ok(strata_runtime_get(0, &runtime));
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    child_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    plan_fault("cuMemAllocFromPoolAsync", 1, CUDA_ERROR_DEINITIALIZED);
    child_status(strata_runtime_allocate(runtime, BYTES, stream, &none), STRATA_ERROR_SHUT_DOWN);
    child_check(none.address == 0);
    child_status(strata_runtime_allocate(runtime, BYTES, NULL, &none), STRATA_ERROR_SHUT_DOWN);
    child_status(strata_runtime_prepare_block_use(runtime, &block, stream, STRATA_ACCESS_READ), STRATA_ERROR_SHUT_DOWN);
    child_status(strata_runtime_register_stream(runtime, stream), STRATA_ERROR_SHUT_DOWN);
    child_status(strata_runtime_create(NULL, &runtime), STRATA_ERROR_SHUT_DOWN);
    child_status(strata_driver_get_info(&(strata_driver_info){0}), STRATA_ERROR_SHUT_DOWN);
    test_child_leave(0);
}

/* ---- a stream that can be neither marked nor waited for ---- */

static CUresult CUDAAPI refuse_to_record(CUevent event, CUstream stream)
{
    (void)event;
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

static CUresult CUDAAPI refuse_to_synchronize(CUstream stream)
{
    (void)stream;
    return CUDA_ERROR_UNKNOWN;
}

static strata_status unregister_unmarkable(strata_runtime *runtime, CUstream stream)
{
    CUresult(CUDAAPI *const record)(CUevent, CUstream) = strata_cu.EventRecord;
    CUresult(CUDAAPI *const synchronize)(CUstream) = strata_cu.StreamSynchronize;
    strata_cu.EventRecord = refuse_to_record;
    strata_cu.StreamSynchronize = refuse_to_synchronize;
    const strata_status status = strata_runtime_unregister_stream(runtime, stream);
    strata_cu.EventRecord = record;
    strata_cu.StreamSynchronize = synchronize;
    return status;
}

static void let_an_unknown_stream_pass_by(strata_runtime *runtime)
{
    CUstream stream;
    strata_block block;
    child_check(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    child_ok(strata_runtime_deallocate_on(runtime, &block, stream));
    child_check(strata_cu.StreamDestroy(stream) == CUDA_SUCCESS);
}

/* In a process that has seen no unknown stream yet: their map is empty but for what the failure left. */
static void unregister_in_vain(void)
{
    strata_runtime *runtime;
    CUstream stream;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "async"}, &runtime));
    make_current();
    child_check(strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_register_stream(runtime, stream));
    child_status(unregister_unmarkable(runtime, stream), STRATA_ERROR_DRIVER);
    child_check(strata_stream_is_known(stream));
    let_an_unknown_stream_pass_by(runtime);
    child_ok(strata_runtime_unregister_stream(runtime, stream));
    child_check(!strata_stream_is_known(stream));
    let_an_unknown_stream_pass_by(runtime);
    child_check(strata_cu.StreamDestroy(stream) == CUDA_SUCCESS);
    child_ok(strata_runtime_destroy(runtime));
}

/* ---- tests ---- */

static void live_until_nothing_fails(const char *stack, CUresult error)
{
    char nth[64], setting[128], result[64];
    const char *changes[] = {"STRATA_DRIVER=sim", nth, setting, result, NULL};
    snprintf(setting, sizeof setting, "STRATA_TEST_STACK=%s", stack);
    snprintf(result, sizeof result, "STRATA_TEST_ERROR=%d", (int)error);
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
    const unsigned step = 7; /* such a program takes long to start */
#else
    const unsigned step = (unsigned)test_effort(1, 120);
#endif
    for (unsigned n = 1; n < MOST_CALLS; n += step) {
        snprintf(nth, sizeof nth, "STRATA_TEST_NTH=%u", n);
        int status = test_child_status("life_with_a_failing_call", changes);
        if (status == LIFE_WITHOUT_FAULT && n > 50)
            return;
        if (status != 0)
            fail_msg("call %u of a life on %s: exit status %d", n, stack, status);
    }
    fail_msg("a life on %s never ended", stack);
}

static void any_call_of_a_life_may_fail_once(void **state)
{
    (void)state;
    test_needs_simulated_driver("it fails the n-th call of a process");
    live_until_nothing_fails("async(initial_size=1MiB,max_size=64MiB)", CUDA_ERROR_UNKNOWN);
    live_until_nothing_fails("budget, logging(format=memory), statistics, pool", CUDA_ERROR_UNKNOWN);
    live_until_nothing_fails("direct", CUDA_ERROR_OPERATING_SYSTEM);
    live_until_nothing_fails("async(pool=current)", CUDA_ERROR_OUT_OF_MEMORY);
}

static void a_driver_that_says_it_has_shut_down_is_believed(void **state)
{
    (void)state;
    test_needs_simulated_driver("it lets a call say so");
    test_child_run("driver_that_says_it_has_shut_down_is_believed",
                   (const char *const[]){"STRATA_DRIVER=sim", "STRATA_STACK=async", NULL});
}

static void a_stream_that_could_not_be_unregistered_is_known_and_in_nobodys_way(void **state)
{
    (void)state;
    test_child_run("unregister_in_vain", NULL);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {
        TEST_SCENARIO(life_with_a_failing_call),
        TEST_SCENARIO(driver_that_says_it_has_shut_down_is_believed),
        TEST_SCENARIO(unregister_in_vain),
    };
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(any_call_of_a_life_may_fail_once),
        cmocka_unit_test(a_driver_that_says_it_has_shut_down_is_believed),
        cmocka_unit_test(a_stream_that_could_not_be_unregistered_is_known_and_in_nobodys_way),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
