/* async: the driver's stream-ordered pools.
 *
 * A free goes to the freeing stream. If uses on other streams may be pending, it goes to an internal stream that waits
 * for all: the memory is free later, and no stream of the program is delayed. */
#include <strata/async.h>

#include "core/base/counters.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "core/blocks/blocks.h"
#include "core/blocks/uses.h"
#include "core/stack/neighbours.h"
#include "core/stack/stack.h"
#include "core/streams/internal_streams.h"
#include "core/streams/known_streams.h"
#include "core/streams/stream_map.h"
#include "core/streams/timeline.h"
#include "core/streams/use_records.h"
#include "resources/builtin.h"
#include "resources/owners/out_of_memory.h"
#include "resources/owners/pending_frees.h"

enum {
    ALIGNMENT = 256,
    CHARGE_GRANULE = 512, /* granularity of a pool: tests/answers/h200.txt, "pool_size." */
    DESTROY_TRIES = 3,    /* without a later retry: host memory may be short, or a call fail, once */
};

/* A pool reserves in this granularity, its maximum rounded up: tests/answers/h200.txt, "pool.max_". */
static const uint64_t RESERVE_GRANULE = UINT64_C(32) << 20;

typedef struct async {
    strata_resource resource;
    strata_device *device;
    CUmemoryPool pool;
    bool own_pool;
    uint64_t limit; /* bytes the pool may reserve; 0: the device's memory; constant */
    strata_pending_frees retired;
    strata_lock lock;
    CUstream waiting; /* internal stream for frees that wait for several; made when needed, guarded by lock */
    bool empty;       /* after a reset: the pool has no memory, or is of others; guarded by lock */
} async;

/* ---- allocating ---- */

/* Checks the owner's device, and that of a known stream, which a reset ends with its streams. `timeline`: of a known
 * stream, or NULL. */
static inline strata_status check_devices(async *self, const strata_timeline *timeline)
{
    const strata_status status = strata_check_device_lately(self->device);
    if (__builtin_expect(status != STRATA_SUCCESS || !timeline || timeline->device == self->device, 1))
        return status;
    return strata_check_device_lately(timeline->device);
}

/* Asks the driver for memory. After SUCCESS *result is its answer. `timeline`: as in check_devices. */
static inline strata_status allocate_memory(async *self, const strata_request *request, const strata_timeline *timeline,
                                            CUdeviceptr *address, CUresult *result)
{
    strata_call_scope scope;
    strata_status status = check_devices(self, timeline);
    if (__builtin_expect(status == STRATA_SUCCESS, 1))
        status = strata_call_scope_enter(&scope, self->device,
                                         strata_call_scope_for(request->stream) | STRATA_CALL_SCOPE_RELAXED);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    *result = strata_cu.MemAllocFromPoolAsync(address, request->bytes, self->pool, request->stream);
    strata_call_scope_leave(&scope);
    return STRATA_SUCCESS;
}

static __attribute__((cold)) strata_status fail_free(CUresult result, CUdeviceptr address)
{
    return strata_fail_driver(result, "cuMemFreeAsync", "freeing block 0x%llx", (unsigned long long)address);
}

/* Frees memory on a stream. `timeline`: as in check_devices. */
static inline strata_status free_memory(async *self, CUdeviceptr address, CUstream stream,
                                        const strata_timeline *timeline)
{
    strata_call_scope scope;
    strata_status status = check_devices(self, timeline);
    if (__builtin_expect(status == STRATA_SUCCESS, 1))
        status =
            strata_call_scope_enter(&scope, self->device, strata_call_scope_for(stream) | STRATA_CALL_SCOPE_RELAXED);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    CUresult result = strata_cu.MemFreeAsync(address, stream);
    strata_call_scope_leave(&scope);
    return __builtin_expect(result == CUDA_SUCCESS, 1) ? STRATA_SUCCESS : fail_free(result, address);
}

/* Frees the memory of a block that was not made. There is no later opportunity. */
static __attribute__((cold)) void give_back(async *self, CUdeviceptr address, CUstream stream)
{
    strata_call_scope scope;
    strata_status status = STRATA_ERROR_BUSY;
    strata_error_suppress_begin();
    for (int i = 0; i < DESTROY_TRIES && status != STRATA_SUCCESS; i++)
        status =
            strata_call_scope_enter(&scope, self->device, strata_call_scope_for(stream) | STRATA_CALL_SCOPE_RELAXED);
    if (status == STRATA_SUCCESS) {
        strata_cu.MemFreeAsync(address, stream);
        strata_call_scope_leave(&scope);
    }
    strata_error_suppress_end(false);
    strata_lock_take(&self->lock);
    self->empty = false; /* a reset may have come in the middle of the request */
    strata_lock_release(&self->lock);
}

