/* What comes before what: operations and the edges between them, streams and events, clocks, the scheduler; contexts,
 * devices and threads, as far as work depends on them; faults on purpose. Uses base/. What the order makes happen in
 * higher rooms goes through the hooks at the end. Guarded by sim.lock. */
#ifndef STRATA_SIM_ORDER_ORDER_H
#define STRATA_SIM_ORDER_ORDER_H

#include "base/base.h"

typedef struct CUctx_st sim_context;
typedef struct sim_access_record sim_access_record;
typedef struct sim_block sim_block;
typedef struct sim_span sim_span;
typedef struct sim_shadow sim_shadow;
typedef struct sim_watch sim_watch;
typedef struct sim_peer sim_peer;
typedef struct sim_kernel_launch sim_kernel_launch;
typedef struct sim_graph_memory sim_graph_memory;
typedef struct sim_component sim_component;
typedef struct sim_op sim_op;
typedef struct sim_queue sim_queue;
typedef struct sim_capture sim_capture;
typedef struct sim_device sim_device;
typedef struct sim_thread sim_thread;
typedef struct sim_edge sim_edge;

/* ---- clock.c: what comes before what ---- */

/* The checker's: the operations of a component that have not said yet all that they touch, in a ring, and the
 * neighbours in the list of components that have any. */
typedef struct sim_pending {
    sim_access_record **at;
    size_t first;
    size_t count;
    size_t capacity; /* a power of two, or 0 */
    sim_component *previous;
    sim_component *next;
} sim_pending;

/* A row of operations, each after the one before. */
typedef struct sim_component {
    uint32_t slot;
    uint32_t references;
    uint64_t uid;     /* never used again; of a stream, what cuStreamGetId gives */
    uint64_t last;    /* position of the last operation; see clock.c */
    sim_queue *queue; /* NULL: no stream's, or the stream is gone */
    sim_pending pending;
} sim_component;

sim_component *sim_component_open(void); /* held for the caller; NULL without memory */
sim_component *sim_component_hold(sim_component *component);
void sim_component_drop(sim_component *component);

typedef struct sim_clock_entry {
    uint64_t component; /* its uid; 0: nothing known */
    uint64_t position;
} sim_clock_entry;

/* Positions in components, by slot. Shared and immutable while it has more than one reference. */
typedef struct sim_clock {
    uint32_t references;
    uint32_t slots;
    sim_clock_entry at[];
} sim_clock;

/* One component up to a position, and everything that comes before that. */
typedef struct sim_point {
    uint32_t slot;
    uint64_t component; /* its uid; 0: a point in no component, which is only what it comes after */
    uint64_t position;
    sim_clock *knows; /* may be NULL */
} sim_point;

sim_clock *sim_clock_hold(sim_clock *clock);
void sim_clock_drop(sim_clock *clock);
uint64_t sim_clock_position(const sim_clock *clock, uint32_t slot, uint64_t component);

/* The owner of a clock comes after the point. Without memory the join is lost (sim_order.joins_lost): a pool reuses
 * less, and the checker stops. */
void sim_clock_join(sim_clock **owner, uint64_t own_component, const sim_point *point);

/* A record or a wait was made; idle: it ordered nothing new. A wait is idle if
 * it joined nothing new (sim_order.joined, which the caller clears before). */
void sim_edge_counted(bool idle);

sim_point sim_queue_point(const sim_queue *queue);             /* the work so far; borrows the clock */
bool sim_queue_join(sim_queue *queue, const sim_point *point); /* whether it is new to the queue */
void sim_host_join(const sim_point *point);                    /* the host has seen that it is done */

/* ---- work.c, schedule.c, run.c: operations ---- */

typedef enum sim_op_kind {
    SIM_OP_MARK, /* only a place in the order: an event's record, a wait, a join */
    SIM_OP_HOST,
    SIM_OP_COPY,
    SIM_OP_FILL,
    SIM_OP_KERNEL,
    SIM_OP_ALLOCATE,
    SIM_OP_FREE,
    SIM_OP_COPY_ROWS,
    SIM_OP_WRITE_VALUE,
    SIM_OP_WAIT_VALUE,
} sim_op_kind;

