/* The table of what the driver gave: buckets of entries, which double when there are more entries than buckets.
 *
 * A program may make and free such memory with each step, so that what the table adds to a call is a few nanoseconds:
 * an entry is taken from those that ended, and nothing but its bucket is touched. */
#include "adapters/exec/passed_table.h"

#include "core/base/host_memory.h"

enum { FIRST_BUCKETS = 256 };

static passed *first_buckets[FIRST_BUCKETS];
static passed **buckets = first_buckets;
static size_t bucket_count = FIRST_BUCKETS; /* a power of two */
static size_t entry_count;
static passed *spare;

/* Addresses end in zeros: the upper half of the product has all bits. */
static passed **bucket_of(exec_passed_key key)
{
    const uint64_t mixed = (key.value + key.space) * UINT64_C(0x9e3779b97f4a7c15);
    return &buckets[(mixed >> 32) & (bucket_count - 1)];
}

passed **passed_link(exec_passed_key key)
{
    passed **at = bucket_of(key);
    while (*at && ((*at)->facts.key.value != key.value || (*at)->facts.key.space != key.space))
        at = &(*at)->next;
    return at;
}

/* Without host memory the buckets stay as they are, and their entries become many. */
static void grow(void)
{
    passed **before = buckets;
    const size_t count = bucket_count;
    passed **more = strata_host_zalloc(2 * count * sizeof(passed *));
    if (!more)
        return;
    buckets = more;
    bucket_count = 2 * count;
    for (size_t i = 0; i < count; i++)
        while (before[i]) {
            passed *entry = before[i];
            before[i] = entry->next;
            passed **at = bucket_of(entry->facts.key);
            entry->next = *at;
            *at = entry;
        }
    if (before != first_buckets)
        strata_host_free(before);
}

bool passed_add(passed **link, const exec_passed_facts *facts)
{
    passed *entry = spare;
    if (entry)
        spare = entry->next;
    else
        entry = strata_host_zalloc(sizeof *entry);
    if (!entry)
        return false;
    entry->facts = *facts;
    entry->next = NULL;
    *link = entry;
    if (++entry_count > bucket_count)
        grow();
    return true;
}

void passed_remove(passed **link)
{
    passed *entry = *link;
    *link = entry->next;
    entry->next = spare;
    spare = entry;
    entry_count--;
}

void passed_visit(void (*visit)(const exec_passed_facts *facts, void *data), void *data)
{
    for (size_t i = 0; i < bucket_count; i++)
        for (const passed *entry = buckets[i]; entry; entry = entry->next)
            visit(&entry->facts, data);
}
