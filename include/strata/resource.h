/* The interface of a layer, and what is needed to write one.
 *
 * A stack is a chain of resources. The last resource owns memory. The others are decorators: a decorator embeds
 * strata_resource as its first member, implements the operations that it changes, and leaves the others NULL. When the
 * stack is built, each NULL operation is replaced by a forwarder to the layer below, so that calls never test for NULL.
 * examples/own_layer.c is a complete layer.
 *
 * Threads: unless a member says otherwise, an operation may be called on any thread and by several threads at once.
 * Strata holds no lock around a call, except around `completed` and while guards are checked at process exit.
 *
 * Failure: a failed operation leaves nothing behind: no bytes counted, no event recorded, no partial block. Outputs are
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

/* Passed to a layer's deallocate instead of a stream: the block's allocation stream was known and has been
 * unregistered. The runtime passes this value; strata_runtime_deallocate_on rejects it. */
#define STRATA_STREAM_GONE ((CUstream)(~(uintptr_t)0))

/* A request for memory. */
typedef struct strata_request {
    size_t bytes;     /* 0 gives an empty block */
    size_t alignment; /* bytes, a power of two; 0: the resource's own, at least 256 */
    CUstream stream;  /* work submitted to this stream may use the memory at once */
    strata_tag tag;
} strata_request;

typedef enum strata_reap_mode {
    STRATA_REAP_FINISHED = 0, /* query the driver; never waits */
    STRATA_REAP_WAIT,         /* wait until every pending free is complete */
} strata_reap_mode;

/* Capabilities of a resource: bits of capabilities(). */
#define STRATA_CAPABILITY_STREAM_ORDERED 0x1u /* only a request that would be refused may wait for the device */
#define STRATA_CAPABILITY_USE_TRACKING   0x2u /* prepare_use and finish_use order uses across streams */
#define STRATA_CAPABILITY_FIND           0x4u /* find() resolves any address inside a block */
#define STRATA_CAPABILITY_DEVICE_MEMORY  0x8u /* addresses are device memory, not readable by the host */

/* Memory of one owner. Counts are collected thread by thread: exact while no call is in flight, otherwise off by what
 * other threads did during the collection. */
typedef struct strata_usage {
    size_t live_bytes;        /* in allocated blocks */
    size_t retired_bytes;     /* freed in stream order, neither known to be complete nor reused */
    size_t bytes_outstanding; /* live + retired */
    size_t live_blocks;
    size_t reserved_bytes; /* obtained from the device, used or not */
    size_t reserved_peak;  /* highest reserved_bytes; 0: unknown */
    size_t reserved_free;  /* reserved, and in neither live nor retired blocks */
    size_t largest_free;   /* largest free extent; 0: unknown. A pool searches all of its extents for it. */
    size_t limit;          /* most that this owner may reserve; 0: only the device's limit */
} strata_usage;

/* The account of the nearest limit on the path of a request. */
typedef struct strata_budget_snapshot {
    size_t limit; /* bytes, 0: none */
    size_t in_use;
    size_t remaining;
} strata_budget_snapshot;

/* The second moment of a stream-ordered free. */
typedef enum strata_completion_kind {
    STRATA_COMPLETION_FINISHED = 0, /* the free is complete: the bytes are free */
    STRATA_COMPLETION_REUSED,       /* the owner reused the bytes before it knew that the free was complete */
} strata_completion_kind;

typedef struct strata_completion {
    strata_completion_kind kind;
    strata_block_id id; /* of the freed block. Valid only for reading its layer bytes. */
    size_t bytes;       /* bytes that this report covers; the reports of one block add up to its size */
    bool last;          /* last report of this block */
} strata_completion;

/* A counter or a tunable of a layer; see <strata/control.h>. */
typedef enum strata_value_type {
    STRATA_VALUE_COUNT = 0, /* an integer */
    STRATA_VALUE_BYTES,
    STRATA_VALUE_DURATION, /* nanoseconds */
    STRATA_VALUE_SWITCH,   /* 0 or 1 */
} strata_value_type;

