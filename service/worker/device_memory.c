/* Copies and fills on the device. */
#include "service/worker/worker.h"

#include <string.h>

static bool copy_fits(const worker_frame *frame)
{
    wire_device_copy read;
    return wire_read(frame->payload, frame->bytes, &read, sizeof read, true);
}

static strata_status send_copy(worker *self, const worker_frame *frame, const strata_send_options *options)
{
    wire_device_copy read;
    strata_ref *from, *to;
    memcpy(&read, frame->payload, sizeof read);
    strata_status status = worker_find_ref(self, read.from, read.from_offset, read.bytes, &from);
    if (status != STRATA_SUCCESS)
        return status;
    status = worker_find_ref(self, read.to, read.to_offset, read.bytes, &to);
    if (status == STRATA_SUCCESS) {
        status = strata_service_copy(self->service, from, to, options, NULL);
        strata_ref_release(to);
    }
    strata_ref_release(from);
    return status;
}

static bool fill_fits(const worker_frame *frame)
{
    wire_device_fill read;
    return wire_read(frame->payload, frame->bytes, &read, sizeof read, true);
}

static strata_status send_fill(worker *self, const worker_frame *frame, const strata_send_options *options)
{
    wire_device_fill read;
    strata_ref *ref;
    memcpy(&read, frame->payload, sizeof read);
    strata_status status = worker_find_ref(self, read.ref, read.offset, read.bytes, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_service_fill(self->service, ref, read.value, read.width, options, NULL);
    strata_ref_release(ref);
    return status;
}

const worker_work worker_copies = {copy_fits, send_copy};
const worker_work worker_fills = {fill_fits, send_fill};
