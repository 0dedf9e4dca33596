/* The only way to cuBLAS, which is never linked. The library is opened once for the process, on the first request,
 * after the driver, and stays open. */
#ifndef STRATA_DRIVER_BLAS_H
#define STRATA_DRIVER_BLAS_H

#include "driver/blas_entry_points.h"

#include <stdbool.h>

typedef struct strata_blas_table {
#define STRATA_BLAS_FIELD(name, symbol, parameters) int(*name) parameters;
    STRATA_BLAS_ENTRY_POINTS(STRATA_BLAS_FIELD)
#undef STRATA_BLAS_FIELD
    const char *(*status_name)(int status);
    const char *(*status_text)(int status);
} strata_blas_table;

/* The opened library. Constant; lives as long as the process. */
typedef struct strata_blas_library {
    strata_blas_table call;
    const char *path;
    char version[32]; /* "13.1.0" */
} strata_blas_library;

typedef struct strata_blas_failure {
    char message[400];
} strata_blas_failure;

/* The library that STRATA_BLAS names: a path, or "auto", the default. With the simulated driver auto is the stand-in
 * beside it, else libcublas.so.13 or libcublas.so.12, first the one of the driver's own CUDA version. Opens it if need
 * be; the driver is open. Any thread. NULL with the reason; a later call tries again. */
const strata_blas_library *strata_blas_library_open(strata_blas_failure *failure);

#endif
