/* The kernel's answer about membarrier(2), and the barriers. */
#define _GNU_SOURCE
#include "core/base/asymmetric.h"

#include "core/base/cancel.h"

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

/* Light barriers may still be in use; written before strata_barriers_are_full. */
static _Atomic bool draining;

/* The kernel refuses membarrier: all barriers are full from now on. A store before a last light barrier may still be in
 * its core's store buffer, which drains in far less than a microsecond, or on a switch to another thread or the
 * hypervisor: waiting is enough. */
static void drain_store_buffers(void)
{
    atomic_store(&draining, true);
    atomic_store(&strata_barriers_are_full, true);
    strata_full_barrier();
    const int cancel = strata_cancel_forbid(); /* the caller may hold a lock */
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
    strata_cancel_restore(cancel);
    atomic_store(&draining, false);
}

/* `for_light`: some barriers may still be light. */
static void heavy_barrier(bool for_light)
{
    strata_full_barrier();
    if (!atomic_load(&strata_barriers_are_full)) {
        if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) != 0)
            drain_store_buffers();
    } else if (for_light || atomic_load(&draining)) {
        drain_store_buffers(); /* where another thread waits, this one must wait as long */
    }
    strata_full_barrier();
}

void strata_heavy_barrier(void)
{
    heavy_barrier(false);
}

void strata_heavy_barrier_for_light(void)
{
    heavy_barrier(true);
}

/* ---- among processes ---- */

static bool are_shared;

static void ask_to_share(void)
{
    are_shared = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_GLOBAL_EXPEDITED, 0, 0) == 0;
}

bool strata_barriers_share(void)
{
    static pthread_once_t asked_to_share = PTHREAD_ONCE_INIT;
    pthread_once(&asked_to_share, ask_to_share);
    return are_shared;
}

bool strata_heavy_barrier_for_all(void)
{
    strata_full_barrier();
    const bool done = syscall(SYS_membarrier, MEMBARRIER_CMD_GLOBAL_EXPEDITED, 0, 0) == 0;
    strata_full_barrier();
    return done;
}
