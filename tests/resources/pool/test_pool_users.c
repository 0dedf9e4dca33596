/* Promises to users of pools: a request that fits is served somehow, no request waits for other streams where there is
 * another way, and assertions from the tests of other pools. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "core/streams/stream_map.h"
#include "resources/pool/thread_cache.h"
#include "runtime/runtime.h"
#include "support/child.h"
#include "support/effort.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

/* ---- requests that fit ---- */

static void usage_says_what_is_live_free_and_in_one_extent(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 2 * ALL);
    strata_block blocks[4];
    for (size_t i = 0; i < 4; i++)
        blocks[i] = test_allocate(fixture, ALL / 4, stream);
    test_free_on(fixture, &blocks[0], stream);
    test_free_on(fixture, &blocks[2], stream);
    strata_usage usage = test_usage(fixture);
    assert_int_equal(usage.live_bytes, ALL / 2);
    assert_int_equal(usage.live_blocks, 2);
    assert_true(usage.reserved_bytes >= ALL);
    assert_int_equal(usage.reserved_free, usage.reserved_bytes - ALL / 2);
    assert_int_equal(usage.limit, 2 * ALL);
    check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, NULL)); /* empties the caches */
    usage = test_usage(fixture);
    assert_true(usage.largest_free >= ALL / 4 && usage.largest_free < ALL / 2 + 4 * MIB);
    test_free_on(fixture, &blocks[1], stream);
    test_free_on(fixture, &blocks[3], stream);
}

/* Takes the device's memory except so much, in one piece. */
static CUdeviceptr take_all_but(size_t left)
{
    size_t free_bytes, total;
    CUdeviceptr address;
    check_cu(test_cu()->MemGetInfo(&free_bytes, &total));
    check_cu(test_cu()->MemAlloc(&address, free_bytes - left));
    return address;
}

static void a_request_that_fits_is_served_though_no_more_than_that_is_left(test_fixture *fixture)
{
    test_needs_simulated_driver("all of the device's memory is used");
    if (test_under_valgrind()) /* which lacks the addresses, also for a later pool */
        skip();
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block large = test_allocate(fixture, 1024 * MIB, stream); /* enough to grow by more than requested */
    CUdeviceptr others = take_all_but(4 * MIB);
    strata_block small, more;
    strata_status fits = try_to_allocate(fixture, 3 * MIB, stream, &small);
    strata_status does_not = try_to_allocate(fixture, 3 * MIB, stream, &more);
    check_cu(test_cu()->MemFree(others));
    check_ok(fits);
    assert_int_equal(does_not, STRATA_ERROR_OUT_OF_MEMORY);
    test_free_on(fixture, &small, stream);
    test_free_on(fixture, &large, stream);
    empty_the_pool(fixture);
}

/* Free extents of another stream between live blocks, none large enough: together they are. */
static void a_request_that_fits_in_all_is_served_by_remapped_memory(test_fixture *fixture)
{
    enum { EXTENTS = 6 };
    strata_block gaps[EXTENTS], walls[EXTENTS];
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, EXTENTS * 6 * MIB);
    for (size_t i = 0; i < EXTENTS; i++) {
        gaps[i] = test_allocate(fixture, 4 * MIB, a);
        walls[i] = test_allocate(fixture, 2 * MIB, a);
        test_write(fixture, &walls[i], (unsigned char)i, a);
    }
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), EXTENTS * 6 * MIB);
    for (size_t i = 0; i < EXTENTS; i++) {
        test_write(fixture, &gaps[i], 0x99, a);
        test_free_on(fixture, &gaps[i], a);
    }
    strata_block block = test_allocate(fixture, EXTENTS * 4 * MIB, b);
    test_write(fixture, &block, 0x44, b);
    check_ends(fixture, &block, 0x44, b);
    for (size_t i = 0; i < EXTENTS; i++) {
        check_ends(fixture, &walls[i], (unsigned char)i, a);
        test_free_on(fixture, &walls[i], a);
    }
    test_free_on(fixture, &block, b);
}

static void a_request_that_cannot_be_served_waits_for_no_stream(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 2 * ALL);
    strata_block wall = test_allocate(fixture, ALL, a);
    strata_block gap = test_allocate(fixture, ALL, a);
    test_stall *stall = test_stall_begin(a);
    test_free_on(fixture, &gap, a);
    test_calls calls;
    test_calls_begin(&calls);
    check_refused(fixture, ALL + MIB, b);
    assert_int_equal(test_calls_of(&calls, "cuEventSynchronize"), 0);
    test_stall_end(stall);
    test_free_on(fixture, &wall, a);
}

