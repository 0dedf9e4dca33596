/* Slow paths: records, accounts, windows, counting without an account. */
#include "resources/statistics/tag_counters.h"

#include "core/base/host_memory.h"

#include <string.h>

enum {
    FIRST_TABLE = 16,
    FIRST_SCOPES = 4,
    FINEST = 16,
    EXACT_STEPS = 64,     /* steps of a thread with width 0 */
    PART_STEPS = 4096,    /* steps of a thread with a width of at most a part of its value */
    LEAST_WIDTH = 1 << 9, /* bytes */
    NARROW_STEPS =
        1024, /* steps with narrow windows, after those of all threads were emptied twice within as many allocations */
};

/* ---- records and accounts ---- */

static _Atomic(strata_tag_counters_record *) *chain_of(strata_tag_counters *counters, strata_tag tag)
{
    return &counters->chains[tag % STRATA_TAG_COUNTERS_CHAINS];
}

strata_tag_counters_record *strata_tag_counters_find(strata_tag_counters *counters, strata_tag tag)
{
    strata_tag_counters_record *record = atomic_load_explicit(chain_of(counters, tag), memory_order_acquire);
    while (record && record->tag != tag)
        record = record->chain;
    return record;
}

static void add_account(strata_tag_counters_record *record, strata_tag_counters_account *account)
{
    account->record = record;
    account->tag = record->tag;
    account->next = atomic_load_explicit(&record->accounts, memory_order_relaxed);
    atomic_store_explicit(&record->accounts, account, memory_order_release);
}

static void free_record(strata_tag_counters_record *record)
{
    strata_tag_counters_account *account = atomic_load_explicit(&record->accounts, memory_order_relaxed);
    while (account) {
        strata_tag_counters_account *next = account->next;
        if (account != &record->shared)
            strata_host_free(account);
        account = next;
    }
    strata_host_free(record->scopes);
    strata_host_free(record);
}

/* Makes a record. records_lock is held, or the counters are not shared yet: no scope is opened meanwhile. */
static strata_tag_counters_record *make_record(strata_tag_counters *counters, strata_tag tag)
{
    const uint32_t scope_count = strata_tag_counters_scopes(counters);
    strata_tag_counters_record *record =
        strata_host_zalloc_aligned(_Alignof(strata_tag_counters_record), sizeof *record);
    if (!record)
        return NULL;
    record->tag = tag;
    record->room = scope_count > FIRST_SCOPES ? scope_count : FIRST_SCOPES;
    record->scopes = strata_host_zalloc(record->room * sizeof *record->scopes);
    if (!record->scopes) {
        strata_host_free(record);
        return NULL;
    }
    add_account(record, &record->shared);
    return record;
}

/* Shows a record to all threads. records_lock is held. */
static void enter_record(strata_tag_counters *counters, strata_tag_counters_record *record)
{
    _Atomic(strata_tag_counters_record *) *chain = chain_of(counters, record->tag);
    strata_spin_take(&counters->lock);
    record->chain = atomic_load_explicit(chain, memory_order_relaxed);
    atomic_store_explicit(chain, record, memory_order_release);
    strata_tag_counters_record *last = atomic_load_explicit(&counters->last, memory_order_relaxed);
    atomic_store_explicit(&last->next, record, memory_order_release);
    atomic_store_explicit(&counters->last, record, memory_order_relaxed);
    strata_spin_release(&counters->lock);
}

strata_tag_counters_record *strata_tag_counters_record_of(strata_tag_counters *counters, strata_tag tag)
{
    strata_tag_counters_record *record = strata_tag_counters_find(counters, tag);
    if (record)
        return record;
    strata_lock_take(&counters->records_lock);
    record = strata_tag_counters_find(counters, tag);
    if (!record && (record = make_record(counters, tag)))
        enter_record(counters, record);
    strata_lock_release(&counters->records_lock);
    return record;
}

strata_tag_counters_record *strata_tag_counters_next(strata_tag_counters *counters,
                                                     const strata_tag_counters_record *record)
{
    return atomic_load_explicit(record ? &record->next : &counters->all->next, memory_order_acquire);
}

bool strata_tag_counters_init(strata_tag_counters *counters)
{
    strata_per_thread_init(&counters->threads, sizeof(strata_tag_counters_thread));
    strata_per_thread_take_number(&counters->threads);
    strata_lock_init(&counters->records_lock, STRATA_RANK_TAG_RECORDS);
    strata_spin_init(&counters->lock, STRATA_RANK_TAG_COUNTERS);
    strata_barriers_open();
    counters->all = make_record(counters, 0);
    if (counters->all) {
        counters->all->all = true;
        atomic_store_explicit(&counters->last, counters->all, memory_order_relaxed);
        if (strata_tag_counters_record_of(counters, 0))
            return true;
    }
    strata_tag_counters_destroy(counters);
    return false;
}

