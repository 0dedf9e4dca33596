/* Shared by the two sides of a sweep: sweep.c, which plans runs and judges them, and sweep_run.c, which makes one run.
 */
#ifndef STRATA_TEST_SWEEP_BOARD_H
#define STRATA_TEST_SWEEP_BOARD_H

#include "support/driver_hooks.h"
#include "support/sweep.h"
#include "support/touch.h"

enum { SWEEP_CASES = 512, SWEEP_EDGES = 1 << 16, SWEEP_NAME = 384, SWEEP_SAID = 512 };

typedef enum sweep_mode { SWEEP_SEEDS, SWEEP_FAULTS, SWEEP_OF_EDGES } sweep_mode;

/* A case's final state must not depend on when its work ran. The numbers of streams and events may: the library creates
 * some when it has to wait. */
typedef struct sweep_state {
    uint64_t live_bytes, live_blocks; /* of all runtimes */
    uint32_t blocks, pinned, modules; /* of the driver */
} sweep_state;

/* The result of a run. The child updates it continuously, so it shows how far a killed child came. */
typedef struct sweep_outcome {
    bool began, passed, failed, over;
    bool abandoned; /* the case left objects that only it could have destroyed: what is left is not judged */
    bool unusable;
    bool unreported; /* the case failed in the thread of the fault, and no error was reported since */
    bool slow;       /* a stall timed out: without a fault, the machine was too busy */
    char said[SWEEP_SAID];
    test_driver_hook_seen seen;
    test_holdings left;
    sweep_state state;
    uint32_t streams_kept; /* streams whose destruction the case prevented */
    uint32_t events_kept;  /* events that the library keeps for reuse */
    uint64_t reports;
    char report[SWEEP_SAID];
} sweep_outcome;

/* Shared by the parent and its children, one of which runs at a time. */
typedef struct sweep_board {
    size_t cases;
    char names[SWEEP_CASES][SWEEP_NAME];
    long chosen; /* the case to run; -1: record the names */
    sweep_mode mode;
    test_touch touched;
    test_plan plan;
    strata_sim_policy policy;
    uint64_t seed;
    uint64_t runs;            /* of the chosen case that passed */
    bool relied[SWEEP_EDGES]; /* by the first run of the case */
    sweep_outcome outcome;
} sweep_board;

/* Written by sweep.c before there are children. */
extern sweep_board *sweep_shared;
extern bool sweep_is_child;

#endif
