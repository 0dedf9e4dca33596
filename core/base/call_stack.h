/* Call stacks of the host. Frames are stored as addresses, equal stacks once, for the life of the process. Names and
 * lines are looked up when a stack is printed. */
#ifndef STRATA_CORE_BASE_CALL_STACK_H
#define STRATA_CORE_BASE_CALL_STACK_H

#include <stdint.h>

enum { STRATA_CALL_STACK_DEPTH = 32 }; /* frames, innermost */

/* The number of the calling thread's stack from this function's caller outwards, less `skip` frames and those of the
 * shared library. 0: no stack, or no host memory. Any thread; no lock for a stack that is stored already. */
uint32_t strata_call_stack_capture(unsigned skip);

/* Calls `line` for each frame, innermost first; the text is strata_call_stack_name's, valid during the call. Nothing
 * for 0 and unknown numbers. Any thread; no lock is held during `line`. */
void strata_call_stack_print(uint32_t number, void (*line)(const char *text, void *data), void *data);

#endif
