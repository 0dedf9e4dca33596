/* The interface of a layer, and what is needed to write one; examples/own_layer.c is a complete layer.
 *
 * A stack is a chain of resources, which may end in branches (fallback.h). The last one owns memory. The others are
 * decorators: each embeds strata_resource as its first member, implements the operations that it changes, and leaves
 * the others NULL. The stack replaces NULL operations with forwarders, except `completed`, those from `values` to
 * `begin`, and those behind `synchronize`. Owners implement at least allocate, deallocate, usage and capabilities,
 * every layer destroy.
 *
 * Creation. strata_NAME_create() makes a layer, to be built into a stack; `ordinal` is the device. NULL options: the
 * defaults. Errors: OUT_OF_HOST_MEMORY, with an ordinal DRIVER_NOT_FOUND, IO and DRIVER, and those listed.
 *
 * Threads. Unless a member says otherwise, an operation may be called on any thread and by several at once. Strata
 * holds no lock around a call, except around `completed` and `owns_internally` and while guards are checked at process
 * exit. usage, charge, budget, capabilities and reusable do not block.
 *
 * Failure. A failed operation leaves nothing behind: no bytes counted, no event recorded, no partial block. Outputs are
 * zeroed. The thread's error record describes the failure. */
#ifndef STRATA_RESOURCE_H
#define STRATA_RESOURCE_H

#include <strata/block.h>
#include <strata/emitter.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_resource strata_resource;
typedef struct strata_resource_ops strata_resource_ops;
typedef struct strata_stack strata_stack;
struct strata_stream_sums;
struct strata_made;
struct strata_entry;
struct strata_timeline;

/* Passed to a layer's deallocate, by the runtime alone, instead of a stream: the allocation stream was known and has
 * been unregistered. */
#define STRATA_STREAM_GONE ((CUstream)(~(uintptr_t)0))

typedef struct strata_request {
    size_t bytes;     /* 0 gives an empty block */
    size_t alignment; /* bytes, a power of two; 0: the resource's own, at least 256 */
    CUstream stream;  /* work submitted to this stream may use the memory at once */
    strata_tag tag;
    struct strata_budget_account *account; /* charged instead of the thread's in its budget layer; NULL: the thread's */
} strata_request;

typedef enum strata_reap_mode {
    STRATA_REAP_FINISHED = 0, /* query the driver; never waits */
    STRATA_REAP_WAIT,         /* wait until every pending free is complete */
} strata_reap_mode;

/* Bits of capabilities(). */
#define STRATA_CAPABILITY_STREAM_ORDERED 0x1u /* only a request that would be refused waits for the device */
#define STRATA_CAPABILITY_USE_TRACKING   0x2u /* uses are ordered across streams */
#define STRATA_CAPABILITY_FIND           0x4u /* find() resolves any address in a block */
#define STRATA_CAPABILITY_DEVICE_MEMORY  0x8u /* not readable by the host */

/* Memory of one owner. Exact while no call is in flight, otherwise off by what threads did during the collection. */
typedef struct strata_usage {
    size_t live_bytes;        /* in allocated blocks */
    size_t retired_bytes;     /* freed in stream order, not known to be complete, not reused */
    size_t bytes_outstanding; /* live + retired */
    size_t live_blocks;
    size_t reserved_bytes; /* from the device, used or not */
    size_t reserved_peak;  /* highest reserved_bytes; 0: unknown */
    size_t reserved_free;  /* in neither live nor retired blocks */
    size_t largest_free;   /* 0: unknown. A pool searches its extents for it. */
    size_t limit;          /* most that may be reserved; 0: only the device's limit */
} strata_usage;

/* The nearest limit on a request's path. */
typedef struct strata_budget_snapshot {
    size_t limit; /* bytes, 0: none */
    size_t in_use;
    size_t remaining;
} strata_budget_snapshot;

/* What follows a stream-ordered free. */
typedef enum strata_completion_kind {
    STRATA_COMPLETION_FINISHED = 0, /* the bytes are free */
    STRATA_COMPLETION_REUSED,       /* the owner reused the bytes before it knew of the completion */
} strata_completion_kind;

