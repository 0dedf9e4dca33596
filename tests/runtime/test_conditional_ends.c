/* Bodies of conditional nodes: their ends, failures, and what other threads do meanwhile. */
#include <pthread.h>

#include "support/conditionals.h"
#include "support/sweep.h"

static void a_body_that_is_given_up_leaves_no_graph_and_nothing_else(test_fixture *fixture)
{
    strata_runtime *runtime = fixture->runtime;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const size_t before = live_blocks(fixture);
    strata_graph *graph;
    for (int how = 0; how < 3; how++) {
        begin(fixture, stream, NULL);
        begin_if(fixture, stream, 1, body);
        test_write(fixture, &block, 0x04, body);
        strata_block inside = test_allocate(fixture, BYTES, body);
        if (how == 0) {
            check_ok(strata_capture_discard(runtime, body));
            check_status(strata_capture_end(runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
            check_last_error(STRATA_ERROR_STREAM_CAPTURE, "the body of a conditional node in it was given up");
        } else if (how == 1) {
            check_ok(strata_capture_discard(runtime, stream)); /* with the body that is open */
            assert_false(strata_is_stream_capturing(runtime, body));
        } else {
            assert_int_not_equal(test_cu()->StreamQuery(body), CUDA_SUCCESS); /* spoils it */
            check_ok(strata_runtime_deallocate(runtime, &inside));
            check_status(strata_capture_body_close(runtime, body), STRATA_ERROR_STREAM_CAPTURE);
            strata_capture_discard(runtime, stream);
        }
        forget_capture(stream);
        if (how < 2)
            check_ok(strata_runtime_deallocate_on(runtime, &inside, stream));
        check_ok(strata_runtime_reap_pending(runtime));
        assert_int_equal(live_blocks(fixture), before);
    }
    test_write(fixture, &block, 0x05, body);
    check_value(fixture, &block, 0x05, stream);
    test_free_on(fixture, &block, stream);
}

typedef struct leaving {
    test_fixture *fixture;
    CUstream stream, body;
    strata_status status;
} leaving;

static void *leave_an_open_body(void *data)
{
    leaving *self = data;
    test_make_current();
    check_ok(strata_capture_begin(self->fixture->runtime, self->stream, STRATA_CAPTURE_THREAD_LOCAL, NULL));
    begin_if(self->fixture, self->stream, 1, self->body);
    return NULL;
}

static void a_body_ends_with_its_thread_or_its_stream(test_fixture *fixture)
{
    pthread_t thread;
    leaving self = {.fixture = fixture,
                    .stream = test_stream(fixture, TEST_STREAM_POOL),
                    .body = test_stream(fixture, TEST_STREAM_POOL)};
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    assert_int_equal(pthread_create(&thread, NULL, leave_an_open_body, &self), 0);
    pthread_join(thread, NULL);
    assert_false(strata_is_stream_capturing(fixture->runtime, self.stream));
    assert_false(strata_is_stream_capturing(fixture->runtime, self.body));
    begin(fixture, self.stream, NULL);
    begin_if(fixture, self.stream, 1, self.body);
    test_stream_close(fixture, self.body); /* its release gives the body up */
    strata_graph *graph;
    check_status(strata_capture_end(fixture->runtime, self.stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    forget_capture(self.stream);
}

/* ---- other threads, and what comes meanwhile ---- */

/* Work of another thread while cuGraphAddNode is under way. */
static struct {
    test_fixture *fixture;
    CUstream stream, fork, body;
    CUgraphConditionalHandle condition;
    strata_status opened, ended, discarded;
    bool asked;
} meanwhile;

static CUresult (*real_add_node)(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                 CUgraphNodeParams *params);

static void *try_meanwhile(void *unused)
{
    strata_runtime *runtime = meanwhile.fixture->runtime;
    strata_graph *graph;
    test_make_current();
    meanwhile.opened = strata_capture_if(runtime, meanwhile.fork, meanwhile.condition, meanwhile.body);
    meanwhile.ended = strata_capture_end(runtime, meanwhile.stream, &graph);
    meanwhile.discarded = strata_capture_discard(runtime, meanwhile.stream);
    return unused;
}

static CUresult add_node_and_try(CUgraphNode *out, CUgraph graph, const CUgraphNode *after, size_t count,
                                 CUgraphNodeParams *params)
{
    pthread_t thread;
    if (!meanwhile.asked) {
        meanwhile.asked = true;
        assert_int_equal(pthread_create(&thread, NULL, try_meanwhile, NULL), 0);
        pthread_join(thread, NULL);
    }
    return real_add_node(out, graph, after, count, params);
}

static void one_body_is_opened_at_a_time(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN),
             body = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    kept_runtime = fixture->runtime;
    check_ok(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_RELAXED, NULL));
    captured[captured_count++] = stream;
    test_write(fixture, &block, 0x41, stream);
    test_order_after(fork, stream);
    meanwhile.fixture = fixture;
    meanwhile.stream = stream;
    meanwhile.fork = fork;
    meanwhile.body = other;
    meanwhile.asked = false;
    meanwhile.condition = condition_of(fixture, stream, 1);
    const CUgraphConditionalHandle condition = condition_of(fixture, stream, 1);
    real_add_node = strata_cu.GraphAddNode;
    strata_cu.GraphAddNode = add_node_and_try;
    const strata_status opened = strata_capture_if(fixture->runtime, stream, condition, body);
    strata_cu.GraphAddNode = real_add_node;
    check_ok(opened);
    assert_true(meanwhile.asked);
    assert_int_equal(meanwhile.opened, STRATA_ERROR_STREAM_CAPTURE);
    assert_int_equal(meanwhile.ended, STRATA_ERROR_STREAM_MISUSE);
    assert_int_equal(meanwhile.discarded, STRATA_ERROR_STREAM_MISUSE);
    test_write(fixture, &block, 0x42, body);
    close_body(fixture, body);
    check_ok(strata_capture_if(fixture->runtime, fork, meanwhile.condition, other));
    close_body(fixture, other);
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x42, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static CUresult (*real_end_capture)(CUstream stream, CUgraph *out);

static void *open_meanwhile(void *unused)
{
    test_make_current();
    meanwhile.opened =
        strata_capture_if(meanwhile.fixture->runtime, meanwhile.stream, meanwhile.condition, meanwhile.body);
    return unused;
}

static CUresult end_capture_and_open(CUstream stream, CUgraph *out)
{
    pthread_t thread;
    if (stream == meanwhile.stream && !meanwhile.asked) {
        meanwhile.asked = true;
        assert_int_equal(pthread_create(&thread, NULL, open_meanwhile, NULL), 0);
        pthread_join(thread, NULL);
    }
    return real_end_capture(stream, out);
}

static void no_body_is_opened_in_a_capture_that_ends(test_fixture *fixture)
{
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    check_ok(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_RELAXED, NULL));
    meanwhile.fixture = fixture;
    meanwhile.stream = stream;
    meanwhile.body = body;
    meanwhile.asked = false;
    meanwhile.condition = condition_of(fixture, stream, 1);
    real_end_capture = strata_cu.StreamEndCapture;
    strata_cu.StreamEndCapture = end_capture_and_open;
    const strata_status discarded = strata_capture_discard(fixture->runtime, stream);
    strata_cu.StreamEndCapture = real_end_capture;
    check_ok(discarded);
    assert_true(meanwhile.asked);
    assert_int_equal(meanwhile.opened, STRATA_ERROR_STREAM_CAPTURE);
    assert_false(strata_is_stream_capturing(fixture->runtime, body));
}

/* A body that its thread opens and closes, while another thread tries to end the capture around it. */
typedef struct closing {
    test_fixture *fixture;
    CUstream stream, body;
    CUgraphConditionalHandle condition;
    pthread_barrier_t opened;
    strata_status closed;
} closing;

static void *open_and_close(void *data)
{
    closing *self = data;
    test_make_current();
    check_ok(strata_capture_if(self->fixture->runtime, self->stream, self->condition, CU_STREAM_PER_THREAD));
    pthread_barrier_wait(&self->opened);
    do
        self->closed = strata_capture_body_close(self->fixture->runtime, CU_STREAM_PER_THREAD);
    while (self->closed == STRATA_ERROR_STREAM_MISUSE); /* the other thread has claimed it */
    return NULL;
}

/* Only the body's thread ends it: the other one is refused, and takes no claim away by that. */
static void an_end_that_is_refused_for_its_body_leaves_that_to_its_thread(test_fixture *fixture)
{
    enum { ROUNDS = 50 };
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        closing self = {.fixture = fixture, .stream = test_stream(fixture, TEST_STREAM_POOL)};
        check_ok(strata_capture_begin(fixture->runtime, self.stream, STRATA_CAPTURE_RELAXED, NULL));
        self.condition = condition_of(fixture, self.stream, 1);
        pthread_barrier_init(&self.opened, NULL, 2);
        assert_int_equal(pthread_create(&thread, NULL, open_and_close, &self), 0);
        pthread_barrier_wait(&self.opened);
        strata_status status;
        do
            status = strata_capture_discard(fixture->runtime, self.stream);
        while (status == STRATA_ERROR_STREAM_MISUSE);
        pthread_join(thread, NULL);
        pthread_barrier_destroy(&self.opened);
        check_ok(status);
        check_ok(self.closed);
        test_stream_close(fixture, self.stream);
    }
}

static void *close_a_body(void *data)
{
    closing *self = data;
    test_make_current();
    do
        self->closed = strata_capture_body_close(self->fixture->runtime, self->body);
    while (self->closed == STRATA_ERROR_STREAM_MISUSE); /* the other thread has claimed it */
    return NULL;
}

/* The thread sanitizer with jitter sees what is read of a body that the other thread has freed. */
static void a_body_is_ended_once_by_its_close_or_by_the_end_around_it(test_fixture *fixture)
{
    enum { ROUNDS = 50 };
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    closing self = {.fixture = fixture,
                    .stream = test_stream(fixture, TEST_STREAM_POOL),
                    .body = test_stream(fixture, TEST_STREAM_POOL)};
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        check_ok(strata_capture_begin(fixture->runtime, self.stream, STRATA_CAPTURE_RELAXED, NULL));
        begin_if(fixture, self.stream, 1, self.body);
        assert_int_equal(pthread_create(&thread, NULL, close_a_body, &self), 0);
        strata_status status;
        do
            status = strata_capture_discard(fixture->runtime, self.stream);
        while (status == STRATA_ERROR_STREAM_MISUSE);
        pthread_join(thread, NULL);
        check_ok(status);
        assert_true(self.closed == STRATA_SUCCESS || self.closed == STRATA_ERROR_INVALID_VALUE);
        assert_false(strata_is_stream_capturing(fixture->runtime, self.body));
    }
}

