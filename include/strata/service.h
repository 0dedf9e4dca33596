/* The device service: a device that answers requests. One thread has the device's context; programs send it work and
 * get futures (future.h), each answered exactly once.
 *
 *     strata_service_create(&(strata_service_options){.device = 0}, &service);
 *     strata_service_allocate(service, STRATA_ELEMENT_F32, 1024, NULL, &future);
 *     strata_future_wait(future);
 *     strata_future_take(future, &answer);                answer.ref is a reference (ref.h)
 *     strata_service_copy_from_host(service, buffer, answer.ref, NULL, &copied);
 *
 * There are two forms with one interface. *In process*, the context is the program's, and a fault of a kernel ends it
 * for the life of the process. *Isolated*, a worker process has the context and the caller makes none: a worker that is
 * poisoned, killed or stuck is replaced, references become stale, the generation moves on, and later requests work.
 * There an address means nothing to the caller: strata_ref_access validates and gives none; strata_ref_raw_device_ptr,
 * DLPack, the launch recorder, functions of the program and snapshots of handles answer UNSUPPORTED.
 *
 * Order: the requests of a sender with one priority and hint begin, and are answered, in the order of their submission,
 * except for those that are cancelled or reach their time limit, and at a shutdown those that have not begun. A sender
 * is a thread, unless the request names one.
 *
 * Bounds: unanswered requests are limited, and more strictly while there is no context: a request beyond that answers
 * QUEUE_FULL at once. One that is cancelled, or reaches a time limit, counts until the service has dropped it, or its
 * work has ended.
 *
 * A fork's child gets FORKED from every call with a service of its parent. One that it makes itself works where the
 * parent had not opened the driver. Any thread may call anything, except where it is said, but a service is not used
 * while or after another thread destroys it. */
#ifndef STRATA_SERVICE_H
#define STRATA_SERVICE_H

#include <strata/future.h>
#include <strata/graph.h>
#include <strata/host_buffer.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_service strata_service;

typedef enum strata_service_form {
    STRATA_SERVICE_IN_PROCESS = 0,
    STRATA_SERVICE_ISOLATED,
} strata_service_form;

/* How the service learns that work is complete. */
typedef enum strata_completion_mode {
    STRATA_COMPLETION_POLLING = 0,   /* asks the driver every poll_interval */
    STRATA_COMPLETION_HOST_FUNCTION, /* the driver calls; a context in error does not, and is asked now and then */
    STRATA_COMPLETION_SYNCHRONIZING, /* a second thread waits, for one request after the other, but not for SHORT ones
                                      */
} strata_completion_mode;

typedef enum strata_service_streams {
    STRATA_SERVICE_STREAM_ONE = 0,    /* for all requests of a priority */
    STRATA_SERVICE_STREAM_PER_SENDER, /* one for each sender, up to stream_count, then shared */
    STRATA_SERVICE_STREAM_POOLED,     /* stream_count streams, of which each sender keeps one */
} strata_service_streams;

typedef enum strata_priority {
    STRATA_PRIORITY_NORMAL = 0,
    STRATA_PRIORITY_LOW,
    STRATA_PRIORITY_HIGH, /* requests begin before those of other priorities, on streams that the device prefers */
} strata_priority;

/* How long the work is: on streams of their own, so that short work is not behind long work. */
typedef enum strata_service_hint {
    STRATA_HINT_NONE = 0,
    STRATA_HINT_SHORT, /* the service looks for its end without sleeping */
    STRATA_HINT_LONG,
} strata_service_hint;

/* What the service does about a failure of the class OTHER. */
typedef enum strata_escalation {
    STRATA_ESCALATION_STOP = 0,
    STRATA_ESCALATION_GO_ON,
    STRATA_ESCALATION_REBUILD, /* as if the context were poisoned */
} strata_escalation;

/* Both run on the service's thread, and must not wait for futures of the service nor destroy it. */
typedef strata_escalation (*strata_escalation_handler)(strata_service *service, const strata_error *error, void *data);

typedef enum strata_service_event {
    STRATA_SERVICE_READY, /* a context was made, and requests begin */
    STRATA_SERVICE_LOST,  /* the context is lost: it will be rebuilt, or the service stops */
    STRATA_SERVICE_STOPPED,
} strata_service_event;

typedef void (*strata_service_notice)(strata_service *service, strata_service_event event, uint64_t generation,
                                      void *data);

