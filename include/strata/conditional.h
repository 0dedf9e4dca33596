/* Conditional work in captures: bodies that a graph runs or leaves out, or repeats, by a value that is set on the
 * device.
 *
 *     strata_capture_condition(runtime, stream, NULL, &condition);
 *     ... a kernel on `stream` that sets it: cudaGraphSetConditional(condition, value)
 *     strata_capture_if(runtime, stream, condition, body);        `body` is another stream, idle
 *     ... work on `body`, as in any capture: uses of blocks, requests, frees
 *     strata_capture_body_close(runtime, body);
 *     ... later work on `stream` comes after the body, whether it runs or not
 *
 * A body is captured on a stream of the caller's, which belongs to it until it is closed, with the capture's mode and
 * pool. Meanwhile requests, uses, launches and further bodies on the streams of the capture around it are refused with
 * STREAM_CAPTURE; work that is submitted behind the node all the same, and finished, leaves no graph. The graph uses,
 * waits for and keeps what a body uses, as if it ran:
 *
 * order   The node comes after all work of the capture around it that conflicts with the body, and before later work.
 *         The rounds of a loop come one after another.
 * memory  What is allocated in a body is freed in it; strata_capture_body_close refuses to end one with live blocks of
 *         its own. It is memory that was free before the node, is not shared with work beside the node, and is used
 *         again by work behind the node and by the node's other bodies, of which one runs.
 *
 * A block that was allocated in the capture around a body is not freed in the body: STREAM_CAPTURE. A free of any other
 * block in it is treated as one in the capture. A reference to such a block that is released meanwhile answers
 * STREAM_CAPTURE, too, and is freed by a later call.
 *
 * A body that has conditional nodes of its own makes its first condition before its first work: STREAM_MISUSE. If such
 * a body is spoiled, by a call that captures forbid or by a fork that is not joined, the graph around it stays with the
 * driver, a few kilobytes for good; if the capture around it is spoiled, too, driver 580 crashes when that ends.
 *
 * The driver allows kernels, fills, copies but for those from or to pageable host memory, graphs and conditional nodes
 * in a body, of the runtime's device; a graph with other work in a body is refused when its capture ends.
 *
 * A graph with conditional nodes is neither updated by another capture nor made a part of another graph: UNSUPPORTED.
 *
 * All calls need a driver of CUDA 12.3, else they answer UNSUPPORTED. Else and switch need one of CUDA 12.8; older ones
 * refuse the node (DRIVER). */
#ifndef STRATA_CONDITIONAL_H
#define STRATA_CONDITIONAL_H

#include <strata/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Makes a condition for one node of the capture that the stream is in, or of a body in it. Kernels get it by value and
 * set it with cudaGraphSetConditional: those of the capture before the node, and, for a loop, those of its body.
 * `initial`: its value at the beginning of each launch; NULL: undefined until a kernel sets it. A condition without a
 * node lets the capture's end fail. Errors: INVALID_VALUE, STREAM_CAPTURE (the stream is in no capture of the runtime,
 * a body of that is open, or another thread ends it), STALE, UNSUPPORTED, DRIVER. */
STRATA_API strata_status strata_capture_condition(strata_runtime *runtime, CUstream stream, const unsigned *initial,
                                                  CUgraphConditionalHandle *out);

/* Adds a conditional node to the capture that `stream` is in, at its present point, and begins to capture its first
 * body on `body`: any stream that strata_capture_begin takes. If: the body runs if the value is not 0. Else: a second
 * body runs if it is 0. While: the body runs as long as the value is not 0, which is looked at before each round.
 * Switch: the body of that number runs, from 0 on; none, if there is none. Bodies that are not begun are empty.
 *
 * Errors: as strata_capture_condition, and those of strata_capture_begin. Where the node was added and the body could
 * not be begun, the capture gives no graph; if even the stream cannot be set back, strata_capture_body_close or a
 * discard tries that again. */
STRATA_API strata_status strata_capture_if(strata_runtime *runtime, CUstream stream, CUgraphConditionalHandle condition,
                                           CUstream body);
STRATA_API strata_status strata_capture_if_else(strata_runtime *runtime, CUstream stream,
                                                CUgraphConditionalHandle condition, CUstream body);
STRATA_API strata_status strata_capture_while(strata_runtime *runtime, CUstream stream,
                                              CUgraphConditionalHandle condition, CUstream body);
STRATA_API strata_status strata_capture_switch(strata_runtime *runtime, CUstream stream,
                                               CUgraphConditionalHandle condition, unsigned bodies, CUstream body);

/* Ends the body that is captured on the stream, and begins the node's next one there. Errors: INVALID_VALUE (there is
 * no next one, which leaves the body open), and those of strata_capture_body_close and of the beginning. */
STRATA_API strata_status strata_capture_body_next(strata_runtime *runtime, CUstream body);

/* Ends the body that is captured on the stream, and with it the node. The thread that began it ends it, unless the mode
 * is relaxed, and the node not on that thread's per-thread stream. Errors that leave the body open: INVALID_VALUE (the
 * stream captures none), BLOCK_IN_USE (blocks that were allocated in it are not freed), STREAM_MISUSE (another
 * thread's, or a body in it is open), STALE, and DRIVER if the driver goes on capturing or the stream could not be set
 * back. After others the capture around it gives no graph: STREAM_CAPTURE (it was spoiled, or a forked stream was not
 * joined), OUT_OF_HOST_MEMORY, DRIVER. strata_capture_discard ends a body too, with the same consequence. */
STRATA_API strata_status strata_capture_body_close(strata_runtime *runtime, CUstream body);

/* Conditional nodes of the graph, those in bodies too; 0 for NULL. */
STRATA_API size_t strata_graph_conditional_count(const strata_graph *graph);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_capture_condition(runtime, stream, initial, out) \
    strata_capture_condition(runtime, strata_stream_as_meant(stream), initial, out)
#define strata_capture_if(runtime, stream, condition, body) \
    strata_capture_if(runtime, strata_stream_as_meant(stream), condition, strata_stream_as_meant(body))
#define strata_capture_if_else(runtime, stream, condition, body) \
    strata_capture_if_else(runtime, strata_stream_as_meant(stream), condition, strata_stream_as_meant(body))
#define strata_capture_while(runtime, stream, condition, body) \
    strata_capture_while(runtime, strata_stream_as_meant(stream), condition, strata_stream_as_meant(body))
#define strata_capture_switch(runtime, stream, condition, bodies, body) \
    strata_capture_switch(runtime, strata_stream_as_meant(stream), condition, bodies, strata_stream_as_meant(body))
#define strata_capture_body_next(runtime, body)  strata_capture_body_next(runtime, strata_stream_as_meant(body))
#define strata_capture_body_close(runtime, body) strata_capture_body_close(runtime, strata_stream_as_meant(body))
#endif

#ifdef __cplusplus
}
#endif

#endif
