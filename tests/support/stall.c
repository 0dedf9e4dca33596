/* Holds streams back. Stalls are on the heap, since a failed test leaves its stack frame while the device still waits.
 */
#include "support/stall.h"

#include "support/sweep.h"

#include <pthread.h>
#include <semaphore.h>
#include <stdlib.h>
#include <time.h>

enum { PATIENCE_MS = 30000, PATIENCE_BESIDE_FAULTS_MS = 100, DESTROYED_WITHIN_MS = 1000 };

struct test_stall {
    sem_t gate;
    _Atomic bool timed_out; /* it was not released in time, so the test's other checks mean nothing */
    test_stall *next;       /* of those not ended; the testing thread's */
};

static test_stall *stalls;
static _Atomic bool any_timed_out;

/* Whether the semaphore was posted within so many milliseconds. */
static bool wait_for(sem_t *semaphore, int milliseconds)
{
    struct timespec until, now;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += milliseconds / 1000;
    until.tv_nsec += milliseconds % 1000 * 1000000L;
    until.tv_sec += until.tv_nsec / 1000000000L;
    until.tv_nsec %= 1000000000L;
    while (sem_timedwait(semaphore, &until) != 0) {
        clock_gettime(CLOCK_REALTIME, &now);
        if (now.tv_sec > until.tv_sec || (now.tv_sec == until.tv_sec && now.tv_nsec >= until.tv_nsec))
            return false;
    }
    return true;
}

static void CUDA_CB wait_at_gate(void *data)
{
    test_stall *stall = data;
    if (!wait_for(&stall->gate, test_is_swept_for_faults() ? PATIENCE_BESIDE_FAULTS_MS : PATIENCE_MS))
        any_timed_out = stall->timed_out = true;
}

test_stall *test_stall_begin(CUstream stream)
{
    test_stall *stall = calloc(1, sizeof *stall);
    assert_non_null(stall);
    assert_int_equal(sem_init(&stall->gate, 0, 0), 0);
    stall->next = stalls;
    stalls = stall;
    check_cu(test_cu()->LaunchHostFunc(stream, wait_at_gate, stall));
    return stall;
}

bool test_stall_timed_out(void)
{
    return any_timed_out;
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
    check_cu(test_cu()->CtxSynchronize());
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
    one->result = test_cu()->StreamDestroy(one->stream);
    sem_post(&one->done);
    return NULL;
}

/* Whether cuStreamDestroy waits for work: another thread destroys a stalled stream. */
static bool destroying_waits(void)
{
    destruction one;
    pthread_t thread;
    assert_int_equal(sem_init(&one.done, 0, 0), 0);
    check_cu(test_cu()->StreamCreate(&one.stream, CU_STREAM_NON_BLOCKING));
    test_stall *stall = test_stall_begin(one.stream);
    assert_int_equal(pthread_create(&thread, NULL, destroy_stream, &one), 0);
    bool waits = !wait_for(&one.done, DESTROYED_WITHIN_MS);
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
        test_cu()->CtxSynchronize();
    while (stalls)
        forget(stalls);
}
