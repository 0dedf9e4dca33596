/* Operations and edges, streams, events, clocks, the scheduler, contexts, devices, threads, planned faults. Uses base/;
 * calls higher rooms through the hooks at the end. Guarded by sim.lock. */
#ifndef STRATA_SIM_ORDER_ORDER_H
#define STRATA_SIM_ORDER_ORDER_H

#include "base/base.h"

typedef struct CUctx_st sim_context;
typedef struct sim_access_record sim_access_record;
typedef struct sim_block sim_block;
typedef struct sim_span sim_span;
typedef struct sim_shadow sim_shadow;
typedef struct sim_page_watch sim_page_watch;
typedef struct sim_peer sim_peer;
typedef struct sim_kernel_launch sim_kernel_launch;
typedef struct sim_graph_memory sim_graph_memory;
typedef struct sim_conditional sim_conditional;
typedef struct sim_component sim_component;
typedef struct sim_op sim_op;
typedef struct sim_queue sim_queue;
typedef struct sim_capture sim_capture;
typedef struct sim_device sim_device;
typedef struct sim_thread sim_thread;
typedef struct sim_edge sim_edge;

/* ---- clock.c ---- */

/* The checker's ring of operations that may still declare accesses, and links to other components with such. */
typedef struct sim_pending {
    sim_access_record **at;
    size_t first;
    size_t count;
    size_t capacity; /* a power of two, or 0 */
    sim_component *previous;
    sim_component *next;
} sim_pending;

/* A sequence of ordered operations. */
typedef struct sim_component {
    uint32_t slot;
    uint32_t references;
    uint64_t uid;     /* unique in the process; of a stream, its cuStreamGetId */
    uint64_t last;    /* position of the last operation */
    sim_queue *queue; /* NULL: not a stream's, or the stream is gone */
    sim_pending pending;
} sim_component;

sim_component *sim_component_open(void); /* held for the caller; NULL without memory */
sim_component *sim_component_hold(sim_component *component);
void sim_component_drop(sim_component *component);

typedef struct sim_clock_entry {
    uint64_t component; /* a uid; 0: nothing known */
    uint64_t position;
} sim_clock_entry;

/* Positions in components, by slot. Immutable while it has several references. */
typedef struct sim_clock {
    uint32_t references;
    uint32_t slots;
    sim_clock_entry at[];
} sim_clock;

/* A component up to a position, and all that comes before. */
typedef struct sim_point {
    uint32_t slot;
    uint64_t component; /* a uid; 0: no component, only `knows` */
    uint64_t position;
    sim_clock *knows; /* may be NULL */
} sim_point;

sim_clock *sim_clock_hold(sim_clock *clock);
void sim_clock_drop(sim_clock *clock);
uint64_t sim_clock_position(const sim_clock *clock, uint32_t slot, uint64_t component);

/* Enters into a clock that its owner comes after the point. Out of memory: sets sim_order.joins_lost; pools then reuse
 * less, and the checker stops. */
void sim_clock_join(sim_clock **owner, uint64_t own_component, const sim_point *point);

/* Counts a record or a wait. idle: it added no order (a wait: sim_order.joined, cleared before, is still false). */
void sim_edge_counted(bool idle);

sim_point sim_queue_point(const sim_queue *queue);             /* all work so far; borrows the clock */
bool sim_queue_join(sim_queue *queue, const sim_point *point); /* true if new to the queue */
void sim_host_join(const sim_point *point);                    /* the host knows that the point is done */

/* ---- work.c, schedule.c, run.c ---- */

typedef enum sim_op_kind {
    SIM_OP_MARK, /* no work: an event's record, a wait, a join */
    SIM_OP_HOST,
    SIM_OP_COPY,
    SIM_OP_FILL,
    SIM_OP_KERNEL,
    SIM_OP_ALLOCATE,
    SIM_OP_FREE,
    SIM_OP_COPY_ROWS,
    SIM_OP_WRITE_VALUE,
    SIM_OP_WAIT_VALUE,
    SIM_OP_CONDITIONAL, /* runs the bodies of a conditional node */
} sim_op_kind;

typedef enum sim_op_state {
    SIM_OP_GATHERING, /* dependencies still being added */
    SIM_OP_BLOCKED,   /* submitted, waits for others */
    SIM_OP_DELAYED,   /* may run; in sim_order.delayed until its call count */
    SIM_OP_CHOSEN,    /* in sim_order.chosen */
    SIM_OP_RUNNING,   /* runs, or is given to the host thread */
    SIM_OP_WATCHING,  /* not over yet, in sim_order.watching */
    SIM_OP_DONE,
} sim_op_state;

