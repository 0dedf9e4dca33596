/* Pools of memory for captures: their blocks, their end, and the calls on them. */
#include "runtime/capture_pool.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/streams/internal_streams.h"
#include "core/streams/stream_map.h"

#include <string.h>

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

typedef struct strata_pool_block {
    uint32_t slot;
    strata_capture_segment *segment;
    strata_capture_range *range;
    strata_block block;
    UT_hash_handle hh;
} pool_block;

static void lock(strata_runtime *runtime)
{
    strata_lock_take(&runtime->captures.lock);
}

static void unlock(strata_runtime *runtime)
{
    strata_lock_release(&runtime->captures.lock);
}

/* ---- making and ending ---- */

static strata_status check_state(const strata_device_record *record, uint64_t word, const char *what)
{
    return strata_device_record_is_current(record, word)
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_STALE, "%s is stale: its device's context was rebuilt, or is shutting down",
                             what);
}

strata_status strata_capture_pool_check(const strata_capture_pool *pool)
{
    return check_state(pool->record, pool->word, "the capture pool");
}

static strata_status open_pool(strata_capture_pool *pool, const char *name)
{
    strata_runtime *runtime = pool->runtime;
    strata_device_record *record = strata_device_state_record(runtime->state);
    pool->word = atomic_load_explicit(&record->word, memory_order_acquire);
    strata_status status = check_state(record, pool->word & ~STRATA_RECORD_FLAGS, "a new capture pool");
    if (status == STRATA_SUCCESS)
        status = strata_tag_intern(name ? name : "capture", &pool->tag);
    if (status == STRATA_SUCCESS)
        status = strata_internal_stream_create(runtime->device, false, "a stream of a capture pool", &pool->stream);
    if (status != STRATA_SUCCESS)
        return status;
    pool->record = record;
    pool->timeline = strata_known_timeline(runtime->device, pool->stream);
    return STRATA_SUCCESS;
}

strata_status strata_capture_pool_make(strata_runtime *runtime, const char *name, strata_capture_pool **out)
{
    *out = NULL;
    strata_capture_pool *pool = strata_host_zalloc(sizeof *pool);
    if (!pool)
        return strata_fail_host_memory("a capture pool");
    pool->runtime = runtime;
    pool->holders = 1;
    const strata_status status = open_pool(pool, name);
    if (status != STRATA_SUCCESS) {
        strata_host_free(pool);
        return status;
    }
    strata_lock_init(&pool->launches, STRATA_RANK_GRAPH_LAUNCHES);
    lock(runtime);
    pool->number = ++runtime->captures.last_number;
    pool->next = runtime->captures.pools;
    runtime->captures.pools = pool;
    atomic_store_explicit(&runtime->captures.used, true, memory_order_release);
    unlock(runtime);
    *out = pool;
    return STRATA_SUCCESS;
}

void strata_capture_pool_hold(strata_capture_pool *pool)
{
    lock(pool->runtime);
    pool->holders++;
    unlock(pool->runtime);
}

/* What nobody holds is the caller's alone, but for a search by number or address, which finds only what is held. */
static strata_status free_segments(strata_capture_pool *pool)
{
    strata_runtime *runtime = pool->runtime;
    strata_status status = STRATA_SUCCESS;
    for (strata_capture_segment *segment = pool->ranges.segments; segment; segment = segment->next) {
        strata_entry *entry = strata_table_lookup(runtime->table, segment->block.id);
        if (strata_block_is_empty(&segment->block) || !entry)
            continue;
        strata_entry_unkeep(entry, segment->block.id.generation);
        const strata_status freed = strata_free_from_top_on_own_stream(runtime->top, &segment->block);
        if (freed == STRATA_SUCCESS)
            segment->block = (strata_block){0};
        else
            strata_entry_keep(entry, segment->block.id.generation);
        status = status == STRATA_SUCCESS ? freed : status;
    }
    return status;
}

static void release_buffers(struct strata_ref **buffers, size_t count)
{
    for (size_t i = 0; i < count; i++)
        strata_ref_release(buffers[i]);
    strata_host_free(buffers);
}