/* The device has enough: no request waits for the stalled stream. */
static void a_request_that_new_memory_serves_waits_for_no_stream(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    strata_block gap = test_allocate(fixture, 4 * ALL, a);
    strata_block wall = test_allocate(fixture, 4 * ALL, a);
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &gap, 0x11, a);
    test_free_on(fixture, &gap, a);
    test_calls calls;
    test_calls_begin(&calls);
    strata_block block = test_allocate(fixture, 5 * ALL, b);
    test_write(fixture, &block, 0x22, b);
    test_synchronize(b);
    assert_int_equal(test_calls_of(&calls, "cuEventSynchronize"), 0);
    test_stall_end(stall);
    check_ends(fixture, &block, 0x22, b);
    test_free_on(fixture, &wall, a);
    test_free_on(fixture, &block, b);
}

/* The memory of a freed block is joined with its neighbours, split, returned, and mapped again. */
static void a_stale_block_is_recognised_whatever_became_of_its_memory(test_fixture *fixture)
{
    enum { PARTS = 8 };
    strata_block parts[PARTS], others[PARTS];
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, ALL);
    for (size_t i = 0; i < PARTS; i++)
        parts[i] = test_allocate(fixture, ALL / PARTS, a);
    for (size_t i = 0; i < PARTS; i++)
        test_free_on(fixture, &parts[i], i % 2 ? a : b);
    strata_block block = test_allocate(fixture, ALL, b);
    for (int ticket = 0; ticket < 3; ticket++) {
        for (size_t i = 0; i < PARTS; i++) {
            assert_int_not_equal(strata_runtime_block_state(fixture->runtime, parts[i].id), STRATA_BLOCK_LIVE);
            check_status(strata_runtime_deallocate_on(fixture->runtime, &parts[i], a), STRATA_ERROR_DOUBLE_FREE);
            check_status(strata_runtime_prepare_block_use(fixture->runtime, &parts[i], a, STRATA_ACCESS_READ),
                         STRATA_ERROR_USE_AFTER_FREE);
        }
        assert_int_equal(strata_runtime_block_state(fixture->runtime, block.id), STRATA_BLOCK_LIVE);
        test_free_on(fixture, &block, b);
        if (ticket == 0)
            empty_the_pool(fixture);
        for (size_t i = 0; i < PARTS; i++)
            others[i] = test_allocate(fixture, ALL / PARTS / (i + 1), b);
        for (size_t i = 0; i < PARTS; i++)
            test_free_on(fixture, &others[i], b);
        block = test_allocate(fixture, ALL, b);
    }
    test_free_on(fixture, &block, b);
}

typedef struct leaver {
    test_fixture *fixture;
    CUstream stream;
    size_t bytes;
    strata_block block;
    strata_status status;
} leaver;

static void *leave_behind_in_a_thread(void *data)
{
    leaver *self = data;
    test_make_current();
    for (size_t i = 0; i < 8; i++) {
        self->status = try_to_allocate(self->fixture, self->bytes, self->stream, &self->block);
        if (self->status != STRATA_SUCCESS)
            return NULL;
        test_cu()->MemsetD8Async(self->block.address, 0x11, EDGE, self->stream);
        strata_runtime_record_block_use(self->fixture->runtime, &self->block, self->stream, STRATA_ACCESS_WRITE);
        self->status = strata_runtime_deallocate(self->fixture->runtime, &self->block);
    }
    return NULL;
}

/* Other threads get what ended threads have cached, in order. */
static void memory_of_ended_threads_is_neither_lost_nor_reused_too_early(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, ALL);
    leave_behind(fixture, ALL, 0x10, a); /* comes in one extent */
    test_stall *stall = test_stall_begin(a);
    for (size_t i = 0; i < 8; i++) {
        leaver one = {.fixture = fixture, .stream = a, .bytes = (i + 1) * EDGE};
        pthread_t thread;
        assert_int_equal(pthread_create(&thread, NULL, leave_behind_in_a_thread, &one), 0);
        pthread_join(thread, NULL);
        check_ok(one.status);
    }
    strata_block block = test_allocate(fixture, ALL, b);
    test_write(fixture, &block, 0x22, b);
    test_stall_end(stall);
    check_ends(fixture, &block, 0x22, b);
    test_free_on(fixture, &block, b);
}

/* The second of an extent's new owners is stalled: the third need not wait for it. */
static void streams_that_share_an_extent_do_not_wait_for_each_other(test_fixture *fixture)
{
    set_limit(fixture, ALL);
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    leave_behind(fixture, ALL, 0x11, a);
    strata_block first = test_allocate(fixture, ALL / 4, b);
    test_stall *stall = test_stall_begin(b);
    test_write(fixture, &first, 0x22, b);
    strata_block second = test_allocate(fixture, ALL / 4, c);
    test_write(fixture, &second, 0x33, c);
    test_synchronize(c);
    test_stall_end(stall);
    check_ends(fixture, &first, 0x22, b);
    check_ends(fixture, &second, 0x33, c);
    test_free_on(fixture, &first, b);
    test_free_on(fixture, &second, c);
}

/* ---- between two steps of a request ---- */