typedef enum sim_op_state {
    SIM_OP_GATHERING, /* made, dependencies still being added */
    SIM_OP_BLOCKED,   /* submitted, waits for others */
    SIM_OP_READY,     /* may run, but is not wanted yet */
    SIM_OP_DELAYED,   /* may run when its time has come: in sim_order.delayed */
    SIM_OP_CHOSEN,    /* runs next: in sim_order.chosen */
    SIM_OP_RUNNING,   /* a host function, with its thread */
    SIM_OP_WATCHING,  /* a wait for a value that is not there yet: in sim_order.watching */
    SIM_OP_DONE,
} sim_op_state;

typedef struct sim_edge {
    sim_op *from;
    sim_op *to;
    struct sim_edge *next_successor;
    struct sim_edge *next_predecessor;
    struct sim_edge **predecessor_link; /* what points to this edge in to->predecessors */
} sim_edge;

/* An end of a copy. */
typedef struct sim_place {
    uint64_t address;
    bool pageable;       /* plain host memory, reached through its address */
    CUmemorytype called; /* what the call that named it said that it is */
} sim_place;

/* An end of a copy of rows: where its first byte is, and how far rows and planes are apart. */
typedef struct sim_rows {
    sim_place place;
    uint64_t pitch;
    uint64_t plane;
} sim_rows;

typedef enum sim_queue_kind { SIM_QUEUE_LEGACY, SIM_QUEUE_PER_THREAD, SIM_QUEUE_CREATED } sim_queue_kind;

/* By which call a node of a graph was made; for the checker's reports. */
typedef struct sim_made {
    const char *entry; /* a static string; NULL: the checker was off */
    uint32_t stack;
} sim_made;

/* Of an operation that the launch of a graph made. */
typedef struct sim_launched {
    uint64_t launch; /* its number; 0: there is none */
    uint64_t stream; /* where it was launched */
    sim_queue_kind queue;
    sim_made node; /* that the operation is of */
} sim_launched;

typedef struct sim_op {
    sim_op_kind kind;
    sim_op_state state;
    bool needed;       /* a host waits for it, directly or not */
    bool awaits_value; /* when it was submitted, it came after a wait for a value that was not over, directly or not */
    uint32_t references;
    sim_context *context;
    sim_queue *queue;          /* NULL: ordered by its edges alone */
    uint64_t sequence;         /* order of submission in the process */
    sim_point at;              /* its place, and what it comes after; complete when it is submitted */
    sim_component *chain;      /* of one without a queue: its component; held */
    sim_access_record *record; /* how the checker knows it, or NULL; held */
    uint64_t told;  /* the checker's order when the last host function that it came after had returned, or 0 */
    CUresult fault; /* what the fault plan makes of it when it runs */
    uint64_t order; /* key in the heap it is in */
    size_t heap_index;
    size_t blockers; /* edges that come in */
    sim_edge *predecessors;
    sim_edge *successors;
    struct sim_op *next;        /* waiting for the host thread, or free */
    struct sim_op *next_marked; /* while the closure of an operation is gathered */
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
            void *staged; /* a copy of pageable memory, owned */
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
            void *staged; /* a copy of pageable memory, row after row, owned */
        } rows;
        struct {
            uint64_t address;
            uint64_t value;
            unsigned width; /* bytes: 4 or 8 */
            unsigned flags; /* of a wait: the comparison */
        } value;
        sim_kernel_launch *kernel;
        sim_block *block; /* allocate, free */
    } work;
    sim_span *span; /* of a free: the free span whose completion this is */
    sim_launched launched;
    CUgraphNode node; /* that it becomes instead of being run: it was called for on a captured stream */
} sim_op;

typedef struct sim_heap {
    sim_op **at;
    size_t count;
    size_t capacity;
} sim_heap;

