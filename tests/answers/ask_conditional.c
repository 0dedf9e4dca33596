/* Questions about conditional nodes of graphs: their conditions, their forms, what bodies may hold, and what runs. */
#include "ask.h"

#include <string.h>

enum { BYTES = 64 };

static CUcontext context;
static CUstream stream;
static CUdeviceptr memory, other;

static void begin(void)
{
    context = start();
    stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    memory = new_memory(4 * KIB);
    other = new_memory(4 * KIB);
}

static CUgraph new_graph(void)
{
    CUgraph graph = NULL;
    cu.GraphCreate(&graph, 0);
    return graph;
}

static CUgraphConditionalHandle new_condition(CUgraph graph, unsigned initial)
{
    CUgraphConditionalHandle condition = 0;
    cu.GraphConditionalHandleCreate(&condition, graph, context, initial, CU_GRAPH_COND_ASSIGN_DEFAULT);
    return condition;
}

static CUgraphNodeParams conditional(CUgraphConditionalHandle condition, CUgraphConditionalNodeType type, unsigned size)
{
    CUgraphNodeParams params = {.type = CU_GRAPH_NODE_TYPE_CONDITIONAL};
    params.conditional.handle = condition;
    params.conditional.type = type;
    params.conditional.size = size;
    params.conditional.ctx = context;
    return params;
}

/* An If node; *body: its first body. */
static CUgraphNode add_if(CUgraph graph, CUgraphConditionalHandle condition, CUgraph *body)
{
    CUgraphNode node = NULL;
    CUgraphNodeParams params = conditional(condition, CU_GRAPH_COND_TYPE_IF, 1);
    *body = NULL;
    if (cu.GraphAddNode(&node, graph, NULL, 0, &params) == CUDA_SUCCESS)
        *body = params.conditional.phGraph_out[0];
    return node;
}

static CUgraphNode add_fill(CUgraph graph, CUdeviceptr address, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = address, .value = value, .elementSize = 1, .width = BYTES, .height = 1};
    CUgraphNode node = NULL;
    cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context);
    return node;
}

static int byte_at(CUdeviceptr address)
{
    unsigned char byte = 0;
    const CUresult result = cu.MemcpyDtoH(&byte, address, 1);
    return result == CUDA_SUCCESS ? byte : -(int)result;
}

/* ---- conditions ---- */

static void ask_handle(CUgraph graph, CUcontext of, unsigned flags, const char *name)
{
    CUgraphConditionalHandle condition = 0;
    const CUresult result = cu.GraphConditionalHandleCreate(&condition, graph, of, 1, flags);
    ask_fact(result, condition != 0, "conditional_handle.%s", name);
}

void ask_conditional_handles(void)
{
    begin();
    CUgraph graph = new_graph();
    ask_handle(graph, context, 0, "without_default");
    ask_handle(graph, context, CU_GRAPH_COND_ASSIGN_DEFAULT, "with_default");
    ask_handle(graph, context, 2, "flags_2");
    ask_handle(graph, NULL, 0, "null_context");
    ask_handle(NULL, context, 0, "null_graph");
    ask(cu.GraphConditionalHandleCreate(NULL, graph, context, 0, 0), "conditional_handle.null_out");
    CUgraphConditionalHandle first = new_condition(graph, 0), second = new_condition(graph, 0);
    ask_yes(first != second, "conditional_handle.two_differ");
    cu.CtxSetCurrent(NULL);
    ask_handle(graph, NULL, 0, "without_context");
    ask_handle(graph, context, 0, "without_current_context");
    cu.CtxSetCurrent(context);
    ask(cu.GraphDestroy(graph), "conditional_handle.destroy_graph");
}

/* ---- nodes ---- */

static void ask_form(CUgraphConditionalNodeType type, unsigned size, const char *name)
{
    CUgraph graph = new_graph();
    CUgraphNode node = NULL;
    CUgraphNodeParams params = conditional(new_condition(graph, 0), type, size);
    const CUresult result = cu.GraphAddNode(&node, graph, NULL, 0, &params);
    ask(result, "conditional_node.%s.size_%u", name, size);
    if (result == CUDA_SUCCESS) {
        bool distinct = true;
        for (unsigned i = 0; i < size; i++)
            distinct = distinct && params.conditional.phGraph_out[i] != NULL &&
                       (i == 0 || params.conditional.phGraph_out[i] != params.conditional.phGraph_out[i - 1]);
        ask_yes(distinct, "conditional_node.%s.size_%u.bodies", name, size);
    }
    cu.GraphDestroy(graph);
}

