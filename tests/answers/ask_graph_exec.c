/* Questions about executable graphs: how they are instantiated, launched and updated, and how their work is ordered. */
#include "ask.h"
#include "graph_text.h"

#include <semaphore.h>
#include <stdio.h>
#include <time.h>

static void CUDA_CB nothing(void *data)
{
    (void)data;
}

static CUgraph new_graph(void)
{
    CUgraph graph = NULL;
    cu.GraphCreate(&graph, 0);
    return graph;
}

static CUstream idle_stream(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    return stream;
}

static CUgraphNode add_fill(CUgraph graph, CUcontext context, CUgraphNode after, CUdeviceptr address, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = address, .value = value, .elementSize = 1, .width = 64, .height = 1};
    CUgraphNode node = NULL;
    cu.GraphAddMemsetNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &fill, context);
    return node;
}

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec = NULL;
    cu.GraphInstantiateWithFlags(&exec, graph, 0);
    return exec;
}

static int byte_at(CUdeviceptr address)
{
    unsigned char byte = 0;
    CUresult result = cu.MemcpyDtoH(&byte, address, 1);
    return result == CUDA_SUCCESS ? byte : -(int)result;
}

void ask_graph_instantiate(void)
{
    CUcontext context = start();
    CUgraph graph = new_graph();
    CUgraphExec exec = NULL;
    CUstream stream = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    ask(cu.GraphInstantiateWithFlags(&exec, graph, 0), "graph_instantiate.empty");
    ask(cu.GraphLaunch(exec, stream), "graph_instantiate.empty.launch");
    ask(cu.StreamSynchronize(stream), "graph_instantiate.empty.synchronize");
    cu.GraphExecDestroy(exec);
    add_fill(graph, context, NULL, memory, 1);
    ask(cu.GraphInstantiateWithFlags(NULL, graph, 0), "graph_instantiate.null_out");
    ask(cu.GraphInstantiateWithFlags(&exec, NULL, 0), "graph_instantiate.null_graph");
    static const unsigned flags[] = {1, 2, 4, 8, 9, 16, 32, 0x100};
    for (size_t i = 0; i < sizeof flags / sizeof flags[0]; i++) {
        exec = NULL;
        CUresult result = cu.GraphInstantiateWithFlags(&exec, graph, flags[i]);
        ask(result, "graph_instantiate.flags_%#x", flags[i]);
        if (result == CUDA_SUCCESS && exec) {
            cuuint64_t got = 77;
            result = cu.GraphExecGetFlags(exec, &got);
            ask_value(result, (long long)got, "graph_instantiate.flags_%#x.get", flags[i]);
            cu.GraphExecDestroy(exec);
        }
    }
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    ask(cu.GraphInstantiateWithParams(&exec, graph, &params), "graph_instantiate.params");
    ask_number(params.result_out, "graph_instantiate.params.result");
    cu.GraphExecDestroy(exec);
    params = (CUDA_GRAPH_INSTANTIATE_PARAMS){.flags = CUDA_GRAPH_INSTANTIATE_FLAG_UPLOAD, .hUploadStream = stream};
    ask(cu.GraphInstantiateWithParams(&exec, graph, &params), "graph_instantiate.upload");
    ask_number(params.result_out, "graph_instantiate.upload.result");
    ask(cu.StreamSynchronize(stream), "graph_instantiate.upload.synchronize");
    cu.GraphExecDestroy(exec);
    params = (CUDA_GRAPH_INSTANTIATE_PARAMS){.flags = 0x100};
    ask(cu.GraphInstantiateWithParams(&exec, graph, &params), "graph_instantiate.params.flags_0x100");
    ask(cu.GraphInstantiateWithParams(&exec, graph, NULL), "graph_instantiate.params.null");
    exec = instantiate(graph);
    ask(cu.GraphExecGetFlags(exec, NULL), "graph_instantiate.get_flags.null");
    ask(cu.GraphUpload(exec, stream), "graph_instantiate.upload_call");
    ask(cu.GraphUpload(exec, NULL), "graph_instantiate.upload_call.null_stream");
    ask(cu.GraphUpload(NULL, stream), "graph_instantiate.upload_call.null");
    ask(cu.GraphLaunch(NULL, stream), "graph_instantiate.launch.null");
    ask(cu.GraphDestroy(graph), "graph_instantiate.graph_destroy");
    cu.MemsetD8Async(memory, 9, 64, stream);
    ask(cu.GraphLaunch(exec, stream), "graph_instantiate.launch_after_graph_destroy");
    ask(cu.StreamSynchronize(stream), "graph_instantiate.launch_after_graph_destroy.synchronize");
    ask_number(byte_at(memory), "graph_instantiate.launch_after_graph_destroy.byte");
    ask(cu.GraphLaunch(exec, NULL), "graph_instantiate.launch.null_stream");
    ask(cu.GraphLaunch(exec, CU_STREAM_LEGACY), "graph_instantiate.launch.legacy");
    ask(cu.GraphLaunch(exec, CU_STREAM_PER_THREAD), "graph_instantiate.launch.per_thread");
    struct gate *gate = gate_hold(stream, GATE_LONG_MS);
    ask(cu.GraphLaunch(exec, stream), "graph_instantiate.launch.held");
    ask(cu.GraphExecDestroy(exec), "graph_instantiate.destroy_while_launched");
    ask_yes(gate_release(gate), "graph_instantiate.destroy_while_launched.nothing_waited");
    ask(cu.StreamSynchronize(stream), "graph_instantiate.destroy_while_launched.synchronize");
}

