/* The tenants of examples/server.c: each has a device service of its own, whose stack has a budget, and whose queue is
 * bounded. */
#ifndef STRATA_EXAMPLES_SERVER_TENANTS_H
#define STRATA_EXAMPLES_SERVER_TENANTS_H

#include <pthread.h>
#include <strata/service.h>

typedef struct tenant {
    const char *name;
    size_t budget; /* bytes of device memory */
    strata_service *service;
    pthread_mutex_t lock; /* guards the next two */
    uint64_t module;      /* the kernels; 0: not loaded */
    uint64_t generation;  /* of the context that has them */
} tenant;

/* How a request ended. */
typedef struct outcome {
    strata_status status;
    strata_failure_class failure;
    char message[512]; /* "" after success */
} outcome;

/* Makes the service, which runs requests at once. False, with the reason in *why. */
bool tenant_open(tenant *self, strata_service_form form, uint32_t queue, outcome *why);
void tenant_close(tenant *self);

/* Multiplies two n by n matrices, whose elements are all `a` and all `b`; *c: the last element of the product. */
outcome tenant_multiply(tenant *self, uint32_t n, float a, float b, float *c);

/* Launches a kernel that writes where no memory is. */
outcome tenant_fault(tenant *self);

#endif
