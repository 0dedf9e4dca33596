/* Known weaknesses of pools of GPU memory: each one that another pool has shown is a test here, named for what holds
 * instead, in the order of the list of known weaknesses. The second, a lock held over driver calls, is in
 * test_pool_hits.c; promises to users are in test_pool_users.c. */
#include <pthread.h>
#include <time.h>

#include "support/captures.h"
#include "support/effort.h"
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/refusals.h"
#include "support/sweep.h"

/* ---- 1: memory keeps its points ---- */

static const test_stream_kind kinds_of_three[][3] = {
    {TEST_STREAM_POOL, TEST_STREAM_POOL, TEST_STREAM_POOL},
    {TEST_STREAM_UNKNOWN, TEST_STREAM_UNKNOWN, TEST_STREAM_UNKNOWN},
    {TEST_STREAM_POOL, TEST_STREAM_UNKNOWN, TEST_STREAM_REGISTERED},
    {TEST_STREAM_UNKNOWN, TEST_STREAM_LEGACY, TEST_STREAM_POOL},
};

enum { KINDS_OF_THREE = sizeof kinds_of_three / sizeof kinds_of_three[0] };

/* The first stream is stalled with its memory freed. The second one gets it, in part, or by a refused request that only
 * joins extents; then the third one gets it. */
static void through_three(test_fixture *fixture, const test_stream_kind *kinds, bool by_refusal)
{
    CUstream a = test_stream(fixture, kinds[0]), b = test_stream(fixture, kinds[1]), c = test_stream(fixture, kinds[2]);
    strata_block parts[2] = {test_allocate(fixture, ALL / 2, a), test_allocate(fixture, ALL / 2, a)};
    test_stall *stall = test_stall_begin(a);
    test_write(fixture, &parts[0], 0x11, a);
    test_write(fixture, &parts[1], 0x12, a);
    if (by_refusal) {
        test_free_on(fixture, &parts[0], a);
        check_refused(fixture, ALL, b);
        test_free_on(fixture, &parts[1], b);
    } else {
        test_free_on(fixture, &parts[0], a);
        test_free_on(fixture, &parts[1], a);
        strata_block between = test_allocate(fixture, ALL / 4, b), after;
        test_free_on(fixture, &between, b);
        after = test_allocate(fixture, ALL / 4, c);
        assert_true(overlap(&after, &between));
        test_write(fixture, &after, 0x22, c);
        test_free_on(fixture, &after, c);
    }
    strata_block block = test_allocate(fixture, ALL, c);
    test_write(fixture, &block, 0x33, c);
    test_stall_end(stall);
    check_ends(fixture, &block, 0x33, c);
    test_free_on(fixture, &block, c);
    test_stream_close(fixture, a);
    test_stream_close(fixture, b);
    test_stream_close(fixture, c);
    empty_the_pool(fixture);
}

static void memory_that_passes_through_three_streams_waits_for_all_of_them(test_fixture *fixture)
{
    set_limit(fixture, ALL);
    for (size_t i = 0; i < KINDS_OF_THREE; i++)
        through_three(fixture, kinds_of_three[i], false);
}

static void extents_that_a_refused_request_has_joined_wait_for_all_their_streams(test_fixture *fixture)
{
    set_limit(fixture, ALL);
    for (size_t i = 0; i < KINDS_OF_THREE; i++)
        through_three(fixture, kinds_of_three[i], true);
}

/* ---- 3: searches of free memory ---- */

enum { FEW = 64, MANY = 32768, SEARCHES = 2000, HOLE = 512 };

