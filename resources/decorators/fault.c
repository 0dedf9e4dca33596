/* fault: numbers calls and fails those with chosen numbers. */
#include <strata/fault.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "resources/builtin.h"

#include <stdatomic.h>
#include <string.h>

enum { MILLION = 1000000 };
enum { VALUE_NTH, VALUE_EVERY, VALUE_PER_MILLION, VALUE_LARGER_THAN, VALUE_CALLS, VALUE_FAILED, VALUES };

typedef struct fault {
    strata_resource resource;
    strata_fault_operation operation; /* operation, status, seed: constant */
    strata_status status;
    uint64_t seed;
    /* Any thread; a call in flight while a rule is set follows the old or the new one. */
    _Atomic uint64_t values[VALUES];
    _Atomic uint64_t start; /* calls before the current numbering; any thread */
} fault;

static uint64_t value_of(const fault *self, size_t which)
{
    return atomic_load_explicit(&self->values[which], memory_order_relaxed);
}

/* splitmix64 (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators, 2014): a seed's n-th number. */
static uint64_t dice(uint64_t seed, uint64_t number)
{
    uint64_t z = seed + number * UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

static bool is_chosen(const fault *self, uint64_t number)
{
    const uint64_t nth = value_of(self, VALUE_NTH), every = value_of(self, VALUE_EVERY);
    const uint64_t per_million = value_of(self, VALUE_PER_MILLION);
    if (!nth && !every && !per_million)
        return value_of(self, VALUE_LARGER_THAN) != 0;
    return (nth && number == nth) || (every && number % every == 0) ||
           (per_million && dice(self->seed, number) % MILLION < per_million);
}

/* The requested bytes, in a block's entry: a user's copy may be wrong. Written by the allocating thread, generation
 * last. Atomic: a call with a stale identity may read it while the entry becomes another block's. */
typedef struct requested_bytes {
    _Atomic uint64_t generation, bytes;
    _Atomic strata_tag tag;
} requested_bytes;

static void remember(strata_resource *resource, const strata_request *request, strata_block_id id)
{
    requested_bytes *kept = strata_block_layer_bytes(resource, id);
    atomic_store_explicit(&kept->bytes, request->bytes, memory_order_relaxed);
    atomic_store_explicit(&kept->tag, request->tag, memory_order_relaxed);
    atomic_store_explicit(&kept->generation, id.generation, memory_order_release);
}

typedef struct subject {
    strata_fault_operation operation;
    const char *name;
    size_t bytes;
    strata_tag tag;
    uint64_t generation;
} subject;

static subject about_block(strata_resource *resource, const strata_block *block, strata_fault_operation operation,
                           const char *name)
{
    const requested_bytes *kept = strata_block_layer_bytes(resource, block->id);
    subject call = {operation, name, block->requested, block->tag, block->id.generation};
    if (kept && atomic_load_explicit(&kept->generation, memory_order_acquire) == block->id.generation) {
        call.bytes = (size_t)atomic_load_explicit(&kept->bytes, memory_order_relaxed);
        call.tag = atomic_load_explicit(&kept->tag, memory_order_relaxed);
    }
    return call;
}

static strata_status fail_call(fault *self, const subject *call, uint64_t number)
{
    atomic_fetch_add_explicit(&self->values[VALUE_FAILED], 1, memory_order_relaxed);
    strata_error *error = strata_error_begin(self->status);
    error->requested = call->bytes;
    error->tag = call->tag;
    error->generation = call->generation;
    return strata_error_raise(error, "fault: call %llu of %s fails on purpose: %s, tag \"%.100s\"",
                              (unsigned long long)number, call->name, strata_size_text(call->bytes).text,
                              strata_tag_name(call->tag));
}

/* Numbers a call, and fails it if its number is chosen; SUCCESS: it goes on. */
static strata_status check_call(fault *self, const subject *call)
{
    if (self->operation != STRATA_FAULT_ALL && self->operation != call->operation)
        return STRATA_SUCCESS;
    const uint64_t larger_than = value_of(self, VALUE_LARGER_THAN);
    if (larger_than && call->bytes <= larger_than)
        return STRATA_SUCCESS;
    uint64_t number = atomic_fetch_add_explicit(&self->values[VALUE_CALLS], 1, memory_order_relaxed) + 1 -
                      atomic_load_explicit(&self->start, memory_order_relaxed);
    return is_chosen(self, number) ? fail_call(self, call, number) : STRATA_SUCCESS;
}

static strata_status fault_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    const subject call = {STRATA_FAULT_ALLOCATE, "allocate", request->bytes, request->tag, 0};
    *out = (strata_block){0};
    strata_status status = check_call((fault *)resource, &call);
    if (status == STRATA_SUCCESS)
        status = resource->upstream->ops->allocate(resource->upstream, request, out);
    else
        strata_request_refused(resource, request, status);
    if (status == STRATA_SUCCESS && out->id.generation)
        remember(resource, request, out->id);
    return status;
}

