#include "cores.h"

#include "measure.h"

#include <sched.h>
#include <stdbool.h>

enum { LOOKS = 8, TIMES = 250 }; /* some half a millisecond a core */

static cpu_set_t allowed; /* before cores_take_quiet */
static bool taken;

void cores_do_nothing(size_t times)
{
    for (size_t i = 0; i < times; i++)
        for (size_t ten = 0; ten < CORES_NOTHINGS / 10; ten++)
            __asm__ volatile("nop; nop; nop; nop; nop; nop; nop; nop; nop; nop");
}

/* The best of some looks. */
double cores_look_here(void)
{
    double best = 0;
    for (int i = 0; i < LOOKS; i++) {
        const uint64_t start = bench_now();
        cores_do_nothing(TIMES);
        const double each = (double)(bench_now() - start) / TIMES;
        best = i == 0 || each < best ? each : best;
    }
    return best;
}

static bool move_to(int core)
{
    cpu_set_t only;
    CPU_ZERO(&only);
    CPU_SET((unsigned)core, &only);
    return sched_setaffinity(0, sizeof only, &only) == 0;
}

void cores_take_quiet(cores_look *look)
{
    *look = (cores_look){.core = -1};
    if (sched_getaffinity(0, sizeof allowed, &allowed) != 0)
        return;
    for (int core = 0; core < CPU_SETSIZE; core++) {
        if (!CPU_ISSET((unsigned)core, &allowed) || !move_to(core))
            continue;
        const double here = cores_look_here();
        if (!look->count || here < look->fastest_ns) {
            look->fastest_ns = here;
            look->core = core;
        }
        look->slowest_ns = here > look->slowest_ns ? here : look->slowest_ns;
        look->count++;
    }
    taken = true;
    if (look->core < 0 || !move_to(look->core)) {
        look->core = -1;
        cores_leave();
    }
}

void cores_leave(void)
{
    if (taken)
        sched_setaffinity(0, sizeof allowed, &allowed);
    taken = false;
}