/* Makes a block of the memory. False without host memory. An unknown stream's use record is open. */
static inline bool enter_block(async *self, CUdeviceptr address, const strata_request *request,
                               strata_timeline *timeline, bool known, strata_block *out)
{
    uint32_t slot = strata_pending_frees_enter(&self->retired, address, request->bytes);
    if (__builtin_expect(!slot, 0))
        return false;
    out->address = address;
    out->bytes = out->requested = request->bytes;
    out->alignment = ALIGNMENT;
    out->tag = request->tag;
    out->stream = request->stream;
    strata_entry_publish(strata_resource_table(&self->resource), slot, timeline, known, out);
    return true;
}

/* Allocates in a use record. The caller suppresses errors, since an unknown stream's timeline is locked meanwhile.
 * *result as in allocate_memory. */
static strata_status allocate_recorded(async *self, const strata_request *request, CUresult *result, strata_block *out)
{
    strata_use_record record;
    CUdeviceptr address = 0;
    strata_status status = strata_use_record_begin(&record, self->device, request->stream);
    if (status != STRATA_SUCCESS)
        return status;
    status = allocate_memory(self, request, record.stream.known ? record.stream.timeline : NULL, &address, result);
    if (status != STRATA_SUCCESS || *result != CUDA_SUCCESS) {
        strata_use_record_cancel(&record);
        return status;
    }
    bool entered = enter_block(self, address, request, record.stream.timeline, record.stream.known, out);
    status = strata_use_record_end(&record);
    if (entered && status == STRATA_SUCCESS)
        return STRATA_SUCCESS;
    if (entered)
        strata_pending_frees_leave(&self->retired, out->id.slot, address, request->bytes);
    else
        status = strata_fail_host_memory("a block");
    give_back(self, address, request->stream);
    *out = (strata_block){0};
    return status;
}

static strata_status try_to_allocate(async *self, const strata_request *request, CUresult *result, strata_block *out)
{
    strata_error_suppress_begin();
    const strata_status status = allocate_recorded(self, request, result, out);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Whether the device may have refused, and not the pool's own maximum. */
static bool device_may_be_short(async *self, const strata_request *request)
{
    strata_usage usage = {0};
    if (!self->limit)
        return true;
    strata_error_suppress_begin();
    self->resource.ops->usage(&self->resource, &usage);
    strata_error_suppress_end(false);
    return request->bytes <= self->limit && usage.reserved_bytes - usage.reserved_free <= self->limit - request->bytes;
}

/* Goes on after the driver's first answer. If the device is short of memory, other stacks give free memory back. */
static __attribute__((cold, noinline)) strata_status allocate_again(async *self, const strata_request *request,
                                                                    CUresult result, strata_block *out)
{
    strata_reclaim reclaim = {.device = self->device, .owner = &self->resource, .bytes = request->bytes};
    strata_status status = STRATA_SUCCESS;
    *out = (strata_block){0};
    while (status == STRATA_SUCCESS && result == CUDA_ERROR_OUT_OF_MEMORY && device_may_be_short(self, request) &&
           strata_reclaim_try_all(&reclaim))
        status = try_to_allocate(self, request, &result, out);
    if (status != STRATA_SUCCESS || result == CUDA_SUCCESS)
        return status;
    return strata_fail_allocation(&self->resource, request, result, "cuMemAllocFromPoolAsync");
}

static __attribute__((noinline)) strata_status allocate_slow(async *self, const strata_request *request,
                                                             strata_block *out)
{
    *out = (strata_block){0};
    strata_status status = strata_check_alignment(&self->resource, request, ALIGNMENT);
    if (status != STRATA_SUCCESS || request->bytes == 0)
        return status;
    strata_capture_frees_try_flush_any(&self->resource.stack->capture_frees, request->stream);
    CUresult result = CUDA_SUCCESS;
    status = try_to_allocate(self, request, &result, out);
    return status == STRATA_SUCCESS && result != CUDA_SUCCESS ? allocate_again(self, request, result, out) : status;
}

/* Fast path: a known stream with late events needs no record. */
static strata_status async_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    async *self = (async *)resource;
    strata_timeline *timeline = strata_known_timeline(self->device, request->stream);
    bool fast = timeline && !strata_timeline_is_early(timeline) && request->bytes && request->alignment <= ALIGNMENT;
    if (__builtin_expect(!fast, 0))
        return allocate_slow(self, request, out);
    CUdeviceptr address = 0;
    CUresult result;
    strata_status status = allocate_memory(self, request, timeline, &address, &result);
    if (__builtin_expect(status != STRATA_SUCCESS, 0)) {
        *out = (strata_block){0};
        return status;
    }
    if (__builtin_expect(result != CUDA_SUCCESS, 0))
        return allocate_again(self, request, result, out);
    if (__builtin_expect(enter_block(self, address, request, timeline, true, out), 1))
        return STRATA_SUCCESS;
    give_back(self, address, request->stream);
    *out = (strata_block){0};
    return strata_fail_host_memory("a block");
}

