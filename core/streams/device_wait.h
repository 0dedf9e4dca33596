/* Waits on the host for all work of a device, of every library. */
#ifndef STRATA_CORE_STREAMS_DEVICE_WAIT_H
#define STRATA_CORE_STREAMS_DEVICE_WAIT_H

#include "core/streams/device.h"

/* Blocks until everything submitted to the device's context so far is complete, on every stream. Captures survive it
 * and are not waited for. Not in host functions. The caller holds no lock. Errors: DEVICE_RESET,
 * OUT_OF_HOST_MEMORY, DRIVER. */
strata_status strata_device_wait(strata_device *device);

#endif