static double cpu_seconds(void)
{
    struct timespec now;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

/* Processor time of requests that no cache serves, with so many free extents that do not touch. */
static double time_searches(test_fixture *fixture, size_t holes, CUstream stream)
{
    static strata_block blocks[2 * MANY];
    double best = 1e9;
    for (size_t i = 0; i < 2 * holes; i++)
        blocks[i] = test_allocate(fixture, HOLE, stream);
    for (size_t i = 0; i < holes; i++)
        test_free_on(fixture, &blocks[2 * i], stream);
    for (int ticket = 0; ticket < 3; ticket++) {
        check_ok(strata_runtime_trim(fixture->runtime, SIZE_MAX, NULL)); /* empties the caches */
        const size_t count = holes < SEARCHES ? holes : SEARCHES;
        const double begin = cpu_seconds();
        for (size_t i = 0; i < count; i++)
            blocks[2 * i] = test_allocate(fixture, HOLE, stream);
        const double each = (cpu_seconds() - begin) / (double)count;
        best = each < best ? each : best;
        for (size_t i = 0; i < count; i++)
            test_free_on(fixture, &blocks[2 * i], stream);
    }
    for (size_t i = 0; i < holes; i++)
        test_free_on(fixture, &blocks[2 * i + 1], stream);
    return best;
}

/* A check of each of them in turn would take 500 times as long. */
static void many_free_extents_are_searched_quickly(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t many = test_is_swept() ? FEW : test_effort(MANY, FEW);
    const double few = time_searches(fixture, FEW, stream), all = time_searches(fixture, many, stream);
    if (all > 40 * few && !test_under_valgrind())
        fail_msg("%zu free pieces: %.0f ns a request, %d: %.0f ns", many, all * 1e9, FEW, few * 1e9);
}

static _Atomic size_t extents_settled;

void __real_pool_points_forget_complete(strata_entry *entry);
void __wrap_pool_points_forget_complete(strata_entry *entry);

void __wrap_pool_points_forget_complete(strata_entry *entry)
{
    atomic_fetch_add(&extents_settled, 1);
    __real_pool_points_forget_complete(entry);
}

/* A request that nothing fits processes completed extents; a stream without progress has none. */
static void extents_of_a_stream_without_progress_are_not_processed_again(test_fixture *fixture)
{
    enum { HOLES = 500, LARGE = 3 << 20 };
    if (test_is_swept())
        return;
    CUstream streams[2] = {test_stream(fixture, TEST_STREAM_POOL), test_stream(fixture, TEST_STREAM_POOL)};
    strata_block walls[HOLES], holes[HOLES], large[3];
    for (size_t i = 0; i < HOLES; i++) {
        holes[i] = test_allocate(fixture, HOLE, streams[0]);
        walls[i] = test_allocate(fixture, HOLE, streams[0]);
    }
    test_stall *stall = test_stall_begin(streams[0]);
    for (size_t i = 0; i < HOLES; i++)
        test_free_on(fixture, &holes[i], streams[0]);
    for (size_t i = 0; i < 3; i++) {
        const uint64_t made = value_of(fixture->runtime, "pool.chunks.made");
        extents_settled = 0;
        large[i] = test_allocate(fixture, LARGE, streams[1]);
        assert_true(value_of(fixture->runtime, "pool.chunks.made") > made); /* nothing fitted */
    }
    const size_t again = extents_settled;
    test_stall_end(stall);
    for (size_t i = 0; i < 3; i++)
        test_free_on(fixture, &large[i], streams[1]);
    for (size_t i = 0; i < HOLES; i++)
        test_free_on(fixture, &walls[i], streams[0]);
    if (again >= HOLES)
        fail_msg("%zu pieces were looked at, %d are free", again, HOLES);
}

/* ---- 4 and 5: waits only where necessary ---- */

static void check_handed_over(test_fixture *fixture, test_stream_kind from, test_stream_kind to)
{
    test_calls calls;
    CUstream a = test_stream(fixture, from), b = test_stream(fixture, to);
    strata_block before = leave_behind(fixture, ALL, 0x11, a);
    check_refused(fixture, 2 * ALL, b); /* records an event of a known stream */
    test_synchronize(a);
    test_calls_begin(&calls);
    strata_block block = test_allocate(fixture, ALL, b);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    assert_int_equal(test_calls_of(&calls, "cuEventSynchronize"), 0);
    assert_int_equal(test_calls_of(&calls, "cuMemMap"), 0);
    assert_true(overlap(&block, &before));
    test_write(fixture, &block, 0x22, b);
    check_ends(fixture, &block, 0x22, b);
    test_free_on(fixture, &block, b);
    test_stream_close(fixture, a);
    test_stream_close(fixture, b);
    empty_the_pool(fixture);
}

static void finished_memory_is_handed_over_without_a_wait(test_fixture *fixture)
{
    test_needs_truthful_queries();
    set_limit(fixture, ALL);
    check_handed_over(fixture, TEST_STREAM_UNKNOWN, TEST_STREAM_POOL);
    check_handed_over(fixture, TEST_STREAM_UNKNOWN, TEST_STREAM_UNKNOWN);
    check_handed_over(fixture, TEST_STREAM_POOL, TEST_STREAM_UNKNOWN);
    check_handed_over(fixture, TEST_STREAM_REGISTERED, TEST_STREAM_POOL);
}

static void memory_that_several_streams_have_finished_with_is_handed_over_without_a_wait(test_fixture *fixture)
{
    test_calls calls;
    test_needs_truthful_queries();
    set_limit(fixture, ALL);
    CUstream a = test_stream(fixture, TEST_STREAM_UNKNOWN), b = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, ALL, a);
    test_write(fixture, &block, 0x11, a);
    read_head(fixture, &block, b);
    test_free_on(fixture, &block, a);
    test_synchronize(a);
    test_synchronize(b);
    test_calls_begin(&calls);
    block = test_allocate(fixture, ALL, c);
    assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
    test_free_on(fixture, &block, c);
}

