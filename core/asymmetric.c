/* Asking the kernel for membarrier(2), and the barriers themselves. */
#define _GNU_SOURCE
#include "core/asymmetric.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <unistd.h>

_Atomic bool strata_barriers_are_full = true;
static pthread_once_t asked = PTHREAD_ONCE_INIT;

static void ask_kernel(void)
{
    if (syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0)
        atomic_store(&strata_barriers_are_full, false);
}

void strata_barriers_open(void)
{
    pthread_once(&asked, ask_kernel);
}

void strata_full_barrier(void)
{
#ifdef __SANITIZE_THREAD__ /* which knows no fences */
    static _Thread_local _Atomic int own;
    atomic_fetch_add(&own, 1);
#else
    atomic_thread_fence(memory_order_seq_cst);
#endif
}

void strata_heavy_barrier(void)
{
    strata_full_barrier();
    if (!atomic_load_explicit(&strata_barriers_are_full, memory_order_relaxed))
        syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}