typedef struct sim_edge {
    sim_op *from;
    sim_op *to;
    struct sim_edge *next_successor;
    struct sim_edge *next_predecessor;
    struct sim_edge **predecessor_link; /* its link in to->predecessors */
} sim_edge;

typedef struct sim_place {
    uint64_t address;
    bool pageable;       /* plain host memory */
    bool peer;           /* of a copy between devices, which each does its part of */
    CUmemorytype called; /* memory type in the call */
} sim_place;

/* An end of a copy of rows: first byte, and pitches of rows and planes. */
typedef struct sim_rows {
    sim_place place;
    uint64_t pitch;
    uint64_t plane;
} sim_rows;

typedef enum sim_queue_kind { SIM_QUEUE_LEGACY, SIM_QUEUE_PER_THREAD, SIM_QUEUE_CREATED } sim_queue_kind;

/* The call that made a node; for the checker's reports. */
typedef struct sim_made {
    const char *entry; /* static; NULL: the checker was off */
    uint32_t stack;
} sim_made;

/* Of an operation made by a graph launch. */
typedef struct sim_launched {
    uint64_t launch; /* number; 0: none */
    uint64_t stream; /* launched on */
    sim_queue_kind queue;
    sim_made node; /* of the operation */
} sim_launched;

typedef struct sim_op {
    sim_op_kind kind;
    sim_op_state state;
    bool needed;       /* a host waits for it, directly or not */
    bool awaits_value; /* submitted behind an unfinished wait for a value, directly or not */
    uint32_t references;
    sim_context *context;
    sim_queue *queue;          /* NULL: ordered by edges alone */
    uint64_t sequence;         /* order of submission in the process */
    sim_point at;              /* complete once submitted */
    sim_component *chain;      /* component of an operation without a queue; held */
    sim_access_record *record; /* the checker's, or NULL; held */
    uint64_t told;             /* the checker's order at the return of the last host function before it, or 0 */
    CUresult fault;            /* planned fault to raise when it runs */
    uint64_t latest;           /* sim_order.calls from which it is chosen as soon as it may run */
    uint64_t order;            /* heap key */
    size_t heap_index;
    size_t blockers; /* incoming edges */
    sim_edge *predecessors;
    sim_edge *successors;
    struct sim_op *next;        /* in the host thread's queue, the watch list or the free list */
    struct sim_op *next_marked; /* work list while a closure is gathered */
    uint64_t visited;           /* the checker's */
    uint64_t finished_at;       /* device time, ns */
    union {
        struct {
            CUhostFn function;
            CUstreamCallback callback; /* instead, for cuStreamAddCallback */
            CUstream stream;
            void *data;
        } host;
        struct {
            sim_place to;
            sim_place from;
            size_t bytes;
            void *staged; /* owned copy of pageable memory */
        } copy;
        struct {
            uint64_t address;
            size_t width; /* bytes of an element: 1, 2 or 4 */
            size_t count; /* elements of a row */
            size_t pitch;
            size_t rows;
            uint32_t value;
        } fill;
        struct {
            sim_rows to;
            sim_rows from;
            size_t width; /* bytes of a row */
            size_t rows;  /* of a plane */
            size_t planes;
            void *staged; /* owned copy of pageable memory, row after row */
        } rows;
        struct {
            uint64_t address;
            uint64_t value;
            unsigned width; /* bytes: 4 or 8 */
            unsigned flags; /* of a wait: the comparison */
        } value;
        sim_kernel_launch *kernel;
        sim_block *block; /* allocate, free */
        sim_conditional *conditional;
    } work;
    sim_span *span; /* of a free: the free span that it completes */
    sim_launched launched;
    CUgraphNode node;      /* of a captured stream: the node that it becomes instead of running */
    const sim_op *part_of; /* the conditional operation that runs it; NULL: the scheduler does */
} sim_op;

typedef struct sim_heap {
    sim_op **at;
    size_t count;
    size_t capacity;
} sim_heap;

/* Reserves memory for the next operation of the queue (NULL: of none), with `extra` more dependencies. */
bool sim_op_reserve(const sim_queue *queue, size_t extra);

/* As above, for several operations of no queue, with `edges` dependencies in all. */
bool sim_op_reserve_many(size_t ops, size_t edges);

