/* What a report of the checker says of operations in graphs: which nodes they are of, and what is missing. */
#include "planted/world.h"

/* X(name, version) */
#define MORE_ENTRIES(X)                   \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuGraphCreate, 10000)               \
    X(cuGraphClone, 10000)                \
    X(cuGraphDestroy, 10000)              \
    X(cuGraphAddMemsetNode, 10000)        \
    X(cuGraphAddChildGraphNode, 10000)    \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphExecUpdate, 12000)           \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphExecDestroy, 10000)

#define MORE_POINTER(name, version) static PFN_##name##_v##version p_##name;
MORE_ENTRIES(MORE_POINTER)
#undef MORE_POINTER

static uint64_t count_reports(void)
{
    uint64_t count;
    OK(p_get_report_count(&count));
    return count;
}

static strata_sim_report only_report(void)
{
    strata_sim_report report;
    assert_int_equal(count_reports(), 1);
    OK(p_get_report(0, &report));
    return report;
}

static struct world fresh_world(uint32_t modes)
{
    OK(p_clear_reports());
    return world_begin(modes);
}

static void assert_says(const strata_sim_report *report, const char *words)
{
    if (!strstr(report->text, words))
        fail_msg("\"%s\" is not in:\n%s", words, report->text);
}

static void assert_does_not_say(const strata_sim_report *report, const char *words)
{
    if (strstr(report->text, words))
        fail_msg("\"%s\" is in:\n%s", words, report->text);
}

static unsigned long long id_of(CUstream stream)
{
    unsigned long long id;
    OK(p_cuStreamGetId(stream, &id));
    return id;
}

/* ---- graphs, made in functions that are in call stacks ---- */

__attribute__((noinline)) void the_maker_of_the_fill(const struct world *world, CUstream stream);
__attribute__((noinline)) void another_maker_of_a_fill(const struct world *world, CUstream stream);
__attribute__((noinline)) void the_maker_of_the_copy(const struct world *world, CUstream stream);
__attribute__((noinline)) void the_adder_of_the_fill(const struct world *world, CUgraph graph);

void the_maker_of_the_fill(const struct world *world, CUstream stream)
{
    OK(p_cuMemsetD8Async(world->x, 1, BYTES, stream));
}

void another_maker_of_a_fill(const struct world *world, CUstream stream)
{
    OK(p_cuMemsetD8Async(world->x, 2, BYTES, stream));
}

void the_maker_of_the_copy(const struct world *world, CUstream stream)
{
    OK(p_cuMemcpyDtoDAsync(world->y, world->x, BYTES, stream));
}

void the_adder_of_the_fill(const struct world *world, CUgraph graph)
{
    CUDA_MEMSET_NODE_PARAMS params = {.dst = world->x, .elementSize = 1, .width = BYTES, .height = 1};
    CUgraphNode node;
    OK(p_cuGraphAddMemsetNode(&node, graph, NULL, 0, &params, world->context));
}

typedef void make(const struct world *world, CUstream stream);

