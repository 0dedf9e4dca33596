/* The speed of a core. Two hardware threads share a core, and the other one may run a different program, even of
 * another virtual machine: then each measurement takes up to twice as long. */
#ifndef STRATA_BENCH_CORES_H
#define STRATA_BENCH_CORES_H

#include <stdbool.h>
#include <stddef.h>

enum { CORES_NOTHINGS = 1000 };

/* Runs CORES_NOTHINGS nop instructions, `times` times. */
void cores_do_nothing(size_t times);

/* The cores that the calling thread may use, and their speeds. One thread writes it. */
typedef struct cores_look {
    int count;
    double fastest_ns, slowest_ns; /* of CORES_NOTHINGS instructions, since the start */
    size_t again;                  /* rounds repeated because their core was busy */
} cores_look;

extern cores_look cores_seen;

/* Moves the calling thread to the fastest core that it may use, until cores_leave. Threads that it starts meanwhile
 * stay on that core. */
void cores_take_quiet(void);

/* Whether the current core is about as fast as the fastest measured. */
bool cores_is_quiet(void);

void cores_leave(void);

#endif
