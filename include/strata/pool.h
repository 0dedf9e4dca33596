/* `pool`: device memory in large pieces, handed out without a driver call.
 *
 * Text:
 *
 * - pool(initial_size=SIZE, max_size=SIZE, slack=THOUSANDTHS, frame=SIZE, cache=SIZE, release_threshold=SIZE,
 *   release_all=on|off, decay=DURATION, opportunistic=default|on|off, follow_event_dependencies=default|on|off,
 *   internal_dependencies=default|on|off, deterministic=on|off, export=none|fd|fabric)
 *
 * A freed block is free memory at once: for the stream on which it was freed without more ado, for others after a wait
 * that the pool puts in where it is needed. Whatever was noted of the block's uses goes with the memory. */
#ifndef STRATA_POOL_H
#define STRATA_POOL_H

#include <strata/async.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero is the default. */
typedef struct strata_pool_options {
    uint32_t size;         /* sizeof(strata_pool_options), or 0 */
    uint64_t initial_size; /* bytes reserved with the first request */
    uint64_t max_size;     /* bytes that may be reserved; 0: no limit but the device's */
    uint64_t slack; /* thousandths of what was live at most that may be reserved beyond it before memory that lies
                       free elsewhere is moved instead; 0: 44 */
    uint64_t frame; /* bytes of the largest piece of physical memory, rounded up to what the device maps in; 0: 16
                       MiB. Smaller ones can be moved more often, and cost more each time. */
    uint64_t cache; /* bytes that a thread keeps of a stream for itself; 0: 4 MiB */
    uint64_t release_threshold; /* bytes that stay reserved when the program waits for all frees
                                   (strata_runtime_reap_pending): what is free beyond them is given back to the device
                                   then, and at no other time; 0: nothing is */
    bool release_all;           /* everything that is free is, instead of a threshold */
    uint64_t decay; /* nanoseconds. Of the memory that lay unused for so long half is given back, of what then lies
                       unused for so long half again, and so on, down to release_threshold. 0: never. */
    /* What a stream gets of the memory that others have freed, by the names that the driver's pools have for it. All on
     * by default. */
    strata_switch follow_event_dependencies; /* what it has waited for already */
    strata_switch opportunistic;             /* what is found to be complete */
    strata_switch internal_dependencies;     /* what is not, behind a wait that the pool puts in */
    bool deterministic; /* the same calls in the same order, made by one thread, give the same addresses, counted from
                           the pool's first one: nothing depends on how far the device is or on the clock, so that
                           there can be no decay */
    strata_export_type export_type; /* handle type of the physical memory */
} strata_pool_options;

/* Makes a pool for the device `ordinal`, to be built into a stack. NULL options are the defaults. Errors:
 * INVALID_VALUE, UNSUPPORTED (no virtual memory management), OUT_OF_HOST_MEMORY,
 * DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_pool_create(int ordinal, const strata_pool_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
