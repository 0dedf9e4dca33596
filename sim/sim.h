/* The inside of the simulated driver.
 *
 * One lock, sim.lock, guards everything declared here except where a comment says otherwise; functions of this header
 * are called with it held. A driver call takes it in sim_enter, does its own part, and gives it back in sim_leave,
 * where the scheduler may run work. It is free while a host function runs and while a call waits for one.
 *
 * The parts, each in its file: handles (slabs of objects that handles point to), work (operations, their dependencies,
 * the scheduler), queues and clocks (streams and what they are ordered after), address space, spans (how memory is
 * handed out), blocks (what is allocated), and the subjects of the driver's interface. */
#ifndef STRATA_SIM_SIM_H
#define STRATA_SIM_SIM_H

/* Every name as the driver exports it, older versions and per-thread twins included, and visible from outside. */
#define __CUDA_API_VERSION_INTERNAL
#pragma GCC visibility push(default)
#include <strata/sim.h>
#pragma GCC visibility pop

#include "index.h"
#include "tree.h"
#include <pthread.h>

typedef struct CUctx_st sim_context;

#define SIM_DRIVER_VERSION 13000
#define SIM_MAX_DEVICES    64
#define SIM_LEAST_MEMORY   (UINT64_C(64) << 20)
#define SIM_MOST_MEMORY    (UINT64_C(1) << 50)
#define SIM_MOST_RANGE     (UINT64_C(1) << 38) /* of addresses, that a pool begins with */

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
struct sim_handle {
    bool alive;
    struct sim_handle *next_free;
};

/* Objects of one type, in one address range that is committed as it fills. A handle can therefore be told from a wild
 * pointer without touching it. The last object given back is the first to be handed out again, as with the real
 * driver's streams. */
struct sim_slab {
    size_t object_bytes;
    char *base;
    size_t capacity;
    size_t made;
    uint64_t alive;
    struct sim_handle *free;
};

bool sim_slab_open(struct sim_slab *slab, size_t object_bytes);
void sim_slab_close(struct sim_slab *slab);
void *sim_slab_take(struct sim_slab *slab); /* zeroed, or NULL */
void sim_slab_give(struct sim_slab *slab, void *object);
bool sim_slab_has(const struct sim_slab *slab, const void *object);
void *sim_slab_next(const struct sim_slab *slab, const void *object); /* the next live one; NULL starts and ends */

/* ---- clock.c: what a stream is known to be ordered after ---- */

struct sim_tick {
    uint64_t queue; /* its uid; 0: nothing known */
    uint64_t position;
};

/* Positions in other queues, one for each queue slot. Shared and immutable while it has more than one reference. */
struct sim_clock {
    uint32_t references;
    uint32_t slots;
    struct sim_tick at[];
};

struct sim_queue;
struct sim_clock *sim_clock_hold(struct sim_clock *clock);
void sim_clock_drop(struct sim_clock *clock);
uint64_t sim_clock_position(const struct sim_clock *clock, uint32_t slot, uint64_t queue_uid);

/* Teaches the queue that it is ordered after `position` of the other queue and after everything in `clock`. Without
 * memory the lesson is lost, which only costs reuse. */
void sim_queue_learn(struct sim_queue *queue, uint32_t slot, uint64_t queue_uid, uint64_t position,
                     const struct sim_clock *clock);

/* ---- work.c, schedule.c: operations ---- */

enum sim_op_kind {
    SIM_OP_MARK, /* only a place in the order: an event's record, a wait, a join */
    SIM_OP_HOST,
    SIM_OP_COPY,
    SIM_OP_FILL,
    SIM_OP_KERNEL,
    SIM_OP_ALLOCATE,
    SIM_OP_FREE,
};

enum sim_op_state {
    SIM_OP_GATHERING, /* made, dependencies still being added */
    SIM_OP_BLOCKED,   /* submitted, waits for others */
    SIM_OP_READY,     /* may run, but nobody wants it yet */
    SIM_OP_DELAYED,   /* may run when its time has come: in sim.delayed */
    SIM_OP_CHOSEN,    /* runs next: in sim.chosen */
    SIM_OP_RUNNING,   /* a host function, with its thread */
    SIM_OP_DONE,
};

struct sim_edge {
    struct sim_op *from;
    struct sim_op *to;
    struct sim_edge *next_successor;
    struct sim_edge *next_predecessor;
    struct sim_edge **predecessor_link; /* what points to this edge in to->predecessors */
};

