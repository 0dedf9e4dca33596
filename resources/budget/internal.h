/* A budget's account: a limit, and the bytes below it as credits of threads.
 *
 *     limit = in use + the credits of all threads + what nobody was given
 *
 * Each thread takes credit in advance, charges requests to it and gives bytes back to it, and no other thread looks
 * there. Who finds neither credit nor enough that nobody was given takes the account's *spins*: while it is taken,
 * credits are called in and none are given out, so what was not given to anybody is all that there is; and what threads
 * have charged for requests that are not decided yet is waited for. What does not fit then, does not fit.
 *
 * A thread says that it is busy with its cell, and only then looks whether the turn is taken; who takes the turn says
 * so, and only then looks who is busy (core/base/asymmetric.h). So a thread uses its cell without a locked instruction,
 * and the turn's thread uses all cells once nobody is busy any more.
 *
 * An account whose limit several processes share has no credits: its bytes are in resources/budget/shared.h.
 *
 * Turns are taken from an account to those above it, and what waits for memory holds no charge: no two wait for each
 * other. */
#ifndef STRATA_RESOURCES_BUDGET_INTERNAL_H
#define STRATA_RESOURCES_BUDGET_INTERNAL_H

#include "core/base/lock.h"
#include "core/base/per_thread.h"
#include "core/stack/stack.h"
#include "core/streams/device.h"
#include "resources/budget/shared.h"

#include <strata/budget.h>

enum { BUDGET_NAME = 64, BUDGET_DEPTH = 16, BUDGET_NOTIFICATIONS = 16 };

/* One thread at one account. */
typedef struct budget_slot {
    _Atomic uint64_t quota;  /* of the thread while it is busy, of the turn's thread while it is not */
    _Atomic uint64_t lowest; /* the lowest that it was since bytes last came or went; the same */
    union {
        struct {
            _Atomic uint32_t busy;      /* written by the thread alone */
            _Atomic uint32_t in_flight; /* requests that were charged and are not decided; the same */
        };
        _Atomic uint64_t state; /* both, written as one */
    };
    _Atomic uint64_t lowest_before; /* `lowest` before the last charge, if none came or went with it; the same */
} budget_slot;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the two halves of a slot's word");

/* That a mark was crossed, which is to be told. */
typedef struct budget_notification {
    bool above_mark;
    uint64_t in_use;
} budget_notification;

struct strata_budget_account {
    struct budget *layer;          /* constant */
    strata_budget_account *parent; /* above it; constant, NULL for a base */
    struct budget_shared *shared;  /* where its bytes are those of several processes; constant, NULL mostly */
    bool reservation;              /* its bytes were charged above it when it was made; constant */
    bool fast;                     /* a base account with cells: charges end with it; constant */
    char name[BUDGET_NAME];        /* constant */
    char parent_name[BUDGET_NAME]; /* constant; the parent may be gone before a closed account that is looked at */
    uint32_t depth;                /* accounts above it; constant */

    _Atomic int64_t free_quota;   /* what nobody was given; below zero where the limit was lowered under what is in use,
                                     and for the moments in which retired memory is being reused */
    _Atomic uint64_t limit;       /* 0: none. Written in the turn. */
    _Atomic uint64_t max_quota;   /* that a thread keeps: what comes beyond it goes to all. Written in the turn. */
    _Atomic bool exclusive;       /* the turn is taken: no credit is given out. Written in the turn. */
    _Atomic uint64_t peak;        /* highest of what was in use, as far as that is known; any thread */
    _Atomic int64_t reused_bytes; /* charged for memory that is being reused: counted twice for so long */
    _Atomic uint32_t
        in_flight;         /* requests in flight that no cell counts: when they were charged, the thread had none */
    _Atomic uint32_t pins; /* threads that look at the account without a charge there: it stays so long */
    strata_per_thread slots;

