/* `failure_callback`: calls the program when memory runs out, and tries again.
 *
 * A callback can spill, shrink a cache, or free blocks, of this stack too. Without a callback (a stack text cannot name
 * one) the layer waits for pending frees, returns all free memory of the layers below to the device (reap with
 * STRATA_REAP_WAIT, trim to 0), and tries again. Text:
 *
 * - failure_callback(retries=N, catch=both|out_of_memory|out_of_budget) */
#ifndef STRATA_FAILURE_CALLBACK_H
#define STRATA_FAILURE_CALLBACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called on the thread whose allocation failed, without a lock, with the request and the failure's record, both valid
 * during the call. True: try again. It may call Strata, this stack too; its own allocations are tried once, without a
 * callback. */
typedef bool (*strata_failure_callback)(const strata_request *request, const strata_error *error, void *data);

/* A bit of `statuses`: this status is caught. */
#define STRATA_FAILURE_BIT(status) (UINT64_C(1) << (unsigned)(status))

typedef struct strata_failure_callback_options {
    uint32_t size;                    /* sizeof(strata_failure_callback_options), or 0 */
    uint32_t retries;                 /* most retries of one request; 0: 1 */
    strata_failure_callback callback; /* NULL: wait for frees and trim */
    void *data;                       /* passed to the callback */
    uint64_t statuses;                /* bits of caught statuses; 0: OUT_OF_MEMORY and OUT_OF_BUDGET */
} strata_failure_callback_options;

/* Makes the layer, to be built into a stack. NULL options: the defaults. A failure that a retry makes good reaches
 * neither the error record nor the log callback; otherwise the last try's failure does.
 *
 * Values: retries (writable); caught: failures caught; retried: retries made; recovered: requests served by a retry.
 *
 * Errors: INVALID_VALUE (bits of no status or of SUCCESS), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_failure_callback_create(const strata_failure_callback_options *options,
                                                        strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
