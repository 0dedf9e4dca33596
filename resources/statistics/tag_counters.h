/* Counts live bytes and blocks by tag: current, peak and total. On the fast path no two threads write the same word.
 *
 * A thread has an *account* for each tag that it uses and one for all tags, with what it allocated less what it freed;
 * that is negative if it frees other threads' blocks. A tag's accounts are in a list of its *record*; their sum is what
 * is live.
 *
 * The sum of the threads' own peaks is no peak. So an account has a reservation, `reserved`, never below its current
 * value, and the record has the sum of them. Within its reservation a thread stores its highest value, `top`, and
 * touches nothing shared. Above `reserved` or below `low` it takes the lock:
 *
 *     top and the others' reservations may have coincided:  peak = max(peak, sum - reserved + top)
 *     reserve anew around the current value:                reserved = current + width,  low = current - width
 *
 * The width is the largest recent block or a 64th of the current value, whichever is more. If one thread allocates and
 * another frees, both values only grow: then a 64th of what all threads have counts, or eight recent blocks. So a loop
 * of allocating and freeing takes no lock, and growing to N blocks takes it some 64 * ln(N / 64) times. A thread that
 * finds the lock taken doubles its widths, up to 64 times; a period without contention undoes one doubling.
 *
 * The peak is exact with one thread. With several it is never too low, since a reservation is counted before it
 * shrinks, and too high by at most two widths of each other thread.
 *
 * A scope begins with what is live as its peak, so reservations shrink to the current values. Under the lock,
 * `reserved` is set below all possible values, then comes the heavy side of a barrier (core/base/asymmetric.h), then
 * the current values are read. A counting thread stores its current value before it reads `reserved`: either it takes
 * the lock, or its value is seen.
 *
 * Until a thread's second tag its account for all tags is an alias of the first one. Threads without an account (no
 * host memory or thread number) count in the record's own, under the lock. */
#ifndef STRATA_RESOURCES_STATISTICS_TAG_COUNTERS_H
#define STRATA_RESOURCES_STATISTICS_TAG_COUNTERS_H

#include "core/base/asymmetric.h"
#include "core/base/lock.h"
#include "core/base/per_thread.h"

#include <strata/block.h>

enum {
    STRATA_TAG_COUNTERS_SIZES = 65,    /* class n: more than 2^(n-1) and at most 2^n bytes */
    STRATA_TAG_COUNTERS_PERIOD = 1024, /* allocations of an account, after which its largest block ages */
    STRATA_TAG_COUNTERS_CHAINS = 64,
};

typedef struct strata_tag_counters_record strata_tag_counters_record;

/* Without another rule, the account's thread writes and any thread reads a recent value. A record's own account is
 * written under the lock. */
typedef struct strata_tag_counters_gauge {
    _Atomic int64_t current;
    _Atomic int64_t top;      /* highest current since `reserved` was set; stale if above it */
    _Atomic int64_t reserved; /* written by any thread, under the lock */
    _Atomic int64_t low;
} strata_tag_counters_gauge;

typedef struct strata_tag_counters_account {
    _Alignas(64) strata_tag_counters_gauge bytes;
    strata_tag_counters_gauge blocks;
    _Atomic int64_t total_bytes, total_requested, total_blocks; /* 0 in accounts for all tags */
    int64_t largest, largest_before;                            /* blocks of this period and the last; owning thread */
    strata_tag tag;                                             /* constant */
    int64_t saved[2];                                           /* `reserved` while a scope begins; under the lock */
    int64_t reserved_at[2];                                     /* values at the last reservation; under the lock */
    strata_tag_counters_record *record;                         /* constant */
    struct strata_tag_counters_account *next;                   /* in the record's list; constant once inserted */
    struct strata_tag_counters_account *alias; /* with one tag: the other of the thread's two accounts, of which the
                                                  tag's has the numbers; under the lock */
} strata_tag_counters_account;

