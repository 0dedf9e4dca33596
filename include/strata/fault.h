/* `fault`: fails chosen calls on purpose, for tests of what a program does then. What it fails never reaches the layer
 * below and leaves nothing behind.
 *
 * It looks at the calls of the operation that is chosen, and with `larger_than` only at those about more bytes. They
 * are numbered from 1 on; which fail is told by these numbers and nothing else, so one thread that makes the same calls
 * meets the same failures. A call fails if one of nth, every and per_million says so; if none of them is set but
 * larger_than is, all of them do. Text:
 *
 * - fault(operation=allocate|deallocate|prepare|reap|trim|all, nth=N, every=N, per_million=N, seed=N, larger_than=SIZE,
 *   status=out_of_memory|out_of_budget|driver) */
#ifndef STRATA_FAULT_H
#define STRATA_FAULT_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_fault_operation {
    STRATA_FAULT_ALLOCATE = 0,
    STRATA_FAULT_DEALLOCATE, /* the block stays live */
    STRATA_FAULT_PREPARE,    /* prepare_use: nothing is pinned */
    STRATA_FAULT_REAP,       /* a runtime or stack that ends reaps first, and does not end then */
    STRATA_FAULT_TRIM,
    STRATA_FAULT_ALL, /* each of them, in one numbering */
} strata_fault_operation;

/* All zero: nothing fails. */
typedef struct strata_fault_options {
    uint32_t size; /* sizeof(strata_fault_options), or 0 */
    strata_fault_operation operation;
    strata_status status; /* what a failure answers; 0: OUT_OF_MEMORY */
    uint64_t nth;         /* this call fails; 0: none by this rule */
    uint64_t every;       /* each call whose number is a multiple fails; 0: none by this rule */
    uint64_t per_million; /* so many of a million calls fail, by dice that the seed and a call's number throw */
    uint64_t seed;
    uint64_t larger_than; /* only calls about more bytes are numbered: of a request, or of a block as it was requested.
                             reap and trim are about none. 0: all calls */
} strata_fault_options;

/* Makes such a layer, to be built into a stack. NULL options are the defaults.
 *
 * Values: nth, every, per_million, larger_than (writable), calls (how many were numbered) and failed. Setting one of
 * the first four begins a new numbering, so that nth=1 means the next call.
 *
 * Errors: INVALID_VALUE (no such operation or status; per_million above a million), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_fault_create(const strata_fault_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
