/* prefetch: cuMemPrefetchAsync after each allocation, and on request after each prepare_use.
 *
 * The allocation asks the driver once whether the block is managed; its entry has the answer. A move is recorded as a
 * read: by record_use after an allocation, after a prepare by the matching finish, which records at least a read. */
#include <strata/prefetch.h>

#include "core/base/counters.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/streams/stream_map.h"
#include "resources/builtin.h"

enum { PREFETCHES, FAILED, SKIPPED };                                 /* counters */
enum { VALUE_PREFETCHES, VALUE_FAILED, VALUE_SKIPPED, VALUE_ON_USE }; /* the first three count */

typedef struct prefetch {
    strata_resource resource;
    strata_device *device;
    CUmemLocation to;         /* constant */
    _Atomic bool on_use;      /* any thread; a concurrent prepare uses either value */
    _Atomic bool ever_on_use; /* any thread */
    strata_counters counters;
} prefetch;

/* In a block's entry. Written by the allocating thread before the block is shown to others. Atomic: a call with a stale
 * identity may read it while the entry becomes another block's. */
typedef struct managed_block {
    _Atomic uint64_t generation; /* of the managed block; 0: not managed */
} managed_block;

static bool is_managed(strata_resource *resource, strata_block_id id)
{
    const managed_block *mark = strata_block_layer_bytes(resource, id);
    return mark && id.generation && atomic_load_explicit(&mark->generation, memory_order_relaxed) == id.generation;
}

static void count(prefetch *self, unsigned which)
{
    strata_counters_add(&self->counters, strata_thread_self(), which, 1);
}

/* Whether an address is managed memory. One that is unknown to the driver is not. After a failed query nothing is
 * moved. */
static bool query_managed(prefetch *self, CUdeviceptr address)
{
    strata_call_scope scope;
    unsigned long long managed = 0; /* a boolean, of which the driver may write one byte or four */
    CUresult result = CUDA_ERROR_UNKNOWN;
    strata_error_suppress_begin();
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS) {
        result = strata_cu.PointerGetAttribute(&managed, CU_POINTER_ATTRIBUTE_IS_MANAGED, address);
        strata_call_scope_leave(&scope);
    }
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_INVALID_VALUE)
        count(self, FAILED);
    return result == CUDA_SUCCESS && managed;
}

/* Moves a block. Returns whether the move was submitted. */
static bool move(prefetch *self, const strata_block *block, CUstream stream)
{
    strata_call_scope scope;
    if (strata_stream_is_capturing(self->device, stream, true)) {
        count(self, SKIPPED);
        return false;
    }
    strata_error_suppress_begin();
    strata_status status = strata_call_scope_enter(
        &scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED | strata_call_scope_for(stream));
    strata_error_suppress_end(false);
    if (status != STRATA_SUCCESS) {
        count(self, status == STRATA_ERROR_STREAM_CAPTURE ? SKIPPED : FAILED);
        return false;
    }
    CUresult result = strata_cu.MemPrefetchAsync(block->address, block->bytes, self->to, 0, stream);
    strata_call_scope_leave(&scope);
    count(self, result == CUDA_SUCCESS ? PREFETCHES : FAILED);
    return result == CUDA_SUCCESS;
}

/* Frees a block that was not handed out. False: the layers below refuse it. */
static bool give_back(strata_resource *up, const strata_block *block, CUstream stream)
{
    strata_error_suppress_begin();
    strata_status status = up->ops->deallocate(up, block, stream);
    strata_error_suppress_end(false);
    return status == STRATA_SUCCESS;
}

/* Records a move as a use. If that fails, the block is given back: a free could precede the move. If that fails too,
 * the block stays live and counted below; the move is waited for as far as possible. */
static strata_status record_move(const prefetch *self, strata_block *block, CUstream stream)
{
    strata_resource *up = self->resource.upstream;
    if (!(up->ops->capabilities(up) & STRATA_CAPABILITY_USE_TRACKING))
        return STRATA_SUCCESS;
    strata_status status = up->ops->record_use(up, block, stream, STRATA_ACCESS_READ);
    if (status == STRATA_SUCCESS)
        return status;
    if (give_back(up, block, stream)) {
        *block = (strata_block){0};
        return status;
    }
    strata_error_suppress_begin();
    strata_stream_synchronize(self->device, stream);
    strata_error_suppress_end(false);
    return STRATA_SUCCESS;
}

static strata_status prefetch_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    prefetch *self = (prefetch *)resource;
    strata_status status = resource->upstream->ops->allocate(resource->upstream, request, out);
    if (status != STRATA_SUCCESS || !out->id.generation || !query_managed(self, out->address))
        return status;
    managed_block *mark = strata_block_layer_bytes(resource, out->id);
    atomic_store_explicit(&mark->generation, out->id.generation, memory_order_relaxed);
    return move(self, out, request->stream) ? record_move(self, out, request->stream) : STRATA_SUCCESS;
}

