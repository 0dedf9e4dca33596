/* A driver with more functions than the simulated one (wider_driver.c), asked by cuGetProcAddress. */
#ifndef STRATA_TEST_EXEC_WIDER_CALLS_H
#define STRATA_TEST_EXEC_WIDER_CALLS_H

#define WAY WAY_RUNTIME
#include "driver_calls.h"

#include <stdint.h>

#define MIB ((size_t)1 << 20)

static void *ask(const char *name, int version)
{
    void *library = open_cuda(), *address = dlsym(library, "cuGetProcAddress_v2");
    get_2 *get_address;
    void *found = NULL;
    memcpy(&get_address, &address, sizeof get_address);
    if (get_address(name, &found, version, 0, NULL) != CUDA_SUCCESS || !found) {
        printf("no %s\n", name);
        exit(3);
    }
    return found;
}

/* A variable with the function of that name. */
#define WIDER(symbol, base, version)                         \
    __typeof__(&symbol) symbol##_found;                      \
    do {                                                     \
        void *const address_ = ask(base, version);           \
        memcpy(&symbol##_found, &address_, sizeof address_); \
    } while (0)

#endif
