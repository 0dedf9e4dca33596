/* Credits of threads: the way of most requests, inline, and what else is done with them. */
#ifndef STRATA_RESOURCES_BUDGET_THREAD_QUOTA_H
#define STRATA_RESOURCES_BUDGET_THREAD_QUOTA_H

#include "core/base/asymmetric.h"
#include "resources/budget/internal.h"

/* ---- the way of most requests: at an account that is alone, with credit ---- */

/* Begins to use the calling thread's cell; false if the turn is taken. */
static inline bool budget_slot_enter(const strata_budget_account *account, budget_slot *slot)
{
    atomic_store_explicit(&slot->busy, 1, memory_order_relaxed);
    strata_light_barrier();
    if (__builtin_expect(!atomic_load_explicit(&account->exclusive, memory_order_acquire), 1))
        return true;
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
    return false;
}

/* The same, with a request in flight. */
static inline bool budget_slot_enter_with_flight(const strata_budget_account *account, budget_slot *slot)
{
    const uint64_t flights = (uint64_t)atomic_load_explicit(&slot->in_flight, memory_order_relaxed) + 1;
    atomic_store_explicit(&slot->state, flights << 32 | 1, memory_order_relaxed);
    strata_light_barrier();
    if (__builtin_expect(!atomic_load_explicit(&account->exclusive, memory_order_acquire), 1))
        return true;
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
    return false;
}

static inline void budget_slot_leave(budget_slot *slot)
{
    atomic_store_explicit(&slot->busy, 0, memory_order_release);
}

/* Lowers the credit to `left`, which decides about the account's peak, unless the request comes to nothing. */
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

/* Whoever sees the flight ended sees what it gave back. */
static inline void budget_slot_flight_end(budget_slot *slot)
{
    atomic_store_explicit(&slot->in_flight, atomic_load_explicit(&slot->in_flight, memory_order_relaxed) - 1,
                          memory_order_release);
}

/* Charges a request to the calling thread's credit. The cell, in which it is in flight until budget_slot_flight_end;
 * NULL, and nothing done, if that is not all there is to do. */
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

/* Gives bytes back to the calling thread's credit; false, and nothing done, if that is not all there is to do. */
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

/* ---- the general way ---- */

/* The calling thread's cell. Promises have none: they are small, and their threads few. Shared accounts have none:
 * other processes could not call the credits in. */
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
