/* Freeing in stream order: no stream is delayed, no memory is handed out too early, and the account always adds up. The
 * cases run on the resources that allocate in stream order; what every resource shares is in test_resources.c. */
#include "support/faults.h"
#include "support/fixture.h"

#include <stdlib.h>

enum { BYTES = 1 << 20, MANY = 24 };

/* With internal dependencies a driver may hand out memory whose free is still to come, and make the allocating stream
 * wait for it: correct, but neither the address nor the delay says anything about us then. */
static const char exact_stack[] = "async(internal_dependencies=off)";

static bool is_exact(const test_fixture *fixture)
{
    return fixture->stack == exact_stack;
}

static bool overlap(const strata_block *a, const strata_block *b)
{
    return a->address < b->address + b->bytes && b->address < a->address + a->bytes;
}

/* Allocates the same size many times on `stream` and fills it: work that still reads `freed` would see that. */
static void nobody_gets(test_fixture *fixture, const strata_block *freed, CUstream stream)
{
    strata_block blocks[MANY];
    for (size_t i = 0; i < MANY; i++) {
        blocks[i] = test_allocate(fixture, BYTES, stream);
        assert_false(is_exact(fixture) && overlap(&blocks[i], freed));
        test_fill(blocks[i].address, 0x99, 4096, stream);
    }
    for (size_t i = 0; i < MANY; i++)
        test_free_on(fixture, &blocks[i], stream);
}

/* ---- a block that another stream still uses ---- */

static void a_free_delays_neither_its_stream_nor_hands_out_what_another_stream_uses(test_fixture *fixture)
{
    for (test_stream_kind kind = 0; kind <= TEST_STREAM_UNKNOWN; kind++) {
        CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, kind);
        CUstream third = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, BYTES, alloc_stream),
                     other = test_allocate(fixture, 4096, alloc_stream);
        test_write(fixture, &block, 0x11, alloc_stream);
        test_synchronize(alloc_stream);
        test_stall *stall = test_stall_begin(user);
        strata_block part = block;
        part.requested = 4096;
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
        const unsigned char *seen = test_copy_back(fixture, part.address, part.requested, user);
        check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        if (is_exact(fixture))
            nobody_gets(fixture, &block, alloc_stream);
        nobody_gets(fixture, &block, third);
        test_write(fixture, &other, 0x22, alloc_stream);
        const unsigned char *later = test_read(fixture, &other, alloc_stream);
        test_synchronize(alloc_stream); /* the stall would run out if the free had delayed its stream */
        check_bytes(later, 0x22, 4096);
        test_stall_end(stall);
        check_bytes(seen, 0x11, 4096);
        test_free_on(fixture, &other, alloc_stream);
        test_stream_close(fixture, alloc_stream);
        test_stream_close(fixture, user);
        test_stream_close(fixture, third);
        fixture->seen_used = 0;
    }
}

/* What the freeing stream was given before the free may still use the memory, though no prepare named it. The use on
 * the other stream, for whose sake the free waits elsewhere, may be over before that. */
static void a_free_that_waits_elsewhere_still_comes_after_its_own_stream(test_fixture *fixture)
{
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream third = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    test_write(fixture, &block, 0x11, alloc_stream);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    test_stall *stall = test_stall_begin(alloc_stream);
    const unsigned char *seen = test_copy_back(fixture, block.address, 4096, alloc_stream);
    test_calls calls;
    test_calls_begin(&calls);
    test_fault_begin(TEST_FAULT_EVENT_QUERY, 1, true, CUDA_ERROR_NOT_READY);
    strata_status status = strata_runtime_deallocate(fixture->runtime, &block);
    assert_true(test_fault_end() > 0);
    check_ok(status);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 2); /* made by a stream that is neither's */
    test_synchronize(user);
    nobody_gets(fixture, &block, third);
    test_stall_release(stall);
    test_synchronize(alloc_stream);
    check_bytes(seen, 0x11, 4096);
    test_stall_end(stall);
}