/* A thread's part. Without another rule, for that thread only. */
typedef struct strata_tag_counters_thread {
    strata_tag_counters_account *all; /* for all tags; NULL before the second tag */
    strata_tag_counters_account *first;
    strata_tag_counters_account **table; /* by tag; open addressing, mask + 1 entries */
    uint32_t mask, count;
    uint32_t spread;                                   /* doublings of the widths */
    bool contended;                                    /* met the lock taken in this period */
    _Atomic uint64_t sizes[STRATA_TAG_COUNTERS_SIZES]; /* by size class; any thread reads */
} strata_tag_counters_thread;

enum { STRATA_TAG_COUNTERS_BYTES, STRATA_TAG_COUNTERS_BLOCKS, STRATA_TAG_COUNTERS_UNITS };

typedef struct strata_tag_counters_scope {
    int64_t current[STRATA_TAG_COUNTERS_UNITS];
    int64_t peak[STRATA_TAG_COUNTERS_UNITS]; /* until then, in the enclosing scope */
    int64_t total_bytes, total_requested, total_blocks;
} strata_tag_counters_scope;

struct strata_tag_counters_record {
    strata_tag tag;                                  /* constant */
    bool all;                                        /* constant: record of all tags */
    strata_tag_counters_record *chain;               /* of a hash value; constant */
    _Atomic(strata_tag_counters_record *) next;      /* in order of creation; set under the lock */
    _Atomic(strata_tag_counters_account *) accounts; /* changes under the lock */
    int64_t sum[STRATA_TAG_COUNTERS_UNITS];          /* of all `reserved`; under the lock */
    int64_t reserved_at[STRATA_TAG_COUNTERS_UNITS];  /* sum of the accounts'; under the lock */
    int64_t peak[STRATA_TAG_COUNTERS_UNITS];         /* of the innermost scope; under the lock */
    strata_tag_counters_scope *scopes;               /* one an open scope; under the lock */
    uint32_t room;                                   /* for scopes; under the lock */
    strata_tag_counters_account shared;              /* of threads without an account; written under the lock */
};

typedef struct strata_tag_counters {
    strata_per_thread threads;
    strata_tag_counters_record *all; /* constant */
    /* Apart from what every allocation reads. */
    _Alignas(64) strata_spin lock;
    uint32_t scope_count;                                                     /* open scopes; guarded by the lock */
    _Atomic(strata_tag_counters_record *) last;                               /* guarded by the lock */
    _Atomic(strata_tag_counters_record *) chains[STRATA_TAG_COUNTERS_CHAINS]; /* by tag; heads change under the lock */
    _Atomic uint64_t sizes[STRATA_TAG_COUNTERS_SIZES]; /* of threads without an account; any thread, relaxed */
} strata_tag_counters;

typedef struct strata_tag_counters_numbers {
    int64_t current[STRATA_TAG_COUNTERS_UNITS], peak[STRATA_TAG_COUNTERS_UNITS];
    int64_t total_bytes, total_requested, total_blocks;
} strata_tag_counters_numbers;

/* Of a zeroed struct. False without host memory, with nothing left. */
bool strata_tag_counters_init(strata_tag_counters *counters);

/* No call may be in flight. */
void strata_tag_counters_destroy(strata_tag_counters *counters);

/* The record of a tag; NULL if no block ever had it. */
strata_tag_counters_record *strata_tag_counters_find(strata_tag_counters *counters, strata_tag tag);

/* Creates a missing record; NULL without host memory. */
strata_tag_counters_record *strata_tag_counters_record_of(strata_tag_counters *counters, strata_tag tag);

/* Finds or creates the thread's account; NULL without host memory. */
strata_tag_counters_account *strata_tag_counters_open(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                                      strata_tag tag);

/* For a thread that left its reservation or ended a period. */
void strata_tag_counters_reserve(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                 strata_tag_counters_account *account, bool period);

/* Count in the record's own account. */
void strata_tag_counters_add_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes,
                                    size_t requested);
void strata_tag_counters_sub_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes);

/* ---- scopes: 0 is everything since init, n the n-th open scope ---- */

/* False without host memory. */
bool strata_tag_counters_push(strata_tag_counters *counters);

