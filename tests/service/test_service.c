/* The device service, in process: requests and answers, their order, limits and ends. */
#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "support/service_cases.h"
#include "support/stall.h"

#include <strata/service_blas.h>
#include <strata/service_graph.h>

/* ---- memory ---- */

static void a_buffer_of_the_service_is_page_locked(void **state)
{
    (void)state;
    strata_host_buffer *buffer;
    CUmemorytype type = (CUmemorytype)0;
    check_ok(strata_service_buffer_create(service, 4096, &buffer));
    check_cu(strata_cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
                                           (CUdeviceptr)(uintptr_t)strata_host_buffer_memory(buffer)));
    assert_int_equal(type, CU_MEMORYTYPE_HOST);
    strata_host_buffer_release(buffer);
    check_status(strata_service_buffer_create(service, 0, &buffer), STRATA_ERROR_INVALID_VALUE);
}

/* ---- futures ---- */

static void what_is_not_taken_is_released(void **state)
{
    (void)state;
    strata_future *future;
    strata_host_buffer *buffer = test_buffer(64, 0);
    strata_ref *ref = test_service_allocate(service, 64);
    check_ok(strata_service_copy_to_host(service, ref, buffer, NULL, &future));
    strata_future_wait(future);
    strata_future_release(future);
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, NULL));
    check_ok(strata_service_copy_to_host(service, ref, buffer, NULL, &future));
    test_gate gate;
    strata_future *held = test_close_gate(service, &gate);
    test_open_gate(&gate, held);
    strata_host_buffer_release(test_take(future).buffer);
    assert_int_equal(strata_host_buffer_handles(buffer), 1);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

static void a_descriptor_is_readable_with_the_answer(void **state)
{
    (void)state;
    test_gate gate;
    strata_future *future, *held = test_close_gate(service, &gate);
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    struct pollfd watched = {.fd = strata_future_fd(future), .events = POLLIN};
    assert_int_equal(poll(&watched, 1, 20), 0);
    check_status(strata_future_wait_for(future, 1000), STRATA_ERROR_NOT_READY);
    assert_false(strata_future_poll(future));
    test_open_gate(&gate, held);
    assert_int_equal(poll(&watched, 1, 10000), 1);
    assert_int_equal(strata_future_fd(future), watched.fd);
    strata_future_release(future);
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    check_ok(strata_future_wait(future));
    watched.fd = strata_future_fd(future);
    assert_int_equal(poll(&watched, 1, 0), 1);
    strata_future_release(future);
}

static strata_future *watched_future(int set)
{
    strata_future *future;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    struct epoll_event event = {.events = EPOLLIN, .data.ptr = future};
    assert_int_equal(epoll_ctl(set, EPOLL_CTL_ADD, strata_future_fd(future), &event), 0);
    return future;
}

/* An event for it would name a future that is gone. */
static void a_released_future_leaves_the_sets_that_watch_it(void **state)
{
    (void)state;
    test_gate gate;
    struct epoll_event event;
    const int set = epoll_create1(EPOLL_CLOEXEC);
    strata_future *held = test_close_gate(service, &gate), *early = watched_future(set), *late = watched_future(set);
    strata_future_release(early); /* before its answer */
    test_open_gate(&gate, held);
    check_ok(strata_future_wait(late));
    assert_int_equal(epoll_wait(set, &event, 1, 10000), 1);
    assert_ptr_equal(event.data.ptr, late);
    strata_future_release(late);
    assert_int_equal(epoll_wait(set, &event, 1, 20), 0);
    close(set);
}

static void *ask_and_release(void *failed)
{
    for (unsigned i = 0; i < 300; i++) {
        strata_future *future;
        if (strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future) != STRATA_SUCCESS ||
            strata_future_fd(future) < 0)
            return failed;
        for (unsigned j = 0; j < i % 7; j++)
            strata_future_poll(future);
        strata_future_release(future);
    }
    return NULL;
}

