/* Copying option structs. */
#include "core/base/options.h"

#include "core/base/error.h"

#include <stdio.h>
#include <string.h>

/* Most bytes that a later version may add. Beyond it the size is garbage, and reading that far could fault. */
enum { GROWTH = 256 };

static bool is_zero(const char *bytes, size_t count)
{
    for (size_t i = 0; i < count; i++)
        if (bytes[i])
            return false;
    return true;
}

strata_status strata_options_read(void *into, size_t known, const void *given, const char *name)
{
    memset(into, 0, known);
    if (!given)
        return STRATA_SUCCESS;
    uint32_t size;
    memcpy(&size, given, sizeof size);
    if (size == 0)
        size = (uint32_t)known;
    if (size % sizeof size || size > known + GROWTH)
        return strata_fail(
            STRATA_ERROR_INVALID_VALUE,
            "%s.size is %u; expected 0 or sizeof(%s), %zu bytes. Zero the struct before setting its members", name,
            size, name, known);
    if (size > known && !is_zero((const char *)given + known, size - known))
        return strata_fail(
            STRATA_ERROR_INVALID_VALUE,
            "%s of %u bytes sets a member beyond byte %zu, which this version of the library does not have", name, size,
            known);
    memcpy(into, given, size < known ? size : known);
    return STRATA_SUCCESS;
}

strata_status strata_options_begin(const char *layer, strata_resource **out, void *into, size_t known,
                                   const void *given)
{
    char name[64];
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_%s_create: out is NULL", layer);
    *out = NULL;
    snprintf(name, sizeof name, "strata_%s_options", layer);
    return strata_options_read(into, known, given, name);
}