/* Ends and reads the innermost scope; false if none is open. */
bool strata_tag_counters_pop(strata_tag_counters *counters, strata_tag_counters_numbers *numbers);

/* Every peak becomes what is live. */
void strata_tag_counters_reset_peaks(strata_tag_counters *counters);

uint32_t strata_tag_counters_scopes(strata_tag_counters *counters);

/* Reads a record (NULL: zeros) in a scope (UINT32_MAX: innermost); false if it is not open. */
bool strata_tag_counters_read(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                              strata_tag_counters_numbers *numbers);

/* Iterates in order of creation; NULL gives the first. */
strata_tag_counters_record *strata_tag_counters_next(strata_tag_counters *counters,
                                                     const strata_tag_counters_record *record);

void strata_tag_counters_sum_sizes(strata_tag_counters *counters, uint64_t counts[STRATA_TAG_COUNTERS_SIZES]);

/* ---- shared with scopes.c ---- */

/* False without host memory. The lock is held. */
bool strata_tag_counters_make_room(strata_tag_counters_record *record, uint32_t scope_count);

static inline int64_t counter_load(const _Atomic int64_t *number)
{
    return atomic_load_explicit(number, memory_order_acquire);
}

static inline void counter_store(_Atomic int64_t *number, int64_t value)
{
    atomic_store_explicit(number, value, memory_order_relaxed);
}

static inline int64_t larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline bool has_its_numbers(const strata_tag_counters_account *account)
{
    return !account->record->all || !account->alias;
}

static inline strata_tag_counters_gauge *gauge_of(strata_tag_counters_account *account, unsigned unit)
{
    if (!has_its_numbers(account))
        account = account->alias;
    return unit == STRATA_TAG_COUNTERS_BYTES ? &account->bytes : &account->blocks;
}

/* The most that was reached since `reserved` was set. */
static inline int64_t gauge_bound(strata_tag_counters_gauge *gauge, int64_t reserved)
{
    int64_t top = counter_load(&gauge->top);
    return larger(top < reserved ? top : reserved, counter_load(&gauge->current));
}

static inline strata_tag_counters_account *first_account(const strata_tag_counters_record *record)
{
    return atomic_load_explicit(&record->accounts, memory_order_acquire);
}

/* ---- the fast path ---- */

static inline strata_tag_counters_thread *strata_tag_counters_self(strata_tag_counters *counters, strata_thread *thread)
{
    return strata_per_thread_self(&counters->threads, thread);
}

/* The thread's account for a tag, and its part in *mine; NULL if a longer lookup is needed. */
static inline strata_tag_counters_account *
strata_tag_counters_account_if_present(strata_tag_counters *counters, strata_tag tag, strata_tag_counters_thread **mine)
{
    strata_tag_counters_thread *local = strata_per_thread_if_present(&counters->threads, strata_thread_current);
    if (__builtin_expect(!local || !local->table, 0))
        return NULL;
    *mine = local;
    strata_tag_counters_account *account = local->table[tag & local->mask];
    return __builtin_expect(account && account->tag == tag, 1) ? account : NULL;
}

/* Finds or creates it; NULL if that fails. */
static inline strata_tag_counters_account *
strata_tag_counters_account_of(strata_tag_counters *counters, strata_tag_counters_thread *local, strata_tag tag)
{
    if (__builtin_expect(!local, 0))
        return NULL;
    if (__builtin_expect(local->table != NULL, 1)) {
        strata_tag_counters_account *account = local->table[tag & local->mask];
        if (__builtin_expect(account && account->tag == tag, 1))
            return account;
    }
    return strata_tag_counters_open(counters, local, tag);
}

/* Only the calling thread writes the number. */
static inline int64_t strata_tag_counters_bump(_Atomic int64_t *number, int64_t by)
{
    int64_t now = atomic_load_explicit(number, memory_order_relaxed) + by;
    atomic_store_explicit(number, now, memory_order_release);
    return now;
}

