/* Time stamps for hot paths, and what they mean.
 *
 * A stamp is the processor's time stamp counter where that runs at one rate on all cores, else CLOCK_MONOTONIC. It says
 * nothing by itself: whoever collects stamps takes points, pairs of a stamp and the clocks, again and again, and a
 * stamp's time is found between two of them. */
#ifndef STRATA_CORE_BASE_TIMESTAMP_H
#define STRATA_CORE_BASE_TIMESTAMP_H

#include <stdbool.h>
#include <stdint.h>
#include <time.h>

#if defined(__x86_64__)
#include <x86intrin.h>
#endif

/* Whether stamps are the processor's; written by strata_timestamp_start, before the first stamp. */
extern bool strata_timestamp_is_counter;

/* Finds out what stamps are. Any thread, before the first stamp. */
void strata_timestamp_start(void);

static inline uint64_t strata_timestamp_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* The counter may be read ahead of loads that come before it in the program (Intel SDM, RDTSC), and waiting for them
 * would cost as much again: a stamp may be older than what the thread has read before it by some 100 ns. Where one
 * thread's record follows from another's, and they are closer together than that, either may have the lower stamp. */
static inline uint64_t strata_timestamp_now(void)
{
#if defined(__x86_64__)
    if (__builtin_expect(strata_timestamp_is_counter, 1))
        return __rdtsc();
#endif
    return strata_timestamp_clock();
}

/* Whether a stamp can be had without asking what stamps are: everywhere but on an x86-64 whose counter is not trusted.
 */
static inline bool strata_timestamp_is_simple(void)
{
#if defined(__x86_64__)
    return strata_timestamp_is_counter;
#else
    return true;
#endif
}

/* strata_timestamp_now, where that is so: without a question, and on an x86-64 without a call. */
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

/* The moment as the stamps and both clocks say it. */
void strata_timestamp_take_point(strata_timestamp_point *point);

/* Nanoseconds for each tick between two points; 1 if they are one. */
double strata_timestamp_rate(const strata_timestamp_point *from, const strata_timestamp_point *to);

/* The monotonic time of a stamp that is `rate` nanoseconds a tick away from a point. */
static inline uint64_t strata_timestamp_time(const strata_timestamp_point *point, double rate, uint64_t stamp)
{
    double away = (double)(int64_t)(stamp - point->stamp) * rate;
    return point->monotonic_ns + (uint64_t)(int64_t)away;
}

#endif
