/* Questions about captures: their begin and end, streams that join, events, and queries of a captured stream. */
#include "ask.h"
#include "graph_text.h"

#include <pthread.h>
#include <stdio.h>

static const CUstreamCaptureMode global = CU_STREAM_CAPTURE_MODE_GLOBAL;
static const CUstreamCaptureMode relaxed = CU_STREAM_CAPTURE_MODE_RELAXED;

static const char *status_name(CUstream stream)
{
    static const char *const names[] = {"none", "active", "invalidated"};
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cu.StreamIsCapturing(stream, &status);
    return result != CUDA_SUCCESS ? result_name(result) : names[status % 3];
}

static void ask_status(CUstream stream, const char *question)
{
    ask_text(status_name(stream), "%s", question);
}

static CUstream idle_stream(void)
{
    CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
    warm_up(stream);
    return stream;
}

/* Ends the capture and destroys its graph. */
static CUresult end(CUstream stream)
{
    CUgraph graph = NULL;
    CUresult result = cu.StreamEndCapture(stream, &graph);
    if (graph)
        cu.GraphDestroy(graph);
    return result;
}

struct end_elsewhere {
    CUcontext context;
    CUstream stream;
    CUresult result;
};

static void *end_on_thread(void *data)
{
    struct end_elsewhere *end_there = data;
    cu.CtxSetCurrent(end_there->context);
    end_there->result = end(end_there->stream);
    return NULL;
}

static CUresult end_elsewhere(CUcontext context, CUstream stream)
{
    struct end_elsewhere there = {context, stream, CUDA_ERROR_UNKNOWN};
    pthread_t thread;
    if (pthread_create(&thread, NULL, end_on_thread, &there) == 0)
        pthread_join(thread, NULL);
    return there.result;
}

static void ask_beginnings(CUcontext context, CUstream stream)
{
    static const char *const names[] = {"global", "thread_local", "relaxed"};
    CUgraph graph = (CUgraph)0x1234;
    ask(cu.StreamEndCapture(stream, &graph), "capture_begin.end_without_begin");
    ask_text(graph == NULL              ? "null"
             : graph == (CUgraph)0x1234 ? "untouched"
                                        : "set",
             "capture_begin.end_without_begin.graph");
    ask(cu.StreamBeginCapture(stream, (CUstreamCaptureMode)3), "capture_begin.mode_3");
    ask(cu.StreamBeginCapture(stream, (CUstreamCaptureMode)-1), "capture_begin.mode_minus_1");
    ask_status(stream, "capture_begin.wrong_mode.status");
    ask(cu.StreamBeginCapture(NULL, relaxed), "capture_begin.null");
    ask(cu.StreamBeginCapture(CU_STREAM_LEGACY, relaxed), "capture_begin.legacy");
    ask(cu.StreamEndCapture(NULL, &graph), "capture_begin.null.end");
    ask(cu.StreamBeginCapture(CU_STREAM_PER_THREAD, global), "capture_begin.per_thread");
    ask_status(CU_STREAM_PER_THREAD, "capture_begin.per_thread.status");
    ask(end(CU_STREAM_PER_THREAD), "capture_begin.per_thread.end");
    for (int mode = 0; mode < 3; mode++) {
        CUstream other = new_stream(CU_STREAM_NON_BLOCKING);
        ask(cu.StreamBeginCapture(stream, (CUstreamCaptureMode)mode), "capture_begin.%s", names[mode]);
        ask(cu.StreamBeginCapture(other, (CUstreamCaptureMode)mode), "capture_begin.%s.second_stream", names[mode]);
        ask_text(status_name(stream), "capture_begin.%s.second_stream.status_of_first", names[mode]);
        ask(end(other), "capture_begin.%s.second_stream.end", names[mode]);
        ask(cu.StreamEndCapture(stream, NULL), "capture_begin.%s.end_null_graph", names[mode]);
        ask_text(status_name(stream), "capture_begin.%s.end_null_graph.status", names[mode]);
        ask(end(stream), "capture_begin.%s.end_null_graph.end_again", names[mode]);
        cu.StreamBeginCapture(stream, (CUstreamCaptureMode)mode);
        ask(end_elsewhere(context, stream), "capture_begin.%s.end_on_other_thread", names[mode]);
        ask_text(status_name(stream), "capture_begin.%s.end_on_other_thread.status", names[mode]);
        ask(end(stream), "capture_begin.%s.end_on_other_thread.end", names[mode]);
        cu.StreamDestroy(other);
    }
    cu.StreamBeginCapture(stream, global);
    CUresult result = cu.StreamEndCapture(stream, &graph);
    ask(result, "capture_begin.empty.end");
    ask_graph(graph, "capture_begin.empty.graph");
    cu.GraphDestroy(graph);
    CUstream blocking = new_stream(CU_STREAM_DEFAULT);
    ask(cu.StreamBeginCapture(blocking, global), "capture_begin.blocking");
    ask_status(NULL, "capture_begin.blocking.status_of_null");
    ask(end(blocking), "capture_begin.blocking.end");
    struct gate *gate = gate_hold(stream, GATE_LONG_MS);
    ask(cu.StreamBeginCapture(stream, global), "capture_begin.busy");
    ask_status(stream, "capture_begin.busy.status");
    ask(end(stream), "capture_begin.busy.end");
    ask_yes(gate_release(gate), "capture_begin.busy.nothing_waited");
    cu.StreamSynchronize(stream);
}

