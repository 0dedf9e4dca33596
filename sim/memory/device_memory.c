/* A device's memory: what cuMemAlloc uses, and its pools. */
#include "memory/memory.h"

CUresult sim_device_open(sim_device *device, int ordinal)
{
    static sim_device_memory memories[SIM_MAX_DEVICES]; /* guarded by sim.lock */
    memories[ordinal] = (sim_device_memory){0};
    *device = (sim_device){.ordinal = ordinal, .memory = &memories[ordinal]};
    device->memory->bytes = sim.settings.memory / SIM_PAGE * SIM_PAGE;
    device->memory->direct = (sim_space){.device = device, .direct = true};
    device->memory->default_pool = sim_pool_create(device);
    device->memory->current_pool = device->memory->default_pool;
    if (!device->memory->default_pool)
        return CUDA_ERROR_OUT_OF_MEMORY;
    device->memory->default_pool->is_default = true;
    return CUDA_SUCCESS;
}

void sim_device_close(sim_device *device)
{
    for (CUmemoryPool pool = NULL; (pool = sim_slab_next(&sim_memory.pools, pool));) {
        if (pool->space.device == device) {
            sim_space_close(&pool->space);
            sim_slab_give(&sim_memory.pools, pool);
        }
    }
    if (device->memory && device->memory->direct.device)
        sim_space_close(&device->memory->direct);
    *device = (sim_device){0};
}

void sim_device_observe(sim_device *device, const sim_point *seen)
{
    for (sim_space *space = device->memory->spaces; space; space = space->next)
        sim_space_observe(space, seen);
}
