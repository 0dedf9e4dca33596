/* Entry points: planned faults. */
#include "driver/enter.h"
#include <string.h>

/* Whether calls of an entry point count for planned faults: the others never call sim_fault_call. */
static bool is_counted(const char *entry)
{
    static const char *const others[] = {"cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
                                         "cuGetProcAddress"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(entry, others[i]) == 0)
            return false;
    return true;
}

static CUresult plan_call(sim_planned_fault *fault)
{
    const char *entry = fault->asked.entry;
    fault->asked.entry = NULL;
    if (!entry)
        return CUDA_SUCCESS;
    size_t length = sim_entry_length(entry);
    if (length >= SIM_FAULT_NAME)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(fault->entry, entry, length);
    bool counted = sim_entry_known(fault->entry) && is_counted(fault->entry);
    return counted ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult plan_operation(sim_planned_fault *fault)
{
    sim_queue *queue;
    if (!fault->asked.stream)
        return CUDA_SUCCESS;
    CUresult result = sim.phase == SIM_RUNNING ? sim_queue_of(fault->asked.stream, &queue) : CUDA_ERROR_NOT_INITIALIZED;
    if (result == CUDA_SUCCESS)
        fault->component = queue->component->uid;
    return result;
}

static CUresult plan_edges(const sim_planned_fault *fault)
{
    uint32_t unknown = fault->asked.edges & ~(uint32_t)STRATA_SIM_EDGE_ANY;
    return fault->asked.edges != 0 && unknown == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult plan(sim_planned_fault *fault)
{
    if (fault->asked.nth == 0)
        return CUDA_ERROR_INVALID_VALUE;
    bool fails = fault->asked.error != CUDA_SUCCESS;
    switch (fault->asked.kind) {
    case STRATA_SIM_FAIL_CALL:
        return fails ? plan_call(fault) : CUDA_ERROR_INVALID_VALUE;
    case STRATA_SIM_FAIL_OPERATION:
        return fails ? plan_operation(fault) : CUDA_ERROR_INVALID_VALUE;
    case STRATA_SIM_DROP_EDGE:
        return plan_edges(fault);
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult strata_sim_add_fault(const strata_sim_fault *fault, uint32_t *id)
{
    if (!fault || fault->size != sizeof *fault)
        return CUDA_ERROR_INVALID_VALUE;
    sim_planned_fault made = {.asked = *fault};
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    CUresult result = sim_fault_room();
    if (result == CUDA_SUCCESS)
        result = plan(&made);
    if (result == CUDA_SUCCESS) {
        uint32_t given = sim_fault_add(&made);
        if (id)
            *id = given;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_fault_reached(uint32_t id, uint64_t *reached)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    const sim_planned_fault *fault = sim_fault_at(id);
    if (reached && fault) {
        *reached = fault->reached;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_clear_faults(void)
{
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    sim_faults_clear();
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}
