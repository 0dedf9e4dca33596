/* The inside of the guard: what it keeps of each block, and the checks under way.
 *
 * A guarded block is in one list, through its layer bytes, or, while one thread has it to itself, in none:
 *
 *     LIVE -> FREED -> HELD -> LEAVING -> (none) -> the layer below
 *
 * FREED and HELD are the quarantine, the oldest first: of those in FREED the zones are still to be looked at. What is
 * over the limits goes to LEAVING, is looked at whole, a block of many megabytes in several batches, and is given to
 * the layer below when the last of these was read.
 *
 * A batch is what one launch checks. It is built under the guard's lock, and prepared, launched and read without it, as
 * no lock is held around a call to the layer below. guard.c has the operations, checks.c the batches, findings.c what
 * is told, at_exit.c the last look, layer.c what users call. The sampling guard, sampling.h, has nothing of this but
 * the findings. */
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
    GUARD_BATCH_PIECES = 60,      /* in a batch */
    GUARD_COPY_BYTES = 512 << 10, /* in a batch, where it copies */
    GUARD_TRIES = 3,              /* to check a block that leaves */
    GUARD_REMEMBERED = 1024,      /* frees */
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

/* The guard's bytes of a block. Guarded by the lock, but for a thread that has the block to itself. */
typedef struct guarded {
    strata_block shown; /* as the user has it; constant while the user does */
    strata_block below; /* as the layer below gave it; in quarantine under the identity that is the guard's */
    uint64_t number;    /* of its free: the order in the quarantine */
    uint64_t round;     /* of checks of everything: the last that it was in */
    uint64_t taken;     /* while LEAVING: how much of it is in batches */
    uint32_t next, previous;
    uint32_t allocated_at, freed_at; /* call stacks */
    uint32_t batches;                /* under way that look at it; it is not given back before they were read */
    uint32_t busy;                   /* threads that prepare and finish a check of it while it is live: a free waits */
    uint8_t list;
    uint8_t reported; /* bits of strata_guard_kind */
    uint8_t tries;    /* that failed */
    bool leaves;      /* with the last of its batches */
    bool unfilled;    /* nothing of it can be checked: its user never had it */
} guarded;

typedef struct guard_list {
    uint32_t first, last, count;
} guard_list;

/* A block in a batch, as it was when the batch was built. */
typedef struct guard_subject {
    strata_block shown, below;
    uint32_t allocated_at, freed_at;
    strata_access access;
    bool live;
    bool unfilled; /* nothing of it is looked at */
} guard_subject;

/* What a piece is of. */
typedef struct piece_origin {
    uint8_t subject;
    uint8_t kind;   /* strata_guard_kind of what is wrong there */
    int64_t offset; /* of the piece, from the block's address */
} piece_origin;

typedef enum guard_batch_state { GUARD_BATCH_FREE = 0, GUARD_BATCH_TAKEN, GUARD_BATCH_LAUNCHED } guard_batch_state;

typedef struct guard_batch {
    guard_batch_state state;        /* guarded by the lock; the rest is that thread's which has it TAKEN */
    uint64_t number;                /* guarded by the lock */
    strata_point point;             /* complete when the device has done it; constant while LAUNCHED */
    bool covered;                   /* an event covers the point */
    strata_guard_piece *pieces;     /* pinned */
    strata_guard_verdict *verdicts; /* the same */
    unsigned char *copies;          /* the same, or NULL with a kernel */
    size_t copied;
    uint32_t piece_count, subject_count;
    piece_origin origins[GUARD_BATCH_PIECES];
    guard_subject subjects[GUARD_BATCH_PIECES];
} guard_batch;

typedef struct guard {
    strata_resource resource;
    strata_device *device;
    strata_guard_options options; /* constant, the limits excepted, which are below */
    findings_log log;
    size_t zone;
    CUstream checking, leaving; /* the guard's own: checks are launched on one; the other has no work but frees */
    strata_timeline *timeline;  /* of checking */
    strata_guard_kernel kernel;
    void *pinned;

    strata_lock lock;
    guard_list lists[GUARD_LISTS]; /* guarded by lock, like all to the next empty line */
    guard_batch batches[GUARD_BATCHES];
    uint64_t batch_number, free_number, round;
    freed_block *remembered; /* a ring */
    uint64_t remembered_count;

    /* Written under the lock, read by any thread. */
    _Atomic uint64_t quarantined_bytes, quarantined_blocks; /* not given back yet */
    _Atomic uint64_t held_bytes, held_blocks;               /* of these, in FREED and HELD */
    _Atomic uint32_t launched;                              /* batches */

    /* Any thread, relaxed: limits and statistics. */
    _Atomic uint64_t most_bytes, most_blocks;
    _Atomic uint64_t checks, zones_checked, unchecked;
} guard;

static inline guarded *guard_bytes(const guard *self, uint32_t slot)
{
    char *entry = (char *)strata_table_entry(strata_resource_table(&self->resource), slot);
    return (guarded *)(void *)(entry + self->resource.block_offset);
}

/* What a block takes of the owner's memory, the zones of guards below included: what the owner counts as live. The
 * block lives. */
static inline size_t guard_whole_bytes(const guard *self, const guarded *block)
{
    const strata_entry *entry = strata_table_entry(strata_resource_table(&self->resource), block->below.id.slot);
    return (size_t)atomic_load_explicit(&entry->bytes, memory_order_relaxed);
}

/* ---- lists.c ---- */

/* The lock is held. */
void guard_list_append(guard *self, guarded *block, guard_list_name list);
void guard_list_remove(guard *self, guarded *block);

/* ---- checks.c ---- */

/* The ranges of a block that are checked: its red zones and itself. The back zone begins behind the requested bytes. */
enum { GUARD_RANGES = RED_ZONES + 1 };

void guard_checked_ranges(const guard *self, const strata_block *shown, const strata_block *below,
                          checked_range extents[GUARD_RANGES]);

/* Reads the batches that are done, gives back what leaves, and launches what should be. Never waits. What goes wrong is
 * said, and tried again later. */
void guard_poll(guard *self);

/* A host that runs far ahead of the device would fill it with blocks that wait for their last check: where these are
 * more than `least` bytes, and than the quarantine may have, this waits a little, for as long as checks come back.
 * Where none does, the device may be waiting for this thread. */
void guard_keep_unread_few(guard *self, uint64_t least);

/* Empties the quarantine: checks what is in it, waits, and gives it back. What could not be given back stays, and what
 * other threads free meanwhile. */
strata_status guard_flush(guard *self);

/* Checks everything that lives or was freed before the call, and waits. */
strata_status guard_check_everything(guard *self);

/* Waits for the batches that look at a block. */
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

/* Has a guard of either kind checked when the process exits. */
void guard_check_at_exit(strata_resource *resource);

#endif
