/* Memory of captures: requests and frees on streams that Strata captures, and frees of kept blocks. */
#include "core/base/host_memory.h"
#include "core/stack/calls.h"
#include "core/streams/stream_map.h"
#include "runtime/capture_blocks.h"
#include "runtime/captured.h"

/* ---- memory ---- */

/* Notes a new block as written, and the first time its segment as used. */
static inline strata_status note_block(strata_capture *capture, strata_pool_block *one, strata_capture_place *place)
{
    strata_capture_segment *segment = one->range->segment;
    if (segment->within != capture->id && !strata_capture_find_use(&capture->uses, segment->block.id)) {
        strata_capture_use *whole = strata_capture_add_use(&capture->uses, &segment->block, STRATA_CAPTURE_SEGMENT);
        if (!whole)
            return strata_fail_host_memory("a segment of a capture");
        whole->access = STRATA_ACCESS_WRITE;
        whole->pool = capture->pool;
    }
    segment->within = capture->id;
    const strata_status status = strata_capture_mark_use(&one->use, true, place);
    if (status == STRATA_SUCCESS)
        one->capture = capture->id;
    return status;
}

/* Takes memory for a body. Extends `place`, whose last link is `last`, by the places of the nodes of `inner` and of the
 * captures around it. */
static strata_status take_at(const strata_capture *inner, const strata_request *request, strata_capture_place *place,
                             strata_capture_place *last, strata_block *block, strata_pool_block **out)
{
    const strata_body *body = inner->body_of;
    if (!body)
        return strata_capture_pool_take(inner->pool, request, place, block, out);
    const strata_capture_front front = {
        .status = CU_STREAM_CAPTURE_STATUS_ACTIVE, .id = body->around->id, .nodes = &body->node, .count = 1};
    strata_capture_place around = strata_captured_place(body->around, body->from, &front);
    last->around = &around;
    const strata_status status = take_at(body->around, request, place, &around, block, out);
    last->around = NULL;
    return status;
}

/* Takes memory of the capture's pool. *taken: false if the pool has to grow. The lock is held. */
static inline __attribute__((always_inline)) strata_status take(strata_capture *capture, const strata_request *request,
                                                                const strata_capture_front *front, strata_block *out,
                                                                bool *taken)
{
    strata_capture_place place = strata_captured_place(capture, request->stream, front);
    strata_pool_block *one = NULL;
    strata_status status = strata_capture_check_closed(capture);
    if (status == STRATA_SUCCESS)
        status = capture->body_of ? take_at(capture, request, &place, &place, out, &one)
                                  : strata_capture_pool_take(capture->pool, request, &place, out, &one);
    *taken = one != NULL;
    if (!one)
        return status;
    status = note_block(capture, one, &place);
    if (status != STRATA_SUCCESS)
        strata_pool_block_take_back(one, out, capture->id);
    return status;
}

/* Grows the pool and tries again, as another thread may take the new segment. */
static strata_status grow_and_take(strata_runtime *runtime, const strata_request *request,
                                   const strata_capture_front *front, strata_block *out)
{
    strata_status status = STRATA_SUCCESS;
    for (bool taken = false; !taken && status == STRATA_SUCCESS;) {
        strata_captured_lock(runtime);
        strata_capture *capture = strata_capture_find(runtime, front->id);
        strata_capture_pool *pool = capture ? capture->pool : NULL;
        if (pool)
            pool->holders++;
        strata_captured_unlock(runtime, STRATA_SUCCESS);
        status = pool ? strata_capture_pool_grow(pool, request) : STRATA_SUCCESS;
        strata_captured_lock(runtime);
        capture = strata_capture_find(runtime, front->id);
        if (!capture)
            status = strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture ended during a request in it");
        else if (status == STRATA_SUCCESS)
            status = take(capture, request, front, out, &taken);
        strata_captured_unlock(runtime, status);
        if (pool)
            strata_capture_pool_unhold(pool);
    }
    return status;
}

