/* Pairs of programs about values that streams write and wait for: which writes a wait comes after, and which not. */
#include "planted/flags.h"

/* ---- older and later values ---- */

static void a_flag_that_is_still_set_from_the_round_before(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    await(world, world->b, 1);
    consume(world, world->b);
    OK(p_cuStreamSynchronize(world->b));
    produce(world, world->a);
    tell(world, world->a, bug ? 1 : 2);
    await(world, world->b, bug ? 1 : 2);
    consume(world, world->b);
}

static void a_flag_that_the_host_clears_between_rounds(struct world *world, bool bug)
{
    for (int round = 0; round < 3; round++) {
        await_exactly(world, world->b, 1);
        consume(world, world->b);
        produce(world, world->a);
        tell(world, world->a, 1);
        OK(p_cuStreamSynchronize(world->b));
        if (!bug)
            host_sets(world, 0);
    }
}

static void a_flag_that_the_consumer_clears(struct world *world, bool bug)
{
    for (int round = 0; round < 3; round++) {
        produce(world, world->a);
        tell(world, world->a, 1);
        await_exactly(world, world->b, 1);
        consume(world, world->b);
        if (!bug)
            tell(world, world->b, 0);
        hand_over(world->event, world->b, world->a);
    }
}

static void a_flag_that_the_producer_clears_when_the_wait_may_have_seen_it(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->a));
    tell(world, world->a, 0);
    if (!bug)
        hand_over(world->event, world->a, world->b);
    produce(world, world->a);
    tell(world, world->a, 1);
    await_exactly(world, world->b, 1);
    consume(world, world->b);
}

static void a_value_that_was_there_from_the_start(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    await(world, world->b, bug ? 0 : 1);
    consume(world, world->b);
}

static void a_slot_that_is_free_from_the_start(struct world *world, bool bug)
{
    if (!bug)
        host_sets(world, 1); /* in use: the reader lets it go */
    consume(world, world->b);
    tell(world, world->b, 0);
    await_exactly(world, world->a, 0);
    produce(world, world->a);
}

static void a_write_that_cannot_satisfy(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    hand_over(world->event, world->a, world->c);
    await(world, world->b, 2);
    if (bug)
        produce(world, world->a);
    consume(world, world->b);
    tell(world, world->c, 2);
}

static void a_later_write_of_the_same_stream(struct world *world, bool bug)
{
    tell(world, world->a, 1);
    produce(world, world->a);
    tell(world, world->a, 2);
    await(world, world->b, bug ? 1 : 2);
    consume(world, world->b);
}

static void a_later_write_that_the_wait_was_submitted_before(struct world *world, bool bug)
{
    await(world, world->b, bug ? 1 : 2);
    consume(world, world->b);
    tell(world, world->a, 1);
    produce(world, world->a);
    tell(world, world->a, 2);
}

static void a_later_write_after_the_host_saw_the_wait_end(struct world *world, bool bug)
{
    tell(world, world->a, 1);
    await(world, world->b, 1);
    OK(p_cuStreamSynchronize(world->b));
    produce(world, world->a);
    tell(world, world->a, 2);
    if (!bug)
        await(world, world->b, 2);
    consume(world, world->b);
}

static void many_values_in_a_row(struct world *world, bool bug)
{
    for (uint32_t i = 1; i <= 100; i++) {
        if (i == 50)
            produce(world, world->a);
        tell(world, world->a, i);
    }
    await(world, world->b, bug ? 49 : 50);
    consume(world, world->b);
}

static void what_follows_the_write_in_its_stream(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    await(world, world->b, 1);
    consume(world, world->b);
}

static void a_flag_of_another_buffer(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    OK(p_cuStreamWriteValue32(world->c, flag_of(world) + 64, 1, 0));
    OK(p_cuStreamWaitValue32(world->b, flag_of(world) + (bug ? 64 : 0), 1, CU_STREAM_WAIT_VALUE_GEQ));
    consume(world, world->b);
}

