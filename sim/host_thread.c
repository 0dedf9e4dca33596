/* The thread that host functions run on: one for the process, started at the first of them, with every signal blocked.
 * Host functions therefore run one after another, as the real driver may do too; other work passes a blocked one. */
#include "sim.h"
#include <signal.h>

/* Guarded by sim.lock. */
static struct {
    pthread_t thread;
    pthread_cond_t wake;
    bool started;
    bool stopping;
    bool busy; /* in a function of the user, without the lock */
    struct sim_op *first;
    struct sim_op **last;
} host = {.wake = PTHREAD_COND_INITIALIZER, .last = &host.first};

static _Thread_local bool in_host_function;

bool sim_in_host_function(void)
{
    return in_host_function;
}

static void call(const struct sim_op *op)
{
    CUhostFn function = op->work.host.function;
    CUstreamCallback callback = op->work.host.callback;
    CUstream stream = op->work.host.stream;
    void *data = op->work.host.data;
    host.busy = true;
    pthread_mutex_unlock(&sim.lock);
    in_host_function = true;
    if (function) {
        function(data);
    } else {
        callback(stream, CUDA_SUCCESS, data);
    }
    in_host_function = false;
    pthread_mutex_lock(&sim.lock);
    host.busy = false;
}

static void *run(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&sim.lock);
    while (!host.stopping) {
        struct sim_op *op = host.first;
        if (!op) {
            pthread_cond_wait(&host.wake, &sim.lock);
            continue;
        }
        host.first = op->next;
        if (!host.first) {
            host.last = &host.first;
        }
        call(op);
        if (sim.phase != SIM_RUNNING) {
            break;
        }
        sim_op_complete(op);
        sim_run_chosen();
        pthread_cond_broadcast(&sim.progress);
    }
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

CUresult sim_host_thread_start(void)
{
    if (host.started) {
        return CUDA_SUCCESS;
    }
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    if (pthread_sigmask(SIG_SETMASK, &all, &before) != 0) {
        return CUDA_ERROR_OPERATING_SYSTEM;
    }
    host.started = pthread_create(&host.thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return host.started ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

void sim_host_thread_give(struct sim_op *op)
{
    op->next = NULL;
    *host.last = op;
    host.last = &op->next;
    pthread_cond_signal(&host.wake);
}

bool sim_host_thread_stop(void)
{
    if (!host.started) {
        return true;
    }
    host.stopping = true;
    pthread_cond_signal(&host.wake);
    if (host.busy) {
        pthread_detach(host.thread);
        return false;
    }
    pthread_mutex_unlock(&sim.lock);
    pthread_join(host.thread, NULL);
    pthread_mutex_lock(&sim.lock);
    host.started = false;
    return true;
}