static void ask_forms(void)
{
    for (unsigned size = 0; size < 4; size++)
        ask_form(CU_GRAPH_COND_TYPE_IF, size, "if");
    for (unsigned size = 0; size < 3; size++)
        ask_form(CU_GRAPH_COND_TYPE_WHILE, size, "while");
    for (unsigned size = 0; size < 5; size++)
        ask_form(CU_GRAPH_COND_TYPE_SWITCH, size, "switch");
    ask_form((CUgraphConditionalNodeType)9, 1, "type_9");
}

static CUresult add(CUgraph graph, CUgraphNodeParams *params)
{
    CUgraphNode node = NULL;
    return cu.GraphAddNode(&node, graph, NULL, 0, params);
}

static void ask_conditions_of_nodes(void)
{
    CUgraph graph = new_graph(), elsewhere = new_graph(), body;
    CUgraphNodeParams params = conditional(0, CU_GRAPH_COND_TYPE_IF, 1);
    ask(add(graph, &params), "conditional_node.no_handle");
    params = conditional(new_condition(elsewhere, 0), CU_GRAPH_COND_TYPE_IF, 1);
    ask(add(graph, &params), "conditional_node.handle_of_another_graph");
    const CUgraphConditionalHandle condition = new_condition(graph, 0);
    params = conditional(condition, CU_GRAPH_COND_TYPE_IF, 1);
    params.conditional.ctx = NULL;
    ask(add(graph, &params), "conditional_node.null_context");
    params = conditional(condition, CU_GRAPH_COND_TYPE_IF, 1);
    ask(add(graph, &params), "conditional_node.handle");
    params = conditional(condition, CU_GRAPH_COND_TYPE_IF, 1);
    ask(add(graph, &params), "conditional_node.handle_again");
    add_if(graph, new_condition(graph, 0), &body);
    params = conditional(new_condition(graph, 0), CU_GRAPH_COND_TYPE_IF, 1);
    ask(add(body, &params), "conditional_node.handle_of_the_graph_around");
    params = conditional(new_condition(body, 0), CU_GRAPH_COND_TYPE_IF, 1);
    ask(add(body, &params), "conditional_node.handle_of_the_body");
    params = conditional(new_condition(body, 0), CU_GRAPH_COND_TYPE_IF, 1);
    ask(add(graph, &params), "conditional_node.handle_of_a_body_outside");
    params = conditional(new_condition(graph, 0), CU_GRAPH_COND_TYPE_IF, 1);
    params.reserved0[0] = 1;
    ask(add(graph, &params), "conditional_node.reserved0");
    params.reserved0[0] = 0;
    params.reserved2 = 1;
    ask(add(graph, &params), "conditional_node.reserved2");
    cu.GraphDestroy(graph);
    cu.GraphDestroy(elsewhere);
}

static void ask_structure(void)
{
    CUgraph graph = new_graph(), body, clone = NULL, around = new_graph();
    CUgraphNode node = add_if(graph, new_condition(graph, 1), &body), child = NULL, fill = add_fill(body, memory, 1);
    CUgraphNodeType type = (CUgraphNodeType)99;
    size_t count = 99;
    CUresult result = cu.GraphNodeGetType(node, &type);
    ask_value(result, type, "conditional_node.type");
    result = cu.GraphGetNodes(graph, NULL, &count);
    ask_value(result, (long long)count, "conditional_node.nodes_of_the_graph");
    result = cu.GraphGetNodes(body, NULL, &count);
    ask_value(result, (long long)count, "conditional_node.nodes_of_the_body");
    ask(cu.GraphClone(&clone, graph), "conditional_node.clone");
    ask(cu.GraphAddChildGraphNode(&child, around, NULL, 0, graph), "conditional_node.as_child");
    ask(cu.GraphClone(&clone, body), "conditional_node.clone_of_a_body");
    ask(cu.GraphAddChildGraphNode(&child, around, NULL, 0, body), "conditional_node.body_as_child");
    ask(cu.GraphDestroy(body), "conditional_node.destroy_a_body");
    ask(cu.GraphDestroyNode(fill), "conditional_node.destroy_node_of_a_body");
    ask(cu.GraphDestroyNode(node), "conditional_node.destroy");
    result = cu.GraphGetNodes(graph, NULL, &count);
    ask_value(result, (long long)count, "conditional_node.destroy.nodes");
    cu.GraphDestroy(graph);
    cu.GraphDestroy(around);
}