/* ---- comparisons ---- */

static void equality_waits_for_one_value(struct world *world, bool bug)
{
    tell(world, world->a, 3);
    produce(world, world->a);
    tell(world, world->a, 2);
    await_as(world, world->b, 2, bug ? CU_STREAM_WAIT_VALUE_GEQ : CU_STREAM_WAIT_VALUE_EQ);
    consume(world, world->b);
}

static void at_least_is_cyclic(struct world *world, bool bug)
{
    host_sets(world, UINT32_MAX - 16);
    tell(world, world->a, UINT32_MAX); /* one less than 0 */
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    await(world, world->b, 0);
    consume(world, world->b);
}

static void a_bit_that_is_set_late(struct world *world, bool bug)
{
    tell(world, world->a, 2);
    produce(world, world->a);
    tell(world, world->a, 6);
    await_as(world, world->b, bug ? 2 : 4, CU_STREAM_WAIT_VALUE_AND);
    consume(world, world->b);
}

static void any_of_several_bits(struct world *world, bool bug)
{
    tell(world, world->a, 1);
    produce(world, world->a);
    tell(world, world->a, 3);
    await_as(world, world->b, bug ? 3 : 2, CU_STREAM_WAIT_VALUE_AND);
    consume(world, world->b);
}

static void a_zero_outside_a_mask(struct world *world, bool bug)
{
    host_sets(world, UINT32_MAX);
    tell(world, world->a, ~UINT32_C(0x10));
    produce(world, world->a);
    tell(world, world->a, ~UINT32_C(0x11));
    await_as(world, world->b, bug ? 0 : 0xf0, CU_STREAM_WAIT_VALUE_NOR);
    consume(world, world->b);
}

static void at_least_in_64_bits(struct world *world, bool bug)
{
    tell_64(world, world->a, UINT64_C(1) << 40);
    produce(world, world->a);
    tell_64(world, world->a, UINT64_C(1) << 41);
    await_64(world, world->b, UINT64_C(1) << (bug ? 40 : 41), CU_STREAM_WAIT_VALUE_GEQ);
    consume(world, world->b);
}

/* ---- several writers ---- */

static void either_of_two_writers(struct world *world, bool bug)
{
    produce(world, world->a);
    if (!bug)
        hand_over(world->event, world->a, world->c);
    tell(world, world->a, 1);
    tell(world, world->c, 1);
    await(world, world->b, 1);
    consume(world, world->b);
}

static void either_of_two_writers_behind_the_wait(struct world *world, bool bug)
{
    await(world, world->b, 1);
    consume(world, world->b);
    produce(world, world->a);
    tell(world, world->a, 1);
    if (!bug)
        hand_over(world->event, world->a, world->c);
    tell(world, world->c, 1);
}

static void a_second_writer_when_the_wait_may_be_over(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    await(world, world->b, 1);
    consume(world, world->b);
    if (!bug)
        hand_over(world->event, world->b, world->c);
    tell(world, world->c, 1);
}

static void a_second_writer_after_the_host_saw_the_wait_end(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    await(world, world->b, 1);
    consume(world, world->b);
    if (bug)
        OK(p_cuStreamSynchronize(world->d));
    else
        OK(p_cuStreamSynchronize(world->b));
    tell(world, world->c, 1);
}

static void what_is_common_to_two_writers(struct world *world, bool bug)
{
    produce(world, bug ? world->a : world->d);
    OK(p_cuEventRecord(world->event, world->d));
    OK(p_cuStreamWaitEvent(world->a, world->event, 0));
    OK(p_cuStreamWaitEvent(world->c, world->event, 0));
    tell(world, world->a, 1);
    tell(world, world->c, 1);
    await(world, world->b, 1);
    consume(world, world->b);
}

