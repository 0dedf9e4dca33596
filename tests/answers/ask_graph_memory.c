/* Questions about the memory of graphs: its addresses, its life across launches, and the device's amounts. */
#include "ask.h"
#include "graph_text.h"

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

static CUgraphNode add_allocation(CUgraph graph, CUgraphNode after, size_t bytes, CUdeviceptr *address)
{
    CUDA_MEM_ALLOC_NODE_PARAMS params = {.poolProps = pool_properties(), .bytesize = bytes};
    CUgraphNode node = NULL;
    cu.GraphAddMemAllocNode(&node, graph, after ? &after : NULL, after ? 1 : 0, &params);
    *address = params.dptr;
    return node;
}

static CUgraphNode add_fill(CUgraph graph, CUcontext context, CUgraphNode after, CUdeviceptr address, unsigned value)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = address, .value = value, .elementSize = 1, .width = 64, .height = 1};
    CUgraphNode node = NULL;
    cu.GraphAddMemsetNode(&node, graph, &after, 1, &fill, context);
    return node;
}

static CUgraphNode add_free(CUgraph graph, CUgraphNode after, CUdeviceptr address)
{
    CUgraphNode node = NULL;
    cu.GraphAddMemFreeNode(&node, graph, &after, 1, address);
    return node;
}

static CUgraphExec instantiate(CUgraph graph, unsigned long long flags)
{
    CUgraphExec exec = NULL;
    cu.GraphInstantiateWithFlags(&exec, graph, flags);
    return exec;
}

static int byte_at(CUdeviceptr address)
{
    unsigned char byte = 0;
    CUresult result = cu.MemcpyDtoH(&byte, address, 1);
    return result == CUDA_SUCCESS ? byte : -(int)result;
}

static void ask_held(const char *when)
{
    static const CUgraphMem_attribute attributes[] = {
        CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT,
        CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH};
    static const char *const names[] = {"used", "used_high", "reserved", "reserved_high"};
    for (int i = 0; i < 4; i++) {
        cuuint64_t number = 77;
        CUresult result = cu.DeviceGetGraphMemAttribute(0, attributes[i], &number);
        ask_value(result, (long long)number, "graph_memory.%s.%s", when, names[i]);
    }
}

static void ask_attribute_calls(void)
{
    cuuint64_t number = 0;
    ask(cu.DeviceGetGraphMemAttribute(0, (CUgraphMem_attribute)77, &number), "graph_memory.get.attribute_77");
    ask(cu.DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, NULL), "graph_memory.get.null");
    ask(cu.DeviceGetGraphMemAttribute(77, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &number), "graph_memory.get.device_77");
    ask(cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &number), "graph_memory.set.used");
    ask(cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_CURRENT, &number), "graph_memory.set.reserved");
    ask(cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &number), "graph_memory.set.used_high");
    ask(cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, NULL), "graph_memory.set.null");
    number = 5;
    ask(cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &number), "graph_memory.set.used_high_5");
    number = 0;
    ask(cu.DeviceSetGraphMemAttribute(77, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &number), "graph_memory.set.device_77");
    ask(cu.DeviceGraphMemTrim(77), "graph_memory.trim.device_77");
    ask(cu.DeviceGraphMemTrim(0), "graph_memory.trim");
}

/* Memory that its own graph frees. */
static void ask_inner(CUcontext context, CUstream stream)
{
    CUgraph graph = new_graph();
    CUdeviceptr first;
    CUdeviceptr second;
    CUdeviceptr third;
    ask_held("begin");
    CUgraphNode node = add_allocation(graph, NULL, 64 * KIB, &first);
    node = add_fill(graph, context, node, first, 1);
    node = add_free(graph, node, first);
    node = add_allocation(graph, node, 64 * KIB, &second);
    add_free(graph, node, second);
    ask_yes(second == first, "graph_memory.inner.address_reused");
    add_allocation(graph, NULL, 64 * KIB, &third);
    ask_yes(third == first, "graph_memory.inner.unordered_address_reused");
    ask_held("inner.made");
    CUgraph lean = new_graph();
    CUdeviceptr address;
    node = add_allocation(lean, NULL, 3 * MIB, &address);
    node = add_fill(lean, context, node, address, 1);
    add_free(lean, node, address);
    CUgraphExec exec = instantiate(lean, 0);
    ask_held("inner.instantiated");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.inner.launch");
    ask(cu.StreamSynchronize(stream), "graph_memory.inner.synchronize");
    ask_held("inner.launched");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.inner.launch_again");
    cu.StreamSynchronize(stream);
    ask_held("inner.launched_again");
    CUgraphExec twin = NULL;
    ask(cu.GraphInstantiateWithFlags(&twin, lean, 0), "graph_memory.inner.second_exec");
    cu.DeviceGraphMemTrim(0);
    ask_held("inner.trimmed");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.inner.launch_after_trim");
    cu.StreamSynchronize(stream);
    ask_held("inner.launched_after_trim");
    ask(cu.GraphExecDestroy(exec), "graph_memory.inner.exec_destroy");
    ask_held("inner.exec_destroyed");
    ask(cu.GraphInstantiateWithFlags(&exec, lean, 0), "graph_memory.inner.exec_after_destroy");
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(lean);
    cu.DeviceGraphMemTrim(0);
    ask_held("inner.end");
    cu.GraphDestroy(graph);
}

