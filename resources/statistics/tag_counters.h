/* Live bytes and blocks by tag: current, peak, total. On the fast path no two threads write one word.
 *
 * A thread has an *account* for each tag that it uses and one for all tags: what it allocated less what it freed,
 * negative if it frees other threads' blocks. A tag's accounts are in a list of its *record*; their sum is live.
 *
 * The sum of the threads' peaks is no peak: they were reached at different moments. So an account has a window around
 * its current value, and the record the sum of the windows' lower ends, which was live at each moment. Within its
 * window a thread stores its current value and its highest one, `top`, and touches nothing shared. Outside it takes the
 * lock:
 *
 *     these bytes are live at once:                   peak = max(peak, sum - low + current)
 *     if no thread took the lock since this one did:  peak = max(peak, sum - low + top)
 *     a window anew around the current value:         low = current - width,  high = current + width
 *
 * So a peak is never above what was live at once, if a block counts only after its allocation and no more before its
 * free, and below it by at most two widths of each thread. With one thread it is exact. The width is 0 until a thread
 * has left its window with some 64 small blocks, since the layer was made or a scope began; then it doubles up to 32
 * KiB, but is at most a 16th of the thread's value, up to the 4,096th such block. At the peak, growing by small blocks
 * takes the lock for each 32 KiB or 32 blocks, and each block above 32 KiB does.
 *
 * Below the peak no window need be narrow: while the upper ends of all windows together are at most the peak, no new
 * one is missed. So a thread gets a wide window if there is room for it. The first step that could exceed the peak
 * makes all windows empty, as below; if this happens twice within 1024 allocations, windows are narrow for 1024 steps.
 *
 * Reading and scopes need what is live at one moment. Under the lock, each window is made empty, then comes the heavy
 * side of a barrier (core/base/asymmetric.h), then the current values are read. A counting thread stores its current
 * value before it reads its window: it takes the lock, or its value is seen. A thread that waits for the lock has its
 * block still, so the sum of what is read was live at once.
 *
 * Until a thread's second tag its account for all tags is an alias of the first. Threads without an account (no host
 * memory or thread number) count in the record's own, under the lock. */
#ifndef STRATA_RESOURCES_STATISTICS_TAG_COUNTERS_H
#define STRATA_RESOURCES_STATISTICS_TAG_COUNTERS_H

#include "core/base/asymmetric.h"
#include "core/base/lock.h"
#include "core/base/own_word.h"
#include "core/base/per_thread.h"

#include <strata/block.h>

enum {
    STRATA_TAG_COUNTERS_SIZES = 65, /* class n: above 2^(n-1), at most 2^n bytes */
    STRATA_TAG_COUNTERS_CHAINS = 64,
    STRATA_TAG_COUNTERS_WIDTH = 32 << 10, /* most bytes of a width */
    STRATA_TAG_COUNTERS_BLOCK_WIDTH = 32,
};

typedef struct strata_tag_counters_record strata_tag_counters_record;

/* A number of an account, and its window. Unless noted, the account's thread writes and any thread reads a recent
 * value. A record's own account is written under the lock. */
typedef struct strata_tag_counters_gauge {
    _Atomic int64_t current;
    _Atomic int64_t top;       /* highest current since the window was set by its thread */
    _Atomic int64_t low, high; /* the window; written by any thread, under the lock */
} strata_tag_counters_gauge;

typedef struct strata_tag_counters_account {
    _Alignas(64) strata_tag_counters_gauge bytes;
    strata_tag_counters_gauge blocks;
    _Atomic int64_t total_bytes, total_requested, total_blocks; /* 0 in accounts for all tags */
    strata_tag tag;                                             /* constant */
    uint64_t change;                           /* number of its last change in the record; under the lock */
    int64_t counted[2], most[2];               /* in the record's sums: the window's ends; under the lock */
    strata_tag_counters_record *record;        /* constant */
    struct strata_tag_counters_account *next;  /* in the record's list; constant once inserted */
    struct strata_tag_counters_account *alias; /* with one tag: the thread's other account, of which the
                                                  tag's has the numbers; under the lock */
} strata_tag_counters_account;

/* A thread's accounts. Used by its thread alone, unless noted. */
typedef struct strata_tag_counters_thread {
    strata_tag_counters_account *all; /* NULL before the second tag */
    strata_tag_counters_account *first;
    strata_tag_counters_account *untagged; /* the account of tag 0; NULL before its first block */
    strata_tag_counters_account **table;   /* by tag; open addressing, mask + 1 entries */
    uint32_t mask, count;
    uint32_t small_steps;                             /* steps out of a window by small blocks, since `start` */
    uint64_t start;                                   /* the counters' `starts` at the last step */
    int64_t width;                                    /* bytes */
    _Atomic int64_t sizes[STRATA_TAG_COUNTERS_SIZES]; /* any thread reads */
} strata_tag_counters_thread;

