/* Reading and resetting tallies. */
#include "core/base/tallies.h"

strata_tally strata_tallies[STRATA_TALLIES];

static uint64_t load(const _Atomic uint64_t *count)
{
    return atomic_load_explicit(count, memory_order_relaxed);
}

uint64_t strata_tally_read(strata_tally_kind kind, strata_tally_value value)
{
    const strata_tally *tally = &strata_tallies[kind];
    if (value == STRATA_TALLY_MADE)
        return load(&tally->made) - load(&tally->made_before);
    if (value == STRATA_TALLY_ENDED)
        return load(&tally->ended) - load(&tally->ended_before);
    const uint64_t ended = load(&tally->ended),
                   made = load(&tally->made); /* in this order: none ends before it is made */
    return made > ended ? made - ended : 0;
}

void strata_tally_reset(strata_tally_kind kind, strata_tally_value value)
{
    strata_tally *tally = &strata_tallies[kind];
    if (value == STRATA_TALLY_MADE)
        atomic_store_explicit(&tally->made_before, load(&tally->made), memory_order_relaxed);
    else if (value == STRATA_TALLY_ENDED)
        atomic_store_explicit(&tally->ended_before, load(&tally->ended), memory_order_relaxed);
}
