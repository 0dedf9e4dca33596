/* Cases about graphs of requests that hold for both forms of a device service: test_options says which form. */
#ifndef STRATA_TEST_SERVICE_GRAPH_CASES_H
#define STRATA_TEST_SERVICE_GRAPH_CASES_H

#include <sys/wait.h>
#include <unistd.h>

#include "support/one_service.h"

#include <strata/service_blas.h>
#include <strata/service_graph.h>

/* ---- recording ---- */

static strata_service_graph *begin(const char *name)
{
    strata_service_graph *graph;
    check_ok(strata_service_graph_begin(service, name, &graph));
    return graph;
}

static strata_status end(strata_service_graph *graph)
{
    strata_future *future;
    check_ok(strata_service_graph_end(graph, NULL, &future));
    const strata_status status = strata_future_wait(future);
    strata_future_release(future);
    return status;
}

static strata_status play(strata_service_graph *graph)
{
    strata_future *future;
    const strata_status status = strata_service_graph_launch(graph, NULL, &future);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_status answer = strata_future_wait(future);
    strata_future_release(future);
    return answer;
}

static strata_status record_fill(strata_service_graph *graph, strata_ref *ref, uint32_t value, uint32_t width)
{
    return strata_service_fill(service, ref, value, width, &(strata_send_options){.graph = graph}, NULL);
}

static strata_status record_copy(strata_service_graph *graph, strata_ref *from, strata_ref *to)
{
    return strata_service_copy(service, from, to, &(strata_send_options){.graph = graph}, NULL);
}

