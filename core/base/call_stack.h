/* Call stacks of the host: taking one is cheap, since its frames are only addresses and equal ones are kept once; it is
 * given names and lines when somebody wants to read it.
 *
 * A call stack is known by a number, for the life of the process. What is kept grows with the program's code and not
 * with its history. */
#ifndef STRATA_CORE_BASE_CALL_STACK_H
#define STRATA_CORE_BASE_CALL_STACK_H

#include <stdint.h>

enum { STRATA_CALL_STACK_DEPTH = 32 }; /* frames, the innermost ones */

/* The number of the calling thread's stack: from the caller of this function on, and outside of it `skip` frames
 * further; frames of the shared library itself are left out. 0 where there is no stack, or no host memory for a new
 * one. Any thread; takes no lock for a stack that was seen before. */
uint32_t strata_call_stack_capture(unsigned skip);

/* Calls line(text, data) for each frame, innermost first: "function (file:line)" where libdw is on the machine and the
 * program has debug information, else "function (module)" or "module+0x1234". `text` is good during the call. 0 and a
 * number that was never given: no line. Any thread; no lock is held around `line`. */
void strata_call_stack_print(uint32_t number, void (*line)(const char *text, void *data), void *data);

#endif