/* Work that the other stream gets after its free does not concern the memory. */
static void memory_waits_for_what_touched_it_and_not_for_the_streams_later_work(test_fixture *fixture)
{
    set_limit(fixture, ALL);
    CUstream a = test_stream(fixture, TEST_STREAM_UNKNOWN), b = test_stream(fixture, TEST_STREAM_POOL);
    leave_behind(fixture, ALL, 0x11, a);
    test_stall *stall = test_stall_begin(a);
    strata_block block = test_allocate(fixture, ALL, b);
    test_write(fixture, &block, 0x22, b);
    test_synchronize(b); /* never ends if it waits for the stall */
    test_stall_end(stall);
    check_ends(fixture, &block, 0x22, b);
    test_free_on(fixture, &block, b);
}

/* Both of large and of small blocks. */
static void a_request_that_free_memory_serves_makes_no_driver_call(test_fixture *fixture)
{
    enum { LARGE = 40, SMALL = 8, SMALL_BYTES = 1000 << 10 };
    test_calls calls;
    strata_block blocks[SMALL];
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block of_other = test_allocate(fixture, ALL, other), large = test_allocate(fixture, ALL, stream);
    for (int i = 0; i < SMALL; i++)
        blocks[i] = test_allocate(fixture, SMALL_BYTES, stream);
    for (int i = 0; i < SMALL; i++)
        test_free_on(fixture, &blocks[i], stream);
    test_free_on(fixture, &large, stream);
    test_free_on(fixture, &of_other, other);
    test_calls_begin(&calls);
    for (size_t i = 1; i < LARGE; i++) {
        strata_block block = test_allocate(fixture, i * 100000, stream);
        test_free_on(fixture, &block, stream);
    }
    assert_int_equal(test_calls_total(&calls), 0);
}

/* ---- 6: fragments of several streams ---- */

static void neighbours_of_two_streams_come_together(test_fixture *fixture)
{
    set_limit(fixture, ALL);
    CUstream streams[3];
    strata_block parts[4];
    for (size_t i = 0; i < 3; i++)
        streams[i] = test_stream(fixture, i == 1 ? TEST_STREAM_UNKNOWN : TEST_STREAM_POOL);
    for (size_t i = 0; i < 4; i++)
        parts[i] = test_allocate(fixture, ALL / 4, streams[i % 2]);
    test_stall *stalls[2] = {test_stall_begin(streams[0]), test_stall_begin(streams[1])};
    for (size_t i = 0; i < 4; i++) {
        test_write(fixture, &parts[i], (unsigned char)i, streams[i % 2]);
        test_free_on(fixture, &parts[i], streams[i % 2]);
    }
    strata_block block = test_allocate(fixture, ALL, streams[2]);
    test_write(fixture, &block, 0x55, streams[2]);
    test_stall_release(stalls[0]);
    test_stall_end(stalls[1]);
    test_stall_end(stalls[0]);
    check_ends(fixture, &block, 0x55, streams[2]);
    test_free_on(fixture, &block, streams[2]);
}

static void what_is_left_of_a_extent_comes_back_to_it(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, ALL);
    leave_behind(fixture, ALL, 0x11, a);
    strata_block part = test_allocate(fixture, ALL / 4, b); /* the rest still is the first stream's */
    test_free_on(fixture, &part, b);
    strata_block block = test_allocate(fixture, ALL, a);
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), ALL);
    test_free_on(fixture, &block, a);
}

