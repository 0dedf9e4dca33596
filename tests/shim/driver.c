/* A driver library for tests: it forwards to the simulated driver, and hides from cuGetProcAddress the entry points
 * that STRATA_SHIM_HIDES names, as a driver that is too old for them does. With STRATA_SHIM_PAUSE_MS it sleeps as long
 * before it gives cuInit away, so that a test can do something while a driver is being opened. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static PFN_cuGetProcAddress_v12000 open_real(void)
{
    static PFN_cuGetProcAddress_v12000 real;
    const char *path = getenv("STRATA_SIM_LIBRARY");
    void *library = real || !path ? NULL : dlopen(path, RTLD_NOW | RTLD_LOCAL);
    void *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    if (symbol)
        memcpy(&real, &symbol, sizeof real);
    return real;
}

/* Whether the list of names, separated by commas, has this one. */
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

__attribute__((visibility("default"))) CUresult CUDAAPI cuGetProcAddress_v2(const char *symbol, void **pointer,
                                                                            int version, cuuint64_t flags,
                                                                            CUdriverProcAddressQueryResult *found)
{
    PFN_cuGetProcAddress_v12000 real = open_real();
    if (!real)
        return CUDA_ERROR_NOT_INITIALIZED;
    const char *pause_ms = strcmp(symbol, "cuInit") == 0 ? getenv("STRATA_SHIM_PAUSE_MS") : NULL;
    if (pause_ms)
        usleep((useconds_t)atoi(pause_ms) * 1000);
    if (!has_name(getenv("STRATA_SHIM_HIDES"), symbol))
        return real(symbol, pointer, version, flags, found);
    *pointer = NULL;
    if (found)
        *found = CU_GET_PROC_ADDRESS_SYMBOL_NOT_FOUND;
    return CUDA_SUCCESS;
}
