/* Asks a device service again what another one was asked: the recording of strata_service_options.record.
 *
 * A recording has what the service began, in that order: sizes, types, priorities, modules and arguments, and no bytes
 * of buffers. So copies from the host bring zeros, and functions of the program cannot be asked again. The format:
 * docs/formats/recording.md. */
#ifndef STRATA_SERVICE_REPLAY_H
#define STRATA_SERVICE_REPLAY_H

#include <strata/service.h>

#ifdef __cplusplus
extern "C" {
#endif

/* All zero: as fast as possible, to the end. */
typedef struct strata_service_replay_options {
    uint32_t size;
    double speed;         /* 1: at the times of the recording; 2: in half the time; 0: without pauses */
    bool stop_at_failure; /* else failures are counted */
    uint32_t in_flight;   /* requests that are unanswered at once; 0: 64; at most 16384 */
} strata_service_replay_options;

typedef struct strata_service_replay_result {
    uint64_t requests;     /* that were asked, or recorded in a graph */
    uint64_t failed;       /* of them */
    uint64_t skipped;      /* not asked: functions, their graphs, and what names memory, a module or a graph that is not
                              there */
    uint64_t bytes_copied; /* by copies that succeeded, both ways */
    bool truncated;        /* the last line is incomplete, and was left out */
    uint64_t failed_line;  /* of the file, from 1, of the first failure; 0: none */
    strata_error failure;  /* the first */
} strata_service_replay_result;

/* Reads and checks the whole file, and then asks. References are released after the last request that names them. A
 * full queue is waited for; a request waits for those with another priority that name the same memory. NULL options:
 * the defaults. *result (may be NULL) is also set after an error. The calling thread waits; not the service's own.
 * Errors: INVALID_VALUE, IO, SYNTAX (the message names the line; nothing was asked), OUT_OF_HOST_MEMORY, FORKED; of a
 * service that shuts down or has stopped: STALE, or why; with stop_at_failure the first failure, after what was under
 * way is answered. */
STRATA_API strata_status strata_service_replay(strata_service *service, const char *path,
                                               const strata_service_replay_options *options,
                                               strata_service_replay_result *result);

#ifdef __cplusplus
}
#endif

#endif