/* The other stream is stalled. A third one's request finds its memory and the first one's, and not enough. */
static void ones_own_memory_does_not_come_to_wait_for_its_neighbours(test_fixture *fixture)
{
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_POOL);
    CUstream c = test_stream(fixture, TEST_STREAM_POOL);
    strata_block parts[4];
    for (size_t i = 0; i < 4; i++)
        parts[i] = test_allocate(fixture, ALL / 4, i % 2 ? b : a);
    test_stall *stall = test_stall_begin(b);
    for (size_t i = 0; i < 4; i++) {
        test_write(fixture, &parts[i], 0x11, i % 2 ? b : a);
        test_free_on(fixture, &parts[i], i % 2 ? b : a);
    }
    strata_block large = test_allocate(fixture, 4 * ALL, c);
    test_write(fixture, &large, 0x33, c);
    for (size_t i = 0; i < 2; i++) {
        parts[i] = test_allocate(fixture, ALL / 4, a);
        test_write(fixture, &parts[i], 0x22, a);
    }
    test_synchronize(a); /* never ends if it waits for the stall */
    test_stall_end(stall);
    for (size_t i = 0; i < 2; i++) {
        check_ends(fixture, &parts[i], 0x22, a);
        test_free_on(fixture, &parts[i], a);
    }
    test_free_on(fixture, &large, c);
}

/* ---- 7: destroyed streams ---- */

enum { SHORT_LIVED = 300, LEFT_EVENTS = 700, MAX_STREAMS = 150 };

static void live_shortly(test_fixture *fixture, size_t i)
{
    CUstream stream = test_stream(fixture, i % 3 ? TEST_STREAM_UNKNOWN : TEST_STREAM_REGISTERED);
    strata_block kept = test_allocate(fixture, EDGE + i * 512, stream);
    test_write(fixture, &kept, 0x11, stream);
    leave_behind(fixture, EDGE + i % 7 * 100000, 0x22, stream);
    test_free_on(fixture, &kept, i % 2 ? stream : NULL);
    test_stream_close(fixture, stream);
}

static void streams_that_come_and_go_leave_nothing_behind(test_fixture *fixture)
{
    test_needs_simulated_driver("events are counted");
    strata_sim_accounts accounts;
    uint64_t reserved[2] = {0};
    const size_t count = test_effort(SHORT_LIVED, 100);
    for (size_t ticket = 0; ticket < 2; ticket++) {
        for (size_t i = 0; i < count; i++)
            live_shortly(fixture, i);
        check_cu(test_cu()->CtxSynchronize());
        reserved[ticket] = value_of(fixture->runtime, "pool.reserved");
    }
    check_cu(test_sim_control()->get_accounts(&accounts));
    assert_true(accounts.events < LEFT_EVENTS);
    assert_true(count_stream_lists(pool_inside(fixture->runtime)) <= MAX_STREAMS);
    assert_true(reserved[1] <= 2 * reserved[0]);
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    empty_the_pool(fixture);
}

/* ---- 8: memory is returned, and reports are answered ---- */

static void memory_is_returned_on_request(test_fixture *fixture)
{
    size_t released;
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block keep = test_allocate(fixture, EDGE, a);
    leave_behind(fixture, 40 * MIB, 0x11, a);
    leave_behind(fixture, 40 * MIB, 0x22, b);
    uint64_t reserved = value_of(fixture->runtime, "pool.reserved");
    check_ok(strata_runtime_trim(fixture->runtime, reserved, &released));
    assert_int_equal(released, 0);
    check_ok(strata_runtime_trim(fixture->runtime, 40 * MIB, &released));
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), reserved - released);
    assert_true(reserved - released <= 40 * MIB);
    assert_true(reserved - released >= 20 * MIB || !test_on_simulated_driver()); /* larger devices have larger chunks */
    reserved -= released;
    check_ok(strata_runtime_trim(fixture->runtime, 0, &released));
    assert_int_equal(value_of(fixture->runtime, "pool.reserved"), reserved - released);
    assert_true(reserved - released <= 4 * MIB);
    test_write(fixture, &keep, 0x33, b);
    test_free_on(fixture, &keep, b);
    empty_the_pool(fixture);
}

/* ---- 9: wrong frees ---- */

static void check_live(test_fixture *fixture, const strata_block *block)
{
    assert_int_equal(strata_runtime_block_state(fixture->runtime, block->id), STRATA_BLOCK_LIVE);
}

