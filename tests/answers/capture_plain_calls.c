/* Calls during a capture that use no stream. */
#include "capture_calls.h"

#include <stdint.h>

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

static CUresult stream_create(struct capture_scene *scene)
{
    return cu.StreamCreate(&scene->stream_made, CU_STREAM_NON_BLOCKING);
}

static CUresult stream_create_priority(struct capture_scene *scene)
{
    return cu.StreamCreateWithPriority(&scene->stream_made, CU_STREAM_NON_BLOCKING, -1);
}

static CUresult stream_create_wrong_flags(struct capture_scene *scene)
{
    return cu.StreamCreate(&scene->stream_made, 64);
}

static CUresult stream_destroy(struct capture_scene *scene)
{
    CUresult result = cu.StreamDestroy(scene->spare);
    if (result == CUDA_SUCCESS)
        scene->spare = NULL;
    return result;
}

static CUresult event_create(struct capture_scene *scene)
{
    return cu.EventCreate(&scene->event_made, 0);
}

static CUresult event_destroy(struct capture_scene *scene)
{
    CUresult result = cu.EventDestroy(scene->fresh);
    if (result == CUDA_SUCCESS)
        scene->fresh = NULL;
    return result;
}

static CUresult event_destroy_inside(struct capture_scene *scene)
{
    CUresult result = cu.EventDestroy(scene->inside);
    if (result == CUDA_SUCCESS)
        scene->inside = NULL;
    return result;
}

static CUresult event_query_fresh(struct capture_scene *scene)
{
    return cu.EventQuery(scene->fresh);
}

static CUresult event_query_outside(struct capture_scene *scene)
{
    return cu.EventQuery(scene->outside);
}

static CUresult event_query_inside(struct capture_scene *scene)
{
    return cu.EventQuery(scene->inside);
}

static CUresult event_query_null(struct capture_scene *scene)
{
    (void)scene;
    return cu.EventQuery(NULL);
}

static CUresult event_synchronize_fresh(struct capture_scene *scene)
{
    return cu.EventSynchronize(scene->fresh);
}

static CUresult event_synchronize_outside(struct capture_scene *scene)
{
    return cu.EventSynchronize(scene->outside);
}

static CUresult event_synchronize_inside(struct capture_scene *scene)
{
    return cu.EventSynchronize(scene->inside);
}

static CUresult event_elapsed(struct capture_scene *scene)
{
    float milliseconds;
    return cu.EventElapsedTime(&milliseconds, scene->timed, scene->timed);
}

static CUresult event_elapsed_inside(struct capture_scene *scene)
{
    float milliseconds;
    CUresult result = cu.EventRecord(scene->timed, scene->own);
    return result == CUDA_SUCCESS ? cu.EventElapsedTime(&milliseconds, scene->timed, scene->timed) : result;
}

static CUresult ctx_synchronize(struct capture_scene *scene)
{
    (void)scene;
    return cu.CtxSynchronize();
}

static CUresult ctx_get_current(struct capture_scene *scene)
{
    (void)scene;
    CUcontext context;
    return cu.CtxGetCurrent(&context);
}

static CUresult ctx_set_current(struct capture_scene *scene)
{
    return cu.CtxSetCurrent(scene->context);
}

static CUresult ctx_push_and_pop(struct capture_scene *scene)
{
    CUcontext context;
    CUresult result = cu.CtxPushCurrent(scene->context);
    return result == CUDA_SUCCESS ? cu.CtxPopCurrent(&context) : result;
}

static CUresult ctx_get_device(struct capture_scene *scene)
{
    (void)scene;
    CUdevice device;
    return cu.CtxGetDevice(&device);
}

static CUresult ctx_get_flags(struct capture_scene *scene)
{
    (void)scene;
    unsigned flags;
    return cu.CtxGetFlags(&flags);
}

static CUresult ctx_get_id(struct capture_scene *scene)
{
    (void)scene;
    unsigned long long id;
    return cu.CtxGetId(NULL, &id);
}

static CUresult ctx_get_priority_range(struct capture_scene *scene)
{
    (void)scene;
    int least;
    int greatest;
    return cu.CtxGetStreamPriorityRange(&least, &greatest);
}

