/* Named values of the layers of a stack, readable and settable while it runs, and a report of all of them.
 *
 * A value's name is "layer.value": "budget.limit". Where a stack has a layer twice, "budget[1].limit" is the second
 * from the outside; the first needs no number. Sizes are bytes, durations nanoseconds, switches 0 or 1.
 *
 * Two values belong to the process, and every stack without a layer called "host" has them:
 *
 *     host.bytes      host memory that Strata has in use in the process
 *     host.resident   pages of the arena that it comes from, with the arena's caches and metadata. UNSUPPORTED where
 *                     host memory comes from the C library's heap (docs/host-memory.md) */
#ifndef STRATA_CONTROL_H
#define STRATA_CONTROL_H

#include <strata/emitter.h>
#include <strata/stack.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads the value `name` into *value, then sets it to *set; either may be NULL. Any thread. After an error nothing is
 * set, and *value is 0 if it could not be read. Errors: INVALID_VALUE (no such layer or value, a read-only value, or a
 * rejected one: the message names what exists), and those of the layer. */
STRATA_API strata_status strata_control(strata_stack *stack, const char *name, uint64_t *value, const uint64_t *set);

/* Sets a value from a text, as in a stack text: "8GiB", "50%" (of the device's memory), "20ms", "on", "17". Errors:
 * SYNTAX, and as above. */
STRATA_API strata_status strata_control_set_text(strata_stack *stack, const char *name, const char *text);

/* Calls visit for every readable value of every layer, outermost first; values of the process are left out. `name` is
 * the full name, valid during the call. */
STRATA_API void
strata_control_visit(strata_stack *stack,
                     void (*visit)(const char *name, const strata_value *what, uint64_t value, void *data), void *data);

/* Writes a report: usage of the owner of the memory, values of the process, and what all layers count, outermost first.
 * Any thread; concurrent changes are seen at some moment. Errors: INVALID_VALUE, SHUT_DOWN, FORKED. */
STRATA_API strata_status strata_stats_print(strata_stack *stack, strata_format format, strata_write_callback write,
                                            void *data);

#ifdef __cplusplus
}
#endif

#endif