/* One of them on each branch of a capture. */
static CUgraph capture(const struct world *world, make *one, make *other)
{
    CUgraph graph;
    OK(p_cuStreamBeginCapture(world->a, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    hand_over(world->event, world->a, world->b);
    one(world, world->a);
    if (other)
        other(world, world->b);
    hand_over(world->other, world->b, world->a);
    OK(p_cuStreamEndCapture(world->a, &graph));
    return graph;
}

static CUgraphExec exec_of(CUgraph graph)
{
    CUgraphExec exec;
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(p_cuGraphDestroy(graph));
    return exec;
}

static void launch(CUgraphExec exec, CUstream stream)
{
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuCtxSynchronize());
}

/* ---- which nodes ---- */

static void a_report_names_captured_nodes_and_the_missing_dependency(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    launch(exec_of(capture(&world, the_maker_of_the_fill, the_maker_of_the_copy)), world.c);
    strata_sim_report report = only_report();
    assert_string_equal(report.first.entry, "cuGraphLaunch");
    assert_int_equal(report.first.stream, 0);
    char words[96];
    snprintf(words, sizeof words, "in a graph launched on stream %llu, node made by cuMemsetD8Async", id_of(world.c));
    assert_says(&report, words);
    assert_says(&report, "node made by cuMemcpyDtoDAsync");
    assert_says(&report, "the node was made at:");
    assert_says(&report, "the_maker_of_the_fill");
    assert_says(&report, "the_maker_of_the_copy");
    assert_says(&report, "add a dependency between the two nodes made by cuMem");
    world_end(&world);
}

static void two_races_in_one_graph_are_two_reports(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUgraphExec exec = exec_of(capture(&world, the_maker_of_the_fill, the_maker_of_the_copy));
    CUgraphExec other = exec_of(capture(&world, another_maker_of_a_fill, the_maker_of_the_copy));
    CUgraphExec execs[] = {exec, other, exec, other};
    for (volatile int i = 0; i < 4; i++) /* one place */
        OK(p_cuGraphLaunch(execs[i], world.c));
    OK(p_cuCtxSynchronize());
    assert_int_equal(count_reports(), 2);
    for (uint64_t i = 0; i < 2; i++) {
        strata_sim_report report;
        OK(p_get_report(i, &report));
        assert_int_equal(report.times, 2);
        assert_says(&report, i == 0 ? "the_maker_of_the_fill" : "another_maker_of_a_fill");
    }
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphExecDestroy(other));
    world_end(&world);
}

/* The copy of a graph in a node of a copy. */
static void a_report_names_nodes_of_clones_and_of_graphs_in_graphs(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUgraph child;
    CUgraph graph;
    CUgraph clone;
    CUgraphNode node;
    OK(p_cuGraphCreate(&child, 0));
    the_adder_of_the_fill(&world, child);
    graph = capture(&world, the_maker_of_the_copy, NULL);
    OK(p_cuGraphAddChildGraphNode(&node, graph, NULL, 0, child));
    OK(p_cuGraphClone(&clone, graph));
    OK(p_cuGraphDestroy(child));
    OK(p_cuGraphDestroy(graph));
    launch(exec_of(clone), world.c);
    strata_sim_report report = only_report();
    assert_says(&report, "node made by cuGraphAddMemsetNode");
    assert_says(&report, "the_adder_of_the_fill");
    assert_says(&report, "the_maker_of_the_copy");
    assert_says(&report, "add a dependency between the two nodes made by cu");
    world_end(&world);
}

static void a_report_names_the_node_of_an_update(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUgraphExec exec = exec_of(capture(&world, the_maker_of_the_fill, the_maker_of_the_copy));
    CUgraph other = capture(&world, another_maker_of_a_fill, the_maker_of_the_copy);
    CUgraphExecUpdateResultInfo info;
    OK(p_cuGraphExecUpdate(exec, other, &info));
    OK(p_cuGraphDestroy(other));
    launch(exec, world.c);
    strata_sim_report report = only_report();
    assert_says(&report, "another_maker_of_a_fill");
    assert_does_not_say(&report, "the_maker_of_the_fill");
    world_end(&world);
}

static void nodes_have_no_stacks_if_nothing_has(void **state)
{
    (void)state;
    struct world world = fresh_world(STRATA_SIM_CHECK_NO_STACKS);
    launch(exec_of(capture(&world, the_maker_of_the_fill, the_maker_of_the_copy)), world.c);
    strata_sim_report report = only_report();
    assert_says(&report, "node made by cuMemsetD8Async");
    assert_does_not_say(&report, "the node was made at:");
    world_end(&world);
}

/* It was made while the checker was off. */
static void a_node_that_nobody_saw_is_not_named(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    OK(p_set_check(STRATA_SIM_CHECK_OFF));
    CUgraphExec exec = exec_of(capture(&world, the_maker_of_the_fill, the_maker_of_the_copy));
    OK(p_set_check(STRATA_SIM_CHECK_ON));
    launch(exec, world.c);
    strata_sim_report report = only_report();
    assert_does_not_say(&report, "made");
    assert_says(&report, "add a dependency between the two nodes.");
    world_end(&world);
}

