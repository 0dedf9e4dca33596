/* Streams that Strata creates for itself or its users: non-blocking and known from the start. */
#ifndef STRATA_CORE_STREAMS_INTERNAL_STREAM_H
#define STRATA_CORE_STREAMS_INTERNAL_STREAM_H

#include "core/streams/device.h"

/* Creates and registers a stream; `what` it is for goes into the error. On failure nothing is left and *out is NULL. */
strata_status strata_internal_stream_create(strata_device *device, bool early, const char *what, CUstream *out);

/* Unregisters and destroys the stream. *gone: it is no longer registered, so no other try is possible, even if the
 * driver failed to destroy it. */
strata_status strata_internal_stream_destroy(strata_device *device, CUstream stream, bool *gone);

#endif
