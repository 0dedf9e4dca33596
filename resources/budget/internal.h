/* A budget layer and its accounts.
 *
 *     limit = in use + quotas of all threads + free quota        (while memory is reused, its bytes count twice)
 *                                                                 in use: charges in flight too
 *
 * A shared account has no such quotas: shared.h, shared_quota.h.
 *
 * A thread takes quota in advance and charges requests to it. If its quota and the free quota are too small, it locks
 * the account, recalls all quotas, waits for charges in flight, and decides. Each slot has a busy flag
 * (core/base/busy_flag.h); the lock's owner excludes the threads with `exclusive`.
 *
 * A request that waits for memory to be freed holds no charge. One that waits for charges in flight may hold those of
 * the accounts below; accounts are locked before their parents.
 *
 *     lock                 guards
 *     account (locked)     quotas and limit, while its owner decides; held across waits
 *     account.state_lock   whether the account is locked, and its notifications; held briefly
 *     account.counts_lock  counts by threads that are in no slot (free_quota.h); a leaf
 *     budget.lock          the list of accounts
 *     shared->lock         the file's record lock, among the threads of the process
 *     record lock, byte 0  leases and slots of the file, among processes */
#ifndef STRATA_RESOURCES_BUDGET_INTERNAL_H
#define STRATA_RESOURCES_BUDGET_INTERNAL_H

#include "core/base/lock.h"
#include "core/base/per_thread.h"
#include "core/stack/fuse.h"
#include "core/streams/device.h"
#include "resources/budget/shared_retired.h"

#include <strata/budget.h>

#include <stdalign.h>

enum { BUDGET_NAME = 64, BUDGET_DEPTH = 16, BUDGET_NOTIFICATIONS = 16 };

/* A thread's part of an account. Used by its thread while busy, else under the account's lock. */
typedef struct budget_slot {
    _Atomic uint64_t quota;
    union {
        struct {
            _Atomic uint32_t busy;
            _Atomic uint32_t in_flight; /* charges that are not finished; written by the thread */
        };
        _Atomic uint64_t state; /* both halves, for one store */
    };
    _Atomic uint64_t flight_bytes; /* of the charges in flight; written by the thread; without one: any value */
    _Atomic uint64_t most;         /* quota that the thread keeps when it frees; 0 after a recall */
    _Atomic int64_t steps;         /* charges since the account chose to count or not */
    /* Bytes and number of the charges that were in flight when the account began to count, and are not counted yet.
     * Written under counts_lock. */
    _Atomic uint64_t late;
    uint32_t late_flights;
} budget_slot;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the two halves of a slot's word");

typedef struct budget_notification {
    bool above_mark;
    uint64_t in_use;
} budget_notification;

struct strata_budget_account {
    /* What each request reads is on other cache lines than what requests write. Constant. */
    alignas(64) struct budget *layer;
    strata_budget_account *parent; /* NULL: the base */
    struct budget_shared *shared;  /* NULL: not shared */
    uint64_t soft;                 /* mark; 0: none */
    bool reservation;              /* charged to its parents when opened */
    bool fast;                     /* base, not shared */
    bool quotas_in_file;           /* base, shared and without a mark: shared_quota.h */
    /* Written under the account's lock. */
    _Atomic bool exclusive; /* threads must not use their quotas */
    /* free_quota.h. Written under the account's lock and counts_lock; constant while a slot is busy. */
    _Atomic bool counts;
    _Atomic uint32_t threads;   /* threads that share the free quota; 0 while it counts */
    _Atomic int64_t kept_free;  /* free quota that no thread takes: no new peak goes uncounted; 0 while it counts */
    _Atomic uint64_t max_quota; /* quota of a thread, for small blocks; 0 while it counts */
    _Atomic uint64_t slack;     /* bytes that the peak may lack; 0 while it counts */
    strata_per_thread slots;    /* budget_slot; shared: shared_quota, of the file */

