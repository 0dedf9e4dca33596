/* Frames as requests of the worker's own service. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "service/isolated/shared_memory.h"
#include "service/worker/worker.h"

#include <errno.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

static const uint64_t image_limit = UINT64_C(1) << 32;

strata_send_options worker_options_of(const wire_send *send, worker_request *request)
{
    return (strata_send_options){.priority = (strata_priority)send->priority,
                                 .hint = (strata_service_hint)send->hint,
                                 .sender = send->sender,
                                 .callback = worker_answer,
                                 .data = request};
}

void worker_submitted(worker *self, uint64_t number, const wire_send *send, worker_request *request,
                      strata_status status)
{
    if (status == STRATA_SUCCESS)
        return;
    strata_host_free(request);
    worker_refuse(self, number, send);
}

/* ---- references ---- */

static strata_ref *find(worker *self, uint64_t number)
{
    strata_lock_take(&self->lock);
    strata_ref *ref = worker_refs_find(&self->refs, number); /* only this thread takes one out */
    strata_lock_release(&self->lock);
    return ref;
}

strata_status worker_find_ref(worker *self, uint64_t number, uint64_t offset, uint64_t bytes, strata_ref **out)
{
    strata_ref_memory memory;
    strata_ref *ref = find(self, number);
    if (!ref)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the worker has no reference of number %llx",
                           (unsigned long long)number);
    const strata_status status = strata_ref_access(ref, &memory);
    if (status != STRATA_SUCCESS)
        return status;
    if (offset == 0 && bytes == memory.bytes) {
        *out = strata_ref_clone(ref);
        return STRATA_SUCCESS;
    }
    return strata_ref_view(ref, offset, bytes, STRATA_ELEMENT_U8, out);
}

/* ---- memory ---- */

bool worker_take_allocate(worker *self, const worker_frame *frame)
{
    wire_allocate read;
    if (!wire_read(frame->payload, frame->bytes, &read, sizeof read, true))
        return false;
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_send_options options = worker_options_of(&read.send, request);
    strata_status status = STRATA_ERROR_OUT_OF_HOST_MEMORY;
    if (request)
        status = (read.raw ? strata_service_allocate_raw : strata_service_allocate)(
            self->service, (strata_element)read.type, read.length, &options, NULL);
    worker_submitted(self, frame->head.number, &read.send, request, status);
    return true;
}

static strata_status copy(worker *self, const worker_frame *frame, const wire_copy *read, worker_request *request)
{
    const strata_send_options options = worker_options_of(&read->send, request);
    strata_ref *ref;
    strata_host_buffer *buffer;
    strata_status status = worker_find_ref(self, read->ref, read->offset, read->bytes, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    status = worker_wrap(self, read->buffer, read->buffer_offset, read->bytes, &buffer);
    if (status == STRATA_SUCCESS) {
        status = frame->head.kind == WIRE_COPY_TO_HOST
                     ? strata_service_copy_to_host(self->service, ref, buffer, &options, NULL)
                     : strata_service_copy_from_host(self->service, buffer, ref, &options, NULL);
        strata_host_buffer_release(buffer);
    }
    strata_ref_release(ref);
    return status;
}

bool worker_take_copy(worker *self, const worker_frame *frame)
{
    wire_copy read;
    if (!wire_read(frame->payload, frame->bytes, &read, sizeof read, true))
        return false;
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_status status = request ? copy(self, frame, &read, request) : STRATA_ERROR_OUT_OF_HOST_MEMORY;
    worker_submitted(self, frame->head.number, &read.send, request, status);
    return true;
}

/* ---- modules ---- */

static strata_status read_all(int fd, unsigned char *image, size_t bytes)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t got = pread(fd, image + at, bytes - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return strata_fail(STRATA_ERROR_IO, "the image of a module could not be read: %s",
                               got ? strerror(errno) : "it is shorter than was said");
        at += (size_t)got;
    }
    return STRATA_SUCCESS;
}

static strata_status load_image(worker *self, int fd, size_t bytes, const strata_send_options *options)
{
    unsigned char *image = strata_host_zalloc(bytes + 1);
    if (!image)
        return strata_fail_host_memory("the image of a module");
    strata_status status = read_all(fd, image, bytes);
    if (status == STRATA_SUCCESS && !worker_image_is_whole(image, bytes))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "the image of a module of %zu bytes is not whole: its head says that there are more, or "
                             "it contains an address; load PTX, a cubin or a fatbin with all its bytes",
                             bytes);
    if (status == STRATA_SUCCESS)
        status = strata_service_load(self->service, image, bytes, options, NULL);
    strata_host_free(image);
    return status;
}

