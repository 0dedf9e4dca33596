/* Pending frees of a stream-ordered owner: which bytes are retired, and until which point.
 *
 * Live and retired blocks are in one index by address. A free only stores in the block's entry that it is retired and
 * at which point the free will be complete; it takes no lock. A retired block leaves the index when a reap finds its
 * free complete, or when the memory is handed out again: the owner enters each range that it hands out, and overlapping
 * retired ranges count as reused. A loop that frees and allocates the same memory therefore keeps one index entry. */
#ifndef STRATA_RESOURCES_OWNERS_PENDING_FREES_H
#define STRATA_RESOURCES_OWNERS_PENDING_FREES_H

#include "core/base/counters.h"
#include "core/blocks/address_index.h"
#include "core/stack/stack.h"

/* An owner's bytes of a block. The entry has its address and length; `from` and `end` delimit the part that is in the
 * index, in index units from the address. */
typedef struct strata_pending_free {
    _Atomic strata_point
        point;            /* the free is complete when this point is; written by the freeing thread, read by any */
    uint64_t outstanding; /* bytes that are not free yet; guarded by the lock */
    uint32_t from;        /* start of the indexed part; of an unindexed block, the next one; guarded by the lock */
    uint32_t end;         /* its end; STRATA_PENDING_FREES_WHOLE: the block's end; 0: unindexed; guarded by the lock */
} strata_pending_free;

#define STRATA_PENDING_FREES_WHOLE UINT32_MAX

_Static_assert(sizeof(strata_entry) + sizeof(strata_pending_free) <= 112,
               "a block of async alone has 16 bytes of 128 left for the index");

typedef struct strata_pending_frees {
    strata_resource *owner;
    size_t granule; /* allocation granularity, a power of two: ends of ranges are rounded up to it */
    strata_counters counters;
    strata_spin lock;
    strata_address_index index; /* live and retired ranges; guarded by the lock */
    uint32_t
        unindexed; /* list of retired blocks without an index entry, for want of host memory; guarded by the lock */
} strata_pending_frees;

void strata_pending_frees_init(strata_pending_frees *set, strata_resource *owner, size_t granule);
void strata_pending_frees_destroy(strata_pending_frees *set);

/* Enters a range that was handed out and returns the slot for its block; overlapping retired ranges count as reused. 0
 * without host memory: the range is not entered, and the overlapping ranges are reused all the same. */
uint32_t strata_pending_frees_enter(strata_pending_frees *set, CUdeviceptr address, uint64_t bytes);

/* Removes the range of a block that was not made, and gives its slot back. */
void strata_pending_frees_leave(strata_pending_frees *set, uint32_t slot, CUdeviceptr address, uint64_t bytes);

/* Sets the point of a retired entry's free after the driver has the free. The driver may already have handed the memory
 * out again; the entry is the caller's until this call. True: so many frees are pending that the owner should reap. */
bool strata_pending_frees_add(strata_pending_frees *set, strata_entry *entry, uint64_t bytes, strata_point point);

/* Counts the free of a block whose point is added later; and undoes that. */
void strata_pending_frees_defer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes);
void strata_pending_frees_undefer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes);

/* Ends complete frees of all streams. WAIT: first waits for all frees that were pending at the call, once for each
 * stream; after an error the rest stays pending. */
strata_status strata_pending_frees_reap(strata_pending_frees *set, strata_reap_mode mode, size_t *bytes);

/* Whether a whole block of at least `bytes` is retired by a free on that stream that may be pending: the driver hands
 * such memory out again on the same stream. *id receives it. */
bool strata_pending_frees_reusable(strata_pending_frees *set, uint16_t timeline, uint64_t bytes, strata_block_id *id);

/* The live block that contains `address`. */
bool strata_pending_frees_find(strata_pending_frees *set, CUdeviceptr address, strata_block *out);

/* Fills in live, retired and outstanding bytes and live blocks. */
void strata_pending_frees_usage(const strata_pending_frees *set, strata_usage *usage);

#endif
