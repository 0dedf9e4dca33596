/* Whose thread the calling one is: what a service's own thread is to answer, it cannot wait for. */
#include "service/service.h"

static _Thread_local const strata_service *of_this_thread; /* NULL: it is no service's thread */

void service_own_thread(const strata_service *service)
{
    of_this_thread = service;
}

bool service_is_own_thread(const strata_service *service)
{
    return service && of_this_thread == service;
}
