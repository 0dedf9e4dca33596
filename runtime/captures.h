/* A runtime's captures, the memory that they take, and the blocks that they and their graphs keep.
 *
 * The calls of a runtime on a stream that Strata captures are answered here instead of by the stack: a request takes
 * memory of the capture's pool, a use is noted in the capture, and a free of the pool's memory makes it usable behind
 * the work that used it. Everything below is guarded by the captures' lock, which is never held during a call of the
 * stack, nor during one of the driver but for questions about nodes. */
#ifndef STRATA_RUNTIME_CAPTURES_H
#define STRATA_RUNTIME_CAPTURES_H

#include "runtime/capture_pool.h"
#include "runtime/capture_uses.h"
#include "runtime/graph_ancestors.h"

struct strata_capture;

/* Where a captured body belongs. */
typedef struct strata_body {
    struct strata_capture *around;
    CUstream from;         /* stream of that capture at whose place the node was added */
    CUgraphNode node;      /* the conditional one; NULL: not added yet. Written under the captures' lock */
    const CUgraph *graphs; /* of all bodies; they belong to the node */
    unsigned index, count;
    bool nests; /* it has conditional nodes itself; under the captures' lock */
} strata_body;

typedef struct strata_capture {
    struct strata_capture *next;     /* of the runtime */
    struct strata_capture *all_next; /* of the process; guarded by the list's lock (captures.c) */
    strata_runtime *runtime;
    CUstream stream;
    strata_capture_mode mode;
    cuuint64_t id;
    strata_tag name;             /* of its graph; guarded by the captures' lock */
    strata_capture_pool *pool;   /* held */
    bool made_pool;              /* the pool was made for this capture */
    pthread_t thread;            /* the thread that began it */
    bool known;                  /* the stream was known, and is to be made known again */
    bool ended;                  /* the driver has ended it, or not begun it */
    CUresult result;             /* of cuStreamEndCapture */
    CUgraph graph;               /* from the end, or NULL */
    strata_status failed;        /* not SUCCESS: the capture gives no graph */
    const char *why;             /* why, a static text; NULL: a use was not noted */
    size_t conditionals;         /* conditional nodes of its graph, and of bodies in it */
    bool keeps_graph;            /* a body of its graph is broken: whatever destroys the graph crashes */
    strata_body *body_of;        /* if its graph is a body of a node; else NULL. Owned, constant but for the node */
    struct strata_capture *body; /* a body of this one that is captured now, or NULL; guarded by the captures' lock */
    bool opening; /* a thread opens a body: no other thread does, or ends this capture; guarded likewise */
    bool ending;  /* a thread ends it, and frees it then: no other thread opens a body in it; guarded likewise */
    strata_capture_uses uses;
    strata_ancestors *ancestors; /* of its streams, made when they are needed */
} strata_capture;

/* Initializes and ends a runtime's part. */
void strata_captures_init(strata_runtime *runtime);
void strata_captures_destroy(strata_runtime *runtime);

/* The runtime's capture that began on the stream, or NULL. No other thread ends it meanwhile. */
strata_capture *strata_capture_on(strata_runtime *runtime, CUstream stream);

/* The first finds the body that is captured on the stream, and claims its end, so that no other thread ends and frees
 * it; the second gives that back, and returns `status`. Errors: INVALID_VALUE, STREAM_MISUSE. */
strata_status strata_capture_claim_body(strata_runtime *runtime, CUstream stream, const char *call,
                                        strata_capture **out);
strata_status strata_capture_give_end_back(strata_capture *capture, strata_status status);

/* enter lists a new capture, whose pool is held and whose end is claimed, and makes its stream unknown;
 * begin_for_driver then begins it, and the caller gives the end back. If either fails, strata_capture_give_up undoes it
 * and frees the capture. */
strata_status strata_capture_enter(strata_capture *capture);
strata_status strata_capture_begin_for_driver(strata_capture *capture);
void strata_capture_give_up(strata_capture *capture);

/* Ends the capture of a body, whose end is claimed, and notes its uses in the capture around it. */
strata_status strata_capture_body_leave(strata_capture *capture);

/* Asks the driver; raises STREAM_CAPTURE if the stream is being captured. */
strata_status strata_capture_check_idle(const strata_runtime *runtime, CUstream stream);

/* Makes the capture give no graph, for the reason `failed`, unless something has failed before. In the second, the lock
 * is held. */
void strata_capture_spoil(strata_capture *capture, strata_status failed, const char *why);

