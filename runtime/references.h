/* A reference: of an allocation, which it then owns, or a view of one. */
#ifndef STRATA_RUNTIME_REFERENCES_H
#define STRATA_RUNTIME_REFERENCES_H

#include "runtime/device_state.h"
#include "runtime/reference_count.h"
#include "runtime/runtime.h"

#include <strata/ref.h>

struct strata_ref {
    strata_device_record *record; /* held by `whole`; these are constant */
    uint64_t word;                /* of the record when the memory was current */
    CUdeviceptr address;
    size_t bytes;
    size_t length;
    strata_element type;
    strata_ref *whole; /* the reference that owns the allocation: itself, or of a view another one, which it holds */
    strata_runtime *runtime; /* exists while the reference does */
    strata_block block;
    strata_ref *next_deferred; /* after the last release, if the free was refused */
    _Alignas(64) strata_reference_count count;
};

/* Frees the memory of an allocation without references, and the reference; if a prepared use forbids that, or the free
 * fails, later. */
strata_status strata_reference_free(strata_ref *whole);

/* Tries deferred frees again. The runtime may have ended on return, if it is abandoned. */
void strata_references_free_deferred_slow(strata_runtime *runtime);

static inline void strata_references_free_deferred(strata_runtime *runtime)
{
    if (__builtin_expect(atomic_load_explicit(&runtime->deferred_frees, memory_order_relaxed) != NULL, 0))
        strata_references_free_deferred_slow(runtime);
}

#endif
