/* Handing blocks from stream to stream, shown by what the streams see: a stalled stream writes or reads, another one
 * uses the same block, and only then the stall is released. Where an order were missing, the second use would come
 * first. */
#include "support/fixture.h"

#include "core/streams/stream_map.h"
#include "core/streams/use_records.h"
#include "runtime/runtime.h"

enum { BYTES = 4096, MANY_READERS = 44 };

/* ---- two streams ---- */

typedef void (*pair_test)(test_fixture *fixture, CUstream first, CUstream second);

/* Runs `test` on every pair of stream kinds. */
static void on_every_pair(test_fixture *fixture, pair_test test)
{
    for (test_stream_kind a = 0; a < TEST_STREAM_KINDS; a++)
        for (test_stream_kind b = 0; b < TEST_STREAM_KINDS; b++) {
            CUstream first = test_stream(fixture, a), second = test_stream(fixture, b);
            test(fixture, first, second);
            test_stream_close(fixture, second);
            test_stream_close(fixture, first);
            fixture->seen_used = 0;
        }
}

static void read_after_write(test_fixture *fixture, CUstream first, CUstream second)
{
    strata_block block = test_allocate(fixture, BYTES, first);
    test_stall *stall = test_stall_begin(first);
    test_write(fixture, &block, 0xa1, first);
    const unsigned char *seen = test_read(fixture, &block, second);
    test_stall_release(stall);
    test_synchronize(second);
    check_bytes(seen, 0xa1, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, first);
}

static void a_reader_waits_for_the_last_writer_whatever_their_streams(test_fixture *fixture)
{
    on_every_pair(fixture, read_after_write);
}

static void write_after_read(test_fixture *fixture, CUstream first, CUstream second)
{
    strata_block block = test_allocate(fixture, BYTES, first);
    test_write(fixture, &block, 0x11, first);
    test_synchronize(first);
    test_stall *stall = test_stall_begin(first);
    const unsigned char *seen = test_read(fixture, &block, first);
    test_write(fixture, &block, 0x22, second);
    test_stall_release(stall);
    test_synchronize(second);
    test_synchronize(first);
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, second);
}

static void a_writer_waits_for_a_reader_whatever_their_streams(test_fixture *fixture)
{
    on_every_pair(fixture, write_after_read);
}

static void write_after_write(test_fixture *fixture, CUstream first, CUstream second)
{
    strata_block block = test_allocate(fixture, BYTES, first);
    test_stall *stall = test_stall_begin(first);
    test_write(fixture, &block, 0x11, first);
    test_write(fixture, &block, 0x22, second);
    test_stall_release(stall);
    test_synchronize(first);
    const unsigned char *seen = test_read(fixture, &block, second);
    test_synchronize(second);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, second);
}

static void a_writer_waits_for_the_last_writer_whatever_their_streams(test_fixture *fixture)
{
    on_every_pair(fixture, write_after_write);
}

static void use_fresh_block(test_fixture *fixture, CUstream first, CUstream second)
{
    test_stall *stall = test_stall_begin(first);
    strata_block block = test_allocate(fixture, BYTES, first);
    test_write(fixture, &block, 0x22, second);
    const unsigned char *seen = test_read(fixture, &block, second);
    test_stall_release(stall);
    test_synchronize(second);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, second);
}

/* On stream-ordered resources the simulated driver calls it an illegal access where memory is used before its
 * allocation. */
static void a_use_on_another_stream_waits_for_the_allocation(test_fixture *fixture)
{
    on_every_pair(fixture, use_fresh_block);
}

