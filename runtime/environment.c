/* The environment variable STRATA_STACK, and the default stack. */
#include "runtime/environment.h"

#include "core/base/error.h"

#include <stdlib.h>
#include <string.h>

/* Records stay in memory: a program that names no stack gets no files. Its memory is every device's that the program
 * gives access, as cudaMalloc's is. */
static const char default_stack[] = "budget, logging(format=memory), statistics, pool(peers=all)";

const char *strata_runtime_environment_stack(void)
{
    const char *environment = secure_getenv("STRATA_STACK");
    return environment && environment[strspn(environment, " \f\n\r\t\v")] ? environment : NULL;
}

const char *strata_runtime_default_stack(void)
{
    const char *environment = strata_runtime_environment_stack();
    return environment ? environment : default_stack;
}

strata_status strata_default_stack_create(int device, strata_stack **out)
{
    const char *named = strata_runtime_environment_stack();
    if (!named)
        return strata_stack_create(default_stack, device, out);
    strata_error_suppress_begin();
    strata_status status = strata_stack_create(named, device, out);
    strata_error said = *strata_error_suppressed();
    strata_error_suppress_end(status != STRATA_SUCCESS && status != STRATA_ERROR_SYNTAX);
    if (status != STRATA_ERROR_SYNTAX)
        return status;
    strata_error *error = strata_error_begin(status);
    *error = said;
    return strata_error_raise(error, "STRATA_STACK: %.400s", said.message);
}