static void a_free_waits_for_the_readers_of_more_streams_than_an_entry_holds(test_fixture *fixture)
{
    enum { READERS = 20 };
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), third = test_stream(fixture, TEST_STREAM_POOL);
    CUstream readers[READERS];
    for (size_t i = 0; i < READERS; i++)
        readers[i] = test_stream(fixture, i % 2 ? TEST_STREAM_POOL : TEST_STREAM_UNKNOWN);
    for (size_t slow = 0; slow < READERS; slow++) {
        strata_block block = test_allocate(fixture, BYTES, alloc_stream);
        test_fill(block.address, 0x11, 4096, alloc_stream);
        test_synchronize(alloc_stream);
        test_stall *stall = test_stall_begin(readers[slow]);
        const unsigned char *seen = NULL;
        for (size_t i = 0; i < READERS; i++) {
            check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, readers[i], STRATA_ACCESS_READ));
            const unsigned char *copy = test_copy_back(fixture, block.address, 4096, readers[i]);
            check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, readers[i], STRATA_ACCESS_READ));
            seen = i == slow ? copy : seen;
        }
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        nobody_gets(fixture, &block, third);
        test_stall_end(stall);
        check_bytes(seen, 0x11, 4096);
        fixture->seen_used = 0;
    }
}

/* Uses that are over are found so by asking: the free then goes straight to its stream. */
static void a_free_after_finished_uses_needs_no_waiting_stream(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, alloc_stream);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
    test_synchronize(user);
    test_calls calls;
    test_calls_begin(&calls);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    assert_int_equal(test_calls_of(&calls, "cuStreamCreate"), 0);
    assert_int_equal(test_calls_of(&calls, "cuMemFreeAsync"), 1);
}

/* Whether other streams must be waited for or not, the freeing one is identified once. */
static void a_free_on_an_unknown_stream_identifies_it_once(test_fixture *fixture)
{
    CUstream unknown = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_POOL);
    for (int used_elsewhere = 0; used_elsewhere < 2; used_elsewhere++) {
        strata_block block = test_allocate(fixture, BYTES, unknown);
        test_stall *stall = test_stall_begin(other);
        if (used_elsewhere)
            check_ok(strata_runtime_record_block_use(fixture->runtime, &block, other, STRATA_ACCESS_READ));
        test_calls calls;
        test_calls_begin(&calls);
        test_free_on(fixture, &block, unknown);
        assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent") > 0, used_elsewhere);
        uint64_t made = test_calls_of(&calls, "cuStreamCreate"); /* to wait: asked the same when it is registered */
        assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1 + made);
        assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 1 + made);
        test_stall_end(stall);
    }
}

/* ---- memory that goes from stream to stream ---- */

/* The peer's best-known bug: lists of free memory are merged, their streams' pending work is waited for and forgotten.
 * Here A's block is freed behind a stall, B asks for more than there is, and C gets what it can. */
static void a_third_stream_never_meets_work_on_memory_that_two_others_freed_and_gathered(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block from_a = test_allocate(fixture, BYTES, a), nothing;
    test_stall *stall = test_stall_begin(a);
    test_fill(from_a.address, 0xaa, BYTES, a);
    check_ok(strata_runtime_deallocate(fixture->runtime, &from_a));
    check_status(strata_runtime_allocate(fixture->runtime, (size_t)1 << 50, b, &nothing), STRATA_ERROR_OUT_OF_MEMORY);
    strata_block from_b = test_allocate(fixture, BYTES, b);
    test_fill(from_b.address, 0xbb, BYTES, b);
    check_ok(strata_runtime_deallocate(fixture->runtime, &from_b));
    strata_block from_c = test_allocate(fixture, BYTES, c);
    test_fill(from_c.address, 0xcc, BYTES, c);
    const unsigned char *seen = test_copy_back(fixture, from_c.address, BYTES, c);
    test_stall_release(stall);
    test_synchronize(a);
    test_synchronize(b);
    test_synchronize(c);
    const unsigned char *after = test_copy_back(fixture, from_c.address, BYTES, c);
    test_synchronize(c);
    check_bytes(seen, 0xcc, BYTES);
    check_bytes(after, 0xcc, BYTES);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &from_c));
}