enum { STREAMS = 400 };

static struct {
    test_fixture *fixture;
    bool armed; /* for once */
    bool good;
    strata_timeline *timeline; /* another stream will have it */
    strata_block block;        /* that stream's write and free */
    CUstream streams[STREAMS];
} between;

static bool write_and_free(CUstream stream)
{
    strata_runtime *runtime = between.fixture->runtime;
    test_stall_begin(stream);
    if (strata_runtime_prepare_block_use(runtime, &between.block, stream, STRATA_ACCESS_WRITE) != STRATA_SUCCESS)
        return false;
    test_fill(between.block.address, 0x22, between.block.bytes, stream);
    return strata_runtime_finish_block_use(runtime, &between.block, stream, STRATA_ACCESS_WRITE) == STRATA_SUCCESS &&
           strata_runtime_deallocate_on(runtime, &between.block, stream) == STRATA_SUCCESS;
}

static void *take_timeline_over(void *data)
{
    (void)data;
    test_make_current();
    for (size_t i = 0; i < STREAMS; i++) {
        strata_stream_ref ref;
        if (strata_stream_resolve(between.fixture->runtime->device, between.streams[i], &ref) != STRATA_SUCCESS)
            return NULL;
        if (ref.timeline != between.timeline)
            continue;
        between.good = write_and_free(between.streams[i]);
        return NULL;
    }
    return NULL;
}

void __real_pool_thread_caches_flush(pool *self);
void __wrap_pool_thread_caches_flush(pool *self);

/* The request's stream is resolved, its memory not found yet. */
void __wrap_pool_thread_caches_flush(pool *self)
{
    pthread_t thread;
    if (between.armed) {
        between.armed = false;
        if (pthread_create(&thread, NULL, take_timeline_over, NULL) == 0)
            pthread_join(thread, NULL);
    }
    __real_pool_thread_caches_flush(self);
}

/* The stream has no pending work when it is resolved, so another stream may get its timeline. That stream's memory is
 * then not the first one's, although it looks so. */
static void a_stream_that_lost_its_timeline_waits_for_memory_of_its_new_owner(test_fixture *fixture)
{
    strata_stream_ref ref;
    strata_block block;
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), timeline = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, ALL);
    between.fixture = fixture;
    between.block = test_allocate(fixture, ALL, timeline);
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamCreate(&between.streams[i], CU_STREAM_NON_BLOCKING));
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    between.timeline = ref.timeline;
    between.good = false;
    between.armed = true;
    strata_status status = try_to_allocate(fixture, ALL, stream, &block);
    between.armed = false;
    assert_true(between.good);
    check_ok(status);
    test_write(fixture, &block, 0x33, stream);
    test_stall_end_all();
    check_ends(fixture, &block, 0x33, stream);
    test_free_on(fixture, &block, stream);
    for (size_t i = 0; i < STREAMS; i++)
        check_cu(test_cu()->StreamDestroy(between.streams[i]));
}

/* ---- a free on a stream that follows others ---- */

static struct {
    strata_runtime *runtime;
    bool armed; /* for once */
    bool good;
    CUstream freeing, other;
    strata_block of_freeing, of_reader; /* their last writes */
} meanwhile;

static bool make_wait_for(CUstream stream, const strata_block *block)
{
    return strata_runtime_prepare_block_use(meanwhile.runtime, block, stream, STRATA_ACCESS_READ) == STRATA_SUCCESS &&
           strata_runtime_finish_block_use(meanwhile.runtime, block, stream, STRATA_ACCESS_NONE) == STRATA_SUCCESS;
}

/* Another thread records an event on the freeing stream, and then makes it wait for the reader. */
static void *make_the_freeing_stream_follow(void *data)
{
    (void)data;
    test_make_current();
    meanwhile.good =
        make_wait_for(meanwhile.other, &meanwhile.of_freeing) && make_wait_for(meanwhile.freeing, &meanwhile.of_reader);
    return NULL;
}

strata_clock *__real_strata_timeline_clock(const strata_stream_ref *stream, bool held);
strata_clock *__wrap_strata_timeline_clock(const strata_stream_ref *stream, bool held);

strata_clock *__wrap_strata_timeline_clock(const strata_stream_ref *stream, bool held)
{
    pthread_t thread;
    if (meanwhile.armed && stream->handle == meanwhile.freeing) {
        meanwhile.armed = false;
        if (pthread_create(&thread, NULL, make_the_freeing_stream_follow, NULL) == 0)
            pthread_join(thread, NULL);
    }
    return __real_strata_timeline_clock(stream, held);
}

