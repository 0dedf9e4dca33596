/* The wait for a device's work before its context ends. A program may reset a device because its work never ends, so
 * that the wait has a limit, as the check at the process's exit has (resources/findings): a thread waits in the driver,
 * and is left there at the limit. It holds no lock of Strata, and keeps no process alive. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/last_threads.h"
#include "core/stack/stack.h"
#include "core/streams/device_wait.h"
#include "resources/findings/findings.h"

#include <signal.h>
#include <time.h>

typedef struct last_wait {
    strata_device *device;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    bool over, left; /* guarded by the lock: the work has ended; the caller has gone on */
} last_wait;

/* Waits for the whole context, also for work that Strata does not know. During captures, which that would end, waits
 * only for the streams that Strata knows. */
static void wait_for_work(strata_device *device)
{
    strata_call_scope scope;
    if (exec_captures_under_way() || !strata_cu.CtxSynchronize) {
        strata_device_wait(device);
        return;
    }
    if (strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
        STRATA_SUCCESS)
        return;
    strata_cu.CtxSynchronize();
    strata_call_scope_leave(&scope);
}

static void destroy(last_wait *self)
{
    pthread_cond_destroy(&self->changed);
    pthread_mutex_destroy(&self->lock);
    strata_host_free(self);
}

static void *run(void *data)
{
    last_wait *self = data;
    strata_last_threads_mark();
    strata_error_suppress_begin();
    wait_for_work(self->device);
    strata_error_suppress_end(false);
    pthread_mutex_lock(&self->lock);
    self->over = true;
    const bool left = self->left;
    pthread_cond_signal(&self->changed);
    pthread_mutex_unlock(&self->lock);
    if (left)
        destroy(self);
    return NULL;
}

/* Starts the thread with all signals blocked: they are the program's. */
static bool start(pthread_t *thread, last_wait *self)
{
    sigset_t all, before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0)
        return false;
    const bool started = pthread_create(thread, NULL, run, self) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return started;
}

static bool is_over_in_time(last_wait *self)
{
    struct timespec end;
    int failed = 0;
    clock_gettime(CLOCK_MONOTONIC, &end);
    end.tv_sec += FINDINGS_PATIENCE_MS / 1000;
    pthread_mutex_lock(&self->lock);
    while (!self->over && !failed)
        failed = pthread_cond_clockwait(&self->changed, &self->lock, CLOCK_MONOTONIC, &end);
    const bool over = self->over;
    self->left = !over;
    pthread_mutex_unlock(&self->lock);
    return over;
}

/* Without host memory, or if no thread can be started, the wait has no limit. */
bool exec_device_work_ends(const exec_device *device)
{
    strata_device *own = strata_runtime_stack(device->runtime)->device;
    last_wait *self = strata_host_zalloc(sizeof *self);
    pthread_t thread;
    bool started = false;
    if (self) {
        self->device = own;
        pthread_mutex_init(&self->lock, NULL);
        pthread_cond_init(&self->changed, NULL);
        started = start(&thread, self);
    }
    if (!started) {
        if (self)
            destroy(self);
        strata_error_suppress_begin();
        wait_for_work(own);
        strata_error_suppress_end(false);
        return true;
    }
    if (!is_over_in_time(self)) {
        pthread_detach(thread);
        return false;
    }
    pthread_join(thread, NULL);
    destroy(self);
    return true;
}
