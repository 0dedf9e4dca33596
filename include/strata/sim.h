/* The simulated CUDA driver: functions that control the simulation.
 *
 * libstrata-sim.so has the driver's ABI: open it with dlopen, find cuGetProcAddress_v2 with dlsym, and ask for other
 * functions by name and version, as with libcuda.so.1; or install it as libcuda.so.1 for programs linked with -lcuda. A
 * program that only needs a driver does not need this header. The functions below are found with dlsym;
 * PFN_strata_sim_* are their types. docs/testing-your-code.md shows their use.
 *
 * The environment, read once by cuInit:
 *
 * - STRATA_SIM_POLICY: early (default), random or late: when submitted work runs
 * - STRATA_SIM_SEED: an integer (default 0) that selects the run of the policy random
 * - STRATA_SIM_DEVICES: 1 to 64 (default 1)
 * - STRATA_SIM_MEMORY: of each device, an integer with B, KiB, MiB, GiB or TiB (default 16GiB), at least 64MiB
 * - STRATA_SIM_CHECK: the checker; see strata/sim/check.h
 * - STRATA_SIM_LACKS: virtual-memory: no device has virtual memory management; its attributes are 0, and cuMemCreate,
 *   cuMemAddressReserve and cuMemGetAllocationGranularity answer CUDA_ERROR_NOT_SUPPORTED (CUDA Driver API, "Virtual
 *   Memory Management"; not compared with a real device)
 *
 * An empty value counts as unset. An invalid value makes cuInit fail with CUDA_ERROR_INVALID_VALUE; cuGetErrorString of
 * that code then names the variable. A function below that is called before cuInit overrides the environment. Programs
 * on the Strata library find this driver beside it or through STRATA_SIM_LIBRARY.
 *
 * When work runs. No work runs during its submission: it waits in its stream until the scheduler picks it, at the end
 * of some driver call.
 *
 * - early: everything that may run, runs
 * - random: each unit of work is delayed by a number of driver calls drawn from the seed, sometimes for ever
 * - late: nothing runs
 *
 * Work that a host synchronization needs runs then, under every policy, and no other work. A query that answered
 * CUDA_ERROR_NOT_READY a few times forces the work, so that polling ends. Under random and late, a host that waits for
 * its device by other means (a flag in pinned memory, a semaphore of a host function) may wait for ever.
 *
 * Further headers: strata/sim/kernel.h (kernels), strata/sim/check.h (the checker, which finds missing waits),
 * strata/sim/fault.h (fault injection).
 *
 * All functions may be called from any thread. */
#ifndef STRATA_SIM_H
#define STRATA_SIM_H

#include <cuda.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <strata/sim/check.h>
#include <strata/sim/fault.h>
#include <strata/sim/kernel.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef enum strata_sim_policy { STRATA_SIM_EARLY = 0, STRATA_SIM_RANDOM = 1, STRATA_SIM_LATE = 2 } strata_sim_policy;

/* At any time. Seed and policy apply to work submitted afterwards; setting the seed restarts the run. A change to early
 * also runs all waiting work. CUDA_ERROR_INVALID_VALUE: no such policy. */
CUresult strata_sim_set_seed(uint64_t seed);
CUresult strata_sim_set_policy(strata_sim_policy policy);

/* Before cuInit, else CUDA_ERROR_NOT_PERMITTED; CUDA_ERROR_INVALID_VALUE out of range. Bytes are rounded down to 2 MiB.
 */
CUresult strata_sim_set_devices(int count);
CUresult strata_sim_set_memory(uint64_t bytes_of_each_device);

/* Live objects of the simulated driver, for leak tests. */
typedef struct strata_sim_accounts {
    uint64_t contexts; /* made by cuCtxCreate, and retained primary contexts */
    uint64_t streams;  /* created and not destroyed */
    uint64_t events;
    uint64_t modules;
    uint64_t pools;         /* created, and not destroyed or still holding memory */
    uint64_t device_blocks; /* allocated and not freed; a stream-ordered free counts at its submission */
    uint64_t pinned_blocks;
    uint64_t reserved_bytes;  /* device memory that allocations and pools hold, over all devices */
    uint64_t unfinished_work; /* submitted and not finished */
    uint64_t finished_work;   /* since cuInit */
    uint64_t registered_blocks;
    uint64_t memory_handles; /* memory of cuMemCreate with a handle or a mapping */
    uint64_t memory_maps;
    uint64_t address_ranges; /* by cuMemAddressReserve */
    uint64_t graphs;         /* created and not destroyed, and graphs of open captures; not child graphs in nodes */
    uint64_t graph_execs;    /* instantiated and not destroyed */
} strata_sim_accounts;

/* Runs no work. CUDA_ERROR_NOT_INITIALIZED before cuInit. */
CUresult strata_sim_get_accounts(strata_sim_accounts *accounts);

/* Duration of work in simulated time, which timing events measure: nanoseconds, plus the bytes of a copy or fill at a
 * rate (0: none). Defaults: 2000 ns, for MEMORY and EVENT 100 ns, and 4,000,000 bytes a microsecond. At any time;
 * applies to work that runs afterwards. */
typedef enum strata_sim_work {
    STRATA_SIM_WORK_COPY = 0,
    STRATA_SIM_WORK_FILL = 1,
    STRATA_SIM_WORK_KERNEL = 2,
    STRATA_SIM_WORK_HOST_FUNCTION = 3,
    STRATA_SIM_WORK_MEMORY = 4, /* stream-ordered allocations and frees */
    STRATA_SIM_WORK_EVENT = 5,  /* records and waits */
    STRATA_SIM_KINDS = 6
} strata_sim_work;

CUresult strata_sim_set_latency(strata_sim_work work, uint64_t nanoseconds, uint64_t bytes_per_microsecond);

typedef CUresult (*PFN_strata_sim_set_seed)(uint64_t seed);
typedef CUresult (*PFN_strata_sim_set_policy)(strata_sim_policy policy);
typedef CUresult (*PFN_strata_sim_set_devices)(int count);
typedef CUresult (*PFN_strata_sim_set_memory)(uint64_t bytes_of_each_device);
typedef CUresult (*PFN_strata_sim_get_accounts)(strata_sim_accounts *accounts);
typedef CUresult (*PFN_strata_sim_set_latency)(strata_sim_work work, uint64_t nanoseconds,
                                               uint64_t bytes_per_microsecond);

#ifdef __cplusplus
}
#endif

#endif