/* Records a fill with the pattern of a seed. */
static strata_status record_pattern(strata_service_graph *graph, uint64_t module, strata_ref *ref, unsigned seed)
{
    const strata_argument arguments[] = {
        {.kind = STRATA_ARGUMENT_WRITE, .ref = ref}, test_value(strata_ref_len(ref)), test_value(seed)};
    const strata_kernel kernel = {
        .module = module, .entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    return strata_service_launch(service, &kernel, &(strata_send_options){.graph = graph}, NULL);
}

static void fill(strata_ref *ref, uint32_t value)
{
    strata_future *future;
    check_ok(strata_service_fill(service, ref, value, 1, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
}

static bool have_equal_bytes(strata_ref *one, strata_ref *other)
{
    strata_host_buffer *a = test_buffer(strata_ref_len(one), 0), *b = test_buffer(strata_ref_len(one), 0xff);
    check_ok(test_copy(service, one, a, true));
    check_ok(test_copy(service, other, b, true));
    const bool equal = memcmp(strata_host_buffer_memory(a), strata_host_buffer_memory(b), strata_ref_len(one)) == 0;
    strata_host_buffer_release(a);
    strata_host_buffer_release(b);
    return equal;
}

/* ---- copies and fills on the device ---- */

static void references_are_filled_and_copied_on_the_device(void **state)
{
    (void)state;
    strata_ref *one = test_service_allocate(service, 1024), *other = test_service_allocate(service, 1024), *part;
    strata_future *future;
    check_ok(strata_service_fill(service, one, 0x04030201, 4, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    check_ok(strata_service_copy(service, one, other, NULL, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    assert_true(have_equal_bytes(one, other));
    check_ok(strata_ref_view(other, 512, 512, STRATA_ELEMENT_U8, &part));
    fill(part, 0x155); /* of which a byte counts */
    assert_true(test_ref_has(service, part, 0x55));
    check_ok(strata_ref_release(part));
    check_ok(strata_ref_view(other, 0, 512, STRATA_ELEMENT_U8, &part));
    strata_host_buffer *bytes = test_buffer(512, 0);
    check_ok(test_copy(service, part, bytes, true));
    for (size_t i = 0; i < 512; i++)
        assert_int_equal(((unsigned char *)strata_host_buffer_memory(bytes))[i], 1 + i % 4);
    strata_host_buffer_release(bytes);
    check_ok(strata_ref_release(part));
    check_ok(strata_ref_release(one));
    check_ok(strata_ref_release(other));
}

static void copies_and_fills_that_cannot_be_are_refused_at_once(void **state)
{
    (void)state;
    strata_ref *one = test_service_allocate(service, 1024), *small = test_service_allocate(service, 1020), *a, *b;
    check_status(strata_service_copy(service, one, small, NULL, NULL), STRATA_ERROR_SIZE_MISMATCH);
    check_last_error(STRATA_ERROR_SIZE_MISMATCH, "1024 and 1020 bytes");
    check_ok(strata_ref_view(one, 0, 600, STRATA_ELEMENT_U8, &a));
    check_ok(strata_ref_view(one, 424, 600, STRATA_ELEMENT_U8, &b));
    check_status(strata_service_copy(service, a, b, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "overlap");
    check_status(strata_service_copy(service, one, NULL, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_fill(service, NULL, 0, 1, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_fill(service, one, 0, 2, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "fills with 1 or 4");
    check_ok(strata_ref_release(b));
    check_ok(strata_ref_view(one, 2, 8, STRATA_ELEMENT_U8, &b));
    check_status(strata_service_fill(service, b, 0, 4, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_ref_release(a));
    check_ok(strata_ref_release(b));
    check_ok(strata_ref_release(one));
    check_ok(strata_ref_release(small));
}

/* ---- graphs ---- */

static void recorded_requests_are_done_by_launches_alone_and_in_order(void **state)
{
    (void)state;
    strata_ref *one = test_service_allocate(service, 4096), *other = test_service_allocate(service, 4096),
               *wanted = test_service_allocate(service, 4096);
    const uint64_t module = test_load_fill(service);
    strata_service_graph *graph = begin("pattern");
    check_ok(record_pattern(graph, module, one, 5));
    check_ok(record_copy(graph, one, other));
    check_ok(record_fill(graph, one, 0x99, 1));
    assert_true(test_ref_has(service, one, 0));
    check_ok(end(graph));
    assert_true(test_ref_has(service, one, 0) && test_ref_has(service, other, 0));
    strata_service_graph *reference = begin(NULL);
    check_ok(record_pattern(reference, module, wanted, 5));
    check_ok(end(reference));
    check_ok(play(reference));
    for (int i = 0; i < 3; i++) {
        fill(one, 1);
        fill(other, 2);
        check_ok(play(graph));
        assert_true(test_ref_has(service, one, 0x99));
        assert_true(have_equal_bytes(other, wanted));
    }
    strata_service_graph_release(graph);
    strata_service_graph_release(reference);
    check_ok(strata_ref_release(one));
    check_ok(strata_ref_release(other));
    check_ok(strata_ref_release(wanted));
}

/* Neither the end nor the launches are waited for. */
static void a_graph_is_launched_right_behind_its_end(void **state)
{
    (void)state;
    enum { ROUNDS = 30 };
    strata_ref *ref = test_service_allocate(service, 256);
    for (unsigned i = 0; i < ROUNDS; i++) {
        strata_service_graph *graph = begin(NULL);
        check_ok(record_fill(graph, ref, 100 + i, 1));
        check_ok(strata_service_graph_end(graph, NULL, NULL));
        check_ok(strata_service_graph_launch(graph, NULL, NULL));
        strata_service_graph_release(graph);
        assert_true(test_ref_has(service, ref, (unsigned char)(100 + i)));
    }
    check_ok(strata_ref_release(ref));
}

static void a_graph_keeps_the_memory_that_it_names(void **state)
{
    (void)state;
    strata_ref *one = test_service_allocate(service, 4096), *other = test_service_allocate(service, 4096);
    strata_service_graph *graph = begin(NULL);
    check_ok(record_fill(graph, one, 7, 1));
    check_ok(record_copy(graph, one, other));
    check_ok(end(graph));
    check_ok(strata_ref_release(one));
    for (int i = 0; i < 20; i++)
        check_ok(strata_ref_release(test_service_allocate(service, 4096)));
    strata_ref *neighbour = test_service_allocate(service, 4096);
    check_ok(play(graph));
    assert_true(test_ref_has(service, other, 7));
    assert_true(test_ref_has(service, neighbour, 0));
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(neighbour));
    check_ok(strata_ref_release(other));
}

/* Senders have a stream each, and wait for no answer of the other: what the graph writes and reads is noted. */
static void work_of_other_senders_waits_for_what_a_graph_uses(void **state)
{
    (void)state;
    enum { BYTES = 1 << 16, ROUNDS = 12 };
    const strata_send_options one = {.sender = 1}, other = {.sender = 2};
    strata_service *apart = test_service_make(&(strata_service_options){
        .form = test_options.form, .streams = STRATA_SERVICE_STREAM_PER_SENDER, .stream_count = 4});
    strata_ref *from = test_service_allocate(apart, BYTES), *to = test_service_allocate(apart, BYTES);
    strata_host_buffer *buffer = test_buffer(BYTES, 0);
    strata_service_graph *graph;
    strata_future *future;
    check_ok(strata_service_graph_begin(apart, NULL, &graph));
    check_ok(strata_service_copy(apart, from, to, &(strata_send_options){.graph = graph}, NULL));
    check_ok(strata_service_graph_end(graph, &one, &future));
    assert_int_equal(test_take(future).status, STRATA_SUCCESS);
    for (unsigned i = 1; i <= ROUNDS; i++) {
        check_ok(strata_service_fill(apart, from, i, 1, &other, NULL));
        if (i % 2)
            check_ok(strata_service_graph_launch(graph, &one, NULL));
        else
            check_ok(strata_service_copy(apart, from, to, &one, NULL));
        if (i % 3 == 0) /* behind the copy, which reads it */
            check_ok(strata_service_fill(apart, from, 0xee, 1, &other, NULL));
        check_ok(strata_service_copy_to_host(apart, to, buffer, &other, &future));
        const strata_answer answer = test_take(future);
        assert_int_equal(answer.status, STRATA_SUCCESS);
        strata_host_buffer_release(answer.buffer);
        assert_true(test_buffer_has(buffer, (unsigned char)i));
    }
    strata_service_graph_release(graph);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(from));
    check_ok(strata_ref_release(to));
    check_ok(strata_service_destroy(apart));
}

static void launches_of_a_released_graph_are_answered(void **state)
{
    (void)state;
    enum { LAUNCHES = 50 };
    strata_ref *ref = test_service_allocate(service, 256);
    strata_service_graph *graph = begin(NULL);
    strata_future *futures[LAUNCHES];
    check_ok(record_fill(graph, ref, 3, 1));
    check_ok(end(graph));
    for (int i = 0; i < LAUNCHES; i++)
        check_ok(strata_service_graph_launch(graph, NULL, &futures[i]));
    strata_service_graph_release(graph);
    for (int i = 0; i < LAUNCHES; i++)
        assert_int_equal(test_take(futures[i]).status, STRATA_SUCCESS);
    assert_true(test_ref_has(service, ref, 3));
    check_ok(strata_ref_release(ref));
}

/* C = 2AB + C with C = 0 before each; a second product of the graph reads what the first one wrote. */
static void products_are_recorded_with_what_they_read_and_write(void **state)
{
    (void)state;
    enum { SIDE = 4, COUNT = SIDE * SIDE };
    strata_host_buffer *values = test_buffer(COUNT * sizeof(float), 0);
    float *value = strata_host_buffer_memory(values);
    strata_ref *refs[3];
    for (int i = 0; i < 3; i++) {
        strata_future *future;
        check_ok(strata_service_allocate(service, STRATA_ELEMENT_F32, COUNT, NULL, &future));
        refs[i] = test_take(future).ref;
    }
    for (int i = 0; i < COUNT; i++)
        value[i] = (float)i;
    check_ok(test_copy(service, refs[0], values, false));
    strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS,
                                  .m = SIDE,
                                  .n = SIDE,
                                  .k = SIDE,
                                  .alpha = 2,
                                  .a = strata_blas_of_ref(refs[0]),
                                  .b = strata_blas_of_ref(refs[0]),
                                  .c = strata_blas_of_ref(refs[1])};
    strata_service_graph *graph = begin("products");
    const strata_send_options into = {.graph = graph};
    check_ok(strata_service_sgemm(service, &call, &into, NULL));
    call.a = strata_blas_of_ref(refs[1]);
    call.c = strata_blas_of_ref(refs[2]);
    check_ok(strata_service_sgemm(service, &call, &into, NULL));
    const strata_status made = end(graph);
    if (made == STRATA_ERROR_UNSUPPORTED)
        print_message("skipped: %s\n", strata_last_error()->message);
    for (int round = 0; round < 2 && made != STRATA_ERROR_UNSUPPORTED; round++) {
        fill(refs[1], 0xff);
        fill(refs[2], 0xff);
        check_ok(made);
        check_ok(play(graph));
        check_ok(test_copy(service, refs[2], values, true));
        for (int i = 0; i < COUNT; i++) {
            float sum = 0;
            for (int j = 0; j < COUNT; j++) /* over both inner sizes */
                sum += (float)(i / SIDE * SIDE + j / SIDE) * (float)(j / SIDE * SIDE + j % SIDE) *
                       (float)(j % SIDE * SIDE + i % SIDE);
            assert_float_equal(value[i], 4 * sum, 1e-3);
        }
    }
    strata_service_graph_release(graph);
    strata_host_buffer_release(values);
    for (int i = 0; i < 3; i++)
        check_ok(strata_ref_release(refs[i]));
}

/* ---- what is refused ---- */

static void what_cannot_be_recorded_is_refused(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 256);
    strata_host_buffer *buffer = test_buffer(256, 0);
    strata_future *future = (strata_future *)&future;
    strata_service_graph *graph = begin("refusing");
    strata_send_options into = {.graph = graph};
    check_status(strata_service_fill(service, ref, 1, 1, &into, &future), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "graph \"refusing\" does not record request 1: out is not NULL");
    assert_null(future);
    check_status(strata_service_allocate(service, STRATA_ELEMENT_U8, 1, &into, NULL), STRATA_ERROR_UNSUPPORTED);
    check_status(strata_service_copy_to_host(service, ref, buffer, &into, NULL), STRATA_ERROR_UNSUPPORTED);
    check_last_error(STRATA_ERROR_UNSUPPORTED, "before or after the graph's launch");
    check_status(strata_service_load(service, test_fill_ptx, 0, &into, NULL), STRATA_ERROR_UNSUPPORTED);
    check_status(strata_service_graph_end(graph, &into, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "graph_end: nothing is recorded in graph \"refusing\"");
    into.timeout = 1000;
    check_status(strata_service_fill(service, ref, 1, 1, &into, NULL), STRATA_ERROR_INVALID_VALUE);
    into.timeout = 0;
    into.priority = STRATA_PRIORITY_HIGH;
    check_status(strata_service_fill(service, ref, 1, 1, &into, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "neither a priority nor a hint");
    into.priority = STRATA_PRIORITY_NORMAL;
    into.hint = STRATA_HINT_SHORT;
    check_status(strata_service_fill(service, ref, 1, 1, &into, NULL), STRATA_ERROR_INVALID_VALUE);
    into.hint = STRATA_HINT_NONE;
    into.sender = 77; /* orders nothing */
    check_status(strata_service_fill(service, ref, 1, 3, &into, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_graph_end(graph, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_graph_launch(graph, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "still recorded");
    check_ok(strata_service_fill(service, ref, 1, 1, &into, NULL));
    check_status(strata_service_graph_end(graph, &into, NULL), STRATA_ERROR_UNSUPPORTED);
    check_ok(end(graph));
    check_status(strata_service_fill(service, ref, 1, 1, &into, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_graph_end(graph, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "graph_end: the recording of graph \"refusing\" was ended before");
    assert_int_equal(strata_host_buffer_handles(buffer), 1);
    strata_service_graph_release(graph);
    strata_service_graph_release(NULL);
    strata_host_buffer_release(buffer);
    check_ok(strata_ref_release(ref));
}

static void bad_arguments_of_graphs_are_named(void **state)
{
    (void)state;
    char longest[300];
    strata_service_graph *graph = (strata_service_graph *)longest;
    memset(longest, 'x', sizeof longest);
    longest[256] = '\0';
    check_status(strata_service_graph_begin(service, longest, &graph), STRATA_ERROR_INVALID_VALUE);
    assert_null(graph);
    check_status(strata_service_graph_begin(service, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_graph_begin(NULL, NULL, &graph), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_graph_end(NULL, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_graph_launch(NULL, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    longest[255] = '\0';
    graph = begin(longest);
    strata_service_graph_release(graph);
}

static void a_request_that_fails_at_the_end_is_named_and_there_is_no_graph(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 256);
    strata_service_graph *graph = begin("broken");
    check_ok(record_fill(graph, ref, 9, 1));
    check_ok(record_pattern(graph, 12345, ref, 1)); /* there is no such module */
    check_ok(record_fill(graph, ref, 9, 1));
    check_status(end(graph), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "request 2 of the graph: the service has no module 12345");
    check_status(play(graph), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "could not be made");
    strata_service_graph_release(graph);

    graph = begin("broken");
    check_ok(record_pattern(graph, 12345, ref, 1));
    check_ok(strata_service_graph_end(graph, NULL, NULL));
    check_status(play(graph), STRATA_ERROR_INVALID_VALUE); /* it was not waited for */
    strata_service_graph_release(graph);
    assert_true(test_ref_has(service, ref, 0));
    check_ok(strata_ref_release(ref));
}

static void graphs_of_another_service_are_not_recorded_into(void **state)
{
    (void)state;
    strata_service *other = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(service, 256), *foreign = test_service_allocate(other, 256);
    strata_service_graph *graph = begin(NULL);
    const strata_send_options into = {.graph = graph};
    check_status(strata_service_fill(other, foreign, 1, 1, &into, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_service_fill(service, foreign, 1, 1, &into, NULL), STRATA_ERROR_WRONG_DEVICE);
    check_ok(strata_service_fill(service, ref, 1, 1, &into, NULL));
    strata_service_graph_release(graph); /* never ended */
    check_ok(strata_ref_release(ref));
    check_ok(strata_ref_release(foreign));
    check_ok(strata_service_destroy(other));
}

/* ---- the end ---- */

static void a_recording_that_was_not_ended_does_not_keep_its_service(void **state)
{
    (void)state;
    strata_service *ending = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(ending, 64);
    strata_service_graph *graph;
    check_ok(strata_service_graph_begin(ending, NULL, &graph));
    check_ok(strata_service_fill(ending, ref, 1, 1, &(strata_send_options){.graph = graph}, NULL));
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(ending));
    strata_service_graph_release(graph);
}

static void a_service_that_shuts_down_answers_what_is_said_of_its_graphs(void **state)
{
    (void)state;
    strata_service *ending = test_service_make(&test_options);
    strata_ref *ref = test_service_allocate(ending, 64);
    strata_service_graph *graph;
    check_ok(strata_service_graph_begin(ending, NULL, &graph));
    check_ok(strata_service_fill(ending, ref, 1, 1, &(strata_send_options){.graph = graph}, NULL));
    check_ok(strata_service_shut_down(ending, TEST_SECOND));
    check_status(strata_service_graph_end(graph, NULL, NULL), STRATA_ERROR_STALE);
    check_status(strata_service_graph_begin(ending, NULL, &(strata_service_graph *){NULL}), STRATA_ERROR_STALE);
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
    check_ok(strata_service_destroy(ending));
}

static void a_forked_child_is_told_so_of_graphs(void **state)
{
    (void)state;
    strata_ref *ref = test_service_allocate(service, 64);
    strata_service_graph *graph = begin(NULL);
    check_ok(record_fill(graph, ref, 4, 1));
    const pid_t child = fork();
    if (child == 0) {
        strata_service_graph *none;
        const bool right = strata_service_graph_begin(service, NULL, &none) == STRATA_ERROR_FORKED &&
                           record_fill(graph, ref, 5, 1) == STRATA_ERROR_FORKED &&
                           strata_service_graph_end(graph, NULL, NULL) == STRATA_ERROR_FORKED &&
                           strata_service_graph_launch(graph, NULL, NULL) == STRATA_ERROR_FORKED;
        strata_service_graph_release(graph);
        _exit(right ? 0 : 1);
    }
    int status;
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(status, 0);
    check_ok(end(graph));
    check_ok(play(graph));
    assert_true(test_ref_has(service, ref, 4));
    strata_service_graph_release(graph);
    check_ok(strata_ref_release(ref));
}

/* For the programs' tables. */
#define TEST_SERVICE_GRAPH_CASES                                                                                   \
    cmocka_unit_test(references_are_filled_and_copied_on_the_device),                                              \
        cmocka_unit_test(copies_and_fills_that_cannot_be_are_refused_at_once),                                     \
        cmocka_unit_test(recorded_requests_are_done_by_launches_alone_and_in_order),                               \
        cmocka_unit_test(a_graph_is_launched_right_behind_its_end),                                                \
        cmocka_unit_test(a_graph_keeps_the_memory_that_it_names),                                                  \
        cmocka_unit_test(work_of_other_senders_waits_for_what_a_graph_uses),                                       \
        cmocka_unit_test(launches_of_a_released_graph_are_answered),                                               \
        cmocka_unit_test(products_are_recorded_with_what_they_read_and_write),                                     \
        cmocka_unit_test(what_cannot_be_recorded_is_refused), cmocka_unit_test(bad_arguments_of_graphs_are_named), \
        cmocka_unit_test(a_request_that_fails_at_the_end_is_named_and_there_is_no_graph),                          \
        cmocka_unit_test(graphs_of_another_service_are_not_recorded_into),                                         \
        cmocka_unit_test(a_recording_that_was_not_ended_does_not_keep_its_service),                                \
        cmocka_unit_test(a_service_that_shuts_down_answers_what_is_said_of_its_graphs),                            \
        cmocka_unit_test(a_forked_child_is_told_so_of_graphs)

#endif
