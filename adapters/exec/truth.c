/* What the program is told about memory: what it would hear without Strata, with the budget as the size of the device.
 */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "driver/driver.h"

#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static size_t least(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* ---- the size of the device ---- */

/* The budget of a device as the program's device; 0: none. As the launcher was told, else as the device's stack says.
 */
static size_t budget_of(const exec_device *device, size_t total)
{
    strata_budget_usage usage;
    if (device && device->account && strata_budget_account_usage(device->account, &usage) == STRATA_SUCCESS &&
        usage.limit)
        return least(usage.limit, total);
    if (exec_settings_now.budget)
        return least(exec_settings_now.budget, total);
    if (exec_settings_now.share > 0)
        return (size_t)((double)total * exec_settings_now.share / 100);
    return 0;
}

/* Memory that the stack holds and does not use is free for the program. Without a further question to the driver, which
 * takes its time for this one: libraries ask before each of their larger requests. */
static void tell_memory(exec_device *device, size_t *free_bytes, size_t *total)
{
    strata_budget_usage budget;
    strata_usage usage;
    exec_free_waiting(device);
    if (strata_runtime_usage(device->runtime, &usage) == STRATA_SUCCESS)
        *free_bytes += usage.reserved_free;
    if (device->account && strata_budget_account_usage(device->account, &budget) == STRATA_SUCCESS && budget.limit) {
        *total = least(*total, budget.limit);
        *free_bytes = least(*free_bytes, budget.remaining);
    }
    *free_bytes = least(*free_bytes, *total);
}

EXEC_EXPORT CUresult CUDAAPI cuMemGetInfo_v2(size_t *free_bytes, size_t *total)
{
    __typeof__(&cuMemGetInfo_v2) real = EXEC_REAL(cuMemGetInfo_v2);
    const CUresult result = real ? real(free_bytes, total) : CUDA_ERROR_NOT_FOUND;
    if (result != CUDA_SUCCESS)
        return result;
    const exec_here here = exec_device_here();
    if (here.device)
        tell_memory(here.device, free_bytes, total);
    return result;
}

EXEC_EXPORT CUresult CUDAAPI cuDeviceTotalMem_v2(size_t *bytes, CUdevice device)
{
    __typeof__(&cuDeviceTotalMem_v2) real = EXEC_REAL(cuDeviceTotalMem_v2);
    const CUresult result = real ? real(bytes, device) : CUDA_ERROR_NOT_FOUND;
    if (result != CUDA_SUCCESS)
        return result;
    const size_t size = budget_of(device >= 0 && device < EXEC_DEVICES ? exec_device_at((size_t)device) : NULL, *bytes);
    if (size)
        *bytes = size;
    return result;
}

/* ---- addresses ---- */

/* A block that the program has. */
static exec_device *find_own_block(CUdeviceptr address, strata_block *block)
{
    exec_device *device = exec_find_block(address, block);
    return device && !exec_free_waits(block->address) ? device : NULL;
}

EXEC_EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    strata_block block;
    if (find_own_block(address, &block)) {
        if (start)
            *start = block.address;
        if (bytes)
            *bytes = block.requested;
        return CUDA_SUCCESS;
    }
    __typeof__(&cuMemGetAddressRange_v2) real = EXEC_REAL(cuMemGetAddressRange_v2);
    return real ? real(start, bytes, address) : CUDA_ERROR_NOT_FOUND;
}

static bool differs(CUpointer_attribute attribute)
{
    return attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR || attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE ||
           attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID || attribute == CU_POINTER_ATTRIBUTE_CONTEXT;
}

/* Of an allocation of its own, where the driver sees a part of a larger mapping. Buffer numbers of Strata's blocks are
 * above all of the driver's. */
static void tell_attribute(const exec_device *device, const strata_block *block, CUpointer_attribute attribute,
                           void *value)
{
    const unsigned long long buffer = 1ull << 63 | block->id.generation;
    if (attribute == CU_POINTER_ATTRIBUTE_RANGE_START_ADDR)
        memcpy(value, &block->address, sizeof block->address);
    else if (attribute == CU_POINTER_ATTRIBUTE_RANGE_SIZE)
        memcpy(value, &block->requested, sizeof block->requested);
    else if (attribute == CU_POINTER_ATTRIBUTE_BUFFER_ID)
        memcpy(value, &buffer, sizeof buffer);
    else if (attribute == CU_POINTER_ATTRIBUTE_CONTEXT)
        memcpy(value, &device->context, sizeof device->context);
}

