/* `pool`: device memory in large pieces, handed out without a driver call.
 *
 * Text:
 *
 * - pool(max_size=SIZE, slack=PERCENT, frame=SIZE, cache=SIZE, wait_for_others=on|off, export=none|fd|fabric)
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
    uint32_t size;     /* sizeof(strata_pool_options), or 0 */
    uint64_t max_size; /* bytes that may be reserved; 0: no limit but the device's */
    uint64_t slack;    /* thousandths of what was live at most that may be reserved beyond it before memory that lies
                          free elsewhere is moved instead; 0: 40 */
    uint64_t frame;    /* bytes of the largest piece of physical memory, rounded up to what the device maps in; 0: 16
                          MiB. Smaller ones can be moved more often, and cost more each time. */
    uint64_t cache;    /* bytes that a thread keeps of a stream for itself; 0: 4 MiB */
    strata_switch wait_for_others;  /* hand out memory that other streams have not finished with, behind a wait: on by
                                       default */
    strata_export_type export_type; /* handle type of the physical memory */
} strata_pool_options;

/* Makes a pool for the device `ordinal`, to be built into a stack. NULL options are the defaults. Errors:
 * INVALID_VALUE, UNSUPPORTED (no virtual memory management), OUT_OF_HOST_MEMORY, DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_pool_create(int ordinal, const strata_pool_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
