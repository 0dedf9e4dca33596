/* The form in which a worker process has the context: what its files share.
 *
 *     begin --> waiting --> operations --socket--> worker
 *                               |                    |
 *               answers <-------+--------------------+
 *
 * A request that has begun waits until all of it is sent: as one operation, or as several if its bytes go through the
 * staging area. It is answered with its last operation. What fails here is sent as WIRE_NOTHING, so that its answer
 * comes in its turn. All is used by the service's thread alone but for what is said. */
#ifndef STRATA_SERVICE_ISOLATED_H
#define STRATA_SERVICE_ISOLATED_H

#include "service/isolated/process.h"
#include "service/isolated/shared_memory.h"
#include "service/isolated/wire.h"
#include "service/service.h"

/* ---- what outlives the service ---- */

/* Memory, or a graph, that a worker has until it is released. */
typedef struct isolated_remote {
    struct isolated_remote *next;
    struct isolated_link *link; /* held; these are constant */
    uint64_t number, worker;    /* the worker's number of memory, the service's of a graph; which worker's */
    bool is_graph;
} isolated_remote;

/* A host buffer that the service shares with its workers. */
typedef struct isolated_buffer {
    struct isolated_buffer *next;
    struct isolated_link *link; /* held; constant, as is the next */
    isolated_memory memory;
    uint64_t worker; /* the worker that was told of it, under `number`; the service's thread, and its last holder */
    uint32_t number;
} isolated_buffer;

/* Where references and buffers, which any thread may end at any time, leave word for the service. */
typedef struct isolated_link {
    _Atomic uint64_t holders; /* the service, references, buffers */
    unsigned forks;           /* of the process, when it was made; constant */
    strata_lock lock;         /* of all below */
    service_mailbox *box;     /* NULL: the service has ended */
    uint64_t worker;          /* the present one, from 1 */
    isolated_remote *released;
    isolated_buffer *ended; /* ended buffers of which the worker was told */
} isolated_link;

isolated_link *isolated_link_make(service_mailbox *box); /* NULL without host memory */
void isolated_link_unhold(isolated_link *link);

/* Notes a new worker, or none, and drops what is left for the one before. `ends`: the service ends. */
void isolated_link_change_worker(isolated_link *link, uint64_t worker, bool ends);
/* Takes what was released and what has ended since the last call. */
void isolated_link_take(isolated_link *link, isolated_remote **released, isolated_buffer **ended);
void isolated_remote_free(isolated_remote *remote);
void isolated_buffer_free(isolated_buffer *buffer);

/* Makes a record of what the worker has by that number; release ends it, on any thread. NULL without host memory. */
isolated_remote *isolated_remote_new(isolated_link *link, uint64_t number, uint64_t worker, bool is_graph);
void isolated_remote_release(isolated_remote *remote);

/* A reference to the memory of that number. Errors: OUT_OF_HOST_MEMORY. */
strata_status isolated_remote_make(strata_service *service, isolated_link *link, strata_future *request,
                                   uint64_t number, strata_ref **out);
const isolated_remote *isolated_remote_of(const strata_ref *ref);

strata_status isolated_buffer_make(isolated_link *link, size_t bytes, strata_host_buffer **out);
isolated_buffer *isolated_buffer_of(const strata_host_buffer *buffer); /* NULL: it is none */

/* ---- staging ---- */

enum {
    STAGING_SMALL = 1 << 12,
    STAGING_SMALL_COUNT = 512,
    STAGING_LARGE = 1 << 19,
    STAGING_LARGE_COUNT = 32,
    STAGING_SLOTS = STAGING_SMALL_COUNT + STAGING_LARGE_COUNT,
};

/* Shared memory through which bytes of other host buffers go, of one worker. */
typedef struct isolated_staging {
    isolated_memory memory;
    uint16_t free_small[STAGING_SMALL_COUNT], free_large[STAGING_LARGE_COUNT];
    size_t small_count, large_count; /* of the free ones */
} isolated_staging;

strata_status isolated_staging_open(isolated_staging *staging);
void isolated_staging_close(isolated_staging *staging);

/* Takes a slot; *taken: how many of the `bytes` bytes it is for. -1: none is free. */
int isolated_staging_take(isolated_staging *staging, size_t bytes, size_t *taken);
void isolated_staging_give(isolated_staging *staging, int slot);
size_t isolated_staging_offset(int slot);

/* ---- operations ---- */

enum { NO_SLOT = -1 };

/* What the worker was sent, and has not answered. */
typedef struct isolated_operation {
    strata_future *request; /* NULL: free */
    uint32_t serial;        /* of the entry's use */
    uint32_t next_free;     /* plus 1 */
    int slot;               /* of the staging area, or NO_SLOT */
    size_t offset, bytes;   /* in the request's host buffer, if it has a slot */
} isolated_operation;

