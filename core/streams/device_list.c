/* The open devices, in a file of their own: timelines look at them, and opening a device opens a timeline. */
#include "core/streams/device.h"

_Atomic(strata_device *) strata_devices[STRATA_DEVICE_LIMIT];
