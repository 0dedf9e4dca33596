/* One word for the whole process. */
#include "core/stack/mode.h"

#include "core/base/error.h"

#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>

static _Atomic int chosen = -1; /* strata_mode; -1: the environment says */

strata_status strata_set_mode(strata_mode mode)
{
    if ((unsigned)mode > STRATA_MODE_SANITIZER)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "there is no mode %d", (int)mode);
    atomic_store(&chosen, (int)mode);
    return STRATA_SUCCESS;
}

strata_status strata_mode_now(strata_mode *mode)
{
    int now = atomic_load(&chosen);
    const char *environment = getenv("STRATA_MODE");
    *mode = now < 0 ? STRATA_MODE_NORMAL : (strata_mode)now;
    if (now >= 0 || !environment || !*environment || strcmp(environment, "normal") == 0)
        return STRATA_SUCCESS;
    if (strcmp(environment, "sanitizer") != 0)
        return strata_fail(STRATA_ERROR_SYNTAX, "STRATA_MODE is \"%.60s\": expected sanitizer or normal", environment);
    *mode = STRATA_MODE_SANITIZER;
    return STRATA_SUCCESS;
}