/* ---- what is missing between a graph and others ---- */

static void assert_misses(const char *format, CUstream one, CUstream two, CUstream three, CUstream four)
{
    strata_sim_report report = only_report();
    char words[256];
    snprintf(words, sizeof words, format, id_of(one), id_of(two), id_of(three), id_of(four));
    assert_says(&report, words);
}

static void a_stream_has_to_wait_for_the_launch(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUgraphExec exec = exec_of(capture(&world, the_maker_of_the_fill, NULL));
    OK(p_cuGraphLaunch(exec, world.c));
    copy(world.d, world.y, world.x);
    assert_misses("stream %llu never waited for the fill in a graph launched on stream %llu: record an event on "
                  "stream %llu after the launch, and let stream %llu wait for that event before the copy.",
                  world.d, world.c, world.c, world.d);
    OK(p_cuGraphExecDestroy(exec));
    world_end(&world);
}

static void the_launch_has_to_wait_for_a_stream(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUgraphExec exec = exec_of(capture(&world, the_maker_of_the_copy, NULL));
    fill(world.d, world.x);
    OK(p_cuGraphLaunch(exec, world.c));
    assert_misses("stream %llu never waited for the fill on stream %llu: record an event on stream %llu after it, "
                  "and let stream %llu wait for that event before the launch of the graph with the copy.",
                  world.c, world.d, world.d, world.c);
    OK(p_cuGraphExecDestroy(exec));
    world_end(&world);
}

static void a_launch_has_to_wait_for_another(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUgraphExec exec = exec_of(capture(&world, the_maker_of_the_fill, NULL));
    CUgraphExec other = exec_of(capture(&world, the_maker_of_the_copy, NULL));
    OK(p_cuGraphLaunch(exec, world.c));
    OK(p_cuGraphLaunch(other, world.d));
    assert_misses("stream %llu never waited for the fill in a graph launched on stream %llu: record an event on "
                  "stream %llu after the launch, and let stream %llu wait for that event before the launch of the "
                  "graph with the copy.",
                  world.d, world.c, world.c, world.d);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuGraphExecDestroy(other));
    world_end(&world);
}

static void the_maker_of_the_download(const struct world *world, CUstream stream)
{
    download(world, stream, world->x);
}

static void the_host_has_to_wait_for_the_launch(void **state)
{
    (void)state;
    struct world world = fresh_world(0);
    CUgraphExec exec = exec_of(capture(&world, the_maker_of_the_download, NULL));
    OK(p_cuGraphLaunch(exec, world.c));
    host_reads(&world);
    strata_sim_report report = only_report();
    char words[128];
    snprintf(words, sizeof words, "the host never waited for the copy in a graph launched on stream %llu: synchronize",
             id_of(world.c));
    assert_says(&report, words);
    OK(p_cuGraphExecDestroy(exec));
    world_end(&world);
}

int main(void)
{
    test_sim_open();
#define MORE_ASK(name, version) test_sim_ask(#name, version, &p_##name);
    MORE_ENTRIES(MORE_ASK)
#undef MORE_ASK
    if (p_register_kernel("touch", touch_host_kernel) != CUDA_SUCCESS || p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_report_names_captured_nodes_and_the_missing_dependency),
        cmocka_unit_test(two_races_in_one_graph_are_two_reports),
        cmocka_unit_test(a_report_names_nodes_of_clones_and_of_graphs_in_graphs),
        cmocka_unit_test(a_report_names_the_node_of_an_update),
        cmocka_unit_test(nodes_have_no_stacks_if_nothing_has),
        cmocka_unit_test(a_node_that_nobody_saw_is_not_named),
        cmocka_unit_test(a_stream_has_to_wait_for_the_launch),
        cmocka_unit_test(the_launch_has_to_wait_for_a_stream),
        cmocka_unit_test(a_launch_has_to_wait_for_another),
        cmocka_unit_test(the_host_has_to_wait_for_the_launch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
