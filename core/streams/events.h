/* The free events of a device, without timing: last given, first taken. */
#ifndef STRATA_CORE_STREAMS_EVENTS_H
#define STRATA_CORE_STREAMS_EVENTS_H

#include "core/streams/device.h"

/* Takes a free event, or creates one in the device's context. */
strata_status strata_device_take_event(strata_device *device, CUevent *out);
void strata_device_give_event(strata_device *device, CUevent event);

#endif
