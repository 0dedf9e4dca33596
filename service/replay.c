/* Asking again what a recording has.
 *
 *     lines --> prepare --> submit --> slots, oldest first --> settle
 *
 * The recording has the order in which requests began. Requests of one priority begin in the order of submission; one
 * that names memory of another priority's request waits until that is answered. A graph counts as one that names all
 * memory. */
#include <strata/service_replay.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "service/graph.h"
#include "service/replay_file.h"

#include <math.h>
#include <string.h>
#include <time.h>

enum { IN_FLIGHT = 64, IN_FLIGHT_LIMIT = 16384 };

typedef struct replay_slot {
    strata_future *future;
    strata_host_buffer *buffer; /* of a copy */
    uint64_t line, number;      /* of the recording; of what an allocation or a load gives */
    service_request_kind kind;
} replay_slot;

typedef struct replay {
    strata_service *service;
    strata_service_replay_options options;
    strata_service_replay_result *result;
    replay_file file;
    recorded_request request;                 /* of the line that is asked */
    strata_ref *views[STRATA_ARGUMENT_LIMIT]; /* what it names */
    uint64_t line, start;                     /* of it; CLOCK_MONOTONIC */
    uint64_t asked, settled;                  /* requests, in their order */
    uint64_t last_asked[SERVICE_PRIORITIES];  /* of each priority: how many were asked up to its last one, */
    uint64_t last_graph[SERVICE_PRIORITIES];  /* and to its last end or launch of a graph */
    replay_slot *slots;                       /* of those in between, at their number modulo options.in_flight */
} replay;

/* ---- answers ---- */

static void count_failure(replay *self, uint64_t line, const strata_error *error, strata_status status)
{
    strata_service_replay_result *result = self->result;
    result->failed++;
    if (result->failed_line)
        return;
    result->failed_line = line;
    result->failure.status = status;
    if (error)
        result->failure = *error;
}

/* Takes what a request gave. An allocation that no later line names is not kept. */
static void keep(replay *self, const replay_slot *slot, strata_answer *answer)
{
    if (slot->buffer)
        self->result->bytes_copied += strata_host_buffer_bytes(slot->buffer);
    if (slot->kind == SERVICE_LOAD)
        self->file.modules[slot->number - 1].number = answer->module;
    if (slot->kind != SERVICE_ALLOCATE)
        return;
    replay_allocation *allocation = &self->file.allocations[slot->number - 1];
    if (allocation->last_line)
        allocation->ref = answer->ref;
    else
        strata_ref_release(answer->ref);
}

static void settle_oldest(replay *self)
{
    replay_slot *slot = &self->slots[self->settled++ % self->options.in_flight];
    strata_answer answer = {0};
    strata_future_wait(slot->future);
    const strata_status taken = strata_future_take(slot->future, &answer);
    const strata_status status = taken == STRATA_SUCCESS ? answer.status : taken;
    if (status == STRATA_SUCCESS)
        keep(self, slot, &answer);
    else
        count_failure(self, slot->line, answer.error, status);
    strata_host_buffer_release(answer.buffer);
    strata_host_buffer_release(slot->buffer);
    strata_future_release(slot->future);
}

static void settle_first(replay *self, uint64_t count)
{
    while (self->settled < count)
        settle_oldest(self);
}

/* ---- what a request names ---- */

static replay_allocation *allocation_of(const replay *self, const recorded_ref *ref)
{
    return ref->number ? &self->file.allocations[ref->number - 1] : NULL;
}

static replay_module *module_of(const replay *self)
{
    const recorded_request *request = &self->request;
    return request->kind == SERVICE_LAUNCH && request->number ? &self->file.modules[request->number - 1] : NULL;
}

static bool is_of_graph(const recorded_request *request)
{
    return request->kind == SERVICE_MAKE_GRAPH || request->kind == SERVICE_PLAY_GRAPH;
}

/* The graph that the request makes, plays or is recorded in; NULL: none that is known. */
static replay_graph *graph_of(const replay *self)
{
    const recorded_request *request = &self->request;
    const uint64_t number = is_of_graph(request) ? request->number : request->into;
    return number ? &self->file.graphs[number - 1] : NULL;
}

static void wait_for_graphs(replay *self)
{
    const bool all = is_of_graph(&self->request);
    for (size_t i = 0; i < SERVICE_PRIORITIES; i++)
        if (i != self->request.priority && !self->request.into)
            settle_first(self, all ? self->last_asked[i] : self->last_graph[i]);
}

