/* The inside of the simulated driver.
 *
 * One lock, sim.lock, guards everything declared here except where a comment says otherwise; functions of this header
 * are called with it held. A driver call takes it in sim_enter, does its own part, and gives it back in sim_leave,
 * where the scheduler may run work. It is free while a host function runs and while a call waits for one.
 *
 * The rooms: order/ (operations, their dependencies, the scheduler; streams, events, clocks: what comes before what),
 * memory/ (address space, how memory is handed out, what is allocated, mapped, copied), graph/ (captures and graphs),
 * check/ (the checker and its reports), kernels/ (modules, launches, the twins of Strata's own kernels); beside this
 * header what all share: handles, contexts and devices, threads, faults on purpose, the beginning and the end. */
#ifndef STRATA_SIM_SIM_H
#define STRATA_SIM_SIM_H

/* Every name as the driver exports it, older versions and per-thread twins included, and visible from outside. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <strata/sim.h>
#pragma GCC visibility pop

#include "base/index.h"
#include "base/tree.h"
#include <pthread.h>

typedef struct CUctx_st sim_context;
typedef struct sim_access_record sim_access_record;
typedef struct sim_piece sim_piece;
typedef struct sim_component sim_component;
typedef struct sim_queue sim_queue;
typedef struct sim_op sim_op;
typedef struct sim_capture sim_capture;
typedef struct sim_space sim_space;
typedef struct sim_graph_memory sim_graph_memory;
typedef struct sim_watch sim_watch;
typedef struct sim_shadow sim_shadow;
typedef struct sim_peer sim_peer;
typedef struct sim_in_flight_range sim_in_flight_range;
typedef struct sim_device sim_device;
typedef struct sim_thread sim_thread;
typedef struct sim_block sim_block;
typedef struct sim_span sim_span;
typedef struct sim_kernel_launch sim_kernel_launch;
typedef struct sim_edge sim_edge;
typedef struct sim_ptx_entry sim_ptx_entry;
typedef struct sim_ptx_global sim_ptx_global;

#define SIM_DRIVER_VERSION 13000
#define SIM_MAX_DEVICES    64
#define SIM_LEAST_MEMORY   (UINT64_C(64) << 20)
#define SIM_MOST_MEMORY    (UINT64_C(1) << 50)
#define SIM_MOST_RANGE     (UINT64_C(1) << 38) /* of addresses, that a pool begins with */
#define SIM_SMALL_RANGE    (UINT64_C(1) << 30) /* where the process has few addresses: pools have several ranges */

enum {
    SIM_GRANULE = 512,          /* every address and size handed out is a multiple of it */
    SIM_PAGE = 2 << 20,         /* device memory is taken and given back in multiples of it */
    SIM_CHUNK = 32 << 20,       /* what memory pools take from the device and give back, one at a time */
    SIM_GREATEST_PRIORITY = -5, /* of streams; the least is 0 */
    SIM_POLLS = 3,              /* queries that answer "not ready" before one forces the work */
};

static inline uint64_t sim_round_up(uint64_t value, uint64_t multiple)
{
    return (value + multiple - 1) / multiple * multiple;
}

/* ---- handles.c: objects that handles point to ---- */

/* First member of every object with a handle. */
typedef struct sim_handle {
    bool alive;
    struct sim_handle *next_free;
} sim_handle;

/* Objects of one type, in one address range that is committed as it fills. A handle can therefore be told from a wild
 * pointer without touching it. The last object given back is the first to be handed out again, as with the real
 * driver's streams. */
typedef struct sim_slab {
    size_t object_bytes;
    char *base;
    size_t capacity;
    size_t made;
    uint64_t alive;
    sim_handle *free;
} sim_slab;

bool sim_slab_open(sim_slab *slab, size_t object_bytes);
void sim_slab_close(sim_slab *slab);
void *sim_slab_take(sim_slab *slab); /* zeroed, or NULL */
void sim_slab_give(sim_slab *slab, void *object);
bool sim_slab_has(const sim_slab *slab, const void *object);
void *sim_slab_next(const sim_slab *slab, const void *object); /* the next live one; NULL starts and ends */

/* ---- clock.c: what comes before what ---- */

/* The checker's: the operations of a lane that have not said yet all that they touch, in a ring, and the neighbours in
 * the list of lanes that have any. */
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