bool strata_captured_allocate(strata_runtime *runtime, const strata_request *request, strata_block *out,
                              strata_status *status)
{
    strata_capture_front front;
    bool taken = true;
    *status = strata_capture_ask(runtime->device, request->stream, &front);
    if (*status != STRATA_SUCCESS)
        *out = (strata_block){0};
    if (*status != STRATA_SUCCESS || front.status != CU_STREAM_CAPTURE_STATUS_ACTIVE)
        return *status != STRATA_SUCCESS;
    strata_captured_lock(runtime);
    strata_capture *capture = strata_capture_find(runtime, front.id);
    if (capture)
        *status = take(capture, request, &front, out, &taken);
    strata_captured_unlock(runtime, *status);
    if (*status == STRATA_SUCCESS && !taken)
        *status = grow_and_take(runtime, request, &front, out);
    if (*status != STRATA_SUCCESS)
        *out = (strata_block){0};
    return capture != NULL;
}

/* ---- frees ---- */

/* Collects the nodes of all work that used the block, and the front of the free's stream. */
static inline bool gather_uses(const strata_capture_use *use, strata_capture_place *place, strata_nodes *after)
{
    bool added = strata_nodes_add(after, place->front->nodes, place->front->count);
    for (size_t i = 0; i < use->count && added; i++)
        added = strata_captured_add_missing(after, &use->marks[i].nodes, place);
    return added;
}

static __attribute__((cold)) strata_status refuse_own(const strata_block *block)
{
    return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                       "block 0x%llx (tag \"%s\") was allocated in a capture on a stream that the program forked; free "
                       "it with strata_runtime_deallocate_on",
                       (unsigned long long)block->address, strata_tag_name(block->tag));
}

/* Frees a block whose capture is under way, on `stream`, or with STRATA_STREAM_GONE behind its uses. A stream that is
 * not in that capture has no place in it. The lock is held. */
static inline __attribute__((always_inline)) strata_status free_within(strata_capture *capture, strata_pool_block *one,
                                                                       const strata_block *block, CUstream stream)
{
    strata_capture_front front;
    strata_nodes *after = &one->range->after;
    const bool gone = stream == STRATA_STREAM_GONE;
    strata_status status = gone ? STRATA_SUCCESS : strata_capture_ask(capture->runtime->device, stream, &front);
    if (status != STRATA_SUCCESS)
        return status;
    if (gone || front.id != one->capture)
        front = (strata_capture_front){.status = CU_STREAM_CAPTURE_STATUS_NONE};
    strata_capture_place place = strata_captured_place(capture, stream, &front);
    status = gather_uses(&one->use, &place, after) ? strata_pool_block_free_within(one, block, &place)
                                                   : strata_fail_host_memory("a free in a capture");
    if (status != STRATA_SUCCESS)
        strata_nodes_free(after);
    return status;
}

/* Orders a free outside of captures: records a use of the segment after all uses of the block, so that later launches,
 * which use the segment, come after them. */
