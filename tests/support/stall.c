/* Holding streams back. Stalls live on the heap, since a test that fails leaves its stack while the device still waits.
 */
#include "support/stall.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_S = 30, DESTROYED_WITHIN_S = 1 };

struct test_stall {
    sem_t gate;
    _Atomic bool timed_out; /* the gate was not opened in time: the test's other checks mean nothing */
    test_stall *next;       /* of those that were not ended; the testing thread's */
};

static test_stall *stalls;

/* Whether the semaphore was posted within so many seconds. */
static bool wait_for(sem_t *semaphore, int seconds)
{
    struct timespec until, now;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += seconds;
    while (sem_timedwait(semaphore, &until) != 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec > until.tv_sec)
            return false;
    }
    return true;
}

static void CUDA_CB wait_at_gate(void *data)
{
    test_stall *stall = data;
    if (!wait_for(&stall->gate, PATIENCE_S))
        stall->timed_out = true;
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

typedef struct destruction {
    CUstream stream;
    CUresult result;
    sem_t done;
} destruction;

static void *destroy_stream(void *data)
{
    destruction *one = data;
    test_make_current();
    one->result = strata_cu.StreamDestroy(one->stream);
    sem_post(&one->done);
    return NULL;
}

/* Another thread destroys a stream that is stalled. */
static bool destroying_waits(void)
{
    destruction one;
    pthread_t thread;
    assert_int_equal(sem_init(&one.done, 0, 0), 0);
    check_cu(strata_cu.StreamCreate(&one.stream, CU_STREAM_NON_BLOCKING));
    test_stall *stall = test_stall_begin(one.stream);
    assert_int_equal(pthread_create(&thread, NULL, destroy_stream, &one), 0);
    bool waits = !wait_for(&one.done, DESTROYED_WITHIN_S);
    test_stall_release(stall);
    pthread_join(thread, NULL);
    test_stall_end(stall);
    sem_destroy(&one.done);
    check_cu(one.result);
    return waits;
}

void test_needs_destroying_without_waiting(void)
{
    static enum { NOT_TRIED, COMES_BACK, WAITS } driver; /* the testing thread's */
    if (driver == NOT_TRIED)
        driver = destroying_waits() ? WAITS : COMES_BACK;
    if (driver == COMES_BACK)
        return;
    print_message("needs a driver whose cuStreamDestroy does not wait for the stream's work\n");
    skip();
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
