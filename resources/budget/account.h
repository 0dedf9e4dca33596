/* A budget's account: a limit, and the bytes below it as credits of threads.
 *
 *     limit = in use + the credits of all threads + what nobody was given
 *
 * Each thread takes credit in advance, charges requests to it and gives bytes back to it, and no other thread looks
 * there. Who finds neither credit nor enough that nobody was given takes the account's *turn*: while it is taken,
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
#ifndef STRATA_RESOURCES_BUDGET_ACCOUNT_H
#define STRATA_RESOURCES_BUDGET_ACCOUNT_H

#include "core/base/asymmetric.h"
#include "core/base/lock.h"
#include "core/base/per_thread.h"

#include <strata/budget.h>

enum { BUDGET_NAME = 64, BUDGET_DEPTH = 16, BUDGET_CROSSINGS = 16 };

/* One thread at one account. */
typedef struct budget_cell {
    _Atomic uint64_t credit; /* of the thread while it is busy, of the turn's thread while it is not */
    _Atomic uint64_t least;  /* the lowest that it was since bytes last came or went; the same */
    union {
        struct {
            _Atomic uint32_t busy;      /* written by the thread alone */
            _Atomic uint32_t in_flight; /* requests that were charged and are not decided; the same */
        };
        _Atomic uint64_t doing; /* both, written as one */
    };
    _Atomic uint64_t before; /* `least` before the last charge, if none came or went with it; the same */
} budget_cell;

_Static_assert(__BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__, "the two halves of a cell's word");

/* That a mark was crossed, which is to be told. */
typedef struct budget_crossing {
    bool above;
    uint64_t in_use;
} budget_crossing;

struct strata_budget_account {
    struct budget *layer;          /* constant */
    strata_budget_account *parent; /* above it; constant, NULL for a base */
    struct budget_shared *shared;  /* where its bytes are those of several processes; constant, NULL mostly */
    bool promise;                  /* its bytes were charged above it when it was made; constant */
    bool alone;                    /* a base account with cells: charges end with it; constant */
    char name[BUDGET_NAME];        /* constant */
    uint32_t depth;                /* accounts above it; constant */

    _Atomic int64_t unassigned;   /* what nobody was given; below zero where the limit was lowered under what is in use,
                                     and for the moments in which retired memory is being reused */
    _Atomic uint64_t limit;       /* 0: none. Written in the turn. */
    _Atomic uint64_t most_credit; /* that a thread keeps: what comes beyond it goes to all. Written in the turn. */
    _Atomic bool tight;           /* the turn is taken: no credit is given out. Written in the turn. */
    _Atomic uint64_t peak;        /* highest of what was in use, as far as that is known; any thread */
    _Atomic int64_t ahead;        /* charged for memory that is being reused: counted twice for so long */
    _Atomic uint32_t strays; /* requests in flight that no cell counts: when they were charged, the thread had none */
    _Atomic uint32_t pins;   /* threads that look at the account without a charge there: it stays so long */
    strata_per_thread cells;

    pthread_mutex_t turn_mutex; /* guards turn_taken and what is to be told; held for a moment; STRATA_RANK_TURN */
    pthread_cond_t turn_free;
    bool turn_taken;
    _Atomic uint64_t turn_owner; /* serial of the thread that has the turn, 0: none. A thread looks for its own. */

    uint64_t soft, soft_low; /* constant; 0: no mark */
    strata_budget_soft_callback soft_callback;
    void *soft_data;
    _Atomic bool above;   /* the soft mark was passed and the low one not since; changed with turn_mutex */
    bool telling;         /* a thread calls the callback, and will for what comes meanwhile; with turn_mutex */
    uint32_t told, noted; /* crossings: up to here, and in all; the same */
    budget_crossing crossings[BUDGET_CROSSINGS]; /* by their number; the same */

    _Atomic uint64_t refused, waited, reused, recalls; /* any thread, relaxed: statistics */

