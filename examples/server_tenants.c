#include "server_tenants.h"

#include <stdio.h>
#include <string.h>

#include <strata/service_blas.h>

enum { SECONDS = 1000000000 };

/* A kernel that stores 8 bytes at its first argument. On the simulated driver the name stands for a kernel that is
 * built in: strata/sim/kernel.h. */
static const char store_ptx[] =
    ".version 6.0\n.target sm_52\n.address_size 64\n"
    ".visible .entry strata_pattern_fill(.param .u64 at, .param .u64 bytes, .param .u64 seed)\n"
    "{\n"
    "    .reg .b64 %rd<3>;\n"
    "    ld.param.u64 %rd1, [at];\n"
    "    ld.param.u64 %rd2, [seed];\n"
    "    st.u64 [%rd1], %rd2;\n"
    "    ret;\n"
    "}\n";

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

static void multiply(tenant *self, size_t n, strata_ref *a, strata_ref *b, strata_ref *c, outcome *out)
{
    const strata_blas_gemm_call call = {.order = STRATA_BLAS_ROWS,
                                        .m = n,
                                        .n = n,
                                        .k = n,
                                        .alpha = 1,
                                        .a = strata_blas_of_ref(a),
                                        .b = strata_blas_of_ref(b),
                                        .c = strata_blas_of_ref(c)};
    strata_future *future;
    if (out->status == STRATA_SUCCESS)
        take(self, out, strata_service_sgemm(self->service, &call, NULL, &future), &future);
}

outcome tenant_multiply(tenant *self, size_t n, float a, float b, float *c)
{
    outcome out = {.status = STRATA_SUCCESS};
    strata_ref *refs[3];
    for (int i = 0; i < 3; i++)
        refs[i] = allocate(self, n * n, &out);
    fill(self, refs[0], n * n, a, &out);
    fill(self, refs[1], n * n, b, &out);
    multiply(self, n, refs[0], refs[1], refs[2], &out);
    read_last(self, refs[2], n * n, c, &out);
    for (int i = 0; i < 3; i++)
        strata_ref_release(refs[i]); /* the memory goes back to the tenant's budget */
    return out;
}

/* ---- fault ---- */

static strata_argument number(uint64_t value)
{
    strata_argument argument = {.kind = STRATA_ARGUMENT_VALUE, .bytes = sizeof value};
    memcpy(argument.value, &value, sizeof value);
    return argument;
}

outcome tenant_fault(tenant *self)
{
    outcome out = {.status = STRATA_SUCCESS};
    strata_future *future;
    const strata_argument arguments[] = {number(16), number(8), number(1)};
    strata_kernel kernel = {.entry = "strata_pattern_fill", .arguments = arguments, .argument_count = 3};
    kernel.module = take(self, &out, strata_service_load(self->service, store_ptx, 0, NULL, &future), &future).module;
    if (out.status == STRATA_SUCCESS)
        take(self, &out, strata_service_launch(self->service, &kernel, NULL, &future), &future);
    return out;
}

/* ---- a tenant ---- */

bool tenant_open(tenant *self, strata_service_form form, uint32_t queue, outcome *why)
{
    char stack[160];
    snprintf(stack, sizeof stack, "budget(limit=%zu, name=%s), pool", self->budget, self->name);
    const strata_service_options options = {.form = form, .stack_text = stack, .queue_capacity = queue};
    *why = (outcome){.status = STRATA_SUCCESS};
    note(why, strata_service_create(&options, &self->service), STRATA_FAILURE_NONE);
    if (why->status == STRATA_SUCCESS)
        note(why, strata_service_wait_ready(self->service, UINT64_C(60) * SECONDS), STRATA_FAILURE_NONE);
    return why->status == STRATA_SUCCESS;
}

void tenant_close(tenant *self)
{
    strata_service_destroy(self->service);
    self->service = NULL;
}