typedef struct isolated_operations {
    isolated_operation *items;
    uint32_t room, first_free; /* plus 1 */
    size_t count;
} isolated_operations;

/* A number for the worker; 0 without host memory. */
uint64_t isolated_operation_add(isolated_operations *operations, const isolated_operation *operation);
/* Takes an operation out. False: the worker was not sent that number. */
bool isolated_operation_take(isolated_operations *operations, uint64_t number, isolated_operation *out);
/* Takes out the first operation from entry *from on; false if there is none. */
bool isolated_operation_take_next(isolated_operations *operations, uint32_t *from, isolated_operation *out);
void isolated_operations_close(isolated_operations *operations);

/* ---- the client ---- */

enum {
    BUFFER_WORDS = WIRE_BUFFER_LIMIT / 64,
    ENDED = 8, /* killed workers that may be left at once */
};

typedef struct service_client {
    isolated_link *link;
    isolated_process process; /* the worker */
    uint64_t worker;          /* its number: how many there were */
    uint64_t graphs;          /* graphs that were sent, to all workers: the number of the last one */
    int socket;               /* -1: there is no worker */
    wire_out out;
    wire_in in;
    isolated_remote *released; /* that the link had, and the worker is not told of yet; as is the next */
    isolated_buffer *unshared;
    service_list waiting;   /* requests that have begun, and are not all sent */
    size_t sent;            /* bytes of the first waiting request that were sent */
    service_list under_way; /* requests that are all sent, in that order: what is lost is answered in it */
    service_list late;      /* answered; a killed worker that is not over may still write to their host buffers */
    isolated_operations operations;
    isolated_staging staging;
    uint64_t buffers[BUFFER_WORDS]; /* numbers of shared buffers that are in use: a bit each; 0 is the staging area's */
    size_t buffer_hint;             /* words below it are full */
    size_t short_count;             /* operations of requests with the hint SHORT */
    uint64_t heard_at;              /* the worker said something, or began to have reason to; CLOCK_MONOTONIC */
    uint64_t asked_at;              /* the last question; 0: none since it said something */
    uint64_t looked_at;             /* for requests beyond poll_limit */
    bool spoke;                     /* the worker has said something */
    bool ready, failed;             /* it has told how its start went */
    strata_error failure;           /* why the worker failed */
    isolated_process ended[ENDED];  /* killed, and not yet collected */

    /* Any thread, relaxed. */
    _Atomic uint64_t free_bytes, total_bytes;
    _Atomic bool facts_wanted;
} service_client;

/* ---- frames ---- */

typedef struct isolated_frame {
    wire_kind kind;
    union {
        wire_allocate allocate;
        struct {
            wire_launch head;
            wire_argument arguments[STRATA_ARGUMENT_LIMIT];
        } launch;
        wire_blas blas;
        wire_device_copy copy;
        wire_device_fill fill;
        wire_play play;
    } payload;
    size_t bytes;     /* of the payload */
    const char *text; /* behind the payload: the request's */
    size_t text_bytes;
} isolated_frame;

wire_send isolated_send_of(const strata_future *request);

/* The program's number of a module: which worker's, and the worker's number of it, of which the lower half counts. */
static inline uint64_t isolated_module_number(uint64_t worker, uint64_t number)
{
    return worker << 32 | (number & UINT32_MAX);
}

/* The worker's memory of a reference. Errors: STALE. */
strata_status isolated_find_remote(const service_client *client, const strata_ref *ref, const isolated_remote **out);

/* The frame of a request that needs nothing but one. Errors: STALE, INVALID_VALUE. */
strata_status isolated_pack(const service_client *client, const strata_future *request, isolated_frame *frame);

/* The bytes of the frame of a request that a graph records. */
size_t isolated_recorded_bytes(const strata_future *request);

/* ---- sending and receiving ---- */

/* Sends what waits, as far as there is room, and what the link has. */
void isolated_send(strata_service *service);

/* Reads what the worker says, and answers requests. False: the worker is gone, or has said what cannot be. */
bool isolated_receive(strata_service *service);

/* Notes that all of a request is sent. */
void isolated_note_sent(service_client *client, strata_future *request);

/* Answers a request with why it failed, or with success. */
void isolated_answer(strata_future *request);

/* Answers all that has begun with the failure, and finishes it. If the killed worker is not over, a copy to memory that
 * it shares is answered without its buffer, and finished by the second, when no killed worker is left. */
void isolated_fail_all(strata_service *service, const strata_error *why, bool over);
void isolated_finish_late(service_client *client);

/* Ends one operation of a request; with the last one the request is answered, and finished. */
void isolated_operation_finish(strata_service *service, const isolated_operation *operation);

#endif
