/* Kernels of Strata's own, for whatever device is current. They are carried as PTX (driver/kernels/pattern.ptx), loaded
 * through the door like anybody's module, once for each context; the simulated driver runs C functions of the same
 * names.
 *
 * The pattern: the byte at offset i of a piece is byte i % 8, little endian, of mix(seed + i / 8), where mix is a
 * bijection of 64 bits that spreads every bit. Pieces with different seeds differ in nearly every byte. */
#ifndef STRATA_DRIVER_KERNELS_KERNELS_H
#define STRATA_DRIVER_KERNELS_KERNELS_H

#include <cuda.h>
#include <stddef.h>
#include <stdint.h>

/* What a check found, in memory that the device can write: 16 bytes, aligned to 8. Checks add to it. */
typedef struct strata_pattern_result {
    uint64_t wrong; /* bytes that differ; starts at 0 */
    uint64_t first; /* offset of the first of them; starts at STRATA_PATTERN_NONE */
} strata_pattern_result;

#define STRATA_PATTERN_NONE UINT64_MAX

/* Loads the kernels into the current context, if they are not there. The launches below do it themselves; this is for
 * programs that want the wait, or the failure, earlier. The module stays until the context ends, and the context must
 * last as long as the process, as a device's primary one that is never released does. Any thread. */
CUresult strata_kernels_load(void);

/* Fills bytes at `address` with the pattern of `seed`, in the order of `stream`. Zero bytes: nothing to do. A context
 * must be current. Any thread. */
CUresult strata_kernel_pattern_fill(CUdeviceptr address, size_t bytes, uint64_t seed, CUstream stream);

/* Compares bytes at `address` with the pattern of `seed`, in the order of `stream`, and adds what differs to the
 * strata_pattern_result at `result`. */
CUresult strata_kernel_pattern_check(CUdeviceptr address, size_t bytes, uint64_t seed, CUdeviceptr result,
                                     CUstream stream);

#endif
