/* Named values of a stack's layers, readable and settable while it runs, and a report of them.
 *
 * A value's name is "layer.value": "budget.limit", or "budget[1].limit" for the second such layer from the outside.
 * Sizes are bytes, durations nanoseconds, switches 0 or 1. Every stack without a layer called "host" also has
 * values of the process (docs/host-memory.md): host.bytes, host memory that Strata has in use, and host.resident, pages
 * of its arena with caches and metadata, UNSUPPORTED where host memory comes from the C library's heap. Likewise
 * captures.made, .live and .ended, graphs.made, .live, .ended and .launches, conditionals (nodes: conditional.h)
 * likewise, events.made, .live and .ended: of all runtimes; all but the live ones can be set to 0. Of the stack itself,
 * what strata_stack_visit_frees tells: pending.streams, .frees and .bytes, or of one stream, by its stream_id,
 * "pending[65539].bytes". */
#ifndef STRATA_CONTROL_H
#define STRATA_CONTROL_H

#include <strata/emitter.h>
#include <strata/stack.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Reads `name` into *value, then sets it to *set; either may be NULL. After an error nothing is set, and *value is 0 if
 * it could not be read. Errors: INVALID_VALUE (no such value, read-only, or rejected: the message names what exists),
 * and those of the layer. */
STRATA_API strata_status strata_control(strata_stack *stack, const char *name, uint64_t *value, const uint64_t *set);

/* Sets a value from a text: "8GiB", "50%" (of the device's memory), "20ms", "on", "17". Errors: SYNTAX, and as above.
 */
STRATA_API strata_status strata_control_set_text(strata_stack *stack, const char *name, const char *text);

/* Calls visit for every readable value of every layer, outermost first, without those of the process. `name` is the
 * full name, valid during the call. */
STRATA_API void
strata_control_visit(strata_stack *stack,
                     void (*visit)(const char *name, const strata_value *what, uint64_t value, void *data), void *data);

/* Writes a report: usage of the owner, values of the process, and what all layers count, outermost first. Concurrent
 * changes are seen at some moment. */
STRATA_API strata_status strata_stats_print(strata_stack *stack, strata_format format, strata_write_callback write,
                                            void *data);

#ifdef __cplusplus
}
#endif

#endif
