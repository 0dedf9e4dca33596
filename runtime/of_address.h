/* The live block at an address, of any runtime of the process. */
#ifndef STRATA_RUNTIME_OF_ADDRESS_H
#define STRATA_RUNTIME_OF_ADDRESS_H

#include "runtime/runtime.h"

typedef struct strata_owned_block {
    strata_runtime *runtime; /* not destroyed until the release */
    strata_block block;
} strata_owned_block;

/* Finds the block that contains `address`. A success is followed by strata_owned_block_release. Errors:
 * FOREIGN_POINTER, which is raised only by the caller; FORKED, SHUT_DOWN. */
strata_status strata_owned_block_find(CUdeviceptr address, strata_owned_block *out);
void strata_owned_block_release(strata_owned_block *found);

/* Whether the address is in a block whose free waits for the end of a capture. */
bool strata_is_freed_in_capture(CUdeviceptr address);

/* Whether the address is in memory that a layer cuts into blocks, such as a chunk of a pool over `direct`: the driver
 * would free all of it. Also in one of the blocks. */
bool strata_is_cut_up(CUdeviceptr address);

/* After the free of an address in no block was refused: tells layers that know a freed block that began there. */
void strata_tell_refused_everywhere(CUdeviceptr address);

#endif