/* Makes sure that the next operation of that queue (NULL: of none) can be made, with so many more dependencies. */
bool sim_op_reserve(const sim_queue *queue, size_t extra);

/* As sim_op_reserve, for so many operations of no queue, with so many dependencies in all. */
bool sim_op_reserve_many(size_t ops, size_t edges);

/* A new operation at the end of a queue, ordered after what its stream must be ordered after, or of no queue. There is
 * room for `extra` more dependencies. NULL without memory. */
sim_op *sim_op_create(sim_context *context, sim_queue *queue, sim_op_kind kind, size_t extra);
sim_op *sim_op_detached(sim_context *context, sim_op_kind kind); /* in no order, and never to run */

/* The operation comes after `on`, which was submitted and may be done, or is NULL. Any edge that the program asked for,
 * wherever it comes from, is made with this; it counts for the order that programs may rely on. */
void sim_op_depend(sim_op *op, sim_op *on);

/* As sim_op_depend, for order that is known without an operation to wait for. Before the operation is submitted. */
void sim_op_join(sim_op *op, const sim_point *point);

/* The operation runs after `on`, by the driver's own wish: no program may rely on it. */
void sim_op_await(sim_op *op, sim_op *on);
void sim_op_submit(sim_op *op);
sim_op *sim_op_hold(sim_op *op);
void sim_op_drop(sim_op *op);
static inline bool sim_op_done(const sim_op *op)
{
    return !op || op->state == SIM_OP_DONE;
}
void sim_op_run(sim_op *op);     /* what the operation does; run.c */
void sim_op_discard(sim_op *op); /* frees what it owns; run.c */
void sim_op_complete(sim_op *op);
void sim_ops_close(void);

void sim_op_became_ready(sim_op *op);
void sim_op_need(sim_op *op); /* the operation and all it waits for shall run; does not wait */
void sim_run_chosen(void);
void sim_tick(void);
void sim_need_everything(void); /* that was submitted; control.c */

/* Waits for the operation; NULL is done. Answers what the driver answers after waiting. Gives the lock away meanwhile.
 */
CUresult sim_op_wait(sim_context *context, sim_op *op);
CUresult sim_op_wait_without_host_edge(sim_context *context, sim_op *op); /* and the host does not come to know of it */

bool sim_heap_reserve(sim_heap *heap, size_t count);
void sim_heap_push(sim_heap *heap, sim_op *op);
void sim_heap_remove(sim_heap *heap, sim_op *op);

/* ---- watch.c: waits for values that are not there yet ---- */

void sim_op_watch(sim_op *op); /* looked at again later */
bool sim_watched_run(void);    /* ends waits whose values have come; whether there is work to run */

/* ---- host_thread.c: where host functions run ---- */

CUresult sim_host_thread_start(void);
void sim_host_thread_give(sim_op *op);
void sim_host_thread_call(CUhostFn function, void *data); /* in the order of these calls, after none */
bool sim_host_thread_stop(void); /* gives the lock away meanwhile; false if a function of the user is still running */
bool sim_in_host_function(void); /* without the lock */
sim_op *sim_host_function_op(void); /* that the thread runs, or NULL; without the lock */

/* ---- node_set.c: nodes of graphs, in an order that matters ---- */

typedef struct sim_nodes {
    CUgraphNode *at;
    size_t count;
    size_t capacity;
} sim_nodes;

bool sim_nodes_reserve(sim_nodes *nodes, size_t count);
void sim_nodes_add(sim_nodes *nodes, CUgraphNode node); /* there is room */
bool sim_nodes_copy(sim_nodes *to, const sim_nodes *from);
bool sim_nodes_have(const sim_nodes *nodes, CUgraphNode node);
void sim_nodes_remove(sim_nodes *nodes, CUgraphNode node);
void sim_nodes_free(sim_nodes *nodes);

/* ---- queue.c, stream.c, wait.c: streams ---- */

