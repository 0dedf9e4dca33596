/* A memory barrier whose cost falls on the rare side. The frequent side uses a light barrier, which only stops the
 * compiler from reordering; the rare side a heavy one, which makes every running thread of the process pass a full
 * barrier (membarrier(2), PRIVATE_EXPEDITED).
 *
 *     often:  store A; strata_light_barrier(); load B        rarely:  store B; strata_heavy_barrier(); load A
 *
 * At least one side sees the other's store. A full barrier costs 5 to 9 ns, a heavy one some microseconds. Without
 * membarrier both are full, also from the moment a seccomp filter refuses it. */
#ifndef STRATA_CORE_BASE_ASYMMETRIC_H
#define STRATA_CORE_BASE_ASYMMETRIC_H

#include <stdatomic.h>
#include <stdbool.h>

/* Whether light barriers must be full: until the kernel has agreed, and for good once it refuses a heavy barrier. Any
 * thread. */
extern _Atomic bool strata_barriers_are_full __attribute__((visibility("hidden")));

/* Asks the kernel. Called before the first barrier of either side. Any thread. */
void strata_barriers_open(void);

/* Inline: a call would make a fast path save its registers. */
#ifdef __SANITIZE_THREAD__ /* does not know fences */
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

/* As strata_heavy_barrier, also for threads whose barriers have stayed light since they must be full. */
void strata_heavy_barrier_for_light(void);

/* Heavy barriers of other processes, for light ones on memory that is shared with them. strata_barriers_share asks the
 * kernel once that they concern this process, too; false: it refuses, and light barriers must not be relied on for such
 * memory. strata_heavy_barrier_for_all is one for all processes that have asked; false: the kernel refuses it, and it
 * was none. Any thread. */
bool strata_barriers_share(void);
bool strata_heavy_barrier_for_all(void);

#endif
