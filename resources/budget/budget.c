/* budget: a hard limit in bytes. The layer charges each request to its thread's account and those above it, and gives
 * the bytes back when the owner reports that they are free; what an account is stands in resources/budget/account.h.
 *
 * A request that does not fit tries, holding nothing: what has finished, what is retired and surely reused, what layers
 * below hold back, and waiting. Each time it is charged again from the beginning. */
#include <strata/budget.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/stack/stack.h"
#include "resources/budget/internal.h"
#include "resources/budget/shared.h"
#include "resources/builtin.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

/* The layer's bytes of a block: whose it is. Written by the thread that allocates, before anybody has the block, and by
 * completions, of which the owner reports one at a time. */
typedef struct budget_bytes {
    _Atomic(strata_budget_account *) account; /* also read by who asks whether the memory could be reused */
    uint64_t charge;                          /* what is not given back yet */
    uint64_t tag_place;                       /* in a shared account's file; not there where there is none */
} budget_bytes;

/* ---- what a request costs, and whom ---- */

static strata_resource *find_charging(budget *self)
{
    strata_resource *charging = strata_resource_charging(self->resource.upstream);
    atomic_store_explicit(&self->charging, charging, memory_order_relaxed);
    return charging;
}

static inline strata_status charge_of(budget *self, const strata_request *request, size_t *bytes)
{
    strata_resource *charging = atomic_load_explicit(&self->charging, memory_order_relaxed);
    if (__builtin_expect(!charging, 0))
        charging = find_charging(self);
    const strata_status status = charging->ops->charge(charging, request, bytes);
    if (__builtin_expect(status == STRATA_SUCCESS && !*bytes && request->bytes,
                         0)) /* or the account could end before the block */
        *bytes = 1;
    return status;
}

static __attribute__((noinline)) strata_budget_account *entered_account(budget *self)
{
    strata_thread *thread = strata_thread_self();
    const budget_place *place = strata_per_thread_self(&self->places, thread);
    return place && place->serial == thread->serial ? place->account : &self->base;
}

static inline strata_budget_account *current_account(budget *self)
{
    return __builtin_expect(atomic_load_explicit(&self->entered, memory_order_relaxed), 0) ? entered_account(self)
                                                                                           : &self->base;
}

static void unpin(strata_budget_account *account)
{
    atomic_fetch_sub_explicit(&account->pins, 1, memory_order_release);
}

/* Accounts whose soft marks have something to say, pinned, so that they are there when it is said: those behind `last`,
 * which is pinned too; NULL: from the first. */
static size_t find_telling(budget *self, const strata_budget_account *last, strata_budget_account **found, size_t most)
{
    size_t count = 0;
    strata_lock_take(&self->lock);
    strata_budget_account *account = last ? last->next : self->accounts;
    for (; account && count < most; account = account->next) {
        if (!budget_has_to_tell(account))
            continue;
        atomic_fetch_add_explicit(&account->pins, 1, memory_order_seq_cst);
        found[count++] = account;
    }
    strata_lock_release(&self->lock);
    return count;
}

/* Whichever thread frees a block, it is told to the account that the block was charged to. */
static __attribute__((noinline)) void tell_marks(budget *self)
{
    enum { AT_A_TIME = 16 };
    strata_budget_account *found[AT_A_TIME], *last = NULL;
    size_t count;
    budget_tell(&self->base);
    do {
        count = find_telling(self, last, found, AT_A_TIME);
        if (last)
            unpin(last);
        last = count == AT_A_TIME ? found[count - 1] : NULL; /* keeps its place in the list */
        for (size_t i = 0; i < count; i++) {
            budget_tell(found[i]);
            if (found[i] != last)
                unpin(found[i]);
        }
    } while (last);
}

static inline void tell(budget *self)
{
    if (__builtin_expect(atomic_load_explicit(&self->marks, memory_order_relaxed), 0))
        tell_marks(self);
}

/* ---- allocating ---- */

static inline budget_bytes *bytes_in(const budget *self, strata_entry *entry)
{
    return (budget_bytes *)(void *)((char *)entry + self->resource.block_offset);
}