typedef struct strata_completion {
    strata_completion_kind kind;
    strata_block_id id; /* only for reading the freed block's layer bytes */
    size_t bytes;       /* of this report; the reports of a block add up to its size */
    bool last;
} strata_completion;

/* What the runtime did with a capture or a graph (graph.h). */
typedef enum strata_graph_event_kind {
    STRATA_GRAPH_EVENT_CAPTURE = 0, /* ended as a graph, or in an error */
    STRATA_GRAPH_EVENT_LAUNCH,
    STRATA_GRAPH_EVENT_UPLOAD,
    STRATA_GRAPH_EVENT_UPDATE, /* by another capture */
    STRATA_GRAPH_EVENT_KINDS
} strata_graph_event_kind;

typedef struct strata_graph_event {
    strata_graph_event_kind kind;
    strata_status status;
    CUstream stream;
    strata_tag name; /* of the graph; failed captures: of the capture */
    size_t nodes;    /* of the graph; 0: there is none */
    size_t bytes;    /* of its pool's segments */
} strata_graph_event;

/* A counter or tunable; see <strata/control.h>. */
typedef enum strata_value_type {
    STRATA_VALUE_COUNT = 0,
    STRATA_VALUE_BYTES,
    STRATA_VALUE_DURATION, /* nanoseconds */
    STRATA_VALUE_SWITCH,   /* 0 or 1 */
} strata_value_type;

typedef struct strata_value {
    const char *name; /* letters, digits, '_'; a dot separates groups */
    strata_value_type type;
    bool writable;
    const char *help; /* one line; NULL: an old name, which is found and not listed */
} strata_value;

struct strata_resource_ops { /* static const; later versions may append members */
    uint32_t size;           /* sizeof(strata_resource_ops) when the layer was compiled */
    uint32_t block_bytes;    /* kept for each block, at most 256; see strata_block_layer_bytes() */
    const char *name;        /* as in a stack text */

    /* Allocates at least request->bytes for work on request->stream. May block where the driver does, unless it is
     * stream-ordered. */
    strata_status (*allocate)(strata_resource *self, const strata_request *request, strata_block *out);

    /* Frees a block. Work submitted to `stream` before may still use it; the memory is reused after that and the
     * recorded uses. After success the identity is stale. STRATA_STREAM_GONE: ordered after the work that the
     * allocation stream had when it was unregistered; INVALID_VALUE if it is still registered. */
    strata_status (*deallocate)(strata_resource *self, const strata_block *block, CUstream stream);

    /* Orders later work on `stream` after earlier uses that conflict with `access`, and pins the block. Each success
     * needs one finish_use from the same thread, on the same stream, with the same or a weaker access; this is not
     * checked. Never waits on the host. An owner without tracking leaves it NULL: calls answer STREAM_MISUSE. */
    strata_status (*prepare_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                 strata_access access);

    /* Records that the work was submitted, and unpins. ACCESS_NONE: not submitted; only unpins. */
    strata_status (*finish_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                strata_access access);

    /* Records work submitted to `stream` without a prepare. */
    strata_status (*record_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                strata_access access);

    /* Turns completed stream-ordered frees into free bytes; *bytes: how many. If a wait fails, what was reaped stays
     * reaped, the rest stays pending, and the error is returned. */
    strata_status (*reap)(strata_resource *self, strata_reap_mode mode, size_t *bytes);

    /* Returns free, complete memory to the device until at most keep_bytes stay reserved. *bytes: how many, 0 where the
     * driver does not report it. May block where the driver does. */
    strata_status (*trim)(strata_resource *self, size_t keep_bytes, size_t *bytes);

    /* If the driver cannot be queried, returns the error; *usage then has what the owner counts itself (live blocks),
     * else zeros. */
    strata_status (*usage)(strata_resource *self, strata_usage *usage);

    /* Bytes that `request` would take from the layer below or the device, rounding included. */
    strata_status (*charge)(strata_resource *self, const strata_request *request, size_t *bytes);

