/* Counts of the process: how many things of a kind were made, and how many of them have ended. Any thread. */
#ifndef STRATA_CORE_BASE_OBJECT_COUNTS_H
#define STRATA_CORE_BASE_OBJECT_COUNTS_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef enum strata_object_kind {
    STRATA_OBJECT_CAPTURE,
    STRATA_OBJECT_GRAPH,
    STRATA_OBJECT_LAUNCH, /* of graphs; they are over when they are made */
    STRATA_OBJECT_EVENT,  /* of the driver, that Strata keeps for use records and fences */
    STRATA_OBJECT_CONDITIONAL,
    STRATA_OBJECT_CONDITIONAL_LAUNCH, /* of a conditional node, with its graph */
    STRATA_OBJECT_KINDS,
} strata_object_kind;

typedef struct strata_objects {
    _Atomic uint64_t made, ended;
    _Atomic uint64_t made_before, ended_before; /* the last reset */
} strata_objects;

extern strata_objects strata_object_counts[STRATA_OBJECT_KINDS];

static inline void strata_objects_made(strata_object_kind kind, uint64_t count)
{
    atomic_fetch_add_explicit(&strata_object_counts[kind].made, count, memory_order_relaxed);
}

static inline void strata_object_made(strata_object_kind kind)
{
    strata_objects_made(kind, 1);
}

static inline void strata_objects_ended(strata_object_kind kind, uint64_t count)
{
    atomic_fetch_add_explicit(&strata_object_counts[kind].ended, count, memory_order_relaxed);
}

static inline void strata_object_ended(strata_object_kind kind)
{
    strata_objects_ended(kind, 1);
}

typedef enum strata_object_count {
    STRATA_OBJECTS_MADE,
    STRATA_OBJECTS_LIVE, /* a reset does not change it */
    STRATA_OBJECTS_ENDED,
} strata_object_count;

uint64_t strata_object_count_read(strata_object_kind kind, strata_object_count value);

/* MADE or ENDED counts from 0 again. No effect on LIVE. */
void strata_object_count_reset(strata_object_kind kind, strata_object_count value);

#endif
