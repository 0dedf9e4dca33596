/* Which service the calling thread is the thread of: its calls must not wait for that service. */
#include "service/service.h"

static _Thread_local const strata_service *of_this_thread; /* NULL: it is no service's thread */

void service_enter_own_thread(const strata_service *service)
{
    of_this_thread = service;
}

bool service_is_own_thread(const strata_service *service)
{
    return service && of_this_thread == service;
}
