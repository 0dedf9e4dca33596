/* Threads that begin together, awake: the one that measures, and others that wait for it between runs. */
#ifndef STRATA_BENCH_CROWD_H
#define STRATA_BENCH_CROWD_H

#include <cuda.h>
#include <stddef.h>

enum { CROWD_LIMIT = 16 };

typedef struct crowd crowd;

/* What each of them does in a run: `member` from 0, the thread that measures, to one below the crowd's size. */
typedef void (*crowd_work)(void *state, unsigned member);

/* The process has one; its threads have `context` current. Ends the program if threads cannot be had. */
crowd *crowd_begin(CUcontext context);
void crowd_end(crowd *self);

/* Wakes `count` members, the calling thread among them, for the next run; returns when all are awake. */
void crowd_wake(crowd *self, unsigned count, crowd_work work, void *state);

/* Runs them; returns when the last one has ended. */
void crowd_run(crowd *self);

#endif
