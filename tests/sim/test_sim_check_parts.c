/* The checker and the other parts of the driver: captures and graphs, values that streams wait for, copies of rows,
 * mapped, managed and registered memory. Small programs with and without a bug. */
#include "planted/world.h"
#include "support/sim_vmm.h"

/* X(name, version) */
#define MORE_ENTRIES(X)                   \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuGraphCreate, 10000)               \
    X(cuGraphDestroy, 10000)              \
    X(cuGraphAddMemsetNode, 10000)        \
    X(cuGraphAddDependencies, 12030)      \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphExecDestroy, 10000)          \
    X(cuDeviceGraphMemTrim, 11040)

#define MORE_POINTER(name, version) static PFN_##name##_v##version p_##name;
MORE_ENTRIES(MORE_POINTER)
#undef MORE_POINTER

/* ---- captures and graphs ---- */

static void begin(const struct world *world)
{
    OK(p_cuStreamBeginCapture(world->a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
}

static CUgraphExec end(const struct world *world)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(p_cuStreamEndCapture(world->a, &graph));
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(p_cuGraphDestroy(graph));
    return exec;
}

/* Launches the graph, ends it, and gives back what it held. */
static void launch(CUgraphExec exec, CUstream stream)
{
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuGraphExecDestroy(exec));
}

static void a_capture_forks_and_joins(struct world *world)
{
    begin(world);
    fill(world->a, world->x);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, world->x, BYTES / 2, UPDATES);
    kernel(world, world->a, world->x + BYTES / 2, BYTES / 2, UPDATES);
    hand_over(world->other, world->b, world->a);
    copy(world->a, world->y, world->x);
    CUgraphExec exec = end(world);
    OK(p_cuGraphLaunch(exec, world->a));
    kernel(world, world->a, world->y, BYTES, UPDATES);
    launch(exec, world->a);
}

static void branches_of_a_capture_race(struct world *world)
{
    begin(world);
    OK(p_cuEventRecord(world->event, world->a));
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    kernel(world, world->b, world->x, BYTES, WRITES);
    kernel(world, world->a, world->x, BYTES, WRITES);
    hand_over(world->other, world->b, world->a);
    launch(end(world), world->a);
}

static void a_copy_in_one_branch_and_a_kernel_in_the_other(struct world *world)
{
    begin(world);
    OK(p_cuEventRecord(world->event, world->a));
    OK(p_cuStreamWaitEvent(world->b, world->event, 0));
    fill(world->b, world->x);
    kernel(world, world->a, world->x, 8, READS);
    hand_over(world->other, world->b, world->a);
    launch(end(world), world->c);
}

static CUgraphExec graph_that_fills(struct world *world)
{
    begin(world);
    fill(world->a, world->x);
    return end(world);
}

static void nobody_waits_for_a_graph(struct world *world)
{
    launch(graph_that_fills(world), world->a);
    copy(world->b, world->y, world->x);
}

static void a_graph_waits_for_nobody(struct world *world)
{
    fill(world->b, world->x);
    launch(graph_that_fills(world), world->a);
}

static void a_graph_between_two_streams(struct world *world)
{
    fill(world->b, world->x);
    hand_over(world->event, world->b, world->a);
    launch(graph_that_fills(world), world->a);
    hand_over(world->event, world->a, world->c);
    copy(world->c, world->y, world->x);
}

static CUgraphNode fill_node(const struct world *world, CUgraph graph)
{
    CUDA_MEMSET_NODE_PARAMS params = {.dst = world->x, .elementSize = 1, .width = BYTES, .height = 1};
    CUgraphNode node;
    OK(p_cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, world->context));
    return node;
}

static void launch_two_fills(struct world *world, bool ordered)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(p_cuGraphCreate(&graph, 0));
    CUgraphNode first = fill_node(world, graph);
    CUgraphNode second = fill_node(world, graph);
    if (ordered)
        OK(p_cuGraphAddDependencies(graph, &first, &second, NULL, 1));
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(p_cuGraphDestroy(graph));
    launch(exec, world->a);
}

static void two_nodes_without_an_edge(struct world *world)
{
    launch_two_fills(world, false);
}

static void two_nodes_with_an_edge(struct world *world)
{
    launch_two_fills(world, true);
}

static void memory_that_a_graph_allocates_and_frees(struct world *world)
{
    begin(world);
    CUdeviceptr mine = allocate(world->a);
    fill(world->a, mine);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, mine, BYTES, READS);
    copy(world->a, world->x, mine);
    hand_over(world->other, world->b, world->a);
    release(mine, world->a);
    CUgraphExec exec = end(world);
    OK(p_cuGraphLaunch(exec, world->a));
    launch(exec, world->a);
    OK(p_cuCtxSynchronize());
    OK(p_cuDeviceGraphMemTrim(0));
}

