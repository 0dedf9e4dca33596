/* pool: returning memory over time, and in a full reap. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "support/beside.h"
#include "support/effort.h"
#include "support/pool_decay.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

/* ---- over time ---- */

/* Memory that the driver does not take back stays, without an error: in a sweep that makes it refuse, amounts differ.
 */
#define assert_amount(condition) assert_true(test_is_swept() || (condition))

/* All of it, a few chunks with each call. */
static void memory_unused_for_a_window_is_returned(test_fixture *fixture)
{
    enum { CALLS = 8 };
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 64 * MIB, stream);
    begin_decay(fixture, stream);
    make_slow_calls(fixture, CALLS, stream);
    assert_amount(reserved(fixture) == 64 * MIB + CHUNK); /* nothing is returned early */
    pass(1);
    make_slow_calls(fixture, CALLS, stream);
    assert_amount(reserved(fixture) == CHUNK); /* the small blocks' */
    assert_amount(value_of(fixture->runtime, "pool.decayed") == 64 * MIB);
    assert_amount(value_of(fixture->runtime, "pool.released") >= 64 * MIB);
    for (int i = 0; i < 3; i++) {
        pass(1);
        make_slow_calls(fixture, CALLS, stream);
    }
    assert_amount(reserved(fixture) == CHUNK);
    strata_block block = test_allocate(fixture, 32 * MIB, stream); /* and it is made again on demand */
    test_write(fixture, &block, 0x22, stream);
    check_ends(fixture, &block, 0x22, stream);
    test_free_on(fixture, &block, stream);
}

/* A thread's cache is not part of the heap, and no request may come for it again. */
static void memory_in_a_thread_cache_is_returned_too(test_fixture *fixture)
{
    test_needs_truthful_queries();
    enum { COUNT = 3, KEPT = 1 << 20 };
    needs_granule(CHUNK);
    CUstream kept = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[COUNT];
    for (size_t i = 0; i < COUNT; i++)
        blocks[i] = test_allocate(fixture, KEPT, kept);
    make_slow_calls(fixture, 1, stream); /* the calls below have memory, and do not empty the cache for want of it */
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* a chunk of the layer below is complete */
    begin_decay(fixture, stream);
    for (size_t i = 0; i < COUNT; i++)
        test_free_on(fixture, &blocks[i], kept);
    test_synchronize(kept);
    const size_t before = reserved(fixture);
    const uint64_t flushes = value_of(fixture->runtime, "pool.flushes");
    make_slow_calls(fixture, 8, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.flushes"), flushes);
    for (int i = 0; i < 3; i++) { /* what was used before the first window is returned from the second on */
        pass(100);
        make_slow_calls(fixture, 8, stream);
    }
    assert_true(before >= COUNT * KEPT + CHUNK);
    assert_int_equal(reserved(fixture), CHUNK); /* the small blocks' chunk */
}

static void memory_without_holds_is_returned(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 32 * MIB, stream);
    strata_pool_hold *hold;
    check_ok(strata_pool_hold_begin(strata_stack_top(strata_runtime_stack(fixture->runtime)), &block, &hold));
    leave_free(fixture, 32 * MIB, stream);
    test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    begin_decay(fixture, stream);
    for (int i = 0; i < 3; i++) {
        pass(1);
        make_slow_calls(fixture, 8, stream);
    }
    const size_t left = reserved(fixture);
    strata_pool_hold_end(hold);
    assert_amount(left == 32 * MIB + CHUNK);
    sleep_through(fixture);
    assert_amount(reserved(fixture) == 0);
}

/* Windows without a call are windows without use: one look returns all. */
static void a_program_that_slept_returns_memory_at_its_first_call(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 64 * MIB, stream);
    begin_decay(fixture, stream);
    pass(3);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(reserved(fixture), CHUNK); /* of begin_decay, in the window that now ends */
    pass(100);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(reserved(fixture), 0);
}