/* ---- freeing ---- */

static strata_status waiting_stream(async *self, CUstream *out)
{
    strata_status status = STRATA_SUCCESS;
    strata_lock_take(&self->lock);
    if (!self->waiting)
        status = strata_internal_stream_create(self->device, false, "a stream that waits for others", &self->waiting);
    *out = self->waiting;
    strata_lock_release(&self->lock);
    return status;
}

typedef struct pending {
    const strata_stream_ref *stream;
    const strata_clock *clock;
    bool any;
} pending;

static strata_status find_pending(strata_point point, void *data)
{
    pending *found = data;
    if (!strata_timeline_follows(found->stream, found->clock, point) && !strata_point_query(point))
        found->any = true;
    return STRATA_SUCCESS;
}

/* Whether a free on `stream` would precede a pending use elsewhere. */
static bool has_pending_uses(const strata_entry *entry, const strata_stream_ref *stream)
{
    strata_clock *clock = strata_timeline_clock(stream, false);
    pending found = {.stream = stream, .clock = clock};
    strata_uses_visit(entry, find_pending, &found);
    strata_clock_unref(clock);
    return found.any;
}

/* Waits on the host for all that may touch the block, and frees it without a stream, which waits for nothing
 * (tests/answers/h200.txt, "async.mem_free."). */
static __attribute__((cold)) strata_status free_after_waiting(async *self, strata_entry *entry,
                                                              const strata_block *block, strata_point upto, bool *reap)
{
    strata_call_scope scope;
    strata_status status = strata_uses_visit(entry, strata_point_wait, self->device);
    if (status == STRATA_SUCCESS && upto)
        status = strata_point_synchronize_for(self->device, upto);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const CUresult result = strata_cu.MemFree(block->address);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemFree", "freeing block 0x%llx", (unsigned long long)block->address);
    *reap = strata_pending_frees_add(&self->retired, entry, block->bytes,
                                     strata_point_make(self->device->legacy->number, 0)); /* complete */
    return STRATA_SUCCESS;
}

/* Makes the internal stream wait for all that may touch the block, and frees on it. Without memory for that stream the
 * host waits. */
static strata_status free_on_waiting_stream(async *self, strata_entry *entry, const strata_block *block,
                                            strata_point upto, bool *reap)
{
    CUstream handle;
    strata_stream_ref waiting;
    strata_error_suppress_begin();
    strata_status status = waiting_stream(self, &handle);
    strata_error_suppress_end(status != STRATA_SUCCESS && !strata_lacks_memory(status));
    if (__builtin_expect(strata_lacks_memory(status), 0))
        return free_after_waiting(self, entry, block, upto, reap);
    if (status == STRATA_SUCCESS)
        status = strata_stream_resolve(self->device, handle, &waiting);
    if (status == STRATA_SUCCESS)
        status = strata_uses_visit(entry, strata_point_order, &waiting);
    if (status == STRATA_SUCCESS && upto)
        status = strata_timeline_order(&waiting, upto);
    if (status != STRATA_SUCCESS)
        return status;
    if ((status = free_memory(self, block->address, handle, NULL)) != STRATA_SUCCESS)
        return status;
    *reap = strata_pending_frees_add(&self->retired, entry, block->bytes, strata_timeline_now(waiting.timeline));
    return STRATA_SUCCESS;
}