void strata_tag_counters_destroy(strata_tag_counters *counters)
{
    strata_tag_counters_thread *local;
    for (uint32_t position = 0; (local = strata_per_thread_next(&counters->threads, &position));)
        strata_host_free(local->table);
    strata_per_thread_destroy(&counters->threads);
    for (strata_tag_counters_record *record = counters->all; record;) {
        strata_tag_counters_record *next = atomic_load_explicit(&record->next, memory_order_relaxed);
        free_record(record);
        record = next;
    }
    counters->all = NULL;
    strata_lock_destroy(&counters->records_lock);
}

/* ---- a thread's accounts ---- */

static void enter_account(strata_tag_counters_account **table, uint32_t mask, strata_tag_counters_account *account)
{
    uint32_t at = account->tag & mask;
    while (table[at])
        at = (at + 1) & mask;
    table[at] = account;
}

static bool grow_table(strata_tag_counters_thread *local)
{
    uint32_t places = local->table ? 2 * (local->mask + 1) : FIRST_TABLE;
    strata_tag_counters_account **table = strata_host_zalloc(places * sizeof(strata_tag_counters_account *));
    if (!table)
        return false;
    for (uint32_t i = 0; local->table && i <= local->mask; i++)
        if (local->table[i])
            enter_account(table, places - 1, local->table[i]);
    strata_host_free(local->table);
    local->table = table;
    local->mask = places - 1;
    return true;
}

/* An account, and of a thread's first one its alias for all tags. */
typedef struct new_accounts {
    strata_tag_counters_account *account, *all;
} new_accounts;

static strata_tag_counters_account *allocate_account(void)
{
    return strata_host_zalloc_aligned(_Alignof(strata_tag_counters_account), sizeof(strata_tag_counters_account));
}

/* Allocates a thread's account, and with `first` its alias. False without host memory: nothing is left. */
static bool allocate_accounts(bool first, new_accounts *out)
{
    *out = (new_accounts){allocate_account(), first ? allocate_account() : NULL};
    if (out->account && (out->all || !first))
        return true;
    strata_host_free(out->account);
    strata_host_free(out->all);
    return false;
}

static void copy_gauge(strata_tag_counters_gauge *to, const strata_tag_counters_gauge *from)
{
    counter_store(&to->current, counter_load(&from->current));
    counter_store(&to->top, counter_load(&from->top));
    counter_store(&to->high, counter_load(&from->high));
    counter_store(&to->low, counter_load(&from->low));
}

/* Gives the thread's account for all tags its own numbers, at its second account. */
static strata_tag_counters_account *split_from(strata_tag_counters_account *first)
{
    strata_tag_counters_account *all = first->alias;
    copy_gauge(&all->bytes, &first->bytes);
    copy_gauge(&all->blocks, &first->blocks);
    memcpy(all->counted, first->counted, sizeof all->counted);
    memcpy(all->most, first->most, sizeof all->most);
    all->alias = first->alias = NULL;
    return all;
}

/* The lock is held. */
static void add_accounts(strata_tag_counters *counters, strata_tag_counters_thread *local,
                         strata_tag_counters_record *record, const new_accounts *made)
{
    add_account(record, made->account);
    if (made->all) {
        made->all->alias = made->account;
        made->account->alias = made->all;
        add_account(counters->all, made->all);
        local->first = made->account;
    } else if (!local->all) {
        local->all = split_from(local->first);
    }
}

strata_tag_counters_account *strata_tag_counters_open(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                                      strata_tag tag)
{
    for (uint32_t at = tag & local->mask; local->table && local->table[at]; at = (at + 1) & local->mask)
        if (local->table[at]->tag == tag)
            return local->table[at];
    strata_tag_counters_record *record = strata_tag_counters_record_of(counters, tag);
    const bool full = !local->table || 2 * (local->count + 1) > local->mask + 1;
    new_accounts made;
    if (!record || (full && !grow_table(local)) || !allocate_accounts(!local->first, &made))
        return NULL;
    strata_spin_take(&counters->lock);
    add_accounts(counters, local, record, &made);
    strata_spin_release(&counters->lock);
    enter_account(local->table, local->mask, made.account);
    local->count++;
    if (!tag)
        local->untagged = made.account;
    return made.account;
}

/* ---- windows; the lock is held ---- */

typedef struct extent {
    int64_t below, above; /* of the current value */
} extent;

