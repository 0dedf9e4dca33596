/* The beginning and the end: cuInit, a fork, and the end of the process. */
#include "driver/enter.h"
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static void release_everything(void)
{
    sim_context *context = NULL;
    sim_captures_close();
    while ((context = sim_slab_next(&sim_order.contexts, NULL)))
        sim_context_free(context);
    sim_shadows_close();
    sim_blocks_close();
    sim_graphs_close();
    sim_ranges_close();
    sim_physicals_close();
    for (int i = 0; i < sim.settings.devices; i++)
        sim_device_close(&sim_order.devices[i]);
    sim_ops_close();
    sim_graph_memories_close();
    sim_address_close();
    sim_threads_close();
    sim_registered_kernels_close();
    sim_clocks_close();
    sim_order_close();
    sim_memory_close();
    sim_kernels_close();
    sim_graph_close();
}

static CUresult open_devices(void)
{
    for (int i = 0; i < sim.settings.devices; i++) {
        CUresult result = sim_device_open(&sim_order.devices[i], i);
        if (result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

/* What work has not said yet it touches, it says now. A host kernel may be called here; a host function is
 * not. */
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
    } else if (sim.phase == SIM_FORKED && sim_order.devices[0].memory) {
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
        sim_registered_kernels_close();
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
 * the condition is written over as one without waiters, since it can be neither destroyed nor initialised.
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
    if (!sim_order_open() || !sim_memory_open() || !sim_kernels_open() || !sim_graph_open())
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
    return sim.settings.check != 0 ? sim_check_turn_on(sim.settings.check) : CUDA_SUCCESS;
}

CUresult cuInit(unsigned int Flags)
{
    if (sim_in_host_function())
        return CUDA_ERROR_NOT_PERMITTED;
    if (Flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    sim_entry_begin(__func__);
    pthread_mutex_lock(&sim.lock);
    CUresult result = sim_fault_call(sim_entry());
    if (result == CUDA_SUCCESS)
        result = sim.phase == SIM_NOT_INITIALIZED ? start() : sim_phase_error();
    pthread_mutex_unlock(&sim.lock);
    return result;
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
