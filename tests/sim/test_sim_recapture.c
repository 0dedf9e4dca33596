/* cuStreamBeginRecaptureToGraph, of CUDA 13.3: a capture into the nodes that a graph has. As CUDA's documentation has
 * it; not compared with a device. */
#include "planted/world.h"

enum { ELIGIBLE, INELIGIBLE };
#define FAILURE ((CUresult)918)

typedef CUresult (*recapture_callback)(void *data, CUgraphNode node, const CUgraphNodeParams *before,
                                       const CUgraphNodeParams *now, int status);
/* X(name, version) */
#define ENTRIES(X)                        \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuGraphDestroy, 10000)              \
    X(cuGraphGetNodes, 10000)             \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphExecDestroy, 10000)          \
    X(cuDeviceGraphMemTrim, 11040)        \
    X(cuUserObjectCreate, 11030)          \
    X(cuGraphRetainUserObject, 11030)

#define POINTER(name, version) static PFN_##name##_v##version p_##name;
ENTRIES(POINTER)

static CUresult (*begin_recapture)(CUstream stream, CUstreamCaptureMode mode, CUgraph graph,
                                   recapture_callback callback, void *data);

/* What a callback was told, and what it answers. */
struct told {
    int calls;
    CUgraphNode node;
    CUgraphNodeParams before;
    CUgraphNodeParams now;
    uint64_t bytes_before; /* a kernel's second parameter */
    int status;
    CUresult answer;
};

static CUresult tell(void *data, CUgraphNode node, const CUgraphNodeParams *before, const CUgraphNodeParams *now,
                     int status)
{
    struct told *told = data;
    told->calls++;
    told->node = node;
    told->before = *before;
    told->now = *now;
    told->status = status;
    if (before->type == CU_GRAPH_NODE_TYPE_KERNEL)
        memcpy(&told->bytes_before, before->kernel.kernelParams[1], sizeof told->bytes_before);
    OK(p_cuCtxSetCurrent(NULL)); /* the driver can be called */
    CUcontext context;
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuDevicePrimaryCtxRelease(0));
    return told->answer;
}

static void nothing(void *unused)
{
    (void)unused;
}

/* A fill of x, and behind it a copy and a kernel that do not come after each other. */
static void work(const struct world *world, unsigned char value, size_t bytes, uint64_t touched)
{
    OK(p_cuMemsetD8Async(world->x, value, bytes, world->a));
    hand_over(world->event, world->a, world->b);
    OK(p_cuMemcpyDtoDAsync(world->y, world->x, 64, world->b));
    kernel(world, world->a, world->x, touched, READS);
    hand_over(world->other, world->b, world->a);
}

