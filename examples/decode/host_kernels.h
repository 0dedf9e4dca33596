/* The kernels of kernels.h for the simulated driver. */
#ifndef STRATA_EXAMPLES_DECODE_HOST_KERNELS_H
#define STRATA_EXAMPLES_DECODE_HOST_KERNELS_H

#include <stdbool.h>

/* Registers them with the driver library, if that is the simulated one. False: it refuses. */
bool register_host_kernels(void *library);

#endif
