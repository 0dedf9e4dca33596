/* Function, file and line of a return address. */
#ifndef STRATA_CORE_BASE_CALL_STACK_NAMES_H
#define STRATA_CORE_BASE_CALL_STACK_NAMES_H

#include <stddef.h>
#include <stdint.h>

/* Marks the frames of strata_call_stack_text_frame: no address of a process has this bit. */
#define STRATA_CALL_STACK_TEXT ((uintptr_t)1 << 63)

/* Writes "function (file:line)" with libdw and debug information, else "function (module)", "module+0x1234" or the
 * address; a text frame's text. Any thread. */
void strata_call_stack_name(const void *frame, char *text, size_t size);

#endif