static strata_status free_on_unknown(async *self, strata_entry *entry, const strata_block *block,
                                     const strata_stream_ref *stream, bool *reap)
{
    strata_use_record record;
    strata_status status = strata_use_record_begin_on(&record, stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin(); /* while the timeline is locked */
    status = free_memory(self, block->address, stream->handle, NULL);
    if (status == STRATA_SUCCESS) {
        *reap =
            strata_pending_frees_add(&self->retired, entry, block->bytes, strata_timeline_now(record.stream.timeline));
        strata_use_record_end(&record); /* the free is done; a later event also shows completion */
    } else {
        strata_use_record_cancel(&record);
    }
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

static inline strata_status free_on_known(async *self, strata_entry *entry, const strata_block *block, CUstream stream,
                                          const strata_timeline *timeline, bool *reap)
{
    strata_status status = free_memory(self, block->address, stream, timeline);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    *reap = strata_pending_frees_add(&self->retired, entry, block->bytes, strata_timeline_now(timeline));
    return STRATA_SUCCESS;
}

static strata_status free_without_stream(async *self, strata_entry *entry, const strata_block *block, bool *reap)
{
    strata_point end;
    strata_status status = strata_uses_end_of_alloc_stream(entry, block, &end);
    return status == STRATA_SUCCESS ? free_on_waiting_stream(self, entry, block, end, reap) : status;
}

static __attribute__((noinline)) strata_status free_in_order(async *self, strata_entry *entry,
                                                             const strata_block *block, CUstream stream, bool *reap)
{
    strata_stream_ref ref;
    if (stream == STRATA_STREAM_GONE)
        return free_without_stream(self, entry, block, reap);
    strata_status status = strata_stream_resolve(self->device, stream, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    if (strata_uses_only_on(entry, ref.timeline) || !has_pending_uses(entry, &ref))
        return ref.known ? free_on_known(self, entry, block, stream, ref.timeline, reap)
                         : free_on_unknown(self, entry, block, &ref, reap);
    strata_point upto = 0;
    if ((status = strata_check_call_scope(self->device, strata_call_scope_for(stream))) == STRATA_SUCCESS)
        status = strata_stream_point(&ref, &upto);
    return status == STRATA_SUCCESS ? free_on_waiting_stream(self, entry, block, upto, reap) : status;
}

static strata_status perform_free(strata_resource *resource, strata_entry *entry, const strata_block *block,
                                  CUstream stream, bool finished)
{
    async *self = (async *)resource;
    bool reap = false;
    return finished ? free_on_waiting_stream(self, entry, block, 0, &reap)
                    : free_in_order(self, entry, block, stream, &reap);
}

/* A capture fails the attempt before anything is freed; the free is then deferred to its end. */
static strata_status free_or_defer(async *self, strata_entry *entry, const strata_block *block, CUstream stream,
                                   bool *reap)
{
    strata_capture_frees *deferred = &self->resource.stack->capture_frees;
    strata_capture_frees_try_flush_any(deferred, stream);
    strata_error_suppress_begin();
    strata_status status = free_in_order(self, entry, block, stream, reap);
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_STREAM_CAPTURE);
    if (status != STRATA_ERROR_STREAM_CAPTURE)
        return status;
    strata_pending_frees_defer(&self->retired, entry, block->bytes); /* before another thread may perform it */
    status = strata_capture_frees_add(deferred, &self->resource, perform_free, entry, block, stream);
    if (status != STRATA_SUCCESS)
        strata_pending_frees_undefer(&self->retired, entry, block->bytes);
    return status;
}

/* The stream's timeline, if it is known and alone has used the block: no query is needed. Else NULL. */
static inline strata_timeline *used_only_on_known(async *self, const strata_entry *entry, CUstream stream)
{
    strata_timeline *timeline = strata_known_timeline(self->device, stream);
    return timeline && !strata_call_scope_for(stream) && strata_uses_only_on(entry, timeline) ? timeline : NULL;
}

static strata_status async_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    async *self = (async *)resource;
    strata_entry *entry;
    strata_status status = strata_entry_retire(strata_resource_table(resource), block, &entry);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return status;
    bool reap = false;
    strata_timeline *timeline = used_only_on_known(self, entry, stream);
    if (__builtin_expect(timeline != NULL, 1))
        status = free_on_known(self, entry, block, stream, timeline, &reap);
    else
        status = free_or_defer(self, entry, block, stream, &reap);
    if (__builtin_expect(status != STRATA_SUCCESS, 0)) {
        strata_entry_revive(entry);
        return status;
    }
    size_t bytes;
    if (__builtin_expect(reap, 0)) /* bounds the list. Errors are ignored: the next wait reports them */
        strata_pending_frees_reap(&self->retired, STRATA_REAP_FINISHED, &bytes);
    return STRATA_SUCCESS;
}

/* ---- the rest of the interface ---- */

static strata_status async_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    async *self = (async *)resource;
    strata_capture_frees_flush_for_reap(&resource->stack->capture_frees, mode == STRATA_REAP_WAIT);
    strata_status status = strata_pending_frees_reap(&self->retired, mode, bytes);
    if (status == STRATA_SUCCESS && mode == STRATA_REAP_WAIT &&
        strata_capture_frees_any(&resource->stack->capture_frees))
        status = strata_capture_frees_refuse(&resource->stack->capture_frees);
    return status;
}

