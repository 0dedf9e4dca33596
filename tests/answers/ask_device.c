/* Questions about devices: ordinals, names, and the attributes that the architecture determines. */
#include "ask.h"

#include <stdio.h>
#include <string.h>

struct attribute {
    CUdevice_attribute attribute;
    const char *name;
};

static const struct attribute attributes[] = {
#define ATTRIBUTE(name) {CU_DEVICE_ATTRIBUTE_##name, #name},
    ATTRIBUTE(COMPUTE_CAPABILITY_MAJOR) ATTRIBUTE(COMPUTE_CAPABILITY_MINOR) ATTRIBUTE(WARP_SIZE) ATTRIBUTE(
        MAX_THREADS_PER_BLOCK) ATTRIBUTE(MAX_BLOCK_DIM_X) ATTRIBUTE(MAX_BLOCK_DIM_Y) ATTRIBUTE(MAX_BLOCK_DIM_Z)
        ATTRIBUTE(MAX_GRID_DIM_X) ATTRIBUTE(MAX_GRID_DIM_Y) ATTRIBUTE(MAX_GRID_DIM_Z) ATTRIBUTE(
            MAX_SHARED_MEMORY_PER_BLOCK) ATTRIBUTE(MAX_SHARED_MEMORY_PER_BLOCK_OPTIN)
            ATTRIBUTE(MAX_SHARED_MEMORY_PER_MULTIPROCESSOR) ATTRIBUTE(RESERVED_SHARED_MEMORY_PER_BLOCK) ATTRIBUTE(
                TOTAL_CONSTANT_MEMORY) ATTRIBUTE(MAX_REGISTERS_PER_BLOCK) ATTRIBUTE(MAX_REGISTERS_PER_MULTIPROCESSOR)
                ATTRIBUTE(MAX_THREADS_PER_MULTIPROCESSOR) ATTRIBUTE(MAX_BLOCKS_PER_MULTIPROCESSOR) ATTRIBUTE(MAX_PITCH)
                    ATTRIBUTE(TEXTURE_ALIGNMENT) ATTRIBUTE(TEXTURE_PITCH_ALIGNMENT) ATTRIBUTE(SURFACE_ALIGNMENT)
                        ATTRIBUTE(INTEGRATED) ATTRIBUTE(CAN_MAP_HOST_MEMORY) ATTRIBUTE(CONCURRENT_KERNELS)
                            ATTRIBUTE(UNIFIED_ADDRESSING) ATTRIBUTE(STREAM_PRIORITIES_SUPPORTED)
                                ATTRIBUTE(GLOBAL_L1_CACHE_SUPPORTED) ATTRIBUTE(LOCAL_L1_CACHE_SUPPORTED)
                                    ATTRIBUTE(COOPERATIVE_LAUNCH) ATTRIBUTE(VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED)
                                        ATTRIBUTE(HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)
                                            ATTRIBUTE(HANDLE_TYPE_WIN32_HANDLE_SUPPORTED)
                                                ATTRIBUTE(HANDLE_TYPE_WIN32_KMT_HANDLE_SUPPORTED) ATTRIBUTE(
                                                    MEMORY_POOLS_SUPPORTED) ATTRIBUTE(CAN_USE_64_BIT_STREAM_MEM_OPS)
                                                    ATTRIBUTE(CAN_USE_STREAM_WAIT_VALUE_NOR) ATTRIBUTE(
                                                        CAN_FLUSH_REMOTE_WRITES) ATTRIBUTE(HOST_REGISTER_SUPPORTED)
                                                        ATTRIBUTE(MULTI_GPU_BOARD) ATTRIBUTE(KERNEL_EXEC_TIMEOUT)
                                                            ATTRIBUTE(TCC_DRIVER) ATTRIBUTE(CLUSTER_LAUNCH)
#undef ATTRIBUTE
};

static void ask_attributes(void)
{
    for (size_t i = 0; i < sizeof attributes / sizeof attributes[0]; i++) {
        int value = -1;
        CUresult result = cu.DeviceGetAttribute(&value, attributes[i].attribute, 0);
        ask_value(result, value, "device.attribute.%s", attributes[i].name);
    }
    int value = 0;
    ask(cu.DeviceGetAttribute(&value, (CUdevice_attribute)0, 0), "device.attribute.zero");
    ask(cu.DeviceGetAttribute(&value, (CUdevice_attribute)-1, 0), "device.attribute.minus_one");
    ask(cu.DeviceGetAttribute(&value, (CUdevice_attribute)99999, 0), "device.attribute.unknown");
    ask(cu.DeviceGetAttribute(NULL, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0), "device.attribute.null");
    ask(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, -1), "device.attribute.device_minus_one");
    ask(cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 99), "device.attribute.device_99");
}

