/* Cases that hold for both forms of a device service: test_options says which form the program tests. */
#ifndef STRATA_TEST_SERVICE_CASES_H
#define STRATA_TEST_SERVICE_CASES_H

#include <sys/wait.h>
#include <unistd.h>

#include "support/effort.h"
#include "support/one_service.h"

#include <strata/service_blas.h>
#include <strata/service_graph.h>
#include <strata/service_replay.h>

/* ---- memory ---- */

static void what_is_allocated_is_zero_and_keeps_what_is_copied(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 1000);
    strata_host_buffer *out = test_buffer(1000, 0x5a), *in = test_buffer(1000, 1);
    assert_true(test_ref_has(service, ref, 0));
    check_ok(test_copy(service, ref, out, false));
    check_ok(test_copy(service, ref, in, true));
    assert_true(test_buffer_has(in, 0x5a));
    assert_int_equal(strata_host_buffer_handles(in), 1);
    strata_host_buffer_release(in);
    strata_host_buffer_release(out);
    check_ok(strata_ref_release(ref));
}

static void a_length_that_does_not_match_is_refused_at_once(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 1000);
    strata_host_buffer *buffer = test_buffer(999, 0);
    check_status(test_copy(service, ref, buffer, true), STRATA_ERROR_SIZE_MISMATCH);
    check_last_error(STRATA_ERROR_SIZE_MISMATCH, "1000 bytes, the host buffer 999");
    assert_int_equal(strata_host_buffer_handles(buffer), 1);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

static void a_buffer_that_others_may_read_is_not_written(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_host_buffer *buffer = test_buffer(64, 7), *reader = strata_host_buffer_clone(buffer);
    check_status(test_copy(service, ref, buffer, true), STRATA_ERROR_SHARED);
    check_last_error(STRATA_ERROR_SHARED, "has 1 handle beside the caller's and the request's");
    check_last_error(STRATA_ERROR_SHARED, "release them first");
    assert_true(test_buffer_has(buffer, 7));
    check_ok(test_copy(service, ref, buffer, false));
    strata_host_buffer_release(reader);
    check_ok(test_copy(service, ref, buffer, true));
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

static int ends;

static void count_end(void *memory, size_t bytes, void *data)
{
    (void)memory;
    (void)bytes;
    (void)data;
    ends++;
}

static void a_wrapped_buffer_goes_back_where_it_came_from(void **state)
{
    (void)state;
    static unsigned char memory[64];
    strata_host_buffer *buffer;
    strata_future *future;
    strata_ref *ref = test_service_allocate(service, sizeof memory);
    ends = 0;
    check_ok(strata_host_buffer_wrap(memory, sizeof memory, count_end, NULL, &buffer));
    check_ok(strata_service_copy_from_host(service, buffer, ref, NULL, &future));
    strata_host_buffer_release(buffer);
    const strata_answer answer = test_take(future);
    assert_int_equal(ends, 0);
    strata_host_buffer_release(answer.buffer);
    assert_int_equal(ends, 1);
    check_ok(strata_ref_release(ref));
}

static void too_much_memory_fails_the_request_alone(void **state)
{
    (void)state;
    strata_future *future;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_F64, (size_t)1 << 45, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_OUT_OF_MEMORY);
    strata_answer answer;
    check_ok(strata_future_take(future, &answer));
    assert_int_equal(answer.failure, STRATA_FAILURE_OUT_OF_MEMORY);
    assert_non_null(answer.error);
    assert_null(answer.ref);
    strata_future_release(future);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    check_status(strata_service_allocate(service, STRATA_ELEMENT_F64, SIZE_MAX / 4, NULL, NULL),
                 STRATA_ERROR_INVALID_VALUE);
}

/* ---- futures ---- */

