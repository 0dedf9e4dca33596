/* A barrier whose cost lies with one side. Where one thread does something very often that another one must rarely find
 * undone or done, both store and then look at what the other stored, and each needs a full barrier between the two.
 * Here the frequent side has a light one, which only keeps the compiler from reordering, and the rare side a heavy one,
 * which makes every running thread of the process pass a full barrier: membarrier(2), PRIVATE_EXPEDITED.
 *
 *     often:  store A; strata_light_barrier(); load B        rarely:  store B; strata_heavy_barrier(); load A
 *
 * At least one of them sees what the other stored. A full barrier costs the frequent side some 5 to 9 ns; the heavy one
 * costs the rare side some microseconds. Where the kernel has no membarrier, both are full ones; so they are from the
 * moment on when a heavy one is refused it, by a seccomp filter that came later. */
#ifndef STRATA_CORE_BASE_ASYMMETRIC_H
#define STRATA_CORE_BASE_ASYMMETRIC_H

#include <stdatomic.h>
#include <stdbool.h>

/* Whether the light side needs a full barrier too. Set until the kernel was asked, then cleared if it agrees, and set
 * again for good by a heavy side to which it no longer does. Any thread. */
extern _Atomic bool strata_barriers_are_full __attribute__((visibility("hidden")));

/* Asks the kernel, once; called before the first of either side. Any thread. */
void strata_barriers_open(void);

/* No call where it can be helped: one would have a fast path save its registers. */
#ifdef __SANITIZE_THREAD__ /* which knows no fences */
void strata_full_barrier(void);
#else
static inline void strata_full_barrier(void)
{
    atomic_thread_fence(memory_order_seq_cst);
}
#endif

static inline void strata_light_barrier(void)
{
    atomic_signal_fence(memory_order_seq_cst);
    if (__builtin_expect(atomic_load_explicit(&strata_barriers_are_full, memory_order_relaxed), 0))
        strata_full_barrier();
}

void strata_heavy_barrier(void);

#endif