EXEC_EXPORT CUresult CUDAAPI cuPointerGetAttribute(void *value, CUpointer_attribute attribute, CUdeviceptr address)
{
    __typeof__(&cuPointerGetAttribute) real = EXEC_REAL(cuPointerGetAttribute);
    const CUresult result = real ? real(value, attribute, address) : CUDA_ERROR_NOT_FOUND;
    strata_block block;
    const exec_device *device = value && differs(attribute) ? find_own_block(address, &block) : NULL;
    if (!device)
        return result;
    tell_attribute(device, &block, attribute, value);
    return CUDA_SUCCESS;
}

EXEC_EXPORT CUresult CUDAAPI cuPointerGetAttributes(unsigned count, CUpointer_attribute *attributes, void **values,
                                                    CUdeviceptr address)
{
    __typeof__(&cuPointerGetAttributes) real = EXEC_REAL(cuPointerGetAttributes);
    const CUresult result = real ? real(count, attributes, values, address) : CUDA_ERROR_NOT_FOUND;
    strata_block block;
    const exec_device *device = result == CUDA_SUCCESS && attributes && values ? find_own_block(address, &block) : NULL;
    for (unsigned i = 0; device && i < count; i++)
        if (values[i])
            tell_attribute(device, &block, attributes[i], values[i]);
    return result;
}

/* ---- NVML, which counts devices otherwise: they are told apart by UUID ---- */

typedef int nvml_get_uuid(void *device, char *text, unsigned length);

static bool read_nvml_uuid(void *device, unsigned char uuid[16])
{
    Dl_info where;
    char text[96] = "";
    void *near = exec_hook_real(EXEC_HOOK_nvmlDeviceGetMemoryInfo), *library;
    if (!near || !dladdr(near, &where) || !(library = dlopen(where.dli_fname, RTLD_LAZY | RTLD_NOLOAD)))
        return false;
    nvml_get_uuid *get;
    void *found = exec_loader_dlsym(library, "nvmlDeviceGetUUID");
    memcpy(&get, &found, sizeof get);
    const bool read = get && get(device, text, sizeof text) == 0;
    dlclose(library);
    const char *digits = strchr(text, '-'); /* behind "GPU" or "MIG" */
    for (size_t i = 0; read && digits && i < 16; i++) {
        while (*digits == '-')
            digits++;
        if (sscanf(digits, "%2hhx", &uuid[i]) != 1)
            return false;
        digits += 2;
    }
    return read && digits;
}

/* The ready device behind NVML's handle. NULL: none. */
static exec_device *find_nvml_device(void *handle)
{
    unsigned char wanted[16];
    CUuuid uuid;
    if (!strata_driver_is_open() || !strata_cu.DeviceGetUuid || !read_nvml_uuid(handle, wanted))
        return NULL;
    for (size_t i = 0; i < exec_device_bound(); i++) {
        exec_device *device = exec_device_at(i);
        if (device && strata_cu.DeviceGetUuid(&uuid, device->ordinal) == CUDA_SUCCESS &&
            memcmp(uuid.bytes, wanted, sizeof wanted) == 0)
            return device;
    }
    return NULL;
}

/* Total and used, below the budget. Without a stack yet the program has nothing. */
static bool tell_nvml(void *handle, unsigned long long *total, unsigned long long *free_bytes, unsigned long long *used)
{
    strata_budget_usage budget;
    exec_device *device = find_nvml_device(handle);
    const size_t size = budget_of(device, *total);
    if (!size)
        return false;
    if (device)
        exec_free_waiting(device);
    *total = size;
    *used = device && device->account && strata_budget_account_usage(device->account, &budget) == STRATA_SUCCESS
                ? least(budget.in_use, size)
                : 0;
    *free_bytes = *total - *used;
    return true;
}

EXEC_EXPORT int nvmlDeviceGetMemoryInfo(void *device, exec_nvml_memory *memory)
{
    enum { FUNCTION_NOT_FOUND = 13 };
    __typeof__(&nvmlDeviceGetMemoryInfo) real = EXEC_REAL(nvmlDeviceGetMemoryInfo);
    const int result = real ? real(device, memory) : FUNCTION_NOT_FOUND;
    if (result == 0 && memory)
        tell_nvml(device, &memory->total, &memory->free, &memory->used);
    return result;
}

EXEC_EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, exec_nvml_memory_v2 *memory)
{
    enum { FUNCTION_NOT_FOUND = 13 };
    __typeof__(&nvmlDeviceGetMemoryInfo_v2) real = EXEC_REAL(nvmlDeviceGetMemoryInfo_v2);
    const int result = real ? real(device, memory) : FUNCTION_NOT_FOUND;
    if (result == 0 && memory && tell_nvml(device, &memory->total, &memory->free, &memory->used))
        memory->reserved = 0;
    return result;
}
