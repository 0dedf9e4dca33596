/* Host buffers: counted memory of the host that requests to a device service (service.h) copy from and to.
 *
 * A request holds a handle of its own while it uses the buffer, and gives that back with its answer. If it is answered
 * while its copy goes on (at a time limit, or at the deadline of a shutdown), it keeps the handle until the copy has
 * ended, and the bytes are not to be used while the buffer has handles beside the caller's. Handles may be passed
 * between threads; the bytes belong to the request from its submission to its answer.
 *
 * Copies from and to plain memory make the service's thread wait, as they do in the driver (CUDA Driver API, "API
 * synchronization behavior"): use page-locked memory, as of strata_service_buffer_create, where requests are many. The
 * memory that an isolated service makes so is not in a child of fork(): reading it there is a segmentation fault. */
#ifndef STRATA_HOST_BUFFER_H
#define STRATA_HOST_BUFFER_H

#include <strata/ref.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_host_buffer strata_host_buffer;

/* Plain memory of `bytes` bytes, zeroed, aligned to 64. Errors: INVALID_VALUE (no bytes), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_host_buffer_create(size_t bytes, strata_host_buffer **out);

/* Ends memory that was wrapped. Called once, on the thread that releases the last handle. */
typedef void (*strata_host_buffer_end)(void *memory, size_t bytes, void *data);

/* Memory of the caller, pinned or plain, such as a buffer of a pool: `end` (may be NULL) is called when the last handle
 * is released. Errors: INVALID_VALUE (no memory or no bytes), OUT_OF_HOST_MEMORY; then it is not called. */
STRATA_API strata_status strata_host_buffer_wrap(void *memory, size_t bytes, strata_host_buffer_end end, void *data,
                                                 strata_host_buffer **out);

/* One more handle of the buffer: returns `buffer`. NULL for NULL. */
STRATA_API strata_host_buffer *strata_host_buffer_clone(strata_host_buffer *buffer);

/* Ends one handle. NULL is ignored. */
STRATA_API void strata_host_buffer_release(strata_host_buffer *buffer);

/* Facts. For NULL: NULL and 0. */
STRATA_API void *strata_host_buffer_memory(const strata_host_buffer *buffer);
STRATA_API size_t strata_host_buffer_bytes(const strata_host_buffer *buffer);

/* How many handles exist, those of requests included; another thread may change it at any time. A thread that sees the
 * number after a handle ended sees what was done before that: with 1 the caller may write the bytes. */
STRATA_API size_t strata_host_buffer_handles(const strata_host_buffer *buffer);

#ifdef __cplusplus
}
#endif

#endif