struct sim_device;
struct sim_block;
struct sim_span;
struct sim_kernel_launch;

/* An end of a copy. */
struct sim_place {
    uint64_t address;
    bool pageable; /* plain host memory, reached through its address */
};

struct sim_op {
    enum sim_op_kind kind;
    enum sim_op_state state;
    bool needed; /* a host waits for it, directly or not */
    uint32_t references;
    sim_context *context;
    struct sim_queue *queue; /* NULL: ordered by its edges alone */
    uint64_t sequence;       /* order of submission in the process */
    uint64_t position;       /* place in its queue */
    uint64_t order;          /* key in the heap it is in */
    size_t heap_index;
    size_t blockers; /* edges that come in */
    struct sim_edge *predecessors;
    struct sim_edge *successors;
    struct sim_op *next;        /* waiting for the host thread, or free */
    struct sim_op *next_marked; /* while the closure of a needed operation is gathered */
    uint64_t finished_at;       /* device time, ns */
    union {
        struct {
            CUhostFn function;
            CUstreamCallback callback; /* instead, for cuStreamAddCallback */
            CUstream stream;
            void *data;
        } host;
        struct {
            struct sim_place to;
            struct sim_place from;
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
        struct sim_kernel_launch *kernel;
        struct sim_block *block; /* allocate, free */
    } work;
    struct sim_span *span; /* of a free: the free span whose completion this is */
};

struct sim_heap {
    struct sim_op **at;
    size_t count;
    size_t capacity;
};

/* Makes sure that the next operation of that queue (NULL: of none) can be made, with so many more dependencies. */
bool sim_op_reserve(const struct sim_queue *queue, size_t extra);

/* A new operation at the end of a queue, ordered after what its stream must be ordered after, or of no queue. There is
 * room for `extra` more dependencies. NULL without memory. */
struct sim_op *sim_op_create(sim_context *context, struct sim_queue *queue, enum sim_op_kind kind, size_t extra);
void sim_op_depend(struct sim_op *op, struct sim_op *on); /* `on` may be NULL or done */
void sim_op_submit(struct sim_op *op);
struct sim_op *sim_op_hold(struct sim_op *op);
void sim_op_drop(struct sim_op *op);
static inline bool sim_op_done(const struct sim_op *op)
{
    return !op || op->state == SIM_OP_DONE;
}
void sim_op_run(struct sim_op *op);     /* what the operation does; run.c */
void sim_op_discard(struct sim_op *op); /* frees what it owns; run.c */
void sim_op_complete(struct sim_op *op);
void sim_ops_close(void);

void sim_op_became_ready(struct sim_op *op);
void sim_op_need(struct sim_op *op); /* the operation and all it waits for shall run; does not wait */
void sim_run_chosen(void);
void sim_tick(void);

/* Waits for the operation; NULL is done. Answers what the driver answers after waiting. Gives the lock away meanwhile.
 */
CUresult sim_op_wait(sim_context *context, struct sim_op *op);

bool sim_heap_reserve(struct sim_heap *heap, size_t count);
void sim_heap_push(struct sim_heap *heap, struct sim_op *op);
void sim_heap_remove(struct sim_heap *heap, struct sim_op *op);

/* ---- host_thread.c: where host functions run ---- */

CUresult sim_host_thread_start(void);
void sim_host_thread_give(struct sim_op *op);
bool sim_host_thread_stop(void); /* gives the lock away meanwhile; false if a function of the user is still running */
bool sim_in_host_function(void); /* without the lock */

/* ---- queue.c: streams ---- */

enum sim_queue_kind { SIM_QUEUE_LEGACY, SIM_QUEUE_PER_THREAD, SIM_QUEUE_CREATED };

/* The work of one stream. It outlives the stream's handle until the work is done. */
struct sim_queue {
    enum sim_queue_kind kind;
    bool blocking; /* is ordered with the legacy stream */
    bool closed;   /* no more work will come */
    sim_context *context;
    struct sim_queue *previous; /* in the context's list */
    struct sim_queue *next;
    uint32_t slot;
    uint64_t uid; /* process-wide, never used again; what cuStreamGetId gives */
    unsigned flags;
    int priority;
    uint64_t submitted;  /* position of the last operation */
    struct sim_op *tail; /* the last operation, until it is done */
    struct sim_clock *knows;
    unsigned polls;
};

struct CUstream_st {
    struct sim_handle handle;
    struct sim_queue *queue;
};

struct sim_queue *sim_queue_open(sim_context *context, enum sim_queue_kind kind, unsigned flags, int priority);
void sim_queue_close(struct sim_queue *queue);
void sim_queue_finished(struct sim_queue *queue, struct sim_op *op);
void sim_queue_free(struct sim_queue *queue);
CUresult sim_queue_of(CUstream stream, struct sim_queue **queue); /* a default stream: of the current context */
size_t sim_queue_order_room(const struct sim_queue *queue);
void sim_queue_order(struct sim_queue *queue, struct sim_op *op);
CUresult sim_queue_wait(struct sim_queue *queue);
CUresult sim_context_wait(sim_context *context);
bool sim_queue_alive(uint32_t slot, uint64_t uid);

struct CUevent_st {
    struct sim_handle handle;
    sim_context *context;
    unsigned flags;
    unsigned polls;
    struct sim_op *op; /* the last record; held */
    uint32_t queue_slot;
    uint64_t queue_uid;
    struct sim_clock *knows; /* what the recording stream knew then */
};
void sim_event_free(CUevent event);

/* ---- space.c: address space and what stands behind it ---- */

/* A range of device addresses and the memory behind it. The addresses are a reservation that nobody can read or write;
 * the bytes are somewhere else. What cuMemAlloc uses is there as a whole; of a pool's range, only some chunks are. */
struct sim_extent {
    struct sim_extent *previous;
    struct sim_extent *next;
    struct sim_node by_address; /* in sim.extents */
    struct sim_index known;     /* blocks that the host knows, by the granule that they begin at */
    struct sim_index present;   /* blocks that are there for the device now */
    struct sim_space *space;
    struct sim_span *first;
    uint64_t address;
    uint64_t bytes;
    char *memory;
};

bool sim_address_take(uint64_t bytes, uint64_t *address); /* whole pages */
void sim_address_give(uint64_t address, uint64_t bytes);
void sim_address_close(void);
char *sim_backing_take(uint64_t bytes);
void sim_backing_empty(char *memory, uint64_t bytes); /* nothing is in there any more */
void sim_backing_give(char *memory, uint64_t bytes);

/* ---- span.c: how a pool hands out its memory ---- */

/* Free spans that wait for one queue's frees, by size. */
struct sim_bin {
    uint64_t queue_uid;
    struct sim_tree by_size;
    uint64_t finished; /* the last free that is done */
    uint64_t seen;     /* the last such free that the host waited for */
};

/* What the host knows to be done after it waited: one queue's work up to a position, and what came before that. */
struct sim_seen {
    uint32_t slot;
    uint64_t queue_uid;
    uint64_t position;
    struct sim_clock *knows; /* may be NULL */
};

/* Part of an extent: in use, free, or a hole, without memory behind it. A free span in a bin was freed in the order of
 * that bin's queue at `position`, by `op` until that is done; a free span in no bin may be used by anybody. */
struct sim_span {
    struct sim_node by_size;
    struct sim_span *previous; /* neighbours in the extent */
    struct sim_span *next;
    struct sim_extent *extent;
    uint64_t address;
    uint64_t bytes;
    uint64_t asked; /* while in use */
    bool free;
    bool hole; /* whole chunks; not free */
    struct sim_bin *bin;
    uint64_t position;
    struct sim_op *op;
};

/* Memory of one device that is handed out in spans: a memory pool, or what cuMemAlloc uses. */
struct sim_space {
    struct sim_device *device;
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
    struct sim_extent *extents;
    struct sim_tree common; /* free spans that anybody may use */
    struct sim_bin **bins;  /* by queue slot */
    uint32_t bin_slots;
    struct sim_space *previous; /* in the device's list */
    struct sim_space *next;
};

void sim_space_open(struct sim_space *space, struct sim_device *device);
void sim_space_close(struct sim_space *space); /* gives everything back */

/* A span of at least so many bytes. `wait_for` is held for the caller: what must be done before the span may be used by
 * that queue, or NULL. A NULL queue may only have what anybody may have. */
CUresult sim_space_take(struct sim_space *space, struct sim_queue *queue, uint64_t bytes, struct sim_span **span,
                        struct sim_op **wait_for);

/* Makes sure that a free on that queue can be noted. */
bool sim_space_expect(struct sim_space *space, const struct sim_queue *queue);

/* The span is free once `op`, a free that is not submitted yet, is done; a NULL op means now. */
void sim_space_give(struct sim_span *span, struct sim_op *op);
void sim_space_freed(struct sim_span *span);                                  /* its op is done */
void sim_space_observe(struct sim_space *space, const struct sim_seen *seen); /* NULL: the host waited for all work */
void sim_space_settle(struct sim_space *space); /* finished frees are anybody's, whatever the policies */
void sim_space_forget_queue(struct sim_space *space, const struct sim_queue *queue);
void sim_space_shrink(struct sim_space *space, uint64_t keep);

/* ---- block.c: what is allocated ---- */

enum sim_block_kind { SIM_BLOCK_DEVICE, SIM_BLOCK_POOLED, SIM_BLOCK_PINNED };

/* One allocation. To the host it exists from the call that made it to the call that frees it; to the device from the
 * operation that allocates to the operation that frees. */
struct sim_block {
    struct sim_block *previous; /* among the blocks that the host knows */
    struct sim_block *next;
    struct sim_node by_address; /* of pinned memory, in sim.pinned */
    struct sim_extent *extent;  /* of device memory: the extent that it is in */
    bool present;
    enum sim_block_kind kind;
    uint64_t address;
    uint64_t bytes; /* as asked for */
    uint64_t held;  /* as handed out */
    char *memory;
    struct sim_device *device;
    sim_context *context;
    struct CUmemPoolHandle_st *pool;
    struct sim_span *span;
    struct sim_op *allocation; /* until it is done; held */
    uint64_t id;
    unsigned host_flags;
    bool sync_memops;
    bool of_module; /* a global variable, which only goes with its module */
};

CUresult sim_block_allocate(sim_context *context, uint64_t bytes, struct sim_block **block);
void sim_block_free_now(struct sim_block *block);
void sim_block_publish(struct sim_block *block); /* known to the host */
void sim_block_retire(struct sim_block *block);  /* no longer known to the host */
void sim_block_appear(struct sim_block *block);  /* there for the device */
void sim_block_vanish(struct sim_block *block);
struct sim_block *sim_block_at(uint64_t address); /* that the host knows, interior addresses included */
struct sim_block *sim_block_around(uint64_t address, uint64_t bytes); /* that holds the whole range */
char *sim_memory_at(uint64_t address, uint64_t bytes); /* for the device, now; NULL if not all of it is there */
void sim_blocks_of_context_free(const sim_context *context);
void sim_blocks_close(void); /* frees every block there still is */

struct CUmemPoolHandle_st {
    struct sim_handle handle;
    struct sim_space space;
    bool is_default;
    bool destroyed; /* and lives on for the blocks that are out */
    uint64_t blocks;
    CUmemAllocationHandleType handle_types;
    CUmemAccess_flags access[SIM_MAX_DEVICES];
};
CUmemoryPool sim_pool_create(struct sim_device *device);
void sim_pool_block_gone(CUmemoryPool pool);

/* ---- module.c, launch.c ---- */

enum { SIM_MAX_PARAMETERS = 1024 };

struct sim_entry {
    struct sim_entry *next;
    char *name;
    size_t count;
    size_t *offsets; /* of the parameters in a parameter buffer */
    size_t *sizes;
    size_t buffer_bytes;
};

struct sim_global {
    struct sim_global *next;
    char *name;
    size_t bytes;
    struct sim_block *block;
};

struct CUfunc_st {
    struct sim_handle handle;
    struct CUmod_st *module;
    struct CUfunc_st *next;
    const struct sim_entry *entry;
    strata_sim_kernel twin;
};

struct CUmod_st {
    struct sim_handle handle;
    sim_context *context;
    struct sim_entry *entries;
    struct sim_global *globals;
    struct CUfunc_st *functions;
};

CUresult sim_ptx_parse(const char *text, struct sim_entry **entries, struct sim_global **globals);
void sim_ptx_free(struct sim_entry *entries, struct sim_global *globals);
void sim_module_free(CUmodule module);
strata_sim_kernel sim_kernel_find(const char *name);
CUresult sim_kernel_register(const char *name, strata_sim_kernel twin);
void sim_kernels_close(void);
strata_sim_kernel sim_twin_find(const char *name); /* Strata's own; twins.c */
bool sim_kernel_run(struct sim_op *op);            /* false after an illegal access */

/* ---- device.c, context.c ---- */

struct CUctx_st {
    struct sim_handle handle;
    struct sim_device *device;
    bool primary;
    bool active; /* always, unless primary */
    uint64_t uid;
    unsigned flags;
    struct sim_queue *queues;
    size_t queue_count;
    struct sim_queue *legacy;
};

struct sim_device {
    int ordinal;
    uint64_t memory;
    uint64_t used;
    uint64_t time;   /* ns that the work so far would have taken */
    CUresult poison; /* an illegal access: for the rest of the process */
    sim_context *primary;
    unsigned primary_references;
    unsigned primary_flags;
    struct sim_space direct;
    struct sim_space *spaces; /* of memory pools */
    CUmemoryPool default_pool;
    CUmemoryPool current_pool;
};

struct sim_device *sim_device_of(CUdevice device); /* NULL if there is none */
CUresult sim_device_open(struct sim_device *device, int ordinal);
void sim_device_close(struct sim_device *device);
void sim_device_observe(struct sim_device *device, const struct sim_seen *seen); /* as sim_space_observe */
CUresult sim_context_open(struct sim_device *device, bool primary, unsigned flags, sim_context **context);
CUresult sim_context_close(sim_context *context);
void sim_context_free(sim_context *context); /* at the end of the process: whatever state it is in */
bool sim_context_valid(const sim_context *context);

/* ---- threads.c: what belongs to a thread ---- */

struct sim_current {
    sim_context *context;
    uint64_t uid;
};

/* Made at a thread's first call, gone with the thread. The stack and the mode are the thread's own; the rest is shared.
 */
struct sim_thread {
    struct sim_thread *previous;
    struct sim_thread *next;
    struct sim_current *stack;
    size_t depth;
    size_t capacity;
    CUstreamCaptureMode mode;
    struct sim_queue **queues; /* per-thread default streams, one for each context used */
    size_t queue_count;
};

struct sim_thread *sim_thread_self(void); /* NULL without memory */
struct sim_queue *sim_thread_queue(sim_context *context);
void sim_threads_forget_queue(const struct sim_queue *queue);
CUresult sim_thread_push(sim_context *context);
bool sim_threads_open(void);
void sim_threads_close(void);

/* ---- state.c: the whole, and its beginning and end ---- */

enum sim_phase { SIM_NOT_INITIALIZED, SIM_RUNNING, SIM_ENDED, SIM_FORKED };

struct sim_settings {
    uint64_t seed;
    strata_sim_policy policy;
    int devices;
    uint64_t memory;
    bool seed_set; /* by a function, so that the environment does not count */
    bool policy_set;
    bool devices_set;
    bool memory_set;
};

struct sim {
    pthread_mutex_t lock;
    pthread_cond_t progress; /* an operation was completed by the host thread, or the driver ended */
    enum sim_phase phase;
    struct sim_settings settings;
    unsigned inside; /* calls that gave the lock away to wait */

