/* Graphs: what their launches do and wait for, frees of what they use, and their ends. */
#include <pthread.h>
#include <string.h>

#include "support/beside.h"
#include "support/graphs.h"
#include "support/refusals.h"
#include "support/sweep.h"

/* ---- what a graph does ---- */

static void a_graph_does_at_each_launch_what_was_captured(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN,
                                             TEST_STREAM_PER_THREAD};
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        CUstream stream = test_stream(fixture, kinds[k]), other = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, other);
        test_write(fixture, &block, 0x01, other);
        strata_capture_state state;
        begin(fixture, stream, NULL);
        check_ok(strata_capture_status(fixture->runtime, stream, &state));
        assert_int_equal(state, STRATA_CAPTURE_STATE_ACTIVE);
        assert_true(strata_is_stream_capturing(fixture->runtime, stream));
        test_write(fixture, &block, 0x22, stream);
        strata_graph *graph = end(fixture, stream);
        assert_false(strata_is_stream_capturing(fixture->runtime, stream));
        assert_int_equal(strata_graph_node_count(graph), 1);
        assert_false(strata_graph_has_pool(graph));
        check_value(fixture, &block, 0x01, stream); /* nothing ran so far */
        for (uint64_t i = 0; i < 3; i++) {
            test_write(fixture, &block, 0x33, other);
            check_ok(strata_graph_launch(graph, i % 2 ? other : stream));
            assert_int_equal(strata_graph_num_replays(graph), i + 1);
            check_value(fixture, &block, 0x22, other);
        }
        check_ok(destroy(graph));
        test_free_on(fixture, &block, other);
        test_stream_close(fixture, stream);
        test_stream_close(fixture, other);
    }
}

static void a_graph_is_uploaded_once(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    strata_graph *graph = end(fixture, stream);
    assert_false(strata_graph_is_uploaded(graph));
    check_ok(strata_graph_upload(graph, stream));
    assert_true(strata_graph_is_uploaded(graph));
    check_ok(strata_graph_upload(graph, stream));
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x22, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static void a_launch_waits_for_earlier_uses_and_later_ones_wait_for_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), writer = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    copy(fixture, &to, &from, stream);
    strata_graph *graph = end(fixture, stream);
    for (unsigned char value = 1; value < 5; value++) {
        test_write(fixture, &from, value, writer);
        check_ok(strata_graph_launch(graph, stream));
        const unsigned char *seen = test_read(fixture, &to, reader);
        test_write(fixture, &from, 0x77, writer); /* after the launch has read it */
        test_synchronize(reader);
        check_bytes(seen, value, BYTES);
        fixture->seen_used = 0;
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &from, writer);
    test_free_on(fixture, &to, reader);
}

static void streams_of_a_capture_are_ordered_by_their_uses(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_order_after(fork, stream); /* the fork comes before the write */
    test_write(fixture, &from, 0x44, stream);
    copy(fixture, &to, &from, fork);
    test_write(fixture, &from, 0x55, stream);
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_node_count(graph), 3);
    for (int i = 0; i < 3; i++) {
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &to, 0x44, stream);
        check_value(fixture, &from, 0x55, stream);
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, stream);
}

/* ---- frees of what a graph uses ---- */

static void the_free_of_a_block_that_a_graph_uses_waits_for_the_graphs_end(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    const size_t before = live_blocks(fixture);
    for (int own = 0; own < 2; own++) {
        strata_block block = test_allocate(fixture, BYTES, stream);
        strata_graph *made[2];
        for (int i = 0; i < 2; i++) {
            begin(fixture, stream, NULL);
            test_write(fixture, &block, 0x21, stream);
            made[i] = end(fixture, stream);
        }
        check_ok(own ? strata_runtime_deallocate(fixture->runtime, &block)
                     : strata_runtime_deallocate_on(fixture->runtime, &block, other));
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
        assert_int_equal(live_blocks(fixture), before + 1);
        check_ok(strata_graph_launch(made[0], stream));
        check_ok(destroy(made[0]));
        check_ok(strata_graph_launch(made[1], other));
        assert_int_equal(live_blocks(fixture), before + 1);
        check_ok(destroy(made[1]));
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(live_blocks(fixture), before);
    }
}

