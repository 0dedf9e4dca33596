/* The form in which the service's thread has the context: what its files share. Used by that thread alone but for what
 * is said. */
#ifndef STRATA_SERVICE_IN_PROCESS_H
#define STRATA_SERVICE_IN_PROCESS_H

#include "service/service.h"

enum {
    SERVICE_HINTS = 3,
    SERVICE_LANES = SERVICE_PRIORITIES * SERVICE_HINTS,
};

typedef struct service_bell service_bell;

/* Requests on a stream that have begun, in order. */
typedef struct service_lane {
    CUstream stream; /* NULL: not made yet */
    service_list begun;
    service_bell *bell;  /* NULL: no host function was asked for */
    uint64_t host_asked; /* host functions that were submitted */
    strata_future *late; /* the last request given up for its duration, as were those before it; or NULL */
    uint64_t looked_at;  /* when its context was last asked for errors; CLOCK_MONOTONIC */
    bool unregistered;   /* the stream is only to be destroyed */
    bool captured;       /* perhaps: a capture on it could not be ended */
} service_lane;

typedef struct service_module {
    struct service_module *next;
    uint64_t number;
    CUmodule handle;
} service_module;

/* A runtime whose context is lost, and which still has references. */
typedef struct service_retired {
    struct service_retired *next;
    strata_runtime *runtime;
} service_retired;

typedef struct service_waiter service_waiter;

typedef struct service_context {
    strata_runtime *runtime; /* NULL: lost */
    service_lane lanes[SERVICE_LANES][SERVICE_STREAMS_LIMIT];
    size_t begun;                            /* requests in all lanes */
    uint64_t senders[SERVICE_STREAMS_LIMIT]; /* of PER_SENDER: whose lanes those of this index are; 0: none yet */
    struct strata_fence **fences;            /* free ones */
    size_t fence_count, fence_room;
    service_module *modules;
    uint64_t last_module;
    service_retired *retired;
    service_waiter *waiter; /* of SYNCHRONIZING, or NULL */
} service_context;

/* ---- lanes ---- */

/* Find a lane, and make its stream if it has none: the request's; the one at a place. Errors: of making a stream. */
strata_status service_lane_of(strata_service *service, const strata_future *request, service_lane **out);
strata_status service_lane_open(strata_service *service, strata_priority priority, strata_service_hint hint,
                                size_t index, service_lane **out);

/* Closes all lanes. With `leave`, streams that the driver refuses to unregister are the runtime's from then on. Errors:
 * the first one; the next call goes on. */
strata_status service_lanes_close(service_context *context, bool leave);

/* ---- completion ---- */

/* Marks the end of the request's work on the lane. Errors: of a fence, or a host function. */
strata_status service_mark_completion(strata_service *service, service_lane *lane, strata_future *request);

/* Finish what is complete, or has failed, on all lanes or on one. The second returns whether work is left there. */
void service_poll_lanes(strata_service *service);
bool service_poll_lane(strata_service *service, service_lane *lane);
uint64_t service_lanes_patience(const strata_service *service);
void service_fences_close(service_context *context);

/* Answers all that has begun with the failure, and with `finish` finishes it. */
void service_fail_lanes(strata_service *service, const strata_error *why, bool finish);

/* ---- bells ---- */

/* Makes a bell with one holder; NULL without host memory. */
service_bell *service_bell_make(service_mailbox *box);

/* Each submitted host function has a hold, and gives it back. Any thread. */
void service_bell_hold(service_bell *bell);
void service_bell_unhold(service_bell *bell);

/* The host function, and how many of them have run. */
void CUDA_CB service_bell_ring(void *bell);
uint64_t service_bell_calls(const service_bell *bell);

/* Closes a bell: no function uses the mailbox afterwards, and the caller's hold ends. */
void service_bell_close(service_bell *bell);

/* ---- the waiting thread ---- */

strata_status service_waiter_open(strata_service *service, service_waiter **out);
void service_waiter_close(service_waiter *waiter);

/* Makes the thread wait for the request's fence, behind those before it. */
void service_waiter_add(service_waiter *waiter, strata_future *request);
bool service_waiter_is_done(service_waiter *waiter, const strata_future *request);

/* Waits until the thread is done with all that was added. */
void service_waiter_drain(service_waiter *waiter);

/* ---- buffers ---- */

/* As strata_service_buffer_create. Any thread. */
strata_status service_make_buffer(strata_service *service, size_t bytes, strata_host_buffer **out);

/* Tries again to unlock buffers that the driver did not unlock. Any thread. */
void service_buffers_unlock_left(void);

/* ---- ranges ---- */

/* Begin and end an NVTX range around what a request submits, if the options ask for ranges. */
void service_range_begin(const strata_service *service, const strata_future *request);
void service_range_end(const strata_service *service);

/* ---- captures ---- */

strata_status service_begin_capture(strata_service *service, service_lane *lane, strata_capture_mode mode);

/* After success of what was captured on the lane, ends the capture, which gives the graph; else, or if that fails,
 * discards it. Returns the first failure, whose record is then the thread's. */
strata_status service_end_capture(strata_service *service, service_lane *lane, strata_status status,
                                  strata_graph **out);

/* Ends a capture that a function left open on the lane, which is its failure if it has none. The context is current. */
strata_status service_end_left_capture(strata_service *service, service_lane *lane, strata_status status);

/* Ends a capture that could not be ended before. Errors: DRIVER, STREAM_MISUSE, and the next call tries again. */
strata_status service_lane_leave_capture(strata_service *service, service_lane *lane);

/* ---- work ---- */

/* Submits the request's work to the lane's stream; *waits: its end is on the device. */
typedef strata_status (*service_submit)(strata_service *service, service_lane *lane, strata_future *request,
                                        bool *waits);
extern const service_submit service_submits[SERVICE_KINDS];

/* Commits a prepared launch whose work was submitted, or cancels it, and ends the recorder. Returns the first failure,
 * whose record is then the thread's. */
strata_status service_end_recorder(strata_launch *recorder, strata_status status, bool prepared);

strata_status service_load_module(strata_service *service, service_lane *lane, strata_future *request, bool *waits);
strata_status service_launch_kernel(strata_service *service, service_lane *lane, strata_future *request, bool *waits);
strata_status service_compute(strata_service *service, service_lane *lane, strata_future *request, bool *waits);
strata_status service_work_on_device(strata_service *service, service_lane *lane, strata_future *request, bool *waits);
strata_status service_make_graph(strata_service *service, service_lane *lane, strata_future *request, bool *waits);
strata_status service_play_graph(strata_service *service, service_lane *lane, strata_future *request, bool *waits);

/* cuBLAS of the service, which is opened for the first request that needs it. Errors: of opening it; UNSUPPORTED (it
 * is not among the service's libraries). */
strata_status service_find_blas(strata_service *service, strata_blas **out);

/* Opens the libraries that the names list; none is open yet. Close does nothing if none is open. */
strata_status service_libraries_open(strata_service *service, const char *names);
void service_libraries_close(strata_service *service);

/* Unloads all modules. With `leave`, modules that the driver refuses to unload are dropped. Errors: the first one; the
 * next call goes on. */
strata_status service_modules_close(service_context *context, bool leave);

#endif
