/* The contexts of streams and of green contexts, and the order of green ones. Drivers before CUDA 12.4 have none. */
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
typedef CUresult take_event(CUgreenCtx green, CUevent event);

/* NULL: not looked up yet, or there is none; any thread. */
static _Atomic(get_green *) green_of_stream;
static _Atomic(take_event *) record_event, wait_event;

static take_event *find_event_function(const char *name)
{
    take_event *function;
    void *found = driver_function(name);
    memcpy(&function, &found, sizeof function);
    return function;
}

void exec_look_up_green(void)
{
    static _Atomic bool looked;
    get_green *get;
    if (atomic_load_explicit(&looked, memory_order_acquire))
        return;
    void *found = driver_function("cuStreamGetGreenCtx");
    memcpy(&get, &found, sizeof get);
    atomic_store(&green_of_stream, get);
    atomic_store(&record_event, find_event_function("cuGreenCtxRecordEvent"));
    atomic_store(&wait_event, find_event_function("cuGreenCtxWaitEvent"));
    atomic_store_explicit(&looked, true, memory_order_release);
}

CUgreenCtx exec_green_of_stream(CUstream stream)
{
    CUgreenCtx green = NULL;
    get_green *get = atomic_load(&green_of_stream);
    return get && get(stream, &green) == CUDA_SUCCESS ? green : NULL;
}

bool exec_context_of_stream(CUstream stream, CUcontext *context)
{
    return !exec_green_of_stream(stream) && strata_cu.StreamGetCtx &&
           strata_cu.StreamGetCtx(stream, context) == CUDA_SUCCESS;
}

CUcontext exec_context_of_green(CUgreenCtx green)
{
    CUcontext context = NULL;
    CUresult (*get)(CUcontext *, CUgreenCtx);
    void *found = driver_function("cuCtxFromGreenCtx");
    memcpy(&get, &found, sizeof get);
    return get && get(&context, green) == CUDA_SUCCESS ? context : NULL;
}

bool exec_green_record(CUgreenCtx green, CUevent event)
{
    take_event *record = atomic_load(&record_event);
    return record && !exec_captures_under_way() && record(green, event) == CUDA_SUCCESS;
}

bool exec_green_wait(CUgreenCtx green, CUevent event)
{
    take_event *wait = atomic_load(&wait_event);
    return wait && !exec_captures_under_way() && wait(green, event) == CUDA_SUCCESS;
}
