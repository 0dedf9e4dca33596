/* Former places: where a chunk that moved in stream order is mapped too, for work there that is not over. A chunk that
 * moves often has several. Guarded by map_lock.
 *
 * They stand in the order of their points, of equal ones of their addresses: one look at each timeline shows which are
 * over, however many wait. Each waits for one point at a time; once that is complete, for another of its extent's.
 *
 *     | 0, at A | 0, at B | timeline 3, epoch 7 | 3, 8 | 3, 8 | timeline 5, epoch 2 | ...
 *       over                complete?             ...             complete?
 */
#ifndef STRATA_RESOURCES_CHUNKS_FORMERS_H
#define STRATA_RESOURCES_CHUNKS_FORMERS_H

#include "resources/chunks/chunks.h"

static inline pool_former *pool_former_at(const pool_chunk_store *store, uint32_t number)
{
    return &store->formers[number - 1];
}

/* Makes a chunk's address a former place: `extent` is there, and waits for `point`. The chunk counts as unmapped. False
 * without host memory: nothing changed. */
bool pool_formers_leave(pool_chunk_store *store, uint32_t chunk, uint32_t extent, strata_point point);

/* Makes the latest former place of an unmapped chunk its address again. Returns the extent there. */
uint32_t pool_formers_go_back(pool_chunk_store *store, uint32_t chunk);

/* Asks whether points are complete, of the first former place of each timeline and on while they are. A place whose
 * point is complete waits for next(data, extent) from then on; 0: its work is over. */
void pool_formers_look(pool_chunk_store *store, bool (*is_complete)(strata_point point),
                       strata_point (*next)(void *data, uint32_t extent), void *data);

/* The first former place whose work is over, at or behind an address, of a chunk that no thread waits for; 0: none. */
uint32_t pool_formers_over(const pool_chunk_store *store, CUdeviceptr address);

/* Unmaps and forgets a former place. After an error nothing changed. */
CUresult pool_formers_unmap(pool_chunk_store *store, uint32_t number);

/* Forgets a former place that was unmapped. */
void pool_formers_forget(pool_chunk_store *store, uint32_t number);

#endif