static void memory_that_was_in_use_or_made_in_a_window_has_another_one(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 400 * MIB, stream), more;
    begin_decay(fixture, stream);
    const size_t small = reserved(fixture) - 400 * MIB;
    more = test_allocate(fixture, 2 * MIB, stream); /* the pool grows by more than that */
    const size_t grown = reserved(fixture) - 400 * MIB - small;
    assert_amount(grown >= 10 * MIB);
    pass(1);
    make_slow_calls(fixture, 8, stream);
    assert_amount(reserved(fixture) == 400 * MIB + small + grown);
    test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    pass(1);
    make_slow_calls(fixture, 8, stream);
    assert_amount(reserved(fixture) == 400 * MIB + small + more.bytes); /* what the pool grew by is returned */
    pass(1);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_amount(reserved(fixture) == small + more.bytes);
    test_free_on(fixture, &more, stream);
}

/* However much that is: all that a block was cut from, and at most a 16th of it on either side. */
static void what_a_large_block_was_in_has_another_window(test_fixture *fixture)
{
    enum { CALLS = 12 };
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 120 * MIB, stream);
    test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    begin_decay(fixture, stream);
    block = test_allocate(fixture, 78 * MIB, stream);
    test_free_on(fixture, &block, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    pass(1);
    make_slow_calls(fixture, CALLS, stream);
    assert_amount(reserved(fixture) >= 78 * MIB + CHUNK && reserved(fixture) <= (78 + 2 * 78 / 16) * MIB + CHUNK);
    pass(1);
    make_slow_calls(fixture, CALLS, stream);
    assert_amount(reserved(fixture) == CHUNK);
}

/* So that no call takes long. */
static void a_request_or_a_free_returns_at_most_a_few_chunks(test_fixture *fixture)
{
    enum { MOST = 4 };
    needs_granule(CHUNK);
    const char *drop = strstr(fixture->stack, "direct")  ? "cuMemFree"
                       : strstr(fixture->stack, "async") ? "cuMemFreeAsync"
                                                         : "cuMemRelease";
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, MIB, stream), other;
    leave_free(fixture, 120 * MIB, stream);
    begin_decay(fixture, stream);
    pass(100);
    test_calls calls;
    test_calls_begin(&calls);
    other = test_allocate(fixture, CLASSED + 5 * 512, stream);
    const uint64_t by_request = test_calls_of(&calls, drop);
    test_calls_begin(&calls);
    test_free_on(fixture, &other, stream);
    const uint64_t by_free = test_calls_of(&calls, drop);
    test_calls_begin(&calls);
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* all the rest */
    const uint64_t by_reap = test_calls_of(&calls, drop);
    assert_amount(by_request == MOST && by_free <= MOST && by_request + by_free + by_reap >= 120 * MIB / CHUNK - 1);
    assert_amount(reserved(fixture) <= 2 * (size_t)CHUNK); /* the block's, and the small one's */
    test_free_on(fixture, &block, stream);
}

/* A period of a program: it allocates more and more, of many sizes, and frees all of it. */
static void run_period(test_fixture *fixture, uint64_t seed, size_t most, CUstream *streams)
{
    enum { BLOCKS = 80, SWEPT_BLOCKS = 30 };
    strata_block blocks[BLOCKS];
    const size_t all = test_is_swept() ? SWEPT_BLOCKS : BLOCKS;
    size_t first = 0, count = 0;
    for (; count < all; count++) {
        seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        const size_t bytes = (size_t)(seed >> 33) % most + 1;
        CUstream stream = streams[count % 2];
        blocks[count] = test_allocate(fixture, bytes, stream);
        test_write(fixture, &blocks[count], 0x33, stream);
        if ((seed >> 20) % 4 == 0) {
            test_free_on(fixture, &blocks[first], streams[first % 2]);
            first++;
        }
    }
    for (; first < count; first++)
        test_free_on(fixture, &blocks[first], streams[first % 2]);
}

static void run_windows(test_fixture *fixture, unsigned windows, size_t most, CUstream *streams)
{
    enum { PERIODS = 3 };
    for (unsigned i = 0; i < windows * PERIODS; i++) {
        run_period(fixture, 1, most, streams);
        check_ok(strata_runtime_reap_pending(fixture->runtime)); /* complete, whichever stream freed it */
        ahead += WINDOW / PERIODS;
    }
}

/* Sweeps take one: a request that takes memory of several streams may wait for more than it needs, so a forgotten wait
 * would not be noticed. */
static void make_streams(test_fixture *fixture, CUstream *streams)
{
    streams[0] = test_stream(fixture, TEST_STREAM_POOL);
    streams[1] = test_is_swept() ? streams[0] : test_stream(fixture, TEST_STREAM_POOL);
}

