/* Requests of every kind, as programs make them. */
#include <strata/service.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "runtime/references.h"
#include "service/image.h"
#include "service/service.h"

#include <string.h>

/* Drops the request, and returns the error. */
static strata_status give_up(strata_future *request, strata_status status)
{
    service_request_drop(request);
    return status;
}

static char *copy_text(const char *text)
{
    char *copy = strata_host_zalloc(strlen(text) + 1);
    return copy ? strcpy(copy, text) : NULL;
}

/* Refuses memory of another service or another device. */
static strata_status check_ref(strata_service *service, const strata_ref *ref, const char *call)
{
    strata_ref_memory memory;
    if (!ref)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: the reference is NULL", call);
    const strata_status status = strata_ref_access(ref, &memory);
    return status == STRATA_SUCCESS ? service->backend->check_ref(service, ref) : status;
}

/* ---- memory ---- */

static strata_status allocate(strata_service *service, strata_element type, size_t length, bool raw,
                              const strata_send_options *send, strata_future **out)
{
    strata_future *request;
    size_t bytes;
    if (out)
        *out = NULL;
    strata_status status = strata_element_count_bytes(type, length, &bytes);
    if (status == STRATA_SUCCESS)
        status = service_request_make(service, SERVICE_ALLOCATE, send, "strata_service_allocate", &request);
    if (status != STRATA_SUCCESS)
        return status;
    request->type = type;
    request->length = length;
    request->raw = raw;
    return service_request_submit(request, out);
}

strata_status strata_service_allocate(strata_service *service, strata_element type, size_t length,
                                      const strata_send_options *send, strata_future **out)
{
    return allocate(service, type, length, false, send, out);
}

strata_status strata_service_allocate_raw(strata_service *service, strata_element type, size_t length,
                                          const strata_send_options *send, strata_future **out)
{
    return allocate(service, type, length, true, send, out);
}

static strata_status check_sizes(const strata_ref *ref, const strata_host_buffer *buffer)
{
    return ref->bytes == strata_host_buffer_bytes(buffer)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_SIZE_MISMATCH,
                             "the reference has %zu bytes, the host buffer %zu; use a view, "
                             "or a buffer of that size",
                             ref->bytes, strata_host_buffer_bytes(buffer));
}