static void a_read_write_waits_for_the_write_and_counts_as_one(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from = test_allocate(fixture, 2 * BYTES, a);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &from, 0x11, a);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &from, b, STRATA_ACCESS_READ_WRITE));
    test_fill(from.address, 0x22, BYTES / 2, b);
    check_cu(test_cu()->MemcpyDtoDAsync(from.address + BYTES, from.address, BYTES, b));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &from, b, STRATA_ACCESS_READ_WRITE));
    const unsigned char *seen = test_read(fixture, &from, c);
    test_stall_release(stall);
    test_synchronize(c);
    for (size_t half = 0; half < 2; half++) {
        check_bytes(seen + half * BYTES, 0x22, BYTES / 2);
        check_bytes(seen + half * BYTES + BYTES / 2, 0x11, BYTES / 2);
    }
    test_stall_end(stall);
    test_free_on(fixture, &from, c);
}

/* ---- reads ---- */

static void reads_do_not_wait_for_reads(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind <= TEST_STREAM_UNKNOWN; kind++) {
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL);
        CUstream slow = test_stream(fixture, kind), fast = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        test_stall *stall = test_stall_begin(slow);
        const unsigned char *slowly = test_read(fixture, &block, slow);
        const unsigned char *seen = test_read(fixture, &block, fast);
        test_synchronize(fast); /* the stall would run out if this waited for `slow` */
        check_bytes(seen, 0x11, BYTES);
        assert_int_equal(test_cu()->StreamQuery(slow), CUDA_ERROR_NOT_READY);
        test_stall_end(stall);
        check_bytes(slowly, 0x11, BYTES);
        test_free_on(fixture, &block, alloc_stream);
        test_stream_close(fixture, alloc_stream);
        test_stream_close(fixture, slow);
        test_stream_close(fixture, fast);
    }
}

static void the_next_writer_waits_for_each_of_very_many_readers(test_fixture *fixture)
{
    enum { SMALL = 256 };
    CUstream readers[MANY_READERS];
    const unsigned char *seen[MANY_READERS];
    CUstream writer = test_stream(fixture, TEST_STREAM_REGISTERED);
    for (size_t i = 0; i < MANY_READERS; i++)
        readers[i] = test_stream(fixture, i % 3);
    strata_block block = test_allocate(fixture, SMALL, writer);
    for (size_t slow = 0; slow < MANY_READERS; slow++) {
        test_write(fixture, &block, 0x11, writer);
        test_stall *stall = test_stall_begin(readers[slow]);
        for (size_t i = 0; i < MANY_READERS; i++)
            seen[i] = test_read(fixture, &block, readers[i]);
        test_write(fixture, &block, 0x22, writer);
        test_stall_end(stall);
        for (size_t i = 0; i < MANY_READERS; i++)
            check_bytes(seen[i], 0x11, SMALL);
        fixture->seen_used = 0;
    }
    test_free_on(fixture, &block, writer);
}

/* What the read sees beside the write is the program's affair; that the next writer comes after both is ours. */
static void a_read_that_begins_between_a_writers_prepare_and_its_finish_is_not_forgotten(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL),
                 writer = test_stream(fixture, TEST_STREAM_REGISTERED);
        CUstream reader = test_stream(fixture, kind), next = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, writer, STRATA_ACCESS_WRITE));
        test_stall *stall = test_stall_begin(reader);
        const unsigned char *seen = test_read(fixture, &block, reader);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, writer, STRATA_ACCESS_WRITE));
        test_write(fixture, &block, 0x33, next);
        test_stall_end(stall);
        check_bytes(seen, 0x11, BYTES);
        test_free_on(fixture, &block, next);
        test_stream_close(fixture, reader);
        test_stream_close(fixture, alloc_stream);
        test_stream_close(fixture, writer);
        test_stream_close(fixture, next);
    }
}