/* Positions in lanes, by slot. Shared and immutable while it has more than one reference. */
typedef struct sim_clock {
    uint32_t references;
    uint32_t slots;
    sim_clock_entry at[];
} sim_clock;

/* One lane up to a position, and everything that comes before that. */
typedef struct sim_point {
    uint32_t slot;
    uint64_t component; /* its uid; 0: a point in no lane, which is only what it comes after */
    uint64_t position;
    sim_clock *knows; /* may be NULL */
} sim_point;

sim_clock *sim_clock_hold(sim_clock *clock);
void sim_clock_drop(sim_clock *clock);
uint64_t sim_clock_position(const sim_clock *clock, uint32_t slot, uint64_t component);

/* The owner of a clock comes after the point. Without memory the lesson is lost (sim.joins_lost): a pool reuses less,
 * and the checker stops. */
void sim_clock_join(sim_clock **owner, uint64_t own_component, const sim_point *point);

/* A record or a wait was made; idle: it ordered nothing new. A wait is idle if nobody was taught anything by it
 * (sim.taught, which lessons set, and cleared by who wants to know). */
void sim_edge_counted(bool idle);

sim_point sim_queue_point(const sim_queue *queue);             /* the work so far; borrows the clock */
bool sim_queue_join(sim_queue *queue, const sim_point *point); /* whether it is new to the queue */
void sim_host_join(const sim_point *point);                    /* the host has seen that it is done */

/* ---- work.c, schedule.c: operations ---- */

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
    SIM_OP_READY,     /* may run, but nobody wants it yet */
    SIM_OP_DELAYED,   /* may run when its time has come: in sim.delayed */
    SIM_OP_CHOSEN,    /* runs next: in sim.chosen */
    SIM_OP_RUNNING,   /* a host function, with its thread */
    SIM_OP_WATCHING,  /* a wait for a value that is not there yet: in sim.watching */
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
    sim_component *chain;      /* of one without a queue: its lane; held */
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

/* The same for so many operations of no queue, with so many dependencies in all. */
bool sim_op_reserve_many(size_t ops, size_t edges);

/* A new operation at the end of a queue, ordered after what its stream must be ordered after, or of no queue. There is
 * room for `extra` more dependencies. NULL without memory. */
sim_op *sim_op_create(sim_context *context, sim_queue *queue, sim_op_kind kind, size_t extra);
sim_op *sim_op_detached(sim_context *context, sim_op_kind kind); /* in no order, and never to run */

/* The operation comes after `on`, which was submitted and may be done, or is NULL. Any edge that the program asked for,
 * wherever it comes from, is made with this; it counts for the order that programs may rely on. */
void sim_op_depend(sim_op *op, sim_op *on);

/* The same for order that is known without an operation to wait for. Before the operation is submitted. */
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
void sim_op_run(sim_op *op);               /* what the operation does; run.c */
void sim_op_discard(sim_op *op);           /* frees what it owns; run.c */
bool sim_rows_run(const sim_op *op);       /* copy2d.c; false after an illegal access */
uint64_t sim_rows_bytes(const sim_op *op); /* that are copied */
CUresult sim_rows_describe(sim_context *context, const CUDA_MEMCPY3D *asked, sim_op *what); /* for a graph */
void sim_value_write(const sim_op *op);                                                     /* values.c */
bool sim_value_reached(const sim_op *op); /* true also where the address is gone, which poisons */
bool sim_value_there(const sim_op *op);   /* only looks */
bool sim_value_is(const sim_op *op, uint64_t value, unsigned width); /* as written, in the narrower width */
void sim_value_watch(sim_op *op); /* a wait whose value is not there is looked at again later */
bool sim_values_check(void);      /* ends waits whose values have come; whether there is work to run */
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

/* ---- host_thread.c: where host functions run ---- */

CUresult sim_host_thread_start(void);
void sim_host_thread_give(sim_op *op);
void sim_host_thread_call(CUhostFn function, void *data); /* in the order of these calls, after none */
bool sim_host_thread_stop(void); /* gives the lock away meanwhile; false if a function of the user is still running */
bool sim_in_host_function(void); /* without the lock */
sim_op *sim_host_function_op(void); /* that the thread runs, or NULL; without the lock */

