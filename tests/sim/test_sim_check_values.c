/* The checker and waits for values that are submitted before what lets them go on. Small programs with and without a
 * bug; each gives the same answer under every policy. */
#include "planted/world.h"

/* X(name, version) */
#define MORE_ENTRIES(X)                   \
    X(cuStreamBeginCapture, 10010)        \
    X(cuStreamEndCapture, 10000)          \
    X(cuGraphDestroy, 10000)              \
    X(cuGraphInstantiateWithFlags, 11040) \
    X(cuGraphLaunch, 10000)               \
    X(cuGraphExecDestroy, 10000)

#define MORE_POINTER(name, version) static PFN_##name##_v##version p_##name;
MORE_ENTRIES(MORE_POINTER)
#undef MORE_POINTER

static CUdeviceptr flag_of(const struct world *world)
{
    return (CUdeviceptr)(uintptr_t)(world->pinned + 64);
}

static void clear_flag(struct world *world)
{
    memset(world->pinned, 0, BYTES);
}

static void await(const struct world *world, CUstream stream, unsigned value)
{
    OK(p_cuStreamWaitValue32(stream, flag_of(world), value, CU_STREAM_WAIT_VALUE_GEQ));
}

static void await_exactly(const struct world *world, CUstream stream, unsigned value)
{
    OK(p_cuStreamWaitValue32(stream, flag_of(world), value, CU_STREAM_WAIT_VALUE_EQ));
}

static void tell(const struct world *world, CUstream stream, unsigned value)
{
    OK(p_cuStreamWriteValue32(stream, flag_of(world), value, 0));
}

/* ---- what comes after the wait ---- */

static void what_is_submitted_after_the_host_waited(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    copy(world->b, world->y, world->x);
    fill(world->a, world->x);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->b));
    fill(world->b, world->x);
    OK(p_cuStreamSynchronize(world->b));
    download(world, world->c, world->x);
}

static void what_is_submitted_between_the_wait_and_the_write(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    fill(world->b, world->x);
    kernel(world, world->b, world->y, BYTES, READS);
    fill(world->a, world->x);
    fill(world->a, world->y);
    tell(world, world->a, 1);
}

/* An event of the waiting stream carries it on, although it was recorded before the write. */
static void what_waits_for_an_event_behind_the_wait(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    hand_over(world->event, world->b, world->c);
    copy(world->c, world->y, world->x);
    fill(world->a, world->x);
    tell(world, world->a, 1);
    OK(p_cuEventSynchronize(world->event));
    kernel(world, world->d, world->x, BYTES, READS);
    hand_over(world->other, world->c, world->d);
    fill(world->d, world->x);
}

/* Each wait is let go on by a stream that waited itself. */
static void a_chain_of_waits(struct world *world)
{
    clear_flag(world);
    await(world, world->c, 2);
    copy(world->c, world->y, world->x);
    await(world, world->b, 1);
    tell(world, world->b, 2);
    fill(world->a, world->x);
    fill(world->a, world->y);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->c));
    fill(world->d, world->y);
}

/* Two streams take turns, and one of them is told all of it before the other begins. */
static void taking_turns(struct world *world)
{
    clear_flag(world);
    for (int i = 0; i < 3; i++) {
        await_exactly(world, world->b, 1);
        copy(world->b, world->y, world->x);
        tell(world, world->b, 0);
    }
    for (int i = 0; i < 3; i++) {
        fill(world->a, world->x);
        tell(world, world->a, 1);
        await_exactly(world, world->a, 0);
    }
}

static void take_turns(struct world *world, unsigned begin, unsigned end)
{
    for (unsigned i = begin; i < end; i++) {
        await(world, world->b, i);
        copy(world->b, world->y, world->x);
        fill(world->a, world->x);
        tell(world, world->a, i);
        OK(p_cuStreamSynchronize(world->b));
    }
}

/* What is remembered of waits goes when the host knows it. */
static void many_turns(struct world *world)
{
    strata_sim_check_accounts few;
    strata_sim_check_accounts many;
    clear_flag(world);
    take_turns(world, 1, 200);
    OK(p_get_check_accounts(&few));
    take_turns(world, 200, 1000);
    OK(p_get_check_accounts(&many));
    assert_true(many.bytes <= 2 * few.bytes);
}

