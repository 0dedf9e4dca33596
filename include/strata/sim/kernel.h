/* Kernels of the simulated driver; strata/sim.h includes this.
 *
 * A kernel is a C function, the host kernel of an entry in PTX. cuModuleLoadData reads the entries' parameters from the
 * PTX; cuModuleGetFunction finds the host kernel registered under the entry's name.
 *
 * A host kernel runs once for a launch, whatever the grid, on any thread, with the simulated driver locked: it must not
 * call CUDA or strata_sim_ functions and must not block. It first declares the ranges that it reads and writes, then
 * accesses memory through them. An access outside these, or outside memory that is allocated at the launch's place in
 * its stream, is an illegal access: the function returns NULL, the context is poisoned, and the host kernel should
 * return. */
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

enum { STRATA_SIM_MOST_RANGES = 64 }; /* that a launch declares */

struct strata_sim_launch {
    uint32_t size; /* of this struct; members may be added at the end */
    unsigned grid[3];
    unsigned block[3];
    unsigned shared_bytes;
    unsigned parameter_count;
    const void *const *parameters; /* the values at the launch */
    const size_t *parameter_sizes;

    /* Declare reads, or writes, of these bytes of device or pinned memory; a range may be both. False: the launch
     * has STRATA_SIM_MOST_RANGES already; it then counts as an illegal access. */
    bool (*declare_read)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);
    bool (*declare_write)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);

    /* Host address of these bytes, valid until the host kernel returns; NULL after an illegal access. */
    const void *(*read)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);
    void *(*write)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);

    /* Declares atomic updates of these bytes, which the kernel accesses with `read` or `write`. The checker allows them
     * by several kernels, but not beside reads or writes. */
    bool (*declare_atomic)(strata_sim_launch *launch, CUdeviceptr address, size_t bytes);

    /* What cudaGraphSetConditional does on a device: the conditional node of this launch of the graph that comes after
     * the kernel reads the value, and a loop reads it after each round. False: there is no such handle in the kernel's
     * context; it then counts as an illegal access. */
    bool (*set_conditional)(strata_sim_launch *launch, CUgraphConditionalHandle handle, unsigned value);
};

typedef void (*strata_sim_kernel)(strata_sim_launch *launch);

/* Registers a host kernel, at any time; functions obtained afterwards use the last one of a name, which is copied.
 * NULL: CUDA_ERROR_INVALID_VALUE. Built in: strata_pattern_fill, strata_pattern_check, strata_guard_check,
 * strata_guard_fill, strata_demo_bias_relu, strata_demo_multiply. */
CUresult strata_sim_register_kernel(const char *name, strata_sim_kernel host_kernel);

typedef CUresult (*PFN_strata_sim_register_kernel)(const char *name, strata_sim_kernel host_kernel);

#ifdef __cplusplus
}
#endif

#endif
