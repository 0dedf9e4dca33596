/* Questions about graphs: their nodes and dependencies, and what can be read back and changed. */
#include "ask.h"
#include "graph_text.h"

#include <stdatomic.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

static void CUDA_CB nothing(void *data)
{
    (void)data;
}

static void CUDA_CB nothing_else(void *data)
{
    (void)data;
}

static CUDA_MEMSET_NODE_PARAMS a_fill(CUdeviceptr address, unsigned element, size_t width)
{
    return (CUDA_MEMSET_NODE_PARAMS){.dst = address, .value = 7, .elementSize = element, .width = width, .height = 1};
}

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

static CUDA_MEM_ALLOC_NODE_PARAMS an_allocation(size_t bytes)
{
    return (CUDA_MEM_ALLOC_NODE_PARAMS){.poolProps = pool_properties(), .bytesize = bytes};
}

static CUgraph new_graph(void)
{
    CUgraph graph = NULL;
    cu.GraphCreate(&graph, 0);
    return graph;
}

static CUgraphNode add_empty(CUgraph graph, const CUgraphNode *after, size_t count)
{
    CUgraphNode node = NULL;
    cu.GraphAddEmptyNode(&node, graph, after, count);
    return node;
}

void ask_graph_create(void)
{
    start();
    CUgraph graph = NULL;
    CUgraphNode node = (CUgraphNode)0x1234;
    size_t count = 77;
    ask(cu.GraphCreate(NULL, 0), "graph_create.null");
    ask(cu.GraphCreate(&graph, 1), "graph_create.flags_1");
    ask(cu.GraphCreate(&graph, 0), "graph_create");
    ask_graph(graph, "graph_create.graph");
    ask(cu.GraphGetNodes(graph, NULL, &count), "graph_create.get_nodes");
    ask_number((long long)count, "graph_create.get_nodes.count");
    ask(cu.GraphGetNodes(graph, NULL, NULL), "graph_create.get_nodes.null");
    ask(cu.GraphAddEmptyNode(NULL, graph, NULL, 0), "graph_create.add_empty.null_out");
    ask(cu.GraphAddEmptyNode(&node, graph, NULL, 1), "graph_create.add_empty.null_dependencies");
    ask_yes(node == (CUgraphNode)0x1234, "graph_create.add_empty.null_dependencies.untouched");
    ask(cu.GraphAddEmptyNode(&node, graph, NULL, 0), "graph_create.add_empty");
    CUgraph other = new_graph();
    CUgraphNode foreign = add_empty(other, NULL, 0);
    CUgraphNode twice[] = {node, node};
    CUgraphNode next = NULL;
    ask(cu.GraphAddEmptyNode(&next, graph, &foreign, 1), "graph_create.add_empty.foreign_dependency");
    ask(cu.GraphAddEmptyNode(&next, graph, twice, 2), "graph_create.add_empty.dependency_twice");
    ask_graph(graph, "graph_create.add_empty.dependency_twice.graph");
    ask(cu.GraphNodeGetType(node, NULL), "graph_create.get_type.null");
    ask(cu.GraphDestroy(other), "graph_create.destroy");
    ask(cu.GraphDestroy(graph), "graph_create.destroy_with_nodes");
    ask(cu.GraphAddEmptyNode(&node, NULL, NULL, 0), "graph_create.add_empty.null_graph");
    ask(cu.GraphGetNodes(NULL, NULL, &count), "graph_create.get_nodes.null_graph");
    ask(cu.GraphDestroy(NULL), "graph_create.destroy_null");
    ask(cu.GraphExecDestroy(NULL), "graph_create.exec_destroy_null");
    ask(cu.GraphDestroyNode(NULL), "graph_create.destroy_null_node");
}

/* ---- each kind of node ---- */

static void ask_fill_nodes(CUcontext context, CUgraph graph)
{
    CUgraphNode node = NULL;
    CUdeviceptr memory = new_memory(64 * KIB);
    CUDA_MEMSET_NODE_PARAMS fill = a_fill(memory, 1, 64);
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset");
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, NULL, context), "graph_nodes.memset.null_params");
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, NULL), "graph_nodes.memset.null_context");
    static const unsigned elements[] = {0, 2, 3, 4, 8};
    for (int i = 0; i < 5; i++) {
        fill = a_fill(memory, elements[i], 16);
        ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.element_%u", elements[i]);
    }
    fill = a_fill(memory, 1, 0);
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.width_0");
    fill = a_fill(memory, 1, 64);
    fill.height = 0;
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.height_0");
    fill.height = 4;
    fill.pitch = 128;
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.rows");
    fill.pitch = 32;
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.rows.small_pitch");
    fill.pitch = 32 * KIB;
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.rows.beyond_memory");
    fill = a_fill(memory + 1, 4, 16);
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.unaligned");
    fill = a_fill(memory, 1, 65 * KIB);
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.beyond_memory");
    fill = a_fill(0x1000, 1, 64);
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.foreign");
    fill = a_fill(0, 1, 64);
    ask(cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context), "graph_nodes.memset.null_address");
}

