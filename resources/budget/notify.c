/* Soft marks. The thread that sees a crossing records it; one thread at a time delivers an account's notifications, in
 * order and without a lock. */
#include "resources/budget/internal.h"

#include "core/base/cancel.h"
#include "core/base/error.h"

/* Whether use has crossed the mark. Above it an account has no thread quotas: granted is in use. */
static bool mark_is_crossed(const strata_budget_account *account)
{
    bool was = atomic_load_explicit(&account->above_mark, memory_order_relaxed);
    return account->soft && was != (budget_granted(account) >= (int64_t)(was ? account->soft_low : account->soft));
}

/* Records a crossing; false: another thread did. In a full ring a crossing cancels the last one, its opposite:
 * notifications alternate and end with the current state. */
static bool record_crossing(strata_budget_account *account)
{
    bool was = atomic_load_explicit(&account->above_mark, memory_order_relaxed);
    uint64_t in_use = budget_in_use(account);
    if (was == (in_use >= (was ? account->soft_low : account->soft)))
        return false;
    strata_lock_take(&account->state_lock);
    bool crossed = atomic_load_explicit(&account->above_mark, memory_order_relaxed) == was;
    if (crossed && account->recorded - account->delivered == BUDGET_NOTIFICATIONS)
        account->recorded--;
    else if (crossed)
        account->notifications[account->recorded++ % BUDGET_NOTIFICATIONS] = (budget_notification){!was, in_use};
    if (crossed)
        atomic_store_explicit(&account->above_mark, !was, memory_order_relaxed);
    strata_lock_release(&account->state_lock);
    if (crossed && !was && budget_account_lock(account)) /* recalls the quotas */
        budget_account_unlock(account);
    return crossed;
}

/* Takes the next notification. False: none is left, or another thread delivers. */
static bool next_notification(strata_budget_account *account, bool *notifying, budget_notification *notification)
{
    strata_lock_take(&account->state_lock);
    bool own = *notifying || !account->notifying, any = own && account->delivered != account->recorded;
    if (any)
        *notification = account->notifications[account->delivered++ % BUDGET_NOTIFICATIONS];
    if (own)
        account->notifying = *notifying = any;
    strata_lock_release(&account->state_lock);
    return any;
}

/* The caller may suppress errors; the callback does not. A thread that ended in it would be the one that delivers for
 * ever. */
static void call_back(strata_budget_account *account, const budget_notification *notification)
{
    strata_error_aside aside;
    const int cancel = strata_cancel_forbid();
    strata_error_set_aside(&aside);
    account->soft_callback(account, notification->above_mark, (size_t)notification->in_use, account->soft_data);
    strata_error_take_back(&aside);
    strata_cancel_restore(cancel);
}

static void notify(strata_budget_account *account)
{
    bool crossed = false, notifying = false;
    budget_notification notification;
    for (unsigned i = 0; i < BUDGET_NOTIFICATIONS && mark_is_crossed(account) && record_crossing(account); i++)
        crossed = true;
    while (crossed && next_notification(account, &notifying, &notification))
        if (account->soft_callback)
            call_back(account, &notification);
}

/* Looks at all accounts: a thread may free blocks of others. */
__attribute__((noinline)) void budget_notify_all(budget *self)
{
    notify(&self->base);
    for (budget_page page = {0}; budget_list_next(self, mark_is_crossed, &page);)
        for (size_t i = 0; i < page.count; i++)
            notify(page.accounts[i]);
}
