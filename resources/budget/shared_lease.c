/* Slots and leases. "With the lock": the file's lock. */
#define _GNU_SOURCE
#include "resources/budget/shared_internal.h"

#include "core/base/error.h"
#include "core/base/escape.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

/* Extra lease, so that not every request takes the lock. */
static const uint64_t max_advance = UINT64_C(256) << 20;

/* ---- record locks ---- */

static struct flock range(short type, off_t byte)
{
    return (struct flock){.l_type = type, .l_whence = SEEK_SET, .l_start = byte, .l_len = 1};
}

bool shared_lock_byte(int descriptor, off_t byte, bool wait)
{
    struct flock lock = range(F_WRLCK, byte);
    int result;
    /* EDEADLK: the kernel looks at processes, and may report two whose threads wait for two files. */
    while ((result = fcntl(descriptor, wait ? F_SETLKW : F_SETLK, &lock)) != 0 && (errno == EINTR || errno == EDEADLK))
        usleep(100);
    return result == 0;
}

void shared_unlock_byte(int descriptor, off_t byte)
{
    struct flock lock = range(F_UNLCK, byte);
    fcntl(descriptor, F_SETLK, &lock);
}

/* By another process: own locks do not show. */
static bool byte_is_held(int descriptor, off_t byte)
{
    struct flock lock = range(F_WRLCK, byte);
    return fcntl(descriptor, F_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

static off_t byte_of(const shared_file *file, const shared_slot *slot)
{
    return 1 + (off_t)(slot - file->slots);
}

static bool lock_file(budget_shared *shared)
{
    strata_lock_take(&shared->lock);
    if (shared_lock_byte(shared->descriptor, 0, true))
        return true;
    strata_lock_release(&shared->lock);
    return false;
}

static void unlock_file(budget_shared *shared)
{
    shared_unlock_byte(shared->descriptor, 0);
    strata_lock_release(&shared->lock);
}

/* ---- slots ---- */

static uint32_t used_slots(const shared_file *file)
{
    uint32_t used = atomic_load_explicit(&file->used_slots, memory_order_acquire);
    return used < SHARED_SLOTS ? used : SHARED_SLOTS;
}

static uint64_t lease_of(const shared_slot *slot)
{
    return atomic_load_explicit(&slot->lease, memory_order_acquire);
}

static uint64_t all_leases(const shared_file *file)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < used_slots(file); i++)
        if (__builtin_add_overflow(all, lease_of(&file->slots[i]), &all))
            return UINT64_MAX; /* damaged file: grant nothing */
    return all;
}

static uint64_t limit_of(const shared_file *file)
{
    uint64_t limit = atomic_load_explicit(&file->limit, memory_order_acquire);
    return limit ? limit : UINT64_MAX / 2;
}

/* How far leases must shrink before `more` can be leased. They may exceed the limit if a process died in
 * shared_set_limit(). */
static uint64_t shortage(const shared_file *file, uint64_t more)
{
    uint64_t wanted;
    if (__builtin_add_overflow(all_leases(file), more, &wanted))
        return UINT64_MAX;
    return wanted > limit_of(file) ? wanted - limit_of(file) : 0;
}

/* The pid last: without it no bytes count. With the lock. */
static void clear_slot(shared_slot *slot)
{
    atomic_store_explicit(&slot->lease, 0, memory_order_release);
    atomic_store_explicit(&slot->in_use, 0, memory_order_release);
    atomic_store_explicit(&slot->frozen, 0, memory_order_release);
    atomic_store_explicit(&slot->seen_dead, 0, memory_order_relaxed);
    for (size_t i = 0; i < SHARED_TAGS; i++) {
        atomic_store_explicit(&slot->tags[i].in_use, 0, memory_order_relaxed);
        slot->tags[i].name[0] = '\0';
    }
    atomic_store_explicit(&slot->pid, 0, memory_order_release);
}

