/* Begin and end of driver calls. */
#include "driver/enter.h"

/* Takes the lock unless the phase or the fault plan forbids the call, or a signal handler makes it that has interrupted
 * another one. */
static CUresult begin(const char *name, bool in_child)
{
    sim_entry_begin(name);
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = in_child && sim.phase == SIM_FORKED ? CUDA_SUCCESS : sim_phase_error();
    if (result == CUDA_SUCCESS)
        result = sim_fault_call(sim_entry());
    if (result != CUDA_SUCCESS)
        pthread_mutex_unlock(&sim.lock);
    else if (sim.checking)
        sim_value_words_look(); /* what the host wrote came before the call */
    return result;
}

CUresult sim_enter_as(const char *name)
{
    if (sim_in_host_function()) {
        sim_entry_refused();
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
    if (sim_graph.unsettled)
        result = sim_recapture_settle(result);
    if (sim.phase == SIM_RUNNING)
        sim_tick();
    pthread_mutex_unlock(&sim.lock);
    return result;
}
