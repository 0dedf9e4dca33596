/* What the launch recorder's files share. */
#ifndef STRATA_RUNTIME_LAUNCH_H
#define STRATA_RUNTIME_LAUNCH_H

#include <strata/launch.h>

/* The checks at the head of a call that names a use. */
strata_status strata_launch_check_use(const strata_launch *launch, strata_access access, const char *call);

/* Keeps the status of a failed use of an open launch, so that it cannot be prepared. Returns it. */
strata_status strata_launch_remember(strata_launch *launch, strata_status status);

/* Names a use of the block that contains `bytes` bytes from `address` on; in permissive mode counts unknown memory. The
 * launch is open. Errors: as strata_launch_use_address, INVALID_VALUE (the bytes exceed their block). */
strata_status strata_launch_use_range(strata_launch *launch, CUdeviceptr address, size_t bytes, strata_access access);

/* For memory that cannot be in a block of this launch: counts it in permissive mode, else refuses it with `status`. */
strata_status strata_launch_leave_out(strata_launch *launch, strata_status status, const char *what);

#endif
