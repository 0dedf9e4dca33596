/* Planned faults: failing calls and operations, dropped waits and records. A fault counts its occasions and strikes
 * once. */
#include "order/order.h"
#include <string.h>

enum { MOST_FAULTS = 32 };

/* Guarded by sim.lock. A fault's id is its index plus 1. */
static sim_planned_fault faults[MOST_FAULTS];
static uint32_t fault_count;

static bool strikes(sim_planned_fault *fault)
{
    return ++fault->reached == fault->asked.nth;
}

static bool about_call(const sim_planned_fault *fault, const char *entry)
{
    if (fault->asked.kind != STRATA_SIM_FAIL_CALL)
        return false;
    size_t length = sim_entry_length(entry);
    return fault->entry[0] == '\0' || (strlen(fault->entry) == length && memcmp(fault->entry, entry, length) == 0);
}

CUresult sim_fault_call(const char *entry)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < fault_count; i++)
        if (about_call(&faults[i], entry) && strikes(&faults[i]))
            result = faults[i].asked.error;
    return result;
}

CUresult sim_fault_operation(const sim_queue *queue)
{
    CUresult result = CUDA_SUCCESS;
    for (uint32_t i = 0; i < fault_count; i++) {
        sim_planned_fault *fault = &faults[i];
        bool about = fault->asked.kind == STRATA_SIM_FAIL_OPERATION &&
                     (fault->component == 0 || fault->component == queue->component->uid);
        if (about && strikes(fault))
            result = fault->asked.error;
    }
    return result;
}

bool sim_fault_drops(strata_sim_edge edge)
{
    bool drops = false;
    for (uint32_t i = 0; i < fault_count; i++) {
        sim_planned_fault *fault = &faults[i];
        bool about = fault->asked.kind == STRATA_SIM_DROP_EDGE && (fault->asked.edges & (uint32_t)edge) != 0;
        drops = (about && strikes(fault)) || drops;
    }
    return drops;
}

CUresult sim_fault_room(void)
{
    return fault_count < MOST_FAULTS ? CUDA_SUCCESS : CUDA_ERROR_OUT_OF_MEMORY;
}

uint32_t sim_fault_add(const sim_planned_fault *fault)
{
    faults[fault_count++] = *fault;
    return fault_count;
}

const sim_planned_fault *sim_fault_at(uint32_t id)
{
    return id >= 1 && id <= fault_count ? &faults[id - 1] : NULL;
}

void sim_faults_clear(void)
{
    fault_count = 0;
}
