/* Public calls for accounts. */
#include "resources/budget/take.h"
#include "resources/budget/thread_quota.h"

#include "core/base/cancel.h"
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "resources/budget/shared_quota.h"

#include <string.h>

strata_status budget_read_terms(const strata_device *device, const char *name, const strata_amount amounts[3],
                                budget_terms *terms)
{
    for (size_t i = 0; i < 3; i++)
        if (amounts[i].percent != 0 && !(amounts[i].percent > 0 && amounts[i].percent <= 100))
            return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: invalid share %g%%: expected above 0, at most 100",
                               amounts[i].percent);
    terms->name = name;
    terms->limit = strata_amount_bytes(&amounts[0], device->info.total_bytes);
    terms->soft = strata_amount_bytes(&amounts[1], device->info.total_bytes);
    terms->soft_low = strata_amount_bytes(&amounts[2], device->info.total_bytes);
    if (!terms->soft_low)
        terms->soft_low = terms->soft - terms->soft / 10;
    if (strlen(name) >= BUDGET_NAME)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: account name longer than %d bytes: \"%.64s...\"",
                           BUDGET_NAME - 1, name);
    uint64_t highest = terms->limit > terms->soft ? terms->limit : terms->soft;
    if (highest > (uint64_t)INT64_MAX / 2)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\": limit or soft mark of %s is above 2^62 bytes",
                           name, strata_size_text(highest).text);
    if ((terms->limit && terms->soft > terms->limit) || terms->soft_low > terms->soft)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "budget \"%s\": the soft mark (%s) exceeds the limit (%s), or the low mark (%s) the soft "
                           "mark",
                           name, strata_size_text(terms->soft).text, strata_size_text(terms->limit).text,
                           strata_size_text(terms->soft_low).text);
    return STRATA_SUCCESS;
}

__attribute__((noinline)) strata_budget_account *budget_entered_account(budget *self)
{
    strata_thread *thread = strata_thread_self();
    const budget_thread_account *own = strata_per_thread_self(&self->thread_accounts, thread);
    return own && own->serial == thread->serial ? own->account : &self->base;
}

static strata_status open_account(strata_budget_account *parent, const budget_terms *terms, strata_budget_account **out)
{
    budget *self = parent->layer;
    if (parent->depth + 1 >= BUDGET_DEPTH)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\": accounts can be nested at most %d deep",
                           terms->name, BUDGET_DEPTH);
    strata_budget_account *account = strata_host_zalloc_aligned(64, sizeof *account);
    if (!account)
        return strata_fail_host_memory("an account of a budget");
    budget_account_init(account, self, parent, terms);
    strata_lock_take(&self->lock);
    budget_list_sweep(self);
    account->next = self->accounts;
    self->accounts = account;
    parent->children++;
    strata_lock_release(&self->lock);
    if (terms->soft)
        atomic_fetch_or_explicit(&self->special, BUDGET_MARKS, memory_order_relaxed);
    *out = account;
    return STRATA_SUCCESS;
}

