/* Strata's own kernels, carried as PTX and loaded once for each context; the simulated driver runs C functions of the
 * same names. Any thread, with a context that is current.
 *
 * The pattern: the byte at offset i of a piece is byte i % 8, little endian, of mix(seed + i / 8), where mix is a
 * bijection of 64 bits that spreads every bit. Pieces with different seeds differ in nearly every byte. */
#ifndef STRATA_DRIVER_KERNELS_KERNELS_H
#define STRATA_DRIVER_KERNELS_KERNELS_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* In memory that the device can write: 16 bytes, aligned to 8. Checks add to it. */
typedef struct strata_pattern_result {
    uint64_t wrong; /* bytes that differ; starts at 0 */
    uint64_t first; /* offset of the first; starts at STRATA_PATTERN_NONE */
} strata_pattern_result;

#define STRATA_PATTERN_NONE UINT64_MAX

/* Loads the kernels into the current context, as the launches below would. The module stays until the context ends,
 * which must last as long as the process, as a primary context that is never released. */
CUresult strata_kernels_load(void);

/* Fills bytes with the pattern of `seed`, on `stream`. Zero bytes: no work. */
CUresult strata_kernel_pattern_fill(CUdeviceptr address, size_t bytes, uint64_t seed, CUstream stream);

/* Compares bytes with the pattern of `seed`, on `stream`, and adds the differences to the strata_pattern_result at
 * `result`. */
CUresult strata_kernel_pattern_check(CUdeviceptr address, size_t bytes, uint64_t seed, CUdeviceptr result,
                                     CUstream stream);

#endif
