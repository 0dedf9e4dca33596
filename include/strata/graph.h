/* Captures and graphs: work is captured once from streams and launched again and again, with memory that is there at
 * every launch.
 *
 *     strata_capture_begin(runtime, stream, STRATA_CAPTURE_GLOBAL, NULL);
 *     strata_runtime_allocate(runtime, bytes, stream, &block);            memory of the capture's pool
 *     ... kernels and copies on `stream`, with their blocks' uses, as outside of a capture ...
 *     strata_runtime_deallocate(runtime, &block);                         used again by later work of the capture
 *     strata_capture_end(runtime, stream, &graph);
 *     strata_graph_launch(graph, any_stream);
 *
 * While a stream is captured, the runtime's calls that name it, or a stream that the program forked from it, belong to
 * the capture:
 *
 * memory  A request takes memory of the capture's pool. What is freed in the capture is used again in it only by work
 *         that the graph orders after all work that used it: branches of a fork never share memory.
 * uses    A prepared use makes the stream's next work depend, in the graph, on work of the capture's other streams that
 *         conflicts with it. A launch of the graph waits for, and notes, a use of each block that the capture used.
 * frees   A block from outside that the capture used is freed when the last graph that uses it is gone; until then its
 *         memory stays.
 *
 * A graph belongs to the generation of the device in which it was made (device_state.h): after a rebuild a launch
 * answers STALE. Any thread may call; a pool, a graph or a capture is not used after the call that ends it. */
#ifndef STRATA_GRAPH_H
#define STRATA_GRAPH_H

#include <strata/emitter.h>
#include <strata/ref.h>
#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_capture_pool strata_capture_pool;
typedef struct strata_graph strata_graph;

/* ---- memory of captures ---- */

/* Makes a pool whose memory the stack allocates as it is needed, in segments with the tag `name` (NULL: "capture").
 * Graphs whose captures shared a pool share its memory: launches of those that have memory of a segment in common never
 * overlap, and each may overwrite what
 * another one left in blocks that were freed in its capture, and in blocks that were allocated after such a free. For
 * blocks that must outlast launches of another graph, allocate before the capture. Errors: STALE, OUT_OF_HOST_MEMORY,
 * DRIVER. */
STRATA_API strata_status strata_capture_pool_create(strata_runtime *runtime, const char *name,
                                                    strata_capture_pool **out);

/* Gives the handle back. The memory is freed, in stream order, when the last graph and the last live block of the pool
 * are gone too. NULL is ignored. Errors: an error of such a free, which is tried again when the runtime is destroyed.
 */
STRATA_API strata_status strata_capture_pool_release(strata_capture_pool *pool);

/* Keeps a reference's memory as long as the pool's own. Errors: SEALED, INVALID_VALUE (it is the pool's own),
 * OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_capture_pool_record_buffer(strata_capture_pool *pool, strata_ref *ref);

/* How many are recorded; 0 for NULL. */
STRATA_API size_t strata_capture_pool_buffer_count(const strata_capture_pool *pool);

/* Releases the recorded references. Errors: SEALED. */
STRATA_API strata_status strata_capture_pool_clear_buffers(strata_capture_pool *pool);

/* A sealed pool answers SEALED where memory or a buffer is asked of it. Frees go on. */
STRATA_API strata_status strata_capture_pool_seal(strata_capture_pool *pool);
STRATA_API strata_status strata_capture_pool_unseal(strata_capture_pool *pool);
STRATA_API bool strata_capture_pool_is_sealed(const strata_capture_pool *pool);

/* For code that calls cudaMallocAsync or cuMemAllocAsync itself: until the second call the device's current pool is one
 * of the driver's that belongs to this pool, keeps what is freed, and is destroyed with it. One at a time in the
 * process. Its memory is not the stack's: budgets do not see it. Captured allocations become nodes of the graph, and
 * are served by the driver's memory for graphs. The second call restores what was current, unless other code has set
 * another one meanwhile. In a capture or outside of one. Errors: BUSY (a pool is active), INVALID_VALUE (the pool is
 * not), STALE, UNSUPPORTED, DRIVER.
 */
