/* budget: a hard limit in bytes. Requests are charged to the thread's account and its parents; completions give the
 * bytes back. */
#include "resources/budget/thread_quota.h"

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/stack/default_operations.h"
#include "resources/budget/deadlock.h"
#include "resources/budget/shared.h"

static strata_resource *find_charging(budget *self)
{
    strata_resource *charging = strata_resource_charging(self->resource.upstream);
    atomic_store_explicit(&self->charging, charging, memory_order_relaxed);
    atomic_store_explicit(&self->charges, charging->ops->charge_table, memory_order_relaxed);
    return charging;
}

static inline strata_status charge_of(budget *self, const strata_request *request, size_t *bytes)
{
    strata_resource *charging = atomic_load_explicit(&self->charging, memory_order_relaxed);
    if (__builtin_expect(!charging, 0))
        charging = find_charging(self);
    return charging->ops->charge(charging, request, bytes);
}

/* Asks for a charge; 0 also for an error. */
static __attribute__((noinline)) uint64_t ask_plain_charge(budget *self, size_t bytes, CUstream stream)
{
    size_t charge;
    const strata_request request = {.bytes = bytes, .stream = stream};
    return charge_of(self, &request, &charge) == STRATA_SUCCESS ? charge : 0;
}

/* The charge of a request with no alignment; 0 also for an error. */
static inline uint64_t plain_charge(budget *self, size_t bytes, CUstream stream)
{
    const strata_charge_table *charges = atomic_load_explicit(&self->charges, memory_order_relaxed);
    const size_t index = (bytes - 1) / STRATA_CHARGE_UNIT;
    return __builtin_expect(charges && index < charges->count, 1) ? (uint64_t)charges->units[index] * STRATA_CHARGE_UNIT
                                                                  : ask_plain_charge(self, bytes, stream);
}

/* At least 1 for a block with bytes: with a charge of 0 the account could be freed before the block. */
static inline uint64_t least_charge(const strata_request *request, size_t bytes)
{
    return bytes || !request->bytes ? bytes : 1;
}

/* The account that the thread has entered, else the base. */
static inline strata_budget_account *current_account(budget *self)
{
    return __builtin_expect(budget_special(self) & BUDGET_ENTERED, 0) ? budget_entered_account(self) : &self->base;
}

static inline strata_budget_account *account_for(budget *self, const strata_request *request)
{
    strata_budget_account *named = request->account;
    return __builtin_expect(named != NULL, 0) && named->layer == self ? named : current_account(self);
}

/* ---- allocating ---- */

/* A block without identity has zero bytes and no completion. */
static inline strata_made allocate_charged(budget *self, strata_budget_account *account, const strata_request *request,
                                           uint64_t bytes, strata_block *out)
{
    strata_resource *below = self->resource.upstream;
    const strata_made made = below->ops->allocate_own(below, request, out);
    if (__builtin_expect(made.entry != NULL, 1))
        budget_record_charge(self, made.entry, out, account, bytes);
    budget_finish(account, bytes, !made.entry);
    return made;
}

static __attribute__((noinline)) strata_made undo(budget *self, uint64_t bytes, strata_made made)
{
    budget_finish(&self->base, bytes, true);
    return made;
}

/* Allocates after budget_charge_fast. */
static inline strata_made allocate_fast(budget *self, budget_slot *slot, const strata_request *request, uint64_t bytes,
                                        strata_block *out)
{
    strata_resource *below = self->resource.upstream;
    const strata_made made = below->ops->allocate_own(below, request, out);
    if (__builtin_expect(!made.entry, 0))
        return undo(self, bytes, made);
    budget_record_write(self, made.entry, &self->base, bytes);
    budget_slot_clear_flight(slot);
    return (strata_made){STRATA_SUCCESS, made.entry};
}

