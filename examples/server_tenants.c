#include "server_tenants.h"

#include <stdio.h>
#include <string.h>

enum { SECONDS = 1000000000, THREADS = 256 };

/* tools/demo/kernels.cu: C = A * B. The simulated driver has it built in, also in a worker process. */
static const char ptx[] = {
#include "server_kernels_ptx.inc"
};

/* ---- one request ---- */

/* The first failure of several requests. */
static void note(outcome *out, strata_status status, strata_failure_class failure)
{
    if (out->status != STRATA_SUCCESS || status == STRATA_SUCCESS)
        return;
    out->status = status;
    out->failure = failure;
    snprintf(out->message, sizeof out->message, "%s", strata_last_error()->message);
}

/* A request that was refused at once has no answer, and so no class. */
static strata_failure_class class_of_refusal(const tenant *self)
{
    return strata_service_stopped(self->service) == STRATA_SUCCESS ? STRATA_FAILURE_NONE : STRATA_FAILURE_UNRECOVERABLE;
}

/* `sent` is what the call that sends a request returned: a request that was refused has no future. Waits for the
 * answer; what that gives is the caller's. */
static strata_answer take(const tenant *self, outcome *out, strata_status sent, strata_future **future)
{
    strata_answer answer = {0};
    note(out, sent, STRATA_FAILURE_NONE);
    if (sent != STRATA_SUCCESS) {
        out->failure = class_of_refusal(self);
        return answer;
    }
    const strata_status status = strata_future_wait(*future);
    if (strata_future_take(*future, &answer) == STRATA_SUCCESS)
        note(out, status, answer.failure);
    strata_future_release(*future);
    return answer;
}

/* ---- multiply ---- */

static strata_ref *allocate(tenant *self, size_t floats, outcome *out)
{
    strata_future *future;
    if (out->status != STRATA_SUCCESS)
        return NULL;
    const strata_status sent = strata_service_allocate(self->service, STRATA_ELEMENT_F32, floats, NULL, &future);
    return take(self, out, sent, &future).ref;
}

static void fill(tenant *self, strata_ref *ref, size_t floats, float value, outcome *out)
{
    strata_host_buffer *buffer;
    strata_future *future;
    if (out->status != STRATA_SUCCESS)
        return;
    note(out, strata_host_buffer_create(floats * sizeof value, &buffer), STRATA_FAILURE_OUT_OF_MEMORY);
    if (out->status != STRATA_SUCCESS)
        return;
    float *to = strata_host_buffer_memory(buffer);
    for (size_t i = 0; i < floats; i++)
        to[i] = value;
    const strata_status sent = strata_service_copy_from_host(self->service, buffer, ref, NULL, &future);
    strata_host_buffer_release(take(self, out, sent, &future).buffer);
    strata_host_buffer_release(buffer);
}

static void read_last(tenant *self, strata_ref *ref, size_t floats, float *value, outcome *out)
{
    strata_host_buffer *buffer;
    strata_future *future;
    if (out->status != STRATA_SUCCESS)
        return;
    note(out, strata_host_buffer_create(floats * sizeof *value, &buffer), STRATA_FAILURE_OUT_OF_MEMORY);
    if (out->status != STRATA_SUCCESS)
        return;
    const strata_status sent = strata_service_copy_to_host(self->service, ref, buffer, NULL, &future);
    strata_host_buffer_release(take(self, out, sent, &future).buffer);
    *value = ((const float *)strata_host_buffer_memory(buffer))[floats - 1];
    strata_host_buffer_release(buffer);
}

/* Loaded once for each context: a module ends with its context. */
static uint64_t kernels_of(tenant *self, outcome *out)
{
    strata_future *future;
    pthread_mutex_lock(&self->lock);
    const uint64_t now = strata_device_state_generation(strata_service_device_state(self->service));
    if (!self->module || self->generation != now) {
        const strata_answer answer =
            take(self, out, strata_service_load(self->service, ptx, 0, NULL, &future), &future);
        self->module = answer.module;
        self->generation = answer.generation;
    }
    const uint64_t module = self->module;
    pthread_mutex_unlock(&self->lock);
    return module;
}

static strata_argument reference(strata_ref *ref, strata_argument_kind kind)
{
    return (strata_argument){.kind = kind, .ref = ref};
}

static strata_argument value(const void *bytes, uint32_t count)
{
    strata_argument argument = {.kind = STRATA_ARGUMENT_VALUE, .bytes = count};
    memcpy(argument.value, bytes, count);
    return argument;
}

/* The product of A and B, n by n, goes to `to`. */
static void multiply(tenant *self, uint32_t n, strata_argument to, strata_ref *a, strata_ref *b, outcome *out)
{
    const strata_argument arguments[] = {to, reference(a, STRATA_ARGUMENT_READ), reference(b, STRATA_ARGUMENT_READ),
                                         value(&n, sizeof n)};
    strata_kernel kernel = {.entry = "strata_demo_multiply",
                            .grid = {(unsigned)(((size_t)n * n + THREADS - 1) / THREADS)},
                            .block = {THREADS},
                            .arguments = arguments,
                            .argument_count = 4};
    strata_future *future;
    if (out->status == STRATA_SUCCESS)
        kernel.module = kernels_of(self, out);
    if (out->status == STRATA_SUCCESS)
        take(self, out, strata_service_launch(self->service, &kernel, NULL, &future), &future);
}

outcome tenant_multiply(tenant *self, uint32_t n, float a, float b, float *c)
{
    const size_t floats = (size_t)n * n;
    outcome out = {.status = STRATA_SUCCESS};
    strata_ref *refs[3];
    for (int i = 0; i < 3; i++)
        refs[i] = allocate(self, floats, &out);
    fill(self, refs[0], floats, a, &out);
    fill(self, refs[1], floats, b, &out);
    multiply(self, n, reference(refs[2], STRATA_ARGUMENT_WRITE), refs[0], refs[1], &out);
    read_last(self, refs[2], floats, c, &out);
    for (int i = 0; i < 3; i++)
        strata_ref_release(refs[i]); /* the memory goes back to the tenant's budget */
    return out;
}

/* ---- fault ---- */

/* The product of two numbers, at an address where no memory is. */
outcome tenant_fault(tenant *self)
{
    const uint64_t nowhere = 16;
    outcome out = {.status = STRATA_SUCCESS};
    strata_ref *one = allocate(self, 1, &out);
    multiply(self, 1, value(&nowhere, sizeof nowhere), one, one, &out);
    strata_ref_release(one);
    return out;
}

/* ---- a tenant ---- */

bool tenant_open(tenant *self, strata_service_form form, uint32_t queue, outcome *why)
{
    char stack[160];
    snprintf(stack, sizeof stack, "budget(limit=%zu, name=%s), pool", self->budget, self->name);
    const strata_service_options options = {.form = form, .stack_text = stack, .queue_capacity = queue};
    *why = (outcome){.status = STRATA_SUCCESS};
    pthread_mutex_init(&self->lock, NULL);
    note(why, strata_service_create(&options, &self->service), STRATA_FAILURE_NONE);
    if (why->status == STRATA_SUCCESS)
        note(why, strata_service_wait_ready(self->service, UINT64_C(60) * SECONDS), STRATA_FAILURE_NONE);
    return why->status == STRATA_SUCCESS;
}

void tenant_close(tenant *self)
{
    strata_service_destroy(self->service);
    self->service = NULL; /* of a tenant that was not opened, too */
}
