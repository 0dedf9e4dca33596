/* Counts live bytes and blocks by tag: current, peak and total. On the fast path no two threads write the same word.
 *
 * Each thread has an *account* for each tag that it uses, and one for all tags together. Only that thread writes its
 * current value: what it allocated less what it freed, negative if it frees other threads' blocks. All accounts of a
 * tag are in the list of the tag's *record*; the sum of them is what is live.
 *
 * The threads' own peaks may lie at different times, so their sum is no peak. Each account therefore has a reservation,
 * `reserved`, never below its current value, and the record has the sum of the reservations. A thread within its
 * reservation stores its highest value, `top`, and touches nothing shared. A thread that leaves the reservation takes
 * the lock:
 *
 *     top and the others' reservations may have coincided:  peak = max(peak, sum - reserved + top)
 *     reserve anew around the current value:                reserved = current + width,  low = current - width
 *
 * It returns above `reserved` or below `low`. The width is the largest recent block or a 64th of the current value,
 * whichever is more. If one thread allocates and another frees, both values only grow; then a 64th of what all threads
 * have counts, or eight recent blocks. So a loop of allocating and freeing takes no lock, and growing to N blocks takes
 * it some 64 * ln(N / 64) times.
 *
 * A thread that finds the lock taken doubles its widths, up to 64 times; after a period without contention one doubling
 * is undone. The peak is exact with one thread. With several it is never too low, because every reservation that
 * shrinks is counted first, and too high by at most two widths of each other thread.
 *
 * A scope begins with what is live as its peak, so every reservation must shrink to the current value. With the lock
 * held, the beginning thread sets every `reserved` below all possible values, runs the heavy side of a barrier
 * (core/base/asymmetric.h), and reads the current values. A counting thread stores its current value and then reads
 * `reserved`: either it takes the lock, or its value is seen.
 *
 * A thread that has used one tag only has one set of numbers: its account for all tags is an alias until its second
 * tag.
 *
 * Threads without an account (no host memory, or no thread number) count in the record's own account, under the lock.
 */
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

/* Without another rule, numbers are written by the account's thread and read by any thread, which gets a recent value.
 * Those of a record's own account are written under the lock. */
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
    int64_t largest, largest_before;          /* block in this period and the one before; owning thread only */
    strata_tag tag;                           /* constant */
    int64_t saved[2];                         /* `reserved` while a scope begins; guarded by the lock */
    int64_t reserved_at[2];                   /* current values at the last reservation; guarded by the lock */
    strata_tag_counters_record *record;       /* constant */
    struct strata_tag_counters_account *next; /* in the record's list; constant once inserted */
    struct strata_tag_counters_account
        *alias; /* while the thread has one tag: its account for all tags and that of the tag name each other, and the
                   tag's has the numbers; else NULL. Guarded by the lock */
} strata_tag_counters_account;

/* A thread's own part; what no rule follows is accessed by that thread only. */
typedef struct strata_tag_counters_thread {
    strata_tag_counters_account *all; /* for all tags; NULL before the second tag */
    strata_tag_counters_account *first;
    strata_tag_counters_account **table; /* by tag; open addressing, mask + 1 entries */
    uint32_t mask, count;
    uint32_t spread; /* number of doublings of the widths */
    bool contended;  /* the lock was taken by another thread in this period */
    _Atomic uint64_t
        sizes[STRATA_TAG_COUNTERS_SIZES]; /* allocations by size class; written by the thread, read by any */
} strata_tag_counters_thread;

enum { STRATA_TAG_COUNTERS_BYTES, STRATA_TAG_COUNTERS_BLOCKS, STRATA_TAG_COUNTERS_UNITS };

/* State at the start of a scope. */
typedef struct strata_tag_counters_scope {
    int64_t current[STRATA_TAG_COUNTERS_UNITS];
    int64_t peak[STRATA_TAG_COUNTERS_UNITS]; /* peak until then in the enclosing scope */
    int64_t total_bytes, total_requested, total_blocks;
} strata_tag_counters_scope;

struct strata_tag_counters_record {
    strata_tag tag;                                  /* constant */
    bool all;                                        /* record of all tags; constant */
    strata_tag_counters_record *chain;               /* next in its hash chain; constant */
    _Atomic(strata_tag_counters_record *) next;      /* in order of creation; set under the lock */
    _Atomic(strata_tag_counters_account *) accounts; /* changes under the lock */
    int64_t sum[STRATA_TAG_COUNTERS_UNITS];          /* of all `reserved`; guarded by the lock */
    int64_t reserved_at[STRATA_TAG_COUNTERS_UNITS];  /* sum of the accounts'; guarded by the lock */
    int64_t peak[STRATA_TAG_COUNTERS_UNITS];         /* since the innermost scope began; guarded by the lock */
    strata_tag_counters_scope *scopes;               /* one an open scope; guarded by the lock */
    uint32_t room;                                   /* capacity of scopes; guarded by the lock */
    strata_tag_counters_account shared;              /* of threads without an account; written under the lock */
};

