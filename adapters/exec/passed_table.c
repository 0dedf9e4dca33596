/* The rarely used part of the table of what the driver gave: growth, new entries, visits. */
#include "adapters/exec/passed_table.h"

#include "core/base/host_memory.h"

enum { FIRST_BUCKETS = 256 };

static passed *first_buckets[FIRST_BUCKETS];
passed_table passed_now = {.buckets = first_buckets, .bucket_count = FIRST_BUCKETS};

/* Without host memory the buckets stay as they are, and their lists become longer. */
void passed_grow(void)
{
    passed **before = passed_now.buckets;
    const size_t count = passed_now.bucket_count;
    passed **more = strata_host_zalloc(2 * count * sizeof(passed *));
    if (!more)
        return;
    passed_now.buckets = more;
    passed_now.bucket_count = 2 * count;
    for (size_t i = 0; i < count; i++)
        while (before[i]) {
            passed *entry = before[i];
            before[i] = entry->next;
            passed **at = passed_bucket(entry->facts.key);
            entry->next = *at;
            *at = entry;
        }
    if (before != first_buckets)
        strata_host_free(before);
}

passed *passed_new(void)
{
    return strata_host_zalloc(sizeof(passed));
}

void passed_visit(void (*visit)(const exec_passed_facts *facts, void *data), void *data)
{
    for (size_t i = 0; i < passed_now.bucket_count; i++)
        for (const passed *entry = passed_now.buckets[i]; entry; entry = entry->next)
            visit(&entry->facts, data);
}
