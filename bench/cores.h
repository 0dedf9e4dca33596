/* The speed of a core. Another program on its second hardware thread, even one of another virtual machine, makes a
 * measurement take up to twice as long. */
#ifndef STRATA_BENCH_CORES_H
#define STRATA_BENCH_CORES_H

#include <stdbool.h>
#include <stddef.h>

enum { CORES_NOPS = 1000 };

void cores_run_nops(size_t times);

/* The cores that the thread may use, and their speeds. One thread writes it. */
typedef struct cores_info {
    int count;
    double fastest_ns, slowest_ns; /* of CORES_NOPS instructions, since the start */
    size_t repeated;               /* rounds repeated because their core was busy */
} cores_info;

extern cores_info cores_seen;

/* Moves the thread, and threads that it starts, to the fastest core that it may use. */
void cores_take_quiet(void);

/* Whether the current core is about as fast as the fastest measured. */
bool cores_is_quiet(void);

void cores_leave(void);

#endif