static void wait_for_named(replay *self)
{
    const replay_module *module = module_of(self);
    wait_for_graphs(self);
    if (module)
        settle_first(self, module->made_by);
    for (size_t i = 0; i < self->request.ref_count; i++) {
        const replay_allocation *allocation = allocation_of(self, &self->request.refs[i]);
        if (!allocation)
            continue;
        settle_first(self, allocation->made_by);
        if (allocation->priority != self->request.priority)
            settle_first(self, allocation->named_by);
    }
}

static bool can_be_asked(const replay *self)
{
    const recorded_request *request = &self->request;
    const replay_module *module = module_of(self);
    bool can = request->kind != SERVICE_RUN && request->kind != SERVICE_RECORD_GRAPH &&
               request->kind != SERVICE_LAUNCH_GRAPH && request->kind != RECORDING_UNKNOWN;
    const replay_graph *graph = graph_of(self);
    if (request->kind == SERVICE_LAUNCH)
        can = module && module->number;
    if (is_of_graph(request))
        can = graph && graph->handle;
    if (request->into)
        can = can && !graph->incomplete;
    for (size_t i = 0; i < request->ref_count && can; i++) {
        const replay_allocation *allocation = allocation_of(self, &request->refs[i]);
        can = allocation && allocation->ref;
    }
    return can;
}

static strata_status make_views(replay *self)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < self->request.ref_count && status == STRATA_SUCCESS; i++) {
        const recorded_ref *ref = &self->request.refs[i];
        status = strata_ref_view(allocation_of(self, ref)->ref, ref->offset, ref->length, ref->type, &self->views[i]);
    }
    return status;
}

/* Releases a graph after its last launch; a launch under way keeps it. */
static void let_go_of_graph(replay *self)
{
    const recorded_request *request = &self->request;
    replay_graph *graph =
        request->kind == SERVICE_PLAY_GRAPH && request->number ? &self->file.graphs[request->number - 1] : NULL;
    if (!graph || graph->last_line != self->line)
        return;
    strata_service_graph_release(graph->handle);
    graph->handle = NULL;
}

/* After a line: views go, and allocations and graphs that it was the last to name. */
static void let_go_of_named(replay *self)
{
    let_go_of_graph(self);
    for (size_t i = 0; i < self->request.ref_count; i++) {
        replay_allocation *allocation = allocation_of(self, &self->request.refs[i]);
        strata_ref_release(self->views[i]);
        self->views[i] = NULL;
        if (!allocation || allocation->last_line != self->line)
            continue;
        strata_ref_release(allocation->ref);
        allocation->ref = NULL;
    }
}

/* ---- requests ---- */

static strata_status submit_copy(replay *self, const strata_send_options *send, replay_slot *slot)
{
    strata_ref *ref = self->views[0];
    if (!slot->buffer) {
        const strata_status status = strata_host_buffer_create(self->request.refs[0].bytes, &slot->buffer);
        if (status != STRATA_SUCCESS)
            return status;
    }
    return slot->kind == SERVICE_COPY_TO_HOST
               ? strata_service_copy_to_host(self->service, ref, slot->buffer, send, &slot->future)
               : strata_service_copy_from_host(self->service, slot->buffer, ref, send, &slot->future);
}

/* What is recorded in a graph has no future. */
static strata_future **future_of(const strata_send_options *send, replay_slot *slot)
{
    return send->graph ? NULL : &slot->future;
}

static strata_status submit_load(replay *self, const strata_send_options *send, replay_slot *slot)
{
    const recorded_request *request = &self->request;
    unsigned char *image = strata_host_zalloc(request->image_bytes);
    if (!image)
        return strata_fail_host_memory("the image of a module");
    recording_image_read(request, image);
    const strata_status status = strata_service_load(self->service, image, request->image_bytes, send, &slot->future);
    strata_host_free(image);
    return status;
}

static strata_status submit_launch(replay *self, const strata_send_options *send, replay_slot *slot)
{
    recorded_request *request = &self->request;
    strata_kernel kernel = {.module = module_of(self)->number,
                            .entry = request->entry,
                            .shared_bytes = request->shared_bytes,
                            .arguments = request->arguments,
                            .argument_count = request->argument_count};
    size_t next = 0;
    memcpy(kernel.grid, request->grid, sizeof kernel.grid);
    memcpy(kernel.block, request->block, sizeof kernel.block);
    for (size_t i = 0; i < request->argument_count; i++)
        if (request->arguments[i].kind != STRATA_ARGUMENT_VALUE)
            request->arguments[i].ref = self->views[next++];
    return strata_service_launch(self->service, &kernel, send, future_of(send, slot));
}

