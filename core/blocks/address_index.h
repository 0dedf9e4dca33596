/* From an address to the block that contains it: an ordered map from start addresses to slots.
 *
 * A trie of six bits a level over addresses in steps of 256 bytes, whose nodes are as large as what is in them: 5 to 14
 * bytes a start, wherever the starts lie. Finding the nearest start at or below an address looks at eight nodes at
 * most, however many there are, and inserting next to a neighbour touches a few cache lines. Not thread safe: its user
 * has a lock. */
#ifndef STRATA_CORE_BLOCKS_ADDRESS_INDEX_H
#define STRATA_CORE_BLOCKS_ADDRESS_INDEX_H

#include <cuda.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct strata_address_index {
    void *root;         /* NULL while empty */
    unsigned top;       /* the root's level: as low as the addresses in it allow */
    CUdeviceptr prefix; /* what all addresses have above the root's digit */
} strata_address_index;

/* Maps `start`, a multiple of 256, to `slot` (not 0), replacing what stood there. False without host memory: then
 * nothing changed. */
bool strata_index_insert(strata_address_index *index, CUdeviceptr start, uint32_t slot);

/* The slot that `start` is mapped to, 0 if none. */
uint32_t strata_index_at(const strata_address_index *index, CUdeviceptr start);

/* Forgets `start`, if it is there. */
void strata_index_remove(strata_address_index *index, CUdeviceptr start);

/* The slot of the greatest start at or below `address`, with that start; 0 if there is none. */
uint32_t strata_index_floor(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start);

/* The slot of the smallest start at or above `address`, with that start; 0 if there is none. */
uint32_t strata_index_ceiling(const strata_address_index *index, CUdeviceptr address, CUdeviceptr *start);

/* Frees the nodes. */
void strata_index_destroy(strata_address_index *index);

#endif