static strata_status prefetch_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                      strata_access access)
{
    prefetch *self = (prefetch *)resource;
    strata_status status = resource->upstream->ops->prepare_use(resource->upstream, block, stream, access);
    bool asked = atomic_load_explicit(&self->on_use, memory_order_acquire); /* finish then sees ever_on_use */
    if (status == STRATA_SUCCESS && asked && is_managed(resource, block->id))
        move(self, block, stream);
    return status;
}

/* Records at least a read: the work may not have been submitted, the move was. */
static strata_status prefetch_finish(strata_resource *resource, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    bool moved = atomic_load_explicit(&((prefetch *)resource)->ever_on_use, memory_order_relaxed);
    if (access == STRATA_ACCESS_NONE && moved && is_managed(resource, block->id))
        access = STRATA_ACCESS_READ;
    return resource->upstream->ops->finish_use(resource->upstream, block, stream, access);
}

static strata_status prefetch_get(strata_resource *resource, size_t which, uint64_t *value)
{
    const prefetch *self = (const prefetch *)resource;
    *value = which == VALUE_ON_USE ? atomic_load_explicit(&self->on_use, memory_order_relaxed)
                                   : (uint64_t)strata_counters_sum(&self->counters, (unsigned)which);
    return STRATA_SUCCESS;
}

static strata_status prefetch_set(strata_resource *resource, size_t which, uint64_t value)
{
    (void)which; /* only one value is writable */
    prefetch *self = (prefetch *)resource;
    if (value)
        atomic_store_explicit(&self->ever_on_use, true, memory_order_relaxed);
    atomic_store_explicit(&self->on_use, value != 0, memory_order_release);
    return STRATA_SUCCESS;
}

static void prefetch_destroy(strata_resource *resource)
{
    prefetch *self = (prefetch *)resource;
    strata_counters_destroy(&self->counters);
    strata_host_free(self);
}

static const strata_value prefetch_values[] = {
    [VALUE_PREFETCHES] = {"prefetches", STRATA_VALUE_COUNT, false, "prefetches submitted"},
    [VALUE_FAILED] = {"failed_prefetches", STRATA_VALUE_COUNT, false, "prefetches that the driver refused"},
    [VALUE_SKIPPED] = {"skipped_prefetches", STRATA_VALUE_COUNT, false, "prefetches left out because of a capture"},
    [VALUE_ON_USE] = {"on_use", STRATA_VALUE_SWITCH, true, "whether each prepared use prefetches its block"},
};

static const strata_resource_ops prefetch_ops = {
    .size = sizeof(strata_resource_ops),
    .transparent = true,
    .block_bytes = sizeof(managed_block),
    .name = "prefetch",
    .allocate = prefetch_allocate,
    .prepare_use = prefetch_prepare,
    .finish_use = prefetch_finish,
    .destroy = prefetch_destroy,
    .values = prefetch_values,
    .value_count = sizeof prefetch_values / sizeof prefetch_values[0],
    .get_value = prefetch_get,
    .set_value = prefetch_set,
};

static strata_status check_options(const strata_prefetch_options *options)
{
    if ((unsigned)options->to <= STRATA_PREFETCH_TO_HOST)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "prefetch: invalid to: expected device or host");
}

static strata_status check_driver(void)
{
    if (strata_cu.MemPrefetchAsync)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "prefetch: the driver lacks cuMemPrefetchAsync of CUDA 12.2");
}

strata_status strata_prefetch_create(int ordinal, const strata_prefetch_options *options, strata_resource **out)
{
    strata_prefetch_options read;
    strata_device *device;
    strata_status status = strata_options_begin("prefetch", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = check_options(&read);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status == STRATA_SUCCESS)
        status = check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    prefetch *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a prefetch layer");
    self->resource.ops = &prefetch_ops;
    self->device = device;
    self->to = read.to == STRATA_PREFETCH_TO_HOST
                   ? (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_HOST}
                   : (CUmemLocation){.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->handle};
    self->on_use = self->ever_on_use = read.on_use;
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static const strata_option prefetch_texts[] = {
    {"to", STRATA_OPTION_CHOICE, offsetof(strata_prefetch_options, to), "device|host", "destination of blocks"},
    {"on_use", STRATA_OPTION_BOOL, offsetof(strata_prefetch_options, on_use), NULL, "also at each prepared use"},
};

static strata_status make_prefetch(int device, const void *options, strata_resource **out)
{
    return strata_prefetch_create(device, options, out);
}

const strata_layer strata_prefetch_layer = {
    .size = sizeof(strata_layer),
    .name = "prefetch",
    .help = "moves managed memory ahead of its use",
    .options = prefetch_texts,
    .option_count = sizeof prefetch_texts / sizeof prefetch_texts[0],
    .options_size = sizeof(strata_prefetch_options),
    .create = make_prefetch,
};
