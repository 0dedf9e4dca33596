/* The list of accounts. The next open or close frees closed accounts without charges and pins. */
#include "resources/budget/thread_quota.h"

#include "core/base/host_memory.h"
#include "resources/budget/shared.h"

#include <string.h>

void budget_account_init(strata_budget_account *account, budget *layer, strata_budget_account *parent,
                         const budget_terms *terms)
{
    account->layer = layer;
    account->parent = parent;
    account->reservation = terms->reservation;
    account->shared = terms->shared;
    account->depth = parent ? parent->depth + 1 : 0;
    strncpy(account->name, terms->name, BUDGET_NAME - 1);
    if (parent)
        memcpy(account->parent_name, parent->name, BUDGET_NAME);
    account->fast = !parent && !terms->shared;
    account->quotas_in_file = !parent && terms->shared && !terms->soft;
    atomic_init(&account->limit, terms->limit);
    atomic_init(&account->counts, !terms->shared);
    strata_spin_init(&account->counts_lock, STRATA_RANK_ACCOUNT_COUNTS);
    atomic_init(&account->free_quota, budget_capacity_of(terms->limit));
    atomic_init(&account->unreturned, terms->reservation ? terms->limit : 0);
    account->soft = terms->soft;
    account->soft_low = terms->soft_low;
    account->soft_callback = terms->soft_callback;
    account->soft_data = terms->soft_data;
    strata_per_thread_init(&account->slots, sizeof(budget_slot));
    if (account->fast || account->quotas_in_file)
        strata_per_thread_take_number(&account->slots);
    strata_barriers_open();
    strata_lock_init(&account->state_lock, STRATA_RANK_ACCOUNT_LOCK);
    pthread_cond_init(&account->unlocked, NULL);
}

void budget_account_destroy(strata_budget_account *account)
{
    shared_close(account->shared);
    strata_per_thread_destroy(&account->slots);
    pthread_cond_destroy(&account->unlocked);
    strata_lock_destroy(&account->state_lock);
}

static bool is_unused(strata_budget_account *account)
{
    if (!atomic_load_explicit(&account->closed, memory_order_acquire) || account->children)
        return false;
    bool none = account->reservation ? atomic_load_explicit(&account->unreturned, memory_order_acquire) == 0
                                     : budget_in_use(account) == 0;
    /* a thread that gives back the last bytes has a pin */
    return none && !atomic_load_explicit(&account->in_flight, memory_order_seq_cst) &&
           !atomic_load_explicit(&account->pins, memory_order_seq_cst);
}

void budget_list_sweep(budget *self)
{
    for (strata_budget_account **at = &self->accounts; *at;) {
        strata_budget_account *account = *at;
        if (!is_unused(account)) {
            at = &account->next;
            continue;
        }
        *at = account->next;
        budget_account_destroy(account);
        strata_host_free(account);
    }
}

void budget_list_destroy(budget *self)
{
    for (strata_budget_account *account = self->accounts, *next; account; account = next) {
        next = account->next;
        budget_account_destroy(account);
        strata_host_free(account);
    }
}

/* The record's account may be gone: it is valid only if the list has it. */
strata_budget_account *budget_pin_source(budget *self, strata_block_id of)
{
    const budget_record *record = budget_record_of(self, of);
    strata_budget_account *source = record ? atomic_load_explicit(&record->account, memory_order_relaxed) : NULL;
    if (!source)
        return NULL;
    strata_lock_take(&self->lock);
    strata_budget_account *found = source == &self->base ? source : self->accounts;
    while (found && found != source)
        found = found->next;
    if (found)
        budget_pin(found);
    strata_lock_release(&self->lock);
    return found;
}

bool budget_list_next(budget *self, bool (*wanted)(const strata_budget_account *account), budget_page *page)
{
    strata_lock_take(&self->lock);
    strata_budget_account *account = page->count ? page->accounts[page->count - 1]->next : self->accounts;
    for (; page->count; page->count--)
        budget_unpin(page->accounts[page->count - 1]);
    for (; account && page->count < sizeof page->accounts / sizeof page->accounts[0]; account = account->next) {
        if (wanted && !wanted(account))
            continue;
        budget_pin(account);
        page->accounts[page->count++] = account;
    }
    strata_lock_release(&self->lock);
    return page->count != 0;
}
