/* Memory of graphs of the simulated driver, under each policy of its scheduler: its life, what having it forbids, and
 * what lies behind launches. */
#include "support/sim_graph_nodes.h"

static CUgraphNode add_allocation(CUgraph graph, CUgraphNode after, size_t bytes, CUdeviceptr *address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {
        .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
        .bytesize = bytes,
    };
    CUgraphNode node;
    OK(p_cuGraphAddMemAllocNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &params));
    *address = params.dptr;
    return node;
}

static CUgraphNode add_free(CUgraph graph, CUgraphNode after, CUdeviceptr address)
{
    CUgraphNode node;
    OK(p_cuGraphAddMemFreeNode(&node, graph, after ? &after : NULL, after ? 1 : 0, address));
    return node;
}

/* ---- allocation and free nodes ---- */

/* Allocated by a launch, used by a stream, freed by that stream, and allocated again by the next launch, which must not
 * begin to write before the free. */
static void freed_by_a_stream(void)
{
    CUstream stream = new_stream();
    CUstream other = new_stream();
    CUdeviceptr result = new_memory(3);
    CUdeviceptr address;
    CUevent event = new_event();
    CUgraph graph = new_graph();
    CUgraphNode node = add_allocation(graph, NULL, 100, &address);
    add_fill(graph, node, address + 99, 2);
    CUgraphExec exec = instantiate(graph, 0);
    for (unsigned i = 0; i < 3; i++) {
        OK(p_cuGraphLaunch(exec, stream));
        OK(p_cuEventRecord(event, stream));
        OK(p_cuStreamWaitEvent(other, event, 0));
        OK(p_cuMemcpyDtoDAsync(result + i, address + 99, 1, other));
        OK(p_cuMemsetD8Async(address, 9, 100, other));
        OK(p_cuMemFreeAsync(address, other));
    }
    OK(p_cuStreamSynchronize(other));
    OK(p_cuStreamSynchronize(stream));
    for (unsigned i = 0; i < 3; i++)
        assert_int_equal(byte_at(result + i), 2);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(result));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuStreamDestroy(other));
}

static void a_launch_takes_its_address_back_only_after_the_free(void **state)
{
    (void)state;
    under_all_policies(freed_by_a_stream);
}

static void freed_by_a_graph(void)
{
    CUstream stream = new_stream();
    CUdeviceptr kept = new_memory(1);
    CUdeviceptr address;
    CUgraph making = new_graph();
    CUgraph ending = new_graph();
    CUgraphNode node = add_allocation(making, NULL, 100, &address);
    add_fill(making, node, address, 5);
    node = add_copy(ending, NULL, kept, address);
    add_free(ending, node, address);
    CUgraphExec maker = instantiate(making, 0);
    CUgraphExec ender = instantiate(ending, 0);
    assert_int_equal(p_cuGraphLaunch(ender, stream), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 3; i++) {
        OK(p_cuGraphLaunch(maker, stream));
        OK(p_cuGraphLaunch(ender, stream));
        assert_int_equal(p_cuMemFreeAsync(address, stream), CUDA_ERROR_INVALID_VALUE);
    }
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(byte_at(kept), 5);
    OK(p_cuGraphLaunch(maker, stream));
    OK(p_cuGraphExecDestroy(maker));
    OK(p_cuGraphExecDestroy(ender));
    OK(p_cuGraphDestroy(making));
    OK(p_cuGraphDestroy(ending));
    assert_int_equal(byte_at(kept), 5);
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(byte_at(address), 5); /* it outlives its graph */
    OK(p_cuMemFree(address));
    OK(p_cuMemFree(kept));
    OK(p_cuStreamDestroy(stream));
}

static void memory_of_a_graph_is_freed_by_another_or_outlives_both(void **state)
{
    (void)state;
    under_all_policies(freed_by_a_graph);
}

