/* Frees of memory that any stream may use wait for the device together.
 *
 *     free      Joins a list; to the program the block is free. No driver call is made.
 *     try       Takes the list, waits for its devices, once for each, and frees the blocks. The wait comes after all of
 *               these frees, and so after every use. Captures survive it (core/streams/device_wait.c).
 *
 * A try is due once the list is long or large, when a request would be refused, and when memory is asked about. A block
 * whose free has failed stays in the list, for instance where a driver refuses the wait for a capture: the next call
 * tries again.
 *
 * A stack with a layer to which the moment of a free means something frees at once. */
#include "runtime/any_stream_frees.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/calls.h"
#include "core/streams/device_wait.h"
#include "runtime/captures.h"
#include "runtime/idle_streams.h"
#include "runtime/of_address.h"

#include <string.h>

#define uthash_malloc(bytes)       strata_host_zalloc(bytes)
#define uthash_free(memory, bytes) strata_host_free(memory)
#define HASH_NONFATAL_OOM          1
#include <uthash.h>

/* PTDS programs see a macro of this name. */
#undef strata_runtime_deallocate_on

enum {
    MOST_BLOCKS = 256,     /* that wait: a wait for the device takes some 50 us */
    MOST_BYTES = 32 << 20, /* which a pool may hold more for it */
};

_Atomic uint32_t strata_any_stream_frees_due;

/* ---- the list ---- */

typedef struct due_free {
    strata_block block;
    bool taken; /* by a try */
    struct due_free *next;
    UT_hash_handle hh; /* by the block's identity */
} due_free;

static strata_lock lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_IDLE_STREAMS);
static due_free *due;                                                              /* guarded by lock */
static size_t due_bytes;                                                           /* guarded by lock */
static _Atomic bool some_failed;                                                   /* in the last try; any thread */
static strata_lock trying = STRATA_LOCK_INITIALIZER(STRATA_RANK_ANY_STREAM_FREES); /* held by a try */
static _Thread_local bool is_in_try;

bool strata_any_stream_free_is_due(const strata_block *block)
{
    due_free *one = NULL;
    if (!strata_any_stream_frees_are_due())
        return false;
    strata_lock_take(&lock);
    HASH_FIND(hh, due, &block->id, sizeof block->id, one);
    strata_lock_release(&lock);
    return one != NULL;
}

/* Under the lock. False: it is there, or without host memory. */
static bool link_free(due_free *one)
{
    due_free *same = NULL;
    HASH_FIND(hh, due, &one->block.id, sizeof one->block.id, same);
    if (same)
        return false;
    HASH_ADD(hh, due, block.id, sizeof one->block.id, one);
    return one->hh.tbl != NULL;
}

/* *full: a try is due. False: another thread frees the block at the same time, or without host memory. */
static bool add(const strata_block *block, bool *full)
{
    due_free *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return false;
    one->block = *block;
    strata_lock_take(&lock);
    const bool added = link_free(one);
    if (added) {
        due_bytes += block->bytes;
        atomic_fetch_add(&strata_any_stream_frees_due, 1);
    }
    *full = HASH_COUNT(due) >= MOST_BLOCKS || due_bytes >= MOST_BYTES;
    strata_lock_release(&lock);
    if (!added)
        strata_host_free(one);
    return added;
}

/* They stay in the list, so that a second free is recognised. */
static due_free *take_all(void)
{
    due_free *first = NULL, **link = &first;
    strata_lock_take(&lock);
    for (due_free *one = due; one; one = one->hh.next)
        if (!one->taken) {
            one->taken = true;
            one->next = NULL;
            *link = one;
            link = &one->next;
        }
    strata_lock_release(&lock);
    return first;
}

static void finish(due_free *one, bool over)
{
    strata_lock_take(&lock);
    one->taken = false;
    if (over) {
        HASH_DEL(due, one);
        due_bytes -= one->block.bytes;
        atomic_fetch_sub(&strata_any_stream_frees_due, 1);
    }
    strata_lock_release(&lock);
    if (over)
        strata_host_free(one);
    else
        atomic_store_explicit(&some_failed, true, memory_order_release);
}

bool strata_any_stream_free_later(const strata_block *block)
{
    bool full;
    const bool added = add(block, &full);
    if (added)
        atomic_store_explicit(&some_failed, true, memory_order_release);
    return added;
}

/* ---- freeing ---- */

static strata_status free_on_idle_stream(strata_runtime *runtime, const strata_block *block)
{
    strata_idle_stream *stream;
    strata_status status = strata_idle_stream_take(runtime->device, &stream);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_runtime_deallocate_on(runtime, block, strata_idle_stream_handle(stream));
    strata_idle_stream_give(stream);
    return status;
}

/* The waits of one try. */
typedef struct waits {
    struct {
        const strata_device *device;
        strata_status status;
    } made[STRATA_DEVICE_LIMIT];
} waits;

static strata_status wait_once(waits *all, strata_device *device)
{
    const int i = device->ordinal;
    if (all->made[i].device != device) { /* after a reset the ordinal has another one */
        all->made[i].device = device;
        all->made[i].status = strata_device_wait(device);
    }
    return all->made[i].status;
}

