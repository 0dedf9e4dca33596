/* `failure_callback`: asks the program what to do when there is no memory, and tries again.
 *
 * A callback can spill, shrink a cache, or free blocks, through this stack too. Without a callback, which no stack text
 * can name, the layer does what can always be done: it waits for the frees that are pending, gives everything that is
 * free back to the device (reap with STRATA_REAP_WAIT, trim to 0, of the layers below), and tries again. Text:
 *
 * - failure_callback(retries=N, catch=both|out_of_memory|out_of_budget) */
#ifndef STRATA_FAILURE_CALLBACK_H
#define STRATA_FAILURE_CALLBACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called on the thread whose allocation failed, with no lock held, and with the request and the record of the failure,
 * both good during the call. True: try again. It may call Strata, this stack too; what it allocates itself is tried
 * once, without a callback. */
typedef bool (*strata_failure_callback)(const strata_request *request, const strata_error *error, void *data);

/* In `statuses`: this status is caught. */
#define STRATA_FAILURE_BIT(status) (UINT64_C(1) << (unsigned)(status))

typedef struct strata_failure_callback_options {
    uint32_t size;                    /* sizeof(strata_failure_callback_options), or 0 */
    uint32_t retries;                 /* most further tries of one request; 0: 1 */
    strata_failure_callback callback; /* NULL: wait for frees, trim, and try again */
    void *data;                       /* passed to it */
    uint64_t statuses;                /* bits of what is caught; 0: OUT_OF_MEMORY and OUT_OF_BUDGET */
} strata_failure_callback_options;

/* Makes such a layer, to be built into a stack. NULL options are the defaults. A failure that is caught and made good
 * reaches neither the error record nor the log callback; otherwise the last try's does, as if there were no layer.
 *
 * Values: retries (writable), caught, retried, recovered: failures that were caught, further tries that were made,
 * requests that were served by one of these.
 *
 * Errors: INVALID_VALUE (bits of no status, or that of SUCCESS), OUT_OF_HOST_MEMORY. */
STRATA_API strata_status strata_failure_callback_create(const strata_failure_callback_options *options,
                                                        strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
