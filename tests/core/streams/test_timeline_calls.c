/* What ordering costs: how often the driver is called, counted at the door. Work that is already ordered costs nothing,
 * and what has to be said to the driver is said once. */
#include "support/fixture.h"

#include <string.h>

enum { BYTES = 4096, BLOCKS = 64 };

static void prepare_and_finish(test_fixture *fixture, const strata_block *block, CUstream stream, strata_access access)
{
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, access));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, block, stream, access));
}

/* Checks what was called since `calls` began: so many events recorded and waits made, and nothing else but the making
 * of events, which the library does until it has enough of them, and a question about the context before each. */
static void check_records_and_waits(const test_calls *calls, uint64_t records, uint64_t waits)
{
    assert_int_equal(test_calls_of(calls, "cuEventRecord"), records);
    assert_int_equal(test_calls_of(calls, "cuStreamWaitEvent"), waits);
    uint64_t made = test_calls_of(calls, "cuEventCreate");
    uint64_t context = test_calls_of(calls, "cuCtxGetCurrent") + test_calls_of(calls, "cuCtxSetCurrent");
    uint64_t asked = test_calls_of(calls, "cuCtxGetId"); /* whether the context is still there */
    assert_in_range(asked, 0, records + waits);
    assert_int_equal(test_calls_total(calls) - made - (made ? context : 0) - asked, records + waits);
}

/* ---- one stream ---- */

static void uses_on_one_known_stream_make_no_driver_call(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_ZERO,
                                             TEST_STREAM_LEGACY};
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUstream stream = test_stream(fixture, kinds[i]);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_calls calls;
        test_calls_begin(&calls);
        for (strata_access access = STRATA_ACCESS_READ; access <= STRATA_ACCESS_READ_WRITE; access++)
            for (int again = 0; again < 3; again++)
                prepare_and_finish(fixture, &block, stream, access);
        check_ok(strata_runtime_record_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
        assert_int_equal(test_calls_total(&calls), 0);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, stream);
    }
}

static void both_names_of_the_legacy_stream_are_one_stream(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, BYTES, NULL);
    test_calls calls;
    test_calls_begin(&calls);
    prepare_and_finish(fixture, &block, CU_STREAM_LEGACY, STRATA_ACCESS_WRITE);
    prepare_and_finish(fixture, &block, NULL, STRATA_ACCESS_READ_WRITE);
    assert_int_equal(test_calls_total(&calls), 0);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void an_unknown_stream_is_identified_at_each_use_and_marked_once(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
    assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1);
    assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 1);
    assert_int_equal(test_calls_total(&calls), 2);
    test_calls_begin(&calls);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, stream, STRATA_ACCESS_WRITE));
    assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1);
    assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 1);
    assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 1);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    test_free_on(fixture, &block, stream);
}

/* ---- two streams ---- */

static void a_hand_over_between_known_streams_is_one_record_and_one_wait(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind <= TEST_STREAM_REGISTERED; kind++) {
        CUstream a = test_stream(fixture, kind), b = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, a);
        for (int again = 0; again < 20; again++) {
            test_calls calls;
            test_calls_begin(&calls);
            prepare_and_finish(fixture, &block, a, STRATA_ACCESS_WRITE);
            assert_true(again > 0 || test_calls_total(&calls) == 0);
            test_calls_begin(&calls);
            prepare_and_finish(fixture, &block, b, STRATA_ACCESS_READ);
            check_records_and_waits(&calls, 1, 1);
        }
        test_free_on(fixture, &block, a);
        test_stream_close(fixture, a);
        test_stream_close(fixture, b);
    }
}

