/* Captures of the simulated driver, under each policy of its scheduler: what the calls of captured streams become, and
 * what happens to captures whose streams and threads end. Which calls a capture survives is asked in tests/answers. */
#include "support/sim_graph.h"

#include <pthread.h>

static CUgraphExec instantiate(CUgraph graph)
{
    CUgraphExec exec;
    OK(p_cuGraphInstantiateWithFlags(&exec, graph, 0));
    return exec;
}

/* Ends the capture and makes its graph one that can be launched. */
static CUgraphExec end_capture(CUstream stream)
{
    CUgraph graph;
    OK(p_cuStreamEndCapture(stream, &graph));
    CUgraphExec exec = instantiate(graph);
    OK(p_cuGraphDestroy(graph));
    return exec;
}

static void only_when_launched(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(64);
    OK(p_cuMemsetD8(memory, 1, 64));
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemsetD8Async(memory, 2, 64, stream));
    OK(p_cuMemcpyDtoDAsync(memory + 32, memory, 32, stream));
    CUgraphExec exec = end_capture(stream);
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(byte_at(memory), 1);
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(byte_at(memory + 63), 2);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void captured_work_is_done_when_it_is_launched(void **state)
{
    (void)state;
    under_all_policies(only_when_launched);
}

/* A copy in a second stream that joins through events, in a graph that is launched several times. */
static void fork_and_join(void)
{
    CUstream first = new_stream();
    CUstream second = new_stream();
    CUevent event = new_event();
    CUdeviceptr memory = new_memory(3);
    OK(p_cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemsetD8Async(memory, 5, 1, first));
    OK(p_cuEventRecord(event, first));
    OK(p_cuStreamWaitEvent(second, event, 0));
    OK(p_cuMemcpyDtoDAsync(memory + 1, memory, 1, second));
    OK(p_cuEventRecord(event, second));
    OK(p_cuStreamWaitEvent(first, event, 0));
    OK(p_cuMemcpyDtoDAsync(memory + 2, memory + 1, 1, first));
    OK(p_cuMemsetD8Async(memory, 6, 2, first));
    CUgraphExec exec = end_capture(first);
    for (int i = 0; i < 3; i++) {
        OK(p_cuMemsetD8(memory, 0, 3));
        OK(p_cuCtxSynchronize());
        OK(p_cuGraphLaunch(exec, second));
        OK(p_cuStreamSynchronize(second));
        assert_int_equal(byte_at(memory), 6);
        assert_int_equal(byte_at(memory + 1), 6);
        assert_int_equal(byte_at(memory + 2), 5);
    }
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuMemFree(memory));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(first));
    OK(p_cuStreamDestroy(second));
}

static void streams_of_a_capture_are_ordered_by_its_events(void **state)
{
    (void)state;
    under_all_policies(fork_and_join);
}

/* The second stream's copy and the first stream's later fill are ordered by nothing. */
static unsigned char unordered(uint64_t seed)
{
    OK(p_set_seed(seed));
    CUstream first = new_stream();
    CUstream second = new_stream();
    CUevent event = new_event();
    CUdeviceptr memory = new_memory(2);
    OK(p_cuMemsetD8(memory, 1, 2));
    OK(p_cuCtxSynchronize());
    OK(p_cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuEventRecord(event, first));
    OK(p_cuStreamWaitEvent(second, event, 0));
    OK(p_cuMemsetD8Async(memory, 2, 1, first));
    OK(p_cuMemcpyDtoDAsync(memory + 1, memory, 1, second));
    OK(p_cuEventRecord(event, second));
    OK(p_cuStreamWaitEvent(first, event, 0));
    CUgraphExec exec = end_capture(first);
    OK(p_cuGraphLaunch(exec, first));
    OK(p_cuStreamSynchronize(first));
    unsigned char copied = byte_at(memory + 1);
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuMemFree(memory));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(first));
    OK(p_cuStreamDestroy(second));
    return copied;
}

