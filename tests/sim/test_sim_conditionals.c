/* Conditional nodes of the simulated driver, under each policy of its scheduler: which bodies run, how often and in
 * what order, what graphs with such nodes may not do, and what the checker says of them. */
#include "support/sim_graph.h"

#include <unistd.h>

static PFN_cuGraphAddNode_v12030 p_cuGraphAddNode;
static PFN_cuGraphConditionalHandleCreate_v12030 p_cuGraphConditionalHandleCreate;
static PFN_cuGraphInstantiateWithParams_v12000 p_cuGraphInstantiateWithParams;
static PFN_cuStreamUpdateCaptureDependencies_v12030 p_cuStreamUpdateCaptureDependencies;
static PFN_cuGraphDebugDotPrint_v11030 p_cuGraphDebugDotPrint;

/* ---- kernels ---- */

static const char ptx[] = ".version 8.0\n.target sm_90\n.address_size 64\n"
                          ".extern .func cudaGraphSetConditional(.param .b64 handle, .param .b32 value);\n"
                          ".visible .entry test_count_down(.param .u64 handle, .param .u64 counter)\n{\n ret;\n}\n"
                          ".visible .entry test_look(.param .u64 handle, .param .u64 value)\n{\n ret;\n}\n"
                          ".visible .entry test_add(.param .u64 to, .param .u64 from)\n{\n ret;\n}\n";

static uint64_t parameter(const strata_sim_launch *launch, unsigned index)
{
    uint64_t value;
    memcpy(&value, launch->parameters[index], sizeof value);
    return value;
}

/* The byte becomes one less; the condition is whether it is not 0 then. */
static void count_down(strata_sim_launch *launch)
{
    const uint64_t counter = parameter(launch, 1);
    launch->declare_read(launch, counter, 1);
    launch->declare_write(launch, counter, 1);
    unsigned char *byte = launch->write(launch, counter, 1);
    if (byte)
        launch->set_conditional(launch, parameter(launch, 0), --*byte);
}

/* The condition is the byte. */
static void look(strata_sim_launch *launch)
{
    const uint64_t value = parameter(launch, 1);
    launch->declare_read(launch, value, 1);
    const unsigned char *byte = launch->read(launch, value, 1);
    if (byte)
        launch->set_conditional(launch, parameter(launch, 0), *byte);
}

/* Adds one byte to another. */
static void add(strata_sim_launch *launch)
{
    const uint64_t to = parameter(launch, 0), from = parameter(launch, 1);
    launch->declare_read(launch, from, 1);
    launch->declare_read(launch, to, 1);
    launch->declare_write(launch, to, 1);
    const unsigned char *one = launch->read(launch, from, 1);
    unsigned char *sum = launch->write(launch, to, 1);
    if (one && sum)
        *sum = (unsigned char)(*sum + *one);
}

/* ---- graphs ---- */

typedef struct world {
    CUcontext context;
    CUmodule module;
    CUstream stream;
    CUdeviceptr memory; /* 16 bytes of 0 */
    CUgraph graph;
} world;

static world open_world(void)
{
    world made;
    OK(p_cuCtxGetCurrent(&made.context));
    OK(p_cuModuleLoadData(&made.module, ptx));
    made.stream = new_stream();
    made.memory = new_memory(16);
    OK(p_cuMemsetD8(made.memory, 0, 16));
    OK(p_cuCtxSynchronize());
    OK(p_cuGraphCreate(&made.graph, 0));
    return made;
}

static uint64_t reports(void)
{
    uint64_t count;
    OK(p_get_report_count(&count));
    return count;
}

/* What the checker may report, the test has cleared. */
static void close_world(world *one)
{
    assert_int_equal(reports(), 0);
    if (one->graph)
        OK(p_cuGraphDestroy(one->graph));
    OK(p_cuMemFree(one->memory));
    OK(p_cuStreamDestroy(one->stream));
    OK(p_cuModuleUnload(one->module));
}

static CUgraphNode add_kernel(const world *one, CUgraph graph, CUgraphNode after, const char *name, uint64_t first,
                              uint64_t second)
{
    CUgraphNode node;
    CUfunction function;
    void *values[] = {&first, &second};
    OK(p_cuModuleGetFunction(&function, one->module, name));
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_KERNEL};
    params.kernel.func = function;
    params.kernel.gridDimX = params.kernel.gridDimY = params.kernel.gridDimZ = 1;
    params.kernel.blockDimX = params.kernel.blockDimY = params.kernel.blockDimZ = 1;
    params.kernel.kernelParams = values;
    OK(p_cuGraphAddNode(&node, graph, after ? &after : NULL, NULL, after ? 1 : 0, &params));
    return node;
}