/* A number that another file has meanwhile is not written to. */
static void releases_meet_answers(void **state)
{
    (void)state;
    int pipes[2];
    char byte;
    pthread_t threads[2];
    for (int i = 0; i < 2; i++)
        assert_int_equal(pthread_create(&threads[i], NULL, ask_and_release, &threads), 0);
    for (unsigned i = 0; i < 300; i++) {
        assert_int_equal(pipe2(pipes, O_CLOEXEC | O_NONBLOCK), 0);
        sched_yield();
        assert_int_equal(read(pipes[0], &byte, 1), -1);
        close(pipes[0]);
        close(pipes[1]);
    }
    for (int i = 0; i < 2; i++) {
        void *failed;
        assert_int_equal(pthread_join(threads[i], &failed), 0);
        assert_null(failed);
    }
}

/* ---- limits ---- */

/* Nanoseconds. */
static const uint64_t SHORT_LIMIT = 20000000, LONGEST_LIMIT = 10ull * TEST_SECOND;

static void a_request_that_has_not_begun_can_be_cancelled(void **state)
{
    (void)state;
    test_gate gate;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_host_buffer *buffer = test_buffer(64, 3);
    strata_future *future, *held = test_close_gate(service, &gate);
    check_status(strata_future_cancel(held), STRATA_ERROR_BUSY);
    check_ok(strata_service_copy_to_host(service, ref, buffer, NULL, &future));
    check_ok(strata_future_cancel(future));
    check_status(strata_future_cancel(future), STRATA_ERROR_BUSY);
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_ERROR_CANCELLED);
    assert_ptr_equal(answer.buffer, buffer);
    strata_host_buffer_release(answer.buffer);
    test_open_gate(&gate, held);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    assert_true(test_buffer_has(buffer, 3));
    assert_int_equal(strata_host_buffer_handles(buffer), 1);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

/* What did not begin keeps no handle, though the busy thread has not dropped it yet. */
static void a_buffer_is_the_callers_again_when_what_had_not_begun_is_answered(void **state)
{
    (void)state;
    test_gate gate;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_host_buffer *buffer = test_buffer(64, 3);
    strata_future *cancelled, *late, *first, *held = test_close_gate(service, &gate);
    check_ok(strata_service_copy_to_host(service, ref, buffer, NULL, &cancelled));
    check_ok(strata_future_cancel(cancelled));
    strata_host_buffer_release(test_take(cancelled).buffer);
    const size_t after_cancel = strata_host_buffer_handles(buffer);
    check_ok(strata_service_copy_to_host(service, ref, buffer, &(strata_send_options){.timeout = 1000000}, &late));
    const strata_answer answer = test_take(late);
    strata_host_buffer_release(answer.buffer);
    const size_t after_limit = strata_host_buffer_handles(buffer);
    const strata_send_options high = {.priority = STRATA_PRIORITY_HIGH}; /* begins before the two are dropped */
    check_ok(strata_service_copy_to_host(service, ref, buffer, &high, &first));
    test_open_gate(&gate, held);
    const strata_answer copied = test_take(first);
    strata_host_buffer_release(copied.buffer);
    assert_int_equal(copied.status, STRATA_SUCCESS);
    assert_true(test_buffer_has(buffer, 0));
    assert_int_equal(answer.status, STRATA_ERROR_TIMEOUT);
    assert_ptr_equal(answer.buffer, buffer);
    assert_int_equal(after_cancel, 1);
    assert_int_equal(after_limit, 1);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

/* A request with a time limit that holds the service's thread. On a busy machine it may reach its limit before it
 * begins: then once more, with more time. */
static strata_future *close_gate_with_limit(test_gate *gate)
{
    const strata_service_operation operation = {.function = test_wait_at_gate, .data = gate};
    strata_future *begun;
    sem_init(&gate->reached, 0, 0);
    sem_init(&gate->open, 0, 0);
    for (uint64_t limit = SHORT_LIMIT;; limit *= 2) {
        check_ok(strata_service_run(service, &operation, &(strata_send_options){.timeout = limit}, &begun));
        bool is_there = false;
        while (!is_there && !strata_future_poll(begun)) {
            usleep(500);
            is_there = sem_trywait(&gate->reached) == 0;
        }
        if (is_there || sem_trywait(&gate->reached) == 0)
            return begun;
        strata_future_release(begun);
        assert_true(limit < LONGEST_LIMIT);
    }
}

static void a_request_answers_timeout_at_its_limit_though_the_thread_is_busy(void **state)
{
    (void)state;
    test_gate gate;
    strata_future *queued, *held, *begun = close_gate_with_limit(&gate);
    const strata_send_options send = {.timeout = SHORT_LIMIT};
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, &queued));
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &held));
    check_status(strata_future_wait(begun), STRATA_ERROR_TIMEOUT);
    check_status(strata_future_wait(queued), STRATA_ERROR_TIMEOUT);
    assert_false(strata_future_poll(held));
    assert_int_equal(test_take(queued).failure, STRATA_FAILURE_TIMEOUT);
    strata_future_release(begun);
    sem_post(&gate.open);
    const strata_answer answer = test_take(held);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    check_ok(strata_ref_release(answer.ref));
    sem_destroy(&gate.reached);
    sem_destroy(&gate.open);
}

