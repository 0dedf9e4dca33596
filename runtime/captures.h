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
    CUstream from;         /* of that capture, at whose point the node was added */
    CUgraphNode node;      /* the conditional one; NULL: not added yet. Written under the captures' lock */
    const CUgraph *graphs; /* of all bodies of the node, whose they are */
    unsigned index, count;
    bool nests; /* it has conditional nodes of its own; under the captures' lock */
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
    bool made_pool;              /* for this capture */
    pthread_t thread;            /* that began it */
    bool known;                  /* the stream is to be made known again */
    bool ended;                  /* for the driver, or not begun */
    CUresult result;             /* of the end */
    CUgraph graph;               /* then, or NULL */
    strata_status failed;        /* the capture gives no graph, and why */
    const char *why;             /* static; NULL: a use was not noted */
    size_t conditionals;         /* nodes of its graph, and of bodies in it */
    bool keeps_graph;            /* a body of its graph is broken: whatever destroys the graph crashes */
    strata_body *body_of;        /* if its graph is a body of a node; else NULL. Owned, constant but for the node */
    struct strata_capture *body; /* a body of this one that is captured now, or NULL; guarded by the captures' lock */
    bool opening;                /* a thread opens one: no other does, nor ends this capture; guarded likewise */
    strata_capture_uses uses;
    strata_ancestors *ancestors; /* of its streams, as they are asked for */
} strata_capture;

/* Initializes and ends a runtime's part. */
void strata_captures_init(strata_runtime *runtime);
void strata_captures_destroy(strata_runtime *runtime);

/* The capture that began on the stream, or NULL. */
strata_capture *strata_capture_on(strata_runtime *runtime, CUstream stream);

/* Lists a new capture, whose pool is held, and leaves its stream to it; then begins it for the driver. What fails is
 * undone by strata_capture_give_up, which takes the capture. */
strata_status strata_capture_enter(strata_capture *capture);
strata_status strata_capture_begin_for_driver(strata_capture *capture);
void strata_capture_give_up(strata_capture *capture);

/* Ends a body, and notes in the capture around it what it did. */
strata_status strata_capture_body_leave(strata_capture *capture);

/* The driver's word on a known stream that is captured already. */
strata_status strata_capture_check_idle(const strata_runtime *runtime, CUstream stream);

/* The capture gives no graph: `failed`, if nothing has failed before. The second expects the lock. */
void strata_capture_spoil(strata_capture *capture, strata_status failed, const char *why);

static inline void strata_capture_fail(strata_capture *capture, strata_status failed, const char *why)
{
    if (capture->failed != STRATA_SUCCESS)
        return;
    capture->failed = failed;
    capture->why = why;
}

/* Errors: STREAM_CAPTURE (a body of it is open). The lock is held. */
strata_status strata_capture_check_closed(const strata_capture *capture);

/* A body is open, or about to be. The lock is held. */
static inline bool strata_capture_has_body(const strata_capture *capture)
{
    return capture->body || capture->opening;
}

/* Discards all captures, and frees what pools left. Errors: STREAM_MISUSE (a capture belongs to another thread), BUSY
 * (graphs or pools exist). */
strata_status strata_captures_discard(strata_runtime *runtime);

/* Discards the captures that began on a stream. */
strata_status strata_captures_leave_stream(strata_runtime *runtime, CUstream stream);

/* What becomes of an ended capture that the driver made a graph of; takes over what it uses. NULL: nothing. */
typedef strata_status (*strata_capture_maker)(strata_capture *capture, void *data);

/* Ends the capture that began on the stream, for strata_capture_end or strata_graph_update; with `check`, if that
 * allows it. Errors: of strata_capture_end. */
strata_status strata_capture_end_as(strata_runtime *runtime, CUstream stream, strata_graph_event_kind what,
                                    strata_capture_maker check, strata_capture_maker make, void *data);

static inline bool strata_captures_any(const strata_runtime *runtime)
{
    return __builtin_expect(atomic_load_explicit(&runtime->captures.live, memory_order_relaxed) != 0, 0);
}

/* Whether it began on what the handle means on this thread. */
static inline bool strata_capture_began_on(const strata_capture *capture, CUstream stream)
{
    return capture->stream == stream &&
           (stream != CU_STREAM_PER_THREAD || pthread_equal(capture->thread, pthread_self()));
}

/* One that is under way, or NULL. The lock is held. */
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
                                  strata_status *status); /* a use that a graph has which becomes a part */
bool strata_captured_finish(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                            strata_status *status);
bool strata_captured_record(strata_runtime *runtime, const strata_block *block, CUstream stream, strata_access access,
                            strata_status *status);

/* The free of a block that is not kept, on a stream that the program forked into a capture: the capture keeps it.
 * False: go on as without captures. */
bool strata_captured_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own,
                          strata_status *status);

/* Notes in the capture around a body that has ended what the body used: the node comes after all that conflicts with
 * it. */
strata_status strata_captured_body(strata_capture *body);

/* Holds a reference until the graph of the stream's capture is gone. False: in no capture, or *status is an error. */
bool strata_captured_hold(strata_runtime *runtime, CUstream stream, struct strata_ref *ref, strata_status *status);

/* The free of a kept block, on `stream` or, with `own`, on its own one. */
strata_status strata_kept_block_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own);

/* Whether there was a capture, or a pool of captures. */
static inline bool strata_captures_were_used(const strata_runtime *runtime)
{
    return __builtin_expect(atomic_load_explicit(&runtime->captures.used, memory_order_relaxed), 0);
}

/* Whether a free of the block is one of those. */
static inline bool strata_runtime_keeps(const strata_runtime *runtime, const strata_block *block)
{
    return strata_captures_were_used(runtime) && strata_block_is_kept(runtime->table, block);
}

/* Whether the program has freed a kept block; the second answers USE_AFTER_FREE then. */
bool strata_kept_block_is_freed(strata_runtime *runtime, const strata_block *block);
strata_status strata_kept_block_check(strata_runtime *runtime, const strata_block *block);

/* Turns a segment that a search found into the pool's block at that address. */
strata_status strata_captures_find(strata_runtime *runtime, CUdeviceptr address, strata_block *found);

#endif
