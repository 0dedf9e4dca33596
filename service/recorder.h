/* Writes what a service begins, on its thread; recording.h has the text. */
#ifndef STRATA_SERVICE_RECORDER_H
#define STRATA_SERVICE_RECORDER_H

#include "service/future.h"

typedef struct service_recorder service_recorder;

/* Makes the file, or opens a device such as /dev/null; its name may have the letters of recorder_file_open. Errors: IO
 * (it exists; no such folder; a link), INVALID_VALUE, OUT_OF_HOST_MEMORY. */
strata_status service_recorder_open(const char *path, int device, service_recorder **out);

/* Writes out what is left, if the thread has not, and closes the file. NULL is ignored. */
void service_recorder_close(service_recorder *recorder);

/* begin writes a request that begins; answer remembers what its answer gave. The service's thread alone, as flush. */
void service_recorder_begin(service_recorder *recorder, strata_future *request);
void service_recorder_answer(service_recorder *recorder, const strata_future *request, const strata_answer *answer);

/* Writes out what is buffered. A failure is told once, and ends the recording. */
void service_recorder_flush(service_recorder *recorder);

/* Writes to *stats how many requests were recorded, and whether a write failed. Any thread. */
void service_recorder_tell(const service_recorder *recorder, strata_service_stats *stats);

#endif
