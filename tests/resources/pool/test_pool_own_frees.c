/* Frees for which the pool finds the stream: another thread may end it meanwhile. */
#include "support/pool.h"
#include "support/pool_inside.h"
#include "support/sweep.h"

#include "core/streams/inflight_frees.h"

#include <pthread.h>
#include <sched.h>
#include <string.h>
#include <time.h>

enum { BYTES = 4096 };

static struct {
    test_fixture *fixture;
    CUstream stream;
    strata_block block;
    bool warm; /* the freeing thread has a cache of the stream, but no list of the block's size */
    strata_status freed, unregistered;
    _Atomic bool holds, release, ready, go, ended, returned;
} meeting;

static void await(const _Atomic bool *flag)
{
    while (!*flag)
        sched_yield();
}

/* Keeps what a slow free needs. */
static void *hold_the_pools_lock(void *data)
{
    pool *self = pool_inside(meeting.fixture->runtime);
    strata_spin_take(&self->lock);
    meeting.holds = true;
    await(&meeting.release);
    strata_spin_release(&self->lock);
    return data;
}

static void *free_the_block(void *data)
{
    test_make_current();
    if (meeting.warm) {
        strata_block other = test_allocate(meeting.fixture, 16 * BYTES, meeting.stream);
        check_ok(strata_runtime_deallocate(meeting.fixture->runtime, &other));
    }
    meeting.ready = true;
    await(&meeting.go);
    meeting.freed = strata_runtime_deallocate(meeting.fixture->runtime, &meeting.block);
    meeting.returned = true;
    test_leave_thread();
    return data;
}

static void *end_the_stream(void *data)
{
    test_make_current();
    meeting.unregistered = strata_runtime_unregister_stream(meeting.fixture->runtime, meeting.stream);
    meeting.ended = true;
    test_leave_thread();
    return data;
}

static void look_for_a_free(strata_thread *thread, void *found)
{
    *(bool *)found |= (atomic_load(&thread->inflight_frees) & STRATA_INFLIGHT_FREES_DEPTH) != 0;
}

static bool await_a_free(void)
{
    enum { TOO_LONG_MS = 20000 };
    const struct timespec a_while = {.tv_nsec = 1000000};
    bool found = false;
    for (int i = 0; i < TOO_LONG_MS && !found; i++, nanosleep(&a_while, NULL))
        strata_thread_visit_all(look_for_a_free, &found);
    return found;
}

static void register_new_stream(test_fixture *fixture)
{
    check_cu(test_cu()->StreamCreate(&meeting.stream, CU_STREAM_NON_BLOCKING));
    check_ok(strata_runtime_register_stream(fixture->runtime, meeting.stream));
}

/* A thread holds the pool's lock, then another one frees the block. */
static void begin_the_free(test_fixture *fixture, bool warm, pthread_t *holder, pthread_t *freeing)
{
    meeting.fixture = fixture;
    meeting.warm = warm;
    meeting.holds = meeting.release = meeting.ready = meeting.go = meeting.ended = meeting.returned = false;
    assert_int_equal(pthread_create(freeing, NULL, free_the_block, NULL), 0);
    await(&meeting.ready);
    assert_int_equal(pthread_create(holder, NULL, hold_the_pools_lock, NULL), 0);
    await(&meeting.holds);
    meeting.go = true;
}