static void a_full_queue_refuses_at_once(void **state)
{
    (void)state;
    strata_service *small = test_service_make(&(strata_service_options){.queue_capacity = 3});
    test_gate gate;
    strata_future *first, *second, *third, *held = test_close_gate(small, &gate);
    check_ok(strata_service_allocate(small, STRATA_ELEMENT_U8, 64, NULL, &first));
    check_ok(strata_service_allocate(small, STRATA_ELEMENT_U8, 64, NULL, &second));
    check_status(strata_service_allocate(small, STRATA_ELEMENT_U8, 64, NULL, &third), STRATA_ERROR_QUEUE_FULL);
    assert_null(third);
    check_last_error(STRATA_ERROR_QUEUE_FULL, "3 unanswered requests");
    test_open_gate(&gate, held);
    check_ok(strata_ref_release(test_take(first).ref));
    check_ok(strata_ref_release(test_take(second).ref));
    check_ok(strata_service_destroy(small));
}

/* ---- order ---- */

enum { MANY = 300 };

static int order[MANY];
static _Atomic int answered;

static void note_order(strata_future *future, void *data)
{
    (void)future;
    order[answered] = (int)(intptr_t)data; /* one thread answers */
    answered++;
}

static void high_priority_begins_first_and_each_keeps_its_order(void **state)
{
    (void)state;
    test_gate gate;
    strata_future *last[3], *held = test_close_gate(service, &gate);
    answered = 0;
    for (int i = 0; i < MANY; i++) {
        const strata_send_options send = {
            .priority = (strata_priority)(i % 3), .callback = note_order, .data = (void *)(intptr_t)i};
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, &last[i % 3]));
        if (i < MANY - 3)
            strata_future_release(last[i % 3]);
    }
    test_open_gate(&gate, held);
    for (int i = 0; i < 3; i++)
        check_ok(strata_ref_release(test_take(last[i]).ref));
    test_wait_count(&answered, MANY);
    for (int i = 0; i < MANY / 3; i++) {
        assert_int_equal(order[i] % 3, STRATA_PRIORITY_HIGH);
        assert_int_equal(order[MANY - 1 - i] % 3, STRATA_PRIORITY_LOW);
    }
    for (int i = 1; i < MANY; i++)
        assert_true(order[i] % 3 != order[i - 1] % 3 || order[i] == order[i - 1] + 3);
}

/* ---- functions, kernels, graphs ---- */

typedef struct told {
    int before, function, enqueued, complete;
    strata_status status;
    strata_ref *ref;
    unsigned char value;
} told;

static void before(const strata_service_operation *operation, void *data)
{
    assert_string_equal(operation->name, "fill");
    assert_int_equal(operation->type, STRATA_ELEMENT_U8);
    ((told *)data)->before++;
}

static void enqueued(const strata_service_operation *operation, void *data)
{
    told *seen = data;
    (void)operation;
    assert_int_equal(seen->function, 1);
    seen->enqueued++;
}

static void complete(const strata_service_operation *operation, strata_status status, void *data)
{
    told *seen = data;
    (void)operation;
    seen->complete++;
    seen->status = status;
}