/* A new operation at the end of the queue (NULL: of none), ordered as the stream demands, with room for `extra` more
 * dependencies. NULL without memory. */
sim_op *sim_op_create(sim_context *context, sim_queue *queue, sim_op_kind kind, size_t extra);
sim_op *sim_op_detached(sim_context *context, sim_op_kind kind); /* unordered, never runs */

/* Orders the op after `on` (submitted, or NULL: nothing), in the clocks, too. For every edge that the program asked
 * for. */
void sim_op_depend(sim_op *op, sim_op *on);

/* As sim_op_depend, for order without an operation to wait for. Before submission. */
void sim_op_join(sim_op *op, const sim_point *point);

/* Makes the op wait for `on`, and leaves the clocks alone: for the driver's own edges, and where the caller joins the
 * point. */
void sim_op_await(sim_op *op, sim_op *on);
void sim_op_submit(sim_op *op);
sim_op *sim_op_hold(sim_op *op);
void sim_op_drop(sim_op *op);
static inline bool sim_op_done(const sim_op *op)
{
    return !op || op->state == SIM_OP_DONE;
}
void sim_op_run(sim_op *op);

/* Runs an operation of the caller's, which keeps its work, as a part of `part_of`, which runs. Its context, kind, work,
 * chain and clock are set, and its only reference is the caller's. */
void sim_op_run_part(sim_op *op);
void sim_op_begin_part(sim_op *op); /* gives it its place in the order */
void sim_op_end_part(sim_op *op);
void sim_op_discard(sim_op *op); /* frees what it owns */
void sim_op_complete(sim_op *op);
void sim_ops_close(void);

void sim_op_became_ready(sim_op *op);
void sim_op_need(sim_op *op); /* lets it and all it waits for run; does not wait */
void sim_run_chosen(void);
void sim_tick(void);
void sim_need_everything(void); /* all submitted work */

/* One of `count`: early takes the first, late the last, random draws for the operation and the step. */
size_t sim_op_pick(const sim_op *op, uint64_t step, size_t count);

/* The host waits for the op (NULL: none). Returns what the driver returns after a wait. Releases sim.lock meanwhile. */
CUresult sim_op_wait(sim_context *context, sim_op *op);
CUresult sim_op_wait_without_host_edge(sim_context *context, sim_op *op); /* host clock unchanged */

bool sim_heap_reserve(sim_heap *heap, size_t count);
void sim_heap_push(sim_heap *heap, sim_op *op);
void sim_heap_remove(sim_heap *heap, sim_op *op);

/* ---- watch.c ---- */

void sim_op_watch(sim_op *op);
bool sim_watched_run(void); /* completes what is over by now; true if work may run */

/* ---- host_thread.c ---- */

CUresult sim_host_thread_start(void);
void sim_host_thread_give(sim_op *op);
void sim_host_thread_call(CUhostFn function, void *data); /* in order of these calls, in no stream's */
bool sim_host_thread_stop(void);    /* releases sim.lock meanwhile; false if a user function still runs */
bool sim_in_host_function(void);    /* any thread, without the lock */
sim_op *sim_host_function_op(void); /* that the calling thread runs, or NULL; without the lock */

/* ---- node_set.c ---- */

typedef struct sim_nodes {
    CUgraphNode *at;
    size_t count;
    size_t capacity;
} sim_nodes;

bool sim_nodes_reserve(sim_nodes *nodes, size_t count);
void sim_nodes_add(sim_nodes *nodes, CUgraphNode node); /* the caller reserved room */
bool sim_nodes_copy(sim_nodes *to, const sim_nodes *from);
bool sim_nodes_have(const sim_nodes *nodes, CUgraphNode node);
void sim_nodes_remove(sim_nodes *nodes, CUgraphNode node);
void sim_nodes_free(sim_nodes *nodes);

/* ---- queue.c, stream.c, wait.c ---- */

/* A stream's work. Outlives the stream's handle until the work is done. */
typedef struct sim_queue {
    sim_queue_kind kind;
    bool blocking; /* ordered with the legacy stream */
    bool closed;   /* takes no more work */
    sim_context *context;
    struct sim_queue *previous; /* in the context's list */
    struct sim_queue *next;
    sim_component *component; /* held */
    unsigned flags;
    int priority;
    sim_op *tail; /* last operation, until it is done */
    sim_clock *knows;
    unsigned polls;
    sim_capture *capture;            /* it takes part in */
    struct sim_queue *next_captured; /* in the capture */
    sim_nodes captured;              /* what the next captured call depends on */
} sim_queue;

