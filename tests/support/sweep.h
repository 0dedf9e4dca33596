/* Sweeps: every case of a program that test_run_on runs, again and again, each time in a process of its own in which
 * one thing is different. STRATA_TEST_SWEEP says which: seeds, faults or edges.
 *
 * seeds: another policy, or another seed of the random one. The case passes, the checker is silent, the final state is
 * that of the first run, nothing is left over in the end.
 *
 * faults: the library's n-th driver call fails, for n = 1, 2, ... until it makes no more. An error is said, or the case
 * passes as if nothing had been (but for a query of an event: one that fails counts as "not finished"; and for cases
 * that count calls); the checker is silent; what the library made it ends, once; and the same runtime then serves a
 * block as ever. A case that made a stack or a runtime by itself, or has threads left, could only end these itself:
 * where it fails, what is left over means nothing ("abandoned").
 *
 * edges: the library's n-th record, wait or synchronization is forgotten by the simulated driver. The checker reports
 * it, or the case fails. Edges that order nothing new are left out (strata_sim_check_accounts), and those that only
 * tell the library what it may count as free. What else nobody notices is a blind spot of the checker or a wait that
 * need not be, and fails the sweep; support/unseen.c has the exceptions. A case whose blocks cannot be touched by more
 * than it touches itself is left out, too ("untouched").
 *
 * STRATA_TEST_SWEEP_MOST bounds the runs of one case: where there are more calls the first ones are taken, and others
 * evenly from the rest; 0 takes all. It is 12, or 2000 with STRATA_TEST_FULL=1, which makes the cases themselves no
 * longer. STRATA_TEST_SWEEP_CASE takes the cases whose name contains it; STRATA_TEST_SWEEP_VERBOSE shows what a run
 * that failed had printed, and where in the library the call came from. The simulated driver only. */
#ifndef STRATA_TEST_SWEEP_H
#define STRATA_TEST_SWEEP_H

#include "support/fixture.h"

/* Called before a program opens its driver. If a sweep is asked for, the calling process makes it and exits, and each
 * of its children returns from here. */
void test_sweep_begin(void);

/* Whether this process is such a child: its main may leave out what is no case of test_run_on. */
bool test_is_swept(void);

/* Whether that child is of a sweep in its full form. */
bool test_is_swept_in_full(void);

/* What a child does for test_run_on: notes the case, or runs it if it is the one and exits. */
typedef struct test_sweep_case {
    const char *name;
    test_fixture *fixture;
    bool (*set_up)(test_fixture *fixture);
    void (*run)(test_fixture *fixture);
} test_sweep_case;
void test_sweep_case_here(const test_sweep_case *one);

#endif
