/* Quotas of threads: refill, excess, recall. */
#include "resources/budget/thread_quota.h"

#include "resources/budget/shared.h"

static const uint64_t min_refill = UINT64_C(64) << 10;

/* A thread keeps up to `most` of what it frees. A free beyond that sets it to max(the account's max_quota,
 * min(limit / 8, 4 * its block)), and what is still beyond goes back: small blocks after a large one leave the quota. A
 * refill takes at most half of the thread's share of the free quota. */
enum { QUOTA_BLOCKS = 4 };

/* Near and above its soft mark an account gives no quotas, so that crossings are seen at once. Called with the slot
 * busy: the thread that crosses the mark has recalled the quotas before. */
static bool near_mark(const strata_budget_account *account, uint64_t more)
{
    if (!account->soft)
        return false;
    int64_t now = budget_granted(account);
    return atomic_load_explicit(&account->above_mark, memory_order_relaxed) || now < 0 ||
           (uint64_t)now + more > account->soft;
}

/* The most quota for a thread that freed `bytes`. */
static uint64_t max_quota_after(const strata_budget_account *account, uint64_t bytes)
{
    const uint64_t most = atomic_load_explicit(&account->max_quota, memory_order_relaxed);
    const uint64_t share =
        (uint64_t)budget_capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed)) / BUDGET_QUOTA_SHARE;
    const uint64_t wanted = bytes < share / QUOTA_BLOCKS ? bytes * QUOTA_BLOCKS : share;
    return wanted > most ? wanted : most;
}

/* The thread's earlier charges have ended, or are in flight around this one. */
void budget_slot_flight_begin(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    const uint32_t flights = atomic_load_explicit(&slot->in_flight, memory_order_relaxed);
    if (!flights && atomic_load_explicit(&slot->late, memory_order_relaxed))
        budget_count_own_late(account, slot);
    if (flights)
        bytes += atomic_load_explicit(&slot->flight_bytes, memory_order_relaxed);
    atomic_store_explicit(&slot->flight_bytes, bytes, memory_order_relaxed);
    atomic_store_explicit(&slot->in_flight, flights + 1, memory_order_relaxed);
}

void budget_flight_begin(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    if (slot)
        budget_slot_flight_begin(account, slot, bytes);
    else
        atomic_fetch_add_explicit(&account->in_flight, 1, memory_order_seq_cst);
}

static void end_slot_flight(budget_slot *slot, uint64_t bytes)
{
    atomic_store_explicit(&slot->flight_bytes, atomic_load_explicit(&slot->flight_bytes, memory_order_relaxed) - bytes,
                          memory_order_relaxed);
    budget_slot_flight_end(slot);
}

static void decide_in_slot(strata_budget_account *account, budget_slot *slot, uint64_t bytes, bool failed)
{
    if (!failed && !budget_counts(account))
        return;
    if (!budget_slot_enter(account, slot)) {
        (failed ? budget_drop_charge_locked : budget_count_charge_locked)(account, slot, bytes);
        return;
    }
    if (!budget_counts(account)) {
        if (failed)
            budget_give_free_quota(account, bytes);
    } else if (failed)
        budget_drop_charge(account, slot, bytes);
    else
        budget_count_charge(account, slot, bytes);
    budget_slot_leave(slot);
}

/* The slot may be newer than the charge. The thread has no other charge: calls below have returned. */
void budget_flight_end(strata_budget_account *account, budget_slot *slot, uint64_t bytes, bool failed)
{
    if (slot && atomic_load_explicit(&slot->in_flight, memory_order_relaxed)) {
        decide_in_slot(account, slot, bytes, failed);
        end_slot_flight(slot, bytes);
        return;
    }
    if (!account->shared)
        (failed ? budget_drop_charge_locked : budget_count_charge_locked)(account, NULL, bytes);
    else if (failed)
        budget_give_free_quota(account, bytes);
    else
        budget_count_shared(account, bytes);
    atomic_fetch_sub_explicit(&account->in_flight, 1, memory_order_release);
}