/* Memory needed in each window is kept, although it is unused most of the time. A period's layout may differ a little
 * from the one before. */
static void memory_that_comes_and_goes_with_a_shorter_period_stays(test_fixture *fixture)
{
    CUstream streams[2];
    make_streams(fixture, streams);
    begin_decay(fixture, streams[0]);
    run_windows(fixture, 6, MIB, streams);
    const uint64_t made = value_of(fixture->runtime, "pool.chunks.made");
    const uint64_t moved = value_of(fixture->runtime, "pool.chunks.moved");
    const uint64_t decayed = value_of(fixture->runtime, "pool.decayed");
    const size_t bytes = reserved(fixture);
    run_windows(fixture, 6, MIB, streams);
    const char *policy = getenv("STRATA_SIM_POLICY");
    const bool random = policy && strcmp(policy, "random") == 0;
    const bool same = test_on_simulated_driver() && !random; /* otherwise no period is like the one before */
    const uint64_t more = made / 8;
    assert_true(value_of(fixture->runtime, "pool.decayed") <= decayed + (same ? 0 : more * CHUNK));
    assert_true(value_of(fixture->runtime, "pool.chunks.made") <= made + more);
    assert_true(value_of(fixture->runtime, "pool.chunks.moved") <= moved + more);
    assert_true(reserved(fixture) <= bytes + more * CHUNK && reserved(fixture) + more * CHUNK >= bytes);
    assert_true(bytes > 8 * MIB);
}

/* The rest of a larger period's memory is returned, and nothing that this one needs. */
static void a_period_that_needs_less_comes_to_have_less(test_fixture *fixture)
{
    CUstream streams[2];
    make_streams(fixture, streams);
    begin_decay(fixture, streams[0]);
    run_windows(fixture, 2, MIB, streams);
    const size_t large = reserved(fixture);
    run_windows(fixture, 12, MIB / 8, streams);
    const size_t small = reserved(fixture);
    const uint64_t made = value_of(fixture->runtime, "pool.chunks.made");
    assert_true(small <= large / 3);
    run_windows(fixture, 6, MIB / 8, streams);
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.made"), made);
    run_period(fixture, 1, MIB, streams);
    assert_true(reserved(fixture) <= large + large / 8);
}

/* With the share of the peak, or what one thread may keep, within a granule for each rounding. */
static void check_allowed(test_fixture *fixture, double share, uint64_t peak)
{
    const uint64_t beyond = (uint64_t)((double)peak * share), kept = strstr(fixture->stack, "), ") ? 0 : 4 * MIB;
    const uint64_t allowed = allowed_now(fixture->runtime), least = peak + (beyond > kept ? beyond : kept);
    assert_in_range(allowed, least, least + 3 * (uint64_t)CHUNK);
}

static void end_the_window(test_fixture *fixture, CUstream stream)
{
    pass(1);
    make_slow_calls(fixture, 16, stream); /* each returns some chunks */
}

/* What was live most, in this window and the last, may be held again. */
static void the_peak_falls_after_two_windows(test_fixture *fixture)
{
    needs_granule(CHUNK);
    const double share = share_of_peak(fixture->runtime);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 64 * MIB, stream);
    check_allowed(fixture, share, 64 * MIB);
    begin_decay(fixture, stream);
    check_allowed(fixture, share, 64 * MIB);
    end_the_window(fixture, stream);
    check_allowed(fixture, share, 0);
    leave_free(fixture, 32 * MIB, stream);
    check_allowed(fixture, share, 32 * MIB);
    end_the_window(fixture, stream);
    check_allowed(fixture, share, 32 * MIB);
    end_the_window(fixture, stream);
    check_allowed(fixture, share, 0);
}

/* Of a window that begins with it. */
static void what_is_live_counts_as_a_peak(test_fixture *fixture)
{
    needs_granule(CHUNK);
    const double share = share_of_peak(fixture->runtime);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 32 * MIB, stream);
    begin_decay(fixture, stream);
    for (int i = 0; i < 3; i++)
        end_the_window(fixture, stream);
    check_allowed(fixture, share, 32 * MIB);
    test_free_on(fixture, &block, stream);
    end_the_window(fixture, stream);
    check_allowed(fixture, share, 32 * MIB);
    end_the_window(fixture, stream);
    check_allowed(fixture, share, 0);
}

