/* The beginning and the end: cuInit, the door of every driver call, a fork, and the end of the process. */
#include "sim.h"
#include <stdlib.h>
#include <string.h>

struct sim sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
    .settings = {.devices = 1, .memory = UINT64_C(16) << 30},
};

static CUresult phase_error(void)
{
    switch (sim.phase) {
    case SIM_RUNNING:
        return CUDA_SUCCESS;
    case SIM_ENDED:
        return CUDA_ERROR_DEINITIALIZED;
    case SIM_NOT_INITIALIZED:
    case SIM_FORKED:
        break;
    }
    return CUDA_ERROR_NOT_INITIALIZED;
}

CUresult sim_enter(void)
{
    return sim_in_host_function() ? CUDA_ERROR_NOT_PERMITTED : sim_enter_handle();
}

CUresult sim_enter_handle(void)
{
    pthread_mutex_lock(&sim.lock);
    CUresult result = phase_error();
    if (result != CUDA_SUCCESS) {
        pthread_mutex_unlock(&sim.lock);
    }
    return result;
}

CUresult sim_enter_query(void)
{
    pthread_mutex_lock(&sim.lock);
    CUresult result = sim.phase == SIM_FORKED ? CUDA_SUCCESS : phase_error();
    if (result != CUDA_SUCCESS) {
        pthread_mutex_unlock(&sim.lock);
    }
    return result;
}

CUresult sim_context_check(sim_context *context)
{
    return context->active ? context->device->poison : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_context_current(sim_context **context)
{
    CUresult result = sim_in_host_function() ? CUDA_ERROR_NOT_PERMITTED : phase_error();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    const struct sim_thread *thread = sim_thread_self();
    if (!thread) {
        return CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (thread->depth == 0) {
        return CUDA_ERROR_INVALID_CONTEXT;
    }
    const struct sim_current *top = &thread->stack[thread->depth - 1];
    if (!sim_slab_has(&sim.contexts, top->context) || top->context->uid != top->uid) {
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    }
    *context = top->context;
    return sim_context_check(top->context);
}

CUresult sim_enter_context(sim_context **context)
{
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS) {
        return result;
    }
    result = sim_context_current(context);
    if (result != CUDA_SUCCESS) {
        pthread_mutex_unlock(&sim.lock);
    }
    return result;
}

CUresult sim_leave(CUresult result)
{
    if (sim.phase == SIM_RUNNING) {
        sim_tick();
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

static void close_slabs(void)
{
    sim_slab_close(&sim.contexts);
    sim_slab_close(&sim.streams);
    sim_slab_close(&sim.events);
    sim_slab_close(&sim.modules);
    sim_slab_close(&sim.functions);
    sim_slab_close(&sim.pools);
}

static bool open_slabs(void)
{
    return sim_slab_open(&sim.contexts, sizeof(sim_context)) &&
           sim_slab_open(&sim.streams, sizeof(struct CUstream_st)) &&
           sim_slab_open(&sim.events, sizeof(struct CUevent_st)) &&
           sim_slab_open(&sim.modules, sizeof(struct CUmod_st)) &&
           sim_slab_open(&sim.functions, sizeof(struct CUfunc_st)) &&
           sim_slab_open(&sim.pools, sizeof(struct CUmemPoolHandle_st));
}

static void release_everything(void)
{
    sim_context *context = NULL;
    while ((context = sim_slab_next(&sim.contexts, NULL))) {
        sim_context_free(context);
    }
    sim_blocks_close();
    for (int i = 0; i < sim.settings.devices; i++) {
        sim_device_close(&sim.devices[i]);
    }
    sim_address_close();
    sim_threads_close();
    sim_ops_close();
    sim_kernels_close();
    free(sim.queues);
    sim.queues = NULL;
    sim.queue_slots = 0;
    close_slabs();
}

static CUresult open_devices(void)
{
    for (int i = 0; i < sim.settings.devices; i++) {
        CUresult result = sim_device_open(&sim.devices[i], i);
        if (result != CUDA_SUCCESS) {
            return result;
        }
    }
    return CUDA_SUCCESS;
}

/* At exit, before handlers that the program registered earlier than its cuInit; or when the library is unloaded. A call
 * that is inside and waits, or a host function that does not end, still uses what would be released: then nothing is.
 */
static void end(void)
{
    pthread_mutex_lock(&sim.lock);
    if (sim.phase == SIM_RUNNING) {
        sim.phase = SIM_ENDED;
        pthread_cond_broadcast(&sim.progress);
        bool quiet = sim_host_thread_stop() && sim.inside == 0;
        if (quiet) {
            release_everything();
        }
    } else if (sim.phase == SIM_FORKED && sim.devices[0].memory) {
        release_everything();
    }
    pthread_mutex_unlock(&sim.lock);
}

__attribute__((destructor)) static void unload(void)
{
    end();
    pthread_mutex_lock(&sim.lock);
    if (sim.phase == SIM_NOT_INITIALIZED) {
        sim_kernels_close();
    }
    pthread_mutex_unlock(&sim.lock);
}

static void before_fork(void)
{
    pthread_mutex_lock(&sim.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&sim.lock);
}

static void after_fork_in_child(void)
{
    pthread_mutex_init(&sim.lock, NULL);
    pthread_cond_init(&sim.progress, NULL);
    if (sim.phase == SIM_RUNNING) {
        sim.phase = SIM_FORKED;
    }
}

static CUresult start(void)
{
    CUresult result = sim_settings_read(&sim.settings);
    if (result != CUDA_SUCCESS) {
        return result;
    }
    if (!open_slabs() || !sim_threads_open()) {
        result = CUDA_ERROR_OUT_OF_MEMORY;
    }
    if (result == CUDA_SUCCESS) {
        result = open_devices();
    }
    if (result == CUDA_SUCCESS &&
        (atexit(end) != 0 || pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0)) {
        result = CUDA_ERROR_OPERATING_SYSTEM;
    }
    if (result != CUDA_SUCCESS) {
        release_everything();
        return result;
    }
    sim.phase = SIM_RUNNING;
    return CUDA_SUCCESS;
}

CUresult cuInit(unsigned int Flags)
{
    if (sim_in_host_function()) {
        return CUDA_ERROR_NOT_PERMITTED;
    }
    if (Flags != 0) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    pthread_mutex_lock(&sim.lock);
    CUresult result = sim.phase == SIM_NOT_INITIALIZED ? start() : phase_error();
    pthread_mutex_unlock(&sim.lock);
    return result;
}

bool sim_ended(void)
{
    pthread_mutex_lock(&sim.lock);
    bool ended = sim.phase == SIM_ENDED;
    pthread_mutex_unlock(&sim.lock);
    return ended;
}

CUresult cuDriverGetVersion(int *driverVersion)
{
    if (sim_ended()) {
        return CUDA_ERROR_DEINITIALIZED;
    }
    if (!driverVersion) {
        return CUDA_ERROR_INVALID_VALUE;
    }
    *driverVersion = SIM_DRIVER_VERSION;
    return CUDA_SUCCESS;
}