/* Nodes of graphs, in an order that matters; node_set.c. */
typedef struct sim_nodes {
    CUgraphNode *at;
    size_t count;
    size_t capacity;
} sim_nodes;

/* ---- queue.c: streams ---- */

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

/* ---- space.c: address space and what stands behind it ---- */

/* A range of device addresses and the memory behind it. The addresses are a reservation that nobody can read or write;
 * the bytes are somewhere else. What cuMemAlloc uses is there as a whole; of a pool's range, only some chunks are. */
typedef struct sim_extent {
    struct sim_extent *previous;
    struct sim_extent *next;
    sim_node by_address; /* in sim.extents */
    sim_index known;     /* blocks that the host knows, by the granule that they begin at */
    sim_index present;   /* blocks that are there for the device now */
    sim_space *space;
    sim_span *first;
    uint64_t address;
    uint64_t bytes;
    char *memory;
    uint64_t touched; /* so many bytes from the beginning on had memory at one time or another */
} sim_extent;

bool sim_address_take(uint64_t bytes, uint64_t *address); /* whole pages */

/* The same at a multiple of `alignment`, a power of two of at least a page; at `wish` if that is free. */
bool sim_address_take_aligned(uint64_t bytes, uint64_t alignment, uint64_t wish, uint64_t *address);
void sim_address_give(uint64_t address, uint64_t bytes);
void sim_address_close(void);
char *sim_backing_take(uint64_t bytes);
void sim_backing_expect(char *memory, uint64_t bytes); /* all of these bytes are about to be written */
void sim_backing_empty(char *memory, uint64_t bytes);  /* nothing is in there any more */
void sim_backing_give(char *memory, uint64_t bytes);

/* ---- span.c: how a pool hands out its memory ---- */

/* Free spans that wait for one queue's frees, by size. */
typedef struct sim_bin {
    uint64_t component; /* the queue's, by uid */
    sim_tree by_size;
    uint64_t finished; /* the last free that is done */
    uint64_t seen;     /* the last such free that the host waited for */
} sim_bin;

/* Part of an extent: in use, free, or a hole, without memory behind it. A free span in a bin was freed in the order of
 * that bin's queue at `position`, by `op` until that is done; a free span in no bin may be used by anybody. */
typedef struct sim_span {
    sim_node by_size;
    struct sim_span *previous; /* neighbours in the extent */
    struct sim_span *next;
    sim_extent *extent;
    uint64_t address;
    uint64_t bytes;
    uint64_t asked; /* while in use */
    bool free;
    bool hole; /* whole chunks; not free */
    sim_bin *bin;
    uint64_t position;
    sim_op *op;
} sim_span;

/* Memory of one device that is handed out in spans: a memory pool, or what cuMemAlloc uses. */
typedef struct sim_space {
    sim_device *device;
    bool direct;        /* what cuMemAlloc uses: pages go back as soon as nothing is in them */
    uint64_t limit;     /* most bytes to hold; 0: no limit */
    uint64_t keep;      /* release threshold */
    bool follow_events; /* the three reuse policies */
    bool opportunistic;
    bool internal_dependencies;
    uint64_t reserved;
    uint64_t reserved_high;
    uint64_t used; /* as asked for */
    uint64_t used_high;
    bool unseen; /* a queue went whose frees the host had not waited for */
    sim_extent *extents;
    sim_tree common; /* free spans that anybody may use */
    sim_bin **bins;  /* by the slot of the queue's lane */
    uint32_t bin_slots;
    struct sim_space *previous; /* in the device's list */
    struct sim_space *next;
} sim_space;

void sim_space_open(sim_space *space, sim_device *device);
void sim_space_close(sim_space *space); /* gives everything back */

/* A span of at least so many bytes. `wait_for` is held for the caller: what must be done before the span may be used by
 * that queue, or NULL. A NULL queue may only have what anybody may have. */
CUresult sim_space_take(sim_space *space, sim_queue *queue, uint64_t bytes, sim_span **span, sim_op **wait_for);

/* Makes sure that a free on that queue can be noted. */
bool sim_space_expect(sim_space *space, const sim_queue *queue);

