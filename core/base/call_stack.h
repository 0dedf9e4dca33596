/* Call stacks of the host. Frames are stored as addresses, equal stacks once, for the life of the process. Names and
 * lines are looked up when a stack is printed. */
#ifndef STRATA_CORE_BASE_CALL_STACK_H
#define STRATA_CORE_BASE_CALL_STACK_H

#include <stddef.h>
#include <stdint.h>

enum { STRATA_CALL_STACK_DEPTH = 32 }; /* frames, innermost */

/* Adds the frames of an interpreter to a stack that was walked: `frames` has `depth` of at most `room`. Returns the new
 * depth. Any thread; with locks of the library and of the program held. */
typedef size_t strata_call_stack_source(void **frames, size_t depth, size_t room);

/* For the process. NULL, the default: no interpreter. Any thread. */
void strata_call_stack_set_source(strata_call_stack_source *source);

/* A frame that is named by a text, not by an address of code. The text lives as long as the process; equal frames have
 * one text. */
void *strata_call_stack_text_frame(const char *text);

/* The number of the calling thread's stack from this function's caller outwards, less `skip` frames and those of the
 * shared library. 0: no stack, or no host memory. Any thread; no lock for a stack that is stored already. */
uint32_t strata_call_stack_capture(unsigned skip);

/* Calls `line` for each frame, innermost first; the text is strata_call_stack_name's, valid during the call. Nothing
 * for 0 and unknown numbers. Any thread; no lock is held during `line`. */
void strata_call_stack_print(uint32_t number, void (*line)(const char *text, void *data), void *data);

#endif
