/* Changing graphs: by another capture, and node by node. */
#include <string.h>

#include "support/beside.h"
#include "support/faults.h"
#include "support/graphs.h"
#include "support/sweep.h"

/* ---- by another capture ---- */

static void an_update_puts_another_capture_into_the_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, BYTES, stream), second = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    begin(fixture, stream, NULL);
    test_write(fixture, &first, 0x11, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &first, 0x11, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first)); /* the graph uses it, so far */
    assert_int_equal(live_blocks(fixture), before);
    begin(fixture, stream, NULL);
    test_write(fixture, &second, 0x22, stream);
    strata_graph_update_info info = {.result = STRATA_GRAPH_NODE_REFUSED};
    strata_graph *instead = graph;
    const strata_status updated = strata_graph_update(graph, stream, &info, &instead);
    forget_capture(stream);
    if (instead)
        graphs[graph_count++] = instead;
    check_ok(updated);
    assert_int_equal(info.result, STRATA_GRAPH_UPDATED);
    assert_null(instead);
    assert_int_equal(live_blocks(fixture), before - 1);
    CUstream writer = test_stream(fixture, TEST_STREAM_UNKNOWN);
    for (int i = 0; i < 2; i++) {
        test_write(fixture, &second, 0x01, writer); /* the launch waits for it */
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &second, 0x22, writer);
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &second, stream);
}

static void an_update_uses_the_memory_of_the_graphs_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block out = test_allocate(fixture, BYTES, stream);
    strata_graph *graph = NULL;
    for (unsigned char value = 1; value <= 4; value++) {
        begin(fixture, stream, graph ? strata_graph_pool(graph) : NULL);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, value, stream);
        copy(fixture, &out, &block, stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        if (!graph) {
            graph = end(fixture, stream);
        } else {
            check_ok(strata_graph_update(graph, stream, NULL, NULL));
            forget_capture(stream);
        }
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &out, value, stream);
    }
    strata_capture_pool_usage usage;
    check_ok(strata_capture_pool_get_usage(strata_graph_pool(graph), &usage));
    assert_true(usage.reserved <= 2U << 20); /* one segment for all of them */
    begin(fixture, stream, NULL);
    strata_block foreign = test_allocate(fixture, BYTES, stream);
    check_status(strata_graph_update(graph, stream, NULL, NULL), STRATA_ERROR_INVALID_VALUE);
    assert_true(strata_is_stream_capturing(fixture->runtime, stream)); /* the capture is left as it was */
    check_ok(strata_runtime_deallocate(fixture->runtime, &foreign));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_ok(strata_graph_launch(graph, stream));
    check_ok(destroy(graph));
    test_free_on(fixture, &out, stream);
}

static void an_update_that_the_driver_refuses_changes_nothing_and_gives_a_graph_instead(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), other = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x11, stream);
    strata_graph *graph = end(fixture, stream);
    for (int keeps = 0; keeps < 2; keeps++) {
        begin(fixture, stream, NULL);
        test_write(fixture, &other, 0x22, stream);
        copy(fixture, &block, &other, stream); /* a node more */
        strata_graph_update_info info;
        strata_graph *instead = NULL;
        const strata_status updated = strata_graph_update(graph, stream, &info, keeps ? &instead : NULL);
        forget_capture(stream);
        if (instead)
            graphs[graph_count++] = instead;
        check_status(updated, STRATA_ERROR_DRIVER);
        assert_int_equal(info.result, STRATA_GRAPH_TOPOLOGY_CHANGED);
        assert_false(strata_is_stream_capturing(fixture->runtime, stream));
        assert_true((instead != NULL) == (keeps != 0));
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &block, 0x11, stream);
        if (!instead)
            continue;
        check_ok(strata_graph_launch(instead, stream));
        check_value(fixture, &block, 0x22, stream);
        check_ok(destroy(instead));
    }
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &other, stream);
}

static void a_graph_that_refuses_frees_refuses_those_of_its_new_blocks(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, BYTES, stream), second = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    test_write(fixture, &first, 0x11, stream);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_refuse_frees(graph, true));
    check_status(strata_runtime_deallocate(fixture->runtime, &first), STRATA_ERROR_BLOCK_IN_USE);
    begin(fixture, stream, NULL);
    test_write(fixture, &second, 0x22, stream);
    check_ok(strata_graph_update(graph, stream, NULL, NULL));
    forget_capture(stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    check_status(strata_runtime_deallocate(fixture->runtime, &second), STRATA_ERROR_BLOCK_IN_USE);
    check_ok(destroy(graph));
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
}

/* ---- node by node ---- */

static CUDA_MEMSET_NODE_PARAMS fill_of(const strata_block *block, unsigned char value)
{
    return (CUDA_MEMSET_NODE_PARAMS){
        .dst = block->address, .value = value, .elementSize = 1, .width = BYTES, .height = 1};
}

static CUDA_MEMCPY3D copy_of(const strata_block *to, const strata_block *from)
{
    return (CUDA_MEMCPY3D){.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                           .srcDevice = from->address,
                           .dstMemoryType = CU_MEMORYTYPE_DEVICE,
                           .dstDevice = to->address,
                           .WidthInBytes = BYTES,
                           .Height = 1,
                           .Depth = 1};
}

