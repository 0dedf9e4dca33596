/* Creating, walking and freeing slots. */
#include "core/base/per_thread.h"

#include "core/base/host_memory.h"
#include "core/base/lock.h"

enum { LINE = 64, CHUNKS = STRATA_THREAD_LIMIT / STRATA_PER_THREAD_CHUNK };

static strata_lock creation_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_COUNTERS);
static bool number_taken[STRATA_PER_THREAD_LIMIT] = {true}; /* 0 is none; guarded by creation_lock */

void strata_per_thread_init(strata_per_thread *slots, size_t bytes)
{
    slots->stride = (bytes + LINE - 1) & ~(size_t)(LINE - 1);
}

void strata_per_thread_take_number(strata_per_thread *slots)
{
    strata_lock_take(&creation_lock);
    uint32_t number = 1;
    while (number < STRATA_PER_THREAD_LIMIT && number_taken[number])
        number++;
    if (number < STRATA_PER_THREAD_LIMIT) {
        number_taken[number] = true;
        slots->number = number;
    }
    strata_lock_release(&creation_lock);
}

static void forget_slot(strata_thread *thread, void *data)
{
    const strata_per_thread *slots = data;
    thread->per_thread[slots->number] = NULL;
}

static void give_number_back(strata_per_thread *slots)
{
    strata_thread_visit_all(forget_slot, slots);
    strata_lock_take(&creation_lock);
    number_taken[slots->number] = false;
    strata_lock_release(&creation_lock);
    slots->number = 0;
}

void strata_per_thread_destroy(strata_per_thread *slots)
{
    if (slots->number)
        give_number_back(slots);
    for (size_t i = 0; i < CHUNKS; i++)
        strata_host_free(atomic_load_explicit(&slots->chunks[i], memory_order_relaxed));
}

void *strata_per_thread_make(strata_per_thread *slots, const strata_thread *thread)
{
    _Atomic(char *) *at = &slots->chunks[thread->index / STRATA_PER_THREAD_CHUNK];
    strata_lock_take(&creation_lock);
    char *chunk = atomic_load_explicit(at, memory_order_relaxed);
    if (!chunk) {
        chunk = strata_host_zalloc_aligned(LINE, STRATA_PER_THREAD_CHUNK * slots->stride);
        atomic_store_explicit(at, chunk, memory_order_seq_cst); /* see strata_per_thread_next */
    }
    strata_lock_release(&creation_lock);
    return chunk ? chunk + (thread->index % STRATA_PER_THREAD_CHUNK) * slots->stride : NULL;
}

void *strata_per_thread_find(strata_per_thread *slots, strata_thread *thread)
{
    if (!thread->index)
        return NULL;
    char *chunk = atomic_load_explicit(&slots->chunks[thread->index / STRATA_PER_THREAD_CHUNK], memory_order_acquire);
    void *slot = chunk ? chunk + (thread->index % STRATA_PER_THREAD_CHUNK) * slots->stride
                       : strata_per_thread_make(slots, thread);
    if (slots->number)
        thread->per_thread[slots->number] = slot;
    return slot;
}

void *strata_per_thread_next(const strata_per_thread *slots, uint32_t *position)
{
    while (*position < STRATA_THREAD_LIMIT) {
        char *chunk = atomic_load_explicit(&slots->chunks[*position / STRATA_PER_THREAD_CHUNK], memory_order_seq_cst);
        if (chunk)
            return chunk + ((*position)++ % STRATA_PER_THREAD_CHUNK) * slots->stride;
        *position += STRATA_PER_THREAD_CHUNK - *position % STRATA_PER_THREAD_CHUNK;
    }
    return NULL;
}
