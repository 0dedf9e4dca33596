/* The judge of a program of calls: the simulated driver's checker (strata/sim/check.h), on from beginning to end. Its
 * first report ends the process, while the call that it is about is under way, and is the last thing that is printed.
 */
#ifndef STRATA_FUZZ_JUDGE_H
#define STRATA_FUZZ_JUDGE_H

#include <stddef.h>

/* Once, before there is memory to watch. With FUZZ_TELL in the environment reports have call stacks. */
void judge_begin(void);

/* The program reads, or writes, pinned memory itself. */
void judge_read(const void *address, size_t bytes);
void judge_write(const void *address, size_t bytes);

#endif
