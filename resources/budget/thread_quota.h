/* Quotas of threads. The inline fast path has no call and no locked instruction. */
#ifndef STRATA_RESOURCES_BUDGET_THREAD_QUOTA_H
#define STRATA_RESOURCES_BUDGET_THREAD_QUOTA_H

#include "core/base/busy_flag.h"
#include "core/base/own_word.h"
#include "resources/budget/free_quota.h"

/* ---- fast path ---- */

/* Marks the slot busy; false if the account is locked. */
static inline bool budget_slot_enter(const strata_budget_account *account, budget_slot *slot)
{
    return strata_busy_enter(&slot->busy, &account->exclusive);
}

/* As budget_slot_enter; also begins the thread's only charge in flight. */
static inline bool budget_slot_enter_with_flight(const strata_budget_account *account, budget_slot *slot)
{
    atomic_store_explicit(&slot->state, UINT64_C(1) << 32 | 1, memory_order_relaxed);
    return strata_busy_confirm(&slot->busy, &account->exclusive);
}

static inline void budget_slot_leave(budget_slot *slot)
{
    strata_busy_leave(&slot->busy);
}

/* Ends a charge in flight. Release: what was given back is visible. */
static inline void budget_slot_flight_end(budget_slot *slot)
{
    atomic_store_explicit(&slot->in_flight, atomic_load_explicit(&slot->in_flight, memory_order_relaxed) - 1,
                          memory_order_release);
}

/* Ends the charge of budget_charge_fast, which found no other one; those within it have ended. */
static inline void budget_slot_clear_flight(budget_slot *slot)
{
    atomic_store_explicit(&slot->in_flight, 0, memory_order_release);
}

/* Counts a charge. The slot is busy. */
static inline void budget_count_step(budget_slot *slot)
{
    strata_own_word_add(&slot->steps, 1);
}

/* Charges a base that is not shared. Returns the slot, with a charge in flight; NULL: unchanged, the slow path is
 * needed. */
static inline __attribute__((always_inline)) budget_slot *budget_charge_fast(const strata_budget_account *account,
                                                                             uint64_t bytes)
{
    budget_slot *slot = strata_per_thread_if_present(&account->slots);
    if (__builtin_expect(!slot || atomic_load_explicit(&slot->in_flight, memory_order_relaxed), 0))
        return NULL;
    if (__builtin_expect(budget_slot_enter_with_flight(account, slot), 1)) {
        uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed);
        bool fits = quota >= bytes;
        if (__builtin_expect(fits, 1)) {
            atomic_store_explicit(&slot->quota, quota - bytes, memory_order_relaxed);
            atomic_store_explicit(&slot->flight_bytes, bytes, memory_order_relaxed);
            budget_count_step(slot);
        }
        budget_slot_leave(slot);
        if (__builtin_expect(fits, 1))
            return slot;
    }
    budget_slot_clear_flight(slot);
    return NULL;
}

/* As budget_charge_fast, for a charge that nothing can undo: none is in flight. False: unchanged. */
static inline __attribute__((always_inline)) bool budget_charge_done(const strata_budget_account *account,
                                                                     budget_slot *slot, uint64_t bytes)
{
    if (__builtin_expect(!budget_slot_enter(account, slot), 0))
        return false;
    const uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed);
    const bool fits = quota >= bytes;
    if (__builtin_expect(fits, 1)) {
        atomic_store_explicit(&slot->quota, quota - bytes, memory_order_relaxed);
        budget_count_step(slot);
    }
    budget_slot_leave(slot);
    return fits;
}

/* Gives bytes back to such a base, in the thread's slot. False: unchanged, the slow path is needed. */
static inline __attribute__((always_inline)) bool budget_release_in(const strata_budget_account *account,
                                                                    budget_slot *slot, uint64_t bytes)
{
    if (__builtin_expect(!budget_slot_enter(account, slot), 0))
        return false;
    uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed) + bytes;
    bool keeps = !account->soft && quota <= atomic_load_explicit(&slot->most, memory_order_relaxed);
    if (__builtin_expect(keeps, 1))
        atomic_store_explicit(&slot->quota, quota, memory_order_relaxed);
    budget_slot_leave(slot);
    return keeps;
}

/* As budget_release_in; false also without a slot. */
static inline __attribute__((always_inline)) bool budget_release_fast(const strata_budget_account *account,
                                                                      uint64_t bytes)
{
    budget_slot *slot = strata_per_thread_if_present(&account->slots);
    return __builtin_expect(slot != NULL, 1) && budget_release_in(account, slot, bytes);
}

/* ---- slow path ---- */

/* The thread's slot; NULL without host memory, for reservations (small, few threads), and for shared accounts, which
 * have no slots (shared_quota.h). */
static inline budget_slot *budget_slot_self(strata_budget_account *account)
{
    return account->reservation || account->shared ? NULL
                                                   : strata_per_thread_self(&account->slots, strata_thread_self());
}

/* `slot`: the thread's own, not NULL unless said. */

void budget_slot_flight_begin(strata_budget_account *account, budget_slot *slot, uint64_t bytes);

/* Begins a charge in flight; slot NULL: the account counts it. */
void budget_flight_begin(strata_budget_account *account, budget_slot *slot, uint64_t bytes);

/* Ends a charge in flight. `failed`: gives the bytes back first. */
void budget_flight_end(strata_budget_account *account, budget_slot *slot, uint64_t bytes, bool failed);

/* Charges, and leaves the charge in flight. False: nothing was charged, the lock is needed. */
bool budget_charge_slot(strata_budget_account *account, budget_slot *slot, uint64_t bytes);
bool budget_charge_without_slot(strata_budget_account *account, uint64_t bytes);

/* Gives bytes back to the thread's quota, and what that cannot keep to the free quota. slot may be NULL. */
void budget_give_back(strata_budget_account *account, budget_slot *slot, uint64_t bytes);

/* Moves the quotas of all threads to the free quota, under the account's lock. */
void budget_recall_quotas(strata_budget_account *account);

#endif