/* Without decay. */
static void the_peak_stays_if_windows_do_not_end(test_fixture *fixture)
{
    needs_granule(CHUNK);
    const double share = share_of_peak(fixture->runtime);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 64 * MIB, stream);
    for (int i = 0; i < 4; i++) {
        pass(100);
        make_slow_calls(fixture, 2, stream);
    }
    check_allowed(fixture, share, 64 * MIB);
}

/* Beyond it memory is remapped, not made: an old peak of live bytes no longer counts. */
static void after_a_decay_the_overhead_counts_from_what_is_held(test_fixture *fixture)
{
    enum { PAIRS = 4 };
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block gaps[PAIRS], walls[PAIRS], block;
    leave_free(fixture, 64 * MIB, stream);
    begin_decay(fixture, stream);
    sleep_through(fixture);
    assert_int_equal(reserved(fixture), 0);
    for (size_t i = 0; i < PAIRS; i++) {
        gaps[i] = test_allocate(fixture, 2 * CHUNK, stream);
        walls[i] = test_allocate(fixture, CHUNK, stream);
    }
    for (size_t i = 0; i < PAIRS; i++)
        test_free_on(fixture, &gaps[i], stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    const uint64_t moved = value_of(fixture->runtime, "pool.chunks.moved");
    const size_t before = reserved(fixture);
    block = test_allocate(fixture, (size_t)2 * PAIRS * CHUNK, stream);
    test_write(fixture, &block, 0x44, stream);
    if (!test_is_swept()) { /* a chunk that cannot be unmapped is not remapped, and more is made */
        assert_true(value_of(fixture->runtime, "pool.chunks.moved") > moved);
        assert_true(reserved(fixture) <= before + 2 * (size_t)CHUNK);
    }
    test_free_on(fixture, &block, stream);
    for (size_t i = 0; i < PAIRS; i++)
        test_free_on(fixture, &walls[i], stream);
}

static void decay_stops_at_the_release_threshold(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 64 * MIB, stream);
    set(fixture, "pool.release_threshold", 23 * MIB);
    begin_decay(fixture, stream);
    for (int i = 0; i < 6; i++) {
        pass(1);
        make_slow_calls(fixture, 8, stream);
    }
    assert_int_equal(reserved(fixture), 24 * MIB);
    set(fixture, "pool.release_threshold", 0);
    for (int i = 0; i < 8; i++) {
        pass(1);
        make_slow_calls(fixture, 8, stream);
    }
    assert_int_equal(reserved(fixture), CHUNK);
}

/* No memory of a stream that is behind is known to be complete, and no thread waits to find out. */
static void memory_of_pending_work_stays_and_is_not_waited_for(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), slow = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, 32 * MIB, slow);
    test_stall *stall = test_stall_begin(slow);
    test_write(fixture, &block, 0x11, slow);
    const unsigned char *seen = test_copy_back(fixture, block.address, EDGE, slow);
    test_free_on(fixture, &block, slow);
    make_slow_calls(fixture, 1, stream);
    begin_decay(fixture, stream);
    const size_t before = reserved(fixture);
    test_calls calls;
    test_calls_begin(&calls);
    for (int i = 0; i < 4; i++) {
        pass(1);
        make_slow_calls(fixture, 4, stream);
    }
    const uint64_t waits = test_calls_of(&calls, "cuEventSynchronize") + test_calls_of(&calls, "cuStreamSynchronize") +
                           test_calls_of(&calls, "cuCtxSynchronize");
    const size_t meanwhile = reserved(fixture);
    test_stall_end(stall);
    assert_int_equal(waits, 0);
    assert_true(before >= 32 * MIB && meanwhile >= 32 * MIB);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_bytes(seen, 0x11, EDGE);
    sleep_through(fixture);
    assert_int_equal(reserved(fixture), 0);
}

static void without_decay_nothing_goes_however_long_it_is_not_used(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 64 * MIB, stream);
    make_slow_calls(fixture, 1, stream);
    const size_t before = reserved(fixture);
    for (int i = 0; i < 4; i++) {
        pass(100);
        make_slow_calls(fixture, 8, stream);
        check_ok(strata_runtime_reap_pending(fixture->runtime));
    }
    begin_decay(fixture, stream);
    set(fixture, "pool.decay", 0);
    pass(100);
    make_slow_calls(fixture, 8, stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(reserved(fixture), before);
    assert_int_equal(value_of(fixture->runtime, "pool.released"), 0);
}

