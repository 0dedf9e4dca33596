/* Points and clocks: how far streams are, and what they come after.
 *
 * Each stream has a timeline. Its *epoch* advances when an event is recorded on the stream, or the stream is queried
 * or waited for: what ended epoch n covers the work submitted in epoch n and before. A *point* is a timeline's number
 * and an epoch in one word, "all work submitted to that stream up to here". Epochs of a number never repeat, so a point
 * of a destroyed stream compares as complete.
 *
 * A *clock* is what a stream has waited for: at most one point for each timeline. It is immutable once shared,
 * and reference-counted. */
#ifndef STRATA_CORE_STREAMS_CLOCK_H
#define STRATA_CORE_STREAMS_CLOCK_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

/* 16 bits timeline, 1 bit "the use writes", 47 bits epoch. 0 is no point. */
typedef uint64_t strata_point;

#define STRATA_POINT_WRITE      (UINT64_C(1) << 47)
#define STRATA_POINT_EPOCH_MASK (STRATA_POINT_WRITE - 1)

static inline strata_point strata_point_make(uint16_t timeline, uint64_t epoch)
{
    return (uint64_t)timeline << 48 | epoch;
}

static inline uint16_t strata_point_timeline(strata_point point)
{
    return (uint16_t)(point >> 48);
}

static inline uint64_t strata_point_epoch(strata_point point)
{
    return point & STRATA_POINT_EPOCH_MASK;
}

static inline bool strata_point_writes(strata_point point)
{
    return (point & STRATA_POINT_WRITE) != 0;
}

typedef struct strata_clock {
    _Atomic uint32_t refs;
    uint32_t count;
    strata_point points[]; /* ascending timelines, without the write bit */
} strata_clock;

/* NULL is the empty clock. Any thread. */
strata_clock *strata_clock_ref(strata_clock *clock);
void strata_clock_unref(strata_clock *clock);

/* Whether a stream with this clock comes after `point`. */
bool strata_clock_covers(const strata_clock *clock, strata_point point);

/* A new clock with the points of `a`, `b` and `point` for which forget(point) is false. NULL without host memory: a
 * smaller clock is always correct. */
strata_clock *strata_clock_merge(const strata_clock *a, const strata_clock *b, strata_point point,
                                 bool (*forget)(strata_point point));

#endif
