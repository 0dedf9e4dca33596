/* A driver library for tests, between Strata and the driver that STRATA_SHIM_DRIVER names to the loader (libcuda.so.1),
 * or else the simulated one of STRATA_SIM_LIBRARY. All entry points are those of the driver behind it, except as the
 * environment says:
 *
 * STRATA_SHIM_HIDES=NAME,...: cuGetProcAddress does not find these, as in a driver that is too old for them.
 *
 * STRATA_SHIM_PAUSE=FOLDER: before it returns cuInit, cuGetProcAddress makes the file "paused" there and waits, a
 * minute at most, for a file "go": a test acts while a driver is opened.
 *
 * STRATA_SHIM_OPENS=N: cuInit opens N files, at most 64, and closes them again; without descriptors for them it answers
 * OPERATING_SYSTEM, or with STRATA_SHIM_OPENS_UNSEEN=1 works on, and cuDeviceGetCount answers 0.
 *
 * STRATA_SHIM_EVENTS_PENDING=1: cuEventQuery and cuStreamQuery never report completion (orders.h).
 *
 * STRATA_SHIM_STREAMS_FOLLOW=1: new streams wait for what the host had waited for (orders.h). */
#include "shim/orders.h"

#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

/* The driver behind; written once, by open_real(). */
static void *library;
static PFN_cuGetProcAddress_v12000 real_get;
static PFN_cuInit_v2000 real_init;
static PFN_cuDeviceGetCount_v2000 real_count;

static _Atomic bool lacks_files; /* since the last cuInit; any thread */

static const char *setting(const char *name)
{
    const char *text = getenv(name);
    return text && *text ? text : NULL;
}

static void *find(const char *name)
{
    return dlsym(library, name);
}

static void open_real(void)
{
    const char *path = setting("STRATA_SHIM_DRIVER");
    if (!path)
        path = setting("STRATA_SIM_LIBRARY");
    library = path ? dlopen(path, RTLD_NOW | RTLD_LOCAL) : NULL;
    void *get = library ? find("cuGetProcAddress_v2") : NULL;
    if (!get) {
        fprintf(stderr, "no driver behind the shim: %s\n", path ? dlerror() : "none is named");
        return;
    }
    memcpy(&real_get, &get, sizeof real_get);
    shim_orders_open(find);
}

/* Whether the comma-separated list has this name. */
static bool has_name(const char *list, const char *name)
{
    size_t length = strlen(name);
    while (list && *list) {
        size_t here = strcspn(list, ",");
        if (here == length && strncmp(list, name, length) == 0)
            return true;
        list += here + (list[here] == ',');
    }
    return false;
}

static void pause_in(const char *folder)
{
    char paused[4200], go[4200];
    snprintf(paused, sizeof paused, "%s/paused", folder);
    snprintf(go, sizeof go, "%s/go", folder);
    const int file = open(paused, O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    if (file < 0)
        return;
    close(file);
    for (int i = 0; i < 60000 && access(go, F_OK) != 0; i++)
        usleep(1000);
}

static CUresult CUDAAPI opening_init(unsigned flags)
{
    int files[64];
    const int wanted = atoi(setting("STRATA_SHIM_OPENS"));
    int count = 0;
    while (count < wanted && count < 64 && (files[count] = open("/dev/null", O_RDWR | O_CLOEXEC)) >= 0)
        count++;
    lacks_files = count < wanted;
    while (count > 0)
        close(files[--count]);
    return lacks_files && !setting("STRATA_SHIM_OPENS_UNSEEN") ? CUDA_ERROR_OPERATING_SYSTEM : real_init(flags);
}

static CUresult CUDAAPI opening_count(int *count)
{
    const CUresult result = real_count(count);
    if (result == CUDA_SUCCESS && lacks_files)
        *count = 0;
    return result;
}

static void *choose_opening(const char *symbol, void *real)
{
    if (strcmp(symbol, "cuInit") == 0) {
        memcpy(&real_init, &real, sizeof real);
        const PFN_cuInit_v2000 init = opening_init;
        memcpy(&real, &init, sizeof real);
    } else if (strcmp(symbol, "cuDeviceGetCount") == 0) {
        memcpy(&real_count, &real, sizeof real);
        const PFN_cuDeviceGetCount_v2000 count = opening_count;
        memcpy(&real, &count, sizeof real);
    }
    return real;
}

__attribute__((visibility("default"))) CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pointer,
                                                                            int version, cuuint64_t flags,
                                                                            CUdriverProcAddressQueryResult *found)
{
    static pthread_once_t opened = PTHREAD_ONCE_INIT;
    pthread_once(&opened, open_real);
    if (!real_get)
        return CUDA_ERROR_NOT_INITIALIZED;
    if (strcmp(symbol, "cuInit") == 0 && setting("STRATA_SHIM_PAUSE"))
        pause_in(setting("STRATA_SHIM_PAUSE"));
    if (has_name(setting("STRATA_SHIM_HIDES"), symbol)) {
        *pointer = NULL;
        if (found)
            *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
        return CUDA_SUCCESS;
    }
    CUresult result = real_get(symbol, pointer, version, flags, found);
    if (result == CUDA_SUCCESS && *pointer)
        *pointer = shim_orders_choose(symbol, *pointer);
    if (result == CUDA_SUCCESS && *pointer && setting("STRATA_SHIM_OPENS"))
        *pointer = choose_opening(symbol, *pointer);
    return result;
}
