/* `async`: the driver's own stream-ordered pools (CUDA Driver API, "Stream Ordered Memory Allocator").
 *
 * It makes a pool of its own, or is a view of a given one. Text:
 *
 * - async(pool=own|default|current, release_threshold=SIZE, release_all=on|off, initial_size=SIZE, max_size=SIZE,
 *   follow_event_dependencies=default|on|off, opportunistic=default|on|off, internal_dependencies=default|on|off,
 *   export=none|fd|fabric)
 *
 * A free is ordered after every noted use on other streams without making the freeing stream wait for them: a stream of
 * Strata's own does that. Freed bytes are `retired` until they are known complete or the pool hands them out again. */
#ifndef STRATA_ASYNC_H
#define STRATA_ASYNC_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_async_pool {
    STRATA_ASYNC_POOL_OWN = 0, /* created here, destroyed with the resource */
    STRATA_ASYNC_POOL_DEFAULT, /* a view of the device's default pool */
    STRATA_ASYNC_POOL_CURRENT, /* a view of the pool that is current for the device when the resource is made */
    STRATA_ASYNC_POOL_GIVEN,   /* a view of options.given; not for stack texts */
} strata_async_pool;

typedef enum strata_switch {
    STRATA_SWITCH_DEFAULT = 0, /* as the driver has it: on */
    STRATA_SWITCH_ON,
    STRATA_SWITCH_OFF,
} strata_switch;

typedef enum strata_export_type {
    STRATA_EXPORT_NONE = 0,
    STRATA_EXPORT_POSIX_FD,
    STRATA_EXPORT_FABRIC,
} strata_export_type;

/* All zero is the default. A pool reserves in steps of 32 MiB, and the driver rounds max_size up to the next one
 * (tests/answers/h200.txt, "pool.max_"): strata_usage.limit and out-of-memory errors name the limit that holds.
 *
 * For a view, every field but `pool` and `given` must be zero: the pool belongs to somebody else and is left as it is.
 */
typedef struct strata_async_options {
    uint32_t size; /* sizeof(strata_async_options), or 0 */
    strata_async_pool pool;
    CUmemoryPool given;         /* with STRATA_ASYNC_POOL_GIVEN, else NULL */
    uint64_t release_threshold; /* bytes kept when idle; 0: no limit, keep everything */
    bool release_all;           /* keep nothing, instead of a threshold: give everything back */
    uint64_t initial_size;      /* bytes reserved at the start: allocated once and freed into the pool */
    uint64_t max_size;          /* bytes the pool may reserve, rounded up by the driver; 0: no limit but the device's */
    strata_switch follow_event_dependencies; /* CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES */
    strata_switch opportunistic;             /* CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC */
    strata_switch internal_dependencies;     /* CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES */
    strata_export_type export_type;          /* handle type for sharing between processes */
} strata_async_options;

/* Makes an async resource for the device `ordinal`, to be built into a stack. NULL options are the defaults.
 * Errors: INVALID_VALUE, UNSUPPORTED (no memory pools on this device, or not with these options), OUT_OF_HOST_MEMORY,
 * OUT_OF_MEMORY (the initial size does not fit), DRIVER_NOT_FOUND, DRIVER. */
STRATA_API strata_status strata_async_create(int ordinal, const strata_async_options *options, strata_resource **out);

/* The pool behind an async resource that is part of a stack, for the driver's own attribute calls; NULL if `resource`
 * is no async resource. It must not be destroyed. */
STRATA_API CUmemoryPool strata_async_pool_handle(const strata_resource *resource);

#ifdef __cplusplus
}
#endif

#endif
