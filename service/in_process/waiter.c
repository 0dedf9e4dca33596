/* The thread that waits for fences, one behind the other, where the service learns of ends by synchronizing. How a wait
 * ended is not its business: the service's thread then asks the fence. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/in_process/in_process.h"

struct service_waiter {
    strata_lock lock; /* of the next four, and of a request's `finished` */
    pthread_cond_t changed;
    strata_future *first, *last; /* not complete, oldest first, by `next_waited`; the first is waited for */
    bool ending;
    pthread_t thread; /* constant, as is the next */
    service_mailbox *box;
};

/* The request exists meanwhile: the service's thread finishes it when it is `finished`. */
static void wait_for_first(service_waiter *waiter)
{
    strata_future *request = waiter->first;
    strata_lock_release(&waiter->lock);
    strata_fence_synchronize(request->fence);
    strata_lock_take(&waiter->lock);
    waiter->first = request->next_waited;
    if (!waiter->first)
        waiter->last = NULL;
    request->finished = true;
    pthread_cond_broadcast(&waiter->changed);
    service_mailbox_ring(waiter->box);
}

static void *run(void *data)
{
    service_waiter *waiter = data;
    strata_error_suppress_begin();
    strata_lock_take(&waiter->lock);
    while (waiter->first || !waiter->ending)
        if (waiter->first)
            wait_for_first(waiter);
        else
            pthread_cond_wait(&waiter->changed, &waiter->lock.mutex);
    strata_lock_release(&waiter->lock);
    strata_error_suppress_end(false);
    return NULL;
}

strata_status service_waiter_open(strata_service *service, service_waiter **out)
{
    service_waiter *waiter = strata_host_zalloc(sizeof *waiter);
    *out = NULL;
    if (!waiter)
        return strata_fail_host_memory("the waiting thread of a device service");
    strata_lock_init(&waiter->lock, STRATA_RANK_SERVICE_WAITER);
    pthread_cond_init(&waiter->changed, NULL);
    waiter->box = &service->mailbox;
    const strata_status status =
        service_thread_start(&waiter->thread, run, waiter, "the waiting thread of a device service");
    if (status == STRATA_SUCCESS) {
        *out = waiter;
        return STRATA_SUCCESS;
    }
    pthread_cond_destroy(&waiter->changed);
    strata_lock_destroy(&waiter->lock);
    strata_host_free(waiter);
    return status;
}

void service_waiter_close(service_waiter *waiter)
{
    strata_lock_take(&waiter->lock);
    waiter->ending = true;
    pthread_cond_broadcast(&waiter->changed);
    strata_lock_release(&waiter->lock);
    pthread_join(waiter->thread, NULL);
    pthread_cond_destroy(&waiter->changed);
    strata_lock_destroy(&waiter->lock);
    strata_host_free(waiter);
}

void service_waiter_add(service_waiter *waiter, strata_future *request)
{
    strata_lock_take(&waiter->lock);
    request->next_waited = NULL;
    if (waiter->last)
        waiter->last->next_waited = request;
    else
        waiter->first = request;
    waiter->last = request;
    pthread_cond_broadcast(&waiter->changed);
    strata_lock_release(&waiter->lock);
}

bool service_waiter_is_done(service_waiter *waiter, const strata_future *request)
{
    strata_lock_take(&waiter->lock);
    const bool done = request->finished;
    strata_lock_release(&waiter->lock);
    return done;
}

void service_waiter_drain(service_waiter *waiter)
{
    strata_lock_take(&waiter->lock);
    while (waiter->first)
        pthread_cond_wait(&waiter->changed, &waiter->lock.mutex);
    strata_lock_release(&waiter->lock);
}
