/* For tests of mapped memory: handles, reservations, mappings, and bytes on the host. */
#ifndef STRATA_TESTS_SUPPORT_SIM_VMM_H
#define STRATA_TESTS_SUPPORT_SIM_VMM_H

#include "support/sim.h"

enum { TEST_PAGE = 2 << 20 };

static inline CUmemGenericAllocationHandle test_sim_create(int device, size_t bytes, CUmemAllocationHandleType types)
{
    CUmemGenericAllocationHandle handle;
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = types,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device},
    };
    OK(p_cuMemCreate(&handle, bytes, &properties, 0));
    return handle;
}

static inline CUdeviceptr test_sim_reserve(size_t bytes)
{
    CUdeviceptr address;
    OK(p_cuMemAddressReserve(&address, bytes, 0, 0, 0));
    return address;
}

static inline void test_sim_allow(CUdeviceptr address, size_t bytes, int device, CUmemAccess_flags flags)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device}, .flags = flags};
    OK(p_cuMemSetAccess(address, bytes, &access, 1));
}

/* Maps memory, and gives device 0 access to read and write. */
static inline void test_sim_map(CUdeviceptr address, size_t bytes, CUmemGenericAllocationHandle handle)
{
    OK(p_cuMemMap(address, bytes, 0, handle, 0));
    test_sim_allow(address, bytes, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE);
}

static inline unsigned char test_sim_byte(CUdeviceptr address)
{
    unsigned char byte;
    OK(p_cuMemcpyDtoH(&byte, address, 1));
    return byte;
}

#endif