/* A chunk that could not be unmapped is memory as before, and is returned later. */
static CUresult CUDAAPI refuse_to_unmap(CUdeviceptr address, size_t bytes)
{
    (void)address, (void)bytes;
    return CUDA_ERROR_UNKNOWN;
}

static void what_the_driver_does_not_take_back_is_used_and_tried_again(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 32 * MIB, stream);
    begin_decay(fixture, stream);
    const strata_entry_table real = strata_cu;
    strata_cu.MemUnmap = refuse_to_unmap;
    pass(100);
    const uint64_t made = value_of(fixture->runtime, "pool.chunks.made");
    strata_block small, large;
    strata_status statuses[3] = {try_to_allocate(fixture, 3 * 512, stream, &small),
                                 strata_runtime_reap_pending(fixture->runtime),
                                 try_to_allocate(fixture, 30 * MIB, stream, &large)};
    const strata_error said = *strata_last_error();
    strata_cu.MemUnmap = real.MemUnmap;
    check_ok(statuses[0]);
    check_status(statuses[1], STRATA_ERROR_DRIVER);
    assert_string_equal(said.driver_call, "cuMemUnmap");
    check_ok(statuses[2]);
    test_write(fixture, &large, 0x22, stream);
    check_ends(fixture, &large, 0x22, stream);
    assert_int_equal(reserved(fixture), 32 * MIB + CHUNK);
    assert_int_equal(value_of(fixture->runtime, "pool.chunks.made"), made);
    test_free_on(fixture, &small, stream);
    test_free_on(fixture, &large, stream);
    sleep_through(fixture);
    assert_int_equal(reserved(fixture), 0);
}

/* ---- full reaps ---- */

static void above_the_threshold_memory_goes_when_all_frees_are_waited_for_and_at_no_other_time(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    set(fixture, "pool.release_threshold", 9 * MIB);
    strata_block block = test_allocate(fixture, MIB, stream);
    strata_block large = test_allocate(fixture, 64 * MIB, stream);
    write_head(fixture, &large, 0x11, stream);
    test_free_on(fixture, &large, stream);
    make_slow_calls(fixture, 1, stream);
    const size_t before = reserved(fixture);
    check_cu(test_cu()->CtxSynchronize());
    pass(100);
    make_slow_calls(fixture, 8, stream);
    assert_int_equal(reserved(fixture), before);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(reserved(fixture), 10 * MIB); /* a chunk less would be below it */
    assert_int_equal(value_of(fixture->runtime, "pool.released"), before - 10 * MIB);
    assert_int_equal(value_of(fixture->runtime, "pool.decayed"), 0);
    set(fixture, "pool.release_threshold", 1);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(reserved(fixture), CHUNK); /* the block's chunk */
    test_free_on(fixture, &block, stream);
}

/* ---- memory in transit ---- */

static struct {
    test_fixture *fixture;
    test_stall *stall;
    bool good;
    size_t reserved; /* after the other thread has reaped */
    CUresult(CUDAAPI *synchronize)(CUevent event);
} meanwhile;

static void *reap_and_look(void *data)
{
    (void)data;
    test_make_current();
    strata_usage usage;
    pass(1);
    meanwhile.good = strata_runtime_reap_pending(meanwhile.fixture->runtime) == STRATA_SUCCESS &&
                     strata_runtime_usage(meanwhile.fixture->runtime, &usage) == STRATA_SUCCESS;
    meanwhile.reserved = meanwhile.good ? usage.reserved_bytes : 0;
    return NULL;
}

/* The remapping thread waits for a stream, with some chunks in hand. The other thread waits for the same stream. */
static CUresult CUDAAPI synchronize_slow(CUevent event)
{
    pthread_t thread;
    strata_cu.EventSynchronize = meanwhile.synchronize;
    test_stall_release(meanwhile.stall);
    if (pthread_create(&thread, NULL, reap_and_look, NULL) == 0)
        pthread_join(thread, NULL);
    return meanwhile.synchronize(event);
}

/* Blocks live before and behind chunks: the request fits into two chunks once one is remapped beside the other, or,
 * with `making`, once a chunk is made and one that is waited for is remapped beside it. */