/* ---- what waits for what ---- */

static void ask_launch_order(CUcontext context)
{
    CUgraph graph = new_graph();
    CUstream first = idle_stream();
    CUstream second = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    CUevent event = new_event();
    CUgraphNode node = add_fill(graph, context, NULL, memory, 1);
    add_fill(graph, context, node, memory, 2);
    CUgraphExec exec = instantiate(graph);
    CUgraphExec twin = instantiate(graph);
    cu.GraphLaunch(exec, first);
    cu.GraphLaunch(twin, first);
    cu.StreamSynchronize(first);
    ask_number(byte_at(memory), "graph_order.byte");
    struct gate *gate = gate_hold(first, GATE_LONG_MS);
    ask(cu.GraphLaunch(exec, first), "graph_order.launch_behind_gate");
    ask(cu.GraphLaunch(exec, second), "graph_order.launch_again_elsewhere");
    cu.EventRecord(event, second);
    ask(await_event(event), "graph_order.launch_again_elsewhere.event");
    ask_yes(gate_release(gate), "graph_order.launch_again_elsewhere.nothing_waited");
    ask(await_event(event), "graph_order.launch_again_elsewhere.released");
    cu.CtxSynchronize();
    gate = gate_hold(first, GATE_LONG_MS);
    cu.GraphLaunch(exec, first);
    cu.GraphLaunch(twin, second);
    cu.EventRecord(event, second);
    ask(await_event(event), "graph_order.other_exec_elsewhere.event");
    gate_release(gate);
    cu.CtxSynchronize();
    gate = gate_hold(first, GATE_LONG_MS);
    cu.GraphLaunch(exec, first);
    cu.MemsetD8Async(memory, 3, 64, first);
    cu.EventRecord(event, first);
    ask(await_event(event), "graph_order.work_after_launch.waits");
    gate_release(gate);
    ask(await_event(event), "graph_order.work_after_launch.released");
    ask_number(byte_at(memory), "graph_order.work_after_launch.byte");
    cu.GraphExecDestroy(exec);
    cu.GraphExecDestroy(twin);
    cu.GraphDestroy(graph);
}

struct waiting {
    sem_t open;
};

static void CUDA_CB wait_a_little(void *data)
{
    struct waiting *waiting = data;
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 3;
    sem_timedwait(&waiting->open, &until);
}