static strata_status fill(strata_runtime *runtime, CUstream stream, void *data)
{
    told *seen = data;
    strata_launch launch;
    strata_ref_memory memory;
    CUcontext context = NULL;
    seen->function++;
    if (strata_cu.CtxGetCurrent(&context) != CUDA_SUCCESS || !context)
        return STRATA_ERROR_INVALID_VALUE;
    strata_status status = strata_ref_access(seen->ref, &memory);
    if (status == STRATA_SUCCESS)
        status = strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_launch_use_ref(&launch, seen->ref, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&launch);
    if (status == STRATA_SUCCESS) {
        strata_cu.MemsetD8Async(memory.address, seen->value, memory.bytes, stream);
        status = strata_launch_commit(&launch);
    }
    strata_launch_end(&launch);
    return status;
}

static const strata_service_operation fill_operation = {.name = "fill",
                                                        .type = STRATA_ELEMENT_U8,
                                                        .function = fill,
                                                        .before = before,
                                                        .enqueued = enqueued,
                                                        .complete = complete};

static void a_function_runs_with_the_context_current_between_its_hooks(void **state)
{
    (void)state;
    told seen = {.ref = test_service_allocate(service, 256), .value = 0x77};
    strata_service_operation operation = fill_operation;
    strata_future *future;
    operation.data = &seen;
    check_ok(strata_service_run(service, &operation, NULL, &future));
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    assert_int_equal(seen.before + seen.enqueued + seen.complete, 3);
    assert_int_equal(seen.status, STRATA_SUCCESS);
    assert_true(test_ref_has(service, seen.ref, 0x77));
    check_ok(strata_ref_release(seen.ref));
}

/* ---- limits of every kind ---- */

static void every_kind_of_request_is_refused_by_a_full_queue(void **state)
{
    (void)state;
    enum { CAPACITY = 8 };
    strata_service *small = test_service_make(&(strata_service_options){.queue_capacity = CAPACITY});
    strata_ref *one = test_service_allocate(small, 64), *other = test_service_allocate(small, 64);
    strata_host_buffer *buffer = test_buffer(64, 0);
    strata_service_graph *ended, *open;
    strata_future *future;
    test_gate gate;
    check_ok(strata_service_graph_begin(small, NULL, &ended));
    check_ok(strata_service_fill(small, one, 1, 1, &(strata_send_options){.graph = ended}, NULL));
    check_ok(strata_service_graph_end(ended, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_service_graph_begin(small, NULL, &open));
    check_ok(strata_service_fill(small, one, 1, 1, &(strata_send_options){.graph = open}, NULL));
    const strata_service_operation operation = {.function = fill};
    const strata_kernel kernel = {.module = 1, .entry = "any"};
    const strata_service_blas_call scal = {.routine = STRATA_BLAS_SCAL, .call.vectors.x = strata_blas_of_ref(one)};
    strata_future *held = test_close_gate(small, &gate);
    for (int i = 1; i < CAPACITY; i++)
        check_ok(strata_service_allocate(small, STRATA_ELEMENT_U8, 1, NULL, NULL));
    const strata_status refused[] = {
        strata_service_allocate(small, STRATA_ELEMENT_U8, 1, NULL, NULL),
        strata_service_allocate_raw(small, STRATA_ELEMENT_U8, 1, NULL, NULL),
        strata_service_copy_to_host(small, one, buffer, NULL, NULL),
        strata_service_copy_from_host(small, buffer, one, NULL, NULL),
        strata_service_copy(small, one, other, NULL, NULL),
        strata_service_fill(small, one, 1, 1, NULL, NULL),
        strata_service_run(small, &operation, NULL, NULL),
        strata_service_record_graph(small, &operation, NULL, NULL),
        strata_service_launch_graph(small, (strata_graph *)&gate, NULL, NULL), /* not looked at */
        strata_service_load(small, test_fill_ptx, 0, NULL, NULL),
        strata_service_launch(small, &kernel, NULL, NULL),
        strata_service_blas(small, &scal, NULL, NULL),
        strata_service_graph_end(open, NULL, NULL),
        strata_service_graph_launch(ended, NULL, NULL),
    };
    test_open_gate(&gate, held);
    for (size_t i = 0; i < sizeof refused / sizeof refused[0]; i++)
        if (refused[i] != STRATA_ERROR_QUEUE_FULL)
            fail_msg("request %zu: %s", i, strata_status_name(refused[i]));
    assert_int_equal(strata_host_buffer_handles(buffer), 1);
    strata_host_buffer_release(buffer);
    strata_service_graph_release(ended);
    strata_service_graph_release(open);
    check_ok(strata_ref_release(one));
    check_ok(strata_ref_release(other));
    check_ok(strata_service_destroy(small));
}

/* ---- time limits of work that goes on ---- */

static strata_status begin_stall(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    *(test_stall **)data = test_stall_begin(stream);
    return STRATA_SUCCESS;
}

/* A copy and an allocation that have begun, behind a stall, and reach their limits there; if one was too late to begin,
 * once more. */
static void begin_and_expire(strata_ref *ref, strata_host_buffer *buffer, strata_future **copied)
{
    strata_future *allocated;
    strata_answer answer;
    for (uint64_t limit = SHORT_LIMIT;; limit *= 2) {
        const strata_send_options send = {.timeout = limit};
        check_ok(strata_service_copy_to_host(service, ref, buffer, &send, copied));
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, &allocated));
        check_status(strata_future_wait(*copied), STRATA_ERROR_TIMEOUT);
        const bool begun = !strstr(strata_last_error()->message, "before it began");
        check_status(strata_future_wait(allocated), STRATA_ERROR_TIMEOUT);
        check_ok(strata_future_take(*copied, &answer));
        assert_true(begun ? !answer.buffer : answer.buffer == buffer);
        assert_null(test_take(allocated).ref);
        if (begun)
            return;
        strata_host_buffer_release(answer.buffer);
        strata_future_release(*copied);
        assert_true(limit < LONGEST_LIMIT);
    }
}