static void double_wrong_size_and_foreign_frees_are_refused(test_fixture *fixture)
{
    strata_runtime *second;
    strata_block foreign;
    CUstream a = test_stream(fixture, TEST_STREAM_POOL), b = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, EDGE, a), wrong = block;
    wrong.bytes /= 2;
    check_status(strata_runtime_deallocate_on(fixture->runtime, &wrong, a), STRATA_ERROR_SIZE_MISMATCH);
    wrong = block;
    wrong.address += 512;
    assert_int_not_equal(strata_runtime_deallocate_on(fixture->runtime, &wrong, a), STRATA_SUCCESS);
    check_live(fixture, &block);
    /* Under Valgrind there are not enough addresses for a second pool. */
    const char *stack = test_under_valgrind() ? "direct" : fixture->stack;
    check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stack}, &second));
    check_ok(strata_runtime_allocate(second, EDGE, a, &foreign));
    check_status(strata_runtime_deallocate_on(fixture->runtime, &foreign, a), STRATA_ERROR_FOREIGN_POINTER);
    check_ok(strata_runtime_deallocate_on(second, &foreign, a));
    check_ok(strata_runtime_destroy(second));
    strata_block found;
    check_ok(strata_runtime_find(fixture->runtime, block.address + EDGE - 1, &found));
    check_status(strata_runtime_find(fixture->runtime, block.address + EDGE, &found), STRATA_ERROR_FOREIGN_POINTER);
    const uint64_t live = test_usage(fixture).live_bytes;
    test_free_on(fixture, &block, a);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, a), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, b), STRATA_ERROR_DOUBLE_FREE);
    check_status(strata_runtime_find(fixture->runtime, block.address, &found), STRATA_ERROR_FOREIGN_POINTER);
    strata_block next = test_allocate(fixture, EDGE, a); /* the same memory */
    assert_int_equal(next.address, block.address);
    check_status(strata_runtime_deallocate_on(fixture->runtime, &block, a), STRATA_ERROR_DOUBLE_FREE);
    check_live(fixture, &next);
    assert_int_equal(test_usage(fixture).live_bytes, live);
    test_free_on(fixture, &next, a);
}

/* ---- 10: frees without host memory ---- */

static _Thread_local bool drought;

void *__real_strata_host_zalloc(size_t bytes);
void *__wrap_strata_host_zalloc(size_t bytes);
void *__real_strata_host_zalloc_aligned(size_t alignment, size_t bytes);
void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes);

void *__wrap_strata_host_zalloc(size_t bytes)
{
    return drought ? NULL : __real_strata_host_zalloc(bytes);
}

void *__wrap_strata_host_zalloc_aligned(size_t alignment, size_t bytes)
{
    return drought ? NULL : __real_strata_host_zalloc_aligned(alignment, bytes);
}

enum { USERS = 12 };

typedef struct dry_free {
    test_fixture *fixture;
    const strata_block *block;
    CUstream stream;
    strata_status status;
} dry_free;

static void *free_without_memory(void *data)
{
    dry_free *self = data;
    test_make_current();
    drought = true;
    self->status = strata_runtime_deallocate_on(self->fixture->runtime, self->block, self->stream);
    drought = false;
    return NULL;
}

static void check_frees_without_memory(test_fixture *fixture, const strata_block *block, CUstream stream, bool fresh)
{
    dry_free one = {.fixture = fixture, .block = block, .stream = stream};
    pthread_t thread;
    if (fresh) { /* unknown to the library */
        assert_int_equal(pthread_create(&thread, NULL, free_without_memory, &one), 0);
        pthread_join(thread, NULL);
    } else {
        free_without_memory(&one);
    }
    check_ok(one.status);
}

static void frees_never_fail_for_want_of_memory(test_fixture *fixture)
{
    static const size_t sizes[] = {EDGE, 100000, ALL};
    CUstream users[USERS];
    for (size_t i = 0; i < USERS; i++)
        users[i] = test_stream(fixture, i % 2 ? TEST_STREAM_UNKNOWN : TEST_STREAM_POOL);
    for (size_t fresh = 0; fresh < 2; fresh++)
        for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++)
            for (size_t used = 0; used <= USERS; used += 3)
                for (size_t on = 0; on < 3; on++) {
                    strata_block block = test_allocate(fixture, sizes[size], users[0]);
                    test_fill(block.address, 0x10, EDGE, users[0]);
                    check_ok(strata_runtime_record_block_use(fixture->runtime, &block, users[0], STRATA_ACCESS_WRITE));
                    for (size_t i = 1; i < used; i++)
                        read_head(fixture, &block, users[i]);
                    fixture->seen_used = 0;
                    check_frees_without_memory(fixture, &block, users[on], fresh);
                }
    assert_int_equal(test_usage(fixture).live_blocks, 0);
    assert_true(test_usage(fixture).live_bytes == 0);
    strata_block block = test_allocate(fixture, ALL, users[1]); /* ordered after all of that */
    test_write(fixture, &block, 0x77, users[1]);
    check_ends(fixture, &block, 0x77, users[1]);
    test_free_on(fixture, &block, users[1]);
}

