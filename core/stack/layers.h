/* The layer names that stack texts know. */
#ifndef STRATA_CORE_STACK_LAYERS_H
#define STRATA_CORE_STACK_LAYERS_H

#include <strata/resource.h>

enum { STRATA_LAYER_OPTIONS = 64 };

/* strata_layer_register, after the library's own layers are registered. `again`: the same layer may be registered
 * already. */
strata_status strata_layer_add(const strata_layer *layer, bool again);

/* The layer with that name (length bytes, not terminated), or NULL. Any thread. */
const strata_layer *strata_layer_find(const char *name, size_t length);

/* Writes the known names, separated by ", ", for messages. */
void strata_layer_names(char *text, size_t size);

/* Appends a name to such a list, or to an empty text; the list is cut off at `size`. */
void strata_append_name(char *text, size_t size, const char *name);

#endif
