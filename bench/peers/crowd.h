/* Threads that start together, awake: the measuring thread, and others that wait between runs. */
#ifndef STRATA_BENCH_CROWD_H
#define STRATA_BENCH_CROWD_H

#include <cuda.h>
#include <stddef.h>

enum { CROWD_LIMIT = 16 };

typedef struct crowd crowd;

/* A member's work in a run. Member 0 is the measuring thread. */
typedef void (*crowd_work)(void *state, unsigned member);

/* One a process. Its threads have `context` current. Exits if threads cannot be created. */
crowd *crowd_begin(CUcontext context);
void crowd_end(crowd *self);

/* Wakes `count` members, with the calling thread, for the next run. Returns when all are awake. */
void crowd_wake(crowd *self, unsigned count, crowd_work work, void *state);

/* Runs the members' work. Returns when all have finished. */
void crowd_run(crowd *self);

#endif
