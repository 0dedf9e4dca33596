/* Threads that start together, awake. */
#ifndef STRATA_BENCH_CROWD_H
#define STRATA_BENCH_CROWD_H

#include <cuda.h>
#include <stddef.h>

enum { CROWD_LIMIT = 16 };

typedef struct crowd crowd;

/* Member 0 is the measuring thread. */
typedef void (*crowd_work)(void *state, unsigned member);

/* One a process. Exits if threads cannot be created. */
crowd *crowd_begin(CUcontext context);
void crowd_end(crowd *self);

/* Wakes `count` members, with the calling thread. Returns when all are awake. */
void crowd_wake(crowd *self, unsigned count, crowd_work work, void *state);

/* Returns when all have finished. */
void crowd_run(crowd *self);

#endif