static inline budget_bytes *bytes_of(const budget *self, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), id);
    return entry ? bytes_in(self, entry) : NULL;
}

static inline budget_bytes *write_charge(budget *self, const strata_block *block, strata_budget_account *account,
                                         uint64_t bytes)
{
    budget_bytes *kept = bytes_in(self, strata_table_entry(strata_resource_table(&self->resource), block->id.slot));
    atomic_store_explicit(&kept->account, account, memory_order_relaxed);
    kept->charge = bytes;
    return kept;
}

static inline void note_charge(budget *self, const strata_block *block, strata_budget_account *account, uint64_t bytes)
{
    budget_bytes *kept = write_charge(self, block, account, bytes);
    if (__builtin_expect(self->base.shared != NULL, 0)) {
        kept->tag_place = shared_tag_place(self->base.shared, block->tag);
        shared_count(self->base.shared, (uint32_t)kept->tag_place, (int64_t)bytes);
    }
}

/* Passes a request on that was charged. A block without identity is one of zero bytes: nothing will report its end. */
static inline strata_status allocate_charged(budget *self, strata_budget_account *account,
                                             const strata_request *request, uint64_t bytes, strata_block *out)
{
    strata_resource *below = self->resource.upstream;
    strata_status status = below->ops->allocate(below, request, out);
    bool made = status == STRATA_SUCCESS && out->id.generation;
    if (__builtin_expect(made, 1))
        note_charge(self, out, account, bytes);
    budget_decide(account, bytes, !made);
    return status;
}

/* The end of one that was charged to its thread's credit and came to no block, or to one that marks are to hear of. */
static __attribute__((noinline)) strata_status take_back_or_tell(budget *self, uint64_t bytes, bool made,
                                                                 strata_status status)
{
    if (!made)
        budget_decide(&self->base, bytes, true);
    tell(self);
    return status;
}

/* The same as allocate_charged for one that was charged to its thread's credit at the base. */
static inline strata_status allocate_quickly(budget *self, budget_cell *cell, const strata_request *request,
                                             uint64_t bytes, strata_block *out)
{
    strata_resource *below = self->resource.upstream;
    const strata_status status = below->ops->allocate(below, request, out);
    const bool made = status == STRATA_SUCCESS && out->id.generation;
    if (__builtin_expect(made, 1)) {
        write_charge(self, out, &self->base, bytes);
        budget_leave_flight(cell);
    }
    if (__builtin_expect(!made || atomic_load_explicit(&self->marks, memory_order_relaxed), 0))
        return take_back_or_tell(self, bytes, made, status);
    return STRATA_SUCCESS;
}

/* What is tried for a request that does not fit, in this order. */
typedef enum budget_try {
    TRY_FINISHED,
    TRY_REUSE,
    TRY_HELD_BACK,
    TRY_WAIT,
} budget_try;

typedef struct budget_attempt {
    strata_budget_account *account;
    const strata_request *request; /* NULL: a promise */
    uint64_t bytes;
    strata_budget_account *failing; /* where it did not fit */
    budget_try next;
    bool waited;
    int64_t patience;  /* with requests of others that are not decided; nanoseconds */
    uint64_t deadline; /* of waiting, 0: not begun */
    long pause;        /* nanoseconds that the last pause of waiting took */
} budget_attempt;

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * 1000000000 + (uint64_t)time.tv_nsec;
}

/* What these do not achieve is no failure of the request. */
static void reap_below(budget *self, strata_reap_mode mode)
{
    size_t bytes;
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    below->ops->reap(below, mode, &bytes);
    strata_error_suppress_end(false);
}

/* Keeps everything that is reserved, so that only what layers hold back comes free. */
static void trim_below(budget *self)
{
    size_t bytes;
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    below->ops->trim(below, SIZE_MAX, &bytes);
    strata_error_suppress_end(false);
}

