/* Memory that a program's own pool hands out, for the checker of the simulated driver; strata/sim.h includes this.
 *
 * A pool takes memory from the driver in large pieces, so the driver knows which call made the pool larger, not where
 * a block comes from. A pool that says which parts it hands out gets reports with the block's own call stack
 * ("allocated:"), and its live blocks are the leaks instead of its pieces. Strata's stacks do. Nothing else changes:
 * uses are judged against the driver's allocations.
 *
 * The names are no driver's: a pool looks them up with dlsym in the library that it opened as its driver, and calls
 * neither if one is missing. A library in front of a driver may have them, too. Any thread, also in host functions, not
 * in host kernels. CUDA_SUCCESS while the checker is off, too. */
#ifndef STRATA_SIM_REGIONS_H
#define STRATA_SIM_REGIONS_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The pool has handed out these bytes, by a call of the calling thread. Regions that overlap are over. `id` is the
 * pool's choice, another one each time that it hands out the address.
 * CUDA_ERROR_INVALID_VALUE: no bytes, or more than there are behind the address. */
CUresult strata_driver_region_begin(CUdeviceptr address, size_t bytes, uint64_t id);

/* The region with this id that began at the address has come back. Later reports still name it until the bytes are
 * handed out again. No effect if there is none, such as after the pool has handed out the bytes again. */
CUresult strata_driver_region_end(CUdeviceptr address, uint64_t id);

typedef CUresult (*PFN_strata_driver_region_begin)(CUdeviceptr address, size_t bytes, uint64_t id);
typedef CUresult (*PFN_strata_driver_region_end)(CUdeviceptr address, uint64_t id);

#ifdef __cplusplus
}
#endif

#endif