typedef struct strata_value {
    const char *name; /* letters, digits, '_'; a dot separates groups: "peak.bytes" */
    strata_value_type type;
    bool writable;
    const char *help; /* one line */
} strata_value;

struct strata_resource_ops { /* static const; later versions may append members */
    uint32_t size;           /* sizeof(strata_resource_ops) when the layer was compiled */
    uint32_t block_bytes; /* bytes that the layer keeps for each block, at most 256; see strata_block_layer_bytes() */
    const char *name;     /* as in a stack text */

    /* Allocates a block of at least request->bytes for work on request->stream, and fills *out. Mandatory for owners,
     * optional for decorators. May block where the driver does; a stream-ordered resource does not block. */
    strata_status (*allocate)(strata_resource *self, const strata_request *request, strata_block *out);

    /* Frees a block. Work submitted to `stream` before the call may still use it. Recorded uses on other streams are
     * waited for before the memory is reused. After success the identity is stale. With STRATA_STREAM_GONE the free is
     * ordered after the work that the allocation stream had when it was unregistered; INVALID_VALUE if that stream is
     * still registered. Mandatory for owners. */
    strata_status (*deallocate)(strata_resource *self, const strata_block *block, CUstream stream);

    /* Orders later work on `stream` after earlier uses that conflict with `access`, and pins the block. Each success
     * needs one finish_use from the same thread, on the same stream, with the same or a weaker access; this is not
     * checked. Never waits on the host. Optional: an owner without tracking leaves it NULL, and calls answer
     * STREAM_MISUSE. */
    strata_status (*prepare_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                 strata_access access);

    /* Records that the work was submitted, and unpins. ACCESS_NONE: the work was not submitted; only unpins. */
    strata_status (*finish_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                strata_access access);

    /* Records work that was submitted to `stream` without a prepare. */
    strata_status (*record_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                strata_access access);

    /* Turns completed stream-ordered frees into free bytes; *bytes receives how many. If a wait fails, what was reaped
     * stays reaped, the rest stays pending, and the error is returned. Optional. */
    strata_status (*reap)(strata_resource *self, strata_reap_mode mode, size_t *bytes);

    /* Returns free, complete memory to the device until at most keep_bytes stay reserved. *bytes receives how many were
     * returned, or 0 where the driver does not report it. May block where the driver does. Optional. */
    strata_status (*trim)(strata_resource *self, size_t keep_bytes, size_t *bytes);

    /* Fills *usage. Does not block. If the driver cannot be queried, returns the error; *usage then holds what the
     * owner counts itself (live blocks) and zeros. Mandatory for owners. */
    strata_status (*usage)(strata_resource *self, strata_usage *usage);

    /* The bytes that `request` would take from the layer below or the device, rounding included. Does not block. */
    strata_status (*charge)(strata_resource *self, const strata_request *request, size_t *bytes);

    /* The nearest limit; UNSUPPORTED without one. Does not block. Optional. */
    strata_status (*budget)(strata_resource *self, strata_budget_snapshot *snapshot);

    /* STRATA_CAPABILITY_ bits. Does not block. Mandatory for owners. */
    uint32_t (*capabilities)(strata_resource *self);

    /* The live block that contains `address`; FOREIGN_POINTER if there is none. Optional. */
    strata_status (*find)(strata_resource *self, CUdeviceptr address, strata_block *out);

    /* Called by the owner at the bottom for each completion, lowest layer first. The owner may hold a lock that other
     * threads' allocations need: the function must be short and must not call into the stack, block or fail. NULL: the
     * layer needs no completions. Never forwarded. */
    void (*completed)(strata_resource *self, const strata_completion *completion);

    /* Destroys and frees the resource. Called once, from the top of the stack downwards, when no block is left and no
     * call is in flight. A layer does not destroy its upstream. Mandatory. */
    void (*destroy)(strata_resource *self);

    /* The ordinal of the device whose memory an owner gives. A layer that implements it is an owner: it stands last, in
     * a stack of that device. An owner may leave it NULL; its device is then not checked. Decorators leave it NULL. */
    int (*device)(strata_resource *self);

