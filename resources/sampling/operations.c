/* guard(sample=N): one allocation in N, chosen at random, gets a mapping of its own; the others go below.
 *
 * Samples are the layer's own: calls about addresses in its range end here. */
#include "resources/sampling/internal.h"

#include "core/base/call_stack.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/timestamp.h"
#include "core/blocks/blocks.h"
#include "core/blocks/uses.h"
#include "core/streams/stream_map.h"
#include "core/streams/stream_wait.h"
#include "core/streams/use_records.h"

enum { POLL_EACH = 16 }; /* allocations between polls while freed blocks wait */

/* What the owner must have: without DEVICE_MEMORY the host accesses the memory. */
static const uint32_t NEEDED = STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_DEVICE_MEMORY;

/* ---- choosing allocations ---- */

/* SplitMix64's finalizer (Steele, Lea, Flood: Fast Splittable Pseudorandom Number Generators). */
static uint64_t scramble(uint64_t value)
{
    value += UINT64_C(0x9e3779b97f4a7c15);
    value = (value ^ value >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
    value = (value ^ value >> 27) * UINT64_C(0x94d049bb133111eb);
    return value ^ value >> 31;
}

/* Allocations to the next sample: 1 ... 2N - 1, N on average. */
static uint64_t draw_gap(sampling *self, sampling_thread *thread_state)
{
    uint64_t every = atomic_load_explicit(&self->every, memory_order_relaxed);
    return 1 + scramble(thread_state->random++) % (2 * every - 1);
}

static void begin_thread(sampling *self, sampling_thread *thread_state, const strata_thread *thread)
{
    uint64_t seed = self->options.sample_seed;
    thread_state->random =
        scramble((seed ? seed : strata_timestamp_clock() ^ (uintptr_t)thread_state) + thread->index) | 1;
    thread_state->gap = draw_gap(self, thread_state);
}

static bool is_sampled(sampling *self, sampling_thread *thread_state, const strata_thread *thread)
{
    if (!thread_state->random)
        begin_thread(self, thread_state, thread);
    if (--thread_state->gap)
        return false;
    thread_state->gap = draw_gap(self, thread_state);
    return true;
}

/* ---- allocating ---- */

static strata_block facts_of(const sampling *self, const sample *one, const strata_request *request)
{
    uint64_t alignment = request->alignment > self->alignment ? request->alignment : self->alignment;
    return (strata_block){
        .address = sample_address(one, request->bytes, alignment),
        .bytes = request->bytes,
        .requested = request->bytes,
        .alignment = (size_t)alignment,
        .device = self->device->ordinal,
        .tag = request->tag,
        .stream = request->stream,
    };
}

/* Makes a block of a taken sample. *filling: work was submitted to the stream. */
static strata_status make_block(sampling *self, sample *one, const strata_request *request, bool *filling)
{
    *filling = false;
    strata_status status = sample_map(self, one);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_block facts = facts_of(self, one, request);
    one->block = facts;
    status = sample_fill_zones(self, one, request->stream, filling);
    return status == STRATA_SUCCESS ? strata_block_create(&self->resource, &facts, &one->block) : status;
}

/* Gives up a sample after its zones' fill, which no point covers, is waited for. If the wait fails, the sample stays
 * taken. */
static void give_up(sampling *self, sample *one, const strata_request *request, strata_status why, bool filling)
{
    if (!filling || strata_stream_wait_instead(self->device, request->stream, why) == STRATA_SUCCESS)
        sample_abandon(self, one);
}

static sample *take_sample(sampling *self, size_t bytes)
{
    size_t freed;
    sample *one = sample_take(self, bytes);
    if (one || !atomic_load_explicit(&self->leaving, memory_order_relaxed))
        return one;
    samples_poll(self, &freed);
    return sample_take(self, bytes);
}

/* Whether a sampled block equals one from below. Layers that change requests implement `charge`. */
static bool can_stand_in(const sampling *self)
{
    strata_resource *below = self->resource.upstream;
    return self->device == self->resource.stack->device && strata_resource_charging(below)->upstream == NULL &&
           (below->ops->capabilities(below) & NEEDED) == NEEDED;
}

/* Serves a request with a sample. False: it cannot be sampled; errors are suppressed. */
static bool sample_request(sampling *self, const strata_request *request, strata_block *out)
{
    bool fit = self->device->info.virtual_memory && can_stand_in(self) && request->alignment <= SAMPLE_ZONE &&
               strata_device_is_usable_now(self->device) &&
               !strata_stream_is_capturing(self->device, request->stream, true) && samples_open(self) == STRATA_SUCCESS;
    sample *one = fit ? take_sample(self, request->bytes) : NULL;
    if (!one)
        return false;
    bool filling;
    strata_status status = make_block(self, one, request, &filling);
    if (status != STRATA_SUCCESS) {
        give_up(self, one, request, status, filling);
        return false;
    }
    one->allocated_at = self->options.no_stacks ? 0 : strata_call_stack_capture(0);
    *out = one->block;
    sample_set(self, one, SAMPLE_LIVE);
    return true;
}

static bool sample_if_possible(sampling *self, const strata_request *request, strata_block *out)
{
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, request->stream);
    strata_error_suppress_begin();
    bool done = sample_request(self, request, out);
    strata_error_suppress_end(false);
    atomic_fetch_add_explicit(done ? &self->sampled : &self->missed, 1, memory_order_relaxed);
    return done;
}

