/* The frees of a stream-ordered owner that are under way: which bytes are retired, and until when.
 *
 * A freed block stays in its entry, RETIRED, on one list in the order of the frees. It leaves the list when its free is
 * known complete, or when the memory is handed out again: the owner tells each range that it hands out, and what
 * overlaps is reused. Live and retired blocks stand in one address index, so a loop that frees and allocates the same
 * memory searches it once. */
#ifndef STRATA_RESOURCES_RETIRED_H
#define STRATA_RESOURCES_RETIRED_H

#include "core/address_index.h"
#include "core/counters.h"
#include "core/stack.h"

/* An owner's bytes of a block. While the block is live they are zero. */
typedef struct strata_retired_bytes {
    _Atomic strata_point point; /* the free is complete when this is; atomic, because settle takes no lock */
    CUdeviceptr start;          /* the range that stands in the index, none if length is 0; guarded by the lock */
    uint64_t length;
    uint64_t retired;        /* bytes that are not yet free; the same */
    uint32_t next, previous; /* slots in the list, 0 ends it; the same */
} strata_retired_bytes;

enum { STRATA_RETIRED_LIVE_BYTES, STRATA_RETIRED_LIVE_BLOCKS, STRATA_RETIRED_BYTES };

typedef struct strata_retired {
    strata_resource *owner;
    strata_counters counters;
    strata_lock lock;
    strata_address_index index; /* live and retired ranges; guarded by the lock */
    uint32_t first, last;       /* the list, oldest first; the same */
    size_t count;               /* its length; the same */
    size_t reap_at;             /* when it is worth asking the driver; the same */
} strata_retired;

void strata_retired_init(strata_retired *set, strata_resource *owner);
void strata_retired_end(strata_retired *set);

/* Enters a range that was handed out as block `slot`; what it overlaps counts as reused. False without host memory. */
bool strata_retired_enter(strata_retired *set, uint32_t slot, CUdeviceptr address, uint64_t bytes);

/* Takes a range out again whose block came to nothing. */
void strata_retired_leave(strata_retired *set, CUdeviceptr address, uint64_t bytes);

/* A free in two steps, around the driver call: from begin the block counts as retired; settle says when it will be
 * complete, revert puts it back. The driver may hand the memory out again before settle is called; the entry is the
 * caller's until then. True from begin: the list has grown enough that the owner should reap. */
bool strata_retired_begin(strata_retired *set, strata_entry *entry, const strata_block *block);
void strata_retired_settle(strata_retired *set, strata_entry *entry, strata_point point);
void strata_retired_revert(strata_retired *set, strata_entry *entry, const strata_block *block);

/* Ends what is complete. With WAIT, waits for everything that was retired when it was called; on an error the rest
 * stays. */
strata_status strata_retired_reap(strata_retired *set, strata_reap_mode mode, size_t *bytes);

/* The live block that contains `address`. */
bool strata_retired_find(strata_retired *set, CUdeviceptr address, strata_block *out);

/* Fills in live, retired and outstanding. */
void strata_retired_usage(const strata_retired *set, strata_usage *usage);

#endif
