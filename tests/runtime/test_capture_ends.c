/* Ends of captures: given up by calls, streams and threads, spoiled, and refused by the driver. */
#include "support/captures.h"
#include "support/graphs.h"
#include "support/refusals.h"
#include "support/sweep.h"

#include <pthread.h>

static void a_capture_that_is_discarded_leaves_stream_and_memory_usable(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    const size_t before = live_blocks(fixture);
    strata_block outside = test_allocate(fixture, BYTES, stream);
    begin(fixture, stream, NULL);
    strata_block freed = test_allocate(fixture, BYTES, stream), kept = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &freed, 1, stream);
    test_write(fixture, &outside, 1, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &freed));
    check_ok(strata_runtime_deallocate(fixture->runtime, &outside));
    check_ok(strata_capture_discard(fixture->runtime, stream));
    forget_capture(stream);
    check_status(strata_capture_discard(fixture->runtime, stream), STRATA_ERROR_INVALID_VALUE);
    test_write(fixture, &kept, 2, stream);
    check_value(fixture, &kept, 2, stream);
    check_ok(strata_runtime_deallocate(fixture->runtime, &kept));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

static void the_release_of_a_stream_discards_its_capture(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED};
    for (size_t k = 0; k < 2; k++) {
        CUstream stream = test_stream(fixture, kinds[k]);
        begin(fixture, stream, NULL);
        strata_block block = test_allocate(fixture, BYTES, stream);
        test_write(fixture, &block, 1, stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &block));
        test_stream_close(fixture, stream);
        forget_capture(stream);
    }
    CUstream again = test_stream(fixture, TEST_STREAM_POOL);
    assert_false(strata_is_stream_capturing(fixture->runtime, again));
}

typedef struct leaver {
    test_fixture *fixture;
    CUstream stream;
    strata_status status;
} leaver;

static void *discard(void *data)
{
    leaver *self = data;
    test_make_current();
    self->status = strata_capture_discard(self->fixture->runtime, self->stream);
    return NULL;
}

/* The thread sanitizer with jitter sees what is read of a capture that the other thread has freed. */
static void two_threads_that_end_a_capture_end_it_once(test_fixture *fixture)
{
    enum { ROUNDS = 100 };
    if (test_is_swept())
        return; /* the thread's failures would be another thread's */
    leaver self = {.fixture = fixture, .stream = test_stream(fixture, TEST_STREAM_POOL)};
    for (int i = 0; i < ROUNDS; i++) {
        pthread_t thread;
        check_ok(strata_capture_begin(fixture->runtime, self.stream, STRATA_CAPTURE_RELAXED, NULL));
        assert_int_equal(pthread_create(&thread, NULL, discard, &self), 0);
        strata_graph *graph = NULL;
        const strata_status ended = strata_capture_end(fixture->runtime, self.stream, &graph);
        pthread_join(thread, NULL);
        check_ok(strata_graph_destroy(graph));
        const strata_status refused = ended == STRATA_SUCCESS ? self.status : ended;
        assert_true(ended == STRATA_SUCCESS || self.status == STRATA_SUCCESS);
        assert_true(refused == STRATA_ERROR_INVALID_VALUE || refused == STRATA_ERROR_STREAM_MISUSE);
        assert_false(strata_is_stream_capturing(fixture->runtime, self.stream));
    }
}

static void *begin_and_leave(void *data)
{
    leaver *self = data;
    test_make_current();
    self->status = strata_capture_begin(self->fixture->runtime, self->stream, STRATA_CAPTURE_THREAD_LOCAL, NULL);
    return NULL;
}

static void the_end_of_a_thread_discards_its_captures(test_fixture *fixture)
{
    leaver self = {.fixture = fixture, .stream = test_stream(fixture, TEST_STREAM_POOL)};
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, begin_and_leave, &self), 0);
    pthread_join(thread, NULL);
    check_ok(self.status);
    assert_false(strata_is_stream_capturing(fixture->runtime, self.stream));
    strata_block block = test_allocate(fixture, BYTES, self.stream);
    test_write(fixture, &block, 7, self.stream);
    check_value(fixture, &block, 7, self.stream);
    test_free_on(fixture, &block, self.stream);
}

static void a_capture_that_was_spoiled_gives_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_capture_state state;
    strata_graph *graph = (strata_graph *)fixture;
    begin(fixture, stream, NULL);
    assert_int_not_equal(test_cu()->StreamSynchronize(stream), CUDA_SUCCESS);
    check_ok(strata_capture_status(fixture->runtime, stream, &state));
    assert_int_equal(state, STRATA_CAPTURE_STATE_INVALIDATED);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    forget_capture(stream);
    assert_null(graph);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_INVALID_VALUE);
    strata_block block = test_allocate(fixture, BYTES, stream);
    test_write(fixture, &block, 7, stream);
    check_value(fixture, &block, 7, stream);
    test_free_on(fixture, &block, stream);
}

