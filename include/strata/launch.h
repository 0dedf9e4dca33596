/* The launch recorder brackets one kernel or copy: begin, use for each block, preflight; if that succeeds, submit the
 * work and commit; end. Work on a block's own stream is recorded too, unless no other stream uses or frees the block. A
 * recorder belongs to one thread from begin to end. */
#ifndef STRATA_LAUNCH_H
#define STRATA_LAUNCH_H

#include <strata/runtime.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_launch_mode {
    STRATA_LAUNCH_STRICT = 0, /* untrackable memory is refused */
    STRATA_LAUNCH_PERMISSIVE, /* untrackable memory is left out and counted */
} strata_launch_mode;

struct strata_ref;

typedef struct strata_launch_entry {
    strata_block block;
    strata_access access;
    struct strata_ref *ref; /* of strata_launch_use_ref (ref.h), or NULL */
} strata_launch_entry;

#define STRATA_LAUNCH_INLINE 8 /* blocks without host memory */

/* The caller provides the storage; members are private. After a copy, only the copy is used and ended. */
typedef struct strata_launch {
    strata_runtime *runtime;
    CUstream stream;
    strata_launch_mode mode;
    int state;
    strata_status failed; /* status of the first failed use; preflight reports it */
    size_t count;
    size_t capacity;
    size_t skipped;               /* uses, in permissive mode */
    size_t refs;                  /* entries that hold a reference */
    bool captured;                /* the stream is being captured by Strata (graph.h) */
    bool of_graph;                /* frees that waited for it are the graph's launch's to make */
    strata_launch_entry *entries; /* NULL while `storage` suffices */
    uint32_t *buckets;            /* positions of entries plus one, by block; NULL while few */
    strata_launch_entry storage[STRATA_LAUNCH_INLINE];
} strata_launch;

/* Starts a recorder for work on `stream`. */
STRATA_API strata_status strata_launch_begin(strata_launch *launch, strata_runtime *runtime, CUstream stream,
                                             strata_launch_mode mode);

/* Names a block that the work reads, writes, or both; a read and a write of one block make READ_WRITE. An empty block
 * is ignored. preflight returns an error of this call again. Errors: USE_AFTER_FREE, FOREIGN_POINTER (in permissive
 * mode only for what was never a block of this stack); in strict mode STREAM_MISUSE. */
STRATA_API strata_status strata_launch_use(strata_launch *launch, const strata_block *block, strata_access access);

/* As strata_launch_use, for the block that contains `address`. */
STRATA_API strata_status strata_launch_use_address(strata_launch *launch, CUdeviceptr address, strata_access access);

/* Uses so far that a permissive launch has left out, until the end. 0 for NULL. */
STRATA_API size_t strata_launch_skipped(const strata_launch *launch);

/* Checks all uses, then makes the stream wait for earlier conflicting work, and pins the blocks. After a failure
 * nothing is recorded or pinned, and the work must not be submitted. Errors: of the uses, and as
 * strata_runtime_prepare_block_use; STALE (a reference). */
STRATA_API strata_status strata_launch_preflight(strata_launch *launch);

/* Records that the work was submitted, with at most one event for all blocks, and unpins them. Errors: as
 * strata_runtime_finish_block_use, of the first block that failed; the others are recorded all the same. */
STRATA_API strata_status strata_launch_commit(strata_launch *launch);

/* Undoes a successful preflight: the work was not submitted. Unpins the blocks. */
STRATA_API strata_status strata_launch_cancel(strata_launch *launch);

/* Ends the recorder. Work that was prepared and neither committed nor cancelled counts as submitted; NOT_COMMITTED is
 * returned and reported. */
STRATA_API strata_status strata_launch_end(strata_launch *launch);

#ifdef STRATA_PER_THREAD_STREAMS
#define strata_launch_begin(launch, runtime, stream, mode) \
    strata_launch_begin(launch, runtime, strata_stream_as_meant(stream), mode)
#endif

#ifdef __cplusplus
}
#endif

#endif