void ask_conditional_nodes(void)
{
    begin();
    ask_forms();
    ask_conditions_of_nodes();
    ask_structure();
}

/* ---- bodies ---- */

static void CUDA_CB nothing(void *data)
{
    (void)data;
}

static CUresult instantiate(CUgraph graph, const char *name)
{
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {0};
    CUgraphExec exec = NULL;
    const CUresult result = cu.GraphInstantiateWithParams(&exec, graph, &params);
    ask(result, "%s.instantiate", name);
    ask_number(params.result_out, "%s.instantiate.result", name);
    ask_yes(params.hErrNode_out != NULL, "%s.instantiate.node", name);
    if (result == CUDA_SUCCESS) {
        ask(cu.GraphLaunch(exec, stream), "%s.launch", name);
        ask(cu.StreamSynchronize(stream), "%s.synchronize", name);
        cu.GraphExecDestroy(exec);
    }
    return result;
}

typedef CUresult (*adding)(CUgraph body, CUgraphNode *node);

static CUresult add_empty(CUgraph body, CUgraphNode *node)
{
    return cu.GraphAddEmptyNode(node, body, NULL, 0);
}

static CUresult add_copy(CUgraph body, CUgraphNode *node, CUmemorytype to, void *host)
{
    CUDA_MEMCPY3D copy = {.srcMemoryType = CU_MEMORYTYPE_DEVICE,
                          .srcDevice = memory,
                          .dstMemoryType = to,
                          .dstDevice = other,
                          .dstHost = host,
                          .WidthInBytes = BYTES,
                          .Height = 1,
                          .Depth = 1};
    return cu.GraphAddMemcpyNode(node, body, NULL, 0, &copy, context);
}

static CUresult add_device_copy(CUgraph body, CUgraphNode *node)
{
    return add_copy(body, node, CU_MEMORYTYPE_DEVICE, NULL);
}

static CUresult add_copy_to_host(CUgraph body, CUgraphNode *node)
{
    static unsigned char host[BYTES];
    return add_copy(body, node, CU_MEMORYTYPE_HOST, host);
}

static CUresult add_copy_to_pinned(CUgraph body, CUgraphNode *node)
{
    void *pinned = NULL;
    cu.MemHostAlloc(&pinned, BYTES, 0);
    return add_copy(body, node, CU_MEMORYTYPE_HOST, pinned);
}

static CUresult add_fill_node(CUgraph body, CUgraphNode *node)
{
    *node = add_fill(body, memory, 3);
    return *node ? CUDA_SUCCESS : CUDA_ERROR_UNKNOWN;
}

static CUresult add_host(CUgraph body, CUgraphNode *node)
{
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing};
    return cu.GraphAddHostNode(node, body, NULL, 0, &host);
}

static CUresult add_record(CUgraph body, CUgraphNode *node)
{
    return cu.GraphAddEventRecordNode(node, body, NULL, 0, new_event());
}

static CUresult add_wait(CUgraph body, CUgraphNode *node)
{
    return cu.GraphAddEventWaitNode(node, body, NULL, 0, new_event());
}

static CUresult add_allocation(CUgraph body, CUgraphNode *node)
{
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {.bytesize = BYTES};
    allocation.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
    allocation.poolProps.location = (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE};
    return cu.GraphAddMemAllocNode(node, body, NULL, 0, &allocation);
}

static CUresult add_child(CUgraph body, CUgraphNode *node)
{
    CUgraph child = new_graph();
    add_fill(child, memory, 4);
    return cu.GraphAddChildGraphNode(node, body, NULL, 0, child);
}

static CUresult add_child_with_host(CUgraph body, CUgraphNode *node)
{
    CUgraph child = new_graph();
    CUgraphNode inner;
    add_host(child, &inner);
    return cu.GraphAddChildGraphNode(node, body, NULL, 0, child);
}