static void ask_events_in_graphs(CUcontext context)
{
    CUgraph graph = new_graph();
    CUstream first = idle_stream();
    CUstream second = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    CUevent recorded = new_event();
    CUevent waited = new_event();
    CUevent after = new_event();
    CUgraphNode node = add_fill(graph, context, NULL, memory, 1);
    CUgraphNode next;
    cu.GraphAddEventRecordNode(&next, graph, &node, 1, recorded);
    CUgraphNode waits;
    cu.GraphAddEventWaitNode(&waits, graph, &next, 1, waited);
    add_fill(graph, context, waits, memory, 2);
    CUgraphExec exec = instantiate(graph);
    ask(cu.EventQuery(recorded), "graph_order.record_node.before_launch");
    struct gate *gate = gate_hold(second, GATE_LONG_MS);
    cu.EventRecord(waited, second);
    ask(cu.GraphLaunch(exec, first), "graph_order.event_nodes.launch");
    cu.EventRecord(after, first);
    ask(await_event(recorded), "graph_order.record_node.query");
    ask(await_event(after), "graph_order.wait_node.waits");
    ask(cu.EventRecord(waited, first), "graph_order.wait_node.record_again");
    ask_yes(gate_release(gate), "graph_order.wait_node.nothing_waited");
    ask(await_event(after), "graph_order.wait_node.released");
    ask(cu.EventSynchronize(recorded), "graph_order.record_node.synchronize");
    ask(cu.StreamWaitEvent(second, recorded, 0), "graph_order.record_node.wait");
    ask(cu.CtxSynchronize(), "graph_order.event_nodes.synchronize");
    ask_number(byte_at(memory), "graph_order.event_nodes.byte");
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);

    /* Parts of a graph without a path between them do not wait for each other. */
    struct waiting waiting;
    sem_init(&waiting.open, 0, 0);
    graph = new_graph();
    CUDA_HOST_NODE_PARAMS host = {.fn = wait_a_little, .userData = &waiting};
    cu.GraphAddHostNode(&node, graph, NULL, 0, &host);
    cu.GraphAddEventRecordNode(&next, graph, NULL, 0, recorded);
    exec = instantiate(graph);
    cu.GraphLaunch(exec, first);
    ask(await_event(recorded), "graph_order.unconnected.record_is_free");
    ask(cu.StreamQuery(first), "graph_order.unconnected.stream_query");
    sem_post(&waiting.open);
    ask(cu.StreamSynchronize(first), "graph_order.unconnected.synchronize");
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);
}

static CUresult called;

static void CUDA_CB call_driver(void *data)
{
    (void)data;
    CUdeviceptr address;
    called = cu.MemAlloc(&address, 4096);
}

static void ask_nested(CUcontext context)
{
    CUgraph graph = new_graph();
    CUgraph child = new_graph();
    CUstream stream = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    CUgraphNode node = add_fill(child, context, NULL, memory, 5);
    add_fill(child, context, node, memory, 6);
    CUgraphNode before = add_fill(graph, context, NULL, memory, 4);
    CUgraphNode embedded = NULL;
    cu.GraphAddChildGraphNode(&embedded, graph, &before, 1, child);
    CUDA_HOST_NODE_PARAMS host = {.fn = call_driver};
    cu.GraphAddHostNode(&node, graph, &embedded, 1, &host);
    CUgraphExec exec = instantiate(graph);
    ask(cu.GraphLaunch(exec, stream), "graph_order.child.launch");
    ask(cu.StreamSynchronize(stream), "graph_order.child.synchronize");
    ask_number(byte_at(memory), "graph_order.child.byte");
    ask(called, "graph_order.host_node.call_of_driver");
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);
    cu.GraphDestroy(child);
}

static void ask_captured_launch(CUcontext context)
{
    CUgraph graph = new_graph();
    CUgraph captured = NULL;
    CUstream stream = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    CUgraphNode node = add_fill(graph, context, NULL, memory, 5);
    add_fill(graph, context, node, memory, 6);
    CUgraphExec exec = instantiate(graph);
    cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    ask(cu.GraphLaunch(exec, stream), "graph_order.captured_launch");
    cu.GraphExecDestroy(exec);
    ask(cu.StreamEndCapture(stream, &captured), "graph_order.captured_launch.end");
    ask_graph(captured, "graph_order.captured_launch.graph");
    cu.GraphDestroy(captured);
    cu.GraphDestroy(graph);
}

void ask_graph_order(void)
{
    CUcontext context = start();
    warm_up(NULL);
    ask_launch_order(context);
    ask_events_in_graphs(context);
    ask_nested(context);
    ask_captured_launch(context);
}

/* ---- changing what runs ---- */

struct updated {
    CUcontext context;
    CUdeviceptr memory;
    CUgraph graph;
    CUgraphNode fill;
    CUgraphNode copy;
    CUgraphNode kernel;
    CUgraphNode host;
    CUgraphNode record;
    CUgraphNode wait;
    CUgraphNode empty;
    CUgraphNode child;
    CUgraphExec exec;
};