static void a_second_writer_of_a_value_that_does_not_do(struct world *world, bool bug)
{
    await_as(world, world->b, 4, CU_STREAM_WAIT_VALUE_AND);
    consume(world, world->b);
    tell(world, world->c, bug ? 5 : 1);
    OK(p_cuStreamSynchronize(world->c));
    produce(world, world->a);
    tell(world, world->a, 5);
}

static void what_rests_on_two_writers(struct world *world, bool bug)
{
    await(world, world->b, 1);
    OK(p_cuStreamWriteValue32(world->b, flag_of(world) + 64, 1, 0));
    OK(p_cuStreamWaitValue32(world->d, flag_of(world) + 64, 1, CU_STREAM_WAIT_VALUE_GEQ));
    consume(world, world->d);
    produce(world, world->a);
    tell(world, world->a, 1);
    if (!bug)
        hand_over(world->event, world->a, world->c);
    tell(world, world->c, 2);
}

/* ---- partial words ---- */

static void a_wide_write_and_a_wait_for_its_upper_half(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    tell_64(world, world->a, UINT64_C(1) << 32);
    produce_if(world, world->a, bug);
    await_upper(world, world->b, 1);
    consume(world, world->b);
}

static void a_wait_for_the_upper_half_and_a_wide_write(struct world *world, bool bug)
{
    await_upper(world, world->b, 1);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    tell_64(world, world->a, UINT64_C(1) << 32);
    produce_if(world, world->a, bug);
}

static void a_wide_write_and_a_wait_for_its_lower_half(struct world *world, bool bug)
{
    produce_unless(world, world->a, bug);
    tell_64(world, world->a, UINT64_C(7) << 32 | 1);
    produce_if(world, world->a, bug);
    await(world, world->b, 1);
    consume(world, world->b);
}

static void a_write_of_the_other_half(struct world *world, bool bug)
{
    produce(world, bug ? world->a : world->c);
    tell_upper(world, world->a, 1);
    tell(world, world->c, 1);
    await(world, world->b, 1);
    consume(world, world->b);
}

static void two_halves_of_a_wide_wait(struct world *world, bool bug)
{
    tell(world, world->a, 1);
    produce_unless(world, world->c, bug);
    tell_upper(world, world->c, 1);
    produce_if(world, world->c, bug);
    await_64(world, world->b, UINT64_C(1) << 32 | 1, CU_STREAM_WAIT_VALUE_EQ);
    consume(world, world->b);
}

static void two_halves_behind_a_wide_wait(struct world *world, bool bug)
{
    await_64(world, world->b, UINT64_C(1) << 32 | 1, CU_STREAM_WAIT_VALUE_EQ);
    consume(world, world->b);
    produce_unless(world, world->a, bug);
    tell(world, world->a, 1);
    produce_if(world, world->a, bug);
    tell_upper(world, world->c, 1);
}

static void the_upper_half_alone_satisfies(struct world *world, bool bug)
{
    produce(world, bug ? world->a : world->c);
    tell(world, world->a, 1);
    tell_upper(world, world->c, 1);
    await_64(world, world->b, UINT64_C(1) << 32, CU_STREAM_WAIT_VALUE_GEQ);
    consume(world, world->b);
}

static void either_half_satisfies(struct world *world, bool bug)
{
    produce(world, world->a);
    tell(world, world->a, 1);
    if (!bug)
        hand_over(world->event, world->a, world->c);
    tell_upper(world, world->c, 1);
    await_64(world, world->b, UINT64_C(1) << 32 | 1, CU_STREAM_WAIT_VALUE_AND);
    consume(world, world->b);
}

/* ---- chains ---- */

static void a_chain_over_three_streams(struct world *world, bool bug)
{
    await(world, world->c, 2);
    consume(world, world->c);
    if (!bug)
        await(world, world->b, 1);
    else
        OK(p_cuStreamSynchronize(world->b));
    OK(p_cuEventRecord(world->event, world->b));
    produce(world, world->a);
    if (!bug)
        tell(world, world->a, 1);
    tell(world, world->b, 2);
}

