/* Asking the kernel for membarrier(2), and the barriers themselves. */
#define _GNU_SOURCE
#include "core/base/asymmetric.h"

#include <linux/membarrier.h>
#include <pthread.h>
#include <sys/syscall.h>
#include <time.h>
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

#ifdef __SANITIZE_THREAD__
void strata_full_barrier(void)
{
    static _Thread_local _Atomic int own;
    atomic_fetch_add(&own, 1);
}
#endif

/* Some threads may not have seen yet that light barriers are full ones now; written before strata_barriers_are_full. */
static _Atomic bool settling;

/* The kernel does not agree any more. From here on all barriers are full ones. A thread that found them light just
 * before has stored what it stores; it is only not visible yet. A store leaves the buffer of a core within far less
 * than a microsecond, and the switch to another thread or to the hypervisor leaves none there; so it is waited for. */
static void settle(void)
{
    atomic_store(&settling, true);
    atomic_store(&strata_barriers_are_full, true);
    strata_full_barrier();
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    atomic_store(&settling, false);
}

void strata_heavy_barrier(void)
{
    strata_full_barrier();
    if (!atomic_load(&strata_barriers_are_full)) {
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
            settle();
    } else if (atomic_load(&settling)) {
        settle(); /* another thread has begun to wait, and this one has to wait as long */
    }
    strata_full_barrier();
}
