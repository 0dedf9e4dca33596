/* Launches of kernels. */
#include "service/worker/worker.h"

#include <string.h>

static strata_status unpack(worker *self, const wire_argument *packed, strata_argument *argument)
{
    *argument = (strata_argument){.kind = (strata_argument_kind)packed->kind, .bytes = packed->bytes};
    memcpy(argument->value, packed->value, sizeof argument->value);
    return packed->kind >= STRATA_ARGUMENT_READ && packed->kind <= STRATA_ARGUMENT_READ_WRITE
               ? worker_find_ref(self, packed->ref, packed->offset, packed->ref_bytes, &argument->ref)
               : STRATA_SUCCESS;
}

static strata_status launch(worker *self, const wire_launch *read, const unsigned char *arguments,
                            const strata_send_options *options)
{
    strata_argument unpacked[STRATA_ARGUMENT_LIMIT];
    char entry[WIRE_TEXT_LIMIT + 1] = {0};
    strata_kernel kernel = {
        .module = read->module, .entry = entry, .shared_bytes = read->shared_bytes, .arguments = unpacked};
    strata_status status = STRATA_SUCCESS;
    memcpy(entry, arguments + read->argument_count * sizeof(wire_argument), read->entry_bytes);
    memcpy(kernel.grid, read->grid, sizeof kernel.grid);
    memcpy(kernel.block, read->block, sizeof kernel.block);
    for (; kernel.argument_count < read->argument_count && status == STRATA_SUCCESS; kernel.argument_count++) {
        wire_argument packed;
        memcpy(&packed, arguments + kernel.argument_count * sizeof packed, sizeof packed);
        status = unpack(self, &packed, &unpacked[kernel.argument_count]);
    }
    if (status == STRATA_SUCCESS)
        status = strata_service_launch(self->service, &kernel, options, NULL);
    for (size_t i = 0; i < kernel.argument_count; i++)
        strata_ref_release(unpacked[i].ref);
    return status;
}

static bool is_launch(const worker_frame *frame, wire_launch *read)
{
    if (!wire_read(frame->payload, frame->bytes, read, sizeof *read, false) ||
        read->argument_count > STRATA_ARGUMENT_LIMIT || read->entry_bytes > WIRE_TEXT_LIMIT)
        return false;
    const size_t need = sizeof *read + read->argument_count * sizeof(wire_argument) + read->entry_bytes;
    return frame->bytes >= need && frame->bytes - need < 8;
}

static bool fits(const worker_frame *frame)
{
    wire_launch read;
    return is_launch(frame, &read);
}

static strata_status send_launch(worker *self, const worker_frame *frame, const strata_send_options *options)
{
    wire_launch read;
    memcpy(&read, frame->payload, sizeof read);
    return launch(self, &read, frame->payload + sizeof read, options);
}

const worker_work worker_launches = {fits, send_launch};