static CUgraphNode add_fill(const world *one, CUgraph graph, CUgraphNode after, size_t offset, unsigned value)
{
    CUgraphNode node;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_MEMSET};
    params.memset.dst = one->memory + offset;
    params.memset.value = value;
    params.memset.elementSize = 1;
    params.memset.width = params.memset.height = 1;
    OK(p_cuGraphAddNode(&node, graph, after ? &after : NULL, NULL, after ? 1 : 0, &params));
    return node;
}

static CUgraphConditionalHandle new_condition(const world *one, CUgraph graph, unsigned initial)
{
    CUgraphConditionalHandle handle;
    OK(p_cuGraphConditionalHandleCreate(&handle, graph, one->context, initial, CU_GRAPH_COND_ASSIGN_DEFAULT));
    return handle;
}

static CUgraphNodeParams conditional(const world *one, CUgraphConditionalHandle handle, CUgraphConditionalNodeType type,
                                     unsigned size)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = handle;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = one->context;
    return params;
}

/* bodies: the node's. */
static CUgraphNode add_conditional(const world *one, CUgraph graph, CUgraphNode after, CUgraphConditionalHandle handle,
                                   CUgraphConditionalNodeType type, unsigned size, CUgraph **bodies)
{
    CUgraphNode node;
    CUgraphNodeParams params = conditional(one, handle, type, size);
    OK(p_cuGraphAddNode(&node, graph, after ? &after : NULL, NULL, after ? 1 : 0, &params));
    *bodies = params.conditional.phGraph_out;
    return node;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

static void run(const world *one, CUgraphExec exec)
{
    OK(p_cuGraphLaunch(exec, one->stream));
    OK(p_cuStreamSynchronize(one->stream));
}

static unsigned char at(const world *one, size_t offset)
{
    return byte_at(one->memory + offset);
}

/* ---- which bodies run ---- */

static void an_if(void)
{
    world one = open_world();
    for (unsigned initial = 0; initial < 3; initial++) {
        CUgraph *bodies, graph;
        OK(p_cuGraphCreate(&graph, 0));
        const CUgraphConditionalHandle handle = new_condition(&one, graph, initial);
        CUgraphNode node = add_fill(&one, graph, NULL, 0, 5);
        node = add_conditional(&one, graph, node, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
        add_fill(&one, bodies[0], NULL, 0, 6);
        add_kernel(&one, graph, node, "test_add", one.memory + 1, one.memory);
        CUgraphExec exec = instantiate(graph);
        OK(p_cuMemsetD8(one.memory + 1, 0, 1));
        OK(p_cuCtxSynchronize());
        run(&one, exec);
        assert_int_equal(at(&one, 1), initial ? 6 : 5);
        OK(p_cuGraphExecDestroy(exec));
        OK(p_cuGraphDestroy(graph));
    }
    close_world(&one);
}

static void the_body_of_an_if_runs_if_the_value_is_not_0(void **state)
{
    (void)state;
    under_all_policies(an_if);
}

static void an_else(void)
{
    world one = open_world();
    CUgraph *bodies;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 9);
    CUgraphNode node = add_kernel(&one, one.graph, NULL, "test_look", handle, one.memory + 1);
    add_conditional(&one, one.graph, node, handle, CU_GRAPH_COND_TYPE_IF, 2, &bodies);
    add_fill(&one, bodies[0], NULL, 0, 6);
    add_fill(&one, bodies[1], NULL, 0, 7);
    CUgraphExec exec = instantiate(one.graph);
    for (unsigned char value = 0; value < 3; value++) {
        OK(p_cuMemsetD8(one.memory + 1, value, 1));
        OK(p_cuCtxSynchronize());
        run(&one, exec);
        assert_int_equal(at(&one, 0), value ? 6 : 7);
    }
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
}

static void one_of_two_bodies_runs_by_the_value_that_a_kernel_has_set(void **state)
{
    (void)state;
    under_all_policies(an_else);
}

static void a_switch(void)
{
    world one = open_world();
    CUgraph *bodies;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 0);
    CUgraphNode node = add_kernel(&one, one.graph, NULL, "test_look", handle, one.memory + 1);
    add_conditional(&one, one.graph, node, handle, CU_GRAPH_COND_TYPE_SWITCH, 3, &bodies);
    for (unsigned i = 0; i < 3; i++)
        add_fill(&one, bodies[i], NULL, 0, 10 + i);
    CUgraphExec exec = instantiate(one.graph);
    for (unsigned char value = 0; value < 5; value++) {
        OK(p_cuMemsetD8(one.memory, 99, 1));
        OK(p_cuMemsetD8(one.memory + 1, value, 1));
        OK(p_cuCtxSynchronize());
        run(&one, exec);
        assert_int_equal(at(&one, 0), value < 3 ? 10 + value : 99);
    }
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
}