/* Waits for others to free. False when the time is over. */
static bool pause_for_others(budget *self, budget_attempt *attempt)
{
    enum { SHORTEST = 20000, LONGEST = 1000000 };
    uint64_t now = now_ns();
    if (!attempt->deadline) {
        if (__builtin_add_overflow(now, self->timeout, &attempt->deadline) || !self->timeout)
            attempt->deadline = UINT64_MAX;
        attempt->pause = SHORTEST / 2;
    }
    if (now >= attempt->deadline)
        return false;
    attempt->pause = attempt->pause < LONGEST / 2 ? 2 * attempt->pause : LONGEST;
    nanosleep(&(struct timespec){.tv_nsec = attempt->pause}, NULL);
    reap_below(self, STRATA_REAP_FINISHED);
    if (attempt->pause >= LONGEST / 2) /* what was freed meanwhile may be held back below */
        trim_below(self);
    return true;
}

/* False when nothing is left to wait for. */
static bool wait_as_told(budget *self, budget_attempt *attempt)
{
    if (self->wait == STRATA_BUDGET_WAIT_NONE || (self->wait == STRATA_BUDGET_WAIT_RETIRED && attempt->waited))
        return false;
    if (!attempt->waited)
        atomic_fetch_add_explicit(&attempt->failing->waited, 1, memory_order_relaxed);
    attempt->waited = true;
    if (self->wait == STRATA_BUDGET_WAIT_LIVE)
        return pause_for_others(self, attempt);
    reap_below(self, STRATA_REAP_WAIT);
    return true;
}

/* False if it cannot be given back. */
static bool give_back_quietly(budget *self, strata_block *block, CUstream stream)
{
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    strata_status status = below->ops->deallocate(below, block, stream);
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS)
        *block = (strata_block){0};
    return status == STRATA_SUCCESS;
}

/* The account that a block is charged to, pinned. The block may come to its end meanwhile, and the account too: it is
 * one only if it still stands among the layer's. */
static strata_budget_account *pin_source(budget *self, strata_block_id of)
{
    const budget_bytes *kept = bytes_of(self, of);
    strata_budget_account *source = kept ? atomic_load_explicit(&kept->account, memory_order_relaxed) : NULL;
    if (!source)
        return NULL;
    strata_lock_take(&self->lock);
    strata_budget_account *found = source == &self->base ? source : self->accounts;
    while (found && found != source)
        found = found->next;
    if (found)
        atomic_fetch_add_explicit(&found->pins, 1, memory_order_seq_cst);
    strata_lock_release(&self->lock);
    return found;
}

/* Serves the request from memory that is retired and counted already. False if that is not to be had; the owner is
 * asked again with the turns taken, since others may have had that memory meanwhile. */
static bool allocate_reused(budget *self, budget_attempt *attempt, strata_block *out, strata_status *status)
{
    size_t reusable = 0;
    strata_block_id of;
    strata_resource *below = self->resource.upstream;
    if (!attempt->request || below->ops->reusable(below, attempt->request, &reusable, &of) != STRATA_SUCCESS)
        return false;
    strata_budget_account *source = reusable ? pin_source(self, of) : NULL;
    bool begun = source && budget_reuse_begin(attempt->account, attempt->bytes, source, reusable, &attempt->patience);
    if (source)
        unpin(source);
    if (!begun)
        return false;
    strata_block_id now = of;
    bool still = below->ops->reusable(below, attempt->request, &reusable, &now) == STRATA_SUCCESS && reusable &&
                 memcmp(&now, &of, sizeof now) == 0 &&
                 atomic_load_explicit(&bytes_of(self, of)->account, memory_order_relaxed) == source;
    *status = still ? below->ops->allocate(below, attempt->request, out) : STRATA_ERROR_OUT_OF_BUDGET;
    bool made = *status == STRATA_SUCCESS;
    if (made)
        note_charge(self, out, attempt->account, attempt->bytes);
    bool fits = budget_reuse_end(attempt->account, attempt->bytes, !made);
    if (made && !fits) /* the owner took other memory than it said; what cannot be given back is better had than lost */
        fits = !give_back_quietly(self, out, attempt->request->stream);
    return made ? fits : still;
}