static __attribute__((noinline)) strata_made allocate_slow(budget *self, budget_retry *retry, strata_block *out)
{
    bool done;
    const int cancel = strata_cancel_forbid(); /* it waits, and is in the list of those that do */
    *out = (strata_block){0};
    strata_made made = {budget_retry_charge(self, retry, out, &done), NULL};
    if (made.status == STRATA_SUCCESS && !done)
        made = allocate_charged(self, retry->account, retry->request, retry->bytes, out);
    else if (made.status == STRATA_SUCCESS)
        made.entry = strata_table_lookup(strata_resource_table(&self->resource), out->id);
    budget_notify(self);
    strata_cancel_restore(cancel);
    return made;
}

static bool is_account_of(const strata_stack *stack, const strata_request *request)
{
    return request->account->layer->resource.stack == stack;
}

static __attribute__((cold)) strata_made refuse_account(budget *self, const strata_request *request, strata_block *out)
{
    *out = (strata_block){0};
    strata_status status =
        strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\": the request names the account \"%s\" of another stack",
                    self->base.name, request->account->name);
    strata_request_refused(&self->resource, request, status);
    return (strata_made){status, NULL};
}

static __attribute__((noinline)) strata_made allocate_general(budget *self, const strata_request *request,
                                                              uint64_t bytes, strata_block *out)
{
    if (request->account && !is_account_of(self->resource.stack, request))
        return refuse_account(self, request, out);
    strata_budget_account *account = account_for(self, request), *failing;
    int64_t wait_left = budget_in_flight_wait_ns;
    budget_slot *slot = account->fast ? budget_charge_fast(account, bytes) : NULL;
    if (slot) {
        const strata_made made = allocate_fast(self, slot, request, bytes, out);
        budget_notify(self);
        return made;
    }
    if (budget_charge(account, bytes, &wait_left, &failing)) {
        const strata_made made = allocate_charged(self, account, request, bytes, out);
        budget_notify(self);
        return made;
    }
    budget_retry retry = {
        .account = account, .request = request, .bytes = bytes, .failing = failing, .wait_left = wait_left};
    return allocate_slow(self, &retry, out);
}

static __attribute__((cold)) strata_made refuse_charge(budget *self, const strata_request *request, strata_block *out,
                                                       strata_status status)
{
    *out = (strata_block){0};
    strata_request_refused(&self->resource, request, status);
    return (strata_made){status, NULL};
}

static inline __attribute__((always_inline)) strata_made allocate(budget *self, const strata_request *request,
                                                                  strata_block *out)
{
    size_t charge;
    const strata_status status = charge_of(self, request, &charge);
    if (__builtin_expect(status != STRATA_SUCCESS, 0))
        return refuse_charge(self, request, out, status);
    const uint64_t bytes = charge;
    const bool plain = bytes && !request->account && !budget_special(self);
    budget_slot *slot = __builtin_expect(plain, 1) ? budget_charge_fast(&self->base, bytes) : NULL;
    if (__builtin_expect(!slot, 0))
        return allocate_general(self, request, least_charge(request, bytes), out);
    return allocate_fast(self, slot, request, bytes, out);
}

static strata_status budget_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    return allocate((budget *)resource, request, out).status;
}

static strata_made budget_allocate_own(strata_resource *resource, const strata_request *request, strata_block *out)
{
    return allocate((budget *)resource, request, out);
}

/* Allocates where the thread has no quota for it, or the layer's charge is special. */
static __attribute__((noinline)) strata_made allocate_plain_general(budget *self, size_t bytes, CUstream stream,
                                                                    uint64_t charge, strata_block *out)
{
    if (!charge)
        return strata_allocate_by_request(&self->resource, bytes, stream, out);
    const strata_request request = {.bytes = bytes, .stream = stream};
    const strata_made made = allocate_general(self, &request, charge, out);
    if (made.status != STRATA_SUCCESS)
        *out = (strata_block){0};
    return made;
}

