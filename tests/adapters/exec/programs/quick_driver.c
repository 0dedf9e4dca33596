/* A driver with functions that return at once, so that what a hook adds is seen (pass.c). All else is the driver behind
 * it, which NEWER_DRIVER_BEHIND names: so are physical memory that is not of 64 bytes, and what this one did not give,
 * since Strata calls these functions, too. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdint.h>
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

static void find_behind(const char *symbol, void *to)
{
    void *address = behind(symbol);
    memcpy(to, &address, sizeof address);
}

/* Each thread has memory of its own, which it alone frees. */
#define OWN_OF_THREAD static _Thread_local __attribute__((tls_model("initial-exec")))
enum { SMALL = 64 };
OWN_OF_THREAD char memory[2 * SMALL];
OWN_OF_THREAD unsigned long calls; /* of quick_alloc */

static CUresult quick(void)
{
    return CUDA_SUCCESS;
}

static CUresult quick_alloc(void **out, size_t bytes, unsigned flags)
{
    (void)bytes;
    (void)flags;
    *out = memory + (calls++ ? SMALL : 0);
    return CUDA_SUCCESS;
}

static CUresult quick_array(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *array)
{
    (void)array;
    *out = (CUarray)(void *)memory;
    return CUDA_SUCCESS;
}

static CUresult quick_managed(CUdeviceptr *out, size_t bytes, unsigned flags)
{
    (void)bytes;
    (void)flags;
    *out = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

/* The function behind this one's, which is known by then: the first that is found is the one that hooks call. */
#define BEHIND(symbol)                          \
    static __typeof__(&symbol) symbol##_behind; \
    if (!symbol##_behind)                       \
    find_behind(#symbol, &symbol##_behind)

static CUresult quick_free(CUdeviceptr address)
{
    BEHIND(cuMemFree_v2);
    return address == (uintptr_t)memory ? CUDA_SUCCESS : cuMemFree_v2_behind(address);
}

static CUresult quick_create(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *properties,
                             unsigned long long flags)
{
    BEHIND(cuMemCreate);
    if (bytes != SMALL)
        return cuMemCreate_behind(out, bytes, properties, flags);
    *out = (uintptr_t)memory;
    return CUDA_SUCCESS;
}

static CUresult quick_release(CUmemGenericAllocationHandle handle)
{
    BEHIND(cuMemRelease);
    return handle == (uintptr_t)memory ? CUDA_SUCCESS : cuMemRelease_behind(handle);
}

/* Some look-ups of `strata exec` are by symbol, and must lead to the same functions. */
#define EXPORT_AS(function) __attribute__((visibility("default"), alias(#function)))
CUresult CUDAAPI cuMemFree_v2(CUdeviceptr address) EXPORT_AS(quick_free);
CUresult CUDAAPI cuMemCreate(CUmemGenericAllocationHandle *out, size_t bytes, const CUmemAllocationProp *properties,
                             unsigned long long flags) EXPORT_AS(quick_create);
CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle) EXPORT_AS(quick_release);

static CUresult quick_refusal(void)
{
    return CUDA_ERROR_INVALID_VALUE;
}

#define OWN(name, function)              \
    {                                    \
        name, (void (*)(void))(function) \
    }

static const struct {
    const char *name;
    void (*function)(void);
} own[] = {
    OWN("cuNewThing", quick),
    OWN("cuPointerGetAttribute", quick_refusal),
    OWN("cuMemPoolGetAttribute", quick),
    OWN("cuGraphLaunch", quick),
    OWN("cuMemGetAddressRange", quick_refusal),
    OWN("cuMemHostAlloc", quick_alloc),
    OWN("cuMemFreeHost", quick),
    OWN("cuArrayCreate", quick_array),
    OWN("cuArrayDestroy", quick),
    OWN("cuMemHostRegister", quick),
    OWN("cuMemHostUnregister", quick),
    OWN("cuMemAllocManaged", quick_managed),
    OWN("cuMemFree", quick_free),
    OWN("cuMemCreate", quick_create),
    OWN("cuMemRelease", quick_release),
};

EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags,
                                            CUdriverProcAddressQueryResult *status)
{
    get_function *real;
    find_behind("cuGetProcAddress_v2", &real);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i].name, name) == 0) {
            memcpy(found, &own[i].function, sizeof *found);
            if (status)
                *status = CU_GET_PROC_ADDRESS_SUCCESS;
            return CUDA_SUCCESS;
        }
    return real(name, found, version, flags, status);
}

EXPORT CUresult CUDAAPI cuInit(unsigned flags)
{
    CUresult (*real)(unsigned);
    find_behind("cuInit", &real);
    return real(flags);
}
