/* The functions of CUDA that the replacing headers call, in a test program that is linked with no CUDA library. They
 * hand out memory of the open driver and count their calls. */
#ifndef STRATA_TEST_REPLACE_ORIGINALS_H
#define STRATA_TEST_REPLACE_ORIGINALS_H

#include <cuda.h>
#include <stddef.h>

typedef struct originals_calls {
    unsigned allocate, release, allocate_async, release_async, memory_info, range, last_error;
    unsigned from_pool, pitched,
        ptsz; /* ptsz: of the calls above, those under the names for per-thread default streams */
} originals_calls;

extern originals_calls originals;

/* The next allocation of the CUDA runtime fails with this number; until cudaGetLastError it is its last error. */
extern int originals_fail;

/* From the open driver, past the replacing headers. */
CUresult originals_allocate(CUdeviceptr *address, size_t bytes);
CUresult originals_release(CUdeviceptr address);
CUresult originals_allocate_async(CUdeviceptr *address, size_t bytes, CUstream stream);
CUresult originals_release_async(CUdeviceptr address, CUstream stream);
CUresult originals_memory_info(size_t *free_bytes, size_t *total_bytes);

#endif