static CUresult primary_ctx_retain(struct capture_scene *scene)
{
    (void)scene;
    CUcontext context;
    return cu.DevicePrimaryCtxRetain(&context, 0);
}

static CUresult primary_ctx_get_state(struct capture_scene *scene)
{
    (void)scene;
    unsigned flags;
    int active;
    return cu.DevicePrimaryCtxGetState(0, &flags, &active);
}

static CUresult device_get_attribute(struct capture_scene *scene)
{
    (void)scene;
    int value;
    return cu.DeviceGetAttribute(&value, CU_DEVICE_ATTRIBUTE_WARP_SIZE, 0);
}

static CUresult device_total_mem(struct capture_scene *scene)
{
    (void)scene;
    size_t bytes;
    return cu.DeviceTotalMem(&bytes, 0);
}

static CUresult device_get_mem_pool(struct capture_scene *scene)
{
    (void)scene;
    CUmemoryPool pool;
    return cu.DeviceGetMemPool(&pool, 0);
}

static CUresult device_get_default_mem_pool(struct capture_scene *scene)
{
    (void)scene;
    CUmemoryPool pool;
    return cu.DeviceGetDefaultMemPool(&pool, 0);
}

static CUresult mem_get_info(struct capture_scene *scene)
{
    (void)scene;
    size_t free_bytes;
    size_t total;
    return cu.MemGetInfo(&free_bytes, &total);
}

static CUresult mem_alloc(struct capture_scene *scene)
{
    return cu.MemAlloc(&scene->address_made, 4096);
}

static CUresult mem_alloc_0(struct capture_scene *scene)
{
    return cu.MemAlloc(&scene->address_made, 0);
}

static CUresult mem_free(struct capture_scene *scene)
{
    return forget(cu.MemFree(scene->plain), &scene->plain);
}

static CUresult mem_free_pooled(struct capture_scene *scene)
{
    return forget(cu.MemFree(scene->pooled), &scene->pooled);
}

static CUresult mem_free_foreign(struct capture_scene *scene)
{
    (void)scene;
    return cu.MemFree(0x1000);
}

static CUresult mem_free_0(struct capture_scene *scene)
{
    (void)scene;
    return cu.MemFree(0);
}

static CUresult mem_host_alloc(struct capture_scene *scene)
{
    return cu.MemHostAlloc(&scene->pinned_made, 4096, 0);
}

static CUresult mem_free_host(struct capture_scene *scene)
{
    CUresult result = cu.MemFreeHost(scene->pinned);
    if (result == CUDA_SUCCESS)
        scene->pinned = NULL;
    return result;
}

static CUresult mem_host_get_device_pointer(struct capture_scene *scene)
{
    CUdeviceptr address;
    return cu.MemHostGetDevicePointer(&address, scene->pinned, 0);
}

static CUresult mem_host_get_flags(struct capture_scene *scene)
{
    unsigned flags;
    return cu.MemHostGetFlags(&flags, scene->pinned);
}

static CUresult mem_get_address_range(struct capture_scene *scene)
{
    CUdeviceptr base;
    size_t bytes;
    return cu.MemGetAddressRange(&base, &bytes, scene->plain);
}

static CUresult pointer_get_attribute(struct capture_scene *scene)
{
    unsigned type;
    return cu.PointerGetAttribute(&type, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, scene->plain);
}

static CUresult pointer_get_attributes(struct capture_scene *scene)
{
    unsigned type;
    void *data[] = {&type};
    CUpointer_attribute attributes[] = {CU_POINTER_ATTRIBUTE_MEMORY_TYPE};
    return cu.PointerGetAttributes(1, attributes, data, scene->plain);
}

static CUresult pointer_set_attribute(struct capture_scene *scene)
{
    int yes = 1;
    return cu.PointerSetAttribute(&yes, CU_POINTER_ATTRIBUTE_SYNC_MEMOPS, scene->plain);
}

static CUresult pool_create(struct capture_scene *scene)
{
    CUmemPoolProps properties = pool_properties();
    return cu.MemPoolCreate(&scene->pool_made, &properties);
}

static CUresult pool_destroy(struct capture_scene *scene)
{
    CUresult result = cu.MemPoolDestroy(scene->spare_pool);
    if (result == CUDA_SUCCESS)
        scene->spare_pool = NULL;
    return result;
}

