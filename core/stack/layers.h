/* The layer names that stack texts know. */
#ifndef STRATA_CORE_STACK_LAYERS_H
#define STRATA_CORE_STACK_LAYERS_H

#include <strata/resource.h>

enum { STRATA_LAYER_OPTIONS = 64 };

/* strata_layer_register, once the library's own layers are registered. `again`: may be registered already. */
strata_status strata_layer_add(const strata_layer *layer, bool again);

/* The most branches; 0: the layer has none. */
static inline uint32_t strata_layer_branches(const strata_layer *layer)
{
    return layer->size >= offsetof(strata_layer, create_over) + sizeof layer->create_over && layer->create_over
               ? layer->branches
               : 0;
}

/* `name` has no terminator. NULL: none. Any thread. */
const strata_layer *strata_layer_find(const char *name, size_t length);

/* The layer registered as number `index`, from 0; NULL: there are fewer. Any thread. */
const strata_layer *strata_layer_at(size_t index);

/* The known names, separated by ", ". */
void strata_layer_names(char *text, size_t size);

/* Appends to such a list, or to an empty text. What exceeds `size` is cut off. */
void strata_append_name(char *text, size_t size, const char *name);

#endif