    /* The nearest limit; UNSUPPORTED without one. */
    strata_status (*budget)(strata_resource *self, strata_budget_snapshot *snapshot);

    /* STRATA_CAPABILITY_ bits. */
    uint32_t (*capabilities)(strata_resource *self);

    /* The live block that contains `address`; else FOREIGN_POINTER. */
    strata_status (*find)(strata_resource *self, CUdeviceptr address, strata_block *out);

    /* The owner at the bottom calls it for each completion, lowest layer first, perhaps with a lock that other threads'
     * allocations need: it must be short and must not call into the stack, block or fail. */
    void (*completed)(strata_resource *self, const strata_completion *completion);

    /* Destroys and frees the resource, not its upstream. Called once, from the top of the stack downwards, when no
     * block is left and no call is in flight. */
    void (*destroy)(strata_resource *self);

    /* Ordinal of the device whose memory an owner gives. A layer that implements it stands last, in a stack of that
     * device. Decorators leave it NULL; for an owner without it the device is not checked. */
    int (*device)(strata_resource *self);

    /* How many of the bytes that charge() reports would be retired bytes of the block *of, which the owner reuses if
     * `request` is next: they are outstanding already and must not be counted twice. 0 where not certain. A layer that
     * changes requests implements it together with charge. */
    strata_status (*reusable)(strata_resource *self, const strata_request *request, size_t *bytes, strata_block_id *of);

    /* Counters and tunables, by position in `values`. A rejected value changes nothing. */
    const strata_value *values;
    size_t value_count;
    strata_status (*get_value)(strata_resource *self, size_t which, uint64_t *value);
    strata_status (*set_value)(strata_resource *self, size_t which, uint64_t value);

    /* Writes further facts into the layer's object of a report. */
    void (*describe)(strata_resource *self, strata_emitter *to);

    /* Called when the end of the stack or its runtime was refused because blocks are live, before the refusal is
     * raised. It may call what any thread may. */
    void (*end_refused)(strata_resource *self);

    /* Whether the layer owns the block internally: layers above never got it and receive no completion of it. Called
     * under the rules of `completed`. The second name is deprecated, here and below. */
    union {
        bool (*owns_internally)(strata_resource *self, strata_block_id id);
        bool (*keeps)(strata_resource *self, strata_block_id id);
    };

    /* Called while the stack is built, lowest layer first, with upstream and stack set and before any request. An error
     * ends the build and returns the layers to the caller; in another stack a layer begins again. */
    strata_status (*begin)(strata_resource *self);

    /* True if blocks leave this layer with the address, sizes and tag that the owner gave: layers above then read these
     * from the table. An owner that can stand over other layers sets it if it enters its blocks into the table like any
     * owner. */
    union {
        bool transparent;
        bool passes_facts;
    };

    /* How many of block_bytes, at the end, the stack leaves out if all layers between this one and the owner are
     * transparent. */
    union {
        uint32_t optional_block_bytes;
        uint32_t spared_bytes;
    };

    /* strata_runtime_stream_synchronize, for layers that observe it. Owners leave it NULL: the stack waits. */
    strata_status (*synchronize)(strata_resource *self, CUstream stream);

    /* Called when a free by address was refused because no live block begins there; the call's error was raised
     * already. True if the layer has reported the free as its finding: then no other layer is called. All layers,
     * outermost first, are called with `freed`, for a layer that knows a freed block that began at the address; then,
     * if none did, without. NULL: not needed. Never forwarded. */
    bool (*address_refused)(strata_resource *self, CUdeviceptr address, bool freed);

    /* Called by strata_request_refused when a layer above has refused a request that this one has not seen, for layers
     * that record what the program asked for. It raises no error. NULL: not needed. Never forwarded. */
    void (*request_refused)(strata_resource *self, const strata_request *request, strata_status status);