struct CUstream_st {
    sim_handle handle;
    sim_queue *queue;   /* NULL: its primary context has ended, and not begun anew */
    sim_context *ended; /* that context */
};

bool sim_stream_has_ended(CUstream stream); /* with its primary context */
sim_queue *sim_queue_open(sim_context *context, sim_queue_kind kind, unsigned flags, int priority);
void sim_queue_close(sim_queue *queue);
void sim_queue_finished(sim_queue *queue, sim_op *op);
void sim_queue_free(sim_queue *queue);
CUresult sim_queue_of(CUstream stream, sim_queue **queue);       /* default streams: of the current context */
CUresult sim_queue_for_work(CUstream stream, sim_queue **queue); /* fails on an invalidated capture */
CUresult sim_queue_to_ask(CUstream stream, sim_queue **queue);   /* without the capture checks */
size_t sim_queue_order_room(const sim_queue *queue);
void sim_queue_order(sim_queue *queue, sim_op *op);
CUresult sim_queue_wait(sim_queue *queue);
void sim_queue_join_done(sim_queue *queue); /* the host knows that all of it is done */
CUresult sim_context_wait(sim_context *context);
CUresult sim_context_wait_without_host_edge(sim_context *context); /* host clock unchanged */

struct CUevent_st {
    sim_handle handle;
    sim_context *context;
    bool ended; /* with its primary context */
    unsigned flags;
    unsigned polls;
    sim_op *op;         /* last record; held */
    uint64_t capture;   /* id of the last record's capture, or 0 */
    sim_nodes captured; /* nodes that it then stood for */
};
void sim_event_free(CUevent event);
void sim_event_strip(CUevent event); /* ends it with its primary context; the handle stays */

/* ---- event.c ---- */

CUresult sim_event_check(CUevent event);
CUresult sim_event_create(sim_context *context, CUevent *event, unsigned flags);
CUresult sim_event_elapsed(float *milliseconds, CUevent start, CUevent end);
CUresult sim_event_query(CUevent event);
CUresult sim_event_record(CUevent event, CUstream stream, unsigned flags);
CUresult sim_event_wait(CUevent event);

/* ---- stream.c ---- */

CUresult sim_stream_create(sim_context *context, CUstream *stream, unsigned flags, int priority);
CUresult sim_stream_destroy(CUstream stream);
CUresult sim_stream_guard_wait(sim_queue *queue);
CUresult sim_stream_launch_host(sim_queue *queue, CUhostFn function, CUstreamCallback callback, CUstream stream,
                                void *data);
CUresult sim_stream_query(sim_queue *queue);
CUresult sim_stream_wait_event(sim_queue *queue, CUevent event, unsigned flags);

/* ---- context.c ---- */

struct CUctx_st {
    sim_handle handle;
    sim_device *device;
    bool primary;
    bool active; /* always true unless primary */
    uint64_t uid;
    uint64_t instance; /* cuCtxGetId: another each time that it begins */
    unsigned flags;
    sim_queue *queues;
    size_t queue_count;
    sim_queue *legacy;
    sim_peer *peers;           /* contexts whose memory this one may access */
    sim_clock *ended;          /* work of streams that are gone */
    sim_clock *ended_blocking; /* of those, the blocking streams */
};

typedef struct sim_device {
    int ordinal;
    uint64_t time;   /* simulated ns of the work so far */
    CUresult poison; /* first failure of an operation; permanent */
    sim_context *primary;
    unsigned primary_references;
    unsigned primary_flags;
    struct sim_device_memory *memory;
} sim_device;

sim_device *sim_device_of(CUdevice device); /* or NULL */
bool sim_context_valid(const sim_context *context);
/* Whether the context is still that instance: calls that waited ask, since another thread may have ended it. */
bool sim_context_lasts(const sim_context *context, uint64_t instance);
CUresult sim_context_current(sim_context **context); /* the thread's, if usable */
CUresult sim_context_check(sim_context *context);    /* CUDA_SUCCESS if usable */
bool sim_context_has_ended(void);                    /* the thread's */

/* ---- threads.c ---- */

typedef struct sim_current {
    sim_context *context;
    uint64_t uid;
} sim_current;

