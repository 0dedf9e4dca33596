/* Leases: charging within one, growing it, lowering all of them. "With the lock": the file's lock. */
#define _GNU_SOURCE
#include "resources/budget/shared_quota.h"

#include "core/base/error.h"

#include <errno.h>
#include <string.h>

/* Most extra lease: with it, fewer requests take the lock. */
static const uint64_t max_advance = UINT64_C(256) << 20;

static uint64_t limit_of(const budget_shared *shared)
{
    uint64_t limit = atomic_load_explicit(shared->limit, memory_order_acquire);
    return limit ? limit : UINT64_MAX / 2;
}

/* How far `limit` is exceeded if `more` bytes are leased. */
static uint64_t excess_over(uint64_t limit, const budget_shared *shared, uint64_t more)
{
    uint64_t wanted;
    if (__builtin_add_overflow(shared_held_by_all(shared), more, &wanted))
        return UINT64_MAX;
    return wanted > limit ? wanted - limit : 0;
}

/* What would be left under `limit`. Other processes may have gone beyond it meanwhile: reuse needs no lock. */
static uint64_t left_under(uint64_t limit, const budget_shared *shared, uint64_t more)
{
    uint64_t wanted;
    if (__builtin_add_overflow(shared_held_by_all(shared), more, &wanted))
        return 0;
    return wanted < limit ? limit - wanted : 0;
}

/* Takes unused bytes from a slot's lease, and returns how many. With the lock. */
static uint64_t take_surplus(shared_slot *slot, uint64_t most)
{
    const int64_t lease = shared_lease_of(slot);
    int64_t surplus;
    if (lease <= shared_used_of_lease(slot))
        return 0;
    atomic_store_explicit(&slot->frozen, 1, memory_order_seq_cst);
    if (__builtin_sub_overflow(lease, shared_used_of_lease(slot), &surplus) || surplus < 0)
        surplus = 0;
    const int64_t taken = (uint64_t)surplus < most ? surplus : (int64_t)most;
    atomic_store_explicit(&slot->lease, lease - taken, memory_order_seq_cst);
    atomic_store_explicit(&slot->frozen, 0, memory_order_seq_cst);
    return (uint64_t)taken;
}

static uint64_t less_by(uint64_t bytes, uint64_t by)
{
    return bytes > by ? bytes - by : 0;
}

/* Takes what others do not use, and what no quota does; quotas last, as threads have to ask for them again. Returns how
 * far `over` bytes are still missing. With the lock. */
static uint64_t take_from_all(const budget_shared *shared, const shared_slot *own, uint64_t over)
{
    shared_slot *slots = shared->file->slots;
    for (uint32_t i = 0; i < shared_used_slots(shared->file) && over; i++)
        if (&slots[i] != own)
            over = less_by(over, take_surplus(&slots[i], over));
    for (uint32_t i = 0; i < shared_used_slots(shared->file) && over; i++)
        over = less_by(over, shared_quota_close(shared, &slots[i]));
    return over;
}

/* ---- leases ---- */