static void the_free_of_a_block_that_a_graph_uses_is_refused_if_the_graph_says_so(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x21, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_refuse_frees(graph, true));
    check_ok(strata_graph_refuse_frees(graph, true));
    check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_BLOCK_IN_USE);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, stream), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(strata_graph_launch(graph, stream));
    check_ok(destroy(graph));
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void a_graph_is_destroyed_while_a_launch_is_in_flight(test_fixture *fixture)
{
    if (strncmp(fixture->stack, "guard", 5) == 0)
        test_needs_truthful_queries(); /* guard waits on the host for what is not known to be complete */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block out = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x5a, stream);
    copy(fixture, &out, &block, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    strata_graph *graph = end(fixture, stream);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_graph_launch(graph, stream));
    if (!test_owner_is(fixture, "direct")) /* whose frees wait */
        check_ok(destroy(graph));
    strata_block next = {0};
    if (!test_owner_is(fixture, "direct")) {
        next = test_allocate(fixture, 2 << 20, other); /* perhaps the segment's memory */
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &next, other, STRATA_ACCESS_WRITE));
        test_fill(next.address, 0x99, 2 << 20, other);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &next, other, STRATA_ACCESS_WRITE));
    }
    test_stall_release(stall);
    check_value(fixture, &out, 0x5a, stream);
    test_stall_end(stall);
    if (test_owner_is(fixture, "direct"))
        check_ok(destroy(graph));
    else
        test_free_on(fixture, &next, other);
    test_free_on(fixture, &out, stream);
}

static void a_launch_in_a_capture_names_references_and_the_graph_holds_them(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t before = live_blocks(fixture);
    strata_launch launch;
    strata_ref_memory memory;
    strata_ref *ref;
    check_ok(strata_ref_allocate(fixture->runtime, STRATA_ELEMENT_U8, BYTES, false, stream, &ref));
    refs[ref_count++] = ref;
    check_ok(strata_ref_access(ref, &memory));
    begin(fixture, stream, NULL);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    strata_status status = strata_launch_use_ref(&launch, ref, STRATA_ACCESS_WRITE);
    if (status == STRATA_SUCCESS)
        status = strata_launch_preflight(&launch);
    if (status == STRATA_SUCCESS) {
        test_fill(memory.address, 0x31, BYTES, stream);
        status = strata_launch_commit(&launch);
    }
    check_ok(strata_launch_end(&launch));
    check_ok(status);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_ref_release(refs[--ref_count]));
    assert_int_equal(live_blocks(fixture), before + 1);
    check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

/* ---- refusals, ends and facts ---- */

static void a_refused_launch_is_logged_while_other_threads_launch_the_graph(test_fixture *fixture)
{
    if (!test_sim_control() || test_is_swept())
        return; /* the simulated driver fails on purpose */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_beside beside;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    test_launch other = {end(fixture, stream), stream};
    test_beside_begin(&beside, test_launch_beside, &other);
    test_refuse("cuGraphLaunch", 1, 1, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_graph_launch(other.graph, stream);
    test_refuse_no_more();
    assert_true(test_beside_end(&beside));
    check_status(status, STRATA_ERROR_DRIVER);
    check_value(fixture, &block, 0x22, stream);
    check_ok(destroy(other.graph));
    test_free_on(fixture, &block, stream);
}

static void a_graph_of_an_earlier_generation_is_stale(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_capture_pool *pool = make_pool(fixture);
    begin(fixture, stream, pool);
    test_write(fixture, &block, 7, stream);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_generation(graph), 0);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_status(strata_graph_launch(graph, stream), STRATA_ERROR_STALE);
    check_status(strata_graph_upload(graph, stream), STRATA_ERROR_STALE);
    check_status(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, pool), STRATA_ERROR_STALE);
    assert_int_equal(strata_graph_num_replays(graph), 0);
    check_ok(destroy(graph));
    check_ok(release_pool(pool));
    test_free_on(fixture, &block, stream);
}

static void a_runtime_with_graphs_is_not_destroyed(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    begin(fixture, stream, NULL);
    strata_graph *graph = end(fixture, stream);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_last_error(STRATA_ERROR_BUSY, "1 graph;");
    check_ok(destroy(graph));
    strata_capture_pool *pool = make_pool(fixture);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_BUSY);
    check_ok(release_pool(pool));
}

static uint64_t count(test_fixture *fixture, const char *name)
{
    uint64_t value;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &value, NULL));
    return value;
}

static void the_process_counts_captures_graphs_and_launches(test_fixture *fixture)
{
    static const char *const names[] = {"captures.made", "captures.ended", "graphs.made", "graphs.ended",
                                        "graphs.launches"};
    strata_stack *stack = strata_runtime_stack(fixture->runtime);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const uint64_t zero = 0, one = 1, live = count(fixture, "graphs.live");
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
        check_status(strata_control(stack, names[i], NULL, &one), STRATA_ERROR_INVALID_VALUE);
        check_ok(strata_control(stack, names[i], NULL, &zero));
        assert_int_equal(count(fixture, names[i]), 0);
    }
    check_status(strata_control(stack, "graphs.live", NULL, &zero), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, stream, NULL);
    assert_int_equal(count(fixture, "captures.live"), 1);
    test_write(fixture, &block, 0x22, stream);
    strata_graph *graph = end(fixture, stream);
    begin(fixture, stream, NULL);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    for (int i = 0; i < 3; i++)
        check_ok(strata_graph_launch(graph, stream));
    assert_int_equal(count(fixture, "captures.made"), 2);
    assert_int_equal(count(fixture, "captures.ended"), 2);
    assert_int_equal(count(fixture, "captures.live"), 0);
    assert_int_equal(count(fixture, "graphs.made"), 1);
    assert_int_equal(count(fixture, "graphs.live"), live + 1);
    assert_int_equal(count(fixture, "graphs.launches"), 3);
    check_ok(destroy(graph));
    assert_int_equal(count(fixture, "graphs.ended"), 1);
    assert_int_equal(count(fixture, "graphs.live"), live);
    assert_true(count(fixture, "events.live") == count(fixture, "events.made") - count(fixture, "events.ended"));
    test_free_on(fixture, &block, stream);
}

