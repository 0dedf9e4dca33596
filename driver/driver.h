/* The only way to CUDA: which driver library is used, and its entry points.
 *
 * CUDA is never linked. The library is opened once for the process, and its entry points go into one table:
 * `strata_cu.MemAlloc(...)` is the driver's cuMemAlloc. An optional entry point that the driver lacks is NULL. */
#ifndef STRATA_DRIVER_DRIVER_H
#define STRATA_DRIVER_DRIVER_H

#include "driver/entry_points.h"

#include <cuda.h>
#include <cudaTypedefs.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

typedef struct strata_entry_table {
#define STRATA_ENTRY_FIELD(need, name, version, parameters, arguments) PFN_cu##name##_v##version name;
    STRATA_ENTRY_POINTS(STRATA_ENTRY_FIELD)
#undef STRATA_ENTRY_FIELD
} strata_entry_table;

/* Written once, before the state becomes OPEN; any thread. */
extern strata_entry_table strata_cu __attribute__((visibility("hidden")));

typedef enum strata_driver_state {
    STRATA_DRIVER_CLOSED = 0,
    STRATA_DRIVER_OPEN,
    STRATA_DRIVER_SHUT_DOWN, /* the driver is deinitialized: the process is exiting */
    STRATA_DRIVER_FORKED,    /* a forked child; the driver is the parent's */
} strata_driver_state;

/* Any thread; only moves forward. */
extern _Atomic int strata_driver_state_word __attribute__((visibility("hidden")));

static inline strata_driver_state strata_driver_state_now(void)
{
    return (strata_driver_state)atomic_load_explicit(&strata_driver_state_word, memory_order_acquire);
}

/* Why opening failed. */
typedef struct strata_driver_failure {
    CUresult code;     /* of the failed driver call, or CUDA_SUCCESS */
    const char *call;  /* its name, or NULL */
    char message[400]; /* a sentence */
} strata_driver_failure;

/* Opens the driver once. Any thread. On failure nothing stays open and a later call tries again. Also false, with the
 * reason, after a shutdown and in a forked child. */
bool strata_driver_load(strata_driver_failure *failure);

/* Any thread. */
void strata_driver_set_shut_down(void);

/* True for "cuda", "sim", "auto" and anything that can be a library's path. */
bool strata_driver_accepts(const char *choice);

/* Sets the process's choice, an accepted one; STRATA_DRIVER overrides it. False if the driver is open with another
 * choice. Any thread. */
bool strata_driver_set_choice(const char *choice);

/* NULL strings while closed. */
typedef struct strata_driver_facts {
    const char *choice;
    const char *library;
    bool simulated;
    int version;
    int device_count;
} strata_driver_facts;
void strata_driver_describe(strata_driver_facts *facts);

/* Such as "CUDA_ERROR_INVALID_VALUE"; a placeholder while the driver is closed. Valid for the life of the process. */
const char *strata_driver_error_name(CUresult result);

/* ---- counting calls (driver/calls.c) ---- */

/* Before the opening. False if the driver is open without counting. */
bool strata_driver_enable_counting(void);

/* For driver.c, which holds its lock. */
void strata_calls_want(void);
bool strata_calls_wanted(void);

/* For driver.c: puts the counting wrappers in front of `real`. */
void strata_calls_wrap(const strata_entry_table *real, strata_entry_table *wrapped);

void strata_calls_visit(void (*visit)(const char *name, uint64_t count, void *data), void *data);

#endif
