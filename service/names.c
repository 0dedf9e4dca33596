/* Names that programs give: of operations, graphs and kernels. They stand in messages, ranges of NVTX, tags and
 * recordings, of which not all show a control character as such. */
#include "core/base/error.h"
#include "core/base/escape.h"
#include "service/service.h"

#include <string.h>

static bool is_text(const char *name)
{
    for (size_t length; *name; name += length) {
        length = strata_utf8_length(name);
        if (!length || strata_control_length(name))
            return false;
    }
    return true;
}

strata_status service_check_name(const char *name, size_t most, const char *what)
{
    const size_t length = strlen(name);
    if (length > most)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "the name of %s has %zu bytes; at most %zu are possible", what,
                           length, most);
    return is_text(name) ? STRATA_SUCCESS
                         : strata_fail(STRATA_ERROR_INVALID_VALUE,
                                       "the name of %s, \"%.255s\", has a control character or bytes outside UTF-8; "
                                       "give it a name of printable text",
                                       what, name);
}