static void write_text(const char *text, size_t length, void *data)
{
    assert_true(length < 256);
    memcpy(data, text, length);
    ((char *)data)[length] = '\0';
}

static void print_says_what_a_graph_has(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    char text[256];
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 7, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    strata_graph_print(graph, write_text, text);
    assert_string_equal(text,
                        "graph \"capture\" of 1 nodes, generation 0: 1 blocks from outside, pool \"capture\" of 0 "
                        "bytes, 1 launches");
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

/* ---- threads ---- */

typedef struct launcher {
    strata_graph *graph;
    CUstream stream;
    bool destroyed;
    strata_status status;
} launcher;

static void *launch_often(void *data)
{
    launcher *self = data;
    test_make_current();
    for (int i = 0; i < 20 && self->status == STRATA_SUCCESS; i++)
        self->status = strata_graph_launch(self->graph, self->stream);
    self->destroyed = self->status == STRATA_SUCCESS;
    if (self->destroyed)
        self->status = strata_graph_destroy(self->graph);
    return NULL;
}

static void graphs_that_share_memory_are_launched_and_destroyed_by_several_threads(test_fixture *fixture)
{
    enum { THREADS = 4 };
    strata_capture_pool *pool = make_pool(fixture);
    strata_block out[THREADS];
    launcher all[THREADS];
    pthread_t threads[THREADS];
    for (size_t i = 0; i < THREADS; i++) {
        all[i] = (launcher){.stream = test_stream(fixture, TEST_STREAM_POOL)};
        out[i] = test_allocate(fixture, BYTES, all[i].stream);
        begin(fixture, all[i].stream, pool);
        strata_block block = test_allocate(fixture, BYTES, all[i].stream);
        test_write(fixture, &block, (unsigned char)(i + 1), all[i].stream);
        copy(fixture, &out[i], &block, all[i].stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        all[i].graph = end(fixture, all[i].stream);
    }
    check_ok(release_pool(pool));
    graph_count -= THREADS; /* the threads destroy them */
    size_t started = 0;
    while (started < THREADS && pthread_create(&threads[started], NULL, launch_often, &all[started]) == 0)
        started++;
    for (size_t i = 0; i < started; i++)
        pthread_join(threads[i], NULL); /* all of them, before a check can leave */
    assert_int_equal(started, THREADS);
    for (size_t i = 0; i < THREADS; i++) {
        if (!all[i].destroyed)
            graphs[graph_count++] = all[i].graph;
    }
    for (size_t i = 0; i < THREADS; i++) {
        check_ok(all[i].status);
        check_value(fixture, &out[i], (unsigned char)(i + 1), all[i].stream);
        test_free_on(fixture, &out[i], all[i].stream);
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_graph_does_at_each_launch_what_was_captured),
        TEST_CASE(a_graph_is_uploaded_once),
        TEST_CASE(a_launch_waits_for_earlier_uses_and_later_ones_wait_for_it),
        TEST_CASE(streams_of_a_capture_are_ordered_by_their_uses),
        TEST_CASE(the_free_of_a_block_that_a_graph_uses_waits_for_the_graphs_end),
        TEST_CASE(the_free_of_a_block_that_a_graph_uses_is_refused_if_the_graph_says_so),
        TEST_CASE(a_graph_is_destroyed_while_a_launch_is_in_flight),
        TEST_CASE(a_launch_in_a_capture_names_references_and_the_graph_holds_them),
        TEST_CASE(a_refused_launch_is_logged_while_other_threads_launch_the_graph),
        TEST_CASE(a_graph_of_an_earlier_generation_is_stale),
        TEST_CASE(a_runtime_with_graphs_is_not_destroyed),
        TEST_CASE(the_process_counts_captures_graphs_and_launches),
        TEST_CASE(print_says_what_a_graph_has),
        TEST_CASE(graphs_that_share_memory_are_launched_and_destroyed_by_several_threads),
    };
    return run_graph_cases(cases, sizeof cases / sizeof cases[0]);
}
