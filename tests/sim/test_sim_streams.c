/* Streams, events and host functions of the simulated driver, under each policy of its scheduler. */
#include "support/sim.h"

#include <pthread.h>
#include <semaphore.h>
#include <time.h>
#include <unistd.h>

/* A gate in a stream: a host function that waits until the test lets it go. */
struct gate {
    sem_t open;
};

static void wait_at(void *data)
{
    struct gate *gate = data;
    while (sem_wait(&gate->open) != 0) {
    }
}

static void shut(struct gate *gate, CUstream stream)
{
    assert_int_equal(sem_init(&gate->open, 0, 0), 0);
    OK(p_cuLaunchHostFunc(stream, wait_at, gate));
}

static void let_go(struct gate *gate)
{
    sem_post(&gate->open);
}

/* Runs a body in a fresh primary context under each policy and a few seeds. */
static void under_all_policies(void (*body)(void))
{
    for (size_t i = 0; i < 3; i++) {
        OK(p_set_policy(test_policies[i]));
        for (uint64_t seed = 0; seed < (test_policies[i] == STRATA_SIM_RANDOM ? 20U : 1U); seed++) {
            OK(p_set_seed(seed));
            test_sim_begin();
            body();
            test_sim_end();
        }
    }
}

static unsigned char byte_of(CUdeviceptr address, CUstream stream)
{
    unsigned char byte;
    OK(p_cuMemcpyDtoHAsync(&byte, address, 1, stream));
    OK(p_cuStreamSynchronize(stream));
    return byte;
}

static void order_in_a_stream(void)
{
    CUstream stream;
    CUdeviceptr address;
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAllocAsync(&address, 1, stream));
    for (unsigned i = 0; i < 50; i++)
        OK(p_cuMemsetD8Async(address, (unsigned char)i, 1, stream));
    assert_int_equal(byte_of(address, stream), 49);
    OK(p_cuMemFreeAsync(address, stream));
    OK(p_cuStreamDestroy(stream));
}

static void work_in_a_stream_runs_in_order(void **state)
{
    (void)state;
    under_all_policies(order_in_a_stream);
}

static void event_order(void)
{
    CUstream producer;
    CUstream consumer;
    CUevent event;
    CUdeviceptr address;
    struct gate gate;
    OK(p_cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING));
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    OK(p_cuMemAlloc(&address, 3));
    shut(&gate, producer);
    OK(p_cuMemsetD8Async(address, 5, 1, producer));
    OK(p_cuEventRecord(event, producer));
    OK(p_cuStreamWaitEvent(consumer, event, 0));
    OK(p_cuMemcpyDtoDAsync(address + 1, address, 1, consumer));
    /* Neither a later record nor the end of the event may disturb the wait. */
    OK(p_cuMemsetD8Async(address + 2, 6, 1, producer));
    OK(p_cuEventRecord(event, producer));
    OK(p_cuEventDestroy(event));
    assert_int_equal(p_cuStreamQuery(consumer), CUDA_ERROR_NOT_READY);
    let_go(&gate);
    assert_int_equal(byte_of(address + 1, consumer), 5);
    OK(p_cuStreamSynchronize(producer));
    OK(p_cuMemFree(address));
    OK(p_cuStreamDestroy(producer));
    OK(p_cuStreamDestroy(consumer));
}

static void a_wait_holds_for_the_record_it_was_made_for(void **state)
{
    (void)state;
    under_all_policies(event_order);
}

static void a_wait_is_not_for_records_made_later(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream producer;
    CUstream consumer;
    CUevent event;
    struct gate gate;
    OK(p_cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING));
    OK(p_cuEventCreate(&event, 0));
    OK(p_cuStreamWaitEvent(consumer, event, 0));
    OK(p_cuEventQuery(event));
    OK(p_cuEventRecord(event, producer));
    OK(p_cuStreamWaitEvent(consumer, event, 0));
    shut(&gate, producer);
    OK(p_cuEventRecord(event, producer));
    OK(p_cuStreamSynchronize(consumer));
    assert_int_equal(p_cuEventQuery(event), CUDA_ERROR_NOT_READY);
    let_go(&gate);
    OK(p_cuEventSynchronize(event));
    OK(p_cuEventQuery(event));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(producer));
    OK(p_cuStreamDestroy(consumer));
    test_sim_end();
}

