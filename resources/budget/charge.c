/* Charges to an account and those above it, and what is given back to them. */
#include "resources/budget/thread_quota.h"

#include "resources/budget/shared.h"

/* In the turn, where the account is this thread's alone, but for strays that came before it, and for what other
 * processes take of a shared one. */
static bool take_once(strata_budget_account *account, uint64_t bytes)
{
    if (account->shared) {
        for (unsigned spins = 0; spins < 64 && shared_make_room(account->shared, bytes, 0);)
            if (shared_take(account->shared, bytes))
                return true;
            else
                strata_backoff(&spins);
        return false;
    }
    return !bytes || budget_take_free_quota(account, bytes, bytes);
}

/* In the turn: takes the bytes when they are there; not when no request of others could give any back any more. */
static bool take_when_returned(strata_budget_account *account, const budget_slot *self_slot, uint64_t bytes,
                               int64_t *wait_left)
{
    unsigned spins = 0;
    int64_t last_look = 0;
    for (;;) {
        bool idle = !budget_others_in_flight(account, self_slot);
        if (take_once(account, bytes))
            return true;
        if (idle || !budget_wait_briefly(&spins, &last_look, wait_left))
            return false;
    }
}

static __attribute__((noinline)) bool charge_locked(strata_budget_account *account, budget_slot *slot, uint64_t bytes,
                                                    int64_t *wait_left)
{
    if (bytes > (uint64_t)budget_boundless)
        return false;
    bool taken = budget_account_lock(account);
    bool fits = taken ? take_when_returned(account, slot, bytes, wait_left) : take_once(account, bytes);
    if (fits) {
        if (account->shared)
            budget_update_peak(account);
        budget_flight_begin(account, slot);
    }
    if (taken)
        budget_account_unlock(account);
    return fits;
}

static bool charge_one(strata_budget_account *account, uint64_t bytes, int64_t *wait_left)
{
    budget_slot *slot = budget_slot_self(account);
    bool fits = slot ? budget_charge_slot(account, slot, bytes) : budget_charge_without_slot(account, bytes);
    return fits || charge_locked(account, slot, bytes, wait_left);
}

static void finish_one(strata_budget_account *account, uint64_t bytes, bool failed)
{
    budget_slot *slot = budget_slot_self(account);
    if (failed)
        budget_give_back(account, slot, bytes, true);
    budget_flight_end(account, slot);
}

bool budget_charge(strata_budget_account *account, uint64_t bytes, int64_t *wait_left, strata_budget_account **failing)
{
    for (strata_budget_account *level = account; level; level = budget_above(level)) {
        if (charge_one(level, bytes, wait_left))
            continue;
        *failing = level;
        for (strata_budget_account *charged = account; charged != level; charged = budget_above(charged))
            finish_one(charged, bytes, true);
        return false;
    }
    return true;
}

void budget_finish(strata_budget_account *account, uint64_t bytes, bool failed)
{
    for (strata_budget_account *level = account; level; level = budget_above(level))
        finish_one(level, bytes, failed);
}

void budget_return_to_parents(strata_budget_account *reservation)
{
    int64_t bytes = atomic_exchange_explicit(&reservation->free_quota, 0, memory_order_acq_rel);
    if (bytes <= 0)
        return;
    budget_release(reservation->parent, (uint64_t)bytes);
    atomic_fetch_sub_explicit(&reservation->unreturned, (uint64_t)bytes, memory_order_release);
}

/* From the outermost inwards: an account may end with the last byte that it gets back. */
void budget_release(strata_budget_account *account, uint64_t bytes)
{
    strata_budget_account *levels[BUDGET_DEPTH];
    size_t count = 0;
    for (strata_budget_account *level = account; level; level = budget_above(level))
        levels[count++] = level;
    while (count-- > 0) {
        strata_budget_account *level = levels[count];
        if (!level->parent) {
            budget_give_back(level, budget_slot_self(level), bytes, false);
            continue;
        }
        budget_pin(level); /* it stays until that is taken back */
        budget_give_back(level, budget_slot_self(level), bytes, false);
        if (level->reservation && atomic_load_explicit(&level->closed, memory_order_seq_cst))
            budget_return_to_parents(level);
        budget_unpin(level);
    }
}

/* ---- memory that is retired and will be reused ---- */

/* Whether bytes that come back to `source` come back to `account` too: those of a reservation do once it is closed. */
static bool returns_to(const strata_budget_account *source, const strata_budget_account *account)
{
    while (source && source != account) {
        bool stays = source->reservation && !atomic_load_explicit(&source->closed, memory_order_seq_cst);
        source = stays ? NULL : source->parent;
    }
    return source != NULL;
}

static void unlock_accounts(strata_budget_account *account, const strata_budget_account *end)
{
    for (; account != end; account = budget_above(account))
        budget_account_unlock(account);
}

/* Whether `bytes` fit once `back` of them were given back. */
static bool has_room_for_reuse(strata_budget_account *account, uint64_t bytes, uint64_t back)
{
    if (account->shared) /* what is not coming back would have to be held from here on */
        return back >= bytes && shared_make_room(account->shared, bytes, back);
    int64_t least = bytes > back ? (int64_t)(bytes - back) : 0;
    return atomic_load_explicit(&account->free_quota, memory_order_acquire) >= least;
}

static void charge_for_reuse(strata_budget_account *account, uint64_t bytes)
{
    if (account->shared)
        shared_take_for_reuse(account->shared, bytes);
    else {
        atomic_fetch_add_explicit(&account->reused_bytes, (int64_t)bytes, memory_order_relaxed);
        atomic_fetch_sub_explicit(&account->free_quota, (int64_t)bytes, memory_order_acq_rel);
    }
}

static bool is_within_limit(const strata_budget_account *account)
{
    if (account->shared)
        return shared_is_covered(account->shared);
    return atomic_load_explicit(&account->free_quota, memory_order_acquire) >= 0;
}

bool budget_reuse_begin(strata_budget_account *account, uint64_t bytes, const strata_budget_account *source,
                        uint64_t reusable, int64_t *wait_left)
{
    for (strata_budget_account *level = account; level; level = budget_above(level)) {
        if (!budget_account_lock(level)) {
            unlock_accounts(account, level);
            return false;
        }
        uint64_t back = returns_to(source, level) ? reusable : 0;
        /* A request of others that is not decided could take that memory. */
        if (!budget_wait_until_finished(level, budget_slot_self(level), wait_left) ||
            !has_room_for_reuse(level, bytes, back)) {
            unlock_accounts(account, budget_above(level));
            return false;
        }
    }
    for (strata_budget_account *level = account; level; level = budget_above(level))
        charge_for_reuse(level, bytes);
    return true;
}

bool budget_reuse_end(strata_budget_account *account, uint64_t bytes, bool failed)
{
    bool fits = true;
    for (strata_budget_account *level = account; level; level = budget_above(level)) {
        if (failed)
            budget_give_free_quota(level, bytes);
        if (!level->shared)
            atomic_fetch_sub_explicit(&level->reused_bytes, (int64_t)bytes, memory_order_relaxed);
        fits &= is_within_limit(level);
        if (!failed)
            budget_update_peak(level);
    }
    if (fits && !failed)
        atomic_fetch_add_explicit(&account->reused, 1, memory_order_relaxed);
    unlock_accounts(account, NULL);
    return fits;
}