static void an_answer_is_taken_once(void **state)
{
    (void)state;
    strata_future *future;
    strata_answer answer;
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_F32, 4, NULL, &future));
    check_ok(strata_future_wait(future));
    check_ok(strata_future_wait(future));
    check_ok(strata_future_take(future, &answer));
    check_ok(strata_ref_release(answer.ref));
    check_status(strata_future_take(future, &answer), STRATA_ERROR_INVALID_VALUE);
    assert_null(answer.ref);
    strata_future_release(future);
    strata_service_stats stats;
    check_ok(strata_service_get_stats(service, &stats));
    assert_true(stats.done >= 1);
}

static void count_call(strata_future *future, void *data)
{
    assert_true(strata_future_poll(future));
    sem_post(data);
}

static void a_callback_comes_once_before_or_after_the_answer(void **state)
{
    (void)state;
    sem_t called;
    strata_future *future;
    sem_init(&called, 0, 0);
    const strata_send_options send = {.callback = count_call, .data = &called};
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, NULL));
    sem_wait(&called);
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
    check_ok(strata_future_wait(future));
    check_ok(strata_future_on_answer(future, count_call, &called));
    assert_int_equal(sem_trywait(&called), 0);
    check_status(strata_future_on_answer(future, count_call, &called), STRATA_ERROR_INVALID_VALUE);
    strata_future_release(future);
    assert_int_not_equal(sem_trywait(&called), 0);
    sem_destroy(&called);
}

static void take_and_release(strata_future *future, void *data)
{
    strata_answer answer;
    if (strata_future_take(future, &answer) == STRATA_SUCCESS)
        strata_ref_release(answer.ref);
    strata_future_release(future);
    sem_post(data);
}

/* The answer may come, and the callback with it, before the call that sets it returns. */
static void a_callback_may_release_its_future(void **state)
{
    (void)state;
    enum { ROUNDS = 100 };
    sem_t called;
    sem_init(&called, 0, 0);
    for (int i = 0; i < ROUNDS; i++) {
        strata_future *future;
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &future));
        check_ok(strata_future_on_answer(future, take_and_release, &called));
        while (sem_wait(&called) != 0)
            ;
    }
    sem_destroy(&called);
}

typedef struct chain {
    strata_service *service;
    _Atomic int left;
    _Atomic int refused;
    sem_t over;
} chain;

static void send_next(strata_future *future, void *data)
{
    chain *self = data;
    const strata_send_options send = {.callback = send_next, .data = self};
    (void)future;
    if (atomic_fetch_sub(&self->left, 1) <= 0) {
        sem_post(&self->over);
        return;
    }
    if (strata_service_allocate(self->service, STRATA_ELEMENT_U8, 64, &send, NULL) == STRATA_SUCCESS)
        return;
    atomic_fetch_add(&self->refused, 1);
    sem_post(&self->over);
}

/* It has left the queue: as many others as that has room for are unanswered meanwhile. */
static void what_has_an_answer_has_left_its_place_in_the_queue_to_the_next(void **state)
{
    (void)state;
    enum { CHAINS = 3, REQUESTS = 300 };
    strata_service_options options = test_options;
    options.queue_capacity = CHAINS;
    chain all = {.service = test_service_make(&options), .left = REQUESTS};
    sem_init(&all.over, 0, 0);
    for (int i = 0; i < CHAINS; i++)
        send_next(NULL, &all);
    for (int i = 0; i < CHAINS; i++)
        sem_wait(&all.over);
    assert_int_equal(all.refused, 0);
    sem_destroy(&all.over);
    for (int i = 0; i < REQUESTS; i++) { /* from a thread that waits */
        strata_future *futures[CHAINS];
        for (int j = 0; j < CHAINS; j++)
            check_ok(strata_service_allocate(all.service, STRATA_ELEMENT_U8, 64, NULL, &futures[j]));
        for (int j = 0; j < CHAINS; j++)
            check_ok(strata_ref_release(test_take(futures[j]).ref));
    }
    check_ok(strata_service_destroy(all.service));
}

/* ---- kernels ---- */

