/* The two forms of a service. */
#include "service/service.h"

const service_backend *service_backend_of(strata_service_form form)
{
    return form == STRATA_SERVICE_ISOLATED ? &service_isolated : &service_in_process;
}
