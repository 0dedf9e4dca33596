/* The list of frees that wait for the end of a capture. */
#include "core/deferred.h"

#include "core/error.h"
#include "core/memory.h"
#include "core/stream_map.h"
#include "core/thread.h"

typedef struct strata_deferred_free {
    struct strata_deferred_free *next;
    strata_resource *owner;
    strata_deferred_carry_out carry_out;
    strata_entry *entry; /* retired: nobody else has it */
    strata_block block;
    CUstream stream;
    uint64_t thread; /* serial of the thread that freed: the per-thread stream is another for each; 0: nobody knows */
} deferred_free;

void strata_deferred_init(strata_deferred *set, strata_device *device)
{
    set->device = device;
    strata_lock_init(&set->lock, STRATA_RANK_OWNER);
}

void strata_deferred_end(strata_deferred *set)
{
    while (set->frees) {
        deferred_free *one = set->frees;
        set->frees = one->next;
        strata_host_free(one);
    }
    strata_lock_destroy(&set->lock);
}

static uint64_t this_thread(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? thread->serial : 0;
}

static void enter(strata_deferred *set, deferred_free *one)
{
    strata_lock_take(&set->lock);
    one->next = set->frees;
    set->frees = one;
    size_t count = atomic_load_explicit(&set->count, memory_order_relaxed);
    atomic_store_explicit(&set->count, count + 1, memory_order_relaxed);
    strata_lock_release(&set->lock);
}

strata_status strata_deferred_add(strata_deferred *set, strata_resource *owner, strata_deferred_carry_out carry_out,
                                  strata_entry *entry, const strata_block *block, CUstream stream)
{
    deferred_free *one = strata_host_zalloc(sizeof *one);
    if (!one)
        return strata_fail_host_memory("a free inside a capture");
    one->owner = owner;
    one->carry_out = carry_out;
    one->entry = entry;
    one->block = *block;
    one->stream = stream;
    one->thread = this_thread();
    enter(set, one);
    return STRATA_SUCCESS;
}

/* Whether the stream of a free can be named now. */
static bool can_be_named(const deferred_free *one, CUstream passed)
{
    if (passed == STRATA_STREAM_GONE || one->stream == STRATA_STREAM_GONE || strata_stream_is_known(one->stream))
        return true;
    return one->stream == passed && (passed != CU_STREAM_PER_THREAD || (one->thread && one->thread == this_thread()));
}

/* Takes out those that may be carried out, the first that was asked for first. */
static deferred_free *take(strata_deferred *set, CUstream passed)
{
    deferred_free *taken = NULL;
    strata_lock_take(&set->lock);
    size_t count = atomic_load_explicit(&set->count, memory_order_relaxed);
    for (deferred_free **link = &set->frees; *link;) {
        deferred_free *one = *link;
        if (!can_be_named(one, passed)) {
            link = &one->next;
            continue;
        }
        *link = one->next;
        one->next = taken;
        taken = one;
        count--;
    }
    atomic_store_explicit(&set->count, count, memory_order_relaxed);
    strata_lock_release(&set->lock);
    return taken;
}

static strata_status carry_out(const strata_deferred *set, const deferred_free *one, CUstream passed, bool *done)
{
    bool finished = passed == STRATA_STREAM_GONE, names = !finished && one->stream != STRATA_STREAM_GONE;
    *done = false;
    if (names && strata_stream_is_capturing(set->device, one->stream, false))
        return STRATA_SUCCESS;
    strata_status status = one->carry_out(one->owner, one->entry, &one->block, one->stream, finished);
    *done = status == STRATA_SUCCESS;
    return status;
}

strata_status strata_deferred_settle(strata_deferred *set, CUstream passed)
{
    strata_status status = STRATA_SUCCESS;
    for (deferred_free *one = take(set, passed), *next; one; one = next) {
        next = one->next;
        bool done;
        strata_status freed = carry_out(set, one, passed, &done);
        status = status == STRATA_SUCCESS ? freed : status;
        if (done)
            strata_host_free(one);
        else
            enter(set, one);
    }
    return status;
}

strata_status strata_deferred_refuse(const strata_deferred *set)
{
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "%zu blocks were freed inside captures whose end was not seen; if they have ended, say so with "
                       "strata_stack_captures_ended",
                       atomic_load_explicit(&set->count, memory_order_relaxed));
}
