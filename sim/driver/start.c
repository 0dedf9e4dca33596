/* cuInit, fork, and exit. */
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

static void print_last_lines(FILE *out)
{
    sim_leaks_print_objects(out);
    sim_missing_print(out);
}

/* Lets unfinished work declare its accesses. May call host kernels, not host functions. */
static void finish_checking(void)
{
    if (sim.checking) {
        sim_need_everything();
        sim_run_chosen();
        sim_leaks_report(NULL);
    }
    sim_reports_flush(print_last_lines);
}

/* At exit, before handlers registered earlier than cuInit. A waiting call or a running host function still uses the
 * state: then nothing is released. Nor is anything done where a signal handler exits that has interrupted a call. */
static void end(void)
{
    if (!sim_lock_at_exit())
        return;
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

/* Last at exit, but for the flushing of streams. The library is linked with -z nodelete: handlers of exit, fork and
 * signals point into it. */
__attribute__((destructor)) static void unload(void)
{
    end();
    if (!sim_lock_at_exit())
        return;
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

static bool fork_has_locked; /* guarded by the lock; false: a signal handler forks that has interrupted a call */

static void before_fork(void)
{
    const bool locked = sim_lock();
    fork_has_locked = locked;
}

static void after_fork_in_parent(void)
{
    if (fork_has_locked)
        pthread_mutex_unlock(&sim.lock);
}

/* The forking thread held the lock, by the number that it has in the parent: its unlock is refused, and only tells the
 * thread sanitizer. The condition's waiters are gone. Neither can be destroyed nor initialised, so they are
 * overwritten. */
static void after_fork_in_child(void)
{
    if (fork_has_locked)
        pthread_mutex_unlock(&sim.lock);
    sim.lock = (pthread_mutex_t)PTHREAD_ERRORCHECK_MUTEX_INITIALIZER_NP;
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
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
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
    *driverVersion = sim_version();
    return CUDA_SUCCESS;
}