/* Whichever of them is the slow one. */
static void reads_of_several_streams_between_a_writers_prepare_and_its_finish_are_not_forgotten(test_fixture *fixture)
{
    enum { READERS = 4 };
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), writer = test_stream(fixture, TEST_STREAM_POOL);
    CUstream next = test_stream(fixture, TEST_STREAM_POOL), readers[READERS];
    for (size_t i = 0; i < READERS; i++)
        readers[i] = test_stream(fixture, i % 2 ? TEST_STREAM_UNKNOWN : TEST_STREAM_POOL);
    for (size_t slow = 0; slow < READERS; slow++) {
        const unsigned char *seen[READERS];
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, writer, STRATA_ACCESS_WRITE));
        test_stall *stall = test_stall_begin(readers[slow]);
        for (size_t i = 0; i < READERS; i++)
            seen[i] = test_read(fixture, &block, readers[i]);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, writer, STRATA_ACCESS_WRITE));
        test_write(fixture, &block, 0x33, next);
        test_stall_end(stall);
        check_bytes(seen[slow], 0x11, BYTES);
        test_free_on(fixture, &block, next);
        fixture->seen_used = 0;
    }
}

static void two_writers_that_were_prepared_at_the_same_time_are_both_waited_for(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    CUstream writers[2] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_UNKNOWN)};
    for (size_t slow = 0; slow < 2; slow++) {
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        test_stall *stall = test_stall_begin(writers[slow]);
        for (size_t i = 0; i < 2; i++)
            check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, writers[i], STRATA_ACCESS_WRITE));
        for (size_t i = 0; i < 2; i++)
            test_fill(block.address + i * BYTES / 2, 0x22, BYTES / 2, writers[i]);
        for (size_t i = 0; i < 2; i++)
            check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, writers[i], STRATA_ACCESS_WRITE));
        const unsigned char *seen = test_read(fixture, &block, reader);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(seen, 0x22, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, alloc_stream);
    }
}

/* It reads what it wrote itself, beside another reader: that it wrote is not forgotten for it. */
static void a_writer_that_reads_afterwards_is_still_waited_for_as_one(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    CUstream writers[2] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_POOL)};
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    test_stall *stall = test_stall_begin(writers[0]);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, writers[i], STRATA_ACCESS_WRITE));
    for (size_t i = 0; i < 2; i++)
        test_fill(block.address + i * BYTES / 2, 0x22, BYTES / 2, writers[i]);
    for (size_t i = 0; i < 2; i++)
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, writers[i], STRATA_ACCESS_WRITE));
    test_read(fixture, &block, other);
    test_read(fixture, &block, writers[0]);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, alloc_stream);
}

/* ---- three streams ---- */

static void hand_on_twice(test_fixture *fixture, test_stream_kind kind_a, test_stream_kind kind_b,
                          test_stream_kind kind_c)
{
    CUstream a = test_stream(fixture, kind_a), b = test_stream(fixture, kind_b), c = test_stream(fixture, kind_c);
    strata_block block = test_allocate(fixture, BYTES, a);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &block, 0xa1, a);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, b, STRATA_ACCESS_READ_WRITE));
    test_fill(block.address, 0xb2, BYTES / 2, b);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, b, STRATA_ACCESS_READ_WRITE));
    const unsigned char *seen = test_read(fixture, &block, c);
    test_stall_release(stall);
    test_synchronize(c);
    check_bytes(seen, 0xb2, BYTES / 2);
    check_bytes(seen + BYTES / 2, 0xa1, BYTES / 2);
    test_stall_end(stall);
    test_free_on(fixture, &block, c);
    test_stream_close(fixture, c);
    test_stream_close(fixture, b);
    test_stream_close(fixture, a);
    fixture->seen_used = 0;
}

static void a_third_stream_waits_for_work_inherited_through_two_hand_overs(test_fixture *fixture)
{
    for (test_stream_kind a = 0; a < TEST_STREAM_KINDS; a++)
        for (test_stream_kind b = 0; b < TEST_STREAM_KINDS; b++)
            for (test_stream_kind c = 0; c < TEST_STREAM_KINDS; c++)
                hand_on_twice(fixture, a, b, c);
}