static __attribute__((cold)) strata_status refuse(const budget_attempt *attempt)
{
    strata_budget_account *failing = attempt->failing;
    strata_budget_usage usage;
    const char *advice = budget_advice(failing, attempt->bytes, attempt->deadline != 0);
    budget_usage(failing, &usage);
    atomic_fetch_add_explicit(&failing->refused, 1, memory_order_relaxed);
    strata_tag tag = attempt->request ? attempt->request->tag : 0;
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_BUDGET);
    error->requested = attempt->request ? attempt->request->bytes : (size_t)attempt->bytes;
    error->in_use = usage.in_use;
    error->remaining = usage.remaining;
    error->limit = usage.limit;
    error->tag = tag;
    char limits[80] = "no limit"; /* only where no account counts so much, or one has lost its limit just now */
    if (usage.limit)
        snprintf(limits, sizeof limits, "limit %zu, in use %zu, remaining %zu", usage.limit, usage.in_use,
                 usage.remaining);
    return strata_error_raise(error,
                              "budget \"%s\": %s of %zu bytes (tag \"%.100s\"), charged as %llu, does not fit: %s. %s",
                              failing->name, attempt->request ? "a request" : "a promise", error->requested,
                              strata_tag_name(tag), (unsigned long long)attempt->bytes, limits, advice);
}

/* Whether it fits nowhere, however long it waits; then that account is the failing one. */
static bool never_fits(budget_attempt *attempt)
{
    for (strata_budget_account *level = attempt->account; level; level = budget_above(level)) {
        if (!budget_never_fits(level, attempt->bytes))
            continue;
        attempt->failing = level;
        return true;
    }
    return false;
}

/* Tries what comes next; then the request is to be charged again. False when nothing is left. `done` with a block. */
static bool try_next(budget *self, budget_attempt *attempt, strata_block *out, strata_status *status, bool *done)
{
    switch (attempt->next) {
    case TRY_FINISHED:
        reap_below(self, STRATA_REAP_FINISHED);
        attempt->next = TRY_REUSE;
        return true;
    case TRY_REUSE:
        attempt->next = TRY_HELD_BACK;
        *done = allocate_reused(self, attempt, out, status);
        return true;
    case TRY_HELD_BACK: /* which may wait for the device */
        if (self->wait != STRATA_BUDGET_WAIT_NONE)
            trim_below(self);
        attempt->next = TRY_WAIT;
        return true;
    case TRY_WAIT:
        break;
    }
    return wait_as_told(self, attempt);
}

/* After the first charge failed. SUCCESS with *done false: it is charged now. Limits may change while it waits. */
static strata_status charge_slow(budget *self, budget_attempt *attempt, strata_block *out, bool *done)
{
    strata_status status = STRATA_SUCCESS;
    *done = false;
    while (!never_fits(attempt) && try_next(self, attempt, out, &status, done)) {
        if (*done)
            return status;
        if (budget_charge(attempt->account, attempt->bytes, &attempt->patience, &attempt->failing))
            return STRATA_SUCCESS;
    }
    return refuse(attempt);
}

static __attribute__((noinline)) strata_status allocate_slow(budget *self, budget_attempt *attempt, strata_block *out)
{
    bool done;
    *out = (strata_block){0};
    strata_status status = charge_slow(self, attempt, out, &done);
    if (status == STRATA_SUCCESS && !done)
        status = allocate_charged(self, attempt->account, attempt->request, attempt->bytes, out);
    tell(self);
    return status;
}

static __attribute__((noinline)) strata_status allocate_otherwise(budget *self, const strata_request *request,
                                                                  uint64_t bytes, strata_block *out)
{
    strata_budget_account *account = current_account(self), *failing;
    int64_t patience = budget_patience_ns;
    if (budget_charge(account, bytes, &patience, &failing)) {
        strata_status status = allocate_charged(self, account, request, bytes, out);
        tell(self);
        return status;
    }
    budget_attempt attempt = {
        .account = account, .request = request, .bytes = bytes, .failing = failing, .patience = patience};
    return allocate_slow(self, &attempt, out);
}