typedef struct strata_tag_counters {
    strata_per_thread threads;
    strata_tag_counters_record *all; /* constant */
    /* On a line of its own, apart from what every allocation reads. */
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

/* The struct must be zero. False without host memory; then `all` is NULL and nothing is left. */
bool strata_tag_counters_init(strata_tag_counters *counters);

/* No call may be in flight. */
void strata_tag_counters_destroy(strata_tag_counters *counters);

/* The record of a tag; NULL if no block ever had it. */
strata_tag_counters_record *strata_tag_counters_find(strata_tag_counters *counters, strata_tag tag);

/* As find, and creates a missing record; NULL without host memory. */
strata_tag_counters_record *strata_tag_counters_record_of(strata_tag_counters *counters, strata_tag tag);

/* Finds or creates the calling thread's account for a tag; NULL without host memory. */
strata_tag_counters_account *strata_tag_counters_open(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                                      strata_tag tag);

/* Renews the reservations of a thread that left one, or whose period ended. */
void strata_tag_counters_reserve(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                 strata_tag_counters_account *account, bool period);

/* Count in the record's own account. */
void strata_tag_counters_add_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes,
                                    size_t requested);
void strata_tag_counters_sub_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes);

/* ---- scopes: 0 is everything since init, n the n-th open scope ---- */

/* Begins a scope; false without host memory. */
bool strata_tag_counters_push(strata_tag_counters *counters);

/* Ends the innermost scope and reads it; false if none is open. */
bool strata_tag_counters_pop(strata_tag_counters *counters, strata_tag_counters_numbers *numbers);

/* Sets every peak of every scope to what is live. */
void strata_tag_counters_reset_peaks(strata_tag_counters *counters);

uint32_t strata_tag_counters_scopes(strata_tag_counters *counters);

/* Numbers of a record in a scope (UINT32_MAX: the innermost); zero for NULL. False if the scope is not open. */
bool strata_tag_counters_read(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                              strata_tag_counters_numbers *numbers);

/* Iterates over the records of tags in order of creation; NULL gives the first. */
strata_tag_counters_record *strata_tag_counters_next(strata_tag_counters *counters,
                                                     const strata_tag_counters_record *record);

void strata_tag_counters_sum_sizes(strata_tag_counters *counters, uint64_t counts[STRATA_TAG_COUNTERS_SIZES]);

/* ---- shared with scopes.c ---- */

/* Capacity for so many scopes; false without host memory. The lock is held. */
bool strata_tag_counters_make_room(strata_tag_counters_record *record, uint32_t scope_count);

static inline int64_t strata_tag_counters_load(const _Atomic int64_t *number)
{
    return atomic_load_explicit(number, memory_order_acquire);
}

static inline void strata_tag_counters_store(_Atomic int64_t *number, int64_t value)
{
    atomic_store_explicit(number, value, memory_order_relaxed);
}

static inline int64_t strata_tag_counters_larger(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

static inline bool strata_tag_counters_has_its_numbers(const strata_tag_counters_account *account)
{
    return !account->record->all || !account->alias;
}

static inline strata_tag_counters_gauge *strata_tag_counters_gauge_of(strata_tag_counters_account *account,
                                                                      unsigned unit)
{
    if (!strata_tag_counters_has_its_numbers(account))
        account = account->alias;
    return unit == STRATA_TAG_COUNTERS_BYTES ? &account->bytes : &account->blocks;
}

/* The most that the account can have had since `reserved` was set. */
static inline int64_t strata_tag_counters_bound(strata_tag_counters_gauge *gauge, int64_t reserved)
{
    int64_t top = strata_tag_counters_load(&gauge->top);
    return strata_tag_counters_larger(top < reserved ? top : reserved, strata_tag_counters_load(&gauge->current));
}

static inline strata_tag_counters_account *strata_tag_counters_first_account(const strata_tag_counters_record *record)
{
    return atomic_load_explicit(&record->accounts, memory_order_acquire);
}

/* ---- the fast path ---- */

/* The calling thread's part; NULL if it has none. */
static inline strata_tag_counters_thread *strata_tag_counters_self(strata_tag_counters *counters, strata_thread *thread)
{
    return strata_per_thread_self(&counters->threads, thread);
}

/* The calling thread's account for a tag, if it is first in its hash position, and the thread's part; else NULL. */
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

/* As above, and finds or creates it; NULL if that is impossible. */
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

/* Adds to a number that only the calling thread writes. */
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

/* Negative if the value exceeds the reservation; several results are or-ed. */
static inline int64_t strata_tag_counters_room(strata_tag_counters_gauge *gauge, int64_t now)
{
    return atomic_load_explicit(&gauge->reserved, memory_order_relaxed) - now;
}

/* Negative if the value falls below `low`. */
static inline int64_t strata_tag_counters_lower(strata_tag_counters_gauge *gauge, int64_t by)
{
    return strata_tag_counters_bump(&gauge->current, -by) - atomic_load_explicit(&gauge->low, memory_order_relaxed);
}

static inline unsigned strata_tag_counters_size_class(size_t bytes)
{
    return bytes <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(bytes - 1);
}

/* Largest block of a size class; UINT64_MAX for the last class. */
static inline uint64_t strata_tag_counters_most_of(unsigned size_class)
{
    return size_class < 64 ? UINT64_C(1) << size_class : UINT64_MAX;
}

/* An account's values after a change. */
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

/* Negative if the account left its reservation. */
static inline int64_t strata_tag_counters_shrink(strata_tag_counters_account *account, int64_t bytes)
{
    return strata_tag_counters_lower(&account->bytes, bytes) | strata_tag_counters_lower(&account->blocks, 1);
}

/* Counts an allocation. */
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
    room |= (int64_t)in_period - 1; /* also negative at the end of a period */
    if (__builtin_expect(room < 0, 0))
        strata_tag_counters_reserve(counters, local, account, in_period == 0);
}

/* Counts a free. */
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
