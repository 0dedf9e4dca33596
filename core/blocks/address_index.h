/* An ordered map from the start addresses of blocks to slots. To find the block that contains an address, the caller
 * takes the greatest start at or below it, and checks that block's length and life.
 *
 * A trie of six bits a level over addresses in steps of 256 bytes: 5 to 14 bytes a start, however the starts are
 * spread, and few nodes a search. Not thread safe: the caller holds a lock. */
#ifndef STRATA_CORE_BLOCKS_ADDRESS_INDEX_H
#define STRATA_CORE_BLOCKS_ADDRESS_INDEX_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct strata_address_index {
    void *root;         /* NULL while empty */
    unsigned top;       /* the root's level, as low as its addresses allow */
    CUdeviceptr prefix; /* common bits above the root's digit */
} strata_address_index;

/* Maps `start`, a multiple of 256 below 2^56, to `slot`, from 1 to 2^24 - 1, replacing an earlier slot. False without
 * host memory, or for other starts; then nothing changed. */
bool strata_index_insert(strata_address_index *index, CUdeviceptr start, uint32_t slot);

/* The slot of `start`, or 0. */
uint32_t strata_index_at(const strata_address_index *index, CUdeviceptr start);

void strata_index_remove(strata_address_index *index, CUdeviceptr start);

/* The slot of the greatest start at or below `address`, and that start; 0: none. */
uint32_t strata_index_floor(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start);

/* The slot of the smallest start at or above `address`, likewise. */
uint32_t strata_index_ceiling(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start);

void strata_index_destroy(strata_address_index *index);

#endif