    /* How many of the bytes that charge() reports would be retired bytes that the owner reuses, if `request` were the
     * next one, and of which block. These bytes are outstanding already and must not be counted twice. 0 where it is
     * not certain. Does not block. Optional; a layer that changes requests implements it together with charge. */
    strata_status (*reusable)(strata_resource *self, const strata_request *request, size_t *bytes, strata_block_id *of);

    /* Counters and tunables of the layer, by position in `values`. A rejected value changes nothing. Any thread. Never
     * forwarded. */
    const strata_value *values;
    size_t value_count;
    strata_status (*get_value)(strata_resource *self, size_t which, uint64_t *value);
    strata_status (*set_value)(strata_resource *self, size_t which, uint64_t value);

    /* Writes further facts into the layer's object of a report. Any thread. NULL: nothing. Never forwarded. */
    void (*describe)(strata_resource *self, strata_emitter *to);

    /* Called when the stack or its runtime was asked to end and refused because blocks are live. It may call what any
     * thread may; the refusal is raised afterwards. NULL: not needed. Never forwarded. */
    void (*end_refused)(strata_resource *self);

    /* Whether the layer owns the block internally: it never gave the block to the layers above, and they receive no
     * completion of it. Called by the owner at the bottom under the rules of `completed`. NULL: the layer owns no
     * blocks internally. Never forwarded. The second name is deprecated. */
    union {
        bool (*owns_internally)(strata_resource *self, strata_block_id id);
        bool (*keeps)(strata_resource *self, strata_block_id id);
    };

    /* Called while the stack is built, lowest layer first, when self->upstream and self->stack are set and no block has
     * been requested. An error ends the build; the layers return to the caller, and a layer that is built into another
     * stack begins again. NULL: nothing to do. Never forwarded. */
    strata_status (*begin)(strata_resource *self);

    /* True if a block leaves this layer with the address, sizes and tag that the owner gave it. An owner that can stand
     * over other layers sets it if it enters its blocks into the table like any owner. Layers above then read these
     * facts from the table and keep less themselves. The second name is deprecated. */
    union {
        bool transparent;
        bool passes_facts;
    };

    /* How many of block_bytes, at the end, the layer does without where all layers between it and the owner are
     * transparent: the stack then leaves them out of its entries. The second name is deprecated. */
    union {
        uint32_t optional_block_bytes;
        uint32_t spared_bytes;
    };

    /* Waits on the host until all work submitted to `stream` is complete: strata_runtime_stream_synchronize, for layers
     * that observe it before or after they forward it. Owners leave it NULL: the stack implements the wait. Errors: as
     * of strata_runtime_stream_synchronize. */
    strata_status (*synchronize)(strata_resource *self, CUstream stream);
};

/* The head of every resource: a layer's first member. The layer sets `ops` and zeroes the rest; the stack fills it in.
 * A layer may read these members and never writes them. */
struct strata_resource {
    const strata_resource_ops *ops; /* after the build: the stack's own copy, without NULL operations */
    strata_resource *upstream;      /* the layer below; NULL for owners */
    strata_stack *stack;
    uint32_t block_offset; /* offset of this layer's bytes in a block's entry */
    uint32_t position;     /* 0 is the outermost layer */
};

/* This layer's bytes of a block: zeroed when the block is made, aligned to 8. NULL if the identity is not of this
 * stack, or `self` is NULL or in no stack. Readable until the last completion of the block was reported. The layer
 * synchronizes access to them. */
STRATA_API void *strata_block_layer_bytes(const strata_resource *self, strata_block_id id);

/* ---- for owners of memory ---- */

/* Enters a block into the stack's table. *out receives the facts with a fresh identity; `facts->id` is ignored. The
 * allocation counts as a write on facts->stream. Errors: OUT_OF_HOST_MEMORY, and those of identifying the stream. */
STRATA_API strata_status strata_block_create(strata_resource *owner, const strata_block *facts, strata_block *out);

/* Ends a block and recycles its entry. The caller guarantees that no work can touch the memory. Checks identity,
 * address, size, device and pins. Errors: DOUBLE_FREE, FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, BLOCK_IN_USE. */
STRATA_API strata_status strata_block_free(strata_resource *owner, const strata_block *block);