static void count_window(strata_tag_counters_record *record, const strata_tag_counters_account *account, unsigned unit,
                         int64_t reached, extent window)
{
    const int64_t others = record->sum[unit] - account->counted[unit];
    record->peak[unit] = larger(record->peak[unit], others + reached);
    record->sum[unit] = others + window.below;
    record->most[unit] += window.above - account->most[unit];
}

/* Sets an account's window; `around` is relative to the current value. */
static void set_window(strata_tag_counters_account *account, unsigned unit, extent around)
{
    strata_tag_counters_gauge *gauge = gauge_of(account, unit);
    const int64_t current = counter_load(&gauge->current);
    const extent ends = {current - around.below, current + around.above};
    count_window(account->record, account, unit, gauge_reached(account->record, account, gauge), ends);
    if (account->alias)
        count_window(account->alias->record, account, unit,
                     gauge_reached(account->alias->record, account->alias, gauge), ends);
    account->counted[unit] = ends.below;
    account->most[unit] = ends.above;
    counter_store(&gauge->top, current);
    counter_store(&gauge->low, ends.below);
    counter_store(&gauge->high, ends.above);
}

static void note_change(strata_tag_counters_account *account, bool wide)
{
    account->change = ++account->record->changes;
    account->record->wide |= wide;
    if (account->alias) {
        account->alias->change = ++account->alias->record->changes;
        account->alias->record->wide |= wide;
    }
}

/* Room from the account's current value to the peak, if all other threads are at their windows' upper ends. */
static int64_t room_to_peak(const strata_tag_counters_record *record, strata_tag_counters_account *account,
                            unsigned unit)
{
    return record->peak[unit] - (record->most[unit] - account->most[unit]) -
           counter_load(&gauge_of(account, unit)->current);
}

static int64_t smaller(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t least_room(strata_tag_counters_account *account, unsigned unit)
{
    const int64_t room = room_to_peak(account->record, account, unit);
    return account->alias ? smaller(room, room_to_peak(account->alias->record, account, unit)) : room;
}

/* Whether threads in their windows could exceed a peak. The account has its numbers. */
static bool may_exceed_peak(strata_tag_counters_account *account)
{
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        if (account->record->wide && room_to_peak(account->record, account, unit) < 0)
            return true;
        if (account->alias && account->alias->record->wide && room_to_peak(account->alias->record, account, unit) < 0)
            return true;
    }
    return false;
}

/* Half of the room below the peak, for a window that is to hold `bytes` more. False if that does not fit: less would be
 * left soon. */
static bool find_room(strata_tag_counters_account *account, int64_t bytes, int64_t blocks,
                      int64_t room[STRATA_TAG_COUNTERS_UNITS])
{
    const int64_t needed[] = {[STRATA_TAG_COUNTERS_BYTES] = bytes, [STRATA_TAG_COUNTERS_BLOCKS] = blocks};
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        const int64_t left = least_room(account, unit);
        if (left < needed[unit])
            return false;
        room[unit] = larger(needed[unit], left / 2);
    }
    return true;
}

/* The most width: a 16th of the account's value, until the thread has taken the lock so often that others wait for it:
 * threads that each hold little, and never all at once, find no room below the peak. */
static int64_t part_of(const strata_tag_counters_thread *local, strata_tag_counters_account *account, unsigned unit)
{
    if (local->small_steps >= PART_STEPS)
        return INT64_MAX;
    const int64_t current = counter_load(&gauge_of(account, unit)->current);
    return (current < 0 ? -current : current) / FINEST;
}

static void set_windows(strata_tag_counters *counters, const strata_tag_counters_thread *local,
                        strata_tag_counters_account *account, size_t bytes)
{
    const int64_t width = smaller(local->width, part_of(local, account, STRATA_TAG_COUNTERS_BYTES));
    const int64_t blocks =
        width ? smaller(STRATA_TAG_COUNTERS_BLOCK_WIDTH, part_of(local, account, STRATA_TAG_COUNTERS_BLOCKS)) : 0;
    int64_t room[STRATA_TAG_COUNTERS_UNITS];
    const bool wide = counters->steps >= counters->narrow_until &&
                      find_room(account, larger((int64_t)bytes, width), larger(1, blocks), room);
    if (wide) {
        set_window(account, STRATA_TAG_COUNTERS_BYTES, (extent){room[0], room[0]});
        set_window(account, STRATA_TAG_COUNTERS_BLOCKS, (extent){room[1], room[1]});
    } else {
        set_window(account, STRATA_TAG_COUNTERS_BYTES, (extent){width, width});
        set_window(account, STRATA_TAG_COUNTERS_BLOCKS, (extent){blocks, blocks});
    }
    note_change(account, wide);
}