/* All zero: the defaults. Times are nanoseconds. */
typedef struct strata_service_options {
    uint32_t size;
    int device; /* one that the driver does not have fails later, a number that none can have at once */
    strata_service_form form;
    const char *stack_text;          /* of the runtime; NULL: strata_runtime_default_stack() */
    uint32_t queue_capacity;         /* unanswered requests while there is a context; 0: 16384 */
    uint32_t pending_queue_capacity; /* while there is none; 0: 1024 */
    strata_completion_mode completion;
    uint64_t poll_interval; /* 0: 50,000 */
    uint64_t poll_limit;    /* after which a request answers TIMEOUT; 0: 300 s */
    strata_service_streams streams;
    uint32_t stream_count;              /* of each priority, at most 64; 0: 4 */
    uint32_t rebuild_limit;             /* rebuilds within rebuild_window, or attempts that fail one after the other,
                                           after which the service stops; at most 64; 0: 3 */
    uint64_t rebuild_window;            /* 0: 60 s */
    bool no_rebuild;                    /* the service stops instead */
    strata_escalation_handler escalate; /* NULL: STOP */
    void *escalate_data;
    const char *libraries;        /* names, separated by commas, that are opened with the context: libraries.h. NULL:
                                     "blas", with the first request that needs it */
    bool nvtx;                    /* NVTX ranges on the service's thread around what each request submits, named for
                                     its operation or kernel; nothing in a build without NVTX */
    strata_service_notice notice; /* may be NULL */
    void *notice_data;
    const char *worker; /* isolated: path of the worker's program; NULL: STRATA_WORKER, else strata-worker beside the
                           library or the program, or in ../libexec/strata */
    int rank;           /* of the device among others, for strata_services_place; higher is better */
    uint64_t worker_silence; /* isolated: a worker that says nothing for so long while requests wait, and does not
                                answer a question, counts as stuck; 0: 10 s */
    const char *record; /* a file that is made for this service, and written with what it begins, to be asked again:
                           service_replay.h. %d in its name is the device, which the files of several services need,
                           %p the process, %% a %. It exists: IO. NULL: nothing is recorded */
} strata_service_options;

/* Makes a service and its thread, which then makes the context: strata_service_wait_ready waits for that. Requests may
 * be sent at once. What its context needs (the device, the stack text, libraries, the worker's program) fails later:
 * strata_service_wait_ready says why. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY, IO. */
STRATA_API strata_status strata_service_create(const strata_service_options *options, strata_service **out);

/* Makes `count` services, for the devices 0, 1, ... with the same options but `device`, or none. 0: one for each device
 * of the driver; *count is then their number. */
STRATA_API strata_status strata_services_create(const strata_service_options *options, strata_service **services,
                                                size_t room, size_t *count);

/* Refuses new requests (STALE, "shutting down"), answers those that have not begun the same way, and lets those that
 * have begun end, for at most `deadline` nanoseconds; then these answer STALE, too. UINT64_MAX: no deadline. Does not
 * wait for the end. A second call can only shorten the deadline. */
STRATA_API strata_status strata_service_shut_down(strata_service *service, uint64_t deadline);

/* Shuts down without a deadline unless that was done, waits until every request is answered, and ends the service. Its
 * state is dropped: references are stale, and their memory goes with the last of each. NULL is ignored. Errors: FORKED,
 * INVALID_VALUE (on a thread of the service, such as one that a callback runs on), without effect; BUSY (graphs of the
 * service exist, or blocks that its functions allocated; or work did not end by the deadline), DRIVER or OUT_OF_MEMORY
 * (of a driver's call): destroy it again later. Isolated: a worker that does not end is killed after 5 s. */
STRATA_API strata_status strata_service_destroy(strata_service *service);

/* Waits until there is a context, for at most `nanoseconds`. Errors: TIMEOUT (says what failed last, if anything),
 * STALE (shutting down), INVALID_VALUE (on the service's own thread), and why the service stopped. */
STRATA_API strata_status strata_service_wait_ready(strata_service *service, uint64_t nanoseconds);

/* ---- requests ---- */

/* How a request is sent. NULL, or all zero: the defaults. */
typedef struct strata_send_options {
    uint32_t size;
    strata_priority priority;
    strata_service_hint hint;
    uint64_t sender;                 /* 0: the calling thread */
    uint64_t timeout;                /* nanoseconds until it answers TIMEOUT; a late result is dropped. 0: none */
    strata_future_callback callback; /* as strata_future_on_answer, without a moment between */
    void *data;
    struct strata_service_graph *graph; /* NULL; else the request is recorded into it, and not done: service_graph.h */
} strata_send_options;

/* Every request: returns SUCCESS and *out (NULL: the answer is dropped), which is then answered, or an error at once:
 * QUEUE_FULL, STALE (shutting down, or the reference is stale), WRONG_DEVICE (a reference to memory of another
 * service), SIZE_MISMATCH (of a copy), INVALID_VALUE, OUT_OF_HOST_MEMORY, UNSUPPORTED, FORKED, or, after the service
 * has stopped, why. References and buffers that a request names are held until it ends. */

