/* Libraries that are unloaded behind their calls, each where the other one was: memory is counted for the one that
 * asked. As a program: `unloaded FOLDER`. */
#if defined AS_LIBRARY
#include <cuda.h>
#else
#include "driver_calls.h"
#endif

#define MIB ((size_t)1 << 20)

typedef CUresult allocate(CUdeviceptr *block, size_t bytes);
CUresult ask_for(allocate *function, CUdeviceptr *block, size_t bytes);

#if defined AS_LIBRARY

CUresult ask_for(allocate *function, CUdeviceptr *block, size_t bytes)
{
    const CUresult result = function(block, bytes);
    return result == CUDA_ERROR_UNKNOWN ? CUDA_ERROR_OUT_OF_MEMORY : result; /* no tail call */
}

#else

int main(int count, char **arguments)
{
    CUdeviceptr block;
    begin();
    for (int i = 0; count > 1 && i < 8; i++) {
        char path[4096];
        __typeof__(&ask_for) ask;
        snprintf(path, sizeof path, "%s/libunloaded_%s.so", arguments[1], i % 2 ? "second" : "first");
        void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
        if (!library)
            printf("%s\n", dlerror());
        store(&ask, library ? dlsym(library, "ask_for") : NULL, "ask_for");
        CHECK(ask(DRIVER(cuMemAlloc), &block, i % 2 ? 2 * MIB : MIB));
        dlclose(library);
    }
    return 0;
}

#endif