/* The branch is joined only after the free. */
static void memory_that_a_graph_frees_too_early(struct world *world)
{
    begin(world);
    CUdeviceptr mine = allocate(world->a);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, mine, BYTES, READS);
    release(mine, world->a);
    hand_over(world->other, world->b, world->a);
    launch(end(world), world->a);
    OK(p_cuCtxSynchronize());
    OK(p_cuDeviceGraphMemTrim(0));
}

static void memory_that_outlives_its_graph(struct world *world)
{
    begin(world);
    CUdeviceptr mine = allocate(world->a);
    fill(world->a, mine);
    CUgraphExec exec = end(world);
    OK(p_cuGraphLaunch(exec, world->a));
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, mine, BYTES, UPDATES);
    release(mine, world->b);
    OK(p_cuCtxSynchronize());
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuDeviceGraphMemTrim(0));
}

/* ---- values ---- */

static CUdeviceptr flag_of(const struct world *world)
{
    return (CUdeviceptr)(uintptr_t)(world->pinned + 64);
}

static void clear_flag(struct world *world)
{
    memset(world->pinned, 0, BYTES);
}

static void a_value_hands_over(struct world *world)
{
    clear_flag(world);
    fill(world->a, world->x);
    OK(p_cuStreamWriteValue32(world->a, flag_of(world), 1, 0));
    OK(p_cuStreamWaitValue32(world->b, flag_of(world), 1, CU_STREAM_WAIT_VALUE_EQ));
    copy(world->b, world->y, world->x);
}

/* What releases the wait is submitted after what waits. */
static void a_value_is_awaited_before_it_is_written(struct world *world)
{
    clear_flag(world);
    OK(p_cuStreamWaitValue32(world->b, flag_of(world), 1, CU_STREAM_WAIT_VALUE_EQ));
    copy(world->b, world->y, world->x);
    fill(world->a, world->x);
    OK(p_cuStreamWriteValue32(world->a, flag_of(world), 1, 0));
    OK(p_cuStreamSynchronize(world->b));
}

static void the_value_is_written_too_early(struct world *world)
{
    clear_flag(world);
    OK(p_cuStreamWriteValue32(world->a, flag_of(world), 1, 0));
    fill(world->a, world->x);
    OK(p_cuStreamWaitValue32(world->b, flag_of(world), 1, CU_STREAM_WAIT_VALUE_EQ));
    OK(p_cuStreamSynchronize(world->b));
    copy(world->b, world->y, world->x);
}

static void the_wait_for_the_value_is_dropped(struct world *world)
{
    strata_sim_fault fault = {
        .size = sizeof fault, .kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = STRATA_SIM_EDGE_VALUE_WAIT};
    OK(p_add_fault(&fault, NULL));
    a_value_hands_over(world);
    OK(p_clear_faults());
}

/* ---- rows ---- */

static void copy_rows(const struct world *world, CUstream stream, size_t width)
{
    CUDA_MEMCPY2D rows = {
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = world->x,
        .srcPitch = 512,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = world->y,
        .dstPitch = 512,
        .WidthInBytes = width,
        .Height = 8,
    };
    OK(p_cuMemcpy2DAsync(&rows, stream));
}

static void beside_the_rows_of_a_copy(struct world *world)
{
    copy_rows(world, world->a, 100);
    kernel(world, world->b, world->x + 512 + 100, 412, WRITES);
    kernel(world, world->b, world->y + 7 * 512 + 100, 412, WRITES);
}

static void in_a_row_of_a_copy(struct world *world)
{
    copy_rows(world, world->a, 100);
    kernel(world, world->b, world->y + 7 * 512 + 99, 1, READS);
}

/* ---- memory that the program maps, shares or registers ---- */

struct mapped {
    CUdeviceptr address;
    CUmemGenericAllocationHandle handles[2];
};

/* Two pages side by side. */
static struct mapped map_two(void)
{
    struct mapped mapped = {.address = test_sim_reserve(2 * TEST_PAGE)};
    for (unsigned i = 0; i < 2; i++) {
        mapped.handles[i] = test_sim_create(0, TEST_PAGE, CU_MEM_HANDLE_TYPE_NONE);
        test_sim_map(mapped.address + i * (size_t)TEST_PAGE, TEST_PAGE, mapped.handles[i]);
    }
    return mapped;
}

