/* A replay's thread; private to the engine. */
#ifndef STRATA_TOOLS_REPLAY_REPLAY_WORKER_H
#define STRATA_TOOLS_REPLAY_REPLAY_WORKER_H

#include "core/streams/device.h"
#include "tools/replay/footprint.h"
#include "tools/replay/gate.h"
#include "tools/replay/pattern_check.h"
#include "tools/replay/plan.h"
#include "tools/replay/replay_engine.h"

typedef enum replay_block_state {
    REPLAY_BLOCK_NONE = 0, /* or the allocation failed */
    REPLAY_BLOCK_LIVE,
    REPLAY_BLOCK_GONE, /* or given up after a failed free */
} replay_block_state;

/* Accessed by the threads of the block's rows in turn, with the gate between them. */
typedef struct replay_block {
    strata_block block;
    uint32_t writes;
    replay_block_state state;
} replay_block;

/* A pass over a trace. Constant while its workers run, except what pointers lead to. */
typedef struct replay_pass {
    strata_runtime *runtime;
    strata_device *device;
    const replay_options *options;
    const replay_plan *plan;
    const CUstream *streams;
    const pattern_check *check; /* NULL: no kernels */
    footprint *footprint;
    replay_gate *gate;
    replay_block *blocks;
    uint32_t number;
    uint64_t start_ns;
} replay_pass;

/* Owned by its thread while that runs, else by the main thread. */
typedef struct replay_worker {
    const replay_pass *pass;
    uint32_t index;
    uint32_t ask_window_at; /* first row that needs a check of the gate's window */
    CUevent event;          /* for `wait` rows */
    pthread_t thread;
    replay_result result;
} replay_worker;

uint64_t replay_now_ns(void);

/* A thread's start routine. `worker` is a replay_worker. */
void *replay_worker_run(void *worker);

/* Checks and frees, on the calling thread, a block that the trace left live. */
void replay_worker_free_leftover(replay_worker *worker, uint32_t block);

/* Counts a failure, keeps the first few. */
void replay_note_status(replay_result *result, const char *what, strata_status status);
void replay_note_driver(replay_result *result, const char *what, CUresult code);

#endif