    /* Of a layer that stands over branches, and therefore last in its chain: the layers of branch `which`, outermost
     * first. NULL: there are no more. Constant. All branches share the stack's table of blocks. `upstream` is the first
     * branch's outermost layer; the layer calls the other ones itself, and stores in its bytes of a block which branch
     * has it. A layer that is in no stack destroys its branches with itself. NULL: no branches. Never forwarded. */
    strata_resource *const *(*branch)(strata_resource *self, size_t which, size_t *count);

    /* Called on every layer, outermost first, behind each of the runtime's calls that do what the event says. It raises
     * no error and does not call into the stack. NULL: not needed. Never forwarded. */
    void (*graph_event)(strata_resource *self, const strata_graph_event *event);

    /* Of the library's own layers that hold freed memory until streams have finished: adds it to the sums of
     * strata_stack_visit_frees. NULL: not needed. Never forwarded. */
    void (*sum_frees)(strata_resource *self, struct strata_stream_sums *sums);

    /* Gives free memory back to the layer below or the device, for a request that the device has refused, of another
     * stack or of a layer below: `bytes` or a little more, if there is as much. Complete memory; with `may_wait` then
     * what has to be waited for. Returns how much; errors are suppressed. It is called on the requesting thread and
     * allocates nothing of any stack. NULL: the layer keeps none. Never forwarded. After a reset of the device: all
     * that outlives the context, also of blocks that were not freed; of a shared budget, the charges of blocks that did
     * not outlive it. */
    uint64_t (*give_back)(strata_resource *self, uint64_t bytes, bool may_wait);

    /* Called once the stack is built, lowest layer first, before any request, for what may be done ahead. It raises no
     * error: what fails here is tried again, and said, when it is needed. NULL: nothing to do. Never forwarded. */
    void (*built)(strata_resource *self);

    /* The next five are of the library's own layers, for speed. NULL: by allocate, deallocate. They have no other rules
     * than those.
     *
     * allocate, which also returns the block's entry in the stack's table; NULL for an empty block. */
    struct strata_made (*allocate_own)(strata_resource *self, const strata_request *request, strata_block *out);

    /* deallocate on the block's allocation stream, which the runtime has found to be `timeline`'s, known and without
     * early events. Another thread may unregister the stream during the call, and the handle be dead then: a layer that
     * uses it frees by strata_deallocate_plainly instead. `entry` has the block's slot, perhaps with another block now:
     * the owner checks it. A layer passes both on unchanged. The owner may return STRATA_FREE_COMPLETE instead of
     * calling `completed`: success, and the last completion, of all bytes. The memory may be in use again by then. */
    strata_status (*deallocate_own)(strata_resource *self, const strata_block *block, struct strata_entry *entry,
                                    struct strata_timeline *timeline);

    /* Of an outermost layer: the runtime's allocate with no alignment, tag or account, and bytes above 0; and its
     * deallocate, of any block. */
    strata_status (*top_allocate)(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);
    strata_status (*top_deallocate)(strata_resource *self, const strata_block *block);

    /* allocate_own with no alignment, tag or account, and bytes above 0: what most requests are, without a request in
     * memory that each layer reads again. */
    struct strata_made (*allocate_plain)(strata_resource *self, size_t bytes, CUstream stream, strata_block *out);

    /* What `charge` answers for small requests with no alignment, whatever the layer's state. Of the library's own
     * layers; NULL: `charge` is called. Never forwarded. */
    const struct strata_charge_table *charge_table;

    /* Of an owner: the driver keeps its blocks' memory over a reset of the device, until `give_back` frees it in the
     * context that has begun anew. Never forwarded. */
    bool outlives_context;

    /* Of an owner: its memory comes from the program, which may take it from another stack. A search by address in all
     * stacks asks this one first. Never forwarded. */
    bool memory_of_program;

    /* Of an owner: its blocks have no memory, and work on them fails. A guard with red zones is not built over it.
     * Never forwarded. */
    bool without_memory;
};

