/* The blocks that captures, graphs and registrations keep, and how often. A kept block is marked in its entry
 * (core/blocks/blocks.h): only a free of a marked block looks here. */
#ifndef STRATA_RUNTIME_KEPT_BLOCKS_H
#define STRATA_RUNTIME_KEPT_BLOCKS_H

#include "core/blocks/blocks.h"

struct strata_kept_block;

/* All zero: empty. Guarded by the lock of its client. */
typedef struct strata_kept_blocks {
    struct strata_kept_block *by_slot;
    struct strata_kept_block *due; /* freed, and kept by nothing any more, but the free has failed */
    uint64_t rounds;               /* of tries to free the blocks in `due` */
} strata_kept_blocks;

/* Keeps a live block once more. Errors: USE_AFTER_FREE, FOREIGN_POINTER, OUT_OF_HOST_MEMORY. */
strata_status strata_kept_add(strata_kept_blocks *kept, const strata_table *table, const strata_block *block);

/* Keeps a block that is kept already once more, freed or not. */
void strata_kept_add_again(strata_kept_blocks *kept, const strata_block *block);

/* Undoes one such call. If that was the last one and the program has freed the block meanwhile, returns it: the caller
 * frees it, and tells strata_kept_settle how that ended. Else NULL. */
struct strata_kept_block *strata_kept_drop(strata_kept_blocks *kept, const strata_table *table,
                                           const strata_block *block);
const strata_block *strata_kept_block_of(const struct strata_kept_block *dropped);
void strata_kept_settle(strata_kept_blocks *kept, const strata_table *table, struct strata_kept_block *dropped,
                        bool freed);

/* Adds a block that nothing keeps and whose free has failed, for another try in the next round. False without host
 * memory. */
bool strata_kept_add_due(strata_kept_blocks *kept, const strata_table *table, const strata_block *block);

/* Takes out a block that was not tried in this round, for another try; NULL if there is none. */
struct strata_kept_block *strata_kept_next_due(strata_kept_blocks *kept, const strata_table *table, uint64_t round);

/* One of the graphs that keep the block refuses its free from now on, or no longer. */
void strata_kept_refuse(strata_kept_blocks *kept, const strata_block *block, bool refuse);

/* Registers a kept block for a library: its free is refused until each call is undone. */
void strata_kept_register(strata_kept_blocks *kept, const strata_block *block, const char *library);
void strata_kept_unregister(strata_kept_blocks *kept, const strata_block *block);

bool strata_kept_has(const strata_kept_blocks *kept, strata_block_id id);
bool strata_kept_is_freed(const strata_kept_blocks *kept, strata_block_id id);

/* Notes that the program frees a kept block; the last strata_kept_drop returns it then. Errors: BLOCK_IN_USE (a graph
 * that keeps it refuses frees, or it is registered), DOUBLE_FREE, and those of wrong facts. *found: false if the block
 * is not kept. */
strata_status strata_kept_free(strata_kept_blocks *kept, const strata_table *table, const strata_block *block,
                               bool *found);

#endif