    /* Constant. */
    uint64_t soft_low; /* 0: no mark, as soft */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    char name[BUDGET_NAME];
    char parent_name[BUDGET_NAME]; /* the parent may be gone */
    uint32_t depth;

    /* Read by requests that take or give free quota. limit, reused_bytes: written under the account's lock. */
    alignas(64) _Atomic uint64_t limit; /* 0: none */
    _Atomic uint64_t peak;              /* never above what was in use at once; any thread */
    _Atomic int64_t reused_bytes;       /* counted twice during reuse */

    /* Written by any thread. */
    alignas(64) _Atomic int64_t free_quota; /* below 0 during reuse, and if the limit was lowered below use */
    _Atomic int64_t counted;    /* while it counts: in use and decided; below 0 before what is late is counted */
    _Atomic uint32_t in_flight; /* charges of threads without a slot */
    _Atomic uint32_t pins;      /* uses by threads without a charge in the account, which keep it */

    alignas(64) strata_spin counts_lock;
    uint64_t undecided;    /* bytes of charges in flight without a slot; under counts_lock */
    _Atomic uint64_t late; /* bytes of all slots' `late`; written under counts_lock */

    /* Shared accounts; any thread, relaxed. */
    _Atomic uint64_t others; /* in use by other processes when last looked at */
    _Atomic uint32_t looks;  /* charges so far; may lack some */

    strata_lock state_lock; /* held briefly; STRATA_RANK_ACCOUNT_LOCK */
    pthread_cond_t unlocked;
    bool locked;                 /* guarded by state_lock */
    int cancel;                  /* what strata_cancel_forbid gave to the thread that has locked it */
    _Atomic uint64_t lock_owner; /* serial of the thread that has the lock, 0: none; a thread looks only for its own */

    /* Guarded by state_lock; above_mark is read without it. */
    _Atomic bool above_mark; /* set at soft, cleared at soft_low */
    bool notifying;          /* a thread delivers notifications, also those that are recorded meanwhile */
    uint32_t delivered, recorded;
    budget_notification notifications[BUDGET_NOTIFICATIONS]; /* a ring */

    _Atomic uint64_t refused, waited, reused, recalls; /* any thread, relaxed: statistics */

    _Atomic bool closed;         /* set once */
    _Atomic uint64_t unreturned; /* bytes of a closed reservation that are still charged to its parents */
    /* Guarded by the layer's lock. */
    uint32_t children; /* open accounts below */
    strata_budget_account *next;
};

typedef struct budget_terms {
    const char *name;
    uint64_t limit, soft, soft_low;
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    bool reservation;
    struct budget_shared *shared;
} budget_terms;

/* The account that a thread has entered. Used by its thread alone; if the serial differs, the thread is in the base. */
typedef struct budget_thread_account {
    strata_budget_account *account;
    uint64_t serial;
} budget_thread_account;

/* A request that waits for live bytes; guarded by the layer's waiters_lock. */
typedef struct budget_waiter {
    struct budget_waiter *next;
    uint64_t number;                /* from 1, in order; 0: not in the list */
    uint64_t thread;                /* its serial */
    strata_budget_account *failing; /* account without room */
    uint64_t bytes;                 /* what it would be charged */
    uint64_t tries;                 /* charges tried since stuck_since */
    uint64_t stuck_since;           /* nanoseconds; 0: it is not stuck */
    bool stuck;                     /* it waits for stuck threads alone */
    bool told;
} budget_waiter;

/* What a layer has that the fast paths leave to the slow ones. */
enum {
    BUDGET_SHARED = 1,
    BUDGET_MARKS = 2,   /* an account has a soft mark */
    BUDGET_ENTERED = 4, /* a thread has entered an account */
};

