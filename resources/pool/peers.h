/* The other devices that may read and write a pool's memory, each a bit of a word, by its ordinal. */
#ifndef STRATA_RESOURCES_POOL_PEERS_H
#define STRATA_RESOURCES_POOL_PEERS_H

#include "core/streams/device.h"

_Static_assert(STRATA_DEVICE_LIMIT <= 64, "a device has a bit");

/* Reads ordinals that ';' separates, or "all"; an empty text is no device. Errors: INVALID_VALUE, with the place. */
strata_status pool_peers_read(const char *text, int ordinals[STRATA_DEVICE_LIMIT], size_t *count, bool *all);

/* As bits, without that of the pool's own device. Errors: INVALID_VALUE. */
strata_status pool_peers_of(const int *ordinals, size_t count, int own, uint64_t *out);

/* Asks the driver: *peers becomes those that there are and that can access the device's memory, without the device
 * itself; with `all`, every such device. Errors: INVALID_VALUE (there is no such device), UNSUPPORTED (one that is
 * named cannot), DRIVER. */
strata_status pool_peers_ask(const strata_device *device, bool all, uint64_t *peers);

/* What cuMemSetAccess is told for the device and its peers. Returns how many there are. */
size_t pool_peers_access(const strata_device *device, uint64_t peers, CUmemAccessDesc to[STRATA_DEVICE_LIMIT]);

#endif
