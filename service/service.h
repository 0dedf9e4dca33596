/* What the service's files share.
 *
 *     senders --> mailbox --> service thread --> lanes (one a stream) --> answers
 *                                 |                 ^
 *                              context        completion.c looks
 *
 * A request is its future. It is queued, then begun, then answered; the thread that changes its state from one of the
 * first two to CLAIMED answers it, so that there is one answer: the service's thread with the result, the timer at the
 * time limit, a canceller. The service holds it until its work on the device is complete, however it was answered. */
#ifndef STRATA_SERVICE_SERVICE_H
#define STRATA_SERVICE_SERVICE_H

#include "core/base/lock.h"
#include "core/base/thread.h"
#include "service/future.h"
#include "service/recorder.h"

#include <strata/fence.h>
#include <strata/service.h>

#include <pthread.h>
#include <stdatomic.h>

enum {
    SERVICE_PRIORITIES = 3,
    SERVICE_STREAMS_LIMIT = 64, /* of a priority */
    SERVICE_REBUILDS_LIMIT = 64,
    SERVICE_NAME_LIMIT = 255,      /* bytes of the name of an operation or a graph: those of a tag */
    SERVICE_ENTRY_LIMIT = 1 << 14, /* of a kernel's */
};

/* A list of requests, linked by `next`, oldest first. */
typedef struct service_list {
    strata_future *first, *last;
} service_list;

void service_list_add(service_list *list, strata_future *request);
strata_future *service_list_take(service_list *list); /* NULL: empty */

/* ---- mailbox ---- */

/* Guarded by `lock` but for what is said. */
typedef struct service_mailbox {
    strata_spin lock; /* held for moments, by senders and the service's thread in turns */
    service_list lists[SERVICE_PRIORITIES];
    bool sleeping;          /* the service's thread waits for a ring */
    int wake_fd;            /* an eventfd, where the thread polls another descriptor, too; else -1; constant */
    _Atomic uint32_t rings; /* a futex, where there is no wake_fd; any thread */
    uint32_t heard;         /* of `rings`; the service's thread alone */
    _Atomic uint64_t held;  /* requests that are not finished; any thread */
    _Atomic uint64_t limit; /* of `held`, at which new requests are refused; written by the service's thread */
    _Atomic bool filled;    /* something was put; a hint for the service's thread */
} service_mailbox;

/* `polls`: service_mailbox_sleep is given descriptors. Else the box has none that a program could close. */
strata_status service_mailbox_open(service_mailbox *box, bool polls);
void service_mailbox_close(service_mailbox *box);

/* Makes room for one more request, until it is finished. Errors: QUEUE_FULL. */
strata_status service_mailbox_reserve(service_mailbox *box);
void service_mailbox_unreserve(service_mailbox *box);
void service_mailbox_put(service_mailbox *box, strata_future *request);
void service_mailbox_take_all(service_mailbox *box, service_list lists[SERVICE_PRIORITIES]);

/* Wakes the service's thread if it sleeps; the second from anywhere, also a signal or a host function of the driver. */
void service_mailbox_wake(service_mailbox *box);
void service_mailbox_ring(service_mailbox *box);

/* The service's thread waits until something is put, it is woken, `fd` is readable (-1: none, as always where the box
 * does not poll), or the time is over. */
void service_mailbox_sleep(service_mailbox *box, int fd, uint64_t nanoseconds);

/* ---- timer ---- */

/* Answers requests with TIMEOUT at their time limits, on a thread of its own that starts with the first limit. */
typedef struct service_timer {
    strata_lock lock;       /* of all below */
    pthread_cond_t changed; /* CLOCK_MONOTONIC */
    strata_future **heap;   /* by deadline, the nearest first */
    size_t count, room;
    bool started, ending;
    pthread_t thread;
    void (*expire)(strata_future *request); /* constant; called without the lock */
} service_timer;

/* Starts a thread of the library, which gets no signals. Errors: OUT_OF_HOST_MEMORY. */
strata_status service_thread_start(pthread_t *thread, void *(*function)(void *), void *data, const char *what);

void service_timer_open(service_timer *timer, void (*expire)(strata_future *request));
void service_timer_close(service_timer *timer);
strata_status service_timer_add(service_timer *timer, strata_future *request);
void service_timer_remove(service_timer *timer, strata_future *request);
bool service_timer_is_own_thread(service_timer *timer); /* whether it is the calling one */

/* ---- the service ---- */

typedef enum service_phase {
    SERVICE_OPENING = 0, /* there is no context yet, or it is rebuilt */
    SERVICE_RUNNING,
    SERVICE_STOPPED, /* for good: `stopped` says why */
} service_phase;

