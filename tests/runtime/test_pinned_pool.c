/* Pools of pinned staging buffers. */
#include <string.h>
#include <time.h>

#include <pthread.h>
#include <strata/pinned_pool.h>

#include "support/effort.h"
#include "support/fixture.h"
#include "support/stall.h"

enum { KIB = 1024, CAPACITY = 64 * KIB };

static const uint64_t MILLISECOND = 1000000;

static strata_pinned_pool *open_pool; /* of the case that runs */
static strata_pinned_buffer *taken[64];

/* After each case, before its runtime ends. */
static void clear_away(void)
{
    for (size_t i = 0; i < 64; i++) {
        strata_pinned_buffer_release(taken[i]);
        taken[i] = NULL;
    }
    for (int i = 0; i < 3 && open_pool && strata_pinned_pool_destroy(open_pool) != STRATA_SUCCESS; i++)
        ;
    open_pool = NULL;
}

static strata_pinned_pool *make(test_fixture *fixture, uint32_t initial, uint32_t most, bool oversize)
{
    const strata_pinned_pool_options options = {
        .capacity = CAPACITY, .initial = initial, .most = most, .allow_oversize = oversize, .name = "staging"};
    check_ok(strata_pinned_pool_create(fixture->runtime, &options, &open_pool));
    return open_pool;
}

static strata_pinned_pool_stats stats_of(strata_pinned_pool *pool)
{
    strata_pinned_pool_stats stats;
    check_ok(strata_pinned_pool_get_stats(pool, &stats));
    return stats;
}

static void acquire(strata_pinned_pool *pool, size_t which)
{
    check_ok(strata_pinned_pool_acquire(pool, CAPACITY, 0, &taken[which]));
}

static void give(size_t which)
{
    strata_pinned_buffer *buffer = taken[which];
    taken[which] = NULL;
    check_ok(strata_pinned_buffer_release(buffer));
}

static void end(strata_pinned_pool *pool)
{
    check_ok(strata_pinned_pool_destroy(pool));
    open_pool = NULL;
}

static unsigned char *data_of(strata_pinned_buffer *buffer)
{
    strata_pinned_view view;
    check_ok(strata_pinned_buffer_view(buffer, STRATA_ELEMENT_U8, &view));
    return view.data;
}

/* ---- cases ---- */

static void a_pool_begins_with_some_buffers_and_makes_more_up_to_the_most(test_fixture *fixture)
{
    strata_pinned_pool *pool = make(fixture, 2, 3, false);
    strata_pinned_pool_stats stats = stats_of(pool);
    assert_true(stats.capacity == CAPACITY && stats.free == 2 && stats.total == 2 && stats.bytes == 2 * CAPACITY);
    for (size_t i = 0; i < 3; i++)
        acquire(pool, i);
    stats = stats_of(pool);
    assert_true(stats.in_use == 3 && stats.free == 0 && stats.total == 3 && stats.bytes == 3 * CAPACITY);
    check_status(strata_pinned_pool_acquire(pool, 1, 100 * MILLISECOND, &taken[3]), STRATA_ERROR_TIMEOUT);
    check_last_error(STRATA_ERROR_TIMEOUT, "all 3 buffers of the pinned pool \"staging\" were in use");
    assert_null(taken[3]);
    stats = stats_of(pool);
    assert_true(stats.timeouts == 1 && stats.waited == 1 && stats.acquired == 3);
    check_status(strata_pinned_pool_destroy(pool), STRATA_ERROR_BUSY);
    for (size_t i = 0; i < 3; i++)
        give(i);
    assert_int_equal(stats_of(pool).free, 3);
    end(pool);
    assert_int_equal(test_usage(fixture).live_bytes, 0);
}

