/* Pairs of programs about values that copies, fills, kernels, graphs and the host write, and that the host polls. */
#include "planted/flags.h"

/* Caught accesses are recorded where they happen, in a signal handler; see sim/check/host_access.c. */
const char *__tsan_default_options(void);
const char *__tsan_default_options(void)
{
    return "report_signal_unsafe=0";
}

/* ---- copies and fills ---- */

static void a_fill_sets_the_flag_before_the_wait(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    produce_unless(world, world->a, bug);
    OK(p_cuMemsetD32Async(flag, 1, 1, world->a));
    produce_if(world, world->a, bug);
    await_at(world->b, flag, 1);
    consume(world, world->b);
}

static void a_fill_sets_the_flag_behind_the_wait(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    await_at(world->b, flag, 1);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    OK(p_cuMemsetD32Async(flag, 1, 1, world->a));
    produce_if(world, world->a, bug);
}

static void one_byte_of_the_flag_is_filled(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    produce_unless(world, world->a, bug);
    OK(p_cuMemsetD8Async(flag + 2, 1, 1, world->a));
    produce_if(world, world->a, bug);
    await_at(world->b, flag, 1 << 16);
    consume(world, world->b);
}

static void two_bytes_of_the_flag_by_two_streams(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    OK(p_cuMemsetD8Async(flag, 1, 1, world->a));
    produce_unless(world, world->c, bug);
    OK(p_cuMemsetD8Async(flag + 1, 1, 1, world->c));
    produce_if(world, world->c, bug);
    OK(p_cuStreamWaitValue32(world->b, flag, 0x101, CU_STREAM_WAIT_VALUE_EQ));
    consume(world, world->b);
}

static void a_fill_of_rows_sets_the_flag(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    await_at(world->b, flag + 256, 1);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    OK(p_cuMemsetD2D8Async(flag, 256, 1, 4, 2, world->a));
    produce_if(world, world->a, bug);
}

static void a_fill_that_does_not_reach_the_flag(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    produce(world, bug ? world->a : world->c);
    OK(p_cuMemsetD8Async(flag, 1, 128, world->a));
    tell_at(world->c, flag + 128, 1);
    await_at(world->b, flag + 128, 1);
    consume(world, world->b);
}

static void a_copy_sets_the_flag_before_the_wait(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    host_sets(world, 1);
    produce_unless(world, world->a, bug);
    OK(p_cuMemcpyHtoDAsync(flag, host_flag(world), 4, world->a));
    produce_if(world, world->a, bug);
    await_at(world->b, flag, 1);
    consume(world, world->b);
}

static void a_copy_sets_the_flag_behind_the_wait(struct world *world, bool bug)
{
    static const uint32_t one = 1;
    CUdeviceptr flag = device_flag(world);
    await_at(world->b, flag, 1);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    OK(p_cuMemcpyHtoDAsync(flag, &one, sizeof one, world->a));
    produce_if(world, world->a, bug);
}

static void a_copy_carries_the_flag_to_the_host(struct world *world, bool bug)
{
    CUdeviceptr source = device_flag(world);
    OK(p_cuMemsetD32Async(source, 1, 1, world->a));
    produce_unless(world, world->a, bug);
    OK(p_cuMemcpyDtoHAsync(host_flag(world), source, 4, world->a));
    produce_if(world, world->a, bug);
    await(world, world->b, 1);
    consume(world, world->b);
}

static void one_copy_carries_data_and_flag(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world) + BYTES - 4;
    OK(p_cuMemsetD8Async(world->x, 1, BYTES, world->a));
    OK(p_cuMemcpyDtoDAsync(world->y + 8, world->x + 8, BYTES - 8, world->a));
    if (bug)
        OK(p_cuMemsetD8Async(world->y + 8, 2, 64, world->a));
    await_at(world->b, flag, 1);
    kernel(world, world->b, world->y + 8, 64, READS);
}

static void a_copy_of_the_value_of_the_round_before(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    OK(p_cuMemsetD32Async(flag, 1, 1, world->a));
    await_at(world->b, flag, 1);
    OK(p_cuStreamSynchronize(world->b));
    produce(world, world->a);
    OK(p_cuMemsetD32Async(flag, bug ? 1 : 2, 1, world->a));
    await_at(world->b, flag, bug ? 1 : 2);
    consume(world, world->b);
}