static void two_streams_in_turns(struct world *world, bool bug)
{
    for (uint32_t turn = 0; turn < 6; turn++) {
        CUstream mine = turn % 2 == 0 ? world->a : world->b;
        if (bug && turn == 4)
            produce(world, mine);
        await(world, mine, turn);
        produce(world, mine);
        tell(world, mine, turn + 1);
    }
}

static void a_ring_of_one_buffer(struct world *world, bool bug)
{
    CUdeviceptr free_at = flag_of(world) + 64;
    for (uint32_t round = 1; round <= 4; round++) {
        if (!bug || round != 3)
            await_at(world->a, free_at, round - 1);
        produce(world, world->a);
        tell(world, world->a, round);
        await(world, world->b, round);
        consume(world, world->b);
        tell_at(world->b, free_at, round);
    }
}

static void an_event_behind_the_wait(struct world *world, bool bug)
{
    if (bug)
        OK(p_cuEventRecord(world->event, world->b));
    await(world, world->b, 1);
    if (!bug)
        OK(p_cuEventRecord(world->event, world->b));
    OK(p_cuStreamWaitEvent(world->c, world->event, 0));
    consume(world, world->c);
    produce(world, world->a);
    tell(world, world->a, 1);
}

static void the_host_waits_behind_the_wait(struct world *world, bool bug)
{
    await(world, world->b, 1);
    produce(world, world->a);
    tell(world, world->a, 1);
    if (bug)
        OK(p_cuStreamSynchronize(world->c));
    else
        OK(p_cuStreamSynchronize(world->b));
    consume(world, world->c);
}

static void the_host_reads_behind_the_wait(struct world *world, bool bug)
{
    await(world, world->b, 1);
    download_data(world, world->a);
    if (bug)
        tell(world, world->c, 1);
    else
        tell(world, world->a, 1);
    OK(p_cuStreamSynchronize(world->b));
    host_reads_data(world);
}

static void the_legacy_stream_waits(struct world *world, bool bug)
{
    await(world, NULL, 1);
    consume(world, bug ? world->d : world->blocking);
    produce(world, world->a);
    tell(world, world->a, 1);
}

static void a_batch_waits_and_writes(struct world *world, bool bug)
{
    CUstreamBatchMemOpParams ops[2];
    memset(ops, 0, sizeof ops);
    ops[bug ? 1 : 0].waitValue.operation = CU_STREAM_MEM_OP_WAIT_VALUE_32;
    ops[bug ? 1 : 0].waitValue.address = flag_of(world);
    ops[bug ? 1 : 0].waitValue.value = 1;
    ops[bug ? 1 : 0].waitValue.flags = CU_STREAM_WAIT_VALUE_EQ;
    ops[bug ? 0 : 1].writeValue.operation = CU_STREAM_MEM_OP_WRITE_VALUE_32;
    ops[bug ? 0 : 1].writeValue.address = flag_of(world) + 64;
    ops[bug ? 0 : 1].writeValue.value = 1;
    OK(p_cuStreamBatchMemOp(world->b, 2, ops, 0));
    await_at(world->c, flag_of(world) + 64, 1);
    consume(world, world->c);
    produce(world, world->a);
    tell(world, world->a, 1);
}

static void memory_is_freed_behind_a_wait(struct world *world, bool bug)
{
    CUdeviceptr mine = allocate(world->b);
    hand_over(world->event, world->b, world->a);
    await(world, world->b, 1);
    if (bug)
        tell(world, world->a, 1);
    kernel(world, world->a, mine, BYTES, WRITES);
    if (!bug)
        tell(world, world->a, 1);
    release(mine, world->b);
    OK(p_cuCtxSynchronize());
    trim();
}

