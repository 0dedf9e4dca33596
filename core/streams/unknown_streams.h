/* Unknown streams in use, by the driver's id, and the timelines that all streams take. Under the map's lock. */
#ifndef STRATA_CORE_STREAMS_UNKNOWN_STREAMS_H
#define STRATA_CORE_STREAMS_UNKNOWN_STREAMS_H

#include "core/streams/timeline.h"

/* Takes a timeline for a stream. If there is no free one, retires those of complete streams first, also of streams with
 * live blocks. NULL: none is left. */
strata_timeline *strata_unknown_take_timeline(strata_device *device, strata_timeline_kind kind, CUstream handle,
                                              uint64_t id);

/* The timeline of an unknown stream, taken now if the stream *is_new; NULL: none is left, or no host memory. */
strata_timeline *strata_unknown_find_or_take(strata_device *device, uint64_t id, bool *is_new);

/* Removes a stream that becomes known, and returns its timeline; NULL if it was not in use. */
strata_timeline *strata_unknown_take_out(uint64_t id);

/* An entry for a stream that becomes unknown; needs no lock. NULL without host memory. */
typedef struct strata_unknown_stream strata_unknown_stream;
strata_unknown_stream *strata_unknown_prepare(void);
void strata_unknown_drop(strata_unknown_stream *entry);

/* Enters the timeline; false without host memory: the entry is unused. */
bool strata_unknown_enter(strata_unknown_stream *entry, uint64_t id, strata_timeline *timeline);
void strata_unknown_remove(strata_unknown_stream *entry);

/* Retires the timelines of streams that are complete, once enough have come to pay for the look. */
void strata_unknown_sweep_if_due(void);

/* After the reset of a device's context: its streams are gone, and complete. */
void strata_unknown_forget(const strata_device *lost);

#endif
