/* The interface that every layer of a stack implements, and what one needs to write a layer of one's own.
 *
 * A stack is a chain of resources. The last one owns memory; the others are decorators: they embed strata_resource as
 * their first member, write the operations that they change, and leave the rest NULL. When the stack is built, each
 * NULL operation is replaced by one that forwards to the layer below, so that calls never test. examples/own_layer.c is
 * a whole layer.
 *
 * Threads: unless a member says otherwise, an operation may be called on any thread at any time, several at once. No
 * lock of Strata's is held around a call, but for `completed`, and for one that keeps guards in place while they are
 * looked at when the process exits.
 *
 * Failure: an operation that fails leaves nothing behind. No bytes stay counted, no event recorded, no block half made;
 * outputs are zeroed. The thread's error record says what happened. */
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

/* In place of a stream, for a layer's deallocate only: the stream on which the block was allocated was known and is not
 * any more. The runtime passes it; strata_runtime_deallocate_on does not take it. */
#define STRATA_STREAM_GONE ((CUstream)(~(uintptr_t)0))

/* What is asked of a resource. */
typedef struct strata_request {
    size_t bytes;     /* 0 gives an empty block */
    size_t alignment; /* bytes, a power of two; 0: what the resource gives by itself, at least 256 */
    CUstream stream;  /* the memory may be used at once by work that is submitted to this stream */
    strata_tag tag;
} strata_request;

typedef enum strata_reap_mode {
    STRATA_REAP_FINISHED = 0, /* ask the driver what has finished; never waits */
    STRATA_REAP_WAIT,         /* wait until every pending free has finished */
} strata_reap_mode;

/* What a resource can do; bits of capabilities(). */
#define STRATA_CAPABILITY_STREAM_ORDERED 0x1u /* only a request that would be refused may wait for the device */
#define STRATA_CAPABILITY_USE_TRACKING   0x2u /* prepare_use and finish_use keep cross-stream use correct */
#define STRATA_CAPABILITY_FIND           0x4u /* find() knows a block by any address inside it */
#define STRATA_CAPABILITY_DEVICE_MEMORY  0x8u /* addresses are device memory, not readable by the host */

/* Where the bytes are, as one owner of memory sees it. Taken thread by thread: exact when no call is in flight; beside
 * calls it is off by what threads did between the first and the last of them to be looked at, which is as much as they
 * can do in the time for which the looking thread has no core. */
typedef struct strata_usage {
    size_t live_bytes;        /* in blocks that are allocated */
    size_t retired_bytes;     /* freed in stream order, neither known complete nor reused */
    size_t bytes_outstanding; /* live + retired */
    size_t live_blocks;
    size_t reserved_bytes; /* held from the device, in use or not */
    size_t reserved_peak;  /* highest value of reserved_bytes; 0 where the owner cannot know it */
    size_t reserved_free;  /* held from the device and not in blocks, nor in retired ones */
    size_t largest_free;   /* largest free piece among them, 0 where the owner cannot know it; a pool looks through all
                              its pieces for it while threads keep some */
    size_t limit;          /* most that this owner may reserve, 0: no limit but the device's */
} strata_usage;

/* The account of the nearest limit that a request passes. */
typedef struct strata_budget_snapshot {
    size_t limit; /* bytes, 0: none */
    size_t in_use;
    size_t remaining;
} strata_budget_snapshot;

/* The second moment of a stream-ordered free. */
typedef enum strata_completion_kind {
    STRATA_COMPLETION_FINISHED = 0, /* the free has finished: the bytes are free */
    STRATA_COMPLETION_REUSED,       /* the owner handed the bytes out again before it knew that the free had finished */
} strata_completion_kind;

typedef struct strata_completion {
    strata_completion_kind kind;
    strata_block_id id; /* of the freed block; stale for every other use. Its layer bytes are still readable. */
    size_t bytes;       /* how many of its bytes this report is about; reports of one block add up to its bytes */
    bool last;          /* no further report of this block will come */
} strata_completion;

/* A counter or a tunable of a layer, see <strata/control.h>. */
typedef enum strata_value_type {
    STRATA_VALUE_COUNT = 0, /* a whole number */
    STRATA_VALUE_BYTES,
    STRATA_VALUE_DURATION, /* nanoseconds */
    STRATA_VALUE_SWITCH,   /* 0 or 1 */
} strata_value_type;

typedef struct strata_value {
    const char *name; /* letters, digits, '_'; a dot where a layer has groups of values: "peak.bytes" */
    strata_value_type type;
    bool writable;
    const char *help; /* one line */
} strata_value;

