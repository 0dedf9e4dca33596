/* A device as the whole process shares it: its primary context, capabilities, legacy stream and events. */
#ifndef STRATA_CORE_STREAMS_DEVICE_H
#define STRATA_CORE_STREAMS_DEVICE_H

#include "core/base/driver_state.h"
#include "core/base/lock.h"
#include "core/streams/scope.h"

#include <strata/info.h>

enum { STRATA_DEVICE_LIMIT = 64 };

struct strata_timeline;

struct strata_device {
    int ordinal;
    CUdevice handle;
    CUcontext context; /* the primary one, retained until the process ends */
    strata_device_info info;
    struct strata_timeline *legacy; /* the timeline of stream 0 */

    strata_lock events_lock;
    CUevent *events; /* free ones; guarded by events_lock */
    size_t event_count, event_capacity;
};

/* The device `ordinal`, opened on first use: later calls take no lock. Opens the driver too.
 * Errors: INVALID_VALUE, DRIVER_NOT_FOUND, DRIVER, SHUT_DOWN, FORKED, OUT_OF_HOST_MEMORY. */
strata_status strata_device_get(int ordinal, strata_device **out);

/* By ordinal. Set once each, under a lock of device.c; never freed. */
extern _Atomic(strata_device *) strata_devices[STRATA_DEVICE_LIMIT] __attribute__((visibility("hidden")));

/* The device if it was opened before, else NULL. */
static inline strata_device *strata_device_if_open(int ordinal)
{
    return atomic_load_explicit(&strata_devices[ordinal], memory_order_acquire);
}

/* Free bytes according to the driver; 0 if it does not say. */
size_t strata_device_free_bytes(strata_device *device);

#endif