static void ask_copy_nodes(CUcontext context, CUgraph graph)
{
    CUgraphNode node = NULL;
    CUdeviceptr memory = new_memory(64 * KIB);
    static unsigned char page[256];
    CUDA_MEMCPY3D copy = a_copy(memory + 4096, memory, 64);
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy");
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, NULL, context), "graph_nodes.memcpy.null_params");
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, NULL), "graph_nodes.memcpy.null_context");
    copy.WidthInBytes = 0;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.width_0");
    copy = a_copy(memory + 4096, memory, 64);
    copy.Height = 0;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.height_0");
    copy = a_copy(memory + 4096, memory, 64);
    copy.Depth = 0;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.depth_0");
    copy = a_copy(0x1000, memory, 64);
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.foreign_destination");
    copy = a_copy(memory, memory + 64 * KIB - 32, 64);
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.beyond_memory");
    copy = a_copy(memory, 0, 64);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    copy.srcHost = page;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.from_pageable");
    copy = a_copy(memory, 0, 64);
    copy.srcMemoryType = CU_MEMORYTYPE_HOST;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.from_null_host");
    copy = a_copy(memory + 4096, memory, 64);
    copy.srcMemoryType = CU_MEMORYTYPE_UNIFIED;
    copy.dstMemoryType = CU_MEMORYTYPE_UNIFIED;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.unified");
    copy.srcMemoryType = (CUmemorytype)77;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.type_77");
    copy = a_copy(memory + 4096, memory, 64);
    copy.Height = 4;
    copy.srcPitch = 128;
    copy.dstPitch = 256;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.rows");
    copy.srcPitch = 32;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.rows.small_pitch");
    copy = a_copy(memory + 4096, memory, 64);
    copy.srcXInBytes = 8;
    copy.dstXInBytes = 16;
    ask(cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context), "graph_nodes.memcpy.x_offsets");
}

static void ask_kernel_nodes(CUgraph graph)
{
    CUgraphNode node = NULL;
    CUdeviceptr memory = new_memory(4 * KIB);
    unsigned long long bytes = 64;
    unsigned long long seed = 1;
    void *parameters[] = {&memory, &bytes, &seed};
    const CUDA_KERNEL_NODE_PARAMS good = {
        .func = pattern_fill_function(),
        .gridDimX = 1,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = parameters,
    };
    CUDA_KERNEL_NODE_PARAMS kernel = good;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel");
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, NULL), "graph_nodes.kernel.null_params");
    kernel.func = NULL;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.null_function");
    kernel = good;
    kernel.gridDimX = 0;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.grid_0");
    kernel = good;
    kernel.blockDimX = 2048;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.block_2048");
    kernel = good;
    kernel.sharedMemBytes = 1 << 20;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.shared_mebibyte");
    kernel = good;
    kernel.kernelParams = NULL;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.no_parameters");
    size_t size = 24;
    unsigned long long buffer[] = {memory, 64, 1, 0};
    void *extra[] = {CU_LAUNCH_PARAM_BUFFER_POINTER, buffer, CU_LAUNCH_PARAM_BUFFER_SIZE, &size, CU_LAUNCH_PARAM_END};
    kernel = good;
    kernel.extra = extra;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.both_ways");
    kernel.kernelParams = NULL;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.extra");
    size = 16;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.extra.small");
    ask(cu.LaunchKernel(good.func, 1, 1, 1, 32, 1, 1, 0, NULL, NULL, extra), "graph_nodes.kernel.extra.small.launch");
    ask(cu.CtxSynchronize(), "graph_nodes.kernel.extra.small.synchronize");
    size = 32;
    ask(cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel), "graph_nodes.kernel.extra.large");
}

static void ask_other_nodes(CUgraph graph)
{
    CUgraphNode node = NULL;
    CUevent event = new_event();
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing, .userData = NULL};
    ask(cu.GraphAddHostNode(&node, graph, NULL, 0, &host), "graph_nodes.host");
    ask(cu.GraphAddHostNode(&node, graph, NULL, 0, NULL), "graph_nodes.host.null_params");
    host.fn = NULL;
    ask(cu.GraphAddHostNode(&node, graph, NULL, 0, &host), "graph_nodes.host.null_function");
    ask(cu.GraphAddEventRecordNode(&node, graph, NULL, 0, event), "graph_nodes.record");
    ask(cu.GraphAddEventRecordNode(&node, graph, NULL, 0, NULL), "graph_nodes.record.null_event");
    ask(cu.GraphAddEventWaitNode(&node, graph, NULL, 0, event), "graph_nodes.wait");
    ask(cu.GraphAddEventWaitNode(&node, graph, NULL, 0, NULL), "graph_nodes.wait.null_event");
    CUgraph child = new_graph();
    add_empty(child, NULL, 0);
    ask(cu.GraphAddChildGraphNode(&node, graph, NULL, 0, child), "graph_nodes.child");
    CUgraph embedded = NULL;
    CUresult result = cu.GraphChildGraphNodeGetGraph(node, &embedded);
    ask_fact(result, embedded != child && embedded != NULL, "graph_nodes.child.is_a_copy");
    add_empty(child, NULL, 0);
    ask_graph(embedded, "graph_nodes.child.graph");
    ask(cu.GraphAddChildGraphNode(&node, graph, NULL, 0, NULL), "graph_nodes.child.null");
    ask_graph(graph, "graph_nodes.graph");
}

