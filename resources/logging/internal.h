/* The logging layer, and what its files share. */
#ifndef STRATA_RESOURCES_LOGGING_INTERNAL_H
#define STRATA_RESOURCES_LOGGING_INTERNAL_H

#include "core/stack/fuse.h"
#include "resources/logging/writer.h"

enum { LOGGING_VALUES = 6 };

/* This layer's view of a block, for the owner's completions. Atomic: an entry may be reused while it is read; the
 * values are then unused. */
typedef struct block_facts {
    _Atomic uint64_t address, requested;
} block_facts;

typedef struct logging {
    strata_resource resource;
    strata_fused fused;
    strata_device *device;
    _Atomic bool enabled; /* any thread */
    _Atomic bool fast;    /* enabled, no durations, simple timestamps; written with `enabled` */
    bool duration;        /* constant */
    bool internal;        /* records reaps and trims that the program did not ask for; constant */
    bool stores_facts;    /* this layer's view of a block differs from the table's; set in begin */
    log_writer writer;
} logging;

/* ---- operations.c ---- */

extern const strata_resource_ops logging_ops_without_uses, logging_ops_with_uses;

void logging_destroy(strata_resource *resource);

/* ---- report.c ---- */

extern const strata_value logging_values[LOGGING_VALUES];
strata_status logging_get(strata_resource *resource, size_t which, uint64_t *value);
strata_status logging_set(strata_resource *resource, size_t which, uint64_t value);
void logging_describe(strata_resource *resource, strata_emitter *to);

/* Sets `enabled` and `fast`. */
void logging_enable(logging *self, bool enabled);

#endif
