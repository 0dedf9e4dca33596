/* Waits on the host for all work submitted to a stream. */
#ifndef STRATA_CORE_STREAMS_STREAM_WAIT_H
#define STRATA_CORE_STREAMS_STREAM_WAIT_H

#include "core/streams/device.h"

/* Waits for the stream, and records on its timeline that the work is complete. Errors: as of
 * strata_runtime_stream_synchronize. */
strata_status strata_stream_wait(strata_device *device, CUstream handle);

/* For submitted work that cannot be recorded, because of `why`: waits for it instead, where waiting can help. Returns
 * SUCCESS, or `why`; later users of the memory may then miss the work. The caller's attempt is suppressed, and its
 * error raised if this returns one. */
strata_status strata_stream_wait_instead(strata_device *device, CUstream handle, strata_status why);

#endif