static void a_capture_with_a_branch_that_was_not_joined_gives_no_graph(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_UNKNOWN);
    strata_graph *graph;
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    strata_block block = test_allocate(fixture, BYTES, fork);
    test_write(fixture, &block, 7, fork);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_STREAM_CAPTURE);
    check_last_error(STRATA_ERROR_STREAM_CAPTURE, "not joined");
    forget_capture(stream);
    test_write(fixture, &block, 8, stream);
    check_value(fixture, &block, 8, stream);
    test_free_on(fixture, &block, stream);
}

static void a_block_that_is_freed_on_a_forked_stream_goes_with_the_graph(test_fixture *fixture)
{
    static const test_stream_kind kinds[] = {TEST_STREAM_POOL, TEST_STREAM_REGISTERED, TEST_STREAM_UNKNOWN};
    const size_t before = live_blocks(fixture);
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, kinds[k]);
        strata_block block = test_allocate(fixture, BYTES, stream);
        begin(fixture, stream, NULL);
        test_order_after(fork, stream);
        check_ok(strata_runtime_deallocate_on(fixture->runtime, &block, fork));
        test_order_after(stream, fork);
        strata_graph *graph = end(fixture, stream);
        assert_int_equal(live_blocks(fixture), before + 1);
        test_stream_close(fixture, fork); /* the free needs it no more */
        check_ok(destroy(graph));
        check_ok(strata_runtime_reap_pending(fixture->runtime));
        assert_int_equal(live_blocks(fixture), before);
    }
}

static CUresult CUDAAPI refuse_to_say(CUstream stream, CUstreamCaptureStatus *status)
{
    (void)stream, (void)status;
    return CUDA_ERROR_UNKNOWN;
}

/* A free at once would be a call on a forked stream, and spoil the capture. */
static void a_free_on_a_stream_that_may_be_forked_waits_for_the_end_of_the_capture(test_fixture *fixture)
{
    const size_t before = live_blocks(fixture);
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), fork = test_stream(fixture, TEST_STREAM_REGISTERED);
    strata_block block = test_allocate(fixture, BYTES, stream);
    CUresult(CUDAAPI *const real)(CUstream, CUstreamCaptureStatus *) = strata_cu.StreamIsCapturing;
    begin(fixture, stream, NULL);
    test_order_after(fork, stream);
    strata_cu.StreamIsCapturing = refuse_to_say;
    const strata_status status = strata_runtime_deallocate_on(fixture->runtime, &block, fork);
    strata_cu.StreamIsCapturing = real;
    test_order_after(stream, fork);
    strata_graph *graph = end(fixture, stream);
    check_ok(status);
    assert_int_equal(live_blocks(fixture), before + 1);
    check_ok(destroy(graph));
    check_ok(strata_runtime_reap_pending(fixture->runtime));
    assert_int_equal(live_blocks(fixture), before);
}

/* The simulated driver fails on purpose. */
static bool has_refusals(void)
{
    return test_sim_control() && !test_is_swept();
}

static void a_capture_that_the_driver_did_not_end_can_be_ended_again(test_fixture *fixture)
{
    if (!has_refusals())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block block = test_allocate(fixture, BYTES, stream);
    strata_graph *graph;
    begin(fixture, stream, NULL);
    test_write(fixture, &block, 0x22, stream);
    test_refuse("cuStreamEndCapture", 1, 1, CUDA_ERROR_UNKNOWN);
    const strata_status status = strata_capture_end(fixture->runtime, stream, &graph);
    test_refuse_no_more();
    check_status(status, STRATA_ERROR_DRIVER);
    assert_null(graph);
    assert_true(strata_is_stream_capturing(fixture->runtime, stream));
    graph = end(fixture, stream);
    check_ok(strata_graph_launch(graph, stream));
    check_value(fixture, &block, 0x22, stream);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
}

static void work_of_which_the_driver_does_not_tell_the_capture_gives_no_graph(test_fixture *fixture)
{
    if (!has_refusals())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_block outside = test_allocate(fixture, BYTES, stream);
    for (int own = 0; own < 2; own++) {
        strata_graph *graph;
        begin(fixture, stream, NULL);
        strata_block inside = test_allocate(fixture, BYTES, stream), *block = own ? &inside : &outside;
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE));
        test_fill(block->address, 1, BYTES, stream);
        test_refuse("cuStreamGetCaptureInfo", 1, 1, CUDA_ERROR_UNKNOWN);
        const strata_status status =
            strata_runtime_finish_block_use(fixture->runtime, block, stream, STRATA_ACCESS_WRITE);
        test_refuse_no_more();
        check_status(status, STRATA_ERROR_DRIVER);
        check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_DRIVER);
        assert_null(graph);
        assert_false(strata_is_stream_capturing(fixture->runtime, stream));
        forget_capture(stream);
        check_ok(strata_runtime_deallocate(fixture->runtime, &inside));
    }
    test_free_on(fixture, &outside, stream);
}