void ask_graph_nodes(void)
{
    CUcontext context = start();
    CUgraph graph = new_graph();
    ask_fill_nodes(context, graph);
    ask_copy_nodes(context, graph);
    ask_kernel_nodes(graph);
    ask(cu.GraphDestroy(graph), "graph_nodes.destroy");
    ask_other_nodes(new_graph());
}

/* A graph with memory nodes has fixed addresses, so it allows fewer operations than others. */
void ask_graph_memory_nodes(void)
{
    start();
    CUgraph graph = new_graph();
    CUgraph child = new_graph();
    CUgraphNode node = NULL;
    CUgraphNode freed = NULL;
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = an_allocation(1000);
    ask(cu.GraphAddMemAllocNode(&node, child, NULL, 0, &allocation), "graph_memory_nodes.alloc");
    ask_yes(allocation.dptr != 0, "graph_memory_nodes.alloc.address");
    ask(cu.GraphAddChildGraphNode(&freed, graph, NULL, 0, child), "graph_memory_nodes.child.with_memory");
    ask(cu.GraphAddMemFreeNode(&freed, child, NULL, 0, allocation.dptr),
        "graph_memory_nodes.free.not_after_its_allocation");
    CUgraph third = new_graph();
    CUgraphNode elsewhere = NULL;
    ask(cu.GraphAddMemFreeNode(&elsewhere, third, NULL, 0, allocation.dptr), "graph_memory_nodes.free.in_other_graph");
    ask(cu.GraphAddMemFreeNode(&elsewhere, third, NULL, 0, allocation.dptr),
        "graph_memory_nodes.free.in_other_graph.twice");
    CUgraph fourth = new_graph();
    CUDA_MEM_ALLOC_NODE_PARAMS second = an_allocation(64 * KIB);
    CUgraphNode allocated = NULL;
    ask(cu.GraphAddMemAllocNode(&allocated, fourth, NULL, 0, &second), "graph_memory_nodes.alloc.64_KiB");
    ask(cu.GraphAddMemFreeNode(&freed, fourth, &allocated, 1, second.dptr), "graph_memory_nodes.free");
    ask(cu.GraphAddMemFreeNode(&freed, fourth, &allocated, 1, second.dptr), "graph_memory_nodes.free.twice");
    ask(cu.GraphAddMemFreeNode(&freed, fourth, &allocated, 1, second.dptr + 512), "graph_memory_nodes.free.interior");
    ask(cu.GraphAddMemFreeNode(&freed, fourth, NULL, 0, 0x1000), "graph_memory_nodes.free.foreign");
    ask(cu.GraphAddMemFreeNode(&freed, fourth, NULL, 0, 0), "graph_memory_nodes.free.null");
    ask(cu.GraphAddMemFreeNode(&freed, fourth, NULL, 0, new_memory(4096)), "graph_memory_nodes.free.plain_memory");
    ask(cu.GraphAddMemAllocNode(&node, fourth, NULL, 0, NULL), "graph_memory_nodes.alloc.null_params");
    second = an_allocation(0);
    ask(cu.GraphAddMemAllocNode(&node, fourth, NULL, 0, &second), "graph_memory_nodes.alloc.0");
    second = an_allocation(PIB);
    ask(cu.GraphAddMemAllocNode(&node, fourth, NULL, 0, &second), "graph_memory_nodes.alloc.pebibyte");
    second = an_allocation(4096);
    second.poolProps.location.id = 77;
    ask(cu.GraphAddMemAllocNode(&node, fourth, NULL, 0, &second), "graph_memory_nodes.alloc.device_77");
    second = an_allocation(4096);
    second.poolProps.allocType = CU_MEM_ALLOCATION_TYPE_INVALID;
    ask(cu.GraphAddMemAllocNode(&node, fourth, NULL, 0, &second), "graph_memory_nodes.alloc.invalid_type");
    second = an_allocation(4096);
    second.poolProps.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
    ask(cu.GraphAddMemAllocNode(&node, fourth, NULL, 0, &second), "graph_memory_nodes.alloc.exported");
    CUgraph copy = NULL;
    ask(cu.GraphClone(&copy, fourth), "graph_memory_nodes.alloc.clone");
    CUresult result = cu.GraphDestroyNode(allocated);
    ask(result, "graph_memory_nodes.alloc.destroy_node");
    ask_graph(fourth, "graph_memory_nodes.graph");
    if (result == CUDA_SUCCESS)
        return;
    CUgraph fifth = new_graph();
    CUgraph sixth = new_graph();
    second = an_allocation(4096);
    cu.GraphAddMemAllocNode(&node, fifth, NULL, 0, &second);
    ask(cu.GraphAddMemFreeNode(&freed, sixth, NULL, 0, second.dptr), "graph_memory_nodes.outer.free");
    ask(cu.GraphAddMemFreeNode(&freed, sixth, NULL, 0, second.dptr), "graph_memory_nodes.outer.free.twice");
    ask(cu.GraphAddMemFreeNode(&freed, new_graph(), NULL, 0, second.dptr),
        "graph_memory_nodes.outer.free.in_third_graph");
    ask(cu.GraphClone(&copy, sixth), "graph_memory_nodes.outer.clone_of_freeing_graph");
    ask(cu.GraphAddChildGraphNode(&freed, graph, NULL, 0, sixth), "graph_memory_nodes.outer.child_of_freeing_graph");
    CUgraphExec exec = NULL;
    CUgraphExec twin = NULL;
    ask(cu.GraphInstantiateWithFlags(&exec, sixth, 0), "graph_memory_nodes.outer.instantiate_freeing_graph");
    ask(cu.GraphInstantiateWithFlags(&twin, sixth, 0), "graph_memory_nodes.outer.instantiate_freeing_graph.twice");
    ask(cu.GraphAddMemFreeNode(&freed, fifth, &node, 1, second.dptr), "graph_memory_nodes.outer.free_in_its_own_graph");
    CUgraphNode pair[] = {allocated};
    CUgraphNode last = add_empty(fourth, NULL, 0);
    ask(cu.GraphAddDependencies(fourth, pair, &last, NULL, 1), "graph_memory_nodes.alloc.add_dependency");
    ask(cu.GraphRemoveDependencies(fourth, pair, &last, NULL, 1), "graph_memory_nodes.alloc.remove_dependency");
    ask(cu.GraphDestroyNode(last), "graph_memory_nodes.alloc.destroy_empty_node");
}

