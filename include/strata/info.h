/* The driver in use and its devices. */
#ifndef STRATA_INFO_H
#define STRATA_INFO_H

#include <strata/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the driver that the process uses unless STRATA_DRIVER is set: "cuda" (the library's default), "sim", "auto" (the
 * GPU if there is one, else the simulated driver), or a library's path, with a '/'. Call it before the first call that
 * needs the driver. `choice` is copied. Errors: BUSY (a different driver is open).
 *
 * The simulated driver is libstrata-sim.so.0. It is looked for beside the library or program that contains Strata, then
 * in ../lib and ../libexec/strata from there, then where the loader looks. The environment's STRATA_SIM_LIBRARY, a
 * path, replaces all of these. A relative path means the folder of this call, one of the environment the folder in
 * which the program began. A program with more privileges than its user ignores the environment, and takes no library
 * from its own folder. */
STRATA_API strata_status strata_driver_choose(const char *choice);

typedef struct strata_driver_info {
    const char *choice;  /* as requested: "auto" */
    const char *library; /* the opened library */
    bool simulated;
    int version; /* as cuDriverGetVersion: 1000 * major + 10 * minor */
    int device_count;
} strata_driver_info;

/* Opens the driver if necessary and describes it. Strings live as long as the process. Errors: DRIVER_NOT_FOUND,
 * IO (too few file descriptors are left), DRIVER. */
STRATA_API strata_status strata_driver_get_info(strata_driver_info *info);

typedef struct strata_device_info {
    int ordinal;
    char name[256];
    unsigned char uuid[16];
    int compute_major, compute_minor;
    size_t total_bytes;
    size_t free_bytes;   /* now, by the driver */
    bool memory_pools;   /* stream-ordered memory: `async` */
    bool virtual_memory; /* cuMemCreate and its family */
    bool managed_memory; /* concurrent managed access */
    bool fabric_handles; /* `async`: pools can export fabric handles */
    bool fd_handles;     /* `async`: pools can export file descriptors */
    bool stream_ids;     /* cuStreamGetId, for unknown streams */
    bool gpu_direct_rdma;
    bool mapped_fabric_handles; /* `pool`: cuMemCreate memory exports fabric handles */
    bool mapped_fd_handles;     /* `pool`: cuMemCreate memory exports file descriptors */
} strata_device_info;

/* Describes a device; retains its primary context. Errors: INVALID_VALUE (no such device), and as above. */
STRATA_API strata_status strata_device_get_info(int ordinal, strata_device_info *info);

/* Asks the driver whether the primary context of the device was reset (cuDevicePrimaryCtxReset, cudaDeviceReset) since
 * Strata began to use it: SUCCESS, or DEVICE_RESET. After a reset of the device's primary context its runtimes and
 * stacks answer DEVICE_RESET to all calls but frees and destruction, which succeed. New ones use the new context.
 * Strata looks by itself when a driver call fails for that reason; at the first use of a stream and its registration;
 * before it makes memory; before it waits for a stream, or gives the driver an event, a graph, a capture or a stream of
 * its own; in a guard's requests, frees and checks; and in strata_runtime_get and the calls of malloc.h. It does not
 * look in a hit of a pool, which asks the driver nothing, and in requests and frees of `async` only once in
 * some milliseconds. So a program that keeps a runtime and goes on after a reset calls this. */
STRATA_API strata_status strata_device_check(int device);

/* ---- counting driver calls ---- */

/* Counts Strata's driver calls by entry point, for the rest of the process. Costs a few nanoseconds a call. Errors:
 * BUSY (the driver is open). */
STRATA_API strata_status strata_driver_count_calls(void);

/* Calls `visit` with name ("cuMemAlloc") and count of every entry point that was called, in a fixed order; not at all
 * if counting was not started. */
STRATA_API void strata_driver_visit_calls(void (*visit)(const char *name, uint64_t count, void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