static void the_defaults_are_four_buffers_of_four_mebibytes(test_fixture *fixture)
{
    check_ok(strata_pinned_pool_create(fixture->runtime, NULL, &open_pool));
    const strata_pinned_pool_stats stats = stats_of(open_pool);
    assert_true(stats.capacity == 4096 * KIB && stats.total == 4);
    end(open_pool);
}

static void a_view_counts_elements(test_fixture *fixture)
{
    strata_pinned_view view;
    strata_pinned_pool *pool = make(fixture, 1, 1, false);
    check_ok(strata_pinned_pool_acquire(pool, 1000, 0, &taken[0]));
    check_ok(strata_pinned_buffer_view(taken[0], STRATA_ELEMENT_F64, &view));
    assert_true(view.len == 125 && view.capacity == CAPACITY / 8 && view.type == STRATA_ELEMENT_F64);
    assert_true((CUdeviceptr)(uintptr_t)view.data == view.address);
    check_status(strata_pinned_buffer_view(taken[0], STRATA_ELEMENT_C128, &view), STRATA_ERROR_INVALID_VALUE);
    assert_null(view.data);
    check_ok(strata_pinned_buffer_set_len(taken[0], STRATA_ELEMENT_C128, 7));
    check_ok(strata_pinned_buffer_view(taken[0], STRATA_ELEMENT_F16, &view));
    assert_int_equal(view.len, 56);
    check_status(strata_pinned_buffer_set_len(taken[0], STRATA_ELEMENT_F32, CAPACITY / 4 + 1),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pinned_buffer_set_len(taken[0], STRATA_ELEMENT_NONE, 1), STRATA_ERROR_INVALID_VALUE);
    give(0);
    end(pool);
}

static void a_larger_request_is_refused_or_served_once(test_fixture *fixture)
{
    strata_pinned_pool *pool = make(fixture, 1, 1, false);
    check_status(strata_pinned_pool_acquire(pool, CAPACITY + 1, 0, &taken[0]), STRATA_ERROR_INVALID_VALUE);
    check_last_error(STRATA_ERROR_INVALID_VALUE, "set allow_oversize, or raise capacity");
    end(pool);
    pool = make(fixture, 1, 1, true);
    check_ok(strata_pinned_pool_acquire(pool, 3 * CAPACITY, 0, &taken[0]));
    acquire(pool, 1); /* the larger one does not count */
    strata_pinned_pool_stats stats = stats_of(pool);
    assert_true(stats.oversize == 1 && stats.total == 2 && stats.bytes == 4 * CAPACITY);
    give(0);
    give(1);
    stats = stats_of(pool);
    assert_true(stats.oversize == 0 && stats.total == 1 && stats.bytes == CAPACITY);
    end(pool);
}

static void a_buffer_comes_back_when_its_copy_is_complete(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_UNKNOWN};
    CUdeviceptr to;
    check_cu(test_cu()->MemAlloc(&to, CAPACITY));
    for (size_t i = 0; i < 2; i++) {
        strata_pinned_pool *pool = make(fixture, 1, 1, false);
        CUstream stream = test_stream(fixture, kinds[i]);
        acquire(pool, 0);
        memset(data_of(taken[0]), 0x3c, CAPACITY);
        test_stall *stall = test_stall_begin(stream);
        check_cu(test_cu()->MemcpyHtoDAsync(to, data_of(taken[0]), CAPACITY, stream));
        check_ok(strata_pinned_buffer_release_after(taken[0], stream));
        check_status(strata_pinned_buffer_release(taken[0]), STRATA_ERROR_DOUBLE_FREE);
        taken[0] = NULL;
        strata_pinned_pool_stats stats = stats_of(pool);
        assert_true(stats.pending == 1 && stats.in_use == 0 && stats.free == 0);
        check_status(strata_pinned_pool_acquire(pool, 1, 2 * MILLISECOND, &taken[0]), STRATA_ERROR_TIMEOUT);
        test_stall_end(stall);
        check_ok(strata_pinned_pool_acquire(pool, 1, STRATA_NEVER, &taken[0]));
        memset(data_of(taken[0]), 0x77, CAPACITY); /* the copy has read it */
        const unsigned char *seen = test_copy_back(fixture, to, CAPACITY, stream);
        test_synchronize(stream);
        check_bytes(seen, 0x3c, CAPACITY);
        give(0);
        end(pool);
        test_stream_close(fixture, stream);
    }
    check_cu(test_cu()->MemFree(to));
}