static strata_status launch_fill_with(size_t count, uint32_t bytes)
{
    strata_ref *ref = test_service_allocate(service, 4096);
    strata_argument arguments[4] = {{.kind = STRATA_ARGUMENT_WRITE, .ref = ref}, test_value(4096), test_value(5)};
    arguments[1].bytes = bytes;
    arguments[3] = test_value(0);
    const strata_kernel kernel = {.module = test_load_fill(service),
                                  .entry = "strata_pattern_fill",
                                  .arguments = arguments,
                                  .argument_count = count};
    strata_future *future;
    check_ok(strata_service_launch(service, &kernel, NULL, &future));
    const strata_status status = test_take(future).status;
    check_ok(strata_ref_release(ref));
    return status;
}

/* The driver would read an address for each parameter. */
static void arguments_that_are_not_the_kernels_fail_the_launch_alone(void **state)
{
    (void)state;
    if (strata_cu.Init && !strata_cu.FuncGetParamInfo)
        skip(); /* a driver of before 12.4 does not tell */
    for (size_t count = 0; count <= 4; count++)
        assert_int_equal(launch_fill_with(count, 8), count == 3 ? STRATA_SUCCESS : STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_fill_with(3, 4), STRATA_ERROR_INVALID_VALUE);
    assert_int_equal(launch_fill_with(3, 8), STRATA_SUCCESS);
}

