/* What a device service is asked at the wrong time, on the wrong thread, or with values at their bounds. */
#include <pthread.h>
#include <stdatomic.h>
#include <unistd.h>

#include "support/service.h"
#include "support/stall.h"

#include <strata/service_graph.h>

enum { THREADS = 16 };

static strata_service *service;

static int make_service(void **state)
{
    (void)state;
    service = test_service_make(NULL);
    return 0;
}

static int destroy_service(void **state)
{
    (void)state;
    return strata_service_destroy(service) == STRATA_SUCCESS ? 0 : -1;
}

/* ---- names ---- */

static strata_status do_nothing(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    (void)data;
    return STRATA_SUCCESS;
}

static strata_status run_named(const char *name)
{
    const strata_service_operation operation = {.name = name, .function = do_nothing};
    strata_future *future;
    const strata_status status = strata_service_run(service, &operation, NULL, &future);
    return status == STRATA_SUCCESS ? test_take(future).status : status;
}

static strata_status begin_named(const char *name)
{
    strata_service_graph *graph;
    const strata_status status = strata_service_graph_begin(service, name, &graph);
    assert_int_equal(status == STRATA_SUCCESS, graph != NULL);
    strata_service_graph_release(graph);
    return status;
}

static strata_status launch_named(const char *name)
{
    const strata_kernel kernel = {.module = 1, .entry = name};
    strata_future *future;
    const strata_status status = strata_service_launch(service, &kernel, NULL, &future);
    return status == STRATA_SUCCESS ? test_take(future).status : status;
}

static void names_with_control_characters_are_refused_and_shown_as_text(void **state)
{
    (void)state;
    static const char *const bad[] = {"line\nfeed", "\x1b[31mred", "tab\t", "del\x7f", "c1 \xc2\x9b", "latin \xe9"};
    static strata_status (*const call[])(const char *name) = {run_named, begin_named, launch_named};
    static const char *const what[] = {"the name of an operation, ", "the name of a graph, ", "the name of a kernel, "};
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        for (size_t j = 0; j < sizeof call / sizeof call[0]; j++) {
            check_status(call[j](bad[i]), STRATA_ERROR_INVALID_VALUE);
            check_last_error(STRATA_ERROR_INVALID_VALUE, what[j]);
            for (const char *at = strata_last_error()->message; *at; at++)
                assert_true((unsigned char)*at >= ' ' && *at != 127);
        }
    check_status(run_named("line\nfeed"), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "\"line\\nfeed\"");
    check_ok(run_named("\"quoted\" \\ 100 %s gr\xc3\xbc\xc3\x9f"));
    check_ok(begin_named("\"quoted\" \\ 100 %s gr\xc3\xbc\xc3\x9f"));
}

static void names_have_a_length_that_is_said(void **state)
{
    (void)state;
    static char name[(1 << 14) + 2];
    memset(name, 'n', sizeof name - 1);
    check_status(launch_named(name), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "the name of a kernel has 16385 bytes; at most 16384 are possible");
    name[1 << 14] = '\0';
    check_status(launch_named(name), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "the service has no module 1");
    name[256] = '\0';
    check_status(run_named(name), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "the name of an operation has 256 bytes; at most 255 are possible");
    check_status(begin_named(name), STRATA_ERROR_INVALID_VALUE);
    name[255] = '\0';
    check_ok(run_named(name));
    check_ok(begin_named(name));
    check_ok(run_named(""));
}

/* ---- values ---- */

static void every_option_has_its_bounds(void **state)
{
    (void)state;
    static const strata_service_options bad[] = {
        {.device = -1},
        {.device = 1 << 20},
        {.form = (strata_service_form)2},
        {.completion = (strata_completion_mode)3},
        {.streams = (strata_service_streams)3},
        {.stream_count = 65},
        {.rebuild_limit = 65},
        {.record = ""},
    };
    static const char *const said[] = {"invalid device -1",
                                       "invalid device 1048576",
                                       "options: invalid form 2",
                                       "options: invalid completion 3",
                                       "options: invalid streams 3",
                                       "stream_count is 65; at most 64",
                                       "rebuild_limit is 65; at most 64",
                                       "record"};
    strata_service *made = service;
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++) {
        check_status(strata_service_create(&bad[i], &made), STRATA_ERROR_INVALID_VALUE);
        check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_service_options");
        check_last_error(STRATA_ERROR_INVALID_VALUE, said[i]);
        assert_null(made);
        made = service;
    }
}