/* A cycle of edges is found when an order is needed. */
void ask_graph_circle(void)
{
    start();
    CUgraph graph = new_graph();
    CUgraphNode nodes[3];
    CUgraphExec exec = (CUgraphExec)0x1234;
    for (int i = 0; i < 3; i++)
        nodes[i] = add_empty(graph, i > 0 ? &nodes[i - 1] : NULL, i > 0 ? 1 : 0);
    cu.GraphAddDependencies(graph, &nodes[2], &nodes[1], NULL, 1);
    ask(cu.GraphInstantiateWithFlags(&exec, graph, 0), "graph_circle.instantiate");
    ask_text(exec == NULL                  ? "null"
             : exec == (CUgraphExec)0x1234 ? "untouched"
                                           : "set",
             "graph_circle.instantiate.exec");
    CUDA_GRAPH_INSTANTIATE_PARAMS params = {.flags = 0};
    ask(cu.GraphInstantiateWithParams(&exec, graph, &params), "graph_circle.instantiate_with_params");
    ask_number(params.result_out, "graph_circle.instantiate_with_params.result");
    ask_yes(params.hErrNode_out != NULL, "graph_circle.instantiate_with_params.has_node");
    CUgraph clone = NULL;
    ask(cu.GraphClone(&clone, graph), "graph_circle.clone");
    ask(cu.GraphDestroy(graph), "graph_circle.destroy");
}

/* ---- how they hang together ---- */

static void ask_lists(CUgraph graph, const CUgraphNode *nodes)
{
    CUgraphNode from[16];
    CUgraphNode to[16];
    CUgraphEdgeData data[16];
    size_t count = 16;
    ask(cu.GraphGetEdges(graph, NULL, NULL, NULL, &count), "graph_structure.edges");
    ask_number((long long)count, "graph_structure.edges.count");
    count = 16;
    ask(cu.GraphGetEdges(graph, from, to, NULL, &count), "graph_structure.edges.without_data");
    ask_number((long long)count, "graph_structure.edges.without_data.count");
    ask_yes(from[0] == nodes[0] && to[0] == nodes[1], "graph_structure.edges.first");
    count = 16;
    ask(cu.GraphGetEdges(graph, from, to, data, &count), "graph_structure.edges.with_data");
    count = 2;
    ask(cu.GraphGetEdges(graph, from, to, data, &count), "graph_structure.edges.two");
    ask_number((long long)count, "graph_structure.edges.two.count");
    count = 16;
    ask(cu.GraphGetEdges(graph, from, NULL, NULL, &count), "graph_structure.edges.half");
    ask(cu.GraphGetEdges(graph, from, to, data, NULL), "graph_structure.edges.null_count");
    from[5] = (CUgraphNode)0x1234;
    count = 16;
    ask(cu.GraphGetNodes(graph, from, &count), "graph_structure.nodes");
    ask_number((long long)count, "graph_structure.nodes.count");
    ask_yes(from[5] == NULL, "graph_structure.nodes.rest_is_null");
    count = 2;
    ask(cu.GraphGetNodes(graph, from, &count), "graph_structure.nodes.two");
    ask_number((long long)count, "graph_structure.nodes.two.count");
    count = 16;
    ask(cu.GraphGetRootNodes(graph, from, &count), "graph_structure.roots");
    ask_number((long long)count, "graph_structure.roots.count");
    ask_yes(from[0] == nodes[0] && from[1] == nodes[4], "graph_structure.roots.which");
    ask(cu.GraphGetRootNodes(graph, NULL, &count), "graph_structure.roots.null");
    count = 16;
    ask(cu.GraphNodeGetDependencies(nodes[3], from, data, &count), "graph_structure.dependencies");
    ask_number((long long)count, "graph_structure.dependencies.count");
    count = 1;
    ask(cu.GraphNodeGetDependencies(nodes[3], from, NULL, &count), "graph_structure.dependencies.one");
    ask_number((long long)count, "graph_structure.dependencies.one.count");
    count = 16;
    ask(cu.GraphNodeGetDependentNodes(nodes[0], from, data, &count), "graph_structure.dependents");
    ask_number((long long)count, "graph_structure.dependents.count");
    ask(cu.GraphNodeGetDependentNodes(nodes[0], NULL, NULL, &count), "graph_structure.dependents.null");
    ask(cu.GraphNodeGetDependentNodes(nodes[0], from, NULL, NULL), "graph_structure.dependents.null_count");
}

