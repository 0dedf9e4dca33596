/* What Strata runs on: the driver behind the door, its devices, and how it was called. */
#ifndef STRATA_INFO_H
#define STRATA_INFO_H

#include <strata/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Which driver a process uses unless STRATA_DRIVER says otherwise: "cuda" (the default of the library), "sim", "auto"
 * (the GPU if there is one, else the simulated driver), or the path, with a '/' in it, of a library with the driver's
 * interface. Must come before the driver is opened, which the first call that needs it does. `choice` is copied.
 * Errors: INVALID_VALUE (none of these), BUSY (already open as another one).
 *
 * The simulated driver is libstrata-sim.so.0. It is looked for beside the library or program that Strata is in, then in
 * ../lib from there, then where the loader looks; the environment's STRATA_SIM_LIBRARY, a path, takes the place of all
 * three. */
STRATA_API strata_status strata_driver_choose(const char *choice);

typedef struct strata_driver_info {
    const char *choice;  /* what was asked for, such as "auto" */
    const char *library; /* the library that was opened */
    bool simulated;      /* whether that is the simulated driver that comes with Strata */
    int version;         /* as cuDriverGetVersion: 1000 * major + 10 * minor */
    int device_count;
} strata_driver_info;

/* Opens the driver if that has not happened and describes it. Strings live as long as the process. Any thread.
 * Errors: DRIVER_NOT_FOUND, DRIVER, SHUT_DOWN, FORKED. */
STRATA_API strata_status strata_driver_get_info(strata_driver_info *info);

typedef struct strata_device_info {
    int ordinal;
    char name[256];
    unsigned char uuid[16];
    int compute_major, compute_minor;
    size_t total_bytes;
    size_t free_bytes;   /* according to the driver, now */
    bool memory_pools;   /* stream-ordered memory, for `async` */
    bool virtual_memory; /* cuMemCreate and its family */
    bool managed_memory; /* concurrent managed access */
    bool fabric_handles; /* the driver's pools can export fabric handles, for `async`, */
    bool fd_handles;     /* and file descriptors */
    bool stream_ids;     /* cuStreamGetId: unknown streams can be identified */
    bool gpu_direct_rdma;
    bool mapped_fabric_handles; /* memory of cuMemCreate can be exported as fabric handles, for `pool`, */
    bool mapped_fd_handles;     /* and as file descriptors */
} strata_device_info;

/* Describes a device; retains its primary context. Any thread. Errors: INVALID_VALUE (no such device), and as above. */
STRATA_API strata_status strata_device_get_info(int ordinal, strata_device_info *info);

/* ---- counting driver calls ---- */

/* Starts counting Strata's own calls of the driver, each entry point by name, for the rest of the process; must come
 * before the driver is opened. It costs a few nanoseconds a call. Errors: BUSY (already open). */
STRATA_API strata_status strata_driver_count_calls(void);

/* Calls `visit` with the name ("cuMemAlloc") and count of every entry point that was called at least once, in the order
 * of the entry point list. Nothing is visited if counting was not started. */
STRATA_API void strata_driver_visit_calls(void (*visit)(const char *name, uint64_t count, void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