static void options_at_their_largest_and_smallest_work(void **state)
{
    (void)state;
    static const strata_service_options extreme[] = {
        {.stream_count = 64,
         .streams = STRATA_SERVICE_STREAM_POOLED,
         .rebuild_limit = 64,
         .queue_capacity = UINT32_MAX,
         .pending_queue_capacity = UINT32_MAX,
         .poll_limit = UINT64_MAX,
         .rebuild_window = UINT64_MAX,
         .worker_silence = UINT64_MAX},
        {.stream_count = 1,
         .streams = STRATA_SERVICE_STREAM_PER_SENDER,
         .rebuild_limit = 1,
         .queue_capacity = 1,
         .pending_queue_capacity = 1,
         .poll_interval = 1,
         .rebuild_window = 1,
         .worker_silence = 1},
    };
    for (size_t i = 0; i < sizeof extreme / sizeof extreme[0]; i++) {
        strata_service *own = test_service_make(&extreme[i]);
        strata_ref *ref = test_service_allocate(own, 100);
        assert_true(test_ref_has(own, ref, 0));
        check_ok(strata_ref_release(ref));
        check_ok(strata_service_destroy(own));
    }
}

static strata_status stall(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    *(test_stall **)data = test_stall_begin(stream);
    return STRATA_SUCCESS;
}

/* A request reaches poll_limit though the driver is asked less often. */
static void the_limit_of_a_request_does_not_wait_for_the_next_poll(void **state)
{
    (void)state;
    test_stall *stalled;
    const strata_service_operation operation = {.function = stall, .data = &stalled};
    strata_future *future;
    strata_service *own = test_service_make(
        &(strata_service_options){.poll_interval = 3600ull * TEST_SECOND, .poll_limit = TEST_SECOND / 50});
    check_ok(strata_service_run(own, &operation, NULL, &future));
    check_status(strata_future_wait_for(future, 60ull * TEST_SECOND), STRATA_ERROR_TIMEOUT);
    strata_future_release(future);
    test_stall_end(stalled);
    check_ok(strata_service_destroy(own));
}