/* The head of every resource. The layer sets `ops` and zeroes the rest; the stack fills it in. A layer may read it. */
struct strata_resource {
    const strata_resource_ops *ops; /* once built: the stack's copy, without NULL operations */
    strata_resource *upstream;      /* NULL: an owner; with branches, the first one's outermost layer */
    strata_stack *stack;
    uint32_t block_offset; /* of this layer's bytes in a block's entry */
    uint32_t position;     /* 0 is the outermost layer; a branch's layers follow those of the branch before it */
};

/* A chain of layers below one that has several (fallback.h): outermost first, the last one owns memory. */
typedef struct strata_branch {
    strata_resource *const *layers;
    size_t count;
} strata_branch;

/* This layer's bytes of a block: zeroed when the block is made, aligned to 8, readable until the block's last
 * completion was reported. NULL if the identity is not of this stack, or `self` is NULL or in no stack. The layer
 * synchronizes access. */
STRATA_API void *strata_block_layer_bytes(const strata_resource *self, strata_block_id id);

/* ---- for owners of memory ---- */

/* Enters a block into the stack's table, as a write on facts->stream. *out: the facts with a fresh identity;
 * `facts->id` is ignored. Errors: OUT_OF_HOST_MEMORY, and those of identifying the stream. */
STRATA_API strata_status strata_block_create(strata_resource *owner, const strata_block *facts, strata_block *out);

/* Ends a block and recycles its entry. The caller guarantees that no work can touch the memory. Errors: DOUBLE_FREE,
 * FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, BLOCK_IN_USE. */
STRATA_API strata_status strata_block_free(strata_resource *owner, const strata_block *block);

/* Use tracking for owners: values for prepare_use, finish_use and record_use of the ops table (docs/design.md,
 * "Timelines"). An owner that uses them must wait for a block's uses before it releases the memory.
 * strata_block_wait_uses() blocks until all recorded uses and all work submitted to `stream` are complete;
 * STRATA_STREAM_GONE as in deallocate. Only the stack calls prepare and finish, with owner and block checked for NULL;
 * elsewhere call strata_resource_prepare_use() and its siblings. */
STRATA_API strata_status strata_block_prepare_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                  strata_access access);
STRATA_API strata_status strata_block_finish_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                 strata_access access);
STRATA_API strata_status strata_block_record_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                 strata_access access);
STRATA_API strata_status strata_block_wait_uses(strata_resource *owner, const strata_block *block, CUstream stream);

/* ---- for layers that hold freed blocks ---- */

/* Takes a block from its user without freeing it below. `block` is checked as by a free, against `shown`, the block as
 * `layer` gave it out. From then on the user's identity is one of a freed block, strata_runtime_block_state answers
 * QUARANTINED, and a search does not find it. *held is the layer's new identity: it uses and frees the memory through
 * the layer below, with that layer's facts. Recorded uses stay recorded. Completions of its free carry this identity.
 * Of several concurrent calls one succeeds. Errors leave everything unchanged: those of strata_block_free, and
 * UNSUPPORTED if the entry has used up its 2^48 generations: free such a block at once. */
STRATA_API strata_status strata_block_quarantine(strata_resource *layer, const strata_block *block,
                                                 const strata_block *shown, strata_block_id *held);

/* Returns a block from quarantine to its user, for a free that failed; `held` becomes stale. The layer has no use of it
 * in progress. */
STRATA_API void strata_block_unquarantine(strata_resource *layer, strata_block_id held);

/* Fills the thread's error record, calls the log callback, and returns `status`. */
STRATA_API strata_status strata_fail(strata_status status, const char *format, ...) STRATA_PRINTF(2, 3);

/* For a layer that refuses a request itself, after it raised the error: tells the layers below, which have not seen the
 * request, so that it is on record whichever layer refuses. */
STRATA_API void strata_request_refused(strata_resource *layer, const strata_request *request, strata_status status);

/* ---- driver calls of a layer ---- */

/* What a layer's own driver calls need: on any thread of the program, and while other code captures. Local to one
 * function; enter fills it in. */
typedef struct strata_driver_scope {
    CUcontext context; /* of the caller; the members are Strata's */
    int mode;
    bool switched, relaxed;
} strata_driver_scope;

