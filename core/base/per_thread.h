/* A slot for each thread that uses a layer: its fast path touches no other thread's words. Created at a thread's first
 * use, on cache lines of its own, never moved.
 *
 * When a thread ends, its slot keeps its values and goes to the next thread with its number, so no count is lost. The
 * layer says which members other threads may write. */
#ifndef STRATA_CORE_BASE_PER_THREAD_H
#define STRATA_CORE_BASE_PER_THREAD_H

#include "core/base/thread.h"

#include <stdatomic.h>
#include <stddef.h>

enum { STRATA_PER_THREAD_CHUNK = 64 };

typedef struct strata_per_thread {
    size_t stride;   /* bytes of a slot; constant */
    uint32_t number; /* threads cache their slot under it; 0: none */
    _Atomic(char *) chunks[STRATA_THREAD_LIMIT / STRATA_PER_THREAD_CHUNK]; /* created on demand, never moved */
} strata_per_thread;

/* Slots have `bytes` bytes, initially zero. */
void strata_per_thread_init(strata_per_thread *slots, size_t bytes);

/* For slots that every allocation needs, before the first use: takes one of the few numbers, if any is left. A thread
 * then finds its slot in its own state. */
void strata_per_thread_take_number(strata_per_thread *slots);

/* No call may be in flight. Takes the threads' lock if they have a number. */
void strata_per_thread_destroy(strata_per_thread *slots);

/* Creates the thread's slot; NULL without host memory. */
void *strata_per_thread_make(strata_per_thread *slots, const strata_thread *thread);

/* strata_per_thread_self for slots without a number, and at a thread's first use. */
void *strata_per_thread_find(strata_per_thread *slots, strata_thread *thread);

/* The calling thread's slot. NULL if the thread has no number, or without host memory: every layer needs a fallback. */
static inline void *strata_per_thread_self(strata_per_thread *slots, strata_thread *thread)
{
    if (__builtin_expect(!thread, 0))
        return NULL;
    void *slot = thread->per_thread[slots->number];
    return __builtin_expect(slot != NULL, 1) ? slot : strata_per_thread_find(slots, thread);
}

/* As strata_per_thread_self, but NULL before the thread's first use. No call, so a fast path saves no registers. */
static inline void *strata_per_thread_if_present(const strata_per_thread *slots)
{
    return strata_thread_slots[slots->number];
}

/* Under the number, if there is one, the calling thread finds the layer's `slot` in place of one of these. The layer
 * frees it, after strata_per_thread_destroy. */
static inline void strata_per_thread_keep(const strata_per_thread *slots, strata_thread *thread, void *slot)
{
    if (slots->number)
        thread->per_thread[slots->number] = slot;
}

/* The next existing slot from *position (initially 0), which it advances; NULL after the last. Includes unused slots,
 * all zero. If a thread stores X (seq_cst) and then walks, it meets a given slot, or the thread that created the slot
 * loads X (seq_cst) afterwards. */
void *strata_per_thread_next(const strata_per_thread *slots, uint32_t *position);

#endif