static void remove_pool(strata_capture_pool *pool)
{
    lock(pool->runtime);
    strata_capture_pool **link = &pool->runtime->captures.pools;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    unlock(pool->runtime);
}

/* On an error the pool stays in the list, for another try. */
static strata_status end_pool(strata_capture_pool *pool)
{
    release_buffers(pool->buffers, pool->buffer_count);
    pool->buffers = NULL;
    pool->buffer_count = 0;
    strata_status status = free_segments(pool);
    if (status != STRATA_SUCCESS)
        return status;
    bool gone = true;
    if (strata_device_is_usable(pool->runtime->device))
        status = strata_internal_stream_destroy(pool->runtime->device, pool->stream, &gone);
    if (!gone)
        return status;
    remove_pool(pool);
    strata_capture_ranges_free(&pool->ranges);
    strata_lock_destroy(&pool->launches);
    strata_host_free(pool);
    return status;
}

strata_status strata_capture_pool_unhold(strata_capture_pool *pool)
{
    lock(pool->runtime);
    const bool last = --pool->holders == 0;
    unlock(pool->runtime);
    return last ? end_pool(pool) : STRATA_SUCCESS;
}

strata_status strata_capture_pools_end(strata_runtime *runtime)
{
    strata_status status = STRATA_SUCCESS;
    strata_capture_pool *pool;
    do {
        lock(runtime);
        pool = runtime->captures.pools;
        while (pool && pool->holders)
            pool = pool->next;
        unlock(runtime);
        status = pool ? end_pool(pool) : STRATA_SUCCESS;
    } while (pool && status == STRATA_SUCCESS);
    return status;
}

/* ---- blocks ---- */

/* A segment of its own for what is large, so that little is held beyond it. */
static size_t segment_bytes(size_t bytes)
{
    return bytes <= STRATA_CAPTURE_SEGMENT_SMALL / 2 ? STRATA_CAPTURE_SEGMENT_SMALL : bytes;
}

static strata_status add_segment(strata_capture_pool *pool, size_t bytes, size_t alignment)
{
    strata_runtime *runtime = pool->runtime;
    const strata_request request = {.bytes = segment_bytes(bytes),
                                    .stream = pool->stream,
                                    .alignment = alignment > STRATA_CAPTURE_GRAIN ? alignment : 0,
                                    .tag = pool->tag};
    strata_block block;
    strata_status status = strata_resource_allocate(runtime->top, &request, &block);
    if (status != STRATA_SUCCESS)
        return status;
    block.bytes &= ~(size_t)(STRATA_CAPTURE_GRAIN - 1); /* the ranges' part; the free needs the true size */
    const strata_block part = block;
    strata_entry *entry = strata_table_lookup(runtime->table, block.id);
    block.bytes = (size_t)atomic_load_explicit(&entry->bytes, memory_order_relaxed);
    lock(runtime);
    const bool added = strata_entry_keep(entry, block.id.generation) && strata_capture_ranges_add(&pool->ranges, &part);
    if (added)
        pool->ranges.segments->block = block;
    unlock(runtime);
    if (added)
        return STRATA_SUCCESS;
    strata_entry_unkeep(entry, block.id.generation);
    strata_free_from_top_on_own_stream(runtime->top, &block);
    return strata_fail_host_memory("a segment of a capture pool");
}

/* Gives the range an identity. The lock is held. False without host memory. */
static bool publish(strata_capture_pool *pool, strata_capture_segment *segment, strata_capture_range *range,
                    const strata_request *request, strata_block *out)
{
    strata_table *table = pool->runtime->table;
    pool_block *one = strata_host_zalloc(sizeof *one);
    const uint32_t slot = one ? strata_table_take_slot(table) : 0;
    if (!slot) {
        strata_host_free(one);
        return false;
    }
    const size_t alignment = request->alignment > STRATA_CAPTURE_GRAIN ? request->alignment : STRATA_CAPTURE_GRAIN;
    strata_block_fill(out, request, range->address, range->bytes, alignment);
    strata_entry_publish(table, slot, pool->timeline, true, out);
    strata_entry_keep(strata_table_entry(table, slot), out->id.generation);
    *one = (pool_block){.slot = slot, .segment = segment, .range = range, .block = *out};
    HASH_ADD(hh, pool->blocks, slot, sizeof one->slot, one);
    if (one->hh.tbl) {
        pool->live_blocks++;
        pool->holders++;
        return true;
    }
    strata_entry_destroy(table, strata_table_entry(table, slot), slot);
    strata_host_free(one);
    return false;
}

