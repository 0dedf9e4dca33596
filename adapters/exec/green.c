/* The contexts of streams and of green contexts. Drivers before CUDA 12.4 have no green ones. */
#define _GNU_SOURCE
#include "adapters/exec/exec.h"

#include "driver/driver.h"

#include <dlfcn.h>
#include <string.h>

/* NULL: the driver has no such function. */
static void *driver_function(const char *name)
{
    void *library = dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    void *found = library ? exec_loader_dlsym(library, name) : NULL;
    if (library)
        dlclose(library);
    return found;
}

typedef CUresult get_green(CUstream stream, CUgreenCtx *green);
static _Atomic(get_green *) green_of_stream; /* NULL: not looked up yet, or there is none; any thread */

void exec_look_up_green(void)
{
    static _Atomic bool looked;
    get_green *get;
    if (atomic_load_explicit(&looked, memory_order_acquire))
        return;
    void *found = driver_function("cuStreamGetGreenCtx");
    memcpy(&get, &found, sizeof get);
    atomic_store(&green_of_stream, get);
    atomic_store_explicit(&looked, true, memory_order_release);
}

bool exec_context_of_stream(CUstream stream, CUcontext *context)
{
    CUgreenCtx green = NULL;
    get_green *get = atomic_load(&green_of_stream);
    if (get && get(stream, &green) == CUDA_SUCCESS && green)
        return false;
    return strata_cu.StreamGetCtx && strata_cu.StreamGetCtx(stream, context) == CUDA_SUCCESS;
}

CUcontext exec_context_of_green(CUgreenCtx green)
{
    CUcontext context = NULL;
    CUresult (*get)(CUcontext *, CUgreenCtx);
    void *found = driver_function("cuCtxFromGreenCtx");
    memcpy(&get, &found, sizeof get);
    return get && get(&context, green) == CUDA_SUCCESS ? context : NULL;
}