static strata_made budget_allocate_plain(strata_resource *resource, size_t bytes, CUstream stream, strata_block *out)
{
    budget *self = (budget *)resource;
    const uint64_t charge = plain_charge(self, bytes, stream);
    const bool plain = charge && !budget_special(self);
    budget_slot *slot = __builtin_expect(plain, 1) ? budget_charge_fast(&self->base, charge) : NULL;
    if (__builtin_expect(!slot, 0))
        return allocate_plain_general(self, bytes, stream, charge, out);
    strata_resource *below = resource->upstream;
    const strata_made made = below->ops->allocate_plain(below, bytes, stream, out);
    if (__builtin_expect(!made.entry, 0))
        return undo(self, charge, made);
    budget_record_write(self, made.entry, &self->base, charge);
    budget_slot_clear_flight(slot);
    return (strata_made){STRATA_SUCCESS, made.entry};
}

/* ---- freeing ---- */

/* Completes parts of blocks, and blocks of other accounts than a base that is not shared. A charge that a reset of the
 * device has ended is none any more, and its account may be gone. */
static __attribute__((noinline)) void complete_general(budget *self, budget_record *record,
                                                       strata_budget_account *account,
                                                       const strata_completion *completion)
{
    const uint64_t bytes = budget_record_take(record, completion->last ? UINT64_MAX : completion->bytes);
    if (completion->last)
        atomic_store_explicit(&record->account, NULL, memory_order_relaxed);
    if (bytes)
        budget_return_charge(self, record, account, bytes);
}

/* Charges are rounded up: the last completion gives back the rest. */
static void budget_completed(strata_resource *resource, const strata_completion *completion)
{
    budget *self = (budget *)resource;
    budget_record *record = budget_record_of(self, completion->id);
    strata_budget_account *account = record ? atomic_load_explicit(&record->account, memory_order_relaxed) : NULL;
    if (!account)
        return;
    const bool fast = account == &self->base && account->fast; /* no other account is, and one may be gone */
    if (__builtin_expect(!completion->last || !fast, 0)) {
        complete_general(self, record, account, completion);
        return;
    }
    const uint64_t bytes = budget_record_bytes(record);
    budget_record_set_bytes(record, 0);
    atomic_store_explicit(&record->account, NULL, memory_order_relaxed);
    if (__builtin_expect(!budget_release_fast(account, bytes), 0))
        budget_release(account, bytes);
}

/* Frees below a layer with a soft mark, or shared. */
static __attribute__((noinline)) strata_status deallocate_general(budget *self, const strata_block *block,
                                                                  CUstream stream)
{
    strata_resource *below = self->resource.upstream;
    budget_retirement retirement;
    if (self->base.shared)
        budget_retire_begin(self, block, stream, &retirement);
    strata_status status = below->ops->deallocate(below, block, stream);
    if (self->base.shared && status == STRATA_SUCCESS)
        budget_retire_end(self, stream, &retirement);
    budget_notify(self);
    return status;
}

static strata_status budget_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    budget *self = (budget *)resource;
    strata_resource *below = resource->upstream;
    if (__builtin_expect(budget_special(self) & (BUDGET_SHARED | BUDGET_MARKS), 0))
        return deallocate_general(self, block, stream);
    return below->ops->deallocate(below, block, stream);
}

/* The charge is read before, since the entry may be another block's afterwards. */
static strata_status budget_deallocate_own(strata_resource *resource, const strata_block *block, strata_entry *entry,
                                           strata_timeline *timeline)
{
    budget *self = (budget *)resource;
    strata_resource *below = resource->upstream;
    if (__builtin_expect(budget_special(self) & (BUDGET_SHARED | BUDGET_MARKS), 0))
        return strata_deallocate_plainly(resource, block, entry, timeline);
    const budget_record *record = budget_record_in(self, entry);
    strata_budget_account *account = atomic_load_explicit(&record->account, memory_order_relaxed);
    const uint64_t bytes = budget_record_bytes(record);
    const strata_status status = below->ops->deallocate_own(below, block, entry, timeline);
    if (__builtin_expect(status != STRATA_FREE_COMPLETE || !account, 0))
        return status;
    if (__builtin_expect(!account->fast || !budget_release_fast(account, bytes), 0))
        budget_release(account, bytes);
    return status;
}

