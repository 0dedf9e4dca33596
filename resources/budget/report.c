/* What a budget tells: its values, and its accounts in a report. */
#include "resources/budget/internal.h"

#include "core/base/error.h"

#include <string.h>

const strata_value budget_values[BUDGET_VALUES] = {
    [VALUE_LIMIT] = {"limit", STRATA_VALUE_BYTES, true, "the most that may be in use; 0: no limit"},
    [VALUE_IN_USE] = {"in_use", STRATA_VALUE_BYTES, false, "live, retired and promised"},
    [VALUE_REMAINING] = {"remaining", STRATA_VALUE_BYTES, false, "what would still be granted; none without a limit"},
    [VALUE_PEAK] = {"peak", STRATA_VALUE_BYTES, false, "never more than this was in use"},
    [VALUE_SOFT] = {"soft", STRATA_VALUE_BYTES, false, "the soft mark; 0: none"},
    [VALUE_REFUSED] = {"refused", STRATA_VALUE_COUNT, false, "requests that did not fit"},
    [VALUE_WAITED] = {"waited", STRATA_VALUE_COUNT, false, "requests that waited for the device or for others"},
    [VALUE_REUSED] = {"reused", STRATA_VALUE_COUNT, false, "requests served by memory that was retired at the time"},
    [VALUE_RECALLS] = {"recalls", STRATA_VALUE_COUNT, false, "how often the credits of all threads were called in"},
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
        return strata_fail(STRATA_ERROR_UNSUPPORTED, "nothing limits this budget, so that nothing remains of it");
    return STRATA_SUCCESS;
}

strata_status budget_set_value(strata_resource *resource, size_t which, uint64_t value)
{
    (void)which; /* the limit alone is writable */
    return strata_budget_set_limit(&((budget *)resource)->base, (size_t)value);
}

enum { ACCOUNTS_AT_ONCE = 16 }; /* that are looked at under the lock */

typedef struct seen_account {
    char name[BUDGET_NAME], above[BUDGET_NAME];
    bool promise, closed;
    strata_budget_usage usage;
} seen_account;

static void look_at(strata_budget_account *account, seen_account *seen)
{
    memcpy(seen->name, account->name, BUDGET_NAME);
    memcpy(seen->above, account->parent->name, BUDGET_NAME);
    seen->promise = account->promise;
    seen->closed = atomic_load_explicit(&account->closed, memory_order_relaxed);
    budget_usage(account, &seen->usage);
}

/* The accounts behind *last, or from the first; the lock is held only so long, as what is written of them may go to a
 * file. *last is the last one of them, pinned, so that it keeps its place in the list, or NULL where there are no more.
 */
static size_t look_at_accounts(budget *self, strata_budget_account **last, seen_account *seen)
{
    size_t count = 0;
    strata_lock_take(&self->lock);
    strata_budget_account *before = *last, *account = before ? before->next : self->accounts;
    for (*last = NULL; account && count < ACCOUNTS_AT_ONCE; account = account->next) {
        look_at(account, &seen[count++]);
        *last = count == ACCOUNTS_AT_ONCE ? account : NULL;
    }
    if (*last)
        atomic_fetch_add_explicit(&(*last)->pins, 1, memory_order_seq_cst);
    if (before)
        atomic_fetch_sub_explicit(&before->pins, 1, memory_order_release);
    strata_lock_release(&self->lock);
    return count;
}

static void describe_account(strata_emitter *to, const seen_account *account)
{
    strata_emit_object_begin(to, NULL);
    strata_emit_text(to, "name", account->name);
    strata_emit_text(to, "above", account->above);
    strata_emit_bool(to, "promise", account->promise);
    strata_emit_bool(to, "closed", account->closed);
    if (account->usage.limit)
        strata_emit_bytes(to, "limit", account->usage.limit);
    strata_emit_bytes(to, "in_use", account->usage.in_use);
    strata_emit_bytes(to, "peak", account->usage.peak);
    strata_emit_count(to, "refused", account->usage.refused);
    strata_emit_object_end(to);
}

void budget_describe(strata_resource *resource, strata_emitter *to)
{
    budget *self = (budget *)resource;
    seen_account seen[ACCOUNTS_AT_ONCE];
    strata_budget_account *last = NULL;
    strata_emit_list_begin(to, "accounts");
    do {
        const size_t count = look_at_accounts(self, &last, seen);
        for (size_t i = 0; i < count; i++)
            describe_account(to, &seen[i]);
    } while (last);
    strata_emit_list_end(to);
}