static CUDA_MEMCPY3D a_copy(CUdeviceptr to, CUdeviceptr from, size_t bytes)
{
    return (CUDA_MEMCPY3D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = from,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = to,
        .WidthInBytes = bytes,
        .Height = 1,
        .Depth = 1,
    };
}

static CUDA_KERNEL_NODE_PARAMS a_kernel(CUfunction function, void **parameters)
{
    return (CUDA_KERNEL_NODE_PARAMS){
        .func = function,
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = parameters,
    };
}

static void make_updated(struct updated *made, CUcontext context, CUfunction function, CUevent event)
{
    unsigned long long bytes = 64;
    unsigned long long seed = 1;
    CUdeviceptr address;
    void *parameters[] = {&address, &bytes, &seed};
    CUDA_KERNEL_NODE_PARAMS kernel = a_kernel(function, parameters);
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing};
    *made = (struct updated){.context = context, .memory = new_memory(4 * KIB), .graph = new_graph()};
    CUDA_MEMCPY3D copy = a_copy(made->memory + 128, made->memory, 64);
    CUgraph child = new_graph();
    address = made->memory + 256;
    add_fill(child, context, NULL, made->memory + 512, 1);
    made->fill = add_fill(made->graph, context, NULL, made->memory, 1);
    cu.GraphAddMemcpyNode(&made->copy, made->graph, &made->fill, 1, &copy, context);
    cu.GraphAddKernelNode(&made->kernel, made->graph, NULL, 0, &kernel);
    cu.GraphAddHostNode(&made->host, made->graph, &made->kernel, 1, &host);
    cu.GraphAddEventRecordNode(&made->record, made->graph, &made->host, 1, event);
    cu.GraphAddEventWaitNode(&made->wait, made->graph, &made->host, 1, event);
    cu.GraphAddEmptyNode(&made->empty, made->graph, &made->host, 1);
    cu.GraphAddChildGraphNode(&made->child, made->graph, &made->host, 1, child);
    cu.GraphDestroy(child);
    made->exec = instantiate(made->graph);
}