static CUresult add_kernel(CUgraph body, CUgraphNode *node)
{
    unsigned long long bytes = BYTES, seed = 1;
    void *arguments[] = {&memory, &bytes, &seed};
    CUDA_KERNEL_NODE_PARAMS kernel = {.func = pattern_fill_function(),
                                      .gridDimX = 1,
                                      .gridDimY = 1,
                                      .gridDimZ = 1,
                                      .blockDimX = 256,
                                      .blockDimY = 1,
                                      .blockDimZ = 1,
                                      .kernelParams = arguments};
    return cu.GraphAddKernelNode(node, body, NULL, 0, &kernel);
}

static void ask_body(adding add_to, unsigned value, const char *name)
{
    char question[100] = "conditional_body.";
    CUgraph graph = new_graph(), body;
    CUgraphNode node = NULL;
    strcat(question, name);
    add_if(graph, new_condition(graph, value), &body);
    const CUresult result = add_to(body, &node);
    ask(result, "%s", question);
    if (result == CUDA_SUCCESS)
        instantiate(graph, question);
    cu.GraphDestroy(graph);
}

void ask_conditional_bodies(void)
{
    begin();
    ask_body(add_empty, 1, "empty");
    ask_body(add_fill_node, 1, "fill");
    ask_body(add_device_copy, 1, "copy_on_device");
    ask_body(add_copy_to_host, 0, "copy_to_host");
    ask_body(add_copy_to_pinned, 1, "copy_to_pinned");
    ask_body(add_host, 0, "host_function");
    ask_body(add_record, 0, "event_record");
    ask_body(add_wait, 0, "event_wait");
    ask_body(add_allocation, 0, "allocation");
    ask_body(add_child, 1, "child");
    ask_body(add_child_with_host, 0, "child_with_host_function");
    ask_body(add_kernel, 1, "kernel");
}

/* ---- executable graphs ---- */

static int run_if(unsigned initial)
{
    CUgraph graph = new_graph(), body;
    CUgraphExec exec = NULL;
    cu.MemsetD8(memory, 7, BYTES);
    cu.CtxSynchronize();
    add_if(graph, new_condition(graph, initial), &body);
    add_fill(body, memory, 5);
    cu.GraphInstantiateWithFlags(&exec, graph, 0);
    cu.GraphLaunch(exec, stream);
    cu.StreamSynchronize(stream);
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);
    return byte_at(memory);
}

/* The number of the body that ran; 9: none. */
static int run_one_of(CUgraphConditionalNodeType type, unsigned size, unsigned initial)
{
    CUgraph graph = new_graph();
    CUgraphNode node = NULL;
    CUgraphExec exec = NULL;
    CUgraphNodeParams params = conditional(new_condition(graph, initial), type, size);
    cu.MemsetD8(memory, 9, BYTES);
    cu.CtxSynchronize();
    if (cu.GraphAddNode(&node, graph, NULL, 0, &params) != CUDA_SUCCESS)
        return -1;
    for (unsigned i = 0; i < size; i++)
        add_fill(params.conditional.phGraph_out[i], memory, i);
    cu.GraphInstantiateWithFlags(&exec, graph, 0);
    cu.GraphLaunch(exec, stream);
    cu.StreamSynchronize(stream);
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);
    return byte_at(memory);
}

static void ask_runs(void)
{
    for (unsigned value = 0; value < 4; value++) {
        ask_number(run_if(value), "conditional_run.if.%u", value);
        ask_number(run_one_of(CU_GRAPH_COND_TYPE_IF, 2, value), "conditional_run.if_else.%u", value);
        ask_number(run_one_of(CU_GRAPH_COND_TYPE_SWITCH, 3, value), "conditional_run.switch.%u", value);
    }
    ask_number(run_one_of(CU_GRAPH_COND_TYPE_WHILE, 1, 0), "conditional_run.while.0");
}

static CUgraph graph_of_if(unsigned initial, CUdeviceptr address, CUgraph *body)
{
    CUgraph graph = new_graph();
    add_if(graph, new_condition(graph, initial), body);
    add_fill(*body, address, 6);
    return graph;
}

