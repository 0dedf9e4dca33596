/* Quotas of threads: refill, excess, recall. */
#include "resources/budget/thread_quota.h"

#include "resources/budget/shared.h"

static const uint64_t min_refill = UINT64_C(64) << 10;

enum {
    QUOTA_SHARE = 8,      /* a thread keeps at most 1 / 8 of the limit, */
    QUOTA_MAX = 16 << 20, /* and at most 16 MiB, */
    QUOTA_BLOCKS = 4,     /* or four of the blocks that it frees */
};

/* After a transfer. */
static void set_quota(budget_slot *slot, uint64_t quota)
{
    atomic_store_explicit(&slot->quota, quota, memory_order_relaxed);
    atomic_store_explicit(&slot->lowest, quota, memory_order_relaxed);
    atomic_store_explicit(&slot->lowest_before, UINT64_MAX, memory_order_relaxed);
}

/* A charge that failed was never in use. */
static void forget_charge(budget_slot *slot, uint64_t bytes)
{
    const uint64_t before = atomic_load_explicit(&slot->lowest_before, memory_order_relaxed);
    const uint64_t least = atomic_load_explicit(&slot->lowest, memory_order_relaxed) + bytes;
    atomic_store_explicit(&slot->lowest, least < before ? least : before, memory_order_relaxed);
}

/* Near and above its soft mark an account gives no quotas, so that crossings are seen at once. Called with the slot
 * busy, so after the recall by the thread that crossed the mark. */
static bool near_mark(const strata_budget_account *account, uint64_t more)
{
    if (!account->soft)
        return false;
    int64_t now = budget_granted(account);
    return atomic_load_explicit(&account->above_mark, memory_order_relaxed) || now < 0 ||
           (uint64_t)now + more > account->soft;
}

/* Small: quota that may have been used counts towards the peak. */
uint64_t budget_max_quota(uint64_t limit)
{
    const uint64_t share = (uint64_t)budget_capacity_of(limit) / QUOTA_SHARE;
    return share < QUOTA_MAX ? share : QUOTA_MAX;
}

/* For a thread that freed `bytes`, and will want some again. */
static uint64_t max_quota_after(const strata_budget_account *account, uint64_t bytes)
{
    const uint64_t most = atomic_load_explicit(&account->max_quota, memory_order_relaxed);
    const uint64_t share =
        (uint64_t)budget_capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed)) / QUOTA_SHARE;
    const uint64_t wanted = bytes < share / QUOTA_BLOCKS ? bytes * QUOTA_BLOCKS : share;
    return wanted > most ? wanted : most;
}

/* Takes `least` to `most` bytes, or 0. */
uint64_t budget_take_free_quota(strata_budget_account *account, uint64_t least, uint64_t most)
{
    uint64_t taken;
    if (account->shared)
        return shared_take(account->shared, least) ? least : 0;
    int64_t now = atomic_load_explicit(&account->free_quota, memory_order_acquire);
    do {
        if (now <= 0 || (uint64_t)now < least)
            return 0;
        taken = (uint64_t)now < most ? (uint64_t)now : most;
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

void budget_flight_begin(strata_budget_account *account, budget_slot *slot)
{
    if (slot)
        budget_slot_flight_begin(slot);
    else
        atomic_fetch_add_explicit(&account->in_flight, 1, memory_order_seq_cst);
}

/* The slot may be newer than the charge. The thread has no other charge: calls of layers below have returned. */
void budget_flight_end(strata_budget_account *account, budget_slot *slot)
{
    if (slot && atomic_load_explicit(&slot->in_flight, memory_order_relaxed))
        budget_slot_flight_end(slot);
    else
        atomic_fetch_sub_explicit(&account->in_flight, 1, memory_order_release);
}

/* The slot is busy. Takes quota in advance. */
static bool charge_with_refill(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed);
    uint64_t missing = bytes - quota;
    int64_t left = atomic_load_explicit(&account->free_quota, memory_order_relaxed);
    const uint64_t half = atomic_load_explicit(&account->max_quota, memory_order_relaxed) / 2;
    uint64_t share = left > 0 ? (uint64_t)left / (2 * QUOTA_SHARE) : 0;
    share = share < half ? share : half;
    uint64_t refill = bytes < min_refill ? min_refill : bytes;
    refill = refill > share / 4 ? share : refill * 4;
    if (near_mark(account, missing + refill))
        refill = 0;
    uint64_t most;
    if (__builtin_add_overflow(missing, refill, &most))
        return false;
    budget_update_peak(account);
    uint64_t taken = budget_take_free_quota(account, missing, most);
    if (!taken)
        return false;
    set_quota(slot, quota + taken - bytes);
    return true;
}

bool budget_charge_slot(strata_budget_account *account, budget_slot *slot, uint64_t bytes)
{
    budget_slot_flight_begin(slot);
    bool fits = false;
    if (budget_slot_enter(account, slot)) {
        uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed);
        fits = quota >= bytes;
        if (fits)
            budget_use_quota(slot, quota - bytes);
        else
            fits = charge_with_refill(account, slot, bytes);
        budget_slot_leave(slot);
    }
    if (!fits)
        budget_slot_flight_end(slot);
    return fits;
}

/* Either the lock's owner sees this charge in flight, or this thread sees `exclusive`. */
bool budget_charge_without_slot(strata_budget_account *account, uint64_t bytes)
{
    budget_flight_begin(account, NULL);
    bool fits = !atomic_load_explicit(&account->exclusive, memory_order_seq_cst) &&
                (!bytes || budget_take_free_quota(account, bytes, bytes));
    if (!fits)
        budget_flight_end(account, NULL);
    return fits;
}

/* Lowers `lowest` first: other threads compute no less than what is in use. */
static void give_excess(strata_budget_account *account, budget_slot *slot, uint64_t quota, uint64_t excess)
{
    budget_update_peak(account);
    if (quota - excess < atomic_load_explicit(&slot->lowest, memory_order_relaxed))
        atomic_store_explicit(&slot->lowest, quota - excess, memory_order_relaxed);
    budget_give_free_quota(account, excess);
    set_quota(slot, quota - excess);
}

void budget_give_back(strata_budget_account *account, budget_slot *slot, uint64_t bytes, bool failed)
{
    if (!slot || !budget_slot_enter(account, slot)) {
        if (!account->shared && !failed)
            budget_update_peak(account); /* before in_use falls */
        budget_give_free_quota(account, bytes);
        return;
    }
    if (failed)
        forget_charge(slot, bytes);
    const uint64_t quota = atomic_load_explicit(&slot->quota, memory_order_relaxed) + bytes;
    const uint64_t most = near_mark(account, 0) ? 0 : max_quota_after(account, bytes);
    if (quota > most)
        give_excess(account, slot, quota, quota - most / 2);
    else
        atomic_store_explicit(&slot->quota, quota, memory_order_relaxed);
    budget_slot_leave(slot);
}

void budget_recall_quotas(strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t all = 0;
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        strata_busy_await(&slot->busy);
    budget_update_peak(account);
    position = 0;
    for (budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));) {
        all += atomic_load_explicit(&slot->quota, memory_order_relaxed);
        set_quota(slot, 0);
    }
    if (all)
        budget_give_free_quota(account, all);
    atomic_fetch_add_explicit(&account->recalls, 1, memory_order_relaxed);
}
