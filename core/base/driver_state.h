/* Opens the driver, or raises the error that says why it cannot be called. */
#ifndef STRATA_CORE_BASE_DRIVER_STATE_H
#define STRATA_CORE_BASE_DRIVER_STATE_H

#include "core/base/error.h"
#include "driver/driver.h"

/* SUCCESS, DRIVER_NOT_FOUND, DRIVER, SHUT_DOWN or FORKED. */
strata_status strata_driver_open(void);

/* SUCCESS or FORKED. For calls without the driver that take a lock, which another thread may have held at the fork. */
static inline strata_status strata_check_not_forked(void)
{
    return __builtin_expect(strata_driver_state_now() == STRATA_DRIVER_FORKED, 0) ? strata_driver_open()
                                                                                  : STRATA_SUCCESS;
}

/* As strata_driver_open, at the head of public calls: one load while the driver is open. */
static inline strata_status strata_check_driver(void)
{
    return __builtin_expect(strata_driver_state_now() == STRATA_DRIVER_OPEN, 1) ? STRATA_SUCCESS : strata_driver_open();
}

#endif