/* C never meets A's block before: what it knows of A comes from B's event alone, which B recorded after its wait. */
static void a_wait_that_is_saved_because_another_stream_made_it_still_orders(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from_a = test_allocate(fixture, BYTES, a), from_b = test_allocate(fixture, BYTES, b);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &from_a, 0xa1, a);
    test_read(fixture, &from_a, b);
    test_write(fixture, &from_b, 0xb2, b);
    test_read(fixture, &from_b, c);
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &from_a, c, STRATA_ACCESS_READ));
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    const unsigned char *seen = test_copy_back(fixture, from_a.address, BYTES, c);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &from_a, c, STRATA_ACCESS_READ));
    test_stall_release(stall);
    test_synchronize(c);
    check_bytes(seen, 0xa1, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &from_a, c);
    test_free_on(fixture, &from_b, c);
}

/* B's event is older than its wait for A, so a stream that waits for that event alone does not come after A. */
static void an_event_carries_only_what_its_stream_had_waited_for_when_it_was_recorded(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL), d = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from_a = test_allocate(fixture, BYTES, a), from_b = test_allocate(fixture, BYTES, b);
    test_write(fixture, &from_b, 0xb2, b);
    test_read(fixture, &from_b, c); /* records B's event */
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &from_a, 0xa1, a);
    test_read(fixture, &from_a, b); /* now B waits for A */
    test_read(fixture, &from_b, d); /* waits for B's old event */
    const unsigned char *seen_by_c = test_read(fixture, &from_a, c);
    const unsigned char *seen_by_d = test_read(fixture, &from_a, d);
    test_stall_release(stall);
    test_synchronize(c);
    test_synchronize(d);
    check_bytes(seen_by_c, 0xa1, BYTES);
    check_bytes(seen_by_d, 0xa1, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &from_a, a);
    test_free_on(fixture, &from_b, b);
}

/* More epochs than a timeline keeps events for: the old ones are covered by later events. */
static void work_whose_event_was_recycled_is_still_waited_for(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    CUstream late = test_stream(fixture, TEST_STREAM_POOL);
    strata_block old = test_allocate(fixture, BYTES, a), fresh = test_allocate(fixture, BYTES, a);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &old, 0xa1, a);
    for (int i = 0; i < 40; i++) {
        test_write(fixture, &fresh, (unsigned char)i, a);
        test_read(fixture, &fresh, other);
    }
    const unsigned char *seen = test_read(fixture, &old, late);
    test_stall_release(stall);
    test_synchronize(late);
    check_bytes(seen, 0xa1, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &old, a);
    test_free_on(fixture, &fresh, a);
}

static void a_block_that_goes_round_many_streams_is_written_in_turn(test_fixture *fixture)
{
    enum { STREAMS = 6, ROUNDS = 30 };
    CUstream streams[STREAMS];
    for (size_t i = 0; i < STREAMS; i++)
        streams[i] = test_stream(fixture, (test_stream_kind)i);
    strata_block block = test_allocate(fixture, BYTES, streams[0]);
    const unsigned char *seen[ROUNDS];
    for (size_t i = 0; i < ROUNDS; i++) {
        test_write(fixture, &block, (unsigned char)(i + 1), streams[i % STREAMS]);
        seen[i] = test_read(fixture, &block, streams[(i * 5 + 2) % STREAMS]);
    }
    check_cu(test_cu()->CtxSynchronize());
    for (size_t i = 0; i < ROUNDS; i++)
        check_bytes(seen[i], (unsigned char)(i + 1), BYTES);
    test_free_on(fixture, &block, streams[0]);
}