static void work_behind_an_open_node_leaves_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_block block = test_allocate(fixture, BYTES, stream), beside = test_allocate(fixture, BYTES, stream);
    strata_graph *graph;
    for (int behind = 0; behind < 2; behind++) {
        begin(fixture, stream, NULL);
        test_order_after(fork, stream);
        check_ok(
            strata_runtime_prepare_block_use(fixture->runtime, &beside, behind ? stream : fork, STRATA_ACCESS_WRITE));
        begin_if(fixture, stream, 1, body);
        check_cu(test_cu()->MemsetD8Async(beside.address, 0x51, BYTES, behind ? stream : fork));
        check_ok(
            strata_runtime_finish_block_use(fixture->runtime, &beside, behind ? stream : fork, STRATA_ACCESS_WRITE));
        test_write(fixture, &block, 0x52, body);
        strata_status status = strata_capture_body_close(fixture->runtime, body);
        test_order_after(stream, fork);
        if (status == STRATA_SUCCESS)
            status = strata_capture_end(fixture->runtime, stream, &graph);
        check_status(status, behind ? STRATA_ERROR_STREAM_CAPTURE : STRATA_SUCCESS);
        forget_capture(stream);
        if (!behind)
            check_ok(strata_graph_destroy(graph));
    }
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &beside, stream);
}