/* The work of one stream. It outlives the stream's handle until the work is done. */
typedef struct sim_queue {
    sim_queue_kind kind;
    bool blocking; /* is ordered with the legacy stream */
    bool closed;   /* no more work will come */
    sim_context *context;
    struct sim_queue *previous; /* in the context's list */
    struct sim_queue *next;
    sim_component *component; /* held */
    unsigned flags;
    int priority;
    sim_op *tail; /* the last operation, until it is done */
    sim_clock *knows;
    unsigned polls;
    sim_capture *capture;            /* that it takes part in */
    struct sim_queue *next_captured; /* in the capture */
    sim_nodes captured;              /* what the next captured call comes after */
} sim_queue;

struct CUstream_st {
    sim_handle handle;
    sim_queue *queue;
};

sim_queue *sim_queue_open(sim_context *context, sim_queue_kind kind, unsigned flags, int priority);
void sim_queue_close(sim_queue *queue);
void sim_queue_finished(sim_queue *queue, sim_op *op);
void sim_queue_free(sim_queue *queue);
CUresult sim_queue_of(CUstream stream, sim_queue **queue);       /* a default stream: of the current context */
CUresult sim_queue_for_work(CUstream stream, sim_queue **queue); /* the same, if it takes work */
CUresult sim_queue_to_ask(CUstream stream, sim_queue **queue);   /* the same, whatever is captured */
size_t sim_queue_order_room(const sim_queue *queue);
void sim_queue_order(sim_queue *queue, sim_op *op);
CUresult sim_queue_wait(sim_queue *queue);
void sim_queue_join_done(sim_queue *queue); /* the host has seen that all of it is done */
CUresult sim_context_wait(sim_context *context);
CUresult sim_context_wait_without_host_edge(sim_context *context); /* and the host does not come to know of it */

struct CUevent_st {
    sim_handle handle;
    sim_context *context;
    unsigned flags;
    unsigned polls;
    sim_op *op;         /* the last record; held */
    uint64_t capture;   /* the id of the capture in which it was recorded last, or 0 */
    sim_nodes captured; /* what it then stood for */
};
void sim_event_free(CUevent event);

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

/* ---- context.c: contexts and devices ---- */

struct CUctx_st {
    sim_handle handle;
    sim_device *device;
    bool primary;
    bool active; /* always, unless primary */
    uint64_t uid;
    unsigned flags;
    sim_queue *queues;
    size_t queue_count;
    sim_queue *legacy;
    sim_peer *peers;           /* contexts whose memory this one may touch */
    sim_clock *ended;          /* the work of streams that are gone */
    sim_clock *ended_blocking; /* of those that the legacy stream comes after */
};

typedef struct sim_device {
    int ordinal;
    uint64_t time;   /* ns that the work so far would have taken */
    CUresult poison; /* an illegal access: for the rest of the process */
    sim_context *primary;
    unsigned primary_references;
    unsigned primary_flags;
    struct sim_device_memory *memory;
} sim_device;

sim_device *sim_device_of(CUdevice device); /* NULL if there is none */
bool sim_context_valid(const sim_context *context);
CUresult sim_context_current(sim_context **context); /* the thread's, if it is good for work */
CUresult sim_context_check(sim_context *context);    /* is it good for work? */

/* ---- threads.c: what belongs to a thread ---- */

typedef struct sim_current {
    sim_context *context;
    uint64_t uid;
} sim_current;

/* Made at a thread's first call, gone with the thread. The stack and the mode are the thread's own; the rest is shared.
 */
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

/* ---- capture_rules.c: what a capture does not survive ---- */

/* For calls that a capture may not survive, whatever they are about: by the capture modes and the calling thread's own,
 * they end captures and are refused. */
CUresult sim_capture_guard(void);
CUresult sim_capture_guard_queue(sim_queue *queue);       /* that the call is about: refused if it is captured */
CUresult sim_capture_guard_context(sim_context *context); /* the call waits for all of the context's streams */
CUresult sim_capture_guard_legacy(sim_context *context);  /* the call is about the legacy stream */
CUresult sim_capture_guard_event(CUevent event);          /* the call asks about an event */
bool sim_capture_beside_legacy(sim_context *context); /* is a stream captured that is ordered with the legacy stream? */
CUresult sim_capture_check(const sim_queue *queue);   /* is it not captured, or captured and in order? */