static void addresses_in_a_graph(void)
{
    CUstream stream = new_stream();
    CUdeviceptr kept = new_memory(2);
    CUdeviceptr first;
    CUdeviceptr second;
    CUdeviceptr beside;
    CUgraph graph = new_graph();
    CUgraphNode node = add_allocation(graph, NULL, 4096, &first);
    CUgraphNode other = add_allocation(graph, node, 4096, &beside);
    node = add_fill(graph, other, first, 1);
    node = add_copy(graph, node, kept, first);
    node = add_free(graph, node, first);
    node = add_allocation(graph, node, 100, &second);
    node = add_fill(graph, node, second, 2);
    node = add_copy(graph, node, kept + 1, second);
    node = add_free(graph, node, second);
    add_free(graph, node, beside);
    assert_int_equal(first, second);
    assert_int_not_equal(first, beside);
    CUgraphExec exec = instantiate(graph, 0);
    OK(p_cuGraphLaunch(exec, stream));
    run(exec, stream);
    assert_int_equal(byte_at(kept), 1);
    assert_int_equal(byte_at(kept + 1), 2);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(kept));
    OK(p_cuStreamDestroy(stream));
}

static void an_address_is_used_again_after_a_free_in_the_graph(void **state)
{
    (void)state;
    under_all_policies(addresses_in_a_graph);
}

/* ---- what having memory forbids: answers as seen on an H200, 2026-11-30 ---- */

static const CUDA_MEM_ALLOC_NODE_PARAMS an_allocation = {
    .poolProps = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED, .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}},
    .bytesize = 100,
};

static CUresult allocate_after_twice_the_same(CUgraph graph, CUgraphNode node, size_t bytes)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = an_allocation;
    params.bytesize = bytes;
    return p_cuGraphAddMemAllocNode(&(CUgraphNode){NULL}, graph, (CUgraphNode[]){node, node}, 2, &params);
}

static void expect_having_memory(CUgraph graph, CUgraphNode node, bool memory)
{
    CUgraph made = NULL;
    CUgraph parent = new_graph();
    CUresult answer = memory ? CUDA_ERROR_NOT_SUPPORTED : CUDA_SUCCESS;
    assert_int_equal(p_cuGraphClone(&made, graph), answer);
    assert_int_equal(p_cuGraphAddChildGraphNode(&(CUgraphNode){NULL}, parent, NULL, 0, graph), answer);
    assert_int_equal(p_cuGraphRemoveDependencies(graph, &node, &node, NULL, 1),
                     memory ? CUDA_ERROR_NOT_SUPPORTED : CUDA_ERROR_INVALID_VALUE);
    if (memory)
        assert_int_equal(p_cuGraphDestroyNode(node), CUDA_ERROR_NOT_SUPPORTED);
    if (made)
        OK(p_cuGraphDestroy(made));
    OK(p_cuGraphDestroy(parent));
}

/* Memory nodes that were refused count, but not an allocation with bad parameters. */
static void a_graph_has_memory_from_the_first_call_that_would_add_it(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUdeviceptr memory = new_memory(1);
    for (int frees = 0; frees < 2; frees++) {
        CUgraph graph = new_graph();
        CUgraphNode node = add_fill(graph, NULL, memory, 1);
        assert_int_equal(allocate_after_twice_the_same(graph, node, 0), CUDA_ERROR_INVALID_VALUE);
        expect_having_memory(graph, node, false);
        CUresult result = frees ? p_cuGraphAddMemFreeNode(&(CUgraphNode){NULL}, graph, NULL, 0, memory)
                                : allocate_after_twice_the_same(graph, node, 100);
        assert_int_equal(result, CUDA_ERROR_INVALID_VALUE);
        expect_having_memory(graph, node, true);
        CUgraphExec exec = instantiate(graph, 0);
        CUgraphExec second;
        assert_int_equal(p_cuGraphInstantiateWithFlags(&second, graph, 0), CUDA_ERROR_NOT_SUPPORTED);
        OK(p_cuGraphExecDestroy(exec));
        OK(p_cuGraphDestroy(graph));
    }
    OK(p_cuMemFree(memory));
    test_sim_end();
}

