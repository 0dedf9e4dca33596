/* The kernel with which the guard checks its red zones: pieces of memory that must still hold one byte, many in a
 * launch. Carried as PTX (driver/kernels/guard.ptx), loaded through the door; the simulated driver runs a C function of
 * the same name. */
#ifndef STRATA_DRIVER_KERNELS_GUARD_H
#define STRATA_DRIVER_KERNELS_GUARD_H

#include <cuda.h>
#include <stdint.h>

enum { STRATA_GUARD_SHOWN = 32 }; /* changed bytes that a verdict shows */

/* Read by the kernel, in memory that the device can read. */
typedef struct strata_guard_piece {
    uint64_t address;
    uint64_t bytes;
    uint64_t expected; /* a byte */
} strata_guard_piece;

/* Written by the kernel whole, but for `found` where nothing is wrong. */
typedef struct strata_guard_verdict {
    uint64_t wrong;                          /* bytes that differ */
    uint64_t first;                          /* offset of the first of them */
    unsigned char found[STRATA_GUARD_SHOWN]; /* from there on; zeros behind the piece's end */
} strata_guard_verdict;

typedef struct strata_guard_kernel {
    CUmodule module; /* NULL: not loaded */
    CUfunction check, fill;
} strata_guard_kernel;

/* A block between two zones. */
typedef struct strata_guard_extents {
    uint64_t address; /* of the front zone */
    uint64_t front, bytes, back;
} strata_guard_extents;

/* Bits of `how` above the two bytes. The last two change no memory: they are for what a simulated driver tells of the
 * bytes to a memory debugger. */
enum strata_guard_fill_how {
    STRATA_GUARD_FILL_BLOCK = 0x10000,  /* not the zones alone */
    STRATA_GUARD_FILL_DEAD = 0x20000,   /* the block was freed */
    STRATA_GUARD_FILL_SILENT = 0x40000, /* nobody is to be told */
};

/* Loads the kernels into the current context. Nothing is left on failure. */
CUresult strata_guard_kernel_load(strata_guard_kernel *kernel);

/* Unloads it, if it is loaded; no launch of it is under way. */
void strata_guard_kernel_unload(strata_guard_kernel *kernel);

/* Checks `count` pieces, at least one, in the order of `stream`; verdict i is of piece i. The context must be current.
 */
CUresult strata_guard_kernel_check(const strata_guard_kernel *kernel, const strata_guard_piece *pieces, unsigned count,
                                   strata_guard_verdict *verdicts, CUstream stream);

/* Fills zones, and with FILL_BLOCK the block, in the order of `stream`. `how`: the byte of the zones, that of the block
 * shifted by 8, and bits. */
CUresult strata_guard_kernel_fill(const strata_guard_kernel *kernel, const strata_guard_extents *extents, unsigned how,
                                  CUstream stream);

#endif
