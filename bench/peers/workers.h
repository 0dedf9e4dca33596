/* Threads that start together, awake. */
#ifndef STRATA_BENCH_WORKERS_H
#define STRATA_BENCH_WORKERS_H

#include <cuda.h>
#include <stddef.h>

enum { WORKERS_LIMIT = 16 };

typedef struct workers workers;

/* Member 0 is the measuring thread. */
typedef void (*worker_call)(void *state, unsigned member);

/* One a process. Exits if threads cannot be created. */
workers *workers_create(CUcontext context);
void workers_destroy(workers *self);

/* Wakes `count` members, with the calling thread. Returns when all are awake. */
void workers_wake(workers *self, unsigned count, worker_call work, void *state);

/* Returns when all have finished. */
void workers_run(workers *self);

#endif
