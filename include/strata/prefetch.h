/* `prefetch`: moves managed memory to where it will be used, on the stream that will use it, before it does
 * (CUDA Driver API, cuMemPrefetchAsync). Over memory that is not managed it passes everything on and does nothing.
 *
 * Each block is moved when it is allocated, on the request's stream, and with `on_use` at each prepare_use, on that
 * stream and behind what that waits for. Moving changes no bytes; it is noted as a read of the block, so that a free
 * comes after it. Text:
 *
 * - prefetch(to=device|host, on_use=on|off) */
#ifndef STRATA_PREFETCH_H
#define STRATA_PREFETCH_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_prefetch_to {
    STRATA_PREFETCH_TO_DEVICE = 0, /* the one that the stack is for */
    STRATA_PREFETCH_TO_HOST,
} strata_prefetch_to;

typedef struct strata_prefetch_options {
    uint32_t size; /* sizeof(strata_prefetch_options), or 0 */
    strata_prefetch_to to;
    bool on_use; /* at each prepare_use too */
} strata_prefetch_options;

/* Makes a prefetching layer for the device `ordinal`, to be built into a stack. NULL options are the defaults.
 *
 * A prefetch that the driver refuses fails nothing: it is counted. On a stream that is being captured nothing is moved.
 *
 * Values: prefetches, failed_prefetches, skipped_prefetches (because of a capture), on_use (writable).
 *
 * Errors: INVALID_VALUE, UNSUPPORTED (the driver has no cuMemPrefetchAsync as of CUDA 12.2), OUT_OF_HOST_MEMORY,
 * DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_prefetch_create(int ordinal, const strata_prefetch_options *options,
                                                strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
