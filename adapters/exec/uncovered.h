/* Calls of driver functions that are neither hooked nor known to need no hook, such as those of a newer driver. They
 * pass, through a stand-in that counts them. */
#ifndef STRATA_ADAPTERS_EXEC_UNCOVERED_H
#define STRATA_ADAPTERS_EXEC_UNCOVERED_H

#include <stdbool.h>
#include <stdint.h>

/* Whether a symbol has the form of the driver's functions ("cuMemAlloc"; not "cudnnCreate"), is not hooked in any
 * version, and is not known to need no hook. */
bool exec_is_uncovered_name(const char *symbol);

/* Returns what a look-up hands out for a function of the driver that has no hook: a stand-in that counts its calls and
 * jumps to it. The function itself if it is covered, or there are no more stand-ins. Any thread; no lock, no host
 * memory. */
void *exec_uncovered(const char *symbol, void *function);

/* As above, for a function that may be of another library than the driver, and is then handed out itself. */
void *exec_uncovered_if_driver(const char *symbol, void *function);

/* Whether a path is of a libcuda. Calls nothing. */
bool exec_is_driver_file(const char *path);

/* Calls visit for each function that was called through a stand-in. */
void exec_uncovered_visit(void (*visit)(const char *symbol, uint64_t calls, void *data), void *data);

#endif
