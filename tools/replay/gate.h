/* Keeping threads in step with a trace: each thread does its rows in order, publishes its progress, and waits for the
 * rows that its own depend on.
 *
 * No thread is more than a window of rows ahead of the slowest: memory allocated by one thread and freed by another
 * stays near the trace's live memory. A thread with the earliest next row never waits: there is always progress. */
#ifndef STRATA_TOOLS_REPLAY_GATE_H
#define STRATA_TOOLS_REPLAY_GATE_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { GATE_WINDOW = 256 };

#define GATE_DONE UINT32_MAX

/* One thread's; any thread reads both. */
typedef struct gate_place {
    alignas(64) _Atomic uint32_t next; /* first row not done; written by the thread */
    _Atomic uint32_t wanted;           /* earliest row that a thread sleeps for; written under gate.lock */
} gate_place;

typedef struct replay_gate {
    uint32_t threads;
    gate_place *places;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* with `lock`: a wanted row was passed */
} replay_gate;

/* False without host memory. */
bool gate_open(replay_gate *gate, uint32_t threads);
void gate_close(replay_gate *gate);

/* The calling thread's rows before `next` are done. */
void gate_pass(replay_gate *gate, uint32_t thread, uint32_t next);

/* Waits until the thread's rows up to `row` are done. */
void gate_wait(replay_gate *gate, uint32_t thread, uint32_t row);

/* Waits until no thread is a window behind `row`, the next row of `self`. Returns the first row that needs another
 * call. */
uint32_t gate_keep_window(replay_gate *gate, uint32_t self, uint32_t row);

/* The first row not done. Any thread. */
uint32_t gate_slowest(const replay_gate *gate);

#endif
