/* Waits on the host for all work that was submitted to a stream. */
#ifndef STRATA_CORE_STREAMS_STREAM_WAIT_H
#define STRATA_CORE_STREAMS_STREAM_WAIT_H

#include "core/streams/device.h"

/* Waits, and records on the stream's timeline that the work is complete. Errors: as of
 * strata_runtime_stream_synchronize. */
strata_status strata_stream_wait(strata_device *device, CUstream handle);

/* For work that was submitted and cannot be recorded, because of `why`: waits for it, so that there is nothing to
 * record. Returns SUCCESS, or `why` if the wait is not possible; later users of the memory may then miss the work. */
strata_status strata_stream_wait_instead(strata_device *device, CUstream handle, strata_status why);

#endif