/* Unrecorded work of the freeing stream is waited for on the host: beside the last write and a read of other streams
 * there is no room for its point. */
static void a_free_that_cannot_be_remembered_is_waited_for(test_fixture *fixture)
{
    for (int gone = 0; gone < 2; gone++) {
        CUstream timeline = test_stream(fixture, TEST_STREAM_REGISTERED), next = test_stream(fixture, TEST_STREAM_POOL);
        CUstream writer = test_stream(fixture, TEST_STREAM_POOL), reader = test_stream(fixture, TEST_STREAM_POOL);
        strata_block block = test_allocate(fixture, ALL, timeline);
        test_write(fixture, &block, 0x11, writer);
        read_head(fixture, &block, reader);
        test_synchronize(writer);
        const unsigned char *seen = test_copy_back(fixture, block.address, EDGE, timeline);
        if (gone)
            check_ok(strata_runtime_unregister_stream(fixture->runtime, timeline));
        drought = true;
        const strata_status status = gone ? strata_runtime_deallocate(fixture->runtime, &block)
                                          : strata_runtime_deallocate_on(fixture->runtime, &block, timeline);
        drought = false;
        check_ok(status);
        if (gone)
            check_ok(strata_runtime_register_stream(fixture->runtime, timeline));
        strata_block after = test_allocate(fixture, ALL, next);
        assert_true(overlap(&after, &block));
        test_write(fixture, &after, 0x22, next);
        test_synchronize(next);
        test_synchronize(timeline);
        check_bytes(seen, 0x11, EDGE);
        test_free_on(fixture, &after, next);
        test_stream_close(fixture, timeline);
        empty_the_pool(fixture);
    }
}

/* ---- 11: rests of an extent ---- */

static void the_rest_of_an_extent_waits_for_what_the_whole_waited_for(test_fixture *fixture)
{
    set_limit(fixture, ALL);
    CUstream streams[4];
    strata_block parts[3];
    for (size_t i = 0; i < 4; i++)
        streams[i] = test_stream(fixture, i == 2 ? TEST_STREAM_UNKNOWN : TEST_STREAM_POOL);
    strata_block whole = test_allocate(fixture, ALL, streams[0]);
    test_stall *stall = test_stall_begin(streams[0]);
    test_write(fixture, &whole, 0x11, streams[0]);
    test_free_on(fixture, &whole, streams[0]);
    for (size_t i = 0; i < 3; i++) {
        parts[i] = test_allocate(fixture, ALL / 4, streams[1 + i]);
        test_write(fixture, &parts[i], (unsigned char)(0x20 + i), streams[1 + i]);
    }
    test_stall_end(stall);
    for (size_t i = 0; i < 3; i++) {
        check_ends(fixture, &parts[i], (unsigned char)(0x20 + i), streams[1 + i]);
        test_free_on(fixture, &parts[i], streams[1 + i]);
    }
}

/* ---- 12: captures of others ---- */

/* All paths of a request, and a trim. */
static void go_every_way(test_fixture *fixture, CUstream a, CUstream b, CUstream c)
{
    set_limit(fixture, 4 * ALL);
    leave_behind(fixture, ALL, 0x11, a);
    leave_behind(fixture, EDGE, 0x12, a);
    strata_block hit = test_allocate(fixture, EDGE, a);
    strata_block stolen = test_allocate(fixture, ALL, b);
    test_write(fixture, &stolen, 0x21, b);
    strata_block gap = test_allocate(fixture, ALL, a), wall = test_allocate(fixture, 2 * MIB, c);
    test_write(fixture, &gap, 0x31, a);
    test_free_on(fixture, &gap, c);
    strata_block moved = test_allocate(fixture, ALL + 2 * MIB, b);
    test_write(fixture, &moved, 0x41, b);
    check_refused(fixture, 4 * ALL, c);
    test_free_on(fixture, &hit, b);
    test_free_on(fixture, &stolen, a);
    test_free_on(fixture, &wall, c);
    test_free_on(fixture, &moved, b);
    check_ok(strata_runtime_trim(fixture->runtime, 0, NULL));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    set_limit(fixture, 0);
}