typedef struct budget {
    strata_resource resource;
    strata_fused fused;
    strata_device *device;
    strata_budget_wait wait;                      /* constant */
    uint64_t timeout;                             /* nanoseconds; constant */
    _Atomic(strata_resource *) charging;          /* computes charges; found at the first request */
    _Atomic(const strata_charge_table *) charges; /* its table; NULL: none, or not found yet */
    _Atomic unsigned char retires;     /* whether frees are recorded; found at the first one of a shared budget */
    _Atomic unsigned char special;     /* BUDGET_SHARED and its siblings; never cleared */
    bool finds_deadlocks;              /* constant */
    _Atomic bool freed_by_others;      /* a thread has freed a block of another one; never cleared */
    strata_per_thread thread_accounts; /* budget_thread_account */
    strata_lock waiters_lock;          /* guards the next three */
    budget_waiter *waiters;
    uint64_t waits;                  /* requests that began to wait so far */
    uint64_t next_look;              /* clock of the next search for a deadlock, nanoseconds */
    strata_lock lock;                /* guards the list and its accounts' `children` */
    strata_budget_account *accounts; /* open, charged or pinned; not the base */
    strata_budget_account base;
} budget;

/* In a block's layer bytes. Written before the block is returned, then by one completion at a time. */
typedef struct budget_record {
    _Atomic(strata_budget_account *) account; /* read by any thread, for reuse */
    _Atomic uint64_t charge;                  /* bytes that are still charged; read for an invalid free too */
    union {
        struct { /* shared budgets only */
            uint64_t tag_index;
            _Atomic uint64_t ticket; /* of the free's record, shared_retired.h; 0: none */
        };
        struct {                     /* if the layer finds deadlocks; any thread reads */
            _Atomic uint64_t holder; /* serial of the thread that allocated the block; 0: unknown, or freed */
            _Atomic uint64_t held;   /* what the holder is charged for it */
        };
    };
} budget_record;

static inline unsigned budget_special(const budget *self)
{
    return atomic_load_explicit(&self->special, memory_order_relaxed);
}

/* The capacity without a limit: above any device's, safe from overflow. */
static const int64_t budget_boundless = INT64_C(1) << 62;

static inline int64_t budget_capacity_of(uint64_t limit)
{
    return limit ? (int64_t)limit : budget_boundless; /* below 2^62 */
}

static inline uint64_t budget_limit_of(const strata_budget_account *account)
{
    return account->shared ? shared_limit(account->shared)
                           : atomic_load_explicit(&account->limit, memory_order_relaxed);
}

/* Bytes in use and in thread quotas; of a shared account, in use by all processes. */
static inline int64_t budget_granted(const strata_budget_account *account)
{
    if (account->shared)
        return (int64_t)shared_in_use(account->shared);
    return budget_capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed)) -
           atomic_load_explicit(&account->free_quota, memory_order_acquire) -
           atomic_load_explicit(&account->reused_bytes, memory_order_relaxed);
}

/* The next account to charge; NULL: none. A reservation's parents are charged already. */
static inline strata_budget_account *budget_above(const strata_budget_account *account)
{
    return account->reservation ? NULL : account->parent;
}

static inline budget_record *budget_record_in(const budget *self, strata_entry *entry)
{
    return (budget_record *)(void *)((char *)entry + self->resource.block_offset);
}

static inline budget_record *budget_record_of(const budget *self, strata_block_id id)
{
    strata_entry *entry = strata_table_lookup(strata_resource_table(&self->resource), id);
    return entry ? budget_record_in(self, entry) : NULL;
}

static inline uint64_t budget_record_bytes(const budget_record *record)
{
    return atomic_load_explicit(&record->charge, memory_order_relaxed);
}

static inline void budget_record_set_bytes(budget_record *record, uint64_t bytes)
{
    atomic_store_explicit(&record->charge, bytes, memory_order_relaxed);
}

static inline budget_record *budget_record_write(budget *self, strata_entry *entry, strata_budget_account *account,
                                                 uint64_t bytes)
{
    budget_record *record = budget_record_in(self, entry);
    atomic_store_explicit(&record->account, account, memory_order_relaxed);
    budget_record_set_bytes(record, bytes);
    return record;
}

