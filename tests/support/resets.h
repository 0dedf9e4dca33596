/* Resets of the primary context (cuDevicePrimaryCtxReset, cudaDeviceReset), each in a process of its own: how the reset
 * leaves the context, and on which stacks it is tried. */
#ifndef STRATA_TEST_RESETS_H
#define STRATA_TEST_RESETS_H

#include "support/child.h"
#include "support/driver.h"

#include <stdio.h>
#include <stdlib.h>

enum { BYTES = 1 << 20, SMALL = 4096 };

/* How the context is when Strata is called again. */
typedef enum moment {
    ENDED, /* nothing has used the device since the reset */
    ANEW,  /* another module has begun the context again, under the same handle */
} moment;

typedef struct scene {
    const char *stack;
    moment when;
    bool opened; /* the driver */
    strata_runtime *runtime;
    CUstream pooled, own;
    strata_block live, other;
} scene;

static inline scene *scene_of_child(void)
{
    static scene of_child;
    of_child = (scene){.stack = getenv("TEST_STACK"), .when = getenv("TEST_ANEW") ? ANEW : ENDED};
    return &of_child;
}

static inline void reset(const scene *of)
{
    CUcontext context;
    child_check(strata_cu.DevicePrimaryCtxReset(0) == CUDA_SUCCESS);
    if (of->when != ANEW)
        return;
    child_check(strata_cu.DevicePrimaryCtxRetain(&context, 0) == CUDA_SUCCESS);
    child_check(strata_cu.CtxSetCurrent(context) == CUDA_SUCCESS);
}

/* What a new runtime has to be able to do. */
static inline void use(strata_runtime *runtime)
{
    CUstream stream, own;
    strata_block block;
    unsigned char bytes[SMALL] = {0};
    child_ok(strata_runtime_stream_acquire(runtime, &stream));
    child_check(strata_cu.StreamCreate(&own, CU_STREAM_NON_BLOCKING) == CUDA_SUCCESS);
    child_ok(strata_runtime_register_stream(runtime, own));
    child_ok(strata_runtime_allocate(runtime, SMALL, stream, &block));
    child_check(strata_cu.MemsetD8Async(block.address, 0x5a, SMALL, stream) == CUDA_SUCCESS);
    child_ok(strata_runtime_prepare_block_use(runtime, &block, own, STRATA_ACCESS_READ));
    child_check(strata_cu.MemcpyDtoHAsync(bytes, block.address, SMALL, own) == CUDA_SUCCESS);
    child_ok(strata_runtime_finish_block_use(runtime, &block, own, STRATA_ACCESS_READ));
    child_check(strata_cu.StreamSynchronize(own) == CUDA_SUCCESS);
    child_check(bytes[0] == 0x5a && bytes[SMALL - 1] == 0x5a);
    child_ok(strata_runtime_deallocate(runtime, &block));
    child_ok(strata_runtime_unregister_stream(runtime, own));
    child_check(strata_cu.StreamDestroy(own) == CUDA_SUCCESS);
    child_ok(strata_runtime_stream_release(runtime, stream));
    child_ok(strata_runtime_reap_pending(runtime));
}

/* Runs a scenario on each of the stacks, at both moments. */
static inline void run_on(const char *scenario, const char *const *stacks, size_t count)
{
    for (size_t i = 0; i < count; i++)
        for (moment when = ENDED; when <= ANEW; when++) {
            char stack[80];
            snprintf(stack, sizeof stack, "TEST_STACK=%s", stacks[i]);
            const char *const changes[] = {stack, when == ANEW ? "TEST_ANEW=1" : "TEST_ANEW", NULL};
            printf("%s, %s\n", stacks[i], when == ANEW ? "begun anew" : "ended");
            test_child_run(scenario, changes);
        }
}

#endif
