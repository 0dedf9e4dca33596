/* The simulator's own control functions. */
#include "driver/enter.h"

CUresult strata_sim_set_seed(uint64_t seed)
{
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    sim.settings.seed = seed;
    sim_order.seeded_at = sim_order.submitted;
    sim.settings.seed_set = true;
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_set_policy(strata_sim_policy policy)
{
    if ((unsigned)policy > STRATA_SIM_LATE)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    sim.settings.policy = policy;
    sim.settings.policy_set = true;
    if (policy == STRATA_SIM_EARLY) {
        sim_need_everything();
        sim_run_chosen();
    }
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_set_devices(int count)
{
    if (count < 1 || count > SIM_MAX_DEVICES)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_NOT_PERMITTED;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    if (sim.phase == SIM_NOT_INITIALIZED) {
        sim.settings.devices = count;
        sim.settings.devices_set = true;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_set_memory(uint64_t bytes_of_each_device)
{
    if (bytes_of_each_device < SIM_LEAST_MEMORY || bytes_of_each_device > SIM_MOST_MEMORY)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_NOT_PERMITTED;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    if (sim.phase == SIM_NOT_INITIALIZED) {
        sim.settings.memory = bytes_of_each_device;
        sim.settings.memory_set = true;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_set_latency(strata_sim_work work, uint64_t nanoseconds, uint64_t bytes_per_microsecond)
{
    if ((unsigned)work >= STRATA_SIM_KINDS)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    sim.settings.latency[work] = nanoseconds;
    sim.settings.rate[work] = bytes_per_microsecond;
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_register_kernel(const char *name, strata_sim_kernel host_kernel)
{
    if (!name || !host_kernel)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = sim_kernel_register(name, host_kernel);
    pthread_mutex_unlock(&sim.lock);
    return result;
}

static uint64_t contexts_alive(void)
{
    uint64_t count = 0;
    for (sim_context *context = NULL; (context = sim_slab_next(&sim_order.contexts, context));)
        count += context->active ? 1 : 0;
    return count;
}

CUresult strata_sim_get_accounts(strata_sim_accounts *accounts)
{
    if (!accounts)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_ERROR_NOT_INITIALIZED;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    if (sim.phase == SIM_RUNNING) {
        *accounts = (strata_sim_accounts){
            .contexts = contexts_alive(),
            .streams = sim_order.streams.alive,
            .events = sim_order.events.alive,
            .modules = sim_kernels.modules.alive,
            .pools = sim_memory.pools.alive - (uint64_t)sim.settings.devices,
            .device_blocks = sim_memory.device_blocks,
            .pinned_blocks = sim_memory.pinned_blocks,
            .registered_blocks = sim_memory.registered_blocks,
            .memory_handles = sim_memory.physicals.alive,
            .memory_maps = sim_memory.mapped_blocks,
            .address_ranges = sim_memory.reserved_ranges,
            .unfinished_work = sim_order.unfinished,
            .finished_work = sim_order.finished,
        };
        sim_graphs_count(&accounts->graphs, &accounts->graph_execs);
        for (int i = 0; i < sim.settings.devices; i++)
            accounts->reserved_bytes += sim_order.devices[i].memory->used;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}
