/* A free waits for the device, and captures survive that (core/streams/device_wait.c). If a driver refuses the wait for
 * a capture, the block joins a list, and the next call tries again. */
#include "runtime/any_stream_frees.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/calls.h"
#include "core/streams/device_wait.h"
#include "runtime/idle_streams.h"
#include "runtime/of_address.h"

/* PTDS programs see a macro of this name. */
#undef strata_runtime_deallocate_on

/* ---- frees to come ---- */

typedef struct deferred_free {
    struct deferred_free *next;
    strata_block block;
} deferred_free;

static strata_lock deferred_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_IDLE_STREAMS);
static deferred_free *deferred;       /* guarded by deferred_lock */
static _Atomic bool deferred_are_any; /* written under the lock, read by any thread */

static bool is_same(const strata_block *a, const strata_block *b)
{
    return a->id.table == b->id.table && a->id.slot == b->id.slot && a->id.generation == b->id.generation;
}

bool strata_any_stream_free_is_due(const strata_block *block)
{
    if (!atomic_load_explicit(&deferred_are_any, memory_order_acquire))
        return false;
    strata_lock_take(&deferred_lock);
    const deferred_free *one = deferred;
    while (one && !is_same(&one->block, block))
        one = one->next;
    strata_lock_release(&deferred_lock);
    return one != NULL;
}

static void link_deferred(deferred_free *first)
{
    deferred_free *last = first;
    while (last->next)
        last = last->next;
    strata_lock_take(&deferred_lock);
    last->next = deferred;
    deferred = first;
    atomic_store_explicit(&deferred_are_any, true, memory_order_release);
    strata_lock_release(&deferred_lock);
}

static deferred_free *take_deferred(void)
{
    strata_lock_take(&deferred_lock);
    deferred_free *all = deferred;
    deferred = NULL;
    atomic_store_explicit(&deferred_are_any, false, memory_order_release);
    strata_lock_release(&deferred_lock);
    return all;
}

bool strata_any_stream_free_later(const strata_block *block)
{
    deferred_free *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return false;
    one->block = *block;
    link_deferred(one);
    return true;
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

static strata_status free_after_wait(strata_runtime *runtime, const strata_block *block)
{
    if (!strata_device_is_usable(runtime->device))
        return strata_free_without_driver(runtime->top, block);
    strata_status status = strata_device_wait(runtime->device);
    if (status == STRATA_SUCCESS)
        status = free_on_idle_stream(runtime, block);
    return strata_ends_without_driver(status) ? strata_free_without_driver(runtime->top, block) : status;
}

static bool is_of_capture(const strata_error *error)
{
    return error->driver_code >= CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED &&
           error->driver_code <= CUDA_ERROR_STREAM_CAPTURE_WRONG_THREAD;
}

strata_status strata_any_stream_free(strata_runtime *runtime, const strata_block *block)
{
    strata_error_suppress_begin();
    strata_status status = free_after_wait(runtime, block);
    if (status != STRATA_SUCCESS && is_of_capture(strata_error_suppressed()) && strata_any_stream_free_later(block))
        status = STRATA_SUCCESS;
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* Tries a free that is due; true: no other try is. The block is looked for anew: the program may have freed it
 * otherwise, and its runtime. */
static bool try_again(const strata_block *block)
{
    strata_owned_block found;
    const strata_status status = strata_owned_block_find(block->address, &found);
    if (status != STRATA_SUCCESS)
        return status == STRATA_ERROR_FOREIGN_POINTER;
    const bool over = !is_same(block, &found.block) || free_after_wait(found.runtime, block) == STRATA_SUCCESS;
    strata_owned_block_release(&found);
    return over;
}

void strata_any_stream_frees_try(void)
{
    if (!atomic_load_explicit(&deferred_are_any, memory_order_acquire))
        return;
    strata_error_suppress_begin();
    for (deferred_free *one = take_deferred(), *next; one; one = next) {
        next = one->next;
        one->next = NULL;
        if (try_again(&one->block))
            strata_host_free(one);
        else
            link_deferred(one);
    }
    strata_error_suppress_end(false);
}
