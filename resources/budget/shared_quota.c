/* Opening and closing the quotas of threads in a shared budget. "With the lock": the file's lock. */
#include "resources/budget/shared_quota.h"

static const int64_t min_more = INT64_C(64) << 10;

static shared_retired_page *page_of(const budget_shared *shared, const shared_slot *slot)
{
    return &shared->file->retired[slot - shared->file->slots];
}

static shared_quota *quotas_of(const budget_shared *shared, const shared_slot *slot)
{
    return shared->file->quotas[slot - shared->file->slots].quotas;
}

static uint32_t used_quotas(const budget_shared *shared, const shared_slot *slot)
{
    const uint32_t used = atomic_load_explicit(&page_of(shared, slot)->used_quotas, memory_order_acquire);
    return used < SHARED_QUOTAS ? used : SHARED_QUOTAS;
}

static int64_t used_of(const shared_quota *quota)
{
    return atomic_load_explicit(&quota->used, memory_order_acquire);
}

static int64_t granted_to(const shared_quota *quota)
{
    const int64_t granted = atomic_load_explicit(&quota->granted, memory_order_seq_cst);
    return granted == SHARED_CLOSED ? used_of(quota) : granted;
}

static bool is_open(const shared_quota *quota)
{
    return atomic_load_explicit(&quota->granted, memory_order_seq_cst) != SHARED_CLOSED;
}

static bool add_up(const budget_shared *shared, const shared_slot *slot, int64_t (*of)(const shared_quota *quota),
                   int64_t *bytes)
{
    const shared_quota *quotas = quotas_of(shared, slot);
    const uint32_t count = used_quotas(shared, slot);
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++)
        if (__builtin_add_overflow(*bytes, of(&quotas[i]), bytes))
            return false;
    return true;
}

bool shared_quota_granted_to(const budget_shared *shared, const shared_slot *slot, int64_t *bytes)
{
    return add_up(shared, slot, granted_to, bytes);
}

bool shared_quota_used_by(const budget_shared *shared, const shared_slot *slot, int64_t *bytes)
{
    return add_up(shared, slot, used_of, bytes);
}

bool shared_quota_bound(const budget_shared *shared, int64_t *bytes)
{
    const shared_slot *own = shared_slot_of(shared);
    const shared_quota *quotas = quotas_of(shared, own);
    const uint32_t count = used_quotas(shared, own);
    bool all_closed = true;
    *bytes = 0;
    for (uint32_t i = 0; i < count; i++) {
        const int64_t granted = atomic_load_explicit(&quotas[i].granted, memory_order_seq_cst);
        const bool closed = granted == SHARED_CLOSED;
        all_closed &= closed;
        *bytes = (int64_t)((uint64_t)*bytes + (uint64_t)(closed ? used_of(&quotas[i]) : granted)); /* any, if damaged */
    }
    return all_closed;
}

/* ---- closing ---- */

/* Lets no charge within a slot's quotas begin. Returns whether one was open. With the lock. */
static bool refuse_charges(const budget_shared *shared, const shared_slot *slot)
{
    bool any = false;
    const uint32_t count = used_quotas(shared, slot);
    for (uint32_t i = 0; i < count; i++) {
        shared_quota *quota = &quotas_of(shared, slot)[i];
        if (!is_open(quota))
            continue;
        atomic_store_explicit(&quota->open, SHARED_CLOSED, memory_order_seq_cst);
        any = true;
    }
    return any;
}

/* From now on what is used counts. Returns how much less that is. With the lock, behind a barrier. */
static uint64_t count_used(const budget_shared *shared, const shared_slot *slot)
{
    uint64_t less = 0;
    const uint32_t count = used_quotas(shared, slot);
    for (uint32_t i = 0; i < count; i++) {
        shared_quota *quota = &quotas_of(shared, slot)[i];
        const int64_t granted = atomic_load_explicit(&quota->granted, memory_order_relaxed), used = used_of(quota);
        if (granted == SHARED_CLOSED)
            continue;
        atomic_store_explicit(&quota->granted, SHARED_CLOSED, memory_order_seq_cst);
        less += granted > used ? (uint64_t)granted - (uint64_t)used : 0;
    }
    return less;
}

