/* Devices with access to a pool's memory: a bit mask of ordinals. */
#ifndef STRATA_RESOURCES_CHUNKS_PEERS_H
#define STRATA_RESOURCES_CHUNKS_PEERS_H

#include "core/streams/device.h"

_Static_assert(STRATA_DEVICE_LIMIT <= 64, "a device has a bit");

/* Reads ordinals separated by ';', or "all". INVALID_VALUE: the message has the position. */
strata_status pool_peers_read(const char *text, int ordinals[STRATA_DEVICE_LIMIT], size_t *count, bool *all);

/* The mask of some devices, without the pool's own. Errors: INVALID_VALUE. */
strata_status pool_peers_of(const int *ordinals, size_t count, int own, uint64_t *out);

/* Checks that the devices exist and can access the memory; with `all`, finds them. Errors: INVALID_VALUE (no such
 * device), UNSUPPORTED (no access), DRIVER. */
strata_status pool_peers_resolve(const strata_device *device, bool all, uint64_t *peers);

/* Fills in the access of the device and its peers. Returns their number. */
size_t pool_peers_access(const strata_device *device, uint64_t peers, CUmemAccessDesc to[STRATA_DEVICE_LIMIT]);

#endif