static CUresult refuse_dependencies(CUgraphNode node, CUgraphNode *dependencies, size_t *count)
{
    (void)node;
    (void)dependencies;
    (void)count;
    return CUDA_ERROR_UNKNOWN;
}

/* The driver does not say what the work is behind of. */
static void work_of_an_unknown_place_beside_an_open_body_leaves_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream), beside = test_allocate(fixture, BYTES, stream);
    CUresult (*real)(CUgraphNode, CUgraphNode *, size_t *) = strata_cu.GraphNodeGetDependencies;
    strata_graph *graph;
    begin(fixture, stream, NULL);
    check_ok(strata_runtime_prepare_block_use(fixture->runtime, &beside, stream, STRATA_ACCESS_WRITE));
    begin_if(fixture, stream, 1, body);
    check_cu(test_cu()->MemsetD8Async(beside.address, 0x53, BYTES, stream));
    strata_cu.GraphNodeGetDependencies = refuse_dependencies;
    const strata_status finished =
        strata_runtime_finish_block_use(fixture->runtime, &beside, stream, STRATA_ACCESS_WRITE);
    strata_cu.GraphNodeGetDependencies = real;
    check_ok(finished);
    test_write(fixture, &block, 0x54, body);
    close_body(fixture, body);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "cannot be learned");
    forget_capture(stream);
    test_free_on(fixture, &block, stream);
    test_free_on(fixture, &beside, stream);
}

