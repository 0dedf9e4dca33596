/* The layer's structs, and what its files share. */
#ifndef STRATA_RESOURCES_LOGGING_INTERNAL_H
#define STRATA_RESOURCES_LOGGING_INTERNAL_H

#include "core/stack/stack.h"
#include "resources/logging/writer.h"

enum { LOGGING_VALUES = 6 };

/* What the layer keeps of a block, for reports of the owner, where that one's own address and size may be others.
 * Atomic, because the entry may become another block's while they are read; then they are not used. */
typedef struct block_facts {
    _Atomic uint64_t address, requested;
} block_facts;

typedef struct logging {
    strata_resource resource;
    strata_device *device;
    _Atomic bool enabled; /* any thread */
    _Atomic bool fast;    /* enabled, without durations, and stamps are simple: written with that */
    bool duration;        /* constant */
    bool stores_facts;    /* blocks have other facts in the table than in this layer; set when the stack is built */
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

/* Sets whether calls are recorded, and how. */
void logging_enable(logging *self, bool enabled);

#endif