    strata_lock state_lock; /* guards locked and what is to be told; held for a moment; STRATA_RANK_ACCOUNT_LOCK */
    pthread_cond_t unlocked;
    bool locked;
    _Atomic uint64_t lock_owner; /* serial of the thread that has the turn, 0: none. A thread looks for its own. */

    uint64_t soft, soft_low; /* constant; 0: no mark */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    _Atomic bool above_mark;      /* the soft mark was passed and the low one not since; changed with state_lock */
    bool notifying;               /* a thread calls the callback, and will for what comes meanwhile; with state_lock */
    uint32_t delivered, recorded; /* crossings: up to here, and in all; the same */
    budget_notification notifications[BUDGET_NOTIFICATIONS]; /* by their number; the same */

    _Atomic uint64_t refused, waited, reused, recalls; /* any thread, relaxed: statistics */

    _Atomic bool closed;         /* set once */
    _Atomic uint64_t unreturned; /* of a closed reservation: bytes that did not go back to those above it yet */
    uint32_t children;           /* open accounts right below it; guarded by the layer's lock */
    strata_budget_account *next; /* of the layer's accounts; guarded by the layer's lock */
};

/* What every account starts with. */
typedef struct budget_terms {
    const char *name;
    uint64_t limit, soft, soft_low;
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    bool reservation;
    struct budget_shared *shared;
} budget_terms;

/* A thread's account in a layer. A cell outlives its thread: it counts for the one with that serial alone, and for
 * others it means the base. Written and read by the thread. */
typedef struct budget_thread_account {
    strata_budget_account *account;
    uint64_t serial;
} budget_thread_account;

typedef struct budget {
    strata_resource resource;
    strata_device *device;
    strata_budget_wait wait;             /* constant */
    uint64_t timeout;                    /* nanoseconds; constant */
    _Atomic(strata_resource *) charging; /* who answers what a request is charged; found at the first one */
    _Atomic bool has_marks;              /* some account has a soft mark; set, never cleared */
    _Atomic bool has_entered;            /* some thread has entered an account; the same */
    strata_per_thread thread_accounts;   /* budget_thread_account */
    strata_lock lock;                    /* guards the list, and how many children its accounts have */
    strata_budget_account *accounts;     /* opened and reserved ones, closed ones too until they are over */
    strata_budget_account base;
} budget;

/* The layer's bytes of a block: whose it is. Written by the thread that allocates, before anybody has the block, and by
 * completions, of which the owner reports one at a time. */
typedef struct budget_record {
    _Atomic(strata_budget_account *) account; /* also read by who asks whether the memory could be reused */
    uint64_t charge;                          /* what is not given back yet */
    uint64_t tag_index;                       /* in a shared account's file; not there where there is none */
} budget_record;

/* What an account without a limit starts with: more than any device has, and far from the end of the numbers. */
static const int64_t budget_boundless = INT64_C(1) << 62;

static inline int64_t budget_capacity_of(uint64_t limit)
{
    return limit ? (int64_t)limit : budget_boundless; /* who sets a limit has it below 2^62 */
}

static inline uint64_t budget_limit_of(const strata_budget_account *account)
{
    return account->shared ? shared_limit(account->shared)
                           : atomic_load_explicit(&account->limit, memory_order_relaxed);
}

/* What is in use or credit of a thread; of a shared account, in use by all processes. */
static inline int64_t budget_granted(const strata_budget_account *account)
{
    if (account->shared)
        return (int64_t)shared_in_use(account->shared);
    return budget_capacity_of(atomic_load_explicit(&account->limit, memory_order_relaxed)) -
           atomic_load_explicit(&account->free_quota, memory_order_acquire) -
           atomic_load_explicit(&account->reused_bytes, memory_order_relaxed);
}

/* The account above as far as charges go: none above a reservation. */
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

/* Notes the most that was in use since what is granted last changed. Whoever changes it comes here before. */
void budget_update_peak(strata_budget_account *account);

