/* Holding streams back. Stalls live on the heap, since a test that fails leaves its stack while the device still waits.
 */
#include "support/stall.h"

#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_S = 30 };

struct test_stall {
    sem_t gate;
    _Atomic bool timed_out; /* the gate was not opened in time: the test's other checks mean nothing */
    test_stall *next;       /* of those that were not ended; the testing thread's */
};

static test_stall *stalls;

static void CUDA_CB wait_at_gate(void *data)
{
    test_stall *stall = data;
    struct timespec until, now;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    while (sem_timedwait(&stall->gate, &until) != 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec > until.tv_sec) {
            stall->timed_out = true;
            return;
        }
    }
}

test_stall *test_stall_begin(CUstream stream)
{
    test_stall *stall = calloc(1, sizeof *stall);
    assert_non_null(stall);
    assert_int_equal(sem_init(&stall->gate, 0, 0), 0);
    stall->next = stalls;
    stalls = stall;
    check_cu(strata_cu.LaunchHostFunc(stream, wait_at_gate, stall));
    return stall;
}

void test_stall_release(test_stall *stall)
{
    sem_post(&stall->gate);
}

static void forget(test_stall *stall)
{
    test_stall **link = &stalls;
    while (*link && *link != stall)
        link = &(*link)->next;
    if (*link)
        *link = stall->next;
    sem_destroy(&stall->gate);
    free(stall);
}

void test_stall_end(test_stall *stall)
{
    test_stall_release(stall);
    check_cu(strata_cu.CtxSynchronize());
    bool timed_out = stall->timed_out;
    forget(stall);
    assert_false(timed_out);
}

void test_stall_end_all(void)
{
    for (test_stall *stall = stalls; stall; stall = stall->next)
        test_stall_release(stall);
    if (stalls)
        strata_cu.CtxSynchronize();
    while (stalls)
        forget(stalls);
}
