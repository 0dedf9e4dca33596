/* Devices: each an H200 with configured memory size. */
#include "driver/enter.h"
#include <stdio.h>
#include <string.h>

CUresult cuDeviceGetCount(int *count)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!count)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *count = sim.settings.devices;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGet(CUdevice *device, int ordinal)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if (!device)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!sim_device_of(ordinal))
        return sim_leave(CUDA_ERROR_INVALID_DEVICE);
    *device = ordinal;
    return sim_leave(CUDA_SUCCESS);
}

/* Enters a call about a device. After a failure, also that of a NULL `out`, the lock is not held. */
static CUresult enter(const char *entry, CUdevice ordinal, const void *out, sim_device **device)
{
    CUresult result = sim_enter_as(entry);
    if (result != CUDA_SUCCESS)
        return result;
    if (!out)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    *device = sim_device_of(ordinal);
    return *device ? CUDA_SUCCESS : sim_leave(CUDA_ERROR_INVALID_DEVICE);
}

CUresult cuDeviceGetName(char *name, int len, CUdevice dev)
{
    sim_device *device;
    CUresult result = enter(__func__, dev, name, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (len <= 0)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(name, (size_t)len, "Strata Simulated H200");
    return sim_leave(CUDA_SUCCESS);
}

/* Unique to the device, and equal in all processes. */
CUresult cuDeviceGetUuid(CUuuid *uuid, CUdevice dev)
{
    static const char bytes[sizeof uuid->bytes] = {'s', 't', 'r', 'a', 't', 'a', '-', 's', 'i', 'm'};
    sim_device *device;
    CUresult result = enter(__func__, dev, uuid, &device);
    if (result != CUDA_SUCCESS)
        return result;
    memcpy(uuid->bytes, bytes, sizeof bytes);
    uuid->bytes[sizeof bytes - 1] = (char)(device->ordinal + 1);
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetUuid_v2(CUuuid *uuid, CUdevice dev)
{
    return cuDeviceGetUuid(uuid, dev);
}

CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice dev)
{
    sim_device *device;
    CUresult result = enter(__func__, dev, bytes, &device);
    if (result != CUDA_SUCCESS)
        return result;
    *bytes = device->memory->bytes;
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceComputeCapability(int *major, int *minor, CUdevice dev)
{
    sim_device *device;
    CUresult result = enter(__func__, dev, major && minor ? major : NULL, &device);
    if (result != CUDA_SUCCESS)
        return result;
    *major = 9;
    *minor = 0;
    return sim_leave(CUDA_SUCCESS);
}

static int bus_of(const sim_device *device)
{
    return 0x10 + device->ordinal;
}

CUresult cuDeviceGetPCIBusId(char *pciBusId, int len, CUdevice dev)
{
    enum { ID_BYTES = sizeof "0000:00:00.0" };
    sim_device *device;
    CUresult result = enter(__func__, dev, pciBusId, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (len < ID_BYTES)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    snprintf(pciBusId, (size_t)len, "0000:%02X:00.0", (unsigned)bus_of(device));
    return sim_leave(CUDA_SUCCESS);
}

CUresult cuDeviceGetByPCIBusId(CUdevice *dev, const char *pciBusId)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    unsigned domain;
    unsigned bus;
    unsigned slot;
    if (!dev || !pciBusId || sscanf(pciBusId, "%x:%x:%x", &domain, &bus, &slot) != 3)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    for (int i = 0; i < sim.settings.devices; i++) {
        if (domain == 0 && slot == 0 && bus == (unsigned)bus_of(&sim_order.devices[i])) {
            *dev = i;
            return sim_leave(CUDA_SUCCESS);
        }
    }
    return sim_leave(CUDA_ERROR_INVALID_DEVICE);
}

/* An H200's answers. Others are 0: features missing from it or the simulation, limits of textures and surfaces. */
static const struct {
    CUdevice_attribute attribute;
    int value;
} attributes[] = {
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y, 1024},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z, 64},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z, 65535},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK, 49152},
    {CU_DEVICE_ATTRIBUTE_TOTAL_CONSTANT_MEMORY, 65536},
    {CU_DEVICE_ATTRIBUTE_WARP_SIZE, 32},
    {CU_DEVICE_ATTRIBUTE_MAX_PITCH, 2147483647},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_BLOCK, 65536},
    {CU_DEVICE_ATTRIBUTE_CLOCK_RATE, 1980000},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_GPU_OVERLAP, 1},
    {CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, 132},
    {CU_DEVICE_ATTRIBUTE_CAN_MAP_HOST_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_SURFACE_ALIGNMENT, 512},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_KERNELS, 1},
    {CU_DEVICE_ATTRIBUTE_ECC_ENABLED, 1},
    {CU_DEVICE_ATTRIBUTE_MEMORY_CLOCK_RATE, 3201000},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_MEMORY_BUS_WIDTH, 6144},
    {CU_DEVICE_ATTRIBUTE_L2_CACHE_SIZE, 62914560},
    {CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_MULTIPROCESSOR, 2048},
    {CU_DEVICE_ATTRIBUTE_ASYNC_ENGINE_COUNT, 3},
    {CU_DEVICE_ATTRIBUTE_UNIFIED_ADDRESSING, 1},
    {CU_DEVICE_ATTRIBUTE_TEXTURE_PITCH_ALIGNMENT, 32},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, 9},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, 0},
    {CU_DEVICE_ATTRIBUTE_STREAM_PRIORITIES_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GLOBAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_LOCAL_L1_CACHE_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_MULTIPROCESSOR, 233472},
    {CU_DEVICE_ATTRIBUTE_MAX_REGISTERS_PER_MULTIPROCESSOR, 65536},
    {CU_DEVICE_ATTRIBUTE_SINGLE_TO_DOUBLE_PRECISION_PERF_RATIO, 2},
    {CU_DEVICE_ATTRIBUTE_COMPUTE_PREEMPTION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, 1},
    {CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, 232448},
    {CU_DEVICE_ATTRIBUTE_MAX_BLOCKS_PER_MULTIPROCESSOR, 32},
    {CU_DEVICE_ATTRIBUTE_RESERVED_SHARED_MEMORY_PER_BLOCK, 1024},
    {CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, -1},
    {CU_DEVICE_ATTRIBUTE_GPU_PCI_DEVICE_ID, 0x233510de},
    {CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 1},
    {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 1},
    {CU_DEVICE_ATTRIBUTE_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_64_BIT_STREAM_MEM_OPS, 1},
    {CU_DEVICE_ATTRIBUTE_CAN_USE_STREAM_WAIT_VALUE_NOR, 1},
};

static bool is_of_virtual_memory(CUdevice_attribute attribute)
{
    switch (attribute) {
    case CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
    case CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED:
        return true;
    default:
        return false;
    }
}

CUresult cuDeviceGetAttribute(int *pi, CUdevice_attribute attrib, CUdevice dev)
{
    sim_device *device;
    CUresult result = enter(__func__, dev, pi, &device);
    if (result != CUDA_SUCCESS)
        return result;
    if (attrib < CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK || attrib >= CU_DEVICE_ATTRIBUTE_MAX)
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    int value = attrib == CU_DEVICE_ATTRIBUTE_PCI_BUS_ID ? bus_of(device) : 0;
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++)
        if (attributes[i].attribute == attrib)
            value = attributes[i].value;
    *pi = sim.settings.lacks_virtual_memory && is_of_virtual_memory(attrib) ? 0 : value;
    return sim_leave(CUDA_SUCCESS);
}
