/* Steps for a request that does not fit, and its refusal. Between the steps it holds no charge; each ends with a new
 * charge.
 *
 *     finished frees -> reuse of retired memory -> what layers below hold back -> waiting
 *
 * Failures of a step are ignored, but for reuse: the owner's answer to that request is the result. */
#include "resources/budget/deadlock.h"

#include "core/base/error.h"
#include "core/base/size_text.h"
#include "core/base/timestamp.h"
#include "core/stack/calls.h"
#include "core/stack/neighbours.h"

#include <stdio.h>
#include <string.h>

static bool is_beyond(const strata_budget_account *account, uint64_t bytes)
{
    uint64_t limit = budget_limit_of(account);
    return bytes > (limit ? limit : (uint64_t)budget_boundless);
}

static const char *advice_for(const budget_retry *retry)
{
    const strata_budget_account *account = retry->failing;
    const uint64_t bytes = retry->bytes;
    if (is_beyond(account, bytes))
        return account->reservation       ? "The request exceeds the reservation; reserve more or request less"
               : budget_limit_of(account) ? "The request alone exceeds the limit; raise the limit or request less"
                                          : "Request less";
    if (retry->waiter.told)
        return "Deadlock: all threads with live blocks of it wait here too; free some of this thread's";
    if (account->reservation)
        return "Free memory of the reservation, or reserve more";
    if (retry->wanted && !retry->deadline)
        return "Free memory or raise the limit";
    return retry->deadline ? "Too little was freed within the timeout; free memory, wait longer or raise the limit"
                           : "Free memory, let requests wait (wait=live) or raise the limit";
}

static void reap_below(budget *self, strata_reap_mode mode)
{
    size_t bytes;
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    strata_reap_internally(below, mode, &bytes);
    strata_error_suppress_end(false);
}

/* Reaps below, and in other stacks of the process if the account may be theirs too. */
static void reap_finished(budget *self, const budget_retry *retry)
{
    reap_below(self, STRATA_REAP_FINISHED);
    if (retry->failing->shared)
        strata_neighbours_reap(self->device, self->resource.stack);
}

/* Lets layers below give up what they hold back; reserved memory stays. */
static void trim_below(budget *self)
{
    size_t bytes;
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    strata_trim_internally(below, SIZE_MAX, &bytes);
    strata_error_suppress_end(false);
}

/* Waits a moment for frees of other threads. False after the timeout, in a deadlock, and once the context ends or is
 * about to. */
static bool wait_for_others(budget *self, budget_retry *retry)
{
    enum { SHORTEST = 20000, LONGEST = 1000000 };
    uint64_t now = strata_timestamp_clock();
    if (!retry->deadline) {
        if (__builtin_add_overflow(now, self->timeout, &retry->deadline) || !self->timeout)
            retry->deadline = UINT64_MAX;
        retry->pause = SHORTEST / 2;
    }
    retry->gave_up = strata_device_is_ending(self->device);
    if (now >= retry->deadline || retry->gave_up || !strata_device_is_usable_now(self->device) ||
        budget_wait_is_in_vain(self, &retry->waiter, retry->failing, retry->bytes))
        return false;
    retry->pause = retry->pause < LONGEST / 2 ? 2 * retry->pause : LONGEST;
    nanosleep(&(struct timespec){.tv_nsec = retry->pause}, NULL);
    reap_finished(self, retry);
    if (retry->pause >= LONGEST / 2) /* layers below may hold back freed memory */
        trim_below(self);
    return true;
}

static bool may_wait(const budget *self, const budget_retry *retry)
{
    return self->wait != STRATA_BUDGET_WAIT_NONE &&
           (!retry->wanted || atomic_load_explicit(retry->wanted, memory_order_relaxed));
}

/* Waits as the option says. False: there is nothing to wait for. */
static bool wait_by_option(budget *self, budget_retry *retry)
{
    if (!may_wait(self, retry) || (self->wait == STRATA_BUDGET_WAIT_RETIRED && retry->waited))
        return false;
    if (!retry->waited)
        atomic_fetch_add_explicit(&retry->failing->waited, 1, memory_order_relaxed);
    retry->waited = true;
    if (self->wait == STRATA_BUDGET_WAIT_LIVE)
        return wait_for_others(self, retry);
    reap_below(self, STRATA_REAP_WAIT);
    return true;
}

static bool free_suppressed(budget *self, strata_block *block, CUstream stream)
{
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    strata_status status = below->ops->deallocate(below, block, stream);
    strata_error_suppress_end(false);
    if (status == STRATA_SUCCESS)
        *block = (strata_block){0};
    return status == STRATA_SUCCESS;
}

/* Serves the request with retired memory that the owner would reuse. Asks the owner again under the accounts' locks:
 * another thread may have taken the memory. False: not served. */