static void ask_address(CUdeviceptr address, const char *when)
{
    unsigned type = 77;
    CUresult result = cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, address);
    ask_value(result, type, "graph_memory.%s.memory_type", when);
    CUdeviceptr base = 0;
    size_t bytes = 77;
    result = cu.MemGetAddressRange(&base, &bytes, address);
    ask_value(result, (long long)bytes, "graph_memory.%s.range_bytes", when);
}

/* Memory that outlives the launch. */
static void ask_outer(CUcontext context, CUstream stream, CUstream other)
{
    CUgraph graph = new_graph();
    CUdeviceptr address;
    CUgraphNode node = add_allocation(graph, NULL, 100 * KIB, &address);
    add_fill(graph, context, node, address, 3);
    ask_address(address, "outer.made");
    ask(cu.MemsetD8Async(address, 1, 64, stream), "graph_memory.outer.made.memset");
    ask(cu.MemFreeAsync(address, stream), "graph_memory.outer.made.free");
    ask(cu.MemFree(address), "graph_memory.outer.made.mem_free");
    CUgraphExec exec = instantiate(graph, 0);
    CUgraphExec twin = NULL;
    ask(cu.GraphInstantiateWithFlags(&twin, graph, 0), "graph_memory.outer.second_exec");
    ask(cu.MemFreeAsync(address, stream), "graph_memory.outer.instantiated.free");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.outer.launch");
    cu.StreamSynchronize(stream);
    ask_held("outer.launched");
    ask_address(address, "outer.launched");
    ask_number(byte_at(address), "graph_memory.outer.byte");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.outer.launch_again_without_free");
    ask(cu.MemFreeAsync(address, other), "graph_memory.outer.free_async");
    ask(cu.MemFreeAsync(address, other), "graph_memory.outer.free_async.twice");
    ask(cu.StreamSynchronize(other), "graph_memory.outer.free_async.synchronize");
    ask_held("outer.freed");
    ask_address(address, "outer.freed");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.outer.launch_after_free");
    cu.StreamSynchronize(stream);
    ask_number(byte_at(address), "graph_memory.outer.launch_after_free.byte");
    ask(cu.MemFree(address), "graph_memory.outer.mem_free");
    ask(cu.MemFree(address), "graph_memory.outer.mem_free.twice");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.outer.launch_after_mem_free");
    ask(cu.MemFreeAsync(address, stream), "graph_memory.outer.free_behind_launch");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.outer.launch_behind_free");
    ask(cu.StreamSynchronize(stream), "graph_memory.outer.synchronize");

    CUgraph freeing = new_graph();
    ask_text(cu.GraphAddMemFreeNode(&node, freeing, NULL, 0, address) == CUDA_SUCCESS ? "yes" : "no",
             "graph_memory.outer.free_node_in_other_graph");
    CUgraphExec freer = instantiate(freeing, 0);
    ask(cu.GraphLaunch(freer, stream), "graph_memory.outer.freed_by_graph");
    ask(cu.GraphLaunch(freer, stream), "graph_memory.outer.freed_by_graph.twice");
    ask(cu.StreamSynchronize(stream), "graph_memory.outer.freed_by_graph.synchronize");
    ask(cu.MemFreeAsync(address, stream), "graph_memory.outer.freed_by_graph.free");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.outer.freed_by_graph.launch");
    cu.StreamSynchronize(stream);
    ask_held("outer.before_destroy");
    ask(cu.GraphExecDestroy(exec), "graph_memory.outer.exec_destroy_with_memory_out");
    ask(cu.GraphDestroy(graph), "graph_memory.outer.destroy_with_memory_out");
    ask_held("outer.destroyed");
    ask_number(byte_at(address), "graph_memory.outer.destroyed.byte");
    ask(cu.MemFreeAsync(address, stream), "graph_memory.outer.destroyed.free");
    ask(cu.StreamSynchronize(stream), "graph_memory.outer.destroyed.synchronize");
    ask_held("outer.destroyed.freed");
    cu.DeviceGraphMemTrim(0);
    ask_held("outer.end");
    cu.GraphExecDestroy(freer);
    cu.GraphDestroy(freeing);
}

