/* A library that is preloaded beside Strata's, and stands before or behind it: it wraps cuMemAlloc_v2 as such libraries
 * do, by the next one, and counts. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

static int calls;

CUresult CUDAAPI cuMemAlloc_v2(CUdeviceptr *out, size_t bytes)
{
    static __typeof__(&cuMemAlloc_v2) next;
    void *found = next ? NULL : dlsym(RTLD_NEXT, "cuMemAlloc_v2");
    if (found)
        memcpy(&next, &found, sizeof found);
    calls++;
    return next ? next(out, bytes) : CUDA_ERROR_NOT_FOUND;
}

static __attribute__((destructor)) void tell(void)
{
    fprintf(stderr, "beside: %d calls\n", calls);
}
