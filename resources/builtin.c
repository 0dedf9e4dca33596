/* Registering the layers that come with the library, before any other one and before the first stack text is read. */
#include "resources/builtin.h"

#include "core/error.h"
#include "core/layers.h"
#include "core/stack.h"

#include <pthread.h>

static const strata_layer *const builtin[] = {&strata_async_layer, &strata_direct_layer};
static strata_status registered;

static void register_all(void)
{
    for (size_t i = 0; i < sizeof builtin / sizeof builtin[0] && registered == STRATA_SUCCESS; i++)
        registered = strata_layer_add(builtin[i]);
}

strata_status strata_builtin_register(void)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    strata_status status = strata_not_forked();
    if (status != STRATA_SUCCESS)
        return status;
    pthread_once(&once, register_all);
    return registered;
}

strata_status strata_layer_register(const strata_layer *layer)
{
    strata_status status = strata_builtin_register();
    return status == STRATA_SUCCESS ? strata_layer_add(layer) : status;
}

strata_status strata_stack_create(const char *text, int ordinal, strata_stack **out)
{
    if (out)
        *out = NULL;
    strata_status status = strata_builtin_register();
    return status == STRATA_SUCCESS ? strata_stack_create_from_text(text, ordinal, out) : status;
}
