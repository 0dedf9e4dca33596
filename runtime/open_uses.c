/* Naming streams, and what a free does with them.
 *
 *     the stream was named   and at the free it is        the free
 *     known                  known                        records a use on it
 *                            unregistered                 adds the last point that an event covers
 *                            left to a capture            the same, and waits for the device
 *     unknown                the same stream              records a use on it
 *                            captured, or another one     waits for the device
 *
 * A stream that was unregistered and is known again may have another timeline; another stream may have its handle. Both
 * are met by the last point of the old timeline and a use on the new one. */
#include "runtime/open_uses.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/blocks/uses.h"
#include "core/stack/calls.h"
#include "core/streams/device_wait.h"
#include "core/streams/inflight_frees.h"
#include "core/streams/stream_map.h"
#include "runtime/captures.h"

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <string.h>
#include <uthash.h>

/* PTDS programs see a macro of this name. */
#undef strata_runtime_use_until_free

typedef struct open_use {
    CUstream stream;
    uint64_t id;          /* of an unknown stream; 0: it was known */
    uint32_t incarnation; /* of the timeline */
    uint16_t timeline;
} open_use;

typedef struct strata_open_uses_block {
    uint32_t slot;
    uint32_t count, capacity;
    uint64_t generation;
    open_use *uses;
    UT_hash_handle hh;
} named_block;

void strata_open_uses_init(strata_open_uses *all)
{
    strata_lock_init(&all->lock, STRATA_RANK_OPEN_USES);
}

/* ---- under the lock ---- */

static named_block *find(const strata_open_uses *all, uint32_t slot)
{
    named_block *one;
    HASH_FIND(hh, all->by_slot, &slot, sizeof slot, one);
    return one;
}

static named_block *find_generation(const strata_open_uses *all, strata_block_id id)
{
    named_block *one = find(all, id.slot);
    return one && one->generation == id.generation ? one : NULL;
}

static void erase(strata_open_uses *all, named_block *one)
{
    HASH_DEL(all->by_slot, one);
    strata_host_free(one->uses);
    strata_host_free(one);
    atomic_fetch_sub_explicit(&all->count, 1, memory_order_relaxed);
}

/* NULL without host memory. */
static named_block *add_block(strata_open_uses *all, strata_block_id id)
{
    named_block *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return NULL;
    one->slot = id.slot;
    one->generation = id.generation;
    HASH_ADD(hh, all->by_slot, slot, sizeof one->slot, one);
    if (!one->hh.tbl) {
        strata_host_free(one);
        return NULL;
    }
    atomic_fetch_add_explicit(&all->count, 1, memory_order_release);
    return one;
}

/* Whether the slot has uses of a later block, so that this one is freed. */
static bool has_later(const strata_open_uses *all, strata_block_id id)
{
    const named_block *one = find(all, id.slot);
    return one && one->generation > id.generation;
}

/* The slot's uses, which are not a later block's. Those of an earlier block are dropped: it was freed while another
 * thread named a stream for it. */
static named_block *find_or_add(strata_open_uses *all, strata_block_id id)
{
    named_block *one = find(all, id.slot);
    if (!one)
        return add_block(all, id);
    if (one->generation != id.generation) {
        one->generation = id.generation;
        one->count = 0;
    }
    return one;
}

static bool is_named(const named_block *one, const open_use *use)
{
    for (uint32_t i = 0; i < one->count; i++) {
        const open_use *other = &one->uses[i];
        if (other->stream == use->stream && other->id == use->id && other->timeline == use->timeline &&
            other->incarnation == use->incarnation)
            return true;
    }
    return false;
}