static strata_status order_free(strata_runtime *runtime, const strata_block *block, const strata_block *segment,
                                CUstream stream)
{
    strata_resource *top = runtime->top;
    if (!runtime->tracks)
        return STRATA_SUCCESS;
    strata_status status = top->ops->prepare_use(top, block, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    status = top->ops->finish_use(top, block, stream, STRATA_ACCESS_NONE);
    return status == STRATA_SUCCESS ? top->ops->record_use(top, segment, stream, STRATA_ACCESS_WRITE) : status;
}

/* Ends a pool whose last holder was a block that has been freed, or lets go of one. The free has succeeded: what cannot
 * be ended now is tried again by other calls. */
static void end_behind_free(strata_capture_pool *pool, strata_status (*end)(strata_capture_pool *pool))
{
    strata_error_suppress_begin();
    end(pool);
    strata_error_suppress_end(false);
}

static strata_status free_at_once(strata_runtime *runtime, const strata_block *block)
{
    bool last = false;
    strata_captured_lock(runtime);
    strata_pool_block *one = strata_pool_block_find(runtime, block->id);
    strata_capture_pool *pool = one ? one->pool : NULL;
    const strata_status status = one ? strata_pool_block_free(one, block, &last)
                                     : strata_block_refuse(runtime->table, block, STRATA_ERROR_DOUBLE_FREE);
    strata_captured_unlock(runtime, status);
    if (last)
        end_behind_free(pool, runtime->captures.end_pool);
    return status;
}

static CUstream stream_of_free(const strata_pool_block *one, CUstream stream, bool own)
{
    if (own && one->block.stream && strata_stream_is_known(one->block.stream))
        return one->block.stream;
    return own || stream == STRATA_STREAM_GONE ? one->pool->stream : stream;
}

/* Frees a block on a stream that is in a capture: the capture keeps the block, as if it used it. *kept: the stream is
 * in a capture. The lock is held. */
static strata_status keep_freed(strata_runtime *runtime, const strata_block *block, CUstream stream, bool *kept)
{
    strata_capture_front front;
    strata_capture_use *use;
    *kept = false;
    strata_status status = strata_capture_ask(runtime->device, stream, &front);
    strata_capture *capture =
        front.status == CU_STREAM_CAPTURE_STATUS_NONE ? NULL : strata_capture_find(runtime, front.id);
    if (status != STRATA_SUCCESS || !capture)
        return status;
    status = strata_captured_note_use(capture, block, &use);
    return status == STRATA_SUCCESS ? strata_kept_free(&runtime->captures.kept, runtime->table, block, kept) : status;
}

/* Records a use on the free's stream, so that later waits for the block come after the stream's present work. Refused
 * on a stream in a capture; the capture keeps the block. */
static void note_free(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    if (!runtime->tracks || stream == STRATA_STREAM_GONE)
        return;
    if (strata_known_timeline(runtime->device, stream) && strata_stream_is_forked(stream))
        return; /* launches could not wait for that before the capture ends */
    strata_error_suppress_begin();
    runtime->top->ops->record_use(runtime->top, block, stream, STRATA_ACCESS_WRITE);
    strata_error_suppress_end(false);
}

/* *fork: the program forked the stream into a capture, so that a free on it cannot wait for the capture's end on that
 * stream. */
static strata_status look_for_fork(strata_runtime *runtime, CUstream stream, bool own, bool *fork)
{
    strata_capture_front front;
    *fork = false;
    if (stream == STRATA_STREAM_GONE)
        return STRATA_SUCCESS;
    if (strata_known_timeline(runtime->device, stream)) {
        *fork = strata_stream_is_forked(stream);
        return STRATA_SUCCESS;
    }
    if (own) /* the handle may be dead */
        return STRATA_SUCCESS;
    const strata_status status = strata_capture_ask(runtime->device, stream, &front);
    if (status != STRATA_SUCCESS || front.status == CU_STREAM_CAPTURE_STATUS_NONE)
        return status;
    strata_captured_lock(runtime);
    const strata_capture *capture = strata_capture_find(runtime, front.id);
    *fork = capture && !strata_capture_began_on(capture, stream);
    strata_captured_unlock(runtime, STRATA_SUCCESS);
    return STRATA_SUCCESS;
}

bool strata_captured_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own,
                          strata_status *status)
{
    bool kept, fork;
    const strata_entry *entry = strata_table_lookup(runtime->table, block->id);
    if (!entry || strata_table_state(runtime->table, block->id) != STRATA_BLOCK_LIVE)
        return false;
    if (own)
        stream = atomic_load_explicit(&entry->stream, memory_order_relaxed);
    *status = look_for_fork(runtime, stream, own, &fork);
    if (*status != STRATA_SUCCESS || !fork)
        return *status != STRATA_SUCCESS; /* else the stack knows what to do */
    if (!own)
        note_free(runtime, block, stream);
    strata_captured_lock(runtime);
    *status = keep_freed(runtime, block, stream, &kept);
    strata_captured_unlock(runtime, *status);
    return kept || *status != STRATA_SUCCESS;
}

