/* The statistics layer: its structs, and what its files share. tag_counters.h explains the counters. */
#ifndef STRATA_RESOURCES_STATISTICS_INTERNAL_H
#define STRATA_RESOURCES_STATISTICS_INTERNAL_H

#include "core/base/descriptor_mark.h"
#include "core/base/lock.h"
#include "core/stack/fuse.h"
#include "resources/statistics/tag_counters.h"

#include <strata/statistics.h>

enum {
    STRATA_STATISTICS_STATUSES = 64, /* more than there are */
    STRATA_STATISTICS_VALUES = 18,
    STRATA_STATISTICS_SCOPE_SLOTS = 2048,  /* open scopes, and closed ones with live blocks */
    STRATA_STATISTICS_STACK_CHUNKS = 1024, /* of counters of 1024 call stacks each */
    /* Bits of `detail`: what an allocation has beside its tag. */
    STRATA_STATISTICS_STACKS = 1,
    STRATA_STATISTICS_SCOPES = 2, /* a thread has entered a scope; never cleared */
};

typedef struct strata_statistics_stack_counters strata_statistics_stack_counters;

typedef struct strata_statistics {
    strata_resource resource;
    strata_fused fused;
    _Atomic uint8_t detail;                    /* STRATA_STATISTICS_STACKS, _SCOPES; any thread, relaxed */
    bool stores_facts;                         /* set when the stack is built: blocks look different in the table */
    int leaks;                                 /* constant */
    int file;                                  /* constant; -1: none */
    strata_descriptor_mark file_mark;          /* constant */
    bool reports;                              /* in the list; constant */
    bool reported;                             /* at exit; guarded by reporting_lock, like the list */
    struct strata_statistics *next, *previous; /* list of reporting layers */
    _Atomic uint64_t failures[STRATA_STATISTICS_STATUSES]; /* allocations by status; any thread, relaxed */
    _Atomic uint64_t free_failures;                        /* any thread, relaxed */
    _Atomic uint64_t graph_events[STRATA_GRAPH_EVENT_KINDS], graph_failures; /* any thread, relaxed */
    strata_tag_counters counters;
    strata_per_thread entered;                                                /* the scope of each thread */
    strata_lock scopes_lock;                                                  /* held to open and close scopes */
    _Atomic(strata_statistics_scope *) scopes[STRATA_STATISTICS_SCOPE_SLOTS]; /* 0: none; written with the last
                                                                                 reference, or under the lock */
    _Atomic(strata_statistics_stack_counters *) stacks[STRATA_STATISTICS_STACK_CHUNKS]; /* each set once */
} strata_statistics;

/* Written once by the allocating thread, `origin` last. Read with the entry's lock bit, or by the free. */
typedef struct strata_statistics_facts {
    _Atomic uint64_t origin; /* tag, scope and call stack; 0: not live here */
    /* As this layer sees the block; absent without `stores_facts`. */
    _Atomic uint64_t bytes, requested, address;
} strata_statistics_facts;

enum { STRATA_STATISTICS_OPTIONAL_BYTES = sizeof(strata_statistics_facts) - sizeof(uint64_t) };

static inline strata_statistics_facts *strata_statistics_facts_in(const strata_resource *resource, strata_entry *entry)
{
    return (strata_statistics_facts *)(void *)((char *)entry + resource->block_offset);
}

enum { STRATA_STATISTICS_SCOPE_SHIFT = 21 }; /* call stack numbers are below 2^20 */

static inline uint64_t strata_statistics_origin(strata_tag tag, uint32_t call_stack, uint32_t scope)
{
    return (uint64_t)tag << 32 | (uint64_t)scope << STRATA_STATISTICS_SCOPE_SHIFT | (uint64_t)call_stack << 1 | 1;
}

static inline uint32_t strata_statistics_origin_scope(uint64_t origin)
{
    return (uint32_t)origin >> STRATA_STATISTICS_SCOPE_SHIFT;
}

static inline uint64_t strata_statistics_without_scope(uint64_t origin)
{
    return origin & ~((uint64_t)UINT32_MAX << STRATA_STATISTICS_SCOPE_SHIFT & UINT32_MAX);
}

