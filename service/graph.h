/* A graph of requests: what is recorded, until the end, and then what the form has made of it. */
#ifndef STRATA_SERVICE_GRAPH_OF_REQUESTS_H
#define STRATA_SERVICE_GRAPH_OF_REQUESTS_H

#include "service/service.h"

#include <strata/service_graph.h>

typedef enum service_graph_made {
    SERVICE_GRAPH_NOT_YET = 0,
    SERVICE_GRAPH_MADE,
    SERVICE_GRAPH_FAILED,
} service_graph_made;

struct strata_service_graph {
    strata_service *service; /* not used by the last release, which may come after its end; constant, as is the next */
    unsigned forks;
    char *name;                           /* a copy; constant, as is the next */
    void (*drop)(strata_future *request); /* ends a recorded request */
    _Atomic uint64_t holders;             /* the caller, and requests that name it */

    strata_lock lock;   /* guards the next four */
    bool ended;         /* nothing more is recorded */
    size_t count;       /* of `parts` */
    size_t bytes;       /* of their frames, if the form has a limit */
    service_list parts; /* recorded requests, in order; constant from `ended` until the end's request is over */

    _Atomic int made;               /* service_graph_made; written by the service's thread */
    _Atomic uint64_t generation;    /* in which its end was sent, then in which it was made */
    bool begun;                     /* its end has begun; the service's thread alone, as are the next ones */
    uint64_t recorded;              /* in a recording: its number; 0: none */
    strata_graph *local;            /* in process; ended by the last holder, as is the next */
    struct isolated_remote *remote; /* isolated: the worker's, from when its end was sent */
    void (*end_remote)(struct isolated_remote *remote); /* constant once there is one */
};

void service_graph_hold(strata_service_graph *graph);
void service_graph_unhold(strata_service_graph *graph);

/* Whether a request of the kind can be recorded. */
bool service_graph_takes(service_request_kind kind);

/* Records a checked request as the graph's next one. Errors: INVALID_VALUE; then it is the caller's. */
strata_status service_graph_add(strata_service_graph *graph, strata_future *request, bool has_out);

/* Called by the service's thread. The first notes that the graph was made in the present generation; the second drops
 * what was recorded, and marks a graph that was not made as failed. */
void service_graph_note_made(strata_service_graph *graph);
void service_graph_drop_recording(strata_service_graph *graph);

/* Fails the graph's end with the error in force, which is returned: drops what was recorded, and launches say so. The
 * second also ends a recording for whose end no request was made. */
strata_status service_graph_fail(strata_service_graph *graph);
strata_status service_graph_fail_unended(strata_service_graph *graph);

/* As service_graph_fail for an end that began nothing: the recording stays, and can be ended again. The request lets go
 * of the graph. */
strata_status service_graph_reopen(strata_future *end);

/* Whether the graph can be launched. Errors: INVALID_VALUE (its end has not begun, or failed), STALE. NOT_READY,
 * without a record: isolated, its end was sent. */
strata_status service_graph_check_made(const strata_service_graph *graph);

/* Raises the error in force again, with the number of the recorded request, from 0 on, in the message. */
strata_status service_graph_fail_part(size_t number);

#endif