/* Before a block is freed in its capture: work outside of the capture may have used it, and later launches, which use
 * the segment, come after that. The lock is held, and released meanwhile. NULL: the block was freed meanwhile. */
static strata_pool_block *order_outside_uses(strata_runtime *runtime, strata_pool_block *one, strata_status *status)
{
    const strata_block mine = one->block, segment = one->range->segment->block;
    const CUstream stream = one->pool->stream;
    strata_captured_unlock(runtime, STRATA_SUCCESS);
    *status = order_free(runtime, &mine, &segment, stream);
    strata_captured_lock(runtime);
    return strata_pool_block_find(runtime, mine.id);
}

static __attribute__((noinline)) strata_status
free_touched(strata_runtime *runtime, cuuint64_t id, strata_pool_block *one, const strata_block *block, CUstream stream)
{
    strata_status status;
    one = order_outside_uses(runtime, one, &status);
    strata_capture *capture = strata_capture_find(runtime, id);
    if (status != STRATA_SUCCESS)
        return status;
    if (!one)
        return strata_block_refuse(runtime->table, block, STRATA_ERROR_DOUBLE_FREE);
    return capture ? free_within(capture, one, block, stream)
                   : strata_fail(STRATA_ERROR_STREAM_CAPTURE, "the capture ended during a free in it");
}

static __attribute__((cold)) strata_status refuse_around(const strata_block *block)
{
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "block 0x%llx (tag \"%s\") was allocated in the capture around an open body; free it when the "
                       "body is closed",
                       (unsigned long long)block->address, strata_tag_name(block->tag));
}

static strata_status free_in_capture(strata_runtime *runtime, strata_capture *capture, strata_pool_block *one,
                                     const strata_block *block, CUstream stream, bool own)
{
    if (__builtin_expect(strata_capture_has_body(capture), 0))
        return refuse_around(block);
    if (own)
        stream = one->block.stream;
    if (__builtin_expect(own && stream != capture->stream, 0))
        return refuse_own(block);
    if (__builtin_expect(atomic_load_explicit(&one->entry->touched, memory_order_relaxed), 0))
        return free_touched(runtime, capture->id, one, block, stream);
    return free_within(capture, one, block, stream);
}

/* Frees a pool's block whose capture has ended, or whose device is lost. The lock is held, and released. */
static __attribute__((noinline)) strata_status free_outside(strata_runtime *runtime, strata_pool_block *one,
                                                            const strata_block *block, CUstream stream, bool own)
{
    const bool usable = strata_device_is_usable(runtime->device);
    strata_status status = STRATA_SUCCESS;
    const strata_block mine = one->block, segment = one->range->segment->block;
    bool kept = false;
    stream = stream_of_free(one, stream, own);
    if (usable && strata_captures_any(runtime))
        status = keep_freed(runtime, block, stream, &kept);
    strata_captured_unlock(runtime, status);
    if (kept || status != STRATA_SUCCESS)
        return status;
    if (usable)
        status = order_free(runtime, &mine, &segment, stream);
    return status == STRATA_SUCCESS ? free_at_once(runtime, block) : status;
}

static strata_status free_kept(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own);

/* Defers the free of a block from outside until no capture or graph keeps it; it then comes after the present work of
 * `stream`. */
static strata_status defer_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own)
{
    bool found;
    if (!own)
        note_free(runtime, block, stream);
    strata_captured_lock(runtime);
    const strata_status status = strata_kept_free(&runtime->captures.kept, runtime->table, block, &found);
    strata_captured_unlock(runtime, status);
    return found ? status : free_kept(runtime, block, stream, own); /* nothing keeps it any more */
}

