/* Operations that a layer leaves NULL. */
#include "core/stack/default_operations.h"

#include "core/base/error.h"
#include "core/stack/calls.h"
#include "core/stack/own_stream_free.h"
#include "core/streams/stream_wait.h"

/* ---- decorators forward ---- */

#define UP(self)          ((self)->upstream)
#define CALL_UP(self, op) UP(self)->ops->op

static strata_status forward_allocate(strata_resource *self, const strata_request *request, strata_block *out)
{
    return CALL_UP(self, allocate)(UP(self), request, out);
}
static strata_status forward_deallocate(strata_resource *self, const strata_block *block, CUstream stream)
{
    return CALL_UP(self, deallocate)(UP(self), block, stream);
}
static strata_status forward_prepare(strata_resource *self, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    return CALL_UP(self, prepare_use)(UP(self), block, stream, access);
}
static strata_status forward_finish(strata_resource *self, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    return CALL_UP(self, finish_use)(UP(self), block, stream, access);
}
static strata_status forward_record(strata_resource *self, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    return CALL_UP(self, record_use)(UP(self), block, stream, access);
}
static strata_status forward_reap(strata_resource *self, strata_reap_mode mode, size_t *bytes)
{
    return CALL_UP(self, reap)(UP(self), mode, bytes);
}
static strata_status forward_trim(strata_resource *self, size_t keep_bytes, size_t *bytes)
{
    return CALL_UP(self, trim)(UP(self), keep_bytes, bytes);
}
static strata_status forward_usage(strata_resource *self, strata_usage *usage)
{
    return CALL_UP(self, usage)(UP(self), usage);
}
static strata_status forward_charge(strata_resource *self, const strata_request *request, size_t *bytes)
{
    return CALL_UP(self, charge)(UP(self), request, bytes);
}
static strata_status forward_reusable(strata_resource *self, const strata_request *request, size_t *bytes,
                                      strata_block_id *of)
{
    return CALL_UP(self, reusable)(UP(self), request, bytes, of);
}
static strata_status forward_budget(strata_resource *self, strata_budget_snapshot *snapshot)
{
    return CALL_UP(self, budget)(UP(self), snapshot);
}
static uint32_t forward_capabilities(strata_resource *self)
{
    return CALL_UP(self, capabilities)(UP(self));
}
static strata_status forward_find(strata_resource *self, CUdeviceptr address, strata_block *out)
{
    return CALL_UP(self, find)(UP(self), address, out);
}
static int forward_device(strata_resource *self)
{
    return CALL_UP(self, device)(UP(self));
}
static strata_status forward_synchronize(strata_resource *self, CUstream stream)
{
    return CALL_UP(self, synchronize)(UP(self), stream);
}

/* ---- by the same layer's operations, whether it forwards them or not ---- */

strata_made strata_allocate_plainly(strata_resource *self, const strata_request *request, strata_block *out)
{
    const strata_status status = self->ops->allocate(self, request, out);
    return (strata_made){status, status == STRATA_SUCCESS && out->id.generation
                                     ? strata_table_lookup(strata_resource_table(self), out->id)
                                     : NULL};
}

strata_status strata_deallocate_plainly(strata_resource *self, const strata_block *block, strata_entry *entry,
                                        strata_timeline *timeline)
{
    (void)timeline;
    return strata_free_on_own_stream(self, block, entry, strata_thread_self());
}

strata_made strata_allocate_by_request(strata_resource *self, size_t bytes, CUstream stream, strata_block *out)
{
    const strata_request request = {.bytes = bytes, .stream = stream};
    const strata_made made = self->ops->allocate_own(self, &request, out);
    if (__builtin_expect(made.status != STRATA_SUCCESS, 0))
        *out = (strata_block){0};
    return made;
}

strata_status strata_top_allocate_plainly(strata_resource *self, size_t bytes, CUstream stream, strata_block *out)
{
    return strata_allocate_from_top(self, &(strata_request){.bytes = bytes, .stream = stream}, out);
}

strata_status strata_top_deallocate_plainly(strata_resource *self, const strata_block *block)
{
    strata_thread *thread = strata_thread_current;
    strata_entry *entry = thread && strata_driver_state_now() == STRATA_DRIVER_OPEN
                              ? strata_table_lookup(strata_resource_table(self), block->id)
                              : NULL;
    if (__builtin_expect(!entry, 0))
        return strata_free_from_top_on_own_stream(self, block);
    const strata_status status = strata_free_on_own_stream(self, block, entry, thread);
    if (__builtin_expect(status == STRATA_SUCCESS, 1))
        return status;
    return strata_ends_without_driver(status) ? strata_free_after_reset(self, block) : status;
}

strata_status strata_top_allocate_directly(strata_resource *self, size_t bytes, CUstream stream, strata_block *out)
{
    return self->ops->allocate_plain(self, bytes, stream, out).status;
}

/* An empty block names no table, so no entry is found. */
strata_status strata_top_deallocate_own(strata_resource *self, const strata_block *block)
{
    strata_entry *entry = strata_driver_state_now() == STRATA_DRIVER_OPEN
                              ? strata_table_lookup(strata_resource_table(self), block->id)
                              : NULL;
    strata_timeline *timeline =
        __builtin_expect(entry != NULL, 1) ? strata_late_alloc_timeline(entry, block->stream) : NULL;
    if (__builtin_expect(!timeline, 0))
        return strata_free_from_top_on_own_stream(self, block);
    const strata_status status = self->ops->deallocate_own(self, block, entry, timeline);
    if (__builtin_expect(status == STRATA_FREE_COMPLETE || status == STRATA_SUCCESS, 1))
        return STRATA_SUCCESS;
    return strata_ends_without_driver(status) ? strata_free_after_reset(self, block) : status;
}

