/* Ends of services and of contexts, with work under way. */
#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

#include "support/service.h"
#include "support/stall.h"

enum { BYTES = 1 << 16, COPIES = 6, TIMES = 50 };

typedef struct held {
    test_stall *stall;
    sem_t begun;
} held;

static strata_status stall(strata_runtime *runtime, CUstream stream, void *data)
{
    held *self = data;
    (void)runtime;
    self->stall = test_stall_begin(stream);
    sem_post(&self->begun);
    return STRATA_SUCCESS;
}

/* Work that does not end before the stall is released. */
static strata_future *begin_stall(strata_service *service, held *self)
{
    const strata_service_operation operation = {.function = stall, .data = self};
    strata_future *future;
    sem_init(&self->begun, 0, 0);
    check_ok(strata_service_run(service, &operation, NULL, &future));
    sem_wait(&self->begun);
    sem_destroy(&self->begun);
    return future;
}

/* ---- services ---- */

static void a_shutdown_without_time_ends_an_idle_service(void **state)
{
    (void)state;
    for (int i = 0; i < TIMES; i++) {
        strata_service *service = test_service_make(NULL);
        check_ok(strata_service_shut_down(service, 0));
        check_ok(strata_service_destroy(service));
    }
}

static void a_service_ends_before_its_context_is_made(void **state)
{
    (void)state;
    for (int i = 0; i < TIMES; i++) {
        strata_service *service;
        strata_future *future;
        check_ok(strata_service_create(NULL, &service));
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
        check_ok(strata_service_shut_down(service, 0));
        const strata_status status = strata_future_wait(future);
        assert_true(status == STRATA_SUCCESS || status == STRATA_ERROR_STALE);
        strata_future_release(future);
        check_ok(strata_service_destroy(service));
    }
}

static size_t count_eventfds(void)
{
    size_t count = 0;
    for (int fd = 0; fd < 1024; fd++) {
        char path[64], target[64] = "";
        snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
        count += readlink(path, target, sizeof target - 1) > 0 && strcmp(target, "anon_inode:[eventfd]") == 0;
    }
    return count;
}

/* Daemons close descriptors that they do not know, and open files under their numbers. */
static void a_service_in_this_process_has_no_descriptor_to_close(void **state)
{
    (void)state;
    for (int mode = STRATA_COMPLETION_POLLING; mode <= STRATA_COMPLETION_SYNCHRONIZING; mode++) {
        const size_t before = count_eventfds();
        strata_service *service =
            test_service_make(&(strata_service_options){.completion = (strata_completion_mode)mode});
        usleep(1000); /* its thread sleeps */
        strata_ref *ref = test_service_allocate(service, 64);
        assert_int_equal(count_eventfds(), before);
        check_ok(strata_ref_release(ref));
        check_ok(strata_service_destroy(service));
    }
}

/* The service's thread has taken them already. It may answer the first gate only behind the second. */
static void a_shutdown_refuses_what_was_taken_and_has_not_begun(void **state)
{
    (void)state;
    enum { COUNT = 5 };
    strata_service *service = test_service_make(NULL);
    test_gate first, second;
    strata_future *behind[COUNT], *gated = test_close_gate(service, &first);
    const strata_service_operation operation = {.function = test_wait_at_gate, .data = &second};
    strata_future *next;
    sem_init(&second.reached, 0, 0);
    sem_init(&second.open, 0, 0);
    check_ok(strata_service_run(service, &operation, NULL, &next));
    for (int i = 0; i < COUNT; i++)
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &behind[i]));
    sem_post(&first.open);
    sem_wait(&second.reached);
    check_ok(strata_service_shut_down(service, UINT64_MAX));
    test_open_gate(&second, next);
    test_open_gate(&first, gated);
    for (int i = 0; i < COUNT; i++)
        assert_int_equal(test_take(behind[i]).status, STRATA_ERROR_STALE);
    check_ok(strata_service_destroy(service));
}

static void what_goes_on_at_the_deadline_is_answered_and_keeps_the_service(void **state)
{
    (void)state;
    for (int mode = STRATA_COMPLETION_POLLING; mode <= STRATA_COMPLETION_SYNCHRONIZING; mode++) {
        strata_service *service = test_service_make(
            &(strata_service_options){.completion = (strata_completion_mode)mode, .stack_text = "pool"});
        held self;
        strata_future *future = begin_stall(service, &self);
        check_ok(strata_service_shut_down(service, 1000000));
        check_status(strata_future_wait(future), STRATA_ERROR_STALE);
        strata_future_release(future);
        check_status(strata_service_destroy(service), STRATA_ERROR_BUSY);
        check_status(strata_service_destroy(service), STRATA_ERROR_BUSY);
        check_last_error(STRATA_ERROR_BUSY, "has not ended by its deadline");
        test_stall_end(self.stall);
        while (strata_service_destroy(service) == STRATA_ERROR_BUSY)
            usleep(1000);
    }
}

