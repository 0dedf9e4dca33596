/* `failure_callback`: calls the program when memory runs out, to spill, shrink a cache or free blocks, and tries again.
 * Without a callback (a text cannot name one) the layer waits for pending frees, returns all free memory of the layers
 * below to the device (reap with STRATA_REAP_WAIT, trim to 0), and tries again. */
#ifndef STRATA_FAILURE_CALLBACK_H
#define STRATA_FAILURE_CALLBACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Called on the thread whose allocation failed, without a lock; the arguments are valid during the call. True: try
 * again. It may call Strata, this stack too; its own allocations through this layer are tried once, without this
 * callback. Callbacks of other layers are called. */
typedef bool (*strata_failure_callback)(const strata_request *request, const strata_error *error, void *data);

/* The bit of `statuses` for a status. */
#define STRATA_FAILURE_BIT(status) (UINT64_C(1) << (unsigned)(status))

typedef struct strata_failure_callback_options {
    uint32_t size;
    uint32_t retries;                 /* most retries of a request; 0: 1 */
    strata_failure_callback callback; /* NULL: wait for frees and trim */
    void *data;
    uint64_t statuses; /* bits of caught ones; 0: OUT_OF_MEMORY and OUT_OF_BUDGET */
} strata_failure_callback_options;

/* Makes the layer. A failure that a retry makes good reaches neither the error record nor the log callback; otherwise
 * the last try's failure does.
 *
 * Values: retries (writable); caught: failures caught; retried: retries made; recovered: requests served by a retry.
 *
 * Errors: INVALID_VALUE (bits of no status or of SUCCESS). */
STRATA_API strata_status strata_failure_callback_create(const strata_failure_callback_options *options,
                                                        strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