/* *taken: false if no memory fits. */
static strata_status take(strata_capture_pool *pool, const strata_request *request, size_t bytes, size_t alignment,
                          strata_capture_place *place, bool *taken, strata_block *out, strata_block *segment)
{
    strata_capture_segment *where;
    bool failed, sealed;
    lock(pool->runtime);
    sealed = pool->sealed;
    strata_capture_range *range =
        sealed ? NULL : strata_capture_ranges_take(&pool->ranges, bytes, alignment, place, &where, &failed);
    if (range && !publish(pool, where, range, request, out)) {
        strata_capture_ranges_give(&pool->ranges, where, range);
        range = NULL;
        failed = true;
    }
    *taken = range != NULL;
    if (range)
        *segment = where->block;
    unlock(pool->runtime);
    if (sealed)
        return strata_fail(STRATA_ERROR_SEALED, "the capture pool \"%s\" is sealed; unseal it to allocate from it",
                           strata_tag_name(pool->tag));
    return failed ? strata_fail_host_memory("a block of a capture pool") : STRATA_SUCCESS;
}

static strata_status check_request(const strata_request *request, size_t *bytes, size_t *alignment)
{
    *alignment = request->alignment > STRATA_CAPTURE_GRAIN ? request->alignment : STRATA_CAPTURE_GRAIN;
    if (*alignment & (*alignment - 1))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "alignment of %zu bytes is not a power of two",
                           request->alignment);
    if (request->bytes > SIZE_MAX / 2)
        return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "%zu bytes are more than any device has", request->bytes);
    *bytes = (request->bytes + STRATA_CAPTURE_GRAIN - 1) & ~(size_t)(STRATA_CAPTURE_GRAIN - 1);
    return STRATA_SUCCESS;
}

strata_status strata_capture_pool_allocate(strata_capture_pool *pool, const strata_request *request,
                                           strata_capture_place *place, strata_block *out, strata_block *segment)
{
    size_t bytes = 0, alignment = 0;
    bool taken = false;
    strata_status status = strata_capture_pool_check(pool);
    if (status == STRATA_SUCCESS)
        status = check_request(request, &bytes, &alignment);
    if (status == STRATA_SUCCESS)
        status = take(pool, request, bytes, alignment, place, &taken, out, segment);
    while (status == STRATA_SUCCESS && !taken) { /* another thread may take the new segment */
        status = add_segment(pool, bytes, alignment);
        if (status == STRATA_SUCCESS)
            status = take(pool, request, bytes, alignment, place, &taken, out, segment);
    }
    return status;
}

static bool is_block(const pool_block *one, strata_block_id id)
{
    return one && one->block.id.generation == id.generation;
}

bool strata_pool_block_find(strata_runtime *runtime, strata_block_id id, strata_pool_place *out)
{
    for (strata_capture_pool *pool = runtime->captures.pools; pool; pool = pool->next) {
        pool_block *one;
        HASH_FIND(hh, pool->blocks, &id.slot, sizeof id.slot, one);
        if (!is_block(one, id))
            continue;
        *out = (strata_pool_place){.pool = pool, .segment = one->segment, .range = one->range, .block = one->block};
        return true;
    }
    return false;
}

bool strata_pool_block_at(strata_runtime *runtime, CUdeviceptr address, strata_pool_place *out)
{
    for (strata_capture_pool *pool = runtime->captures.pools; pool; pool = pool->next)
        for (pool_block *one = pool->blocks; one; one = one->hh.next)
            if (address - one->block.address < one->block.bytes) {
                *out = (strata_pool_place){
                    .pool = pool, .segment = one->segment, .range = one->range, .block = one->block};
                return true;
            }
    return false;
}