/* False without host memory. */
static bool add_use(named_block *one, const open_use *use)
{
    if (one->count == one->capacity) {
        const uint32_t capacity = one->capacity ? 2 * one->capacity : 2;
        open_use *uses = strata_host_zalloc(capacity * sizeof *uses);
        if (!uses)
            return false;
        if (one->count)
            memcpy(uses, one->uses, one->count * sizeof *uses);
        strata_host_free(one->uses);
        one->uses = uses;
        one->capacity = capacity;
    }
    one->uses[one->count++] = *use;
    return true;
}

/* ---- naming ---- */

static bool is_known_already(strata_open_uses *all, const strata_block *block, const open_use *use)
{
    strata_lock_take(&all->lock);
    const named_block *one = find_generation(all, block->id);
    const bool named = one && is_named(one, use);
    strata_lock_release(&all->lock);
    return named;
}

/* The block may have been freed since it was checked, and its slot used again. */
static strata_status add(strata_runtime *runtime, const strata_block *block, const open_use *use)
{
    strata_open_uses *all = &runtime->open_uses;
    strata_lock_take(&all->lock);
    const bool late = has_later(all, block->id);
    named_block *one = late ? NULL : find_or_add(all, block->id);
    const bool added = one && (is_named(one, use) || add_use(one, use));
    if (one && !one->count)
        erase(all, one);
    strata_lock_release(&all->lock);
    if (late)
        return strata_block_refuse(runtime->table, block, STRATA_ERROR_USE_AFTER_FREE);
    return added ? STRATA_SUCCESS : strata_fail_host_memory("a stream that uses a block until its free");
}

static open_use use_on(const strata_stream_ref *stream)
{
    return (open_use){.stream = stream->handle,
                      .id = stream->known ? 0 : stream->stream_id,
                      .timeline = stream->timeline->number,
                      .incarnation = atomic_load_explicit(&stream->timeline->incarnation, memory_order_relaxed)};
}

static strata_status check_block(strata_runtime *runtime, const strata_block *block)
{
    if (!runtime->tracks)
        return strata_fail(STRATA_ERROR_STREAM_MISUSE,
                           "strata_runtime_use_until_free: the stack \"%s\" does not track uses; free the block on a "
                           "stream that comes after them",
                           strata_stack_text(runtime->stack));
    if (strata_runtime_keeps(runtime, block))
        return strata_kept_block_check(runtime, block);
    return strata_table_state(runtime->table, block->id) == STRATA_BLOCK_LIVE
               ? STRATA_SUCCESS
               : strata_block_refuse(runtime->table, block, STRATA_ERROR_USE_AFTER_FREE);
}