static inline void budget_record_charge(budget *self, strata_entry *entry, const strata_block *block,
                                        strata_budget_account *account, uint64_t bytes)
{
    budget_record *record = budget_record_write(self, entry, account, bytes);
    if (__builtin_expect(self->base.shared != NULL, 0)) {
        atomic_store_explicit(&record->ticket, 0, memory_order_relaxed);
        record->tag_index = shared_tag_index(self->base.shared, block->tag);
        shared_count_tag(self->base.shared, (uint32_t)record->tag_index, (int64_t)bytes);
    }
}

/* ---- records ---- */

/* Takes what is left of the record's charge, at most `most`; the caller gives it back. */
static inline uint64_t budget_record_take(budget_record *record, uint64_t most)
{
    uint64_t bytes = budget_record_bytes(record), taken;
    do
        taken = bytes < most ? bytes : most;
    while (!atomic_compare_exchange_weak_explicit(&record->charge, &bytes, bytes - taken, memory_order_acq_rel,
                                                  memory_order_relaxed));
    return taken;
}

/* ---- reset.c ---- */

/* Ends the charges of a shared budget's blocks if the device was reset. Returns their bytes. */
uint64_t budget_end_lost_charges(budget *self);

/* ---- usage.c ---- */

/* Counts a charge of a shared account that has succeeded. */
void budget_count_shared(strata_budget_account *account, uint64_t bytes);

/* Charges bytes to the thread's quota in a shared account, after a charge that did not fit in it, or that is one of
 * many since the last look at the other processes. False: the lease must be charged. */
bool budget_take_shared_quota(strata_budget_account *account, uint64_t bytes);

uint64_t budget_in_use(strata_budget_account *account);
void budget_usage(strata_budget_account *account, strata_budget_usage *usage);

/* ---- account_lock.c ---- */

/* Takes an account's lock, excludes its threads and recalls their quotas. False: the thread has the lock already. */
bool budget_account_lock(strata_budget_account *account);
void budget_account_unlock(strata_budget_account *account);

/* Waits until another thread that has the lock gives it back. False: there is none. */
bool budget_account_await(strata_budget_account *account);

/* Whether other threads have charges in flight. */
bool budget_others_in_flight(const strata_budget_account *account, const budget_slot *self_slot);

/* Spins, yields, or sleeps for a moment. *last_look: clock, 0 before the first call. False: no time is left. */
bool budget_wait_briefly(unsigned *spins, int64_t *last_look, int64_t *wait_left);

/* Waits until other threads have no charge in flight; under the account's lock. False: no time is left. */
bool budget_wait_until_finished(const strata_budget_account *account, const budget_slot *self_slot, int64_t *wait_left);

/* ---- charge.c ---- */

/* How long a request waits for charges in flight, over all retries. Longer than any driver call; a longer charge may
 * itself wait, in a layer below, for the holder of this account's lock. */
static const int64_t budget_in_flight_wait_ns = INT64_C(2000000000);

/* Charges the account and its parents, or none; *failing: the one without room. The charge is in flight until
 * budget_finish(). *wait_left: nanoseconds, decreases. */
bool budget_charge(strata_budget_account *account, uint64_t bytes, int64_t *wait_left, strata_budget_account **failing);

/* Ends the charge in flight of the account and its parents. `failed`: gives the bytes back first. */
void budget_finish(strata_budget_account *account, uint64_t bytes, bool failed);

/* Gives bytes back to the account and its parents. Takes leaf locks only. */
void budget_release(strata_budget_account *account, uint64_t bytes);

/* Gives back bytes that were taken out of the record. */
void budget_return_charge(budget *self, budget_record *record, strata_budget_account *account, uint64_t bytes);

/* Charges a request that retired memory, charged to `source`, is to serve. True: it fits once `reusable` bytes are
 * given back there; the account and its parents are locked until budget_reuse_end(). */
bool budget_reuse_begin(strata_budget_account *account, uint64_t bytes, const strata_budget_account *source,
                        uint64_t reusable, int64_t *wait_left);