struct strata_resource_ops { /* static const; members may be added at the end in later versions */
    uint32_t size;           /* sizeof(strata_resource_ops) as the layer was compiled */
    uint32_t block_bytes; /* bytes that this layer keeps for each block, see strata_block_layer_bytes(); at most 256 */
    const char *name;     /* as in a stack text */

    /* Makes a block of at least request->bytes, fresh for work on request->stream, and fills *out. Mandatory for
     * owners, optional for decorators. May block where the driver does; a stream-ordered resource does not. */
    strata_status (*allocate)(strata_resource *self, const strata_request *request, strata_block *out);

    /* Gives a block back. With STRATA_STREAM_GONE for a stream, the block's own stream was unregistered meanwhile: the
     * free comes after what that stream had been given until then; INVALID_VALUE if it is registered still. Otherwise:
     * work submitted to `stream` before this call may still use it; what is known of other streams' use is waited for
     * before the memory is handed out again. After success the identity is stale. Mandatory for owners. */
    strata_status (*deallocate)(strata_resource *self, const strata_block *block, CUstream stream);

    /* Orders work that will be submitted to `stream` after earlier uses that conflict with `access`, and pins the
     * block. Each success is matched by one finish_use from the same thread, on the same stream, with the same access
     * or a weaker one; nobody checks that. Never waits on the host. Optional; an owner that cannot track leaves it NULL
     * and answers STREAM_MISUSE. */
    strata_status (*prepare_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                 strata_access access);

    /* Notes that the work has been submitted, and unpins. With ACCESS_NONE: it was not submitted; only unpins. */
    strata_status (*finish_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                strata_access access);

    /* Notes work that was submitted to `stream` without a prepare. */
    strata_status (*record_use)(strata_resource *self, const strata_block *block, CUstream stream,
                                strata_access access);

    /* Turns finished stream-ordered frees into free bytes; *bytes is how many. If waiting fails part of the way, what
     * was done stays done, the rest stays pending, and the error is returned. Optional. */
    strata_status (*reap)(strata_resource *self, strata_reap_mode mode, size_t *bytes);

    /* Gives memory that is free and complete back to the device until at most keep_bytes stay reserved; *bytes is how
     * many were given back, or 0 where the driver does not tell. May block where the driver does. Optional. */
    strata_status (*trim)(strata_resource *self, size_t keep_bytes, size_t *bytes);

    /* Fills *usage. Does not block. After an error, which a driver that cannot be asked makes, *usage has what the
     * owner knows by itself, live blocks above all, and zeros. Mandatory for owners. */
    strata_status (*usage)(strata_resource *self, strata_usage *usage);

    /* The bytes that `request` will take from the layer below or the device, rounding included. Does not block. */
    strata_status (*charge)(strata_resource *self, const strata_request *request, size_t *bytes);

    /* The nearest limit; UNSUPPORTED where there is none. Does not block. Optional. */
    strata_status (*budget)(strata_resource *self, strata_budget_snapshot *snapshot);

    /* STRATA_CAPABILITY_ bits. Does not block. Mandatory for owners. */
    uint32_t (*capabilities)(strata_resource *self);

    /* The live block that contains `address`, interior addresses included; FOREIGN_POINTER if there is none. Optional.
     */
    strata_status (*find)(strata_resource *self, CUdeviceptr address, strata_block *out);

    /* Told of each completion by the owner at the bottom, lowest layer first; the owner may hold a lock of its own
     * around the call, on the path of other threads' allocations. So it may not call into the stack, block, or fail,
     * and should be short. NULL: not interested. Never forwarded. */
    void (*completed)(strata_resource *self, const strata_completion *completion);

    /* Ends the resource and frees it. Called once, when no block is left and no call in flight, from the top of the
     * stack downwards; a layer does not destroy its upstream. Mandatory. */
    void (*destroy)(strata_resource *self);

    /* The ordinal of the device whose memory an owner gives. Owners write it, and a layer that does is one: it stands
     * last, in a stack of that device. An owner that leaves it NULL is taken at its caller's word. Decorators leave it
     * NULL. */
    int (*device)(strata_resource *self);

    /* How many of the bytes that charge() gives for `request` would be retired bytes that the owner hands out again, if
     * the request came now and no other before it, and of which block: they are outstanding already, and counting them
     * twice would refuse what fits. 0 where that is not certain. Does not block. Optional; a layer that passes on
     * another request than it is given writes it, like charge. */
    strata_status (*reusable)(strata_resource *self, const strata_request *request, size_t *bytes, strata_block_id *of);

