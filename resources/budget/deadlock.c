/* wait=live without a time-out: requests that wait for each other for ever.
 *
 * Each block has the serial of the thread that allocated it. Requests wait in vain if blocks of threads that wait here
 * too leave none of them enough of its account: no thread is left to free them, and whatever others free does not
 * suffice. Such a set is found by leaving out waiting threads until the rest fulfils that. A layer in which a thread
 * has freed a block of another one never looks: that thread may come again.
 *
 * A set that lasts for the grace time, in which each of its threads tried again, is a deadlock. The request that began
 * to wait last is told so. */
#include "resources/budget/deadlock.h"

#include "core/base/timestamp.h"

enum {
    LOOK_NS = 100000000,
    GRACE_NS = 2000000000, /* long: a thread may be about to free a block of another one for the first time */
    LEAST_TRIES = 3,       /* in the grace time */
};

static bool is_below(const strata_budget_account *account, const strata_budget_account *above)
{
    while (account && account != above)
        account = budget_above(account);
    return account != NULL;
}

static bool is_stuck(const budget *self, uint64_t holder)
{
    const budget_waiter *waiter = self->waiters;
    while (waiter && !(waiter->stuck && waiter->thread == holder))
        waiter = waiter->next;
    return waiter != NULL;
}

/* A stuck thread waits, so its blocks and their accounts stay. */
static uint64_t held_by_stuck(budget *self, const strata_budget_account *account)
{
    strata_table *table = strata_resource_table(&self->resource);
    const uint32_t end = strata_table_slot_limit(table);
    uint64_t bytes = 0;
    for (uint32_t slot = 1; slot < end; slot++) {
        budget_record *record = budget_record_in(self, strata_table_entry(table, slot));
        const uint64_t holder = atomic_load_explicit(&record->holder, memory_order_acquire);
        if (holder && is_stuck(self, holder) &&
            is_below(atomic_load_explicit(&record->account, memory_order_relaxed), account))
            bytes += atomic_load_explicit(&record->held, memory_order_relaxed);
    }
    return bytes;
}

static bool several_are_stuck(const budget *self)
{
    unsigned count = 0;
    for (const budget_waiter *waiter = self->waiters; waiter; waiter = waiter->next)
        count += waiter->stuck;
    return count > 1;
}

/* Whether a request would not fit even if all but the stuck threads freed what they have. One that waits alone may wait
 * for a thread that takes its blocks over: only if no other thread has any. */
static bool waits_for_stuck(budget *self, const budget_waiter *waiter)
{
    const uint64_t limit = budget_limit_of(waiter->failing), held = held_by_stuck(self, waiter->failing);
    if (!several_are_stuck(self))
        return held == budget_in_use(waiter->failing);
    return limit && (held >= limit || waiter->bytes > limit - held);
}

/* Leaves out waiters until the others wait for each other alone. */
static void find_stuck(budget *self)
{
    bool changed = true;
    for (budget_waiter *waiter = self->waiters; waiter; waiter = waiter->next)
        waiter->stuck = true;
    while (changed) {
        changed = false;
        for (budget_waiter *waiter = self->waiters; waiter; waiter = waiter->next) {
            if (!waiter->stuck || waits_for_stuck(self, waiter))
                continue;
            waiter->stuck = false;
            changed = true;
        }
    }
}

static bool has_lasted(budget_waiter *waiter, uint64_t now)
{
    if (!waiter->stuck_since) {
        waiter->stuck_since = now;
        waiter->tries = 0;
    }
    return now - waiter->stuck_since >= GRACE_NS && waiter->tries >= LEAST_TRIES;
}

static void look(budget *self, uint64_t now)
{
    budget_waiter *last = NULL;
    bool lasted = true;
    find_stuck(self);
    for (budget_waiter *waiter = self->waiters; waiter; waiter = waiter->next) {
        if (!waiter->stuck) {
            waiter->stuck_since = 0;
            continue;
        }
        lasted &= has_lasted(waiter, now);
        if (!last || waiter->number > last->number)
            last = waiter;
    }
    if (!last || !lasted)
        return;
    last->told = true;
    for (budget_waiter *waiter = self->waiters; waiter; waiter = waiter->next)
        waiter->stuck_since = 0;
}

bool budget_wait_is_in_vain(budget *self, budget_waiter *waiter, strata_budget_account *failing, uint64_t bytes)
{
    const strata_thread *thread = strata_thread_self();
    if (!self->finds_deadlocks || !thread || atomic_load_explicit(&self->freed_by_others, memory_order_relaxed))
        return false;
    const uint64_t now = strata_timestamp_clock();
    strata_lock_take(&self->waiters_lock);
    if (!waiter->number) {
        waiter->number = ++self->waits;
        waiter->thread = thread->serial;
        waiter->next = self->waiters;
        self->waiters = waiter;
    }
    if (waiter->failing != failing)
        waiter->stuck_since = 0;
    waiter->failing = failing;
    waiter->bytes = bytes;
    waiter->tries++;
    if (now >= self->next_look) {
        self->next_look = now + LOOK_NS;
        look(self, now);
    }
    const bool told = waiter->told;
    strata_lock_release(&self->waiters_lock);
    return told;
}

void budget_wait_leave(budget *self, budget_waiter *waiter)
{
    if (!waiter->number)
        return;
    strata_lock_take(&self->waiters_lock);
    budget_waiter **at = &self->waiters;
    while (*at != waiter)
        at = &(*at)->next;
    *at = waiter->next;
    strata_lock_release(&self->waiters_lock);
}

void budget_note_holder(budget *self, const strata_block *block)
{
    const strata_thread *thread = strata_thread_self();
    budget_record *record = budget_record_of(self, block->id);
    if (!record || !thread)
        return;
    atomic_store_explicit(&record->held, budget_record_bytes(record), memory_order_relaxed);
    atomic_store_explicit(&record->holder, thread->serial, memory_order_release);
}

static bool is_live(const strata_entry *entry, const strata_block *block)
{
    return entry && strata_word_is(atomic_load_explicit(&entry->word, memory_order_acquire), block->id.generation,
                                   STRATA_BLOCK_LIVE);
}

uint64_t budget_forget_holder(budget *self, const strata_block *block)
{
    strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    if (!is_live(entry, block))
        return 0;
    return atomic_exchange_explicit(&budget_record_in(self, entry)->holder, 0, memory_order_relaxed);
}

void budget_freed(budget *self, const strata_block *block, uint64_t holder, bool freed)
{
    const strata_thread *thread = strata_thread_self();
    strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), block->id);
    if (!holder)
        return;
    if (!freed && is_live(entry, block))
        atomic_store_explicit(&budget_record_in(self, entry)->holder, holder, memory_order_release);
    if (freed && (!thread || thread->serial != holder))
        atomic_store_explicit(&self->freed_by_others, true, memory_order_relaxed);
}
