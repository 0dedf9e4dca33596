/* Charging an account and its parents, and giving bytes back.
 *
 *     budget_charge  ->  the layer below allocates  ->  budget_finish  ...  budget_release */
#include "resources/budget/thread_quota.h"

#include "resources/budget/shared.h"

static bool take_shared(budget_shared *shared, uint64_t bytes)
{
    for (unsigned spins = 0; spins < 64 && shared_make_room(shared, bytes, 0);)
        if (shared_take(shared, bytes))
            return true;
        else
            strata_backoff(&spins);
    return false;
}

/* Charges once more, under the lock; only other processes and earlier charges without a slot compete. */
static bool take_once(strata_budget_account *account, const budget_slot *slot, uint64_t bytes)
{
    if (account->shared)
        return take_shared(account->shared, bytes);
    return slot ? !bytes || budget_take_free_quota(account, bytes, bytes) : budget_take_unslotted(account, bytes);
}

/* Chooses to count or grant, but not for a charge that does not fit: it may be refused. */
static void choose_for(strata_budget_account *account, const budget_slot *slot, uint64_t bytes)
{
    if (!account->shared && atomic_load_explicit(&account->free_quota, memory_order_acquire) >= (int64_t)bytes)
        budget_choose(account, slot, bytes);
}

/* Charges as soon as other threads' charges in flight have given enough back. Under the lock. Fails when none is in
 * flight any more. */
static bool take_when_returned(strata_budget_account *account, const budget_slot *self_slot, uint64_t bytes,
                               int64_t *wait_left)
{
    unsigned spins = 0;
    int64_t last_look = 0;
    for (;;) {
        bool idle = !budget_others_in_flight(account, self_slot);
        choose_for(account, self_slot, bytes);
        if (take_once(account, self_slot, bytes))
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
    bool fits = taken ? take_when_returned(account, slot, bytes, wait_left) : take_once(account, slot, bytes);
    if (fits)
        budget_flight_begin(account, slot, bytes);
    if (taken)
        budget_account_unlock(account);
    return fits;
}

enum { MEETINGS = 4 };

/* A thread that meets another one's recall tries again before it takes the lock: else all threads would recall, one
 * after another, for one that needs it. */
static bool charge_one(strata_budget_account *account, uint64_t bytes, int64_t *wait_left)
{
    budget_slot *slot = budget_slot_self(account);
    bool fits = slot ? budget_charge_slot(account, slot, bytes) : budget_charge_without_slot(account, bytes);
    for (unsigned i = 0; !fits && slot && i < MEETINGS && budget_account_await(account); i++)
        fits = budget_charge_slot(account, slot, bytes);
    return fits || charge_locked(account, slot, bytes, wait_left);
}

static void finish_one(strata_budget_account *account, uint64_t bytes, bool failed)
{
    budget_flight_end(account, budget_slot_self(account), bytes, failed);
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

/* Gives back to parents first: an account may be freed with its last bytes. */
void budget_release(strata_budget_account *account, uint64_t bytes)
{
    strata_budget_account *levels[BUDGET_DEPTH];
    size_t count = 0;
    for (strata_budget_account *level = account; level; level = budget_above(level))
        levels[count++] = level;
    while (count-- > 0) {
        strata_budget_account *level = levels[count];
        if (!level->parent) {
            budget_give_back(level, budget_slot_self(level), bytes);
            continue;
        }
        budget_pin(level);
        budget_give_back(level, budget_slot_self(level), bytes);
        if (level->reservation && atomic_load_explicit(&level->closed, memory_order_seq_cst))
            budget_return_to_parents(level);
        budget_unpin(level);
    }
}

void budget_return_charge(budget *self, budget_record *record, strata_budget_account *account, uint64_t bytes)
{
    if (self->base.shared) {
        shared_count_tag(self->base.shared, (uint32_t)record->tag_index, -(int64_t)bytes);
        uint64_t ticket = atomic_exchange_explicit(&record->ticket, 0, memory_order_acq_rel);
        if (ticket)
            shared_retire_completed(self->base.shared, ticket);
    }
    budget_release(account, bytes);
}

/* ---- reuse of retired memory ---- */

/* Whether `account` gets bytes of `source` back; an open reservation keeps its own. */
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

static bool has_room_for_reuse(strata_budget_account *account, uint64_t bytes, uint64_t back)
{
    if (account->shared) /* the rest would have to be leased */
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
        /* a charge in flight could take that memory */
        if (!budget_wait_until_finished(level, budget_slot_self(level), wait_left) ||
            !has_room_for_reuse(level, bytes, back)) {
            unlock_accounts(account, budget_above(level));
            return false;
        }
    }
    for (strata_budget_account *level = account; level; level = budget_above(level)) {
        budget_begin_to_count(level);
        charge_for_reuse(level, bytes);
    }
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
        const bool within = is_within_limit(level);
        fits &= within;
        if (!failed && level->shared)
            budget_count_shared(level, bytes);
        else if (!failed)
            budget_count_reused(level, bytes, within);
    }
    if (fits && !failed)
        atomic_fetch_add_explicit(&account->reused, 1, memory_order_relaxed);
    unlock_accounts(account, NULL);
    return fits;
}