typedef enum service_end { SERVICE_GOES_ON = 0, SERVICE_NOT_YET, SERVICE_OVER } service_end;

/* The operations of a form of service, called on the service's thread where nothing else is said. */
typedef struct service_backend {
    /* Makes a context, of the service's generation. Errors: of making a runtime, or a worker. */
    strata_status (*open)(strata_service *service);
    /* Begins a request that is not answered: it is finished at once, or later by `poll`. */
    void (*begin)(strata_service *service, strata_future *request);
    /* Finishes what is complete. Also called without a context, or before the first. */
    void (*poll)(strata_service *service);
    /* How long the thread may sleep before the next poll, if nothing is put meanwhile. Called as `poll`. */
    uint64_t (*patience)(const strata_service *service);
    /* A descriptor to wake for; -1: none. */
    int (*descriptor)(const strata_service *service);
    /* The context is lost: all requests that have begun are answered, and finished, or are finished by `poll`. */
    void (*lose)(strata_service *service, const strata_error *why);
    /* Whether a context can be made after such a failure. Any thread. */
    bool (*survives)(const strata_error *error);
    /* The deadline of shutting down is over: all that has begun is answered, and finished if that is safe. */
    void (*give_up)(strata_service *service, const strata_error *why);
    /* Ends what is open. Errors: BUSY (graphs or blocks of the program exist). */
    strata_status (*close)(strata_service *service);
    /* The device's bytes, of a service that is ready; zero if they are not known. Any thread. */
    void (*tell_memory)(strata_service *service, strata_service_stats *stats);
    /* Whether the memory can be used here. Errors: WRONG_DEVICE, UNSUPPORTED. Any thread. */
    strata_status (*check_ref)(strata_service *service, const strata_ref *ref);
    /* Any thread. */
    strata_status (*make_buffer)(strata_service *service, size_t bytes, strata_host_buffer **out);
    /* What a request takes of a graph's `recorded_limit`. NULL: there is no such limit. Any thread. */
    size_t (*recorded_bytes)(const strata_future *request);
    size_t recorded_limit;
} service_backend;

const service_backend *service_backend_of(strata_service_form form);
extern const service_backend service_in_process, service_isolated;

struct strata_service {
    strata_service_options options;             /* constant, with defaults filled in; as are all down to `recorder` */
    char *stack_text, *worker, *libraries_text; /* copies */
    const service_backend *backend;
    unsigned forks; /* of the process, when it was made */
    pthread_t thread;
    strata_device_state *state;
    service_recorder *recorder; /* constant; used by the service's thread. NULL: nothing is recorded */

    service_mailbox mailbox;
    service_timer timer;
    _Atomic int phase;         /* service_phase; written by the service's thread, under `lock` */
    _Atomic bool shut_down;    /* set under `lock`, for good */
    _Atomic uint64_t deadline; /* of the shutting down, CLOCK_MONOTONIC; UINT64_MAX: none */
    _Atomic bool ending;       /* the thread returns when nothing is held */

    strata_lock lock; /* of `ready` and of what is said below */
    pthread_cond_t ready;
    strata_error stopped;      /* why, in phase STOPPED; written once */
    strata_error last_failure; /* of the context or of making one, in phase OPENING; SUCCESS: there was none */
    service_end end;           /* for strata_service_destroy: how far the end is */
    strata_error why_not_yet;  /* why it is NOT_YET */

    /* The service's thread alone. */
    service_list queued[SERVICE_PRIORITIES];
    uint64_t rebuilds_at[SERVICE_REBUILDS_LIMIT]; /* times of the last rebuilds */
    unsigned rebuild_count;                       /* all rebuilds so far */
    uint64_t failing_since; /* when the first of the present failed attempts was; 0: there is none */
    unsigned attempts;      /* failed attempts since then */
    bool was_open;          /* a context was there before */
    bool gave_up;           /* the deadline of shutting down is over */
    bool rebuild_wanted;    /* the program's handler asked for a rebuild */
    bool lost;              /* the context is to be dropped after the running call */
    strata_error why_lost;
    struct service_context *context; /* in process */
    struct service_client *client;   /* isolated; other threads use it while there is a context */

    /* Any thread, relaxed: statistics; each is written by one thread at a time or added to. */
    _Atomic uint64_t done, failed, timeouts, cancelled, bytes_to_host, bytes_from_host, rebuilds, in_flight;
    _Atomic uint32_t compute_major, compute_minor, active_streams;
    _Atomic int worker_process;