static CUresult pool_bytes(const async *self, CUmemPool_attribute attribute, size_t *bytes)
{
    cuuint64_t value = 0;
    CUresult result = strata_cu.MemPoolGetAttribute(self->pool, attribute, &value);
    *bytes = result == CUDA_SUCCESS ? (size_t)value : 0;
    return result;
}

static strata_status async_trim(strata_resource *resource, size_t keep_bytes, size_t *bytes)
{
    async *self = (async *)resource;
    *bytes = 0;
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    size_t before = 0, after = 0;
    const char *call = "cuMemPoolGetAttribute";
    CUresult result = pool_bytes(self, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &before);
    /* The driver takes a size that it cannot round up for zero (tests/answers/h200.txt, "pool_release.trim.huge"). */
    if (result == CUDA_SUCCESS && keep_bytes < before) {
        strata_timelines_show_completed(self->device);
        result = strata_cu.MemPoolTrimTo(self->pool, keep_bytes);
        call = "cuMemPoolTrimTo";
    }
    bool told =
        result == CUDA_SUCCESS && pool_bytes(self, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &after) == CUDA_SUCCESS;
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, call, "giving memory back");
    *bytes = told && before > after ? before - after : 0;
    return STRATA_SUCCESS;
}

/* Frees a block of a lost context. False: the driver refuses. A block that is not there any more counts as freed. */
static bool give_lost(CUdeviceptr address)
{
    const CUresult result = strata_cu.MemFree(address);
    return result == CUDA_SUCCESS || result == CUDA_ERROR_INVALID_VALUE;
}

/* Ends the blocks of a lost context and returns their memory. Once nothing is left, makes no call: each later reset
 * asks again. A block of a thread that found the device usable may come later.
 *
 * The pool outlives its context, and so does what was live in it, which can be freed once the context has begun anew:
 * tests/answers/h200.txt, "primary_reset.". By one thread at a time, as another one may be given an address again. */
static uint64_t end_lost(async *self)
{
    strata_call_scope scope;
    size_t left = 0;
    strata_lock_take(&self->lock);
    const bool over = self->empty && !strata_pending_frees_any(&self->retired);
    strata_lock_release(&self->lock);
    if (over || !strata_device_is_active(self->device) ||
        strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
            STRATA_SUCCESS)
        return 0;
    strata_lock_take(&self->lock);
    const uint64_t bytes = strata_pending_frees_end_lost(&self->retired, give_lost);
    if (self->own_pool)
        strata_cu.MemPoolTrimTo(self->pool, 0);
    self->empty = !self->own_pool || (pool_bytes(self, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &left) == CUDA_SUCCESS &&
                                      !left); /* it keeps memory whose free has not come to its end */
    strata_lock_release(&self->lock);
    strata_call_scope_leave(&scope);
    return bytes;
}

/* Returns whole steps of the pool. A pool with a release threshold gives memory back at the waits already. */
static uint64_t async_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    strata_usage before = {0}, after = {0};
    size_t none;
    if (strata_device_is_lost(((async *)resource)->device))
        return end_lost((async *)resource);
    if (resource->ops->usage(resource, &before) != STRATA_SUCCESS)
        return 0;
    async_reap(resource, STRATA_REAP_FINISHED, &none);
    if (may_wait)
        async_reap(resource, STRATA_REAP_WAIT, &none);
    const uint64_t rest = before.reserved_bytes > bytes ? before.reserved_bytes - bytes : 0;
    async_trim(resource, (size_t)(rest / RESERVE_GRANULE * RESERVE_GRANULE), &none);
    resource->ops->usage(resource, &after);
    return before.reserved_bytes > after.reserved_bytes ? before.reserved_bytes - after.reserved_bytes : 0;
}

static strata_status async_usage(strata_resource *resource, strata_usage *usage)
{
    async *self = (async *)resource;
    *usage = (strata_usage){0};
    strata_pending_frees_usage(&self->retired, usage);
    usage->limit = (size_t)self->limit;
    strata_call_scope scope;
    strata_status status = strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    size_t reserved = 0, peak = 0, used = 0;
    CUresult result = pool_bytes(self, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, &reserved);
    if (result == CUDA_SUCCESS)
        result = pool_bytes(self, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, &peak);
    if (result == CUDA_SUCCESS)
        result = pool_bytes(self, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &used);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemPoolGetAttribute", "reading the size of the pool");
    usage->reserved_bytes = reserved;
    usage->reserved_peak = peak;
    const size_t in_blocks = used > usage->bytes_outstanding ? used : usage->bytes_outstanding;
    usage->reserved_free =
        reserved > in_blocks ? reserved - in_blocks : 0; /* the driver counts freed memory as unused */
    return STRATA_SUCCESS;
}