/* The span is free once `op`, a free that is not submitted yet, is done; a NULL op means now. */
void sim_space_give(sim_span *span, sim_op *op);
void sim_space_freed(sim_span *span);                            /* its op is done */
void sim_space_observe(sim_space *space, const sim_point *seen); /* NULL: the host waited for all work */
void sim_space_settle(sim_space *space); /* finished frees are anybody's, whatever the policies */
void sim_space_forget_queue(sim_space *space, const sim_queue *queue);
void sim_space_shrink(sim_space *space, uint64_t keep);
bool sim_device_make_room(sim_device *device, uint64_t bytes); /* unused memory of pools goes back, if needed */

/* ---- block.c: what is allocated ---- */

typedef enum sim_block_kind {
    SIM_BLOCK_DEVICE,
    SIM_BLOCK_POOLED,
    SIM_BLOCK_PINNED,
    SIM_BLOCK_REGISTERED, /* the program's own memory; the driver only knows of it */
    SIM_BLOCK_MANAGED,
    SIM_BLOCK_MAPPED, /* a struct sim_map */
} sim_block_kind;

/* One allocation. To the host it exists from the call that made it to the call that frees it; to the device from the
 * operation that allocates to the operation that frees. */
typedef struct sim_block {
    struct sim_block *previous; /* among the blocks that the host knows */
    struct sim_block *next;
    sim_node by_address; /* of memory in no extent, in sim.apart */
    sim_extent *extent;  /* of cuMemAlloc's and pools' memory: the extent that it is in */
    bool present;
    sim_block_kind kind;
    uint64_t address;
    uint64_t bytes; /* as asked for */
    uint64_t held;  /* as handed out */
    char *memory;
    sim_device *device;
    sim_context *context;
    struct CUmemPoolHandle_st *pool;
    sim_span *span;
    sim_op *allocation; /* until it is done; held */
    uint64_t id;
    unsigned host_flags;
    bool sync_memops;
    bool of_module;                 /* a global variable, which only goes with its module */
    sim_graph_memory *graph;        /* memory of a graph, which it is part of */
    sim_watch *watch;               /* of pinned memory whose pages are protected; host_access.c */
    sim_shadow *shadow;             /* the checker's, or NULL */
    sim_in_flight_range *in_flight; /* bytes of it that are on their way to the host; in_flight.c */
} sim_block;

CUresult sim_block_allocate(sim_context *context, uint64_t bytes, sim_block **block);
void sim_block_free_now(sim_block *block);
void sim_block_publish(sim_block *block); /* known to the host */
void sim_block_retire(sim_block *block);  /* no longer known to the host */
void sim_block_appear(sim_block *block);  /* there for the device */
void sim_block_vanish(sim_block *block);
sim_block *sim_block_at(uint64_t address);                      /* that the host knows, interior addresses included */
sim_block *sim_block_around(uint64_t address, uint64_t bytes);  /* that holds the whole range */
sim_block *sim_block_present(uint64_t address, uint64_t bytes); /* the same, there for the device now */
char *sim_memory_at(uint64_t address, uint64_t bytes); /* for the device, now; NULL if not all of it is there */
void sim_blocks_of_context_free(const sim_context *context);
void sim_blocks_close(void);                /* frees every block there still is */
void sim_extent_vanish(sim_extent *extent); /* it goes, with what is still there in it */
void sim_managed_destroy(sim_block *block); /* managed.c: its memory goes */

/* ---- copy.c: what copies of bytes and of rows share ---- */

typedef enum sim_side { SIM_HOST_SIDE, SIM_DEVICE_SIDE, SIM_ANY_SIDE } sim_side;

/* What an end of a copy is, which begins at the address and spans so many bytes. False if the call must not name it.
 * With `graphs`, memory that a graph may allocate is known, too. */
bool sim_locate(const sim_context *context, uint64_t address, size_t bytes, sim_side side, bool write, bool graphs,
                sim_place *place);

/* A call that is synchronous waits, unless both ends are the device's; so does a call that writes plain host memory.
 * The second drops the operation. */
CUresult sim_copy_prepare(sim_queue *queue, const sim_place *from, bool synchronous);
CUresult sim_copy_finish(sim_context *context, sim_op *op, const sim_place *to, const sim_place *from,
                         bool synchronous);

/* ---- in_flight.c: for memory debuggers, bytes that the host must not touch ---- */

void sim_in_flight_begin(const sim_op *op); /* submitted */
void sim_in_flight_run(const sim_op *op);   /* is about to run */
void sim_in_flight_end(const sim_op *op);   /* is complete */

