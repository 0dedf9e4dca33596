/* Quotas of threads. The fast path is inline, without a call or a locked instruction. */
#ifndef STRATA_RESOURCES_BUDGET_THREAD_QUOTA_H
#define STRATA_RESOURCES_BUDGET_THREAD_QUOTA_H

#include "core/base/busy_flag.h"
#include "resources/budget/internal.h"

/* ---- fast path ---- */

/* Marks the slot busy. False, and not busy, if the account is locked. */
static inline bool budget_slot_enter(const strata_budget_account *account, budget_slot *slot)
{
    return strata_busy_enter(&slot->busy, &account->exclusive);
}

/* As budget_slot_enter, and begins a charge in flight. */
static inline bool budget_slot_enter_with_flight(const strata_budget_account *account, budget_slot *slot)
{
    const uint64_t flights = (uint64_t)atomic_load_explicit(&slot->in_flight, memory_order_relaxed) + 1;
    atomic_store_explicit(&slot->state, flights << 32 | 1, memory_order_relaxed);
    return strata_busy_confirm(&slot->busy, &account->exclusive);
}

static inline void budget_slot_leave(budget_slot *slot)
{
    strata_busy_leave(&slot->busy);
}

/* A failed charge restores `lowest`: forget_charge(). */
static inline void budget_use_quota(budget_slot *slot, uint64_t left)
{
    const uint64_t least = atomic_load_explicit(&slot->lowest, memory_order_relaxed);
    atomic_store_explicit(&slot->quota, left, memory_order_relaxed);
    atomic_store_explicit(&slot->lowest_before, least, memory_order_relaxed);
    if (left < least)
        atomic_store_explicit(&slot->lowest, left, memory_order_relaxed);
}

static inline void budget_slot_flight_begin(budget_slot *slot)
{
    atomic_store_explicit(&slot->in_flight, atomic_load_explicit(&slot->in_flight, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Release: what was given back is visible before. */
static inline void budget_slot_flight_end(budget_slot *slot)
{
    atomic_store_explicit(&slot->in_flight, atomic_load_explicit(&slot->in_flight, memory_order_relaxed) - 1,
                          memory_order_release);
}

/* The slot, with a charge in flight; NULL, without an effect, if the slow path is needed. */
static inline budget_slot *budget_charge_fast(const strata_budget_account *account, uint64_t bytes)
{
    budget_slot *slot = account->fast ? strata_per_thread_if_present(&account->slots, strata_thread_current) : NULL;
    if (__builtin_expect(!slot, 0))
        return NULL;
    if (__builtin_expect(budget_slot_enter_with_flight(account, slot), 1)) {
        uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed);
        bool fits = quota >= bytes;
        if (__builtin_expect(fits, 1))
            budget_use_quota(slot, quota - bytes);
        budget_slot_leave(slot);
        if (__builtin_expect(fits, 1))
            return slot;
    }
    budget_slot_flight_end(slot);
    return NULL;
}

/* False, without an effect, if the slow path is needed. */
static inline bool budget_release_fast(const strata_budget_account *account, uint64_t bytes)
{
    budget_slot *slot = account->fast ? strata_per_thread_if_present(&account->slots, strata_thread_current) : NULL;
    if (__builtin_expect(!slot || !budget_slot_enter(account, slot), 0))
        return false;
    uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed) + bytes;
    bool keeps = !account->soft && quota <= atomic_load_explicit(&account->max_quota, memory_order_relaxed);
    if (__builtin_expect(keeps, 1))
        atomic_store_explicit(&slot->quota, quota, memory_order_relaxed);
    budget_slot_leave(slot);
    return keeps;
}

/* ---- slow path ---- */

/* NULL without host memory, for reservations, which are small and have few threads, and for shared accounts, as other
 * processes could not recall quotas. */
static inline budget_slot *budget_slot_self(strata_budget_account *account)
{
    return account->reservation || account->shared ? NULL
                                                   : strata_per_thread_self(&account->slots, strata_thread_self());
}

uint64_t budget_max_quota(uint64_t limit);
uint64_t budget_take_free_quota(strata_budget_account *account, uint64_t least, uint64_t most);
void budget_give_free_quota(strata_budget_account *account, uint64_t bytes);
void budget_flight_begin(strata_budget_account *account, budget_slot *slot);
void budget_flight_end(strata_budget_account *account, budget_slot *slot);
bool budget_charge_slot(strata_budget_account *account, budget_slot *slot, uint64_t bytes);
bool budget_charge_without_slot(strata_budget_account *account, uint64_t bytes);
void budget_give_back(strata_budget_account *account, budget_slot *slot, uint64_t bytes, bool failed);
void budget_recall_quotas(strata_budget_account *account);

#endif
