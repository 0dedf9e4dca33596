/* Waits on the host for all work submitted to a stream. */
#ifndef STRATA_CORE_STREAMS_STREAM_WAIT_H
#define STRATA_CORE_STREAMS_STREAM_WAIT_H

#include "core/streams/timeline.h"

/* Waits for the stream, and records on its timeline that the work is complete. Errors: as of
 * strata_runtime_stream_synchronize. */
strata_status strata_stream_wait(strata_device *device, CUstream handle);

/* Whether work that could not be recorded, because of `why`, can be waited for all the same: what was refused for want
 * of memory, of a timeline or of an event. With another status the stream cannot be waited for either, or the call was
 * wrong. */
bool strata_stream_wait_can_help(strata_status why);

/* For submitted work that cannot be recorded, because of `why`: waits for it instead, where waiting can help. Returns
 * SUCCESS, or `why`; the work is then to be left uncovered. The caller's attempt is suppressed, and its
 * error raised if this returns one. */
strata_status strata_stream_wait_instead(strata_device *device, CUstream handle, strata_status why);

/* As strata_stream_wait_instead, for work whose point was stored, but whose event could not be recorded: the point is
 * complete after a success, and as it was after an error. */
strata_status strata_stream_wait_unmarked(const strata_stream_ref *stream, strata_status why);

#endif