STRATA_API strata_status strata_capture_pool_activate(strata_capture_pool *pool);
STRATA_API strata_status strata_capture_pool_deactivate(strata_capture_pool *pool);

typedef struct strata_capture_pool_usage {
    size_t reserved; /* bytes that it has of the stack */
    size_t in_use;   /* bytes of live blocks, rounded up to 256 each */
    size_t live_blocks;
} strata_capture_pool_usage;
STRATA_API strata_status strata_capture_pool_get_usage(const strata_capture_pool *pool,
                                                       strata_capture_pool_usage *usage);

/* A number by which other code can find the pool, unique for the runtime; 0 for NULL. */
STRATA_API uint64_t strata_graph_pool_handle(const strata_capture_pool *pool);

/* The pool with that number, with one handle more, which is given back by the second call, or by
 * strata_capture_pool_release. Errors: INVALID_VALUE (there is none). */
STRATA_API strata_status strata_capture_pool_for_handle(strata_runtime *runtime, uint64_t handle,
                                                        strata_capture_pool **out);
STRATA_API strata_status strata_release_graph_pool_handle(strata_runtime *runtime, uint64_t handle);

/* ---- captures ---- */

/* Which calls of the driver would spoil the capture meanwhile (cuStreamBeginCapture). Strata's own never do. */
typedef enum strata_capture_mode {
    STRATA_CAPTURE_GLOBAL = 0,   /* unsafe calls of any thread */
    STRATA_CAPTURE_THREAD_LOCAL, /* those of the capturing thread */
    STRATA_CAPTURE_RELAXED,      /* none */
} strata_capture_mode;

typedef enum strata_capture_state {
    STRATA_CAPTURE_STATE_NONE = 0,
    STRATA_CAPTURE_STATE_ACTIVE,
    STRATA_CAPTURE_STATE_INVALIDATED, /* a call spoiled it: end or discard it */
} strata_capture_state;

/* Begins to capture a stream: one of the runtime's, a registered one, or another one, but not the legacy stream. A
 * known stream is unknown until the capture ends. NULL pool: one of the graph's own. The thread that begins a capture
 * also ends it, unless the mode is relaxed; one that is left behind is discarded when the thread ends (before its C++
 * thread-local objects that were there at its first capture), the stream is released or unregistered, or the runtime is
 * destroyed. Errors: STREAM_CAPTURE (already captured), INVALID_VALUE (the legacy stream; known to the runtimes of
 * another device), STALE, UNSUPPORTED, BUSY (the stream is held as last writer: ref.h), OUT_OF_HOST_MEMORY, DRIVER. */
STRATA_API strata_status strata_capture_begin(strata_runtime *runtime, CUstream stream, strata_capture_mode mode,
                                              strata_capture_pool *pool);

/* The state of the stream's capture, by whomever it was begun, and whether it has one: false also after an error, which
 * is then the thread's last. Errors: DRIVER. */
STRATA_API strata_status strata_capture_status(strata_runtime *runtime, CUstream stream, strata_capture_state *out);
STRATA_API bool strata_is_stream_capturing(strata_runtime *runtime, CUstream stream);

/* Ends the capture that began on the stream, and makes a graph of it. After an error there is no graph. The stream is
 * free again, except after STREAM_MISUSE, where the driver did not end the capture, and where a known stream could not
 * be made known again: the next call then goes on. Errors: INVALID_VALUE (no capture began there), STREAM_CAPTURE (it
 * was spoiled, or a forked stream was not joined), STREAM_MISUSE (another thread's), STALE, OUT_OF_HOST_MEMORY, DRIVER
 * (the message names the node). */
STRATA_API strata_status strata_capture_end(strata_runtime *runtime, CUstream stream, strata_graph **out);

