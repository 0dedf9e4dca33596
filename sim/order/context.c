/* Current and usable contexts. */
#include "order/order.h"

CUresult sim_context_check(sim_context *context)
{
    return context->active ? context->device->poison : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

CUresult sim_context_current(sim_context **context)
{
    CUresult result = sim_in_host_function() ? CUDA_ERROR_NOT_PERMITTED : sim_phase_error();
    if (result != CUDA_SUCCESS)
        return result;
    const sim_thread *thread = sim_thread_self();
    if (!thread)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (thread->depth == 0)
        return CUDA_ERROR_INVALID_CONTEXT;
    const sim_current *top = &thread->stack[thread->depth - 1];
    if (!sim_slab_has(&sim_order.contexts, top->context) || top->context->uid != top->uid)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    *context = top->context;
    return sim_context_check(top->context);
}

bool sim_context_has_ended(void)
{
    sim_context *context;
    return sim_context_current(&context) == CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

bool sim_context_valid(const sim_context *context)
{
    return sim_slab_has(&sim_order.contexts, context);
}

bool sim_context_lasts(const sim_context *context, uint64_t instance)
{
    return sim_context_valid(context) && context->active && context->instance == instance;
}

sim_device *sim_device_of(CUdevice device)
{
    return device >= 0 && device < sim.settings.devices ? &sim_order.devices[device] : NULL;
}