/* Makes the primary context of the device with ordinal `device` (strata_layer.create's, strata_stack_device) current on
 * the calling thread, and its capture mode relaxed: calls that are forbidden during a capture, such as cuMemAlloc, then
 * leave captures of other streams alone. Calls on a stream that is being captured itself are still part of the capture.
 * Errors, after which there is nothing to leave: INVALID_VALUE (no such device), DRIVER, DEVICE_RESET. */
STRATA_API strata_status strata_driver_scope_enter(strata_driver_scope *scope, int device);

/* Restores the caller's context and mode. On the thread that entered; scopes nest. */
STRATA_API void strata_driver_scope_leave(strata_driver_scope *scope);

/* ---- layers in stack texts ---- */

typedef enum strata_option_type {
    STRATA_OPTION_BOOL,     /* on, off, true, false, yes, no, 1, 0; stored in a bool */
    STRATA_OPTION_UINT,     /* decimal digits; uint64_t */
    STRATA_OPTION_SIZE,     /* number with an optional unit, such as 8GiB or 512MB; uint64_t, bytes */
    STRATA_OPTION_DURATION, /* number with ns, us, ms or s, above 0; uint64_t, nanoseconds */
    STRATA_OPTION_CHOICE,   /* one of the words in `choices`; int, its position. Where these are on and off: any word of
                               BOOL */
    STRATA_OPTION_STRING,   /* a word, or "quoted text"; ';' separates items of a list; char[256] */
    STRATA_OPTION_AMOUNT,   /* a size, or a share of the device's memory such as 50%; strata_amount */
    STRATA_OPTION_INTERVAL, /* as DURATION, and 0 for never: STRATA_NEVER */
    STRATA_OPTION_MODE,     /* permission bits of a file in octal digits, such as 0640; uint64_t */
    STRATA_OPTION_NAME,     /* as STRING, and not empty */
    STRATA_OPTION_LIMIT,    /* as AMOUNT, and not 0 */
} strata_option_type;

/* Bytes, or a share of the device's memory if `percent` is not 0. All zero: none. */
typedef struct strata_amount {
    uint64_t bytes;
    double percent; /* above 0, at most 100 */
} strata_amount;

typedef struct strata_option {
    const char *name;
    strata_option_type type;
    size_t offset;       /* of the field in the layer's options struct */
    const char *choices; /* CHOICE: words separated by '|' */
    const char *help;
} strata_option;

/* How a layer is made from a text. */
typedef struct strata_layer {
    uint32_t size; /* sizeof(strata_layer) */
    bool owner;    /* stands last */
    const char *name;
    const char *help;
    const strata_option *options;
    size_t option_count;
    size_t options_size; /* bytes of the options struct */
    /* Makes the resource on the device with ordinal `device`. `options` is valid during the call, in which
     * strata_runtime_get answers INVALID_VALUE. */
    strata_status (*create)(int device, const void *options, strata_resource **out);
    /* The owner that replaces this one, with its own defaults, in sanitizer mode (strata_set_mode); for owners that
     * serve many blocks from one allocation. NULL: not replaced. Over another layer the owner is left out. */
    const char *in_sanitizer_mode;
    /* The owner can also stand over a layer and take its memory from it. It leaves the operation `device` NULL. */
    bool over;
    /* The most branches of a layer with the operation `branch`, at least 2; it is an owner, is written
     * "name(stack | stack)", has no options, and is made by create_over in place of `create`. On success the layers of
     * the branches belong to it, on failure to the caller. */
    uint32_t branches;
    strata_status (*create_over)(int device, const strata_branch *branches, size_t count, strata_resource **out);
} strata_layer;

/* Makes a layer known to stack texts. The struct and what it points to must live as long as the process. Errors:
 * INVALID_VALUE (incomplete, more than 64 options, or the name is taken), OUT_OF_HOST_MEMORY, FORKED. */
STRATA_API strata_status strata_layer_register(const strata_layer *layer);

#ifdef __cplusplus
}
#endif

#endif
