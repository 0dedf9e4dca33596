/* A future, which is also its request. */
#ifndef STRATA_SERVICE_FUTURE_H
#define STRATA_SERVICE_FUTURE_H

#include <strata/future.h>
#include <strata/service.h>
#include <strata/service_blas.h>

#include <stdatomic.h>

typedef enum service_request_kind {
    SERVICE_ALLOCATE = 0,
    SERVICE_COPY_TO_HOST,
    SERVICE_COPY_FROM_HOST,
    SERVICE_RUN,
    SERVICE_LOAD,
    SERVICE_LAUNCH,
    SERVICE_RECORD_GRAPH,
    SERVICE_LAUNCH_GRAPH,
    SERVICE_BLAS,
    SERVICE_COPY, /* on the device */
    SERVICE_FILL,
    SERVICE_MAKE_GRAPH, /* of requests */
    SERVICE_PLAY_GRAPH,
    SERVICE_KINDS,
} service_request_kind;

typedef enum service_request_state {
    SERVICE_QUEUED = 0,
    SERVICE_STARTING, /* a graph is being launched: the program may destroy it once there is an answer */
    SERVICE_BEGUN,
    SERVICE_CLAIMED, /* one thread writes the answer */
    SERVICE_ANSWERED,
} service_request_state;

typedef struct service_launch {
    uint64_t module;
    char *entry; /* a copy */
    unsigned grid[3], block[3], shared_bytes;
    size_t count;
    strata_argument *arguments; /* copies, whose references are held */
} service_launch;

struct strata_future {
    _Atomic uint32_t state;    /* service_request_state; a futex */
    _Atomic uint32_t sleepers; /* threads that wait for it, or are about to */
    _Atomic uint32_t holders;  /* the caller, the service, and threads that are about to answer */
    strata_service *service;   /* exists until the request is finished; these are constant */
    unsigned forks;            /* of the process, when it was made */
    service_request_kind kind;
    strata_priority priority;
    strata_service_hint hint;
    uint64_t sender, deadline; /* CLOCK_MONOTONIC; 0: none */
    uint64_t timeout;          /* as it was given */

    /* The answer: written by the thread that claimed it, before ANSWERED. */
    strata_answer answer;
    _Atomic bool taken;
    _Atomic(strata_future_callback) callback; /* until it is called */
    _Atomic bool has_callback;
    void *callback_data;
    _Atomic int fd; /* until the caller's release; negative: see future.c */

    struct strata_future *next;        /* of the list that it is in */
    struct strata_future *previous;    /* isolated: of those that were sent */
    size_t timer_index;                /* in the timer's heap, plus 1; 0: not in it; under the timer's lock */
    struct strata_future *next_waited; /* of the thread that waits for fences; under its lock, as is the next */
    bool finished;
    uint64_t begun_at;
    struct strata_fence *fence; /* behind its work, or NULL: there is none to wait for */
    uint64_t host_call;         /* complete when so many host functions of its lane ran; 0: not used */
    uint64_t number;            /* isolated: its operations that the worker has not answered */
    bool placed;                /* counts towards the queue's limit; the submitter, then the service's thread */
    uint64_t recorded;          /* in a recording: the number of what an allocation or a load gives; else 0 */

    /* What the request is about; held by the service until it is finished. */
    strata_ref *ref;
    strata_ref *to; /* copy: what is written; `ref` is read */
    strata_host_buffer *buffer;
    struct strata_graph *graph;
    struct strata_service_graph *recorded_graph; /* the graph that is made, or played */
    struct strata_service_graph *into;           /* the graph that records it, not held; NULL: none */
    uint32_t fill_value, fill_width;             /* the second in bytes */
    strata_element type;
    size_t length;
    bool raw; /* allocate: undefined bytes; run: the function submits nothing, and there is nothing to wait for */
    strata_answer result; /* of its work, until the answer */
    strata_error *failed; /* why it failed when it was submitted, until those before it are answered; or NULL */
    strata_service_operation operation;
    char *name; /* of the operation: a copy */
    void *image;
    size_t image_bytes;
    service_launch launch;
    strata_service_blas_call *blas; /* a copy, whose references are held */
};

/* The first: how many forks lie between this process and the first one. The second raises FORKED if that is not `forks`
 * any more. */
unsigned service_forks(void);
strata_status service_check_fork(unsigned forks);

uint64_t service_clock(void); /* CLOCK_MONOTONIC, nanoseconds */

/* Makes a future with one holder; NULL without host memory. */
strata_future *service_future_make(strata_service *service, service_request_kind kind);
void service_future_hold(strata_future *future);
void service_future_unhold(strata_future *future);

/* Claims the answer: one thread gets true, and then answers. The second claims only a request that has not begun. */
bool service_future_claim(strata_future *future);
bool service_future_claim_queued(strata_future *future);

/* begin changes QUEUED to BEGUN, or for a launch of a graph to STARTING, until submitted; false if it was claimed. */
bool service_future_begin(strata_future *future);
void service_future_submitted(strata_future *future);

/* Publishes the answer of a claimed request: wakes waiters, rings its descriptor, calls its callback. */
void service_future_publish(strata_future *future, const strata_answer *answer);

static inline service_request_state service_future_state(const strata_future *future)
{
    return (service_request_state)atomic_load_explicit(&future->state, memory_order_acquire);
}

/* Releases what an answer owns. */
void service_answer_release(strata_answer *answer);

#endif
