/* An OrtAllocator: a context by embedding, and the stream of a request. */
#include <stdio.h>

#include "adapters/onnx/onnx.h"
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"

struct strata_onnx_allocator {
    strata_onnx_ort_allocator ort; /* first: ONNX Runtime gives its address */
    strata_runtime *runtime;       /* these are constant */
    strata_onnx_options options;
    onnx_live live;
    _Atomic uint64_t requests;
};

static strata_onnx_allocator *self_of(strata_onnx_ort_allocator *ort)
{
    return (strata_onnx_allocator *)(void *)ort;
}

static void *allocate_on(strata_onnx_allocator *self, size_t bytes, CUstream stream)
{
    atomic_fetch_add_explicit(&self->requests, 1, memory_order_relaxed);
    return onnx_allocate(self->runtime, bytes, stream, &self->live);
}

static void *allocate(strata_onnx_ort_allocator *ort, size_t bytes)
{
    strata_onnx_allocator *self = self_of(ort);
    return allocate_on(self, bytes, self->options.stream);
}

static void *allocate_on_stream(strata_onnx_ort_allocator *ort, size_t bytes, struct OrtSyncStream *stream)
{
    strata_onnx_allocator *self = self_of(ort);
    return allocate_on(self, bytes, stream ? self->options.stream_handle(stream) : self->options.stream);
}

static void deallocate(strata_onnx_ort_allocator *ort, void *address)
{
    strata_onnx_allocator *self = self_of(ort);
    onnx_deallocate(self->runtime, address, &self->live);
}

static const struct OrtMemoryInfo *info(const strata_onnx_ort_allocator *ort)
{
    return ((const strata_onnx_allocator *)(const void *)ort)->options.info;
}

/* NULL is ONNX Runtime's success; a status of another kind cannot be made without OrtApi. */
static struct OrtStatus *shrink(strata_onnx_ort_allocator *ort)
{
    strata_runtime_trim(self_of(ort)->runtime, 0, NULL);
    return NULL;
}

static void add(const strata_onnx_options *to, struct OrtKeyValuePairs *pairs, const char *key, uint64_t value)
{
    char text[24];
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    to->add_pair(pairs, key, text);
}

/* The keys of onnxruntime_c_api.h that have a meaning here. */
static struct OrtStatus *get_stats(const strata_onnx_ort_allocator *ort, struct OrtKeyValuePairs **out)
{
    const strata_onnx_allocator *self = (const strata_onnx_allocator *)(const void *)ort;
    strata_usage usage = {0};
    strata_runtime_budget budget = {0};
    strata_runtime_usage(self->runtime, &usage);
    strata_runtime_budget_snapshot(self->runtime, &budget);
    self->options.create_pairs(out);
    if (budget.limit)
        add(&self->options, *out, "Limit", budget.limit);
    add(&self->options, *out, "InUse", usage.live_bytes);
    add(&self->options, *out, "TotalAllocated", usage.reserved_bytes);
    add(&self->options, *out, "MaxInUse", usage.reserved_peak);
    add(&self->options, *out, "NumAllocs", atomic_load_explicit(&self->requests, memory_order_relaxed));
    return NULL;
}

static strata_status check_options(const strata_onnx_options *options)
{
    if (!options->info || !options->api_version)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_onnx_options: %s; see OrtApi's CreateMemoryInfo and "
                           "ORT_API_VERSION",
                           options->info ? "api_version is 0" : "info is NULL");
    if (!options->create_pairs != !options->add_pair)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_onnx_options: create_pairs and add_pair are needed together; set both, or none");
    return STRATA_SUCCESS;
}

static strata_onnx_ort_allocator functions_for(const strata_onnx_options *options)
{
    const uint32_t version = options->api_version;
    return (strata_onnx_ort_allocator){
        .version = version < STRATA_ONNX_API_VERSION ? version : STRATA_ONNX_API_VERSION,
        .alloc = allocate,
        .free = deallocate,
        .info = info,
        .reserve = allocate,
        .get_stats = options->add_pair ? get_stats : NULL,
        .alloc_on_stream = options->stream_handle ? allocate_on_stream : NULL,
        .shrink = shrink,
    };
}

strata_status strata_onnx_allocator_create(strata_runtime *runtime, const strata_onnx_options *given,
                                           strata_onnx_allocator **out)
{
    strata_onnx_options options;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_onnx_allocator_create: out is NULL");
    *out = NULL;
    strata_status status = strata_options_read(&options, sizeof options, given, "strata_onnx_options");
    if (status == STRATA_SUCCESS)
        status = check_options(&options);
    if (status == STRATA_SUCCESS)
        status = onnx_check(runtime, options.stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_onnx_allocator *made = strata_host_zalloc(sizeof *made);
    if (!made)
        return strata_fail_host_memory("an allocator for ONNX Runtime");
    made->ort = functions_for(&options);
    made->runtime = runtime;
    made->options = options;
    *out = made;
    return STRATA_SUCCESS;
}

strata_onnx_ort_allocator *strata_onnx_allocator_get(strata_onnx_allocator *allocator)
{
    return allocator ? &allocator->ort : NULL;
}

strata_status strata_onnx_allocator_destroy(strata_onnx_allocator *allocator)
{
    const strata_status status = strata_check_not_forked();
    if (!allocator || status != STRATA_SUCCESS)
        return status;
    const int64_t left = atomic_load_explicit(&allocator->live, memory_order_relaxed);
    if (left > 0)
        return strata_fail(STRATA_ERROR_BUSY,
                           "ONNX Runtime has not freed %lld blocks of this allocator; end its sessions first",
                           (long long)left);
    strata_host_free(allocator);
    return STRATA_SUCCESS;
}