static void nodes_are_found_at_capture_and_by_number(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), other = test_allocate(fixture, BYTES, stream);
    CUgraphNode fill, copied, node;
    CUgraphNodeType type;
    check_status(strata_capture_last_node(fixture->runtime, stream, &node), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, stream, NULL);
    check_status(strata_capture_last_node(fixture->runtime, stream, &node), STRATA_ERROR_INVALID_VALUE);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &fill));
    copy(fixture, &other, &block, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &copied));
    strata_graph *graph = end(fixture, stream);
    size_t found = 0;
    for (size_t i = 0; i < 2; i++) {
        check_ok(strata_graph_node_at(graph, i, &node, &type));
        found += node == fill && type == CU_GRAPH_NODE_TYPE_MEMSET;
        found += node == copied && type == CU_GRAPH_NODE_TYPE_MEMCPY;
    }
    assert_int_equal(found, 2);
    check_status(strata_graph_node_at(graph, 2, &node, &type), STRATA_ERROR_INVALID_VALUE);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &other, stream);
}

static void a_changed_node_uses_the_blocks_that_are_named_with_the_change(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), beside = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block from = test_allocate(fixture, BYTES, stream), to = test_allocate(fixture, BYTES, stream);
    strata_block more = test_allocate(fixture, BYTES, stream);
    CUgraphNode fill, copied;
    begin(fixture, stream, NULL);
    test_write(fixture, &from, 0x11, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &fill));
    copy(fixture, &to, &from, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &copied));
    strata_graph *graph = end(fixture, stream);
    const CUDA_MEMSET_NODE_PARAMS value = fill_of(&from, 0x22);
    check_ok(strata_graph_set_fill(graph, fill, &value, NULL, 0));
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &to, 0x22, beside);
    const strata_graph_block uses[] = {{&from, STRATA_ACCESS_READ}, {&more, STRATA_ACCESS_WRITE}};
    const CUDA_MEMCPY3D elsewhere = copy_of(&more, &from);
    check_ok(strata_graph_set_copy(graph, copied, &elsewhere, uses, 2));
    for (int i = 0; i < 2; i++) {
        test_write(fixture, &more, 0x01, beside); /* the launch waits for it, and the read for the launch */
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &more, 0x22, beside);
    }
    const size_t before = live_blocks(fixture);
    check_ok(strata_runtime_deallocate(fixture->runtime, &more));
    assert_int_equal(live_blocks(fixture), before); /* the graph keeps it */
    check_ok(destroy(graph));
    assert_int_equal(live_blocks(fixture), before - 1);
    test_free_on(fixture, &from, stream);
    test_free_on(fixture, &to, beside);
}

static void a_refused_change_is_logged_while_other_threads_launch_the_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    CUgraphNode node;
    test_beside beside;
    if (test_is_swept())
        return;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &node));
    test_launch self = {end(fixture, stream), other};
    const strata_graph_block use = {&block, STRATA_ACCESS_WRITE};
    const CUDA_MEMCPY3D copying = copy_of(&block, &block);
    test_beside_begin(&beside, test_launch_beside, &self);
    const strata_status changed = strata_graph_set_copy(self.graph, node, &copying, &use, 1); /* it is a fill */
    assert_true(test_beside_end(&beside));
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    test_write(fixture, &block, 0x33, stream); /* a node more */
    test_beside_begin(&beside, test_launch_beside, &self);
    const strata_status updated = strata_graph_update(self.graph, stream, NULL, NULL);
    forget_capture(stream);
    assert_true(test_beside_end(&beside));
    assert_true(changed != STRATA_SUCCESS);
    check_status(updated, STRATA_ERROR_DRIVER);
    check_value(fixture, &block, 0x11, other);
    check_ok(destroy(self.graph));
    test_free_on(fixture, &block, stream);
}

static void a_change_that_is_refused_changes_nothing(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), other = test_allocate(fixture, BYTES, stream);
    CUgraphNode node;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x11, stream);
    check_ok(strata_capture_last_node(fixture->runtime, stream, &node));
    strata_graph *graph = end(fixture, stream);
    const strata_graph_block use = {&other, STRATA_ACCESS_WRITE};
    const CUDA_MEMCPY3D copying = copy_of(&other, &block);
    const CUDA_MEMSET_NODE_PARAMS filling = fill_of(&other, 0x22);
    assert_true(strata_graph_set_copy(graph, node, &copying, &use, 1) != STRATA_SUCCESS); /* it is a fill */
    check_status(strata_graph_set_fill(graph, NULL, &filling, &use, 1), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_graph_set_fill(graph, node, NULL, &use, 1), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_graph_set_fill(graph, node, &filling, &(strata_graph_block){&other, STRATA_ACCESS_NONE}, 1),
                 STRATA_ERROR_INVALID_VALUE);
    const size_t before = live_blocks(fixture);
    check_ok(strata_runtime_deallocate(fixture->runtime, &other)); /* the graph does not keep it */
    assert_int_equal(live_blocks(fixture), before - 1);
    check_status(strata_graph_set_fill(graph, node, &filling, &use, 1), STRATA_ERROR_USE_AFTER_FREE);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x11, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(an_update_puts_another_capture_into_the_graph),
        TEST_CASE(an_update_uses_the_memory_of_the_graphs_pool),
        TEST_CASE(an_update_that_the_driver_refuses_changes_nothing_and_gives_a_graph_instead),
        TEST_CASE(a_graph_that_refuses_frees_refuses_those_of_its_new_blocks),
        TEST_CASE(nodes_are_found_at_capture_and_by_number),
        TEST_CASE(a_changed_node_uses_the_blocks_that_are_named_with_the_change),
        TEST_CASE(a_refused_change_is_logged_while_other_threads_launch_the_graph),
        TEST_CASE(a_change_that_is_refused_changes_nothing),
    };
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async", "direct", "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool", "aligned, async",
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