static strata_status async_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    (void)resource;
    size_t most = ~(size_t)(CHARGE_GRANULE - 1); /* more cannot be rounded up, and exceeds any device */
    *bytes = request->bytes > most ? SIZE_MAX : (request->bytes + CHARGE_GRANULE - 1) & most;
    return STRATA_SUCCESS;
}

static void async_sum_frees(strata_resource *resource, struct strata_stream_sums *sums)
{
    strata_pending_frees_sum(&((async *)resource)->retired, sums);
}

/* Which freed block the request would get: the driver prefers memory freed on the requesting stream
 * (docs/measurements.md). */
static strata_status async_reusable(strata_resource *resource, const strata_request *request, size_t *bytes,
                                    strata_block_id *of)
{
    async *self = (async *)resource;
    size_t charge;
    async_charge(resource, request, &charge);
    *bytes = 0;
    *of = (strata_block_id){0};
    const strata_timeline *timeline = strata_known_timeline(self->device, request->stream);
    if (timeline && charge && strata_pending_frees_reusable(&self->retired, timeline->number, charge, of))
        *bytes = charge;
    return STRATA_SUCCESS;
}

static uint32_t async_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_STREAM_ORDERED | STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND |
           STRATA_CAPABILITY_DEVICE_MEMORY;
}

static strata_status async_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    if (strata_pending_frees_find(&((async *)resource)->retired, address, out))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

static int async_device(strata_resource *resource)
{
    return ((async *)resource)->device->ordinal;
}

/* Returns true once the driver was asked. Earlier failures are worth another try; a refusal by the driver is not, since
 * the handle may be gone. */
static bool destroy_pool(async *self)
{
    strata_call_scope scope;
    if (strata_call_scope_enter(&scope, self->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED) !=
        STRATA_SUCCESS)
        return false;
    CUresult result = strata_cu.MemPoolDestroy(self->pool);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        strata_fail_driver(result, "cuMemPoolDestroy", "destroying a pool, which remains until the process ends");
    return true;
}

static void async_destroy(strata_resource *resource)
{
    async *self = (async *)resource;
    if (strata_driver_is_open()) { /* a pool outlives its context: tests/answers/h200.txt, "primary_reset." */
        bool stream_ended = !self->waiting, pool_ended = !self->own_pool;
        if (strata_device_is_lost(self->device))
            end_lost(self);
        for (int i = 0; i < DESTROY_TRIES && !stream_ended; i++)
            strata_internal_stream_destroy(self->device, self->waiting, &stream_ended);
        for (int i = 0; i < DESTROY_TRIES && !pool_ended; i++)
            pool_ended = destroy_pool(self);
    }
    strata_pending_frees_destroy(&self->retired);
    strata_lock_destroy(&self->lock);
    strata_host_free(self);
}

static const strata_resource_ops async_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(strata_pending_free),
    .name = "async",
    .allocate = async_allocate,
    .deallocate = async_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = async_reap,
    .trim = async_trim,
    .usage = async_usage,
    .charge = async_charge,
    .capabilities = async_capabilities,
    .find = async_find,
    .destroy = async_destroy,
    .device = async_device,
    .reusable = async_reusable,
    .sum_frees = async_sum_frees,
    .give_back = async_give_back,
    .outlives_context = true,
};

CUmemoryPool strata_async_pool_handle(const strata_resource *resource)
{
    bool is_async = resource && resource->ops->destroy == async_destroy;
    return is_async ? ((const async *)resource)->pool : NULL;
}

/* ---- making ---- */

static strata_status set_attribute(CUmemoryPool pool, CUmemPool_attribute attribute, void *value, const char *name)
{
    CUresult result = strata_cu.MemPoolSetAttribute(pool, attribute, value);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, "cuMemPoolSetAttribute", "setting %s of a pool", name);
}

static strata_status set_switch(CUmemoryPool pool, CUmemPool_attribute attribute, strata_switch value, const char *name)
{
    if (value == STRATA_SWITCH_DEFAULT)
        return STRATA_SUCCESS;
    int on = value == STRATA_SWITCH_ON;
    return set_attribute(pool, attribute, &on, name);
}

static strata_status fail_to_prime(const async *self, CUresult result, const char *call, uint64_t bytes)
{
    char beside[STRATA_NEIGHBOURS_TEXT];
    strata_neighbours_describe(self->device, NULL, beside);
    return strata_fail_driver(result, call, "async: reserving the initial size of %s: free on device %d %s of %s%s",
                              strata_size_text(bytes).text, self->device->ordinal,
                              strata_size_text(strata_device_free_bytes(self->device)).text,
                              strata_size_text(self->device->info.total_bytes).text, beside);
}

