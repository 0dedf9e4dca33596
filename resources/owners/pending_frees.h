/* Pending frees of a stream-ordered owner: which bytes are retired, and until which point.
 *
 * Live and retired blocks are in one index by address. A free takes no lock: it stores in the block's entry that it is
 * retired, and until which point. A retired block leaves the index when a reap finds its free complete, or when its
 * memory is handed out again: the owner enters each range that it hands out, and overlapping retired ranges count as
 * reused. A loop that frees and allocates the same memory keeps one index entry. */
#ifndef STRATA_RESOURCES_OWNERS_PENDING_FREES_H
#define STRATA_RESOURCES_OWNERS_PENDING_FREES_H

#include "core/base/counters.h"
#include "core/blocks/address_index.h"
#include "core/stack/stack.h"

/* In an entry, which has the block's address and length. `from` and `end` delimit the indexed part, in index units from
 * the address. All but the point is guarded by the lock. */
typedef struct strata_pending_free {
    _Atomic strata_point point; /* at which the free is complete; written by the freeing thread, read by any */
    uint64_t outstanding;       /* bytes not free yet; 0: the block has ended with its context */
    uint32_t from;              /* start of the indexed part; if unindexed, the next such block */
    uint32_t end;               /* its end; STRATA_PENDING_FREES_WHOLE: the block's end; 0: unindexed */
} strata_pending_free;

#define STRATA_PENDING_FREES_WHOLE UINT32_MAX

_Static_assert(sizeof(strata_entry) + sizeof(strata_pending_free) <= 112,
               "a block of async alone has 16 bytes of 128 left for the index");

typedef struct strata_pending_frees {
    strata_resource *owner;
    size_t granule; /* allocation granularity, a power of two; ends of ranges are rounded up to it */
    strata_counters counters;
    strata_spin lock;
    strata_address_index index; /* live and retired ranges; guarded by the lock */
    uint32_t unindexed; /* list of retired blocks without an index entry (no host memory); guarded by the lock */
} strata_pending_frees;

void strata_pending_frees_init(strata_pending_frees *set, strata_resource *owner, size_t granule);
void strata_pending_frees_destroy(strata_pending_frees *set);

/* Enters a range that was handed out; returns its block's slot. Overlapping retired ranges count as reused, even
 * without host memory, when it returns 0 and enters nothing. */
uint32_t strata_pending_frees_enter(strata_pending_frees *set, CUdeviceptr address, uint64_t bytes);

/* Undoes strata_pending_frees_enter for a block that was not made. */
void strata_pending_frees_leave(strata_pending_frees *set, uint32_t slot, CUdeviceptr address, uint64_t bytes);

/* Sets the point of a retired entry's free once the driver has the free. The driver may already have handed the memory
 * out again, but the entry is the caller's until this call. True: many frees are pending, the owner should reap. */
bool strata_pending_frees_add(strata_pending_frees *set, strata_entry *entry, uint64_t bytes, strata_point point);

/* Counts a free whose point is added later; undoes that. */
void strata_pending_frees_defer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes);
void strata_pending_frees_undefer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes);

/* Ends complete frees of all streams. WAIT: first waits for the frees pending at the call, once a stream; after an
 * error the rest stays pending. */
strata_status strata_pending_frees_reap(strata_pending_frees *set, strata_reap_mode mode, size_t *bytes);

/* After a reset of the device, when its context has begun anew: ends blocks. For each one whose free the driver has not
 * got, calls `give` with its address, until one is refused; that block and the rest stay. Live blocks that ended are
 * still found. Returns the bytes that ended. */
uint64_t strata_pending_frees_end_lost(strata_pending_frees *set, bool (*give)(CUdeviceptr address));

/* Whether blocks have not ended. Not exact while a thread enters or frees one. Makes no call. */
bool strata_pending_frees_any(const strata_pending_frees *set);

/* Whether a whole block of at least `bytes` was freed on that stream, perhaps pending: the driver hands such memory out
 * again there. *id: the smallest such block. */
bool strata_pending_frees_reusable(strata_pending_frees *set, uint16_t timeline, uint64_t bytes, strata_block_id *id);

/* Adds the bytes and points of frees that are not known to be complete. */
void strata_pending_frees_sum(strata_pending_frees *set, struct strata_stream_sums *sums);

/* The live block that contains `address`. */
bool strata_pending_frees_find(strata_pending_frees *set, CUdeviceptr address, strata_block *out);

/* Fills in live, retired and outstanding bytes, and live blocks. */
void strata_pending_frees_usage(const strata_pending_frees *set, strata_usage *usage);

#endif