/* Undoes refuse_charges. With the lock. */
static void allow_charges(const budget_shared *shared, const shared_slot *slot)
{
    const uint32_t count = used_quotas(shared, slot);
    for (uint32_t i = 0; i < count; i++) {
        shared_quota *quota = &quotas_of(shared, slot)[i];
        if (is_open(quota))
            atomic_store_explicit(&quota->open, granted_to(quota), memory_order_seq_cst);
    }
}

/* A killed process may have left `open` without `granted`: both are written anew. */
uint64_t shared_quota_close(const budget_shared *shared, const shared_slot *slot)
{
    if (!refuse_charges(shared, slot))
        return 0;
    if (strata_heavy_barrier_for_all())
        return count_used(shared, slot);
    allow_charges(shared, slot);
    return 0;
}

/* Waits for threads that are charging; those that begin later see that they must not. Not for ever: other processes
 * write the file, too. With the lock. */
static void await_charges(const budget_shared *shared, const shared_slot *own)
{
    enum { MOST = 10000 /* backs off for about a second in all */ };
    const uint32_t count = used_quotas(shared, own);
    for (uint32_t i = 0; i < count; i++) {
        const _Atomic uint32_t *busy = &quotas_of(shared, own)[i].busy;
        for (unsigned spins = 0; spins < MOST && atomic_load_explicit(busy, memory_order_acquire);)
            strata_backoff(&spins);
    }
}

/* The lock would be another file's if the program has closed the descriptor. */
static bool lock_file(budget_shared *shared)
{
    return shared_file_has_descriptor(shared) && shared_lock_file(shared);
}

bool shared_quota_close_own(budget_shared *shared)
{
    const shared_slot *own = shared_slot_of(shared);
    if (!lock_file(shared))
        return false;
    if (refuse_charges(shared, own)) {
        if (!strata_heavy_barrier_for_all())
            strata_heavy_barrier(); /* for this process's threads */
        await_charges(shared, own);
        count_used(shared, own);
    }
    shared_unlock_file(shared);
    return true;
}

void shared_quota_clear(const budget_shared *shared, const shared_slot *slot)
{
    const uint32_t count = used_quotas(shared, slot);
    for (uint32_t i = 0; i < count; i++) {
        shared_quota *quota = &quotas_of(shared, slot)[i];
        atomic_store_explicit(&quota->open, SHARED_CLOSED, memory_order_relaxed);
        atomic_store_explicit(&quota->granted, SHARED_CLOSED, memory_order_relaxed);
        atomic_store_explicit(&quota->used, 0, memory_order_relaxed);
    }
    atomic_store_explicit(&page_of(shared, slot)->used_quotas, 0, memory_order_release);
}

/* ---- opening ---- */

/* Returns how many quotas there are with one that no thread has had; 0: none is left. Takes the file's lock among the
 * threads of the process. */
static uint32_t add_quota(budget_shared *shared)
{
    const shared_slot *own = shared_slot_of(shared);
    strata_lock_take(&shared->lock);
    const uint32_t count = used_quotas(shared, own);
    if (count < SHARED_QUOTAS) {
        shared_quota *quota = &quotas_of(shared, own)[count];
        atomic_store_explicit(&quota->used, 0, memory_order_relaxed);
        atomic_store_explicit(&quota->open, SHARED_CLOSED, memory_order_relaxed);
        atomic_store_explicit(&quota->granted, SHARED_CLOSED, memory_order_relaxed);
        atomic_store_explicit(&quota->busy, 0, memory_order_relaxed);
        quota->steps = quota->misses = 0;
        atomic_store_explicit(&page_of(shared, own)->used_quotas, count + 1, memory_order_release);
    }
    strata_lock_release(&shared->lock);
    return count < SHARED_QUOTAS ? count + 1 : 0;
}

