/* An NVML: one device, by the first CUDA device's UUID, of 16 GiB, with 6 in use, of which this process has 5. With
 * FAKE_NVML_UNSUPPORTED set it does not know of memory, as on devices without memory of their own. */
#include "nvml_types.h"

#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
#define GIB    (1ull << 30)

enum { SUCCESS = 0, NOT_SUPPORTED = 3, UNKNOWN = 999 };

EXPORT int nvmlDeviceGetAttributes_v2(void *device, attributes *found);
EXPORT int nvmlDeviceGetUUID(void *device, char *text, unsigned length);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, memory_1 *memory);
EXPORT int nvmlDeviceGetMemoryInfo_v2(void *device, memory_2 *memory);
EXPORT int nvmlDeviceGetRunningProcessDetailList(void *device, details *list);

static int answer(void)
{
    return getenv("FAKE_NVML_UNSUPPORTED") ? NOT_SUPPORTED : SUCCESS;
}

/* Two devices, in another order than CUDA's: the second handle is CUDA's first device. */
int nvmlDeviceGetUUID(void *device, char *text, unsigned length)
{
    CUresult (*get)(CUuuid *, CUdevice);
    CUuuid uuid;
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? dlsym(library, "cuDeviceGetUuid") : NULL;
    memcpy(&get, &found, sizeof get);
    if (!found || get(&uuid, 0) != CUDA_SUCCESS)
        return UNKNOWN;
    const unsigned char *b = (const unsigned char *)uuid.bytes;
    const unsigned char first = device == (void *)2 ? b[0] : (unsigned char)~b[0];
    snprintf(text, length, "GPU-%02x%02x%02x%02x-%02x%02x-%02x%02x-%02x%02x-%02x%02x%02x%02x%02x%02x", first, b[1],
             b[2], b[3], b[4], b[5], b[6], b[7], b[8], b[9], b[10], b[11], b[12], b[13], b[14], b[15]);
    return SUCCESS;
}

int nvmlDeviceGetMemoryInfo(void *device, memory_1 *memory)
{
    (void)device;
    if (answer() == SUCCESS)
        *memory = (memory_1){16 * GIB, 10 * GIB, 6 * GIB};
    return answer();
}

int nvmlDeviceGetMemoryInfo_v2(void *device, memory_2 *memory)
{
    (void)device;
    if (answer() == SUCCESS)
        *memory = (memory_2){memory->version, 16 * GIB, GIB, 9 * GIB, 6 * GIB};
    return answer();
}

static void list_first(unsigned *count, process_1 *processes)
{
    processes[0] = (process_1){(unsigned)getpid(), 5 * GIB};
    processes[1] = (process_1){1, GIB};
    *count = 2;
}

static void list_second(unsigned *count, process_2 *processes)
{
    processes[0] = (process_2){(unsigned)getpid(), ~0ull, 1, 1}; /* not known */
    processes[1] = (process_2){1, GIB, 1, 1};
    *count = 2;
}

static void list_third(unsigned *count, process_2 *processes)
{
    processes[0] = (process_2){1, GIB, 1, 1};
    processes[1] = (process_2){(unsigned)getpid(), 5 * GIB, 1, 1};
    *count = 2;
}

#define LIST(name, type, list)                                       \
    EXPORT int name(void *device, unsigned *count, type *processes); \
    int name(void *device, unsigned *count, type *processes)         \
    {                                                                \
        (void)device;                                                \
        list(count, processes);                                      \
        return SUCCESS;                                              \
    }

LIST(nvmlDeviceGetComputeRunningProcesses, process_1, list_first)
LIST(nvmlDeviceGetComputeRunningProcesses_v2, process_2, list_second)
LIST(nvmlDeviceGetComputeRunningProcesses_v3, process_2, list_third)
LIST(nvmlDeviceGetGraphicsRunningProcesses, process_1, list_first)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v2, process_2, list_second)
LIST(nvmlDeviceGetGraphicsRunningProcesses_v3, process_2, list_third)
LIST(nvmlDeviceGetMPSComputeRunningProcesses, process_1, list_first)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v2, process_2, list_second)
LIST(nvmlDeviceGetMPSComputeRunningProcesses_v3, process_2, list_third)

int nvmlDeviceGetRunningProcessDetailList(void *device, details *list)
{
    (void)device;
    list->processes[0] = (detail){(unsigned)getpid(), 5 * GIB, 1, 1, 0};
    list->processes[1] = (detail){1, GIB, 1, 1, 0};
    list->count = 2;
    return SUCCESS;
}

int nvmlDeviceGetAttributes_v2(void *device, attributes *found)
{
    (void)device;
    *found = (attributes){.counts = {132}, .mebibytes = 16 << 10};
    return SUCCESS;
}