static void ask_info(CUstream stream)
{
    CUstreamCaptureStatus status;
    cuuint64_t id = 77;
    cuuint64_t other_id = 77;
    CUgraph graph = (CUgraph)0x1234;
    CUgraph ended = NULL;
    const CUgraphNode *nodes = NULL;
    const CUgraphEdgeData *edges = NULL;
    size_t count = 77;
    CUdeviceptr memory = new_memory(4 * KIB);
    CUstream other = idle_stream();
    CUevent event = new_event();
    cu.StreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, NULL, &count);
    ask_yes(id == 77 && graph == (CUgraph)0x1234 && count == 77, "capture_info.not_capturing.untouched");
    cu.StreamBeginCapture(stream, relaxed);
    CUresult result = cu.StreamGetCaptureInfo(stream, &status, &id, &graph, &nodes, &edges, &count);
    ask_value(result, status, "capture_info.begun.status");
    ask_value(result, (long long)count, "capture_info.begun.dependencies");
    ask_yes(graph != NULL, "capture_info.begun.has_graph");
    ask_yes(id != 0 && id != 77, "capture_info.begun.has_id");
    cu.MemsetD8Async(memory, 1, KIB, stream);
    result = cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, &edges, &count);
    ask_value(result, (long long)count, "capture_info.one_node.dependencies");
    ask_text(node_kind(nodes[0]), "capture_info.one_node.kind");
    ask_yes(edges == NULL, "capture_info.one_node.no_edge_data");
    ask_graph(graph, "capture_info.one_node.graph");
    ask(cu.StreamGetCaptureInfo(stream, NULL, &id, NULL, NULL, NULL, NULL), "capture_info.null_status");
    ask(cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, NULL), "capture_info.nodes_without_count");
    ask(cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, &count), "capture_info.count_without_nodes");
    cu.EventRecord(event, stream);
    cu.StreamWaitEvent(other, event, 0);
    cu.StreamGetCaptureInfo(other, &status, &other_id, NULL, NULL, NULL, &count);
    ask_yes(id == other_id, "capture_info.joined.same_id");
    ask_number((long long)count, "capture_info.joined.dependencies");
    cu.MemsetD8Async(memory + KIB, 1, KIB, other);
    cu.EventRecord(event, other);
    cu.StreamWaitEvent(stream, event, 0);
    cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &count);
    ask_number((long long)count, "capture_info.rejoined.dependencies");
    result = cu.StreamEndCapture(stream, &ended);
    ask_fact(result, ended == graph, "capture_info.end.same_graph");
    ask_graph(ended, "capture_info.end.graph");
    cu.GraphDestroy(ended);
    ask_status(other, "capture_info.end.status_of_joined");
    cu.StreamBeginCapture(stream, relaxed);
    cu.StreamGetCaptureInfo(stream, &status, &other_id, NULL, NULL, NULL, NULL);
    ask_yes(other_id != id, "capture_info.next.other_id");
    end(stream);
    cu.MemFree(memory);
}

void ask_capture_begin(void)
{
    CUcontext context = start();
    warm_up(NULL);
    CUstream stream = idle_stream();
    ask_beginnings(context, stream);
    ask_info(stream);
}

/* ---- streams that join ---- */