static const strata_resource_ops forwarders = {
    .allocate = forward_allocate,
    .deallocate = forward_deallocate,
    .allocate_own = strata_allocate_plainly,
    .deallocate_own = strata_deallocate_plainly,
    .allocate_plain = strata_allocate_by_request,
    .top_allocate = strata_top_allocate_plainly,
    .prepare_use = forward_prepare,
    .finish_use = forward_finish,
    .record_use = forward_record,
    .reap = forward_reap,
    .trim = forward_trim,
    .usage = forward_usage,
    .charge = forward_charge,
    .budget = forward_budget,
    .capabilities = forward_capabilities,
    .find = forward_find,
    .device = forward_device,
    .reusable = forward_reusable,
    .synchronize = forward_synchronize,
};

/* ---- defaults of owners ---- */

static strata_status no_tracking(strata_resource *self, const strata_block *block, CUstream stream,
                                 strata_access access)
{
    (void)block, (void)stream, (void)access;
    return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                       "%s does not support use tracking, for blocks used on several streams", self->ops->name);
}
static strata_status nothing_to_reap(strata_resource *self, strata_reap_mode mode, size_t *bytes)
{
    (void)self, (void)mode;
    *bytes = 0;
    return STRATA_SUCCESS;
}
static strata_status nothing_to_trim(strata_resource *self, size_t keep_bytes, size_t *bytes)
{
    (void)self, (void)keep_bytes;
    *bytes = 0;
    return STRATA_SUCCESS;
}
static strata_status charge_as_asked(strata_resource *self, const strata_request *request, size_t *bytes)
{
    (void)self;
    *bytes = request->bytes;
    return STRATA_SUCCESS;
}
strata_status strata_nothing_reusable(strata_resource *self, const strata_request *request, size_t *bytes,
                                      strata_block_id *of)
{
    (void)self, (void)request;
    *bytes = 0;
    *of = (strata_block_id){0};
    return STRATA_SUCCESS;
}
static strata_status no_budget(strata_resource *self, strata_budget_snapshot *snapshot)
{
    (void)self;
    *snapshot = (strata_budget_snapshot){0};
    return STRATA_ERROR_UNSUPPORTED; /* a query, not a failure: no error is recorded */
}
static strata_status no_find(strata_resource *self, CUdeviceptr address, strata_block *out)
{
    (void)address;
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "%s does not support finding blocks by address", self->ops->name);
}
static int device_of_stack(strata_resource *self)
{
    return self->stack->device->ordinal;
}
static strata_status synchronize_here(strata_resource *self, CUstream stream)
{
    return strata_stream_wait(self->stack->device, stream);
}

static const strata_resource_ops absent = {
    .allocate_own = strata_allocate_plainly,
    .deallocate_own = strata_deallocate_plainly,
    .allocate_plain = strata_allocate_by_request,
    .top_allocate = strata_top_allocate_plainly,
    .prepare_use = no_tracking,
    .finish_use = no_tracking,
    .record_use = no_tracking,
    .reap = nothing_to_reap,
    .trim = nothing_to_trim,
    .charge = charge_as_asked,
    .budget = no_budget,
    .find = no_find,
    .device = device_of_stack,
    .reusable = strata_nothing_reusable,
    .synchronize = synchronize_here,
};

#define FILL(op)  \
    if (!ops->op) \
    ops->op = from->op

void strata_fill_operations(strata_resource_ops *ops, bool owner)
{
    const strata_resource_ops *from = owner ? &absent : &forwarders;
    FILL(allocate);
    FILL(deallocate);
    if (!ops->top_deallocate)
        ops->top_deallocate = ops->deallocate_own ? strata_top_deallocate_own : strata_top_deallocate_plainly;
    FILL(top_allocate);
    FILL(allocate_own);
    FILL(deallocate_own);
    FILL(allocate_plain);
    FILL(prepare_use);
    FILL(finish_use);
    FILL(record_use);
    FILL(reap);
    FILL(trim);
    FILL(usage);
    FILL(charge);
    FILL(budget);
    FILL(capabilities);
    FILL(find);
    FILL(device);
    FILL(reusable);
    FILL(synchronize);
}

/* Whether all layers pass allocate_plain on without making a request of it. If one makes it, making it at the top is
 * cheaper. */
static bool allocates_plain_to_the_bottom(const strata_resource *resource)
{
    while (resource && resource->ops->allocate_plain != strata_allocate_by_request)
        resource = resource->upstream;
    return !resource;
}

void strata_fill_top_allocate(const strata_resource *top, strata_resource_ops *ops)
{
    if (ops->top_allocate == strata_top_allocate_plainly && allocates_plain_to_the_bottom(top))
        ops->top_allocate = strata_top_allocate_directly;
}

bool strata_resource_tracks_plainly(const strata_resource *resource)
{
    while (resource->ops->prepare_use == forward_prepare && resource->ops->finish_use == forward_finish &&
           resource->ops->record_use == forward_record)
        resource = resource->upstream;
    return resource->ops->prepare_use == strata_block_prepare_use &&
           resource->ops->finish_use == strata_block_finish_use && resource->ops->record_use == strata_block_record_use;
}

strata_resource *strata_resource_charging(strata_resource *resource)
{
    while (resource->ops->charge == forward_charge)
        resource = resource->upstream;
    return resource;
}