static bool is_short_of_memory(strata_status status)
{
    return status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET;
}

/* Allocates below; if memory is short, waits for freed samples and tries again. */
static strata_status allocate_below(sampling *self, const strata_request *request, strata_block *out)
{
    strata_resource *below = self->resource.upstream;
    size_t bytes;
    if (!atomic_load_explicit(&self->leaving, memory_order_relaxed))
        return below->ops->allocate(below, request, out);
    strata_error_suppress_begin();
    strata_status status = below->ops->allocate(below, request, out);
    strata_error_suppress_end(status != STRATA_SUCCESS && !is_short_of_memory(status));
    if (!is_short_of_memory(status))
        return status;
    strata_error_suppress_begin();
    samples_wait(self, &bytes);
    strata_error_suppress_end(false);
    return below->ops->allocate(below, request, out);
}

static __attribute__((noinline)) strata_status allocate_slow(sampling *self, const strata_request *request,
                                                             strata_block *out)
{
    strata_thread *thread = strata_thread_self();
    sampling_thread *thread_state = strata_per_thread_self(&self->threads, thread);
    size_t bytes;
    *out = (strata_block){0};
    strata_status status = findings_fail_allocation(&self->log);
    if (status != STRATA_SUCCESS) {
        strata_request_refused(&self->resource, request, status);
        return status;
    }
    bool turn = thread_state && request->bytes && is_sampled(self, thread_state, thread);
    bool due = turn || !thread_state || ++thread_state->turns % POLL_EACH == 0;
    if (due && atomic_load_explicit(&self->leaving, memory_order_relaxed))
        samples_poll(self, &bytes); /* errors were raised */
    if (turn && sample_if_possible(self, request, out))
        return STRATA_SUCCESS;
    return sampling_notice(self, allocate_below(self, request, out));
}

/* Whether there is work beyond the common path. */
static inline bool wants_attention(sampling *self)
{
    return atomic_load_explicit(&self->leaving, memory_order_relaxed) ||
           atomic_load_explicit(&self->log.allocation_to_fail, memory_order_relaxed);
}

static strata_status sampling_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    sampling *self = (sampling *)resource;
    strata_resource *below = resource->upstream;
    sampling_thread *thread_state = strata_per_thread_self(&self->threads, strata_thread_current);
    if (__builtin_expect(!thread_state || thread_state->gap <= 1 || wants_attention(self), 0))
        return allocate_slow(self, request, out);
    thread_state->gap -= request->bytes != 0;
    strata_status status = below->ops->allocate(below, request, out);
    return __builtin_expect(status == STRATA_SUCCESS, 1) ? status : sampling_notice(self, status);
}

/* ---- freeing ---- */

static strata_status point_of_free(sampling *self, const strata_entry *entry, const strata_block *block,
                                   CUstream stream, strata_point *upto)
{
    strata_stream_ref ref;
    if (stream == STRATA_STREAM_GONE)
        return strata_uses_end_of_alloc_stream(entry, block, upto);
    strata_status status = strata_stream_resolve(self->device, stream, &ref);
    if (status == STRATA_SUCCESS)
        status = strata_check_call_scope(self->device, strata_call_scope_for(stream));
    return status == STRATA_SUCCESS ? strata_stream_point(&ref, upto) : status;
}

/* Lets the guard's stream wait for everything that may touch the block. `finished`: the freeing stream's work is
 * complete. */
static strata_status follow_uses(sampling *self, const strata_entry *entry, const strata_block *block, CUstream stream,
                                 bool finished)
{
    strata_point upto = 0;
    strata_stream_ref own;
    strata_status status = finished ? STRATA_SUCCESS : point_of_free(self, entry, block, stream, &upto);
    if (status == STRATA_SUCCESS)
        status = strata_stream_resolve(self->device, self->stream, &own);
    if (status == STRATA_SUCCESS)
        status = strata_uses_visit(entry, strata_point_order, &own); /* uses on other streams often follow that point */
    return status == STRATA_SUCCESS && upto ? strata_timeline_order(&own, upto) : status;
}