static void memory_is_freed_behind_a_wait(struct world *world)
{
    clear_flag(world);
    CUdeviceptr mine = allocate(world->b);
    hand_over(world->event, world->b, world->a);
    await(world, world->b, 1);
    fill(world->a, mine);
    release(mine, world->b);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->b));
    trim();
}

static void the_host_lets_a_copy_go_on(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    upload(world, world->b, world->x);
    OK(p_host_write(world->pinned, 32));
    __atomic_store_n((uint32_t *)(void *)(world->pinned + 64), 1, __ATOMIC_RELEASE);
    OK(p_cuStreamSynchronize(world->b));
}

/* A stream wrote the same value once, and the host took it back. */
static void the_host_writes_what_a_stream_wrote_before(struct world *world)
{
    clear_flag(world);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->a));
    __atomic_store_n((uint32_t *)(void *)(world->pinned + 64), 0, __ATOMIC_RELEASE);
    the_host_lets_a_copy_go_on(world);
}

/* It waited for the fill itself. */
static void the_host_hands_on_what_it_waited_for(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    copy(world->b, world->y, world->x);
    fill(world->a, world->x);
    OK(p_cuStreamSynchronize(world->a));
    __atomic_store_n((uint32_t *)(void *)(world->pinned + 64), 1, __ATOMIC_RELEASE);
    OK(p_cuStreamSynchronize(world->b));
    fill(world->b, world->x);
}

/* The host writes before it opens the gate, which the copy is behind, and what lets the wait go on came before that. */
static void a_copy_behind_a_gate_and_a_wait(struct world *world)
{
    OK(p_cuMemsetD8Async(world->y, 0, BYTES, world->a));
    OK(p_cuStreamSynchronize(world->a));
    shut_gate(world, world->b);
    OK(p_cuStreamWaitValue32(world->b, world->y, 1, CU_STREAM_WAIT_VALUE_GEQ));
    upload(world, world->b, world->x);
    OK(p_cuStreamWriteValue32(world->a, world->y, 1, 0));
    host_writes(world);
    open_gate(world);
    OK(p_cuStreamSynchronize(world->b));
}

/* A graph that waits, a copy in it and one behind it. */
static void launch_a_wait(const struct world *world)
{
    CUgraph graph;
    CUgraphExec exec;
    OK(p_cuStreamBeginCapture(world->b, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    await(world, world->b, 1);
    copy(world->b, world->y, world->x);
    OK(p_cuStreamEndCapture(world->b, &graph));
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuGraphLaunch(exec, world->b));
    OK(p_cuGraphExecDestroy(exec));
    copy(world->b, world->y, world->x);
}

static void a_graph_waits_for_a_value(struct world *world)
{
    clear_flag(world);
    launch_a_wait(world);
    fill(world->a, world->x);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->b));
    fill(world->c, world->x);
}

static void what_was_not_written_when_the_read_was_submitted(struct world *world)
{
    CUdeviceptr mine;
    OK(p_cuMemAlloc(&mine, BYTES));
    clear_flag(world);
    await(world, world->b, 1);
    copy(world->b, world->y, mine);
    fill(world->a, mine);
    tell(world, world->a, 1);
    OK(p_cuCtxSynchronize());
    OK(p_cuMemFree(mine));
}

/* ---- and what does not ---- */

static void the_value_is_written_before_the_fill(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    copy(world->b, world->y, world->x);
    tell(world, world->a, 1);
    fill(world->a, world->x);
}

static void a_graph_waits_for_a_value_that_is_written_too_early(struct world *world)
{
    clear_flag(world);
    launch_a_wait(world);
    tell(world, world->a, 1);
    fill(world->a, world->x);
}

static void the_wait_is_dropped(struct world *world)
{
    strata_sim_fault fault = {
        .size = sizeof fault, .kind = STRATA_SIM_DROP_EDGE, .nth = 1, .edges = STRATA_SIM_EDGE_VALUE_WAIT};
    OK(p_add_fault(&fault, NULL));
    clear_flag(world);
    await(world, world->b, 1);
    copy(world->b, world->y, world->x);
    fill(world->a, world->x);
    tell(world, world->a, 1);
    OK(p_clear_faults());
}

