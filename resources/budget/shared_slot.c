/* The slots of a shared budget's file: taking and leaving one, those of dead processes, what each takes of the limit.
 */
#define _GNU_SOURCE
#include "resources/budget/shared_quota.h"

#include "core/base/error.h"

static off_t byte_of(const shared_file *file, const shared_slot *slot)
{
    return 1 + (off_t)(slot - file->slots);
}

uint32_t shared_used_slots(const shared_file *file)
{
    uint32_t used = atomic_load_explicit(&file->used_slots, memory_order_acquire);
    return used < SHARED_SLOTS ? used : SHARED_SLOTS;
}

/* Adds what may be below 0, as what is in use changes meanwhile. */
static uint64_t add(int64_t of_lease, int64_t of_quotas)
{
    int64_t all;
    if (__builtin_add_overflow(of_lease, of_quotas, &all))
        return UINT64_MAX;
    return all > 0 ? (uint64_t)all : 0;
}

/* Bytes that a slot's process may not use again. UINT64_MAX: damaged. */
static uint64_t used_by(const budget_shared *shared, const shared_slot *slot)
{
    int64_t of_quotas;
    return shared_quota_used_by(shared, slot, &of_quotas) ? add(shared_used_of_lease(slot), of_quotas) : UINT64_MAX;
}

/* Leases are closed while the bytes in use exceed a lowered limit. */
uint64_t shared_leased_by(const budget_shared *shared, const shared_slot *slot)
{
    const int64_t lease = shared_lease_of(slot);
    int64_t of_quotas;
    if (!shared_quota_granted_to(shared, slot, &of_quotas))
        return UINT64_MAX;
    return add(lease == SHARED_CLOSED ? shared_used_of_lease(slot) : lease, of_quotas);
}

/* What a slot takes of the limit. During reuse its bytes in use exceed its lease, and count twice. With the lock. */
static uint64_t held_by(const budget_shared *shared, const shared_slot *slot)
{
    const uint64_t all = shared_leased_by(shared, slot), claimed = shared_claimed(shared, slot);
    return all > claimed ? all - claimed : 0;
}

uint64_t shared_held_by_all(const budget_shared *shared)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < shared_used_slots(shared->file); i++)
        if (__builtin_add_overflow(all, held_by(shared, &shared->file->slots[i]), &all))
            return UINT64_MAX; /* damaged file: grant nothing */
    return all;
}

/* Clears a slot, the pid last: without it no bytes count. With the lock. */
static void clear_slot(const budget_shared *shared, shared_slot *slot)
{
    atomic_store_explicit(&slot->lease, 0, memory_order_release);
    atomic_store_explicit(&slot->in_use, 0, memory_order_release);
    atomic_store_explicit(&slot->settling, 0, memory_order_release);
    shared_quota_clear(shared, slot);
    shared_retired_clear(shared->file, slot);
    atomic_store_explicit(&slot->frozen, 0, memory_order_release);
    atomic_store_explicit(&slot->seen_dead, 0, memory_order_relaxed);
    for (size_t i = 0; i < SHARED_TAGS; i++) {
        atomic_store_explicit(&slot->tags[i].in_use, 0, memory_order_relaxed);
        slot->tags[i].name[0] = '\0';
    }
    atomic_store_explicit(&slot->pid, 0, memory_order_release);
}

/* Frees the slot of a dead process, once the driver has its memory back. With the lock. */
static bool free_if_dead(const budget_shared *shared, shared_slot *slot)
{
    if (slot == shared_slot_of(shared) || !atomic_load_explicit(&slot->pid, memory_order_acquire))
        return false;
    if (shared_byte_is_held(shared->descriptor, byte_of(shared->file, slot)))
        return false;
    const shared_identity identity = {
        .pid = atomic_load_explicit(&slot->pid, memory_order_relaxed),
        .started = atomic_load_explicit(&slot->started, memory_order_relaxed),
        .pid_namespace = atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed),
        .image = atomic_load_explicit(&slot->image, memory_order_relaxed),
    };
    shared_identity self;
    shared_process_self(&self); /* before an exec: that memory is gone */
    bool was_self =
        self.pid == identity.pid && self.started == identity.started && self.pid_namespace == identity.pid_namespace;
    uint64_t seen_dead = atomic_load_explicit(&slot->seen_dead, memory_order_relaxed);
    if (!seen_dead) {
        seen_dead = shared_clock();
        atomic_store_explicit(&slot->seen_dead, seen_dead, memory_order_relaxed);
    }
    if (held_by(shared, slot) && !was_self && !shared_process_is_gone(&identity, seen_dead) &&
        !shared_process_lacks_file(&identity, shared->inode, seen_dead))
        return false;
    clear_slot(shared, slot);
    return true;
}

void shared_free_dead_slots(const budget_shared *shared)
{
    for (uint32_t i = 0; i < shared_used_slots(shared->file); i++)
        free_if_dead(shared, &shared->file->slots[i]);
}

