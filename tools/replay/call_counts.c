/* Counts of driver calls. */
#include "tools/replay/call_counts.h"

#include <strata/info.h>

#include <string.h>

/* The count of a name, zero for a new one; NULL without room. */
static uint64_t *count_of(call_counts *counts, const char *name)
{
    for (uint32_t i = 0; i < counts->used; i++)
        if (strcmp(counts->calls[i].name, name) == 0)
            return &counts->calls[i].count;
    if (counts->used == CALL_COUNTS_LIMIT)
        return NULL;
    counts->calls[counts->used] = (call_count){.name = name};
    return &counts->calls[counts->used++].count;
}

static void add(call_counts *counts, const char *name, uint64_t number)
{
    uint64_t *count = count_of(counts, name);
    if (count)
        *count += number;
}

static void visit(const char *name, uint64_t count, void *data)
{
    add(data, name, count);
}

void call_counts_now(call_counts *counts)
{
    *counts = (call_counts){0};
    strata_driver_visit_calls(visit, counts);
}

static uint64_t look_up(const call_counts *counts, const char *name)
{
    for (uint32_t i = 0; i < counts->used; i++)
        if (strcmp(counts->calls[i].name, name) == 0)
            return counts->calls[i].count;
    return 0;
}

void call_counts_add_between(call_counts *sum, const call_counts *before, const call_counts *after)
{
    for (uint32_t i = 0; i < after->used; i++) {
        uint64_t grown = after->calls[i].count - look_up(before, after->calls[i].name);
        if (grown)
            add(sum, after->calls[i].name, grown);
    }
}
