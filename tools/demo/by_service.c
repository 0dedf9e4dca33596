/* Through the service: three senders with a stream each. The requests of a sender begin in the order of their
 * submission, so that a batch is four requests, and none is waited for before the next one is sent. */
#include "tools/demo/pipeline.h"

#include "core/base/error.h"
#include "core/base/timestamp.h"

#include <strata/service_blas.h>

#include <string.h>

enum { REQUESTS = 4 /* of a batch */ };

typedef struct lane {
    strata_send_options send; /* names the sender */
    strata_ref *a, *c;
    strata_host_buffer *in, *out;
    strata_future *answers[REQUESTS]; /* of the batch under way; NULL: of none */
    uint32_t batch;
} lane;

typedef struct client {
    demo *of;
    strata_service *service;
    strata_ref *weights, *bias;
    uint64_t module;
    bool own_product; /* the demonstration's kernel multiplies */
    lane lanes[DEMO_LANES];
} client;

/* ---- answers ---- */

/* Waits for an answer, and takes what it owns. */
static strata_status take(strata_future *future, strata_answer *out)
{
    *out = (strata_answer){0};
    strata_status status = strata_future_wait(future);
    if (status == STRATA_SUCCESS)
        status = strata_future_take(future, out);
    strata_future_release(future);
    return status;
}

static strata_status allocate(client *self, size_t floats, strata_ref **out)
{
    strata_future *future;
    strata_answer answer = {0};
    strata_status status = strata_service_allocate_raw(self->service, STRATA_ELEMENT_F32, floats, NULL, &future);
    if (status == STRATA_SUCCESS)
        status = take(future, &answer);
    *out = answer.ref;
    return status;
}

static strata_status upload(client *self, const float *numbers, size_t floats, strata_ref **out)
{
    strata_host_buffer *buffer = NULL;
    strata_future *future;
    strata_answer answer = {0};
    strata_status status = allocate(self, floats, out);
    if (status == STRATA_SUCCESS)
        status = strata_service_buffer_create(self->service, floats * sizeof *numbers, &buffer);
    if (status != STRATA_SUCCESS)
        return status;
    memcpy(strata_host_buffer_memory(buffer), numbers, floats * sizeof *numbers);
    status = strata_service_copy_from_host(self->service, buffer, *out, NULL, &future);
    if (status == STRATA_SUCCESS)
        status = take(future, &answer);
    strata_host_buffer_release(answer.buffer);
    strata_host_buffer_release(buffer);
    return status;
}

/* ---- a batch ---- */

static strata_argument reference(strata_ref *ref, strata_argument_kind kind)
{
    return (strata_argument){.kind = kind, .ref = ref};
}

static strata_argument number(uint32_t value)
{
    strata_argument argument = {.kind = STRATA_ARGUMENT_VALUE, .bytes = sizeof value};
    memcpy(argument.value, &value, sizeof value);
    return argument;
}

static strata_status launch(client *self, const lane *at, const char *entry, const strata_argument *arguments,
                            strata_future **out)
{
    const size_t n = self->of->settings.n;
    const strata_kernel kernel = {.module = self->module,
                                  .entry = entry,
                                  .grid = {demo_grid(n * n)},
                                  .block = {DEMO_THREADS},
                                  .arguments = arguments,
                                  .argument_count = 4};
    return strata_service_launch(self->service, &kernel, &at->send, out);
}

static strata_status multiply(client *self, const lane *at, strata_future **out)
{
    const uint32_t n = self->of->settings.n;
    if (self->own_product)
        return launch(self, at, DEMO_MULTIPLY,
                      (strata_argument[]){reference(at->c, STRATA_ARGUMENT_WRITE),
                                          reference(at->a, STRATA_ARGUMENT_READ),
                                          reference(self->weights, STRATA_ARGUMENT_READ), number(n)},
                      out);
    const strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS,
                                        .m = n,
                                        .n = n,
                                        .k = n,
                                        .alpha = 1,
                                        .a = strata_blas_of_ref(at->a),
                                        .b = strata_blas_of_ref(self->weights),
                                        .c = strata_blas_of_ref(at->c)};
    return strata_service_sgemm(self->service, &call, &at->send, out);
}

static strata_status send_batch(client *self, lane *at)
{
    const uint32_t n = self->of->settings.n;
    const strata_argument arguments[] = {reference(at->c, STRATA_ARGUMENT_READ_WRITE),
                                         reference(self->bias, STRATA_ARGUMENT_READ), number(n), number(n)};
    demo_matrices_fill(&self->of->matrices, at->batch, strata_host_buffer_memory(at->in));
    strata_status status = strata_service_copy_from_host(self->service, at->in, at->a, &at->send, &at->answers[0]);
    if (status == STRATA_SUCCESS)
        status = multiply(self, at, &at->answers[1]);
    if (status == STRATA_SUCCESS)
        status = launch(self, at, DEMO_BIAS_RELU, arguments, &at->answers[2]);
    if (status == STRATA_SUCCESS)
        status = strata_service_copy_to_host(self->service, at->c, at->out, &at->send, &at->answers[3]);
    return status;
}

