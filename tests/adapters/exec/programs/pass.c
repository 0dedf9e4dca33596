/* Nanoseconds of calls that are passed on, one row a function: the least of many runs. With Strata and without, by
 * turns; the difference is what the hook adds. On quick_driver.c nothing else is seen.
 *
 * Usage: pass [calls [q [other | both]]]. q: on quick_driver.c. other: the rows of memory are those of a second thread,
 * behind many such calls of the first; both: while the first makes such calls, too. */
#include "wider_calls.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <time.h>

enum { RUNS = 50 };

static CUdeviceptr block; /* one of Strata's, where it is there */
static int calls = 20000;
static bool quick; /* the driver is quick_driver.c */
static _Atomic bool measured;

static double now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (double)time.tv_sec * 1e9 + (double)time.tv_nsec;
}

/* The statement `call` many times. */
#define MEASURE(what, call)                               \
    do {                                                  \
        double least_ = 1e18;                             \
        for (int run_ = 0; run_ < RUNS; run_++) {         \
            const double begin_ = now();                  \
            for (int i_ = 0; i_ < calls; i_++)            \
                (void)(call);                             \
            const double taken_ = now() - begin_;         \
            least_ = taken_ < least_ ? taken_ : least_;   \
        }                                                 \
        printf("%-44s %6.1f ns\n", what, least_ / calls); \
    } while (0)

static void measure_questions(void)
{
    WIDER(cuPointerGetAttribute, "cuPointerGetAttribute", 12000);
    WIDER(cuMemPoolGetAttribute, "cuMemPoolGetAttribute", 12000);
    WIDER(cuMemGetAddressRange_v2, "cuMemGetAddressRange", 12000);
    CUmemoryPool pool;
    unsigned long long value = 0;
    CHECK(DRIVER(cuDeviceGetDefaultMemPool)(&pool, 0));
    MEASURE("cuPointerGetAttribute, of what does not differ",
            cuPointerGetAttribute_found(&value, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, block));
    MEASURE("cuMemPoolGetAttribute, of what does not differ",
            cuMemPoolGetAttribute_found(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
    MEASURE("cuMemGetAddressRange, of a foreign address", cuMemGetAddressRange_v2_found(NULL, NULL, 0x1000));
}

static void measure_launches(void)
{
    WIDER(cuGraphLaunch, "cuGraphLaunch", 12000);
    MEASURE("cuGraphLaunch", cuGraphLaunch_found(NULL, 0));
}

static void measure_host_memory(void)
{
    WIDER(cuMemHostAlloc, "cuMemHostAlloc", 12000);
    WIDER(cuMemFreeHost, "cuMemFreeHost", 12000);
    void *memory, *held;
    CHECK(cuMemHostAlloc_found(&held, 64, 0)); /* as programs hold some */
    MEASURE("cuMemHostAlloc and cuMemFreeHost, counted",
            cuMemHostAlloc_found(&memory, 64, 0) == CUDA_SUCCESS && cuMemFreeHost_found(memory));
}

static void measure_registered_memory(void)
{
    WIDER(cuMemHostRegister_v2, "cuMemHostRegister", 12000);
    WIDER(cuMemHostUnregister, "cuMemHostUnregister", 12000);
    static char memory[64];
    MEASURE("cuMemHostRegister and cuMemHostUnregister, counted",
            cuMemHostRegister_v2_found(memory, sizeof memory, 0) == CUDA_SUCCESS && cuMemHostUnregister_found(memory));
}

static void measure_managed_memory(void)
{
    WIDER(cuMemAllocManaged, "cuMemAllocManaged", 12000);
    WIDER(cuMemFree_v2, "cuMemFree", 12000);
    CUdeviceptr memory;
    MEASURE("cuMemAllocManaged and cuMemFree, counted",
            cuMemAllocManaged_found(&memory, 64, CU_MEM_ATTACH_GLOBAL) == CUDA_SUCCESS && cuMemFree_v2_found(memory));
}

static void measure_physical_memory(void)
{
    WIDER(cuMemCreate, "cuMemCreate", 12000);
    WIDER(cuMemRelease, "cuMemRelease", 12000);
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE}};
    CUmemGenericAllocationHandle memory;
    MEASURE("cuMemCreate and cuMemRelease, counted",
            cuMemCreate_found(&memory, 64, &properties, 0) == CUDA_SUCCESS && cuMemRelease_found(memory));
}

static void measure_arrays(void)
{
    WIDER(cuArrayCreate_v2, "cuArrayCreate", 12000);
    WIDER(cuArrayDestroy, "cuArrayDestroy", 12000);
    const CUDA_ARRAY_DESCRIPTOR small = {.Width = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    CUcontext context;
    WIDER(cuCtxGetCurrent, "cuCtxGetCurrent", 12000);
    MEASURE("cuCtxGetCurrent, which no hook has", cuCtxGetCurrent_found(&context));
    MEASURE("cuArrayCreate and cuArrayDestroy, counted",
            cuArrayCreate_v2_found(&array, &small) == CUDA_SUCCESS && cuArrayDestroy_found(array));
}

static void measure_memory(void)
{
    measure_host_memory();
    if (quick) {
        measure_registered_memory();
        measure_managed_memory();
        measure_physical_memory();
    }
    measure_arrays();
}

static void *measure_on_other(void *context)
{
    WIDER(cuCtxSetCurrent, "cuCtxSetCurrent", 12000);
    CHECK(cuCtxSetCurrent_found(context));
    measure_memory();
    atomic_store(&measured, true);
    return NULL;
}

static void make_many(int count)
{
    WIDER(cuArrayCreate_v2, "cuArrayCreate", 12000);
    WIDER(cuArrayDestroy, "cuArrayDestroy", 12000);
    const CUDA_ARRAY_DESCRIPTOR small = {.Width = 64, .Format = CU_AD_FORMAT_FLOAT, .NumChannels = 1};
    CUarray array;
    for (int i = 0; i < count; i++)
        if (cuArrayCreate_v2_found(&array, &small) == CUDA_SUCCESS)
            CHECK(cuArrayDestroy_found(array));
}

static void measure_beside(bool both)
{
    enum { MANY = 100000, FEW = 100 };
    CUcontext context;
    pthread_t other;
    WIDER(cuCtxGetCurrent, "cuCtxGetCurrent", 12000);
    CHECK(cuCtxGetCurrent_found(&context));
    make_many(MANY);
    if (pthread_create(&other, NULL, measure_on_other, context) != 0)
        exit(3);
    while (both && !atomic_load(&measured))
        make_many(FEW);
    pthread_join(other, NULL);
}

int main(int count, char **arguments)
{
    CUresult (*unknown)(void);
    void *found = NULL;
    if (count > 1)
        calls = atoi(arguments[1]);
    quick = count > 2;
    begin();
    CHECK(DRIVER(cuMemAlloc)(&block, 1 << 20));
    if (count > 3) {
        measure_beside(strcmp(arguments[3], "both") == 0);
        return 0;
    }
    if (quick)
        found = ask("cuNewThing", 13000);
    memcpy(&unknown, &found, sizeof unknown);
    if (found)
        MEASURE("a function that no hook covers", unknown());
    measure_questions();
    measure_launches();
    measure_memory();
    return 0;
}