/* Names the capture that began on the stream, and the graph that it becomes (not one that it updates): in logs, and as
 * the tag of memory that a pool which was made for the capture takes from then on. At first it has its pool's name.
 * Errors: INVALID_VALUE (no capture began there), and those of strata_tag_intern. */
STRATA_API strata_status strata_capture_set_name(strata_runtime *runtime, CUstream stream, const char *name);

/* Ends it without a graph. Blocks that were allocated in it stay the caller's. After an error the capture goes on, and
 * can be discarded again. Errors: INVALID_VALUE (no capture began there), STREAM_MISUSE (another thread's), DRIVER,
 * OUT_OF_HOST_MEMORY (a known stream could not be made known again). */
STRATA_API strata_status strata_capture_discard(strata_runtime *runtime, CUstream stream);

/* ---- graphs ---- */

/* Launches the graph on a stream, after all work that conflicts with its blocks, with one wait and one record for each
 * other stream at most. On a stream that the runtime captures, the graph becomes a node of that capture, as it is now,
 * with its blocks, and with the memory of its pool, which must be another one than that capture's. Errors: STALE,
 * STREAM_CAPTURE (other code captures the stream), INVALID_VALUE (it has memory of that capture's pool), UNSUPPORTED
 * (nodes of a part were changed one by one), and those of a launch (launch.h). */
STRATA_API strata_status strata_graph_launch(strata_graph *graph, CUstream stream);

/* Prepares the first launch on the device. Once; later calls do nothing. Errors: STALE, STREAM_CAPTURE (the stream is
 * being captured), UNSUPPORTED, DRIVER. */
STRATA_API strata_status strata_graph_upload(strata_graph *graph, CUstream stream);

/* ---- changing a graph ---- */

typedef enum strata_graph_update_result {
    STRATA_GRAPH_UPDATED = 0,
    STRATA_GRAPH_TOPOLOGY_CHANGED, /* other nodes, or other dependencies: only another graph can do it */
    STRATA_GRAPH_NODE_REFUSED,     /* a node has changed in a way that the executable graph cannot take */
} strata_graph_update_result;

typedef struct strata_graph_update_info {
    strata_graph_update_result result;
    CUgraphExecUpdateResult driver_result;
    CUgraphNode node; /* of the capture that the driver names, or NULL; valid while the graph *instead is */
    const char *type; /* of that node: "kernel", "copy", ... */
} strata_graph_update_info;

/* Ends the capture that began on the stream and puts it into the graph: from the next launch on the graph does what was
 * captured, and uses its blocks, while those that only the old one used are let go. Faster than a new graph. The
 * capture took memory of the graph's pool (strata_graph_pool) or of none. An error leaves the graph as it was: DRIVER,
 * if the driver does not take the capture (`info`, unless NULL, tells why, and with `instead` the capture becomes a new
 * graph); INVALID_VALUE, if the pool is another one, which leaves the capture too; else as strata_capture_end. */
STRATA_API strata_status strata_graph_update(strata_graph *graph, CUstream stream, strata_graph_update_info *info,
                                             strata_graph **instead);

/* The node of the work that a captured stream was given last: on that, and nothing else, its next work would depend.
 * A handle of the graph to be made. Errors: INVALID_VALUE (the stream is not captured, or there is not one such node),
 * DRIVER. */
STRATA_API strata_status strata_capture_last_node(strata_runtime *runtime, CUstream stream, CUgraphNode *out);

/* The node with a number below strata_graph_node_count, in the driver's order, which is constant for a graph. `type`
 * may be NULL. Errors: INVALID_VALUE, DRIVER. */
STRATA_API strata_status strata_graph_node_at(const strata_graph *graph, size_t index, CUgraphNode *node,
                                              CUgraphNodeType *type);

/* A block that changed work uses. */
typedef struct strata_graph_block {
    const strata_block *block;
    strata_access access;
} strata_graph_block;

