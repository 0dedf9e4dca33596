/* The program strata-worker: an isolated service's other process. It has a service of its own, in process, and turns
 * frames (service/isolated/wire.h) into that service's requests, and answers into frames.
 *
 *     socket --> main thread --> service's thread --> device
 *       ^             |                |
 *       +---- out <---+----------------+
 *
 * The main thread reads, checks and writes, and waits for neither the driver nor the device, so that it answers
 * questions while a request takes long. What calls the driver is done on the service's thread, or on the thread for
 * facts. Nothing that comes from the socket is trusted: each number, length, offset, kind and type is checked before
 * its use. What has a wrong value is refused, in its turn; a frame without a possible meaning ends the worker. */
#ifndef STRATA_SERVICE_WORKER_H
#define STRATA_SERVICE_WORKER_H

#include "core/base/lock.h"
#include "service/isolated/wire.h"

#include <strata/service_graph.h>

#include <semaphore.h>

/* ---- references, by the numbers that the client has ---- */

typedef struct worker_ref {
    strata_ref *ref;    /* NULL: free */
    uint32_t serial;    /* of the entry's use */
    uint32_t next_free; /* plus 1 */
} worker_ref;

typedef struct worker_refs {
    worker_ref *items;
    uint32_t room, first_free; /* plus 1 */
} worker_refs;

/* Adds a reference, which is then the table's, and returns its number; 0 without host memory. */
uint64_t worker_refs_add(worker_refs *refs, strata_ref *ref);
strata_ref *worker_refs_find(const worker_refs *refs, uint64_t number); /* NULL: it has none */
strata_ref *worker_refs_take(worker_refs *refs, uint64_t number);       /* the caller's */

/* Takes any reference; NULL: the table is empty, and closed. */
strata_ref *worker_refs_take_last(worker_refs *refs);

/* ---- graphs, by the client's numbers, which ascend ---- */

typedef struct worker_graph {
    uint64_t number;
    strata_service_graph *graph; /* NULL: it was taken */
} worker_graph;

typedef struct worker_graphs {
    worker_graph *items; /* by number */
    size_t count, taken, room;
    uint64_t last; /* the largest number that there was */
} worker_graphs;

/* The graph is the table's after success. Errors: INVALID_VALUE (the number does not ascend), OUT_OF_HOST_MEMORY. */
strata_status worker_graphs_add(worker_graphs *graphs, uint64_t number, strata_service_graph *graph);
strata_service_graph *worker_graphs_find(const worker_graphs *graphs, uint64_t number); /* NULL: it has none */
strata_service_graph *worker_graphs_take(worker_graphs *graphs, uint64_t number);       /* the caller's */
void worker_graphs_close(worker_graphs *graphs);

/* ---- memory that the client shares ---- */

typedef struct worker_buffer {
    struct worker_buffer *next; /* in `ended` of the worker */
    struct worker *worker;
    void *memory; /* these are constant */
    size_t bytes;
    _Atomic uint64_t holders; /* the table, and copies; any thread */
    bool registered;          /* page-locked for the device; the service's thread, and the last holder */
} worker_buffer;

/* ---- the worker ---- */

typedef struct worker {
    int socket, wake_fd;     /* constant */
    strata_service *service; /* NULL: no HELLO came; the main thread */

    wire_in in; /* the main thread, as are the next three */
    wire_out sending;
    worker_buffer *buffers[WIRE_BUFFER_LIMIT];
    worker_graphs graphs;

    strata_lock lock;  /* guards the next eight */
    wire_out gathered; /* frames that are to be sent after those in `sending` */
    worker_refs refs;
    bool sleeping;                    /* the main thread waits for wake_fd */
    bool broken;                      /* there was no host memory for an answer */
    bool lost;                        /* the service has stopped, and that was put */
    struct worker_released *released; /* references and graphs; a call for them is queued, if there are any */
    worker_buffer *ended;             /* that are still mapped */
    bool unmaps;                      /* a call for them is queued */

    pthread_t facts; /* asks the driver for facts, each time that `wanted` is posted */
    bool has_facts;
    sem_t wanted;
    _Atomic bool facts_pending, ending;
} worker;

/* Puts a frame, on any thread. */
void worker_say(worker *self, wire_kind kind, uint64_t number, const void *payload, size_t bytes);
void worker_say_error(worker *self, wire_kind kind, uint64_t number, const strata_error *error);

