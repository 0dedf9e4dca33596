/* The layer names that stack texts know. */
#ifndef STRATA_CORE_STACK_LAYERS_H
#define STRATA_CORE_STACK_LAYERS_H

#include <strata/resource.h>

enum { STRATA_LAYER_OPTIONS = 64 };

/* Adds a layer to the registry. `again`: the layer may be in it already. Errors: INVALID_VALUE, OUT_OF_HOST_MEMORY. */
strata_status strata_layer_add(const strata_layer *layer, bool again);

/* The most branches that the layer can stand over; 0 if it has none. */
static inline uint32_t strata_layer_branches(const strata_layer *layer)
{
    return layer->size >= offsetof(strata_layer, create_over) + sizeof layer->create_over && layer->create_over
               ? layer->branches
               : 0;
}

/* The layer with this name, which needs no terminator; NULL if there is none. Any thread. */
const strata_layer *strata_layer_find(const char *name, size_t length);

/* The layer registered as number `index`, from 0; NULL: there are fewer. Any thread. */
const strata_layer *strata_layer_at(size_t index);

/* Writes the known names to text[size], separated by ", ". */
void strata_layer_names(char *text, size_t size);

/* Appends a name to such a list, or to an empty text. What exceeds `size` is cut off. */
void strata_append_name(char *text, size_t size, const char *name);

#endif
