/* Access to private members of shared budgets, for their tests and their fuzz target. */
#ifndef STRATA_TESTS_SUPPORT_BUDGET_INSIDE_H
#define STRATA_TESTS_SUPPORT_BUDGET_INSIDE_H

#include "resources/budget/shared_internal.h"
#include "resources/budget/shared_quota.h"
#include "resources/budget/shared_retired.h"

#endif