/* Use tracking for owners: values for prepare_use, finish_use and record_use of the ops table (docs/design.md,
 * "Timelines"). An owner that uses them must wait for the uses of a block before it releases the memory.
 * strata_block_wait_uses() blocks the thread until all recorded uses, and all work submitted to `stream`, are complete.
 * It accepts STRATA_STREAM_GONE, as deallocate does.
 *
 * The stack calls prepare and finish, and has checked owner and block for NULL: outside a stack, call
 * strata_resource_prepare_use() and its siblings. record and wait answer INVALID_VALUE for NULL. */
STRATA_API strata_status strata_block_prepare_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                  strata_access access);
STRATA_API strata_status strata_block_finish_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                 strata_access access);
STRATA_API strata_status strata_block_record_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                 strata_access access);
STRATA_API strata_status strata_block_wait_uses(strata_resource *owner, const strata_block *block, CUstream stream);

/* ---- for layers that hold freed blocks ---- */

/* Takes a block from its user without freeing it in the layer below. `shown` is the block as `layer` gave it out;
 * `block` is checked against it as a free would: identity, pins, address, sizes, device. From then on a use or free by
 * the user's identity is one of a freed block, strata_runtime_block_state answers QUARANTINED, and a search does not
 * find the block. *held is the layer's new identity of the memory: the layer uses and frees it through the layer below,
 * with that layer's facts. Recorded uses stay recorded. Completions of its free carry this identity.
 *
 * Any thread; of several concurrent calls one succeeds. Errors leave everything unchanged: DOUBLE_FREE,
 * FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, BLOCK_IN_USE, and UNSUPPORTED if the entry has used up its 2^48
 * generations: such a block is freed at once. */
STRATA_API strata_status strata_block_quarantine(strata_resource *layer, const strata_block *block,
                                                 const strata_block *shown, strata_block_id *held);

/* Returns a block from quarantine to its user unchanged, for a free that failed. The layer has no use of it in
 * progress; the identity `held` becomes stale. */
STRATA_API void strata_block_unquarantine(strata_resource *layer, strata_block_id held);

/* Fills the thread's error record, calls the log callback, and returns `status`: `return strata_fail(STRATA_ERROR_...,
 * "...", ...)`. */
STRATA_API strata_status strata_fail(strata_status status, const char *format, ...) STRATA_PRINTF(2, 3);

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
    STRATA_OPTION_INTERVAL, /* as DURATION, and 0 for never */
} strata_option_type;

/* A number of bytes, or a share of the device's memory if `percent` is not 0. All zero: no amount. */
typedef struct strata_amount {
    uint64_t bytes;
    double percent; /* above 0, at most 100 */
} strata_amount;

typedef struct strata_option {
    const char *name;
    strata_option_type type;
    size_t offset;       /* of the field in the layer's options struct */
    const char *choices; /* for CHOICE: words separated by '|' */
    const char *help;    /* one line */
} strata_option;

/* How a layer is made from a text. Zeroed options are the defaults. */
typedef struct strata_layer {
    uint32_t size; /* sizeof(strata_layer) */
    bool owner;    /* owns memory: stands last */
    const char *name;
    const char *help; /* one line */
    const strata_option *options;
    size_t option_count;
    size_t options_size; /* bytes of the options struct */
    /* Makes the resource on the device with ordinal `device`. `options` is the filled struct, valid during the call.
     * strata_runtime_get answers INVALID_VALUE inside the call. */
    strata_status (*create)(int device, const void *options, strata_resource **out);
    /* The owner that replaces this one in sanitizer mode, with that owner's defaults; see strata_set_mode(). For owners
     * that serve many blocks from one allocation. NULL: not replaced. An owner with a layer below it is left out. */
    const char *in_sanitizer_mode;
    /* The owner can also stand over another layer, and then takes its memory from that layer. It leaves the operation
     * `device` NULL. */
    bool over;
} strata_layer;

/* Makes a layer known to stack texts. The struct and what it points to must live as long as the process. Any thread.
 * Errors: INVALID_VALUE (incomplete, more than 64 options, or the name is taken), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_layer_register(const strata_layer *layer);

#ifdef __cplusplus
}
#endif

#endif
