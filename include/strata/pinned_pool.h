/* Pinned staging: buffers of one capacity in page-locked memory, which come back when the copy that uses them is
 * complete.
 *
 *     strata_pinned_pool_acquire(pool, bytes, STRATA_NEVER, &buffer);
 *     strata_pinned_buffer_view(buffer, STRATA_ELEMENT_F32, &view);
 *     ... fill view.data, copy from view.address on `stream`
 *     strata_pinned_buffer_release_after(buffer, stream);
 *
 * A pool takes its memory from a runtime whose stack ends in `pinned` (pinned.h) and holds buffers that are free.
 * Threads: any thread may call any function; a buffer is one thread's at a time. */
#ifndef STRATA_PINNED_POOL_H
#define STRATA_PINNED_POOL_H

#include <strata/ref.h>
#include <strata/runtime.h>
#include <strata/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_pinned_pool strata_pinned_pool;
typedef struct strata_pinned_buffer strata_pinned_buffer;

typedef struct strata_pinned_pool_options {
    uint32_t size;
    bool allow_oversize; /* requests above the capacity get a buffer of their own, which is freed and not kept */
    size_t capacity;     /* bytes of a buffer; 0: 4 MiB */
    uint32_t initial;    /* buffers made at first; 0: 4, or `most` if that is less */
    uint32_t most;       /* buffers at once; 0: 32 */
    const char *name;    /* the tag of its blocks; NULL: "pinned pool" */
} strata_pinned_pool_options;

/* Makes a pool with its first buffers. NULL options: the defaults. The runtime outlives it. Errors: INVALID_VALUE
 * (`initial` above `most`; the runtime's memory is not the host's), and those of strata_runtime_allocate. */
STRATA_API strata_status strata_pinned_pool_create(strata_runtime *runtime, const strata_pinned_pool_options *options,
                                                   strata_pinned_pool **out);

/* Waits for the work behind released buffers, frees all, and destroys the pool. No other call with it is in flight.
 * Errors: BUSY without effect (buffers are out); after those of strata_runtime_deallocate the pool exists, and the next
 * call continues. NULL is ignored. */
STRATA_API strata_status strata_pinned_pool_destroy(strata_pinned_pool *pool);

/* Gives a buffer with room for `bytes`, whose contents are undefined; no work uses it. If none is free: one whose work
 * has finished, else another one is made, else the thread waits, at most `timeout` nanoseconds (0: not at all;
 * STRATA_NEVER: however long). Errors: INVALID_VALUE (above the capacity, without allow_oversize), TIMEOUT (none was
 * free in time), and those of strata_runtime_allocate, such as OUT_OF_MEMORY, which are not waited for. On failure *out
 * is NULL. */
STRATA_API strata_status strata_pinned_pool_acquire(strata_pinned_pool *pool, size_t bytes, uint64_t timeout,
                                                    strata_pinned_buffer **out);

/* Returns a buffer that no work uses. Errors: DOUBLE_FREE (it is not out; not noticed of a buffer that was freed). NULL
 * is ignored. */
STRATA_API strata_status strata_pinned_buffer_release(strata_pinned_buffer *buffer);

/* Returns a buffer that work submitted to `stream` so far uses: it is given out again when that work is complete. Waits
 * for nothing. An error leaves the buffer the caller's: STREAM_CAPTURE (the stream is being captured), DOUBLE_FREE,
 * OUT_OF_HOST_MEMORY, DRIVER. NULL is ignored. */
STRATA_API strata_status strata_pinned_buffer_release_after(strata_pinned_buffer *buffer, CUstream stream);

/* The context was rebuilt, or all buffers are to be replaced: those of before are freed and not kept, free ones now and
 * the others when they come back; they do not count towards `most`. A bump of the runtime's device state
 * (device_state.h) does the same. */
STRATA_API strata_status strata_pinned_pool_bump(strata_pinned_pool *pool);

/* A buffer as an array. */
typedef struct strata_pinned_view {
    void *data;          /* for the host */
    CUdeviceptr address; /* for the device: the same address */
    size_t len;          /* elements in use */
    size_t capacity;     /* elements that fit */
    strata_element type;
    uint64_t generation; /* of the pool when the buffer was made */
} strata_pinned_view;

/* Fills *out; `len` is at first what acquire was asked for. Errors: INVALID_VALUE (no such type; the bytes in use are
 * no whole number of elements). */
STRATA_API strata_status strata_pinned_buffer_view(const strata_pinned_buffer *buffer, strata_element type,
                                                   strata_pinned_view *out);

/* Sets how many elements are in use. Errors: INVALID_VALUE (no such type; above the capacity). */
STRATA_API strata_status strata_pinned_buffer_set_len(strata_pinned_buffer *buffer, strata_element type, size_t len);

/* Consistent with one another. */
typedef struct strata_pinned_pool_stats {
    size_t capacity;                              /* bytes of a buffer */
    size_t in_use;                                /* buffers out; oversize and earlier ones too, as in the next four */
    size_t pending;                               /* released, behind work that is not known to be complete */
    size_t free;                                  /* at hand */
    size_t total;                                 /* the sum */
    size_t bytes;                                 /* of all */
    size_t oversize;                              /* of `in_use` and `pending`: larger than the capacity */
    uint64_t generation;                          /* of buffers that are made now */
    uint64_t acquired, waited, timeouts, refused; /* requests so far */
} strata_pinned_pool_stats;

/* Fills *out, after a look at the work behind released buffers. */
STRATA_API strata_status strata_pinned_pool_get_stats(strata_pinned_pool *pool, strata_pinned_pool_stats *out);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_pinned_buffer_release_after(buffer, stream) \
    strata_pinned_buffer_release_after(buffer, strata_stream_as_meant(stream))
#endif

#ifdef __cplusplus
}
#endif

#endif
