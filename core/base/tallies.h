/* Counts of the process: how many things of a kind were made, and how many of them have ended. Any thread. */
#ifndef STRATA_CORE_BASE_TALLIES_H
#define STRATA_CORE_BASE_TALLIES_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum strata_tally_kind {
    STRATA_TALLY_CAPTURES,
    STRATA_TALLY_GRAPHS,
    STRATA_TALLY_LAUNCHES, /* of graphs; they are over when they are made */
    STRATA_TALLY_EVENTS,   /* of the driver, that Strata keeps for use records and fences */
    STRATA_TALLIES,
} strata_tally_kind;

typedef struct strata_tally {
    _Atomic uint64_t made, ended;
    _Atomic uint64_t made_before, ended_before; /* the last reset */
} strata_tally;

extern strata_tally strata_tallies[STRATA_TALLIES];

static inline void strata_tally_made(strata_tally_kind kind)
{
    atomic_fetch_add_explicit(&strata_tallies[kind].made, 1, memory_order_relaxed);
}

static inline void strata_tally_ended(strata_tally_kind kind)
{
    atomic_fetch_add_explicit(&strata_tallies[kind].ended, 1, memory_order_relaxed);
}

typedef enum strata_tally_value {
    STRATA_TALLY_MADE,
    STRATA_TALLY_LIVE, /* a reset does not change it */
    STRATA_TALLY_ENDED,
} strata_tally_value;

uint64_t strata_tally_read(strata_tally_kind kind, strata_tally_value value);

/* What was made, or has ended, counts from 0 again. */
void strata_tally_reset(strata_tally_kind kind, strata_tally_value value);

#endif