/* A capture: streams whose calls become nodes of a graph. */
typedef struct sim_capture {
    struct sim_capture *previous; /* in sim_order.captures */
    struct sim_capture *next;
    uint64_t id; /* process-wide, never used again */
    CUgraph graph;
    CUstreamCaptureMode mode;
    const sim_thread *thread; /* that began it; NULL when it has ended */
    sim_queue *origin;
    sim_queue *queues; /* that take part, by next_captured */
    bool invalidated;
} sim_capture;

void sim_capture_invalidate(sim_capture *capture);
void sim_capture_join(sim_capture *capture, sim_queue *queue);
sim_capture *sim_capture_of_event(CUevent event); /* that it was recorded in last, if it is not over */

/* ---- fault.c: what the plan makes go wrong ---- */

CUresult sim_fault_call(const char *entry);           /* what the call fails with, or CUDA_SUCCESS */
CUresult sim_fault_operation(const sim_queue *queue); /* what its newest operation fails with */
bool sim_fault_drops(strata_sim_edge edge);           /* such a wait or record is asked for: forget it? */

/* ---- faults, as sim/driver/fault.c plans them ---- */

enum { SIM_FAULT_NAME = 64 };

typedef struct sim_planned_fault {
    strata_sim_fault asked;
    char entry[SIM_FAULT_NAME]; /* empty: any */
    uint64_t component;         /* of the stream; 0: any */
    uint64_t reached;
} sim_planned_fault;

CUresult sim_fault_room(void);
uint32_t sim_fault_add(const sim_planned_fault *fault); /* its id; there is room */
const sim_planned_fault *sim_fault_at(uint32_t id);     /* or NULL */
void sim_faults_clear(void);

/* ---- state.c ---- */

typedef struct sim_order_state {
    sim_device devices[SIM_MAX_DEVICES];
    sim_slab contexts, streams, events;

    sim_component **components; /* by slot; NULL: free */
    uint32_t component_slots;
    uint32_t component_hint;    /* no slot below it is free */
    sim_clock *host_knows;      /* what the host has seen done */
    uint64_t clock_bytes;       /* of all clocks */
    bool joined;                /* the last join was news: to a stream, or to the host since it began to wait */
    uint64_t edges, idle_edges; /* since cuInit; see sim_edge_counted */
    bool joins_lost;            /* for want of memory */
    uint64_t last_uid;          /* of components and contexts */
    sim_capture *captures;

    uint64_t submitted;
    uint64_t seeded_at; /* what had been submitted when the seed was set */
    uint64_t unfinished;
    uint64_t held_by_host; /* host functions and waits for values that are not finished */
    uint64_t finished;
    uint64_t calls; /* what delays are counted in */
    sim_heap chosen;
    sim_heap delayed;
    sim_op *watching; /* waits for values, by sim_op.next */
} sim_order_state;

extern sim_order_state sim_order;

bool sim_order_open(void);
void sim_order_close(void); /* after sim_clocks_close */
void sim_clocks_close(void);

/* ---- hooks.c, open.c: what higher rooms do when something happens here ---- */

/* What operations of one kind do. The room that makes such operations fills in its types when the driver starts. */
typedef struct sim_op_type {
    bool (*run)(sim_op *op);             /* false after an illegal access; NULL: nothing */
    void (*discard)(sim_op *op);         /* frees what the operation owns, when it has run; may be NULL */
    void (*abandon)(sim_op *op);         /* also, of one that never runs; may be NULL */
    bool (*reached)(sim_op *op);         /* of a wait for a value: whether it is over */
    uint64_t (*bytes)(const sim_op *op); /* that are moved, for the time that it takes; NULL: none */
    bool bookkeeping;                    /* runs after an illegal access, too */
} sim_op_type;

