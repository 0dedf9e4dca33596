/* A budget's account: a limit, and the bytes below it as credits of threads.
 *
 *     limit = in use + the credits of all threads + what nobody was given
 *
 * Each thread takes credit in advance, charges requests to it and gives bytes back to it, under a lock that it alone
 * takes mostly. Who finds neither credit nor enough that nobody was given takes the account's *turn*: while it is
 * taken, credits are called in and none are given out, so what was not given to anybody is all that there is; and what
 * threads have charged for requests that are not decided yet is waited for. What does not fit then, does not fit.
 *
 * An account whose limit several processes share has no credits: its bytes are in resources/budget_shared.h.
 *
 * Nobody waits while holding a charge, and turns are taken from an account to those above it: no two wait for each
 * other. */
#ifndef STRATA_RESOURCES_BUDGET_ACCOUNT_H
#define STRATA_RESOURCES_BUDGET_ACCOUNT_H

#include "core/cells.h"
#include "core/lock.h"

#include <strata/budget.h>

enum { BUDGET_NAME = 64, BUDGET_DEPTH = 16 };

/* One thread at one account. */
typedef struct budget_cell {
    strata_spin lock;
    uint64_t credit;            /* guarded by the lock */
    _Atomic uint32_t in_flight; /* requests that were charged and are not decided. Written by the thread alone. */
} budget_cell;

struct strata_budget_account {
    struct budget *layer;          /* constant */
    strata_budget_account *parent; /* above it; constant, NULL for a base */
    struct budget_shared *shared;  /* where its bytes are those of several processes; constant, NULL mostly */
    bool promise;                  /* its bytes were charged above it when it was made; constant */
    char name[BUDGET_NAME];        /* constant */
    uint32_t depth;                /* accounts above it; constant */

    _Atomic int64_t unassigned; /* what nobody was given; below zero where the limit was lowered under what is in use,
                                   and for the moments in which retired memory is being reused */
    _Atomic uint64_t limit;     /* 0: none. Written in the turn. */
    _Atomic bool tight;         /* the turn is taken: no credit is given out. Written in the turn. */
    _Atomic uint64_t peak;      /* highest of limit - unassigned; any thread */
    _Atomic uint32_t strays;    /* requests in flight of threads that have no cell */
    strata_cells cells;

    pthread_mutex_t turn_mutex; /* guards turn_taken; held for a moment, a leaf */
    pthread_cond_t turn_free;
    bool turn_taken;

    uint64_t soft, soft_low; /* constant; 0: no mark */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    _Atomic bool above; /* the soft mark was passed and the low one not since; who changes it calls the callback */

    _Atomic uint64_t refused, waited, reused, recalls; /* any thread, relaxed: statistics */

    _Atomic bool closed;         /* set once, in the turn */
    _Atomic uint64_t kept;       /* of a closed promise: bytes that did not go back to those above it yet */
    uint32_t children;           /* open accounts right below it; guarded by the layer's lock */
    strata_budget_account *next; /* of the layer's accounts; guarded by the layer's lock */
};

/* What every account starts with. */
typedef struct budget_terms {
    const char *name;
    uint64_t limit, soft, soft_low;
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    bool promise;
    struct budget_shared *shared;
} budget_terms;

void budget_account_init(strata_budget_account *account, struct budget *layer, strata_budget_account *parent,
                         const budget_terms *terms);
void budget_account_end(strata_budget_account *account);

/* The account above as far as charges go: none above a promise. */
static inline strata_budget_account *budget_above(const strata_budget_account *account)
{
    return account->promise ? NULL : account->parent;
}

/* Charges `bytes` to the account and those above it, or to none; then *failing is the one where they did not fit. After
 * success the request is in flight until budget_decide. */
bool budget_charge(strata_budget_account *account, uint64_t bytes, strata_budget_account **failing);

/* The request that was charged is decided. `failed`: its bytes go back first. */
void budget_decide(strata_budget_account *account, uint64_t bytes, bool failed);

/* Gives bytes of a finished free back to the account and those above it. Short; takes leaf locks alone. */
void budget_release(strata_budget_account *account, uint64_t bytes);

/* Charges a request whose memory will mostly be bytes that `source` and those above it are charged for already: with
 * the turns of the account and all above it taken, if it fits once `reusable` bytes were given back. After success,
 * budget_reuse_end has to come. */
bool budget_reuse_begin(strata_budget_account *account, uint64_t bytes, const strata_budget_account *source,
                        uint64_t reusable);

/* Ends that: false if some account is beyond its limit now, since the memory was not reused. `failed`: as in decide. */
bool budget_reuse_end(strata_budget_account *account, uint64_t bytes, bool failed);

/* Calls the soft mark's callbacks of the account and those above it, if there is something to say. */
void budget_tell(strata_budget_account *account);

/* What is charged now; and all that an account can tell. */
uint64_t budget_in_use(strata_budget_account *account);
void budget_usage(strata_budget_account *account, strata_budget_usage *usage);

strata_status budget_change_limit(strata_budget_account *account, uint64_t limit);

/* Closes a promise, or another account. */
void budget_account_shut(strata_budget_account *account);

/* Whether a closed account has nothing charged any more. */
bool budget_account_is_over(strata_budget_account *account);

#endif
