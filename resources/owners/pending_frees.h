/* The frees of a stream-ordered owner that are under way: which bytes are retired, and until when.
 *
 * Live and retired blocks stand in one index by address. A free only says, in the block's entry, that it is retired and
 * at which point it will be complete; it takes no lock. A retired block leaves the index when somebody reaps and its
 * free is complete, or when the memory is handed out again: the owner enters each range that it hands out, and what
 * that overlaps is reused. So a loop that frees and allocates the same memory keeps one place in the index. */
#ifndef STRATA_RESOURCES_OWNERS_PENDING_FREES_H
#define STRATA_RESOURCES_OWNERS_PENDING_FREES_H

#include "core/base/counters.h"
#include "core/blocks/address_index.h"
#include "core/stack/stack.h"

/* An owner's bytes of a block. Where and how long it is its entry says; which part of it stands in the index, is
 * counted from its address on in what addresses in the index are multiples of. */
typedef struct strata_pending_free {
    _Atomic strata_point point; /* the free is complete when this is. Written by the thread that frees, read by any. */
    uint64_t outstanding;       /* bytes that are not free yet; guarded by the lock */
    uint32_t from;              /* where the part begins; of a stray, the next one. The same */
    uint32_t end; /* where it ends; STRATA_PENDING_FREES_WHOLE: with the block; 0: nothing is in the index, a stray. The
                     same */
} strata_pending_free;

#define STRATA_PENDING_FREES_WHOLE UINT32_MAX

_Static_assert(sizeof(strata_entry) + sizeof(strata_pending_free) <= 112,
               "a block of async alone has 16 bytes of 128 left for the index");

typedef struct strata_pending_frees {
    strata_resource *owner;
    size_t granule; /* what the memory comes in, a power of two: the end of a range is rounded up to it */
    strata_counters counters;
    strata_spin lock;
    strata_address_index index; /* live and retired ranges; guarded by the lock */
    uint32_t unindexed; /* retired blocks that lost their place in the index for want of host memory; the same */
} strata_pending_frees;

void strata_pending_frees_init(strata_pending_frees *set, strata_resource *owner, size_t granule);
void strata_pending_frees_destroy(strata_pending_frees *set);

/* Enters a range that was handed out and gives it the slot that its block is to be published in; what it overlaps
 * counts as reused. 0 without host memory: then the range is not entered, and what it overlaps is reused all the same.
 */
uint32_t strata_pending_frees_enter(strata_pending_frees *set, CUdeviceptr address, uint64_t bytes);

/* Takes a range out again whose block came to nothing, and gives its slot back. */
void strata_pending_frees_leave(strata_pending_frees *set, uint32_t slot, CUdeviceptr address, uint64_t bytes);

/* Says when the free of a retired entry will be complete, after the driver has it. The driver may have handed the
 * memory out again by then; the entry is the caller's until this call, and not after it. True: enough frees are pending
 * that the owner should reap. */
bool strata_pending_frees_add(strata_pending_frees *set, strata_entry *entry, uint64_t bytes, strata_point point);

/* Counts the free of a block that is to be settled later, and takes that back. */
void strata_pending_frees_defer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes);
void strata_pending_frees_undefer(strata_pending_frees *set, strata_entry *entry, uint64_t bytes);

/* Ends what is complete, on however many streams. With WAIT, waits for everything that was retired when it was called,
 * for each stream once; on an error the rest stays. */
strata_status strata_pending_frees_reap(strata_pending_frees *set, strata_reap_mode mode, size_t *bytes);

/* Whether a block is retired whole, by a free on that stream which may not have finished, with at least `bytes` bytes:
 * the driver hands such memory out again on the same stream. *id names it. */
bool strata_pending_frees_reusable(strata_pending_frees *set, uint16_t timeline, uint64_t bytes, strata_block_id *id);

/* The live block that contains `address`. */
bool strata_pending_frees_find(strata_pending_frees *set, CUdeviceptr address, strata_block *out);

/* Fills in live, retired and outstanding. */
void strata_pending_frees_usage(const strata_pending_frees *set, strata_usage *usage);

#endif
