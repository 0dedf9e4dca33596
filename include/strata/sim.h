/* The simulated CUDA driver: functions that control the simulation.
 *
 * libstrata-sim.so has the driver's ABI; docs/testing-your-code.md has its use, the policies and the environment's
 * variables. A program that only needs a driver does not need this header. The functions are found with dlsym;
 * PFN_strata_sim_* are their types. Any thread may call them.
 *
 * The environment is read once by cuInit; a function that is called before overrides it. An empty value counts as
 * unset. An invalid value makes cuInit fail with CUDA_ERROR_INVALID_VALUE; cuGetErrorString of that code then names the
 * variable. STRATA_SIM_SEED is an integer, default 0; STRATA_SIM_MEMORY an integer with B, KiB, MiB, GiB or TiB. With
 * STRATA_SIM_LACKS=virtual-memory the attributes of virtual memory management are 0; cuMemCreate, cuMemAddressReserve
 * and cuMemGetAllocationGranularity answer CUDA_ERROR_NOT_SUPPORTED (CUDA Driver API, "Virtual Memory Management"; not
 * compared with a real device).
 *
 * Work waits in its stream until the scheduler picks it, at the end of some driver call. Under every policy work that a
 * host synchronization needs runs then. Queries that returned CUDA_ERROR_NOT_READY a few times force the work. Under
 * random and late, work for which no host waits runs within 1000 driver calls of its submission, as soon as what it
 * depends on has run: a program that never waits does not pile up work, and a seed still repeats its run. There a host
 * that waits by other means (a flag in pinned memory, a semaphore of a host function) may wait for ever. */
#ifndef STRATA_SIM_H
#define STRATA_SIM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strata/sim/check.h>
#include <strata/sim/fault.h>
#include <strata/sim/kernel.h>
#include <strata/sim/regions.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_sim_policy { STRATA_SIM_EARLY = 0, STRATA_SIM_RANDOM = 1, STRATA_SIM_LATE = 2 } strata_sim_policy;

/* At any time, for work submitted afterwards. Setting the seed restarts the run; a change to early also runs all
 * waiting work. CUDA_ERROR_INVALID_VALUE: no such policy. */
CUresult strata_sim_set_seed(uint64_t seed);
CUresult strata_sim_set_policy(strata_sim_policy policy);

/* Before cuInit, else CUDA_ERROR_NOT_PERMITTED; CUDA_ERROR_INVALID_VALUE out of range. Bytes are rounded down to 2 MiB.
 */
CUresult strata_sim_set_devices(int count);
CUresult strata_sim_set_memory(uint64_t bytes_of_each_device);

/* Live objects, for leak tests. */
typedef struct strata_sim_accounts {
    uint64_t contexts; /* of cuCtxCreate, and retained primary contexts */
    uint64_t streams;
    uint64_t events;
    uint64_t modules;
    uint64_t pools;         /* not destroyed, or still holding memory */
    uint64_t device_blocks; /* a stream-ordered free counts at its submission */
    uint64_t pinned_blocks;
    uint64_t reserved_bytes; /* held by allocations and pools, over all devices */
    uint64_t unfinished_work;
    uint64_t finished_work; /* since cuInit */
    uint64_t registered_blocks;
    uint64_t memory_handles; /* of cuMemCreate, with a handle or a mapping */
    uint64_t memory_maps;
    uint64_t address_ranges; /* by cuMemAddressReserve */
    uint64_t graphs;         /* and of open captures; not child graphs in nodes */
    uint64_t graph_execs;
} strata_sim_accounts;

/* Runs no work. CUDA_ERROR_NOT_INITIALIZED before cuInit. */
CUresult strata_sim_get_accounts(strata_sim_accounts *accounts);

/* Entry points that cuGetProcAddress was asked for and did not find, in the version asked for, each with its count, in
 * the order of the first request; the first 256. Also before cuInit. CUDA_ERROR_INVALID_VALUE: no such index. */
typedef struct strata_sim_missing {
    uint32_t size; /* of this struct; members may be added at the end */
    const char *name;
    uint64_t times;
} strata_sim_missing;
CUresult strata_sim_get_missing(uint64_t index, strata_sim_missing *missing);

/* Duration of work in simulated time, which timing events measure: nanoseconds, plus bytes of a copy or fill at a rate
 * (0: none). Defaults: 2000 ns, MEMORY and EVENT 100 ns, and 4,000,000 bytes a microsecond. At any time, for work that
 * runs afterwards. */
typedef enum strata_sim_work {
    STRATA_SIM_WORK_COPY = 0,
    STRATA_SIM_WORK_FILL = 1,
    STRATA_SIM_WORK_KERNEL = 2,
    STRATA_SIM_WORK_HOST_FUNCTION = 3,
    STRATA_SIM_WORK_MEMORY = 4, /* stream-ordered allocations and frees */
    STRATA_SIM_WORK_EVENT = 5,  /* records and waits */
    STRATA_SIM_KINDS = 6
} strata_sim_work;

/* As described at the enum. */
CUresult strata_sim_set_latency(strata_sim_work work, uint64_t nanoseconds, uint64_t bytes_per_microsecond);

typedef CUresult (*PFN_strata_sim_set_seed)(uint64_t seed);
typedef CUresult (*PFN_strata_sim_set_policy)(strata_sim_policy policy);
typedef CUresult (*PFN_strata_sim_set_devices)(int count);
typedef CUresult (*PFN_strata_sim_set_memory)(uint64_t bytes_of_each_device);
typedef CUresult (*PFN_strata_sim_get_accounts)(strata_sim_accounts *accounts);
typedef CUresult (*PFN_strata_sim_get_missing)(uint64_t index, strata_sim_missing *missing);
typedef CUresult (*PFN_strata_sim_set_latency)(strata_sim_work work, uint64_t nanoseconds,
                                               uint64_t bytes_per_microsecond);

#ifdef __cplusplus
}
#endif

#endif
