/* Futures: the answer to a request to a device service (service.h), which comes exactly once.
 *
 * A future belongs to the submitter of the request until strata_future_release. Any thread may wait for it. */
#ifndef STRATA_FUTURE_H
#define STRATA_FUTURE_H

#include <strata/host_buffer.h>
#include <strata/ref.h>

#ifdef __cplusplus
extern "C" {
#endif

struct strata_graph;

typedef struct strata_future strata_future;

/* How a failure is treated. */
typedef enum strata_failure_class {
    STRATA_FAILURE_NONE = 0,
    STRATA_FAILURE_REQUEST,       /* the request was wrong, or came too late: it alone failed */
    STRATA_FAILURE_OUT_OF_MEMORY, /* of the device, a budget or the host; the service goes on */
    STRATA_FAILURE_POISONED, /* the context is lost: it is rebuilt, the generation moves on, references are stale. The
                                status is POISONED, or the driver's failure: DRIVER, DEVICE_RESET */
    STRATA_FAILURE_LIBRARY,  /* of a library such as cuBLAS; the message has its name and its text */
    STRATA_FAILURE_TIMEOUT,
    STRATA_FAILURE_UNRECOVERABLE, /* no context can be made: the service stops */
    STRATA_FAILURE_OTHER,         /* the service's handler decides */
} strata_failure_class;

/* The class's name, such as "out of memory". Never NULL. */
STRATA_API const char *strata_failure_class_name(strata_failure_class value);

/* What a request gave. What is not of its kind is zero or NULL. */
typedef struct strata_answer {
    strata_status status;
    strata_failure_class failure;
    uint64_t generation;        /* of the device's state when the request was answered */
    const strata_error *error;  /* the whole record of a failure; NULL after success; valid as long as the future */
    strata_ref *ref;            /* allocate: the caller's, to be released */
    strata_host_buffer *buffer; /* copies: the handle that the request had, to be released; NULL if the copy goes on */
    struct strata_graph *graph; /* graph record: the caller's, to be destroyed */
    uint64_t module;            /* load: of strata_service_launch */
    strata_status returned;     /* run: what the function returned */
} strata_answer;

/* Waits until the request is answered. Returns the answer's status; the thread's error record is then the answer's.
 * Errors besides: INVALID_VALUE (also on the service's own thread, if there is no answer yet), FORKED. */
STRATA_API strata_status strata_future_wait(strata_future *future);

/* As strata_future_wait, for at most `nanoseconds`: NOT_READY, without an error record, if there is no answer by then.
 */
STRATA_API strata_status strata_future_wait_for(strata_future *future, uint64_t nanoseconds);

/* Whether there is an answer. Never waits. */
STRATA_API bool strata_future_poll(const strata_future *future);

/* Gives the answer, once: what it owns is the caller's from then on. Errors: NOT_READY (none yet), INVALID_VALUE (it
 * was taken). What is not taken is released with the future. */
STRATA_API strata_status strata_future_take(strata_future *future, strata_answer *out);

/* Called once, on the thread that answers: the service's, its timer's, the canceller's, or the caller's if there is an
 * answer already. Must not block, wait for futures, or destroy the service; may submit, take and release. */
typedef void (*strata_future_callback)(strata_future *future, void *data);

/* Sets the callback. Errors: INVALID_VALUE (it has one). */
STRATA_API strata_status strata_future_on_answer(strata_future *future, strata_future_callback callback, void *data);

/* A descriptor for poll, select or epoll that is readable once there is an answer. It belongs to the future:
 * strata_future_release closes it, with which it leaves every epoll set, and poll and select must not be given it any
 * more. -1, with an error record, if none is left. */
STRATA_API int strata_future_fd(strata_future *future);

/* Answers the request with CANCELLED if it has not begun. Errors: BUSY (it has begun; its answer comes), INVALID_VALUE.
 */
STRATA_API strata_status strata_future_cancel(strata_future *future);

/* Ends the caller's hold. The request goes on; its answer is dropped, and what it owns released. NULL is ignored. */
STRATA_API void strata_future_release(strata_future *future);

#ifdef __cplusplus
}
#endif

#endif