/* An allocation that comes too late gives its memory back; the buffer of a copy is held until it has ended. */
static void what_comes_after_the_time_limit_is_dropped_and_its_buffer_held_until_then(void **state)
{
    (void)state;
    test_stall *stalled;
    const strata_service_operation operation = {.function = begin_stall, .data = &stalled};
    strata_ref *ref = test_service_allocate(service, 64);
    strata_host_buffer *buffer;
    strata_future *first, *copied;
    strata_answer answer;
    check_ok(strata_service_buffer_create(service, 64, &buffer));
    memset(strata_host_buffer_memory(buffer), 9, 64);
    check_ok(strata_service_run(service, &operation, NULL, &first));
    begin_and_expire(ref, buffer, &copied);
    assert_int_equal(strata_host_buffer_handles(buffer), 2);
    test_stall_release(stalled);
    assert_int_equal(test_take(first).status, STRATA_SUCCESS);
    for (int i = 0; i < 20000 && strata_host_buffer_handles(buffer) != 1; i++)
        usleep(500);
    assert_int_equal(strata_host_buffer_handles(buffer), 1);
    assert_true(test_buffer_has(buffer, 0));                                       /* it went on */
    check_status(strata_future_take(copied, &answer), STRATA_ERROR_INVALID_VALUE); /* there was one answer */
    strata_future_release(copied);
    test_stall_end(stalled);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

static strata_status fail_on_purpose(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)stream;
    (void)data;
    strata_block block;
    return strata_runtime_allocate(runtime, SIZE_MAX / 2, NULL, &block);
}