static strata_status perform_free(strata_resource *resource, strata_entry *entry, const strata_block *block,
                                  CUstream stream, bool finished)
{
    sampling *self = (sampling *)resource;
    strata_status status = follow_uses(self, entry, block, stream, finished);
    if (status == STRATA_SUCCESS)
        sample_leave(self, sample_claim_deferred(self, block->address));
    return status;
}

/* Puts a free off to the end of a capture. */
static strata_status defer(sampling *self, sample *one, const strata_block *block, CUstream stream)
{
    sample_set(self, one, SAMPLE_DEFERRED); /* before another thread may perform it */
    strata_status status = strata_capture_frees_add(&self->resource.stack->capture_frees, &self->resource, perform_free,
                                                    one->entry, block, stream);
    if (status != STRATA_SUCCESS)
        sample_set(self, one, SAMPLE_FREEING);
    return status;
}

/* Frees a block, or defers that. After a failure the sample is live. */
static strata_status free_or_defer(sampling *self, sample *one, const strata_block *block, CUstream stream)
{
    strata_error_suppress_begin();
    strata_status status = follow_uses(self, one->entry, block, stream, false);
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status == STRATA_SUCCESS)
        sample_leave(self, one);
    else if (status == STRATA_ERROR_STREAM_CAPTURE)
        status = defer(self, one, block, stream);
    if (status != STRATA_SUCCESS)
        sample_revive(self, one);
    return status;
}

static void report_refused(sampling *self, const strata_block *block, strata_status status, uint32_t freed_at)
{
    freed_block first = {0};
    if (!findings_is_refused_free(status))
        return;
    if (status == STRATA_ERROR_DOUBLE_FREE)
        first = samples_remembered(self, block);
    findings_report_refused(&self->log, block, status, &first, freed_at);
}

/* Reports a refused free by address, if the address is in the range: others are for the layers below. */
static bool sampling_address_refused(strata_resource *resource, CUdeviceptr address, bool freed)
{
    sampling *self = (sampling *)resource;
    if (!sampling_has(self, address))
        return false;
    const freed_block first = freed ? samples_remembered_at(self, address) : (freed_block){0};
    if (freed && !first.block.id.generation)
        return false;
    findings_report_refused_address(&self->log, address, self->device->ordinal, &first,
                                    self->options.no_stacks ? 0 : strata_call_stack_capture(0));
    return true;
}

static __attribute__((noinline)) strata_status free_sample(sampling *self, const strata_block *block, CUstream stream)
{
    strata_entry *entry;
    size_t bytes;
    uint32_t freed_at = self->options.no_stacks ? 0 : strata_call_stack_capture(0);
    strata_status status = strata_entry_retire(strata_resource_table(&self->resource), block, &entry);
    if (status != STRATA_SUCCESS) {
        report_refused(self, block, status, freed_at);
        return status;
    }
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, stream);
    sample *one = sample_begin_free(self, block, entry, freed_at);
    status = free_or_defer(self, one, block, stream);
    if (status == STRATA_SUCCESS)
        samples_poll(self, &bytes);
    return status;
}

static strata_status sampling_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    sampling *self = (sampling *)resource;
    strata_resource *below = resource->upstream;
    strata_status status = sampling_has(self, block->address) ? free_sample(self, block, stream)
                                                              : below->ops->deallocate(below, block, stream);
    return __builtin_expect(status == STRATA_SUCCESS, 1) ? status : sampling_notice(self, status);
}

/* ---- uses ---- */

static strata_status sampling_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                      strata_access access)
{
    strata_resource *below = resource->upstream;
    if (sampling_has((sampling *)resource, block->address))
        return strata_block_prepare_use(resource, block, stream, access);
    return below->ops->prepare_use(below, block, stream, access);
}

static strata_status sampling_finish(strata_resource *resource, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    strata_resource *below = resource->upstream;
    if (sampling_has((sampling *)resource, block->address))
        return strata_block_finish_use(resource, block, stream, access);
    return below->ops->finish_use(below, block, stream, access);
}

static strata_status sampling_record(strata_resource *resource, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    strata_resource *below = resource->upstream;
    if (sampling_has((sampling *)resource, block->address))
        return strata_block_record_use(resource, block, stream, access);
    return below->ops->record_use(below, block, stream, access);
}

/* ---- others ---- */

