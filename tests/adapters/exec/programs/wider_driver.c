/* A driver with functions that the simulated one has not. What they give is made up, and enough for a program to see
 * that it was called; all else is the driver behind it, which NEWER_DRIVER_BEHIND names. */
#define _GNU_SOURCE
#define __CUDA_API_VERSION_INTERNAL
#include "wider_driver.h"

#include <dlfcn.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

/* Addresses that the driver behind does not know. */
enum { OPENED = 0x700000, IMPORTED = 0x7f00000 };

EXPORT CUresult CUDAAPI cuMemGetAddressRange_v2(CUdeviceptr *start, size_t *bytes, CUdeviceptr address)
{
    CUresult (*real)(CUdeviceptr *, size_t *, CUdeviceptr);
    void *found = behind("cuMemGetAddressRange_v2");
    memcpy(&real, &found, sizeof real);
    if (address != OPENED && address != IMPORTED)
        return real(start, bytes, address);
    if (start)
        *start = address;
    if (bytes)
        *bytes = address == OPENED ? 4 * MIB : 2 * MIB;
    return CUDA_SUCCESS;
}

/* ---- memory of others ---- */

EXPORT CUresult CUDAAPI cuIpcGetMemHandle(CUipcMemHandle *handle, CUdeviceptr block)
{
    (void)handle;
    (void)block;
    return CUDA_ERROR_INVALID_VALUE; /* as the driver's, of memory that was mapped */
}

