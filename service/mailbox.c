/* The mailbox: requests from any thread, taken by the service's thread. */
#include "core/base/cancel.h"
#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "service/service.h"

#include <errno.h>
#include <linux/futex.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* ---- lists ---- */

void service_list_add(service_list *list, strata_future *request)
{
    request->next = NULL;
    if (list->last)
        list->last->next = request;
    else
        list->first = request;
    list->last = request;
}

strata_future *service_list_take(service_list *list)
{
    strata_future *request = list->first;
    if (!request)
        return NULL;
    list->first = request->next;
    if (!list->first)
        list->last = NULL;
    return request;
}

/* Moves all of `from` behind `to`. */
static void append(service_list *to, service_list *from)
{
    if (!from->first)
        return;
    if (to->last)
        to->last->next = from->first;
    else
        to->first = from->first;
    to->last = from->last;
    *from = (service_list){0};
}

/* ---- the box ---- */

strata_status service_mailbox_open(service_mailbox *box, bool polls)
{
    strata_spin_init(&box->lock, STRATA_RANK_SERVICE_MAILBOX);
    box->wake_fd = -1;
    if (!polls)
        return STRATA_SUCCESS;
    box->wake_fd = strata_descriptor_move_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    return box->wake_fd >= 0 ? STRATA_SUCCESS
                             : strata_fail(STRATA_ERROR_IO, "a device service has no file descriptor: eventfd: %s%s",
                                           strerror(errno), service_descriptor_advice(errno));
}

void service_mailbox_close(service_mailbox *box)
{
    if (box->wake_fd >= 0)
        close(box->wake_fd);
}

static long ask_futex(service_mailbox *box, int operation, uint32_t value, const struct timespec *time)
{
    return syscall(SYS_futex, &box->rings, operation, value, time, NULL, 0);
}

void service_mailbox_ring(service_mailbox *box)
{
    if (box->wake_fd < 0) {
        atomic_fetch_add_explicit(&box->rings, 1, memory_order_release);
        ask_futex(box, FUTEX_WAKE_PRIVATE, 1, NULL);
        return;
    }
    const int cancel = strata_cancel_forbid(); /* the request is in the box, and its sender's call not yet over */
    while (eventfd_write(box->wake_fd, 1) < 0 && errno == EINTR)
        ;
    strata_cancel_restore(cancel);
}

void service_mailbox_wake(service_mailbox *box)
{
    strata_spin_take(&box->lock);
    const bool asleep = box->sleeping;
    box->sleeping = false;
    atomic_store_explicit(&box->filled, true, memory_order_release); /* it looks again before it sleeps */
    strata_spin_release(&box->lock);
    if (asleep)
        service_mailbox_ring(box);
}

/* The limit holds for a burst of threads, too: each counts itself first. */
strata_status service_mailbox_reserve(service_mailbox *box)
{
    const uint64_t held = atomic_fetch_add_explicit(&box->held, 1, memory_order_relaxed);
    const uint64_t limit = atomic_load_explicit(&box->limit, memory_order_relaxed);
    if (held < limit)
        return STRATA_SUCCESS;
    service_mailbox_unreserve(box);
    return strata_fail(STRATA_ERROR_QUEUE_FULL,
                       "the device service has %llu unanswered requests, and takes no more now; wait for answers",
                       (unsigned long long)limit);
}

void service_mailbox_unreserve(service_mailbox *box)
{
    atomic_fetch_sub_explicit(&box->held, 1, memory_order_release);
}

void service_mailbox_put(service_mailbox *box, strata_future *request)
{
    strata_spin_take(&box->lock);
    service_list_add(&box->lists[request->priority], request);
    const bool asleep = box->sleeping;
    box->sleeping = false;
    atomic_store_explicit(&box->filled, true, memory_order_release);
    strata_spin_release(&box->lock);
    if (asleep)
        service_mailbox_ring(box);
}

void service_mailbox_take_all(service_mailbox *box, service_list lists[SERVICE_PRIORITIES])
{
    if (!atomic_load_explicit(&box->filled, memory_order_acquire))
        return;
    strata_spin_take(&box->lock);
    atomic_store_explicit(&box->filled, false, memory_order_relaxed);
    for (size_t i = 0; i < SERVICE_PRIORITIES; i++)
        append(&lists[i], &box->lists[i]);
    strata_spin_release(&box->lock);
}

/* A sender that has an answer often sends the next request within microseconds, and a wake costs more. */
static bool fills_soon(const service_mailbox *box)
{
    for (unsigned spins = 0; spins < 200; spins++) {
        if (atomic_load_explicit(&box->filled, memory_order_relaxed))
            return true;
        strata_pause();
    }
    return false;
}

static bool prepare_sleep(service_mailbox *box)
{
    strata_spin_take(&box->lock);
    box->sleeping = !atomic_load_explicit(&box->filled, memory_order_relaxed);
    const bool sleeps = box->sleeping;
    strata_spin_release(&box->lock);
    return sleeps;
}

/* A ring since the last sleep ends this one at once. */
static void wait_for_ring(service_mailbox *box, const struct timespec *time)
{
    if (atomic_load_explicit(&box->rings, memory_order_acquire) == box->heard)
        ask_futex(box, FUTEX_WAIT_PRIVATE, box->heard, time);
    box->heard = atomic_load_explicit(&box->rings, memory_order_acquire);
}

static void poll_both(service_mailbox *box, int fd, const struct timespec *time)
{
    struct pollfd watched[] = {{.fd = box->wake_fd, .events = POLLIN}, {.fd = fd, .events = POLLIN}};
    eventfd_t rung;
    ppoll(watched, fd < 0 ? 1 : 2, time, NULL);
    if (watched[0].revents)
        eventfd_read(box->wake_fd, &rung);
}

void service_mailbox_sleep(service_mailbox *box, int fd, uint64_t nanoseconds)
{
    if (fills_soon(box) || !prepare_sleep(box))
        return;
    const struct timespec time = {.tv_sec = (time_t)(nanoseconds / 1000000000),
                                  .tv_nsec = (long)(nanoseconds % 1000000000)};
    const struct timespec *most = nanoseconds == UINT64_MAX ? NULL : &time;
    if (box->wake_fd < 0)
        wait_for_ring(box, most);
    else
        poll_both(box, fd, most);
    strata_spin_take(&box->lock);
    box->sleeping = false;
    strata_spin_release(&box->lock);
}
