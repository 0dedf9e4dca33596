/* Calls during a capture on the captured stream and on another one. */
#include "capture_calls.h"

static CUresult forget(CUresult result, CUdeviceptr *address)
{
    if (result == CUDA_SUCCESS)
        *address = 0;
    return result;
}

static void CUDA_CB nothing(void *data)
{
    (void)data;
}

static void CUDA_CB nothing_either(CUstream stream, CUresult status, void *data)
{
    (void)stream;
    (void)status;
    (void)data;
}

static CUresult own_query(struct capture_scene *scene)
{
    return cu.StreamQuery(scene->own);
}

static CUresult own_synchronize(struct capture_scene *scene)
{
    return cu.StreamSynchronize(scene->own);
}

static CUresult own_get_id(struct capture_scene *scene)
{
    unsigned long long id;
    return cu.StreamGetId(scene->own, &id);
}

static CUresult own_get_priority(struct capture_scene *scene)
{
    int priority;
    return cu.StreamGetPriority(scene->own, &priority);
}

static CUresult own_get_flags(struct capture_scene *scene)
{
    unsigned flags;
    return cu.StreamGetFlags(scene->own, &flags);
}

static CUresult own_get_ctx(struct capture_scene *scene)
{
    CUcontext context;
    return cu.StreamGetCtx(scene->own, &context);
}

static CUresult own_get_device(struct capture_scene *scene)
{
    CUdevice device;
    return cu.StreamGetDevice(scene->own, &device);
}

static CUresult own_is_capturing(struct capture_scene *scene)
{
    CUstreamCaptureStatus status;
    return cu.StreamIsCapturing(scene->own, &status);
}

static CUresult own_capture_info(struct capture_scene *scene)
{
    CUstreamCaptureStatus status;
    return cu.StreamGetCaptureInfo(scene->own, &status, NULL, NULL, NULL, NULL, NULL);
}

static CUresult own_begin_again(struct capture_scene *scene)
{
    return cu.StreamBeginCapture(scene->own, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult own_memset(struct capture_scene *scene)
{
    return cu.MemsetD8Async(scene->plain, 1, 4096, scene->own);
}

static CUresult own_memset_outside_memory(struct capture_scene *scene)
{
    return cu.MemsetD8Async(scene->pooled, 1, 4096, scene->own);
}

static CUresult own_memset_wrong_address(struct capture_scene *scene)
{
    return cu.MemsetD8Async(0x1000, 1, 4096, scene->own);
}

static CUresult own_copy_pageable_to_device(struct capture_scene *scene)
{
    return cu.MemcpyHtoDAsync(scene->plain, scene->page, sizeof scene->page, scene->own);
}

static CUresult own_copy_device_to_pageable(struct capture_scene *scene)
{
    return cu.MemcpyDtoHAsync(scene->page, scene->plain, sizeof scene->page, scene->own);
}

static CUresult own_copy_pinned_to_device(struct capture_scene *scene)
{
    return cu.MemcpyHtoDAsync(scene->plain, scene->pinned, 4096, scene->own);
}

static CUresult own_copy_device_to_pinned(struct capture_scene *scene)
{
    return cu.MemcpyDtoHAsync(scene->pinned, scene->plain, 4096, scene->own);
}

static CUresult own_copy_device_to_device(struct capture_scene *scene)
{
    return cu.MemcpyDtoDAsync(scene->pooled, scene->plain, 4096, scene->own);
}

static CUresult own_copy_wrong_address(struct capture_scene *scene)
{
    return cu.MemcpyDtoDAsync(0x1000, scene->plain, 4096, scene->own);
}

static CUresult own_launch(struct capture_scene *scene)
{
    return pattern_fill(scene->function, scene->plain, 4096, 1, scene->own);
}

static CUresult own_host_function(struct capture_scene *scene)
{
    return cu.LaunchHostFunc(scene->own, nothing, NULL);
}

static CUresult own_callback(struct capture_scene *scene)
{
    return cu.StreamAddCallback(scene->own, nothing_either, NULL, 0);
}

static CUresult own_alloc(struct capture_scene *scene)
{
    CUdeviceptr address;
    return cu.MemAllocAsync(&address, 4096, scene->own);
}

static CUresult own_alloc_from_pool(struct capture_scene *scene)
{
    CUdeviceptr address;
    return cu.MemAllocFromPoolAsync(&address, 4096, scene->pool, scene->own);
}

static CUresult own_alloc_0(struct capture_scene *scene)
{
    CUdeviceptr address;
    return cu.MemAllocAsync(&address, 0, scene->own);
}

static CUresult own_alloc_pebibyte(struct capture_scene *scene)
{
    CUdeviceptr address;
    return cu.MemAllocAsync(&address, PIB, scene->own);
}

static CUresult own_free_pooled(struct capture_scene *scene)
{
    return forget(cu.MemFreeAsync(scene->pooled, scene->own), &scene->pooled);
}

static CUresult own_free_plain(struct capture_scene *scene)
{
    return forget(cu.MemFreeAsync(scene->plain, scene->own), &scene->plain);
}

static CUresult own_free_0(struct capture_scene *scene)
{
    return cu.MemFreeAsync(0, scene->own);
}

static CUresult own_record(struct capture_scene *scene)
{
    return cu.EventRecord(scene->fresh, scene->own);
}

static CUresult own_record_timed(struct capture_scene *scene)
{
    return cu.EventRecord(scene->timed, scene->own);
}

static CUresult own_record_external(struct capture_scene *scene)
{
    return cu.EventRecordWithFlags(scene->fresh, scene->own, CU_EVENT_RECORD_EXTERNAL);
}

static CUresult own_wait_inside(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->own, scene->inside, 0);
}

static CUresult own_wait_fresh(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->own, scene->fresh, 0);
}

