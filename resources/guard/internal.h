/* The guard's layer bytes of blocks, and batches of checks.
 *
 * A guarded block is in one list, or in none while one thread owns it:
 *
 *     LIVE -> FREED -> HELD -> LEAVING -> (none) -> the layer below
 *
 * FREED and HELD are the quarantine, oldest first; FREED blocks' zones are still to be checked. Blocks over the limits
 * go to LEAVING, are checked as a whole (large ones in several batches), and are freed below when their last batch was
 * read.
 *
 * A batch is one launch, built under the guard's lock, but prepared, launched and read without it: no lock is held
 * around a call to the layer below. */
#ifndef STRATA_RESOURCES_GUARD_INTERNAL_H
#define STRATA_RESOURCES_GUARD_INTERNAL_H

#include "core/stack/stack.h"
#include "core/streams/timeline.h"
#include "driver/kernels/guard.h"
#include "resources/findings/findings.h"

#include <strata/guard.h>

enum {
    GUARD_GRANULE = 256, /* zones keep the alignment that every owner gives */
    GUARD_BATCHES = 8,
    GUARD_BATCH_PIECES = 60,      /* of one batch */
    GUARD_COPY_BYTES = 512 << 10, /* of one batch, if it copies */
    GUARD_TRIES = 3,              /* checks of a leaving block */
    GUARD_REMEMBERED = 1024,      /* freed blocks */
};

#define GUARD_QUARANTINE_BYTES (UINT64_C(256) << 20) /* default limit */

typedef enum guard_list_name {
    GUARD_NOWHERE = 0,
    GUARD_LIVE,
    GUARD_FREED,
    GUARD_HELD,
    GUARD_LEAVING,
    GUARD_LISTS,
} guard_list_name;

/* The guard's bytes in a block's entry. Guarded by the lock, except while one thread owns the block. */
typedef struct guarded {
    strata_block shown; /* the user's view of it; constant while the user has the block */
    strata_block below; /* the view of the layer below; in quarantine with the guard's identity */
    uint64_t number;    /* of its free: the order of the quarantine */
    uint64_t round;     /* last check of everything that covered it */
    uint64_t taken;     /* LEAVING: bytes in batches so far */
    uint32_t next, previous;
    uint32_t allocated_at, freed_at; /* call stacks */
    uint32_t batches;                /* batches in flight that check it; it leaves after them */
    uint32_t busy;                   /* threads that prepare or finish a check of the live block: a free waits */
    uint8_t list;
    uint8_t reported; /* bits of strata_guard_kind */
    uint8_t tries;    /* failed checks */
    bool leaves;      /* leaves with its last batch */
    bool unfilled;    /* no user ever had it: nothing can be checked */
} guarded;

typedef struct guard_list {
    uint32_t first, last, count;
} guard_list;

/* What a block was when its batch was built. */
typedef struct guard_subject {
    strata_block shown, below;
    uint32_t allocated_at, freed_at;
    strata_access access;
    bool live;
    bool unfilled; /* nothing is checked */
} guard_subject;

/* Where a piece of a batch comes from. */
typedef struct piece_origin {
    uint8_t subject;
    uint8_t kind;   /* strata_guard_kind of a change */
    int64_t offset; /* from the block's address */
} piece_origin;

typedef enum guard_batch_state { GUARD_BATCH_FREE = 0, GUARD_BATCH_TAKEN, GUARD_BATCH_LAUNCHED } guard_batch_state;

typedef struct guard_batch {
    guard_batch_state state;        /* guarded by the lock; other members: by the thread that has it TAKEN */
    uint64_t number;                /* guarded by the lock */
    strata_point point;             /* complete when the batch is; constant while LAUNCHED */
    bool covered;                   /* an event covers the point */
    strata_guard_piece *pieces;     /* pinned */
    strata_guard_verdict *verdicts; /* pinned */
    unsigned char *copies;          /* pinned; NULL with a kernel */
    size_t copied;
    uint32_t piece_count, subject_count;
    piece_origin origins[GUARD_BATCH_PIECES];
    guard_subject subjects[GUARD_BATCH_PIECES];
} guard_batch;