static void unmap_two(const struct mapped *mapped)
{
    OK(p_cuMemUnmap(mapped->address, 2 * TEST_PAGE));
    for (unsigned i = 0; i < 2; i++)
        OK(p_cuMemRelease(mapped->handles[i]));
    OK(p_cuMemAddressFree(mapped->address, 2 * TEST_PAGE));
}

static void across_two_maps(struct world *world)
{
    struct mapped mapped = map_two();
    kernel(world, world->a, mapped.address, 2 * TEST_PAGE, WRITES);
    hand_over(world->event, world->a, world->b);
    kernel(world, world->b, mapped.address + TEST_PAGE - 8, 16, UPDATES);
    OK(p_cuStreamSynchronize(world->b));
    unmap_two(&mapped);
}

static void a_race_in_the_second_map(struct world *world)
{
    struct mapped mapped = map_two();
    kernel(world, world->a, mapped.address, 2 * TEST_PAGE, WRITES);
    kernel(world, world->b, mapped.address + TEST_PAGE, 16, READS);
    OK(p_cuCtxSynchronize());
    unmap_two(&mapped);
}

static void unmapped_while_a_kernel_uses_it(struct world *world)
{
    struct mapped mapped = map_two();
    kernel(world, world->a, mapped.address + TEST_PAGE, 16, WRITES);
    OK(p_cuStreamSynchronize(world->b));
    unmap_two(&mapped);
}

static void unmapped_and_used(struct world *world)
{
    struct mapped mapped = map_two();
    unmap_two(&mapped);
    kernel(world, world->a, mapped.address, 16, READS);
}

static void the_host_writes_managed_memory_too_early(struct world *world)
{
    CUdeviceptr mine;
    OK(p_cuMemAllocManaged(&mine, BYTES, CU_MEM_ATTACH_GLOBAL));
    kernel(world, world->a, mine, BYTES, READS);
    OK(p_host_write((const void *)(uintptr_t)mine, 1));
    OK(p_cuMemFree(mine));
}

static char own[BYTES];

static void registered_memory(struct world *world)
{
    OK(p_cuMemHostRegister(own, sizeof own, 0));
    OK(p_cuMemcpyDtoHAsync(own, world->x, sizeof own, world->a));
    OK(p_cuStreamSynchronize(world->a));
    OK(p_host_read(own, sizeof own));
    OK(p_cuMemHostUnregister(own));
}

#define BUG(function, kind)                                     \
    {                                                           \
#function, function, STRATA_SIM_REPORT_##kind, 0, false \
    }
#define RIGHT(function)                          \
    {                                            \
#function, function, NO_REPORT, 0, false \
    }

static const struct program programs[] = {
    RIGHT(a_capture_forks_and_joins),
    BUG(branches_of_a_capture_race, WRITE_WRITE),
    BUG(a_copy_in_one_branch_and_a_kernel_in_the_other, WRITE_READ),
    BUG(nobody_waits_for_a_graph, WRITE_READ),
    BUG(a_graph_waits_for_nobody, WRITE_WRITE),
    RIGHT(a_graph_between_two_streams),
    BUG(two_nodes_without_an_edge, WRITE_WRITE),
    RIGHT(two_nodes_with_an_edge),
    RIGHT(memory_that_a_graph_allocates_and_frees),
    BUG(memory_that_a_graph_frees_too_early, FREE_IN_USE),
    RIGHT(memory_that_outlives_its_graph),
    RIGHT(a_value_hands_over),
    RIGHT(a_value_is_awaited_before_it_is_written),
    BUG(the_value_is_written_too_early, WRITE_READ),
    BUG(the_wait_for_the_value_is_dropped, WRITE_READ),
    RIGHT(beside_the_rows_of_a_copy),
    BUG(in_a_row_of_a_copy, WRITE_READ),
    RIGHT(across_two_maps),
    BUG(a_race_in_the_second_map, WRITE_READ),
    BUG(unmapped_while_a_kernel_uses_it, FREE_IN_USE),
    BUG(unmapped_and_used, USE_AFTER_FREE),
    BUG(the_host_writes_managed_memory_too_early, READ_WRITE),
    RIGHT(registered_memory),
};

int main(void)
{
    test_sim_open();
#define MORE_ASK(name, version) test_sim_ask(#name, version, &p_##name);
    MORE_ENTRIES(MORE_ASK)
#undef MORE_ASK
    return run_programs(programs, sizeof programs / sizeof programs[0], run_seeds);
}