static void a_graph_is_not_launched_around_an_open_body(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_graph *part = end(fixture, stream); /* which uses no block */
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x61, stream);
    begin_if(fixture, stream, 1, body);
    check_status(strata_graph_launch(part, stream), STRATA_ERROR_STREAM_CAPTURE);
    test_write(fixture, &block, 0x62, body);
    close_body(fixture, body);
    check_ok(strata_graph_launch(part, stream));
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x62, stream);
    check_ok(destroy(graph));
    check_ok(destroy(part));
    test_free_on(fixture, &block, stream);
}

/* ---- failures ---- */

/* In global mode it spoils all captures of the thread. */
static void a_call_that_captures_forbid_spoils_body_and_capture(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph;
    CUdeviceptr address;
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    test_write(fixture, &block, 0x91, body);
    assert_int_not_equal(test_cu()->MemAlloc(&address, BYTES), CUDA_SUCCESS);
    check_status(strata_capture_body_close(fixture->runtime, body), STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    forget_capture(stream);
    test_write(fixture, &block, 0x92, body);
    check_value(fixture, &block, 0x92, stream);
    test_free_on(fixture, &block, stream);
}

static void a_body_makes_its_conditions_before_its_work(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             inner = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    CUgraphConditionalHandle condition;
    begin(fixture, stream, NULL);
    const CUgraphConditionalHandle around = condition_of(fixture, stream, 1);
    begin_if(fixture, stream, 1, body);
    test_write(fixture, &block, 0x95, body);
    check_status(strata_capture_condition(fixture->runtime, body, NULL, &condition), STRATA_ERROR_STREAM_MISUSE);
    check_status(strata_capture_if(fixture->runtime, body, around, inner), STRATA_ERROR_STREAM_MISUSE);
    check_last_error(STRATA_ERROR_STREAM_MISUSE, "makes its first condition before its first work");
    close_body(fixture, body);
    check_ok(strata_capture_if(fixture->runtime, stream, around, body));
    close_body(fixture, body);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x95, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

/* The driver would crash if it destroyed the graph around it. */
static void a_spoiled_body_with_conditional_nodes_is_left_to_the_driver(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             inner = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    begin_if(fixture, body, 1, inner);
    test_write(fixture, &block, 0x98, inner);
    close_body(fixture, inner);
    assert_int_not_equal(test_cu()->StreamQuery(body), CUDA_SUCCESS); /* spoils it */
    check_status(strata_capture_body_close(fixture->runtime, body), STRATA_ERROR_STREAM_CAPTURE);
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    test_write(fixture, &block, 0x99, body);
    check_value(fixture, &block, 0x99, stream);
    test_free_on(fixture, &block, stream);
}

static CUresult refuse_free(CUdeviceptr address, CUstream stream)
{
    (void)address;
    (void)stream;
    return CUDA_ERROR_NOT_PERMITTED;
}

/* What the body kept goes with it; the capture around it ends all the same, and the free is tried again. */
static void a_capture_ends_though_a_block_of_its_body_cannot_be_freed(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    const size_t others = live_blocks(fixture) - 1;
    begin(fixture, stream, NULL);
    begin_if(fixture, stream, 1, body);
    test_write(fixture, &block, 0x71, body);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    CUresult (*const free_async)(CUdeviceptr, CUstream) = strata_cu.MemFreeAsync;
    strata_cu.MemFreeAsync = refuse_free; /* the stacks of other owners free the block */
    const strata_status status = strata_capture_discard(fixture->runtime, stream);
    strata_cu.MemFreeAsync = free_async;
    assert_true(status == STRATA_SUCCESS || status == STRATA_ERROR_DRIVER);
    assert_false(strata_is_stream_capturing(fixture->runtime, stream));
    assert_false(strata_is_stream_capturing(fixture->runtime, body));
    forget_capture(stream);
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), others);
}

static bool asking_fails;
static CUresult (*real_ask)(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                            const CUgraphNode **nodes, size_t *count);
static CUresult (*real_begin)(CUstream stream, CUstreamCaptureMode mode);

static CUresult ask_or_fail(CUstream stream, CUstreamCaptureStatus *status, cuuint64_t *id, CUgraph *graph,
                            const CUgraphNode **nodes, size_t *count)
{
    const bool fails = asking_fails;
    asking_fails = false;
    return fails ? CUDA_ERROR_SYSTEM_NOT_READY : real_ask(stream, status, id, graph, nodes, count);
}

static CUresult begin_and_fail_then(CUstream stream, CUstreamCaptureMode mode)
{
    asking_fails = true;
    return real_begin(stream, mode);
}

