/* Questions about every call that may meet a capture: its answer, and the state of the capture afterwards. The
 * capturing thread and another one make the call, each with its own capture mode and with an exchanged one. An answer
 * has three parts: the call's result, the captured stream's status after it, and the result of the capture's end. */
#include "capture_calls.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

struct caller {
    const char *name;
    bool other_thread;
    CUstreamCaptureMode mode;
};

static const struct caller callers[] = {
    {"same", false, CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"same_relaxed", false, CU_STREAM_CAPTURE_MODE_RELAXED},
    {"other", true, CU_STREAM_CAPTURE_MODE_GLOBAL},
    {"other_relaxed", true, CU_STREAM_CAPTURE_MODE_RELAXED},
};

/* The mode between the two others is asked fewer questions. */
static const struct caller local_callers[] = {
    {"same_thread_local", false, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
    {"other_thread_local", true, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL},
};

static const char *const mode_names[] = {"global", "thread_local", "relaxed"};

/* A thread that makes calls on request. Requests and results are exchanged under the lock. */
static struct {
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    CUcontext context;               /* the rest is guarded by lock */
    const struct capture_call *call; /* to make next */
    struct capture_scene *scene;
    CUstreamCaptureMode mode;
    CUresult result;
    bool ready;
    bool end;
} helper = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static CUresult make_call(const struct capture_call *call, struct capture_scene *scene, CUstreamCaptureMode mode)
{
    cu.ThreadExchangeStreamCaptureMode(&mode);
    CUresult result = call->make(scene);
    cu.ThreadExchangeStreamCaptureMode(&mode);
    return result;
}

static void *help(void *unused)
{
    (void)unused;
    pthread_mutex_lock(&helper.lock);
    cu.CtxSetCurrent(helper.context);
    cu.StreamSynchronize(CU_STREAM_PER_THREAD);
    helper.ready = true;
    pthread_cond_signal(&helper.changed);
    while (!helper.end) {
        if (helper.call) {
            helper.result = make_call(helper.call, helper.scene, helper.mode);
            helper.call = NULL;
            pthread_cond_signal(&helper.changed);
        }
        pthread_cond_wait(&helper.changed, &helper.lock);
    }
    pthread_mutex_unlock(&helper.lock);
    return NULL;
}

static void start_helper(CUcontext context)
{
    helper.context = context;
    helper.ready = false;
    pthread_create(&helper.thread, NULL, help, NULL);
    pthread_mutex_lock(&helper.lock);
    while (!helper.ready)
        pthread_cond_wait(&helper.changed, &helper.lock);
    pthread_mutex_unlock(&helper.lock);
}

static void end_helper(void)
{
    pthread_mutex_lock(&helper.lock);
    helper.end = true;
    pthread_cond_signal(&helper.changed);
    pthread_mutex_unlock(&helper.lock);
    pthread_join(helper.thread, NULL);
    helper.end = false;
}

static CUresult call_by(const struct caller *caller, const struct capture_call *call, struct capture_scene *scene)
{
    if (!caller->other_thread)
        return make_call(call, scene, caller->mode);
    pthread_mutex_lock(&helper.lock);
    helper.call = call;
    helper.scene = scene;
    helper.mode = caller->mode;
    pthread_cond_signal(&helper.changed);
    while (helper.call)
        pthread_cond_wait(&helper.changed, &helper.lock);
    CUresult result = helper.result;
    pthread_mutex_unlock(&helper.lock);
    return result;
}

static void make_graph(struct capture_scene *scene)
{
    CUDA_MEMSET_NODE_PARAMS fill = {.dst = scene->filled, .value = 1, .elementSize = 1, .width = 4096, .height = 1};
    CUgraphNode node;
    cu.GraphCreate(&scene->graph, 0);
    cu.GraphAddMemsetNode(&node, scene->graph, NULL, 0, &fill, scene->context);
    cu.GraphInstantiateWithFlags(&scene->exec, scene->graph, 0);
}

static void make_scene(struct capture_scene *scene, const struct capture_scene *stays, unsigned flags)
{
    *scene = *stays;
    scene->own = new_stream(flags);
    scene->other = new_stream(CU_STREAM_NON_BLOCKING);
    scene->spare = new_stream(CU_STREAM_NON_BLOCKING);
    scene->fresh = new_event();
    scene->outside = new_event();
    scene->inside = new_event();
    cu.EventCreate(&scene->timed, 0);
    scene->plain = new_memory(4 * KIB);
    cu.MemsetD8(scene->plain, 0, 4 * KIB); /* some calls wait for values in it */
    scene->filled = new_memory(4 * KIB);
    scene->pool = new_pool(0);
    scene->spare_pool = new_pool(0);
    cu.MemHostAlloc(&scene->pinned, 4 * KIB, 0);
    cu.MemAllocFromPoolAsync(&scene->pooled, 4 * KIB, scene->pool, scene->other);
    cu.EventRecord(scene->outside, scene->other);
    cu.EventRecord(scene->timed, scene->other);
    make_graph(scene);
    cu.CtxSynchronize();
}

/* Virtual and registered memory, for the calls that need it. */
static void make_features(struct capture_scene *scene)
{
    static unsigned char page[8192];
    CUmemAllocationProp properties = {
        .type = CU_MEM_ALLOCATION_TYPE_PINNED,
        .location = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = 0},
    };
    cu.MemCreate(&scene->spare_handle, 2 * MIB, &properties, 0);
    cu.MemCreate(&scene->mapped_handle, 2 * MIB, &properties, 0);
    cu.MemAddressReserve(&scene->spare_range, 2 * MIB, 0, 0, 0);
    cu.MemAddressReserve(&scene->mapped, 2 * MIB, 0, 0, 0);
    scene->is_mapped = cu.MemMap(scene->mapped, 2 * MIB, 0, scene->mapped_handle, 0) == CUDA_SUCCESS;
    scene->registered = page;
    cu.MemHostRegister(page, sizeof page, 0);
}