enum { STRATA_TAG_COUNTERS_BYTES, STRATA_TAG_COUNTERS_BLOCKS, STRATA_TAG_COUNTERS_UNITS };

typedef struct strata_tag_counters_scope {
    int64_t current[STRATA_TAG_COUNTERS_UNITS];
    int64_t peak[STRATA_TAG_COUNTERS_UNITS]; /* in the enclosing scope */
    int64_t total_bytes, total_requested, total_blocks;
} strata_tag_counters_scope;

struct strata_tag_counters_record {
    strata_tag tag;                                  /* constant */
    bool all;                                        /* constant: record of all tags */
    strata_tag_counters_record *chain;               /* of a hash value; constant */
    _Atomic(strata_tag_counters_record *) next;      /* in order of creation; set under the lock */
    _Atomic(strata_tag_counters_account *) accounts; /* changes under the lock */
    int64_t sum[STRATA_TAG_COUNTERS_UNITS];          /* sum of all accounts' `counted`; under the lock */
    int64_t most[STRATA_TAG_COUNTERS_UNITS];         /* sum of all accounts' `most`; under the lock */
    bool wide;                                       /* a window may be wide; under the lock */
    uint64_t changes;                                /* number of changes of the sums; under the lock */
    int64_t peak[STRATA_TAG_COUNTERS_UNITS];         /* of the innermost scope; under the lock */
    strata_tag_counters_scope *scopes;               /* under the lock */
    uint32_t room;                                   /* for scopes; changes under both locks */
    strata_tag_counters_scope *other_scopes;         /* to replace `scopes`, or replaced by it; under records_lock */
    strata_tag_counters_account shared;              /* of threads without an account; written under the lock */
};

typedef struct strata_tag_counters {
    strata_per_thread threads;
    strata_tag_counters_record *all; /* constant */
    strata_lock records_lock; /* held to make records and open scopes: memory is allocated under this one alone */
    /* Apart from what every allocation reads. */
    _Alignas(64) strata_spin lock;
    uint32_t scope_count; /* open scopes; guarded by the lock; grows under both */
    uint64_t starts; /* scopes begun and peaks reset: widths begin at 0; guarded by the lock, like the next three */
    uint64_t steps;  /* out of windows */
    uint64_t narrow_until;                                                    /* no wide windows before this step */
    uint64_t allocations;                                                     /* when a step last emptied all windows */
    _Atomic(strata_tag_counters_record *) last;                               /* guarded by the lock */
    _Atomic(strata_tag_counters_record *) chains[STRATA_TAG_COUNTERS_CHAINS]; /* by tag; heads change under the lock */
    _Atomic uint64_t sizes[STRATA_TAG_COUNTERS_SIZES]; /* of threads without an account; any thread, relaxed */
} strata_tag_counters;

typedef struct strata_tag_counters_numbers {
    int64_t current[STRATA_TAG_COUNTERS_UNITS], peak[STRATA_TAG_COUNTERS_UNITS];
    int64_t total_bytes, total_requested, total_blocks;
} strata_tag_counters_numbers;

/* Begins a zeroed struct. False without host memory: nothing is left. */
bool strata_tag_counters_init(strata_tag_counters *counters);

/* No call may be in flight. */
void strata_tag_counters_destroy(strata_tag_counters *counters);

/* A tag's record; NULL: no block ever had the tag. */
strata_tag_counters_record *strata_tag_counters_find(strata_tag_counters *counters, strata_tag tag);

/* A tag's record, created if missing; NULL without host memory. */
strata_tag_counters_record *strata_tag_counters_record_of(strata_tag_counters *counters, strata_tag tag);

/* The thread's account, created if missing; NULL without host memory. */
strata_tag_counters_account *strata_tag_counters_open(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                                      strata_tag tag);

/* Sets windows anew for a thread that left one with a block of so many bytes. */
void strata_tag_counters_step(strata_tag_counters *counters, strata_tag_counters_thread *local,
                              strata_tag_counters_account *account, size_t bytes);

/* Count in the record's own account, for threads that have none. */
void strata_tag_counters_add_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes,
                                    size_t requested);
void strata_tag_counters_sub_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes);
void strata_tag_counters_live_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes);

/* ---- scopes: 0 is everything since init, n the n-th open scope ---- */