static void ask_fork_and_join(CUstream origin, CUstream second, CUstream third, CUdeviceptr memory)
{
    CUgraph graph = NULL;
    CUevent fork = new_event();
    CUevent join = new_event();
    cu.StreamBeginCapture(origin, global);
    ask(cu.EventRecord(fork, origin), "capture_fork.record_without_work");
    ask(cu.StreamWaitEvent(second, fork, 0), "capture_fork.wait_for_record_without_work");
    ask_status(second, "capture_fork.status_of_second");
    cu.MemsetD8Async(memory, 1, 64, origin);
    cu.MemsetD8Async(memory + 64, 1, 64, second);
    cu.EventRecord(fork, second);
    cu.StreamWaitEvent(third, fork, 0);
    cu.MemsetD8Async(memory + 128, 1, 64, third);
    ask(end(second), "capture_fork.end_on_joined_stream");
    ask_status(origin, "capture_fork.end_on_joined_stream.status_of_origin");
    ask(end(origin), "capture_fork.end_on_joined_stream.end");

    cu.StreamBeginCapture(origin, global);
    cu.MemsetD8Async(memory, 1, 64, origin);
    cu.EventRecord(fork, origin);
    cu.StreamWaitEvent(second, fork, 0);
    cu.StreamWaitEvent(third, fork, 0);
    cu.MemsetD8Async(memory + 64, 1, 64, second);
    cu.MemsetD8Async(memory + 128, 1, 64, third);
    cu.MemsetD8Async(memory + 128, 2, 64, third);
    cu.EventRecord(join, second);
    cu.StreamWaitEvent(origin, join, 0);
    cu.EventRecord(join, third);
    cu.StreamWaitEvent(origin, join, 0);
    cu.MemsetD8Async(memory, 1, 192, origin);
    ask(cu.StreamEndCapture(origin, &graph), "capture_fork.joined.end");
    ask_graph(graph, "capture_fork.joined.graph");
    cu.GraphDestroy(graph);

    cu.StreamBeginCapture(origin, global);
    cu.MemsetD8Async(memory, 1, 64, origin);
    cu.EventRecord(fork, origin);
    cu.StreamWaitEvent(second, fork, 0);
    graph = NULL;
    ask(cu.StreamEndCapture(origin, &graph), "capture_fork.idle_branch.end");
    ask_yes(graph != NULL, "capture_fork.idle_branch.graph");
    ask_status(second, "capture_fork.idle_branch.status_of_second");
    if (graph)
        cu.GraphDestroy(graph);

    cu.StreamBeginCapture(origin, global);
    cu.MemsetD8Async(memory, 1, 64, origin);
    cu.EventRecord(fork, origin);
    cu.StreamWaitEvent(second, fork, 0);
    cu.MemsetD8Async(memory + 64, 1, 64, second);
    graph = (CUgraph)0x1234;
    ask(cu.StreamEndCapture(origin, &graph), "capture_fork.unjoined.end");
    ask_text(graph == NULL ? "null" : graph == (CUgraph)0x1234 ? "untouched" : "set", "capture_fork.unjoined.graph");
    ask_status(origin, "capture_fork.unjoined.status_of_origin");
    ask_status(second, "capture_fork.unjoined.status_of_second");
    ask(cu.MemsetD8Async(memory, 1, 64, second), "capture_fork.unjoined.second_usable");
    ask(cu.EventQuery(fork), "capture_fork.unjoined.event_query");
    ask(cu.StreamWaitEvent(third, fork, 0), "capture_fork.unjoined.event_wait");
    ask_status(third, "capture_fork.unjoined.event_wait.status");
    cu.StreamSynchronize(second);

    cu.StreamBeginCapture(origin, global);
    cu.MemsetD8Async(memory, 1, 64, origin);
    cu.EventRecord(fork, origin);
    cu.StreamWaitEvent(second, fork, 0);
    cu.MemsetD8Async(memory + 64, 1, 64, second);
    cu.MemsetD8Async(memory, 1, 64, origin);
    cu.EventRecord(join, second);
    ask(cu.StreamBeginCapture(second, global), "capture_fork.begin_on_joined_stream");
    cu.StreamWaitEvent(third, join, 0);
    cu.StreamWaitEvent(origin, join, 0);
    graph = NULL;
    ask(cu.StreamEndCapture(origin, &graph), "capture_fork.third_without_work.end");
    if (graph) {
        ask_graph(graph, "capture_fork.third_without_work.graph");
        cu.GraphDestroy(graph);
    }
    cu.EventDestroy(fork);
    cu.EventDestroy(join);
}