    /* The layer's own counters and tunables, by their position in `values`: read, and, where writable, set. A value
     * that is not taken is refused and nothing changes. Any thread. Never forwarded. */
    const strata_value *values;
    size_t value_count;
    strata_status (*get_value)(strata_resource *self, size_t which, uint64_t *value);
    strata_status (*set_value)(strata_resource *self, size_t which, uint64_t value);

    /* Writes what the layer knows beyond its values into a report, inside of the layer's object. Any thread. NULL:
     * nothing. Never forwarded. */
    void (*describe)(strata_resource *self, strata_emitter *to);

    /* Told that the stack, or the runtime that has it, was asked to end and did not, because blocks are live: for
     * layers that can say which. May call what any thread may; the refusal is raised after it. NULL: not interested.
     * Never forwarded. */
    void (*end_refused)(strata_resource *self);

    /* Whether the layer has the block that an identity names for itself alone, and never gave it to those above: they
     * are told of no completion of it. Called by the owner at the bottom where `completed` is, with the same rules.
     * NULL: it has none. Never forwarded. */
    bool (*keeps)(strata_resource *self, strata_block_id id);

    /* Called while the stack is built, lowest layer first, once self->upstream and self->stack are what they will be:
     * for what a layer can only do when it knows where it stands. No block has been asked for. An error ends the build,
     * and the layers are their caller's again, whether they had begun or not; one that is built into another stack then
     * begins again. NULL: there is nothing to begin. Never forwarded. */
    strata_status (*begin)(strata_resource *self);

    /* A block leaves this layer with the address, the sizes and the tag that the owner at the bottom gave it, if all
     * layers below are so, too; an owner that also stands over other layers says it where it enters its blocks into the
     * table like any owner. Layers above can do with what the table has of a block, and keep less of it themselves. */
    bool passes_facts;

    /* Of block_bytes, those at the end that the layer does without where all layers between it and the owner pass facts
     * on: a stack's entries are laid out without them there. */
    uint32_t spared_bytes;

    /* Waits on the host until everything that was submitted to `stream` before is complete: what
     * strata_runtime_stream_synchronize does, for layers that want to know of it, before or after they pass it on.
     * Owners leave it NULL: what waits, and notes what is complete then, stands behind every stack. Errors: as there.
     */
    strata_status (*synchronize)(strata_resource *self, CUstream stream);
};

/* The head of every resource. A layer embeds it as its first member and leaves it zero but for `ops`; building the
 * stack fills in the rest, which a layer may read and never writes. */
struct strata_resource {
    const strata_resource_ops *ops; /* after the build: the stack's own copy, with no operation left NULL */
    strata_resource *upstream;      /* the layer below; NULL for owners */
    strata_stack *stack;
    uint32_t block_offset; /* where this layer's bytes lie in a block's entry */
    uint32_t position;     /* 0 is the outermost layer */
};

/* This layer's bytes of a block, zeroed when the block is made, aligned to 8; NULL if the identity is not of this
 * stack, or `self` is NULL or not part of one. They may be read until the last completion of the block was reported. A
 * layer guards them itself where several threads could meet. */
STRATA_API void *strata_block_layer_bytes(const strata_resource *self, strata_block_id id);

/* ---- for owners of memory ---- */

/* Enters a block into the stack's table: *out receives the facts with a fresh identity. `facts->id` is ignored. The
 * block counts as written by its allocation on facts->stream. Errors: OUT_OF_HOST_MEMORY, and what identifying the
 * stream can give. */
STRATA_API strata_status strata_block_create(strata_resource *owner, const strata_block *facts, strata_block *out);

/* Ends a block's life and recycles its entry. The owner has made sure that no work can touch it. Checks everything that
 * a free must check: identity, address, size, device, pins. Errors: DOUBLE_FREE, FOREIGN_POINTER, SIZE_MISMATCH,
 * WRONG_DEVICE, BLOCK_IN_USE. */
STRATA_API strata_status strata_block_free(strata_resource *owner, const strata_block *block);

/* Use tracking for owners: put these into prepare_use, finish_use and record_use of the ops table. They order work
 * between streams by what the block's entry remembers, see docs/design.md, "Timelines". An owner that does must wait
 * for the block's uses before it lets the memory go: strata_block_wait_uses() blocks the calling thread until all noted
 * uses, and everything submitted to `stream` so far, have finished. It takes STRATA_STREAM_GONE, as deallocate gets it:
 * then up to where the block's own stream was unregistered; INVALID_VALUE if that is registered still.
 *
 * These are operations of a stack, called through it for each use: owner and block are what the stack was called with.
 * prepare and finish do not look for NULL; a caller outside of a stack uses strata_resource_prepare_use() and its like,
 * which do. record and wait answer INVALID_VALUE. */