static void a_pool_that_ends_waits_for_copies(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_pinned_pool *pool = make(fixture, 1, 1, true);
    check_ok(strata_pinned_pool_acquire(pool, 2 * CAPACITY, 0, &taken[0]));
    test_fill((CUdeviceptr)(uintptr_t)data_of(taken[0]), 0x11, 2 * (size_t)CAPACITY, stream);
    strata_pinned_buffer *buffer = taken[0];
    taken[0] = NULL;
    check_ok(strata_pinned_buffer_release_after(buffer, stream));
    end(pool);
    assert_int_equal(test_usage(fixture).live_bytes, 0);
    test_stream_close(fixture, stream);
}

/* Of buffers behind other work that takes long, and of those, as many as a look asks about at once are on both sides of
 * the one that is complete. */
static void a_complete_buffer_is_found_among_many_that_are_not(test_fixture *fixture)
{
    enum { BESIDE = 64, COUNT = 2 * BESIDE + 1 };
    strata_pinned_buffer *buffers[COUNT] = {0};
    strata_pinned_pool *pool = make(fixture, 1, COUNT, false);
    CUstream busy = test_stream(fixture, TEST_STREAM_POOL), idle = test_stream(fixture, TEST_STREAM_POOL);
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < COUNT && status == STRATA_SUCCESS; i++)
        status = strata_pinned_pool_acquire(pool, 1, 0, &buffers[i]);
    test_stall *stall = test_stall_begin(busy);
    for (size_t i = 0; i < COUNT; i++) {
        strata_pinned_buffer_release_after(buffers[i], i == BESIDE ? idle : busy);
        strata_pinned_buffer_release(buffers[i]); /* refused, but where the call before it was */
    }
    test_synchronize(idle);
    const strata_status acquired = strata_pinned_pool_acquire(pool, 1, 100 * MILLISECOND, &taken[0]);
    test_stall_end(stall);
    check_ok(status);
    check_ok(acquired);
    assert_ptr_equal(taken[0], buffers[BESIDE]);
    give(0);
    end(pool);
}

static void larger_buffers_whose_work_is_complete_are_freed_by_requests_for_more(test_fixture *fixture)
{
    enum { ROUNDS = 8 };
    strata_pinned_pool *pool = make(fixture, 1, 1, true);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    for (size_t i = 0; i < ROUNDS; i++) {
        check_ok(strata_pinned_pool_acquire(pool, 2 * CAPACITY, 0, &taken[0]));
        test_fill((CUdeviceptr)(uintptr_t)data_of(taken[0]), 0x11, 2 * (size_t)CAPACITY, stream);
        check_ok(strata_pinned_buffer_release_after(taken[0], stream));
        taken[0] = NULL;
        test_synchronize(stream);
    }
    assert_in_range(test_usage(fixture).live_blocks, 1, 4); /* one that the pool keeps, and the latest */
    end(pool);
}

static void check_rebuilt(strata_pinned_pool *pool, uint64_t generation)
{
    strata_pinned_pool_stats stats = stats_of(pool);
    assert_true(stats.generation == generation && stats.free == 0 && stats.in_use == 2 && stats.total == 2);
    acquire(pool, 2); /* those of before do not count */
    acquire(pool, 3);
    strata_pinned_view view;
    check_ok(strata_pinned_buffer_view(taken[2], STRATA_ELEMENT_U8, &view));
    assert_int_equal(view.generation, generation);
    give(0);
    give(1);
    stats = stats_of(pool);
    assert_true(stats.free == 0 && stats.total == 2 && stats.bytes == 2 * CAPACITY);
    give(2);
    give(3);
    assert_int_equal(stats_of(pool).free, 2);
}

