/* Holds on known streams, by a point of theirs: while one is held, its handle stays valid, since the stream cannot be
 * unregistered (BUSY). */
#ifndef STRATA_CORE_STREAMS_STREAM_HOLDS_H
#define STRATA_CORE_STREAMS_STREAM_HOLDS_H

#include "core/streams/timeline.h"

/* Holds the known stream of a point. False if it is unknown now, or has ended. The legacy stream's handle is
 * CU_STREAM_LEGACY. */
bool strata_stream_hold(strata_point point, CUstream *handle);

/* Ends a hold: once for each success, also after the stream ended with its context. */
void strata_stream_unhold(strata_point point);

#endif