static strata_status budget_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    budget *self = (budget *)resource;
    size_t bytes;
    strata_status status = charge_of(self, request, &bytes);
    if (__builtin_expect(status != STRATA_SUCCESS, 0)) {
        *out = (strata_block){0};
        return status;
    }
    const bool base = current_account(self) == &self->base;
    budget_cell *cell = base ? budget_charge_quickly(&self->base, bytes) : NULL;
    return __builtin_expect(cell != NULL, 1) ? allocate_quickly(self, cell, request, bytes, out)
                                             : allocate_otherwise(self, request, bytes, out);
}

/* ---- freeing ---- */

/* In parts, or at a shared account. */
static __attribute__((noinline)) void complete_otherwise(budget *self, budget_bytes *kept,
                                                         strata_budget_account *account,
                                                         const strata_completion *completion)
{
    uint64_t bytes = kept->charge;
    if (!completion->last && completion->bytes < bytes)
        bytes = completion->bytes;
    kept->charge -= bytes;
    if (self->base.shared)
        shared_count(self->base.shared, (uint32_t)kept->tag_place, -(int64_t)bytes);
    if (completion->last)
        atomic_store_explicit(&kept->account, NULL, memory_order_relaxed);
    budget_release(account, bytes);
}

/* The owner says that so many bytes of a block are free. The last report gives back all that is left: the charge was
 * rounded up. */
static void budget_completed(strata_resource *resource, const strata_completion *completion)
{
    budget *self = (budget *)resource;
    budget_bytes *kept = bytes_of(self, completion->id);
    strata_budget_account *account = kept ? atomic_load_explicit(&kept->account, memory_order_relaxed) : NULL;
    if (!account)
        return;
    const uint64_t bytes = kept->charge;
    if (__builtin_expect(!completion->last || self->base.shared, 0)) {
        complete_otherwise(self, kept, account, completion);
        return;
    }
    kept->charge = 0;
    atomic_store_explicit(&kept->account, NULL, memory_order_relaxed);
    if (__builtin_expect(!budget_release_quickly(account, bytes), 0))
        budget_release(account, bytes);
}

static __attribute__((noinline)) strata_status deallocate_and_tell(budget *self, const strata_block *block,
                                                                   CUstream stream)
{
    strata_resource *below = self->resource.upstream;
    strata_status status = below->ops->deallocate(below, block, stream);
    tell_marks(self);
    return status;
}

static strata_status budget_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    budget *self = (budget *)resource;
    strata_resource *below = resource->upstream;
    if (__builtin_expect(atomic_load_explicit(&self->marks, memory_order_relaxed), 0))
        return deallocate_and_tell(self, block, stream);
    return below->ops->deallocate(below, block, stream);
}

static strata_status budget_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes)
{
    budget *self = (budget *)resource;
    strata_resource *below = resource->upstream;
    strata_status status = below->ops->reap(below, mode, bytes);
    tell(self);
    return status;
}

/* ---- what it tells ---- */

/* The one of the account and those above it that leaves the least. */
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
    for (strata_budget_account *account = self->accounts, *next; account; account = next) {
        next = account->next;
        budget_account_end(account);
        strata_host_free(account);
    }
    budget_account_end(&self->base);
    strata_per_thread_destroy(&self->places);
    strata_lock_destroy(&self->lock);
    strata_host_free(self);
}

#define BUDGET_OPS(bytes)                                                                                             \
    {                                                                                                                 \
        .size = sizeof(strata_resource_ops), .block_bytes = (bytes), .passes_facts = true, .name = "budget",          \
        .allocate = budget_allocate, .deallocate = budget_deallocate, .reap = budget_reap, .budget = budget_snapshot, \
        .completed = budget_completed, .destroy = budget_destroy, .values = budget_values,                            \
        .value_count = BUDGET_VALUES, .get_value = budget_get_value, .set_value = budget_set_value,                   \
        .describe = budget_describe,                                                                                  \
    }

static const strata_resource_ops budget_ops = BUDGET_OPS(offsetof(budget_bytes, tag_place));
static const strata_resource_ops shared_budget_ops = BUDGET_OPS(sizeof(budget_bytes));

/* ---- accounts ---- */