static inline void strata_capture_fail(strata_capture *capture, strata_status failed, const char *why)
{
    if (capture->failed != STRATA_SUCCESS)
        return;
    capture->failed = failed;
    capture->why = why;
}

/* Raises STREAM_CAPTURE while a body of the capture is open. The lock is held. */
strata_status strata_capture_check_closed(const strata_capture *capture);

/* Whether a body of the capture is open, or about to be. The lock is held. */
static inline bool strata_capture_has_body(const strata_capture *capture)
{
    return capture->body || capture->opening;
}

/* Discards all captures, and frees what pools left. Errors: STREAM_MISUSE (a capture belongs to another thread), BUSY
 * (graphs or pools exist). */
strata_status strata_captures_discard(strata_runtime *runtime);

/* Discards the captures that began on a stream. */
strata_status strata_captures_leave_stream(strata_runtime *runtime, CUstream stream);

/* Makes something of an ended capture and the driver's graph of it, and takes over its uses. NULL: makes nothing. */
typedef strata_status (*strata_capture_maker)(strata_capture *capture, void *data);

/* Ends the capture that began on the stream, for strata_capture_end or strata_graph_update; not if `check` refuses it.
 * Errors: of strata_capture_end. */
strata_status strata_capture_end_as(strata_runtime *runtime, CUstream stream, strata_graph_event_kind what,
                                    strata_capture_maker check, strata_capture_maker make, void *data);

static inline bool strata_captures_any(const strata_runtime *runtime)
{
    return __builtin_expect(atomic_load_explicit(&runtime->captures.live, memory_order_relaxed) != 0, 0);
}

/* Whether the capture began on the stream that the handle means on this thread. */
static inline bool strata_capture_began_on(const strata_capture *capture, CUstream stream)
{
    return capture->stream == stream &&
           (stream != CU_STREAM_PER_THREAD || pthread_equal(capture->thread, pthread_self()));
}

/* The capture under way with the driver's id, or NULL. The lock is held. */
static inline strata_capture *strata_capture_find(const strata_runtime *runtime, cuuint64_t id)
{
    strata_capture *capture = runtime->captures.list;
    while (capture && (capture->id != id || capture->ended))
        capture = capture->next;
    return capture;
}

/* Each returns false if the stream is in no capture of the runtime, and the call goes on to the stack; else *status is
 * its answer. Call them only if there are any. */
bool strata_captured_allocate(strata_runtime *runtime, const strata_request *request, strata_block *out,
                              strata_status *status);
bool strata_captured_prepare(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                             strata_status *status);
bool strata_captured_prepare_part(strata_runtime *runtime, const strata_capture_use *of_part, CUstream stream,
                                  strata_status *status); /* a use of a graph that becomes a part */
bool strata_captured_finish(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                            strata_status *status);
bool strata_captured_record(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                            strata_status *status);

/* Frees a block that is not kept on a stream that the program forked into a capture: the capture keeps it until its
 * graph is gone. False: the call goes on as without captures. */
bool strata_captured_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own,
                          strata_status *status);

/* Notes the uses of a body that has ended in the capture around it, and makes the node come after all that conflicts
 * with them. */
strata_status strata_captured_body(strata_capture *body);

/* Holds a reference until the graph of the stream's capture is gone. False: in no capture, or *status is an error. */
bool strata_captured_hold(strata_runtime *runtime, CUstream stream, struct strata_ref *ref, strata_status *status);

/* Frees a kept block on `stream` or, with `own`, on its allocation stream. */
strata_status strata_kept_block_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own);

/* Whether the runtime has ever had a capture, a capture pool, an open use or a registered block. */
static inline bool strata_captures_were_used(const strata_runtime *runtime)
{
    return __builtin_expect(atomic_load_explicit(&runtime->captures.used, memory_order_relaxed), 0);
}

/* Whether the block is kept, so that strata_kept_block_free frees it. */
static inline bool strata_runtime_keeps(const strata_runtime *runtime, const strata_block *block)
{
    return strata_captures_were_used(runtime) && strata_block_is_kept(runtime->table, block);
}

/* Whether the program has freed a kept block; the second raises USE_AFTER_FREE then. */
bool strata_kept_block_is_freed(strata_runtime *runtime, const strata_block *block);
strata_status strata_kept_block_check(strata_runtime *runtime, const strata_block *block);

/* Turns a segment that a search found into the pool's block at that address. */
strata_status strata_captures_find(strata_runtime *runtime, CUdeviceptr address, strata_block *found);

#endif
