/* The structs of a budget layer and its accounts.
 *
 *     limit = in use + quotas of all threads + free quota
 *
 * A thread takes quota from the account in advance and charges requests to it. If its quota and the free quota are too
 * small, it locks the account, recalls all quotas, waits for charges in flight, and then decides.
 *
 * Each slot has a busy flag (core/base/busy_flag.h), and the lock's owner excludes the threads with `exclusive`.
 *
 * Shared accounts have no thread quotas; see shared.h. Accounts are locked before their parents, and a request that
 * waits for memory holds no charge: there is no deadlock. */
#ifndef STRATA_RESOURCES_BUDGET_INTERNAL_H
#define STRATA_RESOURCES_BUDGET_INTERNAL_H

#include "core/base/lock.h"
#include "core/base/per_thread.h"
#include "core/stack/stack.h"
#include "core/streams/device.h"
#include "resources/budget/shared.h"

#include <strata/budget.h>

enum { BUDGET_NAME = 64, BUDGET_DEPTH = 16, BUDGET_NOTIFICATIONS = 16 };

/* The quota of a thread at an account. Used by the thread while it is busy, else under the account's lock. */
typedef struct budget_slot {
    _Atomic uint64_t quota;
    _Atomic uint64_t lowest; /* since the last transfer: the free quota gave or got bytes */
    union {
        struct {
            _Atomic uint32_t busy;      /* busy flag */
            _Atomic uint32_t in_flight; /* unfinished charges; written by the thread alone */
        };
        _Atomic uint64_t state; /* both, for one store */
    };
    _Atomic uint64_t lowest_before; /* the last charge; UINT64_MAX after a transfer */
} budget_slot;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the two halves of a slot's word");

/* A crossing of the soft mark. */
typedef struct budget_notification {
    bool above_mark;
    uint64_t in_use;
} budget_notification;

struct strata_budget_account {
    /* Constant. */
    struct budget *layer;
    strata_budget_account *parent; /* NULL: the base */
    struct budget_shared *shared;  /* NULL: not shared */
    bool reservation;              /* its parents were charged when it was opened */
    bool fast;                     /* base, not shared: has the fast path */
    char name[BUDGET_NAME];
    char parent_name[BUDGET_NAME]; /* a closed account may outlive its parent */
    uint32_t depth;

    /* Written under the account's lock: limit, max_quota, exclusive, reused_bytes. The others: any thread. */
    _Atomic int64_t free_quota;   /* below 0 if the limit was lowered below use, and during reuse */
    _Atomic uint64_t limit;       /* 0: none */
    _Atomic uint64_t max_quota;   /* of a thread, for small blocks */
    _Atomic bool exclusive;       /* threads must not use their quotas */
    _Atomic uint64_t peak;        /* upper bound */
    _Atomic int64_t reused_bytes; /* counted twice during reuse */
    _Atomic uint32_t in_flight;   /* charges in flight of threads without a slot */
    _Atomic uint32_t pins;        /* threads that use the account without a charge: keep it */
    strata_per_thread slots;

    strata_lock state_lock; /* held briefly; STRATA_RANK_ACCOUNT_LOCK */
    pthread_cond_t unlocked;
    bool locked;                 /* guarded by state_lock */
    _Atomic uint64_t lock_owner; /* serial of its thread, 0: none; a thread looks only for its own */

    uint64_t soft, soft_low; /* constant, like the next two; 0: no mark */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    /* Guarded by state_lock; above_mark is read without it. */
    _Atomic bool above_mark; /* set at soft, cleared at soft_low */
    bool notifying;          /* a thread delivers, and continues with what is recorded meanwhile */
    uint32_t delivered, recorded;
    budget_notification notifications[BUDGET_NOTIFICATIONS]; /* a ring */

    _Atomic uint64_t refused, waited, reused, recalls; /* any thread, relaxed: statistics */

