/* The free quota, and what is in use at once. "With the lock": counts_lock. */
#include "resources/budget/free_quota.h"

#include "resources/budget/shared.h"

enum {
    SLACK = 64 << 10, /* bytes for each thread */
    QUOTA_MAX = 16 << 20,
};

uint64_t budget_take_free_quota(strata_budget_account *account, uint64_t least, uint64_t most)
{
    uint64_t taken;
    if (account->shared)
        return shared_take(account->shared, least) ? least : 0;
    const int64_t kept = atomic_load_explicit(&account->kept_free, memory_order_relaxed);
    int64_t now = atomic_load_explicit(&account->free_quota, memory_order_acquire);
    do {
        const int64_t left = now - kept;
        if (left <= 0 || (uint64_t)left < least)
            return 0;
        taken = (uint64_t)left < most ? (uint64_t)left : most;
    } while (!atomic_compare_exchange_weak_explicit(&account->free_quota, &now, now - (int64_t)taken,
                                                    memory_order_acq_rel, memory_order_acquire));
    return taken;
}

void budget_give_free_quota(strata_budget_account *account, uint64_t bytes)
{
    if (account->shared)
        shared_give(account->shared, bytes);
    else
        atomic_fetch_add_explicit(&account->free_quota, (int64_t)bytes, memory_order_acq_rel);
}

/* ---- counting ---- */

static void count(strata_budget_account *account, uint64_t bytes)
{
    const int64_t before = atomic_fetch_add_explicit(&account->counted, (int64_t)bytes, memory_order_acq_rel);
    budget_raise_peak(account, before + (int64_t)bytes);
}

/* Sets what is late of a slot. With the lock. */
static void set_late(strata_budget_account *account, budget_slot *slot, uint64_t late, uint32_t flights)
{
    const uint64_t all = atomic_load_explicit(&account->late, memory_order_relaxed) -
                         atomic_load_explicit(&slot->late, memory_order_relaxed) + late;
    atomic_store_explicit(&account->late, all, memory_order_relaxed);
    atomic_store_explicit(&slot->late, late, memory_order_relaxed);
    slot->late_flights = flights;
}

/* Counts what a slot has late, if no charge is in flight. The charges have succeeded: a failed one is dropped first.
 * With the lock. */
static void count_late_of(strata_budget_account *account, budget_slot *slot)
{
    const uint64_t late = atomic_load_explicit(&slot->late, memory_order_relaxed);
    if (!late || atomic_load_explicit(&slot->in_flight, memory_order_acquire))
        return;
    set_late(account, slot, 0, 0);
    count(account, late);
}

/* Counts what all slots have late and has ended. Looks at them only if a new peak is possible. With the lock. */
static void count_all_late(strata_budget_account *account)
{
    const uint64_t late = atomic_load_explicit(&account->late, memory_order_relaxed);
    const int64_t most = atomic_load_explicit(&account->counted, memory_order_relaxed) + (int64_t)late;
    uint32_t position = 0;
    if (!late || most <= (int64_t)atomic_load_explicit(&account->peak, memory_order_relaxed))
        return;
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        count_late_of(account, slot);
}

/* Takes an ending charge out of what is late. A thread's charges end in reverse order. With the lock. */
static void end_late(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    const uint64_t late = atomic_load_explicit(&slot->late, memory_order_relaxed);
    const uint32_t flights = atomic_load_explicit(&slot->in_flight, memory_order_relaxed);
    if (late && flights <= slot->late_flights)
        set_late(account, slot, late > bytes ? late - bytes : 0, flights - 1);
}

static void look_for_late(strata_budget_account *account)
{
    if (__builtin_expect(atomic_load_explicit(&account->late, memory_order_relaxed) != 0, 0))
        budget_count_late(account);
}

static void end_late_if_any(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    if (__builtin_expect(!atomic_load_explicit(&slot->late, memory_order_relaxed), 1))
        return;
    strata_spin_take(&account->counts_lock);
    end_late(account, slot, bytes);
    strata_spin_release(&account->counts_lock);
}

void budget_count_charge(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    end_late_if_any(account, slot, bytes);
    look_for_late(account);
    count(account, bytes);
}

void budget_drop_charge(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    end_late_if_any(account, slot, bytes);
    budget_give_free_quota(account, bytes);
}

/* Lowers the count before others can take the bytes. */
void budget_count_release(strata_budget_account *account, uint64_t bytes)
{
    look_for_late(account);
    atomic_fetch_sub_explicit(&account->counted, (int64_t)bytes, memory_order_acq_rel);
    budget_give_free_quota(account, bytes);
}

/* ---- with the lock ---- */

bool budget_take_unslotted(strata_budget_account *account, uint64_t bytes)
{
    strata_spin_take(&account->counts_lock);
    const bool taken = !bytes || budget_take_free_quota(account, bytes, bytes);
    if (taken)
        account->undecided += bytes;
    strata_spin_release(&account->counts_lock);
    return taken;
}

/* Ends a charge's time as undecided or late. With the lock. */
static void decide(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    if (!slot)
        account->undecided -= bytes;
    else if (budget_counts(account))
        end_late(account, slot, bytes);
}

void budget_count_charge_locked(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    strata_spin_take(&account->counts_lock);
    decide(account, slot, bytes);
    if (budget_counts(account)) {
        count_all_late(account);
        count(account, bytes);
    }
    strata_spin_release(&account->counts_lock);
}

void budget_drop_charge_locked(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    strata_spin_take(&account->counts_lock);
    decide(account, slot, bytes);
    budget_give_free_quota(account, bytes);
    strata_spin_release(&account->counts_lock);
}

