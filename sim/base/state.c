/* The state of the simulated driver: its settings where no variable says otherwise, its phase, its lock. */
#include "base/base.h"

#include <time.h>

sim_state sim = {
    .lock = PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP,
    .progress = PTHREAD_COND_INITIALIZER,
    .settings =
        {
            .devices = 1,
            .version = SIM_DRIVER_VERSION,
            .memory = UINT64_C(16) << 30,
            .latency = {2000, 2000, 2000, 2000, 100, 100},
            .rate = {4000000, 4000000},
        },
};

CUresult sim_phase_error(void)
{
    switch (sim.phase) {
    case SIM_RUNNING:
        return CUDA_SUCCESS;
    case SIM_ENDED:
        return CUDA_ERROR_DEINITIALIZED;
    case SIM_NOT_INITIALIZED:
    case SIM_FORKED:
        break;
    }
    return CUDA_ERROR_NOT_INITIALIZED;
}

bool sim_lock(void)
{
    return pthread_mutex_lock(&sim.lock) == 0;
}

bool sim_lock_at_exit(void)
{
    enum { PATIENCE_S = 5 };
    static bool given_up; /* the exiting thread's */
    struct timespec until;
    if (given_up)
        return false;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += PATIENCE_S;
    /* Not pthread_mutex_clocklock: gcc's thread sanitizer does not see it, and reports the unlock. */
    given_up = pthread_mutex_timedlock(&sim.lock, &until) != 0;
    return !given_up;
}

bool sim_ended(void)
{
    if (!sim_lock())
        return false;
    bool ended = sim.phase == SIM_ENDED;
    pthread_mutex_unlock(&sim.lock);
    return ended;
}