static CUresult own_wait_outside(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->own, scene->outside, 0);
}

static CUresult own_wait_outside_external(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->own, scene->outside, CU_EVENT_WAIT_EXTERNAL);
}

static CUresult own_wait_inside_external(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->own, scene->inside, CU_EVENT_WAIT_EXTERNAL);
}

static CUresult own_wait_fresh_external(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->own, scene->fresh, CU_EVENT_WAIT_EXTERNAL);
}

static CUresult own_graph_launch(struct capture_scene *scene)
{
    return cu.GraphLaunch(scene->exec, scene->own);
}

static CUresult own_graph_upload(struct capture_scene *scene)
{
    return cu.GraphUpload(scene->exec, scene->own);
}

static CUresult other_query(struct capture_scene *scene)
{
    return cu.StreamQuery(scene->other);
}

static CUresult other_synchronize(struct capture_scene *scene)
{
    return cu.StreamSynchronize(scene->other);
}

static CUresult other_get_id(struct capture_scene *scene)
{
    unsigned long long id;
    return cu.StreamGetId(scene->other, &id);
}

static CUresult other_get_priority(struct capture_scene *scene)
{
    int priority;
    return cu.StreamGetPriority(scene->other, &priority);
}

static CUresult other_get_flags(struct capture_scene *scene)
{
    unsigned flags;
    return cu.StreamGetFlags(scene->other, &flags);
}

static CUresult other_get_ctx(struct capture_scene *scene)
{
    CUcontext context;
    return cu.StreamGetCtx(scene->other, &context);
}

static CUresult other_get_device(struct capture_scene *scene)
{
    CUdevice device;
    return cu.StreamGetDevice(scene->other, &device);
}

static CUresult other_is_capturing(struct capture_scene *scene)
{
    CUstreamCaptureStatus status;
    return cu.StreamIsCapturing(scene->other, &status);
}

static CUresult other_memset(struct capture_scene *scene)
{
    return cu.MemsetD8Async(scene->plain, 1, 4096, scene->other);
}

static CUresult other_copy_pageable_to_device(struct capture_scene *scene)
{
    return cu.MemcpyHtoDAsync(scene->plain, scene->page, sizeof scene->page, scene->other);
}

static CUresult other_copy_device_to_pageable(struct capture_scene *scene)
{
    return cu.MemcpyDtoHAsync(scene->page, scene->plain, sizeof scene->page, scene->other);
}

static CUresult other_copy_device_to_pinned(struct capture_scene *scene)
{
    return cu.MemcpyDtoHAsync(scene->pinned, scene->plain, 4096, scene->other);
}

static CUresult other_copy_device_to_device(struct capture_scene *scene)
{
    return cu.MemcpyDtoDAsync(scene->pooled, scene->plain, 4096, scene->other);
}

static CUresult other_launch(struct capture_scene *scene)
{
    return pattern_fill(scene->function, scene->plain, 4096, 1, scene->other);
}

static CUresult other_host_function(struct capture_scene *scene)
{
    return cu.LaunchHostFunc(scene->other, nothing, NULL);
}

static CUresult other_callback(struct capture_scene *scene)
{
    return cu.StreamAddCallback(scene->other, nothing_either, NULL, 0);
}

static CUresult other_alloc(struct capture_scene *scene)
{
    return cu.MemAllocAsync(&scene->address_made, 4096, scene->other);
}

static CUresult other_alloc_from_pool(struct capture_scene *scene)
{
    return cu.MemAllocFromPoolAsync(&scene->address_made, 4096, scene->pool, scene->other);
}

static CUresult other_alloc_null(struct capture_scene *scene)
{
    return cu.MemAllocAsync(NULL, 4096, scene->other);
}

static CUresult other_free_pooled(struct capture_scene *scene)
{
    return forget(cu.MemFreeAsync(scene->pooled, scene->other), &scene->pooled);
}

static CUresult other_free_plain(struct capture_scene *scene)
{
    return forget(cu.MemFreeAsync(scene->plain, scene->other), &scene->plain);
}