static void memory_freed_on_a_stream_that_was_destroyed_is_good_again(test_fixture *fixture)
{
    for (int i = 0; i < 20; i++) {
        CUstream stream;
        check_cu(test_cu()->StreamCreate(&stream, CU_STREAM_NON_BLOCKING));
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, 0x11, stream);
        test_free_on(fixture, &block, stream);
        check_cu(test_cu()->StreamDestroy(stream));
        CUstream next = test_stream(fixture, TEST_STREAM_POOL);
        block = test_allocate(fixture, BYTES, next);
        block.requested = BYTES;
        test_write(fixture, &block, 0x22, next);
        const unsigned char *seen = test_copy_back(fixture, block.address, 4096, next);
        check_cu(test_cu()->CtxSynchronize());
        check_bytes(seen, 0x22, 4096);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        test_stream_close(fixture, next);
    }
}

/* ---- the account ---- */

static void freed_bytes_are_retired_until_they_are_known_free(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_bytes, 0);
    assert_int_equal(usage.live_blocks, 0);
    assert_int_equal(usage.retired_bytes, BYTES);
    assert_int_equal(usage.bytes_outstanding, BYTES);
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), BYTES);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_RETIRED);
    test_stall_release(stall);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_FREED);
    test_stall_end(stall);
}

static void memory_that_is_handed_out_again_is_not_counted_twice(test_fixture *fixture)
{
    enum { LARGE = 64 << 20, ROUNDS = 200 };
    for (test_stream_kind kind = 0; kind < TEST_STREAM_KINDS; kind++) {
        CUstream stream = test_stream(fixture, kind);
        for (int i = 0; i < ROUNDS; i++) {
            strata_block block = test_allocate(fixture, LARGE, stream);
            strata_usage usage = test_usage(fixture);
            assert_int_equal(usage.live_bytes, LARGE);
            assert_true(usage.bytes_outstanding <= 2 * (size_t)LARGE);
            assert_true(usage.bytes_outstanding <= usage.reserved_bytes);
            test_free_on(fixture, &block, stream);
        }
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        test_stream_close(fixture, stream);
    }
}

/* Pieces of one freed block are handed out to several new ones of other sizes. */
static void memory_that_is_handed_out_again_in_pieces_is_counted_to_the_byte(test_fixture *fixture)
{
    static const size_t sizes[] = {3000, 512, 70000, 1, 256, 100000, 4096, 12345};
    enum { PIECES = sizeof sizes / sizeof sizes[0] };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (int round = 0; round < 20; round++) {
        strata_block whole = test_allocate(fixture, BYTES, stream), pieces[PIECES];
        check_ok(strata_runtime_deallocate(fixture->runtime, &whole));
        size_t live = 0;
        for (size_t i = 0; i < PIECES; i++) {
            pieces[i] = test_allocate(fixture, sizes[(i + (size_t)round) % PIECES], stream);
            live += pieces[i].bytes;
            assert_int_equal(test_usage(fixture).live_bytes, live);
            assert_true(test_usage(fixture).retired_bytes <= 2 * BYTES);
        }
        for (size_t i = 0; i < PIECES; i++)
            check_ok(strata_runtime_deallocate(fixture->runtime, &pieces[i]));
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

static void many_small_frees_are_reaped_without_being_asked(test_fixture *fixture)
{
    enum { FREES = 20000, AT_ONCE = 64, SMALL = 512 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    size_t most = 0;
    for (int i = 0; i < FREES / AT_ONCE; i++) {
        strata_block blocks[AT_ONCE];
        for (size_t j = 0; j < AT_ONCE; j++)
            blocks[j] = test_allocate(fixture, SMALL, stream);
        for (size_t j = 0; j < AT_ONCE; j++)
            check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[j]));
        size_t outstanding = strata_runtime_bytes_outstanding(fixture->runtime);
        most = outstanding > most ? outstanding : most;
    }
    assert_true(most <= 2048 * SMALL);
}

/* Nothing is allocated in between, so that no memory is handed out again. */
static void frees_that_are_over_are_found_so_without_being_asked(test_fixture *fixture)
{
    enum { FREES = 4096, SMALL = 512 };
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block *blocks = calloc(FREES, sizeof *blocks);
    assert_non_null(blocks);
    for (size_t i = 0; i < FREES; i++)
        blocks[i] = test_allocate(fixture, SMALL, stream);
    for (size_t i = 0; i < FREES; i++) {
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
        if (i % 256 == 0)
            test_synchronize(stream);
    }
    free(blocks);
    assert_true(test_usage(fixture).retired_bytes <= FREES / 2 * SMALL);
}

/* The stream's latest work is not over, and perhaps never will be all at once; what was asked about before is. */
static void a_reap_that_does_not_wait_finds_the_frees_before_the_work_under_way(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    strata_block first = test_allocate(fixture, BYTES, stream), second = test_allocate(fixture, BYTES, stream);
    strata_block passed_on = test_allocate(fixture, 4096, stream);
    size_t bytes = 1;
    check_ok(strata_runtime_deallocate(fixture->runtime, &first));
    test_read(fixture, &passed_on, reader); /* has an event recorded behind the first free */
    test_synchronize(stream);
    test_stall *stall = test_stall_begin(stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &second));
    check_ok(top->ops->reap(top, STRATA_REAP_FINISHED, &bytes));
    assert_int_equal(bytes, BYTES);
    assert_int_equal(test_usage(fixture).retired_bytes, BYTES);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, first.id), STRATA_BLOCK_FREED);
    assert_int_equal(strata_runtime_block_state(fixture->runtime, second.id), STRATA_BLOCK_RETIRED);
    test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &passed_on));
}

