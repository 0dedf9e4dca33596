/* Batches: calls for one piece of work on one stream, which is identified once. A thread has one batch at a time. */
#ifndef STRATA_CORE_STREAMS_BATCHES_H
#define STRATA_CORE_STREAMS_BATCHES_H

#include "core/streams/device.h"

/* With `recording`, one event at the end covers all use records, also on a stream with early events. */
strata_status strata_batch_begin(strata_device *device, CUstream handle, bool recording);
strata_status strata_batch_end(void);

/* As strata_batch_begin with `recording`, after the work was submitted. *begun: false if the host waited for the stream
 * instead. */
strata_status strata_batch_begin_or_wait(strata_device *device, CUstream handle, bool *begun);

#endif
