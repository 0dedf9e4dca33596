/* Access to private members of accounts, for their tests. */
#ifndef STRATA_TESTS_SUPPORT_BUDGET_ACCOUNT_H
#define STRATA_TESTS_SUPPORT_BUDGET_ACCOUNT_H

#include "resources/budget/internal.h"
#include "resources/budget/shared_quota.h"

/* Whether a thread of the process has a quota in the file of a shared account. */
static inline bool has_open_quotas(const strata_budget_account *account)
{
    int64_t bytes;
    return !shared_quota_bound(account->shared, &bytes);
}

#endif