/* ---- before there is a context ---- */

static sem_t context_may_begin;
static CUresult (*real_stream_create)(CUstream *stream, unsigned flags, int priority);

static CUresult create_stream_later(CUstream *stream, unsigned flags, int priority)
{
    sem_wait(&context_may_begin);
    sem_post(&context_may_begin);
    return real_stream_create(stream, flags, priority);
}

static void requests_wait_for_the_context_up_to_their_own_limit(void **state)
{
    (void)state;
    enum { PENDING = 1024 }; /* the default */
    strata_service *service;
    strata_service_snapshot snapshot;
    strata_host_buffer *buffer;
    strata_future *futures[PENDING], *cancelled;
    sem_init(&context_may_begin, 0, 0);
    real_stream_create = strata_cu.StreamCreateWithPriority;
    strata_cu.StreamCreateWithPriority = create_stream_later;
    check_ok(strata_service_create(NULL, &service));
    check_status(strata_service_wait_ready(service, 1000000), STRATA_ERROR_TIMEOUT);
    check_ok(strata_service_get_snapshot(service, &snapshot));
    assert_false(snapshot.ready);
    check_status(strata_service_buffer_create(service, 64, &buffer), STRATA_ERROR_NOT_READY);
    for (int i = 0; i < PENDING; i++)
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &futures[i]));
    check_status(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &cancelled), STRATA_ERROR_QUEUE_FULL);
    check_status(strata_service_load(service, test_fill_ptx, 0, NULL, NULL), STRATA_ERROR_QUEUE_FULL);
    check_status(strata_service_allocate_raw(service, STRATA_ELEMENT_U8, 64, NULL, NULL), STRATA_ERROR_QUEUE_FULL);
    const strata_service_operation operation = {.function = test_wait_at_gate};
    check_status(strata_service_run(service, &operation, NULL, NULL), STRATA_ERROR_QUEUE_FULL);
    check_status(strata_service_record_graph(service, &operation, NULL, NULL), STRATA_ERROR_QUEUE_FULL);
    sem_post(&context_may_begin);
    check_ok(strata_service_wait_ready(service, 20ull * TEST_SECOND));
    strata_cu.StreamCreateWithPriority = real_stream_create;
    for (int i = 0; i < PENDING; i++)
        check_ok(strata_ref_release(test_take(futures[i]).ref));
    check_ok(strata_service_destroy(service));
}

/* ---- contexts ---- */

typedef struct releaser {
    test_stall *stall;
    _Atomic bool poisoned; /* the function was called */
    _Atomic bool released;
} releaser;

static strata_status say_poisoned(strata_runtime *runtime, CUstream stream, void *data)
{
    releaser *self = data;
    (void)runtime;
    (void)stream;
    self->poisoned = true;
    return STRATA_ERROR_POISONED;
}

static void *release_later(void *data)
{
    releaser *self = data;
    while (!self->poisoned) /* copies that end before succeed */
        usleep(1000);
    usleep(30000);
    self->released = true;
    test_stall_release(self->stall);
    return NULL;
}

/* A function says that the context is lost, and copies go on in it: their buffers come back when these have ended. */
static void buffers_come_back_when_their_copies_have_ended(void **state)
{
    (void)state;
    for (int mode = STRATA_COMPLETION_POLLING; mode <= STRATA_COMPLETION_SYNCHRONIZING; mode++) {
        strata_service *service = test_service_make(
            &(strata_service_options){.completion = (strata_completion_mode)mode, .stack_text = "pool"});
        strata_ref *ref = test_service_allocate(service, BYTES);
        strata_host_buffer *buffers[COPIES];
        strata_future *copies[COPIES], *lost;
        for (int i = 0; i < COPIES; i++)
            check_ok(strata_service_buffer_create(service, BYTES, &buffers[i]));
        held self;
        strata_future *first = begin_stall(service, &self);
        for (int i = 0; i < COPIES; i++)
            check_ok(strata_service_copy_to_host(service, ref, buffers[i], NULL, &copies[i]));
        releaser later = {.stall = self.stall};
        const strata_service_operation operation = {.function = say_poisoned, .data = &later};
        pthread_t thread;
        check_ok(strata_service_run(service, &operation, &(strata_send_options){.hint = STRATA_HINT_LONG}, &lost));
        assert_int_equal(pthread_create(&thread, NULL, release_later, &later), 0);
        for (int i = 0; i < COPIES; i++) {
            const strata_answer answer = test_take(copies[i]);
            assert_true(later.released);
            assert_int_equal(answer.status, STRATA_ERROR_POISONED);
            assert_ptr_equal(answer.buffer, buffers[i]);
            strata_host_buffer_release(answer.buffer);
        }
        pthread_join(thread, NULL);
        strata_future_release(first);
        assert_int_equal(test_take(lost).failure, STRATA_FAILURE_UNRECOVERABLE);
        check_status(strata_service_wait_ready(service, 10ull * TEST_SECOND), STRATA_ERROR_POISONED);
        test_stall_end(self.stall);
        for (int i = 0; i < COPIES; i++)
            strata_host_buffer_release(buffers[i]);
        check_ok(strata_ref_release(ref));
        check_ok(strata_service_destroy(service));
    }
}

