/* The end of capture pools, and the calls on them. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/calls.h"
#include "core/streams/internal_streams.h"
#include "runtime/capture_blocks.h"
#include "runtime/capture_mempool.h"

#include <string.h>

/* ---- the end ---- */

/* Frees the segments of a pool without holders, which is the caller's alone: a search by number or address finds only
 * what is held. */
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
    strata_captures_lock(&pool->runtime->captures);
    strata_capture_pool **link = &pool->runtime->captures.pools;
    while (*link != pool)
        link = &(*link)->next;
    *link = pool->next;
    strata_captures_unlock(&pool->runtime->captures);
}

static strata_status leave(strata_capture_pool *pool, strata_status status)
{
    strata_captures_lock(&pool->runtime->captures);
    pool->left = true;
    pool->runtime->captures.pools_left++;
    strata_captures_unlock(&pool->runtime->captures);
    return status;
}

strata_status strata_capture_pool_destroy(strata_capture_pool *pool)
{
    release_buffers(pool->buffers, pool->buffer_count);
    pool->buffers = NULL;
    pool->buffer_count = 0;
    strata_status status = free_segments(pool);
    if (status == STRATA_SUCCESS)
        status = strata_capture_mempool_destroy(pool);
    if (status != STRATA_SUCCESS)
        return leave(pool, status);
    bool gone = true;
    if (pool->stream && strata_device_is_usable(pool->runtime->device))
        status = strata_internal_stream_destroy(pool->runtime->device, pool->stream, &gone);
    if (!gone)
        return leave(pool, status);
    remove_pool(pool);
    strata_capture_ranges_free(&pool->ranges);
    strata_pool_blocks_destroy(pool);
    strata_lock_destroy(&pool->launches);
    strata_host_free(pool);
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
    strata_captures_lock(&pool->runtime->captures);
    const bool has = pool->handles > 0;
    pool->handles -= has;
    strata_captures_unlock(&pool->runtime->captures);
    return has ? strata_capture_pool_unhold(pool)
               : strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "strata_capture_pool_release: all handles of the pool were given back");
}

static strata_status check_open(const strata_capture_pool *pool, const char *call)
{
    return pool->sealed ? strata_fail(STRATA_ERROR_SEALED, "%s: the capture pool \"%s\" is sealed", call,
                                      strata_tag_name(strata_capture_pool_tag(pool)))
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

/* A pool that kept its own memory would never end. The lock is held. */
static strata_status check_buffer(const strata_capture_pool *pool, const strata_ref *ref)
{
    const strata_pool_block *one = strata_pool_block_find(pool->runtime, ref->whole->block.id);
    return one && one->pool == pool ? strata_fail(STRATA_ERROR_INVALID_VALUE,
                                                  "strata_capture_pool_record_buffer: the reference is to memory of "
                                                  "this pool \"%s\", which keeps it anyhow",
                                                  strata_tag_name(strata_capture_pool_tag(pool)))
                                    : STRATA_SUCCESS;
}

strata_status strata_capture_pool_record_buffer(strata_capture_pool *pool, strata_ref *ref)
{
    if (!pool || !ref)
        return refuse_null("strata_capture_pool_record_buffer");
    strata_status status = strata_check_driver();
    if (status == STRATA_SUCCESS)
        status = strata_reference_check_local(ref, "strata_capture_pool_record_buffer");
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    strata_captures_lock(&pool->runtime->captures);
    status = check_open(pool, "strata_capture_pool_record_buffer");
    if (status == STRATA_SUCCESS)
        status = check_buffer(pool, ref);
    if (status == STRATA_SUCCESS && !reserve_buffer(pool))
        status = strata_fail_host_memory("a buffer of a capture pool");
    if (status == STRATA_SUCCESS)
        pool->buffers[pool->buffer_count++] = strata_ref_clone(ref);
    strata_captures_unlock(&pool->runtime->captures);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* In a forked child a thread that it lacks may have the lock. */
static bool can_look_at(const strata_capture_pool *pool)
{
    return pool && strata_driver_state_now() != STRATA_DRIVER_FORKED;
}

size_t strata_capture_pool_buffer_count(const strata_capture_pool *pool)
{
    if (!can_look_at(pool))
        return 0;
    strata_captures_lock(&pool->runtime->captures);
    const size_t count = pool->buffer_count;
    strata_captures_unlock(&pool->runtime->captures);
    return count;
}

strata_status strata_capture_pool_clear_buffers(strata_capture_pool *pool)
{
    if (!pool)
        return refuse_null("strata_capture_pool_clear_buffers");
    struct strata_ref **buffers = NULL;
    size_t count = 0;
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    strata_captures_lock(&pool->runtime->captures);
    status = check_open(pool, "strata_capture_pool_clear_buffers");
    if (status == STRATA_SUCCESS) {
        buffers = pool->buffers;
        count = pool->buffer_count;
        pool->buffers = NULL;
        pool->buffer_count = pool->buffer_room = 0;
    }
    strata_captures_unlock(&pool->runtime->captures);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    release_buffers(buffers, count);
    return status;
}

static strata_status set_sealed(strata_capture_pool *pool, bool sealed, const char *call)
{
    if (!pool)
        return refuse_null(call);
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_captures_lock(&pool->runtime->captures);
    pool->sealed = sealed;
    strata_captures_unlock(&pool->runtime->captures);
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
    if (!can_look_at(pool))
        return false;
    strata_captures_lock(&pool->runtime->captures);
    const bool sealed = pool->sealed;
    strata_captures_unlock(&pool->runtime->captures);
    return sealed;
}

strata_status strata_capture_pool_get_usage(const strata_capture_pool *pool, strata_capture_pool_usage *usage)
{
    if (!pool || !usage)
        return refuse_null("strata_capture_pool_get_usage");
    *usage = (strata_capture_pool_usage){0};
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_captures_lock(&pool->runtime->captures);
    *usage = (strata_capture_pool_usage){
        .reserved = pool->ranges.reserved, .in_use = pool->ranges.in_use, .live_blocks = pool->live_blocks};
    strata_captures_unlock(&pool->runtime->captures);
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
    *out = NULL;
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_captures_lock(&runtime->captures);
    strata_capture_pool *pool = *out = find_pool(runtime, handle);
    if (pool) {
        pool->holders++;
        pool->handles++;
    }
    strata_captures_unlock(&runtime->captures);
    return pool ? STRATA_SUCCESS : refuse_handle(handle);
}

strata_status strata_release_graph_pool_handle(strata_runtime *runtime, uint64_t handle)
{
    if (!runtime)
        return refuse_null("strata_release_graph_pool_handle");
    const strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    strata_captures_lock(&runtime->captures);
    strata_capture_pool *pool = find_pool(runtime, handle);
    strata_captures_unlock(&runtime->captures);
    return pool ? strata_capture_pool_release(pool) : refuse_handle(handle);
}
