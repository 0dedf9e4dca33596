/* Calls the checker. */
#include "fuzz/judge.h"

#include "fuzz/begin.h"

#include <stdio.h>
#include <stdlib.h>

static PFN_strata_sim_host_read host_read;
static PFN_strata_sim_host_write host_write;

static void condemn(const strata_sim_report *report, void *data)
{
    (void)data;
    fprintf(stderr, "%s\n", report->text);
    fflush(NULL);
    abort();
}

void judge_begin(void)
{
    PFN_strata_sim_set_check set_check;
    PFN_strata_sim_set_report_callback set_callback;
    fuzz_find("strata_sim_set_check", &set_check);
    fuzz_find("strata_sim_set_report_callback", &set_callback);
    fuzz_find("strata_sim_host_read", &host_read);
    fuzz_find("strata_sim_host_write", &host_write);
    uint32_t modes = STRATA_SIM_CHECK_ON;
    check_cu(set_callback(condemn, NULL));
    check_cu(set_check(getenv("FUZZ_TELL") ? modes : modes | STRATA_SIM_CHECK_NO_STACKS));
}

void judge_read(const void *address, size_t bytes)
{
    check_cu(host_read(address, bytes));
}

void judge_write(const void *address, size_t bytes)
{
    check_cu(host_write(address, bytes));
}