/* Sends what was put, as far as the socket takes it: the main thread, also in the middle of a long frame. */
wire_result worker_flush(worker *self);

/* ---- requests ---- */

/* The callback of a request, which answers the client. NULL without host memory. */
typedef struct worker_request {
    worker *self;
    uint64_t number;
} worker_request;
worker_request *worker_request_make(worker *self, uint64_t number);
void worker_answer(strata_future *future, void *request);

/* Runs a function on the service's thread, with the context current, in the turn of the sender; `answered` is called
 * there when it is over, or if it could not run. Errors: of a request; then it is not called. */
strata_status worker_call(worker *self, const strata_send_options *send,
                          strata_status (*function)(strata_runtime *runtime, CUstream stream, void *data), void *data,
                          strata_future_callback answered, void *answered_data);

/* Answers with the error, in the turn of the request. */
void worker_refuse(worker *self, uint64_t number, const wire_send *send, const strata_error *error);

/* The first: how a frame's request is sent. The second, after its submission, refuses it if that failed. */
strata_send_options worker_options_of(const wire_send *send, worker_request *request);
void worker_submitted(worker *self, uint64_t number, const wire_send *send, worker_request *request,
                      strata_status status);

/* Options of a call that comes before all that has not begun, whatever sent it. */
strata_send_options worker_first(void);

/* ---- frames ---- */

typedef struct worker_frame {
    wire_head head;
    const unsigned char *payload;
    size_t bytes;
} worker_frame;

/* False: the frame has no possible meaning, and the connection is to end. */
bool worker_take_hello(worker *self, const worker_frame *frame);
bool worker_take_frame(worker *self, const worker_frame *frame);
bool worker_take_allocate(worker *self, const worker_frame *frame);
bool worker_take_copy(worker *self, const worker_frame *frame);
bool worker_take_nothing(worker *self, const worker_frame *frame);
bool worker_take_release(worker *self, const worker_frame *frame);
bool worker_take_question(worker *self, const worker_frame *frame);
bool worker_take_load(worker *self, const worker_frame *frame);
bool worker_take_work(worker *self, const worker_frame *frame); /* LAUNCH, BLAS, COPY, FILL */
bool worker_take_graph(worker *self, const worker_frame *frame);
bool worker_take_play(worker *self, const worker_frame *frame);
bool worker_drop_graph(worker *self, const worker_frame *frame);

/* Work that is done, or recorded into a graph, as the options say. `fits`: the frame has what its kind needs. Errors of
 * `send`: of the request; INVALID_VALUE (what the frame names is not there). */
typedef struct worker_work {
    bool (*fits)(const worker_frame *frame);
    strata_status (*send)(worker *self, const worker_frame *frame, const strata_send_options *options);
} worker_work;
extern const worker_work worker_launches, worker_products, worker_copies, worker_fills;

/* The bytes of a sealed file, with a zero behind them, which the caller frees. Errors: INVALID_VALUE (it is not sealed,
 * or is shorter), IO, OUT_OF_HOST_MEMORY. */
strata_status worker_read_file(int fd, size_t bytes, const char *what, unsigned char **out);

/* A reference to a part of the memory of that number, which is the caller's. Errors: INVALID_VALUE. */
strata_status worker_find_ref(worker *self, uint64_t number, uint64_t offset, uint64_t bytes, strata_ref **out);

bool worker_take_buffer(worker *self, const worker_frame *frame);
bool worker_drop_buffer(worker *self, const worker_frame *frame);

/* Forgets buffers that are left when the service has ended; what is still locked goes with the process. */
void worker_forget_buffers(worker *self);

/* A host buffer of a part of a shared buffer, which is the caller's. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY. */
strata_status worker_wrap(worker *self, uint64_t buffer, uint64_t offset, uint64_t bytes, strata_host_buffer **out);

/* ---- life ---- */

typedef enum worker_end {
    WORKER_GOES_ON = 0,
    WORKER_DONE,    /* the socket has ended */
    WORKER_REFUSED, /* a frame had no possible meaning */
    WORKER_LOST,    /* its context is lost, or there is no memory for an answer */
} worker_end;

/* Opens the worker. False without host memory or descriptors. The socket stays the caller's. */
bool worker_open(worker *self, int socket);
worker_end worker_serve(worker *self);

/* Ends the service, once its work is complete, and all else. */
void worker_close(worker *self);

#endif
