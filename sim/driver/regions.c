/* Entry points: what a pool of the program hands out. */
#include "driver/enter.h"

CUresult strata_driver_region_begin(CUdeviceptr address, size_t bytes, uint64_t id)
{
    if (address == 0 || bytes == 0 || bytes > UINT64_MAX - address)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    if (sim.checking && sim.phase == SIM_RUNNING) {
        sim_region facts = {.bytes = bytes, .id = id, .born = sim_check.order, .stack = sim_check_made().stack};
        if (!sim_region_begin(address, &facts))
            sim_check_give_up();
    }
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_driver_region_end(CUdeviceptr address, uint64_t id)
{
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    if (sim.checking && sim.phase == SIM_RUNNING)
        sim_region_end(address, id);
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}
