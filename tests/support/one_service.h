/* The service of a program's tests, made with `test_options`, which the program may define with other values. */
#ifndef STRATA_TEST_ONE_SERVICE_H
#define STRATA_TEST_ONE_SERVICE_H

#include "support/service.h"

static strata_service_options test_options;
static strata_service *service;

static int make_service(void **state)
{
    (void)state;
    service = test_service_make(&test_options);
    return 0;
}

static int destroy_service(void **state)
{
    (void)state;
    return strata_service_destroy(service) == STRATA_SUCCESS ? 0 : -1;
}

#endif
