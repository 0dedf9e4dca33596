/* `prefetch`: moves managed memory to where it will be used, in the order of the using stream (CUDA Driver API,
 * cuMemPrefetchAsync). Over other memory it does nothing.
 *
 * Each block is moved at its allocation, on the request's stream, and with `on_use` at each prepare_use, on that stream
 * after its waits. A move is recorded as a read: it changes no bytes, and a free follows it. */
#ifndef STRATA_PREFETCH_H
#define STRATA_PREFETCH_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_prefetch_to {
    STRATA_PREFETCH_TO_DEVICE = 0, /* the stack's device */
    STRATA_PREFETCH_TO_HOST,
} strata_prefetch_to;

typedef struct strata_prefetch_options {
    uint32_t size;
    strata_prefetch_to to;
    bool on_use; /* also at each prepare_use */
} strata_prefetch_options;

/* Makes the layer. A refused prefetch is counted and fails no call. On a capturing stream nothing is moved.
 *
 * Values: prefetches, failed_prefetches, skipped_prefetches (capturing streams), on_use (writable).
 *
 * Errors: INVALID_VALUE, UNSUPPORTED (the driver lacks cuMemPrefetchAsync of CUDA 12.2). */
STRATA_API strata_status strata_prefetch_create(int ordinal, const strata_prefetch_options *options,
                                                strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
