/* The program's output, before the process ends without exit handlers. Another thread writes it, since a thread that is
 * gone, or waits for input, may keep a FILE locked for ever, and a pipe may be full. */
#include "resources/findings/findings.h"

#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <signal.h>
#include <stdio.h>
#include <time.h>

static sem_t flushed;

static void *flush(void *unused)
{
    fflush(NULL);
    sem_post(&flushed);
    return unused;
}

/* Starts the thread, with all signals blocked: a reader that has gone does not change the exit status. */
static bool begin(pthread_t *thread)
{
    sigset_t all, before;
    if (sem_init(&flushed, 0, 0) != 0)
        return false;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const bool begun = pthread_create(thread, NULL, flush, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return begun;
}

void findings_flush_output(void)
{
    struct timespec end;
    pthread_t thread;
    if (!begin(&thread))
        return;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += FINDINGS_PATIENCE_MS / 1000;
    int failed;
    while ((failed = sem_clockwait(&flushed, CLOCK_MONOTONIC, &end)) != 0 && errno == EINTR)
        ;
    /* Joined if it can be: a leak checker that looks at all threads at the exit meets none that is ending. */
    if (failed)
        pthread_detach(thread); /* may never end */
    else
        pthread_join(thread, NULL);
}
