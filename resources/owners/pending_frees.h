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
typedef struct strata_retired_bytes {
    _Atomic strata_point point; /* the free is complete when this is. Written by the thread that frees, read by any. */
    uint64_t outstanding;       /* bytes that are not free yet; guarded by the lock */
    uint32_t from;              /* where the part begins; of a stray, the next one. The same */
    uint32_t
        end; /* where it ends; STRATA_RETIRED_WHOLE: with the block; 0: nothing is in the index, a stray. The same */
} strata_retired_bytes;

#define STRATA_RETIRED_WHOLE UINT32_MAX

_Static_assert(sizeof(strata_entry) + sizeof(strata_retired_bytes) <= 112,
               "a block of async alone has 16 bytes of 128 left for the index");

typedef struct strata_retired {
    strata_resource *owner;
    size_t granule; /* what the memory comes in, a power of two: the end of a range is rounded up to it */
    strata_counters counters;
    strata_spin lock;
    strata_address_index index; /* live and retired ranges; guarded by the lock */
    uint32_t strays; /* retired blocks that lost their place in the index for want of host memory; the same */
} strata_retired;

void strata_retired_init(strata_retired *set, strata_resource *owner, size_t granule);
void strata_retired_end(strata_retired *set);

/* Enters a range that was handed out and gives it the slot that its block is to be published in; what it overlaps
 * counts as reused. 0 without host memory: then the range is not entered, and what it overlaps is reused all the same.
 */
uint32_t strata_retired_enter(strata_retired *set, CUdeviceptr address, uint64_t bytes);

/* Takes a range out again whose block came to nothing, and gives its slot back. */
void strata_retired_leave(strata_retired *set, uint32_t slot, CUdeviceptr address, uint64_t bytes);

/* Says when the free of a retired entry will be complete, after the driver has it. The driver may have handed the
 * memory out again by then; the entry is the caller's until this call, and not after it. True: enough frees are pending
 * that the owner should reap. */
bool strata_retired_settle(strata_retired *set, strata_entry *entry, uint64_t bytes, strata_point point);

/* Counts the free of a block that is to be settled later, and takes that back. */
void strata_retired_defer(strata_retired *set, strata_entry *entry, uint64_t bytes);
void strata_retired_undefer(strata_retired *set, strata_entry *entry, uint64_t bytes);

/* Ends what is complete, on however many streams. With WAIT, waits for everything that was retired when it was called,
 * for each stream once; on an error the rest stays. */
strata_status strata_retired_reap(strata_retired *set, strata_reap_mode mode, size_t *bytes);

/* Whether a block is retired whole, by a free on that stream which may not have finished, with at least `bytes` bytes:
 * the driver hands such memory out again on the same stream. *id names it. */
bool strata_retired_reusable(strata_retired *set, uint16_t timeline, uint64_t bytes, strata_block_id *id);

/* The live block that contains `address`. */
bool strata_retired_find(strata_retired *set, CUdeviceptr address, strata_block *out);

/* Fills in live, retired and outstanding. */
void strata_retired_usage(const strata_retired *set, strata_usage *usage);

#endif