    struct sim_device devices[SIM_MAX_DEVICES];
    struct sim_slab contexts, streams, events, modules, functions, pools;

    struct sim_queue **queues; /* by slot; NULL: free */
    uint32_t queue_slots;
    uint64_t last_uid; /* of queues and contexts */
    uint64_t last_block;

    uint64_t submitted;
    uint64_t seeded_at; /* what had been submitted when the seed was set */
    uint64_t unfinished;
    uint64_t finished;
    uint64_t calls; /* what delays are counted in */
    struct sim_heap chosen;
    struct sim_heap delayed;

    struct sim_block *blocks; /* that the host knows */
    struct sim_tree extents;  /* all device memory, by address */
    struct sim_tree pinned;   /* pinned blocks, by address */
    uint64_t device_blocks;
    uint64_t pinned_blocks;
};

extern struct sim sim;

/* Begin and end a driver call. After sim_enter* failed the lock is not held and the call returns what it got.
 *
 * The driver looks at as little as a call needs, and so do these. Most calls are refused in a host function and in a
 * forked child, and many need a current context. A call on a handle needs the handle alone: it works without a current
 * context and in a host function (sim_enter_handle), and if it only asks, even in a forked child (sim_enter_query). */
CUresult sim_enter(void);
CUresult sim_enter_context(sim_context **context);
CUresult sim_enter_handle(void);
CUresult sim_enter_query(void);
CUresult sim_leave(CUresult result);
bool sim_ended(void); /* without the lock */

CUresult sim_context_current(sim_context **context);       /* the thread's, if it is good for work */
CUresult sim_context_check(sim_context *context);          /* is it good for work? */
CUresult sim_settings_read(struct sim_settings *settings); /* settings.c: what the environment says */

#endif
