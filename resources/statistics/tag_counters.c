/* Slow paths: records, accounts, reservations, and counting without an account. */
#include "resources/statistics/tag_counters.h"

#include "core/base/host_memory.h"

#include <string.h>

enum {
    FIRST_TABLE = 16,
    FIRST_SCOPES = 4,
    FINEST = 64,
    LEAST_BLOCKS = 16,
    SOME_PASSED_ON = 8, /* blocks */
    MOST_DOUBLINGS = 6,
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

bool strata_tag_counters_make_room(strata_tag_counters_record *record, uint32_t scope_count)
{
    if (record->room >= scope_count)
        return true;
    uint32_t room = scope_count > 2 * record->room ? scope_count : 2 * record->room;
    strata_tag_counters_scope *scopes = strata_host_zalloc(room * sizeof *scopes);
    if (!scopes)
        return false;
    if (record->scopes)
        memcpy(scopes, record->scopes, record->room * sizeof *scopes);
    strata_host_free(record->scopes);
    record->scopes = scopes;
    record->room = room;
    return true;
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

/* The lock is held, or the counters are not shared yet. */
static strata_tag_counters_record *make_record(strata_tag_counters *counters, strata_tag tag)
{
    strata_tag_counters_record *record =
        strata_host_zalloc_aligned(_Alignof(strata_tag_counters_record), sizeof *record);
    if (!record)
        return NULL;
    record->tag = tag;
    if (!strata_tag_counters_make_room(record,
                                       counters->scope_count > FIRST_SCOPES ? counters->scope_count : FIRST_SCOPES)) {
        strata_host_free(record);
        return NULL;
    }
    add_account(record, &record->shared);
    return record;
}

static strata_tag_counters_record *enter_record(strata_tag_counters *counters, strata_tag tag)
{
    strata_tag_counters_record *record = strata_tag_counters_find(counters, tag);
    if (record)
        return record;
    record = make_record(counters, tag);
    if (!record)
        return NULL;
    _Atomic(strata_tag_counters_record *) *chain = chain_of(counters, tag);
    record->chain = atomic_load_explicit(chain, memory_order_relaxed);
    atomic_store_explicit(chain, record, memory_order_release);
    strata_tag_counters_record *last = atomic_load_explicit(&counters->last, memory_order_relaxed);
    atomic_store_explicit(&last->next, record, memory_order_release);
    atomic_store_explicit(&counters->last, record, memory_order_relaxed);
    return record;
}

strata_tag_counters_record *strata_tag_counters_record_of(strata_tag_counters *counters, strata_tag tag)
{
    strata_tag_counters_record *record = strata_tag_counters_find(counters, tag);
    if (record)
        return record;
    strata_spin_take(&counters->lock);
    record = enter_record(counters, tag);
    strata_spin_release(&counters->lock);
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

static strata_tag_counters_account *make_account(strata_tag_counters_record *record)
{
    strata_tag_counters_account *account =
        record ? strata_host_zalloc_aligned(_Alignof(strata_tag_counters_account), sizeof *account) : NULL;
    if (account)
        add_account(record, account);
    return account;
}

/* With an alias of it for all tags. */
static strata_tag_counters_account *make_first(strata_tag_counters *counters, strata_tag_counters_record *record)
{
    strata_tag_counters_account *all = strata_host_zalloc_aligned(_Alignof(strata_tag_counters_account), sizeof *all);
    strata_tag_counters_account *account = all ? make_account(record) : NULL;
    if (!account) {
        strata_host_free(all);
        return NULL;
    }
    all->alias = account;
    account->alias = all;
    add_account(counters->all, all);
    return account;
}

static void copy_gauge(strata_tag_counters_gauge *to, const strata_tag_counters_gauge *from)
{
    counter_store(&to->current, counter_load(&from->current));
    counter_store(&to->top, counter_load(&from->top));
    counter_store(&to->reserved, counter_load(&from->reserved));
    counter_store(&to->low, counter_load(&from->low));
}

/* At a second account, the one for all tags gets numbers of its own. */
static strata_tag_counters_account *split_from(strata_tag_counters_account *first)
{
    strata_tag_counters_account *all = first->alias;
    copy_gauge(&all->bytes, &first->bytes);
    copy_gauge(&all->blocks, &first->blocks);
    memcpy(all->reserved_at, first->reserved_at, sizeof all->reserved_at);
    all->largest = first->largest;
    all->largest_before = first->largest_before;
    all->alias = first->alias = NULL;
    return all;
}

/* The lock is held. */
static strata_tag_counters_account *open_account(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                                 strata_tag tag)
{
    strata_tag_counters_record *record = enter_record(counters, tag);
    if (!record)
        return NULL;
    if ((!local->table || 2 * (local->count + 1) > local->mask + 1) && !grow_table(local))
        return NULL;
    strata_tag_counters_account *account = local->first ? make_account(record) : make_first(counters, record);
    if (!account)
        return NULL;
    if (!local->first)
        local->first = account;
    else if (!local->all)
        local->all = split_from(local->first);
    enter_account(local->table, local->mask, account);
    local->count++;
    return account;
}

strata_tag_counters_account *strata_tag_counters_open(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                                      strata_tag tag)
{
    for (uint32_t at = tag & local->mask; local->table && local->table[at]; at = (at + 1) & local->mask)
        if (local->table[at]->tag == tag)
            return local->table[at];
    strata_spin_take(&counters->lock);
    strata_tag_counters_account *account = open_account(counters, local, tag);
    strata_spin_release(&counters->lock);
    return account;
}

/* ---- reservations; the lock is held ---- */

/* A reservation changes from `reserved` to `now`. */
static void count_reservation(strata_tag_counters_record *record, unsigned unit, strata_tag_counters_gauge *gauge,
                              int64_t reserved, int64_t now)
{
    int64_t others = record->sum[unit] - reserved;
    record->peak[unit] = larger(record->peak[unit], others + gauge_bound(gauge, reserved));
    record->sum[unit] = others + now;
}

static void reserve(strata_tag_counters_account *account, unsigned unit, int64_t width)
{
    strata_tag_counters_gauge *gauge = gauge_of(account, unit);
    int64_t current = counter_load(&gauge->current), reserved = counter_load(&gauge->reserved),
            change = current - account->reserved_at[unit];
    count_reservation(account->record, unit, gauge, reserved, current + width);
    account->record->reserved_at[unit] += change;
    if (account->alias) {
        count_reservation(account->alias->record, unit, gauge, reserved, current + width);
        account->alias->record->reserved_at[unit] += change;
    }
    account->reserved_at[unit] = current;
    counter_store(&gauge->top, current);
    counter_store(&gauge->low, current - width);
    counter_store(&gauge->reserved, current + width);
}

static int64_t magnitude(int64_t number)
{
    return number < 0 ? -number : number;
}

/* A 64th of the account's value, or of what all threads have if less. */
static int64_t part_of(strata_tag_counters_account *account, unsigned unit)
{
    const int64_t own = magnitude(counter_load(&gauge_of(account, unit)->current)),
                  all = account->record->reserved_at[unit];
    return (own < all ? own : larger(all, 0)) / FINEST;
}

/* Eight recent blocks for a thread whose blocks others free, or that frees theirs: its value exceeds what all threads
 * have. */
static int64_t some_passed_on(strata_tag_counters_account *account)
{
    const int64_t now = counter_load(&account->bytes.current);
    const int64_t bytes = magnitude(now - account->reserved_at[STRATA_TAG_COUNTERS_BYTES]);
    const int64_t blocks =
        magnitude(counter_load(&account->blocks.current) - account->reserved_at[STRATA_TAG_COUNTERS_BLOCKS]);
    const int64_t all =
        account->record->reserved_at[STRATA_TAG_COUNTERS_BYTES] + now - account->reserved_at[STRATA_TAG_COUNTERS_BYTES];
    return magnitude(now) > all && blocks ? bytes / blocks * SOME_PASSED_ON : 0;
}

static void reserve_both(strata_tag_counters_account *account, uint32_t spread, bool period)
{
    int64_t recent = larger(larger(account->largest, account->largest_before), some_passed_on(account));
    reserve(account, STRATA_TAG_COUNTERS_BYTES, larger(recent, part_of(account, STRATA_TAG_COUNTERS_BYTES)) << spread);
    reserve(account, STRATA_TAG_COUNTERS_BLOCKS,
            larger(LEAST_BLOCKS, part_of(account, STRATA_TAG_COUNTERS_BLOCKS)) << spread);
    if (period) {
        account->largest_before = account->largest;
        account->largest = 0;
    }
}

void strata_tag_counters_reserve(strata_tag_counters *counters, strata_tag_counters_thread *local,
                                 strata_tag_counters_account *account, bool period)
{
    if (strata_spin_take_meeting(&counters->lock)) {
        local->contended = true;
        local->spread += local->spread < MOST_DOUBLINGS;
    }
    if (period) {
        local->spread -= !local->contended && local->spread;
        local->contended = false;
    }
    reserve_both(account, local->spread, period);
    if (local->all)
        reserve_both(local->all, local->spread, period);
    strata_spin_release(&counters->lock);
}

/* ---- counting without an account ---- */

static void change_shared(strata_tag_counters_record *record, int64_t bytes, int64_t blocks)
{
    strata_tag_counters_account *shared = &record->shared;
    strata_tag_counters_raise(&shared->bytes, bytes);
    strata_tag_counters_raise(&shared->blocks, blocks);
    reserve(shared, STRATA_TAG_COUNTERS_BYTES, 0);
    reserve(shared, STRATA_TAG_COUNTERS_BLOCKS, 0);
}

void strata_tag_counters_add_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes,
                                    size_t requested)
{
    strata_spin_take(&counters->lock);
    strata_tag_counters_bump(&record->shared.total_bytes, (int64_t)bytes);
    strata_tag_counters_bump(&record->shared.total_requested, (int64_t)requested);
    strata_tag_counters_bump(&record->shared.total_blocks, 1);
    change_shared(record, (int64_t)bytes, 1);
    change_shared(counters->all, (int64_t)bytes, 1);
    strata_spin_release(&counters->lock);
    atomic_fetch_add_explicit(&counters->sizes[strata_tag_counters_size_class(bytes)], 1, memory_order_relaxed);
}

void strata_tag_counters_sub_shared(strata_tag_counters *counters, strata_tag_counters_record *record, size_t bytes)
{
    strata_spin_take(&counters->lock);
    change_shared(record, -(int64_t)bytes, -1);
    change_shared(counters->all, -(int64_t)bytes, -1);
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
            counts[i] += atomic_load_explicit(&local->sizes[i], memory_order_relaxed);
}