static void what_has_no_bytes_has_no_memory_and_is_refused_elsewhere(void **state)
{
    (void)state;
    strata_ref *none = test_service_allocate(service, 0), *some = test_service_allocate(service, 4);
    strata_host_buffer *buffer = test_buffer(1, 0), *made = buffer;
    assert_int_equal(strata_ref_len(none), 0);
    check_status(strata_service_copy_to_host(service, none, buffer, NULL, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_status(strata_service_copy_from_host(service, buffer, none, NULL, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_status(strata_service_copy(service, none, none, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_copy(service, none, some, NULL, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_status(strata_service_fill(service, none, 0, 1, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_buffer_create(service, 0, &made), STRATA_ERROR_INVALID_VALUE);
    assert_null(made);
    check_status(strata_service_buffer_create(service, SIZE_MAX, &made), STRATA_ERROR_OUT_OF_HOST_MEMORY);
    assert_null(made);
    check_status(strata_host_buffer_create(0, &made), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_load(service, "", 0, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_service_load: the image is empty");
    check_status(strata_service_allocate(service, STRATA_ELEMENT_F64, SIZE_MAX / 4, NULL, NULL),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_services_place(&service, 0, STRATA_PLACEMENT_ROUND_ROBIN, NULL, &(strata_service *){NULL}),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_services_place((strata_service *[]){service, NULL}, 2, STRATA_PLACEMENT_LEAST_LOADED, NULL,
                                       &(strata_service *){NULL}),
                 STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "strata_services_place: services[1] is NULL");
    check_ok(strata_ref_release(none));
    check_ok(strata_ref_release(some));
    strata_host_buffer_release(buffer);
}

static void a_device_has_as_many_services_as_are_made(void **state)
{
    (void)state;
    strata_service *second = test_service_make(NULL);
    strata_ref *ours = test_service_allocate(service, 64), *theirs = test_service_allocate(second, 64);
    assert_true(test_ref_has(service, ours, 0));
    assert_true(test_ref_has(second, theirs, 0));
    check_status(strata_service_fill(second, ours, 1, 1, NULL, NULL), STRATA_ERROR_WRONG_DEVICE);
    check_ok(strata_ref_release(theirs));
    check_ok(strata_service_destroy(second));
    assert_true(test_ref_has(service, ours, 0));
    check_ok(strata_ref_release(ours));
}

/* It has no address to put into a launch. */
static void the_launch_recorder_takes_no_memory_of_a_worker(void **state)
{
    (void)state;
    strata_service *isolated = test_service_make(&(strata_service_options){.form = STRATA_SERVICE_ISOLATED});
    strata_ref *ref = test_service_allocate(isolated, 64);
    strata_runtime *runtime;
    strata_launch launch;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    check_ok(strata_launch_begin(&launch, runtime, NULL, STRATA_LAUNCH_STRICT));
    check_status(strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE), STRATA_ERROR_UNSUPPORTED);
    strata_launch_end(&launch);
    check_ok(strata_runtime_destroy(runtime));
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(isolated));
}

/* ---- the service's own threads ---- */

/* What calls on a thread of the service give. */
typedef struct on_thread {
    strata_service *service;
    strata_future *future; /* that has no answer */
    strata_status wait, wait_for, ready, destroy, shut_down;
    sem_t done;
} on_thread;

static void call_all(on_thread *self)
{
    self->wait = strata_future_wait(self->future);
    self->wait_for = strata_future_wait_for(self->future, 3600ull * TEST_SECOND);
    self->ready = strata_service_wait_ready(self->service, 3600ull * TEST_SECOND);
    self->destroy = strata_service_destroy(self->service);
    self->shut_down = strata_service_shut_down(self->service, UINT64_MAX);
    sem_post(&self->done);
}

static strata_status call_in_function(strata_runtime *runtime, CUstream stream, void *data)
{
    on_thread *self = data;
    (void)runtime;
    (void)stream;
    check_ok(strata_service_allocate(self->service, STRATA_ELEMENT_U8, 64, NULL, &self->future));
    call_all(self);
    return STRATA_SUCCESS;
}

static void a_function_on_the_services_thread_does_not_wait_for_itself(void **state)
{
    (void)state;
    on_thread self = {.service = test_service_make(NULL)};
    const strata_service_operation operation = {.function = call_in_function, .data = &self};
    strata_future *future;
    sem_init(&self.done, 0, 0);
    check_ok(strata_service_run(self.service, &operation, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    assert_int_equal(self.wait, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(self.wait_for, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(self.ready, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(self.destroy, STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(self.shut_down, STRATA_SUCCESS);
    assert_int_equal(test_take(self.future).status, STRATA_ERROR_STALE); /* the shutdown came before it */
    check_ok(strata_service_destroy(self.service));
    sem_destroy(&self.done);
}

static void end_in_callback(strata_future *future, void *data)
{
    on_thread *self = data;
    (void)future;
    self->destroy = strata_service_destroy(self->service);
    self->shut_down = strata_service_shut_down(self->service, UINT64_MAX);
    sem_post(&self->done);
}

/* On the service's thread, and on the thread of its time limits. */
static void a_callback_may_shut_its_service_down_and_not_destroy_it(void **state)
{
    (void)state;
    for (int late = 0; late < 2; late++) {
        on_thread self = {.service = test_service_make(NULL)};
        const strata_send_options send = {
            .callback = end_in_callback, .data = &self, .timeout = late ? TEST_SECOND / 1000 : 0};
        strata_future *future, *held = NULL;
        test_gate gate;
        sem_init(&self.done, 0, 0);
        if (late)
            held = test_close_gate(self.service, &gate);
        check_ok(strata_service_allocate(self.service, STRATA_ELEMENT_U8, 64, &send, &future));
        sem_wait(&self.done);
        assert_int_equal(self.destroy, STRATA_ERROR_INVALID_VALUE);
        assert_int_equal(self.shut_down, STRATA_SUCCESS);
        if (late)
            test_open_gate(&gate, held);
        const strata_answer answer = test_take(future);
        assert_int_equal(answer.status, late ? STRATA_ERROR_TIMEOUT : STRATA_SUCCESS);
        check_ok(strata_ref_release(answer.ref));
        check_ok(strata_service_destroy(self.service));
        sem_destroy(&self.done);
    }
}

/* ---- shutting down ---- */

typedef struct asker {
    pthread_t thread;
    strata_service *service;
    _Atomic bool *goes_on;
    _Atomic uint64_t sent, answered;
    strata_status wrong; /* SUCCESS: nothing */
} asker;

static void count_answer(strata_future *future, void *data)
{
    (void)future;
    atomic_fetch_add(&((asker *)data)->answered, 1);
}

static void *ask(void *data)
{
    asker *self = data;
    const strata_send_options send = {.callback = count_answer, .data = self};
    strata_status status = STRATA_SUCCESS;
    while (status != STRATA_ERROR_STALE && !self->wrong) {
        strata_future *future = NULL;
        status = strata_service_allocate(self->service, STRATA_ELEMENT_U8, 64, &send, &future);
        if (status == STRATA_SUCCESS) {
            atomic_fetch_add(&self->sent, 1);
            const strata_answer answer = test_take(future);
            strata_ref_release(answer.ref);
            status = answer.status;
        }
        if (status != STRATA_SUCCESS && status != STRATA_ERROR_STALE)
            self->wrong = status;
    }
    check_ok(strata_service_shut_down(self->service, UINT64_MAX)); /* again */
    return NULL;
}

static void threads_that_ask_while_it_shuts_down_are_all_answered(void **state)
{
    (void)state;
    asker askers[THREADS] = {0};
    uint64_t sent = 0;
    strata_service *own = test_service_make(NULL);
    for (int i = 0; i < THREADS; i++) {
        askers[i].service = own;
        assert_int_equal(pthread_create(&askers[i].thread, NULL, ask, &askers[i]), 0);
    }
    while (sent < 500) {
        sent = 0;
        for (int i = 0; i < THREADS; i++)
            sent += atomic_load(&askers[i].answered);
    }
    check_ok(strata_service_shut_down(own, 10ull * TEST_SECOND));
    check_ok(strata_service_shut_down(own, UINT64_MAX));
    for (int i = 0; i < THREADS; i++) {
        pthread_join(askers[i].thread, NULL);
        assert_int_equal(askers[i].wrong, STRATA_SUCCESS);
    }
    check_ok(strata_service_destroy(own));
    for (int i = 0; i < THREADS; i++) /* a callback may come after the wake of a thread that waits */
        assert_int_equal(atomic_load(&askers[i].answered), atomic_load(&askers[i].sent));
}

static void futures_outlive_their_service(void **state)
{
    (void)state;
    strata_service *own = test_service_make(NULL);
    strata_future *answered, *refused;
    strata_answer answer;
    strata_ref_memory memory;
    test_gate gate;
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &answered));
    check_ok(strata_future_wait(answered));
    strata_future *held = test_close_gate(own, &gate);
    check_ok(strata_service_allocate(own, STRATA_ELEMENT_U8, 64, NULL, &refused));
    check_ok(strata_service_shut_down(own, UINT64_MAX));
    test_open_gate(&gate, held);
    check_ok(strata_service_destroy(own));

    assert_true(strata_future_poll(answered) && strata_future_poll(refused));
    check_ok(strata_future_wait(answered));
    check_status(strata_future_wait_for(refused, 0), STRATA_ERROR_STALE);
    check_status(strata_future_cancel(refused), STRATA_ERROR_BUSY);
    assert_true(strata_future_fd(answered) >= 0);
    check_ok(strata_future_take(answered, &answer));
    check_status(strata_ref_access(answer.ref, &memory), STRATA_ERROR_STALE);
    check_ok(strata_ref_release(answer.ref));
    strata_future_release(answered); /* and what the second has not given */
    strata_future_release(refused);
}

int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_with_control_characters_are_refused_and_shown_as_text),
        cmocka_unit_test(names_have_a_length_that_is_said),
        cmocka_unit_test(every_option_has_its_bounds),
        cmocka_unit_test(options_at_their_largest_and_smallest_work),
        cmocka_unit_test(the_limit_of_a_request_does_not_wait_for_the_next_poll),
        cmocka_unit_test(what_has_no_bytes_has_no_memory_and_is_refused_elsewhere),
        cmocka_unit_test(a_device_has_as_many_services_as_are_made),
        cmocka_unit_test(the_launch_recorder_takes_no_memory_of_a_worker),
        cmocka_unit_test(a_function_on_the_services_thread_does_not_wait_for_itself),
        cmocka_unit_test(a_callback_may_shut_its_service_down_and_not_destroy_it),
        cmocka_unit_test(threads_that_ask_while_it_shuts_down_are_all_answered),
        cmocka_unit_test(futures_outlive_their_service),
    };
    return cmocka_run_group_tests(tests, make_service, destroy_service);
}
