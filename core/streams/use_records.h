/* The uses that a call records on a stream, after its work was submitted. */
#ifndef STRATA_CORE_STREAMS_USE_RECORDS_H
#define STRATA_CORE_STREAMS_USE_RECORDS_H

#include "core/streams/known_streams.h"

/* Brackets the use records of one call, after its work was submitted: in between, the stream's point may be stored in
 * blocks. For an unknown stream, the end records the event that covers it, or inside a recording batch the batch's end.
 */
typedef struct strata_use_record {
    strata_stream_ref stream;
    bool held; /* the timeline's lock, until the end */
} strata_use_record;

strata_status strata_use_record_begin_unknown(strata_use_record *record, strata_device *device, CUstream handle);

/* As strata_use_record_begin, for a stream that the caller has identified. */
strata_status strata_use_record_begin_on(strata_use_record *record, const strata_stream_ref *stream);
strata_status strata_use_record_end_slow(strata_use_record *record);

static inline strata_status strata_use_record_begin(strata_use_record *record, strata_device *device, CUstream handle)
{
    strata_timeline *timeline = strata_known_timeline(device, handle);
    record->held = false;
    record->stream = (strata_stream_ref){.timeline = timeline, .device = device, .handle = handle, .known = true};
    return __builtin_expect(timeline != NULL, 1) ? STRATA_SUCCESS
                                                 : strata_use_record_begin_unknown(record, device, handle);
}

static inline strata_status strata_use_record_end(strata_use_record *record)
{
    bool nothing = record->stream.known && !strata_timeline_is_early(record->stream.timeline);
    return __builtin_expect(nothing, 1) ? STRATA_SUCCESS : strata_use_record_end_slow(record);
}

/* Instead of end: nothing was submitted. */
void strata_use_record_cancel(strata_use_record *record);

/* All work submitted so far, as a point that an event covers or can cover. It is of the stream's current timeline,
 * which may differ from that in `stream`. */
strata_status strata_stream_point(const strata_stream_ref *stream, strata_point *point);

/* Whether the record's stream comes after a point. `clock`: from strata_use_record_clock, and given up by
 * strata_use_record_clock_done; in a recording batch it is the batch's. */
bool strata_use_record_follows(const strata_use_record *record, const strata_clock *clock, strata_point point);
strata_clock *strata_use_record_clock(const strata_use_record *record);
void strata_use_record_clock_done(const strata_use_record *record, strata_clock *clock);

/* ---- for core/streams/batches.c ---- */

/* Finds the stream behind a handle. *held: it is unknown, and its timeline is locked. */
strata_status strata_stream_resolve_and_lock(strata_device *device, CUstream handle, strata_stream_ref *stream,
                                             bool *held);

/* Records the event of a known stream with early events, and does nothing for another one, nor if the timeline is
 * another stream's now, since a reset. Without memory for the event it is recorded later: when a wait needs it. */
strata_status strata_timeline_close_early(strata_timeline *timeline, CUstream handle);

#endif
