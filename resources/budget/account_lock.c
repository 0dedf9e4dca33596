/* The account's lock, and the wait for charges in flight. */
#include "resources/budget/thread_quota.h"

#include "core/base/cancel.h"
#include "core/base/timestamp.h"

static uint64_t own_serial(void)
{
    const strata_thread *thread = strata_thread_self();
    return thread ? thread->serial : 0;
}

bool budget_account_lock(strata_budget_account *account)
{
    uint64_t own = own_serial();
    if (own && atomic_load_explicit(&account->lock_owner, memory_order_relaxed) == own)
        return false;
    const int cancel = strata_cancel_forbid();
    strata_lock_take(&account->state_lock);
    while (account->locked)
        pthread_cond_wait(&account->unlocked, &account->state_lock.mutex);
    account->locked = true;
    account->cancel = cancel;
    strata_lock_release(&account->state_lock);
    atomic_store_explicit(&account->lock_owner, own, memory_order_relaxed);
    strata_busy_exclude(&account->exclusive);
    budget_recall_quotas(account);
    return true;
}

void budget_account_unlock(strata_budget_account *account)
{
    atomic_store_explicit(&account->lock_owner, 0, memory_order_relaxed);
    strata_busy_readmit(&account->exclusive);
    strata_lock_take(&account->state_lock);
    const int cancel = account->cancel;
    account->locked = false;
    pthread_cond_broadcast(&account->unlocked); /* also to threads that do not take the lock */
    strata_lock_release(&account->state_lock);
    strata_cancel_restore(cancel);
}

/* Spins and yields before it blocks: a recall takes some microseconds. */
bool budget_account_await(strata_budget_account *account)
{
    enum { SHORT_WAITS = 256 };
    const uint64_t own = own_serial();
    if (!atomic_load_explicit(&account->exclusive, memory_order_relaxed) ||
        (own && atomic_load_explicit(&account->lock_owner, memory_order_relaxed) == own))
        return false;
    for (unsigned spins = 0; spins < SHORT_WAITS; strata_backoff(&spins))
        if (!atomic_load_explicit(&account->exclusive, memory_order_acquire))
            return true;
    const int cancel = strata_cancel_forbid();
    strata_lock_take(&account->state_lock);
    while (account->locked)
        pthread_cond_wait(&account->unlocked, &account->state_lock.mutex);
    strata_lock_release(&account->state_lock);
    strata_cancel_restore(cancel);
    return true;
}

bool budget_others_in_flight(const strata_budget_account *account, const budget_slot *self_slot)
{
    uint32_t position = 0;
    for (const budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        if (slot != self_slot && atomic_load_explicit(&slot->in_flight, memory_order_acquire))
            return true;
    return atomic_load_explicit(&account->in_flight, memory_order_seq_cst) != 0;
}

/* A yield may take a time slice, so the clock is read from then on. */
bool budget_wait_briefly(unsigned *spins, int64_t *last_look, int64_t *wait_left)
{
    enum { PAUSES = 60, SHORT_WAITS = 256 }; /* PAUSES: before strata_backoff yields */
    if (*spins < PAUSES) {
        strata_backoff(spins);
        return true;
    }
    int64_t now = (int64_t)strata_timestamp_clock();
    if (*last_look)
        *wait_left -= now - *last_look;
    *last_look = now;
    if (*wait_left <= 0)
        return false;
    if (*spins < SHORT_WAITS)
        strata_backoff(spins);
    else
        nanosleep(&(struct timespec){.tv_nsec = 50000}, NULL);
    return true;
}

bool budget_wait_until_finished(const strata_budget_account *account, const budget_slot *self_slot, int64_t *wait_left)
{
    unsigned spins = 0;
    int64_t last_look = 0;
    while (budget_others_in_flight(account, self_slot))
        if (!budget_wait_briefly(&spins, &last_look, wait_left))
            return false;
    return true;
}