static void a_switch_runs_the_body_of_its_value_or_none(void **state)
{
    (void)state;
    under_all_policies(a_switch);
}

/* A loop adds byte 2 to byte 1, 200 times; what comes after it finds the sum. */
static void a_loop(void)
{
    world one = open_world();
    CUgraph *bodies;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 1);
    CUgraphNode node = add_fill(&one, one.graph, NULL, 0, 200);
    node = add_fill(&one, one.graph, node, 1, 0);
    node = add_conditional(&one, one.graph, node, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &bodies);
    CUgraphNode inner = add_fill(&one, bodies[0], NULL, 2, 1);
    add_kernel(&one, bodies[0], inner, "test_add", one.memory + 1, one.memory + 2);
    add_kernel(&one, bodies[0], NULL, "test_count_down", handle, one.memory);
    node = add_fill(&one, one.graph, node, 2, 0);
    add_kernel(&one, one.graph, node, "test_add", one.memory + 3, one.memory + 1);
    CUgraphExec exec = instantiate(one.graph);
    run(&one, exec);
    assert_int_equal(at(&one, 1), 200);
    assert_int_equal(at(&one, 3), 200);
    run(&one, exec);
    assert_int_equal(at(&one, 1), 200);
    assert_int_equal(at(&one, 3), (200 + 200) % 256);
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
}

static void a_loop_goes_round_while_the_value_is_not_0(void **state)
{
    (void)state;
    under_all_policies(a_loop);
}

/* A loop of 3 rounds, in each of which an if runs whose condition is of the outer graph, and a loop of 2 rounds. */
static void nested(void)
{
    world one = open_world();
    CUgraph *outer, *loop, *chosen;
    const CUgraphConditionalHandle rounds = new_condition(&one, one.graph, 1),
                                   never = new_condition(&one, one.graph, 0);
    CUgraphNode node = add_fill(&one, one.graph, NULL, 0, 3);
    node = add_fill(&one, one.graph, node, 4, 1);
    add_conditional(&one, one.graph, node, rounds, CU_GRAPH_COND_TYPE_WHILE, 1, &outer);
    const CUgraphConditionalHandle twice = new_condition(&one, outer[0], 0);
    node = add_fill(&one, outer[0], NULL, 5, 2);
    node = add_kernel(&one, outer[0], node, "test_look", twice, one.memory + 5);
    node = add_conditional(&one, outer[0], node, twice, CU_GRAPH_COND_TYPE_WHILE, 1, &loop);
    add_kernel(&one, loop[0], NULL, "test_count_down", twice, one.memory + 5);
    add_kernel(&one, loop[0], NULL, "test_add", one.memory + 6, one.memory + 4);
    node = add_conditional(&one, outer[0], node, never, CU_GRAPH_COND_TYPE_IF, 1, &chosen);
    add_kernel(&one, chosen[0], NULL, "test_add", one.memory + 7, one.memory + 4);
    add_kernel(&one, outer[0], node, "test_count_down", rounds, one.memory);
    CUgraphExec exec = instantiate(one.graph);
    run(&one, exec);
    assert_int_equal(at(&one, 6), 6);
    assert_int_equal(at(&one, 7), 0);
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
}

static void conditional_nodes_may_be_in_bodies(void **state)
{
    (void)state;
    under_all_policies(nested);
}

/* The loop reads a byte that another stream writes: it does not keep that stream from running, nor the host. */
static void waiting(void)
{
    world one = open_world();
    CUgraph *bodies;
    CUstream other = new_stream();
    void *flag;
    CUdeviceptr shared;
    OK(p_cuMemHostAlloc(&flag, 1, CU_MEMHOSTALLOC_DEVICEMAP));
    shared = (CUdeviceptr)(uintptr_t)flag;
    *(volatile unsigned char *)flag = 1;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 1);
    CUgraphNode node = add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &bodies);
    add_kernel(&one, bodies[0], NULL, "test_look", handle, shared);
    add_fill(&one, one.graph, node, 0, 8);
    CUgraphExec exec = instantiate(one.graph);
    OK(p_cuGraphLaunch(exec, one.stream));
    OK(p_cuStreamQuery(other));
    assert_int_equal(p_cuStreamQuery(one.stream), CUDA_ERROR_NOT_READY);
    OK(p_cuMemsetD8Async(shared, 0, 1, other)); /* a race, as far as the checker can tell */
    OK(p_cuStreamSynchronize(one.stream));
    test_sim_forget_reports();
    assert_int_equal(at(&one, 0), 8);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuStreamDestroy(other));
    OK(p_cuMemFreeHost(flag));
    close_world(&one);
}

