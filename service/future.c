/* Futures: one answer each, and the threads that wait for it. */
#include "service/future.h"

#include "core/base/cancel.h"
#include "core/base/descriptor_mark.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"
#include "service/service.h"

#include <errno.h>
#include <limits.h>
#include <linux/futex.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

/* What a future's `fd` is beside a descriptor. */
enum {
    NO_FD = -1,   /* not made */
    RINGING = -2, /* the thread that answers writes to it: for moments */
    CLOSED = -3,  /* the caller's hold has ended */
};

/* ---- life ---- */

strata_future *service_future_make(strata_service *service, service_request_kind kind)
{
    strata_future *future = strata_host_zalloc(sizeof *future);
    if (!future)
        return NULL;
    future->service = service;
    future->kind = kind;
    atomic_init(&future->holders, 1);
    atomic_init(&future->fd, NO_FD);
    return future;
}

void service_future_hold(strata_future *future)
{
    atomic_fetch_add_explicit(&future->holders, 1, memory_order_relaxed);
}

void service_answer_release(strata_answer *answer)
{
    strata_ref_release(answer->ref);
    strata_host_buffer_release(answer->buffer);
    strata_graph_destroy(answer->graph);
    answer->ref = NULL;
    answer->buffer = NULL;
    answer->graph = NULL;
}

void service_future_unhold(strata_future *future)
{
    if (atomic_fetch_sub_explicit(&future->holders, 1, memory_order_acq_rel) != 1)
        return;
    strata_error_suppress_begin(); /* errors of an end have no caller */
    if (!atomic_load_explicit(&future->taken, memory_order_acquire))
        service_answer_release(&future->answer);
    strata_error_suppress_end(false);
    strata_host_free((void *)(uintptr_t)future->answer.error);
    strata_host_free(future);
}

/* ---- state ---- */

static bool change(strata_future *future, service_request_state from, service_request_state to)
{
    uint32_t expected = from;
    return atomic_compare_exchange_strong_explicit(&future->state, &expected, to, memory_order_acq_rel,
                                                   memory_order_acquire);
}

bool service_future_claim_queued(strata_future *future)
{
    return change(future, SERVICE_QUEUED, SERVICE_CLAIMED);
}

bool service_future_claim(strata_future *future)
{
    return service_future_claim_queued(future) || change(future, SERVICE_BEGUN, SERVICE_CLAIMED);
}

bool service_future_begin(strata_future *future)
{
    return change(future, SERVICE_QUEUED, future->kind == SERVICE_LAUNCH_GRAPH ? SERVICE_STARTING : SERVICE_BEGUN);
}

void service_future_submitted(strata_future *future)
{
    change(future, SERVICE_STARTING, SERVICE_BEGUN);
}

/* Writes to the descriptor. A release waits meanwhile, so that the number is not another file's. */
static void ring(strata_future *future)
{
    int fd = atomic_load_explicit(&future->fd, memory_order_seq_cst);
    while (fd >= 0 && !atomic_compare_exchange_weak_explicit(&future->fd, &fd, RINGING, memory_order_acq_rel,
                                                             memory_order_acquire))
        ;
    if (fd < 0)
        return;
    const int cancel = strata_cancel_forbid();
    while (eventfd_write(fd, 1) < 0 && errno == EINTR)
        ;
    atomic_store_explicit(&future->fd, fd, memory_order_release);
    strata_cancel_restore(cancel);
    strata_lock_jitter();
}

/* The descriptor, NO_FD or CLOSED. */
static int fd_of(const strata_future *future)
{
    int fd;
    for (unsigned spins = 0; (fd = atomic_load_explicit(&future->fd, memory_order_acquire)) == RINGING;)
        strata_backoff(&spins);
    return fd;
}

static void close_fd(strata_future *future)
{
    int fd = fd_of(future);
    while (!atomic_compare_exchange_weak_explicit(&future->fd, &fd, CLOSED, memory_order_acq_rel, memory_order_acquire))
        fd = fd_of(future);
    if (fd >= 0)
        close(fd);
}

/* The callback is taken by the thread that finds both it and the answer. */
static void call_back(strata_future *future)
{
    strata_error_aside aside;
    const strata_future_callback callback =
        service_future_state(future) == SERVICE_ANSWERED
            ? atomic_exchange_explicit(&future->callback, NULL, memory_order_acq_rel)
            : NULL;
    if (!callback)
        return;
    strata_error_set_aside(&aside);
    callback(future, future->callback_data);
    strata_error_take_back(&aside);
}

void service_future_publish(strata_future *future, const strata_answer *answer)
{
    future->answer = *answer;
    atomic_store_explicit(&future->state, SERVICE_ANSWERED, memory_order_seq_cst);
    strata_lock_jitter();
    atomic_thread_fence(memory_order_seq_cst); /* the other thread tells of itself first, then looks at the state */
    if (atomic_load_explicit(&future->sleepers, memory_order_relaxed))
        syscall(SYS_futex, &future->state, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
    ring(future);
    call_back(future);
}

/* ---- waiting ---- */

static strata_status check(const strata_future *future, const char *call)
{
    if (!future)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: future is NULL", call);
    return service_check_fork(future->forks);
}

/* Refuses a wait on the service's own thread, which would wait for itself. */
static strata_status check_wait(const strata_future *future, const char *call)
{
    const strata_status status = check(future, call);
    if (status != STRATA_SUCCESS || strata_future_poll(future) || !service_is_own_thread(future->service))
        return status;
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "%s: called on the service's own thread, which would wait for itself; set a callback", call);
}