static size_t reserved(const strata_capture_pool *pool)
{
    strata_capture_pool_usage usage;
    strata_capture_pool_get_usage(pool, &usage);
    return usage.reserved;
}

/* The body's capture never got a number: free memory of a pool that captures share stays free for the others. */
static void a_body_that_could_not_be_begun_takes_no_memory(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL),
             other = test_stream(fixture, TEST_STREAM_POOL);
    strata_capture_pool *pool = make_pool(fixture);
    begin(fixture, stream, pool);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    const size_t before = reserved(pool);
    begin(fixture, stream, pool);
    begin(fixture, other, pool);
    const CUgraphConditionalHandle condition = condition_of(fixture, stream, 1);
    real_ask = strata_cu.StreamGetCaptureInfo;
    real_begin = strata_cu.StreamBeginCapture;
    strata_cu.StreamGetCaptureInfo = ask_or_fail;
    strata_cu.StreamBeginCapture = begin_and_fail_then;
    const strata_status begun = strata_capture_if(fixture->runtime, stream, condition, body);
    strata_cu.StreamGetCaptureInfo = real_ask;
    strata_cu.StreamBeginCapture = real_begin;
    assert_int_equal(begun, STRATA_ERROR_DRIVER);
    block = test_allocate(fixture, BYTES, other);
    assert_int_equal(reserved(pool), before);
    check_ok(strata_runtime_deallocate(fixture->runtime, &block));
    check_ok(strata_capture_discard(fixture->runtime, other));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(other);
    forget_capture(stream);
    check_ok(release_pool(pool));
}

static void *close_elsewhere(void *data)
{
    leaving *self = data;
    test_make_current();
    self->status = strata_capture_body_close(self->fixture->runtime, self->body);
    return NULL;
}

/* A relaxed capture may be ended by any thread, but the handle of a per-thread stream means another stream there. */
static void a_node_of_a_threads_own_stream_is_closed_by_that_thread(test_fixture *fixture)
{
    if (test_is_swept())
        return;
    pthread_t thread;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), body = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    leaving self = {.fixture = fixture, .body = body};
    kept_runtime = fixture->runtime;
    check_ok(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_RELAXED, NULL));
    captured[captured_count++] = stream;
    test_order_after(CU_STREAM_PER_THREAD, stream);
    begin_if(fixture, CU_STREAM_PER_THREAD, 1, body);
    test_write(fixture, &block, 0x81, body);
    assert_int_equal(pthread_create(&thread, NULL, close_elsewhere, &self), 0);
    pthread_join(thread, NULL);
    assert_int_equal(self.status, STRATA_ERROR_STREAM_MISUSE);
    close_body(fixture, body);
    test_order_after(stream, CU_STREAM_PER_THREAD);
    strata_graph *graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x81, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

int main(void)
{
    enum { RESOURCES = 3 }; /* swept; the others are decorated */
    static const char *const stacks[] = {
        "async", "direct", "pool", "budget(limit=4GiB), logging(format=memory), statistics, pool", "aligned, async"};
    static const test_case cases[] = {
        TEST_CASE(a_body_that_is_given_up_leaves_no_graph_and_nothing_else),
        TEST_CASE(a_body_ends_with_its_thread_or_its_stream),
        TEST_CASE(one_body_is_opened_at_a_time),
        TEST_CASE(no_body_is_opened_in_a_capture_that_ends),
        TEST_CASE(an_end_that_is_refused_for_its_body_leaves_that_to_its_thread),
        TEST_CASE(a_body_is_ended_once_by_its_close_or_by_the_end_around_it),
        TEST_CASE(work_behind_an_open_node_leaves_no_graph),
        TEST_CASE(work_of_an_unknown_place_beside_an_open_body_leaves_no_graph),
        TEST_CASE(a_graph_is_not_launched_around_an_open_body),
        TEST_CASE(a_call_that_captures_forbid_spoils_body_and_capture),
        TEST_CASE(a_body_makes_its_conditions_before_its_work),
        TEST_CASE(a_spoiled_body_with_conditional_nodes_is_left_to_the_driver),
        TEST_CASE(a_capture_ends_though_a_block_of_its_body_cannot_be_freed),
        TEST_CASE(a_body_that_could_not_be_begun_takes_no_memory),
        TEST_CASE(a_node_of_a_threads_own_stream_is_closed_by_that_thread),
    };
    test_before_clearing = clear_away;
    test_open_driver();
    if (!conditionals_can_be_tested())
        return 77;
    return test_run_on(stacks, test_is_swept() ? RESOURCES : sizeof stacks / sizeof stacks[0], cases,
                       sizeof cases / sizeof cases[0]);
}
