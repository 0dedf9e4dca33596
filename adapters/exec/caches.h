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

/* Asks PyTorch, CuPy and JAX, as far as the program has imported them, and notes what they answer. With the
 * interpreter's lock (caches_asked.c). */
void exec_caches_ask_libraries(void);

/* unused_peak, and without keeps_peaks the other peaks, are those of all notes (caches.c). */
void exec_cache_note(const exec_cache *now);

#endif
