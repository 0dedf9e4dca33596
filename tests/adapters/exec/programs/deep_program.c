/* Opens a library with RTLD_DEEPBIND, whose calls of the driver pass the hooks. */
#define _GNU_SOURCE
#define WAY WAY_DLSYM
#include "driver_calls.h"

int main(int count, char **arguments)
{
    CUresult (*take)(CUdeviceptr *);
    CUdeviceptr block, own;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&own, 1 << 20));
    void *library = dlopen(count > 1 ? arguments[1] : "libdeep.so", RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
    void *found = library ? dlsym(library, "take_memory") : NULL;
    if (!found) {
        printf("%s\n", dlerror());
        return 3;
    }
    memcpy(&take, &found, sizeof take);
    printf("its memory: %d\n", take(&block));
    return 0;
}
