/* Stacks from texts, once the library's layers are registered (resources/builtin.c). */
#ifndef STRATA_CORE_STACK_STACK_TEXT_H
#define STRATA_CORE_STACK_STACK_TEXT_H

#include <strata/stack.h>

/* The mode for stacks from texts: strata_set_mode's, else STRATA_MODE's. Errors: SYNTAX (STRATA_MODE names none). */
strata_status strata_mode_now(strata_mode *mode);

/* Whether `text` can be read. Creates nothing, needs no driver. Errors: SYNTAX, OUT_OF_HOST_MEMORY. */
strata_status strata_stack_check_text(const char *text);

/* strata_stack_create. */
strata_status strata_stack_create_from_text(const char *text, int ordinal, strata_stack **out);

#endif
