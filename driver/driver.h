/* The only way to CUDA, which is never linked. The driver's library is opened once for the process, and its entry
 * points go into one table: `strata_cu.MemAlloc(...)` is cuMemAlloc. An optional entry point that the driver lacks is
 * NULL. */
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

/* Optional functions of a driver library, or of one in front of a driver: told of each block that a stack hands out,
 * and of its end. The simulated driver's checker has them; both are NULL, or neither. As strata_cu; errors are ignored.
 */
typedef struct strata_region_calls {
    CUresult (*begin)(CUdeviceptr address, size_t bytes, uint64_t id);
    CUresult (*end)(CUdeviceptr address, uint64_t id);
} strata_region_calls;
extern strata_region_calls strata_driver_regions __attribute__((visibility("hidden")));

typedef enum strata_driver_state {
    STRATA_DRIVER_CLOSED = 0,
    STRATA_DRIVER_OPEN,
    STRATA_DRIVER_SHUT_DOWN, /* the driver is deinitialized */
    STRATA_DRIVER_FORKED,    /* a forked child; the driver is the parent's */
    STRATA_DRIVER_RESET,     /* open; a device's primary context was reset: calls ask whether theirs was */
} strata_driver_state;

/* The state: CLOSED, OPEN, perhaps RESET, then SHUT_DOWN or FORKED. Any thread. Fast paths compare with OPEN. */
extern _Atomic int strata_driver_state_word __attribute__((visibility("hidden")));

static inline strata_driver_state strata_driver_state_now(void)
{
    return (strata_driver_state)atomic_load_explicit(&strata_driver_state_word, memory_order_acquire);
}

/* Whether the driver can be called. */
static inline bool strata_driver_is_open(void)
{
    const strata_driver_state state = strata_driver_state_now();
    return state == STRATA_DRIVER_OPEN || state == STRATA_DRIVER_RESET;
}

typedef struct strata_driver_failure {
    CUresult code;          /* of the failed call, or CUDA_SUCCESS */
    const char *call;       /* its name, or NULL */
    bool lacks_descriptors; /* the process or the system has too few left: a later try may succeed */
    char message[400];
} strata_driver_failure;

/* Opens the driver once. Any thread. False with the reason: nothing stays open, and a later call tries again, except
 * after a shutdown and in a forked child. */
bool strata_driver_load(strata_driver_failure *failure);

/* Notes that the driver was deinitialized; that a device's primary context was reset. Any thread. */
void strata_driver_set_shut_down(void);
void strata_driver_set_reset(void);

/* Has the shutdown noted at the process's exit, once. Exit handlers run in reverse order: this one just before the
 * driver's own, which cuInit registered, if it is called right after cuInit. Opening the driver calls it at the latest.
 * Without host memory the driver's results tell of the shutdown later. */
void strata_driver_watch_exit(void);

/* Whether a text can be a choice: "cuda", "sim", "auto", or a path. */
bool strata_driver_accepts(const char *choice);

/* Sets the process's choice, an accepted one; STRATA_DRIVER overrides it. False if another is open. Any thread; not in
 * a forked child, where the lock may be held. */
bool strata_driver_set_choice(const char *choice);

/* As strata_driver_set_choice, for a program whose driver is a given library already: the environment does not override
 * it. */
bool strata_driver_fix_choice(const char *path);

/* Facts about the open driver. The strings are NULL while it is closed. */
typedef struct strata_driver_facts {
    const char *choice;
    const char *library;
    bool simulated;
    int version;
    int device_count;
} strata_driver_facts;
void strata_driver_describe(strata_driver_facts *facts);

/* Makes a path that the environment gave absolute: a relative one is of the folder in which the program began. `to` has
 * room for PATH_MAX bytes. False if the path is too long, or that folder is unknown. */
bool strata_driver_path_from_start(const char *path, char *to);

/* As strata_driver_path_from_start, for a path that a call gave: a relative one is of the current folder. */
bool strata_driver_path_from_here(const char *path, char *to);

/* The name of a result, such as "CUDA_ERROR_INVALID_VALUE"; a placeholder while the driver is closed. Valid for the
 * life of the process. */
const char *strata_driver_error_name(CUresult result);

/* ---- counting calls (driver/calls.c) ---- */

/* Enables counting, before the opening. False if the driver is open without counting. Not in a forked child, as
 * strata_driver_set_choice. */
bool strata_driver_enable_counting(void);

/* For driver.c, which holds its lock. */
void strata_calls_want(void);
bool strata_calls_wanted(void);

/* Puts the counting wrappers in front of `real`. */
void strata_calls_wrap(const strata_entry_table *real, strata_entry_table *wrapped);

void strata_calls_visit(void (*visit)(const char *name, uint64_t count, void *data), void *data);

#endif