/* The freeing stream begins to wait for another during the free: the event from before does not cover that. */
static void memory_waits_for_what_its_freeing_stream_began_to_wait_for_during_the_free(test_fixture *fixture)
{
    CUstream freeing = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream taker = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 3 * ALL);
    meanwhile.runtime = fixture->runtime;
    meanwhile.freeing = freeing;
    meanwhile.other = test_stream(fixture, TEST_STREAM_POOL);
    meanwhile.of_freeing = test_allocate(fixture, ALL / 2, freeing);
    meanwhile.of_reader = test_allocate(fixture, ALL / 2, reader);
    strata_block rest = test_allocate(fixture, ALL, taker), block = test_allocate(fixture, ALL, freeing), taken;
    write_head(fixture, &block, 0x11, freeing);
    test_synchronize(freeing);
    test_stall *stall = test_stall_begin(reader);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, reader, STRATA_ACCESS_READ));
    const unsigned char *read = test_copy_back(fixture, block.address, EDGE, reader);
    check_ok(strata_runtime_finish_block_use(fixture->runtime, &block, reader, STRATA_ACCESS_READ));
    write_head(fixture, &meanwhile.of_reader, 0x02, reader);
    write_head(fixture, &meanwhile.of_freeing, 0x01, freeing); /* later than the reader's wait */
    meanwhile.good = false;
    meanwhile.armed = true;
    test_free_on(fixture, &block, freeing);
    assert_true(!meanwhile.armed && meanwhile.good);
    test_synchronize(meanwhile.other); /* the event from before is complete */
    check_ok(try_to_allocate(fixture, ALL, taker, &taken));
    assert_true(overlap(&block, &taken));
    test_fill(taken.address, 0x22, taken.bytes, taker);
    check_ok(strata_runtime_record_block_use(fixture->runtime, &taken, taker, STRATA_ACCESS_WRITE));
    test_stall_end(stall);
    check_bytes(read, 0x11, EDGE);
    test_free_on(fixture, &taken, taker);
    test_free_on(fixture, &rest, taker);
    test_free_on(fixture, &meanwhile.of_freeing, freeing);
    test_free_on(fixture, &meanwhile.of_reader, reader);
}

/* ---- a thread's cache for an unknown stream ---- */

enum { KEPT = 64 << 10 };

/* One allocation and one free, on a stream with cached memory. */
static void memory_that_was_freed_on_an_unknown_stream_serves_its_next_request_without_an_event(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
    test_calls calls;
    strata_block first = leave_behind(fixture, KEPT, 0x11, stream);
    const uint64_t hits = value_of(fixture->runtime, "pool.hits");
    test_calls_begin(&calls);
    strata_block block = test_allocate(fixture, KEPT, stream);
    assert_int_equal(block.address, first.address);
    assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1);
    assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 1);
    assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 0);
    test_calls_begin(&calls);
    test_free_on(fixture, &block, stream);
    assert_int_equal(test_calls_of(&calls, "cuStreamIsCapturing"), 1);
    assert_int_equal(test_calls_of(&calls, "cuStreamGetId"), 1);
    assert_int_equal(test_calls_of(&calls, "cuEventRecord"), 1);
    assert_int_equal(value_of(fixture->runtime, "pool.hits"), hits + 1);
}

/* The block's memory still waits for the work of the block before; with `look`, the stream's last event is polled in
 * between, so later work needs another one. */
static void take_and_pass_on(test_fixture *fixture, bool found)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block beside = test_allocate(fixture, KEPT, stream);
    leave_behind(fixture, 2 * KEPT, 0x10, stream);
    strata_block before = test_allocate(fixture, 2 * KEPT, stream);
    test_stall *stall = test_stall_begin(stream);
    test_fill(before.address, 0x11, 2 * KEPT, stream); /* on its own stream, so only the free records it */
    if (found)
        test_write(fixture, &beside, 0x12, stream);
    test_free_on(fixture, &before, stream);
    if (found)
        read_head(fixture, &beside, other);
    strata_block block = test_allocate(fixture, 2 * KEPT, stream);
    assert_int_equal(block.address, before.address);
    test_write(fixture, &block, 0x22, other);
    test_stall_end(stall);
    check_ends(fixture, &block, 0x22, other);
    test_free_on(fixture, &block, other);
    test_free_on(fixture, &beside, stream);
    test_stream_close(fixture, stream);
    test_stream_close(fixture, other);
}

static void a_block_of_kept_memory_that_goes_to_another_stream_waits_for_the_block_before_it(test_fixture *fixture)
{
    take_and_pass_on(fixture, false);
    take_and_pass_on(fixture, true);
}

/* The stream has cached memory of that size, and is not ordered after the stream that wrote this block. */
static void memory_that_another_stream_wrote_is_waited_for_by_the_unknown_one_that_freed_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), writer = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, KEPT, writer);
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    leave_behind(fixture, KEPT, 0x11, stream);
    test_stall *stall = test_stall_begin(writer);
    test_write(fixture, &block, 0x22, writer);
    test_free_on(fixture, &block, stream);
    strata_block rest = test_allocate(fixture, KEPT, stream), again;
    check_ok(try_to_allocate(fixture, KEPT, stream, &again));
    test_write(fixture, &rest, 0x33, stream);
    test_write(fixture, &again, 0x33, stream);
    test_stall_end(stall);
    check_ends(fixture, &rest, 0x33, stream);
    check_ends(fixture, &again, 0x33, stream);
    test_free_on(fixture, &rest, stream);
    test_free_on(fixture, &again, stream);
}

