/* The open devices, apart from device.c: timelines use them, and opening a device uses timelines. */
#include "core/streams/device.h"

_Atomic(strata_device *) strata_devices[STRATA_DEVICE_LIMIT];
