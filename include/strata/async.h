/* `async`: the driver's stream-ordered pools (CUDA Driver API, "Stream Ordered Memory Allocator"): one of its own, or a
 * view of an existing one.
 *
 * A free is ordered after every recorded use on other streams: an internal stream waits for these, not the freeing
 * stream. Freed bytes are `retired` until they are known to be complete or the pool reuses them. */
#ifndef STRATA_ASYNC_H
#define STRATA_ASYNC_H

#include <strata/resource.h>
#include <strata/types.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_async_pool {
    STRATA_ASYNC_POOL_OWN = 0, /* destroyed with the resource */
    STRATA_ASYNC_POOL_DEFAULT, /* the device's default pool */
    STRATA_ASYNC_POOL_CURRENT, /* the device's current pool when the resource is made */
    STRATA_ASYNC_POOL_GIVEN,   /* options.given; not for stack texts */
} strata_async_pool;

/* A pool reserves in steps of 32 MiB, and the driver rounds max_size up to the next (tests/answers/h200.txt,
 * "pool.max_"): strata_usage.limit and out-of-memory errors have the rounded limit. For a view, every field but `pool`
 * and `given` must be zero: the pool is not changed. */
typedef struct strata_async_options {
    uint32_t size;
    strata_async_pool pool;
    CUmemoryPool given;                      /* with STRATA_ASYNC_POOL_GIVEN, else NULL */
    uint64_t release_threshold;              /* bytes kept when idle; 0: all */
    bool release_all;                        /* keep nothing, instead of a threshold */
    uint64_t initial_size;                   /* bytes reserved at the start: allocated and freed once */
    uint64_t max_size;                       /* bytes that the pool may reserve; 0: only the device's limit */
    strata_switch follow_event_dependencies; /* CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES */
    strata_switch opportunistic;             /* CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC */
    strata_switch internal_dependencies;     /* CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES */
    strata_export_type export_type;          /* handle type for sharing between processes */
} strata_async_options;

/* Makes the layer. Errors: INVALID_VALUE, UNSUPPORTED (no memory pools, or not with these options), OUT_OF_MEMORY (the
 * initial size). */
STRATA_API strata_status strata_async_create(int ordinal, const strata_async_options *options, strata_resource **out);

/* The pool of an async resource in a stack, for the driver's attribute calls; else NULL. The caller must not destroy
 * it. */
STRATA_API CUmemoryPool strata_async_pool_handle(const strata_resource *resource);

#ifdef __cplusplus
}
#endif

#endif