/* Unrecorded work of the freeing stream before the free may use the memory. */
static void memory_that_was_freed_on_another_stream_waits_for_that_one_too(test_fixture *fixture)
{
    CUstream timeline = test_stream(fixture, TEST_STREAM_POOL), stream = test_stream(fixture, TEST_STREAM_POOL);
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, KEPT, timeline);
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    strata_block rest = test_allocate(fixture, value_of(fixture->runtime, "pool.free.largest"), other);
    test_write(fixture, &block, 0x11, timeline);
    test_synchronize(timeline);
    test_stall *stall = test_stall_begin(stream);
    const unsigned char *seen = test_copy_back(fixture, block.address, EDGE, stream);
    test_free_on(fixture, &block, stream);
    strata_block again = test_allocate(fixture, KEPT, other);
    assert_true(again.address == block.address);
    test_write(fixture, &again, 0x22, other);
    test_stall_end(stall);
    check_bytes(seen, 0x11, EDGE);
    test_free_on(fixture, &again, other);
    test_free_on(fixture, &rest, other);
}

/* Two points are of its own stream, and there is a third. */
static void memory_that_its_stream_frees_waits_for_other_readers(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, KEPT, stream), mark = test_allocate(fixture, KEPT, stream);
    set_limit(fixture, value_of(fixture->runtime, "pool.reserved"));
    strata_block rest = test_allocate(fixture, value_of(fixture->runtime, "pool.free.largest"), stream);
    test_write(fixture, &block, 0x11, stream);
    write_head(fixture, &mark, 0x11, stream);
    read_head(fixture, &mark, test_stream(fixture, TEST_STREAM_POOL)); /* the stream's next use is another point */
    read_head(fixture, &block, stream);
    test_synchronize(stream);
    test_stall *stall = test_stall_begin(other);
    const unsigned char *seen = test_read(fixture, &block, other);
    test_free_on(fixture, &block, stream);
    strata_block again = test_allocate(fixture, KEPT, stream);
    assert_true(again.address == block.address);
    test_write(fixture, &again, 0x22, stream);
    test_stall_end(stall);
    check_bytes(seen, 0x11, KEPT);
    test_free_on(fixture, &again, stream);
    test_free_on(fixture, &rest, stream);
    test_free_on(fixture, &mark, stream);
}

/* Two streams that share a place in a thread's cache. */
static void find_neighbours(test_fixture *fixture, CUstream found[2])
{
    CUstream streams[POOL_STREAM_CACHES + 1], by_place[POOL_STREAM_CACHES] = {NULL};
    found[0] = NULL;
    for (size_t i = 0; i < POOL_STREAM_CACHES + 1 && !found[0]; i++) {
        strata_stream_ref ref;
        streams[i] = test_stream(fixture, TEST_STREAM_POOL);
        check_ok(strata_stream_resolve(fixture->runtime->device, streams[i], &ref));
        CUstream *place = &by_place[ref.timeline->number % POOL_STREAM_CACHES];
        found[0] = *place;
        found[1] = *place = streams[i];
    }
    assert_non_null(found[0]);
}

/* What a thread cached for the first stream is not passed on with the place. */
static void
a_stream_that_takes_anothers_place_gets_nothing_of_what_was_kept_for_that_without_a_wait(test_fixture *fixture)
{
    CUstream streams[2];
    find_neighbours(fixture, streams);
    strata_block block = test_allocate(fixture, KEPT, streams[0]);
    test_stall *stall = test_stall_begin(streams[0]);
    test_write(fixture, &block, 0x11, streams[0]);
    test_free_on(fixture, &block, streams[0]);
    leave_behind(fixture, 2 * KEPT, 0x22, streams[1]);
    strata_block other = test_allocate(fixture, KEPT, streams[1]);
    test_write(fixture, &other, 0x33, streams[1]);
    test_stall_end(stall);
    check_ends(fixture, &other, 0x33, streams[1]);
    test_free_on(fixture, &other, streams[1]);
}

enum { PASSERS_BY = 100 }; /* enough to forget facts of idle streams */

/* They take over caches of threads, or with `only_seen` use no memory. */
static void let_streams_pass_by(test_fixture *fixture, bool only_seen)
{
    for (size_t i = 0; i < PASSERS_BY; i++) {
        strata_stream_ref ref;
        CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
        if (only_seen)
            check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
        else
            leave_behind(fixture, KEPT, 0x33, stream);
        test_synchronize(stream);
        test_stream_close(fixture, stream);
    }
}

