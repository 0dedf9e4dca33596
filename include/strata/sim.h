/* The simulated CUDA driver, seen from outside.
 *
 * libstrata-sim.so has the driver's own ABI: open it with dlopen, find cuGetProcAddress_v2 with dlsym, and ask for the
 * rest by name and version, exactly as with libcuda.so.1. A program that only wants a driver needs nothing of this
 * header. It is for programs that steer the simulation, or bring kernels of their own; the functions below are found
 * with dlsym too, and PFN_strata_sim_* are their types.
 *
 * The environment, read once by cuInit:
 *   STRATA_SIM_POLICY    early (default), random or late: when submitted work runs
 *   STRATA_SIM_SEED      a whole number (default 0): which run the policy random makes
 *   STRATA_SIM_DEVICES   1 to 64 (default 1)
 *   STRATA_SIM_MEMORY    memory of each device: a whole number and B, KiB, MiB, GiB or TiB (default 16GiB), at least
 * 64MiB A value that is none of these makes cuInit fail with CUDA_ERROR_INVALID_VALUE. A setting made with a function
 * below before cuInit wins over the environment's.
 *
 * When work runs. Nothing runs while it is submitted: each unit of work waits in its stream until the scheduler picks
 * it, and the scheduler is asked at the end of every driver call. early    everything that may run, runs random   each
 * unit is put off by a number of driver calls drawn from the seed, some for ever late     nothing runs Whatever a host
 * synchronisation needs runs then, under every policy, and nothing else because of it. A query that answered
 * CUDA_ERROR_NOT_READY a few times forces what it asks for, so that polling ends. Under random and late, a host that
 * waits for its device by other means than the driver (a flag in pinned memory, a semaphore of a host function) may
 * wait for ever.
 *
 * All functions may be called from any thread. */
#ifndef STRATA_SIM_H
#define STRATA_SIM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_sim_policy { STRATA_SIM_EARLY = 0, STRATA_SIM_RANDOM = 1, STRATA_SIM_LATE = 2 } strata_sim_policy;

/* At any time. The seed and the policy hold for work that is submitted afterwards, and a seed that is set again starts
 * the same run again; a change to early also lets everything run that is waiting. CUDA_ERROR_INVALID_VALUE if there is
 * no such policy. */
CUresult strata_sim_set_seed(uint64_t seed);
CUresult strata_sim_set_policy(strata_sim_policy policy);

/* Before cuInit only, else CUDA_ERROR_NOT_PERMITTED; out of range CUDA_ERROR_INVALID_VALUE. Bytes are rounded down to 2
 * MiB. */
CUresult strata_sim_set_devices(int count);
CUresult strata_sim_set_memory(uint64_t bytes_of_each_device);

/* What is alive in the simulated driver, for tests that look for leaks. */
typedef struct strata_sim_accounts {
    uint64_t contexts; /* made by cuCtxCreate, and primary contexts that are retained */
    uint64_t streams;  /* created and not destroyed */
    uint64_t events;
    uint64_t modules;
    uint64_t pools;         /* created, and not destroyed or still holding memory */
    uint64_t device_blocks; /* allocated and not freed (a stream-ordered free counts when it is submitted) */
    uint64_t pinned_blocks;
    uint64_t reserved_bytes;  /* device memory that allocations and pools hold, over all devices */
    uint64_t unfinished_work; /* submitted and not finished */
    uint64_t finished_work;   /* since cuInit */
} strata_sim_accounts;

/* CUDA_ERROR_NOT_INITIALIZED before cuInit. Runs nothing. */
CUresult strata_sim_get_accounts(strata_sim_accounts *accounts);

/* Kernels.
 *
 * A kernel is a C function, the twin of an entry in PTX. cuModuleLoadData takes the PTX for the parameters of its
 * entries, and cuModuleGetFunction finds the twin that was registered under the entry's name.
 *
 * A twin runs once for a launch, whatever the grid, on whichever thread the scheduler happens to use, with the
 * simulated driver locked: it must not call CUDA or a strata_sim_ function and must not block. It first declares the
 * ranges that it reads and writes, then reaches memory through them. Reaching beyond what was declared, or beyond
 * memory that is allocated where the launch stands in its stream, is what an illegal access is on a GPU: the function
 * gives NULL, the context is poisoned, and the twin should return. */
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
};

typedef void (*strata_sim_kernel)(strata_sim_launch *launch);

/* Registers a twin, at any time; the last one registered under a name counts for functions that are asked for
 * afterwards. The name is copied. NULL: CUDA_ERROR_INVALID_VALUE. Registered from the start: strata_pattern_fill,
 * strata_pattern_check. */
CUresult strata_sim_register_kernel(const char *name, strata_sim_kernel twin);

typedef CUresult (*PFN_strata_sim_set_seed)(uint64_t seed);
typedef CUresult (*PFN_strata_sim_set_policy)(strata_sim_policy policy);
typedef CUresult (*PFN_strata_sim_set_devices)(int count);
typedef CUresult (*PFN_strata_sim_set_memory)(uint64_t bytes_of_each_device);
typedef CUresult (*PFN_strata_sim_get_accounts)(strata_sim_accounts *accounts);
typedef CUresult (*PFN_strata_sim_register_kernel)(const char *name, strata_sim_kernel twin);

#ifdef __cplusplus
}
#endif

#endif