    /* Written by the service's thread under `lock`: the snapshot, zero without a context, and open libraries. */
    strata_service_snapshot snapshot;
    strata_libraries *libraries; /* or NULL */
};

static inline service_phase service_phase_now(const strata_service *service)
{
    return (service_phase)atomic_load_explicit(&service->phase, memory_order_acquire);
}

/* Checks the service that a call was given. Errors: INVALID_VALUE, FORKED. */
strata_status service_check(const strata_service *service, const char *call);

/* Raises INVALID_VALUE unless a name is UTF-8 without control characters, of at most `most` bytes. `what` says in the
 * message what it is the name of. */
strata_status service_check_name(const char *name, size_t most, const char *what);

/* What to do about an error of a call that makes a descriptor: words for the end of a message, or none. */
const char *service_descriptor_advice(int error);

/* The first finds a call's operands and returns their number; the second releases them, and frees the call. */
size_t service_blas_operands(strata_service_blas_call *call, strata_blas_operand *operands[3]);
void service_blas_drop(strata_service_blas_call *call);

/* ---- requests ---- */

/* Makes a request of the kind, held by the service and, with `out`, by the caller; the caller fills in what the kind
 * needs, and submits it, or drops it. Errors: of service_check, STALE, INVALID_VALUE, OUT_OF_HOST_MEMORY, why it
 * stopped. */
strata_status service_request_make(strata_service *service, service_request_kind kind, const strata_send_options *send,
                                   const char *call, strata_future **out);
/* Submits a request, or records it in its graph. *out (may be NULL) is set after success; after an error the request is
 * gone. */
strata_status service_request_submit(strata_future *request, strata_future **out);
void service_request_drop(strata_future *request);

/* Each answers the request, unless it is answered already: succeed with its result, fail with a failure, give_up with a
 * failure while its work goes on, on any thread. After the first two the service's thread finishes it before anything
 * else; just before the answer it leaves its place in the queue, which the next request can have. */
void service_request_succeed(strata_future *request);
void service_request_fail(strata_future *request, const strata_error *error);
void service_request_give_up(strata_future *request, const strata_error *error);

/* Notes why the request failed: it is answered with that once those before it are answered. */
void service_request_note_failure(strata_future *request, const strata_error *error);
/* Answers TIMEOUT at the request's time limit, while its work goes on. Any thread. */
void service_request_expire(strata_future *request);

/* Ends an answered request whose work is over, for good: releases what it held, then the service's hold. */
void service_request_finish(strata_future *request);

/* The first raises why the service takes no requests: STALE while it shuts down, or why it stopped. The second raises
 * why it stopped. */
strata_status service_check_open(strata_service *service);
strata_status service_refuse_stopped(strata_service *service);

/* Whether the service takes requests; raises nothing. */
static inline bool service_is_open(const strata_service *service)
{
    return service_phase_now(service) != SERVICE_STOPPED &&
           !atomic_load_explicit(&service->shut_down, memory_order_acquire);
}

/* ---- host buffers ---- */

/* The data of a buffer whose end is `end`; NULL if it has another one. */
void *service_buffer_data(const strata_host_buffer *buffer, strata_host_buffer_end end);

/* Raises SHARED if the buffer has handles besides the caller's and the request's. */
strata_status service_check_unshared(const strata_host_buffer *buffer);

/* ---- supervision ---- */

/* Whether no call in the context succeeds after such a result. */
bool service_is_sticky(CUresult code);

strata_failure_class service_classify(const strata_service *service, const strata_error *error);

/* Called by the service's thread about each failure of work, not of a request's arguments: may set `lost`. */
void service_judge(strata_service *service, const strata_error *error);

/* Deals with a lost context: answers what has begun, moves the generation on, and leaves the context to be made again,
 * or stops the service. */
void service_handle_loss(strata_service *service);

/* Makes a context; after an error the service stops, or tries again later (*later: CLOCK_MONOTONIC). */
void service_try_open(strata_service *service, uint64_t *later);

void service_stop(strata_service *service, const strata_error *why);

/* Writes "; the last failure: ...", or an empty text if there is a context, or nothing has failed. Any thread. */
enum { SERVICE_FAILURE_TEXT = 340 };
void service_tell_last_failure(strata_service *service, char *text, size_t room);

/* ---- the thread ---- */

void *service_thread_run(void *service);

/* ---- own_thread.c ---- */

/* Called first by the service's thread. */
void service_enter_own_thread(const strata_service *service);

/* Whether the calling thread is that of the service, which may have been destroyed if it is not. */
bool service_is_own_thread(const strata_service *service);

#endif
