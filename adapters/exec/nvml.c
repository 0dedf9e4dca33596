/* What NVML tells of memory: the budget as the size of the device, as truth.c does. NVML numbers devices in its own
 * way, so that they are found by UUID. Its errors stay: NOT_SUPPORTED, for instance, without memory of its own. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "driver/driver.h"

#include <dlfcn.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

typedef int nvml_get_uuid(void *device, char *text, unsigned length);

/* The first real function of NVML that the program has looked up or is linked to. NULL: there is none. */
static void *any_nvml_function(void)
{
    for (exec_hook i = 0; i < EXEC_HOOK_COUNT; i++) {
        void *real = exec_hook_rows[i].version == 0 ? exec_hook_real(i) : NULL;
        if (real)
            return real;
    }
    return NULL;
}

static bool read_nvml_uuid(void *device, unsigned char uuid[16])
{
    Dl_info where;
    char text[96] = "";
    void *near = any_nvml_function(), *library;
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
    exec_device *device;
    if (!strata_driver_is_open() || !strata_cu.DeviceGetUuid || !read_nvml_uuid(handle, wanted))
        return NULL;
    for (size_t i = 0; (device = exec_device_next(&i));)
        if (strata_cu.DeviceGetUuid(&uuid, device->ordinal) == CUDA_SUCCESS &&
            memcmp(uuid.bytes, wanted, sizeof wanted) == 0)
            return device;
    return NULL;
}

/* Replaces total, free and used bytes by those of the budget. Without a stack yet the program has nothing in use.
 * False: there is no budget. */
static bool tell_nvml(void *handle, unsigned long long *total, unsigned long long *free_bytes, unsigned long long *used)
{
    strata_budget_usage budget;
    exec_device *device = find_nvml_device(handle);
    const size_t size = exec_told_size(device, *total);
    if (!size)
        return false;
    if (device)
        exec_free_waiting(device);
    *total = size;
    *used = device && device->account && strata_budget_account_usage(device->account, &budget) == STRATA_SUCCESS
                ? exec_least(budget.in_use, size)
                : 0;
    *free_bytes = *total - *used;
    return true;
}

enum { NVML_SUCCESS = 0, NVML_FUNCTION_NOT_FOUND = 13 };

#define NVML_CALL(symbol, ...) \
    (exec_hook_real(EXEC_HOOK_##symbol) ? EXEC_REAL(symbol)(__VA_ARGS__) : NVML_FUNCTION_NOT_FOUND)

EXEC_EXPORT int nvmlDeviceGetMemoryInfo(void *device, exec_nvml_memory *memory)
{
    const int result = NVML_CALL(nvmlDeviceGetMemoryInfo, device, memory);
    if (result == NVML_SUCCESS && memory)
        tell_nvml(device, &memory->total, &memory->free, &memory->used);
    return result;
}

EXEC_EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, exec_nvml_memory_v2 *memory)
{
    const int result = NVML_CALL(nvmlDeviceGetMemoryInfo_v2, device, memory);
    if (result == NVML_SUCCESS && memory && tell_nvml(device, &memory->total, &memory->free, &memory->used))
        memory->reserved = 0;
    return result;
}

/* Asked of a MIG instance, a part of a device that is a device of its own. */
EXEC_EXPORT int nvmlDeviceGetAttributes_v2(void *device, exec_nvml_attributes *attributes)
{
    const int result = NVML_CALL(nvmlDeviceGetAttributes_v2, device, attributes);
    unsigned long long total, free_bytes, used;
    if (result != NVML_SUCCESS || !attributes)
        return result;
    total = attributes->mebibytes << 20;
    if (tell_nvml(device, &total, &free_bytes, &used))
        attributes->mebibytes = total >> 20;
    return result;
}

/* ---- processes ---- */

/* Tells this process's bytes as those that the device has in use: a program that compares the two must not find more of
 * its own than of all. Other processes' bytes stay. */
static void tell_process(void *device, unsigned process, unsigned long long *used)
{
    unsigned long long total = ULLONG_MAX, free_bytes, in_use;
    if (process == (unsigned)getpid() && *used != ULLONG_MAX && tell_nvml(device, &total, &free_bytes, &in_use))
        *used = in_use;
}

#define PROCESSES_HOOK(name, type)                                                   \
    EXEC_EXPORT int name(void *device, unsigned *count, type *processes)             \
    {                                                                                \
        const int result = NVML_CALL(name, device, count, processes);                \
        for (unsigned i = 0; result == NVML_SUCCESS && processes && i < *count; i++) \
            tell_process(device, processes[i].process, &processes[i].used);          \
        return result;                                                               \
    }

PROCESSES_HOOK(nvmlDeviceGetComputeRunningProcesses, exec_nvml_process)
PROCESSES_HOOK(nvmlDeviceGetComputeRunningProcesses_v2, exec_nvml_process_v2)
PROCESSES_HOOK(nvmlDeviceGetComputeRunningProcesses_v3, exec_nvml_process_v2)
PROCESSES_HOOK(nvmlDeviceGetGraphicsRunningProcesses, exec_nvml_process)
PROCESSES_HOOK(nvmlDeviceGetGraphicsRunningProcesses_v2, exec_nvml_process_v2)
PROCESSES_HOOK(nvmlDeviceGetGraphicsRunningProcesses_v3, exec_nvml_process_v2)
PROCESSES_HOOK(nvmlDeviceGetMPSComputeRunningProcesses, exec_nvml_process)
PROCESSES_HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v2, exec_nvml_process_v2)
PROCESSES_HOOK(nvmlDeviceGetMPSComputeRunningProcesses_v3, exec_nvml_process_v2)

EXEC_EXPORT int nvmlDeviceGetRunningProcessDetailList(void *device, exec_nvml_process_details *details)
{
    const int result = NVML_CALL(nvmlDeviceGetRunningProcessDetailList, device, details);
    for (unsigned i = 0; result == NVML_SUCCESS && details && details->processes && i < details->count; i++)
        tell_process(device, details->processes[i].process, &details->processes[i].used);
    return result;
}