static strata_status fault_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    const subject call = about_block(resource, block, STRATA_FAULT_DEALLOCATE, "deallocate");
    strata_status status = check_call((fault *)resource, &call);
    return status == STRATA_SUCCESS ? resource->upstream->ops->deallocate(resource->upstream, block, stream) : status;
}

static strata_status fault_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                   strata_access access)
{
    const subject call = about_block(resource, block, STRATA_FAULT_PREPARE, "prepare");
    strata_status status = check_call((fault *)resource, &call);
    return status == STRATA_SUCCESS ? resource->upstream->ops->prepare_use(resource->upstream, block, stream, access)
                                    : status;
}

static strata_status fault_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    const subject call = {.operation = STRATA_FAULT_REAP, .name = "reap"};
    *bytes = 0;
    strata_status status = check_call((fault *)resource, &call);
    return status == STRATA_SUCCESS ? resource->upstream->ops->reap(resource->upstream, mode, bytes) : status;
}

static strata_status fault_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    const subject call = {.operation = STRATA_FAULT_TRIM, .name = "trim"};
    *bytes = 0;
    strata_status status = check_call((fault *)resource, &call);
    return status == STRATA_SUCCESS ? resource->upstream->ops->trim(resource->upstream, keep_bytes, bytes) : status;
}

static strata_status fault_get(strata_resource *resource, size_t which, uint64_t *value)
{
    *value = value_of((const fault *)resource, which);
    return STRATA_SUCCESS;
}

static strata_status check_per_million(uint64_t per_million)
{
    if (per_million <= MILLION)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "fault: per_million is %llu; expected at most 1000000",
                       (unsigned long long)per_million);
}

static strata_status fault_set(strata_resource *resource, size_t which, uint64_t value)
{
    fault *self = (fault *)resource;
    strata_status status = which == VALUE_PER_MILLION ? check_per_million(value) : STRATA_SUCCESS;
    if (status != STRATA_SUCCESS)
        return status;
    atomic_store_explicit(&self->start, value_of(self, VALUE_CALLS), memory_order_relaxed);
    atomic_store_explicit(&self->values[which], value, memory_order_relaxed);
    return STRATA_SUCCESS;
}

static void fault_destroy(strata_resource *resource)
{
    strata_host_free(resource);
}

static const strata_value fault_values[VALUES] = {
    [VALUE_NTH] = {"nth", STRATA_VALUE_COUNT, true, "number of the call that fails; 0: none"},
    [VALUE_EVERY] = {"every", STRATA_VALUE_COUNT, true, "every call with a multiple of this number fails; 0: none"},
    [VALUE_PER_MILLION] = {"per_million", STRATA_VALUE_COUNT, true, "failures in a million calls"},
    [VALUE_LARGER_THAN] = {"larger_than", STRATA_VALUE_BYTES, true, "only calls for more bytes than this are counted"},
    [VALUE_CALLS] = {"calls", STRATA_VALUE_COUNT, false, "calls counted"},
    [VALUE_FAILED] = {"failed", STRATA_VALUE_COUNT, false, "failures injected"},
};