static void ask_edges(CUgraph graph, CUgraphNode *nodes)
{
    CUgraph other = new_graph();
    CUgraphNode foreign = add_empty(other, NULL, 0);
    ask(cu.GraphAddDependencies(graph, &nodes[0], &nodes[1], NULL, 1), "graph_structure.add.twice");
    ask(cu.GraphAddDependencies(graph, &nodes[0], &nodes[0], NULL, 1), "graph_structure.add.itself");
    ask(cu.GraphAddDependencies(graph, &nodes[3], &nodes[0], NULL, 1), "graph_structure.add.cycle");
    ask_graph(graph, "graph_structure.add.cycle.graph");
    ask(cu.GraphAddDependencies(graph, &foreign, &nodes[0], NULL, 1), "graph_structure.add.foreign");
    ask(cu.GraphAddDependencies(graph, NULL, NULL, NULL, 1), "graph_structure.add.null");
    ask(cu.GraphAddDependencies(graph, NULL, NULL, NULL, 0), "graph_structure.add.none");
    ask(cu.GraphAddDependencies(graph, &nodes[3], &nodes[4], NULL, 1), "graph_structure.add");
    CUgraphEdgeData data = {.type = 77};
    ask(cu.GraphAddDependencies(graph, &nodes[1], &nodes[4], &data, 1), "graph_structure.add.wrong_data");
    data = (CUgraphEdgeData){.type = CU_GRAPH_DEPENDENCY_TYPE_DEFAULT};
    ask(cu.GraphAddDependencies(graph, &nodes[1], &nodes[4], &data, 1), "graph_structure.add.with_data");
    ask_graph(graph, "graph_structure.added.graph");
    ask(cu.GraphRemoveDependencies(graph, &nodes[1], &nodes[4], NULL, 1), "graph_structure.remove");
    ask(cu.GraphRemoveDependencies(graph, &nodes[1], &nodes[4], NULL, 1), "graph_structure.remove.absent");
    CUgraphNode from[] = {nodes[3], nodes[1]};
    CUgraphNode to[] = {nodes[4], nodes[4]};
    ask(cu.GraphRemoveDependencies(graph, from, to, NULL, 2), "graph_structure.remove.one_of_two_absent");
    ask_graph(graph, "graph_structure.removed.graph");
    CUgraphNode add_from[] = {nodes[4], nodes[0]};
    CUgraphNode add_to[] = {nodes[0], nodes[4]};
    ask(cu.GraphAddDependencies(graph, add_from, add_to, NULL, 2), "graph_structure.add.pair_is_cycle");
    ask_graph(graph, "graph_structure.add.pair_is_cycle.graph");
    ask(cu.GraphDestroyNode(nodes[1]), "graph_structure.destroy_node");
    ask_graph(graph, "graph_structure.destroyed_node.graph");
    CUgraphNode next = add_empty(graph, NULL, 0);
    ask_graph(graph, "graph_structure.next_node.graph");
    ask(cu.GraphDestroyNode(next), "graph_structure.destroy_next_node");
    cu.GraphDestroy(other);
}

static void ask_clones(CUgraph graph, const CUgraphNode *nodes)
{
    CUgraph clone = NULL;
    CUgraph second = NULL;
    CUgraphNode found = NULL;
    ask(cu.GraphClone(NULL, graph), "graph_structure.clone.null_out");
    ask(cu.GraphClone(&clone, NULL), "graph_structure.clone.null");
    ask(cu.GraphClone(&clone, graph), "graph_structure.clone");
    ask_graph(clone, "graph_structure.clone.graph");
    CUresult result = cu.GraphNodeFindInClone(&found, nodes[0], clone);
    ask_fact(result, found != nodes[0] && found != NULL, "graph_structure.clone.find");
    ask(cu.GraphNodeFindInClone(&found, nodes[0], graph), "graph_structure.clone.find_in_original");
    ask(cu.GraphNodeFindInClone(NULL, nodes[0], clone), "graph_structure.clone.find.null_out");
    cu.GraphNodeFindInClone(&found, nodes[0], clone);
    ask(cu.GraphDestroyNode(found), "graph_structure.clone.destroy_node");
    ask(cu.GraphNodeFindInClone(&found, nodes[0], clone), "graph_structure.clone.find_destroyed");
    cu.GraphClone(&second, clone);
    ask(cu.GraphNodeFindInClone(&found, nodes[3], second), "graph_structure.clone.find_in_clone_of_clone");
    ask_graph(graph, "graph_structure.clone.original");
    ask(cu.GraphDestroy(clone), "graph_structure.clone.destroy");
    ask(cu.GraphDestroy(second), "graph_structure.clone.destroy_second");
}

