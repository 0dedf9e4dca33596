/* Calls during a capture that not every device has: virtual memory, managed memory, registered memory, copies of rows,
 * stream values, peers. */
#include "capture_calls.h"

#include <stdint.h>

static CUmemAllocationProp properties(void)
{
    return (CUmemAllocationProp){
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
}

static const CUmemAccessDesc access_here = {
    .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
};

static CUresult vmm_granularity(struct capture_scene *scene)
{
    size_t bytes;
    CUmemAllocationProp props = properties();
    (void)scene;
    return cu.MemGetAllocationGranularity(&bytes, &props, CU_MEM_ALLOC_GRANULARITY_MINIMUM);
}

static CUresult vmm_create(struct capture_scene *scene)
{
    CUmemAllocationProp props = properties();
    return cu.MemCreate(&scene->handle_made, 2 * MIB, &props, 0);
}

static CUresult vmm_release(struct capture_scene *scene)
{
    CUresult result = cu.MemRelease(scene->spare_handle);
    if (result == CUDA_SUCCESS)
        scene->spare_handle = 0;
    return result;
}

static CUresult vmm_reserve(struct capture_scene *scene)
{
    return cu.MemAddressReserve(&scene->range_made, 2 * MIB, 0, 0, 0);
}

static CUresult vmm_free(struct capture_scene *scene)
{
    CUresult result = cu.MemAddressFree(scene->spare_range, 2 * MIB);
    if (result == CUDA_SUCCESS)
        scene->spare_range = 0;
    return result;
}

static CUresult vmm_map(struct capture_scene *scene)
{
    CUresult result = cu.MemMap(scene->spare_range, 2 * MIB, 0, scene->spare_handle, 0);
    scene->spare_mapped = result == CUDA_SUCCESS;
    return result;
}

static CUresult vmm_set_access(struct capture_scene *scene)
{
    return cu.MemSetAccess(scene->mapped, 2 * MIB, &access_here, 1);
}

static CUresult vmm_get_access(struct capture_scene *scene)
{
    unsigned long long flags;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    return cu.MemGetAccess(&flags, &location, scene->mapped);
}

static CUresult vmm_unmap(struct capture_scene *scene)
{
    CUresult result = cu.MemUnmap(scene->mapped, 2 * MIB);
    scene->is_mapped = result != CUDA_SUCCESS;
    return result;
}

static CUresult vmm_properties(struct capture_scene *scene)
{
    CUmemAllocationProp props;
    return cu.MemGetAllocationPropertiesFromHandle(&props, scene->spare_handle);
}

static CUresult managed_alloc(struct capture_scene *scene)
{
    return cu.MemAllocManaged(&scene->address_made, 4096, CU_MEM_ATTACH_GLOBAL);
}

static CUresult host_register(struct capture_scene *scene)
{
    return cu.MemHostRegister(scene->page, sizeof scene->page, 0);
}

static CUresult host_unregister(struct capture_scene *scene)
{
    return cu.MemHostUnregister(scene->registered);
}

static CUDA_MEMCPY2D two_rows(const struct capture_scene *scene)
{
    return (CUDA_MEMCPY2D){
        .srcMemoryType = CU_MEMORYTYPE_DEVICE,
        .srcDevice = scene->plain,
        .srcPitch = 128,
        .dstMemoryType = CU_MEMORYTYPE_DEVICE,
        .dstDevice = scene->plain + 1024,
        .dstPitch = 128,
        .WidthInBytes = 64,
        .Height = 2,
    };
}

static CUresult own_copy_rows(struct capture_scene *scene)
{
    CUDA_MEMCPY2D rows = two_rows(scene);
    return cu.Memcpy2DAsync(&rows, scene->own);
}

static CUresult other_copy_rows(struct capture_scene *scene)
{
    CUDA_MEMCPY2D rows = two_rows(scene);
    return cu.Memcpy2DAsync(&rows, scene->other);
}

static CUresult copy_rows(struct capture_scene *scene)
{
    CUDA_MEMCPY2D rows = two_rows(scene);
    return cu.Memcpy2D(&rows);
}

static CUresult own_write_value(struct capture_scene *scene)
{
    return cu.StreamWriteValue64(scene->own, scene->plain, 1, 0);
}

static CUresult other_write_value(struct capture_scene *scene)
{
    return cu.StreamWriteValue64(scene->other, scene->plain, 1, 0);
}

static CUresult own_wait_value(struct capture_scene *scene)
{
    return cu.StreamWaitValue64(scene->own, scene->plain, 0, CU_STREAM_WAIT_VALUE_GEQ);
}

static CUresult other_wait_value(struct capture_scene *scene)
{
    return cu.StreamWaitValue64(scene->other, scene->plain, 0, CU_STREAM_WAIT_VALUE_GEQ);
}

const struct capture_call capture_feature_calls[] = {
    {"vmm_granularity", vmm_granularity},
    {"vmm_create", vmm_create},
    {"vmm_release", vmm_release},
    {"vmm_reserve", vmm_reserve},
    {"vmm_free", vmm_free},
    {"vmm_map", vmm_map},
    {"vmm_set_access", vmm_set_access},
    {"vmm_get_access", vmm_get_access},
    {"vmm_unmap", vmm_unmap},
    {"vmm_properties", vmm_properties},
    {"managed_alloc", managed_alloc},
    {"host_register", host_register},
    {"host_unregister", host_unregister},
    {"own_copy_rows", own_copy_rows},
    {"other_copy_rows", other_copy_rows},
    {"copy_rows", copy_rows},
    {"own_write_value", own_write_value},
    {"other_write_value", other_write_value},
    {"own_wait_value", own_wait_value},
    {"other_wait_value", other_wait_value},
};
const size_t capture_feature_call_count = sizeof capture_feature_calls / sizeof capture_feature_calls[0];