enum { SMALL = 4096, CROWD = 66 }; /* more streams than a reap asks at once */

static void make_crowd(test_fixture *fixture, CUstream *streams)
{
    for (size_t i = 0; i < CROWD; i++)
        streams[i] = test_stream(fixture, TEST_STREAM_REGISTERED);
}

static void a_reap_that_does_not_wait_asks_every_stream_however_many_there_are(test_fixture *fixture)
{
    test_needs_truthful_queries();
    strata_resource *top = strata_stack_top(strata_runtime_stack(fixture->runtime));
    for (size_t done = 0; done < CROWD; done += 13) {
        CUstream streams[CROWD];
        strata_block blocks[CROWD];
        size_t bytes = 0;
        CUevent held_back;
        make_crowd(fixture, streams);
        for (size_t i = 0; i < CROWD; i++)
            blocks[i] = test_allocate(fixture, SMALL, streams[i]);
        check_cu(test_cu()->EventCreate(&held_back, CU_EVENT_DISABLE_TIMING));
        CUstream slow = streams[(done + 1) % CROWD];
        test_stall *stall = test_stall_begin(slow);
        check_cu(test_cu()->EventRecord(held_back, slow));
        for (size_t i = 0; i < CROWD; i++)
            if (i != done)
                check_cu(test_cu()->StreamWaitEvent(streams[i], held_back, CU_EVENT_WAIT_DEFAULT));
        for (size_t i = 0; i < CROWD; i++)
            check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
        test_synchronize(streams[done]);
        check_ok(top->ops->reap(top, STRATA_REAP_FINISHED, &bytes)); /* what it asks may be recorded only now */
        test_synchronize(streams[done]);
        size_t later = 0;
        check_ok(top->ops->reap(top, STRATA_REAP_FINISHED, &later));
        assert_int_equal(bytes + later, SMALL);
        assert_int_equal(strata_runtime_block_state(fixture->runtime, blocks[done].id), STRATA_BLOCK_FREED);
        test_stall_end(stall);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
        check_cu(test_cu()->EventDestroy(held_back));
        for (size_t i = 0; i < CROWD; i++)
            test_stream_close(fixture, streams[i]);
    }
}

/* Each wait of a reap is answered by one more free on the same stream, as by another thread that never rests. */
static struct {
    PFN_cuEventSynchronize_v2000 synchronize;
    test_fixture *fixture;
    const CUstream *streams;
    unsigned waits;
} restless;

static CUresult CUDAAPI free_once_more(CUevent event)
{
    strata_block block;
    CUstream stream = restless.streams[restless.waits++ % CROWD];
    CUresult result = restless.synchronize(event);
    if (restless.waits > 20 * CROWD)
        return result;
    if (strata_runtime_allocate(restless.fixture->runtime, SMALL, stream, &block) != STRATA_SUCCESS ||
        strata_runtime_deallocate(restless.fixture->runtime, &block) != STRATA_SUCCESS)
        return CUDA_ERROR_UNKNOWN;
    return result;
}

