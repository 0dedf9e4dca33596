/* Waits on the host for all work of a device, of every library. */
#ifndef STRATA_CORE_STREAMS_DEVICE_WAIT_H
#define STRATA_CORE_STREAMS_DEVICE_WAIT_H

#include "core/streams/device.h"

#include <strata/status.h>

/* Blocks until everything submitted to the device's context so far is complete, on every stream. Captures survive it
 * and are not waited for. Not in host functions. The caller holds no lock. Errors: DEVICE_RESET,
 * OUT_OF_HOST_MEMORY, DRIVER. */
strata_status strata_device_wait(strata_device *device);

/* As strata_device_wait, for each open device with work whose completion is unknown, since the driver refused to record
 * an event for it and to wait for it, on streams that are gone or whose handle only the program knows. Memory of one
 * device may have such work of another one's streams. A wait that succeeds completes all of that work that was
 * submitted before. A reset of a device has ended its work. Raises nothing; *error: why a wait failed, or its status is
 * SUCCESS. For calls that wait on the host for all that is pending. */
void strata_devices_wait_if_uncovered(strata_error *error);

/* As strata_device_wait, and then as strata_devices_wait_if_uncovered: for frees that come after whatever may use the
 * device's memory. */
strata_status strata_device_wait_with_uncovered(strata_device *device);

#endif