static strata_status status_of(const strata_future *future)
{
    const strata_answer *answer = &future->answer;
    if (answer->status == STRATA_SUCCESS)
        return STRATA_SUCCESS;
    return answer->error ? strata_error_raise_again(answer->error)
                         : strata_fail(answer->status, "the request failed; out of host memory for the reason");
}

/* Sleeps while the state is `seen`; `until`: CLOCK_MONOTONIC, 0: for ever. */
static void sleep_on(strata_future *future, uint32_t seen, uint64_t until)
{
    const struct timespec time = {.tv_sec = (time_t)(until / 1000000000), .tv_nsec = (long)(until % 1000000000)};
    syscall(SYS_futex, &future->state, FUTEX_WAIT_BITSET_PRIVATE, seen, until ? &time : NULL, NULL,
            FUTEX_BITSET_MATCH_ANY);
}

/* An answer often comes within microseconds, and a sleep costs ten. */
static bool comes_soon(const strata_future *future)
{
    for (unsigned spins = 0; spins < 2000; spins++) {
        if (strata_future_poll(future))
            return true;
        strata_pause();
    }
    return false;
}

static bool wait_until(strata_future *future, uint64_t until)
{
    if (strata_future_poll(future) || (until && service_clock() >= until))
        return strata_future_poll(future);
    if (comes_soon(future))
        return true;
    atomic_fetch_add_explicit(&future->sleepers, 1, memory_order_seq_cst);
    bool answered = false, over = false;
    while (!answered && !over) {
        const uint32_t seen = atomic_load_explicit(&future->state, memory_order_seq_cst);
        answered = seen == SERVICE_ANSWERED;
        over = until && service_clock() >= until;
        if (!answered && !over)
            sleep_on(future, seen, until);
    }
    atomic_fetch_sub_explicit(&future->sleepers, 1, memory_order_relaxed);
    return answered;
}

strata_status strata_future_wait(strata_future *future)
{
    const strata_status status = check_wait(future, "strata_future_wait");
    if (status != STRATA_SUCCESS)
        return status;
    wait_until(future, 0);
    return status_of(future);
}

strata_status strata_future_wait_for(strata_future *future, uint64_t nanoseconds)
{
    const strata_status status = check_wait(future, "strata_future_wait_for");
    if (status != STRATA_SUCCESS)
        return status;
    uint64_t until;
    if (__builtin_add_overflow(service_clock(), nanoseconds, &until))
        until = 0;
    return wait_until(future, until) ? status_of(future) : STRATA_ERROR_NOT_READY;
}

bool strata_future_poll(const strata_future *future)
{
    return future && service_future_state(future) == SERVICE_ANSWERED;
}

/* ---- answers ---- */

strata_status strata_future_take(strata_future *future, strata_answer *out)
{
    if (out)
        *out = (strata_answer){0};
    strata_status status = check(future, "strata_future_take");
    if (status != STRATA_SUCCESS)
        return status;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_future_take: out is NULL");
    if (!strata_future_poll(future))
        return strata_fail(STRATA_ERROR_NOT_READY, "the request is not answered yet; wait for its future");
    if (atomic_exchange_explicit(&future->taken, true, memory_order_acq_rel))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_future_take: the answer was taken");
    *out = future->answer;
    return STRATA_SUCCESS;
}

strata_status strata_future_on_answer(strata_future *future, strata_future_callback callback, void *data)
{
    strata_status status = check(future, "strata_future_on_answer");
    if (status != STRATA_SUCCESS)
        return status;
    if (!callback || atomic_exchange_explicit(&future->has_callback, true, memory_order_acq_rel))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_future_on_answer: %s",
                           callback ? "the future has a callback" : "callback is NULL");
    future->callback_data = data;
    service_future_hold(future); /* from here on the callback may come, and release the future */
    atomic_store_explicit(&future->callback, callback, memory_order_seq_cst);
    strata_lock_jitter();
    atomic_thread_fence(memory_order_seq_cst); /* see service_future_publish */
    call_back(future);
    service_future_unhold(future);
    return STRATA_SUCCESS;
}

int strata_future_fd(strata_future *future)
{
    if (check(future, "strata_future_fd") != STRATA_SUCCESS)
        return -1;
    int fd = fd_of(future);
    if (fd == CLOSED)
        strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_future_fd: the future was released");
    if (fd != NO_FD)
        return fd == CLOSED ? -1 : fd;
    const int made = strata_descriptor_move_up(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (made < 0) {
        strata_fail(STRATA_ERROR_IO, "a future has no file descriptor: eventfd: %s%s", strerror(errno),
                    service_descriptor_advice(errno));
        return -1;
    }
    if (!atomic_compare_exchange_strong_explicit(&future->fd, &fd, made, memory_order_seq_cst, memory_order_acquire)) {
        close(made);
        return strata_future_fd(future); /* another thread's */
    }
    atomic_thread_fence(memory_order_seq_cst); /* see service_future_publish */
    if (strata_future_poll(future))
        ring(future);
    return made;
}

void strata_future_release(strata_future *future)
{
    if (!future || service_check_fork(future->forks) != STRATA_SUCCESS)
        return;
    const int cancel = strata_cancel_forbid(); /* what its answer holds would stay */
    close_fd(future);
    service_future_unhold(future);
    strata_cancel_restore(cancel);
}
