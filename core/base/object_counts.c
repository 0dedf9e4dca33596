/* Reading and resetting the counts. */
#include "core/base/object_counts.h"

strata_objects strata_object_counts[STRATA_OBJECT_KINDS];

static uint64_t load(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

uint64_t strata_object_count_read(strata_object_kind kind, strata_object_count value)
{
    const strata_objects *counts = &strata_object_counts[kind];
    if (value == STRATA_OBJECTS_MADE)
        return load(&counts->made) - load(&counts->made_before);
    if (value == STRATA_OBJECTS_ENDED)
        return load(&counts->ended) - load(&counts->ended_before);
    const uint64_t ended = load(&counts->ended),
                   made = load(&counts->made); /* in this order: none ends before it is made */
    return made > ended ? made - ended : 0;
}

void strata_object_count_reset(strata_object_kind kind, strata_object_count value)
{
    strata_objects *counts = &strata_object_counts[kind];
    if (value == STRATA_OBJECTS_MADE)
        atomic_store_explicit(&counts->made_before, load(&counts->made), memory_order_relaxed);
    else if (value == STRATA_OBJECTS_ENDED)
        atomic_store_explicit(&counts->ended_before, load(&counts->ended), memory_order_relaxed);
}