static void ask_auto_free(CUcontext context, CUstream stream)
{
    CUgraph graph = new_graph();
    CUdeviceptr address;
    CUgraphNode node = add_allocation(graph, NULL, 64 * KIB, &address);
    add_fill(graph, context, node, address, 4);
    CUgraphExec exec = instantiate(graph, CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH);
    ask(cu.GraphLaunch(exec, stream), "graph_memory.auto_free.launch");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.auto_free.launch_again");
    cu.StreamSynchronize(stream);
    ask_number(byte_at(address), "graph_memory.auto_free.byte");
    ask_held("auto_free");
    ask(cu.MemFreeAsync(address, stream), "graph_memory.auto_free.free");
    ask(cu.GraphLaunch(exec, stream), "graph_memory.auto_free.launch_after_free");
    cu.StreamSynchronize(stream);
    ask(cu.GraphExecDestroy(exec), "graph_memory.auto_free.exec_destroy");
    ask_held("auto_free.exec_destroyed");
    ask(cu.MemFreeAsync(address, stream), "graph_memory.auto_free.exec_destroyed.free");
    cu.StreamSynchronize(stream);
    ask(cu.GraphDestroy(graph), "graph_memory.auto_free.destroy");
    ask_held("auto_free.destroyed");
    cu.DeviceGraphMemTrim(0);
    ask_held("auto_free.end");
}

/* A capture turns an earlier allocation from a pool into memory of the graph. */
static void ask_captured(CUstream stream)
{
    CUgraph graph = NULL;
    CUdeviceptr address = 0;
    CUmemoryPool pool = new_pool(0);
    cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    cu.MemAllocFromPoolAsync(&address, 64 * KIB, pool, stream);
    cu.MemsetD8Async(address, 6, 64, stream);
    cu.StreamEndCapture(stream, &graph);
    CUgraphExec exec = instantiate(graph, 0);
    ask(cu.GraphLaunch(exec, stream), "graph_memory.captured.launch");
    cu.StreamSynchronize(stream);
    ask_number(byte_at(address), "graph_memory.captured.byte");
    ask_number((long long)pool_number(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), "graph_memory.captured.pool_used");
    CUmemoryPool found = NULL;
    CUresult result = cu.PointerGetAttribute(&found, CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE, address);
    ask_fact(result, found == pool, "graph_memory.captured.has_its_pool");
    ask(cu.MemPoolDestroy(pool), "graph_memory.captured.pool_destroy");
    /* A captured free of memory that an earlier graph has allocated. */
    CUgraph freeing = NULL;
    cu.StreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED);
    ask(cu.MemFreeAsync(address, stream), "graph_memory.captured.free_in_next_capture");
    result = cu.StreamEndCapture(stream, &freeing);
    ask(result, "graph_memory.captured.free_in_next_capture.end");
    if (result == CUDA_SUCCESS) {
        ask_graph(freeing, "graph_memory.captured.free_in_next_capture.graph");
        CUgraphExec freer = instantiate(freeing, 0);
        ask(cu.GraphLaunch(freer, stream), "graph_memory.captured.free_in_next_capture.launch");
        ask(cu.StreamSynchronize(stream), "graph_memory.captured.free_in_next_capture.synchronize");
    }
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);
    cu.DeviceGraphMemTrim(0);
    ask_held("captured.end");
}