static void a_loop_without_an_end_keeps_nothing_else_from_running(void **state)
{
    (void)state;
    under_all_policies(waiting);
}

/* What was not set in this launch, and has no default, may be anything. */
static void a_value_that_is_not_defined_is_drawn(void **state)
{
    (void)state;
    unsigned seen[2] = {0, 0};
    OK(p_set_policy(STRATA_SIM_RANDOM));
    test_sim_begin();
    world one = open_world();
    CUgraph *bodies;
    CUgraphConditionalHandle handle;
    OK(p_cuGraphConditionalHandleCreate(&handle, one.graph, one.context, 1, 0));
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    add_fill(&one, bodies[0], NULL, 0, 1);
    CUgraphExec exec = instantiate(one.graph);
    for (uint64_t seed = 0; seed < 40; seed++) {
        OK(p_set_seed(seed));
        OK(p_cuMemsetD8(one.memory, 0, 1));
        OK(p_cuCtxSynchronize());
        run(&one, exec);
        seen[at(&one, 0)]++;
    }
    assert_true(seen[0] > 4 && seen[1] > 4);
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
    test_sim_end();
}

/* Which of two nodes without an edge in a body wins, by the seed. */
static void nodes_of_a_body_run_in_any_order_that_its_edges_allow(void **state)
{
    (void)state;
    unsigned seen[3] = {0, 0, 0};
    OK(p_set_policy(STRATA_SIM_RANDOM));
    test_sim_begin();
    world one = open_world();
    CUgraph *bodies;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 1);
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    add_fill(&one, bodies[0], NULL, 0, 1);
    add_fill(&one, bodies[0], NULL, 0, 2);
    CUgraphNode node = add_fill(&one, bodies[0], NULL, 1, 1);
    add_fill(&one, bodies[0], node, 1, 2);
    CUgraphExec exec = instantiate(one.graph);
    for (uint64_t seed = 0; seed < 60; seed++) {
        OK(p_set_seed(seed));
        run(&one, exec);
        seen[at(&one, 0)]++;
        assert_int_equal(at(&one, 1), 2);
    }
    assert_true(seen[1] > 5 && seen[2] > 5);
    OK(p_cuGraphExecDestroy(exec));
    test_sim_forget_reports();
    close_world(&one);
    test_sim_end();
}

/* ---- what is refused ---- */

