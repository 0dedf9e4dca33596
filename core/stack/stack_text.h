/* Stacks from texts. Needs the library's layers registered (resources/builtin.c). */
#ifndef STRATA_CORE_STACK_STACK_TEXT_H
#define STRATA_CORE_STACK_STACK_TEXT_H

#include <strata/stack.h>

/* The mode of strata_set_mode, else of STRATA_MODE. Errors: SYNTAX (STRATA_MODE names none). */
strata_status strata_mode_now(strata_mode *mode);

/* Whether `text` can be read. Creates nothing, needs no driver. Errors: SYNTAX, OUT_OF_HOST_MEMORY. */
strata_status strata_check_stack_text(const char *text);

/* Creates a stack from a text, for strata_stack_create. */
strata_status strata_stack_create_from_text(const char *text, int ordinal, strata_stack **out);

#endif
