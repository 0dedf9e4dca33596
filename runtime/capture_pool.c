/* Making capture pools, and their memory. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/streams/internal_streams.h"
#include "core/streams/stream_map.h"
#include "runtime/capture_blocks.h"

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
    strata_tag tag = 0;
    if (status == STRATA_SUCCESS)
        status = strata_tag_intern(name ? name : "capture", &tag);
    pool->record = record;
    atomic_store_explicit(&pool->tag, tag, memory_order_relaxed);
    return status;
}

strata_status strata_capture_pool_make(strata_runtime *runtime, const char *name, strata_capture_pool **out)
{
    *out = NULL;
    strata_capture_pool *pool = strata_host_zalloc(sizeof *pool);
    if (!pool)
        return strata_fail_host_memory("a capture pool");
    pool->runtime = runtime;
    pool->holders = 1;
    const strata_status status =
        strata_pool_blocks_open(runtime) ? open_pool(pool, name) : strata_fail_host_memory("a capture pool");
    if (status != STRATA_SUCCESS) {
        strata_host_free(pool);
        return status;
    }
    strata_lock_init(&pool->launches, STRATA_RANK_GRAPH_LAUNCHES);
    strata_captures_lock(&runtime->captures);
    pool->number = ++runtime->captures.last_number;
    pool->next = runtime->captures.pools;
    runtime->captures.pools = pool;
    atomic_store_explicit(&runtime->captures.used, true, memory_order_release);
    strata_captures_unlock(&runtime->captures);
    *out = pool;
    return STRATA_SUCCESS;
}

void strata_capture_pool_hold(strata_capture_pool *pool)
{
    strata_captures_lock(&pool->runtime->captures);
    pool->holders++;
    strata_captures_unlock(&pool->runtime->captures);
}

strata_status strata_capture_pool_unhold(strata_capture_pool *pool)
{
    strata_captures_lock(&pool->runtime->captures);
    const bool last = --pool->holders == 0;
    strata_captures_unlock(&pool->runtime->captures);
    return last ? pool->runtime->captures.end_pool(pool) : STRATA_SUCCESS;
}

strata_status strata_capture_pools_reap(strata_runtime *runtime)
{
    strata_status status = STRATA_SUCCESS;
    strata_capture_pool *pool;
    do {
        strata_captures_lock(&runtime->captures);
        pool = runtime->captures.pools_left ? runtime->captures.pools : NULL;
        while (pool && !pool->left)
            pool = pool->next;
        if (pool) {
            pool->left = false;
            runtime->captures.pools_left--;
        }
        strata_captures_unlock(&runtime->captures);
        status = pool ? runtime->captures.end_pool(pool) : STRATA_SUCCESS;
    } while (pool && status == STRATA_SUCCESS);
    return status;
}

/* ---- blocks ---- */

/* The bytes of a segment for a request: a large request gets a segment of its own, so that little is held beyond it. */
static size_t segment_bytes(size_t bytes)
{
    return bytes <= STRATA_CAPTURE_SEGMENT_SMALL / 2 ? STRATA_CAPTURE_SEGMENT_SMALL : bytes;
}

/* Drops a stream that nothing has used. A failure is not the request's; there is no later opportunity. */
static __attribute__((cold)) void drop_surplus(const strata_runtime *runtime, CUstream stream)
{
    enum { DESTROY_TRIES = 3 };
    bool gone = false;
    strata_error_suppress_begin();
    for (int i = 0; i < DESTROY_TRIES && !gone; i++)
        strata_internal_stream_destroy(runtime->device, stream, &gone);
    strata_error_suppress_end(false);
}

/* The pool's stream, made for its first segment, since many graphs need no memory and there are 65,533 streams. Another
 * thread may be faster. */
static strata_status make_stream(strata_capture_pool *pool, CUstream *out)
{
    strata_runtime *runtime = pool->runtime;
    strata_captures_lock(&runtime->captures);
    *out = pool->stream;
    strata_captures_unlock(&runtime->captures);
    if (*out)
        return STRATA_SUCCESS;
    CUstream made;
    const strata_status status =
        strata_internal_stream_create(runtime->device, false, "a stream of a capture pool", &made);
    if (status != STRATA_SUCCESS)
        return status;
    strata_captures_lock(&runtime->captures);
    const bool first = !pool->stream;
    if (first) {
        pool->stream = made;
        pool->timeline = strata_known_timeline(runtime->device, made);
    }
    *out = pool->stream;
    strata_captures_unlock(&runtime->captures);
    if (!first)
        drop_surplus(runtime, made);
    return STRATA_SUCCESS;
}

