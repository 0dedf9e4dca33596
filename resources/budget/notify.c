/* Soft marks, and who is told that one was passed. */
#include "resources/budget/internal.h"

#include "core/base/error.h"

/* While an account is above its mark no thread has credit there: what is granted is in use. */
static bool has_to_tell(const strata_budget_account *account)
{
    bool was = atomic_load_explicit(&account->above, memory_order_relaxed);
    return account->soft && was != (budget_granted(account) >= (int64_t)(was ? account->soft_low : account->soft));
}

/* Notes that a mark was crossed, if it was. While a callback takes so long that the list is full, a crossing that takes
 * back the last one that waits leaves it out: what is told goes up and down by turns, and ends with how it is. */
static bool note_crossing(strata_budget_account *account)
{
    bool was = atomic_load_explicit(&account->above, memory_order_relaxed);
    uint64_t in_use = budget_in_use(account);
    if (was == (in_use >= (was ? account->soft_low : account->soft)))
        return false;
    strata_lock_take(&account->state_lock);
    bool crossed = atomic_load_explicit(&account->above, memory_order_relaxed) == was;
    if (crossed && account->noted - account->told == BUDGET_CROSSINGS)
        account->noted--;
    else if (crossed)
        account->crossings[account->noted++ % BUDGET_CROSSINGS] = (budget_crossing){!was, in_use};
    if (crossed)
        atomic_store_explicit(&account->above, !was, memory_order_relaxed);
    strata_lock_release(&account->state_lock);
    if (crossed && !was && budget_account_lock(account)) /* calls in the credits */
        budget_account_unlock(account);
    return crossed;
}

/* The next crossing to tell; false if there is none, or another thread is telling. `telling`: this one is. */
static bool next_crossing(strata_budget_account *account, bool *telling, budget_crossing *crossing)
{
    strata_lock_take(&account->state_lock);
    bool mine = *telling || !account->telling, any = mine && account->told != account->noted;
    if (any)
        *crossing = account->crossings[account->told++ % BUDGET_CROSSINGS];
    if (mine)
        account->telling = *telling = any;
    strata_lock_release(&account->state_lock);
    return any;
}

/* The call in which a mark is passed may be hushed. */
static void call_back(strata_budget_account *account, const budget_crossing *crossing)
{
    strata_error_aside aside;
    strata_error_set_aside(&aside);
    account->soft_callback(account, crossing->above, (size_t)crossing->in_use, account->soft_data);
    strata_error_take_back(&aside);
}

static void tell(strata_budget_account *account)
{
    bool crossed = false, telling = false;
    budget_crossing crossing;
    for (unsigned noted = 0; noted < BUDGET_CROSSINGS && has_to_tell(account) && note_crossing(account); noted++)
        crossed = true;
    while (crossed && next_crossing(account, &telling, &crossing))
        if (account->soft_callback)
            call_back(account, &crossing);
}

/* Whichever thread frees a block, it is told to the account that the block was charged to. */
__attribute__((noinline)) void budget_tell_marks(budget *self)
{
    tell(&self->base);
    for (budget_page page = {0}; budget_list_next(self, has_to_tell, &page);)
        for (size_t i = 0; i < page.count; i++)
            tell(page.accounts[i]);
}