static void what_a_stream_has_waited_for_is_not_waited_for_again(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    strata_block first = test_allocate(fixture, BYTES, a), second = test_allocate(fixture, BYTES, a);
    prepare_and_finish(fixture, &first, a, STRATA_ACCESS_WRITE);
    prepare_and_finish(fixture, &second, a, STRATA_ACCESS_WRITE);
    prepare_and_finish(fixture, &first, b, STRATA_ACCESS_READ);
    test_calls calls;
    test_calls_begin(&calls);
    prepare_and_finish(fixture, &first, b, STRATA_ACCESS_READ);
    prepare_and_finish(fixture, &first, b, STRATA_ACCESS_READ_WRITE);
    prepare_and_finish(fixture, &second, b, STRATA_ACCESS_WRITE); /* A's event came after its write, too */
    assert_int_equal(test_calls_total(&calls), 0);
    test_free_on(fixture, &first, b);
    test_free_on(fixture, &second, b);
}

static void an_event_that_covers_the_work_serves_every_stream_that_waits(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, a);
    prepare_and_finish(fixture, &block, a, STRATA_ACCESS_WRITE);
    for (int i = 0; i < 5; i++) {
        CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
        test_calls calls;
        test_calls_begin(&calls);
        prepare_and_finish(fixture, &block, reader, STRATA_ACCESS_READ);
        check_records_and_waits(&calls, i == 0, 1);
    }
    test_free_on(fixture, &block, a);
}

static void work_after_the_event_needs_a_new_one(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, a), other = test_allocate(fixture, BYTES, a);
    prepare_and_finish(fixture, &block, b, STRATA_ACCESS_READ);
    prepare_and_finish(fixture, &other, a, STRATA_ACCESS_WRITE);
    test_calls calls;
    test_calls_begin(&calls);
    prepare_and_finish(fixture, &other, b, STRATA_ACCESS_READ);
    check_records_and_waits(&calls, 1, 1);
    test_free_on(fixture, &block, a);
    test_free_on(fixture, &other, a);
}

static void repeated_reads_of_one_stream_count_once(test_fixture *fixture)
{
    enum { READERS = 3 };
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), readers[READERS];
    strata_block block = test_allocate(fixture, BYTES, writer);
    prepare_and_finish(fixture, &block, writer, STRATA_ACCESS_WRITE);
    for (size_t i = 0; i < READERS; i++)
        readers[i] = test_stream(fixture, i == 2 ? TEST_STREAM_UNKNOWN : TEST_STREAM_POOL);
    for (int round = 0; round < 500; round++)
        for (size_t i = 0; i < READERS; i++)
            prepare_and_finish(fixture, &block, readers[i], STRATA_ACCESS_READ);
    test_calls calls;
    test_calls_begin(&calls);
    prepare_and_finish(fixture, &block, writer, STRATA_ACCESS_WRITE);
    check_records_and_waits(&calls, READERS - 1, READERS); /* the unknown one has its event already */
    test_free_on(fixture, &block, writer);
}

static void a_reader_waits_for_no_other_reader(test_fixture *fixture)
{
    CUstream writer = test_stream(fixture, TEST_STREAM_POOL), last = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, writer);
    for (int i = 0; i < 10; i++)
        prepare_and_finish(fixture, &block, test_stream(fixture, TEST_STREAM_POOL), STRATA_ACCESS_READ);
    test_calls calls;
    test_calls_begin(&calls);
    prepare_and_finish(fixture, &block, last, STRATA_ACCESS_READ);
    check_records_and_waits(&calls, 0, 1);
    test_free_on(fixture, &block, writer);
}

/* The writer came after them. */
static void who_comes_after_a_writer_waits_for_no_reader_before_that(test_fixture *fixture)
{
    enum { READERS = 5 };
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), writer = test_stream(fixture, TEST_STREAM_POOL);
    CUstream last = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    for (int i = 0; i < READERS; i++)
        prepare_and_finish(fixture, &block, test_stream(fixture, TEST_STREAM_POOL), STRATA_ACCESS_READ);
    prepare_and_finish(fixture, &block, writer, STRATA_ACCESS_WRITE);
    test_calls calls;
    test_calls_begin(&calls);
    prepare_and_finish(fixture, &block, last, STRATA_ACCESS_WRITE);
    check_records_and_waits(&calls, 1, 1);
    test_free_on(fixture, &block, last);
}

