/* What a core does when nothing hinders it. Two hardware threads share a core, and the other one may be anybody's, of
 * another machine on the same processor too: then whatever is measured takes up to twice as long, whoever's it is. */
#ifndef STRATA_BENCH_CORES_H
#define STRATA_BENCH_CORES_H

#include <stddef.h>

enum { CORES_NOTHINGS = 1000 };

/* Runs CORES_NOTHINGS instructions that do nothing, so many times: what they take shows what the core is worth now. */
void cores_do_nothing(size_t times);

/* What the calling thread found when it looked for a core. */
typedef struct cores_look {
    int core; /* on which it is now; negative: it may not choose, and is where it was */
    int count;
    double fastest_ns, slowest_ns; /* of CORES_NOTHINGS instructions on the cores that it may use */
} cores_look;

/* Moves the calling thread to the core that runs instructions fastest, of those that it may use, until cores_leave.
 * Threads that it starts in between stay there. */
void cores_take_quiet(cores_look *look);

/* Nanoseconds of CORES_NOTHINGS instructions where the calling thread is now. */
double cores_look_here(void);

void cores_leave(void);

#endif