strata_budget_account *strata_budget_base(strata_resource *resource)
{
    /* The stack keeps a copy of the table, so a layer is told by what ends it. */
    if (resource && resource->ops && resource->ops->destroy == budget_destroy)
        return &((budget *)resource)->base;
    strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_base: the resource is no budget");
    return NULL;
}

/* The names as the caller's structs have them, and amounts in bytes. */
static strata_status read_terms(const strata_device *device, const char *name, const strata_amount amounts[3],
                                budget_terms *terms)
{
    for (size_t i = 0; i < 3; i++)
        if (amounts[i].percent != 0 && !(amounts[i].percent > 0 && amounts[i].percent <= 100))
            return strata_fail(STRATA_ERROR_INVALID_VALUE,
                               "budget: a share of %g percent: expected above 0, at most 100", amounts[i].percent);
    terms->name = name;
    terms->limit = strata_amount_bytes(&amounts[0], device);
    terms->soft = strata_amount_bytes(&amounts[1], device);
    terms->soft_low = strata_amount_bytes(&amounts[2], device);
    if (!terms->soft_low)
        terms->soft_low = terms->soft - terms->soft / 10;
    if (strlen(name) >= BUDGET_NAME)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: an account's name has at most %d bytes: \"%.64s...\"",
                           BUDGET_NAME - 1, name);
    uint64_t highest = terms->limit > terms->soft ? terms->limit : terms->soft;
    if (highest > (uint64_t)INT64_MAX / 2)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\": a limit or mark of %llu bytes is beyond 2^62",
                           name, (unsigned long long)highest);
    if ((terms->limit && terms->soft > terms->limit) || terms->soft_low > terms->soft)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "budget \"%s\": the soft mark (%llu) is above the limit (%llu), or the low one (%llu) above "
                           "the soft mark",
                           name, (unsigned long long)terms->soft, (unsigned long long)terms->limit,
                           (unsigned long long)terms->soft_low);
    return STRATA_SUCCESS;
}

/* Frees closed accounts that nothing is charged to any more. The lock is held. */
static void sweep(budget *self)
{
    for (strata_budget_account **at = &self->accounts; *at;) {
        strata_budget_account *account = *at;
        if (!budget_account_is_over(account)) {
            at = &account->next;
            continue;
        }
        *at = account->next;
        budget_account_end(account);
        strata_host_free(account);
    }
}

static strata_status open_account(strata_budget_account *parent, const budget_terms *terms, strata_budget_account **out)
{
    budget *self = parent->layer;
    if (parent->depth + 1 >= BUDGET_DEPTH)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\": accounts nest at most %d deep", terms->name,
                           BUDGET_DEPTH);
    strata_budget_account *account = strata_host_zalloc_aligned(64, sizeof *account);
    if (!account)
        return strata_fail_host_memory("an account of a budget");
    budget_account_init(account, self, parent, terms);
    strata_lock_take(&self->lock);
    sweep(self);
    account->next = self->accounts;
    self->accounts = account;
    parent->children++;
    strata_lock_release(&self->lock);
    if (terms->soft)
        atomic_store_explicit(&self->marks, true, memory_order_relaxed);
    *out = account;
    return STRATA_SUCCESS;
}

strata_status strata_budget_account_open(strata_budget_account *parent, const strata_budget_account_options *options,
                                         strata_budget_account **out)
{
    if (!parent || !out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "an account is opened without one above it or a place for it");
    *out = NULL;
    strata_budget_account_options read;
    budget_terms terms = {0};
    strata_status status = strata_not_forked();
    if (status == STRATA_SUCCESS)
        status = strata_options_read(&read, sizeof read, options, "strata_budget_account_options");
    if (status != STRATA_SUCCESS)
        return status;
    const strata_amount amounts[] = {read.limit, read.soft, read.soft_low};
    status = read_terms(parent->layer->device, read.name ? read.name : "account", amounts, &terms);
    terms.soft_callback = read.soft_callback;
    terms.soft_data = read.soft_data;
    return status == STRATA_SUCCESS ? open_account(parent, &terms, out) : status;
}