/* ---- reach.c: who may touch which memory ---- */

typedef enum sim_toucher { SIM_BY_COPY, SIM_BY_FILL, SIM_BY_KERNEL } sim_toucher;

/* May work of that context read, or write, the range, which is in known blocks? */
bool sim_may_touch(const sim_context *context, uint64_t address, uint64_t bytes, sim_toucher by, bool write);

/* Where the process finds the bytes, for work that runs now; NULL if they are not all there, or not for that context.
 */
char *sim_touch(const sim_context *context, uint64_t address, uint64_t bytes, sim_toucher by, bool write);

/* Memory that the host reads and writes at its address. */
static inline bool sim_block_is_host(const sim_block *block)
{
    return block->kind == SIM_BLOCK_PINNED || block->kind == SIM_BLOCK_REGISTERED;
}

struct CUmemPoolHandle_st {
    sim_handle handle;
    sim_space space;
    bool is_default;
    bool destroyed; /* and lives on for the blocks that are out */
    uint64_t blocks;
    CUmemAllocationHandleType handle_types;
    CUmemAccess_flags access[SIM_MAX_DEVICES];
};
CUmemoryPool sim_pool_create(sim_device *device);
void sim_pool_block_gone(CUmemoryPool pool);

/* ---- module.c, launch.c ---- */

enum { SIM_MAX_PARAMETERS = 1024 };

typedef struct sim_ptx_entry {
    struct sim_ptx_entry *next;
    char *name;
    size_t count;
    size_t *offsets; /* of the parameters in a parameter buffer */
    size_t *sizes;
    size_t buffer_bytes;
} sim_ptx_entry;

typedef struct sim_ptx_global {
    struct sim_ptx_global *next;
    char *name;
    size_t bytes;
    sim_block *block;
} sim_ptx_global;

struct CUfunc_st {
    sim_handle handle;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    const sim_ptx_entry *entry;
    strata_sim_kernel host_kernel;
    const char *name; /* good as long as the simulation */
};

struct CUmod_st {
    sim_handle handle;
    sim_context *context;
    sim_ptx_entry *entries;
    sim_ptx_global *globals;
    struct CUfunc_st *functions;
};

CUresult sim_ptx_parse(const char *text, sim_ptx_entry **entries, sim_ptx_global **globals);
void sim_ptx_free(sim_ptx_entry *entries, sim_ptx_global *globals);
void sim_module_free(CUmodule module);
strata_sim_kernel sim_kernel_find(const char *name, const char **known_as); /* a name that stays */
CUresult sim_kernel_register(const char *name, strata_sim_kernel host_kernel);
void sim_kernels_close(void);
strata_sim_kernel sim_host_kernel_find(const char *name, const char **known_as); /* Strata's own; host_kernels.c */
void sim_guard_check(strata_sim_launch *launch);                                 /* guard_host_kernel.c */
void sim_guard_fill(strata_sim_launch *launch);
const char *sim_kernel_name(const sim_op *op);
bool sim_kernel_run(sim_op *op);                                     /* false after an illegal access */
sim_kernel_launch *sim_kernel_copy(const sim_kernel_launch *kernel); /* NULL without memory */
CUresult sim_kernel_make(const CUDA_KERNEL_NODE_PARAMS *params, sim_kernel_launch **kernel);
void sim_kernel_describe(const sim_kernel_launch *kernel, CUDA_KERNEL_NODE_PARAMS *params);

/* ---- capture_rules.c: what a capture does not survive ---- */

/* For calls that a capture may not survive, whatever they are about: by the capture modes and the calling thread's own,
 * they end captures and are refused. */
CUresult sim_capture_guard(void);
CUresult sim_capture_guard_queue(sim_queue *queue);       /* that the call is about: refused if it is captured */
CUresult sim_capture_guard_context(sim_context *context); /* the call waits for all of the context's streams */
CUresult sim_capture_guard_legacy(sim_context *context);  /* the call is about the legacy stream */
CUresult sim_capture_guard_event(CUevent event);          /* the call asks about an event */
bool sim_capture_beside_legacy(sim_context *context); /* is a stream captured that is ordered with the legacy stream? */
/* capture.c */
void sim_capture_forget_queue(sim_queue *queue);
void sim_capture_forget_thread(const sim_thread *thread);

