/* Frees that find their stream by themselves, and the end of that stream.
 *
 * strata_runtime_deallocate finds the stream that its block was allocated on to be known, and the layers then name it
 * to the driver. Meanwhile another thread, which has nothing to do with the block, may unregister that stream and
 * destroy it. So such a free says, in a word of its own thread, that it is under way before it looks; and who ends a
 * stream waits, between taking it out of the map and giving its handle back, until all frees that may have found it
 * there are over. A free that begins later does not find it. */
#ifndef STRATA_CORE_STREAMS_INFLIGHT_FREES_H
#define STRATA_CORE_STREAMS_INFLIGHT_FREES_H

#include "core/base/asymmetric.h"
#include "core/base/thread.h"

/* A thread's word: how many such frees it is in, one inside another, as a layer's callback may free, too; and how often
 * it began one while it was in none. */
enum { STRATA_INFLIGHT_FREES_DEPTH = 0xffff, STRATA_INFLIGHT_FREES_INCARNATION = 0x10000 };

/* How many such frees are under way on threads without a state. Any thread. */
extern _Atomic uint32_t strata_inflight_frees_of_others __attribute__((visibility("hidden")));

/* Brackets a free. `thread` is the calling one's state, NULL if there is no host memory for it. */
static inline void strata_inflight_free_begin(strata_thread *thread)
{
    if (__builtin_expect(!thread, 0)) {
        atomic_fetch_add(&strata_inflight_frees_of_others, 1);
        return;
    }
    const uint64_t word = atomic_load_explicit(&thread->inflight_frees, memory_order_relaxed);
    if (__builtin_expect((word & STRATA_INFLIGHT_FREES_DEPTH) == 0, 1))
        atomic_store_explicit(&thread->inflight_frees, word + STRATA_INFLIGHT_FREES_INCARNATION + 1,
                              memory_order_release);
    else
        atomic_store_explicit(&thread->inflight_frees, word + 1, memory_order_release);
    strata_light_barrier();
}

static inline void strata_inflight_free_end(strata_thread *thread)
{
    if (__builtin_expect(!thread, 0)) {
        atomic_fetch_sub(&strata_inflight_frees_of_others, 1);
        return;
    }
    const uint64_t word = atomic_load_explicit(&thread->inflight_frees, memory_order_relaxed);
    atomic_store_explicit(&thread->inflight_frees, word - 1, memory_order_release);
}

/* Blocks the calling thread until the frees are over that others had begun before this call. Those of its own it cannot
 * wait for: two threads that call this inside of such frees wait for each other. The caller holds no lock that a free
 * or a layer's callback may take. */
void strata_inflight_frees_await(void);

#endif