/* The stream has no pending work, but a live block of cached memory. */
static void a_block_of_cached_memory_belongs_to_its_stream(test_fixture *fixture)
{
    for (int only_seen = 0; only_seen < 2; only_seen++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN);
        leave_behind(fixture, KEPT, 0x11, stream);
        strata_block block = test_allocate(fixture, KEPT, stream);
        test_synchronize(stream);
        let_streams_pass_by(fixture, only_seen);
        check_ok(strata_runtime_register_stream(fixture->runtime, stream));
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        check_ok(strata_runtime_unregister_stream(fixture->runtime, stream));
        test_stream_close(fixture, stream);
    }
}

/* The pool, and its blocks, hold timelines of streams until they are gone. */
static void streams_are_forgotten_after_the_pool_that_cached_their_memory(test_fixture *fixture)
{
    test_needs_truthful_queries();
    CUstream stream = test_stream(fixture, TEST_STREAM_UNKNOWN), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_runtime *runtime;
    strata_stream_ref ref;
    strata_block blocks[3];
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    for (int again = 0; again < 2; again++) {
        for (size_t i = 0; i < 3; i++)
            check_ok(strata_runtime_allocate(runtime, KEPT, stream, &blocks[i]));
        check_ok(strata_runtime_deallocate_on(runtime, &blocks[0], stream));
        check_ok(strata_runtime_deallocate_on(runtime, &blocks[1], other));
        check_ok(strata_runtime_deallocate_on(runtime, &blocks[2], stream));
    }
    check_ok(strata_stream_resolve(fixture->runtime->device, stream, &ref));
    assert_int_equal(ref.timeline->holders, 1);
    check_ok(strata_runtime_destroy(runtime));
    assert_int_equal(ref.timeline->holders, 0);
    assert_int_equal(ref.timeline->live_blocks, 0);
}

/* ---- assertions of another pool's tests ---- */

static size_t free_on_device(void)
{
    size_t free_bytes, total;
    check_cu(test_cu()->MemGetInfo(&free_bytes, &total));
    return free_bytes;
}

static void ninety_percent_of_the_device_can_be_had_in_one_block(test_fixture *fixture)
{
    strata_block block = test_allocate(fixture, free_on_device() / 10 * 9, NULL);
    test_fill(block.address, 0x11, EDGE, NULL);
    test_fill(block.address + block.bytes - EDGE, 0x11, EDGE, NULL);
    check_ends(fixture, &block, 0x11, NULL);
    test_free_on(fixture, &block, NULL);
    empty_the_pool(fixture);
}

static void two_blocks_of_half_the_limit_fit(test_fixture *fixture)
{
    const size_t quarter = (free_on_device() / 4) & ~(2 * MIB - 1);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 2 * quarter);
    for (int ticket = 0; ticket < 2; ticket++) {
        strata_block one = test_allocate(fixture, quarter, stream), two = test_allocate(fixture, quarter, NULL);
        check_refused(fixture, 1, stream);
        test_free_on(fixture, &one, stream);
        test_free_on(fixture, &two, NULL);
    }
}

/* The sizes of the other pool's test, in units of 2 KiB. */
static void a_refused_request_does_not_poison_the_pool(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[5];
    const size_t unit = 2048;
    set_limit(fixture, 12 * MIB);
    blocks[0] = test_allocate(fixture, 1000 * unit, stream);
    blocks[1] = test_allocate(fixture, 4000 * unit, stream);
    blocks[2] = test_allocate(fixture, 500 * unit, stream);
    check_refused(fixture, 2000 * unit, stream);
    test_free_on(fixture, &blocks[2], stream);
    set_limit(fixture, 16 * MIB);
    blocks[2] = test_allocate(fixture, 1000 * unit, stream);
    check_refused(fixture, 4000 * unit, stream);
    blocks[3] = test_allocate(fixture, 500 * unit, stream);
    blocks[4] = test_allocate(fixture, 1000 * unit, stream);
    for (size_t i = 0; i < 5; i++)
        test_free_on(fixture, &blocks[i], stream);
    strata_block all = test_allocate(fixture, 16 * MIB, stream);
    test_free_on(fixture, &all, stream);
}

static void memory_of_a_destroyed_stream_serves_the_next_request(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_UNKNOWN, TEST_STREAM_REGISTERED};
    for (size_t i = 0; i < 2; i++) {
        CUstream gone = test_stream(fixture, kinds[i]), stream = test_stream(fixture, TEST_STREAM_POOL);
        leave_behind(fixture, ALL, 0x11, gone);
        const uint64_t reserved = value_of(fixture->runtime, "pool.reserved");
        test_stream_close(fixture, gone);
        strata_block block = test_allocate(fixture, ALL, stream);
        test_write(fixture, &block, 0x22, stream);
        assert_int_equal(value_of(fixture->runtime, "pool.reserved"), reserved);
        check_ends(fixture, &block, 0x22, stream);
        test_free_on(fixture, &block, stream);
        test_stream_close(fixture, stream);
    }
}

