/* Functions that become graphs: what they submit is captured once, and launched from then on. */
#ifndef STRATA_GRAPHED_H
#define STRATA_GRAPHED_H

#include <strata/graph.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Submits work on the stream. Another status than SUCCESS gives up what called it, which answers that status. */
typedef strata_status (*strata_graph_work)(strata_runtime *runtime, CUstream stream, void *data);

/* Runs `prologue` (may be NULL), then captures what `body` submits on the stream, and loads the graph on the device: it
 * is ready to be launched. What a prologue does is not part of the graph: it allocates, loads modules, warms up. With
 * STRATA_CAPTURE_GLOBAL, in which calls of any thread may spoil a capture, one call runs at a time in the process, the
 * prologue included; others wait. NULL pool: one of the graph's own. A failure leaves stream, pool and blocks as they
 * were before the call, but for what the functions themselves have done. Errors: those of the functions, BUSY (called
 * by one of them), and of strata_capture_begin, strata_capture_end and strata_graph_upload. */
STRATA_API strata_status strata_capture_into(strata_runtime *runtime, CUstream stream, strata_capture_mode mode,
                                             strata_capture_pool *pool, strata_graph_work prologue,
                                             strata_graph_work body, void *data, strata_graph **out);

/* A function of blocks that runs as a graph: a call copies inputs to where the graph reads them, launches, and gives
 * the blocks that the graph writes. Calls of one such function come one after another, whatever their streams. */
typedef struct strata_graphed strata_graphed;

/* Submits the function's work on the stream, with the uses of inputs (read), outputs (written) and of what else it
 * takes. It is called for each warm-up and once in the capture, and never again. */
typedef strata_status (*strata_graphed_body)(strata_runtime *runtime, CUstream stream, const strata_block *inputs,
                                             const strata_block *outputs, void *data);

typedef struct strata_graphed_options {
    uint32_t size; /* sizeof(strata_graphed_options) */
    strata_graphed_body body;
    void *data;
    const size_t *input_bytes; /* of each; arrays are read by strata_graphed_create only */
    size_t input_count;
    const size_t *output_bytes;
    size_t output_count;
    const strata_block *samples; /* inputs for the warm-ups; NULL: zeros */
    unsigned warm_ups;           /* calls before the capture; 0: 3 */
    strata_capture_pool *pool;   /* of what the body allocates; NULL: one of its own */
    const char *name;            /* of its graph (strata_capture_set_name); NULL: the pool's */
} strata_graphed_options;

/* Allocates inputs and outputs on the stream, warms up, and captures, as strata_capture_into does. Errors:
 * INVALID_VALUE, UNSUPPORTED (the driver has no captures, or the stack does not track uses), and those of
 * strata_capture_into. */
STRATA_API strata_status strata_graphed_create(strata_runtime *runtime, CUstream stream,
                                               const strata_graphed_options *options, strata_graphed **out);

/* Copies `inputs`, of at least the bytes named at creation, launches on the stream, and points *outputs at the blocks
 * that it writes: they belong to the function, are used like any block, and are written again by the next call, which
 * waits for their uses. One of `inputs` that is empty, or that is the function's own (strata_graphed_inputs), is not
 * copied: the graph reads what is there. Errors: INVALID_VALUE, those of a launch (launch.h), STALE. */
STRATA_API strata_status strata_graphed_call(strata_graphed *graphed, CUstream stream, const strata_block *inputs,
                                             const strata_block **outputs);

/* For code that writes inputs where they are read; the graph, for its facts: not destroyed. NULL for NULL. */
STRATA_API const strata_block *strata_graphed_inputs(const strata_graphed *graphed);
STRATA_API strata_graph *strata_graphed_graph(const strata_graphed *graphed);

/* Also while a call is in flight. NULL is ignored. Errors: as strata_graph_destroy; it is gone all the same. */
STRATA_API strata_status strata_graphed_destroy(strata_graphed *graphed);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_capture_into(runtime, stream, mode, pool, prologue, body, data, out) \
    strata_capture_into(runtime, strata_stream_as_meant(stream), mode, pool, prologue, body, data, out)
#define strata_graphed_create(runtime, stream, options, out) \
    strata_graphed_create(runtime, strata_stream_as_meant(stream), options, out)
#define strata_graphed_call(graphed, stream, inputs, outputs) \
    strata_graphed_call(graphed, strata_stream_as_meant(stream), inputs, outputs)
#endif

#ifdef __cplusplus
}
#endif

#endif
