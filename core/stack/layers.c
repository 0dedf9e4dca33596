/* The registry of layers. */
#include "core/stack/layers.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/lock.h"

#include <ctype.h>
#include <stdio.h>
#include <string.h>

typedef struct registered_layer {
    const strata_layer *layer;
    struct registered_layer *next;
} registered_layer;

static strata_lock layers_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_LAYERS);
static registered_layer *layers; /* guarded by layers_lock; never freed */

const strata_layer *strata_layer_find(const char *name, size_t length)
{
    const strata_layer *found = NULL;
    strata_lock_take(&layers_lock);
    for (const registered_layer *entry = layers; entry && !found; entry = entry->next)
        if (strlen(entry->layer->name) == length && memcmp(entry->layer->name, name, length) == 0)
            found = entry->layer;
    strata_lock_release(&layers_lock);
    return found;
}

const strata_layer *strata_layer_at(size_t index)
{
    strata_lock_take(&layers_lock);
    const registered_layer *entry = layers;
    for (; entry && index; index--)
        entry = entry->next;
    strata_lock_release(&layers_lock);
    return entry ? entry->layer : NULL;
}

void strata_append_name(char *text, size_t size, const char *name)
{
    const size_t used = strlen(text);
    snprintf(text + used, size - used, "%s%s", used ? ", " : "", name);
}

void strata_layer_names(char *text, size_t size)
{
    text[0] = '\0';
    strata_lock_take(&layers_lock);
    for (const registered_layer *entry = layers; entry; entry = entry->next)
        strata_append_name(text, size, entry->layer->name);
    strata_lock_release(&layers_lock);
}

static bool valid_name(const char *name)
{
    if (!name || !*name)
        return false;
    for (; *name; name++)
        if (!isalnum((unsigned char)*name) && *name != '_' && *name != '-')
            return false;
    return true;
}

strata_status strata_layer_add(const strata_layer *layer, bool again)
{
    if (!layer || layer->size < offsetof(strata_layer, in_sanitizer_mode) || !valid_name(layer->name) ||
        !(layer->create || strata_layer_branches(layer)) ||
        (layer->option_count && (!layer->options || !layer->options_size)))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_layer_register: size, name (letters, digits, '_' and "
                                                       "'-'), create or the description of the options is missing");
    if (layer->option_count > STRATA_LAYER_OPTIONS)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "layer \"%s\" has %zu options; at most %d are supported",
                           layer->name, layer->option_count, STRATA_LAYER_OPTIONS);
    if (strata_layer_branches(layer) && (strata_layer_branches(layer) < 2 || !layer->owner || layer->option_count))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "layer \"%s\" has branches: it is an owner, has no options and at least 2 branches",
                           layer->name);
    registered_layer *entry = strata_host_zalloc(sizeof *entry);
    if (!entry)
        return strata_fail_host_memory("a layer's name");
    entry->layer = layer;
    const strata_layer *taken = NULL;
    strata_lock_take(&layers_lock);
    registered_layer **end = &layers;
    for (; *end && !taken; end = &(*end)->next)
        if (strcmp((*end)->layer->name, layer->name) == 0)
            taken = (*end)->layer;
    if (!taken)
        *end = entry;
    strata_lock_release(&layers_lock);
    if (!taken)
        return STRATA_SUCCESS;
    strata_host_free(entry);
    if (again && taken == layer)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE, "layer \"%s\" is already registered", layer->name);
}
