/* The table of what the driver gave, by key: buckets of entries, which double when there are more entries than buckets.
 * All functions are called under passed.c's lock.
 *
 * A program may make and free such memory with each step, so that the table must cost a call no more than a few
 * nanoseconds: an entry is taken from the spare ones, and nothing but its bucket is touched. */
#ifndef STRATA_ADAPTERS_EXEC_PASSED_TABLE_H
#define STRATA_ADAPTERS_EXEC_PASSED_TABLE_H

#include "adapters/exec/exec.h"

typedef struct passed {
    exec_passed_facts facts;
    struct passed *next; /* of its bucket, or of those that are spare */
} passed;

typedef struct passed_table {
    passed **buckets;
    size_t bucket_count; /* a power of two */
    size_t entry_count;
    passed *spare;
} passed_table;
extern passed_table passed_now;

/* Addresses end in zeros: the upper half of the product has all bits. */
static inline passed **passed_bucket(exec_passed_key key)
{
    const uint64_t mixed = (key.value + key.space) * UINT64_C(0x9e3779b97f4a7c15);
    return &passed_now.buckets[(mixed >> 32) & (passed_now.bucket_count - 1)];
}

/* Returns the pointer to the key's entry in its bucket's list, which is NULL if there is none. Valid until the table
 * changes. */
static inline passed **passed_link(exec_passed_key key)
{
    passed **at = passed_bucket(key);
    while (*at && ((*at)->facts.key.value != key.value || (*at)->facts.key.space != key.space))
        at = &(*at)->next;
    return at;
}

static inline passed *passed_find(exec_passed_key key)
{
    return *passed_link(key);
}

/* Doubles the buckets; called when there are more entries than buckets. */
void passed_grow(void);

/* A spare entry from the heap. NULL without host memory. */
passed *passed_new(void);

/* Adds an entry, which the caller fills, at the link of its key, where none is. NULL without host memory. */
static inline passed *passed_add(passed **link)
{
    passed *entry = passed_now.spare;
    if (__builtin_expect(!entry, 0) && !(entry = passed_new()))
        return NULL;
    passed_now.spare = entry->next;
    entry->next = NULL;
    *link = entry;
    passed_now.entry_count++;
    return entry;
}

/* Moves the entry at the link to the spare ones. Its facts stay readable until it is taken again. */
static inline void passed_remove(passed **link)
{
    passed *entry = *link;
    *link = entry->next;
    entry->next = passed_now.spare;
    passed_now.spare = entry;
    passed_now.entry_count--;
}

/* Calls visit for each entry. Visit must not change the table. */
void passed_visit(void (*visit)(const exec_passed_facts *facts, void *data), void *data);

#endif
