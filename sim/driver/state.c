/* The beginning and the end: cuInit, the door of every driver call, a fork, and the end of the process. */
#include "check/check.h"
#include "graph/graph.h"
#include "memory/vmm.h"
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

struct sim sim = {
    .lock = PTHREAD_MUTEX_INITIALIZER,
    .progress = PTHREAD_COND_INITIALIZER,
    .settings =
        {
            .devices = 1,
            .memory = UINT64_C(16) << 30,
            .latency = {2000, 2000, 2000, 2000, 100, 100},
            .rate = {4000000, 4000000},
        },
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

/* The entry point that the thread is in. */
static _Thread_local const char *entry;
static _Thread_local const char *alias;

const char *sim_entry(void)
{
    return entry;
}

void sim_called_as(const char *name)
{
    alias = name;
}

static void name_call(const char *name)
{
    entry = alias ? alias : name;
    alias = NULL;
}

/* Takes the lock for a call, unless the phase or the fault plan forbids it. */
static CUresult begin(const char *name, bool in_child)
{
    name_call(name);
    pthread_mutex_lock(&sim.lock);
    CUresult result = in_child && sim.phase == SIM_FORKED ? CUDA_SUCCESS : phase_error();
    if (result == CUDA_SUCCESS)
        result = sim_fault_call(entry);
    if (result != CUDA_SUCCESS)
        pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult sim_enter_as(const char *name)
{
    if (sim_in_host_function()) {
        alias = NULL;
        return CUDA_ERROR_NOT_PERMITTED;
    }
    return begin(name, false);
}

CUresult sim_enter_handle_as(const char *name)
{
    return begin(name, false);
}

CUresult sim_enter_query_as(const char *name)
{
    return begin(name, true);
}

CUresult sim_context_check(sim_context *context)
{
    return context->active ? context->device->poison : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_context_current(sim_context **context)
{
    CUresult result = sim_in_host_function() ? CUDA_ERROR_NOT_PERMITTED : phase_error();
    if (result != CUDA_SUCCESS)
        return result;
    const sim_thread *thread = sim_thread_self();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    const sim_current *top = &thread->stack[thread->depth - 1];
    if (!sim_slab_has(&sim.contexts, top->context) || top->context->uid != top->uid)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = top->context;
    return sim_context_check(top->context);
}

CUresult sim_enter_context_as(const char *name, sim_context **context)
{
    CUresult result = sim_enter_as(name);
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_context_current(context);
    if (result != CUDA_SUCCESS)
        pthread_mutex_unlock(&sim.lock);
    return result;
}

static CUresult guard(CUresult result)
{
    if (result != CUDA_SUCCESS)
        return result;
    result = sim_capture_guard();
    if (result != CUDA_SUCCESS)
        pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult sim_enter_unsafe_as(const char *name)
{
    return guard(sim_enter_as(name));
}

CUresult sim_enter_context_unsafe_as(const char *name, sim_context **context)
{
    return guard(sim_enter_context_as(name, context));
}

CUresult sim_leave(CUresult result)
{
    if (sim.phase == SIM_RUNNING)
        sim_tick();
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
    sim_slab_close(&sim.graphs);
    sim_slab_close(&sim.graph_nodes);
    sim_slab_close(&sim.graph_execs);
    sim_slab_close(&sim.objects);
    sim_slab_close(&sim.physicals);
}

static bool open_slabs(void)
{
    return sim_slab_open(&sim.contexts, sizeof(sim_context)) &&
           sim_slab_open(&sim.streams, sizeof(struct CUstream_st)) &&
           sim_slab_open(&sim.events, sizeof(struct CUevent_st)) &&
           sim_slab_open(&sim.modules, sizeof(struct CUmod_st)) &&
           sim_slab_open(&sim.functions, sizeof(struct CUfunc_st)) &&
           sim_slab_open(&sim.pools, sizeof(struct CUmemPoolHandle_st)) &&
           sim_slab_open(&sim.graphs, sizeof(struct CUgraph_st)) &&
           sim_slab_open(&sim.graph_nodes, sizeof(struct CUgraphNode_st)) &&
           sim_slab_open(&sim.graph_execs, sizeof(struct CUgraphExec_st)) &&
           sim_slab_open(&sim.objects, sizeof(struct CUuserObject_st)) &&
           sim_slab_open(&sim.physicals, sizeof(sim_physical));
}

static void release_everything(void)
{
    sim_context *context = NULL;
    sim_captures_close();
    while ((context = sim_slab_next(&sim.contexts, NULL)))
        sim_context_free(context);
    sim_shadows_close();
    sim_blocks_close();
    sim_graphs_close();
    sim_ranges_close();
    sim_physicals_close();
    for (int i = 0; i < sim.settings.devices; i++)
        sim_device_close(&sim.devices[i]);
    sim_ops_close();
    sim_graph_memories_close();
    sim_address_close();
    sim_threads_close();
    sim_kernels_close();
    sim_clock_drop(sim.host_knows);
    sim.host_knows = NULL;
    free(sim.components);
    sim.components = NULL;
    sim.component_slots = 0;
    close_slabs();
}

static CUresult open_devices(void)
{
    for (int i = 0; i < sim.settings.devices; i++) {
        CUresult result = sim_device_open(&sim.devices[i], i);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* What work has not said yet it touches, it says now. A kernel's twin may be called here; a host function is not. */
static void finish_checking(void)
{
    if (sim.checking) {
        sim_need_everything();
        sim_run_chosen();
    }
    sim_reports_flush();
}

/* At exit, before handlers that the program registered earlier than its cuInit. A call that is inside and waits, or a
 * host function that does not end, still uses what would be released: then nothing is. */
static void end(void)
{
    pthread_mutex_lock(&sim.lock);
    if (sim.phase == SIM_RUNNING) {
        finish_checking();
        sim.phase = SIM_ENDED;
        pthread_cond_broadcast(&sim.progress);
        bool quiet = sim_host_thread_stop() && sim.inside == 0;
        if (quiet)
            release_everything();
    } else if (sim.phase == SIM_FORKED && sim.devices[0].memory) {
        release_everything();
    }
    pthread_mutex_unlock(&sim.lock);
}

/* The last that happens when the process exits, but for the flushing of streams. The library is linked so that dlclose
 * leaves it where it is (-z nodelete): handlers of exit, of fork and of signals point into it. */
__attribute__((destructor)) static void unload(void)
{
    end();
    pthread_mutex_lock(&sim.lock);
    if (sim.phase == SIM_NOT_INITIALIZED)
        sim_kernels_close();
    int status = sim.phase == SIM_ENDED && sim_reports_any() ? sim.settings.check_exit : 0;
    sim_reports_close();
    sim_stacks_close();
    free(sim.settings.check_file);
    sim.settings.check_file = NULL;
    pthread_mutex_unlock(&sim.lock);
    if (status != 0) {
        fflush(NULL);
        _exit(status);
    }
}

static void before_fork(void)
{
    pthread_mutex_lock(&sim.lock);
}

static void after_fork_in_parent(void)
{
    pthread_mutex_unlock(&sim.lock);
}

/* The thread that forked took the lock, and is the one that the child has. Those that waited are not there any more:
 * the condition is written over as one that nobody ever waited for, since it can be neither destroyed nor initialised.
 */
static void after_fork_in_child(void)
{
    pthread_mutex_unlock(&sim.lock);
    sim.progress = (pthread_cond_t)PTHREAD_COND_INITIALIZER;
    if (sim.phase == SIM_RUNNING)
        sim.phase = SIM_FORKED;
}

static CUresult start(void)
{
    CUresult result = sim_settings_read(&sim.settings);
    if (result != CUDA_SUCCESS)
        return result;
    if (!open_slabs() || !sim_threads_open())
        result = CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS)
        result = open_devices();
    if (result == CUDA_SUCCESS &&
        (atexit(end) != 0 || pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child) != 0))
        result = CUDA_ERROR_OPERATING_SYSTEM;
    if (result != CUDA_SUCCESS) {
        release_everything();
        return result;
    }
    sim.phase = SIM_RUNNING;
    return sim.settings.check != 0 ? sim_check_begin(sim.settings.check) : CUDA_SUCCESS;
}

CUresult cuInit(unsigned int Flags)
{
    if (sim_in_host_function())
        return CUDA_ERROR_NOT_PERMITTED;
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    name_call(__func__);
    pthread_mutex_lock(&sim.lock);
    CUresult result = sim_fault_call(entry);
    if (result == CUDA_SUCCESS)
        result = sim.phase == SIM_NOT_INITIALIZED ? start() : phase_error();
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
    if (sim_ended())
        return CUDA_ERROR_DEINITIALIZED;
    if (!driverVersion)
        return CUDA_ERROR_INVALID_VALUE;
    *driverVersion = SIM_DRIVER_VERSION;
    return CUDA_SUCCESS;
}