/* ---- functions ---- */

static strata_status begin_capture(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)data;
    return strata_cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED) == CUDA_SUCCESS ? STRATA_SUCCESS
                                                                                                : STRATA_ERROR_DRIVER;
}

static void a_capture_that_a_function_leaves_open_is_ended(void **state)
{
    (void)state;
    strata_service *service = test_service_make(NULL);
    const strata_service_operation operation = {.function = begin_capture};
    strata_future *future;
    check_ok(strata_service_run(service, &operation, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_ERROR_STREAM_CAPTURE);
    strata_ref *ref = test_service_allocate(service, 64);
    assert_true(test_ref_has(service, ref, 0));
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(service));
}

static void fail_inside(strata_future *future, void *data)
{
    (void)future;
    strata_host_buffer *buffer;
    *(strata_status *)data = strata_host_buffer_create(0, &buffer);
    assert_int_equal(strata_last_error()->status, STRATA_ERROR_INVALID_VALUE);
}

static void a_callback_sees_its_own_errors(void **state)
{
    (void)state;
    strata_service *service = test_service_make(NULL);
    strata_status seen = STRATA_SUCCESS;
    const strata_send_options send = {.callback = fail_inside, .data = &seen};
    strata_future *future;
    test_gate gate;
    strata_future *gated = test_close_gate(service, &gate);
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, &future));
    test_open_gate(&gate, gated);
    check_ok(strata_ref_release(test_take(future).ref));
    check_ok(strata_service_destroy(service));
    assert_int_equal(seen, STRATA_ERROR_INVALID_VALUE);
}

static strata_status record_nothing(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    (void)data;
    return STRATA_SUCCESS;
}

static void graphs_of_another_service_are_refused(void **state)
{
    (void)state;
    strata_service *one = test_service_make(NULL), *other = test_service_make(NULL);
    const strata_service_operation operation = {.function = record_nothing};
    strata_future *future;
    check_ok(strata_service_record_graph(one, &operation, NULL, &future));
    strata_graph *graph = test_take(future).graph;
    check_ok(strata_service_launch_graph(other, graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_ERROR_WRONG_DEVICE);
    check_ok(strata_service_launch_graph(one, graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_graph_destroy(graph));
    check_ok(strata_service_destroy(one));
    check_ok(strata_service_destroy(other));
}

static void references_of_another_service_are_refused(void **state)
{
    (void)state;
    strata_service *one = test_service_make(NULL), *other = test_service_make(NULL);
    strata_ref *ref = test_service_allocate(one, 64);
    strata_host_buffer *buffer = test_buffer(64, 0);
    check_status(test_copy(other, ref, buffer, true), STRATA_ERROR_WRONG_DEVICE);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(one));
    check_ok(strata_service_destroy(other));
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_shutdown_without_time_ends_an_idle_service),
        cmocka_unit_test(a_service_ends_before_its_context_is_made),
        cmocka_unit_test(a_service_in_this_process_has_no_descriptor_to_close),
        cmocka_unit_test(a_shutdown_refuses_what_was_taken_and_has_not_begun),
        cmocka_unit_test(what_goes_on_at_the_deadline_is_answered_and_keeps_the_service),
        cmocka_unit_test(requests_wait_for_the_context_up_to_their_own_limit),
        cmocka_unit_test(buffers_come_back_when_their_copies_have_ended),
        cmocka_unit_test(a_capture_that_a_function_leaves_open_is_ended),
        cmocka_unit_test(a_callback_sees_its_own_errors),
        cmocka_unit_test(graphs_of_another_service_are_refused),
        cmocka_unit_test(references_of_another_service_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