static void all_runtimes_of_a_process_share_what_streams_have_waited_for(test_fixture *fixture)
{
    strata_runtime *other;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "direct"}, &other));
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    strata_block mine = test_allocate(fixture, BYTES, a), theirs;
    check_ok(strata_runtime_allocate(other, BYTES, a, &theirs));
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &mine, 0x11, a);
    check_ok(strata_runtime_prepare_block_use(other, &theirs, a, STRATA_ACCESS_WRITE));
    test_fill(theirs.address, 0x22, BYTES, a);
    check_ok(strata_runtime_finish_block_use(other, &theirs, a, STRATA_ACCESS_WRITE));
    test_read(fixture, &mine, b);
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_prepare_block_use(other, &theirs, b, STRATA_ACCESS_READ));
    assert_int_equal(test_calls_total(&calls), 0);
    const unsigned char *seen = test_copy_back(fixture, theirs.address, BYTES, b);
    check_ok(strata_runtime_finish_block_use(other, &theirs, b, STRATA_ACCESS_READ));
    test_stall_release(stall);
    test_synchronize(b);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &mine, a);
    check_ok(strata_runtime_deallocate(other, &theirs));
    check_ok(strata_runtime_destroy(other));
}

/* Early events are tight: work that was submitted after a launch is not waited for with it. */
static void with_early_events_a_reader_does_not_wait_for_later_work_of_the_writer(test_fixture *fixture)
{
    test_use_events(fixture, STRATA_EVENTS_EARLY);
    for (test_stream_kind kind = 0; kind <= TEST_STREAM_UNKNOWN; kind++) {
        CUstream writer = test_stream(fixture, kind), reader = test_stream(fixture, kind);
        strata_block block = test_allocate(fixture, BYTES, writer);
        test_write(fixture, &block, 0x11, writer);
        test_stall *stall = test_stall_begin(writer);
        const unsigned char *seen = test_read(fixture, &block, reader);
        test_synchronize(reader);
        check_bytes(seen, 0x11, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &block, reader);
        test_stream_close(fixture, writer);
        test_stream_close(fixture, reader);
    }
}

/* The stream's newest event would do, too, but it also waits for what came in between. */
static void with_early_events_a_reader_waits_for_the_oldest_event_that_covers_the_work(test_fixture *fixture)
{
    test_use_events(fixture, STRATA_EVENTS_EARLY);
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, writer), later = test_allocate(fixture, BYTES, writer);
    test_write(fixture, &block, 0x11, writer);
    test_stall *stall = test_stall_begin(writer);
    test_write(fixture, &later, 0x22, writer);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_synchronize(reader); /* the stall would run out */
    check_bytes(seen, 0x11, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, writer);
    test_free_on(fixture, &later, writer);
}

/* One wait for an unknown stream does not cover the work that came after it. */
static void later_work_on_a_stream_is_waited_for_again(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream writer = test_stream(fixture, kind), reader = test_stream(fixture, TEST_STREAM_POOL);
        CUstream other = test_stream(fixture, TEST_STREAM_POOL);
        strata_block first = test_allocate(fixture, BYTES, writer), second = test_allocate(fixture, BYTES, writer);
        test_write(fixture, &first, 0x11, writer);
        test_read(fixture, &first, reader);
        test_stall *stall = test_stall_begin(writer);
        test_write(fixture, &second, 0x22, writer);
        const unsigned char *by_reader = test_read(fixture, &second, reader);
        const unsigned char *by_other = test_read(fixture, &first, other);
        test_synchronize(other); /* its event was recorded before the stall, which would run out */
        check_bytes(by_other, 0x11, BYTES);
        test_stall_release(stall);
        test_synchronize(reader);
        check_bytes(by_reader, 0x22, BYTES);
        test_stall_end(stall);
        test_free_on(fixture, &first, writer);
        test_free_on(fixture, &second, writer);
        test_stream_close(fixture, writer);
        test_stream_close(fixture, reader);
        test_stream_close(fixture, other);
        fixture->seen_used = 0;
    }
}