static void ask_exec_params(const struct updated *made, CUfunction function, CUstream stream)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = made->memory, .value = 9, .elementSize = 1, .width = 64, .height = 1};
    CUdeviceptr other = new_memory(4 * KIB);
    CUgraph foreign = new_graph();
    CUgraphNode foreign_node = add_fill(foreign, made->context, NULL, other, 1);
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->fill, &fill, made->context), "graph_update.memset");
    cu.GraphLaunch(made->exec, stream);
    cu.StreamSynchronize(stream);
    ask_number(byte_at(made->memory), "graph_update.memset.byte");
    ask_number(byte_at(made->memory + 128), "graph_update.memset.byte_behind");
    CUDA_MEMSET_NODE_PARAMS got;
    cu.GraphMemsetNodeGetParams(made->fill, &got);
    ask_number(got.value, "graph_update.memset.value_of_graph");
    fill.dst = other;
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->fill, &fill, made->context),
        "graph_update.memset.other_memory");
    fill.width = 32;
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->fill, &fill, made->context),
        "graph_update.memset.other_width");
    fill.elementSize = 4;
    fill.width = 16;
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->fill, &fill, made->context),
        "graph_update.memset.other_element");
    fill.dst = 0x1000;
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->fill, &fill, made->context), "graph_update.memset.foreign");
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->fill, NULL, made->context), "graph_update.memset.null");
    fill.dst = other;
    fill.height = 2;
    fill.pitch = 128;
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->fill, &fill, made->context), "graph_update.memset.rows");
    fill.height = 1;
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, made->copy, &fill, made->context),
        "graph_update.memset.wrong_kind");
    ask(cu.GraphExecMemsetNodeSetParams(made->exec, foreign_node, &fill, made->context),
        "graph_update.memset.foreign_node");
    CUDA_MEMCPY3D copy = a_copy(made->memory + 192, made->memory, 32);
    ask(cu.GraphExecMemcpyNodeSetParams(made->exec, made->copy, &copy, made->context), "graph_update.memcpy");
    void *pinned = NULL;
    cu.MemHostAlloc(&pinned, 4 * KIB, 0);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = pinned;
    copy.srcDevice = 0;
    ask(cu.GraphExecMemcpyNodeSetParams(made->exec, made->copy, &copy, made->context), "graph_update.memcpy.from_host");
    copy = a_copy(0x1000, made->memory, 32);
    ask(cu.GraphExecMemcpyNodeSetParams(made->exec, made->copy, &copy, made->context), "graph_update.memcpy.foreign");
    ask(cu.GraphExecMemcpyNodeSetParams(made->exec, made->fill, &copy, made->context),
        "graph_update.memcpy.wrong_kind");
    unsigned long long bytes = 32;
    unsigned long long seed = 2;
    CUdeviceptr address = made->memory + 256;
    void *parameters[] = {&address, &bytes, &seed};
    CUDA_KERNEL_NODE_PARAMS kernel = a_kernel(function, parameters);
    kernel.gridDimX = 2;
    ask(cu.GraphExecKernelNodeSetParams(made->exec, made->kernel, &kernel), "graph_update.kernel");
    kernel.gridDimX = 0;
    ask(cu.GraphExecKernelNodeSetParams(made->exec, made->kernel, &kernel), "graph_update.kernel.grid_0");
    ask(cu.GraphExecKernelNodeSetParams(made->exec, made->kernel, NULL), "graph_update.kernel.null");
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing, .userData = &seed};
    ask(cu.GraphExecHostNodeSetParams(made->exec, made->host, &host), "graph_update.host");
    host.fn = NULL;
    ask(cu.GraphExecHostNodeSetParams(made->exec, made->host, &host), "graph_update.host.null_function");
    CUevent event = new_event();
    ask(cu.GraphExecEventRecordNodeSetEvent(made->exec, made->record, event), "graph_update.record");
    ask(cu.GraphExecEventRecordNodeSetEvent(made->exec, made->record, NULL), "graph_update.record.null");
    ask(cu.GraphExecEventWaitNodeSetEvent(made->exec, made->wait, event), "graph_update.wait");
    ask(cu.GraphExecEventWaitNodeSetEvent(made->exec, made->record, event), "graph_update.wait.wrong_kind");
    CUgraph child = new_graph();
    add_fill(child, made->context, NULL, made->memory + 512, 3);
    ask(cu.GraphExecChildGraphNodeSetParams(made->exec, made->child, child), "graph_update.child");
    CUgraphNode next = add_fill(child, made->context, NULL, made->memory + 512, 4);
    ask(cu.GraphExecChildGraphNodeSetParams(made->exec, made->child, child), "graph_update.child.other_topology");
    (void)next;
    ask(cu.GraphLaunch(made->exec, stream), "graph_update.launch");
    ask(cu.StreamSynchronize(stream), "graph_update.synchronize");
    ask_number(byte_at(made->memory + 512), "graph_update.child.byte");
    unsigned enabled = 77;
    CUresult result = cu.GraphNodeGetEnabled(made->exec, made->fill, &enabled);
    ask_value(result, enabled, "graph_update.enabled");
    ask(cu.GraphNodeSetEnabled(made->exec, made->fill, 0), "graph_update.disable");
    result = cu.GraphNodeGetEnabled(made->exec, made->fill, &enabled);
    ask_value(result, enabled, "graph_update.disable.get");
    ask(cu.GraphNodeSetEnabled(made->exec, made->host, 0), "graph_update.disable.host");
    ask(cu.GraphNodeSetEnabled(made->exec, foreign_node, 0), "graph_update.disable.foreign_node");
    cu.MemsetD8Async(other, 77, 64, stream);
    cu.GraphLaunch(made->exec, stream);
    cu.StreamSynchronize(stream);
    ask_number(byte_at(other), "graph_update.disable.byte");
    ask(cu.GraphNodeSetEnabled(made->exec, made->fill, 1), "graph_update.enable");
}

static void ask_update(CUgraphExec exec, CUgraph graph, CUgraphNode expected, const char *question)
{
    CUgraphExecUpdateResultInfo info = {.result = (CUgraphExecUpdateResult)77};
    CUresult result = cu.GraphExecUpdate(exec, graph, &info);
    char text[128];
    snprintf(text, sizeof text, "%s, %d, %s", result_name(result), (int)info.result,
             info.errorNode == NULL       ? "no node"
             : info.errorNode == expected ? "the node"
                                          : "another node");
    ask_text(text, "graph_update.whole.%s", question);
}

