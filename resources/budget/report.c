/* The values of a budget, and its accounts in a report. */
#include "resources/budget/internal.h"

#include "core/base/error.h"

const strata_value budget_values[BUDGET_VALUES] = {
    [VALUE_LIMIT] = {"limit", STRATA_VALUE_BYTES, true, "limit; 0: none"},
    [VALUE_IN_USE] = {"in_use", STRATA_VALUE_BYTES, false, "live, retired and reserved bytes"},
    [VALUE_REMAINING] = {"remaining", STRATA_VALUE_BYTES, false,
                         "bytes that would still be granted; none without a limit"},
    [VALUE_PEAK] = {"peak", STRATA_VALUE_BYTES, false, "the most that was in use at once"},
    [VALUE_SOFT] = {"soft", STRATA_VALUE_BYTES, false, "the soft mark; 0: none"},
    [VALUE_REFUSED] = {"refused", STRATA_VALUE_COUNT, false, "requests that did not fit"},
    [VALUE_WAITED] = {"waited", STRATA_VALUE_COUNT, false,
                      "requests that waited for frees to complete, or for others to free"},
    [VALUE_REUSED] = {"reused", STRATA_VALUE_COUNT, false, "requests served by memory that was retired at the time"},
    [VALUE_RECALLS] = {"recalls", STRATA_VALUE_COUNT, false, "recalls of all thread quotas"},
};

strata_status budget_get_value(strata_resource *resource, size_t which, uint64_t *value)
{
    budget *self = (budget *)resource;
    strata_budget_usage usage;
    budget_usage(&self->base, &usage);
    const uint64_t all[] = {
        [VALUE_LIMIT] = usage.limit,   [VALUE_IN_USE] = usage.in_use,  [VALUE_REMAINING] = usage.remaining,
        [VALUE_PEAK] = usage.peak,     [VALUE_SOFT] = self->base.soft, [VALUE_REFUSED] = usage.refused,
        [VALUE_WAITED] = usage.waited, [VALUE_REUSED] = usage.reused,  [VALUE_RECALLS] = usage.recalls,
    };
    *value = all[which];
    if (which == VALUE_REMAINING && !usage.limit)
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "budget.remaining: this budget has no limit");
    return STRATA_SUCCESS;
}

strata_status budget_set_value(strata_resource *resource, size_t which, uint64_t value)
{
    (void)which; /* only the limit is writable */
    return strata_budget_set_limit(&((budget *)resource)->base, (size_t)value);
}

static void describe_account(strata_emitter *to, strata_budget_account *account)
{
    strata_budget_usage usage;
    budget_usage(account, &usage);
    strata_emit_object_begin(to, NULL);
    strata_emit_text(to, "name", account->name);
    strata_emit_text(to, "above", account->parent_name);
    strata_emit_bool(to, "promise", account->reservation);
    strata_emit_bool(to, "closed", atomic_load_explicit(&account->closed, memory_order_relaxed));
    if (usage.limit)
        strata_emit_bytes(to, "limit", usage.limit);
    strata_emit_bytes(to, "in_use", usage.in_use);
    strata_emit_bytes(to, "peak", usage.peak);
    strata_emit_count(to, "refused", usage.refused);
    strata_emit_object_end(to);
}

/* Holds no lock: the writer may be slow. */
void budget_describe(strata_resource *resource, strata_emitter *to)
{
    strata_emit_list_begin(to, "accounts");
    for (budget_page page = {0}; budget_list_next((budget *)resource, NULL, &page);)
        for (size_t i = 0; i < page.count; i++)
            describe_account(to, page.accounts[i]);
    strata_emit_list_end(to);
}
