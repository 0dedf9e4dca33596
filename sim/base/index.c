/* Values by granule, below bitmaps in levels: the last value at or before a granule is found in a few steps. */
#include "base/base.h"
#include <stdlib.h>
#include <sys/mman.h>

enum { BITS = 64, LARGE = 1 << 20 };

/* Takes zeroed memory; of much, the kernel commits only the pages that are touched. NULL without memory. */
static void *take(size_t bytes)
{
    if (bytes < LARGE)
        return calloc(1, bytes);
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

bool sim_index_open(sim_index *index, size_t granules)
{
    size_t sizes[SIM_INDEX_LEVELS];
    size_t words = 0;
    size_t size = granules;
    *index = (sim_index){0};
    do {
        size = (size + BITS - 1) / BITS;
        sizes[index->levels++] = size;
        words += size;
    } while (size > 1 && index->levels < SIM_INDEX_LEVELS);
    index->bytes = granules * sizeof *index->at + words * sizeof(uint64_t);
    index->at = take(index->bytes);
    if (!index->at)
        return false;
    uint64_t *bits = (uint64_t *)(void *)(index->at + granules);
    for (unsigned i = 0; i < index->levels; i++) {
        index->level[i] = bits;
        bits += sizes[i];
    }
    return true;
}

void sim_index_close(sim_index *index)
{
    if (index->bytes < LARGE)
        free(index->at);
    else
        munmap(index->at, index->bytes);
    *index = (sim_index){0};
}

void sim_index_put(sim_index *index, size_t granule, void *what)
{
    index->at[granule] = what;
    for (unsigned i = 0; i < index->levels; i++) {
        uint64_t *word = &index->level[i][granule / BITS];
        uint64_t before = *word;
        *word |= UINT64_C(1) << granule % BITS;
        if (before != 0)
            return;
        granule /= BITS;
    }
}

void sim_index_remove(sim_index *index, size_t granule)
{
    index->at[granule] = NULL;
    for (unsigned i = 0; i < index->levels; i++) {
        uint64_t *word = &index->level[i][granule / BITS];
        *word &= ~(UINT64_C(1) << granule % BITS);
        if (*word != 0)
            return;
        granule /= BITS;
    }
}

static size_t last_bit(uint64_t word)
{
    return BITS - 1 - (size_t)__builtin_clzll(word);
}

/* Returns the last granule below a set bit of some level. */
static size_t descend(const sim_index *index, unsigned level, size_t bit)
{
    while (level > 0) {
        level--;
        bit = bit * BITS + last_bit(index->level[level][bit]);
    }
    return bit;
}

void *sim_index_floor(const sim_index *index, size_t granule)
{
    size_t bit = granule;
    for (unsigned i = 0; i < index->levels; i++) {
        uint64_t mask = UINT64_MAX >> (BITS - 1 - bit % BITS);
        uint64_t word = index->level[i][bit / BITS] & mask;
        if (word != 0)
            return index->at[descend(index, i, bit / BITS * BITS + last_bit(word))];
        if (bit < BITS)
            return NULL;
        bit = bit / BITS - 1;
    }
    return NULL;
}
