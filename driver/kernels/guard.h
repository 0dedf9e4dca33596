/* Kernels that fill and check the guard's red zones, many in a launch. Carried as PTX; the simulated driver runs C
 * functions of the same names. */
#ifndef STRATA_DRIVER_KERNELS_GUARD_H
#define STRATA_DRIVER_KERNELS_GUARD_H

#include <cuda.h>
#include <stdint.h>

enum { STRATA_GUARD_SHOWN = 32 }; /* bytes that a verdict shows */

/* In memory that the device can read. */
typedef struct strata_guard_piece {
    uint64_t address;
    uint64_t bytes;
    uint64_t expected; /* a byte */
} strata_guard_piece;

/* Written as a whole, except `found` if no byte is wrong. */
typedef struct strata_guard_verdict {
    uint64_t wrong;                          /* bytes that differ */
    uint64_t first;                          /* offset of the first */
    unsigned char found[STRATA_GUARD_SHOWN]; /* from there on; zeros after the piece */
} strata_guard_verdict;

typedef struct strata_guard_kernel {
    CUmodule module; /* NULL: not loaded */
    CUfunction check, fill;
} strata_guard_kernel;

typedef struct strata_guard_extents {
    uint64_t address; /* of the front zone */
    uint64_t front, bytes, back;
} strata_guard_extents;

/* Bits of `how`. The last two change no memory: a simulated driver passes them to memory debuggers. */
enum strata_guard_fill_how {
    STRATA_GUARD_FILL_BLOCK = 0x10000,  /* the block too */
    STRATA_GUARD_FILL_DEAD = 0x20000,   /* the block is freed */
    STRATA_GUARD_FILL_SILENT = 0x40000, /* memory debuggers are not told */
};

/* Loads the kernels into the current context; on failure nothing is left. *call: the entry point that returned the
 * result. */
CUresult strata_guard_kernel_load(strata_guard_kernel *kernel, const char **call);

/* Unloads the kernels. No launch may be in flight. */
void strata_guard_kernel_unload(strata_guard_kernel *kernel);

/* Checks `count` > 0 pieces on `stream`; verdict i is of piece i. The context is current. */
CUresult strata_guard_kernel_check(const strata_guard_kernel *kernel, const strata_guard_piece *pieces, unsigned count,
                                   strata_guard_verdict *verdicts, CUstream stream);

/* Fills the zones, with FILL_BLOCK the block too, on `stream`. `how`: the zones' byte, the block's byte shifted by 8,
 * and bits. */
CUresult strata_guard_kernel_fill(const strata_guard_kernel *kernel, const strata_guard_extents *extents, unsigned how,
                                  CUstream stream);

#endif
