/* A reference: of an allocation, which it then owns, or a view of one. */
#ifndef STRATA_RUNTIME_REFERENCES_H
#define STRATA_RUNTIME_REFERENCES_H

#include "runtime/device_state.h"
#include "runtime/reference_count.h"
#include "runtime/runtime.h"

#include <strata/ref.h>

struct DLManagedTensorVersioned;

struct strata_ref {
    strata_device_record *record; /* held by `whole`; constant once made, as are all up to `read_only` */
    uint64_t word;                /* the record's when the reference was made */
    CUdeviceptr address;
    size_t bytes;
    size_t length;
    strata_element type;
    strata_ref *whole; /* the reference that owns the allocation: itself, or of a view another one, which it holds */
    strata_runtime *runtime; /* exists while the reference does; NULL: the memory is in another process, and has no
                                address here */
    size_t offset;           /* in the memory of `whole`, if that is in another process */
    void (*end)(void *data); /* of `whole`: ends memory in another process; constant, or NULL */
    void *data;
    strata_block block;
    struct DLManagedTensorVersioned *imported; /* of `whole`: whose memory it is; constant, or NULL */
    bool foreign;                              /* imported, and in no block of the stack: uses are not recorded */
    bool read_only;
    _Atomic bool unrecorded;   /* of `whole`: other work than what is recorded may use the memory, since it was exported
                                  or a use could not be noted; set by a holder of it, read after the last release */
    strata_ref *next_deferred; /* after the last release, if the free was refused */
    _Alignas(64) strata_reference_count count;
};

/* A reference without memory; it holds nothing yet. Errors: STALE (shutdown has begun), OUT_OF_HOST_MEMORY. */
strata_status strata_reference_make(strata_runtime *runtime, strata_element type, size_t length, strata_ref **out);

/* A reference to memory in another process, of a state without a device: access gives no address. end(data) is called
 * once, on the thread of the last release, and frees no reference. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY; then it
 * is not called. */
strata_status strata_reference_make_remote(strata_device_state *state, strata_element type, size_t length,
                                           void (*end)(void *data), void *data, strata_ref **out);

/* Raises UNSUPPORTED if the memory is in another process. */
strata_status strata_reference_check_local(const strata_ref *ref, const char *call);

/* Errors: INVALID_VALUE: of the first, no such type, or the bytes overflow; of the second, misaligned elements. */
strata_status strata_element_count_bytes(strata_element type, size_t length, size_t *bytes);
strata_status strata_element_check_alignment(CUdeviceptr address, strata_element type);

/* Ends a prepared write of the whole memory by work of Strata's own. If that was submitted and cannot be noted, the
 * memory is freed after all work of the device. */
strata_status strata_reference_finish_write(strata_ref *ref, CUstream stream, bool submitted);

/* Raises INVALID_VALUE if the access writes read-only memory. */
strata_status strata_reference_check_access(const strata_ref *ref, strata_access access);

/* Ends memory that has no references any more, and the reference itself: frees a block, or gives a tensor back. If a
 * prepared use forbids that, or it fails, it is deferred. */
strata_status strata_reference_free(strata_ref *whole);

/* Tries deferred frees again. The runtime may have ended on return, if it is abandoned. */
void strata_references_free_deferred_slow(strata_runtime *runtime);

static inline void strata_references_free_deferred(strata_runtime *runtime)
{
    if (__builtin_expect(atomic_load_explicit(&runtime->deferred_frees, memory_order_relaxed) != NULL, 0))
        strata_references_free_deferred_slow(runtime);
}

#endif