/* Ends a charge for reuse, and unlocks the accounts. False: the memory was not reused, and an account exceeds its
 * limit. `failed`: as in budget_finish(). */
bool budget_reuse_end(strata_budget_account *account, uint64_t bytes, bool failed);

/* Gives the unused bytes of a closed reservation back; with the last of them it may be freed. */
void budget_return_to_parents(strata_budget_account *reservation);

/* ---- account_list.c ---- */

void budget_account_init(strata_budget_account *account, budget *layer, strata_budget_account *parent,
                         const budget_terms *terms);
void budget_account_destroy(strata_budget_account *account);

/* Frees closed accounts without charges and pins. Under the layer's lock. */
void budget_list_sweep(budget *self);
void budget_list_destroy(budget *self);

static inline void budget_pin(strata_budget_account *account)
{
    atomic_fetch_add_explicit(&account->pins, 1, memory_order_seq_cst);
}

static inline void budget_unpin(strata_budget_account *account)
{
    atomic_fetch_sub_explicit(&account->pins, 1, memory_order_release);
}

/* The block's account, pinned; NULL if either is gone. */
strata_budget_account *budget_pin_source(budget *self, strata_block_id of);

/* A page of pinned accounts; zeroed before the first. */
typedef struct budget_page {
    size_t count;
    strata_budget_account *accounts[16];
} budget_page;

/* Pins the next page, unpins the last one. `wanted` NULL: all accounts. False at the end. */
bool budget_list_next(budget *self, bool (*wanted)(const strata_budget_account *account), budget_page *page);

/* ---- notify.c ---- */

void budget_notify_all(budget *self);

static inline void budget_notify(budget *self)
{
    if (__builtin_expect(budget_special(self) & BUDGET_MARKS, 0))
        budget_notify_all(self);
}

/* ---- retire.c ---- */

typedef struct budget_retirement {
    shared_free free; /* ticket NULL: not recorded */
    const strata_timeline *timeline;
} budget_retirement;

/* Called before a free of a shared budget, and after its success. */
void budget_retire_begin(budget *self, const strata_block *block, CUstream handle, budget_retirement *retirement);
void budget_retire_end(budget *self, CUstream handle, const budget_retirement *retirement);

/* ---- accounts.c ---- */

strata_status budget_read_terms(const strata_device *device, const char *name, const strata_amount amounts[3],
                                budget_terms *terms);
strata_budget_account *budget_entered_account(budget *self);

/* ---- retry.c ---- */

typedef enum budget_retry_step {
    RETRY_REAP,
    RETRY_REUSE,
    RETRY_TRIM,
    RETRY_WAIT,
} budget_retry_step;

typedef struct budget_retry {
    strata_budget_account *account;
    const strata_request *request; /* NULL: a reservation */
    const _Atomic bool *wanted;    /* once false, nothing is waited for; NULL: the option alone decides */
    uint64_t bytes;
    strata_budget_account *failing; /* account without room */
    budget_retry_step next;
    bool waited, gave_up; /* the latter as the device's context was about to end */
    int64_t wait_left;    /* nanoseconds, for charges in flight */
    uint64_t deadline;    /* nanoseconds; 0: has not waited */
    long pause;           /* nanoseconds */
    budget_waiter waiter;
} budget_retry;

strata_status budget_retry_charge(budget *self, budget_retry *retry, strata_block *out, bool *done);

extern const strata_resource_ops budget_ops, budget_live_ops, budget_shared_ops;

/* ---- report.c ---- */

enum {
    VALUE_LIMIT,
    VALUE_IN_USE,
    VALUE_REMAINING,
    VALUE_PEAK,
    VALUE_SOFT,
    VALUE_REFUSED,
    VALUE_WAITED,
    VALUE_REUSED,
    VALUE_RECALLS,
    BUDGET_VALUES
};

extern const strata_value budget_values[BUDGET_VALUES];
strata_status budget_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status budget_set_value(strata_resource *resource, size_t which, uint64_t value);
void budget_describe(strata_resource *resource, strata_emitter *to);

#endif