static void ask_two_captures(CUstream first, CUstream second, CUdeviceptr memory)
{
    CUevent event = new_event();
    cu.StreamBeginCapture(first, relaxed);
    cu.StreamBeginCapture(second, relaxed);
    cu.MemsetD8Async(memory, 1, 64, first);
    cu.MemsetD8Async(memory, 1, 64, second);
    cu.EventRecord(event, first);
    ask(cu.StreamWaitEvent(second, event, 0), "capture_two.wait_for_the_other");
    ask_status(first, "capture_two.wait_for_the_other.status_of_first");
    ask_status(second, "capture_two.wait_for_the_other.status_of_second");
    ask(end(first), "capture_two.end_of_first");
    ask(end(second), "capture_two.end_of_second");

    cu.StreamBeginCapture(first, relaxed);
    cu.MemsetD8Async(memory, 1, 64, first);
    cu.EventRecord(event, first);
    end(first);
    ask(cu.EventQuery(event), "capture_two.event_of_ended.query");
    ask(cu.EventSynchronize(event), "capture_two.event_of_ended.synchronize");
    ask(cu.StreamWaitEvent(second, event, 0), "capture_two.event_of_ended.wait");
    cu.StreamBeginCapture(first, relaxed);
    ask(cu.StreamWaitEvent(first, event, 0), "capture_two.event_of_ended.wait_in_next_capture");
    ask_status(first, "capture_two.event_of_ended.wait_in_next_capture.status");
    ask(end(first), "capture_two.event_of_ended.wait_in_next_capture.end");
    ask(cu.EventRecord(event, second), "capture_two.event_of_ended.record");
    ask(cu.EventSynchronize(event), "capture_two.event_of_ended.recorded.synchronize");
    ask(cu.EventQuery(event), "capture_two.event_of_ended.recorded.query");

    cu.StreamBeginCapture(first, relaxed);
    cu.MemsetD8Async(memory, 1, 64, first);
    cu.EventRecord(event, first);
    ask(cu.EventRecord(event, second), "capture_two.captured_event.record_outside");
    ask(cu.EventSynchronize(event), "capture_two.captured_event.recorded_outside.synchronize");
    ask_status(first, "capture_two.captured_event.recorded_outside.status");
    ask(cu.StreamWaitEvent(first, event, 0), "capture_two.captured_event.recorded_outside.wait");
    ask_status(first, "capture_two.captured_event.recorded_outside.wait.status");
    ask(cu.MemsetD8Async(memory, 1, 64, first), "capture_two.invalidated.memset");
    ask(cu.EventRecord(event, first), "capture_two.invalidated.record");
    ask(cu.LaunchHostFunc(first, NULL, NULL), "capture_two.invalidated.host_function_null");
    ask(cu.StreamQuery(first), "capture_two.invalidated.query");
    ask(cu.StreamBeginCapture(first, relaxed), "capture_two.invalidated.begin");
    ask(cu.StreamWaitEvent(second, event, 0), "capture_two.invalidated.wait_elsewhere");
    CUstreamCaptureStatus status;
    cuuint64_t id = 77;
    size_t count = 77;
    CUgraph graph = (CUgraph)0x1234;
    CUresult result = cu.StreamGetCaptureInfo(first, &status, &id, &graph, NULL, NULL, &count);
    ask_value(result, status, "capture_two.invalidated.info.status");
    ask_yes(id == 77, "capture_two.invalidated.info.id_untouched");
    ask_yes(count == 77, "capture_two.invalidated.info.count_untouched");
    graph = (CUgraph)0x1234;
    ask(cu.StreamEndCapture(first, &graph), "capture_two.invalidated.end");
    ask_text(graph == NULL              ? "null"
             : graph == (CUgraph)0x1234 ? "untouched"
                                        : "set",
             "capture_two.invalidated.end.graph");
    ask_status(first, "capture_two.invalidated.end.status");
    ask(cu.MemsetD8Async(memory, 1, 64, first), "capture_two.invalidated.end.memset");
    ask(cu.StreamSynchronize(first), "capture_two.invalidated.end.synchronize");
    cu.EventDestroy(event);
}

static void ask_joined_death(CUstream origin, CUstream second, CUdeviceptr memory)
{
    CUevent event = new_event();
    cu.StreamBeginCapture(origin, relaxed);
    cu.MemsetD8Async(memory, 1, 64, origin);
    cu.EventRecord(event, origin);
    cu.StreamWaitEvent(second, event, 0);
    ask(cu.StreamSynchronize(second), "capture_fork.synchronize_joined");
    ask_status(origin, "capture_fork.synchronize_joined.status_of_origin");
    ask_status(second, "capture_fork.synchronize_joined.status_of_second");
    ask(end(second), "capture_fork.synchronize_joined.end_on_second");
    ask(end(origin), "capture_fork.synchronize_joined.end");
    ask_status(second, "capture_fork.synchronize_joined.end.status_of_second");
    cu.EventDestroy(event);
}

static const char *const mode_names[] = {"global", "thread_local", "relaxed"};

/* Which of a thread's two captures an unsafe call invalidates. */
static void ask_unsafe_beside_two(CUstream first, CUstream second)
{
    for (int one = 0; one < 3; one++) {
        for (int two = 0; two < 3; two++) {
            CUdeviceptr address = 0;
            cu.StreamBeginCapture(first, (CUstreamCaptureMode)one);
            cu.StreamBeginCapture(second, (CUstreamCaptureMode)two);
            CUresult result = cu.MemAlloc(&address, 4096);
            char answer[128];
            snprintf(answer, sizeof answer, "%s, %s, %s", result_name(result), status_name(first), status_name(second));
            ask_text(answer, "capture_two.unsafe_call.%s_and_%s", mode_names[one], mode_names[two]);
            end(first);
            end(second);
            cu.MemFree(address);
        }
    }
}

