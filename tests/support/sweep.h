/* Sweeps: every case of a program that test_run_on runs is repeated, each time in a process of its own with one
 * difference. STRATA_TEST_SWEEP chooses it: seeds, faults or edges.
 *
 * seeds: another policy, or another seed of the random one. The case passes, the checker reports nothing, the final
 * state is that of the first run, and nothing is left at the end.
 *
 * faults: the library's n-th driver call fails, for n = 1, 2, ... until it makes fewer calls. Either an error is
 * reported, or the case passes as without the fault (except for a query of an event, whose failure means "not
 * finished", and for cases that count calls). The checker reports nothing, the library destroys what it created, once,
 * and the same runtime then serves a block. A case that makes its own stack or runtime, or leaves threads, would have
 * to destroy these itself: if it fails, what is left is not judged ("abandoned").
 *
 * edges: the simulated driver forgets the library's n-th record, wait or synchronization. The checker must report it,
 * or the case fail. Edges that order nothing new are left out (strata_sim_check_accounts), and those that only tell the
 * library what counts as free. Any other edge without an effect is a blind spot of the checker or an unnecessary wait,
 * and fails the sweep; support/sweep_exceptions.c has the exceptions. A case whose blocks cannot be touched by more
 * than the case itself is left out, too ("untouched").
 *
 * STRATA_TEST_SWEEP_MOST bounds the runs of one case: of more calls, one of each of that many equal parts is taken,
 * which one depends on the case's name; 0 takes all. It is 8, or 2000 with STRATA_TEST_FULL=1, which makes the cases
 * themselves no longer.
 * STRATA_TEST_SWEEP_CASE takes the cases whose name contains it; STRATA_TEST_SWEEP_VERBOSE prints the output of failed
 * runs, and where in the library the call was made. The simulated driver only. */
#ifndef STRATA_TEST_SWEEP_H
#define STRATA_TEST_SWEEP_H

#include "support/fixture.h"

/* Called before a program opens its driver. If a sweep is requested, the calling process makes it and exits, and each
 * of its children returns from here. */
void test_sweep_begin(void);

/* Whether this process is such a child: its main may leave out all but the cases of test_run_on. */
bool test_is_swept(void);

/* Whether a driver call fails in that child. */
bool test_is_swept_for_faults(void);

/* Whether that child is of a full sweep. */
bool test_is_swept_in_full(void);

/* A child's part of test_run_on: records the case's name, or runs the chosen case and exits. */
typedef struct test_sweep_case {
    const char *name;
    test_fixture *fixture;
    bool (*set_up)(test_fixture *fixture);
    void (*run)(test_fixture *fixture);
} test_sweep_case;
void test_sweep_case_here(const test_sweep_case *one);

#endif
