/* Choosing the clock, taking points. */
#include "core/base/timestamp.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#endif

bool strata_timestamp_is_counter;

#if defined(__x86_64__)
/* CPUID 80000007H, EDX bit 8: the counter runs at a constant rate in all processor states. */
static bool counter_is_invariant(void)
{
    unsigned a, b, c, d;
    return __get_cpuid(0x80000007u, &a, &b, &c, &d) && (d >> 8 & 1);
}

/* Linux removes the counter from this list when cores disagree about it. Without the list the counter is trusted. */
static bool counter_is_trusted(void)
{
    char names[128] = "";
    FILE *list = fopen("/sys/devices/system/clocksource/clocksource0/available_clocksource", "re");
    if (!list)
        return true;
    bool read = fgets(names, sizeof names, list) != NULL;
    fclose(list);
    return !read || strstr(names, "tsc");
}
#endif

static void find_out(void)
{
#if defined(__x86_64__)
    strata_timestamp_is_counter = counter_is_invariant() && counter_is_trusted();
#endif
}

void strata_timestamp_start(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, find_out);
}

static uint64_t wall_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint64_t)now.tv_sec * UINT64_C(1000000000) + (uint64_t)now.tv_nsec;
}

/* Takes the quickest of four tries. */
void strata_timestamp_take_point(strata_timestamp_point *point)
{
    uint64_t best = UINT64_MAX;
    for (int i = 0; i < 4; i++) {
        uint64_t before = strata_timestamp_now();
        uint64_t monotonic = strata_timestamp_clock();
        uint64_t wall = wall_clock();
        uint64_t took = strata_timestamp_now() - before;
        if (took >= best)
            continue;
        best = took;
        *point = (strata_timestamp_point){.stamp = before + took / 2, .monotonic_ns = monotonic, .wall_ns = wall};
    }
}

double strata_timestamp_rate(const strata_timestamp_point *from, const strata_timestamp_point *to)
{
    if (to->stamp <= from->stamp || to->monotonic_ns <= from->monotonic_ns)
        return 1;
    return (double)(to->monotonic_ns - from->monotonic_ns) / (double)(to->stamp - from->stamp);
}