static CUresult pool_get_attribute(struct capture_scene *scene)
{
    cuuint64_t number;
    return cu.MemPoolGetAttribute(scene->pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT, &number);
}

static CUresult pool_set_attribute(struct capture_scene *scene)
{
    cuuint64_t number = UINT64_MAX;
    return cu.MemPoolSetAttribute(scene->pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &number);
}

static CUresult pool_trim(struct capture_scene *scene)
{
    return cu.MemPoolTrimTo(scene->pool, 0);
}

static CUresult pool_get_access(struct capture_scene *scene)
{
    CUmemAccess_flags flags;
    CUmemLocation location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0};
    return cu.MemPoolGetAccess(&flags, scene->pool, &location);
}

static CUresult pool_set_access(struct capture_scene *scene)
{
    CUmemAccessDesc access = {.location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
                              .flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE};
    return cu.MemPoolSetAccess(scene->pool, &access, 1);
}

static CUresult device_set_mem_pool(struct capture_scene *scene)
{
    (void)scene;
    CUmemoryPool pool;
    CUresult result = cu.DeviceGetDefaultMemPool(&pool, 0);
    return result == CUDA_SUCCESS ? cu.DeviceSetMemPool(0, pool) : result;
}

static CUresult module_load(struct capture_scene *scene)
{
    return cu.ModuleLoadData(&scene->module_made, pattern_module);
}

static CUresult module_unload(struct capture_scene *scene)
{
    CUresult result = cu.ModuleUnload(scene->spare_module);
    if (result == CUDA_SUCCESS)
        scene->spare_module = NULL;
    return result;
}

static CUresult module_get_function(struct capture_scene *scene)
{
    CUfunction function;
    return cu.ModuleGetFunction(&function, scene->spare_module, "strata_pattern_fill");
}

static CUresult graph_create(struct capture_scene *scene)
{
    return cu.GraphCreate(&scene->graph_made, 0);
}

static CUresult graph_add_empty(struct capture_scene *scene)
{
    CUgraphNode node;
    return cu.GraphAddEmptyNode(&node, scene->graph, NULL, 0);
}

static CUresult graph_get_nodes(struct capture_scene *scene)
{
    size_t count = 0;
    return cu.GraphGetNodes(scene->graph, NULL, &count);
}

static CUresult graph_clone(struct capture_scene *scene)
{
    return cu.GraphClone(&scene->graph_made, scene->graph);
}

static CUresult graph_destroy(struct capture_scene *scene)
{
    CUresult result = cu.GraphDestroy(scene->graph);
    if (result == CUDA_SUCCESS)
        scene->graph = NULL;
    return result;
}

static CUresult graph_instantiate(struct capture_scene *scene)
{
    return cu.GraphInstantiateWithFlags(&scene->exec_made, scene->graph, 0);
}

static CUresult graph_exec_update(struct capture_scene *scene)
{
    CUgraphExecUpdateResultInfo info;
    return cu.GraphExecUpdate(scene->exec, scene->graph, &info);
}

static CUresult graph_exec_destroy(struct capture_scene *scene)
{
    CUresult result = cu.GraphExecDestroy(scene->exec);
    if (result == CUDA_SUCCESS)
        scene->exec = NULL;
    return result;
}

static CUresult graph_mem_trim(struct capture_scene *scene)
{
    (void)scene;
    return cu.DeviceGraphMemTrim(0);
}

static CUresult graph_mem_get_attribute(struct capture_scene *scene)
{
    (void)scene;
    cuuint64_t number;
    return cu.DeviceGetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_CURRENT, &number);
}

static CUresult graph_mem_set_attribute(struct capture_scene *scene)
{
    (void)scene;
    cuuint64_t number = 0;
    return cu.DeviceSetGraphMemAttribute(0, CU_GRAPH_MEM_ATTR_USED_MEM_HIGH, &number);
}

static CUresult user_object_create(struct capture_scene *scene)
{
    CUuserObject object = NULL;
    CUresult result = cu.UserObjectCreate(&object, scene, nothing, 1, CU_USER_OBJECT_NO_DESTRUCTOR_SYNC);
    if (result == CUDA_SUCCESS)
        cu.UserObjectRelease(object, 1);
    return result;
}

