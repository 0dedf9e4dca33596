/* Pools of memory for captures, and their blocks. */
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

/* ---- making ---- */

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

strata_status strata_capture_pool_unhold(strata_capture_pool *pool)
{
    lock(pool->runtime);
    const bool last = --pool->holders == 0;
    unlock(pool->runtime);
    return last ? pool->runtime->captures.end_pool(pool) : STRATA_SUCCESS;
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
    strata_block part = block; /* the ranges'; the free needs the block as it is */
    part.bytes &= ~(size_t)(STRATA_CAPTURE_GRAIN - 1);
    strata_entry *entry = strata_table_lookup(runtime->table, block.id);
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
        atomic_fetch_add_explicit(&pool->changes, 1, memory_order_release);
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
    atomic_fetch_add_explicit(&pool->changes, 1, memory_order_release);
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
