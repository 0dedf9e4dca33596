/* In-flight frees, and the end of their stream.
 *
 * While a free passes the block's allocation stream, found known, to the driver, another thread may unregister and
 * destroy that stream. So a free counts itself in a word of its thread before it looks the stream up; unregistering,
 * once the stream is out of the map, waits for all frees that may have found it. Proof as in core/base/busy_flag.h,
 * with the removal in place of `excluded`. */
#ifndef STRATA_CORE_STREAMS_INFLIGHT_FREES_H
#define STRATA_CORE_STREAMS_INFLIGHT_FREES_H

#include "core/base/asymmetric.h"
#include "core/base/thread.h"

/* A thread's word: the depth of its in-flight frees (a layer's callback may free), and how often it left zero. */
enum { STRATA_INFLIGHT_FREES_DEPTH = 0xffff, STRATA_INFLIGHT_FREES_INCARNATION = 0x10000 };

/* Frees of threads without a state. Any thread. */
extern _Atomic uint32_t strata_inflight_frees_stateless __attribute__((visibility("hidden")));

/* `thread`: the calling thread's state, or NULL. */
static inline void strata_inflight_free_begin(strata_thread *thread)
{
    if (__builtin_expect(!thread, 0)) {
        atomic_fetch_add(&strata_inflight_frees_stateless, 1);
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
        atomic_fetch_sub(&strata_inflight_frees_stateless, 1);
        return;
    }
    const uint64_t word = atomic_load_explicit(&thread->inflight_frees, memory_order_relaxed);
    atomic_store_explicit(&thread->inflight_frees, word - 1, memory_order_release);
}

/* Blocks until frees that other threads began before this call are done. Two threads that call this inside such frees
 * deadlock. The caller holds no lock that a free or a layer's callback may take. */
void strata_inflight_frees_await(void);

#endif
