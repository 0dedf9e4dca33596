/* NCCL's functions, as the process has them. NCCL 2.30, src/nccl.h.in; ncclResult_t and ncclComm_t are an int and a
 * pointer there. */
#ifndef STRATA_ADAPTERS_NCCL_FUNCTIONS_H
#define STRATA_ADAPTERS_NCCL_FUNCTIONS_H

#include <stddef.h>

enum { NCCL_SUCCESS = 0, NCCL_IN_PROGRESS = 7 };

typedef struct nccl_functions {
    int (*comm_register)(void *comm, void *address, size_t bytes, void **handle);
    int (*comm_deregister)(void *comm, void *handle);
    int (*window_register)(void *comm, void *address, size_t bytes, void **window, int flags);
    int (*window_deregister)(void *comm, void *window);
    const char *(*error_string)(int result);
    const char *(*last_error)(void *comm);
} nccl_functions;

/* Looks the functions up; those that the process lacks are NULL. */
void nccl_functions_find(nccl_functions *out);

#endif