typedef struct guard {
    strata_resource resource;
    strata_device *device;
    strata_guard_options options; /* constant, except the limits below */
    findings_log log;
    size_t zone;
    CUstream checking, leaving; /* internal: for checks, for frees */
    strata_timeline *timeline;  /* of `checking` */
    strata_guard_kernel kernel;
    CUresult kernel_result;  /* of loading the kernel; constant, like the next one */
    const char *kernel_call; /* the call with that result; NULL: none was made */
    void *pinned;

    strata_lock lock;
    guard_list lists[GUARD_LISTS]; /* guarded by lock, up to the next empty line */
    guard_batch batches[GUARD_BATCHES];
    uint64_t batch_number, free_number, round;
    freed_block *remembered; /* a ring */
    uint64_t remembered_count;

    /* Written under the lock, read by any thread. */
    _Atomic uint64_t quarantined_bytes, quarantined_blocks; /* freed by users, not yet below */
    _Atomic uint64_t held_bytes, held_blocks;               /* of these, in FREED and HELD */
    _Atomic uint32_t launched;                              /* batches LAUNCHED */

    /* Any thread, relaxed: limits and statistics. */
    _Atomic uint64_t most_bytes, most_blocks;
    _Atomic uint64_t checks, zones_checked, unchecked;
} guard;

static inline guarded *guard_bytes(const guard *self, uint32_t slot)
{
    char *entry = (char *)strata_table_entry(strata_resource_table(&self->resource), slot);
    return (guarded *)(void *)(entry + self->resource.block_offset);
}

/* The owner's bytes of a live block, with zones of guards below, as the owner counts them. */
static inline size_t guard_whole_bytes(const guard *self, const guarded *block)
{
    const strata_entry *entry = strata_table_entry(strata_resource_table(&self->resource), block->below.id.slot);
    return (size_t)atomic_load_explicit(&entry->bytes, memory_order_relaxed);
}

/* ---- lists.c ---- */

/* Appends a block to a list, or takes it out of its own. The lock is held. */
void guard_list_append(guard *self, guarded *block, guard_list_name list);
void guard_list_remove(guard *self, guarded *block);

/* ---- checks.c ---- */

/* The ranges of a block that are checked: its red zones, and itself once freed. The back zone begins behind the
 * requested bytes. */
enum { GUARD_RANGES = RED_ZONES + 1 };

void guard_checked_ranges(const guard *self, const strata_block *shown, const strata_block *below,
                          checked_range extents[GUARD_RANGES]);

/* Reads complete batches, frees what leaves, launches what is due. Never waits. Errors are raised, the work is retried
 * later. */
void guard_poll(guard *self);

/* Bounds the freed blocks that wait for their last check. Above `least` bytes and the quarantine's limit, waits a
 * little, as long as batches complete; if none does, the device may be waiting for this thread. */
void guard_keep_unread_few(guard *self, uint64_t least);

/* Checks the quarantine, waits, and frees it below. Blocks that could not be freed stay, and blocks freed meanwhile. */
strata_status guard_flush(guard *self);

/* Checks everything live or freed before the call; waits for that. */
strata_status guard_check_everything(guard *self);

/* Waits for the batches that check a block. */
strata_status guard_wait_for_batches(guard *self, const guarded *block);

/* ---- operations.c ---- */

extern const strata_resource_ops guard_ops;
bool guard_is_one(const strata_resource *resource);

/* ---- report.c ---- */

enum { GUARD_VALUES = 10 };
extern const strata_value guard_values[GUARD_VALUES];
strata_status guard_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status guard_set_value(strata_resource *resource, size_t which, uint64_t value);
void guard_describe(strata_resource *resource, strata_emitter *to);

/* ---- calls.c ---- */

/* Lets a guard of either kind be checked at process exit. */
void guard_check_at_exit(strata_resource *resource);

#endif