static void a_stream_ends_after_a_free_that_the_pool_finds_it_for(test_fixture *fixture)
{
    const struct timespec meanwhile = {.tv_nsec = 20000000};
    pthread_t holder, freeing, ending;
    if (test_is_swept())
        return;
    register_new_stream(fixture);
    meeting.block = test_allocate(fixture, BYTES, meeting.stream);
    begin_the_free(fixture, false, &holder, &freeing);
    const bool inside = await_a_free();
    assert_int_equal(pthread_create(&ending, NULL, end_the_stream, NULL), 0);
    nanosleep(&meanwhile, NULL);
    const bool early = meeting.ended;
    meeting.release = true;
    pthread_join(holder, NULL);
    pthread_join(freeing, NULL);
    pthread_join(ending, NULL);
    assert_true(inside);
    assert_false(early);
    check_ok(meeting.freed);
    check_ok(meeting.unregistered);
    check_cu(test_cu()->StreamDestroy(meeting.stream));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

static void empty_the_caches(test_fixture *fixture)
{
    pool *self = pool_inside(fixture->runtime);
    strata_lock_take(&self->map_lock);
    pool_thread_caches_flush(self);
    strata_lock_release(&self->map_lock);
}

/* The block's end is a point of the stream by then, and only the extent is to be put away: the stream's closing event
 * covers it, and the next block there waits for the stream's work. */
static void a_stream_ends_beside_a_free_that_needs_its_handle_no_more(test_fixture *fixture)
{
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    pthread_t holder, freeing;
    if (test_is_swept())
        return;
    register_new_stream(fixture);
    meeting.block = test_allocate(fixture, BYTES, meeting.stream);
    test_write(fixture, &meeting.block, 0x22, meeting.stream);
    begin_the_free(fixture, true, &holder, &freeing);
    while (strata_runtime_block_state(fixture->runtime, meeting.block.id) != STRATA_BLOCK_FREED)
        sched_yield();
    const strata_status ended = strata_runtime_unregister_stream(fixture->runtime, meeting.stream);
    const CUresult destroyed = test_cu()->StreamDestroy(meeting.stream);
    const bool returned = meeting.returned;
    meeting.release = true;
    pthread_join(holder, NULL);
    pthread_join(freeing, NULL);
    check_ok(ended);
    check_cu(destroyed);
    assert_false(returned);
    check_ok(meeting.freed);
    empty_the_caches(fixture);
    strata_block next[4];
    for (int i = 0; i < 4; i++) {
        next[i] = test_allocate(fixture, BYTES, other);
        test_write(fixture, &next[i], 0x33, other);
    }
    for (int i = 0; i < 4; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, &next[i]));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

enum { CROWD = 64 };

static struct {
    strata_block blocks[CROWD];
    strata_status worst;
    _Atomic unsigned freed;
} crowd;

static void *free_the_crowd(void *data)
{
    const test_fixture *fixture = data;
    test_make_current();
    crowd.worst = STRATA_SUCCESS;
    for (int i = 0; i < CROWD; i++) {
        strata_status status = strata_runtime_deallocate(fixture->runtime, &crowd.blocks[i]);
        crowd.worst = status == STRATA_SUCCESS ? crowd.worst : status;
        crowd.freed++;
    }
    test_leave_thread();
    return data;
}

static void use_and_free(test_fixture *fixture, CUstream stream)
{
    strata_block blocks[CROWD];
    for (int i = 0; i < CROWD; i++) {
        blocks[i] = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &blocks[i], 0x44, stream);
    }
    for (int i = 0; i < CROWD; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, &blocks[i]));
}

static void a_stream_ends_at_any_moment_of_its_blocks_frees(test_fixture *fixture)
{
    enum { ROUNDS = 32 };
    CUstream other = test_stream(fixture, TEST_STREAM_POOL);
    if (test_is_swept())
        return;
    for (unsigned round = 0; round < ROUNDS; round++) {
        pthread_t freeing;
        register_new_stream(fixture);
        for (int i = 0; i < CROWD; i++) {
            crowd.blocks[i] = test_allocate(fixture, BYTES, meeting.stream);
            test_write(fixture, &crowd.blocks[i], 0x22, meeting.stream);
        }
        crowd.freed = 0;
        assert_int_equal(pthread_create(&freeing, NULL, free_the_crowd, fixture), 0);
        while (crowd.freed < round * CROWD / ROUNDS)
            ;
        const strata_status ended = strata_runtime_unregister_stream(fixture->runtime, meeting.stream);
        const CUresult destroyed = test_cu()->StreamDestroy(meeting.stream);
        pthread_join(freeing, NULL);
        check_ok(ended);
        check_cu(destroyed);
        check_ok(crowd.worst);
        empty_the_caches(fixture);
        use_and_free(fixture, other);
    }
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
}

/* Of the stack's own layers, with all that each counts; then a free that no fast path can serve. */
static void every_layer_hears_of_each_free(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    if (test_is_swept())
        return;
    for (int i = 0; i < 5; i++) {
        strata_block block = test_allocate(fixture, BYTES, stream);
        if (i == 3)
            test_write(fixture, &block, 0x11, other);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        check_status(strata_runtime_deallocate(fixture->runtime, &block), STRATA_ERROR_DOUBLE_FREE);
        assert_int_equal(strata_runtime_bytes_outstanding(fixture->runtime), 0);
        strata_runtime_budget budget;
        check_ok(strata_runtime_budget_snapshot(fixture->runtime, &budget));
        assert_int_equal(budget.in_use, 0);
    }
    if (strstr(fixture->stack, "logging")) {
        assert_int_equal(value_of(fixture->runtime, "logging.records"), 5 * 3 + 2); /* and a use */
        assert_int_equal(value_of(fixture->runtime, "statistics.blocks.current"), 0);
        assert_int_equal(value_of(fixture->runtime, "statistics.blocks.total"), 5);
    }
}

int main(void)
{
    static const char *const stacks[] = {"pool", "budget(limit=4GiB), logging(format=null), statistics, pool",
                                         "statistics, logging(format=null), budget(limit=4GiB), pool"};
    static const test_case cases[] = {TEST_CASE(a_stream_ends_after_a_free_that_the_pool_finds_it_for),
                                      TEST_CASE(a_stream_ends_beside_a_free_that_needs_its_handle_no_more),
                                      TEST_CASE(a_stream_ends_at_any_moment_of_its_blocks_frees),
                                      TEST_CASE(every_layer_hears_of_each_free)};
    test_open_driver();
    return test_run_on(stacks, sizeof stacks / sizeof stacks[0], cases, sizeof cases / sizeof cases[0]);
}