/* ---- capture_work.c: calls on captured streams ---- */

CUresult sim_capture_check(const sim_queue *queue); /* is it not captured, or captured and in order? */
sim_op *sim_capture_op(sim_context *context, sim_queue *queue, sim_op_kind kind);
void sim_capture_submit(sim_op *op);
CUresult sim_capture_record(sim_queue *queue, CUevent event, unsigned flags);
CUresult sim_capture_wait(sim_queue *queue, CUevent event, unsigned flags);
CUresult sim_capture_allocate(sim_queue *queue, sim_device *device, size_t bytes, CUdeviceptr *address);
CUresult sim_capture_free(sim_queue *queue, CUdeviceptr address);
void sim_nodes_free(sim_nodes *nodes);

/* ---- graph_blocks.c ---- */

bool sim_graph_memory_around(uint64_t address, uint64_t bytes); /* that a graph may allocate */
void sim_graph_memory_freed(sim_graph_memory *memory, sim_op *op);
void sim_graph_block_free(sim_block *block); /* the operation that frees it runs */
void sim_graph_block_free_now(sim_block *block);
void sim_graph_memories_close(void);
void sim_graphs_count(uint64_t *graphs, uint64_t *execs); /* exec.c: that are no part of another one */
void sim_graphs_close(void);                              /* exec.c */
void sim_captures_close(void);

/* ---- device.c, context.c ---- */

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

/* What a device's graphs hold; graph_blocks.c. */
typedef struct sim_graph_pool {
    uint64_t reserved;
    uint64_t reserved_high;
    uint64_t used_high;
    uint64_t idle;              /* of what is reserved: not behind any graph's addresses now */
    sim_graph_memory *memories; /* every allocation that a graph of this device may make */
} sim_graph_pool;

typedef struct sim_device {
    int ordinal;
    uint64_t memory;
    uint64_t used;
    uint64_t time;   /* ns that the work so far would have taken */
    CUresult poison; /* an illegal access: for the rest of the process */
    sim_context *primary;
    unsigned primary_references;
    unsigned primary_flags;
    sim_space direct;
    sim_space *spaces; /* of memory pools */
    CUmemoryPool default_pool;
    CUmemoryPool current_pool;
    sim_graph_pool graphs;
} sim_device;

sim_device *sim_device_of(CUdevice device); /* NULL if there is none */
CUresult sim_device_open(sim_device *device, int ordinal);
void sim_device_close(sim_device *device);
void sim_device_observe(sim_device *device, const sim_point *seen); /* as sim_space_observe */
CUresult sim_context_open(sim_device *device, bool primary, unsigned flags, sim_context **context);
CUresult sim_context_close(sim_context *context);
void sim_context_free(sim_context *context); /* at the end of the process: whatever state it is in */
bool sim_context_valid(const sim_context *context);

/* ---- peer.c ---- */

bool sim_peer_enabled(const sim_context *context, const sim_context *peer);
void sim_peers_free(sim_context *context);

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

/* ---- state.c: the whole, and its beginning and end ---- */

typedef enum sim_phase { SIM_NOT_INITIALIZED, SIM_RUNNING, SIM_ENDED, SIM_FORKED } sim_phase;

typedef struct sim_settings {
    uint64_t seed;
    strata_sim_policy policy;
    int devices;
    uint64_t memory;
    uint32_t check;    /* modes of the checker */
    char *check_file;  /* owned; NULL: standard error */
    bool check_writes; /* reports are written: the environment turned the checker on, or says where or what for */
    int check_exit;    /* status to exit with after reports; 0: the program's own */
    bool lacks_virtual_memory;
    uint64_t latency[STRATA_SIM_KINDS];
    uint64_t rate[STRATA_SIM_KINDS]; /* bytes a microsecond; 0: any number */
    bool check_set;
    bool never_set;
    bool seed_set; /* by a function, so that the environment does not count */
    bool policy_set;
    bool devices_set;
    bool memory_set;
} sim_settings;

struct sim {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* an operation was completed by the host thread, or the driver ended */
    sim_phase phase;
    sim_settings settings;
    unsigned inside; /* calls that gave the lock away to wait */

