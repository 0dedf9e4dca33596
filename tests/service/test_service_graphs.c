/* Graphs of requests, in process: beside the cases of both forms, what only this one has. */
#include <pthread.h>
#include <time.h>

#include "support/service_graph_cases.h"

/* The graph is a graph of the runtime: a use that conflicts with it waits, and the handle keeps its service. */
static void a_graph_that_lives_on_keeps_its_service_in_process(void **state)
{
    (void)state;
    strata_service *ending = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(ending, 64);
    strata_service_graph *graph;
    strata_future *future;
    check_ok(strata_service_graph_begin(ending, NULL, &graph));
    check_ok(strata_service_fill(ending, ref, 1, 1, &(strata_send_options){.graph = graph}, NULL));
    check_ok(strata_service_graph_end(graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_ref_release(ref));
    check_status(strata_service_destroy(ending), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "still has 1 graph");
    check_last_error(STRATA_ERROR_BUSY, "strata_service_graph_release");
    strata_service_graph_release(graph);
    check_ok(strata_service_destroy(ending));
}

static void an_end_that_is_cancelled_makes_no_graph(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_service_graph *graph = begin("late");
    strata_future *made, *played;
    test_gate gate;
    check_ok(record_fill(graph, ref, 1, 1));
    strata_future *held = test_close_gate(service, &gate);
    check_ok(strata_service_graph_end(graph, NULL, &made));
    check_ok(strata_service_graph_launch(graph, NULL, &played));
    check_ok(strata_future_cancel(made));
    test_open_gate(&gate, held);
    assert_int_equal(test_take(made).status, STRATA_ERROR_CANCELLED);
    assert_int_equal(test_take(played).status, STRATA_ERROR_INVALID_VALUE);
    assert_true(test_ref_has(service, ref, 0));
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
}

/* A launch of another priority comes first. */
static void a_launch_that_overtakes_the_end_says_so(void **state)
{
    (void)state;
    const strata_send_options first = {.priority = STRATA_PRIORITY_HIGH};
    strata_ref *ref = test_service_allocate(service, 64);
    strata_service_graph *graph = begin("overtaken");
    strata_future *made, *played;
    test_gate gate;
    check_ok(record_fill(graph, ref, 1, 1));
    strata_future *held = test_close_gate(service, &gate);
    check_ok(strata_service_graph_end(graph, NULL, &made));
    check_ok(strata_service_graph_launch(graph, &first, &played));
    test_open_gate(&gate, held);
    check_status(strata_future_wait(played), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "is not made yet");
    strata_future_release(played);
    assert_int_equal(test_take(made).status, STRATA_SUCCESS);
    check_ok(play(graph));
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
}

static void an_end_that_a_full_queue_refuses_is_sent_again(void **state)
{
    (void)state;
    strata_service_options options = test_options;
    options.queue_capacity = 2;
    strata_service *small = test_service_make(&options);
    strata_ref *ref = test_service_allocate(small, 64);
    strata_service_graph *graph;
    strata_future *future;
    test_gate gate;
    check_ok(strata_service_graph_begin(small, NULL, &graph));
    check_ok(strata_service_fill(small, ref, 6, 1, &(strata_send_options){.graph = graph}, NULL));
    strata_future *held = test_close_gate(small, &gate);
    check_ok(strata_service_allocate(small, STRATA_ELEMENT_U8, 1, NULL, NULL));
    check_status(strata_service_graph_end(graph, NULL, NULL), STRATA_ERROR_QUEUE_FULL);
    test_open_gate(&gate, held);
    while (strata_service_graph_end(graph, NULL, &future) == STRATA_ERROR_QUEUE_FULL)
        usleep(100);
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_service_graph_launch(graph, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    assert_true(test_ref_has(small, ref, 6));
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(small));
}

/* A thread that launches the graph once the log callback runs, as one that waited for a lock of the program. */
typedef struct launcher {
    strata_service_graph *graph;
    sem_t begin, over;
    bool waited; /* the launch returned while the log callback ran */
} launcher;

static void *launch_beside(void *data)
{
    launcher *self = data;
    sem_wait(&self->begin);
    const strata_status status = strata_service_graph_launch(self->graph, NULL, NULL);
    sem_post(&self->over);
    return (void *)(uintptr_t)status;
}

static void wait_for_launch(const strata_error *error, void *data)
{
    launcher *self = data;
    struct timespec until;
    if (error->status != STRATA_ERROR_QUEUE_FULL)
        return;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    sem_post(&self->begin);
    self->waited = sem_timedwait(&self->over, &until) == 0;
}

static void a_refused_end_is_logged_while_other_threads_use_the_graph(void **state)
{
    (void)state;
    strata_service_options options = test_options;
    options.queue_capacity = 1;
    strata_service *small = test_service_make(&options);
    strata_ref *ref = test_service_allocate(small, 64);
    launcher self = {0};
    pthread_t thread;
    void *launched;
    test_gate gate;
    sem_init(&self.begin, 0, 0);
    sem_init(&self.over, 0, 0);
    check_ok(strata_service_graph_begin(small, NULL, &self.graph));
    check_ok(strata_service_fill(small, ref, 6, 1, &(strata_send_options){.graph = self.graph}, NULL));
    strata_future *held = test_close_gate(small, &gate);
    assert_int_equal(pthread_create(&thread, NULL, launch_beside, &self), 0);
    strata_set_log_callback(wait_for_launch, &self);
    const strata_status ended = strata_service_graph_end(self.graph, NULL, NULL);
    strata_set_log_callback(NULL, NULL);
    assert_int_equal(pthread_join(thread, &launched), 0);
    test_open_gate(&gate, held);
    assert_int_equal(ended, STRATA_ERROR_QUEUE_FULL);
    assert_true(self.waited);
    assert_int_equal((uintptr_t)launched, STRATA_ERROR_INVALID_VALUE); /* it is still recorded */
    strata_service_graph_release(self.graph);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(small));
    sem_destroy(&self.over);
    sem_destroy(&self.begin);
}

static void a_graph_has_a_limit_of_requests(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_service_graph *graph = begin("long");
    for (int i = 0; i < STRATA_SERVICE_GRAPH_LIMIT; i++)
        check_ok(record_fill(graph, ref, 1, 1));
    check_status(record_fill(graph, ref, 1, 1), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "65536 requests");
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
}

/* Exits with 77 without a driver. */
int main(void)
{
    test_open_driver();
    const struct CMUnitTest tests[] = {
        TEST_SERVICE_GRAPH_CASES,
        cmocka_unit_test(a_graph_that_lives_on_keeps_its_service_in_process),
        cmocka_unit_test(an_end_that_is_cancelled_makes_no_graph),
        cmocka_unit_test(a_launch_that_overtakes_the_end_says_so),
        cmocka_unit_test(an_end_that_a_full_queue_refuses_is_sent_again),
        cmocka_unit_test(a_refused_end_is_logged_while_other_threads_use_the_graph),
        cmocka_unit_test(a_graph_has_a_limit_of_requests),
    };
    return cmocka_run_group_tests(tests, make_service, destroy_service);
}
