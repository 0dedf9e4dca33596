/* Streams that Strata creates for itself or its users: non-blocking and known from the start. */
#ifndef STRATA_CORE_STREAMS_INTERNAL_STREAMS_H
#define STRATA_CORE_STREAMS_INTERNAL_STREAMS_H

#include "core/streams/device.h"

/* Creates and registers a stream; `early`: with early events. `what` names it in an error. *out is NULL on failure. */
strata_status strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out);

/* Destroys such a stream; asks the driver about a reset, which has ended it. *gone: it is no longer registered, so
 * there is nothing to try again, even if the driver failed to destroy it. */
strata_status strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone);

#endif
