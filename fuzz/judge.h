/* The simulated driver's checker (strata/sim/check.h), on for the whole program of calls. Its first report ends the
 * process during the call that it is about, and is printed last. */
#ifndef STRATA_FUZZ_JUDGE_H
#define STRATA_FUZZ_JUDGE_H

#include <stddef.h>

/* Called once, before memory is allocated. With FUZZ_TELL in the environment reports have call stacks. */
void judge_begin(void);

/* The program itself reads, or writes, pinned memory. */
void judge_read(const void *address, size_t bytes);
void judge_write(const void *address, size_t bytes);

#endif