static strata_status free_after_wait(strata_runtime *runtime, const strata_block *block, waits *all)
{
    if (!strata_device_is_usable(runtime->device))
        return strata_free_without_driver(runtime->top, block);
    strata_status status = wait_once(all, runtime->device);
    if (status == STRATA_SUCCESS)
        status = free_on_idle_stream(runtime, block);
    return strata_ends_without_driver(status) ? strata_free_without_driver(runtime->top, block) : status;
}

/* Whether the block has been freed. The program may have freed it otherwise, and destroyed its runtime. */
static bool try_one(const strata_block *block, waits *all)
{
    strata_owned_block found;
    if (!strata_owned_block_pin(block, &found))
        return true;
    const bool over = free_after_wait(found.runtime, block, all) == STRATA_SUCCESS;
    strata_owned_block_release(&found);
    return over;
}

/* Under `trying`. */
static bool try_all(void)
{
    waits all = {0};
    bool any = false;
    atomic_store_explicit(&some_failed, false, memory_order_relaxed);
    strata_error_suppress_begin();
    for (due_free *one = take_all(), *next; one; one = next) {
        next = one->next;
        const bool over = try_one(&one->block, &all);
        finish(one, over);
        any |= over;
    }
    strata_error_suppress_end(false);
    return any;
}

/* A thread does not wait for itself: a free may call the program, and that Strata. */
static bool begin_try(bool join)
{
    if (is_in_try)
        return false;
    if (join)
        strata_lock_take(&trying);
    else if (!strata_lock_try(&trying))
        return false;
    is_in_try = true;
    return true;
}

static bool make_try(bool join)
{
    if (!begin_try(join))
        return false;
    const bool any = try_all();
    is_in_try = false;
    strata_lock_release(&trying);
    return any;
}

/* A try of another thread, which this one has waited for, may have freed what was due. */
bool strata_any_stream_frees_do(void)
{
    if (!strata_any_stream_frees_are_due() || is_in_try)
        return false;
    make_try(true);
    return true;
}

void strata_any_stream_frees_try(void)
{
    if (atomic_load_explicit(&some_failed, memory_order_acquire))
        make_try(false);
}

/* ---- a free ---- */

static bool is_of_capture(const strata_error *error)
{
    return error->driver_code >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           error->driver_code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

static strata_status free_at_once(strata_runtime *runtime, const strata_block *block)
{
    waits all = {0};
    strata_error_suppress_begin();
    strata_status status = free_after_wait(runtime, block, &all);
    if (status != STRATA_SUCCESS && is_of_capture(strata_error_suppressed()) && strata_any_stream_free_later(block))
        status = STRATA_SUCCESS;
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* By names in the text: with these a block that is freed later is a finding, a leak, a deadlock, or memory that another
 * process waits for. */
bool strata_any_stream_frees_may_wait(const strata_stack *stack)
{
    static const char *const watching[] = {"guard", "callback", "leaks=", "wait=live", "shared="};
    const char *text = strata_stack_text(stack);
    for (size_t i = 0; i < sizeof watching / sizeof watching[0]; i++)
        if (strstr(text, watching[i]))
            return false;
    return !strstr(text, "logging") || strstr(text, "format=memory");
}

/* The free of a kept block, and of one with streams that use it until then, looks at them itself. One with a prepared
 * use is refused. */
static bool may_wait(const strata_runtime *runtime, const strata_block *block)
{
    return runtime->frees_may_wait && strata_device_is_usable(runtime->device) &&
           !strata_runtime_keeps(runtime, block) && !strata_open_uses_any(&runtime->open_uses) &&
           !strata_block_is_pinned(runtime->table, block);
}

strata_status strata_any_stream_free(strata_runtime *runtime, const strata_block *block)
{
    bool full;
    if (!may_wait(runtime, block))
        return free_at_once(runtime, block);
    if (!add(block, &full))
        return strata_any_stream_free_is_due(block)
                   ? strata_block_refuse(runtime->table, block, STRATA_ERROR_DOUBLE_FREE)
                   : free_at_once(runtime, block);
    atomic_store_explicit(&runtime->captures.frees_waited, true, memory_order_relaxed);
    if (full)
        make_try(false);
    return STRATA_SUCCESS;
}

/* ---- what is known of them ---- */

/* The owner's bytes, as in its usage. */
static size_t bytes_of(const strata_table *table, strata_block_id id)
{
    const strata_entry *entry = strata_table_lookup(table, id);
    return entry && strata_word_lives(atomic_load_explicit(&entry->word, memory_order_acquire), id.generation)
               ? atomic_load_explicit(&entry->bytes, memory_order_relaxed)
               : 0;
}

void strata_any_stream_frees_count(const strata_runtime *runtime, strata_usage *usage)
{
    size_t blocks = 0, bytes = 0;
    strata_lock_take(&lock);
    for (const due_free *one = due; one; one = one->hh.next) {
        const size_t more =
            one->block.id.table == strata_table_id(runtime->table) ? bytes_of(runtime->table, one->block.id) : 0;
        blocks += more != 0;
        bytes += more;
    }
    strata_lock_release(&lock);
    if (blocks > usage->live_blocks || bytes > usage->live_bytes)
        return; /* freed between the two looks */
    usage->live_blocks -= blocks;
    usage->live_bytes -= bytes;
    usage->retired_bytes += bytes;
}
