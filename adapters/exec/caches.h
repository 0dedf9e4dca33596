/* What a library of a Python program keeps for itself. */
#ifndef STRATA_ADAPTERS_EXEC_CACHES_H
#define STRATA_ADAPTERS_EXEC_CACHES_H

#include "adapters/exec/python_calls.h"

/* In bytes; EXEC_UNKNOWN: the library does not say. */
typedef struct exec_cache {
    const char *library;
    int device; /* EXEC_UNKNOWN: the current one */
    bool keeps_peaks;
    int64_t held, used, held_peak, used_peak, unused_peak;
} exec_cache;

/* Asks PyTorch, CuPy and JAX, as far as the program has imported them, and calls note with each answer, in which peaks
 * are unknown without keeps_peaks, and unused_peak is 0. The caller holds the interpreter's lock. */
void exec_caches_ask_libraries(void (*note)(const exec_cache *now));

#endif