static inline strata_tag strata_statistics_origin_tag(uint64_t origin)
{
    return (strata_tag)(origin >> 32);
}

static inline uint32_t strata_statistics_origin_stack(uint64_t origin)
{
    return (uint32_t)origin << (32 - STRATA_STATISTICS_SCOPE_SHIFT) >> (33 - STRATA_STATISTICS_SCOPE_SHIFT);
}

static inline const char *strata_statistics_tag_text(strata_tag tag)
{
    return tag ? strata_tag_name(tag) : NULL;
}

/* ---- operations.c ---- */

extern const strata_resource_ops strata_statistics_ops;

/* Whether the block has a scope or a call stack; also true of 0, which is no block of this layer. */
static inline bool strata_statistics_origin_has_detail(uint64_t origin)
{
    return (uint32_t)origin != 1;
}

/* ---- counters.c ---- */

extern const char strata_statistics_name[]; /* in this layer's ops alone */

/* Begins a public function. Errors: FORKED, INVALID_VALUE for another layer. */
strata_status strata_statistics_enter(strata_resource *resource, strata_statistics **self);

/* Reads a record's counters in a scope. False: the scope is not open. The record `all` has the sum of all tags. */
bool strata_statistics_counters_of(strata_statistics *self, strata_tag_counters_record *record, uint32_t scope,
                                   strata_statistics_counters *out);

uint64_t strata_statistics_failed(const strata_statistics *self);

/* ---- report.c ---- */

extern const strata_value strata_statistics_values[STRATA_STATISTICS_VALUES];
strata_status strata_statistics_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status strata_statistics_set_value(strata_resource *resource, size_t which, uint64_t value);
void strata_statistics_describe(strata_resource *resource, strata_emitter *to);

/* ---- thread_scopes.c ---- */

/* The scope that the thread has entered; NULL: none. */
strata_statistics_scope *strata_statistics_entered(strata_statistics *self);
size_t strata_statistics_entered_bytes(void);

/* Counts an allocation in a scope and those around it. Returns the scope's slot. */
uint32_t strata_statistics_scope_count(strata_statistics_scope *scope, size_t bytes, size_t requested);

/* Called before the free of a block in a scope; then with its outcome. */
strata_statistics_scope *strata_statistics_scope_uncount(strata_statistics *self, uint32_t slot, size_t bytes);
void strata_statistics_scope_freed(strata_statistics_scope *scope, size_t bytes, bool freed);

typedef struct strata_statistics_scope_facts {
    char name[64];
    strata_statistics_counters counters;
} strata_statistics_scope_facts;

/* Finds the next open scope after *slot, initially 0. False: no more. */
bool strata_statistics_next_scope(strata_statistics *self, uint32_t *slot, strata_statistics_scope_facts *facts);
void strata_statistics_end_scopes(strata_statistics *self);

/* ---- stacks.c ---- */

/* Makes room for the call stack's counters, and returns it; 0 for 0, and without host memory. */
uint32_t strata_statistics_stack_open(strata_statistics *self, uint32_t call_stack);

/* Count for an open call stack: after an allocation, before a free, and after a free that failed. */
void strata_statistics_stack_count(strata_statistics *self, uint32_t call_stack, strata_tag tag,
                                   const strata_block *made);
void strata_statistics_stack_uncount(strata_statistics *self, uint32_t call_stack, size_t bytes);
void strata_statistics_stack_live(strata_statistics *self, uint32_t call_stack, size_t bytes);

/* Visits each call stack with allocations so far. */
typedef void strata_statistics_stack_visit(uint32_t call_stack, strata_tag tag,
                                           const strata_statistics_counters *counters, void *data);
void strata_statistics_each_stack(strata_statistics *self, strata_statistics_stack_visit *visit, void *data);

void strata_statistics_reset_stack_peaks(strata_statistics *self);
void strata_statistics_end_stacks(strata_statistics *self);

/* ---- leaks.c ---- */

void strata_statistics_end_refused(strata_resource *resource);

/* Prepares and ends reports at exit. Errors: IO, OUT_OF_HOST_MEMORY. */
strata_status strata_statistics_begin_reports(strata_statistics *self, const strata_statistics_options *options);
void strata_statistics_end_reports(strata_statistics *self);

#endif
