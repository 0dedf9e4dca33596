/* Calls during a capture that use a default stream, explicitly or not. */
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

static CUresult null_query(struct capture_scene *scene)
{
    (void)scene;
    return cu.StreamQuery(NULL);
}

static CUresult null_synchronize(struct capture_scene *scene)
{
    (void)scene;
    return cu.StreamSynchronize(NULL);
}

static CUresult null_get_id(struct capture_scene *scene)
{
    (void)scene;
    unsigned long long id;
    return cu.StreamGetId(NULL, &id);
}

static CUresult null_get_flags(struct capture_scene *scene)
{
    (void)scene;
    unsigned flags;
    return cu.StreamGetFlags(NULL, &flags);
}

static CUresult null_get_priority(struct capture_scene *scene)
{
    (void)scene;
    int priority;
    return cu.StreamGetPriority(NULL, &priority);
}

static CUresult null_is_capturing(struct capture_scene *scene)
{
    (void)scene;
    CUstreamCaptureStatus status;
    return cu.StreamIsCapturing(NULL, &status);
}

static CUresult null_capture_info(struct capture_scene *scene)
{
    (void)scene;
    CUstreamCaptureStatus status;
    return cu.StreamGetCaptureInfo(NULL, &status, NULL, NULL, NULL, NULL, NULL);
}

static CUresult null_memset(struct capture_scene *scene)
{
    return cu.MemsetD8Async(scene->plain, 1, 4096, NULL);
}

static CUresult null_copy_device_to_pinned(struct capture_scene *scene)
{
    return cu.MemcpyDtoHAsync(scene->pinned, scene->plain, 4096, NULL);
}

static CUresult null_launch(struct capture_scene *scene)
{
    return pattern_fill(scene->function, scene->plain, 4096, 1, NULL);
}

static CUresult null_host_function(struct capture_scene *scene)
{
    (void)scene;
    return cu.LaunchHostFunc(NULL, nothing, NULL);
}

static CUresult null_alloc(struct capture_scene *scene)
{
    return cu.MemAllocAsync(&scene->address_made, 4096, NULL);
}

static CUresult null_free(struct capture_scene *scene)
{
    return forget(cu.MemFreeAsync(scene->pooled, NULL), &scene->pooled);
}

static CUresult null_record(struct capture_scene *scene)
{
    return cu.EventRecord(scene->fresh, NULL);
}

static CUresult null_wait_outside(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(NULL, scene->outside, 0);
}

static CUresult null_wait_fresh(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(NULL, scene->fresh, 0);
}

static CUresult null_wait_inside(struct capture_scene *scene)
{
    return cu.StreamWaitEvent(NULL, scene->inside, 0);
}

static CUresult null_graph_launch(struct capture_scene *scene)
{
    return cu.GraphLaunch(scene->exec, NULL);
}

static CUresult null_graph_upload(struct capture_scene *scene)
{
    return cu.GraphUpload(scene->exec, NULL);
}

static CUresult null_begin_capture(struct capture_scene *scene)
{
    (void)scene;
    return cu.StreamBeginCapture(NULL, CU_STREAM_CAPTURE_MODE_RELAXED);
}

static CUresult per_thread_query(struct capture_scene *scene)
{
    (void)scene;
    return cu.StreamQuery(CU_STREAM_PER_THREAD);
}

static CUresult per_thread_synchronize(struct capture_scene *scene)
{
    (void)scene;
    return cu.StreamSynchronize(CU_STREAM_PER_THREAD);
}

static CUresult per_thread_get_id(struct capture_scene *scene)
{
    (void)scene;
    unsigned long long id;
    return cu.StreamGetId(CU_STREAM_PER_THREAD, &id);
}

static CUresult per_thread_memset(struct capture_scene *scene)
{
    return cu.MemsetD8Async(scene->plain, 1, 4096, CU_STREAM_PER_THREAD);
}

static CUresult per_thread_record(struct capture_scene *scene)
{
    return cu.EventRecord(scene->fresh, CU_STREAM_PER_THREAD);
}

static CUresult copy_pageable_to_device(struct capture_scene *scene)
{
    return cu.MemcpyHtoD(scene->plain, scene->page, sizeof scene->page);
}

static CUresult copy_device_to_pageable(struct capture_scene *scene)
{
    return cu.MemcpyDtoH(scene->page, scene->plain, sizeof scene->page);
}

static CUresult copy_pinned_to_device(struct capture_scene *scene)
{
    return cu.MemcpyHtoD(scene->plain, scene->pinned, 4096);
}

static CUresult copy_device_to_device(struct capture_scene *scene)
{
    return cu.MemcpyDtoD(scene->pooled, scene->plain, 4096);
}

static CUresult copy_unified(struct capture_scene *scene)
{
    return cu.Memcpy(scene->pooled, scene->plain, 4096);
}

static CUresult copy_0(struct capture_scene *scene)
{
    return cu.MemcpyDtoD(scene->pooled, scene->plain, 0);
}

static CUresult copy_wrong_address(struct capture_scene *scene)
{
    return cu.MemcpyDtoD(0x1000, scene->plain, 4096);
}

static CUresult memset_now(struct capture_scene *scene)
{
    return cu.MemsetD8(scene->plain, 1, 4096);
}

const struct capture_call capture_default_calls[] = {
    {"null_query", null_query},
    {"null_synchronize", null_synchronize},
    {"null_get_id", null_get_id},
    {"null_get_flags", null_get_flags},
    {"null_get_priority", null_get_priority},
    {"null_is_capturing", null_is_capturing},
    {"null_capture_info", null_capture_info},
    {"null_memset", null_memset},
    {"null_copy_device_to_pinned", null_copy_device_to_pinned},
    {"null_launch", null_launch},
    {"null_host_function", null_host_function},
    {"null_alloc", null_alloc},
    {"null_free", null_free},
    {"null_record", null_record},
    {"null_wait_outside", null_wait_outside},
    {"null_wait_fresh", null_wait_fresh},
    {"null_wait_inside", null_wait_inside},
    {"null_graph_launch", null_graph_launch},
    {"null_graph_upload", null_graph_upload},
    {"null_begin_capture", null_begin_capture},
    {"per_thread_query", per_thread_query},
    {"per_thread_synchronize", per_thread_synchronize},
    {"per_thread_get_id", per_thread_get_id},
    {"per_thread_memset", per_thread_memset},
    {"per_thread_record", per_thread_record},
    {"copy_pageable_to_device", copy_pageable_to_device},
    {"copy_device_to_pageable", copy_device_to_pageable},
    {"copy_pinned_to_device", copy_pinned_to_device},
    {"copy_device_to_device", copy_device_to_device},
    {"copy_unified", copy_unified},
    {"copy_0", copy_0},
    {"copy_wrong_address", copy_wrong_address},
    {"memset_now", memset_now},
};
const size_t capture_default_call_count = sizeof capture_default_calls / sizeof capture_default_calls[0];