static void end_range(CUdeviceptr range, bool mapped)
{
    if (mapped)
        cu.MemUnmap(range, 2 * MIB);
    if (range != 0)
        cu.MemAddressFree(range, 2 * MIB);
}

static void end_features(struct capture_scene *scene)
{
    const CUmemGenericAllocationHandle handles[] = {scene->spare_handle, scene->mapped_handle, scene->handle_made};
    cu.CtxSynchronize();
    end_range(scene->spare_range, scene->spare_mapped);
    end_range(scene->mapped, scene->is_mapped);
    end_range(scene->range_made, false);
    for (int i = 0; i < 3; i++) {
        if (handles[i] != 0)
            cu.MemRelease(handles[i]);
    }
    cu.MemHostUnregister(scene->registered);
    cu.MemHostUnregister(scene->page);
}

static void destroy_stream(CUstream stream)
{
    if (stream)
        cu.StreamDestroy(stream);
}

static void destroy_event(CUevent event)
{
    if (event)
        cu.EventDestroy(event);
}

static void end_pools(const struct capture_scene *scene)
{
    const CUmemoryPool pools[] = {scene->pool, scene->spare_pool, scene->pool_made};
    for (int i = 0; i < 3; i++) {
        if (pools[i])
            cu.MemPoolDestroy(pools[i]);
    }
}

static void end_graphs(const struct capture_scene *scene)
{
    const CUgraph graphs[] = {scene->graph, scene->graph_made};
    const CUgraphExec execs[] = {scene->exec, scene->exec_made};
    for (int i = 0; i < 2; i++) {
        if (execs[i])
            cu.GraphExecDestroy(execs[i]);
        if (graphs[i])
            cu.GraphDestroy(graphs[i]);
    }
}

static void end_scene(struct capture_scene *scene, struct capture_scene *stays)
{
    cu.CtxSynchronize();
    cu.MemFree(scene->plain);
    cu.MemFree(scene->pooled);
    cu.MemFree(scene->filled);
    cu.MemFree(scene->address_made);
    cu.MemFreeHost(scene->pinned);
    cu.MemFreeHost(scene->pinned_made);
    end_graphs(scene);
    end_pools(scene);
    if (scene->module_made)
        cu.ModuleUnload(scene->module_made);
    if (!scene->spare_module)
        cu.ModuleLoadData(&scene->spare_module, pattern_module);
    stays->spare_module = scene->spare_module;
    destroy_stream(scene->own);
    destroy_stream(scene->other);
    destroy_stream(scene->spare);
    destroy_stream(scene->stream_made);
    destroy_event(scene->fresh);
    destroy_event(scene->outside);
    destroy_event(scene->inside);
    destroy_event(scene->timed);
    destroy_event(scene->event_made);
}

static const char *status_name(CUstream stream)
{
    static const char *const names[] = {"none", "active", "invalidated"};
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    CUresult result = cu.StreamIsCapturing(stream, &status);
    return result != CUDA_SUCCESS ? result_name(result) : names[status % 3];
}

