/* What is tried for a request that does not fit. It holds no charge meanwhile, and each step ends with a new charge:
 *
 *     finished frees -> reuse of retired memory -> what layers below hold back -> waiting
 *
 * Failures of a step are ignored. */
#include "resources/budget/internal.h"

#include "core/base/error.h"
#include "core/base/timestamp.h"

#include <stdio.h>
#include <string.h>

static bool is_beyond(const strata_budget_account *account, uint64_t bytes)
{
    uint64_t limit = budget_limit_of(account);
    return bytes > (limit ? limit : (uint64_t)budget_boundless);
}

static const char *advice_for(const strata_budget_account *account, uint64_t bytes, bool timed_out)
{
    if (is_beyond(account, bytes))
        return account->reservation       ? "It is more than was promised: promise more, or ask for less"
               : budget_limit_of(account) ? "It is beyond the limit alone: raise that, or ask for less"
                                          : "No account counts so much: ask for less";
    if (account->reservation)
        return "Free what was allocated from the promise, or promise more";
    return timed_out ? "Nobody freed enough within the timeout: free memory, wait longer, or raise the limit"
                     : "Free memory, let requests wait (wait=live), or raise the limit";
}

static void reap_below(budget *self, strata_reap_mode mode)
{
    size_t bytes;
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    below->ops->reap(below, mode, &bytes);
    strata_error_suppress_end(false);
}

/* Keeps reserved memory. */
static void trim_below(budget *self)
{
    size_t bytes;
    strata_resource *below = self->resource.upstream;
    strata_error_suppress_begin();
    below->ops->trim(below, SIZE_MAX, &bytes);
    strata_error_suppress_end(false);
}

/* False after the timeout. */
static bool wait_for_others(budget *self, budget_retry *retry)
{
    enum { SHORTEST = 20000, LONGEST = 1000000 };
    uint64_t now = strata_timestamp_clock();
    if (!retry->deadline) {
        if (__builtin_add_overflow(now, self->timeout, &retry->deadline) || !self->timeout)
            retry->deadline = UINT64_MAX;
        retry->pause = SHORTEST / 2;
    }
    if (now >= retry->deadline)
        return false;
    retry->pause = retry->pause < LONGEST / 2 ? 2 * retry->pause : LONGEST;
    nanosleep(&(struct timespec){.tv_nsec = retry->pause}, NULL);
    reap_below(self, STRATA_REAP_FINISHED);
    if (retry->pause >= LONGEST / 2) /* layers below may hold back what was freed */
        trim_below(self);
    return true;
}

/* False: nothing is left to wait for. */
static bool wait_by_option(budget *self, budget_retry *retry)
{
    if (self->wait == STRATA_BUDGET_WAIT_NONE || (self->wait == STRATA_BUDGET_WAIT_RETIRED && retry->waited))
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

/* Asks the owner again under the accounts' locks, as another thread may have taken the memory. False: not served. */
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
    *status = still ? below->ops->allocate(below, retry->request, out) : STRATA_ERROR_OUT_OF_BUDGET;
    bool made = *status == STRATA_SUCCESS;
    if (made)
        budget_record_charge(self, out, retry->account, retry->bytes);
    bool fits = budget_reuse_end(retry->account, retry->bytes, !made);
    if (made && !fits) /* the owner took other memory */
        fits = !free_suppressed(self, out, retry->request->stream);
    return made ? fits : still;
}

static __attribute__((cold)) strata_status refuse(const budget_retry *retry)
{
    strata_budget_account *failing = retry->failing;
    strata_budget_usage usage;
    const char *advice = advice_for(failing, retry->bytes, retry->deadline != 0);
    budget_usage(failing, &usage);
    atomic_fetch_add_explicit(&failing->refused, 1, memory_order_relaxed);
    strata_tag tag = retry->request ? retry->request->tag : 0;
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_BUDGET);
    error->requested = retry->request ? retry->request->bytes : (size_t)retry->bytes;
    error->in_use = usage.in_use;
    error->remaining = usage.remaining;
    error->limit = usage.limit;
    error->tag = tag;
    char limits[80] = "no limit"; /* for budget_boundless, or a limit just removed */
    if (usage.limit)
        snprintf(limits, sizeof limits, "limit %zu, in use %zu, remaining %zu", usage.limit, usage.in_use,
                 usage.remaining);
    return strata_error_raise(error,
                              "budget \"%s\": %s of %zu bytes (tag \"%.100s\"), charged as %llu, does not fit: %s. %s",
                              failing->name, retry->request ? "a request" : "a promise", error->requested,
                              strata_tag_name(tag), (unsigned long long)retry->bytes, limits, advice);
}

/* Whether the request alone exceeds a limit. */
static bool never_fits(budget_retry *retry)
{
    for (strata_budget_account *level = retry->account; level; level = budget_above(level)) {
        if (!is_beyond(level, retry->bytes))
            continue;
        retry->failing = level;
        return true;
    }
    return false;
}

/* False: no step is left. *done: the request is allocated, or failed by *status. */
static bool try_next(budget *self, budget_retry *retry, strata_block *out, strata_status *status, bool *done)
{
    switch (retry->next) {
    case RETRY_REAP:
        reap_below(self, STRATA_REAP_FINISHED);
        retry->next = RETRY_REUSE;
        return true;
    case RETRY_REUSE:
        retry->next = RETRY_TRIM;
        *done = allocate_reused(self, retry, out, status);
        return true;
    case RETRY_TRIM: /* may wait for the device */
        if (self->wait != STRATA_BUDGET_WAIT_NONE)
            trim_below(self);
        retry->next = RETRY_WAIT;
        return true;
    case RETRY_WAIT:
        break;
    }
    return wait_by_option(self, retry);
}

/* SUCCESS without *done: the request is charged. Limits may change meanwhile. */
strata_status budget_retry_charge(budget *self, budget_retry *retry, strata_block *out, bool *done)
{
    strata_status status = STRATA_SUCCESS;
    *done = false;
    while (!never_fits(retry) && try_next(self, retry, out, &status, done)) {
        if (*done)
            return status;
        if (budget_charge(retry->account, retry->bytes, &retry->wait_left, &retry->failing))
            return STRATA_SUCCESS;
    }
    return refuse(retry);
}