/* Allocates `bytes` once; the threshold keeps them in the pool. */
static strata_status prime(async *self, uint64_t bytes)
{
    CUdeviceptr address;
    CUstream stream;
    if (!bytes)
        return STRATA_SUCCESS;
    CUresult result = strata_cu.StreamCreate(&stream, CU_STREAM_NON_BLOCKING);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuStreamCreate", "reserving the initial size of a pool");
    strata_reclaim reclaim = {.device = self->device, .owner = &self->resource, .bytes = bytes};
    do
        result = strata_cu.MemAllocFromPoolAsync(&address, (size_t)bytes, self->pool, stream);
    while (result == CUDA_ERROR_OUT_OF_MEMORY && strata_reclaim_try_all(&reclaim));
    const char *call = "cuMemAllocFromPoolAsync";
    if (result == CUDA_SUCCESS) {
        call = "cuMemFreeAsync";
        result = strata_cu.MemFreeAsync(address, stream);
        CUresult waited = strata_cu.StreamSynchronize(stream);
        result = result == CUDA_SUCCESS ? waited : result;
    }
    strata_cu.StreamDestroy(stream);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS : fail_to_prime(self, result, call, bytes);
}

static strata_status configure(async *self, const strata_async_options *options)
{
    cuuint64_t threshold = options->release_threshold ? options->release_threshold : UINT64_MAX;
    if (options->release_all)
        threshold = 0;
    strata_status status =
        set_attribute(self->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &threshold, "the release threshold");
    if (status == STRATA_SUCCESS)
        status = set_switch(self->pool, CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
                            options->follow_event_dependencies, "follow_event_dependencies");
    if (status == STRATA_SUCCESS)
        status =
            set_switch(self->pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC, options->opportunistic, "opportunistic");
    if (status == STRATA_SUCCESS)
        status = set_switch(self->pool, CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
                            options->internal_dependencies, "internal_dependencies");
    return status == STRATA_SUCCESS ? prime(self, options->initial_size) : status;
}

/* A further failure is logged; the first one stays the last error. */
static void drop_pool(CUmemoryPool pool)
{
    strata_error kept = *strata_error_in_force();
    CUresult result = strata_cu.MemPoolDestroy(pool);
    if (result == CUDA_SUCCESS)
        return;
    strata_fail_driver(result, "cuMemPoolDestroy", "destroying a pool, which remains until the process ends");
    *strata_error_begin(kept.status) = kept;
}

static strata_status make_pool(async *self, const strata_async_options *options)
{
    static const CUmemAllocationHandleType handle_types[] = {
        CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, CU_MEM_HANDLE_TYPE_FABRIC};
    CUmemPoolProps properties = {
        .allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
        .handleTypes = handle_types[options->export_type],
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = self->device->ordinal},
        .maxSize = (size_t)options->max_size,
    };
    CUresult result = strata_cu.MemPoolCreate(&self->pool, &properties);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuMemPoolCreate", "making a pool on device %d", self->device->ordinal);
    self->own_pool = true;
    const uint64_t most = UINT64_MAX / RESERVE_GRANULE * RESERVE_GRANULE;
    self->limit =
        options->max_size < most ? (options->max_size + RESERVE_GRANULE - 1) / RESERVE_GRANULE * RESERVE_GRANULE : most;
    strata_status status = configure(self, options);
    if (status != STRATA_SUCCESS)
        drop_pool(self->pool);
    return status;
}

static strata_status view_pool(async *self, const strata_async_options *options)
{
    if (options->release_threshold || options->release_all || options->initial_size || options->max_size ||
        options->follow_event_dependencies || options->opportunistic || options->internal_dependencies ||
        options->export_type)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "options need pool=own: a view does not change its pool");
    CUresult result = CUDA_SUCCESS;
    if (options->pool == STRATA_ASYNC_POOL_GIVEN)
        self->pool = options->given;
    else if (options->pool == STRATA_ASYNC_POOL_DEFAULT)
        result = strata_cu.DeviceGetDefaultMemPool(&self->pool, self->device->handle);
    else
        result = strata_cu.DeviceGetMemPool(&self->pool, self->device->handle);
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuDeviceGetMemPool", "looking up a pool of device %d",
                                  self->device->ordinal);
    return self->pool ? STRATA_SUCCESS : strata_fail(STRATA_ERROR_INVALID_VALUE, "async: pool is NULL");
}

static bool is_switch(strata_switch value)
{
    return (unsigned)value <= STRATA_SWITCH_OFF;
}