static void a_reap_that_waits_comes_back_though_others_never_stop_freeing(test_fixture *fixture)
{
    CUstream streams[CROWD];
    strata_block blocks[CROWD];
    make_crowd(fixture, streams);
    for (size_t i = 0; i < CROWD; i++)
        blocks[i] = test_allocate(fixture, SMALL, streams[i]);
    for (size_t i = 0; i < CROWD; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
    restless.synchronize = strata_cu.EventSynchronize;
    restless.fixture = fixture;
    restless.streams = streams;
    restless.waits = 0;
    strata_cu.EventSynchronize = free_once_more;
    strata_status status = strata_runtime_reap_pending(fixture->runtime);
    strata_cu.EventSynchronize = restless.synchronize;
    check_ok(status);
    assert_in_range(restless.waits, 1, CROWD); /* fewer where one was complete when it was asked */
    for (size_t i = 0; i < CROWD; i++)
        assert_int_not_equal(strata_runtime_block_state(fixture->runtime, blocks[i].id), STRATA_BLOCK_RETIRED);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

/* ---- failures ---- */

static void a_reap_that_fails_in_the_middle_keeps_the_rest_and_loses_no_byte(test_fixture *fixture)
{
    enum { STREAMS = 5 };
    unsigned refused = 1;
    for (unsigned nth = 1; refused; nth++) {
        CUstream streams[STREAMS];
        assert_true(nth <= STREAMS + 1);
        for (size_t i = 0; i < STREAMS; i++) {
            streams[i] = test_stream(fixture, TEST_STREAM_POOL);
            strata_block block = test_allocate(fixture, BYTES, streams[i]);
            check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        }
        size_t before = strata_runtime_bytes_outstanding(fixture->runtime);
        test_fault_begin(TEST_FAULT_EVENT_SYNCHRONIZE, nth, false, CUDA_ERROR_UNKNOWN);
        strata_status status = strata_runtime_reap_pending(fixture->runtime);
        refused = test_fault_end();
        size_t left = strata_runtime_bytes_outstanding(fixture->runtime);
        if (refused) {
            assert_int_equal(status, STRATA_ERROR_DRIVER);
            assert_int_equal(left, before - (nth - 1) * (size_t)BYTES);
        } else {
            assert_int_equal(status, STRATA_SUCCESS);
        }
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
        for (size_t i = 0; i < STREAMS; i++)
            test_stream_close(fixture, streams[i]);
    }
}

/* Each of the driver calls of a free that has to wait elsewhere fails once, until none is left that fails. */
static void a_free_that_fails_leaves_the_block_as_it_was(test_fixture *fixture)
{
    static const test_fault_call faults[] = {TEST_FAULT_EVENT_RECORD, TEST_FAULT_STREAM_WAIT_EVENT,
                                             TEST_FAULT_STREAM_CREATE, TEST_FAULT_FREE};
    CUstream alloc_stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        unsigned refused = 1;
        for (unsigned nth = 1; refused; nth++) {
            strata_block block = test_allocate(fixture, BYTES, alloc_stream), found;
            test_stall *stall = test_stall_begin(user);
            check_ok(strata_runtime_record_block_use(fixture->runtime, &block, user, STRATA_ACCESS_READ));
            strata_usage before = test_usage(fixture);
            test_fault_begin(faults[f], nth, false, CUDA_ERROR_UNKNOWN);
            strata_status status = strata_runtime_deallocate(fixture->runtime, &block);
            refused = test_fault_end();
            assert_int_equal(status, refused ? STRATA_ERROR_DRIVER : STRATA_SUCCESS);
            if (refused) {
                strata_usage after = test_usage(fixture);
                assert_int_equal(after.live_bytes, before.live_bytes);
                assert_int_equal(after.live_blocks, before.live_blocks);
                assert_int_equal(after.retired_bytes, before.retired_bytes);
                assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
                check_ok(strata_runtime_find(fixture->runtime, block.address, &found));
                check_ok(strata_runtime_deallocate(fixture->runtime, &block));
            }
            if (is_exact(fixture))
                nobody_gets(fixture, &block, alloc_stream);
            test_stall_end(stall);
            check_ok(strata_runtime_reap_pending(fixture->runtime));
        }
    }
}

static void an_allocation_that_fails_at_any_driver_call_leaves_nothing(test_fixture *fixture)
{
    static const test_fault_call faults[] = {TEST_FAULT_ALLOCATE, TEST_FAULT_STREAM_GET_ID, TEST_FAULT_EVENT_RECORD};
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    for (size_t f = 0; f < sizeof faults / sizeof faults[0]; f++) {
        strata_block block = {.bytes = 1};
        bool recording = faults[f] == TEST_FAULT_EVENT_RECORD;
        test_fault_begin(faults[f], 1, true, CUDA_ERROR_UNKNOWN);
        strata_status status = strata_runtime_allocate(fixture->runtime, BYTES, stream, &block);
        assert_true(test_fault_end() > 0);
        if (recording) { /* the stream is waited for instead */
            assert_int_equal(status, STRATA_SUCCESS);
            test_free_on(fixture, &block, stream);
        } else {
            assert_int_equal(status, STRATA_ERROR_DRIVER);
            assert_memory_equal(&block, &(strata_block){0}, sizeof block);
        }
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
        assert_int_equal(test_usage(fixture).live_blocks, 0);
    }
}

static void a_runtime_that_ends_waits_for_its_pending_frees(test_fixture *fixture)
{
    strata_runtime *runtime;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), user = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = fixture->stack}, &runtime));
    strata_block block;
    check_ok(strata_runtime_allocate(runtime, BYTES, stream, &block));
    check_status(strata_runtime_destroy(runtime), STRATA_ERROR_BUSY);
    check_ok(strata_runtime_prepare_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    test_fill(block.address, 0x11, BYTES, user);
    check_ok(strata_runtime_finish_block_use(runtime, &block, user, STRATA_ACCESS_WRITE));
    check_ok(strata_runtime_deallocate(runtime, &block));
    check_ok(strata_runtime_destroy(runtime));
    test_needs_truthful_queries();
    assert_int_equal(test_cu()->StreamQuery(user), CUDA_SUCCESS);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_free_delays_neither_its_stream_nor_hands_out_what_another_stream_uses),
        TEST_CASE(a_free_that_waits_elsewhere_still_comes_after_its_own_stream),
        TEST_CASE(a_free_waits_for_the_readers_of_more_streams_than_an_entry_holds),
        TEST_CASE(a_free_after_finished_uses_needs_no_waiting_stream),
        TEST_CASE(a_free_on_an_unknown_stream_identifies_it_once),
        TEST_CASE(a_third_stream_never_meets_work_on_memory_that_two_others_freed_and_gathered),
        TEST_CASE(memory_freed_on_a_stream_that_was_destroyed_is_good_again),
        TEST_CASE(freed_bytes_are_retired_until_they_are_known_free),
        TEST_CASE(memory_that_is_handed_out_again_is_not_counted_twice),
        TEST_CASE(memory_that_is_handed_out_again_in_pieces_is_counted_to_the_byte),
        TEST_CASE(many_small_frees_are_reaped_without_being_asked),
        TEST_CASE(frees_that_are_over_are_found_so_without_being_asked),
        TEST_CASE(a_reap_that_does_not_wait_finds_the_frees_before_the_work_under_way),
        TEST_CASE(a_reap_that_does_not_wait_asks_every_stream_however_many_there_are),
        TEST_CASE(a_reap_that_waits_comes_back_though_others_never_stop_freeing),
        TEST_CASE(a_reap_that_fails_in_the_middle_keeps_the_rest_and_loses_no_byte),
        TEST_CASE(a_free_that_fails_leaves_the_block_as_it_was),
        TEST_CASE(an_allocation_that_fails_at_any_driver_call_leaves_nothing),
        TEST_CASE(a_runtime_that_ends_waits_for_its_pending_frees),
    };
    static const char *const stacks[] = {exact_stack, "async", "async(pool=default)"};
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