static void a_kernel_is_launched_by_name_with_typed_arguments(void **state)
{
    (void)state;
    strata_ref *one = test_service_allocate(service, 4096), *other = test_service_allocate(service, 4096);
    strata_host_buffer *a = test_buffer(4096, 0), *b = test_buffer(4096, 0);
    strata_argument arguments[] = {{.kind = STRATA_ARGUMENT_WRITE, .ref = one}, test_value(4096), test_value(5)};
    strata_kernel kernel = {
        .module = test_load_fill(service), .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    strata_future *future;
    check_ok(strata_service_launch(service, &kernel, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    arguments[0].ref = other;
    check_ok(strata_service_launch(service, &kernel, NULL, NULL));
    check_ok(test_copy(service, one, a, true));
    check_ok(test_copy(service, other, b, true));
    assert_memory_equal(strata_host_buffer_memory(a), strata_host_buffer_memory(b), 4096);
    assert_false(test_buffer_has(a, 0));

    kernel.entry = "no_such_kernel";
    check_ok(strata_service_launch(service, &kernel, NULL, &future));
    check_status(strata_future_wait(future), STRATA_ERROR_DRIVER);
    check_last_error(STRATA_ERROR_DRIVER,
                     "has no kernel \"no_such_kernel\" (its name in the PTX; one of C++ that is not "
                     "extern \"C\" is mangled)");
    strata_future_release(future);
    check_status(strata_service_load(service, test_fill_ptx, SIZE_MAX, NULL, NULL), STRATA_ERROR_OUT_OF_HOST_MEMORY);
    kernel.module = 999;
    check_ok(strata_service_launch(service, &kernel, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_ERROR_INVALID_VALUE);
    arguments[1].bytes = 3;
    check_status(strata_service_launch(service, &kernel, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_ref_release(test_service_allocate(service, 64)));
    strata_host_buffer_release(a);
    strata_host_buffer_release(b);
    check_ok(strata_ref_release(one));
    check_ok(strata_ref_release(other));
}

/* ---- facts ---- */

static void statistics_count_what_was_done(void **state)
{
    (void)state;
    strata_service_stats before_it, stats;
    check_ok(strata_service_get_stats(service, &before_it));
    strata_ref *ref = test_service_allocate(service, 1000);
    strata_host_buffer *buffer = test_buffer(1000, 1);
    check_ok(test_copy(service, ref, buffer, false));
    check_ok(test_copy(service, ref, buffer, true));
    check_ok(strata_service_get_stats(service, &stats));
    assert_true(stats.ready);
    assert_int_equal(stats.done - before_it.done, 3);
    assert_int_equal(stats.bytes_from_host - before_it.bytes_from_host, 1000);
    assert_int_equal(stats.bytes_to_host - before_it.bytes_to_host, 1000);
    assert_true(stats.total_bytes >= stats.free_bytes && stats.free_bytes > 0);
    assert_true(stats.compute_major > 0);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

/* ---- ends ---- */

static void references_outlive_their_service(void **state)
{
    (void)state;
    strata_service *ending = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(ending, 64);
    strata_ref_memory memory;
    check_ok(strata_service_destroy(ending));
    check_status(strata_ref_access(ref, &memory), STRATA_ERROR_STALE);
    assert_int_equal(memory.stale, STRATA_STALE_STATE_DROPPED);
    check_ok(strata_ref_release(ref));
}

static void count_nothing(strata_future *future, void *data)
{
    (void)future;
    (void)data;
}

/* What the parent has, for the child's calls. */
typedef struct inherited {
    strata_ref *ref, *other;
    strata_host_buffer *buffer;
    strata_future *future; /* with an answer */
    uint64_t module;
} inherited;

/* The number, from 1, of the first call that does not return FORKED; 0: all do. */
static int first_not_forked(const inherited *had)
{
    strata_service_stats stats;
    strata_service_snapshot snapshot;
    strata_library library;
    strata_answer answer;
    strata_host_buffer *buffer;
    strata_service *chosen;
    strata_service_graph *graph;
    const strata_service_operation operation = {.function = test_wait_at_gate};
    const strata_kernel kernel = {.module = had->module, .entry = "any"};
    const strata_service_blas_call scal = {.routine = STRATA_BLAS_SCAL, .call.vectors.x = strata_blas_of_ref(had->ref)};
    const strata_status statuses[] = {
        strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, NULL),
        strata_service_allocate_raw(service, STRATA_ELEMENT_U8, 64, NULL, NULL),
        strata_service_copy_to_host(service, had->ref, had->buffer, NULL, NULL),
        strata_service_copy_from_host(service, had->buffer, had->ref, NULL, NULL),
        strata_service_copy(service, had->ref, had->other, NULL, NULL),
        strata_service_fill(service, had->ref, 1, 1, NULL, NULL),
        strata_service_run(service, &operation, NULL, NULL),
        strata_service_record_graph(service, &operation, NULL, NULL),
        strata_service_launch_graph(service, (strata_graph *)&graph, NULL, NULL),
        strata_service_load(service, test_fill_ptx, 0, NULL, NULL),
        strata_service_launch(service, &kernel, NULL, NULL),
        strata_service_blas(service, &scal, NULL, NULL),
        strata_service_graph_begin(service, NULL, &graph),
        strata_service_buffer_create(service, 64, &buffer),
        strata_service_wait_ready(service, 0),
        strata_service_stopped(service),
        strata_service_get_stats(service, &stats),
        strata_service_get_snapshot(service, &snapshot),
        strata_service_find_library(service, "blas", &library),
        strata_services_place(&service, 1, STRATA_PLACEMENT_ROUND_ROBIN, NULL, &chosen),
        strata_service_replay(service, "/dev/null", NULL, NULL),
        strata_future_wait(had->future),
        strata_future_wait_for(had->future, 0),
        strata_future_take(had->future, &answer),
        strata_future_on_answer(had->future, count_nothing, NULL),
        strata_future_cancel(had->future),
        strata_service_shut_down(service, 0),
        strata_service_destroy(service),
    };
    for (int i = 0; i < (int)(sizeof statuses / sizeof statuses[0]); i++)
        if (statuses[i] != STRATA_ERROR_FORKED)
            return i + 1;
    return strata_future_fd(had->future) == -1 && !strata_service_device_state(service) ? 0 : 99;
}

static void every_call_of_a_forked_child_answers_forked(void **state)
{
    (void)state;
    static inherited had; /* static: the child's leak checker finds it */
    had = (inherited){.ref = test_service_allocate(service, 64),
                      .other = test_service_allocate(service, 64),
                      .buffer = test_buffer(64, 1)};
    check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, NULL, &had.future));
    check_ok(strata_future_wait(had.future));
    const pid_t child = fork();
    if (child == 0) {
        const int wrong = first_not_forked(&had);
        strata_future_release(had.future); /* does nothing there */
        _exit(wrong);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    if (status)
        fail_msg("call %d of the child is not told", WEXITSTATUS(status));
    check_ok(strata_ref_release(test_take(had.future).ref));
    check_ok(test_copy(service, had.ref, had.buffer, true));
    strata_host_buffer_release(had.buffer);
    check_ok(strata_ref_release(had.ref));
    check_ok(strata_ref_release(had.other));
}

static void a_device_that_does_not_exist_stops_the_service_and_says_so(void **state)
{
    (void)state;
    strata_service *none;
    strata_service_options options = test_options;
    options.device = 63;
    check_ok(strata_service_create(&options, &none));
    check_status(strata_service_wait_ready(none, 20ull * TEST_SECOND), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_stopped(none), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_allocate(none, STRATA_ELEMENT_U8, 1, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_service_destroy(none));
}

/* However fast the work is: the thread of time limits may come later than the answer. */
static void what_is_complete_after_its_time_limit_answers_timeout(void **state)
{
    (void)state;
    const strata_send_options send = {.timeout = 1};
    strata_ref *ref = test_service_allocate(service, 64);
    strata_host_buffer *buffer = test_buffer(64, 1);
    for (size_t i = 0; i < test_effort(2000, 50); i++) {
        strata_future *future;
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_U8, 64, &send, &future));
        strata_answer answer = test_take(future);
        assert_int_equal(answer.status, STRATA_ERROR_TIMEOUT);
        assert_null(answer.ref);
        check_ok(strata_service_copy_from_host(service, buffer, ref, &send, &future));
        answer = test_take(future);
        assert_int_equal(answer.status, STRATA_ERROR_TIMEOUT);
        strata_host_buffer_release(answer.buffer);
        for (int j = 0; j < 20000 && strata_host_buffer_handles(buffer) != 1; j++)
            usleep(50);
        assert_int_equal(strata_host_buffer_handles(buffer), 1);
    }
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

/* For the programs' tables. */
#define TEST_SERVICE_CASES                                                                                    \
    cmocka_unit_test(what_is_allocated_is_zero_and_keeps_what_is_copied),                                     \
        cmocka_unit_test(a_length_that_does_not_match_is_refused_at_once),                                    \
        cmocka_unit_test(a_buffer_that_others_may_read_is_not_written),                                       \
        cmocka_unit_test(a_wrapped_buffer_goes_back_where_it_came_from),                                      \
        cmocka_unit_test(too_much_memory_fails_the_request_alone), cmocka_unit_test(an_answer_is_taken_once), \
        cmocka_unit_test(a_callback_comes_once_before_or_after_the_answer),                                   \
        cmocka_unit_test(a_callback_may_release_its_future),                                                  \
        cmocka_unit_test(what_has_an_answer_has_left_its_place_in_the_queue_to_the_next),                     \
        cmocka_unit_test(arguments_that_are_not_the_kernels_fail_the_launch_alone),                           \
        cmocka_unit_test(a_kernel_is_launched_by_name_with_typed_arguments),                                  \
        cmocka_unit_test(statistics_count_what_was_done), cmocka_unit_test(references_outlive_their_service), \
        cmocka_unit_test(every_call_of_a_forked_child_answers_forked),                                        \
        cmocka_unit_test(what_is_complete_after_its_time_limit_answers_timeout),                              \
        cmocka_unit_test(a_device_that_does_not_exist_stops_the_service_and_says_so)

#endif