EXPORT CUresult CUDAAPI cuIpcOpenMemHandle_v2(CUdeviceptr *out, CUipcMemHandle handle, unsigned flags)
{
    (void)flags;
    if (strcmp(handle.reserved, "of the driver") != 0)
        return CUDA_ERROR_INVALID_VALUE;
    *out = OPENED;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuIpcCloseMemHandle(CUdeviceptr block)
{
    return block == OPENED ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuMemPoolImportPointer(CUdeviceptr *out, CUmemoryPool pool, CUmemPoolPtrExportData *data)
{
    (void)pool;
    (void)data;
    *out = IMPORTED;
    return CUDA_SUCCESS;
}

static char objects[4];

/* Opaque files alone; a good one is the driver's from then on. */
struct CUextMemory_st {
    bool imported;
};
static struct CUextMemory_st externals[4];

EXPORT CUresult CUDAAPI cuImportExternalMemory(CUexternalMemory *out,
                                               const CUDA_EXTERNAL_MEMORY_HANDLE_DESC *description)
{
    size_t i = 0;
    if (description->type != CU_EXTERNAL_MEMORY_HANDLE_TYPE_OPAQUE_FD || !description->size)
        return CUDA_ERROR_INVALID_VALUE;
    while (externals[i].imported)
        i++;
    if (close(description->handle.fd) != 0)
        return CUDA_ERROR_INVALID_HANDLE;
    externals[i].imported = true;
    *out = &externals[i];
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuDestroyExternalMemory(CUexternalMemory memory)
{
    const bool imported = memory->imported;
    memory->imported = false;
    return imported ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* Of memory of the driver behind, which frees it. */
EXPORT CUresult CUDAAPI cuExternalMemoryGetMappedBuffer(CUdeviceptr *out, CUexternalMemory memory,
                                                        const CUDA_EXTERNAL_MEMORY_BUFFER_DESC *part)
{
    CUresult (*allocate)(CUdeviceptr *, size_t);
    void *address = inside("cuMemAlloc", 3020);
    memcpy(&allocate, &address, sizeof allocate);
    return memory->imported && part->size ? allocate(out, MIB) : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuExternalMemoryGetMappedMipmappedArray(CUmipmappedArray *out, CUexternalMemory memory,
                                                                const CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC *image)
{
    *out = (CUmipmappedArray)(void *)&objects[3];
    return memory->imported && image->numLevels ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult map_resources(unsigned count, CUgraphicsResource *resources, CUstream stream)
{
    (void)resources;
    (void)stream;
    return count ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

EXPORT CUresult CUDAAPI cuGraphicsMapResources_ptsz(unsigned count, CUgraphicsResource *resources, CUstream stream)
{
    return map_resources(count, resources, stream);
}

EXPORT CUresult CUDAAPI cuGraphicsUnmapResources_ptsz(unsigned count, CUgraphicsResource *resources, CUstream stream)
{
    return map_resources(count, resources, stream);
}

EXPORT CUresult CUDAAPI cuGraphicsResourceGetMappedPointer_v2(CUdeviceptr *out, size_t *bytes,
                                                              CUgraphicsResource resource)
{
    (void)resource;
    *out = 0x10000;
    *bytes = 16 * MIB;
    return CUDA_SUCCESS;
}

/* ---- memory that no call asks for ---- */

EXPORT CUresult CUDAAPI cuNewHidden(size_t bytes);

/* As a context's or a module's. */
CUresult CUDAAPI cuNewHidden(size_t bytes)
{
    CUresult (*allocate)(CUdeviceptr *, size_t);
    CUdeviceptr block;
    void *address = inside("cuMemAlloc", 3020);
    memcpy(&allocate, &address, sizeof allocate);
    return allocate(&block, bytes);
}

/* ---- arrays ---- */

EXPORT CUresult CUDAAPI cuArrayCreate_v2(CUarray *out, const CUDA_ARRAY_DESCRIPTOR *array)
{
    (void)array;
    *out = (CUarray)(void *)&objects[1];
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuArrayDestroy(CUarray array)
{
    const bool is_one = array == (CUarray)(void *)&objects[1] || array == (CUarray)(void *)&objects[2];
    return is_one ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

EXPORT CUresult CUDAAPI cuMipmappedArrayCreate(CUmipmappedArray *out, const CUDA_ARRAY3D_DESCRIPTOR *array,
                                               unsigned levels)
{
    static char made[4];
    static int count;
    (void)array;
    (void)levels;
    *out = (CUmipmappedArray)(void *)&made[count++ % 4];
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuArray3DCreate_v2(CUarray *out, const CUDA_ARRAY3D_DESCRIPTOR *array)
{
    (void)array;
    *out = (CUarray)(void *)&objects[2];
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMipmappedArrayDestroy(CUmipmappedArray array)
{
    return array ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}

/* ---- pools by their location ---- */

EXPORT CUresult CUDAAPI cuMemSetMemPool(CUmemLocation *location, CUmemAllocationType type, CUmemoryPool pool)
{
    CUresult (*set)(CUdevice, CUmemoryPool);
    void *address = inside("cuDeviceSetMemPool", 11020);
    memcpy(&set, &address, sizeof set);
    (void)type;
    return set(location->id, pool);
}

/* ---- answers in a forked child, too ---- */

enum { HELD = 0x7e00 };

EXPORT CUresult CUDAAPI cuMemRetainAllocationHandle(CUmemGenericAllocationHandle *out, void *address)
{
    CUresult (*real)(CUmemGenericAllocationHandle *, void *);
    void *found = inside("cuMemRetainAllocationHandle", 11000);
    memcpy(&real, &found, sizeof real);
    if ((uintptr_t)address != HELD)
        return real(out, address);
    *out = HELD;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuGraphAddMemAllocNode(CUgraphNode *out, CUgraph graph, const CUgraphNode *before, size_t count,
                                               CUDA_MEM_ALLOC_NODE_PARAMS *params)
{
    CUresult (*real)(CUgraphNode *, CUgraph, const CUgraphNode *, size_t, CUDA_MEM_ALLOC_NODE_PARAMS *);
    void *found = inside("cuGraphAddMemAllocNode", 11040);
    memcpy(&real, &found, sizeof real);
    return graph ? real(out, graph, before, count, params) : CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuCtxDetach(CUcontext context);

/* ---- contexts ---- */

/* What a reset takes in front of the end of the streams; any thread. */
static _Atomic unsigned delay_ms;

EXPORT CUresult CUDAAPI cuNewDelay(unsigned milliseconds);

CUresult CUDAAPI cuNewDelay(unsigned milliseconds)
{
    delay_ms = milliseconds;
    return CUDA_SUCCESS;
}

/* Whether work of a context does not end; any thread. */
static _Atomic bool endless;

EXPORT CUresult CUDAAPI cuNewEndlessWork(void);

CUresult CUDAAPI cuNewEndlessWork(void)
{
    endless = true;
    return CUDA_SUCCESS;
}

/* A process that still is there after ten seconds has the status 9. */
static CUresult CUDAAPI synchronize_context(void)
{
    BEHIND(cuCtxSynchronize, "cuCtxSynchronize", 2000);
    if (endless) {
        sleep(10);
        _exit(9);
    }
    return cuCtxSynchronize_behind();
}

/* Takes long behind the end of the streams. */
static CUresult CUDAAPI reset_slow(CUdevice device)
{
    CUresult (*reset)(CUdevice);
    void *address = inside("cuDevicePrimaryCtxReset", 11000);
    memcpy(&reset, &address, sizeof reset);
    nanosleep(&(struct timespec){.tv_nsec = delay_ms * 1000000L}, NULL);
    BEHIND(cuCtxDestroy_v2, "cuCtxDestroy", 4000);
    for (CUgreenCtx each = all_green; each; each = each->next)
        if (each->device == device && !each->dead) {
            each->dead = true;
            cuCtxDestroy_v2_behind(each->own); /* another one may have the handle */
        }
    const CUresult result = reset(device);
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    return result;
}

/* A reset that goes by no name that a program can look up. */
EXPORT CUresult CUDAAPI cuNewReset(CUdevice device);

CUresult CUDAAPI cuNewReset(CUdevice device)
{
    CUresult (*reset)(CUdevice);
    void *address = inside("cuDevicePrimaryCtxReset", 11000);
    memcpy(&reset, &address, sizeof reset);
    return reset(device);
}

static _Atomic int queries; /* of streams */

EXPORT CUresult CUDAAPI cuNewQueries(int *count);

CUresult CUDAAPI cuNewQueries(int *count)
{
    *count = queries;
    return CUDA_SUCCESS;
}

static _Atomic int events; /* that were made */

EXPORT CUresult CUDAAPI cuNewEvents(int *count);

CUresult CUDAAPI cuNewEvents(int *count)
{
    *count = events;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create_event(CUevent *out, unsigned flags)
{
    BEHIND(cuEventCreate, "cuEventCreate", 2000);
    events++;
    return cuEventCreate_behind(out, flags);
}

/* With the handle of a stream that has ended a driver crashes. */
static CUresult CUDAAPI query_stream(CUstream stream)
{
    BEHIND(cuStreamQuery, "cuStreamQuery", 2000);
    queries++;
    const CUresult result = cuStreamQuery_behind(stream);
    if (result == CUDA_ERROR_INVALID_HANDLE) {
        fprintf(stderr, "a call with a stream that has ended\n");
        abort();
    }
    return result;
}

/* From the first call on each answer about the legacy stream comes late: what has begun meanwhile is not in it. */
static _Atomic unsigned answers_late; /* microseconds */

EXPORT CUresult CUDAAPI cuNewLateAnswers(unsigned microseconds);

CUresult CUDAAPI cuNewLateAnswers(unsigned microseconds)
{
    answers_late = microseconds;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI ask_captured(CUstream stream, CUstreamCaptureStatus *status)
{
    BEHIND(cuStreamIsCapturing, "cuStreamIsCapturing", 10000);
    const CUresult result = cuStreamIsCapturing_behind(stream, status);
    if (stream == CU_STREAM_LEGACY && answers_late)
        nanosleep(&(struct timespec){.tv_nsec = (long)answers_late * 1000}, NULL);
    return result;
}

/* The next requests to a pool each find that the context has ended, and begun anew, in the middle. Each other one fails
 * for it, in a way that does not say so. */
static _Atomic int resets_due;

EXPORT CUresult CUDAAPI cuNewResetsInside(int count);

CUresult CUDAAPI cuNewResetsInside(int count)
{
    resets_due = count;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI allocate_from_pool(CUdeviceptr *out, size_t bytes, CUmemoryPool pool, CUstream stream)
{
    BEHIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000);
    BEHIND(cuMemAllocFromPoolAsync, "cuMemAllocFromPoolAsync", 11020);
    CUcontext again;
    if (resets_due > 0) {
        cuNewReset(0);
        cuDevicePrimaryCtxRetain_behind(&again, 0);
        if (resets_due-- % 2)
            return CUDA_ERROR_INVALID_VALUE;
    }
    return cuMemAllocFromPoolAsync_behind(out, bytes, pool, stream);
}

/* As above, of pools that are made. */
static _Atomic int resets_beside_pools;

EXPORT CUresult CUDAAPI cuNewResetsBesidePools(int count);

CUresult CUDAAPI cuNewResetsBesidePools(int count)
{
    resets_beside_pools = count;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI create_pool(CUmemoryPool *out, const CUmemPoolProps *properties)
{
    BEHIND(cuDevicePrimaryCtxRetain, "cuDevicePrimaryCtxRetain", 7000);
    BEHIND(cuMemPoolCreate, "cuMemPoolCreate", 11020);
    CUcontext again;
    if (resets_beside_pools <= 0)
        return cuMemPoolCreate_behind(out, properties);
    resets_beside_pools--;
    cuNewReset(0);
    cuDevicePrimaryCtxRetain_behind(&again, 0);
    return CUDA_ERROR_INVALID_VALUE;
}

static _Atomic int contexts_ended; /* also by calls that go on */

EXPORT CUresult CUDAAPI cuNewContextsEnded(int *count);

CUresult CUDAAPI cuNewContextsEnded(int *count)
{
    *count = contexts_ended;
    return CUDA_SUCCESS;
}

static void (*behind_pool)(void); /* called once a pool has ended, before the call returns */

EXPORT CUresult CUDAAPI cuNewBehindPool(void (*call)(void));

CUresult CUDAAPI cuNewBehindPool(void (*call)(void))
{
    behind_pool = call;
    return CUDA_SUCCESS;
}

static CUresult CUDAAPI destroy_pool(CUmemoryPool pool)
{
    BEHIND(cuMemPoolDestroy, "cuMemPoolDestroy", 11020);
    const CUresult result = cuMemPoolDestroy_behind(pool);
    if (result == CUDA_SUCCESS && behind_pool)
        behind_pool();
    return result;
}

/* Its streams end long before the call does. */
static CUresult CUDAAPI destroy_context(CUcontext context)
{
    CUresult (*destroy)(CUcontext);
    void *address = inside("cuCtxDestroy", 4000);
    memcpy(&destroy, &address, sizeof destroy);
    const CUresult result = destroy(context);
    contexts_ended++;
    nanosleep(&(struct timespec){.tv_nsec = 200000000}, NULL);
    return result;
}

/* Of the current context, by which it stays at as many calls of cuCtxDetach. */
static int attached;

EXPORT CUresult CUDAAPI cuCtxAttach(CUcontext *out, unsigned flags);

CUresult CUDAAPI cuCtxAttach(CUcontext *out, unsigned flags)
{
    CUresult (*get)(CUcontext *);
    void *address = inside("cuCtxGetCurrent", 4000);
    memcpy(&get, &address, sizeof get);
    (void)flags;
    attached++;
    return get(out);
}

CUresult CUDAAPI cuCtxDetach(CUcontext context)
{
    if (attached > 0) {
        attached--;
        return CUDA_SUCCESS;
    }
    return context ? destroy_context(context) : CUDA_SUCCESS;
}

/* ---- multicast ---- */

enum { MULTICAST = 0x7f00 };

EXPORT CUresult CUDAAPI cuMulticastCreate(CUmemGenericAllocationHandle *out, const CUmulticastObjectProp *properties)
{
    (void)properties;
    *out = MULTICAST;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemRelease(CUmemGenericAllocationHandle handle)
{
    CUresult (*real)(CUmemGenericAllocationHandle);
    void *address = behind("cuMemRelease");
    memcpy(&real, &address, sizeof real);
    return handle == MULTICAST ? CUDA_SUCCESS : real(handle);
}

/* ---- what needs no hook, and what has none ---- */

EXPORT CUresult CUDAAPI cuGetExportTable(const void **table, const CUuuid *name)
{
    (void)name;
    *table = objects;
    return CUDA_SUCCESS;
}

/* The first form, of addresses of 32 bits. */
EXPORT CUresult CUDAAPI cuMemAlloc(CUdeviceptr_v1 *out, unsigned bytes)
{
    *out = bytes;
    return CUDA_SUCCESS;
}

EXPORT CUresult CUDAAPI cuMemMapArrayAsync_ptsz(CUarrayMapInfo *list, unsigned count, CUstream stream)
{
    (void)list;
    (void)stream;
    return count == 3 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

/* Eight arguments, two of them on the stack, and a result in a register of another kind. */
EXPORT double cuNewSum(int a, double b, long c, double d, long e, long f, long g, long h, long i);

double cuNewSum(int a, double b, long c, double d, long e, long f, long g, long h, long i)
{
    return a + b + (double)c + d + (double)(e + f + g + h + i);
}

/* The form of before. */
static double first_sum(int a)
{
    return a;
}

/* ---- look-ups ---- */

#define OWN(name, from, function)              \
    {                                          \
        name, from, (void (*)(void))(function) \
    }

static const struct {
    const char *name;
    int before; /* the version from which on the driver behind answers; 0: none */
    void (*function)(void);
} own[] = {
    OWN("cuMemGetAddressRange", 0, cuMemGetAddressRange_v2),
    OWN("cuIpcGetMemHandle", 0, cuIpcGetMemHandle),
    OWN("cuIpcOpenMemHandle", 0, cuIpcOpenMemHandle_v2),
    OWN("cuIpcCloseMemHandle", 0, cuIpcCloseMemHandle),
    OWN("cuMemPoolImportPointer", 0, cuMemPoolImportPointer),
    OWN("cuImportExternalMemory", 0, cuImportExternalMemory),
    OWN("cuDestroyExternalMemory", 0, cuDestroyExternalMemory),
    OWN("cuExternalMemoryGetMappedBuffer", 0, cuExternalMemoryGetMappedBuffer),
    OWN("cuExternalMemoryGetMappedMipmappedArray", 0, cuExternalMemoryGetMappedMipmappedArray),
    OWN("cuGraphicsMapResources", 0, cuGraphicsMapResources_ptsz),
    OWN("cuGraphicsUnmapResources", 0, cuGraphicsUnmapResources_ptsz),
    OWN("cuGraphicsResourceGetMappedPointer", 0, cuGraphicsResourceGetMappedPointer_v2),
    OWN("cuNewHidden", 0, cuNewHidden),
    OWN("cuArrayCreate", 0, cuArrayCreate_v2),
    OWN("cuArray3DCreate", 0, cuArray3DCreate_v2),
    OWN("cuMipmappedArrayDestroy", 0, cuMipmappedArrayDestroy),
    OWN("cuMemSetMemPool", 0, cuMemSetMemPool),
    OWN("cuMipmappedArrayCreate", 0, cuMipmappedArrayCreate),
    OWN("cuArrayDestroy", 0, cuArrayDestroy),
    OWN("cuDevicePrimaryCtxRetain", 0, retain_primary),
    OWN("cuDevicePrimaryCtxRelease", 0, release_primary),
    OWN("cuCtxGetId", 0, cuCtxGetId),
    OWN("cuGreenCtxCreate", 0, cuGreenCtxCreate),
    OWN("cuGreenCtxDestroy", 0, cuGreenCtxDestroy),
    OWN("cuCtxFromGreenCtx", 0, cuCtxFromGreenCtx),
    OWN("cuGreenCtxStreamCreate", 0, cuGreenCtxStreamCreate),
    OWN("cuGreenCtxRecordEvent", 0, cuGreenCtxRecordEvent),
    OWN("cuGreenCtxWaitEvent", 0, cuGreenCtxWaitEvent),
    OWN("cuStreamGetGreenCtx", 0, cuStreamGetGreenCtx),
    OWN("cuDeviceGetDevResource", 0, cuDeviceGetDevResource),
    OWN("cuDevResourceGenerateDesc", 0, cuDevResourceGenerateDesc),
    OWN("cuCtxSetCurrent", 0, cuCtxSetCurrent),
    OWN("cuNewReset", 0, cuNewReset),
    OWN("cuStreamQuery", 0, query_stream),
    OWN("cuNewQueries", 0, cuNewQueries),
    OWN("cuNewContextsEnded", 0, cuNewContextsEnded),
    OWN("cuNewLateAnswers", 0, cuNewLateAnswers),
    OWN("cuStreamIsCapturing", 0, ask_captured),
    OWN("cuNewBegins", 0, cuNewBegins),
    OWN("cuNewResetsInside", 0, cuNewResetsInside),
    OWN("cuMemAllocFromPoolAsync", 0, allocate_from_pool),
    OWN("cuMemPoolCreate", 0, create_pool),
    OWN("cuNewResetsBesidePools", 0, cuNewResetsBesidePools),
    OWN("cuNewBehindPool", 0, cuNewBehindPool),
    OWN("cuMemPoolDestroy", 0, destroy_pool),
    OWN("cuNewEvents", 0, cuNewEvents),
    OWN("cuEventCreate", 0, create_event),
    OWN("cuNewDelay", 0, cuNewDelay),
    OWN("cuNewEndlessWork", 0, cuNewEndlessWork),
    OWN("cuCtxSynchronize", 0, synchronize_context),
    OWN("cuNewReferences", 0, cuNewReferences),
    OWN("cuDevicePrimaryCtxReset", 0, reset_slow),
    OWN("cuCtxDestroy", 0, destroy_context),
    OWN("cuCtxDetach", 0, cuCtxDetach),
    OWN("cuCtxAttach", 0, cuCtxAttach),
    OWN("cuMemRetainAllocationHandle", 0, cuMemRetainAllocationHandle),
    OWN("cuGraphAddMemAllocNode", 0, cuGraphAddMemAllocNode),
    OWN("cuMulticastCreate", 0, cuMulticastCreate),
    OWN("cuMemRelease", 0, cuMemRelease),
    OWN("cuGetExportTable", 0, cuGetExportTable),
    OWN("cuMemAlloc", 3020, cuMemAlloc),
    OWN("cuMemMapArrayAsync", 0, cuMemMapArrayAsync_ptsz),
    OWN("cuNewSum", 13000, first_sum),
    OWN("cuNewSum", 0, cuNewSum),
};

EXPORT CUresult CUDAAPI cuGetProcAddress_v2(const char *name, void **found, int version, cuuint64_t flags,
                                            CUdriverProcAddressQueryResult *status)
{
    get_function *real;
    void *address = behind("cuGetProcAddress_v2");
    memcpy(&real, &address, sizeof real);
    for (size_t i = 0; i < sizeof own / sizeof own[0]; i++)
        if (strcmp(own[i].name, name) == 0 && (!own[i].before || version < own[i].before)) {
            memcpy(found, &own[i].function, sizeof *found);
            if (status)
                *status = CU_GET_PROC_ADDRESS_SUCCESS;
            return CUDA_SUCCESS;
        }
    return real(name, found, version, flags, status);
}

EXPORT CUresult CUDAAPI cuInit(unsigned flags)
{
    CUresult (*real)(unsigned);
    void *address = behind("cuInit");
    memcpy(&real, &address, sizeof real);
    return real(flags);
}
