/* Kernels of the simulated driver; strata/sim.h includes this.
 *
 * A kernel is a C function, the twin of an entry in PTX. cuModuleLoadData takes the PTX for the parameters of its
 * entries, and cuModuleGetFunction finds the twin that was registered under the entry's name.
 *
 * A twin runs once for a launch, whatever the grid, on whichever thread the scheduler happens to use, with the
 * simulated driver locked: it must not call CUDA or a strata_sim_ function and must not block. It first declares the
 * ranges that it reads and writes, then reaches memory through them. Reaching beyond what was declared, or beyond
 * memory that is allocated where the launch stands in its stream, is what an illegal access is on a GPU: the function
 * gives NULL, the context is poisoned, and the twin should return. */
#ifndef STRATA_SIM_KERNEL_H
#define STRATA_SIM_KERNEL_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct strata_sim_launch strata_sim_launch;

struct strata_sim_launch {
    uint32_t size; /* of this struct; members may be added at the end */
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    unsigned parameter_count;
    const void *const *parameters; /* the values, as they were when the kernel was launched */
    const size_t *parameter_sizes;

    /* Declare that the kernel reads, or writes, these bytes of device or pinned memory. A range may be declared both
     * ways. False if there is no room for more ranges (the launch then counts as an illegal access). */
    bool (*declare_read)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);
    bool (*declare_write)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);

    /* Where the host finds these bytes, or NULL after an illegal access. Good until the twin returns. */
    const void *(*read)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);
    void *(*write)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);

    /* Declares that the kernel updates these bytes with atomic operations: it reaches them with `read` or `write`, and
     * the checker lets such updates by several kernels pass, but not beside reads or writes. */
    bool (*declare_atomic)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);
};

typedef void (*strata_sim_kernel)(strata_sim_launch *launch);

/* Registers a twin, at any time; the last one registered under a name counts for functions that are asked for
 * afterwards. The name is copied. NULL: CUDA_ERROR_INVALID_VALUE. Registered from the start: strata_pattern_fill,
 * strata_pattern_check, strata_guard_check, strata_guard_fill. */
CUresult strata_sim_register_kernel(const char *name, strata_sim_kernel twin);

typedef CUresult (*PFN_strata_sim_register_kernel)(const char *name, strata_sim_kernel twin);

#ifdef __cplusplus
}
#endif

#endif
