/* Events of a device, without timing, reused. */
#ifndef STRATA_CORE_STREAMS_EVENTS_H
#define STRATA_CORE_STREAMS_EVENTS_H

#include "core/streams/device.h"

/* A free event of the device's context, created if there is none. */
strata_status strata_device_take_event(strata_device *device, CUevent *out);
void strata_device_give_event(strata_device *device, CUevent event);

#endif
