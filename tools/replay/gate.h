/* Keeping threads in step with a trace: each works through its own rows, in their order, and says how far it is; the
 * others wait for the rows that they depend on.
 *
 * No thread runs further ahead of the slowest one than a window of rows, so that memory which one thread allocates and
 * another frees stays near what the trace had live. A thread whose next row is the earliest of all never waits, so
 * there is always one that goes on. */
#ifndef STRATA_TOOLS_REPLAY_GATE_H
#define STRATA_TOOLS_REPLAY_GATE_H

#include <pthread.h>
#include <stdalign.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

enum { GATE_WINDOW = 256 };

#define GATE_DONE UINT32_MAX

/* One thread's place. Both words may be read by any thread. */
typedef struct gate_place {
    alignas(64) _Atomic uint32_t next; /* the first row that is not done; written by the thread itself */
    _Atomic uint32_t wanted;           /* the earliest row that somebody sleeps for; written under gate.lock */
} gate_place;

typedef struct replay_gate {
    uint32_t threads;
    gate_place *places;
    pthread_mutex_t lock;
    pthread_cond_t moved; /* with `lock`: a thread has passed a row that was wanted */
} replay_gate;

/* False: no host memory. */
bool gate_open(replay_gate *gate, uint32_t threads);
void gate_close(replay_gate *gate);

/* The thread's rows before `next` are done. Called by that thread. */
void gate_pass(replay_gate *gate, uint32_t thread, uint32_t next);

/* Waits until `thread` has done its rows up to and including `row`. */
void gate_wait(replay_gate *gate, uint32_t thread, uint32_t row);

/* Waits until no other thread is a window behind `row`, the next row of `self`. Returns the first row for which the
 * answer must be asked again. */
uint32_t gate_keep_window(replay_gate *gate, uint32_t self, uint32_t row);

/* The first row that some thread has not done. Any thread. */
uint32_t gate_slowest(const replay_gate *gate);

#endif
