/* What is live at one moment. The lock is held. */
#include "resources/statistics/tag_counters.h"

/* A window without values; differences do not overflow. */
static const int64_t empty_low = INT64_MAX / 2, empty_high = INT64_MIN / 2;

static strata_tag_counters_record *next_of_tags(strata_tag_counters *counters, const strata_tag_counters_record *record)
{
    return atomic_load_explicit(record ? &record->next : &counters->all->next, memory_order_relaxed);
}

static void close_windows(strata_tag_counters *counters)
{
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        for (strata_tag_counters_account *account = first_account(record); account; account = account->next) {
            if (!has_its_numbers(account))
                continue;
            for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
                counter_store(&gauge_of(account, unit)->low, empty_low);
                counter_store(&gauge_of(account, unit)->high, empty_high);
            }
        }
    }
}

/* Raises a peak to what the thread that last left its window reached since. */
static void raise_peak(strata_tag_counters_record *record, unsigned unit)
{
    for (strata_tag_counters_account *account = first_account(record); account; account = account->next) {
        if (account->change != record->changes)
            continue;
        const int64_t low = has_its_numbers(account) ? account->counted[unit] : account->alias->counted[unit];
        const int64_t reached = gauge_reached(record, account, gauge_of(account, unit));
        record->peak[unit] = larger(record->peak[unit], record->sum[unit] - low + reached);
    }
}

/* Sets a record's windows to the current values. That of all tags comes last: its aliases are set by then. */
static void open_windows(strata_tag_counters_record *record, unsigned unit)
{
    int64_t sum = 0;
    for (strata_tag_counters_account *account = first_account(record); account; account = account->next) {
        strata_tag_counters_gauge *gauge = gauge_of(account, unit);
        if (!has_its_numbers(account)) {
            sum += account->alias->counted[unit];
            continue;
        }
        account->counted[unit] = account->most[unit] = counter_load(&gauge->current);
        counter_store(&gauge->low, account->counted[unit]);
        counter_store(&gauge->high, account->counted[unit]);
        sum += account->counted[unit];
    }
    record->sum[unit] = record->most[unit] = sum;
    record->peak[unit] = larger(record->peak[unit], sum);
}

void strata_tag_counters_take_sums(strata_tag_counters *counters)
{
    close_windows(counters);
    strata_heavy_barrier();
    for (unsigned unit = 0; unit < STRATA_TAG_COUNTERS_UNITS; unit++) {
        for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));)
            raise_peak(record, unit);
        for (strata_tag_counters_record *record = NULL; (record = next_of_tags(counters, record));)
            open_windows(record, unit);
        open_windows(counters->all, unit);
    }
    for (strata_tag_counters_record *record = NULL; (record = next_of_all(counters, record));) {
        record->changes++;
        record->wide = false;
    }
}