/* That the child has memory counts before wrong dependencies do, and before that it is the graph itself. */
static void a_child_with_memory_is_refused_before_all_else(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUdeviceptr address;
    CUgraph graph = new_graph();
    CUgraph parent = new_graph();
    CUgraphNode node = add_allocation(graph, NULL, 100, &address);
    CUgraphNode child;
    const CUgraphNode twice[] = {node, node};
    assert_int_equal(p_cuGraphAddChildGraphNode(&child, graph, NULL, 0, graph), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(p_cuGraphAddChildGraphNode(&child, parent, twice, 2, graph), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(p_cuGraphAddChildGraphNode(&child, graph, twice, 2, parent), CUDA_ERROR_INVALID_VALUE);
    /* The H200's driver crashes here. */
    assert_int_equal(p_cuGraphAddChildGraphNode(&child, parent, NULL, 0, parent), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuGraphDestroy(graph));
    OK(p_cuGraphDestroy(parent));
    test_sim_end();
}

/* Once instantiated without a free, the memory is for others to free. */
static void a_graph_does_not_free_what_it_was_instantiated_to_leave(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUdeviceptr first;
    CUdeviceptr second;
    CUgraph graph = new_graph();
    CUgraph other = new_graph();
    CUgraphNode node = add_allocation(graph, NULL, 100, &first);
    CUgraphExec exec = instantiate(graph, 0);
    assert_int_equal(p_cuGraphAddMemFreeNode(&(CUgraphNode){NULL}, graph, &node, 1, first), CUDA_ERROR_INVALID_VALUE);
    add_free(other, NULL, first);
    node = add_allocation(graph, NULL, 100, &second);
    add_free(graph, node, second);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(other));
    OK(p_cuGraphDestroy(graph));
    test_sim_end();
}

/* A graph with memory has one executable graph. An update makes it that of the other graph, with this one's memory. */
static void an_update_takes_over_a_graph_with_memory(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream stream = new_stream();
    CUdeviceptr first;
    CUdeviceptr second;
    CUgraph graph = new_graph();
    CUgraph other = new_graph();
    add_allocation(graph, NULL, 100, &first);
    add_allocation(other, NULL, 5000, &second);
    CUgraphExec exec = instantiate(graph, 0);
    CUgraphExec taken = instantiate(other, 0);
    CUgraphExecUpdateResultInfo info = {.result = CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED};
    OK(p_cuGraphExecUpdate(exec, graph, NULL));
    assert_int_equal(p_cuGraphExecUpdate(exec, other, &info), CUDA_ERROR_NOT_SUPPORTED);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    OK(p_cuGraphExecDestroy(taken));
    OK(p_cuGraphExecUpdate(exec, other, &info));
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_SUCCESS);
    assert_int_equal(p_cuGraphInstantiateWithFlags(&taken, other, 0), CUDA_ERROR_NOT_SUPPORTED);
    run(exec, stream);
    assert_int_equal(p_cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE); /* not freed yet */
    OK(p_cuMemFree(second));
    OK(p_cuGraphExecDestroy(exec));
    taken = instantiate(graph, 0);
    exec = instantiate(other, 0);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphExecDestroy(taken));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuGraphDestroy(other));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuDeviceGraphMemTrim(0));
    test_sim_end();
}

/* A graph with memory is refused as a child's replacement whatever the node is. */
static void a_child_is_not_replaced_by_a_graph_with_memory(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUdeviceptr memory = new_memory(1);
    CUdeviceptr address;
    CUgraph graph = new_graph();
    CUgraph child = new_graph();
    CUgraph with_memory = new_graph();
    CUgraphNode node = add_fill(graph, NULL, memory, 1);
    CUgraphNode embedded;
    OK(p_cuGraphAddChildGraphNode(&embedded, graph, NULL, 0, child));
    add_allocation(with_memory, NULL, 100, &address);
    CUgraphExec exec = instantiate(graph, 0);
    OK(p_cuGraphExecChildGraphNodeSetParams(exec, embedded, child));
    assert_int_equal(p_cuGraphExecChildGraphNodeSetParams(exec, node, child), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuGraphExecChildGraphNodeSetParams(exec, embedded, with_memory),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(p_cuGraphExecChildGraphNodeSetParams(exec, node, with_memory),
                     CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuGraphDestroy(child));
    OK(p_cuGraphDestroy(with_memory));
    OK(p_cuMemFree(memory));
    test_sim_end();
}

/* ---- memory behind launches ---- */

static void freed_by_the_next_launch(void)
{
    CUstream stream = new_stream();
    CUdeviceptr address;
    CUgraph graph = new_graph();
    CUgraphNode node = add_allocation(graph, NULL, 100, &address);
    add_fill(graph, node, address, 8);
    CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    for (int i = 0; i < 4; i++) {
        OK(p_cuGraphLaunch(exec, stream));
        OK(p_cuMemsetD8Async(address, 9, 1, stream));
    }
    run(exec, stream);
    assert_int_equal(byte_at(address), 8);
    OK(p_cuMemFreeAsync(address, stream));
    OK(p_cuStreamSynchronize(stream));
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuStreamDestroy(stream));
}