/* Under the policy late a reader without a wait sees what was there before, for certain. */
static void a_missing_wait_shows_itself_under_late(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream producer;
    CUstream consumer;
    CUdeviceptr address;
    OK(p_cuStreamCreate(&producer, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&consumer, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAlloc(&address, 1));
    OK(p_cuMemsetD8Async(address, 1, 1, producer));
    OK(p_cuStreamSynchronize(producer));
    OK(p_cuMemsetD8Async(address, 2, 1, producer));
    assert_int_equal(byte_of(address, consumer), 1);
    assert_int_equal(byte_of(address, producer), 2);
    test_sim_forget_reports();
    OK(p_cuMemFree(address));
    OK(p_cuStreamDestroy(producer));
    OK(p_cuStreamDestroy(consumer));
    test_sim_end();
}

static void legacy_order(void)
{
    CUstream blocking;
    CUstream after;
    CUstream free_stream;
    CUdeviceptr address;
    struct gate gate;
    OK(p_cuMemAlloc(&address, 3));
    OK(p_cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    OK(p_cuStreamCreate(&after, CU_STREAM_DEFAULT));
    OK(p_cuStreamCreate(&free_stream, CU_STREAM_NON_BLOCKING));
    shut(&gate, blocking);
    OK(p_cuMemsetD8Async(address, 1, 1, blocking));
    OK(p_cuMemcpyDtoDAsync(address + 1, address, 1, CU_STREAM_LEGACY));
    OK(p_cuMemcpyDtoDAsync(address + 2, address + 1, 1, after));
    OK(p_cuStreamSynchronize(free_stream));
    OK(p_cuMemsetD8Async(address, 1, 0, free_stream));
    OK(p_cuStreamSynchronize(free_stream));
    for (int i = 0; i < 10; i++) {
        assert_int_equal(p_cuStreamQuery(after), CUDA_ERROR_NOT_READY);
        assert_int_equal(p_cuStreamQuery(NULL), CUDA_ERROR_NOT_READY);
    }
    let_go(&gate);
    assert_int_equal(byte_of(address + 2, after), 1);
    OK(p_cuMemFree(address));
    OK(p_cuStreamDestroy(blocking));
    OK(p_cuStreamDestroy(after));
    OK(p_cuStreamDestroy(free_stream));
}

static void the_legacy_stream_orders_all_blocking_streams_and_no_other(void **state)
{
    (void)state;
    under_all_policies(legacy_order);
}

static void a_blocked_host_function_stalls_only_its_stream_body(void)
{
    CUstream stalled;
    CUstream other;
    CUdeviceptr address;
    struct gate gate;
    OK(p_cuStreamCreate(&stalled, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAlloc(&address, 1));
    shut(&gate, stalled);
    OK(p_cuMemsetD8Async(address, 9, 1, other));
    assert_int_equal(byte_of(address, other), 9);
    assert_int_equal(p_cuStreamQuery(stalled), CUDA_ERROR_NOT_READY);
    let_go(&gate);
    OK(p_cuStreamSynchronize(stalled));
    OK(p_cuMemFree(address));
    OK(p_cuStreamDestroy(stalled));
    OK(p_cuStreamDestroy(other));
}

static void a_blocked_host_function_stalls_only_its_stream(void **state)
{
    (void)state;
    under_all_policies(a_blocked_host_function_stalls_only_its_stream_body);
}

static void call_cuda(void *data)
{
    CUresult *results = data;
    int count;
    CUcontext context;
    results[0] = p_cuDeviceGetCount(&count);
    results[1] = p_cuCtxGetCurrent(&context);
    results[2] = p_cuCtxSynchronize();
}

static void no_cuda_in_host_functions(void)
{
    CUstream stream;
    CUresult results[3] = {CUDA_SUCCESS, CUDA_SUCCESS, CUDA_SUCCESS};
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuLaunchHostFunc(stream, call_cuda, results));
    OK(p_cuStreamSynchronize(stream));
    for (int i = 0; i < 3; i++)
        assert_int_equal(results[i], CUDA_ERROR_NOT_PERMITTED);
    OK(p_cuStreamDestroy(stream));
}

static void a_cuda_call_in_a_host_function_is_not_permitted(void **state)
{
    (void)state;
    under_all_policies(no_cuda_in_host_functions);
}

static void count(void *data)
{
    ++*(int *)data;
}

static void a_host_function_starts_under_late_only_when_needed(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream wanted;
    CUstream unwanted;
    static int calls[2];
    calls[0] = calls[1] = 0;
    OK(p_cuStreamCreate(&wanted, CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&unwanted, CU_STREAM_NON_BLOCKING));
    OK(p_cuLaunchHostFunc(unwanted, count, &calls[1]));
    OK(p_cuLaunchHostFunc(wanted, count, &calls[0]));
    OK(p_cuStreamSynchronize(wanted));
    assert_int_equal(calls[0], 1);
    assert_int_equal(calls[1], 0);
    OK(p_cuStreamSynchronize(unwanted));
    assert_int_equal(calls[1], 1);
    OK(p_cuStreamDestroy(wanted));
    OK(p_cuStreamDestroy(unwanted));
    test_sim_end();
}

static void polling(void)
{
    CUstream streams[2];
    CUevent event;
    OK(p_cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
    OK(p_cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    int called = 0;
    OK(p_cuLaunchHostFunc(streams[0], count, &called));
    OK(p_cuEventRecord(event, streams[0]));
    OK(p_cuStreamWaitEvent(streams[1], event, 0));
    while (p_cuEventQuery(event) == CUDA_ERROR_NOT_READY)
        usleep(10);
    assert_int_equal(called, 1);
    while (p_cuStreamQuery(streams[1]) == CUDA_ERROR_NOT_READY)
        usleep(10);
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(streams[0]));
    OK(p_cuStreamDestroy(streams[1]));
}

static void polling_ends(void **state)
{
    (void)state;
    under_all_policies(polling);
}

static void handles_come_back_and_ids_do_not(void **state)
{
    (void)state;
    test_sim_begin();
    CUstream first;
    CUstream second;
    unsigned long long ids[2];
    OK(p_cuStreamCreate(&first, 0));
    OK(p_cuStreamGetId(first, &ids[0]));
    OK(p_cuStreamDestroy(first));
    assert_int_equal(p_cuStreamQuery(first), CUDA_ERROR_INVALID_HANDLE);
    OK(p_cuStreamCreate(&second, 0));
    OK(p_cuStreamGetId(second, &ids[1]));
    assert_ptr_equal(first, second);
    assert_true(ids[0] != ids[1]);
    OK(p_cuStreamDestroy(second));
    test_sim_end();
}

static void *own_id(void *data)
{
    CUcontext context = data;
    unsigned long long *id = malloc(sizeof *id);
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuStreamGetId(CU_STREAM_PER_THREAD, id));
    return id;
}

static void null_and_legacy_are_one_and_each_thread_has_its_own(void **state)
{
    (void)state;
    CUcontext context = test_sim_begin();
    unsigned long long null_id;
    unsigned long long legacy;
    unsigned long long mine;
    unsigned long long again;
    OK(p_cuStreamGetId(NULL, &null_id));
    OK(p_cuStreamGetId(CU_STREAM_LEGACY, &legacy));
    OK(p_cuStreamGetId(CU_STREAM_PER_THREAD, &mine));
    OK(p_cuStreamGetId(CU_STREAM_PER_THREAD, &again));
    assert_int_equal(null_id, legacy);
    assert_int_not_equal(null_id, mine);
    assert_int_equal(mine, again);
    pthread_t thread;
    void *other;
    assert_int_equal(pthread_create(&thread, NULL, own_id, context), 0);
    pthread_join(thread, &other);
    assert_int_not_equal(*(unsigned long long *)other, mine);
    assert_int_not_equal(*(unsigned long long *)other, null_id);
    free(other);
    test_sim_end();
}

static pthread_key_t at_thread_end;

struct ended_thread {
    CUcontext context;
    unsigned long long before, after; /* of its own stream */
};

/* Runs behind the simulated driver's own destructor, whose key is older. */
static void use_driver_at_the_end(void *data)
{
    struct ended_thread *ended = data;
    OK(p_cuCtxSetCurrent(ended->context));
    OK(p_cuStreamGetId(CU_STREAM_PER_THREAD, &ended->after));
}

static void *use_driver_and_end(void *data)
{
    struct ended_thread *ended = data;
    assert_int_equal(pthread_setspecific(at_thread_end, ended), 0);
    OK(p_cuCtxSetCurrent(ended->context));
    OK(p_cuStreamGetId(CU_STREAM_PER_THREAD, &ended->before));
    return NULL;
}

static void a_thread_may_call_the_driver_to_its_end(void **state)
{
    (void)state;
    struct ended_thread ended = {.context = test_sim_begin()};
    pthread_t thread;
    assert_int_equal(pthread_key_create(&at_thread_end, use_driver_at_the_end), 0);
    assert_int_equal(pthread_create(&thread, NULL, use_driver_and_end, &ended), 0);
    pthread_join(thread, NULL);
    assert_int_equal(pthread_key_delete(at_thread_end), 0);
    assert_true(ended.before && ended.after && ended.before != ended.after);
    test_sim_end();
}

static void streams_answer_what_they_were_made_with(void **state)
{
    (void)state;
    CUcontext context = test_sim_begin();
    CUcontext of_stream;
    CUstream stream;
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_ACTIVE;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    unsigned flags;
    int priority;
    OK(p_cuStreamCreateWithPriority(&stream, CU_STREAM_NON_BLOCKING, -100));
    OK(p_cuStreamGetFlags(stream, &flags));
    OK(p_cuStreamGetPriority(stream, &priority));
    OK(p_cuStreamGetCtx(stream, &of_stream));
    OK(p_cuStreamIsCapturing(stream, &status));
    assert_int_equal(flags, CU_STREAM_NON_BLOCKING);
    assert_int_equal(priority, -5);
    assert_ptr_equal(of_stream, context);
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(p_cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
    OK(p_cuThreadExchangeStreamCaptureMode(&mode));
    assert_int_equal(mode, CU_STREAM_CAPTURE_MODE_RELAXED);
    assert_int_equal(p_cuStreamCreate(&stream, 2), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuStreamCreate(NULL, 0), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuStreamDestroy(stream));
    assert_int_equal(p_cuStreamDestroy((CUstream)(uintptr_t)0x1234560), CUDA_ERROR_INVALID_HANDLE);
    test_sim_end();
}

static void timing(void)
{
    CUstream stream;
    CUevent start;
    CUevent end;
    CUevent untimed;
    CUdeviceptr address;
    float milliseconds = -1;
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuEventCreate(&start, 0));
    OK(p_cuEventCreate(&end, 0));
    OK(p_cuEventCreate(&untimed, CU_EVENT_DISABLE_TIMING));
    OK(p_cuMemAllocAsync(&address, 1 << 20, stream));
    assert_int_equal(p_cuEventElapsedTime(&milliseconds, start, end), CUDA_ERROR_INVALID_HANDLE);
    OK(p_cuEventRecord(start, stream));
    OK(p_cuMemsetD8Async(address, 1, 1 << 20, stream));
    OK(p_cuEventRecord(end, stream));
    OK(p_cuEventSynchronize(end));
    OK(p_cuEventElapsedTime(&milliseconds, start, end));
    assert_true(milliseconds > 0);
    assert_int_equal(p_cuEventElapsedTime(&milliseconds, start, untimed), CUDA_ERROR_INVALID_HANDLE);
    OK(p_cuMemFreeAsync(address, stream));
    OK(p_cuEventDestroy(start));
    OK(p_cuEventDestroy(end));
    OK(p_cuEventDestroy(untimed));
    OK(p_cuStreamDestroy(stream));
}

static void timed_events_measure_work(void **state)
{
    (void)state;
    under_all_policies(timing);
}

/* Two streams: a query lets the work of both events run. */
static void polling_for_elapsed_time(void)
{
    enum { MOST_POLLS = 100 };
    CUstream streams[2];
    CUevent events[2];
    CUdeviceptr address;
    float milliseconds = -1;
    OK(p_cuMemAlloc(&address, 512));
    for (int i = 0; i < 2; i++) {
        OK(p_cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
        OK(p_cuEventCreate(&events[i], CU_EVENT_DEFAULT));
        OK(p_cuMemsetD8Async(address + 256 * (unsigned)i, 1, 256, streams[i]));
        OK(p_cuEventRecord(events[i], streams[i]));
    }
    CUresult result = CUDA_ERROR_NOT_READY;
    for (int polls = 0; polls < MOST_POLLS && result == CUDA_ERROR_NOT_READY; polls++)
        result = p_cuEventElapsedTime(&milliseconds, events[0], events[1]);
    assert_int_equal(result, CUDA_SUCCESS);
    for (int i = 0; i < 2; i++) {
        OK(p_cuEventQuery(events[i]));
        OK(p_cuEventDestroy(events[i]));
        OK(p_cuStreamDestroy(streams[i]));
    }
    OK(p_cuMemFree(address));
}

static void polling_for_elapsed_time_ends(void **state)
{
    (void)state;
    under_all_policies(polling_for_elapsed_time);
}

enum { LATEST_CALLS = 1000, WITHOUT_WAIT = 5 * LATEST_CALLS };

static uint64_t unfinished_work(void)
{
    strata_sim_accounts accounts;
    OK(p_get_accounts(&accounts));
    return accounts.unfinished_work;
}

/* Returns a sum over the run, which tells two runs apart. */
static uint64_t allocate_without_waiting(void)
{
    CUstream streams[2];
    CUevent event;
    uint64_t sum = 0;
    OK(p_cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
    for (int i = 0; i < 2; i++)
        OK(p_cuStreamCreate(&streams[i], CU_STREAM_NON_BLOCKING));
    for (unsigned i = 0; i < WITHOUT_WAIT / 5; i++) {
        CUdeviceptr address;
        OK(p_cuMemAllocAsync(&address, 1 << 20, streams[i % 2]));
        OK(p_cuMemsetD8Async(address, 1, 1 << 10, streams[i % 2]));
        OK(p_cuEventRecord(event, streams[i % 2]));
        OK(p_cuStreamWaitEvent(streams[(i + 1) % 2], event, 0));
        OK(p_cuMemFreeAsync(address, streams[i % 2]));
        uint64_t unfinished = unfinished_work();
        assert_true(unfinished <= LATEST_CALLS + 1);
        sum = sum * 31 + unfinished;
    }
    OK(p_cuEventDestroy(event));
    for (int i = 0; i < 2; i++)
        OK(p_cuStreamDestroy(streams[i]));
    return sum;
}

static void without_waits(void)
{
    (void)allocate_without_waiting();
}

static void work_for_which_no_host_waits_does_not_pile_up(void **state)
{
    (void)state;
    under_all_policies(without_waits);
}

static void a_run_without_waits_is_the_same_for_a_seed(void **state)
{
    (void)state;
    uint64_t sums[4];
    OK(p_set_policy(STRATA_SIM_RANDOM));
    for (uint64_t i = 0; i < 4; i++) {
        OK(p_set_seed(i / 2));
        test_sim_begin();
        sums[i] = allocate_without_waiting();
        test_sim_end();
    }
    assert_true(sums[0] == sums[1] && sums[2] == sums[3]);
    assert_true(sums[0] != sums[2]);
}

static void post(void *data)
{
    sem_post(data);
}

/* What the loop asks for is no query of a stream or an event. The host function that was begun needs a moment. */
static void polling_for_a_flag(void)
{
    enum { MOST_POLLS = 2 * LATEST_CALLS, PATIENCE_S = 10 };
    CUstream stream;
    size_t free_bytes, total;
    sem_t flag;
    struct timespec until;
    assert_int_equal(sem_init(&flag, 0, 0), 0);
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuLaunchHostFunc(stream, post, &flag));
    bool passed = false;
    for (int polls = 0; polls < MOST_POLLS && !passed; polls++) {
        OK(p_cuMemGetInfo(&free_bytes, &total));
        passed = sem_trywait(&flag) == 0;
    }
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    assert_true(passed || sem_timedwait(&flag, &until) == 0);
    OK(p_cuStreamDestroy(stream));
    sem_destroy(&flag);
}

static void polling_by_any_call_ends(void **state)
{
    (void)state;
    under_all_policies(polling_for_a_flag);
}

static void a_destroyed_stream_finishes_its_work(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUstream stream;
    CUstream other;
    CUdeviceptr address;
    OK(p_cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    OK(p_cuMemAlloc(&address, 1));
    OK(p_cuMemsetD8Async(address, 3, 1, stream));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuCtxSynchronize());
    OK(p_cuStreamCreate(&other, CU_STREAM_NON_BLOCKING));
    assert_int_equal(byte_of(address, other), 3);
    OK(p_cuStreamDestroy(other));
    OK(p_cuMemFree(address));
    test_sim_end();
}

static void contexts_stack_and_end(void **state)
{
    (void)state;
    CUcontext primary = test_sim_begin();
    CUcontext made;
    CUcontext current;
    CUstream stream;
    CUdevice device;
    OK(p_cuCtxCreate(&made, CU_CTX_SCHED_AUTO, 0));
    OK(p_cuCtxGetCurrent(&current));
    assert_ptr_equal(current, made);
    OK(p_cuStreamCreate(&stream, 0));
    OK(p_cuCtxPopCurrent(&current));
    OK(p_cuCtxGetCurrent(&current));
    assert_ptr_equal(current, primary);
    OK(p_cuCtxPushCurrent(made));
    OK(p_cuCtxDestroy(made));
    OK(p_cuCtxGetCurrent(&current));
    assert_ptr_equal(current, primary);
    assert_int_equal(p_cuStreamQuery(stream), CUDA_ERROR_INVALID_HANDLE);
    OK(p_cuCtxPopCurrent(&current));
    assert_int_equal(p_cuCtxPopCurrent(&current), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(p_cuCtxGetDevice(&device), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(p_cuStreamCreate(&stream, 0), CUDA_ERROR_INVALID_CONTEXT);
    OK(p_cuCtxSetCurrent(primary));
    test_sim_end();
}

static void the_primary_context_is_active_while_retained(void **state)
{
    (void)state;
    CUcontext first = test_sim_begin();
    CUcontext second;
    unsigned flags;
    int active;
    OK(p_cuDevicePrimaryCtxRetain(&second, 0));
    assert_ptr_equal(first, second);
    OK(p_cuDevicePrimaryCtxRelease(0));
    OK(p_cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 1);
    test_sim_end();
    OK(p_cuDevicePrimaryCtxGetState(0, &flags, &active));
    assert_int_equal(active, 0);
    assert_int_equal(p_cuDevicePrimaryCtxRelease(0), CUDA_ERROR_INVALID_CONTEXT);
    assert_int_equal(p_cuDevicePrimaryCtxRetain(&first, 1), CUDA_ERROR_INVALID_DEVICE);
}

int main(void)
{
    test_sim_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(work_in_a_stream_runs_in_order),
        cmocka_unit_test(a_wait_holds_for_the_record_it_was_made_for),
        cmocka_unit_test(a_wait_is_not_for_records_made_later),
        cmocka_unit_test(a_missing_wait_shows_itself_under_late),
        cmocka_unit_test(the_legacy_stream_orders_all_blocking_streams_and_no_other),
        cmocka_unit_test(a_blocked_host_function_stalls_only_its_stream),
        cmocka_unit_test(a_cuda_call_in_a_host_function_is_not_permitted),
        cmocka_unit_test(a_host_function_starts_under_late_only_when_needed),
        cmocka_unit_test(polling_ends),
        cmocka_unit_test(handles_come_back_and_ids_do_not),
        cmocka_unit_test(null_and_legacy_are_one_and_each_thread_has_its_own),
        cmocka_unit_test(a_thread_may_call_the_driver_to_its_end),
        cmocka_unit_test(streams_answer_what_they_were_made_with),
        cmocka_unit_test(timed_events_measure_work),
        cmocka_unit_test(polling_for_elapsed_time_ends),
        cmocka_unit_test(polling_by_any_call_ends),
        cmocka_unit_test(work_for_which_no_host_waits_does_not_pile_up),
        cmocka_unit_test(a_run_without_waits_is_the_same_for_a_seed),
        cmocka_unit_test(a_destroyed_stream_finishes_its_work),
        cmocka_unit_test(contexts_stack_and_end),
        cmocka_unit_test(the_primary_context_is_active_while_retained),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