static strata_status load(worker *self, const wire_load *read, int fd, worker_request *request)
{
    const strata_send_options options = worker_options_of(&read->send, request);
    if (!read->bytes || read->bytes > image_limit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the image of a module has %llu bytes; 1 to 4 GiB are possible",
                           (unsigned long long)read->bytes);
    return isolated_memory_is_sealed(fd, read->bytes)
               ? load_image(self, fd, read->bytes, &options)
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "the image of a module is in no sealed memory");
}

bool worker_take_load(worker *self, const worker_frame *frame)
{
    wire_load read;
    const int fd = wire_take_descriptor(&self->in);
    if (fd < 0)
        return false;
    if (!wire_read(frame->payload, frame->bytes, &read, sizeof read, true)) {
        close(fd);
        return false;
    }
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_status status = request ? load(self, &read, fd, request) : STRATA_ERROR_OUT_OF_HOST_MEMORY;
    close(fd);
    worker_submitted(self, frame->head.number, &read.send, request, status);
    return true;
}

/* ---- launches ---- */

static strata_status unpack(worker *self, const wire_argument *packed, strata_argument *argument)
{
    *argument = (strata_argument){.kind = (strata_argument_kind)packed->kind, .bytes = packed->bytes};
    memcpy(argument->value, packed->value, sizeof argument->value);
    return packed->kind >= STRATA_ARGUMENT_READ && packed->kind <= STRATA_ARGUMENT_READ_WRITE
               ? worker_find_ref(self, packed->ref, packed->offset, packed->ref_bytes, &argument->ref)
               : STRATA_SUCCESS;
}

static strata_status launch(worker *self, const wire_launch *read, const unsigned char *arguments,
                            worker_request *request)
{
    const strata_send_options options = worker_options_of(&read->send, request);
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
        status = strata_service_launch(self->service, &kernel, &options, NULL);
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

bool worker_take_launch(worker *self, const worker_frame *frame)
{
    wire_launch read;
    if (!is_launch(frame, &read))
        return false;
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_status status =
        request ? launch(self, &read, frame->payload + sizeof read, request) : STRATA_ERROR_OUT_OF_HOST_MEMORY;
    worker_submitted(self, frame->head.number, &read.send, request, status);
    return true;
}

/* ---- nothing, and the ends of references ---- */

static strata_status do_nothing(strata_runtime *runtime, CUstream stream, void *data)
{
    (void)runtime;
    (void)stream;
    (void)data;
    return STRATA_SUCCESS;
}

bool worker_take_nothing(worker *self, const worker_frame *frame)
{
    wire_send read;
    if (!wire_read(frame->payload, frame->bytes, &read, sizeof read, true))
        return false;
    worker_request *request = worker_request_make(self, frame->head.number);
    const strata_send_options options = worker_options_of(&read, request);
    const strata_status status = request ? worker_call(self, &options, do_nothing, NULL, worker_answer, request)
                                         : STRATA_ERROR_OUT_OF_HOST_MEMORY;
    worker_submitted(self, frame->head.number, &read, request, status);
    return true;
}

typedef struct released {
    size_t count;
    strata_ref *refs[];
} released;

static void release_all(strata_future *future, void *data)
{
    released *ended = data;
    (void)future;
    for (size_t i = 0; i < ended->count; i++)
        strata_ref_release(ended->refs[i]);
    strata_host_free(ended);
}

/* A number that the table does not have is passed over. The frees are made on the service's thread, which allocates. */
bool worker_take_release(worker *self, const worker_frame *frame)
{
    const size_t count = frame->bytes / sizeof(uint64_t);
    if (count > WIRE_RELEASE_LIMIT)
        return false;
    released *ended = strata_host_zalloc(sizeof *ended + count * sizeof ended->refs[0]);
    if (!ended)
        return false;
    strata_lock_take(&self->lock);
    for (size_t i = 0; i < count; i++) {
        uint64_t number;
        memcpy(&number, frame->payload + i * sizeof number, sizeof number);
        if ((ended->refs[ended->count] = worker_refs_take(&self->refs, number)) != NULL)
            ended->count++;
    }
    strata_lock_release(&self->lock);
    const strata_send_options first = worker_first();
    if (worker_call(self, &first, do_nothing, NULL, release_all, ended) != STRATA_SUCCESS)
        release_all(NULL, ended);
    return true;
}

/* ---- questions ---- */

bool worker_take_question(worker *self, const worker_frame *frame)
{
    if (frame->bytes)
        return false;
    worker_say(self, WIRE_ALIVE, frame->head.number, NULL, 0);
    if (!atomic_exchange_explicit(&self->facts_pending, true, memory_order_acq_rel))
        sem_post(&self->wanted);
    return true;
}