/* What cannot be freed now is tried again by other calls. */
static __attribute__((cold)) void free_unentered(strata_runtime *runtime, const strata_block *block)
{
    strata_error_suppress_begin();
    const strata_status status = strata_free_from_top_on_own_stream(runtime->top, block);
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS)
        return;
    strata_captures_lock(&runtime->captures);
    strata_kept_add_due(&runtime->captures.kept, runtime->table, block);
    strata_captures_unlock(&runtime->captures);
}

static strata_status add_segment(strata_capture_pool *pool, size_t bytes, size_t alignment)
{
    strata_runtime *runtime = pool->runtime;
    CUstream stream;
    strata_status status = make_stream(pool, &stream);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_request request = {.bytes = segment_bytes(bytes),
                                    .stream = stream,
                                    .alignment = alignment > STRATA_CAPTURE_GRAIN ? alignment : 0,
                                    .tag = strata_capture_pool_tag(pool)};
    strata_block block;
    status = strata_resource_allocate(runtime->top, &request, &block);
    if (status != STRATA_SUCCESS)
        return status;
    strata_block part = block; /* the ranges'; the free needs the block as it is */
    part.bytes &= ~(size_t)(STRATA_CAPTURE_GRAIN - 1);
    strata_entry *entry = strata_table_lookup(runtime->table, block.id);
    strata_captures_lock(&runtime->captures);
    const bool added =
        strata_entry_keep(entry, block.id.generation) && strata_capture_ranges_add(&pool->ranges, &part, entry);
    if (added)
        pool->ranges.segments->block = block;
    strata_captures_unlock(&runtime->captures);
    if (added)
        return STRATA_SUCCESS;
    strata_entry_unkeep(entry, block.id.generation);
    free_unentered(runtime, &block);
    return strata_fail_host_memory("a segment of a capture pool");
}

static size_t alignment_of(const strata_request *request)
{
    return request->alignment > STRATA_CAPTURE_GRAIN ? request->alignment : STRATA_CAPTURE_GRAIN;
}

static size_t bytes_of(const strata_request *request)
{
    return (request->bytes + STRATA_CAPTURE_GRAIN - 1) & ~(size_t)(STRATA_CAPTURE_GRAIN - 1);
}

static __attribute__((cold)) strata_status refuse_take(const strata_capture_pool *pool, const strata_request *request)
{
    const strata_status status = strata_capture_pool_check(pool);
    if (status != STRATA_SUCCESS)
        return status;
    if (request->alignment & (request->alignment - 1))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "alignment of %zu bytes is not a power of two",
                           request->alignment);
    if (request->bytes > SIZE_MAX / 2)
        return strata_fail(STRATA_ERROR_OUT_OF_MEMORY, "%s is more than any device has",
                           strata_size_text(request->bytes).text);
    return strata_fail(STRATA_ERROR_SEALED, "the capture pool \"%s\" is sealed; unseal it to allocate from it",
                       strata_tag_name(strata_capture_pool_tag(pool)));
}

static inline bool may_take(const strata_capture_pool *pool, const strata_request *request)
{
    return strata_device_record_is_current(pool->record, pool->word) &&
           !(request->alignment & (request->alignment - 1)) && request->bytes <= SIZE_MAX / 2 && !pool->sealed;
}

strata_status strata_capture_pool_take(strata_capture_pool *pool, const strata_request *request,
                                       strata_capture_place *place, strata_block *block, strata_pool_block **out)
{
    bool failed;
    *out = NULL;
    if (__builtin_expect(!may_take(pool, request), 0))
        return refuse_take(pool, request);
    strata_capture_range *range =
        strata_capture_ranges_take(&pool->ranges, bytes_of(request), alignment_of(request), place, &failed);
    if (range) {
        *out = strata_pool_block_publish(pool, range, request, block);
        failed = !*out;
    }
    if (range && failed)
        strata_capture_ranges_give_barred(&pool->ranges, range, place->front->id);
    return failed ? strata_fail_host_memory("a block of a capture pool") : STRATA_SUCCESS;
}

strata_status strata_capture_pool_grow(strata_capture_pool *pool, const strata_request *request)
{
    return add_segment(pool, bytes_of(request), alignment_of(request));
}

bool strata_pool_has_segment(const strata_runtime *runtime, strata_block_id id)
{
    for (const strata_capture_pool *pool = runtime->captures.pools; pool; pool = pool->next)
        for (const strata_capture_segment *one = pool->ranges.segments; one; one = one->next)
            if (one->block.id.slot == id.slot && one->block.id.generation == id.generation)
                return true;
    return false;
}
