/* Scopes, and sums over accounts. Static functions: the lock is held, unless they say otherwise. */
#include "resources/statistics/tag_counters.h"

#include "core/base/host_memory.h"

#include <string.h>

/* ---- adding up ---- */

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

static uint32_t larger_room(const strata_tag_counters_record *record, uint32_t scope_count)
{
    return scope_count > 2 * record->room ? scope_count : 2 * record->room;
}

/* Allocates scopes, into other_scopes, for records with too little room. False without host memory. records_lock alone
 * is held. */
static bool allocate_room(strata_tag_counters *counters, uint32_t scope_count)
{
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        if (record->room >= scope_count)
            continue;
        record->other_scopes = strata_host_zalloc(larger_room(record, scope_count) * sizeof *record->scopes);
        if (!record->other_scopes)
            return false;
    }
    return true;
}

static void use_room(strata_tag_counters_record *record, uint32_t scope_count)
{
    strata_tag_counters_scope *larger_scopes = record->other_scopes;
    if (!larger_scopes)
        return;
    memcpy(larger_scopes, record->scopes, record->room * sizeof *larger_scopes);
    record->other_scopes = record->scopes;
    record->scopes = larger_scopes;
    record->room = larger_room(record, scope_count);
}

/* Frees what other_scopes have. records_lock alone is held. */
static void free_other_scopes(strata_tag_counters *counters)
{
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        strata_host_free(record->other_scopes);
        record->other_scopes = NULL;
    }
}

static void begin_scopes(strata_tag_counters *counters, uint32_t scope_count)
{
    strata_spin_take(&counters->lock);
    strata_tag_counters_take_sums(counters);
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        use_room(record, scope_count);
        begin_scope(counters, record);
    }
    counters->scope_count++;
    counters->starts++;
    strata_spin_release(&counters->lock);
}

bool strata_tag_counters_push(strata_tag_counters *counters)
{
    strata_lock_take(&counters->records_lock);
    const uint32_t scope_count = strata_tag_counters_scopes(counters) + 1; /* at most: some may be closed meanwhile */
    const bool room = scope_count < UINT32_MAX / 2 && allocate_room(counters, scope_count);
    if (room)
        begin_scopes(counters, scope_count);
    free_other_scopes(counters);
    strata_lock_release(&counters->records_lock);
    return room;
}

/* Reads a record in an open scope, after the sums were taken. An allocation that counts may still be on its way to the
 * totals. */
static void read_record(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                        strata_tag_counters_numbers *numbers)
{
    const strata_tag_counters_scope *from = scope ? &record->scopes[scope - 1] : &(strata_tag_counters_scope){0};
    strata_tag_counters_scope now;
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        int64_t current = record->sum[unit], peak = record->peak[unit];
        for (uint32_t inner = scope; inner < counters->scope_count; inner++)
            peak = larger(peak, record->scopes[inner].peak[unit]);
        numbers->current[unit] = current - from->current[unit];
        numbers->peak[unit] = peak - from->current[unit];
    }
    sum_totals(counters, record, &now);
    numbers->total_bytes = larger(now.total_bytes - from->total_bytes, numbers->peak[STRATA_TAG_COUNTERS_BYTES]);
    numbers->total_requested = now.total_requested - from->total_requested;
    numbers->total_blocks = larger(now.total_blocks - from->total_blocks, numbers->peak[STRATA_TAG_COUNTERS_BLOCKS]);
}

bool strata_tag_counters_read(strata_tag_counters *counters, strata_tag_counters_record *record, uint32_t scope,
                              strata_tag_counters_numbers *numbers)
{
    *numbers = (strata_tag_counters_numbers){0};
    strata_spin_take(&counters->lock);
    bool open = scope <= counters->scope_count || scope == UINT32_MAX;
    if (open && record) {
        strata_tag_counters_take_sums(counters);
        read_record(counters, record, scope < counters->scope_count ? scope : counters->scope_count, numbers);
    }
    strata_spin_release(&counters->lock);
    return open;
}

static void end_scope(strata_tag_counters *counters, strata_tag_counters_record *record)
{
    const strata_tag_counters_scope *scope = &record->scopes[counters->scope_count - 1];
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++)
        record->peak[unit] = larger(record->peak[unit], scope->peak[unit]);
}

bool strata_tag_counters_pop(strata_tag_counters *counters, strata_tag_counters_numbers *numbers)
{
    *numbers = (strata_tag_counters_numbers){0};
    strata_spin_take(&counters->lock);
    bool open = counters->scope_count > 0;
    if (open) {
        strata_tag_counters_take_sums(counters);
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
    strata_tag_counters_take_sums(counters);
    counters->starts++;
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
            record->peak[unit] = record->sum[unit];
            for (uint32_t i = 0; i < counters->scope_count; i++)
                record->scopes[i].peak[unit] = record->sum[unit];
        }
    }
    strata_spin_release(&counters->lock);
}
