/* Handles and addresses that another thread has again as soon as the driver's call returns, by name: `races NAME`. */
#include "ways.h"
#include "wider_calls.h"

#include <pthread.h>

/* ---- pools ---- */

CUresult CUDAAPI cuNewBehindPool(void (*call)(void));

static CUmemoryPool ended;

static CUmemoryPool new_pool(void)
{
    const CUmemPoolProps properties = {.allocType = CU_MEM_ALLOCATION_TYPE_PINNED,
                                       .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemoryPool pool;
    CHECK(DRIVER(cuMemPoolCreate)(&pool, &properties));
    return pool;
}

/* As another thread may, before the call that has ended the pool has returned. */
static void set_one_with_its_handle(void)
{
    enum { MOST = 64 };
    CUmemoryPool pool = NULL;
    for (int i = 0; i < MOST && pool != ended; i++)
        pool = new_pool();
    printf("%s handle, ", pool == ended ? "its" : "another");
    CHECK(DRIVER(cuDeviceSetMemPool)(0, pool));
}

static void say_source(void)
{
    CUdeviceptr block;
    unsigned long long number;
    CHECK(DRIVER(cuMemAllocAsync)(&block, MIB, NULL));
    CHECK(DRIVER(cuPointerGetAttribute)(&number, CU_POINTER_ATTRIBUTE_BUFFER_ID, block));
    printf("%s\n", number >> 63 ? "the stack" : "the pool");
    CHECK(DRIVER(cuMemFreeAsync)(block, NULL));
}

/* Memory comes from the pool that was set last, and from the stack when that has ended. */
static void destroy_a_pool_that_was_set(void)
{
    WIDER(cuNewBehindPool, "cuNewBehindPool", 13000);
    CUstream stream;
    CUgraph graph;
    ended = new_pool();
    CHECK(DRIVER(cuDeviceSetMemPool)(0, ended));
    say_source();
    CHECK(cuNewBehindPool_found(set_one_with_its_handle));
    CHECK(DRIVER(cuMemPoolDestroy)(ended));
    CHECK(cuNewBehindPool_found(NULL));
    say_source();
    CHECK(DRIVER(cuStreamCreate)(&stream, CU_STREAM_NON_BLOCKING));
    CHECK(DRIVER(cuStreamBeginCapture)(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
    printf("%d, ", DRIVER(cuMemPoolDestroy)(ended)); /* which a capture forbids */
    (void)DRIVER(cuStreamEndCapture)(stream, &graph);
    say_source();
    CHECK(DRIVER(cuMemPoolDestroy)(ended));
    say_source();
}

/* ---- mappings ---- */

enum { UNMAPS = 2000 };

static CUdeviceptr range;
static size_t granularity;

static void *unmap_a_part(void *data)
{
    for (int i = 0; i < UNMAPS; i++)
        (void)DRIVER(cuMemUnmap)(range, granularity / 2); /* refused */
    return data;
}

static void unmap_beside_refused_calls(void)
{
    const CUmemAllocationProp properties = {.type = CU_MEM_ALLOCATION_TYPE_PINNED,
                                            .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0}};
    CUmemGenericAllocationHandle handle;
    pthread_t thread;
    CHECK(DRIVER(cuMemGetAllocationGranularity)(&granularity, &properties, CU_MEM_ALLOC_GRANULARITY_MINIMUM));
    CHECK(DRIVER(cuMemCreate)(&handle, granularity, &properties, 0));
    CHECK(DRIVER(cuMemAddressReserve)(&range, granularity, 0, 0, 0));
    CHECK(DRIVER(cuMemMap)(range, granularity, 0, handle, 0));
    CHECK(pthread_create(&thread, NULL, unmap_a_part, NULL));
    for (int i = 0; i < UNMAPS; i++) {
        CHECK(DRIVER(cuMemUnmap)(range, granularity));
        CHECK(DRIVER(cuMemMap)(range, granularity, 0, handle, 0));
    }
    CHECK(pthread_join(thread, NULL));
    printf("went on\n");
}

static const named_way ways[] = {
    {"pools", destroy_a_pool_that_was_set},
    {"unmaps", unmap_beside_refused_calls},
};

int main(int count, char **arguments)
{
    begin();
    return run_way(ways, sizeof ways / sizeof ways[0], count, arguments);
}
