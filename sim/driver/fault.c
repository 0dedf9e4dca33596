/* The fault plan: calls that fail, operations that break their device, waits and records that are forgotten. Each fault
 * counts what it is about and strikes once. Without a plan all of this costs one comparison. */
#include "sim.h"
#include <string.h>

enum { MOST_FAULTS = 32, MOST_NAME = 64 };

typedef struct planned_fault {
    strata_sim_fault asked;
    char entry[MOST_NAME]; /* empty: any */
    uint64_t component;    /* of the stream; 0: any */
    uint64_t reached;
} planned_fault;

/* Guarded by sim.lock. The id of a fault is its place here, from 1. */
static planned_fault faults[MOST_FAULTS];
static uint32_t fault_count;

static bool is_suffix(const char *text, size_t length)
{
    if (length == 5 && (memcmp(text, "_ptds", 5) == 0 || memcmp(text, "_ptsz", 5) == 0))
        return true;
    if (length < 3 || memcmp(text, "_v", 2) != 0)
        return false;
    for (size_t i = 2; i < length; i++)
        if (text[i] < '0' || text[i] > '9')
            return false;
    return true;
}

size_t sim_entry_length(const char *name)
{
    size_t length = strlen(name);
    for (size_t i = length; i-- > 0;)
        if (name[i] == '_' && is_suffix(name + i, length - i))
            length = i;
    return length;
}

/* Counts, and says whether this is the one. */
static bool strikes(planned_fault *fault)
{
    return ++fault->reached == fault->asked.nth;
}

static bool about_call(const planned_fault *fault, const char *entry)
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
        planned_fault *fault = &faults[i];
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
        planned_fault *fault = &faults[i];
        bool about = fault->asked.kind == STRATA_SIM_DROP_EDGE && (fault->asked.edges & (uint32_t)edge) != 0;
        drops = (about && strikes(fault)) || drops;
    }
    return drops;
}

/* Those that never come to sim_fault_call. */
static bool is_counted(const char *entry)
{
    static const char *const others[] = {"cuDriverGetVersion", "cuGetErrorName", "cuGetErrorString",
                                         "cuGetProcAddress"};
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (strcmp(entry, others[i]) == 0)
            return false;
    return true;
}

static CUresult plan_call(planned_fault *fault)
{
    const char *entry = fault->asked.entry;
    fault->asked.entry = NULL;
    if (!entry)
        return CUDA_SUCCESS;
    size_t length = sim_entry_length(entry);
    if (length >= MOST_NAME)
        return CUDA_ERROR_INVALID_VALUE;
    memcpy(fault->entry, entry, length);
    bool counted = sim_entry_known(fault->entry) && is_counted(fault->entry);
    return counted ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult plan_operation(planned_fault *fault)
{
    sim_queue *queue;
    if (!fault->asked.stream)
        return CUDA_SUCCESS;
    CUresult result = sim.phase == SIM_RUNNING ? sim_queue_of(fault->asked.stream, &queue) : CUDA_ERROR_NOT_INITIALIZED;
    if (result == CUDA_SUCCESS)
        fault->component = queue->component->uid;
    return result;
}

static CUresult plan_edges(const planned_fault *fault)
{
    uint32_t unknown = fault->asked.edges & ~(uint32_t)STRATA_SIM_EDGE_ANY;
    return fault->asked.edges != 0 && unknown == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}

static CUresult plan(planned_fault *fault)
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
    planned_fault made = {.asked = *fault};
    pthread_mutex_lock(&sim.lock);
    CUresult result = fault_count < MOST_FAULTS ? plan(&made) : CUDA_ERROR_OUT_OF_MEMORY;
    if (result == CUDA_SUCCESS) {
        faults[fault_count++] = made;
        if (id)
            *id = fault_count;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_fault_reached(uint32_t id, uint64_t *reached)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    pthread_mutex_lock(&sim.lock);
    if (reached && id >= 1 && id <= fault_count) {
        *reached = faults[id - 1].reached;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_clear_faults(void)
{
    pthread_mutex_lock(&sim.lock);
    fault_count = 0;
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}
