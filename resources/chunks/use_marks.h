/* When which addresses were used last, in windows of time: what was not used through a whole window can be returned.
 *
 * Ranges of addresses have the number of the last window in which they were used: each 2 MiB, each 4 MiB and so on to
 * 1 GiB. A block writes the numbers of the ranges that it touches of one size, at most a 16th of its own, so 33 at
 * most up to 32 GiB: a number for each 2 MiB of a large block took a third of its miss, one for each 32 MiB a fifth. So
 * what lies beside a large block that is taken again and again, up to a 16th of it on either side, counts as used. The
 * numbers cover 128 GiB and wrap around. Any thread writes and reads them, without a lock. */
#ifndef STRATA_RESOURCES_CHUNKS_USE_MARKS_H
#define STRATA_RESOURCES_CHUNKS_USE_MARKS_H

#include "resources/chunks/chunks.h"

#include <stdatomic.h>

enum {
    POOL_MARK_UNIT = 2 << 20,   /* bytes, of the smallest ranges */
    POOL_MARK_UNITS = 64 << 10, /* 128 GiB */
};

typedef struct pool_use_marks {
    _Atomic uint8_t window;                    /* number of the current window; one thread writes */
    _Atomic uint8_t last[2 * POOL_MARK_UNITS]; /* last window of use: of the smallest ranges, then of half as many, and
                                                  so on; relaxed */
} pool_use_marks;

#define POOL_MARK_SMALL (UINT64_C(96) << 30) /* bytes, within the 128 GiB: where the small side's marks begin */

/* The address that has a store's marks: its small side begins at a multiple of what they cover, on some devices. */
static inline CUdeviceptr pool_marks_place(const pool_chunk_store *store, CUdeviceptr address)
{
    const CUdeviceptr small = pool_small_base(store);
    return store->base && address >= small ? address - small + store->base + POOL_MARK_SMALL : address;
}

/* Marks what a block uses, in ranges of at most a 16th of it. */
void pool_mark_use(pool_use_marks *marks, CUdeviceptr address, uint64_t bytes);

/* Marks exactly these addresses, in units. */
void pool_mark_units(pool_use_marks *marks, CUdeviceptr address, uint64_t bytes);

void pool_mark_all(pool_use_marks *marks);

/* Whether a part was used in this window or the last: a use may be recorded late. */
bool pool_is_marked(const pool_use_marks *marks, CUdeviceptr address, uint64_t bytes);

void pool_marks_next_window(pool_use_marks *marks);

#endif