static void buffers_from_before_a_rebuild_are_not_kept(test_fixture *fixture)
{
    for (int by_state = 0; by_state < 2; by_state++) {
        strata_pinned_pool *pool = make(fixture, 2, 3, false);
        const uint64_t before = stats_of(pool).generation;
        acquire(pool, 0);
        acquire(pool, 1);
        acquire(pool, 2);
        give(2);
        if (by_state)
            check_ok(strata_device_state_bump_generation(strata_runtime_device_state(fixture->runtime), NULL));
        else
            check_ok(strata_pinned_pool_bump(pool));
        check_rebuilt(pool, before + 1);
        end(pool);
    }
}

static void device_memory_is_no_staging_memory(test_fixture *fixture)
{
    static const char *const stacks[] = {"direct", "fallback(pinned | direct)"};
    strata_runtime *runtime;
    strata_pinned_pool *pool;
    for (size_t i = 0; i < 2; i++) {
        check_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = stacks[i]}, &runtime));
        const strata_status status = strata_pinned_pool_create(runtime, NULL, &pool);
        check_ok(strata_runtime_destroy(runtime));
        check_status(status, STRATA_ERROR_INVALID_VALUE);
        assert_null(pool);
    }
    check_status(
        strata_pinned_pool_create(fixture->runtime, &(strata_pinned_pool_options){.initial = 3, .most = 2}, &pool),
        STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pinned_pool_create(NULL, NULL, &pool), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_pinned_pool_acquire(NULL, 1, 0, &taken[0]), STRATA_ERROR_INVALID_VALUE);
    check_ok(strata_pinned_pool_destroy(NULL));
    check_ok(strata_pinned_buffer_release(NULL));
}

/* A runtime of its own, whose budget has room for two buffers. */
static void memory_that_is_refused_is_an_error_at_once(test_fixture *fixture)
{
    (void)fixture;
    strata_runtime *small;
    const strata_runtime_config config = {.stack_text = "budget(limit=128KiB), pinned(slab=4MiB)"};
    strata_pinned_pool_options options = {.capacity = CAPACITY, .initial = 3};
    strata_pinned_buffer *buffers[3] = {NULL};
    strata_pinned_pool *pool;
    check_ok(strata_runtime_create(&config, &small));
    const strata_status refused = strata_pinned_pool_create(small, &options, &pool);
    strata_usage left = {.live_bytes = 1};
    const strata_status told = strata_runtime_usage(small, &left);
    options.initial = 1;
    strata_status status = strata_pinned_pool_create(small, &options, &pool);
    for (size_t i = 0; i < 2 && status == STRATA_SUCCESS; i++)
        status = strata_pinned_pool_acquire(pool, 1, 0, &buffers[i]);
    const strata_status third =
        status == STRATA_SUCCESS ? strata_pinned_pool_acquire(pool, 1, STRATA_NEVER, &buffers[2]) : status;
    for (size_t i = 0; i < 3; i++)
        strata_pinned_buffer_release(buffers[i]);
    for (int i = 0; i < 3 && strata_pinned_pool_destroy(pool) != STRATA_SUCCESS; i++)
        ;
    check_ok(strata_runtime_destroy(small));
    check_ok(told);
    assert_int_equal(left.live_bytes, 0);
    check_status(refused, STRATA_ERROR_OUT_OF_BUDGET);
    check_ok(status);
    check_status(third, STRATA_ERROR_OUT_OF_BUDGET);
}

/* ---- threads ---- */

enum { THREADS = 16, BUFFERS = 3 };

typedef struct worker {
    strata_pinned_pool *pool;
    CUstream stream;
    unsigned number;
    size_t rounds, wrong;
    strata_status status;
} worker;