/* `length` elements, zeroed. Answer: ref. One without elements has no memory, and cannot be copied. */
STRATA_API strata_status strata_service_allocate(strata_service *service, strata_element type, size_t length,
                                                 const strata_send_options *send, strata_future **out);
/* As strata_service_allocate, with undefined bytes. */
STRATA_API strata_status strata_service_allocate_raw(strata_service *service, strata_element type, size_t length,
                                                     const strata_send_options *send, strata_future **out);

/* Copies the whole of a reference, whose bytes must be the buffer's. Answer: buffer. Answers SHARED if handles of the
 * buffer exist beside the caller's and the request's when the copy to the host begins, since the bytes may be read. */
STRATA_API strata_status strata_service_copy_to_host(strata_service *service, strata_ref *from, strata_host_buffer *to,
                                                     const strata_send_options *send, strata_future **out);
STRATA_API strata_status strata_service_copy_from_host(strata_service *service, strata_host_buffer *from,
                                                       strata_ref *to, const strata_send_options *send,
                                                       strata_future **out);

/* Copies the whole of a reference to another one of as many bytes, on the device. Errors besides: INVALID_VALUE (they
 * overlap, or have no bytes). */
STRATA_API strata_status strata_service_copy(strata_service *service, strata_ref *from, strata_ref *to,
                                             const strata_send_options *send, strata_future **out);

/* Fills the whole of a reference with a value of `width` bytes, 1 or 4, of which its bytes are a multiple and to which
 * it is aligned: what a device fills with. Errors besides: INVALID_VALUE (they are not, or there are none). */
STRATA_API strata_status strata_service_fill(strata_service *service, strata_ref *ref, uint32_t value, uint32_t width,
                                             const strata_send_options *send, strata_future **out);

/* A buffer that the service's device copies from and to at full speed: page-locked; isolated, memory that the worker
 * shares. It outlives the service; after a reset of the context it is plain memory. Isolated, it is not in a child of
 * fork(): reading it there is a segmentation fault, and a process has at most half of vm.max_map_count of them
 * (OUT_OF_HOST_MEMORY), read when the first one is created; one counts until the worker was told of its release.
 * Errors: INVALID_VALUE, NOT_READY (no context yet), OUT_OF_MEMORY, OUT_OF_HOST_MEMORY, IO. */
STRATA_API strata_status strata_service_buffer_create(strata_service *service, size_t bytes, strata_host_buffer **out);

/* A function of the program, in process. */
typedef struct strata_service_operation {
    uint32_t size;
    const char *name;    /* of the operation, for ranges and messages: at most 255 bytes of UTF-8 without control
                            characters; copied. NULL: "run" */
    strata_element type; /* that it works on, for the hooks; NONE: none */
    /* Runs on the service's thread with the context current. It submits work to `stream` and does not wait; with the
     * launch recorder, if it uses blocks. Work on other streams is joined to `stream` before it returns. */
    strata_status (*function)(strata_runtime *runtime, CUstream stream, void *data);
    void (*before)(const struct strata_service_operation *operation, void *data);   /* before the function; or NULL */
    void (*enqueued)(const struct strata_service_operation *operation, void *data); /* after it returned */
    /* Before the answer, but for one that comes at a time limit; always called if `before` was. */
    void (*complete)(const struct strata_service_operation *operation, strata_status status, void *data);
    void *data; /* used until `complete` */
} strata_service_operation;

/* Answer: returned. The answer comes when the work is complete. A function that fails answers its status, which is
 * treated as such a failure of the service itself: POISONED, SHUT_DOWN or a driver's error may end the context. While
 * it runs, nothing else begins, and a deadline of a shutdown waits for it. */
STRATA_API strata_status strata_service_run(strata_service *service, const strata_service_operation *operation,
                                            const strata_send_options *send, strata_future **out);

/* ---- kernels ---- */

/* Loads PTX, a cubin or a fatbin. In both forms. `bytes`: of the image; 0 for PTX that ends with a zero. Answer:
 * module, a number that is valid until the context is rebuilt. Errors besides: INVALID_VALUE (the image is NULL or
 * empty, or a cubin or fatbin of which bytes are missing). Answers DRIVER if the driver refuses it, such as
 * NO_BINARY_FOR_GPU: the message says which architectures it is for. */
STRATA_API strata_status strata_service_load(strata_service *service, const void *image, size_t bytes,
                                             const strata_send_options *send, strata_future **out);

