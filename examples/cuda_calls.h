/* The CUDA driver calls that the examples make besides Strata's.
 *
 * A program that is linked with -lcuda calls cuMemsetD8Async and the like directly and needs none of this. The examples
 * also run on Strata's simulated driver, on machines without a GPU, so they look the calls up in the driver library
 * that Strata has opened. */
#ifndef STRATA_EXAMPLES_CUDA_CALLS_H
#define STRATA_EXAMPLES_CUDA_CALLS_H

#include <cuda.h>
#include <cudaTypedefs.h>
#include <dlfcn.h>
#include <stdio.h>
#include <strata/strata.h>
#include <string.h>

typedef struct cuda_calls {
    PFN_cuGetProcAddress_v12000 get_proc_address; /* for further calls */
    PFN_cuDevicePrimaryCtxRetain_v7000 DevicePrimaryCtxRetain;
    PFN_cuCtxSetCurrent_v4000 CtxSetCurrent;
    PFN_cuStreamSynchronize_v2000 StreamSynchronize;
    PFN_cuMemAlloc_v3020 MemAlloc;
    PFN_cuMemFree_v3020 MemFree;
    PFN_cuMemGetInfo_v3020 MemGetInfo;
    PFN_cuMemsetD8Async_v3020 MemsetD8Async;
    PFN_cuMemcpyHtoDAsync_v3020 MemcpyHtoDAsync;
    PFN_cuMemcpyDtoHAsync_v3020 MemcpyDtoHAsync;
} cuda_calls;

static bool cuda_find(PFN_cuGetProcAddress_v12000 get_proc_address, const char *name, int version, void *call)
{
    void *symbol = NULL;
    CUdriverProcAddressQueryResult found;
    CUresult result = get_proc_address(name, &symbol, version, CU_GET_PROC_ADDRESS_LEGACY_STREAM, &found);
    if (result != CUDA_SUCCESS || !symbol) {
        fprintf(stderr, "the driver has no %s\n", name);
        return false;
    }
    memcpy(call, &symbol, sizeof symbol);
    return true;
}

/* Looks up the calls, and makes device 0 current on the calling thread, as cudaSetDevice(0) does. */
static bool cuda_open(cuda_calls *cu)
{
    strata_driver_info driver;
    if (strata_driver_get_info(&driver) != STRATA_SUCCESS) {
        fprintf(stderr, "%s\n", strata_last_error()->message);
        return false;
    }
    void *library = dlopen(driver.library, RTLD_NOW), *symbol = library ? dlsym(library, "cuGetProcAddress_v2") : NULL;
    CUcontext context;
    if (!symbol)
        return false;
    memcpy(&cu->get_proc_address, &symbol, sizeof symbol);
    return cuda_find(cu->get_proc_address, "cuDevicePrimaryCtxRetain", 7000, &cu->DevicePrimaryCtxRetain) &&
           cuda_find(cu->get_proc_address, "cuCtxSetCurrent", 4000, &cu->CtxSetCurrent) &&
           cuda_find(cu->get_proc_address, "cuStreamSynchronize", 2000, &cu->StreamSynchronize) &&
           cuda_find(cu->get_proc_address, "cuMemAlloc", 3020, &cu->MemAlloc) &&
           cuda_find(cu->get_proc_address, "cuMemFree", 3020, &cu->MemFree) &&
           cuda_find(cu->get_proc_address, "cuMemGetInfo", 3020, &cu->MemGetInfo) &&
           cuda_find(cu->get_proc_address, "cuMemsetD8Async", 3020, &cu->MemsetD8Async) &&
           cuda_find(cu->get_proc_address, "cuMemcpyHtoDAsync", 3020, &cu->MemcpyHtoDAsync) &&
           cuda_find(cu->get_proc_address, "cuMemcpyDtoHAsync", 3020, &cu->MemcpyDtoHAsync) &&
           cu->DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS && cu->CtxSetCurrent(context) == CUDA_SUCCESS;
}

#endif