static void wrong_nodes_are_refused(void **state)
{
    (void)state;
    test_sim_begin();
    world one = open_world();
    CUgraphConditionalHandle handle;
    CUgraphNode node;
    CUgraph other;
    OK(p_cuGraphCreate(&other, 0));
    assert_int_equal(p_cuGraphConditionalHandleCreate(NULL, one.graph, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuGraphConditionalHandleCreate(&handle, NULL, NULL, 0, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuGraphConditionalHandleCreate(&handle, one.graph, NULL, 0, 2), CUDA_ERROR_INVALID_VALUE);
    handle = new_condition(&one, one.graph, 0);
    static const struct {
        CUgraphConditionalNodeType type;
        unsigned size;
    } wrong[] = {{CU_GRAPH_COND_TYPE_IF, 0},    {CU_GRAPH_COND_TYPE_IF, 3},     {CU_GRAPH_COND_TYPE_WHILE, 0},
                 {CU_GRAPH_COND_TYPE_WHILE, 2}, {CU_GRAPH_COND_TYPE_SWITCH, 0}, {(CUgraphConditionalNodeType)3, 1}};
    CUgraphNodeParams params;
    for (size_t i = 0; i < sizeof wrong / sizeof wrong[0]; i++) {
        params = conditional(&one, handle, wrong[i].type, wrong[i].size);
        assert_int_equal(p_cuGraphAddNode(&node, one.graph, NULL, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    }
    params = conditional(&one, handle, CU_GRAPH_COND_TYPE_IF, 1);
    assert_int_equal(p_cuGraphAddNode(&node, other, NULL, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params.reserved2 = 1;
    assert_int_equal(p_cuGraphAddNode(&node, one.graph, NULL, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    params.reserved2 = 0;
    OK(p_cuGraphAddNode(&node, one.graph, NULL, NULL, 0, &params));
    assert_int_equal(p_cuGraphAddNode(&node, one.graph, NULL, NULL, 0, &params), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuGraphDestroy(params.conditional.phGraph_out[0]), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuGraphDestroyNode(node)); /* the handle is free again */
    OK(p_cuGraphAddNode(&node, one.graph, NULL, NULL, 0, &params));
    OK(p_cuGraphDestroy(other));
    close_world(&one);
    test_sim_end();
}

static void graphs_with_conditional_nodes_are_neither_copied_nor_made_executable_twice(void **state)
{
    (void)state;
    test_sim_begin();
    world one = open_world();
    CUgraph *bodies, clone, whole;
    CUgraphExec exec, second;
    CUgraphNode node;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 0);
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    assert_int_equal(p_cuGraphClone(&clone, one.graph), CUDA_ERROR_NOT_SUPPORTED);
    OK(p_cuGraphCreate(&whole, 0));
    assert_int_equal(p_cuGraphAddChildGraphNode(&node, whole, NULL, 0, one.graph), CUDA_ERROR_NOT_SUPPORTED);
    exec = instantiate(one.graph);
    assert_int_equal(p_cuGraphInstantiateWithFlags(&second, one.graph, 0), CUDA_ERROR_NOT_SUPPORTED);
    OK(p_cuGraphExecDestroy(exec));
    exec = instantiate(one.graph);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(whole));
    close_world(&one);
    test_sim_end();
}

static void nothing(void *data)
{
    (void)data;
}

static void a_body_with_other_nodes_cannot_be_made_executable(void **state)
{
    (void)state;
    test_sim_begin();
    world one = open_world();
    CUgraph *outer, *bodies;
    CUgraphExec exec;
    CUgraphNode host;
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_HOST};
    CUDA_GRAPH_INSTANTIATE_PARAMS how = {0};
    params.host.fn = nothing;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 0);
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &outer);
    const CUgraphConditionalHandle inner = new_condition(&one, outer[0], 0);
    assert_int_equal(p_cuGraphInstantiateWithParams(&exec, one.graph, &how), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(how.result_out, CUDA_GRAPH_INSTANTIATE_CONDITIONAL_HANDLE_UNUSED);
    add_conditional(&one, outer[0], NULL, inner, CU_GRAPH_COND_TYPE_WHILE, 1, &bodies);
    OK(p_cuGraphAddNode(&host, bodies[0], NULL, NULL, 0, &params));
    assert_int_equal(p_cuGraphInstantiateWithParams(&exec, one.graph, &how), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(how.result_out, CUDA_GRAPH_INSTANTIATE_NODE_OPERATION_NOT_SUPPORTED);
    assert_ptr_equal(how.hErrNode_out, host);
    OK(p_cuGraphDestroyNode(host));
    OK(p_cuGraphInstantiateWithParams(&exec, one.graph, &how));
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
    test_sim_end();
}

/* ---- captures ---- */

/* As a program puts a conditional node into a capture: added to the captured graph, it becomes what the stream's next
 * call depends on, and another stream is captured into its body. */
static CUgraph begin_body(const world *one, CUgraphConditionalHandle handle, CUstream body)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    const CUgraphNode *after;
    const CUgraphEdgeData *data;
    size_t count;
    CUgraphNode node;
    CUgraphNodeParams params = conditional(one, handle, CU_GRAPH_COND_TYPE_IF, 1);
    OK(p_cuStreamGetCaptureInfo(one->stream, &status, &id, &graph, &after, &data, &count));
    OK(p_cuGraphAddNode(&node, graph, after, NULL, count, &params));
    OK(p_cuStreamUpdateCaptureDependencies(one->stream, &node, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    OK(p_cuStreamBeginCaptureToGraph(body, params.conditional.phGraph_out[0], NULL, NULL, 0,
                                     CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    return params.conditional.phGraph_out[0];
}

static CUgraphConditionalHandle condition_of_capture(const world *one)
{
    CUstreamCaptureStatus status;
    cuuint64_t id;
    CUgraph graph;
    OK(p_cuStreamGetCaptureInfo(one->stream, &status, &id, &graph, NULL, NULL, NULL));
    return new_condition(one, graph, 1);
}

static void captured(void)
{
    world one = open_world();
    CUgraph graph, body_graph, made;
    CUstream body = new_stream();
    OK(p_cuStreamBeginCapture(one.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(p_cuMemsetD8Async(one.memory, 3, 1, one.stream));
    made = begin_body(&one, condition_of_capture(&one), body);
    OK(p_cuMemcpyDtoDAsync(one.memory + 1, one.memory, 1, body));
    OK(p_cuStreamEndCapture(body, &body_graph));
    assert_ptr_equal(body_graph, made);
    OK(p_cuMemcpyDtoDAsync(one.memory + 2, one.memory + 1, 1, one.stream));
    OK(p_cuStreamEndCapture(one.stream, &graph));
    CUgraphExec exec = instantiate(graph);
    run(&one, exec);
    assert_int_equal(at(&one, 2), 3);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuStreamDestroy(body));
    close_world(&one);
}

static void a_stream_is_captured_into_the_body_of_a_captured_node(void **state)
{
    (void)state;
    under_all_policies(captured);
}

static void a_body_outlives_its_failed_capture_and_a_capture_its_graph(void **state)
{
    (void)state;
    test_sim_begin();
    world one = open_world();
    CUgraph graph;
    CUstream body = new_stream();
    CUstreamCaptureStatus status;
    OK(p_cuStreamBeginCapture(one.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    begin_body(&one, condition_of_capture(&one), body);
    assert_int_equal(p_cuStreamSynchronize(body), CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
    assert_int_equal(p_cuStreamEndCapture(body, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(p_cuStreamEndCapture(one.stream, &graph));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuStreamBeginCapture(one.stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    begin_body(&one, condition_of_capture(&one), body);
    OK(p_cuStreamEndCapture(one.stream, &graph));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuStreamIsCapturing(body, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    OK(p_cuStreamDestroy(body));
    close_world(&one);
    test_sim_end();
}

/* ---- changes ---- */

static void changed(void)
{
    world one = open_world();
    CUgraph graphs[3];
    CUgraphExecUpdateResultInfo info;
    for (unsigned i = 0; i < 3; i++) {
        CUgraph *bodies;
        OK(p_cuGraphCreate(&graphs[i], 0));
        const CUgraphConditionalHandle handle = new_condition(&one, graphs[i], 0);
        CUgraphNode node = add_kernel(&one, graphs[i], NULL, "test_look", handle, one.memory + 1 + i);
        add_conditional(&one, graphs[i], node, handle, i == 2 ? CU_GRAPH_COND_TYPE_WHILE : CU_GRAPH_COND_TYPE_IF, 1,
                        &bodies);
        add_fill(&one, bodies[0], NULL, 0, 20 + i);
    }
    CUgraphExec exec = instantiate(graphs[0]);
    OK(p_cuMemsetD8(one.memory + 2, 1, 1)); /* what the second graph looks at */
    OK(p_cuCtxSynchronize());
    run(&one, exec);
    assert_int_equal(at(&one, 0), 0);
    OK(p_cuGraphExecUpdate(exec, graphs[1], &info));
    run(&one, exec);
    assert_int_equal(at(&one, 0), 21);
    assert_int_equal(p_cuGraphExecUpdate(exec, graphs[2], &info), CUDA_ERROR_GRAPH_EXEC_UPDATE_FAILURE);
    assert_int_equal(info.result, CU_GRAPH_EXEC_UPDATE_ERROR_NOT_SUPPORTED);
    for (unsigned i = 0; i < 3; i++)
        OK(p_cuGraphDestroy(graphs[i]));
    run(&one, exec); /* it keeps the condition */
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
}

static void an_update_takes_the_nodes_of_bodies_and_their_condition(void **state)
{
    (void)state;
    under_all_policies(changed);
}

static void what_is_launched_runs_on_without_its_graphs(void **state)
{
    (void)state;
    test_sim_begin();
    world one = open_world();
    CUgraph *bodies;
    struct gate gate;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 1);
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    add_kernel(&one, bodies[0], NULL, "test_add", one.memory, one.memory + 1);
    CUgraphExec exec = instantiate(one.graph);
    OK(p_cuMemsetD8(one.memory + 1, 4, 1));
    OK(p_cuCtxSynchronize());
    shut(&gate, one.stream);
    OK(p_cuGraphLaunch(exec, one.stream));
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(one.graph));
    one.graph = NULL;
    let_go(&gate);
    OK(p_cuStreamSynchronize(one.stream));
    assert_int_equal(at(&one, 0), 4);
    close_world(&one);
    test_sim_end();
}

static void a_kernel_behind_the_node_may_set_its_condition_after_the_graphs_end(void **state)
{
    (void)state;
    test_sim_begin();
    world one = open_world();
    CUgraph *bodies;
    struct gate gate;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 0);
    CUgraphNode node = add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    add_kernel(&one, one.graph, node, "test_look", handle, one.memory + 1);
    CUgraphExec exec = instantiate(one.graph);
    OK(p_cuCtxSynchronize());
    shut(&gate, one.stream);
    OK(p_cuGraphLaunch(exec, one.stream));
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphDestroy(one.graph));
    OK(p_cuGraphCreate(&one.graph, 0));
    const CUgraphConditionalHandle other = new_condition(&one, one.graph, 0);
    assert_true(other != handle); /* lest that kernel sets it */
    add_conditional(&one, one.graph, NULL, other, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    let_go(&gate);
    OK(p_cuStreamSynchronize(one.stream));
    close_world(&one);
    test_sim_end();
}

static void the_text_of_a_graph_shows_bodies(void **state)
{
    (void)state;
    test_sim_begin();
    world one = open_world();
    CUgraph *bodies;
    char path[] = "/tmp/strata-dot-XXXXXX", text[2048];
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 1);
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    add_fill(&one, bodies[0], NULL, 0, 1);
    const int file = mkstemp(path);
    assert_true(file >= 0);
    OK(p_cuGraphDebugDotPrint(one.graph, path, 0));
    const ssize_t bytes = read(file, text, sizeof text - 1);
    close(file);
    unlink(path);
    assert_true(bytes > 0);
    text[bytes] = '\0';
    assert_non_null(strstr(text, "label=\"conditional\""));
    assert_non_null(strstr(text, "label=\"memset\""));
    close_world(&one);
    test_sim_end();
}

/* ---- the checker ---- */

/* A fill of byte 0 in a loop of two rounds, beside a fill of the given byte: in the body, or outside of it and with no
 * order, or with the node's. */
typedef enum beside { IN_BODY, OUTSIDE, BEFORE, BEHIND } beside;

static uint64_t races(beside where, size_t offset, bool taken)
{
    world one = open_world();
    CUgraph *bodies;
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, taken);
    CUgraphNode node = add_fill(&one, one.graph, NULL, 5, 2);
    CUgraphNode before = where == BEFORE ? add_fill(&one, one.graph, node, offset, 1) : node;
    node = add_conditional(&one, one.graph, before, handle, CU_GRAPH_COND_TYPE_WHILE, 1, &bodies);
    add_fill(&one, bodies[0], NULL, 0, 2);
    add_kernel(&one, bodies[0], NULL, "test_count_down", handle, one.memory + 5);
    if (where == BEFORE) { /* a second one, on a branch of its own */
        const CUgraphNode too = add_fill(&one, one.graph, NULL, 1, 1);
        add_fill(&one, bodies[0], NULL, 1, 2);
        OK(p_cuGraphAddDependencies(one.graph, &too, &node, NULL, 1));
    }
    if (where == IN_BODY)
        add_fill(&one, bodies[0], NULL, offset, 3);
    else if (where != BEFORE)
        add_fill(&one, one.graph, where == BEHIND ? node : NULL, offset, 3);
    CUgraphExec exec = instantiate(one.graph);
    OK(p_clear_reports());
    run(&one, exec);
    const uint64_t found = reports();
    OK(p_clear_reports());
    OK(p_cuGraphExecDestroy(exec));
    close_world(&one);
    return found;
}

static void judged(void)
{
    assert_int_equal(races(IN_BODY, 1, true), 0);
    assert_int_equal(races(BEFORE, 0, true), 0);
    assert_int_equal(races(BEHIND, 0, true), 0);
    assert_int_equal(races(OUTSIDE, 1, true), 0);
    assert_int_equal(races(OUTSIDE, 0, false), 0); /* a body that does not run touches nothing */
    assert_int_equal(races(OUTSIDE, 0, true), 1);
    assert_true(races(IN_BODY, 0, true) > 0); /* one or two: the rounds may meet in either order */
}

static void the_checker_knows_what_bodies_come_after_and_before(void **state)
{
    (void)state;
    OK(p_set_check(STRATA_SIM_CHECK_ON));
    under_all_policies(judged);
}

/* The write of a body is known to come before what was submitted behind the launch, whenever it runs. */
static uint64_t races_with_the_host(bool waits)
{
    world one = open_world();
    CUgraph *bodies;
    CUstream other = new_stream();
    CUevent event = new_event();
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 1);
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    add_fill(&one, bodies[0], NULL, 0, 2);
    CUgraphExec exec = instantiate(one.graph);
    OK(p_clear_reports());
    OK(p_cuGraphLaunch(exec, one.stream));
    OK(p_cuEventRecord(event, one.stream));
    if (waits)
        OK(p_cuStreamWaitEvent(other, event, 0));
    OK(p_cuMemsetD8Async(one.memory, 4, 1, other));
    OK(p_cuCtxSynchronize());
    const uint64_t found = reports();
    OK(p_clear_reports());
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(other));
    close_world(&one);
    return found;
}

static void judged_with_streams(void)
{
    assert_int_equal(races_with_the_host(true), 0);
    assert_int_equal(races_with_the_host(false), 1);
}

static void the_checker_orders_bodies_with_other_streams(void **state)
{
    (void)state;
    OK(p_set_check(STRATA_SIM_CHECK_ON));
    under_all_policies(judged_with_streams);
}

/* A write beside the launch, which a later one, ordered with both, has displaced before the body runs. */
static void displaced(void)
{
    world one = open_world();
    CUgraph *bodies;
    CUstream aside = new_stream(), later = new_stream();
    CUevent event = new_event();
    const CUgraphConditionalHandle handle = new_condition(&one, one.graph, 1);
    add_conditional(&one, one.graph, NULL, handle, CU_GRAPH_COND_TYPE_IF, 1, &bodies);
    add_fill(&one, bodies[0], NULL, 0, 2);
    CUgraphExec exec = instantiate(one.graph);
    OK(p_clear_reports());
    OK(p_cuGraphLaunch(exec, one.stream));
    OK(p_cuMemsetD8Async(one.memory, 4, 1, aside));
    CUstream both[] = {one.stream, aside};
    for (size_t i = 0; i < 2; i++) {
        OK(p_cuEventRecord(event, both[i]));
        OK(p_cuStreamWaitEvent(later, event, 0));
    }
    OK(p_cuMemsetD8Async(one.memory, 5, 1, later));
    OK(p_cuCtxSynchronize());
    assert_int_equal(reports(), 1);
    OK(p_clear_reports());
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(aside));
    OK(p_cuStreamDestroy(later));
    close_world(&one);
}

static void the_checker_finds_a_race_of_a_body_with_a_write_that_another_one_displaced(void **state)
{
    (void)state;
    OK(p_set_check(STRATA_SIM_CHECK_ON));
    under_all_policies(displaced);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_body_of_an_if_runs_if_the_value_is_not_0),
        cmocka_unit_test(one_of_two_bodies_runs_by_the_value_that_a_kernel_has_set),
        cmocka_unit_test(a_switch_runs_the_body_of_its_value_or_none),
        cmocka_unit_test(a_loop_goes_round_while_the_value_is_not_0),
        cmocka_unit_test(conditional_nodes_may_be_in_bodies),
        cmocka_unit_test(a_loop_without_an_end_keeps_nothing_else_from_running),
        cmocka_unit_test(a_value_that_is_not_defined_is_drawn),
        cmocka_unit_test(nodes_of_a_body_run_in_any_order_that_its_edges_allow),
        cmocka_unit_test(wrong_nodes_are_refused),
        cmocka_unit_test(graphs_with_conditional_nodes_are_neither_copied_nor_made_executable_twice),
        cmocka_unit_test(a_body_with_other_nodes_cannot_be_made_executable),
        cmocka_unit_test(a_stream_is_captured_into_the_body_of_a_captured_node),
        cmocka_unit_test(a_body_outlives_its_failed_capture_and_a_capture_its_graph),
        cmocka_unit_test(an_update_takes_the_nodes_of_bodies_and_their_condition),
        cmocka_unit_test(what_is_launched_runs_on_without_its_graphs),
        cmocka_unit_test(a_kernel_behind_the_node_may_set_its_condition_after_the_graphs_end),
        cmocka_unit_test(the_text_of_a_graph_shows_bodies),
        cmocka_unit_test(the_checker_knows_what_bodies_come_after_and_before),
        cmocka_unit_test(the_checker_orders_bodies_with_other_streams),
        cmocka_unit_test(the_checker_finds_a_race_of_a_body_with_a_write_that_another_one_displaced),
    };
    test_graph_open();
    test_sim_ask("cuGraphAddNode", 12030, &p_cuGraphAddNode);
    test_sim_ask("cuGraphConditionalHandleCreate", 12030, &p_cuGraphConditionalHandleCreate);
    test_sim_ask("cuGraphInstantiateWithParams", 12000, &p_cuGraphInstantiateWithParams);
    test_sim_ask("cuStreamUpdateCaptureDependencies", 12030, &p_cuStreamUpdateCaptureDependencies);
    test_sim_ask("cuGraphDebugDotPrint", 11030, &p_cuGraphDebugDotPrint);
    if (p_cuInit(0) != CUDA_SUCCESS || p_register_kernel("test_count_down", count_down) != CUDA_SUCCESS ||
        p_register_kernel("test_look", look) != CUDA_SUCCESS || p_register_kernel("test_add", add) != CUDA_SUCCESS)
        return 1;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