strata_status strata_budget_reserve(strata_budget_account *parent, size_t bytes, const char *name,
                                    strata_budget_account **out)
{
    if (!parent || !out || !bytes || bytes > (size_t)INT64_MAX / 2)
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "a promise without an account above it or a place for it, or of zero bytes or beyond 2^62");
    *out = NULL;
    budget *self = parent->layer;
    budget_terms terms = {0};
    const strata_amount amounts[] = {{.bytes = bytes}, {0}, {0}};
    strata_status status = strata_usable();
    if (status == STRATA_SUCCESS)
        status = read_terms(self->device, name ? name : "promise", amounts, &terms);
    if (status == STRATA_SUCCESS && !self->resource.stack)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\": a promise before the layer is part of a stack",
                             terms.name);
    if (status != STRATA_SUCCESS)
        return status;
    terms.promise = true;
    budget_attempt attempt = {.account = parent, .bytes = bytes, .patience = budget_patience_ns};
    bool done;
    if (!budget_charge(parent, bytes, &attempt.patience, &attempt.failing))
        status = charge_slow(self, &attempt, NULL, &done);
    if (status == STRATA_SUCCESS) {
        status = open_account(parent, &terms, out);
        budget_decide(parent, bytes, status != STRATA_SUCCESS);
    }
    tell(self);
    return status;
}

strata_status strata_budget_account_close(strata_budget_account *account)
{
    strata_status status = strata_not_forked();
    if (!account || status != STRATA_SUCCESS)
        return status;
    if (!account->parent)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the base account of a budget ends with its layer");
    budget *self = account->layer;
    strata_budget_account *parent = account->parent;
    strata_lock_take(&self->lock);
    uint32_t children = account->children;
    strata_lock_release(&self->lock);
    if (children)
        return strata_fail(STRATA_ERROR_BUSY, "budget \"%s\": %u accounts below it are open", account->name, children);
    budget_account_shut(account);
    strata_lock_take(&self->lock);
    parent->children--; /* from here on it may be closed, too */
    sweep(self);
    strata_lock_release(&self->lock);
    tell(self);
    return STRATA_SUCCESS;
}

strata_status strata_budget_enter(strata_budget_account *account, strata_budget_account **previous)
{
    if (!account)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_budget_enter: account is NULL");
    strata_status status = strata_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    budget *self = account->layer;
    budget_place *place = strata_per_thread_self(&self->places, strata_thread_self());
    if (!place)
        return strata_fail_host_memory("a thread's place in a budget");
    if (previous)
        *previous = entered_account(self);
    place->account = account;
    place->serial = strata_thread_self()->serial;
    atomic_store_explicit(&self->entered, true, memory_order_relaxed);
    return STRATA_SUCCESS;
}

strata_status strata_budget_account_usage(strata_budget_account *account, strata_budget_usage *usage)
{
    if (!account || !usage)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a budget's usage without an account or a place for it");
    *usage = (strata_budget_usage){0};
    strata_status status = strata_not_forked();
    if (status == STRATA_SUCCESS)
        budget_usage(account, usage);
    return status;
}

strata_status strata_budget_set_limit(strata_budget_account *account, size_t bytes)
{
    if (!account || account->promise)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a limit is set without an account, or for a promise");
    if (bytes > (size_t)INT64_MAX / 2)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a budget's limit of %zu bytes is beyond 2^62", bytes);
    strata_status status = strata_not_forked();
    return status == STRATA_SUCCESS ? budget_change_limit(account, bytes) : status;
}

strata_status strata_budget_charge(strata_budget_account *account, size_t bytes, size_t *charge)
{
    if (!account || !charge)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "a budget's charge without an account or a place for it");
    *charge = 0;
    if (!account->layer->resource.stack)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget \"%s\" is not part of a stack", account->name);
    return charge_of(account->layer, &(strata_request){.bytes = bytes}, charge);
}

/* ---- making ---- */

static strata_status check_options(const strata_budget_options *options)
{
    if ((unsigned)options->wait > STRATA_BUDGET_WAIT_LIVE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: there is no wait %d", (int)options->wait);
    if (options->shared_group && !options->shared)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: a group is for shared=NAME");
    if (options->timeout && options->wait != STRATA_BUDGET_WAIT_LIVE)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "budget: a timeout is for wait=live");
    return STRATA_SUCCESS;
}

