/* What the launch recorder's files share. */
#ifndef STRATA_RUNTIME_LAUNCH_H
#define STRATA_RUNTIME_LAUNCH_H

#include <strata/launch.h>

/* What a call that names uses checks first. */
strata_status strata_launch_check_use(const strata_launch *launch, strata_access access, const char *call);

/* Keeps the status of a failed use of an open launch, so that it cannot be prepared. Returns it. */
strata_status strata_launch_remember(strata_launch *launch, strata_status status);

/* Names the block that contains `bytes` bytes from `address` on; in permissive mode unknown memory is counted instead.
 * Of an open launch. Errors: as strata_launch_use_address, and INVALID_VALUE (the bytes exceed their block). */
strata_status strata_launch_use_range(strata_launch *launch, CUdeviceptr address, size_t bytes, strata_access access);

/* Memory that cannot be in a block of this launch: counts it in permissive mode, else refuses it with `status`. */
strata_status strata_launch_leave_out(strata_launch *launch, strata_status status, const char *what);

#endif
