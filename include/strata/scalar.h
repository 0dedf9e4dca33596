/* Scalars: one value in device memory at a fixed address, set from the host in the order of a stream. A launch that was
 * submitted before keeps the old value; no call waits for it. */
#ifndef STRATA_SCALAR_H
#define STRATA_SCALAR_H

#include <strata/ref.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_scalar strata_scalar;

/* Makes a scalar of any element type in memory of the runtime, and sets it as strata_scalar_set does; `value` NULL: to
 * zero. On failure *out is NULL. Errors: those of strata_ref_allocate and strata_scalar_set. */
STRATA_API strata_status strata_scalar_create(strata_runtime *runtime, strata_element type, const void *value,
                                              CUstream stream, strata_scalar **out);

/* Sets the value for work that is submitted to `stream` later, and for launches on other streams that name the scalar
 * later. `value` points to one element and is read before the call returns. Work that was submitted to `stream` before,
 * and launches that named the scalar before, see the old value: the stream waits for them, the host waits for nothing.
 * Without use tracking in the stack only `stream` is ordered.
 *
 * After an error the old value stays; if only recording the write failed, the new one is there. Threads that set one
 * scalar, or set it while another thread prepares a launch with it, are ordered by the program, like writers of one
 * block. Errors: STALE (after a rebuild of the context, a shutdown, or the end of the runtime), STREAM_CAPTURE (the
 * stream is being captured: a graph would repeat this one value at each launch; set it before the graph's launch),
 * INVALID_VALUE, and those of strata_runtime_prepare_block_use. */
STRATA_API strata_status strata_scalar_set(strata_scalar *scalar, const void *value, CUstream stream);

/* As strata_launch_use_ref, for the scalar: the launch gets the value that was set last, and a later set waits for it.
 * Kernels may write the value, too. */
STRATA_API strata_status strata_launch_use_scalar(strata_launch *launch, strata_scalar *scalar, strata_access access);

/* The address, which never changes. Errors: STALE; *out is then 0. */
STRATA_API strata_status strata_scalar_address(const strata_scalar *scalar, CUdeviceptr *out);

/* STRATA_ELEMENT_NONE for NULL. */
STRATA_API strata_element strata_scalar_type(const strata_scalar *scalar);

/* As strata_ref_release, for the scalar's memory: it is freed after every recorded use. NULL is ignored. Another thread
 * uses the scalar no more. */
STRATA_API strata_status strata_scalar_destroy(strata_scalar *scalar);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_scalar_create(runtime, type, value, stream, out) \
    strata_scalar_create(runtime, type, value, strata_stream_as_meant(stream), out)
#define strata_scalar_set(scalar, value, stream) strata_scalar_set(scalar, value, strata_stream_as_meant(stream))
#endif

#ifdef __cplusplus
}
#endif

#endif