/* What is charged now; and all that an account can tell. */
uint64_t budget_in_use(strata_budget_account *account);
void budget_usage(strata_budget_account *account, strata_budget_usage *usage);

/* ---- account_lock.c ---- */

/* False if the calling thread has the turn already: it came back here from a layer below, or a callback. */
bool budget_account_lock(strata_budget_account *account);
void budget_account_unlock(strata_budget_account *account);

/* Whether another thread has a request that is charged and not decided. */
bool budget_others_in_flight(const strata_budget_account *account, const budget_slot *self_slot);

bool budget_wait_briefly(unsigned *spins, int64_t *last_look, int64_t *wait_left);

/* In the turn: whether all requests of others are decided, after waiting for them. */
bool budget_wait_until_finished(const strata_budget_account *account, const budget_slot *self_slot, int64_t *wait_left);

/* ---- charge.c ---- */

/* For how long a request waits, however often it is charged anew, for requests of others that are not decided. They
 * come back from the driver in far less; one that does not may itself be waiting, in a layer below, for what only this
 * one's turn can give. */
static const int64_t budget_in_flight_wait_ns = INT64_C(2000000000);

/* Charges `bytes` to the account and those above it, or to none; then *failing is the one where they did not fit. After
 * success the request is in flight until budget_finish. *patience, in nanoseconds, is what is left of it, and goes
 * down.
 */
bool budget_charge(strata_budget_account *account, uint64_t bytes, int64_t *wait_left, strata_budget_account **failing);

/* The request that was charged is decided. `failed`: its bytes go back first. */
void budget_finish(strata_budget_account *account, uint64_t bytes, bool failed);

/* Gives bytes of a finished free back to the account and those above it. Short; takes leaf locks alone. */
void budget_release(strata_budget_account *account, uint64_t bytes);

/* Charges a request whose memory will mostly be bytes that `source` and those above it are charged for already: with
 * the turns of the account and all above it taken, if it fits once `reusable` bytes were given back. After success,
 * budget_reuse_end has to come. */
bool budget_reuse_begin(strata_budget_account *account, uint64_t bytes, const strata_budget_account *source,
                        uint64_t reusable, int64_t *wait_left);

/* Ends that: false if some account is beyond its limit now, since the memory was not reused. `failed`: as in decide. */
bool budget_reuse_end(strata_budget_account *account, uint64_t bytes, bool failed);

/* What a closed reservation has back goes to those above it. Nothing of it is touched after the last of it. */
void budget_return_to_parents(strata_budget_account *reservation);

/* ---- account_list.c ---- */

void budget_account_init(strata_budget_account *account, budget *layer, strata_budget_account *parent,
                         const budget_terms *terms);
void budget_account_destroy(strata_budget_account *account);

/* Frees closed accounts that nothing is charged to any more. The lock is held. */
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

/* The account that a block is charged to, pinned; NULL if it has come to its end. */
strata_budget_account *budget_pin_source(budget *self, strata_block_id of);

/* Some of the accounts in the layer's list, pinned. All zero before the first. */
typedef struct budget_page {
    size_t count;
    strata_budget_account *accounts[16];
} budget_page;

/* The next page of the accounts that are `wanted`, NULL: of all; unpins the page before. False behind the last. */
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

/* What is tried for a request that does not fit, in this order. */
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
    strata_budget_account *failing; /* where it did not fit */
    budget_retry_step next;
    bool waited;
    int64_t wait_left; /* with requests of others that are not decided; nanoseconds */
    uint64_t deadline; /* of waiting, 0: not begun */
    long pause;        /* nanoseconds that the last pause of waiting took */
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

/* The layer's values, and what reads, sets and describes. */
extern const strata_value budget_values[BUDGET_VALUES];
strata_status budget_get_value(strata_resource *resource, size_t which, uint64_t *value);
strata_status budget_set_value(strata_resource *resource, size_t which, uint64_t value);
void budget_describe(strata_resource *resource, strata_emitter *to);

#endif