static void ask_call(struct capture_scene *stays, unsigned flags, CUstreamCaptureMode mode, const struct caller *caller,
                     const struct capture_call *call, const char *section, bool features)
{
    struct capture_scene scene;
    CUgraph graph = NULL;
    char answer[256];
    make_scene(&scene, stays, flags);
    if (features)
        make_features(&scene);
    cu.StreamBeginCapture(scene.own, mode);
    cu.MemsetD8Async(scene.plain, 1, 4 * KIB, scene.own);
    cu.EventRecord(scene.inside, scene.own);
    CUresult result = call_by(caller, call, &scene);
    const char *status = status_name(scene.own);
    CUresult end = cu.StreamEndCapture(scene.own, &graph);
    snprintf(answer, sizeof answer, "%s, %s, %s", result_name(result), status, result_name(end));
    ask_text(answer, "%s.%s.%s.%s", section, mode_names[mode], caller->name, call->name);
    if (graph)
        cu.GraphDestroy(graph);
    if (features)
        end_features(&scene);
    end_scene(&scene, stays);
}

struct questions {
    const char *section;
    unsigned flags; /* of the captured stream */
    const struct capture_call *calls;
    size_t call_count;
    const struct caller *callers;
    size_t caller_count;
    bool features;
};

static void ask_all(struct capture_scene *stays, CUstreamCaptureMode mode, const struct questions *questions)
{
    for (size_t c = 0; c < questions->caller_count; c++) {
        for (size_t i = 0; i < questions->call_count; i++)
            ask_call(stays, questions->flags, mode, &questions->callers[c], &questions->calls[i], questions->section,
                     questions->features);
    }
}

static void begin(struct capture_scene *stays)
{
    *stays = (struct capture_scene){.context = start()};
    warm_up(NULL);
    stays->function = pattern_fill_function();
    cu.ModuleLoadData(&stays->spare_module, pattern_module);
    start_helper(stays->context);
}

static void ask_mode(CUstreamCaptureMode mode)
{
    struct capture_scene stays;
    begin(&stays);
    struct questions streams = {
        "capture_calls", CU_STREAM_NON_BLOCKING, capture_stream_calls, capture_stream_call_count, callers, 4, false};
    struct questions plain = {
        "capture_calls", CU_STREAM_NON_BLOCKING, capture_plain_calls, capture_plain_call_count, callers, 4, false};
    struct questions defaults = {
        "capture_calls", CU_STREAM_NON_BLOCKING, capture_default_calls, capture_default_call_count, callers, 4, false};
    ask_all(&stays, mode, &streams);
    ask_all(&stays, mode, &plain);
    ask_all(&stays, mode, &defaults);
    end_helper();
}

void ask_capture_calls_global(void)
{
    ask_mode(CU_STREAM_CAPTURE_MODE_GLOBAL);
}

void ask_capture_calls_thread_local(void)
{
    ask_mode(CU_STREAM_CAPTURE_MODE_THREAD_LOCAL);
}

void ask_capture_calls_relaxed(void)
{
    ask_mode(CU_STREAM_CAPTURE_MODE_RELAXED);
}

/* The captured stream is ordered with the legacy stream, which cannot be captured. */
void ask_capture_legacy(void)
{
    struct capture_scene stays;
    begin(&stays);
    struct questions defaults = {
        "capture_legacy", CU_STREAM_DEFAULT, capture_default_calls, capture_default_call_count, callers, 4, false};
    for (int mode = 0; mode < 3; mode++)
        ask_all(&stays, (CUstreamCaptureMode)mode, &defaults);
    end_helper();
}

static const struct capture_call *find_in(const struct capture_call *calls, size_t count, const char *name)
{
    for (size_t i = 0; i < count; i++) {
        if (strcmp(calls[i].name, name) == 0)
            return &calls[i];
    }
    return NULL;
}

static const struct capture_call *find_call(const char *name)
{
    const struct capture_call *call = find_in(capture_stream_calls, capture_stream_call_count, name);
    return call ? call : find_in(capture_plain_calls, capture_plain_call_count, name);
}

void ask_capture_exchanged(void)
{
    static const char *const names[] = {"mem_alloc",  "event_query_outside", "other_synchronize", "other_alloc",
                                        "own_get_id", "ctx_synchronize",     "module_load",       "event_query_inside"};
    struct capture_scene stays;
    begin(&stays);
    for (int mode = 0; mode < 3; mode++) {
        for (size_t i = 0; i < sizeof names / sizeof names[0]; i++) {
            struct questions one = {
                "capture_exchanged", CU_STREAM_NON_BLOCKING, find_call(names[i]), 1, local_callers, 2, false};
            ask_all(&stays, (CUstreamCaptureMode)mode, &one);
        }
    }
    end_helper();
}

void ask_capture_features(void)
{
    struct capture_scene stays;
    begin(&stays);
    struct questions features = {"capture_features",
                                 CU_STREAM_NON_BLOCKING,
                                 capture_feature_calls,
                                 capture_feature_call_count,
                                 callers,
                                 4,
                                 true};
    for (int mode = 0; mode < 3; mode++)
        ask_all(&stays, (CUstreamCaptureMode)mode, &features);
    end_helper();
}