/* Waits for the lane's requests; the first failure is returned, with its message. None: SUCCESS. */
static strata_status take_all(lane *at)
{
    strata_error why = {.status = STRATA_SUCCESS};
    for (size_t i = 0; i < REQUESTS && at->answers[i]; i++) {
        strata_answer answer;
        if (take(at->answers[i], &answer) != STRATA_SUCCESS && why.status == STRATA_SUCCESS)
            why = *strata_last_error();
        strata_host_buffer_release(answer.buffer);
        at->answers[i] = NULL;
    }
    return why.status == STRATA_SUCCESS ? STRATA_SUCCESS : strata_error_raise_again(&why);
}

/* Waits for the lane's batch, and compares it. Without one: nothing. */
static strata_status finish(client *self, lane *at, demo_way *way)
{
    if (!at->answers[0])
        return STRATA_SUCCESS;
    const strata_status status = take_all(at);
    if (status == STRATA_SUCCESS && way)
        demo_compare(self->of, way, at->batch, strata_host_buffer_memory(at->out));
    return status;
}

static strata_status begin(client *self, demo_way *way, uint32_t batch)
{
    lane *at = &self->lanes[batch % DEMO_LANES];
    const strata_status status = finish(self, at, way);
    at->batch = batch;
    return status == STRATA_SUCCESS ? send_batch(self, at) : status;
}

static strata_status run(client *self, demo_way *way)
{
    const uint32_t batches = self->of->settings.batches;
    strata_status status = STRATA_SUCCESS;
    for (uint32_t batch = 0; batch < batches && status == STRATA_SUCCESS; batch++)
        status = begin(self, way, batch);
    for (uint32_t i = 0; i < DEMO_LANES && status == STRATA_SUCCESS; i++)
        status = finish(self, &self->lanes[(batches + i) % DEMO_LANES], way);
    return status;
}

/* ---- making and ending ---- */

static strata_status open_lane(client *self, lane *at, uint64_t sender)
{
    const size_t floats = self->of->matrices.n * self->of->matrices.n;
    at->send.sender = sender;
    strata_status status = allocate(self, floats, &at->a);
    if (status == STRATA_SUCCESS)
        status = allocate(self, floats, &at->c);
    if (status == STRATA_SUCCESS)
        status = strata_service_buffer_create(self->service, floats * sizeof(float), &at->in);
    if (status == STRATA_SUCCESS)
        status = strata_service_buffer_create(self->service, floats * sizeof(float), &at->out);
    return status;
}

static strata_status load(client *self)
{
    strata_future *future;
    strata_answer answer = {0};
    strata_status status = strata_service_load(self->service, demo_ptx, 0, NULL, &future);
    if (status == STRATA_SUCCESS)
        status = take(future, &answer);
    self->module = answer.module;
    return status;
}

/* A batch in which libraries load their kernels. A service without cuBLAS is given the demonstration's kernel. */
static strata_status run_first(client *self)
{
    strata_status status = begin(self, NULL, 0);
    if (status == STRATA_SUCCESS)
        status = finish(self, &self->lanes[0], NULL);
    if (status != STRATA_ERROR_UNSUPPORTED || self->own_product)
        return status;
    self->own_product = true;
    take_all(&self->lanes[0]);
    status = begin(self, NULL, 0);
    return status == STRATA_SUCCESS ? finish(self, &self->lanes[0], NULL) : status;
}

static strata_status open_client(client *self)
{
    demo *of = self->of;
    const size_t n = of->matrices.n;
    const strata_service_options options = {.device = of->settings.device,
                                            .form = of->settings.form,
                                            .stack_text = of->stack,
                                            .streams = STRATA_SERVICE_STREAM_POOLED,
                                            .stream_count = DEMO_LANES};
    strata_status status = strata_service_create(&options, &self->service);
    if (status == STRATA_SUCCESS)
        status = strata_service_wait_ready(self->service, STRATA_NEVER);
    if (status == STRATA_SUCCESS)
        status = load(self);
    if (status == STRATA_SUCCESS)
        status = upload(self, of->matrices.b, n * n, &self->weights);
    if (status == STRATA_SUCCESS)
        status = upload(self, of->matrices.bias, n, &self->bias);
    for (size_t i = 0; i < DEMO_LANES && status == STRATA_SUCCESS; i++)
        status = open_lane(self, &self->lanes[i], i + 1);
    return status == STRATA_SUCCESS ? run_first(self) : status;
}

static strata_status close_client(client *self)
{
    for (size_t i = 0; i < DEMO_LANES; i++) {
        lane *at = &self->lanes[i];
        take_all(at); /* of a batch whose later requests were refused */
        strata_ref_release(at->a);
        strata_ref_release(at->c);
        strata_host_buffer_release(at->in);
        strata_host_buffer_release(at->out);
    }
    strata_ref_release(self->weights);
    strata_ref_release(self->bias);
    return strata_service_destroy(self->service);
}

void demo_by_service(demo *of, demo_way *way)
{
    client self = {.of = of, .own_product = of->own_product};
    strata_service_snapshot snapshot;
    const uint64_t start = strata_timestamp_clock();
    strata_status status = demo_note(way, open_client(&self));
    const uint64_t ready = strata_timestamp_clock();
    if (status == STRATA_SUCCESS)
        status = demo_note(way, run(&self, way));
    way->setup = ready - start;
    way->time = strata_timestamp_clock() - ready;
    way->own_product = self.own_product;
    if (of->settings.form == STRATA_SERVICE_IN_PROCESS && self.service &&
        strata_service_get_snapshot(self.service, &snapshot) == STRATA_SUCCESS && snapshot.ready)
        demo_note_budget(way, snapshot.runtime);
    demo_note(way, close_client(&self));
}