void budget_count_release_locked(strata_budget_account *account, uint64_t bytes)
{
    strata_spin_take(&account->counts_lock);
    if (budget_counts(account)) {
        count_all_late(account);
        atomic_fetch_sub_explicit(&account->counted, (int64_t)bytes, memory_order_acq_rel);
    }
    budget_give_free_quota(account, bytes);
    strata_spin_release(&account->counts_lock);
}

void budget_count_late(strata_budget_account *account)
{
    strata_spin_take(&account->counts_lock);
    if (budget_counts(account))
        count_all_late(account);
    strata_spin_release(&account->counts_lock);
}

void budget_count_own_late(strata_budget_account *account, budget_slot *slot)
{
    strata_spin_take(&account->counts_lock);
    if (budget_counts(account))
        count_late_of(account, slot);
    strata_spin_release(&account->counts_lock);
}

/* ---- counting or granting; under the account's lock ---- */

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Returns and clears the charges since the last choice. *threads: how many threads made them. */
static uint64_t take_steps(strata_budget_account *account, uint64_t *threads)
{
    uint32_t position = 0;
    uint64_t all = 0;
    *threads = 0;
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));) {
        const uint64_t steps = (uint64_t)atomic_load_explicit(&slot->steps, memory_order_relaxed);
        all += steps;
        *threads += steps != 0;
        atomic_store_explicit(&slot->steps, 0, memory_order_relaxed);
    }
    return all;
}

/* Begins to count. Charges in flight are late, so `counted` is what was granted without them. With the lock. */
static void begin_to_count(strata_budget_account *account)
{
    uint32_t position = 0;
    atomic_store_explicit(&account->counted, budget_granted(account) - (int64_t)account->undecided,
                          memory_order_relaxed);
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));) {
        const uint32_t flights = atomic_load_explicit(&slot->in_flight, memory_order_acquire);
        const uint64_t bytes = flights ? atomic_load_explicit(&slot->flight_bytes, memory_order_relaxed) : 0;
        set_late(account, slot, bytes, flights);
        atomic_store_explicit(&slot->steps, 0, memory_order_relaxed);
        atomic_fetch_sub_explicit(&account->counted, (int64_t)bytes, memory_order_relaxed);
    }
    budget_raise_peak(account, atomic_load_explicit(&account->counted, memory_order_relaxed));
    atomic_store_explicit(&account->counts, true, memory_order_relaxed);
    atomic_store_explicit(&account->threads, 0, memory_order_relaxed);
    atomic_store_explicit(&account->max_quota, 0, memory_order_relaxed);
    atomic_store_explicit(&account->kept_free, 0, memory_order_relaxed);
    atomic_store_explicit(&account->slack, 0, memory_order_relaxed);
}

/* The quota of a thread for small blocks: half of its share of what may be granted, so that charges rarely need a
 * recall. */
static uint64_t max_quota(uint64_t limit, uint64_t granted, uint64_t threads)
{
    const uint64_t most = least_of((uint64_t)budget_capacity_of(limit) / BUDGET_QUOTA_SHARE, QUOTA_MAX);
    const uint64_t share = granted / (2 * threads);
    return threads == 1 ? most : least_of(most, share > SLACK ? share : SLACK);
}

/* Begins to grant quotas to so many threads. With the lock. */
static void begin_to_grant(strata_budget_account *account, uint64_t slack, uint64_t threads)
{
    uint32_t position = 0;
    const uint64_t limit = atomic_load_explicit(&account->limit, memory_order_relaxed);
    const uint64_t most = atomic_load_explicit(&account->peak, memory_order_relaxed) + slack;
    const int64_t kept = budget_capacity_of(limit) - (int64_t)most;
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        set_late(account, slot, 0, 0);
    atomic_store_explicit(&account->counts, false, memory_order_relaxed);
    atomic_store_explicit(&account->slack, slack, memory_order_relaxed);
    atomic_store_explicit(&account->kept_free, kept > 0 ? kept : 0, memory_order_relaxed);
    atomic_store_explicit(&account->threads, (uint32_t)threads, memory_order_relaxed);
    atomic_store_explicit(&account->max_quota, max_quota(limit, most, threads), memory_order_relaxed);
}

void budget_begin_to_count(strata_budget_account *account)
{
    if (account->shared || budget_counts(account))
        return;
    strata_spin_take(&account->counts_lock);
    begin_to_count(account);
    strata_spin_release(&account->counts_lock);
}

/* Grants if there were enough charges and none can then make a new peak, else counts. `granted`: with the next charge.
 * With the lock. */
static void choose(strata_budget_account *account, uint64_t granted)
{
    uint64_t threads;
    const uint64_t steps = take_steps(account, &threads);
    const uint64_t slack = threads > 1 ? threads * SLACK : 0;
    if (!budget_counts(account))
        begin_to_count(account);
    count_all_late(account);
    const uint64_t most = atomic_load_explicit(&account->peak, memory_order_relaxed) + slack;
    if (steps >= BUDGET_COUNTED_STEPS && granted <= most)
        begin_to_grant(account, slack, threads);
}

void budget_choose(strata_budget_account *account, const budget_slot *slot, uint64_t bytes)
{
    if (budget_counts(account) &&
        !(slot &&
          budget_wants_quotas(account, (uint64_t)atomic_load_explicit(&slot->steps, memory_order_relaxed), bytes)))
        return;
    strata_spin_take(&account->counts_lock);
    choose(account, (uint64_t)budget_granted(account) + bytes);
    strata_spin_release(&account->counts_lock);
}

void budget_count_reused(strata_budget_account *account, uint64_t bytes, bool fits)
{
    strata_spin_take(&account->counts_lock);
    count_all_late(account);
    if (fits)
        count(account, bytes);
    else
        atomic_fetch_add_explicit(&account->counted, (int64_t)bytes, memory_order_acq_rel);
    strata_spin_release(&account->counts_lock);
}