static void remap_while_another_thread_returns_memory(test_fixture *fixture, bool making, const char *name,
                                                      uint64_t value)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), slow = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[4], large;
    const size_t limit = (making ? 5 : 4) * (size_t)CHUNK;
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, CHUNK, i == 2 ? slow : stream);
    set_limit(fixture, limit);
    if (!making)
        test_free_on(fixture, &blocks[0], stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime)); /* complete, so that it is remapped first */
    set(fixture, name, value);
    meanwhile.stall = test_stall_begin(slow);
    test_free_on(fixture, &blocks[2], slow);
    meanwhile.fixture = fixture;
    meanwhile.good = false;
    meanwhile.synchronize = strata_cu.EventSynchronize;
    const uint64_t moved = value_of(fixture->runtime, "pool.chunks.moved");
    strata_cu.EventSynchronize = synchronize_slow;
    strata_status status = try_to_allocate(fixture, 2 * (size_t)CHUNK, stream, &large);
    const bool waited = strata_cu.EventSynchronize == meanwhile.synchronize;
    strata_cu.EventSynchronize = meanwhile.synchronize;
    test_stall_end_all();
    assert_true(waited && meanwhile.good);
    assert_true(making || meanwhile.reserved == limit);
    check_ok(status);
    assert_amount(value_of(fixture->runtime, "pool.released") == 0);
    assert_amount(reserved(fixture) == limit);
    assert_amount(value_of(fixture->runtime, "pool.chunks.moved") - moved == (making ? 1 : 2));
    test_write(fixture, &large, 0x22, stream);
    check_ends(fixture, &large, 0x22, stream);
    test_free_on(fixture, &large, stream);
    if (making)
        test_free_on(fixture, &blocks[0], stream);
    test_free_on(fixture, &blocks[1], stream);
    test_free_on(fixture, &blocks[3], stream);
}

static void chunks_that_a_thread_remaps_are_not_returned_by_another(test_fixture *fixture)
{
    needs_granule(CHUNK);
    remap_while_another_thread_returns_memory(fixture, false, "pool.release_threshold", 1);
}

static void chunks_that_a_thread_remaps_do_not_decay(test_fixture *fixture)
{
    needs_granule(CHUNK);
    remap_while_another_thread_returns_memory(fixture, false, "pool.decay", WINDOW);
}

static void chunks_that_a_thread_has_made_are_not_returned_by_another(test_fixture *fixture)
{
    needs_granule(CHUNK);
    remap_while_another_thread_returns_memory(fixture, true, "pool.release_threshold", 1);
}

static void chunks_that_a_thread_has_made_do_not_decay(test_fixture *fixture)
{
    needs_granule(CHUNK);
    remap_while_another_thread_returns_memory(fixture, true, "pool.decay", WINDOW);
}

/* Another thread with map_lock, until it is told to go on or some time has passed. */
static struct {
    pool *inside;
    sem_t taken, go_on;
    _Atomic bool left; /* by itself */
} holder;

static void *hold_lock(void *data)
{
    struct timespec until;
    (void)data;
    strata_lock_take(&holder.inside->map_lock);
    sem_post(&holder.taken);
    __real_clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += test_timeout(5);
    while (sem_timedwait(&holder.go_on, &until) != 0)
        if (errno == ETIMEDOUT) {
            atomic_store(&holder.left, true);
            break;
        }
    strata_lock_release(&holder.inside->map_lock);
    return NULL;
}

/* The lock is free when a call looks for due chunks, and taken once it returns one. */
static void decay_does_not_wait_for_a_thread_that_has_the_lock(test_fixture *fixture)
{
    const pool_release_terms hurried = {.hurried = true};
    pthread_t thread;
    needs_granule(CHUNK);
    leave_free(fixture, 8 * MIB, test_stream(fixture, TEST_STREAM_POOL));
    holder.inside = pool_inside(fixture->runtime);
    holder.left = false;
    const size_t before = reserved(fixture);
    const uint32_t end = chunk_numbers(holder.inside);
    strata_status status = STRATA_SUCCESS;
    sem_init(&holder.taken, 0, 0);
    sem_init(&holder.go_on, 0, 0);
    assert_int_equal(pthread_create(&thread, NULL, hold_lock, NULL), 0);
    sem_wait(&holder.taken);
    for (uint32_t number = 1; number < end && status == STRATA_SUCCESS; number++)
        status = holder.inside->kind->give_back_chunk(holder.inside, &hurried, number);
    const bool waited = atomic_load(&holder.left);
    sem_post(&holder.go_on);
    pthread_join(thread, NULL);
    check_ok(status);
    assert_true(end > 1 && !waited);
    assert_int_equal(reserved(fixture), before);
}

