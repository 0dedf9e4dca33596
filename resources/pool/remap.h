/* Frames on their way to where a request needs them: new ones from the device, and such as lie free and complete
 * elsewhere and are taken out of their places. Growth is held in all of it. */
#ifndef STRATA_RESOURCES_POOL_REMAP_H
#define STRATA_RESOURCES_POOL_REMAP_H

#include "resources/pool/internal.h"

/* Frames that are mapped nowhere, to be mapped one behind the other. Whoever has the list frees its numbers. */
typedef struct pool_chunk_list {
    uint32_t *numbers;
    size_t count, capacity;
    uint64_t bytes;
    uint64_t moved;     /* bytes of those that were taken out of their places */
    uint64_t making_ns; /* what making the others took */
} pool_chunk_list;

/* Which frames are moved. */
typedef struct pool_remap_terms {
    CUdeviceptr from, to; /* where the request is to be: nothing is taken from there */
    uint64_t needed;      /* bytes that are to be in the list, */
    uint64_t room;        /* and at most: a frame is mapped as a whole */
    bool may_wait;        /* what is not complete may be waited for; then patience is held */
} pool_remap_terms;

/* Makes frames until so many bytes are in the list, larger ones for a large request; 0: that they are small matters
 * more. The driver's answer. */
CUresult pool_chunk_list_make(pool *self, uint64_t request, uint64_t bytes, pool_chunk_list *chunks,
                              pool_outcome *outcome);

/* The bytes of the frames in a range of addresses, or in a part of it, that could be moved from there, none of them
 * larger than `room`. The lock is held. */
uint64_t pool_remappable_bytes(const pool *self, CUdeviceptr from, CUdeviceptr to, uint64_t room, bool may_wait);

/* Takes frames that lie free out of their places, until there are as many bytes as are needed, or no more frames;
 * *host: there was no host memory for one. */
void pool_chunk_list_collect(pool *self, const pool_remap_terms *how, pool_chunk_list *chunks, bool *host);

/* Gives a frame that could be moved, of whatever size, back to the device: others can be made then. False if there is
 * none, or if all of them are less than would be enough. */
bool pool_chunk_list_give_back(pool *self, const pool_remap_terms *how, uint64_t enough);

/* Maps frames from an address on, and lets the device use them. On failure none of them is mapped; *call is what
 * failed. */
CUresult pool_chunk_list_map(pool *self, const pool_chunk_list *chunks, CUdeviceptr address, const char **call);

/* Takes frames out of their places again, and gives them back to the device. False if one of them is where it was. */
bool pool_chunk_list_drop(pool *self, const uint32_t *chunks, size_t count);

#endif