static void a_limit_is_kept_to_the_byte_and_the_refusal_names_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, 1000192);
    check_refused(fixture, 1000192, stream);
    check_last_error(STRATA_ERROR_OUT_OF_MEMORY, "limit 977 KiB (1000192 bytes)");
    check_refused(fixture, 1, stream);
    set_limit(fixture, 2 * MIB + 1000192);
    strata_block block = test_allocate(fixture, 2 * MIB, stream);
    check_refused(fixture, 512, stream);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), 2 * MIB);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved.peak"), 2 * MIB);
    test_free_on(fixture, &block, stream);
    block = test_allocate(fixture, 512, stream);
    test_free_on(fixture, &block, stream);
}

static void a_request_for_no_memory_that_there_is_changes_nothing(test_fixture *fixture)
{
    static const size_t sizes[] = {(size_t)1 << 50, SIZE_MAX, SIZE_MAX - 511, SIZE_MAX / 2};
    CUstream streams[] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_UNKNOWN), NULL};
    leave_behind(fixture, ALL, 0x11, streams[0]);
    const strata_usage before = test_usage(fixture);
    for (size_t i = 0; i < 3; i++)
        for (size_t j = 0; j < sizeof sizes / sizeof sizes[0]; j++)
            check_refused(fixture, sizes[j], streams[i]);
    assert_true(test_usage(fixture).live_bytes == before.live_bytes);
    assert_true(test_usage(fixture).reserved_bytes <= before.reserved_bytes);
}

static void take_memory_of_two_devices(void)
{
    strata_driver_info info;
    strata_runtime *runtimes[2];
    strata_block blocks[2][8];
    child_ok(strata_driver_get_info(&info));
    if (info.device_count < 2)
        exit(77);
    for (int device = 0; device < 2; device++)
        child_ok(
            strata_runtime_create(&(strata_runtime_config){.device = device, .stack_text = "pool"}, &runtimes[device]));
    for (size_t i = 0; i < 8; i++)
        for (int device = 0; device < 2; device++) {
            child_ok(strata_runtime_allocate(runtimes[device], (i + 1) * MIB, NULL, &blocks[device][i]));
            child_check(blocks[device][i].device == device);
        }
    child_status(strata_runtime_deallocate_on(runtimes[0], &blocks[1][0], NULL), STRATA_ERROR_FOREIGN_POINTER);
    for (size_t i = 0; i < 8; i++)
        for (int device = 0; device < 2; device++)
            child_ok(strata_runtime_deallocate_on(runtimes[device], &blocks[device][i], NULL));
    for (int device = 0; device < 2; device++) {
        child_ok(strata_runtime_trim(runtimes[device], 0, NULL));
        child_check(strata_runtime_bytes_outstanding(runtimes[device]) == 0);
        child_ok(strata_runtime_destroy(runtimes[device]));
    }
}

static void pools_of_two_devices_are_two_pools(void **state)
{
    (void)state;
    static const char *const changes[] = {"STRATA_SIM_DEVICES=2", NULL};
    if (test_under_valgrind()) /* which lacks the addresses for two */
        skip();
    test_child_run("take_memory_of_two_devices", changes);
}

enum { THREADS = 4200 }; /* more than have a number of their own at a time */

static pthread_barrier_t all_there;

static void *live_at_the_same_time(void *data)
{
    strata_runtime *runtime = data;
    strata_block block;
    strata_status status = strata_runtime_allocate(runtime, EDGE, NULL, &block);
    pthread_barrier_wait(&all_there);
    return (void *)(uintptr_t)(status == STRATA_SUCCESS ? strata_runtime_deallocate_on(runtime, &block, NULL) : status);
}

/* Threads beyond those with numbers are served and counted too. */
static void serve_more_threads_than_have_numbers(void)
{
    static pthread_t threads[THREADS];
    strata_runtime *runtime;
    pthread_attr_t small;
    size_t count = 0;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = "pool"}, &runtime));
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, 64 << 10);
    pthread_barrier_init(&all_there, NULL, THREADS + 1);
    for (; count < THREADS; count++)
        if (pthread_create(&threads[count], &small, live_at_the_same_time, runtime) != 0)
            test_child_leave(77);
    pthread_barrier_wait(&all_there);
    for (size_t i = 0; i < THREADS; i++) {
        void *status;
        pthread_join(threads[i], &status);
        child_ok((strata_status)(uintptr_t)status);
    }
    child_check(strata_runtime_bytes_outstanding(runtime) == 0);
    child_ok(strata_runtime_destroy(runtime));
}