static void a_function_that_fails_answers_its_status_and_its_record(void **state)
{
    (void)state;
    const strata_service_operation operation = {.function = fail_on_purpose};
    strata_future *future;
    strata_answer answer;
    check_ok(strata_service_run(service, &operation, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_OUT_OF_BUDGET);
    check_last_error(STRATA_ERROR_OUT_OF_BUDGET, "8.00 EiB");
    check_ok(strata_future_take(future, &answer));
    assert_int_equal(answer.returned, STRATA_ERROR_OUT_OF_BUDGET);
    assert_int_equal(answer.failure, STRATA_FAILURE_OUT_OF_MEMORY);
    assert_non_null(answer.error);
    assert_int_equal(answer.error->requested, SIZE_MAX / 2);
    strata_future_release(future);
    check_status(strata_service_run(service, &(strata_service_operation){.name = "none"}, NULL, NULL),
                 STRATA_ERROR_INVALID_VALUE);
}

static void a_graph_is_recorded_and_launched_again_and_again(void **state)
{
    (void)state;
    told seen = {.ref = test_service_allocate(service, 256), .value = 0x31};
    strata_service_operation operation = fill_operation;
    strata_future *future;
    strata_host_buffer *zeros = test_buffer(256, 0);
    operation.data = &seen;
    check_ok(strata_service_record_graph(service, &operation, NULL, &future));
    const strata_answer answer = test_take(future);
    assert_int_equal(answer.status, STRATA_SUCCESS);
    assert_true(test_ref_has(service, seen.ref, 0));
    for (int i = 0; i < 3; i++) {
        check_ok(test_copy(service, seen.ref, zeros, false));
        check_ok(strata_service_launch_graph(service, answer.graph, NULL, &future));
        assert_int_equal(test_take(future).status, STRATA_SUCCESS);
        assert_true(test_ref_has(service, seen.ref, 0x31));
    }
    assert_int_equal(strata_graph_num_replays(answer.graph), 3);
    check_status(strata_service_launch_graph(service, NULL, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_graph_destroy(answer.graph));
    strata_host_buffer_release(zeros);
    check_ok(strata_ref_release(seen.ref));
}

/* ---- facts ---- */

static void a_snapshot_has_the_context_and_the_primary_stream(void **state)
{
    (void)state;
    strata_service_snapshot snapshot;
    check_ok(strata_service_get_snapshot(service, &snapshot));
    assert_true(snapshot.ready);
    assert_non_null(snapshot.context);
    assert_non_null(snapshot.runtime);
    assert_ptr_equal(snapshot.context, strata_device_state_current_context(strata_service_device_state(service)));
    assert_int_equal(strata_device_state_device_id(strata_service_device_state(service)), 0);
    check_cu(strata_cu.StreamQuery(snapshot.stream));
}

/* ---- ends ---- */

static void shutting_down_answers_what_has_not_begun(void **state)
{
    (void)state;
    strata_service *ending = test_service_make(NULL);
    test_gate gate;
    strata_future *future, *held = test_close_gate(ending, &gate);
    check_ok(strata_service_allocate(ending, STRATA_ELEMENT_U8, 64, NULL, &future));
    check_ok(strata_service_shut_down(ending, UINT64_MAX));
    check_status(strata_service_allocate(ending, STRATA_ELEMENT_U8, 64, NULL, NULL), STRATA_ERROR_STALE);
    check_last_error(STRATA_ERROR_STALE, "shutting down");
    check_status(strata_service_wait_ready(ending, 0), STRATA_ERROR_STALE);
    assert_false(strata_device_state_accepting_ops(strata_service_device_state(ending)));
    test_open_gate(&gate, held);
    check_status(strata_future_wait(future), STRATA_ERROR_STALE);
    check_last_error(STRATA_ERROR_STALE, "shutting down");
    strata_future_release(future);
    check_ok(strata_service_destroy(ending));
}

static void a_graph_that_lives_on_keeps_its_service(void **state)
{
    (void)state;
    strata_service *ending = test_service_make(NULL);
    told seen = {.ref = test_service_allocate(ending, 256), .value = 1};
    strata_service_operation operation = fill_operation;
    strata_future *future;
    operation.data = &seen;
    check_ok(strata_service_record_graph(ending, &operation, NULL, &future));
    const strata_answer answer = test_take(future);
    check_status(strata_service_destroy(ending), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "those of functions by strata_graph_destroy");
    check_ok(strata_graph_destroy(answer.graph));
    check_ok(strata_ref_release(seen.ref));
    check_ok(strata_service_destroy(ending));
}

static void bad_options_are_refused_with_their_name(void **state)
{
    (void)state;
    strata_service *made;
    check_status(strata_service_create(&(strata_service_options){.device = -1}, &made), STRATA_ERROR_INVALID_VALUE);
    assert_null(made);
    check_status(strata_service_create(&(strata_service_options){.stream_count = 1000}, &made),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "stream_count");
    check_status(strata_service_create(NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_service_destroy(NULL));
    check_status(strata_service_allocate(service, STRATA_ELEMENT_U8, 1,
                                         &(strata_send_options){.priority = (strata_priority)7}, NULL),
                 STRATA_ERROR_INVALID_VALUE);
}

static void the_least_loaded_service_is_chosen(void **state)
{
    (void)state;
    strata_service *other = test_service_make(&(strata_service_options){.rank = 2}), *chosen,
                   *services[] = {service, other};
    test_gate gate;
    strata_future *held = test_close_gate(service, &gate);
    check_ok(strata_services_place(services, 2, STRATA_PLACEMENT_LEAST_LOADED, NULL, &chosen));
    assert_ptr_equal(chosen, other);
    test_open_gate(&gate, held);
    strata_service *first, *second;
    check_ok(strata_services_place(services, 2, STRATA_PLACEMENT_ROUND_ROBIN, NULL, &first));
    check_ok(strata_services_place(services, 2, STRATA_PLACEMENT_ROUND_ROBIN, NULL, &second));
    assert_ptr_not_equal(first, second);
    check_status(strata_services_place(services, 2, STRATA_PLACEMENT_LEAST_LOADED,
                                       &(strata_placement_conditions){.free_bytes = SIZE_MAX}, &chosen),
                 STRATA_ERROR_NOT_READY);
    check_status(strata_services_place(services, 2, STRATA_PLACEMENT_LEAST_LOADED,
                                       &(strata_placement_conditions){.compute_major = 99}, &chosen),
                 STRATA_ERROR_NOT_READY);
    check_ok(strata_services_place(services, 2, STRATA_PLACEMENT_ROUND_ROBIN, &(strata_placement_conditions){.rank = 1},
                                   &chosen));
    assert_ptr_equal(chosen, other);
    check_status(strata_services_place(services, 2, STRATA_PLACEMENT_LEAST_LOADED,
                                       &(strata_placement_conditions){.compute_minor = 1, .rank = 3}, &chosen),
                 STRATA_ERROR_NOT_READY);
    check_last_error(STRATA_ERROR_NOT_READY, "no service of 2 meets the conditions now: one that is open, with 0 free "
                                             "bytes, compute capability 0.1 and rank 3; wait for one, or ask for less");
    check_ok(strata_service_destroy(other));
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        TEST_SERVICE_CASES,
        cmocka_unit_test(a_buffer_of_the_service_is_page_locked),
        cmocka_unit_test(what_is_not_taken_is_released),
        cmocka_unit_test(a_descriptor_is_readable_with_the_answer),
        cmocka_unit_test(a_released_future_leaves_the_sets_that_watch_it),
        cmocka_unit_test(releases_meet_answers),
        cmocka_unit_test(a_request_that_has_not_begun_can_be_cancelled),
        cmocka_unit_test(a_buffer_is_the_callers_again_when_what_had_not_begun_is_answered),
        cmocka_unit_test(a_request_answers_timeout_at_its_limit_though_the_thread_is_busy),
        cmocka_unit_test(a_full_queue_refuses_at_once),
        cmocka_unit_test(high_priority_begins_first_and_each_keeps_its_order),
        cmocka_unit_test(a_function_runs_with_the_context_current_between_its_hooks),
        cmocka_unit_test(every_kind_of_request_is_refused_by_a_full_queue),
        cmocka_unit_test(what_comes_after_the_time_limit_is_dropped_and_its_buffer_held_until_then),
        cmocka_unit_test(a_function_that_fails_answers_its_status_and_its_record),
        cmocka_unit_test(a_graph_is_recorded_and_launched_again_and_again),
        cmocka_unit_test(a_snapshot_has_the_context_and_the_primary_stream),
        cmocka_unit_test(shutting_down_answers_what_has_not_begun),
        cmocka_unit_test(a_graph_that_lives_on_keeps_its_service),
        cmocka_unit_test(bad_options_are_refused_with_their_name),
        cmocka_unit_test(the_least_loaded_service_is_chosen),
    };
    return cmocka_run_group_tests(tests, make_service, destroy_service);
}