static strata_status submit_blas(replay *self, const strata_send_options *send, replay_slot *slot)
{
    strata_service_blas_call *call = &self->request.blas;
    const recording_routine *routine = &service_recording_routines[call->routine];
    size_t next = 0;
    for (size_t i = 0; i < routine->count; i++)
        if (routine->fields[i].kind == RECORDING_OPERAND)
            ((strata_blas_operand *)((char *)call + routine->fields[i].at))->ref = self->views[next++];
    return strata_service_blas(self->service, call, send, future_of(send, slot));
}

static strata_status submit(replay *self, replay_slot *slot)
{
    const recorded_request *request = &self->request;
    const strata_send_options recorded = {.sender = request->sender,
                                          .graph = request->into ? graph_of(self)->handle : NULL};
    const strata_send_options sent = {
        .priority = request->priority, .hint = request->hint, .sender = request->sender, .timeout = request->timeout};
    const strata_send_options send = request->into ? recorded : sent;
    switch (slot->kind) {
    case SERVICE_ALLOCATE:
        return (request->raw ? strata_service_allocate_raw : strata_service_allocate)(
            self->service, request->made.type, request->made.length, &send, &slot->future);
    case SERVICE_COPY_TO_HOST:
    case SERVICE_COPY_FROM_HOST:
        return submit_copy(self, &send, slot);
    case SERVICE_LOAD:
        return submit_load(self, &send, slot);
    case SERVICE_LAUNCH:
        return submit_launch(self, &send, slot);
    case SERVICE_COPY:
        return strata_service_copy(self->service, self->views[0], self->views[1], &send, future_of(&send, slot));
    case SERVICE_FILL:
        return strata_service_fill(self->service, self->views[0], request->fill_value, request->fill_width, &send,
                                   future_of(&send, slot));
    case SERVICE_MAKE_GRAPH:
        return strata_service_graph_end(graph_of(self)->handle, &send, &slot->future);
    case SERVICE_PLAY_GRAPH:
        return strata_service_graph_launch(graph_of(self)->handle, &send, &slot->future);
    default:
        return submit_blas(self, &send, slot);
    }
}

/* Submits, and while the queue is full waits: it may also be full of others' requests. */
static strata_status submit_when_there_is_room(replay *self, replay_slot *slot)
{
    const struct timespec moment = {.tv_nsec = 1000000};
    strata_status status;
    while ((status = submit(self, slot)) == STRATA_ERROR_QUEUE_FULL) {
        if (self->settled < self->asked)
            settle_oldest(self);
        else
            nanosleep(&moment, NULL);
    }
    return status;
}

/* Notes what later lines need to know of this request. */
static void remember(replay *self, const replay_slot *slot)
{
    if (slot->kind == SERVICE_ALLOCATE)
        self->file.allocations[slot->number - 1].made_by = self->asked;
    if (slot->kind == SERVICE_LOAD)
        self->file.modules[slot->number - 1].made_by = self->asked;
    self->last_asked[self->request.priority] = self->asked;
    if (is_of_graph(&self->request))
        self->last_graph[self->request.priority] = self->asked;
    for (size_t i = 0; i < self->request.ref_count; i++) {
        replay_allocation *allocation = allocation_of(self, &self->request.refs[i]);
        allocation->named_by = self->asked;
        allocation->priority = self->request.priority;
    }
}

static void ask(replay *self)
{
    replay_slot slot = {
        .line = self->line, .number = self->request.number, .kind = (service_request_kind)self->request.kind};
    if (self->asked - self->settled == self->options.in_flight)
        settle_oldest(self);
    self->result->requests++;
    strata_status status = make_views(self);
    if (status == STRATA_SUCCESS)
        status = submit_when_there_is_room(self, &slot);
    if (status == STRATA_SUCCESS) {
        self->slots[self->asked++ % self->options.in_flight] = slot;
        remember(self, &slot);
        return;
    }
    count_failure(self, slot.line, strata_error_in_force(), status);
    strata_host_buffer_release(slot.buffer);
}

/* ---- graphs ---- */

/* Gives up a graph, which cannot be made without a request that failed or was left out. */
static void give_graph_up(replay_graph *graph)
{
    strata_service_graph_release(graph->handle);
    graph->handle = NULL;
    graph->incomplete = true;
}

