/* Values that streams of the simulated driver write and wait for: what a wait holds back, and what may end it. */
#include "support/sim.h"

#include <pthread.h>
#include <stdatomic.h>
#include <time.h>
#include <unistd.h>

static struct {
    CUstream stream;
    CUstream other;
    CUdeviceptr device;
    void *pinned;
    CUdeviceptr pinned_at;
} at;

static void set_up(void)
{
    test_sim_begin();
    OK(p_cuStreamCreate(&at.stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&at.other, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAlloc(&at.device, 4096));
    OK(p_cuMemsetD8(at.device, 0, 4096));
    OK(p_cuMemHostAlloc(&at.pinned, 4096, 0));
    memset(at.pinned, 0, 4096);
    at.pinned_at = (CUdeviceptr)(uintptr_t)at.pinned;
    OK(p_cuCtxSynchronize());
}

static void tear_down(void)
{
    OK(p_cuStreamDestroy(at.stream));
    OK(p_cuStreamDestroy(at.other));
    OK(p_cuMemFree(at.device));
    OK(p_cuMemFreeHost(at.pinned));
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

static unsigned char device_byte(size_t offset)
{
    unsigned char byte;
    OK(p_cuMemcpyDtoHAsync(&byte, at.device + offset, 1, at.stream));
    OK(p_cuStreamSynchronize(at.stream));
    return byte;
}

/* The wait is submitted first; what it waits for has work before it. */
static void hand_over(void)
{
    OK(p_cuStreamWaitValue32(at.stream, at.device, 7, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuMemcpyDtoDAsync(at.device + 64, at.device + 128, 16, at.stream));
    OK(p_cuMemsetD8Async(at.device + 128, 0x5e, 16, at.other));
    OK(p_cuStreamWriteValue32(at.other, at.device, 7, 0));
    assert_int_equal(device_byte(64), 0x5e);
    OK(p_cuStreamSynchronize(at.other));
}

static void a_stream_waits_for_the_value_that_another_one_writes(void **state)
{
    (void)state;
    under_all_policies(hand_over);
}

/* Eight turns: each stream waits for the other's last number. */
static void ping_pong(void)
{
    for (uint32_t turn = 0; turn < 8; turn++) {
        CUstream mine = turn % 2 == 0 ? at.stream : at.other;
        OK(p_cuStreamWaitValue32(mine, at.device, turn, CU_STREAM_WAIT_VALUE_GEQ));
        OK(p_cuMemsetD8Async(at.device + 64, (unsigned char)turn, 1, mine));
        OK(p_cuStreamWriteValue32(mine, at.device, turn + 1, 0));
    }
    OK(p_cuStreamSynchronize(at.other));
    assert_int_equal(device_byte(64), 7);
}

static void streams_take_turns_by_values(void **state)
{
    (void)state;
    under_all_policies(ping_pong);
}

/* A value may come by any work: a fill, a copy. */
static void other_ways(void)
{
    *(uint64_t *)at.pinned = UINT64_C(1) << 40;
    OK(p_cuStreamWaitValue32(at.stream, at.device, 0x04040404, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuStreamWaitValue64(at.stream, at.device + 8, UINT64_C(1) << 40, CU_STREAM_WAIT_VALUE_GEQ));
    OK(p_cuMemsetD8Async(at.device, 4, 4, at.other));
    OK(p_cuMemcpyHtoDAsync(at.device + 8, at.pinned, 8, at.other));
    OK(p_cuStreamSynchronize(at.stream));
    OK(p_cuStreamSynchronize(at.other));
}

static void fills_and_copies_bring_values_too(void **state)
{
    (void)state;
    under_all_policies(other_ways);
}

/* ---- the host's own hand ---- */

static atomic_bool waiting;

static void *write_after_a_while(void *unused)
{
    (void)unused;
    while (!atomic_load(&waiting))
        usleep(100);
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    atomic_store((_Atomic uint32_t *)at.pinned, 1);
    return NULL;
}

static void wait_for_the_host(void)
{
    pthread_t thread;
    atomic_store(&waiting, false);
    assert_int_equal(pthread_create(&thread, NULL, write_after_a_while, NULL), 0);
    OK(p_cuStreamWaitValue32(at.stream, at.pinned_at, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuMemsetD8Async(at.device, 3, 1, at.stream));
    assert_int_equal(p_cuStreamQuery(at.stream), CUDA_ERROR_NOT_READY);
    atomic_store(&waiting, true);
    OK(p_cuStreamSynchronize(at.stream));
    assert_int_equal(atomic_load((_Atomic uint32_t *)at.pinned), 1);
    assert_int_equal(device_byte(0), 3);
    assert_int_equal(pthread_join(thread, NULL), 0);
}

static void a_host_that_synchronizes_waits_until_another_thread_writes(void **state)
{
    (void)state;
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        set_up();
        wait_for_the_host();
        tear_down();
    }
}

static void poll_until_over(void)
{
    CUevent event;
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(p_cuStreamWaitValue32(at.stream, at.pinned_at, 6, CU_STREAM_WAIT_VALUE_AND));
    OK(p_cuEventRecord(event, at.stream));
    for (int i = 0; i < 50; i++)
        assert_int_equal(p_cuEventQuery(event), CUDA_ERROR_NOT_READY);
    atomic_store((_Atomic uint32_t *)at.pinned, 4);
    CUresult result;
    int polls = 0;
    while ((result = p_cuEventQuery(event)) == CUDA_ERROR_NOT_READY && polls < 10)
        polls++;
    OK(result);
    OK(p_cuEventDestroy(event));
}

static void a_host_that_asks_sees_the_wait_end(void **state)
{
    (void)state;
    under_all_policies(poll_until_over);
}

static void set_value(void *unused)
{
    (void)unused;
    atomic_store((_Atomic uint32_t *)at.pinned, 1);
}

static void wait_for_a_host_function(void)
{
    atomic_store((_Atomic uint32_t *)at.pinned, 0);
    OK(p_cuStreamWaitValue32(at.stream, at.pinned_at, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuLaunchHostFunc(at.other, set_value, NULL));
    OK(p_cuStreamSynchronize(at.stream));
    OK(p_cuStreamSynchronize(at.other));
}

/* The host has the lock while it looks for work that may bring the value, and the function needs it to begin. */
static void a_host_function_ends_a_wait(void **state)
{
    (void)state;
    under_all_policies(wait_for_a_host_function);
}

/* ---- what goes on meanwhile ---- */

static void hold_one(void)
{
    OK(p_cuStreamWaitValue32(at.stream, at.pinned_at, 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuMemsetD8Async(at.device, 9, 1, at.stream));
    OK(p_cuMemsetD8Async(at.device + 1, 9, 1, at.other));
    OK(p_cuStreamSynchronize(at.other));
    assert_int_equal(p_cuStreamQuery(at.stream), CUDA_ERROR_NOT_READY);
    unsigned char bytes[2];
    OK(p_cuMemcpyDtoHAsync(bytes, at.device, 2, at.other));
    assert_int_equal(bytes[0], 0);
    assert_int_equal(bytes[1], 9);
    atomic_store((_Atomic uint32_t *)at.pinned, 1);
    assert_int_equal(device_byte(0), 9);
}

static void a_wait_holds_its_own_stream_and_no_other(void **state)
{
    (void)state;
    under_all_policies(hold_one);
}

/* The value is already there: nothing but the waiting stream has to run. */
static void a_wait_that_is_over_forces_nothing_else(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    set_up();
    strata_sim_accounts accounts;
    OK(p_cuMemsetD8Async(at.device + 64, 1, 1, at.other));
    OK(p_cuStreamWaitValue32(at.stream, at.device, 0, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuStreamSynchronize(at.stream));
    OK(p_get_accounts(&accounts));
    assert_int_equal(accounts.unfinished_work, 1);
    OK(p_cuStreamSynchronize(at.other));
    tear_down();
}

/* It looks, from a stream that nothing orders, at what is done so far: a race on purpose. */
static void batch(void)
{
    CUstreamBatchMemOpParams ops[3];
    memset(ops, 0, sizeof ops);
    ops[0].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[0].writeValue.address = at.device + 32;
    ops[0].writeValue.value = 11;
    ops[1].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_64;
    ops[1].waitValue.address = at.pinned_at;
    ops[1].waitValue.value64 = UINT64_MAX;
    ops[1].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    ops[2].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_64;
    ops[2].writeValue.address = at.device + 40;
    ops[2].writeValue.value64 = 12;
    OK(p_cuStreamBatchMemOp(at.stream, 3, ops, 0));
    for (int i = 0; i < 10; i++)
        assert_int_equal(p_cuStreamQuery(at.stream), CUDA_ERROR_NOT_READY);
    unsigned char bytes[16];
    OK(p_cuMemcpyDtoHAsync(bytes, at.device + 32, 16, at.other));
    assert_int_equal(bytes[0], 11);
    assert_int_equal(bytes[8], 0);
    OK(p_cuStreamWriteValue64(at.other, at.pinned_at, UINT64_MAX, 0));
    assert_int_equal(device_byte(40), 12);
    OK(p_cuStreamSynchronize(at.other));
    test_sim_forget_reports();
}

static void a_batch_is_done_one_after_the_other(void **state)
{
    (void)state;
    under_all_policies(batch);
}

int main(void)
{
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_stream_waits_for_the_value_that_another_one_writes),
        cmocka_unit_test(streams_take_turns_by_values),
        cmocka_unit_test(fills_and_copies_bring_values_too),
        cmocka_unit_test(a_host_that_synchronizes_waits_until_another_thread_writes),
        cmocka_unit_test(a_host_that_asks_sees_the_wait_end),
        cmocka_unit_test(a_host_function_ends_a_wait),
        cmocka_unit_test(a_wait_holds_its_own_stream_and_no_other),
        cmocka_unit_test(a_wait_that_is_over_forces_nothing_else),
        cmocka_unit_test(a_batch_is_done_one_after_the_other),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
