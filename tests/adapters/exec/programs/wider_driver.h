/* What the files of the wider driver share: the driver behind it, and its green contexts. */
#ifndef STRATA_TESTS_WIDER_DRIVER_H
#define STRATA_TESTS_WIDER_DRIVER_H

#include <cuda.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))
#define SHARED __attribute__((visibility("hidden"))) /* by the files of the driver */

typedef CUresult get_function(const char *name, void **found, int version, cuuint64_t flags,
                              CUdriverProcAddressQueryResult *status);

static inline void *behind(const char *name)
{
    void *library = dlopen(getenv("NEWER_DRIVER_BEHIND"), RTLD_NOW | RTLD_LOCAL);
    return library ? dlsym(library, name) : NULL;
}

/* The function itself, where dlsym may lead to a hook: a driver calls its own by no name. */
static inline void *inside(const char *name, int version)
{
    get_function *get;
    void *address = behind("cuGetProcAddress_v2"), *found = NULL;
    memcpy(&get, &address, sizeof get);
    get(name, &found, version, 0, NULL);
    return found;
}

/* A function of the driver behind, under the name of its type. */
#define BEHIND(symbol, base, version)                        \
    __typeof__(&symbol) symbol##_behind;                     \
    do {                                                     \
        void *const address_ = inside(base, version);        \
        memcpy(&symbol##_behind, &address_, sizeof(void *)); \
    } while (0)

/* ---- green contexts ---- */

/* As CUDA documents them: one holds the primary context of its device until it is destroyed; then its streams are no
 * streams any more. Its context is current to one thread at a time. */
struct CUgreenCtx_st {
    CUcontext primary, own;
    CUdevice device;
    CUstream helper; /* of the primary context */
    CUstream streams[4];
    size_t count;
    const void *thread; /* that it is current to */
    bool dead;          /* its primary context was reset */
    CUgreenCtx next;
};

SHARED extern CUgreenCtx all_green;

SHARED CUresult CUDAAPI retain_primary(CUcontext *out, CUdevice device);
SHARED CUresult CUDAAPI release_primary(CUdevice device);

/* The next `count` last releases, in the middle of which another module begins the context anew. */
EXPORT CUresult CUDAAPI cuNewBegins(int count);

/* The references that are held now, and how many were given back. */
EXPORT CUresult CUDAAPI cuNewReferences(int *held, int *given_back);

#endif
