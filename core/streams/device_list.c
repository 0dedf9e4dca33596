/* Apart from device.c: timelines use the list, and opening a device uses timelines. */
#include "core/streams/device.h"

_Atomic(strata_device *) strata_devices[STRATA_DEVICE_LIMIT];