/* ---- launches ---- */

static void allocate_all(test_fixture *fixture, strata_block blocks[BLOCKS], CUstream stream)
{
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, BYTES, stream);
}

static void free_all(test_fixture *fixture, const strata_block blocks[BLOCKS], CUstream stream)
{
    for (size_t i = 0; i < BLOCKS; i++)
        test_free_on(fixture, &blocks[i], stream);
}

static void begin_over(test_fixture *fixture, strata_launch *launch, const strata_block blocks[BLOCKS], CUstream stream,
                       strata_access access)
{
    check_ok(strata_launch_begin(launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    for (size_t i = 0; i < BLOCKS; i++)
        check_ok(strata_launch_use(launch, &blocks[i], access));
}

static void launch_over(test_fixture *fixture, const strata_block blocks[BLOCKS], CUstream stream, strata_access access)
{
    strata_launch launch;
    begin_over(fixture, &launch, blocks, stream, access);
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
}

static void a_launch_touching_64_blocks_of_one_producer_waits_once(test_fixture *fixture)
{
    CUstream producer = test_stream(fixture, TEST_STREAM_POOL), consumer = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS];
    allocate_all(fixture, blocks, producer);
    test_calls calls;
    test_calls_begin(&calls);
    launch_over(fixture, blocks, producer, STRATA_ACCESS_WRITE);
    assert_int_equal(test_calls_total(&calls), 0);
    launch_over(fixture, blocks, consumer, STRATA_ACCESS_READ_WRITE);
    check_records_and_waits(&calls, 1, 1);
    free_all(fixture, blocks, consumer);
}

static void a_launch_waits_once_for_each_of_its_producers(test_fixture *fixture)
{
    enum { PRODUCERS = 4 };
    CUstream consumer = test_stream(fixture, TEST_STREAM_POOL), producers[PRODUCERS];
    strata_block blocks[BLOCKS];
    for (size_t i = 0; i < PRODUCERS; i++)
        producers[i] = test_stream(fixture, TEST_STREAM_REGISTERED);
    for (size_t i = 0; i < BLOCKS; i++)
        blocks[i] = test_allocate(fixture, BYTES, producers[i % PRODUCERS]);
    test_calls calls;
    test_calls_begin(&calls);
    launch_over(fixture, blocks, consumer, STRATA_ACCESS_READ);
    check_records_and_waits(&calls, PRODUCERS, PRODUCERS);
    free_all(fixture, blocks, consumer);
}

static void with_early_events_a_launch_of_64_blocks_records_one_event_when_committed(test_fixture *fixture)
{
    test_use_events(fixture, STRATA_EVENTS_EARLY);
    CUstream producer = test_stream(fixture, TEST_STREAM_POOL), consumer = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS];
    allocate_all(fixture, blocks, producer);
    test_calls calls;
    test_calls_begin(&calls);
    launch_over(fixture, blocks, producer, STRATA_ACCESS_WRITE);
    check_records_and_waits(&calls, 1, 0);
    strata_launch launch;
    begin_over(fixture, &launch, blocks, consumer, STRATA_ACCESS_READ);
    test_calls_begin(&calls);
    check_ok(strata_launch_preflight(&launch));
    check_records_and_waits(&calls, 0, 1);
    test_calls_begin(&calls);
    check_ok(strata_launch_commit(&launch));
    check_records_and_waits(&calls, 1, 0);
    check_ok(strata_launch_end(&launch));
    free_all(fixture, blocks, consumer);
}

