/* What a core does when nothing hinders it. Two hardware threads share a core, and the other one may run other work,
 * even of another machine on the same processor too: then every measurement takes up to twice as long. */
#ifndef STRATA_BENCH_CORES_H
#define STRATA_BENCH_CORES_H

#include <stdbool.h>
#include <stddef.h>

enum { CORES_NOTHINGS = 1000 };

/* Runs CORES_NOTHINGS instructions that do nothing, so many times: what they take shows what the core is worth now. */
void cores_do_nothing(size_t times);

/* The cores that the calling thread may use, and what they were found to do. */
typedef struct cores_look {
    int count;
    double fastest_ns, slowest_ns; /* of CORES_NOTHINGS instructions, since the first look */
    size_t again;                  /* rounds that were measured again, since their core was hindered */
} cores_look;

/* What was found so far; one thread measures. */
extern cores_look cores_seen;

/* Moves the calling thread to the core that runs instructions fastest, of those that it may use, until cores_leave.
 * Threads that it starts in between stay there. */
void cores_take_quiet(void);

/* Whether the core that the thread is on runs instructions about as fast as any did. */
bool cores_is_quiet(void);

void cores_leave(void);

#endif