/* Change what a node does from the next launch on: a kernel with its arguments, a copy, a fill (the driver's
 * cuGraphExecKernelNodeSetParams and its siblings tell what may change). The graph uses the named blocks from then on,
 * beside those that it used before. Errors: INVALID_VALUE (no such node, or a change that the driver refuses),
 * USE_AFTER_FREE, STALE, UNSUPPORTED, DRIVER; the graph is as before. */
STRATA_API strata_status strata_graph_set_kernel(strata_graph *graph, CUgraphNode node,
                                                 const CUDA_KERNEL_NODE_PARAMS *kernel,
                                                 const strata_graph_block *blocks, size_t count);
STRATA_API strata_status strata_graph_set_copy(strata_graph *graph, CUgraphNode node, const CUDA_MEMCPY3D *copy,
                                               const strata_graph_block *blocks, size_t count);
STRATA_API strata_status strata_graph_set_fill(strata_graph *graph, CUgraphNode node,
                                               const CUDA_MEMSET_NODE_PARAMS *fill, const strata_graph_block *blocks,
                                               size_t count);

/* Facts. For NULL: 0, false, NULL. */
STRATA_API uint64_t strata_graph_num_replays(const strata_graph *graph); /* successful launches */
STRATA_API bool strata_graph_is_uploaded(const strata_graph *graph);
STRATA_API bool strata_graph_has_pool(const strata_graph *graph);             /* its capture took memory of one */
STRATA_API bool strata_graph_has_private_pool(const strata_graph *graph);     /* one of its own */
STRATA_API strata_capture_pool *strata_graph_pool(const strata_graph *graph); /* the graph's handle: not released */
STRATA_API size_t strata_graph_pool_buffer_count(const strata_graph *graph);
STRATA_API const char *strata_graph_name(const strata_graph *graph);
STRATA_API size_t strata_graph_node_count(const strata_graph *graph);
STRATA_API uint64_t strata_graph_generation(const strata_graph *graph);

/* Whether the free of a block that the graph uses is refused (BLOCK_IN_USE), or deferred to the graph's end, which is
 * the default. */
STRATA_API strata_status strata_graph_refuse_frees(strata_graph *graph, bool refuse);

/* Writes the graph in the DOT language to a file (cuGraphDebugDotPrint). Errors: UNSUPPORTED, DRIVER. */
STRATA_API strata_status strata_graph_dot(const strata_graph *graph, const char *path);

/* A line: nodes, blocks, pool, launches. */
STRATA_API void strata_graph_print(const strata_graph *graph, strata_write_callback write, void *data);

/* Ends a graph, also while launches are in flight: its memory is freed after them. NULL is ignored. Errors: of such a
 * free; the graph is gone all the same. */
STRATA_API strata_status strata_graph_destroy(strata_graph *graph);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_capture_begin(runtime, stream, mode, pool) \
    strata_capture_begin(runtime, strata_stream_as_meant(stream), mode, pool)
#define strata_capture_status(runtime, stream, out) strata_capture_status(runtime, strata_stream_as_meant(stream), out)
#define strata_is_stream_capturing(runtime, stream) strata_is_stream_capturing(runtime, strata_stream_as_meant(stream))
#define strata_capture_end(runtime, stream, out)    strata_capture_end(runtime, strata_stream_as_meant(stream), out)
#define strata_capture_discard(runtime, stream)     strata_capture_discard(runtime, strata_stream_as_meant(stream))
#define strata_capture_set_name(runtime, stream, name) \
    strata_capture_set_name(runtime, strata_stream_as_meant(stream), name)
#define strata_graph_update(graph, stream, info, instead) \
    strata_graph_update(graph, strata_stream_as_meant(stream), info, instead)
#define strata_capture_last_node(runtime, stream, out) \
    strata_capture_last_node(runtime, strata_stream_as_meant(stream), out)
#define strata_graph_launch(graph, stream) strata_graph_launch(graph, strata_stream_as_meant(stream))
#define strata_graph_upload(graph, stream) strata_graph_upload(graph, strata_stream_as_meant(stream))
#endif

#ifdef __cplusplus
}
#endif

#endif
