/* Entry points: the checker and its reports. */
#include "driver/enter.h"

CUresult strata_sim_host_signals(void)
{
    CUresult result = CUDA_ERROR_NOT_PERMITTED;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    const sim_op *op = sim_host_function_op();
    if (op) {
        sim_host_join(&op->at);
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

/* Whether memory has the value. Lets everything run after some unsuccessful polls, as a query does. */
static bool found(const sim_value_request *value)
{
    static unsigned polls; /* guarded by sim.lock */
    if (!sim_value_found(value) && ++polls > SIM_POLLS) {
        sim_need_everything();
        sim_run_chosen();
    }
    if (!sim_value_found(value))
        return false;
    polls = 0;
    return true;
}

CUresult strata_sim_host_poll(const void *address, size_t bytes, uint64_t value, unsigned flags)
{
    sim_value_request what = {(uint64_t)(uintptr_t)address, value, (unsigned)bytes, flags};
    bool wide = bytes == sizeof(uint64_t);
    CUresult result = sim_enter();
    if (result != CUDA_SUCCESS)
        return result;
    if ((!wide && bytes != sizeof(uint32_t)) || flags > CU_STREAM_WAIT_VALUE_NOR || !sim_value_readable(&what))
        return sim_leave(CUDA_ERROR_INVALID_VALUE);
    if (!found(&what))
        return sim_leave(CUDA_ERROR_NOT_READY);
    if (sim.checking)
        sim_values_polled(&what);
    return sim_leave(CUDA_SUCCESS);
}

CUresult strata_sim_set_check(uint32_t modes)
{
    uint32_t known = STRATA_SIM_CHECK_ON | STRATA_SIM_CHECK_UNWRITTEN | STRATA_SIM_CHECK_PAGES |
                     STRATA_SIM_CHECK_HOST_FUNCTIONS | STRATA_SIM_CHECK_NO_STACKS | STRATA_SIM_CHECK_FREES |
                     STRATA_SIM_CHECK_LEAKS;
    if ((modes & ~known) != 0)
        return CUDA_ERROR_INVALID_VALUE;
    CUresult result = CUDA_SUCCESS;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    sim.settings.check = modes;
    sim.settings.check_set = true;
    if (sim.phase == SIM_RUNNING) {
        if (modes == STRATA_SIM_CHECK_OFF)
            sim_check_end();
        else
            result = sim_check_turn_on(modes);
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_get_check_accounts(strata_sim_check_accounts *accounts)
{
    if (!accounts)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    *accounts = (strata_sim_check_accounts){
        .operations = sim_check.records,
        .ranges = sim_check.cells,
        .allocations = sim_check.shadows,
        .seen = sim_check.order - sim_check.began,
        .edges = sim_order.edges,
        .idle_edges = sim_order.idle_edges,
    };
    accounts->bytes = sim_check.records * sizeof(sim_access_record) + sim_check.shadows * sizeof(sim_shadow) +
                      sim_check.other_bytes + sim_regions_bytes() + sim_order.clock_bytes;
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_host_read(const void *address, size_t bytes)
{
    return sim_host_access_declare(address, bytes, SIM_READS);
}

CUresult strata_sim_host_write(const void *address, size_t bytes)
{
    return sim_host_access_declare(address, bytes, SIM_WRITES);
}

CUresult strata_sim_get_report_count(uint64_t *count)
{
    if (!count)
        return CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    *count = sim_reports_count();
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_get_report(uint64_t index, strata_sim_report *report)
{
    CUresult result = CUDA_ERROR_INVALID_VALUE;
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    const strata_sim_report *found = sim_report_at(index);
    if (report && found) {
        *report = *found;
        result = CUDA_SUCCESS;
    }
    pthread_mutex_unlock(&sim.lock);
    return result;
}

CUresult strata_sim_clear_reports(void)
{
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    sim_report_clear();
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}

CUresult strata_sim_set_report_callback(strata_sim_report_callback callback, void *data)
{
    if (!sim_lock())
        return CUDA_ERROR_NOT_PERMITTED;
    sim_reports_call(callback, data);
    pthread_mutex_unlock(&sim.lock);
    return CUDA_SUCCESS;
}