/* Lives from a thread's first call to its end. Only the thread itself uses the stack and the mode. */
typedef struct sim_thread {
    struct sim_thread *previous;
    struct sim_thread *next;
    sim_current *stack;
    size_t depth;
    size_t capacity;
    CUstreamCaptureMode mode;
    sim_queue **queues; /* per-thread default streams, one for each context used */
    size_t queue_count;
} sim_thread;

sim_thread *sim_thread_self(void); /* NULL without memory */
sim_queue *sim_thread_queue(sim_context *context);
void sim_threads_forget_queue(const sim_queue *queue);
CUresult sim_thread_push(sim_context *context);
bool sim_threads_open(void);
void sim_threads_close(void);

/* ---- capture_rules.c ---- */

/* For calls unsafe during a capture of any stream: if the modes forbid it, fails and invalidates those captures. */
CUresult sim_capture_guard(void);
CUresult sim_capture_guard_queue(sim_queue *queue);       /* for a call about this stream */
CUresult sim_capture_guard_context(sim_context *context); /* for a call that waits for the context */
CUresult sim_capture_guard_legacy(sim_context *context);  /* for a call about the legacy stream */
CUresult sim_capture_guard_event(CUevent event);          /* for a call that queries an event */
bool sim_capture_beside_legacy(sim_context *context);     /* true if a blocking stream is captured */
CUresult sim_capture_check(const sim_queue *queue);       /* fails if in an invalidated capture */

typedef struct sim_capture {
    struct sim_capture *previous; /* in sim_order.captures */
    struct sim_capture *next;
    uint64_t id; /* unique in the process */
    CUgraph graph;
    CUstreamCaptureMode mode;
    const sim_thread *thread; /* that began it; NULL once ended */
    sim_queue *origin;
    sim_queue *queues; /* by next_captured */
    bool invalidated;
    struct sim_recapture *recapture; /* graph/'s, of a capture into the nodes that a graph has; else NULL */
} sim_capture;

void sim_capture_invalidate(sim_capture *capture);
void sim_capture_join(sim_capture *capture, sim_queue *queue);
sim_capture *sim_capture_of_event(CUevent event); /* of its last record; NULL if that capture is over */

/* ---- fault.c ---- */

CUresult sim_fault_call(const char *entry);           /* error for the call, or CUDA_SUCCESS */
CUresult sim_fault_operation(const sim_queue *queue); /* error for its newest operation */
bool sim_fault_drops(strata_sim_edge edge);           /* counts the edge; true: drop it */

enum { SIM_FAULT_NAME = 64 };

typedef struct sim_planned_fault {
    strata_sim_fault asked;
    char entry[SIM_FAULT_NAME]; /* empty: any */
    uint64_t component;         /* of the stream; 0: any */
    uint64_t reached;
} sim_planned_fault;

CUresult sim_fault_room(void);
uint32_t sim_fault_add(const sim_planned_fault *fault); /* returns the id; the caller checked for room */
const sim_planned_fault *sim_fault_at(uint32_t id);     /* or NULL */
void sim_faults_clear(void);

/* ---- state.c ---- */

typedef struct sim_order_state {
    sim_device devices[SIM_MAX_DEVICES];
    sim_slab contexts, streams, events;
    size_t ended_events; /* that ended with a primary context */

    sim_component **components; /* by slot; NULL: free */
    uint32_t component_slots;
    uint32_t component_hint; /* no slot below it is free */
    sim_clock *host_knows;   /* what the host knows to be done */
    uint64_t clock_bytes;
    bool joined;                /* the last join added order, to a stream or to the host's wait */
    uint64_t edges, idle_edges; /* see sim_edge_counted */
    bool joins_lost;            /* out of memory */
    uint64_t last_uid;          /* of components and contexts */
    sim_capture *captures;

    uint64_t submitted;
    uint64_t seeded_at; /* `submitted` when the seed was set */
    uint64_t unfinished;
    uint64_t held_by_host; /* unfinished host functions and waits for values */
    uint64_t finished;
    uint64_t calls; /* the unit of delays */
    sim_heap chosen;
    sim_heap delayed;
    sim_op *watching; /* by sim_op.next */
} sim_order_state;

extern sim_order_state sim_order;

bool sim_order_open(void);
void sim_order_close(void); /* after sim_clocks_close */
void sim_clocks_close(void);

/* ---- hooks.c, open.c ---- */