static void captures_of_others_survive_every_call_and_see_nothing_of_them(test_fixture *fixture)
{
    CUstream capturing = test_stream(fixture, TEST_STREAM_UNKNOWN);
    CUstream known = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    CUstream unknown = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block mine = test_allocate(fixture, EDGE, known);
    strata_block block;
    test_begin_capture(capturing);
    go_every_way(fixture, known, other, unknown);
    go_every_way(fixture, unknown, known, other);
    check_status(try_to_allocate(fixture, EDGE, capturing, &block), STRATA_ERROR_STREAM_CAPTURE);
    check_status(try_to_allocate(fixture, 3 * ALL, capturing, &block), STRATA_ERROR_STREAM_CAPTURE);
    test_free_on(fixture, &mine, capturing); /* deferred until the capture ends */
    assert_int_equal(test_end_capture(capturing), 0);
    block = test_allocate(fixture, EDGE, capturing);
    test_free_on(fixture, &block, capturing);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(test_usage(fixture).bytes_outstanding, 0);
}

/* While a blocking stream is captured, nothing may be submitted to the legacy stream, whose memory is free: an event on
 * it would invalidate the capture. */
static void a_capture_survives_requests_that_find_memory_of_the_legacy_stream(test_fixture *fixture)
{
    CUstream capturing, stream = test_stream(fixture, TEST_STREAM_POOL);
    set_limit(fixture, ALL);
    leave_behind(fixture, ALL, 0x11, NULL);
    check_cu(test_cu()->StreamCreate(&capturing, CU_STREAM_DEFAULT));
    test_begin_capture(capturing);
    strata_block block;
    strata_status status = try_to_allocate(fixture, ALL, stream, &block);
    strata_status trimmed = strata_runtime_trim(fixture->runtime, 0, NULL);
    assert_int_equal(test_end_capture(capturing), 0);
    assert_int_equal(trimmed, STRATA_SUCCESS);
    if (status == STRATA_SUCCESS)
        test_free_on(fixture, &block, stream);
    block = test_allocate(fixture, ALL, stream);
    test_write(fixture, &block, 0x22, stream);
    check_ends(fixture, &block, 0x22, stream);
    test_free_on(fixture, &block, stream);
    check_cu(test_cu()->StreamDestroy(capturing));
}

/* ---- 13: errors while memory is returned ---- */

static void a_driver_error_while_memory_is_returned_is_reported_and_leaks_nothing(test_fixture *fixture)
{
    static const char *const calls[] = {"cuMemUnmap", "cuMemRelease"};
    test_needs_simulated_driver("calls are refused");
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const test_alive before = test_count_alive();
    for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) {
        size_t released;
        leave_behind(fixture, 2 * ALL, 0x11, stream);
        test_synchronize(stream);
        const uint64_t reserved = value_of(fixture->runtime, "pool.reserved");
        test_refuse(calls[i], 1, 1, CUDA_ERROR_UNKNOWN);
        check_status(strata_runtime_trim(fixture->runtime, 0, &released), STRATA_ERROR_DRIVER);
        check_last_error(STRATA_ERROR_DRIVER, calls[i]);
        test_refuse_no_more();
        assert_int_equal(value_of(fixture->runtime, "pool.reserved"), reserved - released);
        strata_block block = test_allocate(fixture, 2 * ALL, stream); /* works as before */
        test_write(fixture, &block, 0x22, stream);
        check_ends(fixture, &block, 0x22, stream);
        test_free_on(fixture, &block, stream);
        empty_the_pool(fixture);
        check_alive(before);
    }
}

/* ---- 14: frees, handles and threads ---- */