void ask_capture_fork(void)
{
    start();
    CUstream origin = idle_stream();
    CUstream second = idle_stream();
    CUstream third = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    ask_fork_and_join(origin, second, third, memory);
    ask_joined_death(origin, second, memory);
    ask_two_captures(origin, second, memory);
    ask_unsafe_beside_two(origin, second);
}

/* ---- what calls become ---- */

static void CUDA_CB nothing(void *data)
{
    (void)data;
}

void ask_capture_graphs(void)
{
    start();
    CUgraph graph = NULL;
    CUstream stream = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    unsigned char page[64] = {0};
    void *pinned = NULL;
    CUevent event = new_event();
    CUfunction function = pattern_fill_function();
    cu.MemHostAlloc(&pinned, 4 * KIB, 0);
    cu.StreamBeginCapture(stream, global);
    cu.MemsetD8Async(memory, 1, 64, stream);
    cu.MemsetD32Async(memory, 1, 16, stream);
    cu.MemcpyHtoDAsync(memory, page, sizeof page, stream);
    cu.MemcpyHtoDAsync(memory, pinned, 64, stream);
    cu.MemcpyDtoHAsync(page, memory, sizeof page, stream);
    cu.MemcpyDtoDAsync(memory + 64, memory, 64, stream);
    cu.MemcpyAsync(memory + 64, memory, 64, stream);
    pattern_fill(function, memory, 64, 1, stream);
    cu.LaunchHostFunc(stream, nothing, NULL);
    cu.EventRecord(event, stream);
    cu.StreamWaitEvent(stream, event, 0);
    cu.MemsetD8Async(memory, 1, 0, stream);
    cu.MemcpyDtoDAsync(memory + 64, memory, 0, stream);
    cu.EventRecordWithFlags(event, stream, CU_EVENT_RECORD_EXTERNAL);
    cu.StreamWaitEvent(stream, event, CU_EVENT_WAIT_EXTERNAL);
    ask(cu.StreamEndCapture(stream, &graph), "capture_graphs.one_stream.end");
    ask_graph(graph, "capture_graphs.one_stream.graph");
    CUgraphNode nodes[32];
    size_t count = 32;
    cu.GraphGetNodes(graph, nodes, &count);
    CUDA_MEMCPY3D copy;
    CUDA_MEMSET_NODE_PARAMS fill;
    CUresult result = cu.GraphMemsetNodeGetParams(nodes[0], &fill);
    ask_value(result, (long long)fill.width, "capture_graphs.memset8.width");
    ask_value(result, (long long)fill.height, "capture_graphs.memset8.height");
    ask_value(result, fill.elementSize, "capture_graphs.memset8.element_size");
    ask_value(result, (long long)fill.pitch, "capture_graphs.memset8.pitch");
    result = cu.GraphMemsetNodeGetParams(nodes[1], &fill);
    ask_value(result, (long long)fill.width, "capture_graphs.memset32.width");
    ask_value(result, fill.elementSize, "capture_graphs.memset32.element_size");
    for (int i = 2; i < 7; i++) {
        result = cu.GraphMemcpyNodeGetParams(nodes[i], &copy);
        ask_value(result, copy.srcMemoryType, "capture_graphs.copy_%d.source_type", i);
        ask_value(result, copy.dstMemoryType, "capture_graphs.copy_%d.destination_type", i);
        ask_value(result, (long long)copy.WidthInBytes, "capture_graphs.copy_%d.width", i);
        ask_value(result, (long long)copy.Height, "capture_graphs.copy_%d.height", i);
        ask_value(result, (long long)copy.Depth, "capture_graphs.copy_%d.depth", i);
        ask_value(result, (long long)copy.srcPitch, "capture_graphs.copy_%d.source_pitch", i);
    }
    CUDA_KERNEL_NODE_PARAMS kernel;
    result = cu.GraphKernelNodeGetParams(nodes[7], &kernel);
    ask_value(result, kernel.blockDimX, "capture_graphs.kernel.block");
    ask_fact(result, kernel.func == function, "capture_graphs.kernel.same_function");
    cu.GraphDestroy(graph);

    ask(cu.StreamBeginCapture(stream, relaxed), "capture_graphs.wrong_fill");
    cu.MemsetD8Async(0x1000, 1, 64, stream);
    cu.StreamEndCapture(stream, &graph);
    ask_graph(graph, "capture_graphs.wrong_fill.graph");
    CUgraphExec exec = NULL;
    ask(cu.GraphInstantiateWithFlags(&exec, graph, 0), "capture_graphs.wrong_fill.instantiate");
    if (exec)
        cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);

    /* Pageable memory is read when the graph runs, not at the capture. */
    exec = NULL;
    unsigned char seen[2] = {0, 0};
    page[0] = 1;
    cu.StreamBeginCapture(stream, relaxed);
    ask(cu.MemcpyHtoDAsync(memory, page, sizeof page, stream), "capture_graphs.pageable.copy");
    ask(cu.MemcpyDtoHAsync(seen, memory, 1, stream), "capture_graphs.pageable.copy_back");
    page[0] = 2;
    cu.StreamEndCapture(stream, &graph);
    ask(cu.GraphInstantiateWithFlags(&exec, graph, 0), "capture_graphs.pageable.instantiate");
    page[0] = 3;
    ask_number(seen[0], "capture_graphs.pageable.before_launch");
    ask(cu.GraphLaunch(exec, stream), "capture_graphs.pageable.launch");
    cu.StreamSynchronize(stream);
    ask_number(seen[0], "capture_graphs.pageable.seen");
    page[0] = 4;
    cu.GraphLaunch(exec, stream);
    cu.StreamSynchronize(stream);
    ask_number(seen[0], "capture_graphs.pageable.seen_next");
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);
}

