/* Counting what is live by tag, now, at most and in all, without a word that two threads write on the fast path.
 *
 * Each thread has an *account* for each tag that it meets, and one for all tags together. Only the thread writes there:
 * what it allocated less what it freed, which is negative where it frees what others allocated. All accounts of a tag
 * hang on the tag's *record*; adding them up gives what is live.
 *
 * A highest value needs more, since the sum of the threads' own highest values was perhaps never there. Each account
 * holds a reservation, `held`, never below its current value; the record has the sum of the reservations. A thread that
 * stays within its own notes its highest value there, `top`, and touches nothing shared. One that leaves it takes the
 * lock:
 *
 *     its top, and the others' reservations, may have been there together:  peak = max(peak, sum - held + top)
 *     it reserves anew around its current value:                            held = current + width
 *                                                                           low  = current - width
 *
 * and comes back when it is above `held` or below `low`. The width is the largest block that it lately allocated, or a
 * 64th of what it has, whichever is more. A thread whose blocks others free, or who frees those of others, has more, or
 * less than nothing by more, than there is, and its numbers only grow: then a 64th of what all have counts, and eight
 * of the blocks that it passes on. So a loop of allocating and freeing stays inside, and growing to N blocks takes the
 * lock some 64 * ln(N / 64) times. A thread that finds the lock taken doubles its widths, up to 64 times what they
 * were, so that threads which go up and down together keep away from each other; where they do not meet for a period,
 * one doubling is taken back. The peak is exact while one thread does all. Where several do it is never too low,
 * because before a reservation shrinks what may have been reached under it is taken into account, and it is too high by
 * at most two widths of each other thread.
 *
 * A scope begins with what is live as its first peak, so reservations have to come down to what their threads have.
 * Whoever begins one, with the lock held, sets every `held` to a value below all others, makes the heavy side of a
 * barrier (core/base/asymmetric.h), and then reads the current values. A thread stores its current value and then looks
 * at `held`: it sees that it has to take the lock, or its value is seen.
 *
 * A thread that has met one tag alone, as most do, has one account for both: the one in the list of all tags only says
 * so, until the thread meets a second tag.
 *
 * Threads that have no account, because there is no host memory for one or the numbers of threads have run out, count
 * in the record's own, under the lock. */
#ifndef STRATA_RESOURCES_STATISTICS_TAG_COUNTERS_H
#define STRATA_RESOURCES_STATISTICS_TAG_COUNTERS_H

#include "core/base/asymmetric.h"
#include "core/base/lock.h"
#include "core/base/per_thread.h"

#include <strata/block.h>

enum {
    STRATA_TAG_COUNTERS_SIZES = 65,    /* class n: more than 2^(n-1) and at most 2^n bytes */
    STRATA_TAG_COUNTERS_PERIOD = 1024, /* allocations of an account after which a largest block is no longer recent, at
                                   most twice that */
    STRATA_TAG_COUNTERS_CHAINS = 64,
};

typedef struct strata_tag_counters_record strata_tag_counters_record;

/* Of an account's numbers, those without another rule are written by the account's thread and read by any: a reader
 * gets some recent value. Those of a record's own account are written under the lock. */
typedef struct strata_tag_counters_gauge {
    _Atomic int64_t current;
    _Atomic int64_t top;      /* highest current since held was set; stale where it is above held */
    _Atomic int64_t reserved; /* written by any thread, under the lock */
    _Atomic int64_t low;
} strata_tag_counters_gauge;

typedef struct strata_tag_counters_account {
    _Alignas(64) strata_tag_counters_gauge bytes;
    strata_tag_counters_gauge blocks;
    _Atomic int64_t total_bytes, total_requested, total_blocks; /* 0 in accounts of all tags together */
    int64_t largest, largest_before;           /* block in this period and the one before; the thread's alone */
    strata_tag tag;                            /* constant */
    int64_t saved[2];                          /* of held, while a scope begins; guarded by the lock */
    int64_t reserved_at[2];                    /* current values when it last reserved; the same */
    strata_tag_counters_record *record;        /* constant */
    struct strata_tag_counters_account *next;  /* of the record's accounts; constant once it is among them */
    struct strata_tag_counters_account *alias; /* in the list of all tags: the thread's one account, which has the
                                          numbers; NULL: this one has. Of a tag: that one in the list of all, of which
                                          the same is so; NULL: it has its own. Guarded by the lock */
} strata_tag_counters_account;

