/* The thread for host functions: one a process, started at the first. It blocks all signals but those of its own
 * instructions: blocked, these end the process despite a handler, such as that of watched memory. Host functions run
 * one at a time, as the real driver's may; other work passes a blocked one. */
#include "order/order.h"
#include <errno.h>
#include <signal.h>
#include <stdlib.h>
#include <time.h>

/* A call of no stream. */
typedef struct plain_call {
    struct plain_call *next;
    CUhostFn function;
    void *data;
} plain_call;

/* Guarded by sim.lock. */
static struct {
    pthread_t thread;
    pthread_cond_t wake;
    bool started;
    bool stopping;
    bool busy; /* in a user function, without the lock */
    sim_op *first;
    sim_op **last;
    plain_call *calls;     /* the last one first */
    sigset_t program_mask; /* of the thread that started this one */
} host = {.wake = PTHREAD_COND_INITIALIZER, .last = &host.first};

static _Thread_local bool in_host_function;
static _Thread_local sim_op *running; /* operation of the function */

bool sim_in_host_function(void)
{
    return in_host_function;
}

sim_op *sim_host_function_op(void)
{
    return running;
}

static void call(CUhostFn function, CUstreamCallback callback, CUstream stream, void *data)
{
    host.busy = true;
    pthread_mutex_unlock(&sim.lock);
    in_host_function = true;
    if (function)
        function(data);
    else
        callback(stream, CUDA_SUCCESS, data);
    in_host_function = false;
    pthread_mutex_lock(&sim.lock);
    host.busy = false;
}

static void make_plain_call(void)
{
    plain_call **link = &host.calls;
    while ((*link)->next)
        link = &(*link)->next;
    plain_call *first = *link;
    *link = NULL;
    call(first->function, NULL, NULL, first->data);
    free(first);
}

/* Waits, and now and then looks whether the process has no other thread left. */
static void wait_for_work(void)
{
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    uint64_t end = (uint64_t)until.tv_nsec + SIM_LOOK_MS * UINT64_C(1000000);
    until.tv_sec += (time_t)(end / 1000000000);
    until.tv_nsec = (long)(end % 1000000000);
    if (pthread_cond_timedwait(&host.wake, &sim.lock, &until) != ETIMEDOUT || host.stopping)
        return;
    pthread_mutex_unlock(&sim.lock);
    sim_last_threads_look(&host.program_mask);
    pthread_mutex_lock(&sim.lock);
}

static void *run(void *unused)
{
    (void)unused;
    sim_last_threads_mark();
    pthread_mutex_lock(&sim.lock);
    while (!host.stopping) {
        sim_op *op = host.first;
        if (host.calls) {
            make_plain_call();
            continue;
        }
        if (!op) {
            wait_for_work();
            continue;
        }
        host.first = op->next;
        if (!host.first)
            host.last = &host.first;
        sim_hooks.check->host_function(op);
        running = op;
        call(op->work.host.function, op->work.host.callback, op->work.host.stream, op->work.host.data);
        running = NULL;
        if (sim.phase != SIM_RUNNING)
            break;
        sim_op_complete(op);
        sim_run_chosen();
        pthread_cond_broadcast(&sim.progress);
    }
    pthread_mutex_unlock(&sim.lock);
    return NULL;
}

static sigset_t foreign_signals(void)
{
    static const int own[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP};
    sigset_t set;
    sigfillset(&set);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        sigdelset(&set, own[i]);
    return set;
}

CUresult sim_host_thread_start(void)
{
    if (host.started)
        return CUDA_SUCCESS;
    sigset_t blocked = foreign_signals();
    if (pthread_sigmask(SIG_SETMASK, &blocked, &host.program_mask) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    host.started = pthread_create(&host.thread, NULL, run, NULL) == 0;
    pthread_sigmask(SIG_SETMASK, &host.program_mask, NULL);
    return host.started ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

void sim_host_thread_give(sim_op *op)
{
    op->next = NULL;
    *host.last = op;
    host.last = &op->next;
    pthread_cond_signal(&host.wake);
}

static void forget_plain_calls(void)
{
    while (host.calls) {
        plain_call *next = host.calls->next;
        free(host.calls);
        host.calls = next;
    }
}

/* Drops the call once the thread is stopping, or without memory. */
void sim_host_thread_call(CUhostFn function, void *data)
{
    plain_call *made = host.stopping ? NULL : malloc(sizeof *made);
    if (made) {
        *made = (plain_call){.next = host.calls, .function = function, .data = data};
        host.calls = made;
        pthread_cond_signal(&host.wake);
    }
}

bool sim_host_thread_stop(void)
{
    if (!host.started)
        return true;
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
    forget_plain_calls();
    return true;
}