static void ask_whole_updates(const struct updated *made, CUfunction function, CUevent event, CUstream stream)
{
    struct updated same;
    make_updated(&same, made->context, function, event);
    ask_update(made->exec, same.graph, NULL, "same");
    cu.MemsetD8Async(same.memory, 0, KIB, stream);
    ask(cu.GraphLaunch(made->exec, stream), "graph_update.whole.same.launch");
    cu.StreamSynchronize(stream);
    ask_number(byte_at(same.memory), "graph_update.whole.same.byte");
    ask(cu.GraphExecUpdate(made->exec, same.graph, NULL), "graph_update.whole.null_info");
    ask(cu.GraphExecUpdate(made->exec, NULL, &(CUgraphExecUpdateResultInfo){.result = 0}),
        "graph_update.whole.null_graph");
    CUgraphNode extra = add_fill(same.graph, made->context, NULL, same.memory, 1);
    ask_update(made->exec, same.graph, extra, "one_node_more");
    cu.GraphDestroyNode(extra);
    ask_update(made->exec, same.graph, NULL, "node_gone_again");
    cu.GraphAddDependencies(same.graph, &same.copy, &same.kernel, NULL, 1);
    ask_update(made->exec, same.graph, same.kernel, "one_edge_more");
    cu.GraphRemoveDependencies(same.graph, &same.copy, &same.kernel, NULL, 1);
    cu.GraphRemoveDependencies(same.graph, &same.fill, &same.copy, NULL, 1);
    ask_update(made->exec, same.graph, same.copy, "one_edge_less");
    cu.GraphAddDependencies(same.graph, &same.fill, &same.copy, NULL, 1);
    ask_update(made->exec, same.graph, NULL, "edges_as_before");

    CUgraph one = new_graph();
    CUgraph two = new_graph();
    CUgraphNode fill = add_fill(one, made->context, NULL, made->memory, 1);
    CUgraphNode empty = NULL;
    cu.GraphAddEmptyNode(&empty, two, NULL, 0);
    CUgraphExec exec = instantiate(one);
    ask_update(exec, two, empty, "other_kind");
    cu.GraphAddEmptyNode(&empty, one, &fill, 1);
    ask_update(exec, one, empty, "one_node_more_at_the_end");
    CUgraph none = new_graph();
    ask_update(exec, none, NULL, "no_node");
    CUgraph memory = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = {.poolProps = pool_properties(), .bytesize = 4096};
    CUgraphNode allocated = NULL;
    cu.GraphAddMemAllocNode(&allocated, memory, NULL, 0, &allocation);
    cu.GraphAddMemFreeNode(&empty, memory, &allocated, 1, allocation.dptr);
    CUgraphExec of_memory = instantiate(memory);
    ask_update(of_memory, memory, allocated, "memory_itself");
    CUgraph wide = new_graph();
    CUDA_MEMSET_NODE_PARAMS rows = {
        .dst = made->memory, .value = 1, .elementSize = 1, .width = 16, .height = 2, .pitch = 64};
    cu.GraphAddMemsetNode(&empty, wide, NULL, 0, &rows, made->context);
    ask_update(exec, wide, empty, "memset_of_rows");
    cu.GraphExecDestroy(of_memory);
    cu.GraphExecDestroy(exec);
}

void ask_graph_update(void)
{
    CUcontext context = start();
    warm_up(NULL);
    struct updated made;
    CUstream stream = idle_stream();
    CUfunction function = pattern_fill_function();
    CUevent event = new_event();
    make_updated(&made, context, function, event);
    ask_graph(made.graph, "graph_update.graph");
    ask_exec_params(&made, function, stream);
    ask_whole_updates(&made, function, event, stream);
    struct gate *gate = gate_hold(stream, GATE_LONG_MS);
    cu.GraphLaunch(made.exec, stream);
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = made.memory, .value = 55, .elementSize = 1, .width = 64, .height = 1};
    ask(cu.GraphExecMemsetNodeSetParams(made.exec, made.fill, &fill, context), "graph_update.while_launched");
    ask_yes(gate_release(gate), "graph_update.while_launched.nothing_waited");
    cu.StreamSynchronize(stream);
    ask_yes(byte_at(made.memory) != 55, "graph_update.while_launched.launch_is_as_it_was");
    cu.GraphExecDestroy(made.exec);
    cu.GraphDestroy(made.graph);
}