static CUresult other_free_foreign(struct capture_scene *scene)
{
    return cu.MemFreeAsync(0x1000, scene->other);
}

static CUresult other_free_0(struct capture_scene *scene)
{
    return cu.MemFreeAsync(0, scene->other);
}

static CUresult other_record(struct capture_scene *scene)
{
    return cu.EventRecord(scene->fresh, scene->other);
}

static CUresult other_record_external(struct capture_scene *scene)
{
    return cu.EventRecordWithFlags(scene->fresh, scene->other, CU_EVENT_RECORD_EXTERNAL);
}

static CUresult other_record_inside(struct capture_scene *scene)
{
    return cu.EventRecord(scene->inside, scene->other);
}

static CUresult other_wait_outside(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->other, scene->outside, 0);
}

static CUresult other_wait_fresh(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->other, scene->fresh, 0);
}

static CUresult other_wait_inside(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(scene->other, scene->inside, 0);
}

static CUresult other_graph_launch(struct capture_scene *scene)
{
    return cu.GraphLaunch(scene->exec, scene->other);
}

static CUresult other_graph_upload(struct capture_scene *scene)
{
    return cu.GraphUpload(scene->exec, scene->other);
}

const struct capture_call capture_stream_calls[] = {
    {"own_query", own_query},
    {"own_synchronize", own_synchronize},
    {"own_get_id", own_get_id},
    {"own_get_priority", own_get_priority},
    {"own_get_flags", own_get_flags},
    {"own_get_ctx", own_get_ctx},
    {"own_get_device", own_get_device},
    {"own_is_capturing", own_is_capturing},
    {"own_capture_info", own_capture_info},
    {"own_begin_again", own_begin_again},
    {"own_memset", own_memset},
    {"own_memset_outside_memory", own_memset_outside_memory},
    {"own_memset_wrong_address", own_memset_wrong_address},
    {"own_copy_pageable_to_device", own_copy_pageable_to_device},
    {"own_copy_device_to_pageable", own_copy_device_to_pageable},
    {"own_copy_pinned_to_device", own_copy_pinned_to_device},
    {"own_copy_device_to_pinned", own_copy_device_to_pinned},
    {"own_copy_device_to_device", own_copy_device_to_device},
    {"own_copy_wrong_address", own_copy_wrong_address},
    {"own_launch", own_launch},
    {"own_host_function", own_host_function},
    {"own_callback", own_callback},
    {"own_alloc", own_alloc},
    {"own_alloc_from_pool", own_alloc_from_pool},
    {"own_alloc_0", own_alloc_0},
    {"own_alloc_pebibyte", own_alloc_pebibyte},
    {"own_free_pooled", own_free_pooled},
    {"own_free_plain", own_free_plain},
    {"own_free_0", own_free_0},
    {"own_record", own_record},
    {"own_record_timed", own_record_timed},
    {"own_record_external", own_record_external},
    {"own_wait_inside", own_wait_inside},
    {"own_wait_fresh", own_wait_fresh},
    {"own_wait_outside", own_wait_outside},
    {"own_wait_outside_external", own_wait_outside_external},
    {"own_wait_inside_external", own_wait_inside_external},
    {"own_wait_fresh_external", own_wait_fresh_external},
    {"own_graph_launch", own_graph_launch},
    {"own_graph_upload", own_graph_upload},
    {"other_query", other_query},
    {"other_synchronize", other_synchronize},
    {"other_get_id", other_get_id},
    {"other_get_priority", other_get_priority},
    {"other_get_flags", other_get_flags},
    {"other_get_ctx", other_get_ctx},
    {"other_get_device", other_get_device},
    {"other_is_capturing", other_is_capturing},
    {"other_memset", other_memset},
    {"other_copy_pageable_to_device", other_copy_pageable_to_device},
    {"other_copy_device_to_pageable", other_copy_device_to_pageable},
    {"other_copy_device_to_pinned", other_copy_device_to_pinned},
    {"other_copy_device_to_device", other_copy_device_to_device},
    {"other_launch", other_launch},
    {"other_host_function", other_host_function},
    {"other_callback", other_callback},
    {"other_alloc", other_alloc},
    {"other_alloc_from_pool", other_alloc_from_pool},
    {"other_alloc_null", other_alloc_null},
    {"other_free_pooled", other_free_pooled},
    {"other_free_plain", other_free_plain},
    {"other_free_foreign", other_free_foreign},
    {"other_free_0", other_free_0},
    {"other_record", other_record},
    {"other_record_external", other_record_external},
    {"other_record_inside", other_record_inside},
    {"other_wait_outside", other_wait_outside},
    {"other_wait_fresh", other_wait_fresh},
    {"other_wait_inside", other_wait_inside},
    {"other_graph_launch", other_graph_launch},
    {"other_graph_upload", other_graph_upload},
};
const size_t capture_stream_call_count = sizeof capture_stream_calls / sizeof capture_stream_calls[0];
