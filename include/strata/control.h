/* Looking into a stack and turning its knobs while it runs: named values, and a report of everything.
 *
 * A value's name is the layer's and its own, "budget.limit". Where a layer stands in a stack more than once,
 * "budget[1].limit" is the second from the outside, and the first needs no number. Sizes are bytes, durations
 * nanoseconds, switches 0 or 1.
 *
 * Two values are the process's, and every stack knows them, unless it has a layer called "host":
 *
 *     host.bytes      host memory that all stacks and runtimes of the process have for their books at the moment
 *     host.resident   pages of the arena that it comes from, with what the arena keeps for later and its own
 *                     books. UNSUPPORTED where the books are in the C library's heap: docs/host-memory.md says when */
#ifndef STRATA_CONTROL_H
#define STRATA_CONTROL_H

#include <strata/emitter.h>
#include <strata/stack.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the value called `name` into *value, then sets it to *set; either may be NULL. Any thread. Errors:
 * INVALID_VALUE (no layer or value of that name; one that can only be read; a value that the layer does not take: the
 * message names what there is), and what the layer answers; nothing is set then, and *value is 0 if it could not be
 * read. */
STRATA_API strata_status strata_control(strata_stack *stack, const char *name, uint64_t *value, const uint64_t *set);

/* Sets a value from a text as in a stack text: "8GiB", "50%" (of the device's memory), "20ms", "on", "17". Errors:
 * SYNTAX, and as above. */
STRATA_API strata_status strata_control_set_text(strata_stack *stack, const char *name, const char *text);

/* Calls visit for every value of every layer, outermost first. `name` is the full name, good during the call. Values
 * that cannot be read at the moment are left out, and so are those of the process. */
STRATA_API void
strata_control_visit(strata_stack *stack,
                     void (*visit)(const char *name, const strata_value *what, uint64_t value, void *data), void *data);

/* Writes what the owner of the memory uses, the process's values, and what all layers of a stack count and know,
 * outermost first. Any thread; of what changes meanwhile it shows some moment. Errors: INVALID_VALUE, SHUT_DOWN,
 * FORKED. */
STRATA_API strata_status strata_stats_print(strata_stack *stack, strata_format format, strata_write_callback write,
                                            void *data);

#ifdef __cplusplus
}
#endif

#endif
