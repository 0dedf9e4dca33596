/* Information about the driver in use and its devices. */
#ifndef STRATA_INFO_H
#define STRATA_INFO_H

#include <strata/status.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Sets the driver that the process uses unless STRATA_DRIVER is set: "cuda" (the library's default), "sim", "auto" (the
 * GPU if there is one, else the simulated driver), or the path, with a '/' in it, of a library with the driver's
 * interface. Call it before the driver is opened, which the first call that needs it does. `choice` is copied. Errors:
 * INVALID_VALUE, BUSY (a different driver is open).
 *
 * The simulated driver is libstrata-sim.so.0. It is looked for beside the library or program that contains Strata, then
 * in ../lib from there, then where the loader looks. The environment's STRATA_SIM_LIBRARY, a path, replaces all three.
 */
STRATA_API strata_status strata_driver_choose(const char *choice);

typedef struct strata_driver_info {
    const char *choice;  /* the requested driver, such as "auto" */
    const char *library; /* the opened library */
    bool simulated;      /* the driver is Strata's simulated driver */
    int version;         /* as cuDriverGetVersion: 1000 * major + 10 * minor */
    int device_count;
} strata_driver_info;

/* Opens the driver if necessary and describes it. Strings live as long as the process. Any thread. Errors:
 * DRIVER_NOT_FOUND, DRIVER, SHUT_DOWN, FORKED. */
STRATA_API strata_status strata_driver_get_info(strata_driver_info *info);

typedef struct strata_device_info {
    int ordinal;
    char name[256];
    unsigned char uuid[16];
    int compute_major, compute_minor;
    size_t total_bytes;
    size_t free_bytes;   /* now, as the driver reports it */
    bool memory_pools;   /* stream-ordered memory: `async` */
    bool virtual_memory; /* cuMemCreate and its family */
    bool managed_memory; /* concurrent managed access */
    bool fabric_handles; /* memory pools can export fabric handles: `async` */
    bool fd_handles;     /* memory pools can export file descriptors: `async` */
    bool stream_ids;     /* cuStreamGetId: identifies unknown streams */
    bool gpu_direct_rdma;
    bool mapped_fabric_handles; /* cuMemCreate memory can be exported as fabric handles: `pool` */
    bool mapped_fd_handles;     /* cuMemCreate memory can be exported as file descriptors: `pool` */
} strata_device_info;

/* Describes a device; retains its primary context. Any thread. Errors: INVALID_VALUE (no such device), and as above. */
STRATA_API strata_status strata_device_get_info(int ordinal, strata_device_info *info);

/* ---- counting driver calls ---- */

/* Starts counting Strata's own driver calls by entry point, for the rest of the process. Call it before the driver is
 * opened. Costs a few nanoseconds a call. Errors: BUSY (the driver is open). */
STRATA_API strata_status strata_driver_count_calls(void);

/* Calls `visit` with the name ("cuMemAlloc") and count of every entry point that was called, in the order of the entry
 * point list. Does nothing if counting was not started. */
STRATA_API void strata_driver_visit_calls(void (*visit)(const char *name, uint64_t count, void *data), void *data);

#ifdef __cplusplus
}
#endif

#endif