/* Frees a pool's block. The lock is held, and released. */
static strata_status free_pool_block(strata_runtime *runtime, strata_pool_block *one, const strata_block *block,
                                     CUstream stream, bool own)
{
    strata_capture *capture = one->capture ? strata_capture_find(runtime, one->capture) : NULL;
    if (!capture || !strata_device_is_usable(runtime->device))
        return free_outside(runtime, one, block, stream, own);
    const strata_status status = free_in_capture(runtime, capture, one, block, stream, own);
    strata_captured_unlock(runtime, status);
    return status;
}

static strata_status free_kept(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own)
{
    strata_captured_lock(runtime);
    const strata_kept_blocks *all = &runtime->captures.kept;
    const bool kept = (all->by_slot || all->due) && strata_kept_has(all, block->id);
    strata_pool_block *one = kept ? NULL : strata_pool_block_find(runtime, block->id);
    if (one)
        return free_pool_block(runtime, one, block, stream, own);
    strata_captured_unlock(runtime, STRATA_SUCCESS);
    if (kept)
        return defer_free(runtime, block, stream, own);
    return own ? strata_free_from_top_on_own_stream(runtime->top, block)
               : strata_free_from_top(runtime->top, block, stream);
}

/* Keeps launches from a pool's block while it is freed. Where layers hear of uses, a launch prepares all blocks that
 * live in its pool's segments: a free of one of them by another thread waits until the launch is noted, instead of
 * being refused. Returns the block's pool, held and locked; NULL if the block is in none. */
static strata_capture_pool *exclude_launches(strata_runtime *runtime, const strata_block *block)
{
    strata_captures_lock(&runtime->captures);
    const strata_pool_block *one = strata_pool_block_find(runtime, block->id);
    strata_capture_pool *pool = one ? one->pool : NULL;
    if (pool)
        pool->holders++;
    strata_captures_unlock(&runtime->captures);
    if (pool)
        strata_lock_take(&pool->launches);
    return pool;
}

static __attribute__((noinline)) strata_status free_between_launches(strata_runtime *runtime, const strata_block *block,
                                                                     CUstream stream, bool own)
{
    strata_capture_pool *pool = exclude_launches(runtime, block);
    if (!pool)
        return free_kept(runtime, block, stream, own);
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    const strata_status status = free_kept(runtime, block, stream, own);
    strata_lock_release(&pool->launches);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    end_behind_free(pool, strata_capture_pool_unhold);
    return status;
}

strata_status strata_kept_block_free(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own)
{
    return runtime->tracks_plainly ? free_kept(runtime, block, stream, own)
                                   : free_between_launches(runtime, block, stream, own);
}

bool strata_kept_block_is_freed(strata_runtime *runtime, const strata_block *block)
{
    strata_captured_lock(runtime);
    const bool freed = strata_kept_is_freed(&runtime->captures.kept, block->id);
    strata_captured_unlock(runtime, STRATA_SUCCESS);
    return freed;
}

strata_status strata_kept_block_check(strata_runtime *runtime, const strata_block *block)
{
    return strata_kept_block_is_freed(runtime, block)
               ? strata_block_refuse(runtime->table, block, STRATA_ERROR_USE_AFTER_FREE)
               : STRATA_SUCCESS;
}

strata_status strata_captures_find(strata_runtime *runtime, CUdeviceptr address, strata_block *found)
{
    strata_status status = STRATA_SUCCESS;
    strata_captured_lock(runtime);
    const strata_pool_block *one = strata_pool_block_at(runtime, address);
    if (one) {
        *found = one->block;
    } else if (strata_pool_has_segment(runtime, found->id)) {
        *found = (strata_block){0};
        status = strata_fail(STRATA_ERROR_FOREIGN_POINTER, "0x%llx is in no live block: a capture pool has it, free",
                             (unsigned long long)address);
    }
    if (status == STRATA_SUCCESS && strata_kept_is_freed(&runtime->captures.kept, found->id)) {
        *found = (strata_block){0};
        status = strata_fail(STRATA_ERROR_FOREIGN_POINTER,
                             "0x%llx is in no live block: the program has freed it, a graph still uses its memory",
                             (unsigned long long)address);
    }
    strata_captured_unlock(runtime, status);
    return status;
}
