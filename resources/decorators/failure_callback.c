/* failure_callback: retries after the program, or the layer itself, has made room.
 *
 * Errors of a try are suppressed until the outcome is known. A layer does not catch failures inside its own callback:
 * its own failure cannot call it. Other layers, of this stack and of others, do. */
#include <strata/failure_callback.h>

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/stack/calls.h"
#include "resources/builtin.h"

#include <stdatomic.h>

enum { VALUE_RETRIES, VALUE_CAUGHT, VALUE_RETRIED, VALUE_RECOVERED };

typedef struct failure_callback {
    strata_resource resource;
    strata_failure_callback callback; /* callback, data, statuses: constant */
    void *data;
    uint64_t statuses;
    _Atomic uint64_t retries; /* any thread; an allocation reads it once */
    /* Any thread, relaxed. */
    _Atomic uint64_t caught, retried, recovered;
} failure_callback;

/* A call of the program's callback, on its thread's stack. */
typedef struct callback_call {
    const failure_callback *of;
    const struct callback_call *around;
} callback_call;

static _Thread_local const callback_call *innermost_call; /* NULL: the thread is in no callback */

/* Whether the thread is in this layer's callback. Other layers' count apart: they may have room to make where this one
 * has none. */
static bool in_callback_of(const failure_callback *self)
{
    const callback_call *call = innermost_call;
    while (call && call->of != self)
        call = call->around;
    return call != NULL;
}

static void count(_Atomic uint64_t *counter)
{
    atomic_fetch_add_explicit(counter, 1, memory_order_relaxed);
}

/* Tries a request below. *why: the failure, which is not reported. */
static strata_status try_once(strata_resource *resource, const strata_request *request, strata_block *out,
                              strata_error *why)
{
    strata_error_suppress_begin();
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (status != STRATA_SUCCESS)
        *why = *strata_error_suppressed();
    strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS && why->status != status)
        *why = (strata_error){.status = status, .requested = request->bytes, .tag = request->tag};
    return status;
}

/* Makes room without the program. Errors are ignored: the next try shows them. */
static bool make_room(strata_resource *resource)
{
    size_t bytes;
    strata_resource *up = resource->upstream;
    strata_error_suppress_begin();
    strata_reap_internally(up, STRATA_REAP_WAIT, &bytes);
    strata_trim_internally(up, 0, &bytes);
    strata_error_suppress_end(false);
    return true;
}

static bool ask(failure_callback *self, const strata_request *request, const strata_error *why)
{
    if (!self->callback)
        return make_room(&self->resource);
    strata_error_aside aside;
    const int cancel = strata_cancel_forbid(); /* layers above have begun the request */
    strata_error_set_aside(&aside);            /* may be a suppressed try of a layer above */
    const callback_call call = {self, innermost_call};
    innermost_call = &call;
    bool again = self->callback(request, why, self->data);
    innermost_call = call.around;
    strata_error_take_back(&aside);
    strata_cancel_restore(cancel);
    return again;
}

static bool is_caught(const failure_callback *self, strata_status status)
{
    return (unsigned)status < 64 && (self->statuses & STRATA_FAILURE_BIT(status));
}

static strata_status failure_callback_allocate(strata_resource *resource, const strata_request *request,
                                               strata_block *out)
{
    failure_callback *self = (failure_callback *)resource;
    if (__builtin_expect(innermost_call != NULL, 0) && in_callback_of(self))
        return resource->upstream->ops->allocate(resource->upstream, request, out);
    strata_error why;
    uint64_t left = atomic_load_explicit(&self->retries, memory_order_relaxed);
    strata_status status = try_once(resource, request, out, &why);
    if (__builtin_expect(status == STRATA_SUCCESS, 1))
        return status;
    for (; status != STRATA_SUCCESS && left > 0 && is_caught(self, status); left--) {
        count(&self->caught);
        if (!ask(self, request, &why))
            break;
        count(&self->retried);
        status = try_once(resource, request, out, &why);
    }
    if (status == STRATA_SUCCESS) {
        count(&self->recovered);
        return status;
    }
    *out = (strata_block){0};
    return strata_error_raise_again(&why);
}

static strata_status failure_callback_get(strata_resource *resource, size_t which, uint64_t *value)
{
    failure_callback *self = (failure_callback *)resource;
    const _Atomic uint64_t *const values[] = {
        [VALUE_RETRIES] = &self->retries,
        [VALUE_CAUGHT] = &self->caught,
        [VALUE_RETRIED] = &self->retried,
        [VALUE_RECOVERED] = &self->recovered,
    };
    *value = atomic_load_explicit(values[which], memory_order_relaxed);
    return STRATA_SUCCESS;
}

