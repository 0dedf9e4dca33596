/* `fault`: fails chosen calls, for tests of a program's error paths. A failed call does not reach the layer below and
 * leaves nothing behind.
 *
 * The layer numbers the calls of the chosen operation from 1; with `larger_than` only calls about more bytes. The
 * numbers alone decide which calls fail, so a thread that repeats its calls meets the same failures. A call fails if
 * nth, every or per_million says so; if only larger_than is set, every numbered call fails. Text:
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
    STRATA_FAULT_REAP,       /* a runtime or stack that ends reaps first; it is then not destroyed */
    STRATA_FAULT_TRIM,
    STRATA_FAULT_ALL, /* all of these, in one numbering */
} strata_fault_operation;

/* All zero: nothing fails. */
typedef struct strata_fault_options {
    uint32_t size; /* sizeof(strata_fault_options), or 0 */
    strata_fault_operation operation;
    strata_status status; /* status of a failed call; 0: OUT_OF_MEMORY */
    uint64_t nth;         /* this call fails; 0: unused */
    uint64_t every;       /* every multiple of this number fails; 0: unused */
    uint64_t per_million; /* this share of calls fails, chosen by the seed and the call's number */
    uint64_t seed;
    uint64_t larger_than; /* number only calls about more bytes: of a request, or of a block as requested; reap and trim
                             have none. 0: all calls */
} strata_fault_options;

/* Makes the layer, to be built into a stack. NULL options: the defaults.
 *
 * Values: nth, every, per_million, larger_than (writable), calls (numbered) and failed. Setting a writable value
 * restarts the numbering: nth=1 is then the next call.
 *
 * Errors: INVALID_VALUE (no such operation or status; per_million above a million), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_fault_create(const strata_fault_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
