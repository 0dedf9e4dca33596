/* What a capture learns from handles that name several streams, from captures beside it, and from work outside of it:
 * nothing. Order is what the graph says. */
#include <pthread.h>

#include "support/graphs.h"
#include "support/sweep.h"

static CUgraphNode last_node(test_fixture *fixture, CUstream stream)
{
    CUgraphNode node;
    check_ok(strata_capture_last_node(fixture->runtime, stream, &node));
    return node;
}

static strata_block allocate_filled(test_fixture *fixture, CUstream stream)
{
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 0x21, stream);
    return block;
}

static void end_and_launch(test_fixture *fixture, CUstream stream, strata_block *const *left, size_t count)
{
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    test_synchronize(stream);
    for (size_t i = 0; i < count; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, left[i]));
    check_ok(destroy(graph));
}

/* ---- captures beside each other ---- */

static void captures_that_share_a_pool_do_not_learn_of_each_others_order(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN),
             beside = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_capture_pool *pool = make_pool(fixture);
    kept_runtime = fixture->runtime;
    for (int i = 0; i < 2; i++) {
        check_ok(strata_capture_begin(fixture->runtime, i ? beside : stream, STRATA_CAPTURE_RELAXED, pool));
        captured[captured_count++] = i ? beside : stream;
    }
    strata_block first = allocate_filled(fixture, stream);
    test_order_after(fork, stream);
    strata_block freed = allocate_filled(fixture, fork);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &freed, fork));
    strata_block other = allocate_filled(fixture, beside); /* of the other capture */
    assert_true(other.address != freed.address);
    check_ok(strata_runtime_deallocate(fixture->runtime, &other));
    strata_block late = allocate_filled(fixture, stream); /* not behind the fork */
    assert_true(late.address != freed.address && late.address != other.address);
    test_order_after(stream, fork);
    end_and_launch(fixture, beside, NULL, 0);
    end_and_launch(fixture, stream, (strata_block *[]){&first, &late}, 2);
    begin(fixture, stream, pool); /* both have ended: all is free for all */
    strata_block again[2] = {test_allocate(fixture, BYTES, stream), test_allocate(fixture, BYTES, stream)};
    strata_capture_pool_usage usage;
    check_ok(strata_capture_pool_get_usage(pool, &usage));
    assert_true(usage.reserved == 2 << 20);
    end_and_launch(fixture, stream, (strata_block *[]){&again[0], &again[1]}, 2);
    check_ok(release_pool(pool));
    test_stream_close(fixture, fork);
}

/* ---- handles ---- */

/* On a handle that was another stream's. */
static void a_handle_that_comes_back_is_another_stream(test_fixture *fixture)
{
    enum { TRIES = 100 };
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), joined = test_stream(fixture, TEST_STREAM_UNKNOWN),
             fork = test_stream(fixture, TEST_STREAM_UNKNOWN), made[TRIES];
    const CUstream handle = fork;
    size_t count = 0;
    begin(fixture, stream, NULL);
    strata_block first = allocate_filled(fixture, stream);
    test_order_after(fork, stream);
    test_order_after(joined, stream);
    strata_block freed = allocate_filled(fixture, fork);
    check_ok(strata_runtime_deallocate_on(fixture->runtime, &freed, fork));
    test_order_after(joined, fork);
    test_stream_close(fixture, fork);
    do
        made[count] = test_stream(fixture, TEST_STREAM_UNKNOWN);
    while (made[count++] != handle && count < TRIES);
    fork = made[count - 1]; /* a driver may give out another handle */
    test_order_after(fork, stream);
    strata_block late = allocate_filled(fixture, fork);
    assert_true(late.address != freed.address);
    test_order_after(stream, fork);
    test_order_after(stream, joined);
    end_and_launch(fixture, stream, (strata_block *[]){&first, &late}, 2);
    for (size_t i = 0; i < count; i++)
        test_stream_close(fixture, made[i]);
    test_stream_close(fixture, joined);
}

static void a_stream_that_is_set_back_does_not_come_after_its_own_work(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block outside = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block first = allocate_filled(fixture, stream);
    CUgraphNode before = last_node(fixture, stream);
    strata_block freed = allocate_filled(fixture, stream);
    test_write(fixture, &outside, 0x22, stream);
    CUgraphNode after = last_node(fixture, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &freed));
    check_cu(test_cu()->StreamUpdateCaptureDependencies(stream, &before, 1, CU_STREAM_SET_CAPTURE_DEPENDENCIES));
    strata_block late = allocate_filled(fixture, stream);
    assert_true(late.address != freed.address);
    test_write(fixture, &outside, 0x23, stream); /* its use makes it come after the first write */
    strata_block again = allocate_filled(fixture, stream);
    assert_true(test_is_swept() || again.address == freed.address);
    check_cu(test_cu()->StreamUpdateCaptureDependencies(stream, &after, 1, CU_STREAM_ADD_CAPTURE_DEPENDENCIES));
    strata_graph *graph = end(fixture, stream);
    for (int i = 0; i < 2; i++) {
        check_ok(strata_graph_launch(graph, stream));
        check_value(fixture, &outside, 0x23, stream);
    }
    strata_block *const left[] = {&first, &late, &again};
    for (size_t i = 0; i < 3; i++)
        check_ok(strata_runtime_deallocate(fixture->runtime, left[i]));
    check_ok(destroy(graph));
    test_free_on(fixture, &outside, stream);
}