void ask_graph_structure(void)
{
    start();
    CUgraph graph = new_graph();
    CUgraphNode nodes[5];
    nodes[0] = add_empty(graph, NULL, 0);
    nodes[1] = add_empty(graph, nodes, 1);
    nodes[2] = add_empty(graph, nodes, 1);
    nodes[3] = add_empty(graph, nodes, 3);
    nodes[4] = add_empty(graph, NULL, 0);
    ask_graph(graph, "graph_structure.graph");
    ask_lists(graph, nodes);
    ask_edges(graph, nodes);
    ask_clones(graph, nodes);
    ask(cu.GraphDestroy(graph), "graph_structure.destroy");
}

/* ---- what can be read back and changed ---- */

static void ask_fill_parameters(CUcontext context, CUgraph graph, CUgraphNode empty)
{
    CUdeviceptr memory = new_memory(4 * KIB);
    CUgraphNode node = NULL;
    CUDA_MEMSET_NODE_PARAMS fill = a_fill(memory, 4, 16);
    fill.value = 0x12345678;
    cu.GraphAddMemsetNode(&node, graph, NULL, 0, &fill, context);
    CUDA_MEMSET_NODE_PARAMS got = {0};
    CUresult result = cu.GraphMemsetNodeGetParams(node, &got);
    bool same = got.dst == memory && got.value == 0x12345678 && got.elementSize == 4 && got.width == 16;
    ask_fact(result, same, "graph_params.memset.get");
    ask_value(result, (long long)got.height, "graph_params.memset.get.height");
    ask_value(result, (long long)got.pitch, "graph_params.memset.get.pitch");
    fill = a_fill(memory + 64, 1, 8);
    ask(cu.GraphMemsetNodeSetParams(node, &fill), "graph_params.memset.set");
    result = cu.GraphMemsetNodeGetParams(node, &got);
    ask_fact(result, got.dst == memory + 64 && got.value == 7, "graph_params.memset.set.get");
    fill = a_fill(memory, 3, 8);
    ask(cu.GraphMemsetNodeSetParams(node, &fill), "graph_params.memset.set.element_3");
    fill = a_fill(0x1000, 1, 8);
    ask(cu.GraphMemsetNodeSetParams(node, &fill), "graph_params.memset.set.foreign");
    ask(cu.GraphMemsetNodeSetParams(node, NULL), "graph_params.memset.set.null");
    ask(cu.GraphMemsetNodeGetParams(node, NULL), "graph_params.memset.get.null");
    ask(cu.GraphMemsetNodeGetParams(empty, &got), "graph_params.memset.get.wrong_kind");
    ask(cu.GraphMemsetNodeSetParams(empty, &got), "graph_params.memset.set.wrong_kind");
    CUDA_MEMCPY3D copy = a_copy(memory + 64, memory, 32);
    CUDA_MEMCPY3D read = {0};
    cu.GraphAddMemcpyNode(&node, graph, NULL, 0, &copy, context);
    result = cu.GraphMemcpyNodeGetParams(node, &read);
    same = read.dstDevice == memory + 64 && read.srcDevice == memory && read.WidthInBytes == 32;
    ask_fact(result, same, "graph_params.memcpy.get");
    ask_value(result, (long long)read.srcPitch, "graph_params.memcpy.get.source_pitch");
    copy = a_copy(memory + 128, memory, 16);
    ask(cu.GraphMemcpyNodeSetParams(node, &copy), "graph_params.memcpy.set");
    result = cu.GraphMemcpyNodeGetParams(node, &read);
    ask_fact(result, read.dstDevice == memory + 128 && read.WidthInBytes == 16, "graph_params.memcpy.set.get");
    copy.dstDevice = 0x1000;
    ask(cu.GraphMemcpyNodeSetParams(node, &copy), "graph_params.memcpy.set.foreign");
    ask(cu.GraphMemcpyNodeSetParams(node, NULL), "graph_params.memcpy.set.null");
    ask(cu.GraphMemcpyNodeGetParams(empty, &read), "graph_params.memcpy.get.wrong_kind");
}

