/* Holds on the chunks of a block, and handles of them for other processes. A held chunk is neither moved nor returned.
 *
 * Guarded by map_lock. */
#ifndef STRATA_RESOURCES_CHUNKS_HOLDS_H
#define STRATA_RESOURCES_CHUNKS_HOLDS_H

#include "resources/chunks/chunks.h"

/* Holds the chunks of a block in the store's memory. NULL without host memory. */
strata_pool_hold *pool_hold_make(pool_chunk_store *store, const strata_block *block);
void pool_hold_drop(strata_pool_hold *hold);

/* Drops all holds that are left. */
void pool_holds_drop(pool_chunk_store *store);

/* The store of a hold. Constant: needs no lock. */
pool_chunk_store *pool_hold_store(const strata_pool_hold *hold);

/* Exports a handle of each part. On failure no file is open. */
strata_status pool_hold_export(strata_pool_hold *hold);

#endif
