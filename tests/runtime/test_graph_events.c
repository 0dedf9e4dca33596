/* What a stack's layers hear of captures and graphs, and under which name. */
#include <string.h>

#include "support/graphs.h"
#include "support/sweep.h"

enum { ROOM = 64 };

static strata_log_record records[ROOM];

/* Of graphs, since the last time. */
static size_t take(test_fixture *fixture)
{
    size_t taken, count = 0;
    check_ok(strata_logging_take(strata_stack_top(strata_runtime_stack(fixture->runtime)), records, ROOM, &taken));
    assert_true(taken < ROOM);
    for (size_t i = 0; i < taken; i++)
        if (records[i].kind > STRATA_LOG_SYNCHRONIZE)
            records[count++] = records[i];
    return count;
}

static void check_record(const strata_log_record *record, strata_log_kind kind, strata_status status, const char *name,
                         CUstream stream)
{
    assert_int_equal(record->kind, kind);
    assert_int_equal(record->status, status);
    assert_string_equal(strata_tag_name(record->tag), name);
    assert_true(record->stream == (uint64_t)(uintptr_t)stream);
    assert_int_equal(record->address, 0);
    assert_int_equal(record->generation, 0);
}

static uint64_t value(test_fixture *fixture, const char *name)
{
    uint64_t read;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), name, &read, NULL));
    return read;
}

/* A graph that fills the block by way of memory of its pool. */
static void submit(test_fixture *fixture, const strata_block *block, CUstream stream)
{
    strata_block scratch = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &scratch, 0x11, stream);
    copy(fixture, block, &scratch, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &scratch));
}

static void each_call_is_on_record_with_the_graphs_name(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    check_ok(strata_capture_set_name(fixture->runtime, stream, "decode"));
    submit(fixture, &block, stream);
    strata_graph *graph = end(fixture, stream);
    assert_string_equal(strata_graph_name(graph), "decode");
    check_ok(strata_graph_upload(graph, other));
    check_ok(strata_graph_upload(graph, other)); /* does nothing */
    check_ok(strata_graph_launch(graph, other));
    begin(fixture, stream, strata_graph_pool(graph));
    submit(fixture, &block, stream);
    check_ok(strata_graph_update(graph, stream, NULL, NULL));
    forget_capture(stream);
    check_ok(strata_graph_launch(graph, stream));

    assert_int_equal(take(fixture), 5);
    check_record(&records[0], STRATA_LOG_CAPTURE, STRATA_SUCCESS, "decode", stream);
    check_record(&records[1], STRATA_LOG_UPLOAD, STRATA_SUCCESS, "decode", other);
    check_record(&records[2], STRATA_LOG_LAUNCH, STRATA_SUCCESS, "decode", other);
    check_record(&records[3], STRATA_LOG_UPDATE, STRATA_SUCCESS, "decode", stream);
    check_record(&records[4], STRATA_LOG_LAUNCH, STRATA_SUCCESS, "decode", stream);
    for (size_t i = 0; i < 5; i++) {
        assert_int_equal(records[i].requested, strata_graph_node_count(graph));
        assert_true(records[i].bytes >= BYTES);
    }
    assert_int_equal(value(fixture, "statistics.graphs.captures"), 1);
    assert_int_equal(value(fixture, "statistics.graphs.uploads"), 1);
    assert_int_equal(value(fixture, "statistics.graphs.launches"), 2);
    assert_int_equal(value(fixture, "statistics.graphs.updates"), 1);
    assert_int_equal(value(fixture, "statistics.graphs.failures"), 0);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

/* Calls the driver's cuGraphLaunch, or fails. */
static bool launches_fail;
static CUresult (*real_launch)(CUgraphExec exec, CUstream stream);

static CUresult launch_or_fail(CUgraphExec exec, CUstream stream)
{
    return launches_fail ? CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES : real_launch(exec, stream);
}

static void failures_are_on_record(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), beside = test_allocate(fixture, BYTES, stream);
    strata_capture_pool *pool = make_pool(fixture);
    strata_graph *graph;
    begin(fixture, stream, pool);
    test_order_after(fork, stream); /* is never joined */
    test_write(fixture, &beside, 0x11, fork);
    test_write(fixture, &block, 0x12, stream);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    forget_capture(stream);

    begin(fixture, stream, pool);
    submit(fixture, &block, stream);
    graph = end(fixture, stream);
    begin(fixture, stream, pool);
    submit(fixture, &block, stream);
    test_write(fixture, &block, 0x13, stream); /* a node more */
    strata_graph *instead;
    check_status(strata_graph_update(graph, stream, NULL, &instead), STRATA_ERROR_DRIVER);
    forget_capture(stream);
    graphs[graph_count++] = instead;

    real_launch = strata_cu.GraphLaunch;
    strata_cu.GraphLaunch = launch_or_fail;
    launches_fail = true;
    const strata_status launched = strata_graph_launch(graph, stream);
    launches_fail = false;
    strata_cu.GraphLaunch = real_launch;
    check_status(launched, STRATA_ERROR_DRIVER);

    assert_int_equal(take(fixture), 5);
    check_record(&records[0], STRATA_LOG_CAPTURE, STRATA_ERROR_STREAM_CAPTURE, "a test's", stream);
    assert_int_equal(records[0].requested, 0);
    check_record(&records[1], STRATA_LOG_CAPTURE, STRATA_SUCCESS, "a test's", stream);
    check_record(&records[2], STRATA_LOG_CAPTURE, STRATA_SUCCESS, "a test's", stream); /* instead */
    check_record(&records[3], STRATA_LOG_UPDATE, STRATA_ERROR_DRIVER, "a test's", stream);
    check_record(&records[4], STRATA_LOG_LAUNCH, STRATA_ERROR_DRIVER, "a test's", stream);
    assert_int_equal(value(fixture, "statistics.graphs.captures"), 2);
    assert_int_equal(value(fixture, "statistics.graphs.launches"), 0);
    assert_int_equal(value(fixture, "statistics.graphs.failures"), 3);
    check_ok(destroy(graph));
    check_ok(destroy(instead));
    check_ok(release_pool(pool));
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &beside, stream);
}