static const strata_resource_ops fault_ops = {
    .size = sizeof(strata_resource_ops),
    .transparent = true,
    .block_bytes = sizeof(requested_bytes),
    .name = "fault",
    .allocate = fault_allocate,
    .deallocate = fault_deallocate,
    .prepare_use = fault_prepare,
    .reap = fault_reap,
    .trim = fault_trim,
    .destroy = fault_destroy,
    .values = fault_values,
    .value_count = VALUES,
    .get_value = fault_get,
    .set_value = fault_set,
};

static strata_status check_options(const strata_fault_options *options)
{
    if ((unsigned)options->operation > STRATA_FAULT_ALL)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "fault: invalid operation %d", (int)options->operation);
    if (strcmp(strata_status_name(options->status), "STRATA_ERROR_UNKNOWN") == 0)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "fault: invalid status %d", (int)options->status);
    return check_per_million(options->per_million);
}

strata_status strata_fault_create(const strata_fault_options *options, strata_resource **out)
{
    strata_fault_options read;
    strata_status status = strata_options_begin("fault", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = check_options(&read);
    if (status != STRATA_SUCCESS)
        return status;
    fault *self = strata_host_zalloc(sizeof *self);
    if (!self)
        return strata_fail_host_memory("a fault layer");
    self->resource.ops = &fault_ops;
    self->operation = read.operation;
    self->status = read.status == STRATA_SUCCESS ? STRATA_ERROR_OUT_OF_MEMORY : read.status;
    self->seed = read.seed;
    self->values[VALUE_NTH] = read.nth;
    self->values[VALUE_EVERY] = read.every;
    self->values[VALUE_PER_MILLION] = read.per_million;
    self->values[VALUE_LARGER_THAN] = read.larger_than;
    *out = &self->resource;
    return STRATA_SUCCESS;
}

typedef struct fault_text {
    strata_fault_options options;
    int status; /* among those that a text can name */
} fault_text;

static const strata_option fault_texts[] = {
    {"operation", STRATA_OPTION_CHOICE, offsetof(fault_text, options.operation),
     "allocate|deallocate|prepare|reap|trim|all", "calls that may fail"},
    {"nth", STRATA_OPTION_UINT, offsetof(fault_text, options.nth), NULL, "number of the call that fails"},
    {"every", STRATA_OPTION_UINT, offsetof(fault_text, options.every), NULL,
     "every call with a multiple of this number fails"},
    {"per_million", STRATA_OPTION_UINT, offsetof(fault_text, options.per_million), NULL, "failures in a million calls"},
    {"seed", STRATA_OPTION_UINT, offsetof(fault_text, options.seed), NULL, "seed for per_million"},
    {"larger_than", STRATA_OPTION_SIZE, offsetof(fault_text, options.larger_than), NULL,
     "only calls for more bytes than this are counted"},
    {"status", STRATA_OPTION_CHOICE, offsetof(fault_text, status), "out_of_memory|out_of_budget|driver",
     "status of a failure"},
};

static strata_status make_fault(int device, const void *given, strata_resource **out)
{
    (void)device;
    static const strata_status statuses[] = {STRATA_ERROR_OUT_OF_MEMORY, STRATA_ERROR_OUT_OF_BUDGET,
                                             STRATA_ERROR_DRIVER};
    const fault_text *text = given;
    strata_fault_options options = text->options;
    options.status = statuses[text->status];
    return strata_fault_create(&options, out);
}

const strata_layer strata_fault_layer = {
    .size = sizeof(strata_layer),
    .name = "fault",
    .help = "makes chosen calls fail, for tests",
    .options = fault_texts,
    .option_count = sizeof fault_texts / sizeof fault_texts[0],
    .options_size = sizeof(fault_text),
    .create = make_fault,
};