static void ask_names(void)
{
    char name[256] = "";
    char brief[4] = "xyz";
    ask(cu.DeviceGetName(name, sizeof name, 0), "device.name");
    ask_yes(strlen(name) > 0, "device.name.not_empty");
    ask(cu.DeviceGetName(brief, sizeof brief, 0), "device.name.brief");
    ask_yes(brief[3] == '\0' && strncmp(brief, name, 3) == 0, "device.name.brief.cut_and_terminated");
    ask(cu.DeviceGetName(name, sizeof name, 99), "device.name.device_99");
    ask(cu.DeviceGetName(name, sizeof name, -1), "device.name.device_minus_one");
    CUuuid uuid;
    CUuuid again;
    memset(&uuid, 0, sizeof uuid);
    memset(&again, 1, sizeof again);
    ask(cu.DeviceGetUuid(&uuid, 0), "device.uuid");
    cu.DeviceGetUuid(&again, 0);
    ask_yes(memcmp(&uuid, &again, sizeof uuid) == 0, "device.uuid.same_each_time");
    ask(cu.DeviceGetUuid(&uuid, 99), "device.uuid.device_99");
    char id[32] = "";
    unsigned domain;
    unsigned bus;
    unsigned slot;
    unsigned function;
    ask(cu.DeviceGetPCIBusId(id, sizeof id, 0), "device.pci_bus_id");
    ask_yes(sscanf(id, "%4x:%2x:%2x.%1x", &domain, &bus, &slot, &function) == 4, "device.pci_bus_id.format");
    ask(cu.DeviceGetPCIBusId(id, 5, 0), "device.pci_bus_id.brief");
    ask(cu.DeviceGetPCIBusId(id, sizeof id, 99), "device.pci_bus_id.device_99");
    ask(cu.DeviceGetPCIBusId(NULL, sizeof id, 0), "device.pci_bus_id.null");
    ask(cu.DeviceGetUuid(NULL, 0), "device.uuid.null");
}

void ask_devices(void)
{
    int count = 0;
    CUdevice device = -7;
    size_t bytes = 0;
    cu.Init(0);
    ask(cu.DeviceGetCount(&count), "device.count");
    ask_yes(count >= 1, "device.count.at_least_1");
    ask(cu.DeviceGetCount(NULL), "device.count.null");
    ask(cu.DeviceGet(&device, 0), "device.get.0");
    ask_number(device, "device.get.0.device");
    ask(cu.DeviceGet(&device, -1), "device.get.minus_one");
    ask(cu.DeviceGet(&device, count), "device.get.count");
    ask(cu.DeviceGet(&device, 1 << 30), "device.get.huge");
    ask(cu.DeviceGet(NULL, 0), "device.get.null");
    ask(cu.DeviceTotalMem(&bytes, 0), "device.total_mem");
    ask_yes(bytes >= 64 * MIB && bytes < PIB, "device.total_mem.plausible");
    ask(cu.DeviceTotalMem(NULL, 0), "device.total_mem.null");
    ask(cu.DeviceTotalMem(&bytes, 99), "device.total_mem.device_99");
    ask(cu.DeviceTotalMem(&bytes, -1), "device.total_mem.device_minus_one");
    ask_attributes();
    ask_names();
}

/* Attributes for memory features that not every device has. */
void ask_memory_attributes(void)
{
    static const struct attribute asked[] = {
        {CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, "MANAGED_MEMORY"},
        {CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, "CONCURRENT_MANAGED_ACCESS"},
        {CU_DEVICE_ATTRIBUTE_DIRECT_MANAGED_MEM_ACCESS_FROM_HOST, "DIRECT_MANAGED_MEM_ACCESS_FROM_HOST"},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS, "PAGEABLE_MEMORY_ACCESS"},
        {CU_DEVICE_ATTRIBUTE_PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES,
         "PAGEABLE_MEMORY_ACCESS_USES_HOST_PAGE_TABLES"},
        {CU_DEVICE_ATTRIBUTE_HOST_NATIVE_ATOMIC_SUPPORTED, "HOST_NATIVE_ATOMIC_SUPPORTED"},
        {CU_DEVICE_ATTRIBUTE_CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM, "CAN_USE_HOST_POINTER_FOR_REGISTERED_MEM"},
        {CU_DEVICE_ATTRIBUTE_READ_ONLY_HOST_REGISTER_SUPPORTED, "READ_ONLY_HOST_REGISTER_SUPPORTED"},
        {CU_DEVICE_ATTRIBUTE_GENERIC_COMPRESSION_SUPPORTED, "GENERIC_COMPRESSION_SUPPORTED"},
        {CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, "GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED"},
        {CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, "HANDLE_TYPE_FABRIC_SUPPORTED"},
        {CU_DEVICE_ATTRIBUTE_HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
         "HOST_NUMA_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"},
        {CU_DEVICE_ATTRIBUTE_HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, "HOST_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED"},
        {CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, "MEMPOOL_SUPPORTED_HANDLE_TYPES"},
        {CU_DEVICE_ATTRIBUTE_MULTICAST_SUPPORTED, "MULTICAST_SUPPORTED"},
    };
    cu.Init(0);
    for (size_t i = 0; i < sizeof asked / sizeof asked[0]; i++) {
        int value = -1;
        CUresult result = cu.DeviceGetAttribute(&value, asked[i].attribute, 0);
        ask_value(result, value, "device.memory_attribute.%s", asked[i].name);
    }
}
