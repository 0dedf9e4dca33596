/* The free quota, and the most that was in use at once.
 *
 * What is granted is no peak, since threads have quotas that no block uses. So an account does one of two things:
 *
 *     grants   in use + quotas <= peak + slack: no charge can make a new peak, but for the slack, and none is counted
 *     counts   threads have no quotas; `counted` has a charge from its success until its bytes are given back
 *              peak = max(peak, counted)
 *
 * Each value of `counted` was in use at one moment. A charge that would need more than the peak and the slack takes the
 * account's lock, which recalls the quotas: what is in use is known then. If it is a new peak, or few charges went by
 * since the last time (within quotas too), the account counts, and grants again when a thread has made 1024 charges. So
 * a loop takes no shared word, and recalls are rare. The slack is 64 KiB for each thread that charges, and 0 if there
 * is one alone. A thread takes by its share of what is left, and keeps half of its share of peak + slack: more than use
 * that rises and falls needs, and rarely what others miss.
 *
 * The account changes from one to the other under its lock. A thread in its slot is excluded from that; threads that
 * are in none take counts_lock.
 *
 * A charge of the fast path ends without a look at the account. If it is in flight when the account begins to count, it
 * is *late*: not in `counted` before its end has been seen.
 *
 * Shared accounts have other quotas: shared_quota.h. */
#ifndef STRATA_RESOURCES_BUDGET_FREE_QUOTA_H
#define STRATA_RESOURCES_BUDGET_FREE_QUOTA_H

#include "resources/budget/internal.h"

enum {
    BUDGET_QUOTA_SHARE = 8,
    BUDGET_COUNTED_STEPS = 1024, /* charges of all threads before there are quotas again */
};

static inline bool budget_counts(const strata_budget_account *account)
{
    return atomic_load_explicit(&account->counts, memory_order_relaxed);
}

static inline void budget_raise_peak(strata_budget_account *account, int64_t now)
{
    uint64_t peak = atomic_load_explicit(&account->peak, memory_order_relaxed);
    while (now > 0 && (uint64_t)now > peak)
        if (atomic_compare_exchange_weak_explicit(&account->peak, &peak, (uint64_t)now, memory_order_relaxed,
                                                  memory_order_relaxed))
            return;
}

/* The free quota that threads may take. */
static inline int64_t budget_free_to_take(const strata_budget_account *account)
{
    return atomic_load_explicit(&account->free_quota, memory_order_acquire) -
           atomic_load_explicit(&account->kept_free, memory_order_relaxed);
}

/* While it counts, before a charge: whether to ask for quotas by budget_choose(). Rarely while use grows. */
static inline bool budget_wants_quotas(const strata_budget_account *account, uint64_t steps, uint64_t bytes)
{
    const bool grows =
        (uint64_t)budget_granted(account) + bytes > atomic_load_explicit(&account->peak, memory_order_relaxed);
    return steps >= (grows ? 8 * BUDGET_COUNTED_STEPS : BUDGET_COUNTED_STEPS);
}

/* Takes at least `least` and at most `most` bytes, or 0; and gives bytes back. Of a shared account: in the lease. */
uint64_t budget_take_free_quota(strata_budget_account *account, uint64_t least, uint64_t most);
void budget_give_free_quota(strata_budget_account *account, uint64_t bytes);

/* ---- by a thread in its slot, while the account counts ---- */

/* Counts a charge in flight that has succeeded; drops one that has failed, and gives its bytes back. */
void budget_count_charge(strata_budget_account *account, budget_slot *slot, uint64_t bytes);
void budget_drop_charge(strata_budget_account *account, budget_slot *slot, uint64_t bytes);

void budget_count_release(strata_budget_account *account, uint64_t bytes);

/* ---- by any thread, whether the account counts or not; slot NULL: a charge without one ---- */

bool budget_take_unslotted(strata_budget_account *account, uint64_t bytes);
void budget_count_charge_locked(strata_budget_account *account, budget_slot *slot, uint64_t bytes);
void budget_drop_charge_locked(strata_budget_account *account, budget_slot *slot, uint64_t bytes);
void budget_count_release_locked(strata_budget_account *account, uint64_t bytes);

/* Counts what is late and has ended. */
void budget_count_late(strata_budget_account *account);

/* Counts what the thread itself has late, before its next charge, without another in flight. */
void budget_count_own_late(strata_budget_account *account, budget_slot *slot);

/* ---- under the account's lock, the quotas recalled ---- */

/* Chooses to count or to grant, before a charge of `bytes` by the slot's thread (NULL: without one). */
void budget_choose(strata_budget_account *account, const budget_slot *slot, uint64_t bytes);

void budget_begin_to_count(strata_budget_account *account);

/* Counts a charge that reused memory. Not `fits`: it is beyond the limit, and no peak. */
void budget_count_reused(strata_budget_account *account, uint64_t bytes, bool fits);

#endif