enum { SIM_OP_KINDS = SIM_OP_WAIT_VALUE + 1 };

extern sim_op_type sim_op_types[SIM_OP_KINDS];

/* memory/ */
typedef struct sim_memory_hooks {
    /* NULL without a memory debugger. */
    void (*submitted)(const sim_op *op);
    void (*running)(const sim_op *op);
    void (*seen)(sim_device *device, const sim_point *seen); /* by the host; NULL: all work of the device */
    void (*queue_gone)(const sim_queue *queue);
} sim_memory_hooks;

/* graph/: calls on captured streams, and memory that graphs own */
typedef struct sim_graph_hooks {
    sim_op *(*capture_op)(sim_context *context, sim_queue *queue, sim_op_kind kind);
    void (*capture_submit)(sim_op *op);
    CUresult (*capture_record)(sim_queue *queue, CUevent event, unsigned flags);
    CUresult (*capture_wait)(sim_queue *queue, CUevent event, unsigned flags);
    CUresult (*capture_allocate)(sim_queue *queue, sim_device *device, size_t bytes, CUdeviceptr *address);
    CUresult (*capture_free)(sim_queue *queue, CUdeviceptr address);
    void (*queue_gone)(sim_queue *queue);
    bool (*memory_around)(uint64_t address, uint64_t bytes); /* that a graph may allocate */
    void (*memory_freed)(sim_graph_memory *memory, sim_op *op);
    void (*block_free)(sim_block *block); /* the operation that frees it runs */
    void (*block_free_now)(sim_block *block);
} sim_graph_hooks;

/* How bytes are touched. Atomic updates do not race with each other, but with all else. */
typedef enum sim_access_kind { SIM_READS, SIM_WRITES, SIM_UPDATES_ATOMICALLY } sim_access_kind;

/* check/: the checker. Until it is turned on for the first time, functions that do nothing. */
typedef struct sim_check_hooks {
    bool on;                        /* else the next four need not be called */
    void (*submitting)(sim_op *op); /* before it has its point */
    void (*submitted)(sim_op *op);
    void (*running)(sim_op *op);
    uint64_t (*completed)(sim_op *op);       /* or will never run; the order of the last access record */
    void (*host_function)(const sim_op *op); /* begins, on the thread for them */
    sim_made (*made)(void);                  /* the call that makes a node of a graph */

    /* The operation touches these bytes. Said at any time between its submission and its completion; what is known when
     * it is submitted should be said right after sim_op_submit. Copies and fills need not say it. */
    void (*access)(sim_op *op, uint64_t address, uint64_t bytes, sim_access_kind kind);

    void (*allocated)(sim_block *block); /* known to the host from now on */
    void (*freed_now)(sim_block *block); /* by a call: all that used it must be known to be done */
    void (*forget)(sim_block *block);    /* goes with a context or a module: nothing is judged */
    void (*hidden)(sim_block *block);    /* memory that only a graph knows, from a launch to its free */
    void (*written)(sim_block *block);   /* from the beginning, by the driver */

    /* For a call that waits by itself before it frees: the first before it waits, one of the others after, which drops
     * the record. The record says what the host knew before, if that is what is asked (STRATA_SIM_CHECK_FREES); else it
     * is NULL. */
    sim_access_record *(*free_asked)(void);
    void (*freed_after)(sim_block *block, sim_access_record *asked);
    void (*free_failed)(sim_access_record *asked);

    bool (*watches_pages)(void);                     /* accesses of the host to pinned memory are caught */
    bool (*watch)(sim_block *block, uint64_t bytes); /* sets its address and memory */
    void (*unwatch)(sim_block *block);               /* frees its memory */
    void (*pages_locked)(bool held);                 /* around code of the user that the thread runs with the lock */
} sim_check_hooks;

typedef struct sim_hook_tables {
    const sim_memory_hooks *memory;
    const sim_graph_hooks *graph;
    const sim_check_hooks *check;
} sim_hook_tables;

extern sim_hook_tables sim_hooks;

#endif