static void a_missing_edge_in_a_capture_shows_itself(void **state)
{
    (void)state;
    unsigned seen[3] = {0, 0, 0};
    OK(p_set_policy(STRATA_SIM_RANDOM));
    test_sim_begin();
    for (uint64_t seed = 0; seed < 100; seed++)
        seen[unordered(seed)]++;
    assert_true(seen[1] > 10);
    assert_true(seen[2] > 10);
    test_sim_forget_reports();
    test_sim_end();
}

static void pageable_memory(void)
{
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(1);
    unsigned char from = 1;
    unsigned char to = 0;
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemcpyHtoDAsync(memory, &from, 1, stream));
    OK(p_cuMemcpyDtoHAsync(&to, memory, 1, stream));
    CUgraphExec exec = end_capture(stream);
    for (unsigned char value = 7; value < 10; value++) {
        from = value;
        OK(p_cuGraphLaunch(exec, stream));
        OK(p_cuStreamSynchronize(stream));
        assert_int_equal(to, value);
    }
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
}

static void captured_copies_reach_plain_host_memory_when_they_run(void **state)
{
    (void)state;
    under_all_policies(pageable_memory);
}

static void captured_memory(void)
{
    CUstream stream = new_stream();
    CUdeviceptr kept = new_memory(1);
    CUdeviceptr first;
    CUdeviceptr second;
    CUmemorytype type;
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemAllocAsync(&first, 1000, stream));
    OK(p_cuMemsetD8Async(first, 3, 1000, stream));
    OK(p_cuMemcpyDtoDAsync(kept, first + 999, 1, stream));
    OK(p_cuMemFreeAsync(first, stream));
    OK(p_cuMemAllocAsync(&second, 500, stream));
    OK(p_cuMemsetD8Async(second, 4, 500, stream));
    assert_int_equal(second, first);
    CUgraphExec exec = end_capture(stream);
    assert_int_equal(p_cuPointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, first), CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < 3; i++) {
        OK(p_cuGraphLaunch(exec, stream));
        OK(p_cuStreamSynchronize(stream));
        assert_int_equal(byte_at(kept), 3);
        assert_int_equal(byte_at(second + 499), 4);
        assert_int_equal(p_cuGraphLaunch(exec, stream), CUDA_ERROR_INVALID_VALUE);
        OK(p_cuMemFreeAsync(second, stream));
    }
    OK(p_cuStreamSynchronize(stream));
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuMemFree(kept));
    OK(p_cuStreamDestroy(stream));
}

static void captured_memory_lives_as_its_graph_says(void **state)
{
    (void)state;
    under_all_policies(captured_memory);
}

/* An event that others look at is recorded, and one of others waited for, in the middle of a graph. */
static void external_events(void)
{
    CUstream stream = new_stream();
    CUstream other = new_stream();
    CUevent reached = new_event();
    CUevent allowed = new_event();
    CUdeviceptr memory = new_memory(2);
    struct gate gate;
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemsetD8Async(memory, 8, 1, stream));
    OK(p_cuEventRecordWithFlags(reached, stream, CU_EVENT_RECORD_EXTERNAL));
    OK(p_cuStreamWaitEvent(stream, allowed, CU_EVENT_WAIT_EXTERNAL));
    OK(p_cuMemcpyDtoDAsync(memory, memory + 1, 1, stream));
    CUgraphExec exec = end_capture(stream);
    shut(&gate, other);
    OK(p_cuMemsetD8Async(memory + 1, 9, 1, other));
    OK(p_cuEventRecord(allowed, other));
    OK(p_cuGraphLaunch(exec, stream));
    OK(p_cuEventSynchronize(reached));
    assert_int_equal(p_cuStreamQuery(stream), CUDA_ERROR_NOT_READY);
    let_go(&gate);
    OK(p_cuStreamSynchronize(stream));
    assert_int_equal(byte_at(memory), 9);
    OK(p_cuStreamSynchronize(other));
    OK(p_cuGraphExecDestroy(exec));
    OK(p_cuMemFree(memory));
    OK(p_cuEventDestroy(reached));
    OK(p_cuEventDestroy(allowed));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuStreamDestroy(other));
}

