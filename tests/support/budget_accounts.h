/* A budget's accounts, for tests. */
#ifndef STRATA_TESTS_SUPPORT_BUDGET_ACCOUNTS_H
#define STRATA_TESTS_SUPPORT_BUDGET_ACCOUNTS_H

#include "resources/budget/internal.h"
#include "resources/budget/shared_quota.h"

#include "support/driver.h"

/* Checks that no charge is in flight, as between calls: the next refusal would wait for it. */
static inline void check_no_flight(const strata_budget_account *account)
{
    uint32_t position = 0;
    assert_int_equal(account->in_flight, 0);
    for (const budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        assert_int_equal(slot->in_flight, 0);
}

/* Whether a thread of the process has a quota in the file of a shared account. */
static inline bool has_open_quotas(const strata_budget_account *account)
{
    int64_t bytes;
    return !shared_quota_bound(account->shared, &bytes);
}

#endif