static const char *name_of(const strata_budget_options *options)
{
    return options->name ? options->name : options->shared ? options->shared : "budget";
}

static strata_status make(int ordinal, const strata_budget_options *options, strata_resource **out)
{
    budget_terms terms = {0};
    strata_device *device;
    const strata_amount amounts[] = {options->limit, options->soft, options->soft_low};
    strata_status status = check_options(options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status == STRATA_SUCCESS)
        status = read_terms(device, name_of(options), amounts, &terms);
    if (status != STRATA_SUCCESS)
        return status;
    budget *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a budget");
    if (options->shared) {
        const shared_terms shared = {options->shared, options->shared_group, device->info.uuid, terms.limit};
        if ((status = shared_open(&shared, &terms.shared)) != STRATA_SUCCESS) {
            strata_host_free(self);
            return status;
        }
    }
    terms.soft_callback = options->soft_callback;
    terms.soft_data = options->soft_data;
    self->resource.ops = options->shared ? &shared_budget_ops : &budget_ops;
    self->device = device;
    self->wait = options->wait;
    self->timeout = options->timeout;
    atomic_init(&self->marks, terms.soft != 0);
    strata_per_thread_init(&self->places, sizeof(budget_place));
    strata_per_thread_take_number(&self->places);
    strata_lock_init(&self->lock, STRATA_RANK_ACCOUNTS);
    budget_account_init(&self->base, self, NULL, &terms);
    *out = &self->resource;
    return STRATA_SUCCESS;
}

strata_status strata_budget_create(int ordinal, const strata_budget_options *options, strata_resource **out)
{
    strata_budget_options read;
    strata_status status = strata_options_begin("budget", out, &read, sizeof read, options);
    return status == STRATA_SUCCESS ? make(ordinal, &read, out) : status;
}

/* Options as a text has them. */
typedef struct budget_texts {
    strata_amount limit, soft, soft_low;
    int wait;
    uint64_t timeout;
    char name[256], shared[256], shared_group[256];
} budget_texts;

static strata_status make_budget(int device, const void *texts, strata_resource **out)
{
    const budget_texts *from = texts;
    const strata_budget_options options = {
        .limit = from->limit,
        .soft = from->soft,
        .soft_low = from->soft_low,
        .wait = (strata_budget_wait)from->wait,
        .timeout = from->timeout,
        .name = from->name[0] ? from->name : NULL,
        .shared = from->shared[0] ? from->shared : NULL,
        .shared_group = from->shared_group[0] ? from->shared_group : NULL,
    };
    return strata_budget_create(device, &options, out);
}

static const strata_option option_texts[] = {
    {"limit", STRATA_OPTION_AMOUNT, offsetof(budget_texts, limit), NULL, "the most that may be in use"},
    {"soft", STRATA_OPTION_AMOUNT, offsetof(budget_texts, soft), NULL, "the soft mark"},
    {"soft_low", STRATA_OPTION_AMOUNT, offsetof(budget_texts, soft_low), NULL, "where the soft mark is armed again"},
    {"wait", STRATA_OPTION_CHOICE, offsetof(budget_texts, wait), "retired|none|live", "what a request waits for"},
    {"timeout", STRATA_OPTION_DURATION, offsetof(budget_texts, timeout), NULL, "how long, with wait=live"},
    {"name", STRATA_OPTION_STRING, offsetof(budget_texts, name), NULL, "for messages"},
    {"shared", STRATA_OPTION_STRING, offsetof(budget_texts, shared), NULL, "one limit for all processes that name it"},
    {"shared_group", STRATA_OPTION_STRING, offsetof(budget_texts, shared_group), NULL, "a group that may share it"},
};

const strata_layer strata_budget_layer = {
    .size = sizeof(strata_layer),
    .name = "budget",
    .help = "a hard limit in bytes",
    .options = option_texts,
    .option_count = sizeof option_texts / sizeof option_texts[0],
    .options_size = sizeof(budget_texts),
    .create = make_budget,
};