/* Opens a scope. False without host memory. */
bool strata_tag_counters_push(strata_tag_counters *counters);

/* Reads and ends the innermost scope; false: none is open. */
bool strata_tag_counters_pop(strata_tag_counters *counters, strata_tag_counters_numbers *numbers);

/* Sets every peak to what is live. */
void strata_tag_counters_reset_peaks(strata_tag_counters *counters);

static inline uint32_t strata_tag_counters_scopes(strata_tag_counters *counters)
{
    strata_spin_take(&counters->lock);
    const uint32_t scope_count = counters->scope_count;
    strata_spin_release(&counters->lock);
    return scope_count;
}

/* Reads a record's numbers in a scope. Record NULL: zeros. Scope UINT32_MAX: the innermost. False: it is not open. */
bool strata_tag_counters_read(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                              strata_tag_counters_numbers *numbers);

/* The next tag's record, in order of creation; NULL gives the first. */
strata_tag_counters_record *strata_tag_counters_next(strata_tag_counters *counters,
                                                     const strata_tag_counters_record *record);

void strata_tag_counters_sum_sizes(strata_tag_counters *counters, uint64_t counts[STRATA_TAG_COUNTERS_SIZES]);

/* ---- shared by the files of the counters ---- */

/* Sets each record's sum to what was live at one moment. The lock is held. */
void strata_tag_counters_take_sums(strata_tag_counters *counters);

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

/* A gauge's value that was live at once with the others' lower ends: the highest value if no other account changed the
 * record since this one did. */
static inline int64_t gauge_reached(const strata_tag_counters_record *record,
                                    const strata_tag_counters_account *account, strata_tag_counters_gauge *gauge)
{
    int64_t current = counter_load(&gauge->current);
    return account->change == record->changes ? larger(counter_load(&gauge->top), current) : current;
}