shared_quota *shared_quota_self(budget_shared *shared)
{
    const strata_thread *thread = strata_thread_self();
    if (!thread || !thread->index)
        return NULL;
    unsigned char *of = &shared->quota_of[thread->index];
    if (!*of)
        *of = (unsigned char)add_quota(shared);
    return *of ? &quotas_of(shared, shared_slot_of(shared))[*of - 1] : NULL;
}

/* Takes at least `least` and at most `most` bytes out of the own lease, or 0. With the lock. */
static int64_t take_of_lease(const budget_shared *shared, int64_t least, int64_t most)
{
    shared_slot *own = shared_slot_of(shared);
    const int64_t lease = shared_lease_of(own);
    int64_t unused;
    if (lease == SHARED_CLOSED)
        return 0;
    atomic_store_explicit(&own->frozen, 1, memory_order_seq_cst);
    if (__builtin_sub_overflow(lease, shared_used_of_lease(own), &unused) || unused < least)
        unused = 0;
    const int64_t taken = unused < most ? unused : most;
    atomic_store_explicit(&own->lease, lease - taken, memory_order_seq_cst);
    atomic_store_explicit(&own->frozen, 0, memory_order_seq_cst);
    return taken;
}

static void return_to_lease(const budget_shared *shared, int64_t bytes)
{
    shared_slot *own = shared_slot_of(shared);
    atomic_store_explicit(&own->lease, shared_lease_of(own) + bytes, memory_order_seq_cst);
}

/* How much more than `least` to grant: some charges' bytes, at most half of what the peak leaves. */
static int64_t most_of(int64_t least, uint64_t bytes, int64_t left)
{
    const int64_t wanted = (int64_t)bytes < min_more ? min_more : (int64_t)bytes * 4;
    const int64_t half = (left - least) / 2;
    return least + (wanted < half ? wanted : half);
}

/* How far the process's bytes may still rise. */
static int64_t left_below(const budget_shared *shared, int64_t peak)
{
    const int64_t counted = atomic_load_explicit(&shared->counted, memory_order_seq_cst);
    int64_t of_quotas;
    shared_quota_bound(shared, &of_quotas);
    return peak - counted - of_quotas;
}

/* With the lock. A charge to the lease counts itself and then looks at what is granted; this grants, and then looks at
 * what is counted: one of the two sees that both together may be a new peak. */
static bool open_quota(const budget_shared *shared, shared_quota *quota, uint64_t bytes, int64_t peak)
{
    const int64_t granted = atomic_load_explicit(&quota->granted, memory_order_relaxed);
    const int64_t before = granted_to(quota), left = left_below(shared, peak);
    const int64_t missing = used_of(quota) + (int64_t)bytes - before, least = missing > 1 ? missing : 1;
    const int64_t more = left < least ? 0 : take_of_lease(shared, least, most_of(least, bytes, left));
    if (!more)
        return false;
    atomic_store_explicit(&quota->granted, before + more, memory_order_seq_cst);
    if (left_below(shared, peak) < 0) {
        atomic_store_explicit(&quota->granted, granted, memory_order_seq_cst);
        return_to_lease(shared, more);
        return false;
    }
    atomic_store_explicit(&quota->open, before + more, memory_order_seq_cst);
    return true;
}

/* Another layer with the budget would have to see its own peak: one user alone has quotas. The kernel is asked for its
 * barrier here, not at the first charge: in a process with threads that takes milliseconds. */
bool shared_quota_open(budget_shared *shared, shared_quota *self, uint64_t bytes, int64_t peak)
{
    if (!strata_barriers_share() || !lock_file(shared))
        return false;
    const bool opened =
        atomic_load_explicit(&shared->users, memory_order_relaxed) == 1 && open_quota(shared, self, bytes, peak);
    shared_unlock_file(shared);
    return opened;
}