/* ---- refusals ---- */

static void trim_beside(void *runtime)
{
    size_t freed;
    strata_runtime_trim(runtime, 0, &freed);
}

static void a_refusal_of_the_driver_is_logged_while_other_threads_trim_the_pool(test_fixture *fixture)
{
    needs_granule(CHUNK);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    leave_free(fixture, 32 * MIB, stream);
    begin_decay(fixture, stream);
    const strata_entry_table real = strata_cu;
    test_beside beside;
    strata_cu.MemUnmap = refuse_to_unmap;
    pass(100);
    test_beside_begin(&beside, trim_beside, fixture->runtime);
    const strata_status status = strata_runtime_reap_pending(fixture->runtime);
    const bool returned = test_beside_end(&beside);
    strata_cu.MemUnmap = real.MemUnmap;
    check_status(status, STRATA_ERROR_DRIVER);
    assert_true(returned);
}

int main(void)
{
    static const char *const stacks[] = {"pool(chunk=2MiB, decay=0)"};
    static const char *const all_sources[] = {"pool(chunk=2MiB, decay=0)", "pool(chunk=2MiB, decay=0), direct",
                                              "pool(chunk=2MiB, decay=0), budget(limit=4GiB), async"};
    static const test_case of_any_source[] = {
        TEST_CASE(memory_unused_for_a_window_is_returned),
        TEST_CASE(memory_in_a_thread_cache_is_returned_too),
        TEST_CASE(a_program_that_slept_returns_memory_at_its_first_call),
        TEST_CASE(a_request_or_a_free_returns_at_most_a_few_chunks),
        TEST_CASE(decay_stops_at_the_release_threshold),
        TEST_CASE(memory_of_pending_work_stays_and_is_not_waited_for),
        TEST_CASE(without_decay_nothing_goes_however_long_it_is_not_used),
        TEST_CASE(the_peak_falls_after_two_windows),
        TEST_CASE(what_is_live_counts_as_a_peak),
        TEST_CASE(the_peak_stays_if_windows_do_not_end),
    };
    static const test_case cases[] = {
        TEST_CASE(memory_without_holds_is_returned),
        TEST_CASE(memory_that_was_in_use_or_made_in_a_window_has_another_one),
        TEST_CASE(what_a_large_block_was_in_has_another_window),
        TEST_CASE(memory_that_comes_and_goes_with_a_shorter_period_stays),
        TEST_CASE(a_period_that_needs_less_comes_to_have_less),
        TEST_CASE(after_a_decay_the_overhead_counts_from_what_is_held),
        TEST_CASE(what_the_driver_does_not_take_back_is_used_and_tried_again),
        TEST_CASE(above_the_threshold_memory_goes_when_all_frees_are_waited_for_and_at_no_other_time),
        TEST_CASE(a_refusal_of_the_driver_is_logged_while_other_threads_trim_the_pool),
    };
    static const char *const without_progress[] = {"pool(chunk=2MiB, decay=0, opportunistic=off)"}; /* the host waits */
    static const test_case that_wait[] = {
        TEST_CASE(chunks_that_a_thread_remaps_are_not_returned_by_another),
        TEST_CASE(chunks_that_a_thread_remaps_do_not_decay),
        TEST_CASE(chunks_that_a_thread_has_made_are_not_returned_by_another),
        TEST_CASE(chunks_that_a_thread_has_made_do_not_decay),
    };
    static const test_case beside_a_thread[] = {TEST_CASE(decay_does_not_wait_for_a_thread_that_has_the_lock)};
    test_before_clearing = lift_limit;
    test_open_driver();
    int failed = test_run_on(all_sources, sizeof all_sources / sizeof all_sources[0], of_any_source,
                             sizeof of_any_source / sizeof of_any_source[0]);
    if (!test_is_swept())
        failed += test_run_on(all_sources, sizeof all_sources / sizeof all_sources[0], beside_a_thread, 1);
    return failed + test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]) +
           test_run_on(without_progress, 1, that_wait, sizeof that_wait / sizeof that_wait[0]);
}
