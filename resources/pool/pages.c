/* Physical memory and addresses, through the driver's virtual memory management. */
#include "resources/pool/pages.h"

#include "core/error.h"
#include "core/memory.h"

#include <string.h>

enum {
    TIMES_THE_DEVICE = 8, /* addresses, in times of the device's memory */
    LEAST_TIMES = 2,      /* what there is at least to be */
    TRIES_TO_END = 3,     /* as in resources/async.c */
};

static bool has_calls(void)
{
    return strata_cu.MemAddressReserve && strata_cu.MemAddressFree && strata_cu.MemCreate && strata_cu.MemRelease &&
           strata_cu.MemMap && strata_cu.MemUnmap && strata_cu.MemSetAccess && strata_cu.MemGetAllocationGranularity;
}

static bool can(const strata_device *device, CUdevice_attribute what)
{
    int can = 0;
    return strata_cu.DeviceGetAttribute(&can, what, device->handle) == CUDA_SUCCESS && can != 0;
}

/* Memory that the program registers with a network card must say so when it is made. */
static CUmemAllocationProp properties_of(const strata_device *device, strata_export_type export_type)
{
    static const CUmemAllocationHandleType types[] = {CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
                                                      CU_MEM_HANDLE_TYPE_FABRIC};
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .requestedHandleTypes = types[export_type],
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = device->ordinal},
        .allocFlags = {.gpuDirectRDMACapable =
                           can(device, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED)},
    };
}

/* Whether memory can be shared as it is asked for: by the device's own word, before any memory is made. */
static strata_status check_export(const strata_device *device, strata_export_type type)
{
    const bool fabric = type == STRATA_EXPORT_FABRIC;
    if (type == STRATA_EXPORT_NONE ||
        (strata_cu.MemExportToShareableHandle &&
         can(device, fabric ? CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
                            : CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED)))
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "pool: device %d cannot export memory as %s", device->ordinal,
                       fabric ? "fabric handles" : "file descriptors");
}

/* A machine may have fewer addresses to give than one would like. */
static CUresult reserve(pool_pages *pages)
{
    const uint64_t total = (pages->device->info.total_bytes + pages->granule - 1) & ~(pages->granule - 1);
    CUresult result = CUDA_ERROR_OUT_OF_MEMORY;
    for (uint64_t times = TIMES_THE_DEVICE; result != CUDA_SUCCESS && times >= LEAST_TIMES; times /= 2) {
        pages->bytes = times * total;
        result = strata_cu.MemAddressReserve(&pages->base, (size_t)pages->bytes, (size_t)pages->granule, 0, 0);
    }
    return result;
}

strata_status pool_pages_open(pool_pages *pages, strata_device *device, strata_export_type export_type)
{
    *pages = (pool_pages){.device = device, .frame_count = 1};
    if (!device->info.virtual_memory || !has_calls())
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "pool: device %d has no virtual memory management; use async or direct", device->ordinal);
    strata_status status = check_export(device, export_type);
    if (status != STRATA_SUCCESS)
        return status;
    pages->properties = properties_of(device, export_type);
    strata_scope scope;
    status = strata_scope_enter(&scope, device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    size_t granule = 0;
    const char *call = "cuMemGetAllocationGranularity";
    CUresult result =
        strata_cu.MemGetAllocationGranularity(&granule, &pages->properties, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED);
    pages->granule = granule;
    if (result == CUDA_SUCCESS) {
        call = "cuMemAddressReserve";
        result = reserve(pages);
    }
    strata_scope_leave(&scope);
    return result == CUDA_SUCCESS
               ? STRATA_SUCCESS
               : strata_fail_driver(result, call, "reserving addresses for a pool on device %d", device->ordinal);
}

/* What fails is tried again, a few times: nobody else could do it later. */
static void end_frame(pool_pages *pages, uint32_t frame)
{
    for (int i = 0; i < TRIES_TO_END && pages->frames[frame].address; i++)
        pool_pages_unmap(pages, frame);
    for (int i = 0; i < TRIES_TO_END && pages->frames[frame].bytes && !pages->frames[frame].address; i++)
        pool_pages_drop(pages, frame);
}