static void ask_kernel_parameters(CUgraph graph, CUgraphNode empty)
{
    CUdeviceptr memory = new_memory(4 * KIB);
    unsigned long long bytes = 64;
    unsigned long long seed = 1;
    void *parameters[] = {&memory, &bytes, &seed};
    CUgraphNode node = NULL;
    CUDA_KERNEL_NODE_PARAMS got = {0};
    CUDA_KERNEL_NODE_PARAMS kernel = {
        .func = pattern_fill_function(),
        .gridDimX = 2,
        .gridDimY = 1,
        .gridDimZ = 1,
        .blockDimX = 32,
        .blockDimY = 1,
        .blockDimZ = 1,
        .kernelParams = parameters,
    };
    cu.GraphAddKernelNode(&node, graph, NULL, 0, &kernel);
    bytes = 128;
    CUresult result = cu.GraphKernelNodeGetParams(node, &got);
    bool same = got.func == kernel.func && got.gridDimX == 2 && got.blockDimX == 32;
    ask_fact(result, same, "graph_params.kernel.get");
    ask_fact(result, got.kernelParams != NULL && got.extra == NULL, "graph_params.kernel.get.kernel_params");
    if (got.kernelParams)
        ask_number((long long)*(unsigned long long *)got.kernelParams[1], "graph_params.kernel.get.value");
    kernel.gridDimX = 3;
    ask(cu.GraphKernelNodeSetParams(node, &kernel), "graph_params.kernel.set");
    result = cu.GraphKernelNodeGetParams(node, &got);
    ask_value(result, got.gridDimX, "graph_params.kernel.set.grid");
    if (got.kernelParams)
        ask_number((long long)*(unsigned long long *)got.kernelParams[1], "graph_params.kernel.set.value");
    kernel.gridDimX = 0;
    ask(cu.GraphKernelNodeSetParams(node, &kernel), "graph_params.kernel.set.grid_0");
    ask(cu.GraphKernelNodeSetParams(node, NULL), "graph_params.kernel.set.null");
    ask(cu.GraphKernelNodeGetParams(empty, &got), "graph_params.kernel.get.wrong_kind");
}

static void ask_other_parameters(CUgraph graph, CUgraphNode empty)
{
    CUgraphNode node = NULL;
    CUevent event = new_event();
    CUevent next = new_event();
    CUevent got_event = NULL;
    int word = 0;
    CUDA_HOST_NODE_PARAMS host = {.fn = nothing, .userData = &word};
    CUDA_HOST_NODE_PARAMS got = {0};
    cu.GraphAddHostNode(&node, graph, NULL, 0, &host);
    CUresult result = cu.GraphHostNodeGetParams(node, &got);
    ask_fact(result, got.fn == nothing && got.userData == &word, "graph_params.host.get");
    host.fn = nothing_else;
    ask(cu.GraphHostNodeSetParams(node, &host), "graph_params.host.set");
    result = cu.GraphHostNodeGetParams(node, &got);
    ask_fact(result, got.fn == nothing_else, "graph_params.host.set.get");
    host.fn = NULL;
    ask(cu.GraphHostNodeSetParams(node, &host), "graph_params.host.set.null_function");
    ask(cu.GraphHostNodeSetParams(node, NULL), "graph_params.host.set.null");
    ask(cu.GraphHostNodeGetParams(empty, &got), "graph_params.host.get.wrong_kind");
    cu.GraphAddEventRecordNode(&node, graph, NULL, 0, event);
    result = cu.GraphEventRecordNodeGetEvent(node, &got_event);
    ask_fact(result, got_event == event, "graph_params.record.get");
    ask(cu.GraphEventRecordNodeSetEvent(node, next), "graph_params.record.set");
    result = cu.GraphEventRecordNodeGetEvent(node, &got_event);
    ask_fact(result, got_event == next, "graph_params.record.set.get");
    ask(cu.GraphEventRecordNodeSetEvent(node, NULL), "graph_params.record.set.null");
    ask(cu.GraphEventRecordNodeGetEvent(node, NULL), "graph_params.record.get.null");
    ask(cu.GraphEventWaitNodeGetEvent(node, &got_event), "graph_params.wait.get.wrong_kind");
    cu.GraphAddEventWaitNode(&node, graph, NULL, 0, event);
    result = cu.GraphEventWaitNodeGetEvent(node, &got_event);
    ask_fact(result, got_event == event, "graph_params.wait.get");
    ask(cu.GraphEventWaitNodeSetEvent(node, next), "graph_params.wait.set");
    ask(cu.GraphEventWaitNodeSetEvent(node, NULL), "graph_params.wait.set.null");
    CUDA_MEM_ALLOC_NODE_PARAMS allocation = an_allocation(1000);
    CUDA_MEM_ALLOC_NODE_PARAMS read = {0};
    CUdeviceptr address = 0;
    CUgraphNode allocated = NULL;
    cu.GraphAddMemAllocNode(&allocated, graph, NULL, 0, &allocation);
    result = cu.GraphMemAllocNodeGetParams(allocated, &read);
    ask_fact(result, read.dptr == allocation.dptr, "graph_params.alloc.get");
    ask_value(result, (long long)read.bytesize, "graph_params.alloc.get.bytes");
    ask_value(result, read.poolProps.location.type, "graph_params.alloc.get.location_type");
    cu.GraphAddMemFreeNode(&node, graph, &allocated, 1, allocation.dptr);
    result = cu.GraphMemFreeNodeGetParams(node, &address);
    ask_fact(result, address == allocation.dptr, "graph_params.free.get");
    ask(cu.GraphMemAllocNodeGetParams(node, &read), "graph_params.alloc.get.wrong_kind");
    ask(cu.GraphMemFreeNodeGetParams(allocated, &address), "graph_params.free.get.wrong_kind");
    CUgraph embedded = NULL;
    ask(cu.GraphChildGraphNodeGetGraph(empty, &embedded), "graph_params.child.get.wrong_kind");
}