static void the_flag_in_memory_with_two_addresses(struct world *world, bool bug)
{
    struct twice memory = map_twice();
    OK(p_cuMemsetD8(memory.one, 0, BYTES));
    OK(p_cuCtxSynchronize());
    produce_unless(world, world->a, bug);
    tell_at(world->a, memory.one, 1);
    produce_if(world, world->a, bug);
    await_at(world->b, memory.two, 1);
    consume(world, world->b);
    OK(p_cuCtxSynchronize());
    unmap_twice(&memory);
}

static const struct pair pairs[] = {
    PAIR(a_flag_that_is_still_set_from_the_round_before, WRITE_READ),
    PAIR(a_flag_that_the_host_clears_between_rounds, READ_WRITE),
    PAIR(a_flag_that_the_consumer_clears, WRITE_READ),
    PAIR(a_flag_that_the_producer_clears_when_the_wait_may_have_seen_it, WRITE_READ),
    PAIR(a_value_that_was_there_from_the_start, WRITE_READ),
    PAIR(a_slot_that_is_free_from_the_start, READ_WRITE),
    PAIR(a_write_that_cannot_satisfy, WRITE_READ),
    PAIR(a_later_write_of_the_same_stream, WRITE_READ),
    PAIR(a_later_write_that_the_wait_was_submitted_before, READ_WRITE),
    PAIR(a_later_write_after_the_host_saw_the_wait_end, WRITE_READ),
    PAIR(many_values_in_a_row, WRITE_READ),
    PAIR(what_follows_the_write_in_its_stream, WRITE_READ),
    PAIR(a_flag_of_another_buffer, WRITE_READ),
    PAIR(equality_waits_for_one_value, WRITE_READ),
    PAIR(at_least_is_cyclic, WRITE_READ),
    PAIR(a_bit_that_is_set_late, WRITE_READ),
    PAIR(any_of_several_bits, WRITE_READ),
    PAIR(a_zero_outside_a_mask, WRITE_READ),
    PAIR(at_least_in_64_bits, WRITE_READ),
    PAIR(either_of_two_writers, WRITE_READ),
    PAIR(either_of_two_writers_behind_the_wait, READ_WRITE),
    PAIR(a_second_writer_when_the_wait_may_be_over, WRITE_READ),
    PAIR(a_second_writer_after_the_host_saw_the_wait_end, WRITE_READ),
    PAIR(what_is_common_to_two_writers, WRITE_READ),
    PAIR(a_second_writer_of_a_value_that_does_not_do, READ_WRITE),
    PAIR(what_rests_on_two_writers, READ_WRITE),
    PAIR(a_wide_write_and_a_wait_for_its_upper_half, WRITE_READ),
    PAIR(a_wait_for_the_upper_half_and_a_wide_write, READ_WRITE),
    PAIR(a_wide_write_and_a_wait_for_its_lower_half, WRITE_READ),
    PAIR(a_write_of_the_other_half, WRITE_READ),
    PAIR(two_halves_of_a_wide_wait, WRITE_READ),
    PAIR(two_halves_behind_a_wide_wait, READ_WRITE),
    PAIR(the_upper_half_alone_satisfies, WRITE_READ),
    PAIR(either_half_satisfies, WRITE_READ),
    PAIR(a_chain_over_three_streams, READ_WRITE),
    PAIR(two_streams_in_turns, WRITE_WRITE),
    PAIR(a_ring_of_one_buffer, READ_WRITE),
    PAIR(an_event_behind_the_wait, READ_WRITE),
    PAIR(the_host_waits_behind_the_wait, WRITE_READ),
    PAIR(the_host_reads_behind_the_wait, WRITE_READ),
    PAIR(the_legacy_stream_waits, READ_WRITE),
    PAIR(a_batch_waits_and_writes, READ_WRITE),
    PAIR(memory_is_freed_behind_a_wait, FREE_IN_USE),
    PAIR(the_flag_in_memory_with_two_addresses, WRITE_READ),
};

int main(void)
{
    return run_pairs(pairs, sizeof pairs / sizeof pairs[0]);
}