static void a_launch_on_an_unknown_stream_identifies_it_once_a_phase(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_UNKNOWN, TEST_STREAM_PER_THREAD};
    CUstream producer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
        CUstream stream = test_stream(fixture, kinds[i]);
        strata_block blocks[BLOCKS];
        allocate_all(fixture, blocks, producer);
        launch_over(fixture, blocks, producer, STRATA_ACCESS_WRITE); /* which no event covers yet */
        strata_launch launch;
        begin_over(fixture, &launch, blocks, stream, STRATA_ACCESS_WRITE);
        test_calls calls;
        test_calls_begin(&calls);
        check_ok(strata_launch_preflight(&launch));
        assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1);
        assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 1);
        assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 1); /* the producer's */
        assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 1);
        test_calls_begin(&calls);
        check_ok(strata_launch_commit(&launch));
        assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1);
        assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 1);
        assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 1);
        assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
        check_ok(strata_launch_end(&launch));
        test_calls_begin(&calls);
        launch_over(fixture, blocks, reader, STRATA_ACCESS_READ);
        check_records_and_waits(&calls, 0, 1);
        free_all(fixture, blocks, producer);
    }
}

static void a_launch_without_blocks_makes_no_driver_call(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_launch launch;
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_launch_begin(&launch, fixture->runtime, stream, STRATA_LAUNCH_STRICT));
    check_ok(strata_launch_use(&launch, &(strata_block){0}, STRATA_ACCESS_WRITE));
    check_ok(strata_launch_preflight(&launch));
    check_ok(strata_launch_commit(&launch));
    check_ok(strata_launch_end(&launch));
    assert_int_equal(test_calls_total(&calls), 0);
}

/* ---- allocating ---- */

static void allocate_use_and_free(test_fixture *fixture, CUstream stream)
{
    strata_block block = test_allocate(fixture, BYTES, stream);
    prepare_and_finish(fixture, &block, stream, STRATA_ACCESS_WRITE);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
}

static void allocating_and_freeing_on_a_known_stream_asks_nothing_about_streams(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const bool pool = test_owner_is(fixture, "pool");
    test_calls calls;
    if (pool) /* what it grows by is asked for once */
        allocate_use_and_free(fixture, stream);
    test_calls_begin(&calls);
    for (int i = 0; i < 10; i++)
        allocate_use_and_free(fixture, stream);
    assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 0);
    assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 0);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    if (pool)
        assert_int_equal(test_calls_total(&calls), 0);
    if (test_owner_is(fixture, "async")) {
        assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 0);
        assert_int_equal(test_calls_of(&calls, "cuMemAllocFromPoolAsync"), 10);
        assert_int_equal(test_calls_of(&calls, "cuMemFreeAsync"), 10);
    }
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(uses_on_one_known_stream_make_no_driver_call),
        TEST_CASE(both_names_of_the_legacy_stream_are_one_stream),
        TEST_CASE(an_unknown_stream_is_identified_at_each_use_and_marked_once),
        TEST_CASE(a_hand_over_between_known_streams_is_one_record_and_one_wait),
        TEST_CASE(what_a_stream_has_waited_for_is_not_waited_for_again),
        TEST_CASE(an_event_that_covers_the_work_serves_every_stream_that_waits),
        TEST_CASE(work_after_the_event_needs_a_new_one),
        TEST_CASE(repeated_reads_of_one_stream_count_once),
        TEST_CASE(a_reader_waits_for_no_other_reader),
        TEST_CASE(who_comes_after_a_writer_waits_for_no_reader_before_that),
        TEST_CASE(a_launch_touching_64_blocks_of_one_producer_waits_once),
        TEST_CASE(a_launch_waits_once_for_each_of_its_producers),
        TEST_CASE(with_early_events_a_launch_of_64_blocks_records_one_event_when_committed),
        TEST_CASE(a_launch_on_an_unknown_stream_identifies_it_once_a_phase),
        TEST_CASE(a_launch_without_blocks_makes_no_driver_call),
        TEST_CASE(allocating_and_freeing_on_a_known_stream_asks_nothing_about_streams),
    };
    test_open_driver();
    return test_run_on_every_resource(cases, sizeof cases / sizeof cases[0]);
}
