/* Streams that Strata makes for itself or its users: non-blocking, and known from the start. */
#ifndef STRATA_CORE_STREAMS_INTERNAL_STREAM_H
#define STRATA_CORE_STREAMS_INTERNAL_STREAM_H

#include "core/streams/device.h"

/* Makes a stream and registers it; `what` it is for stands in the error. Nothing is left on failure, *out is NULL. */
strata_status strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out);

/* Unregisters the stream and destroys it. *gone: it is not registered any more, so that there is nothing left to try
 * again, even if the driver would not destroy it. */
strata_status strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone);

#endif