/* ---- memory of a capture ---- */

static const char *kind_of_address(CUdeviceptr address)
{
    return address == 0x1234 ? "untouched" : address == 0 ? "null" : "set";
}

static void ask_captured_attributes(CUdeviceptr address)
{
    unsigned type = 77;
    CUmemoryPool pool = (CUmemoryPool)0x1234;
    size_t bytes = 77;
    CUdeviceptr base = 0;
    CUresult result = cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    ask_value(result, type, "capture_memory.attribute.memory_type");
    result = cu.PointerGetAttribute(&pool, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
    ask_fact(result, pool == NULL, "capture_memory.attribute.no_pool");
    result = cu.PointerGetAttribute(&bytes, CU_POINTER_ATTRIBUTE_RANGE_SIZE, address);
    ask_value(result, (long long)bytes, "capture_memory.attribute.range_size");
    result = cu.MemGetAddressRange(&base, &bytes, address);
    ask_fact(result, base == address, "capture_memory.address_range.base");
    ask_value(result, (long long)bytes, "capture_memory.address_range.bytes");
}

void ask_capture_memory(void)
{
    start();
    CUgraph graph = NULL;
    CUstream stream = idle_stream();
    CUstream other = idle_stream();
    CUdeviceptr first = 0x1234;
    CUdeviceptr second = 0;
    CUdeviceptr third = 0;
    CUmemoryPool pool = new_pool(0);
    CUmemoryPool small = new_pool(1 * MIB);
    cu.StreamBeginCapture(stream, relaxed);
    ask(cu.MemAllocAsync(&first, 0, stream), "capture_memory.alloc_0");
    ask_text(kind_of_address(first), "capture_memory.alloc_0.address");
    ask(cu.MemAllocAsync(NULL, 4096, stream), "capture_memory.alloc_null_out");
    ask(cu.MemAllocFromPoolAsync(&first, 4096, NULL, stream), "capture_memory.alloc_null_pool");
    ask(cu.MemAllocAsync(&first, 1000, stream), "capture_memory.alloc");
    ask_number((long long)(first % 512), "capture_memory.alloc.modulo_512");
    ask_captured_attributes(first);
    ask(cu.MemAllocFromPoolAsync(&second, 64 * KIB, pool, stream), "capture_memory.alloc_from_pool");
    ask_yes(first != second, "capture_memory.alloc_from_pool.differs");
    ask(cu.MemsetD8Async(first, 1, 1000, stream), "capture_memory.memset");
    ask(cu.MemsetD8Async(first, 1, 1001, stream), "capture_memory.memset_beyond");
    ask(cu.MemFreeAsync(first + 512, stream), "capture_memory.free_interior");
    ask(cu.MemFreeAsync(0x1000, stream), "capture_memory.free_foreign");
    ask(cu.MemFree(first), "capture_memory.mem_free");
    ask(cu.MemFreeAsync(first, other), "capture_memory.free_on_other_stream");
    ask_status(stream, "capture_memory.status");
    ask(cu.MemFreeAsync(first, stream), "capture_memory.free");
    ask(cu.MemFreeAsync(first, stream), "capture_memory.free_twice");
    ask_status(stream, "capture_memory.free_twice.status");
    ask(cu.MemAllocAsync(&third, 1000, stream), "capture_memory.alloc_after_free");
    ask_yes(third == first, "capture_memory.alloc_after_free.same_address");
    CUdeviceptr large = 0x1234;
    ask(cu.MemAllocAsync(&large, PIB, stream), "capture_memory.alloc_pebibyte");
    ask_text(kind_of_address(large), "capture_memory.alloc_pebibyte.address");
    ask_status(stream, "capture_memory.alloc_pebibyte.status");
    ask(cu.MemAllocFromPoolAsync(&large, 64 * MIB, small, stream), "capture_memory.alloc_beyond_pool");
    ask(cu.StreamEndCapture(stream, &graph), "capture_memory.end");
    ask_graph(graph, "capture_memory.graph");
    ask(cu.MemFreeAsync(second, other), "capture_memory.ended.free");
    ask(cu.MemsetD8Async(second, 1, 64, other), "capture_memory.ended.memset");
    ask(cu.StreamSynchronize(other), "capture_memory.ended.synchronize");
    ask(cu.GraphDestroy(graph), "capture_memory.destroy");
    unsigned type = 77;
    CUresult result = cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, second);
    ask_value(result, type, "capture_memory.destroyed.memory_type");
    ask(cu.MemFreeAsync(second, other), "capture_memory.destroyed.free");
    ask(cu.StreamSynchronize(other), "capture_memory.destroyed.synchronize");
}

