/* The names that stack texts know. */
#ifndef STRATA_CORE_STACK_LAYERS_H
#define STRATA_CORE_STACK_LAYERS_H

#include <strata/resource.h>

enum { STRATA_LAYER_OPTIONS = 64 };

/* What strata_layer_register does once the layers that come with the library have taken their names. `again`: the same
 * layer may have been added before. */
strata_status strata_layer_add(const strata_layer *layer, bool again);

/* The layer of that name (length bytes, not terminated), or NULL. Any thread. */
const strata_layer *strata_layer_find(const char *name, size_t length);

/* Writes the known names, separated by ", ", for messages. */
void strata_layer_names(char *text, size_t size);

#endif
