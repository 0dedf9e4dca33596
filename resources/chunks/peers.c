/* Mapped memory is accessible only to the devices named in cuMemSetAccess, whatever cuCtxEnablePeerAccess says (CUDA
 * Driver API, "Virtual Memory Management"): each mapping names all. */
#include "resources/chunks/peers.h"

#include "core/base/characters.h"
#include "core/base/error.h"

#include <stdlib.h>
#include <string.h>

strata_status pool_peers_read(const char *text, int ordinals[STRATA_DEVICE_LIMIT], size_t *count, bool *all)
{
    *count = 0;
    *all = strcmp(text, "all") == 0;
    if (*all || !*text)
        return STRATA_SUCCESS;
    for (const char *at = text;; at++) {
        const size_t digits = strspn(at, "0123456789");
        if (!digits || digits > 3 || (at[digits] && at[digits] != ';') || *count == STRATA_DEVICE_LIMIT)
            return strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "pool: peers, character %zu (\"%.*s\"): expected numbers of devices, and ';' between "
                               "two, or all",
                               strata_character_at(text, (size_t)(at - text)), (int)strata_characters_bytes(at, 24),
                               at);
        ordinals[(*count)++] = atoi(at);
        at += digits;
        if (!*at)
            return STRATA_SUCCESS;
    }
}

strata_status pool_peers_of(const int *ordinals, size_t count, int own, uint64_t *out)
{
    *out = 0;
    if (count && !ordinals)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "pool: peers is NULL, but peer_count is %zu", count);
    for (size_t i = 0; i < count; i++) {
        if (ordinals[i] < 0 || ordinals[i] >= STRATA_DEVICE_LIMIT)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "pool: peers: invalid device %d", ordinals[i]);
        *out |= ordinals[i] == own ? 0 : UINT64_C(1) << ordinals[i];
    }
    return STRATA_SUCCESS;
}

static strata_status can_access(int ordinal, const strata_device *device, bool *can)
{
    CUdevice peer;
    int answer = 1; /* the driver cannot say: a mapping may fail */
    const char *call = "cuDeviceGet";
    CUresult result = strata_cu.DeviceGet(&peer, ordinal);
    if (result == CUDA_SUCCESS && strata_cu.DeviceCanAccessPeer) {
        call = "cuDeviceCanAccessPeer";
        result = strata_cu.DeviceCanAccessPeer(&answer, peer, device->handle);
    }
    *can = answer != 0;
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, call, "whether device %d can access memory of device %d",
                                                       ordinal, device->ordinal);
}

/* A program can do without the other devices: one of which the driver fails to tell is left out. */
static uint64_t find_all(const strata_device *device, int count)
{
    uint64_t found = 0;
    strata_error_suppress_begin();
    for (int i = 0; i < count && i < STRATA_DEVICE_LIMIT; i++) {
        bool can = false;
        if (i != device->ordinal && can_access(i, device, &can) == STRATA_SUCCESS && can)
            found |= UINT64_C(1) << i;
    }
    strata_error_suppress_end(false);
    return found;
}

static strata_status check_named(const strata_device *device, int count, uint64_t peers)
{
    strata_status status = STRATA_SUCCESS;
    for (int i = 0; i < STRATA_DEVICE_LIMIT && status == STRATA_SUCCESS; i++) {
        bool can = false;
        if (!(peers >> i & 1))
            continue;
        if (i >= count)
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "pool: peers: invalid device %d", i);
        status = can_access(i, device, &can);
        if (status == STRATA_SUCCESS && !can)
            status = strata_fail(STRATA_ERROR_UNSUPPORTED, "pool: peers: device %d cannot access memory of device %d",
                                 i, device->ordinal);
    }
    return status;
}

strata_status pool_peers_resolve(const strata_device *device, bool all, uint64_t *peers)
{
    int count = 0;
    const CUresult result = all || *peers ? strata_cu.DeviceGetCount(&count) : CUDA_SUCCESS;
    if (result != CUDA_SUCCESS)
        return strata_fail_driver(result, "cuDeviceGetCount", "counting the devices");
    if (!all)
        return check_named(device, count, *peers);
    *peers = find_all(device, count);
    return STRATA_SUCCESS;
}

size_t pool_peers_access(const strata_device *device, uint64_t peers, CUmemAccessDesc to[STRATA_DEVICE_LIMIT])
{
    size_t count = 0;
    peers |= UINT64_C(1) << device->ordinal;
    for (int i = 0; i < STRATA_DEVICE_LIMIT; i++)
        if (peers >> i & 1)
            to[count++] = (CUmemAccessDesc){
                .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = i},
                .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
            };
    return count;
}