strata_status strata_budget_account_open(strata_budget_account *parent, const strata_budget_account_options *options,
                                         strata_budget_account **out)
{
    if (!parent || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_account_open: parent or out is NULL");
    *out = NULL;
    strata_budget_account_options read;
    budget_terms terms = {0};
    strata_status status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        status = strata_options_read(&read, sizeof read, options, "strata_budget_account_options");
    if (status != STRATA_SUCCESS)
        return status;
    const strata_amount amounts[] = {read.limit, read.soft, read.soft_low};
    status = budget_read_terms(parent->layer->device, read.name ? read.name : "account", amounts, &terms);
    terms.soft_callback = read.soft_callback;
    terms.soft_data = read.soft_data;
    return status == STRATA_SUCCESS ? open_account(parent, &terms, out) : status;
}

static __attribute__((noinline)) strata_status charge_again(budget_retry *retry)
{
    bool done;
    const int cancel = strata_cancel_forbid(); /* it waits, and is in the list of those that do */
    const strata_status status = budget_retry_charge(retry->account->layer, retry, NULL, &done);
    strata_cancel_restore(cancel);
    return status;
}

/* Charges an account, with all steps that a request tries; in flight until budget_finish(). */
static strata_status charge(strata_budget_account *account, size_t bytes, const _Atomic bool *wanted)
{
    budget_retry retry = {.account = account, .bytes = bytes, .wait_left = budget_in_flight_wait_ns, .wanted = wanted};
    return budget_charge(account, bytes, &retry.wait_left, &retry.failing) ? STRATA_SUCCESS : charge_again(&retry);
}

static __attribute__((noinline)) strata_status take_slow(strata_budget_account *account, size_t bytes,
                                                         const _Atomic bool *wanted)
{
    strata_status status = strata_check_driver();
    if (status == STRATA_SUCCESS && account->quotas_in_file && budget_take_shared_quota(account, bytes))
        return STRATA_SUCCESS;
    if (status == STRATA_SUCCESS)
        status = charge(account, bytes, wanted);
    if (status == STRATA_SUCCESS)
        budget_finish(account, bytes, false);
    budget_notify(account->layer);
    return status;
}

/* The fast path: most often the thread has quota. */
strata_status budget_take(strata_budget_account *account, size_t bytes)
{
    const bool open = strata_driver_is_open();
    if (account->quotas_in_file && open && shared_quota_take(strata_per_thread_if_present(&account->slots), bytes))
        return STRATA_SUCCESS;
    budget_slot *slot = account->fast && open ? budget_charge_fast(account, bytes) : NULL;
    if (__builtin_expect(!slot, 0))
        return take_slow(account, bytes, NULL);
    budget_slot_clear_flight(slot);
    budget_notify(account->layer);
    return STRATA_SUCCESS;
}

strata_status budget_take_while(strata_budget_account *account, size_t bytes, const _Atomic bool *wanted)
{
    return take_slow(account, bytes, wanted);
}

void budget_give(strata_budget_account *account, size_t bytes)
{
    if (strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    if (account->quotas_in_file && shared_quota_give(strata_per_thread_if_present(&account->slots), bytes))
        return;
    if (__builtin_expect(!account->fast || !budget_release_fast(account, bytes), 0))
        budget_release(account, bytes);
    budget_notify(account->layer);
}

strata_status strata_budget_reserve(strata_budget_account *parent, size_t bytes, const char *name,
                                    strata_budget_account **out)
{
    if (!parent || !out || !bytes || bytes > (size_t)INT64_MAX / 2)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_budget_reserve: parent or out is NULL, or bytes is 0 or above 2^62");
    *out = NULL;
    budget *self = parent->layer;
    budget_terms terms = {0};
    const strata_amount amounts[] = {{.bytes = bytes}, {0}, {0}};
    strata_status status = strata_check_driver();
    if (status == STRATA_SUCCESS)
        status = budget_read_terms(self->device, name ? name : "reservation", amounts, &terms);
    if (status == STRATA_SUCCESS && !self->resource.stack)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE,
                             "budget \"%s\": a reservation needs a budget that is part of a stack", terms.name);
    if (status != STRATA_SUCCESS)
        return status;
    terms.reservation = true;
    status = charge(parent, bytes, NULL);
    if (status == STRATA_SUCCESS) {
        status = open_account(parent, &terms, out);
        budget_finish(parent, bytes, status != STRATA_SUCCESS);
    }
    budget_notify(self);
    return status;
}

strata_status strata_budget_account_close(strata_budget_account *account)
{
    strata_status status = strata_check_not_forked();
    if (!account || status != STRATA_SUCCESS)
        return status;
    if (!account->parent)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "the base account of a budget cannot be closed; it ends with its layer");
    budget *self = account->layer;
    strata_budget_account *parent = account->parent;
    strata_lock_take(&self->lock);
    uint32_t children = account->children;
    strata_lock_release(&self->lock);
    if (children)
        return strata_fail(STRATA_ERROR_BUSY, "budget \"%s\": accounts below it are still open: %u", account->name,
                           children);
    budget_pin(account);
    atomic_store_explicit(&account->closed, true, memory_order_seq_cst);
    if (account->reservation)
        budget_return_to_parents(account);
    budget_unpin(account);
    strata_lock_take(&self->lock);
    parent->children--; /* may be closed now */
    budget_list_sweep(self);
    strata_lock_release(&self->lock);
    budget_notify(self);
    return STRATA_SUCCESS;
}

strata_status strata_budget_enter(strata_budget_account *account, strata_budget_account **previous)
{
    if (!account)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_enter: account is NULL");
    strata_status status = strata_check_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    budget *self = account->layer;
    budget_thread_account *own = strata_per_thread_self(&self->thread_accounts, strata_thread_self());
    if (!own)
        return strata_fail_host_memory("a thread's place in a budget");
    if (previous)
        *previous = budget_entered_account(self);
    own->account = account;
    own->serial = strata_thread_self()->serial;
    if (!(budget_special(self) & BUDGET_ENTERED))
        atomic_fetch_or_explicit(&self->special, BUDGET_ENTERED, memory_order_relaxed);
    return STRATA_SUCCESS;
}

strata_status strata_budget_account_usage(strata_budget_account *account, strata_budget_usage *usage)
{
    if (!account || !usage)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_account_usage: account or usage is NULL");
    *usage = (strata_budget_usage){0};
    strata_status status = strata_check_not_forked();
    if (status == STRATA_SUCCESS)
        budget_usage(account, usage);
    return status;
}

static strata_status change_limit(strata_budget_account *account, uint64_t limit)
{
    if (account->shared)
        return shared_set_limit(account->shared, limit);
    bool taken = budget_account_lock(account);
    budget_begin_to_count(account);
    int64_t change =
        budget_capacity_of(limit) - budget_capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed));
    atomic_store_explicit(&account->limit, limit, memory_order_relaxed);
    atomic_fetch_add_explicit(&account->free_quota, change, memory_order_acq_rel);
    if (taken)
        budget_account_unlock(account);
    return STRATA_SUCCESS;
}

strata_status strata_budget_set_limit(strata_budget_account *account, size_t bytes)
{
    if (!account || account->reservation)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_set_limit: account is NULL or a reservation");
    if (bytes > (size_t)INT64_MAX / 2)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: limit of %s is above 2^62 bytes",
                           strata_size_text(bytes).text);
    strata_status status = strata_check_not_forked();
    return status == STRATA_SUCCESS ? change_limit(account, bytes) : status;
}