/* ---- capturing to a graph ---- */

void ask_capture_to_graph(void)
{
    start();
    CUgraph graph = NULL;
    CUgraph ended = NULL;
    CUgraph foreign = NULL;
    CUgraphNode nodes[2];
    CUgraphNode foreign_node;
    CUstream stream = idle_stream();
    CUstream other = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    cu.GraphCreate(&graph, 0);
    cu.GraphCreate(&foreign, 0);
    cu.GraphAddEmptyNode(&nodes[0], graph, NULL, 0);
    cu.GraphAddEmptyNode(&nodes[1], graph, NULL, 0);
    cu.GraphAddEmptyNode(&foreign_node, foreign, NULL, 0);
    ask(cu.StreamBeginCaptureToGraph(stream, NULL, NULL, NULL, 0, global), "capture_to_graph.null");
    ask(cu.StreamBeginCaptureToGraph(stream, graph, NULL, NULL, 1, global), "capture_to_graph.null_dependencies");
    ask(cu.StreamBeginCaptureToGraph(stream, graph, &foreign_node, NULL, 1, global),
        "capture_to_graph.foreign_dependency");
    ask_status(stream, "capture_to_graph.foreign_dependency.status");
    ask(cu.StreamBeginCaptureToGraph(stream, graph, nodes, NULL, 2, (CUstreamCaptureMode)3), "capture_to_graph.mode_3");
    ask(cu.StreamBeginCaptureToGraph(NULL, graph, nodes, NULL, 2, global), "capture_to_graph.null_stream");
    ask(cu.StreamBeginCaptureToGraph(stream, graph, nodes, NULL, 2, global), "capture_to_graph.begin");
    ask(cu.StreamBeginCaptureToGraph(other, graph, NULL, NULL, 0, global), "capture_to_graph.same_graph_twice");
    ask_status(other, "capture_to_graph.same_graph_twice.status");
    CUstreamCaptureStatus other_status = CU_STREAM_CAPTURE_STATUS_NONE;
    cu.StreamIsCapturing(other, &other_status);
    if (other_status == CU_STREAM_CAPTURE_STATUS_ACTIVE)
        ask(cu.StreamEndCapture(other, &ended), "capture_to_graph.same_graph_twice.end");
    CUstreamCaptureStatus status;
    CUgraph reported = NULL;
    size_t count = 77;
    cu.StreamGetCaptureInfo(stream, &status, NULL, &reported, NULL, NULL, &count);
    ask_yes(reported == graph, "capture_to_graph.info.same_graph");
    ask_number((long long)count, "capture_to_graph.info.dependencies");
    cu.MemsetD8Async(memory, 1, 64, stream);
    CUgraphNode added;
    ask(cu.GraphAddEmptyNode(&added, graph, nodes, 1), "capture_to_graph.add_node_meanwhile");
    cu.MemsetD8Async(memory, 1, 64, stream);
    ask(cu.StreamEndCapture(stream, &ended), "capture_to_graph.end");
    ask_yes(ended == graph, "capture_to_graph.end.same_graph");
    ask_graph(graph, "capture_to_graph.graph");
    ask(cu.StreamBeginCaptureToGraph(stream, graph, NULL, NULL, 0, relaxed), "capture_to_graph.again");
    cu.MemsetD8Async(memory, 1, 64, stream);
    ask(cu.StreamSynchronize(stream), "capture_to_graph.again.synchronize");
    ask_status(stream, "capture_to_graph.again.status");
    ended = (CUgraph)0x1234;
    ask(cu.StreamEndCapture(stream, &ended), "capture_to_graph.again.end");
    ask_yes(ended == NULL, "capture_to_graph.again.end.null");
    ask_graph(graph, "capture_to_graph.again.graph");
    cu.GraphDestroy(foreign);
    cu.GraphDestroy(graph);
}

