/* Internal streams without work, for memory that no stream of the program is named for.
 *
 * A call takes one for itself, allocates or frees on it, waits for it on the host, and gives it back: so it waits for
 * nothing but what its own memory has to wait for. The list is a stack: a thread alone always meets the same stream,
 * and with it the memory that it freed there. The streams live until the process ends. */
#ifndef STRATA_RUNTIME_IDLE_STREAMS_H
#define STRATA_RUNTIME_IDLE_STREAMS_H

#include "core/streams/device.h"

typedef struct strata_idle_stream strata_idle_stream;

/* Takes an idle stream of the device, or creates one. Errors: DEVICE_RESET, OUT_OF_HOST_MEMORY, BUSY (too many
 * timelines), DRIVER. */
strata_status strata_idle_stream_take(strata_device *device, strata_idle_stream **out);

/* Waits on the host for the stream's work. */
strata_status strata_idle_stream_wait(const strata_idle_stream *one);

void strata_idle_stream_give(strata_idle_stream *one);

CUstream strata_idle_stream_handle(const strata_idle_stream *one);

#endif
