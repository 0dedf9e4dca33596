/* What an account has in use, and its peak. */
#include "resources/budget/internal.h"

/* Quota that stayed unused since the last transfer. */
static uint64_t never_used(const strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t all = 0;
    for (const budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        all += atomic_load_explicit(&slot->lowest, memory_order_relaxed);
    return all;
}

/* The peak is what was granted since the last change, less quota that stayed unused. Charges of other threads meanwhile
 * count next time; bytes that the caller gives back count as freed already. Shared accounts come here on slow paths
 * only: adding up all processes takes long. */
void budget_update_peak(strata_budget_account *account)
{
    const uint64_t unused = never_used(account);
    const int64_t all = budget_granted(account);
    const uint64_t limit = budget_limit_of(account); /* during reuse, bytes may be counted twice */
    uint64_t now = all > 0 && (uint64_t)all > unused ? (uint64_t)all - unused : 0;
    now = limit && now > limit ? limit : now;
    uint64_t peak = atomic_load_explicit(&account->peak, memory_order_relaxed);
    while (now > peak)
        if (atomic_compare_exchange_weak_explicit(&account->peak, &peak, now, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
}

uint64_t budget_in_use(strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t quotas = 0;
    for (const budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        quotas += atomic_load_explicit(&slot->quota, memory_order_relaxed);
    int64_t all = budget_granted(account);
    return all > 0 && (uint64_t)all > quotas ? (uint64_t)all - quotas : 0;
}

void budget_usage(strata_budget_account *account, strata_budget_usage *usage)
{
    budget_update_peak(account);
    uint64_t limit = budget_limit_of(account);
    bool closed = account->reservation && atomic_load_explicit(&account->closed, memory_order_acquire);
    uint64_t in_use =
        closed ? atomic_load_explicit(&account->unreturned, memory_order_relaxed) : budget_in_use(account);
    *usage = (strata_budget_usage){
        .limit = (size_t)limit,
        .in_use = (size_t)in_use,
        .remaining = !limit           ? SIZE_MAX
                     : limit > in_use ? (size_t)(limit - in_use)
                                      : 0,
        .peak = (size_t)atomic_load_explicit(&account->peak, memory_order_relaxed),
        .refused = atomic_load_explicit(&account->refused, memory_order_relaxed),
        .waited = atomic_load_explicit(&account->waited, memory_order_relaxed),
        .reused = atomic_load_explicit(&account->reused, memory_order_relaxed),
        .recalls = atomic_load_explicit(&account->recalls, memory_order_relaxed),
    };
}
