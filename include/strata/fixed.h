/* `fixed`: blocks of one size, cut from larger ones of the layer below.
 *
 * A request for up to that size gets a whole block of it, mostly one that was freed on the same stream before: without
 * a driver call and without a wait. A block that was freed on another stream is handed out when its uses and its free
 * are known complete, or, rather than take more memory, after the stream of the request was made to wait for them.
 * Where no more is to be had, the thread waits for what was freed before a request is refused. Larger requests, and
 * such as ask for more than 256 bytes of alignment, go to the layer below. Text:
 *
 * - fixed(bytes=SIZE, chunk=SIZE, larger=pass|refuse) */
#ifndef STRATA_FIXED_H
#define STRATA_FIXED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* What becomes of a request for more than a block. */
typedef enum strata_fixed_larger {
    STRATA_FIXED_PASS = 0, /* the layer below serves it */
    STRATA_FIXED_REFUSE,   /* OUT_OF_MEMORY, as from RMM's fixed_size_memory_resource */
} strata_fixed_larger;

typedef struct strata_fixed_options {
    uint32_t size;  /* sizeof(strata_fixed_options), or 0 */
    uint64_t bytes; /* of each block, rounded up to a multiple of 256; 0: 1 MiB */
    uint64_t chunk; /* bytes that are taken from the layer below at a time, at least those of a block; 0: eight blocks,
                       or 2 MiB if that is more */
    strata_fixed_larger larger;
} strata_fixed_options;

/* Makes a layer of blocks of one size, to be built into a stack. NULL options are the defaults. Chunks are taken as
 * they are needed; those of which nothing is in use go back with a trim, where the layer below has no room, and at the
 * end. Errors: INVALID_VALUE (a size or a chunk that cannot be), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_fixed_create(const strata_fixed_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