static void record(replay *self)
{
    replay_slot slot = {.kind = (service_request_kind)self->request.kind};
    replay_graph *graph = graph_of(self);
    strata_status status = STRATA_SUCCESS;
    self->result->requests++;
    if (!graph->handle)
        status = strata_service_graph_begin(self->service, NULL, &graph->handle);
    if (status == STRATA_SUCCESS)
        status = make_views(self);
    if (status == STRATA_SUCCESS)
        status = submit(self, &slot);
    if (status == STRATA_SUCCESS)
        return;
    count_failure(self, self->line, strata_error_in_force(), status);
    give_graph_up(graph);
}

static void leave_out(replay *self)
{
    self->result->skipped++;
    if (self->request.into)
        give_graph_up(graph_of(self));
}

/* ---- the recording ---- */

/* Sleeps until the line's time, in parts, so that a service that shuts down ends it. */
static void wait_for_time(const replay *self)
{
    if (self->options.speed == 0)
        return;
    const double until = (double)self->request.time / self->options.speed;
    while (service_is_open(self->service)) {
        const double left = until - (double)(service_clock() - self->start);
        if (!(left > 0))
            return;
        const struct timespec part = {.tv_nsec = left < 1e8 ? (long)left : 100000000};
        nanosleep(&part, NULL);
    }
}

static void ask_lines(replay *self)
{
    replay_position position = {0};
    recording_problem problem;
    const char *line;
    size_t length;
    replay_file_next(&self->file, &position, &line, &length); /* the head */
    while (service_is_open(self->service) && !(self->options.stop_at_failure && self->result->failed) &&
           replay_file_next(&self->file, &position, &line, &length)) {
        self->line = position.line;
        recording_line_read(line, length, &self->request, &problem); /* was checked */
        wait_for_time(self);
        wait_for_named(self);
        if (!can_be_asked(self))
            leave_out(self);
        else if (self->request.into)
            record(self);
        else
            ask(self);
        let_go_of_named(self);
    }
    settle_first(self, self->asked);
    for (uint64_t i = 0; i < self->file.allocation_count; i++)
        strata_ref_release(self->file.allocations[i].ref);
    for (uint64_t i = 0; i <= self->file.graph_count; i++)
        strata_service_graph_release(self->file.graphs[i].handle);
}

static strata_status run(replay *self, const char *path)
{
    strata_status status = replay_file_open(&self->file, path);
    if (status != STRATA_SUCCESS)
        return status;
    self->result->truncated = self->file.truncated;
    self->slots = strata_host_zalloc(self->options.in_flight * sizeof *self->slots);
    if (!self->slots) {
        replay_file_close(&self->file);
        return strata_fail_host_memory("a replay");
    }
    self->start = service_clock();
    strata_error_suppress_begin(); /* failures of requests are counted */
    ask_lines(self);
    strata_error_suppress_end(false);
    strata_host_free(self->slots);
    replay_file_close(&self->file);
    status = service_check_open(self->service);
    return status == STRATA_SUCCESS && self->options.stop_at_failure && self->result->failed
               ? strata_error_raise_again(&self->result->failure)
               : status;
}

static strata_status read_options(const strata_service_replay_options *given, strata_service_replay_options *options)
{
    const strata_status status = strata_options_read(options, sizeof *options, given, "strata_service_replay_options");
    if (status != STRATA_SUCCESS)
        return status;
    if (!isfinite(options->speed) || options->speed < 0)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_service_replay_options: speed is %g; it is a finite number, and 0 means no pauses",
                           options->speed);
    if (options->in_flight > IN_FLIGHT_LIMIT)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_replay_options: in_flight is %u; at most %d",
                           options->in_flight, IN_FLIGHT_LIMIT);
    if (!options->in_flight)
        options->in_flight = IN_FLIGHT;
    return STRATA_SUCCESS;
}

strata_status strata_service_replay(strata_service *service, const char *path,
                                    const strata_service_replay_options *given, strata_service_replay_result *result)
{
    strata_service_replay_options options;
    strata_service_replay_result unwanted;
    result = result ? result : &unwanted;
    *result = (strata_service_replay_result){0};
    strata_status status = service_check(service, "strata_service_replay");
    if (status == STRATA_SUCCESS && !path)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_replay: path is NULL");
    if (status == STRATA_SUCCESS && service_is_own_thread(service))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_service_replay: called on the service's own thread");
    if (status == STRATA_SUCCESS)
        status = read_options(given, &options);
    if (status != STRATA_SUCCESS)
        return status;
    replay *self = strata_host_zalloc(sizeof *self);
    if (!self)
        return strata_fail_host_memory("a replay");
    self->service = service;
    self->options = options;
    self->result = result;
    status = run(self, path);
    strata_host_free(self);
    return status;
}