static strata_status check_options(const strata_async_options *options)
{
    const char *problem = NULL;
    if ((unsigned)options->pool > STRATA_ASYNC_POOL_GIVEN || (unsigned)options->export_type > STRATA_EXPORT_FABRIC)
        problem = "invalid pool or export type";
    else if (!is_switch(options->follow_event_dependencies) || !is_switch(options->opportunistic) ||
             !is_switch(options->internal_dependencies))
        problem = "invalid switch: expected default, on or off";
    else if (options->given && options->pool != STRATA_ASYNC_POOL_GIVEN)
        problem = "a pool is given but not chosen: set pool to STRATA_ASYNC_POOL_GIVEN";
    else if (options->release_all && options->release_threshold)
        problem = "release_all and release_threshold cannot be combined";
    if (problem)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "async: %s", problem);
    if (options->max_size && options->initial_size > options->max_size)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "async: initial_size (%s) exceeds max_size (%s)",
                           strata_size_text(options->initial_size).text, strata_size_text(options->max_size).text);
    return STRATA_SUCCESS;
}

static strata_status check_device(const strata_device *device, const strata_async_options *options)
{
    const strata_device_info *info = &device->info;
    if (!info->memory_pools)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "device %d has no memory pools; use direct", device->ordinal);
    if ((options->export_type == STRATA_EXPORT_POSIX_FD && !info->fd_handles) ||
        (options->export_type == STRATA_EXPORT_FABRIC && !info->fabric_handles))
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "device %d does not support this export type", device->ordinal);
    return STRATA_SUCCESS;
}

strata_status strata_async_create(int ordinal, const strata_async_options *given, strata_resource **out)
{
    strata_async_options options;
    strata_device *device;
    strata_status status = strata_options_begin("async", out, &options, sizeof options, given);
    if (status == STRATA_SUCCESS)
        status = check_options(&options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status == STRATA_SUCCESS)
        status = check_device(device, &options);
    if (status != STRATA_SUCCESS)
        return status;
    async *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("an async resource");
    self->resource.ops = &async_ops;
    self->device = device;
    strata_call_scope scope;
    status = strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status == STRATA_SUCCESS) {
        status = options.pool == STRATA_ASYNC_POOL_OWN ? make_pool(self, &options) : view_pool(self, &options);
        strata_call_scope_leave(&scope);
    }
    if (status != STRATA_SUCCESS) {
        strata_host_free(self);
        return status;
    }
    strata_pending_frees_init(&self->retired, &self->resource, CHARGE_GRANULE);
    strata_lock_init(&self->lock, STRATA_RANK_OWNER);
    *out = &self->resource;
    return STRATA_SUCCESS;
}

/* ---- stack texts: a text fills the options struct ---- */

#define SWITCHES "default|on|off"

static const strata_option async_text_options[] = {
    {"pool", STRATA_OPTION_CHOICE, offsetof(strata_async_options, pool), "own|default|current",
     "its own pool, or a view of the device's default or current one"},
    {"release_threshold", STRATA_OPTION_SIZE, offsetof(strata_async_options, release_threshold), NULL,
     "bytes kept at a synchronization; default: all"},
    {"release_all", STRATA_OPTION_BOOL, offsetof(strata_async_options, release_all), NULL,
     "keep nothing at a synchronization"},
    {"initial_size", STRATA_OPTION_SIZE, offsetof(strata_async_options, initial_size), NULL,
     "bytes reserved when the layer is made"},
    {"max_size", STRATA_OPTION_SIZE, offsetof(strata_async_options, max_size), NULL, "most bytes reserved"},
    {"follow_event_dependencies", STRATA_OPTION_CHOICE, offsetof(strata_async_options, follow_event_dependencies),
     SWITCHES, "reuse memory that events have ordered"},
    {"opportunistic", STRATA_OPTION_CHOICE, offsetof(strata_async_options, opportunistic), SWITCHES,
     "reuse memory whose work has finished"},
    {"internal_dependencies", STRATA_OPTION_CHOICE, offsetof(strata_async_options, internal_dependencies), SWITCHES,
     "let the driver add waits in order to reuse"},
    {"export", STRATA_OPTION_CHOICE, offsetof(strata_async_options, export_type), "none|fd|fabric",
     "export handles for other processes"},
};

static strata_status make_async(int device, const void *options, strata_resource **out)
{
    return strata_async_create(device, options, out);
}

const strata_layer strata_async_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "async",
    .help = "the driver's stream-ordered pools",
    .options = async_text_options,
    .option_count = sizeof async_text_options / sizeof async_text_options[0],
    .options_size = sizeof(strata_async_options),
    .create = make_async,
    .in_sanitizer_mode = "direct",
};