strata_status strata_runtime_use_until_free(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    if (!block || stream == STRATA_STREAM_GONE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_runtime_use_until_free: block is NULL, or stream is STRATA_STREAM_GONE");
    strata_status status = strata_check_runtime(runtime);
    if (status != STRATA_SUCCESS || strata_block_is_empty(block))
        return status;
    if ((status = check_block(runtime, block)) != STRATA_SUCCESS)
        return status;
    if (strata_captures_any(runtime) && strata_captured_record(runtime, block, stream, STRATA_ACCESS_WRITE, &status))
        return status;
    strata_stream_ref ref;
    status = strata_stream_resolve(runtime->device, stream, &ref);
    if (status != STRATA_SUCCESS)
        return status;
    const open_use use = use_on(&ref);
    if (is_known_already(&runtime->open_uses, block, &use))
        return STRATA_SUCCESS;
    status = add(runtime, block, &use);
    atomic_store_explicit(&runtime->captures.used, true, memory_order_release);
    return status;
}

/* ---- the free ---- */

static strata_status record_on(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    return runtime->top->ops->record_use(runtime->top, block, stream, STRATA_ACCESS_WRITE);
}

/* The timeline by which the handle is known, or NULL. While a stream is unregistered its handle is unknown for a
 * moment, and its last work not covered yet: then this waits. */
static const strata_timeline *known_now(const strata_device *device, const open_use *use)
{
    const strata_timeline *now = strata_known_timeline(device, use->stream);
    for (unsigned spins = 0; !now && strata_timeline_is_known(use->timeline, use->incarnation);) {
        strata_backoff(&spins);
        now = strata_known_timeline(device, use->stream);
    }
    return now;
}

/* Records the use of a stream that was known when it was named. *wait: the stream may have been left to a capture,
 * which makes it unknown meanwhile. */
static strata_status record_known(strata_runtime *runtime, const strata_block *block, const open_use *use, bool *wait)
{
    const strata_timeline *now = known_now(runtime->device, use);
    const strata_timeline *then = strata_timeline_numbered(use->timeline);
    const bool still = atomic_load_explicit(&then->incarnation, memory_order_relaxed) == use->incarnation;
    strata_status status = now ? record_on(runtime, block, use->stream) : STRATA_SUCCESS;
    if (status == STRATA_SUCCESS && still && now != then)
        status = strata_uses_note_point(runtime->table, block, strata_timeline_last_closed(use->timeline));
    *wait = !now && atomic_load(&strata_captures_under_way) != 0;
    return status;
}

/* Records the use of an unknown stream, whose handle the program keeps valid. *wait: it cannot be identified, or is
 * another stream. */
static strata_status record_unknown(strata_runtime *runtime, const strata_block *block, const open_use *use, bool *wait)
{
    strata_stream_ref now;
    strata_error_suppress_begin();
    strata_status status = strata_stream_resolve(runtime->device, use->stream, &now);
    *wait = status != STRATA_SUCCESS || (!now.known && now.stream_id != use->id);
    if (!*wait)
        *wait = record_on(runtime, block, use->stream) != STRATA_SUCCESS;
    strata_error_suppress_end(false);
    return STRATA_SUCCESS;
}

/* Records one use, as an in-flight free: an unregistration of the stream waits until its handle is not used here. */
static strata_status record(strata_runtime *runtime, const strata_block *block, const open_use *use)
{
    bool wait;
    strata_thread *thread = strata_thread_self();
    strata_inflight_free_begin(thread);
    const strata_status status =
        use->id ? record_unknown(runtime, block, use, &wait) : record_known(runtime, block, use, &wait);
    strata_inflight_free_end(thread);
    return status == STRATA_SUCCESS && wait ? strata_device_wait_with_uncovered(runtime->device) : status;
}

/* Copies the block's open use with this index; false if it has no more. */
static bool use_at(strata_open_uses *all, const strata_block *block, uint32_t index, open_use *use)
{
    strata_lock_take(&all->lock);
    const named_block *one = find_generation(all, block->id);
    const bool has = one && index < one->count;
    if (has)
        *use = one->uses[index];
    strata_lock_release(&all->lock);
    return has;
}

strata_status strata_open_uses_record(strata_runtime *runtime, const strata_block *block)
{
    strata_status status = STRATA_SUCCESS;
    open_use use;
    if (!strata_open_uses_any(&runtime->open_uses) || !strata_device_is_usable(runtime->device) ||
        block->id.table != strata_table_id(runtime->table))
        return STRATA_SUCCESS;
    for (uint32_t i = 0; status == STRATA_SUCCESS && use_at(&runtime->open_uses, block, i, &use); i++)
        status = record(runtime, block, &use);
    return strata_ends_without_driver(status) ? STRATA_SUCCESS : status;
}

void strata_open_uses_forget(strata_runtime *runtime, const strata_block *block)
{
    strata_open_uses *all = &runtime->open_uses;
    if (!strata_open_uses_any(all) || block->id.table != strata_table_id(runtime->table))
        return;
    strata_lock_take(&all->lock);
    named_block *one = find_generation(all, block->id);
    if (one)
        erase(all, one);
    strata_lock_release(&all->lock);
}

void strata_open_uses_destroy(strata_open_uses *all)
{
    while (all->by_slot)
        erase(all, all->by_slot);
    strata_lock_destroy(&all->lock);
}