/* ---- per-thread streams: one handle ---- */

typedef struct branch {
    test_fixture *fixture;
    CUevent begin, end;
    strata_block freed;
} branch;

static void *work_on_a_branch(void *data)
{
    branch *self = data;
    test_make_current();
    check_cu(test_cu()->StreamWaitEvent(CU_STREAM_PER_THREAD, self->begin, 0));
    self->freed = allocate_filled(self->fixture, CU_STREAM_PER_THREAD);
    check_ok(strata_runtime_deallocate_on(self->fixture->runtime, &self->freed, CU_STREAM_PER_THREAD));
    check_cu(test_cu()->EventRecord(self->end, CU_STREAM_PER_THREAD));
    return NULL;
}

static void a_per_thread_stream_of_another_thread_is_another_branch(test_fixture *fixture)
{
    CUstream stream = CU_STREAM_PER_THREAD;
    branch self = {.fixture = fixture};
    pthread_t thread;
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    check_cu(test_cu()->EventCreate(&self.begin, CU_EVENT_DISABLE_TIMING));
    check_cu(test_cu()->EventCreate(&self.end, CU_EVENT_DISABLE_TIMING));
    kept_runtime = fixture->runtime;
    check_ok(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_RELAXED, NULL));
    captured[captured_count++] = stream;
    strata_block first = allocate_filled(fixture, stream);
    check_cu(test_cu()->EventRecord(self.begin, stream));
    assert_int_equal(pthread_create(&thread, NULL, work_on_a_branch, &self), 0);
    pthread_join(thread, NULL);
    strata_block late = allocate_filled(fixture, stream);
    assert_true(late.address != self.freed.address);
    check_cu(test_cu()->StreamWaitEvent(stream, self.end, 0));
    end_and_launch(fixture, stream, (strata_block *[]){&first, &late}, 2);
    check_cu(test_cu()->EventDestroy(self.begin));
    check_cu(test_cu()->EventDestroy(self.end));
}

typedef struct capturing {
    test_fixture *fixture;
    strata_capture_pool *pool;
    pthread_barrier_t *barrier;
    size_t writes;
    strata_graph *graph;
    strata_status ended, other;
} capturing;

static void *capture_the_own_stream(void *data)
{
    capturing *self = data;
    strata_runtime *runtime = self->fixture->runtime;
    CUstream stream = CU_STREAM_PER_THREAD;
    test_make_current();
    check_ok(strata_capture_begin(runtime, stream, STRATA_CAPTURE_RELAXED, self->pool));
    pthread_barrier_wait(self->barrier);
    strata_block block = test_allocate(self->fixture, BYTES, stream);
    for (size_t i = 0; i < self->writes; i++)
        test_write(self->fixture, &block, (unsigned char)i, stream);
    check_ok(strata_runtime_deallocate(runtime, &block));
    pthread_barrier_wait(self->barrier);
    self->ended = strata_capture_end(runtime, stream, &self->graph);
    pthread_barrier_wait(self->barrier);
    return NULL;
}

static void each_thread_ends_the_capture_of_its_own_stream(test_fixture *fixture)
{
    enum { THREADS = 2 };
    pthread_barrier_t barrier;
    pthread_t threads[THREADS];
    capturing selves[THREADS];
    if (test_is_swept())
        return;
    kept_runtime = fixture->runtime;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, THREADS), 0);
    for (size_t i = 0; i < THREADS; i++) {
        selves[i] = (capturing){.fixture = fixture, .pool = make_pool(fixture), .barrier = &barrier, .writes = 1 + i};
        assert_int_equal(pthread_create(&threads[i], NULL, capture_the_own_stream, &selves[i]), 0);
    }
    for (size_t i = 0; i < THREADS; i++)
        pthread_join(threads[i], NULL);
    for (size_t i = 0; i < THREADS; i++) {
        check_ok(selves[i].ended);
        assert_int_equal(strata_graph_node_count(selves[i].graph), selves[i].writes);
        assert_ptr_equal(strata_graph_pool(selves[i].graph), selves[i].pool);
        check_ok(strata_graph_destroy(selves[i].graph));
        check_ok(release_pool(selves[i].pool));
    }
    pthread_barrier_destroy(&barrier);
}