/* Once the driver has its memory back. With the lock. */
static bool free_if_dead(const budget_shared *shared, shared_slot *slot)
{
    if (slot == shared_slot_of(shared) || !atomic_load_explicit(&slot->pid, memory_order_acquire))
        return false;
    if (byte_is_held(shared->descriptor, byte_of(shared->file, slot)))
        return false;
    const shared_identity identity = {
        .pid = atomic_load_explicit(&slot->pid, memory_order_relaxed),
        .started = atomic_load_explicit(&slot->started, memory_order_relaxed),
        .pid_namespace = atomic_load_explicit(&slot->pid_namespace, memory_order_relaxed),
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
    if (lease_of(slot) && !was_self && !shared_process_is_gone(&identity, seen_dead))
        return false;
    clear_slot(slot);
    return true;
}

static void free_dead_slots(const budget_shared *shared)
{
    for (uint32_t i = 0; i < used_slots(shared->file); i++)
        free_if_dead(shared, &shared->file->slots[i]);
}

/* Returns the bytes taken. With the lock. */
static uint64_t take_surplus(shared_slot *slot, uint64_t most)
{
    uint64_t lease = lease_of(slot);
    if (lease <= atomic_load_explicit(&slot->in_use, memory_order_relaxed))
        return 0;
    atomic_store_explicit(&slot->frozen, 1, memory_order_seq_cst);
    uint64_t in_use = atomic_load_explicit(&slot->in_use, memory_order_seq_cst);
    uint64_t surplus = lease > in_use ? lease - in_use : 0;
    uint64_t taken = surplus < most ? surplus : most;
    atomic_store_explicit(&slot->lease, lease - taken, memory_order_seq_cst);
    atomic_store_explicit(&slot->frozen, 0, memory_order_seq_cst);
    return taken;
}

static bool has_processes(const budget_shared *shared)
{
    for (uint32_t i = 0; i < used_slots(shared->file); i++)
        if (atomic_load_explicit(&shared->file->slots[i].pid, memory_order_acquire))
            return true;
    return false;
}

strata_status shared_take_slot(budget_shared *shared, const shared_terms *terms)
{
    shared_file *file = shared->file;
    free_dead_slots(shared);
    if (terms->limit && !has_processes(shared))
        atomic_store_explicit(&file->limit, terms->limit, memory_order_relaxed);
    for (uint32_t i = 0; i < SHARED_SLOTS; i++) {
        shared_slot *slot = &file->slots[i];
        if (atomic_load_explicit(&slot->pid, memory_order_acquire) ||
            !shared_lock_byte(shared->descriptor, byte_of(file, slot), false))
            continue;
        shared_identity self;
        shared_process_self(&self);
        clear_slot(slot);
        atomic_store_explicit(&slot->started, self.started, memory_order_relaxed);
        atomic_store_explicit(&slot->pid_namespace, self.pid_namespace, memory_order_relaxed);
        atomic_store_explicit(&shared->own_slot, slot, memory_order_release);
        atomic_store_explicit(&slot->pid, self.pid, memory_order_release);
        if (i >= used_slots(file))
            atomic_store_explicit(&file->used_slots, i + 1, memory_order_release);
        return STRATA_SUCCESS;
    }
    return strata_fail(STRATA_ERROR_BUSY, "the shared budget %s has %d processes already", shared->path, SHARED_SLOTS);
}

/* Without the lock, the lease is left: other processes can take it. */
void shared_leave_slot(budget_shared *shared)
{
    shared_slot *own = shared_slot_of(shared);
    atomic_store_explicit(&own->in_use, 0, memory_order_seq_cst);
    if (!lock_file(shared))
        return;
    clear_slot(own);
    unlock_file(shared);
}

bool shared_slot_is_alive(const budget_shared *shared, const shared_slot *slot)
{
    return slot == shared_slot_of(shared) || byte_is_held(shared->descriptor, byte_of(shared->file, slot));
}

/* ---- leases ---- */

bool shared_take(budget_shared *shared, uint64_t bytes)
{
    shared_slot *own = shared_slot_of(shared);
    uint64_t now = atomic_load_explicit(&own->in_use, memory_order_relaxed), more;
    do {
        uint64_t lease = atomic_load_explicit(&own->lease, memory_order_relaxed);
        if (__builtin_add_overflow(now, bytes, &more) || more > lease)
            return false;
    } while (
        !atomic_compare_exchange_weak_explicit(&own->in_use, &now, more, memory_order_seq_cst, memory_order_relaxed));
    if (!atomic_load_explicit(&own->frozen, memory_order_seq_cst) &&
        atomic_load_explicit(&own->in_use, memory_order_seq_cst) <=
            atomic_load_explicit(&own->lease, memory_order_seq_cst))
        return true;
    atomic_fetch_sub_explicit(&own->in_use, bytes, memory_order_seq_cst);
    return false;
}

static uint64_t least_of(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

/* With the lock. */
static bool grow_lease(budget_shared *shared, uint64_t need)
{
    shared_file *file = shared->file;
    shared_slot *own = shared_slot_of(shared);
    atomic_store_explicit(&own->frozen, 0, memory_order_seq_cst); /* of a process that died */
    uint64_t lease = lease_of(own);
    if (lease >= need)
        return true;
    uint64_t missing = need - lease;
    uint64_t over = shortage(file, missing);
    if (over) {
        free_dead_slots(shared);
        over = shortage(file, missing);
    }
    for (uint32_t i = 0; i < used_slots(file) && over; i++)
        if (&file->slots[i] != own)
            over -= take_surplus(&file->slots[i], over);
    if (over)
        return false;
    uint64_t left = limit_of(file) - all_leases(file) - missing;
    uint64_t more = least_of(least_of(max_advance, missing < max_advance ? missing * 4 : missing), left / 8);
    atomic_store_explicit(&own->lease, need + more, memory_order_seq_cst);
    return true;
}

bool shared_make_room(budget_shared *shared, uint64_t bytes, uint64_t returning)
{
    uint64_t need;
    uint64_t in_use = atomic_load_explicit(&shared_slot_of(shared)->in_use, memory_order_seq_cst);
    uint64_t more = bytes > returning ? bytes - returning : 0;
    if (__builtin_add_overflow(in_use, more, &need) || !lock_file(shared))
        return false;
    bool grown = grow_lease(shared, need);
    unlock_file(shared);
    return grown;
}

void shared_take_for_reuse(budget_shared *shared, uint64_t bytes)
{
    atomic_fetch_add_explicit(&shared_slot_of(shared)->in_use, bytes, memory_order_seq_cst);
}

bool shared_is_covered(const budget_shared *shared)
{
    const shared_slot *own = shared_slot_of(shared);
    return atomic_load_explicit(&own->in_use, memory_order_seq_cst) <= lease_of(own);
}

void shared_give(budget_shared *shared, uint64_t bytes)
{
    atomic_fetch_sub_explicit(&shared_slot_of(shared)->in_use, bytes, memory_order_seq_cst);
}

uint64_t shared_limit(const budget_shared *shared)
{
    return atomic_load_explicit(&shared->file->limit, memory_order_relaxed);
}

uint64_t shared_in_use(const budget_shared *shared)
{
    uint64_t all = 0;
    for (uint32_t i = 0; i < used_slots(shared->file); i++)
        all += atomic_load_explicit(&shared->file->slots[i].in_use, memory_order_relaxed);
    return all;
}

/* Unused leases above the new limit are taken back. */
strata_status shared_set_limit(budget_shared *shared, uint64_t limit)
{
    if (!lock_file(shared))
        return strata_fail(STRATA_ERROR_IO, "%s cannot be locked: %s", shared->path, strerror(errno));
    atomic_store_explicit(&shared->file->limit, limit, memory_order_seq_cst);
    uint64_t over = shortage(shared->file, 0);
    for (uint32_t i = 0; i < used_slots(shared->file) && over; i++)
        over -= take_surplus(&shared->file->slots[i], over);
    unlock_file(shared);
    return STRATA_SUCCESS;
}

/* ---- tags ---- */

/* Names are written once, under shared->lock. */
static uint32_t find_tag_index(budget_shared *shared, strata_tag tag)
{
    shared_tag *tags = shared_slot_of(shared)->tags;
    char name[SHARED_TAG_NAME] = "";
    memcpy(name, strata_tag_name(tag), strata_text_cut(strata_tag_name(tag), SHARED_TAG_NAME - 1));
    uint32_t at = 1;
    strata_lock_take(&shared->lock);
    while (at < SHARED_TAGS - 1 && tags[at].name[0] && strcmp(tags[at].name, name) != 0)
        at++;
    if (!tags[at].name[0])
        strcpy(tags[at].name, at < SHARED_TAGS - 1 ? name : "others");
    strata_lock_release(&shared->lock);
    if (tag < TAG_INDEXES)
        atomic_store_explicit(&shared->tag_indexes[tag], (unsigned char)at, memory_order_relaxed);
    return at;
}

uint32_t shared_tag_index(budget_shared *shared, strata_tag tag)
{
    if (!tag)
        return 0;
    uint32_t index = tag < TAG_INDEXES ? atomic_load_explicit(&shared->tag_indexes[tag], memory_order_relaxed) : 0;
    return index ? index : find_tag_index(shared, tag);
}

void shared_count(budget_shared *shared, uint32_t index, int64_t bytes)
{
    atomic_fetch_add_explicit(&shared_slot_of(shared)->tags[index].in_use, (uint64_t)bytes, memory_order_relaxed);
}