void ask_graph_params(void)
{
    CUcontext context = start();
    CUgraph graph = new_graph();
    CUgraphNode empty = add_empty(graph, NULL, 0);
    ask_fill_parameters(context, graph, empty);
    ask_kernel_parameters(graph, empty);
    ask_other_parameters(graph, empty);
    ask(cu.GraphDestroy(graph), "graph_params.destroy");
}

/* ---- what graphs keep alive ---- */

static void CUDA_CB count_one(void *data)
{
    atomic_fetch_add((_Atomic int *)data, 1);
}

static void sleep_a_little(void)
{
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
}

static bool reaches(const _Atomic int *number, int value)
{
    for (int i = 0; i < PATIENCE_MS && atomic_load(number) != value; i++)
        sleep_a_little();
    return atomic_load(number) == value;
}

void ask_graph_objects(void)
{
    start();
    static _Atomic int ends;
    CUuserObject object = NULL;
    CUgraph graph = new_graph();
    CUgraph clone = NULL;
    CUgraphExec exec = NULL;
    const unsigned flags = CU_USER_OBJECT_NO_DESTRUCTOR_SYNC;
    ask(cu.UserObjectCreate(&object, &ends, count_one, 1, 0), "graph_objects.create.flags_0");
    ask(cu.UserObjectCreate(&object, &ends, count_one, 0, flags), "graph_objects.create.references_0");
    ask(cu.UserObjectCreate(&object, &ends, NULL, 1, flags), "graph_objects.create.null_destructor");
    ask(cu.UserObjectCreate(NULL, &ends, count_one, 1, flags), "graph_objects.create.null_out");
    ask(cu.UserObjectCreate(&object, &ends, count_one, 1, flags), "graph_objects.create");
    ask(cu.UserObjectRetain(object, 2), "graph_objects.retain");
    ask(cu.UserObjectRetain(object, 0), "graph_objects.retain.0");
    ask(cu.UserObjectRelease(object, 0), "graph_objects.release.0");
    ask(cu.UserObjectRelease(object, 2), "graph_objects.release");
    ask_number(ends, "graph_objects.release.ends");
    ask(cu.GraphRetainUserObject(graph, object, 0, 0), "graph_objects.graph_retain.0");
    ask(cu.GraphRetainUserObject(graph, object, 1, 2), "graph_objects.graph_retain.flags_2");
    ask(cu.GraphRetainUserObject(graph, NULL, 1, 0), "graph_objects.graph_retain.null");
    ask(cu.GraphRetainUserObject(graph, object, 1, 0), "graph_objects.graph_retain");
    ask(cu.GraphReleaseUserObject(graph, object, 0), "graph_objects.graph_release.0");
    ask(cu.GraphReleaseUserObject(graph, object, 1), "graph_objects.graph_release");
    ask(cu.GraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE), "graph_objects.graph_retain.move");
    ask_number(ends, "graph_objects.graph_retain.move.ends");
    add_empty(graph, NULL, 0);
    ask(cu.GraphClone(&clone, graph), "graph_objects.clone");
    ask(cu.GraphDestroy(graph), "graph_objects.destroy");
    ask_yes(reaches(&ends, 1), "graph_objects.destroy.ended");
    ask(cu.GraphInstantiateWithFlags(&exec, clone, 0), "graph_objects.instantiate");
    ask(cu.GraphDestroy(clone), "graph_objects.destroy_clone");
    ask_yes(reaches(&ends, 1), "graph_objects.destroy_clone.ended");
    ask(cu.GraphExecDestroy(exec), "graph_objects.exec_destroy");
    ask_yes(reaches(&ends, 1), "graph_objects.exec_destroy.ended");
    ask(cu.UserObjectCreate(&object, &ends, count_one, 1, flags), "graph_objects.create_next");
    ask(cu.UserObjectRelease(object, 1), "graph_objects.release_last");
    ask_yes(reaches(&ends, 2), "graph_objects.release_last.ended");
}

void ask_graph_dot(void)
{
    start();
    CUgraph graph = new_graph();
    CUgraphNode node = add_empty(graph, NULL, 0);
    add_empty(graph, &node, 1);
    char path[64]; /* several processes may ask at once */
    snprintf(path, sizeof path, "/tmp/strata_answers.%ld.dot", (long)getpid());
    ask(cu.GraphDebugDotPrint(graph, path, 0), "graph_dot.print");
    FILE *file = fopen(path, "r");
    char word[8] = "";
    ask_yes(file != NULL && fscanf(file, "%7s", word) == 1, "graph_dot.print.file");
    ask_text(word, "graph_dot.print.first_word");
    if (file)
        fclose(file);
    remove(path);
    ask(cu.GraphDebugDotPrint(graph, "/nonexistent/strata_answers.dot", 0), "graph_dot.wrong_path");
    ask(cu.GraphDebugDotPrint(graph, NULL, 0), "graph_dot.null_path");
    ask(cu.GraphDestroy(graph), "graph_dot.destroy");
}
