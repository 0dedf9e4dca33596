/* Bytes in use, and their peak. */
#include "resources/budget/free_quota.h"

#include "resources/budget/shared_quota.h"
#include "resources/budget/take.h"

uint64_t budget_in_use(strata_budget_account *account)
{
    uint32_t position = 0;
    uint64_t quotas = 0;
    for (const budget_slot *slot; (slot = strata_per_thread_next(&account->slots, &position));)
        quotas += atomic_load_explicit(&slot->quota, memory_order_relaxed);
    int64_t all = budget_granted(account);
    return all > 0 && (uint64_t)all > quotas ? (uint64_t)all - quotas : 0;
}

static bool is_above_peak(const strata_budget_account *account, int64_t all)
{
    return all > (int64_t)atomic_load_explicit(&account->peak, memory_order_relaxed);
}

/* The bytes of this process's charges that have succeeded, at one moment of the call; false: a quota was open, and they
 * are at most so many. Quotas that are closed before the first word is read can only fall behind it; one that another
 * process closes in between may have risen. */
static bool read_own(const strata_budget_account *account, int64_t *own)
{
    int64_t of_quotas;
    const bool were_closed = shared_quota_bound(account->shared, &of_quotas);
    *own = shared_count(account->shared, 0);
    const bool exact = shared_quota_bound(account->shared, &of_quotas) && were_closed;
    *own += of_quotas;
    return exact;
}

/* Raises the peak to what this process and others have in use. If that may be a new one, but for quotas, they are
 * closed first. A charge that counts itself and then looks misses none, as it is in use until the look is over. */
static __attribute__((noinline)) void look_at_others(strata_budget_account *account)
{
    enum { TRIES = 8 /* until no other thread opens its quota again */ };
    const uint64_t limit = shared_limit(account->shared);
    uint64_t others = 0;
    int64_t own;
    if (shared_others_at_once(account->shared, &others))
        atomic_store_explicit(&account->others, others, memory_order_relaxed);
    for (int i = 0; i < TRIES; i++) {
        const bool exact = read_own(account, &own);
        const int64_t all = own - (int64_t)shared_own_claimed(account->shared) + (int64_t)others;
        if (!is_above_peak(account, all))
            return;
        if (exact) {
            budget_raise_peak(account, limit && all > (int64_t)limit ? (int64_t)limit : all);
            return;
        }
        if (!shared_quota_close_own(account->shared))
            return;
    }
}

/* Looks at the other processes when they may have helped to a new peak, and now and then, as they may have grown. */
void budget_count_shared(strata_budget_account *account, uint64_t bytes)
{
    enum { OFTEN = 64 };
    int64_t of_quotas;
    const int64_t own = shared_count(account->shared, (int64_t)bytes);
    shared_quota_bound(account->shared, &of_quotas);
    const int64_t all = own + of_quotas + (int64_t)atomic_load_explicit(&account->others, memory_order_relaxed);
    const uint32_t looks = atomic_load_explicit(&account->looks, memory_order_relaxed) + 1;
    atomic_store_explicit(&account->looks, looks, memory_order_relaxed);
    if (is_above_peak(account, all) || looks % OFTEN == 0)
        look_at_others(account);
}

static bool open_quota(strata_budget_account *account, shared_quota *self, uint64_t bytes)
{
    look_at_others(account);
    return shared_quota_open(account->shared, self, bytes,
                             (int64_t)atomic_load_explicit(&account->peak, memory_order_relaxed) -
                                 (int64_t)atomic_load_explicit(&account->others, memory_order_relaxed));
}

bool budget_take_shared_quota(strata_budget_account *account, uint64_t bytes)
{
    shared_quota *self = account->slots.number ? shared_quota_self(account->shared) : NULL;
    if (!self)
        return false;
    strata_per_thread_keep(&account->slots, strata_thread_self(), self);
    if (self->steps % SHARED_QUOTA_LOOKS == 0) {
        look_at_others(account);
        if (shared_quota_take(self, bytes))
            return true;
    }
    if (++self->misses % SHARED_QUOTA_MISSES != 0 || !open_quota(account, self, bytes))
        return false;
    return shared_quota_take(self, bytes);
}

uint64_t budget_of_others(strata_budget_account *account)
{
    uint64_t others;
    if (!account->shared)
        return 0;
    if (shared_others_at_once(account->shared, &others))
        atomic_store_explicit(&account->others, others, memory_order_relaxed);
    return atomic_load_explicit(&account->others, memory_order_relaxed);
}

/* The peak, at least `in_use`, which may be above it by the slack while the account grants. */
static uint64_t peak_of(strata_budget_account *account, uint64_t in_use)
{
    if (account->shared)
        look_at_others(account);
    budget_count_late(account);
    const uint64_t slack = atomic_load_explicit(&account->slack, memory_order_relaxed);
    const uint64_t peak = atomic_load_explicit(&account->peak, memory_order_relaxed);
    const uint64_t more = in_use > peak ? in_use - peak : 0;
    return peak + (more < slack ? more : slack);
}

void budget_usage(strata_budget_account *account, strata_budget_usage *usage)
{
    uint64_t limit = budget_limit_of(account);
    bool closed = account->reservation && atomic_load_explicit(&account->closed, memory_order_acquire);
    uint64_t in_use =
        closed ? atomic_load_explicit(&account->unreturned, memory_order_relaxed) : budget_in_use(account);
    *usage = (strata_budget_usage){
        .limit = (size_t)limit,
        .in_use = (size_t)in_use,
        .remaining = !limit           ? SIZE_MAX
                     : limit > in_use ? (size_t)(limit - in_use)
                                      : 0,
        .peak = (size_t)peak_of(account, in_use),
        .refused = atomic_load_explicit(&account->refused, memory_order_relaxed),
        .waited = atomic_load_explicit(&account->waited, memory_order_relaxed),
        .reused = atomic_load_explicit(&account->reused, memory_order_relaxed),
        .recalls = atomic_load_explicit(&account->recalls, memory_order_relaxed),
    };
}
