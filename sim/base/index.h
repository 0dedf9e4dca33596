/* What begins at which granule of an extent: a table of pointers, and over it a bitmap with summaries, each level
 * having a bit for each word of the level below that is not zero. Noting, forgetting and finding the last beginning at
 * or before a granule touch a few words, however many there are. */
#ifndef STRATA_SIM_BASE_INDEX_H
#define STRATA_SIM_BASE_INDEX_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

enum { SIM_INDEX_LEVELS = 6 };

typedef struct sim_index {
    void **at; /* by granule; one allocation with the levels */
    uint64_t *level[SIM_INDEX_LEVELS];
    unsigned levels;
    size_t bytes; /* of the allocation */
} sim_index;

bool sim_index_open(sim_index *index, size_t granules);
void sim_index_close(sim_index *index);
void sim_index_put(sim_index *index, size_t granule, void *what);
void sim_index_remove(sim_index *index, size_t granule);
void *sim_index_floor(const sim_index *index, size_t granule); /* NULL: nothing begins there or before */

#endif