static void *pass_buffers_on(void *data)
{
    worker *self = data;
    for (size_t i = 0; i < self->rounds && self->status == STRATA_SUCCESS; i++) {
        strata_pinned_buffer *buffer;
        strata_pinned_view view;
        self->status = strata_pinned_pool_acquire(self->pool, 4096, 60000 * MILLISECOND, &buffer);
        if (self->status != STRATA_SUCCESS)
            break;
        strata_pinned_buffer_view(buffer, STRATA_ELEMENT_U8, &view);
        memset(view.data, (int)self->number, view.len);
        for (size_t at = 0; at < view.len; at += 64)
            self->wrong += ((volatile unsigned char *)view.data)[at] != self->number;
        self->status =
            i % 2 ? strata_pinned_buffer_release_after(buffer, self->stream) : strata_pinned_buffer_release(buffer);
    }
    return NULL;
}

/* Each thread gets a buffer in time, although the others never leave one free for long. */
static void sixteen_threads_share_three_buffers(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_pinned_pool *pool = make(fixture, 1, BUFFERS, false);
    pthread_t threads[THREADS];
    worker workers[THREADS];
    for (unsigned i = 0; i < THREADS; i++) {
        workers[i] = (worker){.pool = pool, .stream = stream, .number = i, .rounds = test_effort(400, 20)};
        assert_int_equal(pthread_create(&threads[i], NULL, pass_buffers_on, &workers[i]), 0);
    }
    for (unsigned i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (unsigned i = 0; i < THREADS; i++) {
        check_ok(workers[i].status);
        assert_int_equal(workers[i].wrong, 0);
    }
    assert_true(stats_of(pool).total <= BUFFERS && stats_of(pool).in_use == 0);
    end(pool);
    test_stream_close(fixture, stream);
}

static void *give_after_a_while(void *buffer)
{
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
    strata_pinned_buffer_release(buffer);
    return NULL;
}

static void a_thread_that_waits_is_woken_by_a_release(test_fixture *fixture)
{
    strata_pinned_pool *pool = make(fixture, 1, 1, false);
    pthread_t giver;
    acquire(pool, 0);
    strata_pinned_buffer *buffer = taken[0];
    taken[0] = NULL;
    assert_int_equal(pthread_create(&giver, NULL, give_after_a_while, buffer), 0);
    const strata_status status = strata_pinned_pool_acquire(pool, 1, STRATA_NEVER, &taken[0]);
    pthread_join(giver, NULL);
    check_ok(status);
    assert_ptr_equal(taken[0], buffer);
    give(0);
    end(pool);
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_pool_begins_with_some_buffers_and_makes_more_up_to_the_most),
        TEST_CASE(the_defaults_are_four_buffers_of_four_mebibytes),
        TEST_CASE(a_view_counts_elements),
        TEST_CASE(a_larger_request_is_refused_or_served_once),
        TEST_CASE(a_buffer_comes_back_when_its_copy_is_complete),
        TEST_CASE(a_pool_that_ends_waits_for_copies),
        TEST_CASE(a_complete_buffer_is_found_among_many_that_are_not),
        TEST_CASE(larger_buffers_whose_work_is_complete_are_freed_by_requests_for_more),
        TEST_CASE(buffers_from_before_a_rebuild_are_not_kept),
        TEST_CASE(device_memory_is_no_staging_memory),
        TEST_CASE(memory_that_is_refused_is_an_error_at_once),
        TEST_CASE(a_thread_that_waits_is_woken_by_a_release),
        TEST_CASE(sixteen_threads_share_three_buffers),
    };
    static const char *const stacks[] = {"pinned(slab=4MiB)", "budget(limit=1GiB), pinned(single=on)"};
    test_open_driver();
    test_before_clearing = clear_away;
    return test_run_on(stacks, 2, cases, sizeof cases / sizeof cases[0]);
}