static void more_threads_than_have_numbers_are_served(void **state)
{
    (void)state;
#if defined(__SANITIZE_THREAD__)
    skip(); /* too many threads for it, and for Valgrind */
#endif
    if (test_under_valgrind())
        skip();
    test_child_run("serve_more_threads_than_have_numbers", NULL);
}

/* For any number of streams with pending work. */
static void a_full_reap_waits_for_every_stream(test_fixture *fixture)
{
    test_needs_truthful_queries();
    enum { MANY = 150, SMALL = 4096 };
    CUstream streams[MANY];
    for (int i = 0; i < MANY; i++) {
        streams[i] = test_stream(fixture, TEST_STREAM_REGISTERED);
        leave_behind(fixture, SMALL, 0x11, streams[i]);
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    for (int i = 0; i < MANY; i++)
        check_cu(test_cu()->StreamQuery(streams[i]));
}

/* Of extents that wait for the same stream, the one freed last. */
static void a_full_reap_waits_for_the_latest_point_of_a_stream(test_fixture *fixture)
{
    test_needs_truthful_queries();
    enum { SMALL = 64 << 10, BLOCKS = 3 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
    strata_block blocks[BLOCKS]; /* the second one keeps the others apart */
    for (int i = 0; i < BLOCKS; i++) {
        blocks[i] = test_allocate(fixture, SMALL, stream);
        test_write(fixture, &blocks[i], 0x11, stream);
    }
    test_free_on(fixture, &blocks[0], stream);
    test_read(fixture, &blocks[1], reader); /* an event: later work is of the next epoch */
    test_write(fixture, &blocks[2], 0x22, stream);
    test_free_on(fixture, &blocks[2], stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    check_cu(test_cu()->StreamQuery(stream));
    test_free_on(fixture, &blocks[1], reader);
}

int main(int count, char **arguments)
{
    static const test_scenario scenarios[] = {TEST_SCENARIO(take_memory_of_two_devices),
                                              TEST_SCENARIO(serve_more_threads_than_have_numbers)};
    static const char *const stacks[] = {"pool"};
    static const test_case cases[] = {
        TEST_CASE(usage_says_what_is_live_free_and_in_one_extent),
        TEST_CASE(a_request_that_fits_is_served_though_no_more_than_that_is_left),
        TEST_CASE(a_request_that_fits_in_all_is_served_by_remapped_memory),
        TEST_CASE(a_request_that_cannot_be_served_waits_for_no_stream),
        TEST_CASE(a_request_that_new_memory_serves_waits_for_no_stream),
        TEST_CASE(a_stale_block_is_recognised_whatever_became_of_its_memory),
        TEST_CASE(streams_that_share_an_extent_do_not_wait_for_each_other),
        TEST_CASE(a_stream_that_lost_its_timeline_waits_for_memory_of_its_new_owner),
        TEST_CASE(memory_waits_for_what_its_freeing_stream_began_to_wait_for_during_the_free),
        TEST_CASE(memory_that_was_freed_on_an_unknown_stream_serves_its_next_request_without_an_event),
        TEST_CASE(memory_that_another_stream_wrote_is_waited_for_by_the_unknown_one_that_freed_it),
        TEST_CASE(memory_that_its_stream_frees_waits_for_other_readers),
        TEST_CASE(a_stream_that_takes_anothers_place_gets_nothing_of_what_was_kept_for_that_without_a_wait),
        TEST_CASE(memory_that_was_freed_on_another_stream_waits_for_that_one_too),
        TEST_CASE(a_block_of_kept_memory_that_goes_to_another_stream_waits_for_the_block_before_it),
        TEST_CASE(a_block_of_cached_memory_belongs_to_its_stream),
        TEST_CASE(streams_are_forgotten_after_the_pool_that_cached_their_memory),
        TEST_CASE(ninety_percent_of_the_device_can_be_had_in_one_block),
        TEST_CASE(two_blocks_of_half_the_limit_fit),
        TEST_CASE(a_refused_request_does_not_poison_the_pool),
        TEST_CASE(memory_of_a_destroyed_stream_serves_the_next_request),
        TEST_CASE(a_limit_is_kept_to_the_byte_and_the_refusal_names_it),
        TEST_CASE(a_request_for_no_memory_that_there_is_changes_nothing),
        TEST_CASE(memory_of_ended_threads_is_neither_lost_nor_reused_too_early),
        TEST_CASE(a_full_reap_waits_for_every_stream),
        TEST_CASE(a_full_reap_waits_for_the_latest_point_of_a_stream),
    };
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(pools_of_two_devices_are_two_pools),
        cmocka_unit_test(more_threads_than_have_numbers_are_served),
    };
    setenv("STRATA_DRIVER", "auto", 0);
    test_child_begin(count, arguments, scenarios, sizeof scenarios / sizeof scenarios[0]);
    test_before_clearing = lift_limit;
    test_open_driver();
    int failed = test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
    return failed + (test_is_swept() ? 0 : cmocka_run_group_tests(tests, NULL, NULL));
}
