/* The check at process exit runs on a thread of its own because it may never end: a device may not finish its work, a
 * driver call may not return, a stopped thread may hold a lock. Then the thread is left behind, and nothing that it may
 * use is freed. */
#include "core/stack/exit_look.h"

#include "core/base/error.h"
#include "core/base/lock.h"

#include <signal.h>
#include <time.h>

typedef enum look_state {
    LOOK_NONE = 0,
    LOOK_HOLDS,    /* no stack is destroyed */
    LOOK_GIVEN_UP, /* nor ever will be */
} look_state;

static strata_lock ends_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_STACK_ENDS);
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static look_state state; /* guarded by ends_lock, like the next two */
static unsigned ending;  /* stacks being destroyed */
static bool looked;
static void (*look_at_stacks)(void); /* written once, before the thread starts */

bool strata_exit_look_enter(void)
{
    strata_lock_take(&ends_lock);
    while (state == LOOK_HOLDS)
        pthread_cond_wait(&changed, &ends_lock.mutex);
    bool allowed = state == LOOK_NONE;
    ending += allowed;
    strata_lock_release(&ends_lock);
    return allowed;
}

void strata_exit_look_leave(void)
{
    strata_lock_take(&ends_lock);
    ending--;
    pthread_cond_broadcast(&changed);
    strata_lock_release(&ends_lock);
}

static void *run(void *unused)
{
    strata_error_suppress_begin();
    look_at_stacks();
    strata_error_suppress_end(false);
    strata_lock_take(&ends_lock);
    looked = true;
    pthread_cond_broadcast(&changed);
    strata_lock_release(&ends_lock);
    return unused;
}

/* All signals are blocked on the library's threads. */
static bool start(pthread_t *thread)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    bool started = pthread_create(thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

/* Releases ends_lock meanwhile. False after the timeout. */
static bool wait_until(const struct timespec *end)
{
    return pthread_cond_clockwait(&changed, &ends_lock.mutex, CLOCK_MONOTONIC, end) == 0;
}

static struct timespec after(unsigned milliseconds)
{
    struct timespec end;
    clock_gettime(CLOCK_MONOTONIC, &end);
    long nanoseconds = end.tv_nsec + (long)(milliseconds % 1000) * 1000000;
    end.tv_sec += (time_t)(milliseconds / 1000) + nanoseconds / 1000000000;
    end.tv_nsec = nanoseconds % 1000000000;
    return end;
}

bool strata_exit_look_hold(void (*look)(void), unsigned patience_ms)
{
    const struct timespec end = after(patience_ms);
    pthread_t thread;
    look_at_stacks = look;
    strata_lock_take(&ends_lock);
    state = LOOK_HOLDS;
    while (ending && wait_until(&end))
        ;
    bool started = !ending && start(&thread);
    while (started && !looked && wait_until(&end))
        ;
    bool over = looked;
    state = started && !over ? LOOK_GIVEN_UP : LOOK_NONE;
    pthread_cond_broadcast(&changed);
    strata_lock_release(&ends_lock);
    if (started && over)
        pthread_join(thread, NULL);
    else if (started)
        pthread_detach(thread);
    return over;
}