static void ask_update(CUgraphExec exec, CUgraph graph, const char *name)
{
    CUgraphExecUpdateResultInfo info = {.result = (CUgraphExecUpdateResult)99};
    ask(cu.GraphExecUpdate(exec, graph, &info), "conditional_exec.update.%s", name);
    ask_number(info.result, "conditional_exec.update.%s.result", name);
}

static void ask_updates(CUgraphExec exec, CUgraph graph)
{
    CUgraph body, same = graph_of_if(1, other, &body), longer = graph_of_if(1, memory, &body), forms = new_graph();
    ask_update(exec, graph, "itself");
    cu.MemsetD8(other, 0, BYTES);
    cu.CtxSynchronize();
    ask_update(exec, same, "another_address");
    ask(cu.GraphLaunch(exec, stream), "conditional_exec.update.launch");
    cu.StreamSynchronize(stream);
    ask_number(byte_at(other), "conditional_exec.update.launch.byte");
    add_fill(body, other, 1);
    ask_update(exec, longer, "longer_body");
    CUgraphNode node;
    CUgraphNodeParams params = conditional(new_condition(forms, 0), CU_GRAPH_COND_TYPE_IF, 2);
    cu.GraphAddNode(&node, forms, NULL, 0, &params);
    ask_update(exec, forms, "two_bodies");
    forms = new_graph();
    params = conditional(new_condition(forms, 0), CU_GRAPH_COND_TYPE_WHILE, 1);
    if (cu.GraphAddNode(&node, forms, NULL, 0, &params) == CUDA_SUCCESS)
        add_fill(params.conditional.phGraph_out[0], memory, 6);
    ask_update(exec, forms, "a_loop");
}

void ask_conditional_runs(void)
{
    begin();
    ask_runs();
    CUgraph body, graph = new_graph();
    new_condition(graph, 0);
    instantiate(graph, "conditional_exec.unused_condition");
    graph = graph_of_if(1, memory, &body);
    CUgraphExec exec = NULL, second = NULL;
    CUgraphNode nodes[1];
    size_t count = 1;
    ask(cu.GraphInstantiateWithFlags(&exec, graph, 0), "conditional_exec.first");
    ask(cu.GraphInstantiateWithFlags(&second, graph, 0), "conditional_exec.second");
    ask(cu.GraphInstantiateWithFlags(&second, body, 0), "conditional_exec.body");
    ask(cu.GraphUpload(exec, stream), "conditional_exec.upload");
    cu.GraphGetNodes(graph, nodes, &count);
    ask(cu.GraphNodeSetEnabled(exec, nodes[0], 0), "conditional_exec.disable");
    ask_updates(exec, graph);
    ask(cu.GraphExecDestroy(exec), "conditional_exec.destroy");
    ask(cu.GraphInstantiateWithFlags(&second, graph, 0), "conditional_exec.again");
    cu.StreamSynchronize(stream);
}

/* ---- captures ---- */

void ask_conditional_captures(void)
{
    begin();
    CUgraph body, graph = new_graph(), ended = NULL;
    CUstream second = new_stream(CU_STREAM_NON_BLOCKING);
    size_t count = 99;
    add_if(graph, new_condition(graph, 1), &body);
    ask(cu.StreamBeginCaptureToGraph(second, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL),
        "conditional_capture.begin");
    ask(cu.MemsetD8Async(memory, 8, BYTES, second), "conditional_capture.fill");
    ask(cu.StreamEndCapture(second, &ended), "conditional_capture.end");
    ask_yes(ended == body, "conditional_capture.end.is_body");
    CUresult result = cu.GraphGetNodes(body, NULL, &count);
    ask_value(result, (long long)count, "conditional_capture.nodes");
    instantiate(graph, "conditional_capture");
    ask(cu.StreamBeginCaptureToGraph(second, body, NULL, NULL, 0, CU_STREAM_CAPTURE_MODE_GLOBAL),
        "conditional_capture.begin_again");
    ask(cu.StreamQuery(second), "conditional_capture.query");
    ended = NULL;
    ask(cu.StreamEndCapture(second, &ended), "conditional_capture.spoiled.end");
    ask_yes(ended != NULL, "conditional_capture.spoiled.end.graph");
    result = cu.GraphGetNodes(graph, NULL, &count);
    ask_value(result, (long long)count, "conditional_capture.spoiled.nodes_of_the_graph");
}
