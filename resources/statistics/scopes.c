/* Scopes, and sums over accounts. Static functions run with the lock held. */
#include "resources/statistics/tag_counters.h"

/* While a scope begins: below every value, and differences do not overflow. */
static const int64_t nothing_reserved = INT64_MIN / 2;

/* ---- adding up ---- */

static int64_t sum_current(const strata_tag_counters_record *record, unsigned unit)
{
    int64_t sum = 0;
    for (strata_tag_counters_account *account = first_account(record); account; account = account->next)
        sum += counter_load(&gauge_of(account, unit)->current);
    return sum;
}

/* Counts what threads reached since they last reserved. */
static void raise_peak(strata_tag_counters_record *record, unsigned unit)
{
    int64_t sum = 0;
    for (strata_tag_counters_account *account = first_account(record); account; account = account->next) {
        strata_tag_counters_gauge *gauge = gauge_of(account, unit);
        sum += gauge_bound(gauge, counter_load(&gauge->reserved));
    }
    record->peak[unit] = larger(record->peak[unit], sum);
}

static void add_totals(const strata_tag_counters_record *record, strata_tag_counters_scope *totals)
{
    for (strata_tag_counters_account *account = first_account(record); account; account = account->next) {
        totals->total_bytes += counter_load(&account->total_bytes);
        totals->total_requested += counter_load(&account->total_requested);
        totals->total_blocks += counter_load(&account->total_blocks);
    }
}

static void sum_totals(strata_tag_counters *counters, const strata_tag_counters_record *record,
                       strata_tag_counters_scope *totals)
{
    totals->total_bytes = totals->total_requested = totals->total_blocks = 0;
    if (!record->all) {
        add_totals(record, totals);
        return;
    }
    for (record = strata_tag_counters_next(counters, NULL); record; record = strata_tag_counters_next(counters, record))
        add_totals(record, totals);
}

/* ---- scopes ---- */

/* The record of all tags is first. */
static strata_tag_counters_record *next_of_all(strata_tag_counters *counters, strata_tag_counters_record *record)
{
    return record ? atomic_load_explicit(&record->next, memory_order_relaxed) : counters->all;
}

static void take_reservations(strata_tag_counters *counters)
{
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        for (strata_tag_counters_account *account = first_account(record); account; account = account->next) {
            if (!has_its_numbers(account))
                continue;
            for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
                account->saved[unit] = counter_load(&gauge_of(account, unit)->reserved);
                counter_store(&gauge_of(account, unit)->reserved, nothing_reserved);
            }
        }
    }
}

/* Raises the peak and sets reservations to the current values. The record of all tags comes last: its aliases are
 * restored by then. */
static void restore_reservations(strata_tag_counters_record *record, unsigned unit)
{
    int64_t most = 0, sum = 0;
    for (strata_tag_counters_account *account = first_account(record); account; account = account->next) {
        strata_tag_counters_gauge *gauge = gauge_of(account, unit);
        const bool own = has_its_numbers(account);
        most += gauge_bound(gauge, own ? account->saved[unit] : account->alias->saved[unit]);
        if (own)
            counter_store(&gauge->reserved, counter_load(&gauge->current));
        sum += counter_load(&gauge->reserved);
    }
    record->peak[unit] = larger(record->peak[unit], most);
    record->sum[unit] = sum;
}

static void shrink_reservations(strata_tag_counters *counters)
{
    take_reservations(counters);
    strata_heavy_barrier();
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        for (strata_tag_counters_record *record = NULL; (record = strata_tag_counters_next(counters, record));)
            restore_reservations(record, unit);
        restore_reservations(counters->all, unit);
    }
}

static void begin_scope(strata_tag_counters *counters, strata_tag_counters_record *record)
{
    strata_tag_counters_scope *scope = &record->scopes[counters->scope_count];
    sum_totals(counters, record, scope);
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        scope->current[unit] = record->sum[unit];
        scope->peak[unit] = record->peak[unit];
        record->peak[unit] = record->sum[unit];
    }
}

bool strata_tag_counters_push(strata_tag_counters *counters)
{
    bool room = true;
    strata_spin_take(&counters->lock);
    for (strata_tag_counters_record *record = NULL; room && (record = next_of_all(counters, record));)
        room =
            counters->scope_count < UINT32_MAX - 1 && strata_tag_counters_make_room(record, counters->scope_count + 1);
    if (room) {
        shrink_reservations(counters);
        for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));)
            begin_scope(counters, record);
        counters->scope_count++;
    }
    strata_spin_release(&counters->lock);
    return room;
}

/* The scope is open. */
static void read_record(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                        strata_tag_counters_numbers *numbers)
{
    const strata_tag_counters_scope *from = scope ? &record->scopes[scope - 1] : &(strata_tag_counters_scope){0};
    strata_tag_counters_scope now;
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        int64_t current = sum_current(record, unit);
        raise_peak(record, unit);
        int64_t peak = larger(record->peak[unit], current);
        for (uint32_t inner = scope; inner < counters->scope_count; inner++)
            peak = larger(peak, record->scopes[inner].peak[unit]);
        numbers->current[unit] = current - from->current[unit];
        numbers->peak[unit] = peak - from->current[unit];
    }
    sum_totals(counters, record, &now);
    numbers->total_bytes = now.total_bytes - from->total_bytes;
    numbers->total_requested = now.total_requested - from->total_requested;
    numbers->total_blocks = now.total_blocks - from->total_blocks;
}

bool strata_tag_counters_read(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                              strata_tag_counters_numbers *numbers)
{
    *numbers = (strata_tag_counters_numbers){0};
    strata_spin_take(&counters->lock);
    bool open = scope <= counters->scope_count || scope == UINT32_MAX;
    if (open && record)
        read_record(counters, record, scope < counters->scope_count ? scope : counters->scope_count, numbers);
    strata_spin_release(&counters->lock);
    return open;
}

static void end_scope(strata_tag_counters *counters, strata_tag_counters_record *record)
{
    const strata_tag_counters_scope *scope = &record->scopes[counters->scope_count - 1];
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        raise_peak(record, unit);
        record->peak[unit] = larger(record->peak[unit], scope->peak[unit]);
    }
}

bool strata_tag_counters_pop(strata_tag_counters *counters, strata_tag_counters_numbers *numbers)
{
    *numbers = (strata_tag_counters_numbers){0};
    strata_spin_take(&counters->lock);
    bool open = counters->scope_count > 0;
    if (open) {
        read_record(counters, counters->all, counters->scope_count, numbers);
        for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));)
            end_scope(counters, record);
        counters->scope_count--;
    }
    strata_spin_release(&counters->lock);
    return open;
}

void strata_tag_counters_reset_peaks(strata_tag_counters *counters)
{
    strata_spin_take(&counters->lock);
    shrink_reservations(counters);
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
            record->peak[unit] = record->sum[unit];
            for (uint32_t i = 0; i < counters->scope_count; i++)
                record->scopes[i].peak[unit] = record->sum[unit];
        }
    }
    strata_spin_release(&counters->lock);
}

uint32_t strata_tag_counters_scopes(strata_tag_counters *counters)
{
    strata_spin_take(&counters->lock);
    uint32_t scope_count = counters->scope_count;
    strata_spin_release(&counters->lock);
    return scope_count;
}