static void calls_on_a_stale_graph_are_on_record(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    check_ok(strata_capture_set_name(fixture->runtime, stream, "old"));
    test_write(fixture, &block, 0x21, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
    check_status(strata_graph_upload(graph, stream), STRATA_ERROR_STALE);
    check_status(strata_graph_launch(graph, stream), STRATA_ERROR_STALE);
    check_status(strata_graph_update(graph, stream, NULL, NULL), STRATA_ERROR_STALE);
    check_status(strata_graph_launch(NULL, stream), STRATA_ERROR_INVALID_VALUE);

    assert_int_equal(take(fixture), 4);
    check_record(&records[1], STRATA_LOG_UPLOAD, STRATA_ERROR_STALE, "old", stream);
    check_record(&records[2], STRATA_LOG_LAUNCH, STRATA_ERROR_STALE, "old", stream);
    check_record(&records[3], STRATA_LOG_UPDATE, STRATA_ERROR_STALE, "old", stream);
    assert_int_equal(value(fixture, "statistics.graphs.failures"), 3);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static bool has_tag;

static void look_for_tag(const strata_block *block, void *data)
{
    has_tag |= strcmp(strata_tag_name(block->tag), data) == 0;
}

static bool lives_with_tag(test_fixture *fixture, const char *name)
{
    has_tag = false;
    check_ok(strata_stack_visit_blocks(strata_runtime_stack(fixture->runtime), look_for_tag, (void *)(uintptr_t)name));
    return has_tag;
}

static void the_name_is_the_tag_of_a_private_pools_memory(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    char long_name[300];
    memset(long_name, 'x', sizeof long_name);
    long_name[sizeof long_name - 1] = '\0';
    check_status(strata_capture_set_name(fixture->runtime, stream, "early"), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, stream, NULL);
    check_status(strata_capture_set_name(fixture->runtime, stream, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_set_name(fixture->runtime, stream, long_name), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_capture_set_name(fixture->runtime, stream, "step 17"));
    submit(fixture, &block, stream);
    strata_graph *graph = end(fixture, stream);
    assert_true(lives_with_tag(fixture, "step 17"));
    check_ok(destroy(graph));

    begin(fixture, stream, NULL);
    check_ok(strata_capture_set_name(fixture->runtime, stream, "one"));
    submit(fixture, &block, stream);
    graph = end(fixture, stream);
    begin(fixture, stream, strata_graph_pool(graph)); /* which another graph has */
    check_ok(strata_capture_set_name(fixture->runtime, stream, "two"));
    strata_block large = test_allocate(fixture, 4 << 20, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &large));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    assert_false(lives_with_tag(fixture, "two"));
    check_ok(destroy(graph));

    strata_capture_pool *pool = make_pool(fixture); /* keeps its name */
    begin(fixture, stream, pool);
    check_ok(strata_capture_set_name(fixture->runtime, stream, "step 18"));
    submit(fixture, &block, stream);
    graph = end(fixture, stream);
    assert_string_equal(strata_graph_name(graph), "step 18");
    assert_false(lives_with_tag(fixture, "step 18"));
    assert_true(lives_with_tag(fixture, "a test's"));
    assert_null(strata_graph_name(NULL));
    check_ok(destroy(graph));
    check_ok(release_pool(pool));
    test_free_on(fixture, &block, stream);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(each_call_is_on_record_with_the_graphs_name),
        TEST_CASE(failures_are_on_record),
        TEST_CASE(calls_on_a_stale_graph_are_on_record),
        TEST_CASE(the_name_is_the_tag_of_a_private_pools_memory),
    };
    static const char *const stacks[] = {"logging(format=memory), statistics, pool",
                                         "logging(format=memory, duration=on), budget(limit=4GiB), statistics, async"};
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