/* What a thread keeps. */
typedef struct strata_tag_counters_thread {
    strata_tag_counters_account *all;    /* for all tags together; NULL before the second account. The thread's alone */
    strata_tag_counters_account *first;  /* the first account; the same */
    strata_tag_counters_account **table; /* by tag, open addressing, mask + 1 places; the thread's alone */
    uint32_t mask, count;
    uint32_t spread; /* widths are this many times doubled; the thread's alone */
    bool contended;  /* another thread had the lock in this period; the thread's alone */
    _Atomic uint64_t sizes[STRATA_TAG_COUNTERS_SIZES]; /* allocations by size class; written by the thread */
} strata_tag_counters_thread;

enum { STRATA_TAG_COUNTERS_BYTES, STRATA_TAG_COUNTERS_BLOCKS, STRATA_TAG_COUNTERS_UNITS };

/* How a scope began. */
typedef struct strata_tag_counters_scope {
    int64_t current[STRATA_TAG_COUNTERS_UNITS];
    int64_t peak[STRATA_TAG_COUNTERS_UNITS]; /* until then, since the scope outside of it began */
    int64_t total_bytes, total_requested, total_blocks;
} strata_tag_counters_scope;

struct strata_tag_counters_record {
    strata_tag tag;                                  /* constant */
    bool all;                                        /* all tags together; constant */
    strata_tag_counters_record *chain;               /* of its hash; constant */
    _Atomic(strata_tag_counters_record *) next;      /* in the order in which they came; set under the lock */
    _Atomic(strata_tag_counters_account *) accounts; /* changes under the lock */
    int64_t sum[STRATA_TAG_COUNTERS_UNITS];          /* of all held; guarded by the lock */
    int64_t
        reserved_at[STRATA_TAG_COUNTERS_UNITS]; /* of all settled: what is live, but for what is between; the same */
    int64_t peak[STRATA_TAG_COUNTERS_UNITS];    /* since the innermost scope began; guarded by the lock */
    strata_tag_counters_scope *scopes;          /* one for each open scope; guarded by the lock */
    uint32_t room;                              /* for marks; guarded by the lock */
    strata_tag_counters_account shared;         /* of threads without an account; written under the lock */
};

typedef struct strata_tag_counters {
    strata_per_thread threads;
    strata_tag_counters_record *all; /* constant */
    /* Spins: threads keep away from it. Apart from what every allocation reads. */
    _Alignas(64) strata_spin lock;
    uint32_t scope_count;                                                     /* open ones; guarded by the lock */
    _Atomic(strata_tag_counters_record *) last;                               /* guarded by the lock */
    _Atomic(strata_tag_counters_record *) chains[STRATA_TAG_COUNTERS_CHAINS]; /* by tag; heads change under the lock */
    _Atomic uint64_t sizes[STRATA_TAG_COUNTERS_SIZES]; /* of threads without a cell; any thread, relaxed: statistics */
} strata_tag_counters;

typedef struct strata_tag_counters_numbers {
    int64_t current[STRATA_TAG_COUNTERS_UNITS], peak[STRATA_TAG_COUNTERS_UNITS];
    int64_t total_bytes, total_requested, total_blocks;
} strata_tag_counters_numbers;

/* Of a struct that is all zero. False without host memory; nothing is left then, and `all` is NULL. */
bool strata_tag_counters_init(strata_tag_counters *counters);

/* No call is in flight. */
void strata_tag_counters_destroy(strata_tag_counters *counters);

/* The record of a tag; NULL if no block ever had it. */
strata_tag_counters_record *strata_tag_counters_find(strata_tag_counters *counters, strata_tag tag);

/* The same, and makes it; NULL without host memory. */
strata_tag_counters_record *strata_tag_counters_record_of(strata_tag_counters *counters, strata_tag tag);

