/* Time, and forks: a service whose driver is a worker's has no driver that would tell of them. */
#include "core/base/error.h"
#include "core/base/timestamp.h"
#include "service/future.h"

#include <pthread.h>

static _Atomic unsigned forks;
static pthread_once_t watching = PTHREAD_ONCE_INIT;

static void count_fork(void)
{
    atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed);
}

static void watch(void)
{
    pthread_atfork(NULL, NULL, count_fork);
}

unsigned service_forks(void)
{
    pthread_once(&watching, watch);
    return atomic_load_explicit(&forks, memory_order_relaxed);
}

strata_status service_check_fork(unsigned seen)
{
    return atomic_load_explicit(&forks, memory_order_relaxed) == seen
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_FORKED, "a device service cannot be used in a forked child; make one there");
}

uint64_t service_clock(void)
{
    return strata_timestamp_clock();
}
