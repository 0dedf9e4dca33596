/* The simulated CUDA driver, seen from outside.
 *
 * libstrata-sim.so has the driver's own ABI: open it with dlopen, find cuGetProcAddress_v2 with dlsym, and ask for the
 * rest by name and version, exactly as with libcuda.so.1; or put it in the place of libcuda.so.1, for a program that is
 * linked with -lcuda. A program that only wants a driver needs nothing of this header. It is for programs that steer
 * the simulation, or bring kernels of their own; the functions below are found with dlsym too, and PFN_strata_sim_* are
 * their types. docs/testing-your-code.md shows all of it at work.
 *
 * The environment, read once by cuInit:
 *
 * - STRATA_SIM_POLICY: early (default), random or late, when submitted work runs
 * - STRATA_SIM_SEED: a whole number (default 0), which run the policy random makes
 * - STRATA_SIM_DEVICES: 1 to 64 (default 1)
 * - STRATA_SIM_MEMORY: of each device, a whole number and B, KiB, MiB, GiB or TiB (default 16GiB), at least 64MiB
 * - STRATA_SIM_CHECK: the checker, as strata/sim/check.h says
 * - STRATA_SIM_LACKS: virtual-memory: no device has virtual memory management; its attributes are 0, and cuMemCreate,
 *   cuMemAddressReserve and cuMemGetAllocationGranularity answer CUDA_ERROR_NOT_SUPPORTED (CUDA Driver API, "Virtual
 *   Memory Management"; no such device was at hand to be asked)
 *
 * An empty value is as good as none. One that is none of these makes cuInit fail with CUDA_ERROR_INVALID_VALUE, and
 * cuGetErrorString of that code then names the variable. A setting made with a function below before cuInit wins over
 * the environment's. Programs on the Strata library find this driver beside it, or where STRATA_SIM_LIBRARY says.
 *
 * When work runs. Nothing runs while it is submitted: each unit of work waits in its stream until the scheduler picks
 * it, and the scheduler is asked at the end of every driver call.
 *
 * - early: everything that may run, runs
 * - random: each unit is put off by a number of driver calls drawn from the seed, some for ever
 * - late: nothing runs
 *
 * Whatever a host synchronisation needs runs then, under every policy, and nothing else because of it. A query that
 * answered CUDA_ERROR_NOT_READY a few times forces what it asks for, so that polling ends. Under random and late, a
 * host that waits for its device by other means than the driver (a flag in pinned memory, a semaphore of a host
 * function) may wait for ever.
 *
 * The parts: this header has when work runs, the devices, and accounts; strata/sim/kernel.h kernels; strata/sim/check.h
 * the checker, which finds missing waits; strata/sim/fault.h faults on purpose.
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
    uint64_t registered_blocks;
    uint64_t memory_handles; /* pieces of memory by cuMemCreate that have a handle or a map */
    uint64_t memory_maps;
    uint64_t address_ranges; /* by cuMemAddressReserve */
    uint64_t graphs;         /* created and not destroyed, and those of captures under way; not those in a node */
    uint64_t graph_execs;    /* instantiated and not destroyed */
} strata_sim_accounts;

/* CUDA_ERROR_NOT_INITIALIZED before cuInit. Runs nothing. */
CUresult strata_sim_get_accounts(strata_sim_accounts *accounts);

/* What work takes in simulated time, which events with timing measure: so many nanoseconds, and the bytes of a copy or
 * fill at a rate (0: no time). The defaults are 2000 ns, for what is neither memory nor an event 2000 ns too, else 100
 * ns, and 4,000,000 bytes a microsecond. At any time; holds for work that runs afterwards. */
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
