/* Graphs of the simulated driver, under each policy of its scheduler: the order of their nodes, launches beside each
 * other, changes to what is launched next, and what ends with a graph. */
#include "support/sim_graph_nodes.h"

#include <unistd.h>

static CUgraphNode add_host(CUgraph graph, CUgraphNode after, CUhostFn function, void *data)
{
    CUDA_HOST_NODE_PARAMS params = {.fn = function, .userData = data};
    CUgraphNode node;
    OK(p_cuGraphAddHostNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &params));
    return node;
}

/* ---- order ---- */

static void long_chain(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(2);
    CUgraph graph = new_graph();
    CUgraphNode node = NULL;
    for (unsigned i = 0; i < 200; i++) {
        node = add_fill(graph, node, memory, i);
        node = add_copy(graph, node, memory + 1, memory);
    }
    CUgraphExec exec = instantiate(graph, 0);
    run(exec, stream);
    assert_int_equal(byte_at(memory + 1), 199);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void edges_hold_whatever_the_scheduler_picks(void **state)
{
    (void)state;
    under_all_policies(long_chain);
}

/* Which of two nodes without an edge wins, by the seed. */
static unsigned char last_writer(uint64_t seed, bool edge)
{
    OK(p_set_seed(seed));
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(1);
    CUgraph graph = new_graph();
    CUgraphNode first = add_fill(graph, NULL, memory, 1);
    add_fill(graph, edge ? first : NULL, memory, 2);
    CUgraphExec exec = instantiate(graph, 0);
    run(exec, stream);
    unsigned char byte = byte_at(memory);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
    return byte;
}

static void nodes_without_an_edge_run_in_any_order(void **state)
{
    (void)state;
    unsigned seen[3] = {0, 0, 0};
    OK(p_set_policy(STRATA_SIM_RANDOM));
    test_sim_begin();
    for (uint64_t seed = 0; seed < 100; seed++) {
        seen[last_writer(seed, false)]++;
        assert_int_equal(last_writer(seed, true), 2);
    }
    assert_true(seen[1] > 10);
    assert_true(seen[2] > 10);
    test_sim_forget_reports();
    test_sim_end();
}

static void nested(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(3);
    CUgraph graph = new_graph();
    CUgraph child = new_graph();
    CUgraphNode inner = add_copy(child, NULL, memory + 1, memory);
    add_copy(child, inner, memory + 2, memory + 1);
    CUgraphNode before = add_fill(graph, NULL, memory, 5);
    CUgraphNode node;
    OK(p_cuGraphAddChildGraphNode(&node, graph, &before, 1, child));
    add_fill(graph, node, memory + 1, 6);
    add_fill(graph, node, memory, 7);
    CUgraphExec exec = instantiate(graph, 0);
    OK(p_cuGraphDestroy(child));
    OK(p_cuGraphDestroy(graph));
    run(exec, stream);
    assert_int_equal(byte_at(memory), 7);
    assert_int_equal(byte_at(memory + 1), 6);
    assert_int_equal(byte_at(memory + 2), 5);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void a_graph_in_a_node_runs_between_its_neighbours(void **state)
{
    (void)state;
    under_all_policies(nested);
}

static void rows(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(4096);
    CUgraph graph = new_graph();
    CUDA_MEMCPY3D params = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = memory,
        .srcXInBytes = 1,
        .srcPitch = 16,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = memory + 2048,
        .dstPitch = 4,
        .WidthInBytes = 2,
        .Height = 3,
        .Depth = 1,
    };
    CUDA_MEMSET_NODE_PARAMS fill = a_fill(memory + 16, 6);
    fill.width = 3;
    fill.height = 2;
    fill.pitch = 16;
    CUgraphNode first;
    CUgraphNode second;
    OK(p_cuMemsetD8(memory, 1, 4096));
    OK(p_cuCtxSynchronize());
    OK(p_cuGraphAddMemsetNode(&first, graph, NULL, 0, &fill, NULL));
    OK(p_cuGraphAddMemcpyNode(&second, graph, &first, 1, &params, NULL));
    CUgraphExec exec = instantiate(graph, 0);
    run(exec, stream);
    static const unsigned char expected[] = {1, 1, 1, 1, 6, 6, 1, 1, 6, 6, 1, 1};
    unsigned char found[sizeof expected];
    OK(p_cuMemcpyDtoH(found, memory + 2048, sizeof found));
    assert_memory_equal(found, expected, sizeof expected);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void rows_are_copied_and_filled_with_what_lies_between_left_alone(void **state)
{
    (void)state;
    under_all_policies(rows);
}

/* ---- launches ---- */

/* The second launch finds what the first one left, although nothing orders their streams. */
static void two_launches(void)
{
    CUstream first = new_stream();
    CUstream second = new_stream();
    CUdeviceptr memory = new_memory(2);
    CUgraph graph = new_graph();
    struct gate gate;
    CUgraphNode node = add_copy(graph, NULL, memory + 1, memory);
    add_fill(graph, node, memory, 4);
    CUgraphExec exec = instantiate(graph, 0);
    OK(p_cuMemsetD8(memory, 3, 1));
    OK(p_cuCtxSynchronize());
    shut(&gate, first);
    OK(p_cuGraphLaunch(exec, first));
    OK(p_cuGraphLaunch(exec, second));
    assert_int_equal(p_cuStreamQuery(second), CUDA_ERROR_NOT_READY);
    OK(p_cuGraphExecDestroy(exec)); /* what is launched runs on */
    OK(p_cuGraphDestroy(graph));
    let_go(&gate);
    OK(p_cuStreamSynchronize(second));
    assert_int_equal(byte_at(memory + 1), 4);
    OK(p_cuStreamSynchronize(first));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(first));
    OK(p_cuStreamDestroy(second));
}

static void launches_of_one_graph_follow_each_other(void **state)
{
    (void)state;
    under_all_policies(two_launches);
}

static void changed_while_running(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(2);
    CUgraph graph = new_graph();
    struct gate gate;
    CUgraphNode fill = add_fill(graph, NULL, memory, 1);
    CUgraphExec exec = instantiate(graph, 0);
    CUDA_MEMSET_NODE_PARAMS params = a_fill(memory + 1, 2);
    OK(p_cuMemsetD8(memory, 0, 2));
    OK(p_cuCtxSynchronize());
    shut(&gate, stream);
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuGraphExecMemsetNodeSetParams(exec, fill, &params, NULL));
    let_go(&gate);
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(byte_at(memory), 1);
    assert_int_equal(byte_at(memory + 1), 0);
    run(exec, stream);
    assert_int_equal(byte_at(memory + 1), 2);
    OK(p_cuGraphNodeSetEnabled(exec, fill, 0));
    OK(p_cuMemsetD8(memory, 9, 2));
    run(exec, stream);
    assert_int_equal(byte_at(memory + 1), 9);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void a_change_is_for_later_launches_alone(void **state)
{
    (void)state;
    under_all_policies(changed_while_running);
}

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".visible .entry test_put(.param .u64 address, .param .u8 value)\n{\n ret;\n}\n";

static void put(strata_sim_launch *launch)
{
    CUdeviceptr address;
    memcpy(&address, launch->parameters[0], sizeof address);
    if (launch->declare_write(launch, address, 1))
        memcpy(launch->write(launch, address, 1), launch->parameters[1], 1);
}

static void kernels(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(1);
    CUmodule module;
    CUfunction function;
    OK(p_cuModuleLoadData(&module, ptx));
    OK(p_cuModuleGetFunction(&function, module, "test_put"));
    unsigned char value = 3;
    void *parameters[] = {&memory, &value};
    CUDA_KERNEL_NODE_PARAMS params = {.func = function,
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 1,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = parameters};
    CUgraph graph = new_graph();
    CUgraph clone;
    CUgraphNode node;
    OK(p_cuGraphAddKernelNode(&node, graph, NULL, 0, &params));
    value = 4; /* the values are copied when the node is made */
    OK(p_cuGraphClone(&clone, graph));
    OK(p_cuGraphDestroy(graph));
    CUgraphExec exec = instantiate(clone, 0);
    size_t count = 1;
    OK(p_cuGraphGetNodes(clone, &node, &count));
    run(exec, stream);
    assert_int_equal(byte_at(memory), 3);
    OK(p_cuGraphExecKernelNodeSetParams(exec, node, &params));
    value = 5;
    run(exec, stream);
    run(exec, stream);
    assert_int_equal(byte_at(memory), 4);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(clone));
    OK(p_cuModuleUnload(module));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void kernels_keep_the_values_they_were_given(void **state)
{
    (void)state;
    OK(p_register_kernel("test_put", put));
    under_all_policies(kernels);
}

/* ---- whole updates ---- */

static CUgraph fill_and_copy(CUdeviceptr memory, unsigned value)
{
    CUgraph graph = new_graph();
    CUgraphNode node = add_fill(graph, NULL, memory, value);
    add_copy(graph, node, memory + 1, memory);
    return graph;
}

static void whole_updates(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(2);
    CUgraph graph = fill_and_copy(memory, 1);
    CUgraph other = fill_and_copy(memory, 2);
    CUgraph longer = fill_and_copy(memory, 3);
    CUgraphExecUpdateResultInfo info;
    add_fill(longer, NULL, memory, 4);
    CUgraphExec exec = instantiate(graph, 0);
    OK(p_cuGraphExecUpdate(exec, other, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    run(exec, stream);
    assert_int_equal(byte_at(memory + 1), 2);
    assert_int_equal(p_cuGraphExecUpdate(exec, longer, &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_TOPOLOGY_CHANGED);
    run(exec, stream);
    assert_int_equal(byte_at(memory + 1), 2);
    OK(p_cuGraphExecUpdate(exec, graph, NULL));
    run(exec, stream);
    assert_int_equal(byte_at(memory + 1), 1);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuGraphDestroy(other));
    OK(p_cuGraphDestroy(longer));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void an_update_takes_all_of_another_graph_or_nothing(void **state)
{
    (void)state;
    under_all_policies(whole_updates);
}

/* ---- events ---- */

static void event_nodes(void)
{
    CUstream stream = new_stream();
    CUstream other = new_stream();
    CUdeviceptr memory = new_memory(2);
    CUevent waited = new_event();
    CUevent recorded = new_event();
    struct gate gate;
    CUgraph graph = new_graph();
    CUgraphNode wait;
    OK(p_cuGraphAddEventWaitNode(&wait, graph, NULL, 0, waited));
    CUgraphNode copy = add_copy(graph, wait, memory + 1, memory);
    CUgraphNode record;
    OK(p_cuGraphAddEventRecordNode(&record, graph, &copy, 1, recorded));
    add_host(graph, record, wait_at, &gate);
    CUgraphExec exec = instantiate(graph, 0);
    assert_int_equal(sem_init(&gate.open, 0, 0), 0);
    OK(p_cuMemsetD8Async(memory, 6, 1, other));
    OK(p_cuEventRecord(waited, other));
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuStreamWaitEvent(other, recorded, 0));
    OK(p_cuMemsetD8Async(memory, 7, 1, other));
    OK(p_cuStreamSynchronize(other)); /* the rest of the graph is behind the gate */
    assert_int_equal(p_cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    let_go(&gate);
    OK(p_cuStreamSynchronize(stream));
    sem_destroy(&gate.open);
    assert_int_equal(byte_at(memory + 1), 6);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(memory));
    OK(p_cuEventDestroy(waited));
    OK(p_cuEventDestroy(recorded));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuStreamDestroy(other));
}

static void event_nodes_order_a_graph_with_streams(void **state)
{
    (void)state;
    under_all_policies(event_nodes);
}

/* ---- user objects ---- */

static void post(void *data)
{
    sem_post(data);
}

static void a_user_object_ends_with_the_last_graph_that_needs_it(void **state)
{
    (void)state;
    sem_t ended;
    int value;
    assert_int_equal(sem_init(&ended, 0, 0), 0);
    OK(p_set_policy(STRATA_SIM_LATE));
    test_sim_begin();
    CUgraph graph = new_graph();
    CUgraph clone;
    CUuserObject object;
    OK(p_cuUserObjectCreate(&object, &ended, post, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(p_cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    OK(p_cuGraphClone(&clone, graph));
    OK(p_cuGraphDestroy(graph));
    CUgraphExec exec = instantiate(clone, 0);
    OK(p_cuGraphDestroy(clone));
    usleep(10000);
    OK(sem_getvalue(&ended, &value));
    assert_int_equal(value, 0);
    OK(p_cuGraphExecDestroy(exec));
    while (sem_wait(&ended) != 0) {
    }
    test_sim_end();
}

static void expect_graphs(uint64_t graphs, uint64_t execs)
{
    strata_sim_accounts accounts;
    OK(p_get_accounts(&accounts));
    assert_int_equal(accounts.graphs, graphs);
    assert_int_equal(accounts.graph_execs, execs);
}

/* What lies in a node goes with the node, and is not counted apart; nor is work that a launch has under way. */
static void graphs_are_counted_until_they_are_destroyed(void **state)
{
    (void)state;
    test_sim_begin();
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(1);
    expect_graphs(0, 0);
    CUgraph child = new_graph();
    CUgraph graph = new_graph();
    CUgraph clone;
    CUgraph captured;
    CUgraphNode node;
    add_fill(child, NULL, memory, 1);
    OK(p_cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    expect_graphs(2, 0);
    OK(p_cuGraphClone(&clone, graph));
    expect_graphs(3, 0);
    CUgraphExec exec = instantiate(graph, 0);
    CUgraphExec other = instantiate(clone, 0);
    expect_graphs(3, 2);
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    expect_graphs(4, 2);
    OK(p_cuStreamEndCapture(stream, &captured));
    expect_graphs(4, 2);
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuGraphExecDestroy(exec));
    expect_graphs(4, 1);
    OK(p_cuGraphDestroy(child));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuGraphDestroy(clone));
    OK(p_cuGraphDestroy(captured));
    expect_graphs(0, 1);
    OK(p_cuGraphExecDestroy(other));
    expect_graphs(0, 0);
    OK(p_cuStreamSynchronize(stream));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

/* A capture that is killed leaves its stream, and no graph. */
static void a_capture_that_dies_takes_its_graph_along(void **state)
{
    (void)state;
    test_sim_begin();
    CUstream stream = new_stream();
    CUgraph graph;
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    expect_graphs(1, 0);
    assert_int_equal(p_cuCtxSynchronize(), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(p_cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    expect_graphs(0, 0);
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

int main(void)
{
    test_graph_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(edges_hold_whatever_the_scheduler_picks),
        cmocka_unit_test(nodes_without_an_edge_run_in_any_order),
        cmocka_unit_test(a_graph_in_a_node_runs_between_its_neighbours),
        cmocka_unit_test(rows_are_copied_and_filled_with_what_lies_between_left_alone),
        cmocka_unit_test(launches_of_one_graph_follow_each_other),
        cmocka_unit_test(a_change_is_for_later_launches_alone),
        cmocka_unit_test(kernels_keep_the_values_they_were_given),
        cmocka_unit_test(an_update_takes_all_of_another_graph_or_nothing),
        cmocka_unit_test(event_nodes_order_a_graph_with_streams),
        cmocka_unit_test(a_user_object_ends_with_the_last_graph_that_needs_it),
        cmocka_unit_test(graphs_are_counted_until_they_are_destroyed),
        cmocka_unit_test(a_capture_that_dies_takes_its_graph_along),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
