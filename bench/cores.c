#include "cores.h"

#include "clock.h"
#include "measure.h"

#include <sched.h>

enum { SAMPLES = 8, REPEATS = 50 }; /* tens of microseconds a core */

static const double BUSY_RATIO = 1.15; /* times the fastest core: above it, a core is busy */

cores_info cores_seen;
static cpu_set_t allowed; /* saved by cores_take_quiet */
static bool taken;

void cores_run_nops(size_t times)
{
    for (size_t i = 0; i < times; i++)
        for (size_t ten = 0; ten < CORES_NOPS / 10; ten++)
            __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop; nop; nop");
}

/* Nanoseconds of CORES_NOPS instructions on the current core: the best of SAMPLES. */
static double measure_core(void)
{
    double best = 0;
    for (int i = 0; i < SAMPLES; i++) {
        const uint64_t start = bench_now();
        cores_run_nops(REPEATS);
        const double each = (double)(bench_now() - start) / REPEATS;
        best = i == 0 || each < best ? each : best;
    }
    if (cores_seen.fastest_ns <= 0 || best < cores_seen.fastest_ns)
        cores_seen.fastest_ns = best;
    if (best > cores_seen.slowest_ns)
        cores_seen.slowest_ns = best;
    return best;
}

static bool move_to(int core)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((unsigned)core, &only);
    return sched_setaffinity(0, sizeof only, &only) == 0;
}

void cores_take_quiet(void)
{
    int best = -1, count = 0;
    double best_ns = 0;
    if (!taken && sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET((unsigned)core, &allowed) || !move_to(core))
            continue;
        const double here = measure_core();
        if (best < 0 || here < best_ns) {
            best = core;
            best_ns = here;
        }
        count++;
    }
    cores_seen.count = count;
    taken = true;
    if (best < 0 || !move_to(best))
        cores_leave();
}

bool cores_is_quiet(void)
{
    return measure_core() <= BUSY_RATIO * cores_seen.fastest_ns;
}

void cores_leave(void)
{
    if (taken)
        sched_setaffinity(0, sizeof allowed, &allowed);
    taken = false;
}
