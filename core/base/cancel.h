/* Whether the thread may be ended by pthread_cancel. A piece of work that holds a lock, or that leaves something half
 * done, is no place for that: the lock would stay taken. */
#ifndef STRATA_CORE_BASE_CANCEL_H
#define STRATA_CORE_BASE_CANCEL_H

#include <pthread.h>

/* What was set before, for strata_cancel_restore. Pairs may be in another pair. */
static inline int strata_cancel_forbid(void)
{
    int before;
    pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &before);
    return before;
}

static inline void strata_cancel_restore(int before)
{
    pthread_setcancelstate(before, &before);
}

#endif