static void a_free_never_waits_for_a_stream(test_fixture *fixture)
{
    static const size_t sizes[] = {EDGE, 3 * MIB, 40 * MIB};
    test_calls calls;
    for (test_stream_kind timeline = 0; timeline < TEST_STREAM_KINDS; timeline++)
        for (test_stream_kind on = 0; on < TEST_STREAM_KINDS; on++)
            for (size_t size = 0; size < sizeof sizes / sizeof sizes[0]; size++) {
                CUstream a = test_stream(fixture, timeline), b = test_stream(fixture, on);
                CUstream reader = test_stream(fixture, TEST_STREAM_POOL);
                strata_block block = test_allocate(fixture, sizes[size], a);
                write_head(fixture, &block, 0x11, a);
                test_stall *stall = test_stall_begin(reader);
                read_head(fixture, &block, reader);
                fixture->seen_used = 0;
                test_calls_begin(&calls);
                test_free_on(fixture, &block, b);
                assert_int_equal(test_calls_of(&calls, "cuStreamSynchronize"), 0);
                assert_int_equal(test_calls_of(&calls, "cuEventSynchronize"), 0);
                assert_int_equal(test_calls_of(&calls, "cuCtxSynchronize"), 0);
                assert_int_equal(test_calls_of(&calls, "cuStreamWaitEvent"), 0);
                test_stall_end(stall);
                test_stream_close(fixture, reader);
                test_stream_close(fixture, a);
                if (b != a)
                    test_stream_close(fixture, b);
            }
}

/* The first stream's work may still be pending when the second one gets its handle. */
static void a_destroyed_streams_handle_inherits_nothing(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_UNKNOWN, TEST_STREAM_REGISTERED};
    test_needs_destroying_without_waiting();
    set_limit(fixture, ALL);
    for (size_t i = 0; i < 4; i++) {
        CUstream first = test_stream(fixture, kinds[i % 2]);
        strata_block block = test_allocate(fixture, ALL - EDGE, first), small = test_allocate(fixture, EDGE, first);
        test_stall *stall = test_stall_begin(first);
        test_write(fixture, &block, 0x11, first);
        test_write(fixture, &small, 0x11, first);
        test_free_on(fixture, &block, first);
        test_free_on(fixture, &small, first);
        test_stream_close(fixture, first);
        CUstream second = test_stream(fixture, kinds[i / 2]);
        small = test_allocate(fixture, EDGE, second);
        test_write(fixture, &small, 0x22, second);
        block = test_allocate(fixture, ALL - EDGE, second);
        test_write(fixture, &block, 0x22, second);
        test_stall_end(stall);
        check_ends(fixture, &small, 0x22, second);
        check_ends(fixture, &block, 0x22, second);
        test_free_on(fixture, &small, second);
        test_free_on(fixture, &block, second);
        test_stream_close(fixture, second);
        empty_the_pool(fixture);
    }
}

int main(void)
{
    static const char *const stacks[] = {"pool"};
    static const test_case cases[] = {
        TEST_CASE(memory_that_passes_through_three_streams_waits_for_all_of_them),
        TEST_CASE(extents_that_a_refused_request_has_joined_wait_for_all_their_streams),
        TEST_CASE(many_free_extents_are_searched_quickly),
        TEST_CASE(extents_of_a_stream_without_progress_are_not_processed_again),
        TEST_CASE(finished_memory_is_handed_over_without_a_wait),
        TEST_CASE(memory_that_several_streams_have_finished_with_is_handed_over_without_a_wait),
        TEST_CASE(memory_waits_for_what_touched_it_and_not_for_the_streams_later_work),
        TEST_CASE(a_request_that_free_memory_serves_makes_no_driver_call),
        TEST_CASE(neighbours_of_two_streams_come_together),
        TEST_CASE(what_is_left_of_a_extent_comes_back_to_it),
        TEST_CASE(ones_own_memory_does_not_come_to_wait_for_its_neighbours),
        TEST_CASE(streams_that_come_and_go_leave_nothing_behind),
        TEST_CASE(memory_is_returned_on_request),
        TEST_CASE(double_wrong_size_and_foreign_frees_are_refused),
        TEST_CASE(frees_never_fail_for_want_of_memory),
        TEST_CASE(a_free_that_cannot_be_remembered_is_waited_for),
        TEST_CASE(the_rest_of_an_extent_waits_for_what_the_whole_waited_for),
        TEST_CASE(captures_of_others_survive_every_call_and_see_nothing_of_them),
        TEST_CASE(a_capture_survives_requests_that_find_memory_of_the_legacy_stream),
        TEST_CASE(a_driver_error_while_memory_is_returned_is_reported_and_leaks_nothing),
        TEST_CASE(a_free_never_waits_for_a_stream),
        TEST_CASE(a_destroyed_streams_handle_inherits_nothing),
    };
    test_before_clearing = lift_limit;
    test_open_driver();
    return test_run_on(stacks, 1, cases, sizeof cases / sizeof cases[0]);
}
