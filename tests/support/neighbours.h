/* Stacks beside each other on a device of 4 GiB: for scenarios in children, so a failure ends the child. */
#ifndef STRATA_TEST_NEIGHBOURS_H
#define STRATA_TEST_NEIGHBOURS_H

#include <pthread.h>
#include <stdatomic.h>

#include "support/child.h"
#include "support/pool.h"

#define GIB (1024 * MIB)

static inline strata_runtime *make_stack(const char *text)
{
    strata_runtime *runtime;
    child_ok(strata_runtime_create(&(strata_runtime_config){.stack_text = text}, &runtime));
    return runtime;
}

static inline void end_stack(strata_runtime *runtime)
{
    child_ok(strata_runtime_destroy(runtime));
}

static inline void begin_child(void)
{
    test_open_driver_quietly();
    test_make_current();
}

static inline strata_block take(strata_runtime *runtime, size_t bytes)
{
    strata_block block;
    child_ok(strata_runtime_allocate(runtime, bytes, NULL, &block));
    return block;
}

static inline void give(strata_runtime *runtime, const strata_block *block)
{
    child_ok(strata_runtime_deallocate(runtime, block));
}

/* ---- threads ---- */

static _Atomic bool over; /* for workers without an end of their own */

typedef struct worker {
    pthread_t thread;
    strata_runtime *runtime;
    const char *text; /* of its stack, if it makes one itself */
    size_t most;      /* bytes of a block */
    unsigned rounds;  /* 0: until `over` */
    _Atomic unsigned served, refused;
} worker;

static inline void begin_worker(worker *one, void *(*work)(void *))
{
    child_check(pthread_create(&one->thread, NULL, work, one) == 0);
}

/* A thread that allocates and frees blocks of any size, and writes and reads back the last bytes of each. */
static inline void *come_and_go(void *data)
{
    worker *self = data;
    uint32_t seed = 7;
    CUstream stream;
    test_make_current();
    child_ok(strata_runtime_stream_acquire(self->runtime, &stream));
    for (unsigned i = 0; self->rounds ? i < self->rounds : !over; i++) {
        strata_block block;
        unsigned char last = 0;
        seed = seed * 1664525 + 1013904223;
        const size_t bytes = 4096 + (size_t)((uint64_t)(seed >> 8) * self->most >> 24);
        const strata_status status = strata_runtime_allocate(self->runtime, bytes, stream, &block);
        self->refused += status == STRATA_ERROR_OUT_OF_MEMORY;
        if (status == STRATA_ERROR_OUT_OF_MEMORY)
            continue;
        child_ok(status);
        self->served++;
        const CUdeviceptr end = block.address + block.bytes - 4096;
        child_check(test_cu()->MemsetD8Async(end, (unsigned char)i, 4096, stream) == CUDA_SUCCESS);
        child_check(test_cu()->MemcpyDtoHAsync(&last, end + 4095, 1, stream) == CUDA_SUCCESS);
        child_check(test_cu()->StreamSynchronize(stream) == CUDA_SUCCESS && last == (unsigned char)i);
        child_ok(strata_runtime_deallocate(self->runtime, &block));
    }
    child_ok(strata_runtime_stream_release(self->runtime, stream));
    return NULL;
}

/* ---- in the test ---- */

static inline void run_on_small_device(const char *scenario)
{
    static const char *const small_device[] = {"STRATA_DRIVER=sim", "STRATA_SIM_MEMORY=4GiB", NULL};
    test_child_run(scenario, small_device);
}

#endif
