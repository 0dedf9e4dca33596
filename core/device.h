/* A device as the whole process shares it: its primary context, what it can do, its legacy stream, and its events. */
#ifndef STRATA_CORE_DEVICE_H
#define STRATA_CORE_DEVICE_H

#include "core/error.h"
#include "core/lock.h"

#include <strata/info.h>

enum { STRATA_DEVICE_LIMIT = 64 };

struct strata_timeline;

typedef struct strata_device {
    int ordinal;
    CUdevice handle;
    CUcontext context; /* the primary one, retained until the process ends */
    strata_device_info info;
    struct strata_timeline *legacy; /* the timeline of stream 0 */

    strata_lock events_lock;
    CUevent *events; /* free ones; guarded by events_lock */
    size_t event_count, event_capacity;
} strata_device;

/* The device `ordinal`, opened on first use: later calls take no lock. Opens the driver too.
 * Errors: INVALID_VALUE, DRIVER_NOT_FOUND, DRIVER, SHUT_DOWN, FORKED, OUT_OF_HOST_MEMORY. */
strata_status strata_device_get(int ordinal, strata_device **out);

/* A free event of the device's context, without timing; made if there is none. Context as for strata_scope_enter. */
strata_status strata_device_take_event(strata_device *device, CUevent *out);
void strata_device_give_event(strata_device *device, CUevent event);

/* Free bytes according to the driver; 0 if it does not say. */
size_t strata_device_free_bytes(strata_device *device);

/* Between enter and leave the device's context is current, and the thread's capture mode is relaxed if `relaxed`: for
 * calls that a capture of somebody else's would not survive (see docs/design.md, "Captures"). Leave restores both. */
typedef struct strata_scope {
    CUcontext restore;
    CUstreamCaptureMode mode;
    bool switched;
    bool relaxed;
} strata_scope;

strata_status strata_scope_enter(strata_scope *scope, strata_device *device, bool relaxed);
void strata_scope_leave(strata_scope *scope);

#endif