/* The capture stays, though relaxed, until the thread ends: no other one can name its stream. */
static void *leave_a_capture(void *data)
{
    capturing *self = data;
    test_make_current();
    check_ok(strata_capture_begin(self->fixture->runtime, CU_STREAM_PER_THREAD, STRATA_CAPTURE_RELAXED, NULL));
    pthread_barrier_wait(self->barrier);
    pthread_barrier_wait(self->barrier);
    return NULL;
}

static void a_per_thread_stream_is_no_other_threads_to_end(test_fixture *fixture)
{
    pthread_barrier_t barrier;
    pthread_t thread;
    strata_graph *graph;
    capturing self = {.fixture = fixture, .barrier = &barrier};
    if (test_is_swept())
        return;
    assert_int_equal(pthread_barrier_init(&barrier, NULL, 2), 0);
    assert_int_equal(pthread_create(&thread, NULL, leave_a_capture, &self), 0);
    pthread_barrier_wait(&barrier);
    check_status(strata_capture_end(fixture->runtime, CU_STREAM_PER_THREAD, &graph), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_runtime_destroy(fixture->runtime), STRATA_ERROR_STREAM_MISUSE);
    uint64_t live;
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), "captures.live", &live, NULL));
    assert_int_equal(live, 1);
    pthread_barrier_wait(&barrier);
    pthread_join(thread, NULL);
    check_ok(strata_control(strata_runtime_stack(fixture->runtime), "captures.live", &live, NULL));
    assert_int_equal(live, 0);
    pthread_barrier_destroy(&barrier);
}

typedef struct ending {
    strata_runtime *runtime;
    CUstream stream;
    strata_status ended, discarded;
} ending;

static void *end_anothers(void *data)
{
    ending *self = data;
    strata_graph *graph;
    test_make_current();
    strata_error_suppress_begin();
    self->ended = strata_capture_end(self->runtime, self->stream, &graph);
    self->discarded = strata_capture_discard(self->runtime, self->stream);
    strata_error_suppress_end(false);
    return NULL;
}

/* The driver would end a capture that another thread asks it to end, with an error. */
static void a_capture_goes_on_when_another_thread_tries_to_end_it(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    ending self = {.runtime = fixture->runtime, .stream = stream};
    pthread_t thread;
    begin(fixture, stream, NULL);
    assert_int_equal(pthread_create(&thread, NULL, end_anothers, &self), 0);
    pthread_join(thread, NULL);
    assert_int_equal(self.ended, STRATA_ERROR_STREAM_MISUSE);
    assert_int_equal(self.discarded, STRATA_ERROR_STREAM_MISUSE);
    test_write(fixture, &block, 0x51, stream);
    strata_graph *graph = end(fixture, stream);
    assert_int_equal(strata_graph_node_count(graph), 1);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x51, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

/* ---- work outside ---- */

static void launches_come_after_what_other_streams_did_with_a_captures_block(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), outside = test_stream(fixture, TEST_STREAM_UNKNOWN);
    kept_runtime = fixture->runtime;
    check_ok(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_RELAXED, NULL));
    captured[captured_count++] = stream;
    strata_block used = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &used, 0x31, outside); /* a real one, now */
    check_ok(strata_runtime_deallocate(fixture->runtime, &used));
    strata_block late = allocate_filled(fixture, stream);
    assert_true(test_is_swept() || late.address == used.address);
    strata_graph *graph = end(fixture, stream);
    test_stall *stall =
        test_is_swept() ? NULL : test_stall_begin(outside); /* behind the write: nothing more to wait for */
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &late, 0x21, stream);
    if (stall)
        test_stall_end(stall);
    check_ok(strata_runtime_deallocate(fixture->runtime, &late));
    check_ok(destroy(graph));
    test_stream_close(fixture, outside);
}

int main(void)
{
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async", "direct", "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool", "aligned, async"};
    static const test_case cases[] = {
        TEST_CASE(captures_that_share_a_pool_do_not_learn_of_each_others_order),
        TEST_CASE(a_handle_that_comes_back_is_another_stream),
        TEST_CASE(a_stream_that_is_set_back_does_not_come_after_its_own_work),
        TEST_CASE(a_per_thread_stream_of_another_thread_is_another_branch),
        TEST_CASE(each_thread_ends_the_capture_of_its_own_stream),
        TEST_CASE(a_per_thread_stream_is_no_other_threads_to_end),
        TEST_CASE(a_capture_goes_on_when_another_thread_tries_to_end_it),
        TEST_CASE(launches_come_after_what_other_streams_did_with_a_captures_block),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