static void external_events_tie_a_graph_to_the_work_outside(void **state)
{
    (void)state;
    under_all_policies(external_events);
}

static void a_capture_goes_with_its_first_stream(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream first = new_stream();
    CUstream second = new_stream();
    CUevent event = new_event();
    CUdeviceptr memory = new_memory(1);
    CUstreamCaptureStatus status;
    OK(p_cuStreamBeginCapture(first, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemsetD8Async(memory, 1, 1, first));
    OK(p_cuEventRecord(event, first));
    OK(p_cuStreamWaitEvent(second, event, 0));
    OK(p_cuStreamIsCapturing(second, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_ACTIVE);
    OK(p_cuStreamDestroy(first));
    OK(p_cuStreamIsCapturing(second, &status));
    assert_int_equal(status, CU_STREAM_CAPTURE_STATUS_NONE);
    assert_int_equal(p_cuEventQuery(event), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuMemFree(memory)); /* nothing forbids it any more */
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(second));
    test_sim_end();
}

static void *begin_and_leave(void *data)
{
    CUcontext context;
    OK(p_cuDevicePrimaryCtxRetain(&context, 0));
    OK(p_cuCtxSetCurrent(context));
    OK(p_cuStreamBeginCapture((CUstream)data, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    OK(p_cuDevicePrimaryCtxRelease(0));
    return NULL;
}

static void a_capture_of_a_thread_that_ended_is_nobody_s(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream stream = new_stream();
    pthread_t thread;
    assert_int_equal(pthread_create(&thread, NULL, begin_and_leave, stream), 0);
    assert_int_equal(pthread_join(thread, NULL), 0);
    CUdeviceptr memory = new_memory(1);
    OK(p_cuMemFree(memory));
    CUgraph graph;
    assert_int_equal(p_cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD);
    assert_int_equal(p_cuStreamEndCapture(stream, &graph), CUDA_ERROR_ILLEGAL_STATE);
    OK(p_cuStreamSynchronize(stream));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static void a_context_that_ends_takes_its_captures_along(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    CUcontext context;
    CUstream stream;
    OK(p_cuCtxCreate(&context, 0, 0));
    stream = new_stream();
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    OK(p_cuMemsetD8Async(0x1000, 1, 1, stream));
    OK(p_cuCtxDestroy(context));
    test_sim_begin();
    CUdeviceptr memory = new_memory(1);
    OK(p_cuMemFree(memory));
    test_sim_end();
}

/* ---- calls beside a capture ---- */

/* Answers as seen on an H200, 2026-11-30. */
static void ending_on_the_legacy_stream_spoils_captures_of_blocking_streams(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream blocking;
    OK(p_cuStreamCreate(&blocking, CU_STREAM_DEFAULT));
    CUstream stream = new_stream();
    CUgraph graph = NULL;
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    assert_int_equal(p_cuStreamEndCapture(CU_STREAM_LEGACY, &graph), CUDA_ERROR_ILLEGAL_STATE);
    OK(p_cuStreamBeginCapture(blocking, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(p_cuStreamEndCapture(CU_STREAM_LEGACY, &graph), CUDA_ERROR_STREAM_CAPTURE_IMPLICIT);
    assert_null(graph);
    assert_int_equal(p_cuStreamEndCapture(blocking, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(p_cuStreamEndCapture(stream, &graph));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuStreamDestroy(blocking));
    test_sim_end();
}

/* The first query is refused for the capture, and spoils it; from then on the event has no record that counts. Answers
 * as seen on an H200, 2026-11-30. */
static void an_event_of_a_spoiled_capture_is_invalid(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream stream = new_stream();
    CUstream other = new_stream();
    CUevent event = new_event();
    CUgraph graph;
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(p_cuEventRecord(event, stream));
    assert_int_equal(p_cuEventQuery(event), CUDA_ERROR_CAPTURED_EVENT);
    assert_int_equal(p_cuEventQuery(event), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuEventSynchronize(event), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuStreamWaitEvent(other, event, 0), CUDA_ERROR_INVALID_VALUE);
    assert_int_equal(p_cuStreamEndCapture(stream, &graph), CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuStreamDestroy(other));
    test_sim_end();
}

/* Answers as seen on an H200, 2026-11-30. */
static void a_captured_free_that_fails_marks_the_graph_all_the_same(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream stream = new_stream();
    CUdeviceptr memory = new_memory(1);
    CUgraph graph;
    CUgraph clone;
    OK(p_cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_RELAXED));
    assert_int_equal(p_cuMemFreeAsync(memory, stream), CUDA_ERROR_INVALID_VALUE);
    OK(p_cuStreamEndCapture(stream, &graph));
    assert_int_equal(p_cuGraphClone(&clone, graph), CUDA_ERROR_NOT_SUPPORTED);
    OK(p_cuGraphDestroy(graph));
    OK(p_cuMemFree(memory));
    OK(p_cuStreamDestroy(stream));
    test_sim_end();
}

static size_t front_of(CUstream stream)
{
    CUstreamCaptureStatus status;
    const CUgraphNode *nodes;
    size_t count;
    OK(p_cuStreamGetCaptureInfo(stream, &status, NULL, NULL, &nodes, NULL, &count));
    return count;
}

/* CUDA permits no removal of nodes during a capture, and what its driver does is not known. Here later work has no edge
 * from the node, whose place may be that of a node of another graph. */
static void a_node_that_goes_during_its_capture_is_waited_for_no_more(void **state)
{
    (void)state;
    OK(p_set_policy(STRATA_SIM_EARLY));
    test_sim_begin();
    CUstream stream = new_stream();
    CUstream other = new_stream();
    CUevent event = new_event();
    CUgraph graph;
    CUgraph foreign;
    CUgraphNode node;
    OK(p_cuGraphCreate(&graph, 0));
    OK(p_cuGraphCreate(&foreign, 0));
    OK(p_cuGraphAddEmptyNode(&node, graph, NULL, 0));
    OK(p_cuStreamBeginCaptureToGraph(stream, graph, &node, NULL, 1, CU_STREAM_CAPTURE_MODE_RELAXED));
    OK(p_cuEventRecord(event, stream));
    assert_int_equal(front_of(stream), 1);
    OK(p_cuGraphDestroyNode(node));
    OK(p_cuGraphAddEmptyNode(&node, foreign, NULL, 0));
    OK(p_cuStreamWaitEvent(other, event, 0));
    assert_int_equal(front_of(stream), 0);
    assert_int_equal(front_of(other), 0);
    OK(p_cuStreamEndCapture(stream, &graph));
    OK(p_cuGraphDestroy(foreign));
    OK(p_cuGraphDestroy(graph));
    OK(p_cuEventDestroy(event));
    OK(p_cuStreamDestroy(stream));
    OK(p_cuStreamDestroy(other));
    test_sim_end();
}

int main(void)
{
    test_graph_open();
    if (p_cuInit(0) != CUDA_SUCCESS)
        return 1;
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(captured_work_is_done_when_it_is_launched),
        cmocka_unit_test(streams_of_a_capture_are_ordered_by_its_events),
        cmocka_unit_test(a_missing_edge_in_a_capture_shows_itself),
        cmocka_unit_test(captured_copies_reach_plain_host_memory_when_they_run),
        cmocka_unit_test(captured_memory_lives_as_its_graph_says),
        cmocka_unit_test(external_events_tie_a_graph_to_the_work_outside),
        cmocka_unit_test(a_capture_goes_with_its_first_stream),
        cmocka_unit_test(a_capture_of_a_thread_that_ended_is_nobody_s),
        cmocka_unit_test(a_context_that_ends_takes_its_captures_along),
        cmocka_unit_test(ending_on_the_legacy_stream_spoils_captures_of_blocking_streams),
        cmocka_unit_test(an_event_of_a_spoiled_capture_is_invalid),
        cmocka_unit_test(a_captured_free_that_fails_marks_the_graph_all_the_same),
        cmocka_unit_test(a_node_that_goes_during_its_capture_is_waited_for_no_more),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