static inline int64_t strata_tag_counters_raise(strata_tag_counters_gauge *gauge, int64_t by)
{
    int64_t now = atomic_load_explicit(&gauge->current, memory_order_relaxed) + by;
    if (now > atomic_load_explicit(&gauge->top, memory_order_relaxed))
        atomic_store_explicit(&gauge->top, now, memory_order_relaxed);
    atomic_store_explicit(&gauge->current, now, memory_order_release);
    return now;
}

/* Negative above the reservation; results are or-ed. */
static inline int64_t strata_tag_counters_room(strata_tag_counters_gauge *gauge, int64_t now)
{
    return atomic_load_explicit(&gauge->reserved, memory_order_relaxed) - now;
}

/* Negative below `low`. */
static inline int64_t strata_tag_counters_lower(strata_tag_counters_gauge *gauge, int64_t by)
{
    return strata_tag_counters_bump(&gauge->current, -by) - atomic_load_explicit(&gauge->low, memory_order_relaxed);
}

static inline unsigned strata_tag_counters_size_class(size_t bytes)
{
    return bytes <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(bytes - 1);
}

/* UINT64_MAX for the last class. */
static inline uint64_t strata_tag_counters_most_of(unsigned size_class)
{
    return size_class < 64 ? UINT64_C(1) << size_class : UINT64_MAX;
}

typedef struct strata_tag_counters_change {
    int64_t bytes, blocks;
} strata_tag_counters_change;

static inline strata_tag_counters_change strata_tag_counters_grow(strata_tag_counters_account *account, int64_t bytes)
{
    if (bytes > account->largest)
        account->largest = bytes;
    return (strata_tag_counters_change){strata_tag_counters_raise(&account->bytes, bytes),
                                        strata_tag_counters_raise(&account->blocks, 1)};
}

/* Negative outside of the reservation. */
static inline int64_t strata_tag_counters_shrink(strata_tag_counters_account *account, int64_t bytes)
{
    return strata_tag_counters_lower(&account->bytes, bytes) | strata_tag_counters_lower(&account->blocks, 1);
}

static inline __attribute__((always_inline)) void strata_tag_counters_add(strata_tag_counters *counters,
                                                                          strata_tag_counters_thread *local,
                                                                          strata_tag_counters_account *account,
                                                                          size_t bytes, size_t requested)
{
    strata_tag_counters_account *all = local->all;
    const int64_t amount = (int64_t)bytes;
    _Atomic uint64_t *size = &local->sizes[strata_tag_counters_size_class(bytes)];
    atomic_store_explicit(size, atomic_load_explicit(size, memory_order_relaxed) + 1, memory_order_relaxed);
    strata_tag_counters_bump(&account->total_bytes, amount);
    strata_tag_counters_bump(&account->total_requested, (int64_t)requested);
    const uint64_t in_period =
        (uint64_t)strata_tag_counters_bump(&account->total_blocks, 1) % STRATA_TAG_COUNTERS_PERIOD;
    const strata_tag_counters_change one = strata_tag_counters_grow(account, amount);
    strata_tag_counters_change both = {0};
    if (__builtin_expect(all != NULL, 0))
        both = strata_tag_counters_grow(all, amount);
    strata_light_barrier();
    int64_t room =
        strata_tag_counters_room(&account->bytes, one.bytes) | strata_tag_counters_room(&account->blocks, one.blocks);
    if (__builtin_expect(all != NULL, 0))
        room |= strata_tag_counters_room(&all->bytes, both.bytes) | strata_tag_counters_room(&all->blocks, both.blocks);
    room |= (int64_t)in_period - 1; /* negative at a period's end */
    if (__builtin_expect(room < 0, 0))
        strata_tag_counters_reserve(counters, local, account, in_period == 0);
}

static inline void strata_tag_counters_sub(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                           strata_tag_counters_account *account, size_t bytes)
{
    strata_tag_counters_account *all = local->all;
    int64_t room = strata_tag_counters_shrink(account, (int64_t)bytes);
    if (__builtin_expect(all != NULL, 0))
        room |= strata_tag_counters_shrink(all, (int64_t)bytes);
    if (__builtin_expect(room < 0, 0))
        strata_tag_counters_reserve(counters, local, account, false);
}

#endif