static CUresult exchange_mode(struct capture_scene *scene)
{
    (void)scene;
    CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    CUresult result = cu.ThreadExchangeStreamCaptureMode(&mode);
    CUresult back = cu.ThreadExchangeStreamCaptureMode(&mode);
    return result == CUDA_SUCCESS ? back : result;
}

const struct capture_call capture_plain_calls[] = {
    {"stream_create", stream_create},
    {"stream_create_priority", stream_create_priority},
    {"stream_create_wrong_flags", stream_create_wrong_flags},
    {"stream_destroy", stream_destroy},
    {"event_create", event_create},
    {"event_destroy", event_destroy},
    {"event_destroy_inside", event_destroy_inside},
    {"event_query_fresh", event_query_fresh},
    {"event_query_outside", event_query_outside},
    {"event_query_inside", event_query_inside},
    {"event_query_null", event_query_null},
    {"event_synchronize_fresh", event_synchronize_fresh},
    {"event_synchronize_outside", event_synchronize_outside},
    {"event_synchronize_inside", event_synchronize_inside},
    {"event_elapsed", event_elapsed},
    {"event_elapsed_inside", event_elapsed_inside},
    {"ctx_synchronize", ctx_synchronize},
    {"ctx_get_current", ctx_get_current},
    {"ctx_set_current", ctx_set_current},
    {"ctx_push_and_pop", ctx_push_and_pop},
    {"ctx_get_device", ctx_get_device},
    {"ctx_get_flags", ctx_get_flags},
    {"ctx_get_id", ctx_get_id},
    {"ctx_get_priority_range", ctx_get_priority_range},
    {"primary_ctx_retain", primary_ctx_retain},
    {"primary_ctx_get_state", primary_ctx_get_state},
    {"device_get_attribute", device_get_attribute},
    {"device_total_mem", device_total_mem},
    {"device_get_mem_pool", device_get_mem_pool},
    {"device_get_default_mem_pool", device_get_default_mem_pool},
    {"mem_get_info", mem_get_info},
    {"mem_alloc", mem_alloc},
    {"mem_alloc_0", mem_alloc_0},
    {"mem_free", mem_free},
    {"mem_free_pooled", mem_free_pooled},
    {"mem_free_foreign", mem_free_foreign},
    {"mem_free_0", mem_free_0},
    {"mem_host_alloc", mem_host_alloc},
    {"mem_free_host", mem_free_host},
    {"mem_host_get_device_pointer", mem_host_get_device_pointer},
    {"mem_host_get_flags", mem_host_get_flags},
    {"mem_get_address_range", mem_get_address_range},
    {"pointer_get_attribute", pointer_get_attribute},
    {"pointer_get_attributes", pointer_get_attributes},
    {"pointer_set_attribute", pointer_set_attribute},
    {"pool_create", pool_create},
    {"pool_destroy", pool_destroy},
    {"pool_get_attribute", pool_get_attribute},
    {"pool_set_attribute", pool_set_attribute},
    {"pool_trim", pool_trim},
    {"pool_get_access", pool_get_access},
    {"pool_set_access", pool_set_access},
    {"device_set_mem_pool", device_set_mem_pool},
    {"module_load", module_load},
    {"module_unload", module_unload},
    {"module_get_function", module_get_function},
    {"graph_create", graph_create},
    {"graph_add_empty", graph_add_empty},
    {"graph_get_nodes", graph_get_nodes},
    {"graph_clone", graph_clone},
    {"graph_destroy", graph_destroy},
    {"graph_instantiate", graph_instantiate},
    {"graph_exec_update", graph_exec_update},
    {"graph_exec_destroy", graph_exec_destroy},
    {"graph_mem_trim", graph_mem_trim},
    {"graph_mem_get_attribute", graph_mem_get_attribute},
    {"graph_mem_set_attribute", graph_mem_set_attribute},
    {"user_object_create", user_object_create},
    {"exchange_mode", exchange_mode},
};
const size_t capture_plain_call_count = sizeof capture_plain_calls / sizeof capture_plain_calls[0];