static void end_all(pool_pages *pages)
{
    strata_scope scope;
    strata_status status = STRATA_ERROR_BUSY;
    for (int i = 0; i < TRIES_TO_END && status != STRATA_SUCCESS; i++)
        status = strata_scope_enter(&scope, pages->device, STRATA_SCOPE_CONTEXT | STRATA_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return;
    for (uint32_t frame = 1; frame < pages->frame_count; frame++)
        end_frame(pages, frame);
    CUresult result = CUDA_ERROR_UNKNOWN;
    for (int i = 0; i < TRIES_TO_END && result != CUDA_SUCCESS; i++)
        result = strata_cu.MemAddressFree(pages->base, (size_t)pages->bytes);
    strata_scope_leave(&scope);
}

void pool_pages_close(pool_pages *pages)
{
    strata_error_hush();
    if (pages->bytes && strata_door_now() == STRATA_DOOR_OPEN)
        end_all(pages);
    strata_error_unhush(false);
    strata_host_free(pages->frames);
    *pages = (pool_pages){0};
}

/* A number for a frame; 0 without host memory. */
static uint32_t take_number(pool_pages *pages)
{
    const uint32_t recycled = pages->frame_free;
    if (recycled) {
        pages->frame_free = pages->frames[recycled].next;
        return recycled;
    }
    if (pages->frame_count >= pages->frame_capacity) {
        const uint32_t capacity = pages->frame_capacity ? 2 * pages->frame_capacity : 64;
        pool_frame *larger = strata_host_zalloc(capacity * sizeof *larger);
        if (!larger)
            return 0;
        if (pages->frames)
            memcpy(larger, pages->frames, pages->frame_count * sizeof *larger);
        strata_host_free(pages->frames);
        pages->frames = larger;
        pages->frame_capacity = capacity;
    }
    return pages->frame_count++;
}

static void give_number(pool_pages *pages, uint32_t frame)
{
    pages->frames[frame] = (pool_frame){.next = pages->frame_free};
    pages->frame_free = frame;
}

CUresult pool_pages_make(pool_pages *pages, uint64_t bytes, uint32_t *frame, bool *host)
{
    *frame = take_number(pages);
    *host = !*frame;
    if (!*frame)
        return CUDA_ERROR_OUT_OF_MEMORY;
    pages->calls++;
    CUmemGenericAllocationHandle handle = 0;
    CUresult result = strata_cu.MemCreate(&handle, (size_t)bytes, &pages->properties, 0);
    if (result != CUDA_SUCCESS) {
        give_number(pages, *frame);
        *frame = 0;
        return result;
    }
    pages->frames[*frame] = (pool_frame){.handle = handle, .bytes = bytes};
    pages->reserved += bytes;
    return CUDA_SUCCESS;
}

CUresult pool_pages_map(pool_pages *pages, uint32_t frame, CUdeviceptr address)
{
    pool_frame *mapped = &pages->frames[frame];
    pages->calls++;
    CUresult result = strata_cu.MemMap(address, (size_t)mapped->bytes, 0, mapped->handle, 0);
    if (result == CUDA_SUCCESS)
        mapped->address = address;
    return result;
}

CUresult pool_pages_give_access(pool_pages *pages, CUdeviceptr address, uint64_t bytes)
{
    const CUmemAccessDesc access = {
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = pages->device->ordinal},
        .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
    };
    pages->calls++;
    return strata_cu.MemSetAccess(address, (size_t)bytes, &access, 1);
}

CUresult pool_pages_unmap(pool_pages *pages, uint32_t frame)
{
    pool_frame *mapped = &pages->frames[frame];
    pages->calls++;
    CUresult result = strata_cu.MemUnmap(mapped->address, (size_t)mapped->bytes);
    if (result == CUDA_SUCCESS)
        mapped->address = 0;
    return result;
}

CUresult pool_pages_drop(pool_pages *pages, uint32_t frame)
{
    pages->calls++;
    CUresult result = strata_cu.MemRelease(pages->frames[frame].handle);
    if (result != CUDA_SUCCESS)
        return result;
    pages->reserved -= pages->frames[frame].bytes;
    give_number(pages, frame);
    return CUDA_SUCCESS;
}

CUresult pool_pages_export(pool_pages *pages, uint32_t frame, void *out)
{
    pages->calls++;
    return strata_cu.MemExportToShareableHandle(out, pages->frames[frame].handle,
                                                pages->properties.requestedHandleTypes, 0);
}
