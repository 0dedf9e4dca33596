/* Asks a newer driver for what it alone has, and for what is old. */
#define __CUDA_API_VERSION_INTERNAL
#include <cuda.h>
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

int main(void)
{
    void *library = dlopen("libcuda.so.1", RTLD_NOW), *address, *function = NULL;
    CUresult (*get)(const char *, void **, int, cuuint64_t, CUdriverProcAddressQueryResult *);
    int (*thing)(int);
    CUdeviceptr (*newer)(size_t, CUresult *);
    CUresult (*older)(CUdeviceptr *, size_t), (*retain)(CUcontext *, CUdevice), (*set)(CUcontext), (*init)(unsigned);
    CUresult result = CUDA_ERROR_UNKNOWN;
    CUdeviceptr block;
    CUcontext context;
    if (!library || !(address = dlsym(library, "cuGetProcAddress_v2")))
        return 1;
    memcpy(&get, &address, sizeof get);
#define GET(to, name, version)                                               \
    if (get(name, &function, version, 0, NULL) != CUDA_SUCCESS || !function) \
        return 2;                                                            \
    memcpy(&to, &function, sizeof to)
    GET(thing, "cuNewThing", 12000);
    GET(newer, "cuMemAlloc", 99000);
    GET(older, "cuMemAlloc", 12000);
    GET(init, "cuInit", 12000);
    GET(retain, "cuDevicePrimaryCtxRetain", 12000);
    GET(set, "cuCtxSetCurrent", 12000);
    printf("thing %d, newer %llx", thing(4), (unsigned long long)newer(1, &result));
    printf(", result %d\n", (int)result);
    if (init(0) || retain(&context, 0) || set(context))
        return 3;
    printf("older %d\n", (int)older(&block, 1 << 20));
    address = dlsym(library, "cuNewThing");
    printf("by dlsym %s\n", address ? "found" : "nothing");
    return 0;
}