typedef enum strata_argument_kind {
    STRATA_ARGUMENT_VALUE = 0, /* `bytes` bytes of `value` */
    STRATA_ARGUMENT_READ,      /* the address of a reference that the kernel reads, writes, or both */
    STRATA_ARGUMENT_WRITE,
    STRATA_ARGUMENT_READ_WRITE,
} strata_argument_kind;

typedef struct strata_argument {
    strata_argument_kind kind;
    uint32_t bytes; /* of a value: 1, 2, 4 or 8 */
    unsigned char value[8];
    strata_ref *ref;
} strata_argument;

enum { STRATA_ARGUMENT_LIMIT = 64 };

typedef struct strata_kernel {
    uint64_t module;
    const char *entry;          /* at most 16384 bytes, without control characters */
    unsigned grid[3], block[3]; /* 0 counts as 1 */
    unsigned shared_bytes;
    const strata_argument *arguments;
    size_t argument_count; /* STRATA_ARGUMENT_LIMIT at most */
} strata_kernel;

/* The answer comes when the kernel is complete. INVALID_VALUE, if the driver tells of parameters (CUDA 12.4): the
 * arguments differ from the kernel's parameters in number or size. */
STRATA_API strata_status strata_service_launch(strata_service *service, const strata_kernel *kernel,
                                               const strata_send_options *send, strata_future **out);

/* ---- graphs ---- */

/* Captures what the function submits to its stream: as strata_service_run. Answer: graph. In process; a graph of
 * requests works in both forms (service_graph.h). */
STRATA_API strata_status strata_service_record_graph(strata_service *service, const strata_service_operation *operation,
                                                     const strata_send_options *send, strata_future **out);

/* A graph of this service, which exists until the answer; that comes when the launch is complete. Answers WRONG_DEVICE
 * for another service's. */
STRATA_API strata_status strata_service_launch_graph(strata_service *service, strata_graph *graph,
                                                     const strata_send_options *send, strata_future **out);

/* ---- what a service tells at once ---- */

typedef struct strata_service_snapshot {
    bool ready; /* else the rest is zero: "none" */
    uint64_t generation;
    CUcontext context;
    CUstream stream; /* the primary one: the first of normal priority */
    strata_runtime *runtime;
} strata_service_snapshot;

/* The handles are good until the generation moves on. Errors: UNSUPPORTED (isolated). */
STRATA_API strata_status strata_service_get_snapshot(strata_service *service, strata_service_snapshot *out);

/* Its own: the generation, watches of it, and whether operations are accepted, as long as the service exists. */
STRATA_API strata_device_state *strata_service_device_state(strata_service *service);

typedef struct strata_service_stats {
    bool ready;
    uint64_t generation;
    uint64_t rebuilds;
    size_t free_bytes, total_bytes; /* of the device, as the driver said a moment ago */
    uint32_t compute_major, compute_minor;
    uint32_t active_streams;      /* with work that is not complete */
    uint64_t queued;              /* requests that have not begun; cancelled ones too, until the service drops them */
    uint64_t in_flight;           /* that have begun */
    uint64_t done, failed;        /* answered; refused ones are not counted */
    uint64_t timeouts, cancelled; /* of the failed ones */
    uint64_t bytes_to_host, bytes_from_host;
    int worker;         /* isolated: its process; else 0 */
    uint64_t recorded;  /* requests of the recording, those that are still to be written out included */
    bool record_failed; /* a write failed, which the log callback was told: the recording ends there */
} strata_service_stats;

/* Fills *out; the figures are not all of one moment. In process, the driver is asked for its free memory. */
STRATA_API strata_status strata_service_get_stats(strata_service *service, strata_service_stats *out);

/* Why the service stopped: SUCCESS while it has not. */
STRATA_API strata_status strata_service_stopped(strata_service *service);

/* ---- several devices ---- */

typedef enum strata_placement {
    STRATA_PLACEMENT_LEAST_LOADED = 0, /* fewest unanswered requests, then most free bytes */
    STRATA_PLACEMENT_ROUND_ROBIN,
} strata_placement;

/* What a service must have, to be chosen. Zero: anything. */
typedef struct strata_placement_conditions {
    uint32_t size;
    size_t free_bytes;
    uint32_t compute_major, compute_minor; /* at least */
    bool ready;                            /* has a context now */
    int rank;                              /* at least; 0: any */
} strata_placement_conditions;

/* Chooses one of `count` services. Errors: NOT_READY (none meets the conditions), INVALID_VALUE. */
STRATA_API strata_status strata_services_place(strata_service *const *services, size_t count,
                                               strata_placement placement,
                                               const strata_placement_conditions *conditions, strata_service **out);

#ifdef __cplusplus
}
#endif

#endif
