/* The layer names that stack texts know. */
#ifndef STRATA_CORE_STACK_LAYERS_H
#define STRATA_CORE_STACK_LAYERS_H

#include <strata/resource.h>

enum { STRATA_LAYER_OPTIONS = 64 };

/* strata_layer_register, after the library's own layers are registered. `again`: the layer may be registered already.
 */
strata_status strata_layer_add(const strata_layer *layer, bool again);

/* `name` has `length` bytes and no terminator. NULL if there is none. Any thread. */
const strata_layer *strata_layer_find(const char *name, size_t length);

/* The known names, separated by ", ". */
void strata_layer_names(char *text, size_t size);

/* Appends a name to such a list, or to an empty text. What exceeds `size` is cut off. */
void strata_append_name(char *text, size_t size, const char *name);

#endif
