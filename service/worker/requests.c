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
    const strata_error failed = *strata_error_in_force();
    strata_host_free(request);
    worker_refuse(self, number, send, &failed);
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

static strata_status read_all(int fd, unsigned char *image, size_t bytes, const char *what)
{
    for (size_t at = 0; at < bytes;) {
        const ssize_t got = pread(fd, image + at, bytes - at, (off_t)at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return strata_fail(STRATA_ERROR_IO, "%s could not be read: %s", what,
                               got ? strerror(errno) : "it is shorter than was said");
        at += (size_t)got;
    }
    return STRATA_SUCCESS;
}

strata_status worker_read_file(int fd, size_t bytes, const char *what, unsigned char **out)
{
    if (!isolated_memory_is_sealed(fd, bytes))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: no sealed memory has that many bytes", what);
    unsigned char *content = strata_host_zalloc(bytes + 1);
    if (!content)
        return strata_fail_host_memory(what);
    const strata_status status = read_all(fd, content, bytes, what);
    if (status == STRATA_SUCCESS)
        *out = content;
    else
        strata_host_free(content);
    return status;
}

static strata_status load(worker *self, const wire_load *read, int fd, worker_request *request)
{
    const strata_send_options options = worker_options_of(&read->send, request);
    const size_t bytes = read->bytes;
    unsigned char *image;
    if (!bytes || bytes > image_limit)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the image of a module has %zu bytes; 1 to 4 GiB are possible",
                           bytes);
    strata_status status = worker_read_file(fd, bytes, "the image of a module", &image);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_service_load(self->service, image, bytes, &options, NULL);
    strata_host_free(image);
    return status;
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

typedef struct worker_released {
    struct worker_released *next;
    strata_service_graph *graph; /* or NULL */
    size_t count;
    strata_ref *refs[];
} released;

static void release_all(strata_future *future, void *data)
{
    worker *self = data;
    (void)future;
    strata_lock_take(&self->lock);
    released *ended = self->released;
    self->released = NULL;
    strata_lock_release(&self->lock);
    for (released *next; ended; ended = next) {
        next = ended->next;
        strata_service_graph_release(ended->graph);
        for (size_t i = 0; i < ended->count; i++)
            strata_ref_release(ended->refs[i]);
        strata_host_free(ended);
    }
}

/* Releases on the service's thread, which allocates, by one call for all that have come by then: they fill no queue.
 * Once the lock is released, a call that is under way may have taken and freed `ended`. */
static void release_there(worker *self, released *ended)
{
    const strata_send_options first = worker_first();
    strata_lock_take(&self->lock);
    const bool none_comes = !self->released;
    ended->next = self->released;
    self->released = ended;
    strata_lock_release(&self->lock);
    if (none_comes && worker_call(self, &first, do_nothing, NULL, release_all, self) != STRATA_SUCCESS)
        release_all(NULL, self);
}

/* A number that the table does not have is passed over. */
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
        ended->refs[ended->count] = worker_refs_take(&self->refs, number);
        ended->count += ended->refs[ended->count] != NULL;
    }
    strata_lock_release(&self->lock);
    release_there(self, ended);
    return true;
}

/* Launches that were taken before it hold the graph. */
bool worker_drop_graph(worker *self, const worker_frame *frame)
{
    released *ended = strata_host_zalloc(sizeof *ended);
    if (!ended)
        return false;
    ended->graph = worker_graphs_take(&self->graphs, frame->head.number);
    release_there(self, ended);
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