bool strata_pool_has_segment(const strata_runtime *runtime, strata_block_id id)
{
    for (const strata_capture_pool *pool = runtime->captures.pools; pool; pool = pool->next)
        for (const strata_capture_segment *one = pool->ranges.segments; one; one = one->next)
            if (one->block.id.slot == id.slot && one->block.id.generation == id.generation)
                return true;
    return false;
}

strata_status strata_pool_block_free(strata_pool_place *place, const strata_block *block, cuuint64_t capture,
                                     CUstream stream, bool plain, strata_nodes *after)
{
    strata_capture_pool *pool = place->pool;
    strata_table *table = pool->runtime->table;
    strata_entry *entry;
    const strata_status status = strata_entry_retire_kept(table, block, &entry);
    if (status != STRATA_SUCCESS)
        return status;
    pool_block *one;
    HASH_FIND(hh, pool->blocks, &block->id.slot, sizeof block->id.slot, one);
    HASH_DEL(pool->blocks, one);
    strata_host_free(one);
    pool->live_blocks--;
    strata_entry_destroy(table, entry, block->id.slot);
    if (after)
        strata_capture_ranges_give_within(&pool->ranges, place->segment, place->range, capture, stream, plain, after);
    else
        strata_capture_ranges_give(&pool->ranges, place->segment, place->range);
    return STRATA_SUCCESS;
}

strata_status strata_pool_blocks_visit(strata_capture_pool *pool, const strata_block *segment,
                                       strata_status (*use)(const strata_block *block, void *data), void *data)
{
    strata_status status = STRATA_SUCCESS;
    for (pool_block *one = pool->blocks; one && status == STRATA_SUCCESS; one = one->hh.next)
        if (one->segment->block.id.slot == segment->id.slot)
            status = use(&one->block, data);
    return status;
}

/* ---- calls ---- */

static strata_status refuse_null(const char *call)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: an argument is NULL", call);
}

strata_status strata_capture_pool_create(strata_runtime *runtime, const char *name, strata_capture_pool **out)
{
    if (!out)
        return refuse_null("strata_capture_pool_create");
    *out = NULL;
    strata_status status = strata_check_runtime_now(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_capture_pool_make(runtime, name, out);
    if (status == STRATA_SUCCESS)
        (*out)->handles = 1;
    return status;
}

strata_status strata_capture_pool_release(strata_capture_pool *pool)
{
    const strata_status status = strata_check_not_forked();
    if (!pool || status != STRATA_SUCCESS)
        return status;
    lock(pool->runtime);
    const bool has = pool->handles > 0;
    pool->handles -= has;
    unlock(pool->runtime);
    return has ? strata_capture_pool_unhold(pool)
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "strata_capture_pool_release: all handles of the pool were given back");
}

static strata_status check_open(const strata_capture_pool *pool, const char *call)
{
    return pool->sealed ? strata_fail(STRATA_ERROR_SEALED, "%s: the capture pool \"%s\" is sealed", call,
                                      strata_tag_name(pool->tag))
                        : STRATA_SUCCESS;
}

/* The lock is held. */
static bool reserve_buffer(strata_capture_pool *pool)
{
    if (pool->buffer_count < pool->buffer_room)
        return true;
    const size_t room = pool->buffer_room ? 2 * pool->buffer_room : 8;
    struct strata_ref **buffers = strata_host_zalloc(room * sizeof(struct strata_ref *));
    if (!buffers)
        return false;
    if (pool->buffer_count)
        memcpy(buffers, pool->buffers, pool->buffer_count * sizeof(struct strata_ref *));
    strata_host_free(pool->buffers);
    pool->buffers = buffers;
    pool->buffer_room = room;
    return true;
}