/* The second write may be the one that the scheduler lets the stream see; the first would do. */
static void the_first_write_lets_it_go_on(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    copy(world->b, world->y, world->x);
    tell(world, world->a, 1);
    fill(world->a, world->x);
    tell(world, world->a, 2);
}

static void a_write_that_satisfied_nobody(struct world *world)
{
    clear_flag(world);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->a)); /* or the 1 may be written over the 2 that b waits for */
    await(world, world->b, 2);
    copy(world->b, world->y, world->x);
    tell(world, world->c, 2);
    fill(world->a, world->x);
}

/* It comes after the first write of x, and the third one has to come after it. */
static void what_waited_is_overwritten(struct world *world)
{
    clear_flag(world);
    await(world, world->b, 1);
    fill(world->b, world->x);
    fill(world->a, world->x);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->a));
    OK(p_cuStreamQuery(world->a));
    fill(world->a, world->x);
}

static void the_host_does_not_wait_for_what_waited(struct world *world)
{
    OK(p_cuMemsetD8Async(world->y, 0, BYTES, world->a));
    OK(p_cuStreamSynchronize(world->a));
    OK(p_cuStreamWaitValue32(world->b, world->y, 1, CU_STREAM_WAIT_VALUE_GEQ));
    download(world, world->b, world->x);
    OK(p_cuStreamWriteValue32(world->a, world->y, 1, 0));
    OK(p_cuStreamSynchronize(world->a));
    host_reads(world);
}

static void memory_is_freed_behind_the_wrong_wait(struct world *world)
{
    clear_flag(world);
    CUdeviceptr mine = allocate(world->b);
    hand_over(world->event, world->b, world->a);
    await(world, world->b, 1);
    kernel(world, world->a, mine, BYTES, WRITES);
    release(mine, world->b);
    tell(world, world->c, 1);
    OK(p_cuCtxSynchronize());
    trim();
}

#define BUG(function, kind)                                     \
    {                                                           \
#function, function, STRATA_SIM_REPORT_##kind, 0, false \
    }
#define RIGHT(function)                          \
    {                                            \
#function, function, NO_REPORT, 0, false \
    }
#define RIGHT_UNWRITTEN(function)                                         \
    {                                                                     \
#function, function, NO_REPORT, STRATA_SIM_CHECK_UNWRITTEN, false \
    }

static const struct program programs[] = {
    RIGHT(what_is_submitted_after_the_host_waited),
    RIGHT(what_is_submitted_between_the_wait_and_the_write),
    RIGHT(what_waits_for_an_event_behind_the_wait),
    RIGHT(a_chain_of_waits),
    RIGHT(taking_turns),
    RIGHT(many_turns),
    RIGHT(memory_is_freed_behind_a_wait),
    RIGHT(the_host_lets_a_copy_go_on),
    RIGHT(the_host_writes_what_a_stream_wrote_before),
    RIGHT(the_host_hands_on_what_it_waited_for),
    RIGHT(a_copy_behind_a_gate_and_a_wait),
    RIGHT(a_graph_waits_for_a_value),
    RIGHT_UNWRITTEN(what_was_not_written_when_the_read_was_submitted),
    BUG(the_value_is_written_before_the_fill, READ_WRITE),
    BUG(a_graph_waits_for_a_value_that_is_written_too_early, READ_WRITE),
    BUG(the_wait_is_dropped, READ_WRITE),
    BUG(the_first_write_lets_it_go_on, READ_WRITE),
    BUG(a_write_that_satisfied_nobody, READ_WRITE),
    BUG(what_waited_is_overwritten, WRITE_WRITE),
    BUG(the_host_does_not_wait_for_what_waited, WRITE_READ),
    BUG(memory_is_freed_behind_the_wrong_wait, FREE_IN_USE),
};

int main(void)
{
    test_sim_open();
#define MORE_ASK(name, version) test_sim_ask(#name, version, &p_##name);
    MORE_ENTRIES(MORE_ASK)
#undef MORE_ASK
    return run_programs(programs, sizeof programs / sizeof programs[0], run_seeds);
}