    _Atomic bool closed;         /* set once */
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

/* ---- the way of most requests: at an account that is alone, with credit ---- */

/* Begins to use the calling thread's cell; false if the turn is taken. */
static inline bool budget_cell_enter(const strata_budget_account *account, budget_cell *cell)
{
    atomic_store_explicit(&cell->busy, 1, memory_order_relaxed);
    strata_light_barrier();
    if (__builtin_expect(!atomic_load_explicit(&account->tight, memory_order_acquire), 1))
        return true;
    atomic_store_explicit(&cell->busy, 0, memory_order_release);
    return false;
}

/* The same, with a request in flight. */
static inline bool budget_cell_enter_flight(const strata_budget_account *account, budget_cell *cell)
{
    const uint64_t flights = (uint64_t)atomic_load_explicit(&cell->in_flight, memory_order_relaxed) + 1;
    atomic_store_explicit(&cell->doing, flights << 32 | 1, memory_order_relaxed);
    strata_light_barrier();
    if (__builtin_expect(!atomic_load_explicit(&account->tight, memory_order_acquire), 1))
        return true;
    atomic_store_explicit(&cell->busy, 0, memory_order_release);
    return false;
}

static inline void budget_cell_leave(budget_cell *cell)
{
    atomic_store_explicit(&cell->busy, 0, memory_order_release);
}

/* Lowers the credit to `left`, which decides about the account's peak, unless the request comes to nothing. */
static inline void budget_use_credit(budget_cell *cell, uint64_t left)
{
    const uint64_t least = atomic_load_explicit(&cell->least, memory_order_relaxed);
    atomic_store_explicit(&cell->credit, left, memory_order_relaxed);
    atomic_store_explicit(&cell->before, least, memory_order_relaxed);
    if (left < least)
        atomic_store_explicit(&cell->least, left, memory_order_relaxed);
}

static inline void budget_enter_flight(budget_cell *cell)
{
    atomic_store_explicit(&cell->in_flight, atomic_load_explicit(&cell->in_flight, memory_order_relaxed) + 1,
                          memory_order_relaxed);
}

/* Whoever sees the flight ended sees what it gave back. */
static inline void budget_leave_flight(budget_cell *cell)
{
    atomic_store_explicit(&cell->in_flight, atomic_load_explicit(&cell->in_flight, memory_order_relaxed) - 1,
                          memory_order_release);
}

/* Charges a request to the calling thread's credit. The cell, in which it is in flight until budget_leave_flight; NULL,
 * and nothing done, if that is not all there is to do. */
static inline budget_cell *budget_charge_quickly(const strata_budget_account *account, uint64_t bytes)
{
    budget_cell *cell = account->alone ? strata_per_thread_if_present(&account->cells, strata_thread_current) : NULL;
    if (__builtin_expect(!cell, 0))
        return NULL;
    if (__builtin_expect(budget_cell_enter_flight(account, cell), 1)) {
        uint64_t credit = atomic_load_explicit(&cell->credit, memory_order_relaxed);
        bool fits = credit >= bytes;
        if (__builtin_expect(fits, 1))
            budget_use_credit(cell, credit - bytes);
        budget_cell_leave(cell);
        if (__builtin_expect(fits, 1))
            return cell;
    }
    budget_leave_flight(cell);
    return NULL;
}

/* Gives bytes back to the calling thread's credit; false, and nothing done, if that is not all there is to do. */
static inline bool budget_release_quickly(const strata_budget_account *account, uint64_t bytes)
{
    budget_cell *cell = account->alone ? strata_per_thread_if_present(&account->cells, strata_thread_current) : NULL;
    if (__builtin_expect(!cell || !budget_cell_enter(account, cell), 0))
        return false;
    uint64_t credit = atomic_load_explicit(&cell->credit, memory_order_relaxed) + bytes;
    bool keeps = !account->soft && credit <= atomic_load_explicit(&account->most_credit, memory_order_relaxed);
    if (__builtin_expect(keeps, 1))
        atomic_store_explicit(&cell->credit, credit, memory_order_relaxed);
    budget_cell_leave(cell);
    return keeps;
}

/* ---- the general way ---- */

/* The account above as far as charges go: none above a promise. */
static inline strata_budget_account *budget_above(const strata_budget_account *account)
{
    return account->promise ? NULL : account->parent;
}

/* For how long a request waits, however often it is charged anew, for requests of others that are not decided. They
 * come back from the driver in far less; one that does not may itself be waiting, in a layer below, for what only this
 * one's turn can give. */
static const int64_t budget_patience_ns = INT64_C(2000000000);

/* Charges `bytes` to the account and those above it, or to none; then *failing is the one where they did not fit. After
 * success the request is in flight until budget_decide. *patience, in nanoseconds, is what is left of it, and goes
 * down.
 */
bool budget_charge(strata_budget_account *account, uint64_t bytes, int64_t *patience, strata_budget_account **failing);

/* The request that was charged is decided. `failed`: its bytes go back first. */
void budget_decide(strata_budget_account *account, uint64_t bytes, bool failed);

/* Gives bytes of a finished free back to the account and those above it. Short; takes leaf locks alone. */
void budget_release(strata_budget_account *account, uint64_t bytes);

/* Charges a request whose memory will mostly be bytes that `source` and those above it are charged for already: with
 * the turns of the account and all above it taken, if it fits once `reusable` bytes were given back. After success,
 * budget_reuse_end has to come. */
bool budget_reuse_begin(strata_budget_account *account, uint64_t bytes, const strata_budget_account *source,
                        uint64_t reusable, int64_t *patience);

/* Ends that: false if some account is beyond its limit now, since the memory was not reused. `failed`: as in decide. */
bool budget_reuse_end(strata_budget_account *account, uint64_t bytes, bool failed);

/* Whether the account's soft mark has something to say, and saying it: calls the callback, one call after another in
 * the order of the crossings; where another thread is at it, that one does. */
bool budget_has_to_tell(const strata_budget_account *account);
void budget_tell(strata_budget_account *account);

/* Whether no freeing makes room for a request of so many bytes at this account: they are beyond its limit, or beyond
 * what an account without one counts. */
bool budget_never_fits(const strata_budget_account *account, uint64_t bytes);

/* What to do about a request of so many bytes that was refused by this account: the end of the message. */
const char *budget_advice(const strata_budget_account *account, uint64_t bytes, bool others_had_their_time);

/* What is charged now; and all that an account can tell. */
uint64_t budget_in_use(strata_budget_account *account);
void budget_usage(strata_budget_account *account, strata_budget_usage *usage);

strata_status budget_change_limit(strata_budget_account *account, uint64_t limit);

/* Closes a promise, or another account. */
void budget_account_shut(strata_budget_account *account);

/* Whether a closed account has nothing charged any more. */
bool budget_account_is_over(strata_budget_account *account);

#endif