strata_status strata_capture_pool_record_buffer(strata_capture_pool *pool, strata_ref *ref)
{
    if (!pool || !ref)
        return refuse_null("strata_capture_pool_record_buffer");
    strata_status status = strata_check_driver();
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    lock(pool->runtime);
    status = check_open(pool, "strata_capture_pool_record_buffer");
    if (status == STRATA_SUCCESS && !reserve_buffer(pool))
        status = strata_fail_host_memory("a buffer of a capture pool");
    if (status == STRATA_SUCCESS)
        pool->buffers[pool->buffer_count++] = strata_ref_clone(ref);
    unlock(pool->runtime);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

size_t strata_capture_pool_buffer_count(const strata_capture_pool *pool)
{
    if (!pool)
        return 0;
    lock(pool->runtime);
    const size_t count = pool->buffer_count;
    unlock(pool->runtime);
    return count;
}

strata_status strata_capture_pool_clear_buffers(strata_capture_pool *pool)
{
    if (!pool)
        return refuse_null("strata_capture_pool_clear_buffers");
    struct strata_ref **buffers = NULL;
    size_t count = 0;
    strata_error_suppress_begin();
    lock(pool->runtime);
    const strata_status status = check_open(pool, "strata_capture_pool_clear_buffers");
    if (status == STRATA_SUCCESS) {
        buffers = pool->buffers;
        count = pool->buffer_count;
        pool->buffers = NULL;
        pool->buffer_count = pool->buffer_room = 0;
    }
    unlock(pool->runtime);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    release_buffers(buffers, count);
    return status;
}

static strata_status set_sealed(strata_capture_pool *pool, bool sealed, const char *call)
{
    if (!pool)
        return refuse_null(call);
    lock(pool->runtime);
    pool->sealed = sealed;
    unlock(pool->runtime);
    return STRATA_SUCCESS;
}

strata_status strata_capture_pool_seal(strata_capture_pool *pool)
{
    return set_sealed(pool, true, "strata_capture_pool_seal");
}

strata_status strata_capture_pool_unseal(strata_capture_pool *pool)
{
    return set_sealed(pool, false, "strata_capture_pool_unseal");
}

bool strata_capture_pool_is_sealed(const strata_capture_pool *pool)
{
    if (!pool)
        return false;
    lock(pool->runtime);
    const bool sealed = pool->sealed;
    unlock(pool->runtime);
    return sealed;
}

strata_status strata_capture_pool_get_usage(const strata_capture_pool *pool, strata_capture_pool_usage *usage)
{
    if (!pool || !usage)
        return refuse_null("strata_capture_pool_get_usage");
    lock(pool->runtime);
    *usage = (strata_capture_pool_usage){
        .reserved = pool->ranges.reserved, .in_use = pool->ranges.in_use, .live_blocks = pool->live_blocks};
    unlock(pool->runtime);
    return STRATA_SUCCESS;
}

uint64_t strata_graph_pool_handle(const strata_capture_pool *pool)
{
    return pool ? pool->number : 0;
}

/* The lock is held. */
static strata_capture_pool *find_pool(strata_runtime *runtime, uint64_t handle)
{
    strata_capture_pool *pool = runtime->captures.pools;
    while (pool && (pool->number != handle || !pool->holders))
        pool = pool->next;
    return pool;
}

static strata_status refuse_handle(uint64_t handle)
{
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "the runtime has no capture pool with handle %llu",
                       (unsigned long long)handle);
}

strata_status strata_capture_pool_for_handle(strata_runtime *runtime, uint64_t handle, strata_capture_pool **out)
{
    if (!runtime || !out)
        return refuse_null("strata_capture_pool_for_handle");
    lock(runtime);
    strata_capture_pool *pool = *out = find_pool(runtime, handle);
    if (pool) {
        pool->holders++;
        pool->handles++;
    }
    unlock(runtime);
    return pool ? STRATA_SUCCESS : refuse_handle(handle);
}

strata_status strata_release_graph_pool_handle(strata_runtime *runtime, uint64_t handle)
{
    if (!runtime)
        return refuse_null("strata_release_graph_pool_handle");
    lock(runtime);
    strata_capture_pool *pool = find_pool(runtime, handle);
    unlock(runtime);
    return pool ? strata_capture_pool_release(pool) : refuse_handle(handle);
}
