/* Time stamps for hot paths.
 *
 * A stamp is the processor's time stamp counter if that is invariant and trusted, else CLOCK_MONOTONIC. Readers
 * interpolate between points, pairs of a stamp and the clocks. */
#ifndef STRATA_CORE_BASE_TIMESTAMP_H
#define STRATA_CORE_BASE_TIMESTAMP_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Written by strata_timestamp_start, before the first stamp. */
extern bool strata_timestamp_is_counter;

/* Any thread. */
void strata_timestamp_start(void);

static inline uint64_t strata_timestamp_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The monotonic clock, some milliseconds old, in a few nanoseconds. */
static inline uint64_t strata_timestamp_coarse(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The stamp may be some 100 ns too old: the processor may read the counter before earlier loads (Intel SDM, RDTSC), and
 * a fence would double the cost. Of two records in different threads that are closer than this, either may have the
 * lower stamp. */
static inline uint64_t strata_timestamp_now(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(strata_timestamp_is_counter, 1))
        return __rdtsc();
#endif
    return strata_timestamp_clock();
}

/* Whether strata_timestamp_simple may be called: false only on an x86-64 with an untrusted counter. */
static inline bool strata_timestamp_is_simple(void)
{
#if defined(__x86_64__)
    return strata_timestamp_is_counter;
#else
    return true;
#endif
}

/* strata_timestamp_now, if strata_timestamp_is_simple. No branch; on x86-64 no call. */
static inline uint64_t strata_timestamp_simple(void)
{
#if defined(__x86_64__)
    return __rdtsc();
#else
    return strata_timestamp_clock();
#endif
}

typedef struct strata_timestamp_point {
    uint64_t stamp;
    uint64_t monotonic_ns;
    uint64_t wall_ns;
} strata_timestamp_point;

void strata_timestamp_take_point(strata_timestamp_point *point);

/* Nanoseconds per tick between two points; 1 for equal points. */
double strata_timestamp_rate(const strata_timestamp_point *from, const strata_timestamp_point *to);

/* `rate`: nanoseconds per tick. */
static inline uint64_t strata_timestamp_time(const strata_timestamp_point *point, double rate, uint64_t stamp)
{
    double away = (double)(int64_t)(stamp - point->stamp) * rate;
    return point->monotonic_ns + (uint64_t)(int64_t)away;
}

#endif