static strata_status copy(strata_service *service, service_request_kind kind, strata_ref *ref,
                          strata_host_buffer *buffer, const strata_send_options *send, strata_future **out)
{
    const char *call = kind == SERVICE_COPY_TO_HOST ? "strata_service_copy_to_host" : "strata_service_copy_from_host";
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = service_request_make(service, kind, send, call, &request);
    if (status != STRATA_SUCCESS)
        return status;
    status = buffer ? check_ref(service, ref, call)
                    : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: the host buffer is NULL", call);
    if (status == STRATA_SUCCESS)
        status = check_sizes(ref, buffer);
    if (status == STRATA_SUCCESS && kind == SERVICE_COPY_FROM_HOST)
        status = strata_reference_check_access(ref, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return give_up(request, status);
    request->ref = strata_ref_clone(ref);
    request->buffer = strata_host_buffer_clone(buffer);
    return service_request_submit(request, out);
}

strata_status strata_service_copy_to_host(strata_service *service, strata_ref *from, strata_host_buffer *to,
                                          const strata_send_options *send, strata_future **out)
{
    return copy(service, SERVICE_COPY_TO_HOST, from, to, send, out);
}

strata_status strata_service_copy_from_host(strata_service *service, strata_host_buffer *from, strata_ref *to,
                                            const strata_send_options *send, strata_future **out)
{
    return copy(service, SERVICE_COPY_FROM_HOST, to, from, send, out);
}

/* Where the reference begins, in a space that those of `whole` share. */
static size_t place_of(const strata_ref *ref)
{
    return ref->runtime ? (size_t)ref->address : ref->offset;
}

static bool overlap(const strata_ref *a, const strata_ref *b)
{
    const bool one_space = a->runtime ? b->runtime != NULL : a->whole == b->whole;
    return one_space && place_of(a) < place_of(b) + b->bytes && place_of(b) < place_of(a) + a->bytes;
}

static strata_status check_copy(strata_service *service, const strata_ref *from, const strata_ref *to)
{
    strata_status status = check_ref(service, from, "strata_service_copy");
    if (status == STRATA_SUCCESS)
        status = check_ref(service, to, "strata_service_copy");
    if (status == STRATA_SUCCESS)
        status = strata_reference_check_access(to, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    if (from->bytes != to->bytes)
        return strata_fail(STRATA_ERROR_SIZE_MISMATCH,
                           "strata_service_copy: the references have %zu and %zu bytes; use a view", from->bytes,
                           to->bytes);
    return from->bytes && !overlap(from, to)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_copy: the references %s",
                             from->bytes ? "overlap" : "have no bytes");
}

strata_status strata_service_copy(strata_service *service, strata_ref *from, strata_ref *to,
                                  const strata_send_options *send, strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = service_request_make(service, SERVICE_COPY, send, "strata_service_copy", &request);
    if (status != STRATA_SUCCESS)
        return status;
    status = check_copy(service, from, to);
    if (status != STRATA_SUCCESS)
        return give_up(request, status);
    request->ref = strata_ref_clone(from);
    request->to = strata_ref_clone(to);
    return service_request_submit(request, out);
}

static strata_status check_fill(strata_service *service, const strata_ref *ref, uint32_t width)
{
    strata_status status = check_ref(service, ref, "strata_service_fill");
    if (status == STRATA_SUCCESS)
        status = strata_reference_check_access(ref, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    if (width != 1 && width != 4)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_service_fill: the value has %u bytes; a device fills with 1 or 4", width);
    return ref->bytes && ref->bytes % width == 0 && place_of(ref) % width == 0
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "strata_service_fill: the reference has %zu bytes, which are no whole and aligned values "
                             "of %u",
                             ref->bytes, width);
}

strata_status strata_service_fill(strata_service *service, strata_ref *ref, uint32_t value, uint32_t width,
                                  const strata_send_options *send, strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = service_request_make(service, SERVICE_FILL, send, "strata_service_fill", &request);
    if (status != STRATA_SUCCESS)
        return status;
    status = check_fill(service, ref, width);
    if (status != STRATA_SUCCESS)
        return give_up(request, status);
    request->ref = strata_ref_clone(ref);
    request->fill_value = value;
    request->fill_width = width;
    return service_request_submit(request, out);
}

strata_status strata_service_buffer_create(strata_service *service, size_t bytes, strata_host_buffer **out)
{
    if (out)
        *out = NULL;
    strata_status status = service_check(service, "strata_service_buffer_create");
    if (status == STRATA_SUCCESS && (!out || !bytes))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_buffer_create: out is NULL, or bytes is 0");
    if (status == STRATA_SUCCESS)
        status = service_check_open(service);
    return status == STRATA_SUCCESS ? service->backend->make_buffer(service, bytes, out) : status;
}

/* ---- functions ---- */

static strata_status set_operation(strata_future *request, const strata_service_operation *operation)
{
    const strata_status status =
        strata_options_read(&request->operation, sizeof request->operation, operation, "strata_service_operation");
    if (status != STRATA_SUCCESS)
        return status;
    if (!request->operation.function)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_operation: function is NULL");
    const char *name = request->operation.name ? request->operation.name : "run";
    const strata_status fine = service_check_name(name, SERVICE_NAME_LIMIT, "an operation");
    if (fine != STRATA_SUCCESS)
        return fine;
    request->name = copy_text(name);
    request->operation.name = request->name;
    return request->name ? STRATA_SUCCESS : strata_fail_host_memory("the name of an operation");
}

static strata_status run(strata_service *service, service_request_kind kind, const strata_service_operation *operation,
                         const strata_send_options *send, const char *call, strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = service_request_make(service, kind, send, call, &request);
    if (status != STRATA_SUCCESS)
        return status;
    status = operation ? set_operation(request, operation)
                       : strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: operation is NULL", call);
    if (status == STRATA_SUCCESS && service->options.form == STRATA_SERVICE_ISOLATED)
        status = strata_fail(STRATA_ERROR_UNSUPPORTED,
                             "%s: a function of this program cannot run in the worker of an isolated service; load a "
                             "module and launch its kernels, or record them: strata_service_graph_begin",
                             call);
    return status == STRATA_SUCCESS ? service_request_submit(request, out) : give_up(request, status);
}

strata_status strata_service_run(strata_service *service, const strata_service_operation *operation,
                                 const strata_send_options *send, strata_future **out)
{
    return run(service, SERVICE_RUN, operation, send, "strata_service_run", out);
}

strata_status strata_service_record_graph(strata_service *service, const strata_service_operation *operation,
                                          const strata_send_options *send, strata_future **out)
{
    return run(service, SERVICE_RECORD_GRAPH, operation, send, "strata_service_record_graph", out);
}

strata_status strata_service_launch_graph(strata_service *service, strata_graph *graph, const strata_send_options *send,
                                          strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status =
        service_request_make(service, SERVICE_LAUNCH_GRAPH, send, "strata_service_launch_graph", &request);
    if (status != STRATA_SUCCESS)
        return status;
    if (service->options.form == STRATA_SERVICE_ISOLATED)
        return give_up(request, strata_fail(STRATA_ERROR_UNSUPPORTED,
                                            "strata_service_launch_graph: a graph of this process cannot run in the "
                                            "worker of an isolated service; record one with "
                                            "strata_service_graph_begin"));
    if (!graph)
        return give_up(request, strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_launch_graph: graph is NULL"));
    request->graph = graph;
    return service_request_submit(request, out);
}

/* ---- kernels ---- */

/* The length of PTX is that of its text. A worker loads by this call, too: what it is sent is checked by it. */
strata_status strata_service_load(strata_service *service, const void *image, size_t bytes,
                                  const strata_send_options *send, strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = service_request_make(service, SERVICE_LOAD, send, "strata_service_load", &request);
    if (status != STRATA_SUCCESS)
        return status;
    if (!image)
        return give_up(request, strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_load: image is NULL"));
    request->image_bytes = bytes ? bytes : strlen(image);
    if (!request->image_bytes)
        return give_up(request, strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_load: the image is empty"));
    if (request->image_bytes < SIZE_MAX)
        request->image = strata_host_zalloc(request->image_bytes + 1);
    if (!request->image)
        return give_up(request, strata_fail_host_memory("the image of a module"));
    memcpy(request->image, image, request->image_bytes);
    status = service_image_check(request->image, request->image_bytes);
    return status == STRATA_SUCCESS ? service_request_submit(request, out) : give_up(request, status);
}

static strata_status check_argument(strata_service *service, const strata_argument *argument, size_t number)
{
    if ((unsigned)argument->kind > STRATA_ARGUMENT_READ_WRITE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "argument %zu of the kernel has no kind %d", number,
                           (int)argument->kind);
    if (argument->kind != STRATA_ARGUMENT_VALUE) {
        const strata_status status = check_ref(service, argument->ref, "strata_service_launch");
        return status == STRATA_SUCCESS && argument->kind != STRATA_ARGUMENT_READ
                   ? strata_reference_check_access(argument->ref, STRATA_ACCESS_WRITE)
                   : status;
    }
    const uint32_t bytes = argument->bytes;
    return bytes == 1 || bytes == 2 || bytes == 4 || bytes == 8
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "argument %zu of the kernel has %u bytes; values have 1, 2, 4 or 8", number, bytes);
}

static strata_status check_kernel(strata_service *service, const strata_kernel *kernel)
{
    if (!kernel || !kernel->entry || (kernel->argument_count && !kernel->arguments))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_service_launch: kernel, its entry or its arguments are NULL");
    if (kernel->argument_count > STRATA_ARGUMENT_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_launch: %zu arguments; at most %d are possible",
                           kernel->argument_count, STRATA_ARGUMENT_LIMIT);
    strata_status status = service_check_name(kernel->entry, SERVICE_ENTRY_LIMIT, "a kernel");
    for (size_t i = 0; i < kernel->argument_count && status == STRATA_SUCCESS; i++)
        status = check_argument(service, &kernel->arguments[i], i);
    return status;
}

static unsigned at_least_one(unsigned value)
{
    return value ? value : 1;
}

static strata_status copy_kernel(service_launch *launch, const strata_kernel *kernel)
{
    launch->module = kernel->module;
    launch->shared_bytes = kernel->shared_bytes;
    for (size_t i = 0; i < 3; i++) {
        launch->grid[i] = at_least_one(kernel->grid[i]);
        launch->block[i] = at_least_one(kernel->block[i]);
    }
    launch->entry = copy_text(kernel->entry);
    if (kernel->argument_count)
        launch->arguments = strata_host_zalloc(kernel->argument_count * sizeof *launch->arguments);
    if (!launch->entry || (kernel->argument_count && !launch->arguments))
        return strata_fail_host_memory("the launch of a kernel");
    for (; launch->count < kernel->argument_count; launch->count++) {
        launch->arguments[launch->count] = kernel->arguments[launch->count];
        strata_argument *argument = &launch->arguments[launch->count];
        argument->ref = argument->kind == STRATA_ARGUMENT_VALUE ? NULL : strata_ref_clone(argument->ref);
    }
    return STRATA_SUCCESS;
}

strata_status strata_service_launch(strata_service *service, const strata_kernel *kernel,
                                    const strata_send_options *send, strata_future **out)
{
    strata_future *request;
    if (out)
        *out = NULL;
    strata_status status = service_request_make(service, SERVICE_LAUNCH, send, "strata_service_launch", &request);
    if (status != STRATA_SUCCESS)
        return status;
    status = check_kernel(service, kernel);
    if (status == STRATA_SUCCESS)
        status = copy_kernel(&request->launch, kernel);
    return status == STRATA_SUCCESS ? service_request_submit(request, out) : give_up(request, status);
}