static void a_fill_clears_the_flag_first(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    tell_at(world->c, flag, 1);
    OK(p_cuStreamSynchronize(world->c));
    OK(p_cuMemsetD32Async(flag, 0, 1, world->a));
    if (!bug)
        hand_over(world->event, world->a, world->b);
    produce(world, world->a);
    tell_at(world->a, flag, 1);
    await_at(world->b, flag, 1);
    consume(world, world->b);
}

static void a_copy_between_two_addresses_of_the_flag(struct world *world, bool bug)
{
    struct twice memory = map_twice();
    OK(p_cuMemsetD8(memory.one, 0, BYTES));
    OK(p_cuCtxSynchronize());
    produce_unless(world, world->a, bug);
    OK(p_cuMemsetD32Async(memory.two, 1, 1, world->a));
    produce_if(world, world->a, bug);
    await_at(world->b, memory.one, 1);
    consume(world, world->b);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

/* ---- kernels ---- */

static void a_kernel_sets_the_flag_before_the_wait(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    produce_unless(world, world->a, bug);
    put(world->a, flag, 1);
    produce_if(world, world->a, bug);
    await_at(world->b, flag, 1);
    consume(world, world->b);
}

static void a_kernel_sets_the_flag_behind_the_wait(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    await_at(world->b, flag, 1);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    put(world->a, flag, 1);
    produce_if(world, world->a, bug);
}

static void a_kernel_sets_a_flag_of_the_host(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    put(world->a, flag_of(world), 1);
    produce_if(world, world->a, bug);
    await(world, world->b, 1);
    consume(world, world->b);
}

static void a_kernel_sets_the_upper_half(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    put(world->a, flag_of(world) + 4, 1);
    produce_if(world, world->a, bug);
    await_64(world, world->b, UINT64_C(1) << 32, CU_STREAM_WAIT_VALUE_GEQ);
    consume(world, world->b);
}

static void a_kernel_that_sets_too_little(struct world *world, bool bug)
{
    await(world, world->c, 0);
    put(world->a, flag_of(world), 1);
    produce(world, world->a);
    put(world->a, flag_of(world), 2);
    await(world, world->b, bug ? 1 : 2);
    consume(world, world->b);
}

static void two_kernels_count(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    add(world->a, flag, 1);
    produce_unless(world, world->c, bug);
    add(world->c, flag, 1);
    produce_if(world, world->c, bug);
    await_at(world->b, flag, 2);
    consume(world, world->b);
}

static void two_kernels_count_behind_the_wait(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    await_at(world->b, flag, 2);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    add(world->a, flag, 1);
    produce_if(world, world->a, bug);
    add(world->c, flag, 1);
}

/* ---- graphs ---- */

static void a_graph_sets_the_flag(struct world *world, bool bug)
{
    begin_graph(world->a);
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    CUgraphExec exec = end_graph(world->a);
    await(world, world->b, 1);
    consume(world, world->b);
    OK(p_cuGraphLaunch(exec, world->a));
    OK(p_cuGraphExecDestroy(exec));
}

static void a_graph_waits(struct world *world, bool bug)
{
    begin_graph(world->b);
    await(world, world->b, 1);
    consume(world, world->b);
    CUgraphExec exec = end_graph(world->b);
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    OK(p_cuGraphLaunch(exec, world->b));
    OK(p_cuGraphExecDestroy(exec));
}

static void a_graph_waits_twice(struct world *world, bool bug)
{
    begin_graph(world->b);
    await_exactly(world, world->b, 1);
    consume(world, world->b);
    if (!bug)
        tell(world, world->b, 0);
    CUgraphExec exec = end_graph(world->b);
    for (int round = 0; round < 2; round++) {
        produce(world, world->a);
        tell(world, world->a, 1);
        OK(p_cuGraphLaunch(exec, world->b));
        OK(p_cuStreamSynchronize(world->b));
    }
    OK(p_cuGraphExecDestroy(exec));
}

static void two_branches_of_a_graph(struct world *world, bool bug)
{
    begin_graph(world->a);
    hand_over(world->event, world->a, world->b);
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    await(world, world->b, 1);
    consume(world, world->b);
    hand_over(world->other, world->b, world->a);
    CUgraphExec exec = end_graph(world->a);
    OK(p_cuGraphLaunch(exec, world->a));
    OK(p_cuGraphExecDestroy(exec));
}

static void a_fill_in_a_graph_sets_the_flag(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    begin_graph(world->a);
    produce_unless(world, world->a, bug);
    OK(p_cuMemsetD32Async(flag, 1, 1, world->a));
    produce_if(world, world->a, bug);
    CUgraphExec exec = end_graph(world->a);
    OK(p_cuGraphLaunch(exec, world->a));
    await_at(world->b, flag, 1);
    consume(world, world->b);
    OK(p_cuGraphExecDestroy(exec));
}

static void a_kernel_in_a_graph_sets_the_flag(struct world *world, bool bug)
{
    CUdeviceptr flag = device_flag(world);
    begin_graph(world->a);
    produce_unless(world, world->a, bug);
    put(world->a, flag, 1);
    produce_if(world, world->a, bug);
    CUgraphExec exec = end_graph(world->a);
    await_at(world->b, flag, 1);
    consume(world, world->b);
    OK(p_cuGraphLaunch(exec, world->a));
    OK(p_cuGraphExecDestroy(exec));
}

static void work_behind_a_graph_that_waits(struct world *world, bool bug)
{
    begin_graph(world->b);
    await(world, world->b, 1);
    CUgraphExec exec = end_graph(world->b);
    OK(p_cuGraphLaunch(exec, world->b));
    consume(world, bug ? world->c : world->b);
    produce(world, world->a);
    tell(world, world->a, 1);
    OK(p_cuGraphExecDestroy(exec));
}

/* ---- the host sets flags ---- */

static void the_host_waits_before_it_sets_the_flag(struct world *world, bool bug)
{
    await(world, world->b, 1);
    consume(world, world->b);
    produce(world, world->a);
    if (!bug)
        OK(p_cuStreamSynchronize(world->a));
    host_sets(world, 1);
    OK(p_cuStreamSynchronize(world->b));
}

static void the_host_waits_after_it_has_set_the_flag(struct world *world, bool bug)
{
    await(world, world->b, 1);
    consume(world, world->b);
    produce(world, world->a);
    if (bug)
        host_sets(world, 1);
    OK(p_cuStreamSynchronize(world->a));
    if (!bug)
        host_sets(world, 1);
    OK(p_cuStreamSynchronize(world->b));
}

static void the_host_writes_data_and_sets_the_flag(struct world *world, bool bug)
{
    await(world, world->b, 1);
    upload_data(world, world->b);
    if (bug)
        host_sets(world, 1);
    host_writes_data(world);
    if (!bug)
        host_sets(world, 1);
    OK(p_cuStreamSynchronize(world->b));
}

static void the_host_clears_the_flag_of_a_stream(struct world *world, bool bug)
{
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->a));
    if (!bug)
        host_sets(world, 0);
    produce(world, world->a);
    tell(world, world->a, 1);
    await_exactly(world, world->b, 1);
    consume(world, world->b);
}

