/* Whether call stacks of this program can be resolved: not if it was stripped, as a build copied to another machine may
 * be, or without libdw. */
#ifndef STRATA_TEST_SYMBOLS_H
#define STRATA_TEST_SYMBOLS_H

#include "core/base/call_stack.h"

#include <stdbool.h>
#include <stdio.h>
#include <string.h>

static inline void test_look_for_main(const char *text, void *found)
{
    *(bool *)found |= strncmp(text, "main", 4) == 0;
}

/* Called first in main, which returns 77 if false; the reason is printed. */
static inline bool test_has_symbols(void)
{
    bool found = false;
    strata_call_stack_print(strata_call_stack_capture(0), test_look_for_main, &found);
    if (!found)
        printf("skipped: the functions of this program have no names here\n");
    return found;
}

#endif
