/* A driver that is newer than Strata knows: another cuMemAlloc from CUDA 99 on, of another form, and functions
 * of names that are new. All else is the driver behind it, which NEWER_DRIVER_BEHIND names. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

typedef CUresult get_function(const char *name, void **found, int version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult *status);

static void *behind(const char *name)
{
    void *library = dlopen(getenv("NEWER_DRIVER_BEHIND"), RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

/* The size comes first, and the result is the address. */
static CUdeviceptr new_alloc(size_t bytes, CUresult *result)
{
    *result = CUDA_SUCCESS;
    return 0xabc0000 + bytes;
}

EXPORT int cuNewThing(int value);

int cuNewThing(int value)
{
    return value + 1;
}

EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags,
                                            CUdriverProcAddressQueryResult *status)
{
    get_function *real;
    void *address = behind("cuGetProcAddress_v2");
    memcpy(&real, &address, sizeof real);
    if (version >= 99000 && strcmp(name, "cuMemAlloc") == 0) {
        CUdeviceptr (*newer)(size_t, CUresult *) = new_alloc;
        memcpy(found, &newer, sizeof newer);
        return CUDA_SUCCESS;
    }
    if (strcmp(name, "cuNewThing") == 0) {
        int (*thing)(int) = cuNewThing;
        memcpy(found, &thing, sizeof thing);
        return CUDA_SUCCESS;
    }
    return real(name, found, version, flags, status);
}

EXPORT CUresult CUDAAPI cuInit(unsigned flags)
{
    CUresult (*real)(unsigned);
    void *address = behind("cuInit");
    memcpy(&real, &address, sizeof real);
    return real(flags);
}