static bool allocate_reused(budget *self, budget_retry *retry, strata_block *out, strata_status *status)
{
    size_t reusable = 0;
    strata_block_id of;
    strata_resource *below = self->resource.upstream;
    if (!retry->request || below->ops->reusable(below, retry->request, &reusable, &of) != STRATA_SUCCESS)
        return false;
    strata_budget_account *source = reusable ? budget_pin_source(self, of) : NULL;
    bool begun = source && budget_reuse_begin(retry->account, retry->bytes, source, reusable, &retry->wait_left);
    if (source)
        budget_unpin(source);
    if (!begun)
        return false;
    strata_block_id now = of;
    bool still = below->ops->reusable(below, retry->request, &reusable, &now) == STRATA_SUCCESS && reusable &&
                 memcmp(&now, &of, sizeof now) == 0 &&
                 atomic_load_explicit(&budget_record_of(self, of)->account, memory_order_relaxed) == source;
    strata_made made = {STRATA_ERROR_OUT_OF_BUDGET, NULL};
    if (still)
        made = below->ops->allocate_own(below, retry->request, out);
    *status = made.status;
    if (made.entry)
        budget_record_charge(self, made.entry, out, retry->account, retry->bytes);
    bool fits = budget_reuse_end(retry->account, retry->bytes, !made.entry);
    if (made.entry && !fits) /* the owner took other memory */
        fits = !free_suppressed(self, out, retry->request->stream);
    return made.entry ? fits : still;
}

/* Whatever does not fit: an error of a driver that has shut down, or of a device whose context has ended or will. */
static strata_status check_context(const budget *self, const budget_retry *retry)
{
    strata_status status = strata_check_driver();
    if (status == STRATA_SUCCESS)
        status = strata_check_device(self->device);
    return status == STRATA_SUCCESS && retry->gave_up
               ? strata_fail(STRATA_ERROR_DEVICE_RESET, "the primary context of device %d is about to end",
                             self->device->ordinal)
               : status;
}

static __attribute__((cold)) strata_status refuse(const budget *self, const budget_retry *retry)
{
    strata_budget_account *failing = retry->failing;
    strata_budget_usage usage;
    const strata_status status = check_context(self, retry);
    if (status != STRATA_SUCCESS)
        return status;
    if (failing->shared && shared_is_lost(failing->shared))
        return shared_fail_lost(failing->shared);
    const char *advice = advice_for(retry);
    budget_usage(failing, &usage);
    atomic_fetch_add_explicit(&failing->refused, 1, memory_order_relaxed);
    strata_tag tag = retry->request ? retry->request->tag : 0;
    strata_error *error = strata_error_begin(retry->waiter.told ? STRATA_ERROR_DEADLOCK : STRATA_ERROR_OUT_OF_BUDGET);
    error->requested = retry->request ? retry->request->bytes : (size_t)retry->bytes;
    error->in_use = usage.in_use;
    error->remaining = usage.remaining;
    error->limit = usage.limit;
    error->tag = tag;
    char state[192];
    snprintf(state, sizeof state, "%s", is_beyond(failing, retry->bytes) ? "request too large" : "limit just removed");
    char charged[80] = "", where[96] = "";
    if (usage.limit)
        snprintf(state, sizeof state, "limit %s, in use %s, remaining %s", strata_size_text(usage.limit).text,
                 strata_size_text(usage.in_use).text, strata_size_text(usage.remaining).text);
    if (retry->bytes != error->requested)
        snprintf(charged, sizeof charged, ", charged as %s", strata_size_text(retry->bytes).text);
    if (failing->shared) {
        char name[SHARED_NAME];
        shared_write_name(failing->shared, name);
        snprintf(where, sizeof where, ". `strata budget %s` lists the processes", name);
    }
    return strata_error_raise(error, "budget \"%s\": %s of %s (tag \"%.60s\")%s refused: %s. %s%s", failing->name,
                              retry->request ? "request" : "reservation", strata_size_text(error->requested).text,
                              strata_tag_name(tag), charged, state, advice, where);
}

/* Whether the request alone exceeds a limit, or a shared limit is lost. */
static bool never_fits(budget_retry *retry)
{
    for (strata_budget_account *level = retry->account; level; level = budget_above(level)) {
        bool lost = level->shared && shared_is_lost(level->shared);
        if (!lost && !is_beyond(level, retry->bytes))
            continue;
        retry->failing = level;
        return true;
    }
    return false;
}

/* Takes the next step. False: none is left. *done: the request is allocated, or failed by *status. */
static bool try_next(budget *self, budget_retry *retry, strata_block *out, strata_status *status, bool *done)
{
    switch (retry->next) {
    case RETRY_REAP:
        reap_finished(self, retry);
        retry->next = RETRY_REUSE;
        return true;
    case RETRY_REUSE:
        retry->next = RETRY_TRIM;
        *done = allocate_reused(self, retry, out, status);
        return true;
    case RETRY_TRIM: /* may wait for the device */
        if (may_wait(self, retry))
            trim_below(self);
        retry->next = RETRY_WAIT;
        return true;
    case RETRY_WAIT:
        break;
    }
    return wait_by_option(self, retry);
}

/* Takes the steps, each followed by a new charge. SUCCESS without *done: charged. Limits may change meanwhile. */
strata_status budget_retry_charge(budget *self, budget_retry *retry, strata_block *out, bool *done)
{
    strata_status status = STRATA_SUCCESS;
    *done = false;
    while (!never_fits(retry) && try_next(self, retry, out, &status, done)) {
        if (*done || budget_charge(retry->account, retry->bytes, &retry->wait_left, &retry->failing)) {
            budget_wait_leave(self, &retry->waiter);
            return *done ? status : STRATA_SUCCESS;
        }
    }
    budget_wait_leave(self, &retry->waiter);
    status = refuse(self, retry);
    if (retry->request)
        strata_request_refused(&self->resource, retry->request, status);
    return status;
}