static strata_status sampling_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    sampling *self = (sampling *)resource;
    strata_resource *below = resource->upstream;
    size_t own = 0;
    *bytes = 0;
    strata_capture_frees_flush_for_reap(&resource->stack->capture_frees, mode == STRATA_REAP_WAIT);
    strata_status status = mode == STRATA_REAP_WAIT ? samples_wait(self, &own) : STRATA_SUCCESS;
    if (mode != STRATA_REAP_WAIT)
        samples_poll(self, &own);
    if (status == STRATA_SUCCESS)
        status = below->ops->reap(below, mode, bytes);
    *bytes += own;
    return sampling_notice(self, status);
}

static strata_status sampling_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    sampling *self = (sampling *)resource;
    strata_resource *below = resource->upstream;
    uint64_t before = atomic_load_explicit(&self->mapped_bytes, memory_order_relaxed);
    size_t freed;
    samples_poll(self, &freed);
    uint64_t after = atomic_load_explicit(&self->mapped_bytes, memory_order_relaxed);
    *bytes = 0;
    strata_status status = below->ops->trim(below, keep_bytes, bytes);
    *bytes += before > after ? (size_t)(before - after) : 0;
    return sampling_notice(self, status);
}

/* Returns memory only after a reset: nothing is kept free. */
static uint64_t sampling_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    (void)bytes;
    (void)may_wait;
    sampling *self = (sampling *)resource;
    return strata_device_is_lost(self->device) ? samples_give_back_lost(self) : 0;
}

static strata_status sampling_usage(strata_resource *resource, strata_usage *usage)
{
    strata_resource *below = resource->upstream;
    strata_status status = below->ops->usage(below, usage);
    samples_add_usage((sampling *)resource, usage);
    return status;
}

/* A sampled request gets no memory from below. */
static strata_status sampling_reusable(strata_resource *resource, const strata_request *request, size_t *bytes,
                                       strata_block_id *of)
{
    sampling *self = (sampling *)resource;
    strata_resource *below = resource->upstream;
    const sampling_thread *thread_state = strata_per_thread_self(&self->threads, strata_thread_current);
    if (thread_state && thread_state->gap > 1)
        return below->ops->reusable(below, request, bytes, of);
    *bytes = 0;
    *of = (strata_block_id){0};
    return STRATA_SUCCESS;
}

static strata_status sampling_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    sampling *self = (sampling *)resource;
    strata_resource *below = resource->upstream;
    *out = (strata_block){0};
    if (!sampling_has(self, address))
        return below->ops->find(below, address, out);
    if (samples_find(self, address, out))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                       "no live block of this stack contains the address 0x%llx, which lies where sampled blocks do",
                       (unsigned long long)address);
}

/* Asks whether the device was stopped: it then answers any query with its error. */
static strata_status query_stopped(sampling *self)
{
    strata_call_scope scope;
    strata_status status = strata_check_device_now(self->device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.StreamQuery(self->stream);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return STRATA_SUCCESS;
    return strata_fail_driver(result, "cuStreamQuery", "guard: querying whether the device was stopped");
}

strata_status sampling_check(strata_resource *resource)
{
    sampling *self = (sampling *)resource;
    size_t bytes;
    strata_status status = samples_wait(self, &bytes);
    if (status == STRATA_SUCCESS && atomic_load_explicit(&self->span, memory_order_acquire))
        status = query_stopped(self);
    return sampling_notice(self, status);
}

/* ---- the ops table ---- */

static void sampling_destroy(strata_resource *resource)
{
    sampling *self = (sampling *)resource;
    samples_close(self);
    strata_per_thread_destroy(&self->threads);
    findings_destroy(&self->log);
    strata_lock_destroy(&self->lock);
    strata_lock_destroy(&self->open_lock);
    strata_host_free(self->remembered);
    strata_host_free(self->samples);
    strata_host_free(self);
}

const strata_resource_ops sampling_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "guard",
    .allocate = sampling_allocate,
    .deallocate = sampling_deallocate,
    .prepare_use = sampling_prepare,
    .finish_use = sampling_finish,
    .record_use = sampling_record,
    .reap = sampling_reap,
    .trim = sampling_trim,
    .give_back = sampling_give_back,
    .usage = sampling_usage,
    .find = sampling_find,
    .address_refused = sampling_address_refused,
    .destroy = sampling_destroy,
    .reusable = sampling_reusable,
    .values = sampling_values,
    .value_count = SAMPLING_VALUES,
    .get_value = sampling_get_value,
    .set_value = sampling_set_value,
    .describe = sampling_describe,
};

bool sampling_is_one(const strata_resource *resource)
{
    return resource->ops->destroy == sampling_destroy;
}

findings_log *sampling_findings(strata_resource *resource)
{
    return &((sampling *)resource)->log;
}