static void the_host_sets_a_flag_that_a_stream_sets_too(struct world *world, bool bug)
{
    await(world, world->b, 1);
    consume(world, world->b);
    produce(world, world->a);
    tell(world, world->a, 1);
    if (!bug)
        OK(p_cuStreamSynchronize(world->a));
    host_sets(world, 2);
    OK(p_cuStreamSynchronize(world->b));
}

static void the_host_sets_half_of_a_wide_flag(struct world *world, bool bug)
{
    await_64(world, world->b, UINT64_C(1) << 32 | 1, CU_STREAM_WAIT_VALUE_EQ);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    tell_upper(world, world->a, 1);
    produce_if(world, world->a, bug);
    host_sets(world, 1);
}

static void the_host_sets_a_wide_flag(struct world *world, bool bug)
{
    await_64(world, world->b, UINT64_C(1) << 40, CU_STREAM_WAIT_VALUE_GEQ);
    upload_data(world, world->b);
    if (bug)
        host_sets_64(world, UINT64_C(1) << 40);
    host_writes_data(world);
    host_sets_64(world, UINT64_C(1) << 40);
    OK(p_cuStreamSynchronize(world->b));
}

static void set_the_flag(struct world *world)
{
    host_sets(world, 1);
}

static void wait_and_set_the_flag(struct world *world)
{
    OK(p_cuStreamSynchronize(world->a));
    host_sets(world, 1);
}