/* Makes the thread's windows wider after many steps. Large blocks leave every window, so they do not count. */
static void widen(strata_tag_counters *counters, strata_tag_counters_thread *local, size_t bytes)
{
    if (local->start != counters->starts) {
        local->start = counters->starts;
        local->small_steps = 0;
        local->width = 0;
    }
    if (bytes > STRATA_TAG_COUNTERS_WIDTH)
        return;
    if (local->small_steps < PART_STEPS)
        local->small_steps++;
    if (local->small_steps <= EXACT_STEPS)
        return;
    const int64_t wanted = larger(larger(2 * local->width, (int64_t)bytes), LEAST_WIDTH);
    local->width = wanted < STRATA_TAG_COUNTERS_WIDTH ? wanted : STRATA_TAG_COUNTERS_WIDTH;
}

/* Counts the allocations by threads with an account. */
static uint64_t count_allocations(strata_tag_counters *counters)
{
    uint64_t all = 0;
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));)
        for (const strata_tag_counters_account *account = first_account(record); account; account = account->next)
            all += (uint64_t)counter_load(&account->total_blocks);
    return all;
}

/* Empties all windows. They may be wide again at once, if the last ones held for long: use that rises and falls below
 * the peak is the same as before. */
static void empty_windows(strata_tag_counters *counters)
{
    const uint64_t allocations = count_allocations(counters);
    strata_tag_counters_take_sums(counters);
    if (allocations - counters->allocations < NARROW_STEPS)
        counters->narrow_until = counters->steps + NARROW_STEPS;
    counters->allocations = allocations;
}

void strata_tag_counters_step(strata_tag_counters *counters, strata_tag_counters_thread *local,
                              strata_tag_counters_account *account, size_t bytes)
{
    strata_spin_take(&counters->lock);
    counters->steps++;
    widen(counters, local, bytes);
    if (__builtin_expect(may_exceed_peak(account) || (local->all && may_exceed_peak(local->all)), 0))
        empty_windows(counters);
    set_windows(counters, local, account, bytes);
    if (local->all)
        set_windows(counters, local, local->all, bytes);
    strata_spin_release(&counters->lock);
}

/* ---- counting without an account ---- */

static void change_shared(strata_tag_counters *counters, strata_tag_counters_record *record, int64_t bytes,
                          int64_t blocks)
{
    strata_tag_counters_account *shared = &record->shared;
    strata_tag_counters_raise(&shared->bytes, bytes);
    strata_tag_counters_raise(&shared->blocks, blocks);
    if (may_exceed_peak(shared))
        strata_tag_counters_take_sums(counters);
    set_window(shared, STRATA_TAG_COUNTERS_BYTES, (extent){0});
    set_window(shared, STRATA_TAG_COUNTERS_BLOCKS, (extent){0});
    note_change(shared, false);
}

void strata_tag_counters_add_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes,
                                    size_t requested)
{
    strata_spin_take(&counters->lock);
    strata_tag_counters_bump(&record->shared.total_bytes, (int64_t)bytes);
    strata_tag_counters_bump(&record->shared.total_requested, (int64_t)requested);
    strata_tag_counters_bump(&record->shared.total_blocks, 1);
    change_shared(counters, record, (int64_t)bytes, 1);
    change_shared(counters, counters->all, (int64_t)bytes, 1);
    strata_spin_release(&counters->lock);
    atomic_fetch_add_explicit(&counters->sizes[strata_tag_counters_size_class(bytes)], 1, memory_order_relaxed);
}

void strata_tag_counters_sub_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes)
{
    strata_spin_take(&counters->lock);
    change_shared(counters, record, -(int64_t)bytes, -1);
    change_shared(counters, counters->all, -(int64_t)bytes, -1);
    strata_spin_release(&counters->lock);
}

void strata_tag_counters_live_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes)
{
    strata_spin_take(&counters->lock);
    change_shared(counters, record, (int64_t)bytes, 1);
    change_shared(counters, counters->all, (int64_t)bytes, 1);
    strata_spin_release(&counters->lock);
}

/* ---- what needs no lock ---- */

void strata_tag_counters_sum_sizes(strata_tag_counters *counters, uint64_t counts[STRATA_TAG_COUNTERS_SIZES])
{
    const strata_tag_counters_thread *local;
    for (size_t i = 0; i < STRATA_TAG_COUNTERS_SIZES; i++)
        counts[i] = atomic_load_explicit(&counters->sizes[i], memory_order_relaxed);
    for (uint32_t position = 0; (local = strata_per_thread_next(&counters->threads, &position));)
        for (size_t i = 0; i < STRATA_TAG_COUNTERS_SIZES; i++)
            counts[i] += (uint64_t)atomic_load_explicit(&local->sizes[i], memory_order_relaxed);
}
