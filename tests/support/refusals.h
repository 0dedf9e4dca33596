/* Makes the simulated driver fail calls by name, one after another, and counts what is alive in it, for tests of
 * failures that must leave nothing behind. support/faults.h replaces an entry of the driver's table instead, on any
 * driver, for a few calls. */
#ifndef STRATA_TEST_REFUSALS_H
#define STRATA_TEST_REFUSALS_H

#include "support/faults.h"

/* From now on calls number `first` to first + count - 1 of this entry point return `result` and do nothing. Several may
 * be planned, 32 failures in all. */
static inline void test_refuse(const char *call, uint64_t first, unsigned count, CUresult result)
{
    for (unsigned i = 0; i < count; i++) {
        const strata_sim_fault fault = {
            .size = sizeof fault, .kind = STRATA_SIM_FAIL_CALL, .nth = first + i, .error = result, .entry = call};
        check_cu(test_sim_control()->add_fault(&fault, NULL));
    }
}

static inline void test_refuse_no_more(void)
{
    check_cu(test_sim_control()->clear_faults());
}

typedef struct test_alive {
    uint64_t streams, modules, pinned, handles, maps, ranges;
} test_alive;

static inline test_alive test_count_alive(void)
{
    strata_sim_accounts accounts;
    check_cu(test_sim_control()->get_accounts(&accounts));
    return (test_alive){accounts.streams,        accounts.modules,     accounts.pinned_blocks,
                        accounts.memory_handles, accounts.memory_maps, accounts.address_ranges};
}

/* Checks that as much is alive as before. */
static inline void check_alive(test_alive before)
{
    test_alive now = test_count_alive();
    assert_int_equal(now.streams, before.streams);
    assert_int_equal(now.modules, before.modules);
    assert_int_equal(now.pinned, before.pinned);
    assert_int_equal(now.handles, before.handles);
    assert_int_equal(now.maps, before.maps);
    assert_int_equal(now.ranges, before.ranges);
}

#endif