/* The next record, of which that of all tags is the first. The lock is held. */
static inline strata_tag_counters_record *next_of_all(strata_tag_counters *counters, strata_tag_counters_record *record)
{
    return record ? atomic_load_explicit(&record->next, memory_order_relaxed) : counters->all;
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

/* The thread's account of a tag; NULL if a longer lookup is needed. *mine: the thread's part. */
static inline strata_tag_counters_account *
strata_tag_counters_account_if_present(strata_tag_counters *counters, strata_tag tag, strata_tag_counters_thread **mine)
{
    strata_tag_counters_thread *local = strata_per_thread_if_present(&counters->threads);
    if (__builtin_expect(!local || !local->table, 0))
        return NULL;
    *mine = local;
    strata_tag_counters_account *account = local->table[tag & local->mask];
    return __builtin_expect(account && account->tag == tag, 1) ? account : NULL;
}

/* As strata_tag_counters_account_if_present, of tag 0. */
static inline strata_tag_counters_account *strata_tag_counters_untagged_if_present(strata_tag_counters *counters,
                                                                                   strata_tag_counters_thread **mine)
{
    strata_tag_counters_thread *local = strata_per_thread_if_present(&counters->threads);
    *mine = local;
    return __builtin_expect(local != NULL, 1) ? local->untagged : NULL;
}

/* The thread's account of a tag, created if missing; NULL on failure. */
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

/* Room in the window; negative outside of it: results are or-ed. */
static inline int64_t strata_tag_counters_room_above(strata_tag_counters_gauge *gauge, int64_t now)
{
    return atomic_load_explicit(&gauge->high, memory_order_relaxed) - now;
}

static inline int64_t strata_tag_counters_room_below(strata_tag_counters_gauge *gauge, int64_t now)
{
    return now - atomic_load_explicit(&gauge->low, memory_order_relaxed);
}

/* The highest bit of 2 * bytes - 1 has the number of the highest one of bytes - 1, plus one. Not of 0 bytes. */
static inline uint32_t strata_tag_counters_size_class(size_t bytes)
{
    const bool doubles = __builtin_expect(bytes <= SIZE_MAX / 2, 1);
    return doubles ? 63 ^ (uint32_t)__builtin_clzll(2 * bytes - 1) : 64;
}

/* The largest size of a class; UINT64_MAX for the last one. */
static inline uint64_t strata_tag_counters_most_of(unsigned size_class)
{
    return size_class < 64 ? UINT64_C(1) << size_class : UINT64_MAX;
}

typedef struct strata_tag_counters_change {
    int64_t bytes, blocks;
} strata_tag_counters_change;

static inline strata_tag_counters_change strata_tag_counters_grow(strata_tag_counters_account *account, int64_t bytes)
{
    return (strata_tag_counters_change){strata_tag_counters_raise(&account->bytes, bytes),
                                        strata_tag_counters_raise(&account->blocks, 1)};
}

static inline strata_tag_counters_change strata_tag_counters_shrink(strata_tag_counters_account *account, int64_t bytes)
{
    return (strata_tag_counters_change){strata_tag_counters_bump(&account->bytes.current, -bytes),
                                        strata_tag_counters_bump(&account->blocks.current, -1)};
}

static inline int64_t strata_tag_counters_above(strata_tag_counters_account *account, strata_tag_counters_change now)
{
    return strata_tag_counters_room_above(&account->bytes, now.bytes) |
           strata_tag_counters_room_above(&account->blocks, now.blocks);
}

static inline int64_t strata_tag_counters_below(strata_tag_counters_account *account, strata_tag_counters_change now)
{
    return strata_tag_counters_room_below(&account->bytes, now.bytes) |
           strata_tag_counters_room_below(&account->blocks, now.blocks);
}

/* Counts a block of a thread with several tags: also in its account for all of them. Negative outside of a window. */
static inline __attribute__((always_inline)) int64_t
strata_tag_counters_grow_both(strata_tag_counters_account *account, strata_tag_counters_account *all, int64_t bytes)
{
    const strata_tag_counters_change one = strata_tag_counters_grow(account, bytes);
    const strata_tag_counters_change both = strata_tag_counters_grow(all, bytes);
    strata_light_barrier();
    return strata_tag_counters_above(account, one) | strata_tag_counters_above(all, both);
}

static inline __attribute__((always_inline)) int64_t
strata_tag_counters_shrink_both(strata_tag_counters_account *account, strata_tag_counters_account *all, int64_t bytes)
{
    const strata_tag_counters_change one = strata_tag_counters_shrink(account, bytes);
    const strata_tag_counters_change both = strata_tag_counters_shrink(all, bytes);
    strata_light_barrier();
    return strata_tag_counters_below(account, one) | strata_tag_counters_below(all, both);
}

static inline __attribute__((always_inline)) int64_t strata_tag_counters_grow_one(strata_tag_counters_account *account,
                                                                                  int64_t bytes)
{
    const strata_tag_counters_change now = strata_tag_counters_grow(account, bytes);
    strata_light_barrier();
    return strata_tag_counters_above(account, now);
}

static inline __attribute__((always_inline)) int64_t
strata_tag_counters_shrink_one(strata_tag_counters_account *account, int64_t bytes)
{
    const strata_tag_counters_change now = strata_tag_counters_shrink(account, bytes);
    strata_light_barrier();
    return strata_tag_counters_below(account, now);
}

/* Counts a block that is live; by itself, one whose free failed. */
static inline __attribute__((always_inline)) void strata_tag_counters_live(strata_tag_counters *counters,
                                                                           strata_tag_counters_thread *local,
                                                                           strata_tag_counters_account *account,
                                                                           size_t bytes)
{
    strata_tag_counters_account *all = local->all;
    const int64_t room = __builtin_expect(all != NULL, 0) ? strata_tag_counters_grow_both(account, all, (int64_t)bytes)
                                                          : strata_tag_counters_grow_one(account, (int64_t)bytes);
    if (__builtin_expect(room < 0, 0))
        strata_tag_counters_step(counters, local, account, bytes);
}

/* Counts an allocation, after it. */
static inline __attribute__((always_inline)) void strata_tag_counters_add(strata_tag_counters *counters,
                                                                          strata_tag_counters_thread *local,
                                                                          strata_tag_counters_account *account,
                                                                          size_t bytes, size_t requested)
{
    strata_own_word_add(&local->sizes[strata_tag_counters_size_class(bytes)], 1);
    strata_own_word_add_release(&account->total_bytes, (int64_t)bytes);
    strata_own_word_add_release(&account->total_requested, (int64_t)requested);
    strata_own_word_add_release(&account->total_blocks, 1);
    strata_tag_counters_live(counters, local, account, bytes);
}

/* Counts a free, before it. */
static inline __attribute__((always_inline)) void strata_tag_counters_sub(strata_tag_counters *counters,
                                                                          strata_tag_counters_thread *local,
                                                                          strata_tag_counters_account *account,
                                                                          size_t bytes)
{
    strata_tag_counters_account *all = local->all;
    const int64_t room = __builtin_expect(all != NULL, 0)
                             ? strata_tag_counters_shrink_both(account, all, (int64_t)bytes)
                             : strata_tag_counters_shrink_one(account, (int64_t)bytes);
    if (__builtin_expect(room < 0, 0))
        strata_tag_counters_step(counters, local, account, bytes);
}

#endif