static uint32_t count_processes(const budget_shared *shared)
{
    uint32_t count = 0;
    for (uint32_t i = 0; i < shared_used_slots(shared->file); i++)
        count += atomic_load_explicit(&shared->file->slots[i].pid, memory_order_acquire) != 0;
    return count;
}

strata_status shared_take_slot(budget_shared *shared, const shared_terms *terms)
{
    shared_file *file = shared->file;
    shared_free_dead_slots(shared);
    if (terms->limit && shared->sets_limit && !count_processes(shared))
        atomic_store_explicit(shared->limit, terms->limit, memory_order_relaxed);
    for (uint32_t i = 0; i < SHARED_SLOTS; i++) {
        shared_slot *slot = &file->slots[i];
        if (atomic_load_explicit(&slot->pid, memory_order_acquire) ||
            !shared_lock_byte(shared->descriptor, byte_of(file, slot), false))
            continue;
        shared_identity self;
        shared_process_self(&self);
        if (!shared_file_fill(shared->descriptor, file, slot)) {
            shared_unlock_byte(shared->descriptor, byte_of(file, slot));
            return shared_file_refuse(shared->path, "made larger");
        }
        clear_slot(shared, slot);
        atomic_store_explicit(&slot->started, self.started, memory_order_relaxed);
        atomic_store_explicit(&slot->pid_namespace, self.pid_namespace, memory_order_relaxed);
        atomic_store_explicit(&slot->image, self.image, memory_order_relaxed);
        atomic_store_explicit(&shared->own_slot, slot, memory_order_release);
        atomic_store_explicit(&slot->pid, self.pid, memory_order_release);
        if (i >= shared_used_slots(file))
            atomic_store_explicit(&file->used_slots, i + 1, memory_order_release);
        return STRATA_SUCCESS;
    }
    return strata_fail(STRATA_ERROR_BUSY, "the shared budget %s has %d processes already", shared->path, SHARED_SLOTS);
}

/* If the file cannot be locked, or the program has closed the descriptor, other processes can take the lease. */
void shared_leave_slot(budget_shared *shared)
{
    shared_slot *own = shared_slot_of(shared);
    atomic_store_explicit(&own->in_use, 0, memory_order_seq_cst);
    if (!shared_file_has_descriptor(shared) || !shared_lock_file(shared))
        return;
    clear_slot(shared, own);
    shared_unlock_file(shared);
}

bool shared_slot_is_alive(const budget_shared *shared, const shared_slot *slot)
{
    return slot == shared_slot_of(shared) || shared_byte_is_held(shared->descriptor, byte_of(shared->file, slot));
}

uint64_t shared_in_use_of(const budget_shared *shared, const shared_slot *slot)
{
    uint64_t used = used_by(shared, slot), claimed = shared_claimed(shared, slot);
    return used > claimed ? used - claimed : 0;
}

uint64_t shared_in_use(const budget_shared *shared)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < shared_used_slots(shared->file); i++)
        all += shared_in_use_of(shared, &shared->file->slots[i]);
    return all;
}

int64_t shared_count(budget_shared *shared, int64_t bytes)
{
    return atomic_fetch_add_explicit(&shared->counted, bytes, memory_order_seq_cst) + bytes; /* see open_quota */
}

uint64_t shared_own_claimed(const budget_shared *shared)
{
    const shared_slot *own = shared_slot_of(shared);
    const uint64_t settling = atomic_load_explicit(&own->settling, memory_order_seq_cst);
    const uint64_t claimed = shared_claimed(shared, own);
    return claimed > settling ? claimed - settling : 0;
}

/* Adds up the other processes' bytes. Returns a number that depends on those of each. */
static uint64_t add_up_others(const budget_shared *shared, uint64_t *bytes)
{
    const shared_slot *own = shared_slot_of(shared);
    uint64_t all = 0, mixed = 0;
    for (uint32_t i = 0; i < shared_used_slots(shared->file); i++) {
        const shared_slot *slot = &shared->file->slots[i];
        const uint64_t one = slot == own ? 0 : shared_in_use_of(shared, slot);
        all += one;
        mixed = mixed * UINT64_C(6364136223846793005) + one;
    }
    *bytes = all;
    return mixed;
}

bool shared_others_at_once(const budget_shared *shared, uint64_t *bytes)
{
    uint64_t before = add_up_others(shared, bytes);
    for (unsigned i = 0; i < 4; i++) {
        const uint64_t now = add_up_others(shared, bytes);
        if (now == before)
            return true;
        before = now;
    }
    *bytes = 0;
    return false;
}

strata_status shared_remove(budget_shared *shared)
{
    strata_status status = STRATA_SUCCESS;
    if (!shared_lock_file(shared))
        return shared_file_refuse(shared->path, "locked");
    strata_error_suppress_begin(); /* the log callback may take locks of the program */
    shared_free_dead_slots(shared);
    uint32_t processes = count_processes(shared);
    if (processes)
        status = strata_fail(STRATA_ERROR_BUSY, "the shared budget %s is used by %u process%s: end %s first",
                             shared->path, processes, processes == 1 ? "" : "es", processes == 1 ? "it" : "them");
    else
        status = shared_file_remove(shared->path);
    shared_unlock_file(shared);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}