    _Atomic bool closed;         /* set once */
    _Atomic uint64_t unreturned; /* bytes of a closed reservation that its parents are charged for */
    /* Guarded by the layer's lock. */
    uint32_t children; /* open ones */
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

/* The account that a thread entered; the base, if the serial is another one. Used by its thread alone. */
typedef struct budget_thread_account {
    strata_budget_account *account;
    uint64_t serial;
} budget_thread_account;

typedef struct budget {
    strata_resource resource;
    strata_device *device;
    strata_budget_wait wait;             /* constant */
    uint64_t timeout;                    /* nanoseconds; constant */
    _Atomic(strata_resource *) charging; /* computes charges; found at the first request */
    _Atomic bool has_marks;              /* an account has a soft mark; never cleared */
    _Atomic bool has_entered;            /* a thread has entered an account; never cleared */
    strata_per_thread thread_accounts;   /* budget_thread_account */
    strata_lock lock;                    /* guards the list and `children` of its accounts */
    strata_budget_account *accounts;     /* open, charged or pinned; not the base */
    strata_budget_account base;
} budget;

/* The layer bytes of a block. Written before the block is returned, and by completions, one at a time. */
typedef struct budget_record {
    _Atomic(strata_budget_account *) account; /* read by any thread, for reuse */
    uint64_t charge;                          /* bytes left */
    uint64_t tag_index;                       /* shared budgets only */
} budget_record;

/* Capacity without a limit: above any device's, and safe from overflow. */
static const int64_t budget_boundless = INT64_C(1) << 62;

static inline int64_t budget_capacity_of(uint64_t limit)
{
    return limit ? (int64_t)limit : budget_boundless; /* limits are below 2^62 */
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

/* The next account to charge: none above a reservation. */
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

static inline budget_record *budget_record_write(budget *self, const strata_block *block,
                                                 strata_budget_account *account, uint64_t bytes)
{
    budget_record *record =
        budget_record_in(self, strata_table_entry(strata_resource_table(&self->resource), block->id.slot));
    atomic_store_explicit(&record->account, account, memory_order_relaxed);
    record->charge = bytes;
    return record;
}

static inline void budget_record_charge(budget *self, const strata_block *block, strata_budget_account *account,
                                        uint64_t bytes)
{
    budget_record *record = budget_record_write(self, block, account, bytes);
    if (__builtin_expect(self->base.shared != NULL, 0)) {
        record->tag_index = shared_tag_index(self->base.shared, block->tag);
        shared_count(self->base.shared, (uint32_t)record->tag_index, (int64_t)bytes);
    }
}

/* ---- usage.c ---- */

/* Call before each change of budget_granted(). */
void budget_update_peak(strata_budget_account *account);

uint64_t budget_in_use(strata_budget_account *account);
void budget_usage(strata_budget_account *account, strata_budget_usage *usage);

/* ---- account_lock.c ---- */

/* False: the thread has the lock already, further up its stack. */
bool budget_account_lock(strata_budget_account *account);
void budget_account_unlock(strata_budget_account *account);

bool budget_others_in_flight(const strata_budget_account *account, const budget_slot *self_slot);

bool budget_wait_briefly(unsigned *spins, int64_t *last_look, int64_t *wait_left);

/* Of other threads; under the account's lock. False: no time is left. */
bool budget_wait_until_finished(const strata_budget_account *account, const budget_slot *self_slot, int64_t *wait_left);

/* ---- charge.c ---- */

/* How long a request waits for charges in flight, over all retries. Longer than any driver call; a charge that takes
 * longer may itself wait, in a layer below, for the holder of this account's lock. */
static const int64_t budget_in_flight_wait_ns = INT64_C(2000000000);

/* Charges the account and its parents, or none of them; then *failing is the one without room. The charge is in flight
 * until budget_finish(). *wait_left: nanoseconds, decreases. */
bool budget_charge(strata_budget_account *account, uint64_t bytes, int64_t *wait_left, strata_budget_account **failing);

/* `failed`: gives the bytes back first. */
void budget_finish(strata_budget_account *account, uint64_t bytes, bool failed);

/* Gives freed bytes back. Short; takes leaf locks only. */
void budget_release(strata_budget_account *account, uint64_t bytes);

/* Charges a request that retired memory will serve, for which `source` is charged. Succeeds if it fits once `reusable`
 * bytes are given back there; then the account and its parents are locked until budget_reuse_end(). */
bool budget_reuse_begin(strata_budget_account *account, uint64_t bytes, const strata_budget_account *source,
                        uint64_t reusable, int64_t *wait_left);

/* False: the memory was not reused, and an account is above its limit. `failed`: as in budget_finish(). */
bool budget_reuse_end(strata_budget_account *account, uint64_t bytes, bool failed);

/* The unused bytes of a closed reservation; with the last of them it may be freed. */
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

/* A page of pinned accounts; zero before the first. */
typedef struct budget_page {
    size_t count;
    strata_budget_account *accounts[16];
} budget_page;

/* Pins the next page and unpins the last one. NULL: all accounts. False at the end. */
bool budget_list_next(budget *self, bool (*wanted)(const strata_budget_account *account), budget_page *page);

/* ---- notify.c ---- */

void budget_notify_all(budget *self);

static inline void budget_notify(budget *self)
{
    if (__builtin_expect(atomic_load_explicit(&self->has_marks, memory_order_relaxed), 0))
        budget_notify_all(self);
}

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
    uint64_t bytes;
    strata_budget_account *failing; /* account without room */
    budget_retry_step next;
    bool waited;
    int64_t wait_left; /* nanoseconds, for charges in flight */
    uint64_t deadline; /* nanoseconds; 0: has not waited */
    long pause;        /* nanoseconds */
} budget_retry;

strata_status budget_retry_charge(budget *self, budget_retry *retry, strata_block *out, bool *done);

/* ---- operations.c ---- */

extern const strata_resource_ops budget_ops, budget_shared_ops;

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