    sim_device devices[SIM_MAX_DEVICES];
    sim_slab contexts, streams, events, modules, functions, pools, physicals;
    sim_slab graphs, graph_nodes, graph_execs, objects;

    sim_component **components; /* by slot; NULL: free */
    uint32_t component_slots;
    uint32_t component_hint;    /* no slot below it is free */
    sim_clock *host_knows;      /* what the host has seen done */
    uint64_t clock_bytes;       /* of all clocks */
    bool joined;                /* the last lesson was news: to a stream, or to the host since it began to wait */
    uint64_t edges, idle_edges; /* since cuInit; see sim_edge_counted */
    bool joins_lost;            /* for want of memory */
    bool checking;              /* the checker is on; check.h */
    uint64_t last_uid;          /* of lanes and contexts */
    uint64_t last_block;
    uint64_t last_graph; /* id of graphs, of nodes and of captures */
    sim_capture *captures;

    uint64_t submitted;
    uint64_t seeded_at; /* what had been submitted when the seed was set */
    uint64_t unfinished;
    uint64_t held_by_host; /* host functions and waits for values that are not finished */
    uint64_t finished;
    uint64_t calls; /* what delays are counted in */
    sim_heap chosen;
    sim_heap delayed;

    sim_block *blocks; /* that the host knows */
    sim_tree extents;  /* all device memory, by address */
    sim_tree apart;    /* blocks in no extent, by address: pinned, registered, managed, mapped */
    sim_tree ranges;   /* reserved addresses, by address */
    sim_op *watching;  /* waits for values, by sim_op.next */
    uint64_t device_blocks;
    uint64_t pinned_blocks;
    uint64_t registered_blocks;
    uint64_t mapped_blocks;
    uint64_t reserved_ranges;
};

extern struct sim sim;

/* Begin and end a driver call. After sim_enter* failed the lock is not held and the call returns what it got.
 *
 * The driver looks at as little as a call needs, and so do these. Most calls are refused in a host function and in a
 * forked child, and many need a current context. A call on a handle needs the handle alone: it works without a current
 * context and in a host function (sim_enter_handle), and if it only asks, even in a forked child (sim_enter_query).
 *
 * They note which entry point was called, for reports and for the fault plan, and are macros since only so they learn
 * the name of the function that they stand in. A function that begins calls for several entry points passes the name on
 * (`..._as`); an entry point that is another one by a further name says so before it calls that (sim_called_as). */
#define sim_enter()                       sim_enter_as(__func__)
#define sim_enter_context(context)        sim_enter_context_as(__func__, context)
#define sim_enter_unsafe()                sim_enter_unsafe_as(__func__)
#define sim_enter_context_unsafe(context) sim_enter_context_unsafe_as(__func__, context)
#define sim_enter_handle()                sim_enter_handle_as(__func__)
#define sim_enter_query()                 sim_enter_query_as(__func__)
CUresult sim_enter_as(const char *entry);
CUresult sim_enter_context_as(const char *entry, sim_context **context);
CUresult sim_enter_unsafe_as(const char *entry); /* as sim_enter, and a capture may not survive it */
CUresult sim_enter_context_unsafe_as(const char *entry, sim_context **context);
CUresult sim_enter_handle_as(const char *entry);
CUresult sim_enter_query_as(const char *entry);
CUresult sim_leave(CUresult result);
bool sim_ended(void); /* without the lock */
void sim_called_as(const char *entry);
const char *sim_entry(void);               /* of the thread's last call */
size_t sim_entry_length(const char *name); /* without the suffix of a version or a per-thread twin; fault.c */
bool sim_entry_known(const char *name);    /* proc_address.c; without such a suffix */

/* ---- fault.c: what the plan makes go wrong ---- */

CUresult sim_fault_call(const char *entry);           /* what the call fails with, or CUDA_SUCCESS */
CUresult sim_fault_operation(const sim_queue *queue); /* what its newest operation fails with */
bool sim_fault_drops(strata_sim_edge edge);           /* such a wait or record is asked for: forget it? */

CUresult sim_context_current(sim_context **context); /* the thread's, if it is good for work */
CUresult sim_context_check(sim_context *context);    /* is it good for work? */
CUresult sim_settings_read(sim_settings *settings);  /* settings.c: what the environment says */
const char *sim_settings_problem(void);              /* what was wrong with that, or NULL */

#endif