/* What operations of a kind do. Filled in by the kind's room when the driver starts. */
typedef struct sim_op_type {
    bool (*run)(sim_op *op);             /* false: illegal access; NULL: no work */
    void (*discard)(sim_op *op);         /* frees what the operation owns; may be NULL */
    void (*abandon)(sim_op *op);         /* in addition, of one that never runs; may be NULL */
    bool (*reached)(sim_op *op);         /* whether it is over; if not, asked again later; NULL: always */
    uint64_t (*bytes)(const sim_op *op); /* moved, for the simulated time; NULL: none */
    bool bookkeeping;                    /* runs after a failure, too */
} sim_op_type;

enum { SIM_OP_KINDS = SIM_OP_CONDITIONAL + 1 };

extern sim_op_type sim_op_types[SIM_OP_KINDS];

/* memory/ */
typedef struct sim_memory_hooks {
    /* submitted and running: NULL without a memory debugger. */
    void (*submitted)(const sim_op *op);
    void (*running)(const sim_op *op);
    void (*seen)(sim_device *device, const sim_point *seen); /* the host knows it is done; NULL: all of the device */
    void (*queue_gone)(const sim_queue *queue);
} sim_memory_hooks;

/* graph/ */
typedef struct sim_graph_hooks {
    sim_op *(*capture_op)(sim_context *context, sim_queue *queue, sim_op_kind kind);
    void (*capture_submit)(sim_op *op);
    CUresult (*capture_record)(sim_queue *queue, CUevent event, unsigned flags);
    CUresult (*capture_wait)(sim_queue *queue, CUevent event, unsigned flags);
    CUresult (*capture_allocate)(sim_queue *queue, sim_device *device, size_t bytes, CUdeviceptr *address);
    CUresult (*capture_free)(sim_queue *queue, CUdeviceptr address);
    void (*queue_gone)(sim_queue *queue);
    bool (*memory_around)(uint64_t address, uint64_t bytes); /* may a graph allocate it? */
    void (*memory_freed)(sim_graph_memory *memory, sim_op *op);
    void (*block_free)(sim_block *block); /* when the freeing operation runs */
    void (*block_free_now)(sim_block *block);
    bool (*condition_set)(const sim_op *kernel, uint64_t handle, unsigned value); /* false: it may not */
} sim_graph_hooks;

/* Atomic updates race with everything but each other; the reads of a wait for a value with frees alone. */
typedef enum sim_access_kind { SIM_READS, SIM_WRITES, SIM_UPDATES_ATOMICALLY, SIM_AWAITS } sim_access_kind;

/* check/. All do nothing until the checker is first turned on. */
typedef struct sim_check_hooks {
    bool on; /* false: the next three are not called and may be NULL */
    void (*submitted)(sim_op *op);
    void (*running)(sim_op *op);
    uint64_t (*completed)(sim_op *op);       /* also if it never runs; returns the order of the last access record */
    void (*host_function)(const sim_op *op); /* on the host thread, before the call */
    sim_made (*made)(void);                  /* the call that makes a node */

    /* The operation touches these bytes. Called between its submission and completion; what is known at submission,
     * right after sim_op_submit. Not for copies and fills. */
    void (*access)(sim_op *op, uint64_t address, uint64_t bytes, sim_access_kind kind);

    void (*allocated)(sim_block *block); /* known to the host from now on */
    void (*freed_now)(sim_block *block); /* by a call: all uses must be known to be done */
    void (*forget)(sim_block *block);    /* with its context or module: not checked */
    void (*hidden)(sim_block *block);    /* known to a graph alone, from launch to free */
    void (*written)(sim_block *block);   /* by the driver, from the first byte */

    /* For a call that waits before it frees: free_asked before the wait, then one of the others, which drops the
     * record. The record holds what the host knew before (STRATA_SIM_CHECK_FREES only; else NULL). */
    sim_access_record *(*free_asked)(void);
    void (*freed_after)(sim_block *block, sim_access_record *asked);
    void (*free_failed)(sim_access_record *asked);

    bool (*watches_pages)(void);                     /* accesses of the host to pinned memory are caught */
    bool (*watch)(sim_block *block, uint64_t bytes); /* sets its address and memory */
    void (*unwatch)(sim_block *block);               /* frees its memory */
} sim_check_hooks;

typedef struct sim_hook_tables {
    const sim_memory_hooks *memory;
    const sim_graph_hooks *graph;
    const sim_check_hooks *check;
} sim_hook_tables;

extern sim_hook_tables sim_hooks;

#endif