/* Each query that finds nothing finished still closes what it looked at: what is submitted then is something new. */
static void work_after_a_question_is_not_taken_for_work_before_it(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), unknown = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block asked = test_allocate(fixture, BYTES, alloc_stream),
                 block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &asked, 0x11, unknown);
    test_synchronize(unknown);
    test_free_on(fixture, &asked, alloc_stream); /* asks whether the use is over: it is */
    test_stall *stall = test_stall_begin(unknown);
    test_write(fixture, &block, 0x22, unknown);
    const unsigned char *seen = test_read(fixture, &block, reader);
    test_stall_release(stall);
    test_synchronize(reader);
    check_bytes(seen, 0x22, BYTES);
    test_stall_end(stall);
    test_free_on(fixture, &block, alloc_stream);
}

static void early_events_order_as_late_ones_do(test_fixture *fixture)
{
    test_use_events(fixture, STRATA_EVENTS_EARLY);
    on_every_pair(fixture, read_after_write);
    on_every_pair(fixture, write_after_read);
    on_every_pair(fixture, write_after_write);
    hand_on_twice(fixture, TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN);
}

/* As a call that began before a reset, whose stream's timeline has become another one's since. */
static void an_early_event_is_recorded_on_the_timeline_s_own_stream_alone(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_device *device = fixture->runtime->device;
    strata_stream_ref left;
    test_calls calls;
    check_ok(strata_stream_register(device, stream, true));
    strata_timeline *timeline = strata_known_timeline(device, stream);
    test_calls_begin(&calls);
    const strata_status none = strata_timeline_close_early(timeline, other);
    const uint64_t before = test_calls_of(&calls, "cuEventRecord");
    const strata_status closed = strata_timeline_close_early(timeline, stream);
    const uint64_t after = test_calls_of(&calls, "cuEventRecord");
    check_ok(strata_stream_unregister(device, stream, &left));
    strata_stream_await_frees(&left);
    check_ok(none);
    check_ok(closed);
    assert_int_equal(before, 0);
    assert_int_equal(after, 1);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_reader_waits_for_the_last_writer_whatever_their_streams),
        TEST_CASE(a_writer_waits_for_a_reader_whatever_their_streams),
        TEST_CASE(a_writer_waits_for_the_last_writer_whatever_their_streams),
        TEST_CASE(a_use_on_another_stream_waits_for_the_allocation),
        TEST_CASE(a_read_write_waits_for_the_write_and_counts_as_one),
        TEST_CASE(reads_do_not_wait_for_reads),
        TEST_CASE(the_next_writer_waits_for_each_of_very_many_readers),
        TEST_CASE(a_read_that_begins_between_a_writers_prepare_and_its_finish_is_not_forgotten),
        TEST_CASE(reads_of_several_streams_between_a_writers_prepare_and_its_finish_are_not_forgotten),
        TEST_CASE(two_writers_that_were_prepared_at_the_same_time_are_both_waited_for),
        TEST_CASE(a_writer_that_reads_afterwards_is_still_waited_for_as_one),
        TEST_CASE(a_third_stream_waits_for_work_inherited_through_two_hand_overs),
        TEST_CASE(a_wait_that_is_saved_because_another_stream_made_it_still_orders),
        TEST_CASE(an_event_carries_only_what_its_stream_had_waited_for_when_it_was_recorded),
        TEST_CASE(work_whose_event_was_recycled_is_still_waited_for),
        TEST_CASE(a_block_that_goes_round_many_streams_is_written_in_turn),
        TEST_CASE(all_runtimes_of_a_process_share_what_streams_have_waited_for),
        TEST_CASE(with_early_events_a_reader_does_not_wait_for_later_work_of_the_writer),
        TEST_CASE(with_early_events_a_reader_waits_for_the_oldest_event_that_covers_the_work),
        TEST_CASE(an_early_event_is_recorded_on_the_timeline_s_own_stream_alone),
        TEST_CASE(later_work_on_a_stream_is_waited_for_again),
        TEST_CASE(work_after_a_question_is_not_taken_for_work_before_it),
        TEST_CASE(early_events_order_as_late_ones_do),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