void ask_capture_dependencies(void)
{
    start();
    CUgraph graph = NULL;
    CUgraph foreign = NULL;
    CUgraphNode foreign_node;
    CUgraphNode extra;
    CUstream stream = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    CUstreamCaptureStatus status;
    size_t count = 77;
    ask(cu.StreamUpdateCaptureDependencies(stream, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
        "capture_dependencies.not_capturing");
    cu.GraphCreate(&foreign, 0);
    cu.GraphAddEmptyNode(&foreign_node, foreign, NULL, 0);
    cu.StreamBeginCapture(stream, relaxed);
    cu.MemsetD8Async(memory, 1, 64, stream);
    cu.StreamGetCaptureInfo(stream, &status, NULL, &graph, NULL, NULL, &count);
    cu.GraphAddEmptyNode(&extra, graph, NULL, 0);
    ask(cu.StreamUpdateCaptureDependencies(stream, &extra, NULL, 1, 2), "capture_dependencies.flags_2");
    ask(cu.StreamUpdateCaptureDependencies(stream, NULL, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
        "capture_dependencies.null_nodes");
    ask(cu.StreamUpdateCaptureDependencies(stream, &foreign_node, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
        "capture_dependencies.foreign_node");
    ask_status(stream, "capture_dependencies.wrong.status");
    ask(cu.StreamUpdateCaptureDependencies(stream, &extra, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
        "capture_dependencies.add");
    cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, &count);
    ask_number((long long)count, "capture_dependencies.add.count");
    ask(cu.StreamUpdateCaptureDependencies(stream, &extra, NULL, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES),
        "capture_dependencies.add_again");
    cu.StreamGetCaptureInfo(stream, &status, NULL, NULL, NULL, NULL, &count);
    ask_number((long long)count, "capture_dependencies.add_again.count");
    cu.MemsetD8Async(memory, 1, 64, stream);
    ask(cu.StreamUpdateCaptureDependencies(stream, NULL, NULL, 0, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
        "capture_dependencies.set_none");
    cu.MemsetD8Async(memory, 1, 64, stream);
    ask(cu.StreamUpdateCaptureDependencies(stream, &extra, NULL, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES),
        "capture_dependencies.set");
    cu.MemsetD8Async(memory, 1, 64, stream);
    ask(cu.StreamEndCapture(stream, &graph), "capture_dependencies.end");
    ask_graph(graph, "capture_dependencies.graph");
    cu.GraphDestroy(graph);
    cu.GraphDestroy(foreign);
}

/* ---- ends of handles ---- */

void ask_capture_destroyed(void)
{
    start();
    CUstream stream = idle_stream();
    CUstream joined = idle_stream();
    CUdeviceptr memory = new_memory(4 * KIB);
    CUevent event = new_event();
    CUgraph graph = NULL;
    cu.StreamBeginCapture(stream, relaxed);
    cu.MemsetD8Async(memory, 1, 64, stream);
    cu.EventRecord(event, stream);
    ask(cu.EventDestroy(event), "capture_destroyed.event");
    ask_status(stream, "capture_destroyed.event.status");
    ask(end(stream), "capture_destroyed.event.end");
    event = new_event();
    cu.StreamBeginCapture(stream, relaxed);
    cu.MemsetD8Async(memory, 1, 64, stream);
    cu.EventRecord(event, stream);
    cu.StreamWaitEvent(joined, event, 0);
    cu.MemsetD8Async(memory, 1, 64, joined);
    cu.EventRecord(event, joined);
    cu.StreamWaitEvent(stream, event, 0);
    ask(cu.StreamDestroy(joined), "capture_destroyed.joined_stream");
    ask_status(stream, "capture_destroyed.joined_stream.status");
    ask(cu.StreamEndCapture(stream, &graph), "capture_destroyed.joined_stream.end");
    if (graph)
        cu.GraphDestroy(graph);
    cu.StreamBeginCapture(stream, relaxed);
    cu.MemsetD8Async(memory, 1, 64, stream);
    ask(cu.StreamDestroy(stream), "capture_destroyed.stream");
    CUstream next = new_stream(CU_STREAM_NON_BLOCKING);
    ask_status(next, "capture_destroyed.next_stream.status");
    ask(cu.StreamSynchronize(next), "capture_destroyed.next_stream.synchronize");
    ask(cu.MemFree(memory), "capture_destroyed.mem_free");
}
