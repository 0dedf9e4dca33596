/* The table of what the driver gave, by what names it. Under passed.c's lock, all functions. */
#ifndef STRATA_ADAPTERS_EXEC_PASSED_TABLE_H
#define STRATA_ADAPTERS_EXEC_PASSED_TABLE_H

#include "adapters/exec/exec.h"

typedef struct passed {
    exec_passed_facts facts;
    struct passed *next; /* of its bucket, or of those that are spare */
} passed;

/* Where the key's entry hangs; at a NULL: there is none. Good until the table changes. */
passed **passed_link(exec_passed_key key);

/* Adds an entry at the link of its key, where none is. False without host memory. */
bool passed_add(passed **link, const exec_passed_facts *facts);

/* The entry at the link ends. */
void passed_remove(passed **link);

/* Calls visit for each entry. Visit must not change the table. */
void passed_visit(void (*visit)(const exec_passed_facts *facts, void *data), void *data);

static inline passed *passed_find(exec_passed_key key)
{
    return *passed_link(key);
}

#endif