STRATA_API strata_status strata_block_prepare_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                  strata_access access);
STRATA_API strata_status strata_block_finish_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                 strata_access access);
STRATA_API strata_status strata_block_record_use(strata_resource *owner, const strata_block *block, CUstream stream,
                                                 strata_access access);
STRATA_API strata_status strata_block_wait_uses(strata_resource *owner, const strata_block *block, CUstream stream);

/* ---- for layers that hold freed blocks back ---- */

/* Takes a block from its user without giving it to the layer below. `shown` is the block as `layer` gave it out; what a
 * free checks is checked: identity, pins, and that address, sizes and device of `block` are those of `shown`. From then
 * on a free or a use by the identity that the user has is one of a freed block, strata_runtime_block_state says
 * QUARANTINED, and a search does not find it. *held is the identity under which the memory is the layer's: with it the
 * layer prepares and finishes uses and deallocates, through the layer below and with that one's facts. What was noted
 * of the block's uses stays noted. Completions of its free come with this identity.
 *
 * Any thread; of several at a time one succeeds. Errors, and nothing has changed: DOUBLE_FREE, FOREIGN_POINTER,
 * SIZE_MISMATCH, WRONG_DEVICE, BLOCK_IN_USE, and UNSUPPORTED where the entry has no further generation, which takes
 * 2^48 blocks: such a block is passed down as it is. */
STRATA_API strata_status strata_block_quarantine(strata_resource *layer, const strata_block *block,
                                                 const strata_block *shown, strata_block_id *held);

/* Gives a block from quarantine back to its user, who finds it as it was: for a free that came to nothing. The layer
 * has no use of it under way, and its identity is stale. */
STRATA_API void strata_block_unquarantine(strata_resource *layer, strata_block_id held);

/* Fills the thread's error record, calls the log callback, and returns `status`, so that a layer can write
 * `return strata_fail(STRATA_ERROR_..., "...", ...)`. */
STRATA_API strata_status strata_fail(strata_status status, const char *format, ...) STRATA_PRINTF(2, 3);

/* ---- layers in stack texts ---- */

typedef enum strata_option_type {
    STRATA_OPTION_BOOL,     /* on, off, true, false, yes, no, 1, 0: stored in a bool */
    STRATA_OPTION_UINT,     /* digits: uint64_t */
    STRATA_OPTION_SIZE,     /* digits with an optional unit, such as 8GiB or 512MB: uint64_t, bytes */
    STRATA_OPTION_DURATION, /* digits with ns, us, ms or s: uint64_t, nanoseconds, more than 0 */
    STRATA_OPTION_CHOICE,   /* one of the words in `choices`: int, its position among them; where those have on and off,
                               any word for a BOOL will do */
    STRATA_OPTION_STRING,   /* a word, with ";" in it for lists, or "quoted text": char[256] */
    STRATA_OPTION_AMOUNT,   /* a size, or a share of the device's memory such as 50%: strata_amount */
    STRATA_OPTION_INTERVAL, /* as DURATION, and 0 too, for never */
} strata_option_type;

/* So many bytes, or that share of the device's memory where `percent` is not 0; all zero is no amount. */
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

/* How a layer is made from a text. Zero-initialised options are the defaults. */
typedef struct strata_layer {
    uint32_t size; /* sizeof(strata_layer) */
    bool owner;    /* owns memory: stands last */
    const char *name;
    const char *help; /* one line */
    const strata_option *options;
    size_t option_count;
    size_t options_size; /* bytes of the options struct */
    /* Makes the resource. `device` is the ordinal, `options` the filled struct, good only during the call.
     * strata_runtime_get, which may be what it is called from, answers INVALID_VALUE then. */
    strata_status (*create)(int device, const void *options, strata_resource **out);
    /* For an owner that takes memory for many blocks at once: the name of the one that takes its place, with that one's
     * defaults, in sanitizer mode, see strata_set_mode(). NULL: it stays. One that has a layer below it is left out. */
    const char *in_sanitizer_mode;
    /* An owner that can also stand over another layer, and takes its memory from that one then. Such an owner leaves
     * the operation `device` NULL. */
    bool over;
} strata_layer;

/* Makes a layer known to stack texts. The struct and what it points to must live as long as the process. Any thread.
 * Errors: INVALID_VALUE (incomplete, more than 64 options, or a name that is taken), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_layer_register(const strata_layer *layer);

#ifdef __cplusplus
}
#endif

#endif
