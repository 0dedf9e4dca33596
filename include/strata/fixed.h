/* `fixed`: blocks of one size, cut from larger blocks of the layer below.
 *
 * A request of up to that size gets a whole block, usually one freed on the same stream: without a driver call or a
 * wait. A block freed on another stream is used when its uses and free are known to be complete, or, before more memory
 * is taken, after the requesting stream was made to wait for them. Before a request is refused, the thread waits for
 * what was freed. Larger requests, and those for more than 256 bytes of alignment, go to the layer below. */
#ifndef STRATA_FIXED_H
#define STRATA_FIXED_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* A request above the block size. */
typedef enum strata_fixed_larger {
    STRATA_FIXED_PASS = 0, /* served by the layer below */
    STRATA_FIXED_REFUSE,   /* OUT_OF_MEMORY, as from RMM's fixed_size_memory_resource */
} strata_fixed_larger;

typedef struct strata_fixed_options {
    uint32_t size;
    uint64_t bytes; /* of a block, a multiple of 256 by rounding up; 0: 1 MiB */
    uint64_t chunk; /* bytes taken from below at a time, at least one block; 0: eight blocks, at least 2 MiB */
    strata_fixed_larger larger;
} strata_fixed_options;

/* Makes the layer. Chunks are taken as needed; wholly free ones are returned by a trim, when the layer below has no
 * room, and at the end. Errors: INVALID_VALUE (invalid size or chunk). */
STRATA_API strata_status strata_fixed_create(const strata_fixed_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