static strata_status budget_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    budget *self = (budget *)resource;
    strata_resource *below = resource->upstream;
    strata_status status = below->ops->reap(below, mode, bytes);
    budget_notify(self);
    return status;
}

/* ---- the table ---- */

/* The figures of the account with the least left. */
static strata_status budget_snapshot(strata_resource *resource, strata_budget_snapshot *snapshot)
{
    budget *self = (budget *)resource;
    *snapshot = (strata_budget_snapshot){.remaining = SIZE_MAX};
    for (strata_budget_account *level = current_account(self); level; level = budget_above(level)) {
        strata_budget_usage usage;
        budget_usage(level, &usage);
        if (usage.remaining < snapshot->remaining || !snapshot->limit)
            *snapshot = (strata_budget_snapshot){usage.limit, usage.in_use, usage.remaining};
    }
    return STRATA_SUCCESS;
}

static void budget_destroy(strata_resource *resource)
{
    budget *self = (budget *)resource;
    budget_end_lost_charges(self); /* the process may have another stack with this budget */
    budget_list_destroy(self);
    budget_account_destroy(&self->base);
    strata_per_thread_destroy(&self->thread_accounts);
    strata_lock_destroy(&self->lock);
    strata_lock_destroy(&self->waiters_lock);
    strata_host_free(self);
}

/* ---- shared ---- */

static uint64_t shared_give_back(strata_resource *resource, uint64_t bytes, bool may_wait)
{
    (void)bytes, (void)may_wait;
    return budget_end_lost_charges((budget *)resource);
}

/* ---- with deadlocks found ---- */

static strata_status live_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_status status = budget_allocate(resource, request, out);
    if (status == STRATA_SUCCESS && out->id.generation)
        budget_note_holder((budget *)resource, out);
    return status;
}

static strata_status live_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    budget *self = (budget *)resource;
    const uint64_t holder = budget_forget_holder(self, block);
    strata_status status = budget_deallocate(resource, block, stream);
    budget_freed(self, block, holder, status == STRATA_SUCCESS);
    return status;
}

#define BUDGET_OPS(bytes, prefix, make, plain, end, back)                                                             \
    {                                                                                                                 \
        .size = sizeof(strata_resource_ops), .block_bytes = (bytes), .transparent = true, .name = "budget",           \
        .allocate = prefix##_allocate, .deallocate = prefix##_deallocate, .reap = budget_reap,                        \
        .budget = budget_snapshot, .completed = budget_completed, .destroy = budget_destroy, .values = budget_values, \
        .value_count = BUDGET_VALUES, .get_value = budget_get_value, .set_value = budget_set_value,                   \
        .describe = budget_describe, .allocate_own = (make), .allocate_plain = (plain), .deallocate_own = (end),      \
        .give_back = (back),                                                                                          \
    }

const strata_resource_ops budget_ops = BUDGET_OPS(offsetof(budget_record, tag_index), budget, budget_allocate_own,
                                                  budget_allocate_plain, budget_deallocate_own, NULL);
const strata_resource_ops budget_live_ops = BUDGET_OPS(sizeof(budget_record), live, NULL, NULL, NULL, NULL);
const strata_resource_ops budget_shared_ops = BUDGET_OPS(
    sizeof(budget_record), budget, budget_allocate_own, budget_allocate_plain, budget_deallocate_own, shared_give_back);

/* ---- public calls ---- */

strata_budget_account *strata_budget_base(strata_resource *resource)
{
    /* stacks copy the table */
    if (resource && resource->ops && resource->ops->destroy == budget_destroy)
        return &((budget *)resource)->base;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_base: the resource is not a budget");
    return NULL;
}

strata_status strata_budget_charge(strata_budget_account *account, size_t bytes, size_t *charge)
{
    if (!account || !charge)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_charge: account or charge is NULL");
    *charge = 0;
    if (!account->layer->resource.stack)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\" is not part of a stack", account->name);
    const strata_request request = {.bytes = bytes};
    const strata_status status = charge_of(account->layer, &request, charge);
    if (status == STRATA_SUCCESS)
        *charge = least_charge(&request, *charge);
    return status;
}