bool shared_take(budget_shared *shared, uint64_t bytes)
{
    shared_slot *own = shared_slot_of(shared);
    int64_t now = atomic_load_explicit(&own->in_use, memory_order_relaxed), more, all;
    do {
        const int64_t lease = atomic_load_explicit(&own->lease, memory_order_relaxed);
        const uint64_t settling = atomic_load_explicit(&own->settling, memory_order_relaxed);
        if (__builtin_add_overflow(now, bytes, &more) || __builtin_add_overflow(more, settling, &all) || all > lease)
            return false;
    } while (
        !atomic_compare_exchange_weak_explicit(&own->in_use, &now, more, memory_order_seq_cst, memory_order_relaxed));
    if (!atomic_load_explicit(&own->frozen, memory_order_seq_cst) && shared_is_covered(shared))
        return true;
    atomic_fetch_sub_explicit(&own->in_use, (int64_t)bytes, memory_order_seq_cst);
    return false;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* Claims what other processes have complete if `missing` bytes exceed the limit. Returns how far they still exceed it.
 * With the lock. */
static uint64_t excess_after_claims(const budget_shared *shared, uint64_t missing)
{
    uint64_t limit = limit_of(shared), over = excess_over(limit, shared, missing);
    if (!over)
        return 0;
    shared_free_dead_slots(shared);
    for (uint32_t i = 0; i < shared_used_slots(shared->file); i++)
        shared_claim_complete(shared, &shared->file->slots[i]);
    return excess_over(limit, shared, missing);
}

/* Grows the own lease, which is not closed, to `need` and more. With the lock. */
static bool grow_to(const budget_shared *shared, shared_slot *own, int64_t need)
{
    const int64_t now = shared_lease_of(own);
    const uint64_t missing = need > now ? (uint64_t)need - (uint64_t)now : 0;
    if (take_from_all(shared, own, excess_after_claims(shared, missing)))
        return false;
    const uint64_t left = left_under(limit_of(shared), shared, missing);
    const uint64_t more = least_of(least_of(max_advance, missing < max_advance ? missing * 4 : missing), left / 8);
    atomic_store_explicit(&own->lease, need + (int64_t)more, memory_order_seq_cst);
    return true;
}

/* Opens the own, closed lease with `need` and more, in place of `used`. It counts as these meanwhile, whatever other
 * threads give back: the new lease has that as well. They charge nothing to it until it is decided. With the lock. */
static bool reopen_to(const budget_shared *shared, shared_slot *own, int64_t used, int64_t need)
{
    atomic_store_explicit(&own->frozen, 1, memory_order_seq_cst);
    atomic_store_explicit(&own->lease, used, memory_order_seq_cst);
    const bool grown = grow_to(shared, own, need);
    if (!grown)
        atomic_store_explicit(&own->lease, SHARED_CLOSED, memory_order_seq_cst);
    atomic_store_explicit(&own->frozen, 0, memory_order_seq_cst);
    return grown;
}

/* Grows the own lease to cover `more_bytes`, from what others do not use if needed. With the lock. */
static bool grow_lease(budget_shared *shared, uint64_t more_bytes)
{
    shared_slot *own = shared_slot_of(shared);
    atomic_store_explicit(&own->frozen, 0, memory_order_seq_cst); /* left by a process that died */
    shared_settle(shared);
    const int64_t lease = shared_lease_of(own), used = shared_used_of_lease(own);
    int64_t need;
    if (__builtin_add_overflow(used, more_bytes, &need))
        return false;
    if (lease >= need)
        return true;
    return lease == SHARED_CLOSED ? reopen_to(shared, own, used, need) : grow_to(shared, own, need);
}

static const char closed_by_program[] = "cannot be used any more: the program closed its descriptor";

/* Called before the lock, which would be another file's if the program has closed the descriptor. */
static bool has_descriptor(budget_shared *shared)
{
    bool has = shared_file_has_descriptor(shared);
    if (!has)
        atomic_store_explicit(&shared->problem, closed_by_program, memory_order_relaxed);
    return has;
}

/* Whether file and limit are still those of new processes: else those have another account, and none of this one is
 * granted any more. With the lock. */
static bool is_sound(budget_shared *shared)
{
    const char *what;
    if (!shared_limit_is_sound(shared))
        what = "lost the file of its limit while it was used";
    else if (shared_file_is_sound(shared, &what))
        return true;
    atomic_store_explicit(&shared->problem, what, memory_order_relaxed);
    return false;
}

bool shared_is_lost(const budget_shared *shared)
{
    return atomic_load_explicit(&shared->problem, memory_order_relaxed) != NULL;
}

strata_status shared_fail_lost(const budget_shared *shared)
{
    const char *what = atomic_load_explicit(&shared->problem, memory_order_relaxed);
    return strata_fail(
        STRATA_ERROR_IO, "the shared budget %s %s%s. Free its memory and restart this process", shared->path, what,
        what == closed_by_program ? "" : ": new processes share another limit, and this one grants no more");
}

bool shared_make_room(budget_shared *shared, uint64_t bytes, uint64_t returning)
{
    if (!has_descriptor(shared) || !shared_lock_file(shared))
        return false;
    bool grown = is_sound(shared) && grow_lease(shared, bytes > returning ? bytes - returning : 0);
    shared_unlock_file(shared);
    return grown;
}

void shared_take_for_reuse(budget_shared *shared, uint64_t bytes)
{
    atomic_fetch_add_explicit(&shared_slot_of(shared)->in_use, (int64_t)bytes, memory_order_seq_cst);
}

bool shared_is_covered(const budget_shared *shared)
{
    const shared_slot *own = shared_slot_of(shared);
    return shared_used_of_lease(own) <= shared_lease_of(own);
}

void shared_give(budget_shared *shared, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&shared_slot_of(shared)->in_use, (int64_t)bytes, memory_order_seq_cst);
}

uint64_t shared_limit(const budget_shared *shared)
{
    return atomic_load_explicit(shared->limit, memory_order_relaxed);
}

/* Lowers the leases to a new limit, with the lock, so that they cannot grow again. First unused parts; if the bytes in
 * use exceed the limit, all leases are closed: then each request takes the lock, until enough is given back. */
static void lower_leases(const budget_shared *shared, uint64_t limit)
{
    shared_file *file = shared->file;
    take_from_all(shared, NULL, excess_over(limit, shared, 0));
    for (uint32_t i = 0; i < shared_used_slots(file) && excess_over(limit, shared, 0); i++)
        atomic_store_explicit(&file->slots[i].lease, SHARED_CLOSED, memory_order_seq_cst);
}

/* The limit last: a process that dies before leaves smaller leases, which is harmless. */
strata_status shared_set_limit(budget_shared *shared, uint64_t limit)
{
    if (!shared->sets_limit)
        return shared_limit_refuse(shared);
    if (!has_descriptor(shared))
        return shared_fail_lost(shared);
    if (!shared_lock_file(shared))
        return strata_fail(STRATA_ERROR_IO, "%s cannot be locked: %s", shared->path, strerror(errno));
    if (!is_sound(shared)) {
        shared_unlock_file(shared);
        return shared_fail_lost(shared);
    }
    lower_leases(shared, limit ? limit : UINT64_MAX / 2);
    atomic_store_explicit(shared->limit, limit, memory_order_seq_cst);
    shared_unlock_file(shared);
    return STRATA_SUCCESS;
}