static void another_thread_sets_the_flag(struct world *world, bool bug)
{
    await(world, world->b, 1);
    consume(world, world->b);
    produce(world, world->a);
    in_thread(world, bug ? set_the_flag : wait_and_set_the_flag);
    OK(p_cuStreamSynchronize(world->b));
}

static void set_in_stream(void *data)
{
    host_sets(data, 1);
}

static void a_host_function_sets_the_flag(struct world *world, bool bug)
{
    await(world, world->b, 1);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    OK(p_cuLaunchHostFunc(world->a, set_in_stream, world));
    produce_if(world, world->a, bug);
}

/* ---- the host polls ---- */

static void the_host_polls_for_the_end_of_a_download(struct world *world, bool bug)
{
    if (bug)
        tell(world, world->a, 1);
    download_data(world, world->a);
    if (!bug)
        tell(world, world->a, 1);
    poll_flag(world, 1);
    host_reads_data(world);
}

static void the_host_submits_after_it_polled(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    poll_flag(world, 1);
    consume(world, world->b);
}

static void the_host_polls_a_flag_of_the_round_before(struct world *world, bool bug)
{
    tell(world, world->a, 1);
    poll_flag(world, 1);
    if (!bug)
        host_sets(world, 0);
    produce(world, world->a);
    tell(world, world->a, 1);
    poll_flag(world, 1);
    consume(world, world->b);
}

static void the_host_polls_for_an_older_value(struct world *world, bool bug)
{
    tell(world, world->a, 1);
    produce(world, world->a);
    tell(world, world->a, 2);
    poll_flag(world, bug ? 1 : 2);
    consume(world, world->b);
}

static void the_host_polls_for_either_writer(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    if (!bug)
        hand_over(world->event, world->a, world->c);
    tell(world, world->c, 1);
    poll_flag(world, 1);
    consume(world, world->b);
}

static void the_host_polls_half_of_a_wide_write(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    tell_64(world, world->a, UINT64_C(1) << 32);
    produce_if(world, world->a, bug);
    CUresult result;
    while ((result = p_host_poll(host_flag(world) + 4, 4, 1, CU_STREAM_WAIT_VALUE_EQ)) == CUDA_ERROR_NOT_READY) {
    }
    OK(result);
    consume(world, world->b);
}

static void the_host_polls_a_flag_that_a_kernel_sets(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    put(world->a, flag_of(world), 1);
    produce_if(world, world->a, bug);
    poll_flag(world, 1);
    consume(world, world->b);
}

static void the_host_polls_a_flag_that_a_copy_sets(struct world *world, bool bug)
{
    CUdeviceptr source = device_flag(world);
    OK(p_cuMemsetD32Async(source, 1, 1, world->a));
    produce_unless(world, world->a, bug);
    OK(p_cuMemcpyDtoHAsync(host_flag(world), source, 4, world->a));
    produce_if(world, world->a, bug);
    poll_flag(world, 1);
    consume(world, world->b);
}

static void the_host_polls_and_hands_on(struct world *world, bool bug)
{
    CUdeviceptr next = flag_of(world) + 64;
    await_at(world->b, next, 1);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    poll_flag(world, 1);
    __atomic_store_n((uint32_t *)(void *)(host_flag(world) + 64), 1, __ATOMIC_RELEASE);
    OK(p_cuStreamSynchronize(world->b));
}

static void the_host_polls_what_rests_on_a_wait(struct world *world, bool bug)
{
    CUdeviceptr last = flag_of(world) + 64;
    if (!bug)
        await(world, world->b, 1);
    tell_at(world->b, last, 1);
    produce(world, world->a);
    tell(world, world->a, 1);
    CUresult result;
    while ((result = p_host_poll(host_flag(world) + 64, 4, 1, CU_STREAM_WAIT_VALUE_EQ)) == CUDA_ERROR_NOT_READY) {
    }
    OK(result);
    consume(world, world->c);
}

static void the_host_declares_that_it_reads_the_flag(struct world *world, bool bug)
{
    await(world, world->b, 1);
    download_data(world, world->a);
    tell(world, world->a, 1);
    OK(p_host_read(host_flag(world), 4));
    if (bug)
        host_reads_data(world);
}

