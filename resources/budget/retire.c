/* Frees below a shared budget, recorded so that other processes learn when they are complete (shared_retired.h). A free
 * that is complete when it returns, as a pool's, is not recorded.
 *
 * Recorded are only frees that the stream itself completes: the block was used on its allocation stream alone, and
 * freed on it. Layers between the budget and the owner change nothing of a block, and the owner is stream-ordered. */
#include "resources/budget/internal.h"

#include "core/blocks/uses.h"
#include "core/stack/own_stream_free.h"
#include "core/streams/stream_map.h"

/* Whether layers below free in stream order. Layers forward the capability; a pool over another owner has its own. */
static bool below_retires(const budget *self)
{
    strata_resource *below = self->resource.upstream;
    const strata_resource *owner = below;
    while (owner->upstream)
        owner = owner->upstream;
    return strata_resource_sees_table(&self->resource) &&
           below->ops->capabilities(below) & STRATA_CAPABILITY_STREAM_ORDERED && owner->ops->capabilities &&
           owner->ops->capabilities((strata_resource *)owner) & STRATA_CAPABILITY_STREAM_ORDERED;
}

/* Whether frees are recorded; found at the first one, constant for a stack. */
static bool retires(budget *self)
{
    enum { UNKNOWN, NO, YES };
    unsigned char known = atomic_load_explicit(&self->retires, memory_order_relaxed);
    if (known == UNKNOWN) {
        known = below_retires(self) ? YES : NO;
        atomic_store_explicit(&self->retires, known, memory_order_relaxed);
    }
    return known == YES;
}

/* Resolves the stream. False also if it is being captured: what is submitted to it then becomes part of a graph. */
static bool find_stream(budget *self, CUstream handle, strata_stream_ref *stream)
{
    strata_error_suppress_begin();
    bool found = !strata_stream_is_capturing(self->device, handle, true) &&
                 strata_stream_resolve(self->device, handle, stream) == STRATA_SUCCESS;
    strata_error_suppress_end(false);
    return found;
}

/* A stand-in for a ticket that no other free has: the thread's serial and a count of its frees. 0: none. */
static uint64_t new_waiting(void)
{
    static _Thread_local uint32_t count;
    const strata_thread *thread = strata_thread_self();
    return thread ? SHARED_WAITING | thread->serial << 32 | ++count : 0;
}

void budget_retire_begin(budget *self, const strata_block *block, CUstream handle, budget_retirement *retirement)
{
    strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    retirement->free.ticket = NULL;
    if (!entry || handle == STRATA_STREAM_GONE || !shared_limit(self->base.shared) || !retires(self))
        return;
    const strata_timeline *timeline =
        strata_timeline_numbered(atomic_load_explicit(&entry->alloc_timeline, memory_order_relaxed));
    if (!timeline || !strata_entry_is_incarnation(entry, timeline) || !strata_uses_only_on(entry, timeline))
        return;
    budget_record *record = budget_record_in(self, entry);
    const uint32_t incarnation = atomic_load_explicit(&timeline->incarnation, memory_order_relaxed);
    const uint64_t waiting = new_waiting();
    uint64_t before = atomic_load_explicit(&record->ticket, memory_order_acquire);
    /* A second free of the block, which will be refused, leaves the first one's ticket: its completion looks for it. */
    const uint64_t word = atomic_load_explicit(&entry->word, memory_order_acquire);
    if (!waiting || !strata_word_lives(word, block->id.generation) ||
        !atomic_compare_exchange_strong_explicit(&record->ticket, &before, waiting, memory_order_acq_rel,
                                                 memory_order_relaxed))
        return;
    retirement->timeline = timeline;
    retirement->free = (shared_free){.stream = (uint64_t)incarnation << 32 | timeline->number,
                                     .bytes = budget_record_bytes(record),
                                     .ticket = &record->ticket,
                                     .waiting = waiting};
}

void budget_retire_end(budget *self, CUstream handle, const budget_retirement *retirement)
{
    budget_shared *shared = self->base.shared;
    const shared_free *freed = &retirement->free;
    strata_stream_ref stream;
    if (!freed->ticket || atomic_load_explicit(freed->ticket, memory_order_acquire) != freed->waiting ||
        !shared_words_usable(shared, self->device) || !find_stream(self, handle, &stream) ||
        stream.timeline != retirement->timeline)
        return;
    uint64_t ticket = shared_retire(shared, freed);
    if (ticket)
        shared_words_write(shared, &stream, ticket);
}