static void a_launch_that_frees_first_can_be_repeated(void **state)
{
    (void)state;
    under_all_policies(freed_by_the_next_launch);
}

static uint64_t reserved(void)
{
    cuuint64_t bytes;
    OK(p_cuDeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &bytes));
    return bytes;
}

static void graphs_take_turns_with_the_memory_behind_them(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    enum { CHUNK = 32 << 20 };
    CUstream stream = new_stream();
    CUgraph graphs[2];
    CUgraphExec execs[2];
    CUdeviceptr addresses[2];
    for (int i = 0; i < 2; i++) {
        graphs[i] = new_graph();
        add_allocation(graphs[i], NULL, 100, &addresses[i]);
        execs[i] = instantiate(graphs[i], 0);
    }
    assert_int_equal(reserved(), 0);
    for (int i = 0; i < 2; i++) {
        run(execs[i], stream);
        assert_int_equal(reserved(), CHUNK);
        OK(p_cuMemFreeAsync(addresses[i], stream));
    }
    run(execs[0], stream);
    run(execs[1], stream);
    assert_int_equal(reserved(), 2 * CHUNK);
    OK(p_cuMemFree(addresses[0]));
    OK(p_cuDeviceGraphMemTrim(0));
    assert_int_equal(reserved(), CHUNK);
    OK(p_cuMemFree(addresses[1]));
    OK(p_cuDeviceGraphMemTrim(0));
    assert_int_equal(reserved(), 0);
    for (int i = 0; i < 2; i++) {
        OK(p_cuGraphExecDestroy(execs[i]));
        OK(p_cuGraphDestroy(graphs[i]));
    }
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

/* A graph that wants more than the device has is refused as a whole. */
static void a_launch_without_memory_changes_nothing(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    size_t free_bytes;
    size_t total;
    CUstream stream = new_stream();
    CUdeviceptr taken = new_memory(1);
    CUdeviceptr address;
    CUgraph graph = new_graph();
    OK(p_cuMemGetInfo(&free_bytes, &total));
    CUgraphNode node = add_fill(graph, NULL, taken, 7);
    add_allocation(graph, node, free_bytes - (UINT64_C(64) << 20), &address);
    CUgraphExec exec = instantiate(graph, 0);
    CUdeviceptr rest = new_memory(free_bytes / 2);
    OK(p_cuMemsetD8(taken, 1, 1));
    assert_int_equal(p_cuGraphLaunch(exec, stream), CUDA_ERROR_OUT_OF_MEMORY);
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(byte_at(taken), 1);
    assert_int_equal(reserved(), 0);
    OK(p_cuMemFree(rest));
    run(exec, stream);
    assert_int_equal(byte_at(taken), 7);
    OK(p_cuMemFree(address));
    OK(p_cuDeviceGraphMemTrim(0));
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(taken));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

int main(void)
{
    test_graph_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_launch_takes_its_address_back_only_after_the_free),
        cmocka_unit_test(memory_of_a_graph_is_freed_by_another_or_outlives_both),
        cmocka_unit_test(an_address_is_used_again_after_a_free_in_the_graph),
        cmocka_unit_test(a_graph_has_memory_from_the_first_call_that_would_add_it),
        cmocka_unit_test(a_child_with_memory_is_refused_before_all_else),
        cmocka_unit_test(a_graph_does_not_free_what_it_was_instantiated_to_leave),
        cmocka_unit_test(an_update_takes_over_a_graph_with_memory),
        cmocka_unit_test(a_child_is_not_replaced_by_a_graph_with_memory),
        cmocka_unit_test(a_launch_that_frees_first_can_be_repeated),
        cmocka_unit_test(graphs_take_turns_with_the_memory_behind_them),
        cmocka_unit_test(a_launch_without_memory_changes_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
