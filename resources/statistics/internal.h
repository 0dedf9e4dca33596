#ifndef STRATA_RESOURCES_STATISTICS_INTERNAL_H
#define STRATA_RESOURCES_STATISTICS_INTERNAL_H

#include "core/base/lock.h"
#include "core/stack/stack.h"
#include "resources/statistics/tag_counters.h"

#include <strata/statistics.h>

enum {
    STRATA_STATISTICS_STATUSES = 64, /* more than there are */
    STRATA_STATISTICS_VALUES = 13,
};

typedef struct strata_statistics {
    strata_resource resource;
    _Atomic bool stacks;                       /* any thread, relaxed */
    bool stores_facts;                         /* blocks look different in the table; set when the stack is built */
    int leaks;                                 /* constant */
    int file;                                  /* constant; -1: none */
    struct strata_statistics *next, *previous; /* list of reporting layers; guarded by reporting_lock */
    _Atomic uint64_t failures[STRATA_STATISTICS_STATUSES]; /* allocations by status; any thread, relaxed */
    _Atomic uint64_t free_failures;                        /* any thread, relaxed */
    strata_tag_counters counters;
} strata_statistics;

/* Written once by the allocating thread, `origin` last. Read with the entry's lock bit, or by the free. */
typedef struct strata_statistics_facts {
    _Atomic uint64_t origin; /* tag and call stack; 0: not live here */
    /* As this layer sees the block; absent without `stores_facts`. */
    _Atomic uint64_t bytes, requested, address;
} strata_statistics_facts;

enum { STRATA_STATISTICS_OPTIONAL_BYTES = sizeof(strata_statistics_facts) - sizeof(uint64_t) };

static inline strata_statistics_facts *strata_statistics_facts_in(const strata_resource *resource, strata_entry *entry)
{
    return (strata_statistics_facts *)(void *)((char *)entry + resource->block_offset);
}

/* Call stack numbers end far below 2^31. */
static inline uint64_t strata_statistics_origin(strata_tag tag, uint32_t call_stack)
{
    return (uint64_t)tag << 32 | (uint32_t)(call_stack << 1) | 1;
}

static inline strata_tag strata_statistics_origin_tag(uint64_t origin)
{
    return (strata_tag)(origin >> 32);
}

static inline uint32_t strata_statistics_origin_stack(uint64_t origin)
{
    return (uint32_t)origin >> 1;
}

static inline const char *strata_statistics_tag_text(strata_tag tag)
{
    return tag ? strata_tag_name(tag) : NULL;
}

/* ---- operations.c ---- */

extern const strata_resource_ops strata_statistics_ops;

/* ---- counters.c ---- */

extern const char strata_statistics_name[]; /* in the ops of this layer alone */

/* Checks for public functions. Errors: FORKED, INVALID_VALUE for another layer. */
strata_status strata_statistics_enter(strata_resource *resource, strata_statistics **self);

/* False if the scope is not open. The record `all` has the sum of all tags. */
bool strata_statistics_counters_of(strata_statistics *self, strata_tag_counters_record *record, uint32_t scope,
                                   strata_statistics_counters *out);

/* Failed allocations of every status. */
uint64_t strata_statistics_failed(const strata_statistics *self);

/* ---- report.c ---- */

extern const strata_value strata_statistics_values[STRATA_STATISTICS_VALUES];
strata_status strata_statistics_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status strata_statistics_set_value(strata_resource *resource, size_t which, uint64_t value);
void strata_statistics_describe(strata_resource *resource, strata_emitter *to);

/* ---- leaks.c ---- */

void strata_statistics_end_refused(strata_resource *resource);

/* Prepares and ends reports at exit. Errors: IO, OUT_OF_HOST_MEMORY. */
strata_status strata_statistics_begin_reports(strata_statistics *self, const char *file);
void strata_statistics_end_reports(strata_statistics *self);

#endif
