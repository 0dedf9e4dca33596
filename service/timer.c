/* Time limits of requests: a heap by deadline, and a thread that waits for the nearest. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/service.h"

#include <signal.h>
#include <string.h>
#include <time.h>

/* ---- the heap ---- */

static void put_at(service_timer *timer, size_t at, strata_future *request)
{
    timer->heap[at] = request;
    request->timer_index = at + 1;
}

static void move_up(service_timer *timer, size_t at, strata_future *request)
{
    for (size_t parent; at && timer->heap[parent = (at - 1) / 2]->deadline > request->deadline; at = parent)
        put_at(timer, at, timer->heap[parent]);
    put_at(timer, at, request);
}

static void move_down(service_timer *timer, size_t at, strata_future *request)
{
    for (size_t child; (child = 2 * at + 1) < timer->count; at = child) {
        if (child + 1 < timer->count && timer->heap[child + 1]->deadline < timer->heap[child]->deadline)
            child++;
        if (timer->heap[child]->deadline >= request->deadline)
            break;
        put_at(timer, at, timer->heap[child]);
    }
    put_at(timer, at, request);
}

static void take_out(service_timer *timer, strata_future *request)
{
    const size_t at = request->timer_index - 1;
    strata_future *last = timer->heap[--timer->count];
    request->timer_index = 0;
    if (last == request)
        return;
    if (last->deadline < request->deadline)
        move_up(timer, at, last);
    else
        move_down(timer, at, last);
}

static bool reserve(service_timer *timer)
{
    if (timer->count < timer->room)
        return true;
    const size_t room = timer->room ? 2 * timer->room : 64;
    strata_future **heap = strata_host_zalloc(room * sizeof *heap);
    if (!heap)
        return false;
    if (timer->heap)
        memcpy(heap, timer->heap, timer->count * sizeof *heap);
    strata_host_free(timer->heap);
    timer->heap = heap;
    timer->room = room;
    return true;
}

/* ---- the thread ---- */

static void wait_for(service_timer *timer, uint64_t until)
{
    const struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
    pthread_cond_timedwait(&timer->changed, &timer->lock.mutex, &time);
}

static void *run(void *data)
{
    service_timer *timer = data;
    strata_lock_take(&timer->lock);
    while (!timer->ending) {
        strata_future *nearest = timer->count ? timer->heap[0] : NULL;
        if (!nearest) {
            pthread_cond_wait(&timer->changed, &timer->lock.mutex);
        } else if (nearest->deadline > service_clock()) {
            wait_for(timer, nearest->deadline);
        } else {
            take_out(timer, nearest);
            service_future_hold(nearest);
            strata_lock_release(&timer->lock);
            timer->expire(nearest);
            service_future_unhold(nearest);
            strata_lock_take(&timer->lock);
        }
    }
    strata_lock_release(&timer->lock);
    return NULL;
}

strata_status service_thread_start(pthread_t *thread, void *(*function)(void *), void *data, const char *what)
{
    sigset_t all, before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int error = pthread_create(thread, NULL, function, data);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return error ? strata_fail(STRATA_ERROR_OUT_OF_HOST_MEMORY, "%s could not be started: %s", what, strerror(error))
                 : STRATA_SUCCESS;
}

/* ---- calls ---- */

void service_timer_open(service_timer *timer, void (*expire)(strata_future *request))
{
    pthread_condattr_t attributes;
    pthread_condattr_init(&attributes);
    pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
    pthread_cond_init(&timer->changed, &attributes);
    pthread_condattr_destroy(&attributes);
    strata_lock_init(&timer->lock, STRATA_RANK_SERVICE_TIMER);
    timer->expire = expire;
}

void service_timer_close(service_timer *timer)
{
    strata_lock_take(&timer->lock);
    timer->ending = true;
    pthread_cond_signal(&timer->changed);
    strata_lock_release(&timer->lock);
    if (timer->started)
        pthread_join(timer->thread, NULL);
    pthread_cond_destroy(&timer->changed);
    strata_lock_destroy(&timer->lock);
    strata_host_free(timer->heap);
}

strata_status service_timer_add(service_timer *timer, strata_future *request)
{
    strata_status status = STRATA_SUCCESS;
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    strata_lock_take(&timer->lock);
    if (!reserve(timer))
        status = strata_fail_host_memory("the time limit of a request");
    if (status == STRATA_SUCCESS && !timer->started) {
        status = service_thread_start(&timer->thread, run, timer, "the timer of a device service");
        timer->started = status == STRATA_SUCCESS;
    }
    if (status == STRATA_SUCCESS) {
        move_up(timer, timer->count++, request);
        if (timer->heap[0] == request)
            pthread_cond_signal(&timer->changed);
    }
    strata_lock_release(&timer->lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

bool service_timer_is_own_thread(service_timer *timer)
{
    strata_lock_take(&timer->lock);
    const bool is = timer->started && pthread_equal(pthread_self(), timer->thread);
    strata_lock_release(&timer->lock);
    return is;
}

void service_timer_remove(service_timer *timer, strata_future *request)
{
    strata_lock_take(&timer->lock);
    if (request->timer_index)
        take_out(timer, request);
    strata_lock_release(&timer->lock);
}