static CUgraph capture(const struct world *world)
{
    CUgraph graph;
    OK(p_cuStreamBeginCapture(world->a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    work(world, 1, 256, 16);
    OK(p_cuStreamEndCapture(world->a, &graph));
    return graph;
}

static void list_nodes(CUgraph graph, CUgraphNode nodes[3])
{
    size_t count = 3;
    OK(p_cuGraphGetNodes(graph, nodes, &count));
    assert_int_equal(count, 3);
}

static unsigned char first_byte_after_launch(const struct world *world, CUgraph graph)
{
    unsigned char byte;
    CUgraphExec exec;
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(p_cuGraphLaunch(exec, world->a));
    OK(p_cuStreamSynchronize(world->a));
    OK(p_cuMemcpyDtoH(&byte, world->y, 1));
    OK(p_cuGraphExecDestroy(exec));
    return byte;
}

static void begin(const struct world *world, CUgraph graph, struct told *told)
{
    OK(begin_recapture(world->a, CU_STREAM_CAPTURE_MODE_GLOBAL, graph, told ? tell : NULL, told));
}

static void the_same_calls_keep_the_nodes(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    struct told told = {.answer = CUDA_SUCCESS};
    CUgraphNode before[3], after[3];
    CUgraph graph = capture(&world), again = NULL;
    list_nodes(graph, before);
    begin(&world, graph, &told);
    work(&world, 1, 256, 16);
    OK(p_cuStreamEndCapture(world.a, &again));
    assert_ptr_equal(again, graph);
    list_nodes(graph, after);
    assert_memory_equal(before, after, sizeof before);
    assert_int_equal(told.calls, 0);
    assert_int_equal(first_byte_after_launch(&world, graph), 1);
    OK(p_cuGraphDestroy(graph));
    world_end(&world);
}

static void other_parameters_are_told_and_replace_the_nodes(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    struct told told = {.answer = CUDA_SUCCESS};
    CUgraphNode nodes[3];
    CUgraph graph = capture(&world);
    list_nodes(graph, nodes);
    begin(&world, graph, &told);
    OK(p_cuMemsetD8Async(world.x, 7, 128, world.a));
    assert_int_equal(told.calls, 1);
    assert_ptr_equal(told.node, nodes[0]);
    assert_int_equal(told.status, ELIGIBLE);
    assert_int_equal(told.before.type, CU_GRAPH_NODE_TYPE_MEMSET);
    assert_int_equal(told.before.memset.value, 1);
    assert_int_equal(told.before.memset.width, 256);
    assert_int_equal(told.now.memset.value, 7);
    assert_int_equal(told.now.memset.width, 128);
    hand_over(world.event, world.a, world.b);
    OK(p_cuMemcpyDtoDAsync(world.y, world.x, 64, world.b));
    assert_int_equal(told.calls, 1);
    kernel(&world, world.a, world.x, 32, READS);
    assert_int_equal(told.calls, 2);
    assert_ptr_equal(told.node, nodes[2]);
    assert_int_equal(told.bytes_before, 16);
    hand_over(world.other, world.b, world.a);
    OK(p_cuStreamEndCapture(world.a, NULL));
    assert_int_equal(first_byte_after_launch(&world, graph), 7);
    OK(p_cuGraphDestroy(graph));
    world_end(&world);
}

/* A copy from pinned memory in place of one from the device cannot be put into an executable graph. */
static void a_change_that_no_update_can_make_is_told_as_one(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    struct told told = {.answer = CUDA_SUCCESS};
    CUgraph graph = capture(&world);
    begin(&world, graph, &told);
    OK(p_cuMemsetD8Async(world.x, 1, 256, world.a));
    hand_over(world.event, world.a, world.b);
    OK(p_cuMemcpyHtoDAsync(world.y, world.pinned, 64, world.b));
    assert_int_equal(told.calls, 1);
    assert_int_equal(told.status, INELIGIBLE);
    assert_int_equal(told.now.memcpy.copyParams.srcMemoryType, CU_MEMORYTYPE_HOST);
    kernel(&world, world.a, world.x, 16, READS);
    hand_over(world.other, world.b, world.a);
    OK(p_cuStreamEndCapture(world.a, NULL));
    memset(world.pinned, 9, 64);
    assert_int_equal(first_byte_after_launch(&world, graph), 9);
    OK(p_cuGraphDestroy(graph));
    world_end(&world);
}

static void without_a_callback_parameters_change(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    CUgraph graph = capture(&world);
    begin(&world, graph, NULL);
    work(&world, 5, 64, 16);
    OK(p_cuStreamEndCapture(world.a, NULL));
    assert_int_equal(first_byte_after_launch(&world, graph), 5);
    OK(p_cuGraphDestroy(graph));
    world_end(&world);
}

/* The graph is the program's to destroy. */
static void end_failed(const struct world *world, CUgraph graph)
{
    CUgraph none = graph;
    CUstreamCaptureStatus status;
    OK(p_cuStreamIsCapturing(world->a, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_INVALIDATED);
    assert_int_equal(p_cuMemsetD8Async(world->x, 1, 256, world->a), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_int_equal(p_cuStreamEndCapture(world->a, &none), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    assert_null(none);
    OK(p_cuGraphDestroy(graph));
}

static void a_callback_that_refuses_ends_the_recapture(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    struct told told = {.answer = CUDA_ERROR_UNKNOWN};
    CUgraph graph = capture(&world);
    begin(&world, graph, &told);
    assert_int_equal(p_cuMemsetD8Async(world.x, 7, 256, world.a), FAILURE);
    assert_int_equal(told.calls, 1);
    end_failed(&world, graph);
    world_end(&world);
}

static void another_topology_ends_the_recapture(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    CUgraph graph = capture(&world); /* another type of node */
    begin(&world, graph, NULL);
    assert_int_equal(p_cuLaunchHostFunc(world.a, nothing, NULL), FAILURE);
    end_failed(&world, graph);

    graph = capture(&world); /* other dependencies */
    begin(&world, graph, NULL);
    OK(p_cuMemsetD8Async(world.x, 1, 256, world.a));
    OK(p_cuMemcpyDtoDAsync(world.y, world.x, 64, world.a));
    uint64_t parameters[3] = {world.x, 16, READS};
    void *addresses[] = {&parameters[0], &parameters[1], &parameters[2]};
    assert_int_equal(p_cuLaunchKernel(world.touch, 1, 1, 1, 1, 1, 1, 0, world.a, addresses, NULL), FAILURE);
    end_failed(&world, graph);

    graph = capture(&world); /* one node more */
    begin(&world, graph, NULL);
    work(&world, 1, 256, 16);
    assert_int_equal(p_cuMemsetD8Async(world.x, 1, 256, world.a), FAILURE);
    end_failed(&world, graph);

    graph = capture(&world); /* fewer nodes */
    begin(&world, graph, NULL);
    OK(p_cuMemsetD8Async(world.x, 1, 256, world.a));
    assert_int_equal(p_cuStreamEndCapture(world.a, NULL), FAILURE);
    OK(p_cuGraphDestroy(graph));
    world_end(&world);
}

static CUgraph capture_allocation(const struct world *world, CUdeviceptr *address)
{
    CUgraph graph;
    OK(p_cuStreamBeginCapture(world->a, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemAllocAsync(address, 4096, world->a));
    OK(p_cuMemFreeAsync(*address, world->a));
    OK(p_cuStreamEndCapture(world->a, &graph));
    return graph;
}

static void allocations_keep_their_size_and_address(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    struct told told = {.answer = CUDA_SUCCESS};
    CUdeviceptr address, again;
    CUgraph graph = capture_allocation(&world, &address);
    begin(&world, graph, &told);
    OK(p_cuMemAllocAsync(&again, 4096, world.a));
    assert_int_equal(again, address);
    OK(p_cuMemFreeAsync(again, world.a));
    OK(p_cuStreamEndCapture(world.a, NULL));
    begin(&world, graph, &told);
    assert_int_equal(p_cuMemAllocAsync(&again, 8192, world.a), FAILURE);
    assert_int_equal(told.calls, 0);
    end_failed(&world, graph);
    OK(p_cuDeviceGraphMemTrim(0));
    world_end(&world);
}

static int objects_gone;

static void object_is_gone(void *unused)
{
    (void)unused;
    objects_gone++;
}

static void user_objects_of_the_graph_are_released_before(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    CUuserObject object;
    CUgraph graph = capture(&world);
    OK(p_cuUserObjectCreate(&object, NULL, object_is_gone, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC));
    OK(p_cuGraphRetainUserObject(graph, object, 1, CU_GRAPH_USER_OBJECT_MOVE));
    begin(&world, graph, NULL);
    work(&world, 1, 256, 16);
    OK(p_cuStreamEndCapture(world.a, NULL));
    OK(p_cuLaunchHostFunc(world.a, nothing, NULL)); /* the destructor ran before, on the same thread */
    OK(p_cuStreamSynchronize(world.a));
    assert_int_equal(objects_gone, 1);
    OK(p_cuGraphDestroy(graph));
    world_end(&world);
}

static void what_is_no_graph_to_recapture_is_refused(void **state)
{
    (void)state;
    struct world world = world_begin(0);
    CUgraph graph = capture(&world);
    assert_int_equal(begin_recapture(world.a, CU_STREAM_CAPTURE_MODE_GLOBAL, NULL, NULL, NULL),
                     CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(begin_recapture(world.a, (CUstreamCaptureMode)7, graph, NULL, NULL), CUDA_ERROR_INVALID_VALUE);
    begin(&world, graph, NULL);
    assert_int_equal(begin_recapture(world.c, CU_STREAM_CAPTURE_MODE_GLOBAL, graph, NULL, NULL),
                     CUDA_ERROR_ILLEGAL_STATE);
    work(&world, 1, 256, 16);
    OK(p_cuStreamEndCapture(world.a, NULL));
    OK(p_cuGraphDestroy(graph));
    world_end(&world);
}

int main(void)
{
    setenv("STRATA_SIM_CUDA", "13.3", 1);
    test_sim_open();
#define ASK(name, version) test_sim_ask(#name, version, &p_##name);
    ENTRIES(ASK)
    test_sim_ask("cuStreamBeginRecaptureToGraph", 13030, &begin_recapture);
    if (p_cuInit(0) != CUDA_SUCCESS || p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_same_calls_keep_the_nodes),
        cmocka_unit_test(other_parameters_are_told_and_replace_the_nodes),
        cmocka_unit_test(a_change_that_no_update_can_make_is_told_as_one),
        cmocka_unit_test(without_a_callback_parameters_change),
        cmocka_unit_test(a_callback_that_refuses_ends_the_recapture),
        cmocka_unit_test(another_topology_ends_the_recapture),
        cmocka_unit_test(allocations_keep_their_size_and_address),
        cmocka_unit_test(user_objects_of_the_graph_are_released_before),
        cmocka_unit_test(what_is_no_graph_to_recapture_is_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