static strata_status failure_callback_set(strata_resource *resource, size_t which, uint64_t value)
{
    (void)which; /* only one value is writable */
    if (value > UINT32_MAX)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "failure_callback.retries: at most %u", UINT32_MAX);
    atomic_store_explicit(&((failure_callback *)resource)->retries, value, memory_order_relaxed);
    return STRATA_SUCCESS;
}

static void failure_callback_destroy(strata_resource *resource)
{
    strata_host_free(resource);
}

static const strata_value failure_callback_values[] = {
    [VALUE_RETRIES] = {"retries", STRATA_VALUE_COUNT, true, "most retries of one request; 0: none"},
    [VALUE_CAUGHT] = {"caught", STRATA_VALUE_COUNT, false, "failures caught"},
    [VALUE_RETRIED] = {"retried", STRATA_VALUE_COUNT, false, "retries made"},
    [VALUE_RECOVERED] = {"recovered", STRATA_VALUE_COUNT, false, "requests served by a retry"},
};

static const strata_resource_ops failure_callback_ops = {
    .size = sizeof(strata_resource_ops),
    .transparent = true,
    .name = "failure_callback",
    .allocate = failure_callback_allocate,
    .destroy = failure_callback_destroy,
    .values = failure_callback_values,
    .value_count = sizeof failure_callback_values / sizeof failure_callback_values[0],
    .get_value = failure_callback_get,
    .set_value = failure_callback_set,
};

static strata_status check_statuses(uint64_t statuses)
{
    uint64_t known = 0;
#define ADD_BIT(name, code, text) known |= UINT64_C(1) << (code);
    STRATA_STATUS_MAP(ADD_BIT)
#undef ADD_BIT
    if ((statuses & ~known) || (statuses & STRATA_FAILURE_BIT(STRATA_SUCCESS)))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "failure_callback: invalid bits in statuses: 0x%llx",
                           (unsigned long long)statuses);
    return STRATA_SUCCESS;
}

strata_status strata_failure_callback_create(const strata_failure_callback_options *options, strata_resource **out)
{
    strata_failure_callback_options read;
    strata_status status = strata_options_begin("failure_callback", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = check_statuses(read.statuses);
    if (status != STRATA_SUCCESS)
        return status;
    failure_callback *self = strata_host_zalloc(sizeof *self);
    if (!self)
        return strata_fail_host_memory("a failure_callback layer");
    self->resource.ops = &failure_callback_ops;
    self->callback = read.callback;
    self->data = read.data;
    self->statuses =
        read.statuses ? read.statuses
                      : STRATA_FAILURE_BIT(STRATA_ERROR_OUT_OF_MEMORY) | STRATA_FAILURE_BIT(STRATA_ERROR_OUT_OF_BUDGET);
    self->retries = read.retries ? read.retries : 1;
    *out = &self->resource;
    return STRATA_SUCCESS;
}

typedef struct failure_callback_text {
    uint64_t retries;
    int caught;
} failure_callback_text;

static const strata_option failure_callback_texts[] = {
    {"retries", STRATA_OPTION_UINT, offsetof(failure_callback_text, retries), NULL,
     "most retries of one request; default: 1"},
    {"catch", STRATA_OPTION_CHOICE, offsetof(failure_callback_text, caught), "both|out_of_memory|out_of_budget",
     "failures that are retried"},
};

static strata_status make_failure_callback(int device, const void *given, strata_resource **out)
{
    (void)device;
    static const uint64_t caught[] = {0, STRATA_FAILURE_BIT(STRATA_ERROR_OUT_OF_MEMORY),
                                      STRATA_FAILURE_BIT(STRATA_ERROR_OUT_OF_BUDGET)};
    const failure_callback_text *text = given;
    if (text->retries > UINT32_MAX)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "failure_callback: retries: at most %u", UINT32_MAX);
    const strata_failure_callback_options options = {
        .retries = (uint32_t)text->retries,
        .statuses = caught[text->caught],
    };
    return strata_failure_callback_create(&options, out);
}

const strata_layer strata_failure_callback_layer = {
    .size = sizeof(strata_layer),
    .name = "failure_callback",
    .help = "calls back when a request fails, and retries",
    .options = failure_callback_texts,
    .option_count = sizeof failure_callback_texts / sizeof failure_callback_texts[0],
    .options_size = sizeof(failure_callback_text),
    .create = make_failure_callback,
};
