/* `fault`: fails chosen calls, for tests of error paths. A failed call does not reach the layer below and leaves
 * nothing behind.
 *
 * The layer numbers the calls of `operation` from 1; with `larger_than` only calls about more bytes. The numbers alone
 * decide, so a thread that repeats its calls meets the same failures. A call fails if nth, every or per_million says
 * so; if only larger_than is set, every numbered call fails. */
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
    STRATA_FAULT_REAP,       /* a runtime or stack that ends reaps first; it then stays */
    STRATA_FAULT_TRIM,
    STRATA_FAULT_ALL, /* all, in one numbering */
} strata_fault_operation;

/* All zero: nothing fails. */
typedef struct strata_fault_options {
    uint32_t size;
    strata_fault_operation operation;
    strata_status status; /* of a failed call; 0: OUT_OF_MEMORY */
    uint64_t nth;         /* this call; 0: unused */
    uint64_t every;       /* multiples of this number; 0: unused */
    uint64_t per_million; /* this share, chosen by the seed and the call's number */
    uint64_t seed;
    uint64_t larger_than; /* bytes of a request, or of a block as requested; reap and trim have none; 0: all calls */
} strata_fault_options;

/* Makes the layer.
 *
 * Values: nth, every, per_million, larger_than (writable: setting one restarts the numbering), calls (numbered) and
 * failed.
 *
 * Errors: INVALID_VALUE (no such operation or status; per_million above a million). */
STRATA_API strata_status strata_fault_create(const strata_fault_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