static const struct pair pairs[] = {
    PAIR(a_fill_sets_the_flag_before_the_wait, WRITE_READ),
    PAIR(a_fill_sets_the_flag_behind_the_wait, READ_WRITE),
    PAIR(one_byte_of_the_flag_is_filled, WRITE_READ),
    PAIR(two_bytes_of_the_flag_by_two_streams, WRITE_READ),
    PAIR(a_fill_of_rows_sets_the_flag, READ_WRITE),
    PAIR(a_fill_that_does_not_reach_the_flag, WRITE_READ),
    PAIR(a_copy_sets_the_flag_before_the_wait, WRITE_READ),
    PAIR(a_copy_sets_the_flag_behind_the_wait, READ_WRITE),
    PAIR(a_copy_carries_the_flag_to_the_host, WRITE_READ),
    PAIR(one_copy_carries_data_and_flag, WRITE_READ),
    PAIR(a_copy_of_the_value_of_the_round_before, WRITE_READ),
    PAIR(a_fill_clears_the_flag_first, WRITE_READ),
    PAIR(a_copy_between_two_addresses_of_the_flag, WRITE_READ),
    PAIR(a_kernel_sets_the_flag_before_the_wait, WRITE_READ),
    PAIR(a_kernel_sets_the_flag_behind_the_wait, READ_WRITE),
    PAIR(a_kernel_sets_a_flag_of_the_host, WRITE_READ),
    PAIR(a_kernel_sets_the_upper_half, WRITE_READ),
    PAIR(a_kernel_that_sets_too_little, WRITE_READ),
    PAIR(two_kernels_count, WRITE_READ),
    PAIR(two_kernels_count_behind_the_wait, READ_WRITE),
    PAIR(a_graph_sets_the_flag, READ_WRITE),
    PAIR(a_graph_waits, WRITE_READ),
    PAIR(a_graph_waits_twice, WRITE_READ),
    PAIR(two_branches_of_a_graph, WRITE_READ),
    PAIR(a_fill_in_a_graph_sets_the_flag, WRITE_READ),
    PAIR(a_kernel_in_a_graph_sets_the_flag, READ_WRITE),
    PAIR(work_behind_a_graph_that_waits, READ_WRITE),
    PAIR(the_host_waits_before_it_sets_the_flag, READ_WRITE),
    PAIR(the_host_waits_after_it_has_set_the_flag, READ_WRITE),
    PAIR(the_host_writes_data_and_sets_the_flag, READ_WRITE),
    PAIR(the_host_clears_the_flag_of_a_stream, WRITE_READ),
    PAIR(the_host_sets_a_flag_that_a_stream_sets_too, READ_WRITE),
    PAIR(the_host_sets_half_of_a_wide_flag, READ_WRITE),
    PAIR(the_host_sets_a_wide_flag, READ_WRITE),
    PAIR(another_thread_sets_the_flag, READ_WRITE),
    PAIR(a_host_function_sets_the_flag, READ_WRITE),
    PAIR_IN(the_host_waits_before_it_sets_the_flag, READ_WRITE, STRATA_SIM_CHECK_HOST_FUNCTIONS),
    PAIR_IN(a_host_function_sets_the_flag, READ_WRITE, STRATA_SIM_CHECK_HOST_FUNCTIONS),
    PAIR_IN(the_host_waits_before_it_sets_the_flag, READ_WRITE, STRATA_SIM_CHECK_PAGES),
    PAIR(the_host_polls_for_the_end_of_a_download, WRITE_READ),
    PAIR(the_host_submits_after_it_polled, WRITE_READ),
    PAIR(the_host_polls_a_flag_of_the_round_before, WRITE_READ),
    PAIR(the_host_polls_for_an_older_value, WRITE_READ),
    PAIR(the_host_polls_for_either_writer, WRITE_READ),
    PAIR(the_host_polls_half_of_a_wide_write, WRITE_READ),
    PAIR(the_host_polls_a_flag_that_a_kernel_sets, WRITE_READ),
    PAIR(the_host_polls_a_flag_that_a_copy_sets, WRITE_READ),
    PAIR(the_host_polls_and_hands_on, READ_WRITE),
    PAIR(the_host_polls_what_rests_on_a_wait, WRITE_READ),
    PAIR(the_host_declares_that_it_reads_the_flag, WRITE_READ),
};

int main(void)
{
    return run_pairs(pairs, sizeof pairs / sizeof pairs[0]);
}
