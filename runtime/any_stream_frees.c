/* A free waits for the device, and captures survive that (core/streams/device_wait.c). If a driver refuses the wait for
 * a capture, the block joins a list, and the next call tries again. */
#include "runtime/any_stream_frees.h"

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/calls.h"
#include "core/streams/device_wait.h"
#include "runtime/idle_streams.h"
#include "runtime/of_address.h"

#include <pthread.h>

/* PTDS programs see a macro of this name. */
#undef strata_runtime_deallocate_on

/* ---- frees to come ---- */

/* Stays in the list while a thread tries it: that thread alone takes it out. */
typedef struct deferred_free {
    struct deferred_free *next;
    strata_block block;
    uint64_t round; /* the last one that tried it, or that was under way when it came */
    bool is_tried;
    pthread_t trier; /* the thread that tries it */
} deferred_free;

static strata_lock deferred_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_IDLE_STREAMS);
static deferred_free *deferred;       /* guarded by deferred_lock, as the members but for `block` */
static uint64_t rounds;               /* begun; guarded likewise */
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

/* Marks one that this round has not tried, and that no thread tries now. NULL: there is none. */
static deferred_free *begin_try(uint64_t round)
{
    strata_lock_take(&deferred_lock);
    deferred_free *one = deferred;
    while (one && (one->is_tried || one->round >= round))
        one = one->next;
    if (one) {
        one->round = round;
        one->is_tried = true;
        one->trier = pthread_self();
    }
    strata_lock_release(&deferred_lock);
    return one;
}

/* `over`: no other try is due. */
static void end_try(deferred_free *tried, bool over)
{
    strata_lock_take(&deferred_lock);
    tried->is_tried = false;
    deferred_free **link = &deferred;
    while (*link != tried)
        link = &(*link)->next;
    if (over)
        *link = tried->next;
    atomic_store_explicit(&deferred_are_any, deferred != NULL, memory_order_release);
    strata_lock_release(&deferred_lock);
    if (over)
        strata_host_free(tried);
}

/* Whether another thread tries the free of a block of the runtime. */
static bool are_tried_elsewhere(const strata_runtime *runtime)
{
    strata_lock_take(&deferred_lock);
    const deferred_free *one = deferred;
    while (one && (!one->is_tried || pthread_equal(one->trier, pthread_self()) ||
                   one->block.id.table != strata_table_id(runtime->table)))
        one = one->next;
    strata_lock_release(&deferred_lock);
    return one != NULL;
}

bool strata_any_stream_free_later(const strata_block *block)
{
    deferred_free *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return false;
    one->block = *block;
    strata_lock_take(&deferred_lock);
    one->round = rounds;
    one->next = deferred;
    deferred = one;
    atomic_store_explicit(&deferred_are_any, true, memory_order_release);
    strata_lock_release(&deferred_lock);
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
    strata_status status = strata_device_wait_with_uncovered(runtime->device);
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

static uint64_t begin_round(void)
{
    strata_lock_take(&deferred_lock);
    const uint64_t round = ++rounds;
    strata_lock_release(&deferred_lock);
    return round;
}

void strata_any_stream_frees_try(void)
{
    if (!atomic_load_explicit(&deferred_are_any, memory_order_acquire))
        return;
    const int cancel = strata_cancel_forbid(); /* others may wait for the end of a try */
    const uint64_t round = begin_round();
    strata_error_suppress_begin();
    for (deferred_free *one; (one = begin_try(round));)
        end_try(one, try_again(&one->block));
    strata_error_suppress_end(false);
    strata_cancel_restore(cancel);
}

void strata_any_stream_frees_finish(const strata_runtime *runtime)
{
    strata_any_stream_frees_try();
    for (unsigned spins = 0; are_tried_elsewhere(runtime); spins = 0) {
        while (are_tried_elsewhere(runtime))
            strata_backoff(&spins);
        strata_any_stream_frees_try();
    }
}