/* The driver does not say that the stream is in no capture, but no capture has the use. */
static void a_use_beside_a_capture_is_finished_where_the_driver_does_not_tell_the_capture(test_fixture *fixture)
{
    if (!has_refusals())
        return;
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL), other = test_stream(fixture, TEST_STREAM_POOL);
    for (int submitted = 0; submitted < 2; submitted++) {
        const strata_access access = submitted ? STRATA_ACCESS_WRITE : STRATA_ACCESS_NONE;
        strata_block block = test_allocate(fixture, BYTES, other);
        check_ok(strata_runtime_prepare_block_use(fixture->runtime, &block, other, STRATA_ACCESS_WRITE));
        begin(fixture, stream, NULL);
        if (submitted)
            test_fill(block.address, 1, BYTES, other);
        test_refuse("cuStreamGetCaptureInfo", 1, 1, CUDA_ERROR_UNKNOWN);
        const strata_status status = strata_runtime_finish_block_use(fixture->runtime, &block, other, access);
        test_refuse_no_more();
        strata_graph *graph = end(fixture, stream);
        const strata_status freed = strata_runtime_deallocate(fixture->runtime, &block);
        check_ok(status);
        check_ok(freed);
        check_ok(destroy(graph));
    }
}

static void what_cannot_be_captured_is_refused(test_fixture *fixture)
{
    CUstream stream = test_stream(fixture, TEST_STREAM_POOL);
    strata_graph *graph;
    check_status(strata_capture_begin(fixture->runtime, NULL, STRATA_CAPTURE_GLOBAL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_begin(fixture->runtime, stream, (strata_capture_mode)3, NULL),
                 STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_begin(NULL, stream, STRATA_CAPTURE_GLOBAL, NULL), STRATA_ERROR_INVALID_VALUE);
    check_status(strata_capture_end(fixture->runtime, stream, &graph), STRATA_ERROR_INVALID_VALUE);
    begin(fixture, stream, NULL);
    check_status(strata_capture_begin(fixture->runtime, stream, STRATA_CAPTURE_GLOBAL, NULL),
                 STRATA_ERROR_STREAM_CAPTURE);
    strata_block block = test_allocate(fixture, BYTES, stream);
    check_status(strata_runtime_finish_block_use(fixture->runtime, &(strata_block){.address = 77}, stream, 1),
                 STRATA_ERROR_STREAM_MISUSE);
    graph = end(fixture, stream);
    CUstream foreign = test_stream(fixture, TEST_STREAM_UNKNOWN); /* captured by other code */
    test_begin_capture(foreign);
    const strata_status refused = strata_graph_launch(graph, foreign);
    assert_int_equal(test_end_capture(foreign), 0);
    check_status(refused, STRATA_ERROR_STREAM_CAPTURE);
    check_status(strata_graph_launch(NULL, stream), STRATA_ERROR_INVALID_VALUE);
    check_ok(destroy(graph));
    test_free_on(fixture, &block, stream);
    check_ok(strata_graph_destroy(NULL));
    check_ok(strata_capture_pool_release(NULL));
}

int main(void)
{
    static const test_case cases[] = {
        TEST_CASE(a_capture_that_is_discarded_leaves_stream_and_memory_usable),
        TEST_CASE(the_release_of_a_stream_discards_its_capture),
        TEST_CASE(two_threads_that_end_a_capture_end_it_once),
        TEST_CASE(the_end_of_a_thread_discards_its_captures),
        TEST_CASE(a_capture_that_was_spoiled_gives_no_graph),
        TEST_CASE(a_capture_with_a_branch_that_was_not_joined_gives_no_graph),
        TEST_CASE(a_block_that_is_freed_on_a_forked_stream_goes_with_the_graph),
        TEST_CASE(a_free_on_a_stream_that_may_be_forked_waits_for_the_end_of_the_capture),
        TEST_CASE(a_capture_that_the_driver_did_not_end_can_be_ended_again),
        TEST_CASE(work_of_which_the_driver_does_not_tell_the_capture_gives_no_graph),
        TEST_CASE(a_use_beside_a_capture_is_finished_where_the_driver_does_not_tell_the_capture),
        TEST_CASE(what_cannot_be_captured_is_refused),
    };
    return run_graph_cases(cases, sizeof cases / sizeof cases[0]);
}
