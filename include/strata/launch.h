/* The launch recorder: brackets one kernel or copy.
 *
 *     strata_launch launch;
 *     strata_launch_begin(&launch, runtime, stream, STRATA_LAUNCH_STRICT);
 *     strata_launch_use(&launch, &input, STRATA_ACCESS_READ);
 *     strata_launch_use(&launch, &output, STRATA_ACCESS_WRITE);
 *     if (strata_launch_preflight(&launch) == STRATA_SUCCESS) {
 *         cuLaunchKernel(..., stream, ...);
 *         strata_launch_commit(&launch);
 *     }
 *     strata_launch_end(&launch);
 *
 * Work on a block's own stream is recorded too, unless no other stream ever uses or frees the block. A recorder belongs
 * to one thread from begin to end. */
#ifndef STRATA_LAUNCH_H
#define STRATA_LAUNCH_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_launch_mode {
    STRATA_LAUNCH_STRICT = 0, /* memory that cannot be tracked is refused */
    STRATA_LAUNCH_PERMISSIVE, /* memory that cannot be tracked is skipped */
} strata_launch_mode;

typedef struct strata_launch_entry {
    strata_block block;
    strata_access access;
} strata_launch_entry;

#define STRATA_LAUNCH_INLINE 8 /* blocks that need no host memory */

/* The caller provides the storage; the members are the library's. A recorder may be returned by value or copied to
 * another place: from then on only the copy is used, and only the copy is ended. */
typedef struct strata_launch {
    strata_runtime *runtime;
    CUstream stream;
    strata_launch_mode mode;
    int state;
    strata_status failed; /* of the first use that could not be named, reported by preflight */
    size_t count;
    size_t capacity;
    size_t skipped;               /* uses that permissive mode left out */
    strata_launch_entry *entries; /* NULL while they fit into `storage` */
    uint32_t *buckets;            /* positions of entries, plus one, by block; NULL while there are few */
    strata_launch_entry storage[STRATA_LAUNCH_INLINE];
} strata_launch;

/* Starts a recorder for one piece of work on `stream`. Errors: INVALID_VALUE. */
STRATA_API strata_status strata_launch_begin(strata_launch *launch, strata_runtime *runtime, CUstream stream,
                                             strata_launch_mode mode);

/* Names a block that the work reads, writes, or both. A block named twice counts once, with the stronger access: a read
 * and a write make READ_WRITE. An empty block is ignored. An error is returned here and by preflight again. Errors:
 * INVALID_VALUE, USE_AFTER_FREE, FOREIGN_POINTER (in permissive mode only for what was never a block of this stack),
 * and in strict mode STREAM_MISUSE. */
STRATA_API strata_status strata_launch_use(strata_launch *launch, const strata_block *block, strata_access access);

/* The same for memory of which only an address is at hand, interior ones included. */
STRATA_API strata_status strata_launch_use_address(strata_launch *launch, CUdeviceptr address, strata_access access);

/* Checks everything, then makes the stream wait for what the work must come after. After a failure no use is noted and
 * nothing pinned, and the work must not be submitted. */
STRATA_API strata_status strata_launch_preflight(strata_launch *launch);

/* Notes that the work has been submitted. At most one event is recorded, however many blocks there are. */
STRATA_API strata_status strata_launch_commit(strata_launch *launch);

/* Takes a successful preflight back: the work was not submitted. */
STRATA_API strata_status strata_launch_cancel(strata_launch *launch);

/* Ends the recorder. If it was prepared and neither committed nor cancelled, the work counts as submitted, since it may
 * be running, and NOT_COMMITTED is returned and reported. */
STRATA_API strata_status strata_launch_end(strata_launch *launch);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_launch_begin(launch, runtime, stream, mode) \
    strata_launch_begin(launch, runtime, strata_stream_as_meant(stream), mode)
#endif

#ifdef __cplusplus
}
#endif

#endif
