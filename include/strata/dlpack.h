/* References as DLPack tensors, and DLPack tensors as references, without a copy. Version 1.3 of the standard:
 * https://dmlc.github.io/dlpack/latest/.
 *
 * The struct is complete in strata/dlpack_types.h, and in DLPack's own header; this one needs neither. */
#ifndef STRATA_DLPACK_H
#define STRATA_DLPACK_H

#include <strata/launch.h>
#include <strata/ref.h>

#ifdef __cplusplus
extern "C" {
#endif

struct DLManagedTensorVersioned;

/* Streams as DLPack numbers them: other values above 2 are handles; 0 is forbidden. */
#define STRATA_DLPACK_STREAM_NONE       (-1) /* no order: the program has made one */
#define STRATA_DLPACK_STREAM_LEGACY     1    /* the legacy default stream; for Python's None, too */
#define STRATA_DLPACK_STREAM_PER_THREAD 2    /* the calling thread's default stream */

typedef struct strata_dlpack_options {
    size_t size;          /* sizeof this struct */
    const int64_t *shape; /* NULL: one dimension of all elements. Copied */
    int32_t ndim;         /* entries of `shape`; 0 is a single element */
    bool read_only;       /* consumers must not write */
} strata_dlpack_options;

/* Makes a tensor of the reference's memory, compact, with a reference of its own. Work that is submitted to `stream`
 * later, and only that, comes after all recorded uses of the memory, of read_only tensors after the last write.
 * `options` may be NULL.
 *
 * The consumer calls the tensor's deleter once, on any thread; its work is not recorded. So the memory of a reference
 * that was ever exported is freed after everything submitted to the device so far, whichever reference is the last:
 * that release waits on the host for the device, at the next opportunity if it may not wait (in a host function), and
 * every capture survives it. Work of Strata's that shall come after a consumer's is ordered by the program.
 *
 * Of a stale reference the deleter works as strata_ref_release does. In a forked child it does nothing. Errors, with
 * *out NULL: INVALID_VALUE (`stream`; the shape has another number of elements, or more than 32 dimensions), STALE,
 * STREAM_CAPTURE, STREAM_MISUSE (the stack or the memory is not tracked: only STREAM_NONE), OUT_OF_HOST_MEMORY,
 * DRIVER. */
STRATA_API strata_status strata_ref_export_dlpack(strata_ref *ref, int64_t stream, const strata_dlpack_options *options,
                                                  struct DLManagedTensorVersioned **out);

/* Makes a reference to a tensor's memory, which it keeps until the last release calls the deleter. The tensor is
 * compact, on the runtime's device or in pinned or managed memory, of an element type, or of bool, which is U8.
 *
 * Memory of the runtime's own stack is used as by any reference. Other memory is *foreign*: its uses are not recorded.
 * A strict launch refuses the reference, a permissive one leaves it out, strata_ref_record_write and
 * strata_ref_last_write_stream answer STREAM_MISUSE. It is good for work on the stream for which the producer exported
 * it, and on streams that the program orders after that one. The producer knows nothing of such work, so the last
 * release waits on the host for everything submitted to the device so far, as above, and then calls the deleter: on the
 * releasing thread, or within a call that tries frees again.
 *
 * A tensor with the read-only flag makes references that launches and record_write refuse to write. After an error the
 * tensor is the caller's; of another major version nothing but the deleter may be used. Errors, with *out NULL:
 * UNSUPPORTED (another major version, an element type, lanes, device type, or layout that no reference has),
 * INVALID_VALUE (no memory; a negative, overflowing or missing shape or strides; misaligned; the elements exceed their
 * block), WRONG_DEVICE, STALE (shutdown has begun), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_ref_import_dlpack(strata_runtime *runtime, struct DLManagedTensorVersioned *tensor,
                                                  strata_ref **out);

/* Whether the reference is of a read-only tensor, or a view of such. False for NULL. */
STRATA_API bool strata_ref_is_read_only(const strata_ref *ref);

/* As strata_launch_use_address, for the memory of a tensor, of any owner. One without elements is ignored. Strict
 * launches refuse what is in no block of the stack, permissive ones leave it out and count it. Errors: those of
 * strata_launch_use_address, UNSUPPORTED and INVALID_VALUE as strata_ref_import_dlpack; also INVALID_VALUE (`access`
 * writes a read-only tensor). Any strides are allowed. */
STRATA_API strata_status strata_launch_use_dlpack(strata_launch *launch, const struct DLManagedTensorVersioned *tensor,
                                                  strata_access access);

#ifdef __cplusplus
}
#endif

#endif