/* Charges and takes quota in advance. The slot is busy, and the account grants. */
static bool charge_with_refill(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed);
    uint64_t missing = bytes - quota;
    int64_t left = budget_free_to_take(account);
    const uint64_t half = atomic_load_explicit(&account->max_quota, memory_order_relaxed) / 2;
    const uint64_t threads = atomic_load_explicit(&account->threads, memory_order_relaxed);
    uint64_t share = left > 0 ? (uint64_t)left / (2 * threads) : 0;
    share = share < half ? share : half;
    uint64_t refill = bytes < min_refill ? min_refill : bytes;
    refill = refill > share / 4 ? share : refill * 4;
    if (near_mark(account, missing + refill))
        refill = 0;
    uint64_t most;
    if (__builtin_add_overflow(missing, refill, &most))
        return false;
    uint64_t taken = budget_take_free_quota(account, missing, most);
    if (taken)
        atomic_store_explicit(&slot->quota, quota + taken - bytes, memory_order_relaxed);
    return taken != 0;
}

/* Charges more than the thread's quota. The slot is busy. */
static bool charge_beyond_quota(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    if (!budget_counts(account))
        return charge_with_refill(account, slot, bytes);
    const uint64_t steps = (uint64_t)atomic_load_explicit(&slot->steps, memory_order_relaxed);
    return !budget_wants_quotas(account, steps, bytes) && budget_take_free_quota(account, bytes, bytes);
}

bool budget_charge_slot(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    budget_slot_flight_begin(account, slot, bytes);
    bool fits = false;
    if (budget_slot_enter(account, slot)) {
        uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed);
        fits = quota >= bytes;
        budget_count_step(slot);
        if (fits)
            atomic_store_explicit(&slot->quota, quota - bytes, memory_order_relaxed);
        else
            fits = charge_beyond_quota(account, slot, bytes);
        budget_slot_leave(slot);
    }
    if (!fits)
        end_slot_flight(slot, bytes);
    return fits;
}

/* Either the lock's owner sees this charge, or this thread sees `exclusive`. */
bool budget_charge_without_slot(strata_budget_account *account, uint64_t bytes)
{
    budget_flight_begin(account, NULL, bytes);
    bool fits = !atomic_load_explicit(&account->exclusive, memory_order_seq_cst) &&
                (account->shared ? !bytes || budget_take_free_quota(account, bytes, bytes)
                                 : budget_take_unslotted(account, bytes));
    if (!fits)
        atomic_fetch_sub_explicit(&account->in_flight, 1, memory_order_release);
    return fits;
}

/* Gives bytes back to the thread's quota. The slot is busy, and the account grants. */
static void keep_quota(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed) + bytes;
    const uint64_t most = near_mark(account, 0) ? 0 : max_quota_after(account, bytes);
    atomic_store_explicit(&slot->most, most, memory_order_relaxed);
    if (quota > most) {
        budget_give_free_quota(account, quota - most / 2);
        quota = most / 2;
    }
    atomic_store_explicit(&slot->quota, quota, memory_order_relaxed);
}

void budget_give_back(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    if (account->shared) {
        shared_count(account->shared, -(int64_t)bytes);
        budget_give_free_quota(account, bytes);
        return;
    }
    if (!slot || !budget_slot_enter(account, slot)) {
        budget_count_release_locked(account, bytes);
        return;
    }
    if (budget_counts(account))
        budget_count_release(account, bytes);
    else
        keep_quota(account, slot, bytes);
    budget_slot_leave(slot);
}

void budget_recall_quotas(strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t all = 0;
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        strata_busy_await(&slot->busy);
    position = 0;
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));) {
        all += atomic_load_explicit(&slot->quota, memory_order_relaxed);
        atomic_store_explicit(&slot->quota, 0, memory_order_relaxed);
        atomic_store_explicit(&slot->most, 0, memory_order_relaxed);
    }
    if (all)
        budget_give_free_quota(account, all);
    atomic_fetch_add_explicit(&account->recalls, 1, memory_order_relaxed);
}