/* How much the device's graphs hold, and how much less the device has free. */
static void ask_amounts(CUstream stream)
{
    CUgraph graphs[3];
    CUgraphExec execs[3];
    CUdeviceptr addresses[3];
    CUdeviceptr more;
    size_t before = 0;
    size_t after = 0;
    size_t total;
    static const size_t sizes[] = {64 * KIB, 40 * MIB, 1 * MIB};
    for (int i = 0; i < 3; i++) {
        graphs[i] = new_graph();
        CUgraphNode node = add_allocation(graphs[i], NULL, sizes[i], &addresses[i]);
        if (i == 2)
            add_allocation(graphs[i], node, 2 * MIB, &more);
        execs[i] = instantiate(graphs[i], 0);
    }
    cu.CtxSynchronize();
    cu.MemGetInfo(&before, &total);
    cu.GraphLaunch(execs[0], stream);
    cu.StreamSynchronize(stream);
    cu.MemGetInfo(&after, &total);
    ask_number((long long)(before - after), "graph_memory.amounts.one.device_has_less");
    ask_held("amounts.one");
    cu.GraphLaunch(execs[1], stream);
    cu.StreamSynchronize(stream);
    ask_held("amounts.two");
    cu.GraphLaunch(execs[2], stream);
    cu.StreamSynchronize(stream);
    ask_held("amounts.three");
    cu.MemFreeAsync(addresses[1], stream);
    cu.StreamSynchronize(stream);
    cu.DeviceGraphMemTrim(0);
    ask_held("amounts.two_freed");
    cu.MemFreeAsync(addresses[0], stream);
    cu.StreamSynchronize(stream);
    ask(cu.GraphUpload(execs[0], stream), "graph_memory.amounts.upload");
    cu.StreamSynchronize(stream);
    cu.DeviceGraphMemTrim(0);
    ask_held("amounts.uploaded");
    cu.MemFreeAsync(addresses[2], stream);
    cu.MemFreeAsync(more, stream);
    cu.StreamSynchronize(stream);
    cuuint64_t zero = 0;
    cu.DeviceGraphMemTrim(0);
    cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &zero);
    cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_RESERVED_MEM_HIGH, &zero);
    ask_held("amounts.reset");
    cu.MemGetInfo(&after, &total);
    ask_number((long long)(before - after), "graph_memory.amounts.end.device_has_less");
    for (int i = 0; i < 3; i++) {
        cu.GraphExecDestroy(execs[i]);
        cu.GraphDestroy(graphs[i]);
    }
}

static void ask_pointer(CUstream stream)
{
    CUgraph graph = new_graph();
    CUdeviceptr address;
    add_allocation(graph, NULL, 100 * KIB, &address);
    CUgraphExec exec = instantiate(graph, 0);
    cu.GraphLaunch(exec, stream);
    cu.StreamSynchronize(stream);
    static const CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_CONTEXT,
                                                     CU_POINTER_ATTRIBUTE_IS_LEGACY_CUDA_IPC_CAPABLE,
                                                     CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES,
                                                     CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE,
                                                     CU_POINTER_ATTRIBUTE_MAPPING_SIZE,
                                                     CU_POINTER_ATTRIBUTE_ACCESS_FLAGS,
                                                     CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL};
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        unsigned long long value = 0;
        CUresult result = cu.PointerGetAttribute(&value, attributes[i], address);
        bool handle =
            attributes[i] == CU_POINTER_ATTRIBUTE_CONTEXT || attributes[i] == CU_POINTER_ATTRIBUTE_MEMPOOL_HANDLE;
        ask_value(result, handle ? value != 0 : (long long)value, "graph_memory.pointer.attribute_%d",
                  (int)attributes[i]);
    }
    ask(cu.MemcpyDtoD(address, address + 4096, 64), "graph_memory.pointer.copy");
    ask(cu.MemsetD8Async(address, 1, 101 * KIB, stream), "graph_memory.pointer.fill_beyond");
    cu.MemFree(address);
    cu.GraphExecDestroy(exec);
    cu.GraphDestroy(graph);
}

void ask_graph_memory(void)
{
    CUcontext context = start();
    warm_up(NULL);
    CUstream stream = idle_stream();
    CUstream other = idle_stream();
    ask_attribute_calls();
    ask_inner(context, stream);
    ask_outer(context, stream, other);
    ask_auto_free(context, stream);
    ask_captured(stream);
    ask_amounts(stream);
    ask_pointer(stream);
}