/* The calling thread's account for a tag, made now; NULL without host memory. */
strata_tag_counters_account *strata_tag_counters_open(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                                      strata_tag tag);

/* For a thread that left its reservation, or whose period is over. */
void strata_tag_counters_reserve(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                 strata_tag_counters_account *account, bool period);

/* Count without an account. */
void strata_tag_counters_add_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes,
                                    size_t requested);
void strata_tag_counters_sub_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes);

/* ---- scopes; 0 is the time since the tally was made, n the n-th of those that are open ---- */

/* Begins a scope; false without host memory. */
bool strata_tag_counters_push(strata_tag_counters *counters);

/* Ends the innermost scope, and *numbers is what it came to. False if none is open. */
bool strata_tag_counters_pop(strata_tag_counters *counters, strata_tag_counters_numbers *numbers);

/* Every peak of every scope becomes what is live. */
void strata_tag_counters_reset_peaks(strata_tag_counters *counters);

uint32_t strata_tag_counters_scopes(strata_tag_counters *counters);

/* Numbers of one tag, or of all, within a scope, UINT32_MAX being the innermost. Without a record they are zero. False
 * if the scope is not open. */
bool strata_tag_counters_read(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                              strata_tag_counters_numbers *numbers);

/* The records of tags, in the order in which they came: the first after `record`; the first one for NULL. */
strata_tag_counters_record *strata_tag_counters_next(strata_tag_counters *counters,
                                                     const strata_tag_counters_record *record);

void strata_tag_counters_sum_sizes(strata_tag_counters *counters, uint64_t counts[STRATA_TAG_COUNTERS_SIZES]);

/* ---- shared with scopes.c ---- */

/* Room for the marks of so many scopes; false without host memory. The lock is held. */
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

/* Of an account in a record's list. */
static inline strata_tag_counters_gauge *strata_tag_counters_gauge_of(strata_tag_counters_account *account,
                                                                      unsigned unit)
{
    if (!strata_tag_counters_has_its_numbers(account))
        account = account->alias;
    return unit == STRATA_TAG_COUNTERS_BYTES ? &account->bytes : &account->blocks;
}

/* The most that the account can have had since `held` was set. */
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

/* The calling thread's cell, NULL where it has none. */
static inline strata_tag_counters_thread *strata_tag_counters_self(strata_tag_counters *counters, strata_thread *thread)
{
    return strata_per_thread_self(&counters->threads, thread);
}

/* The calling thread's account for a tag, if that is where it is looked for first. *mine: its cell. */
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

/* The calling thread's account for a tag; NULL where it can have none. */
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

/* Negative if the value is above what is held: several are looked at together. */
static inline int64_t strata_tag_counters_room(strata_tag_counters_gauge *gauge, int64_t now)
{
    return atomic_load_explicit(&gauge->reserved, memory_order_relaxed) - now;
}

/* Negative if the value falls below what it may. */
static inline int64_t strata_tag_counters_lower(strata_tag_counters_gauge *gauge, int64_t by)
{
    return strata_tag_counters_bump(&gauge->current, -by) - atomic_load_explicit(&gauge->low, memory_order_relaxed);
}

static inline unsigned strata_tag_counters_size_class(size_t bytes)
{
    return bytes <= 1 ? 0 : 64 - (unsigned)__builtin_clzll(bytes - 1);
}

/* The most that a block of a size class has; the last class has no such number. */
static inline uint64_t strata_tag_counters_most_of(unsigned size_class)
{
    return size_class < 64 ? UINT64_C(1) << size_class : UINT64_MAX;
}

/* What an account has after a change. */
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

/* Negative if the account fell out of what it reserved. */
static inline int64_t strata_tag_counters_shrink(strata_tag_counters_account *account, int64_t bytes)
{
    return strata_tag_counters_lower(&account->bytes, bytes) | strata_tag_counters_lower(&account->blocks, 1);
}

/* A block of the account's tag was allocated. */
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
    room |= (int64_t)in_period - 1; /* negative at the end of a period, too */
    if (__builtin_expect(room < 0, 0))
        strata_tag_counters_reserve(counters, local, account, in_period == 0);
}

/* A block of the account's tag was freed. */
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
