/* Blocks that another library has registered. The library knows their physical memory, so they must stay at their
 * addresses, and live, until it deregisters them. A live block's memory does not move; what remains is to refuse its
 * free. */
#ifndef STRATA_RUNTIME_REGISTRATIONS_H
#define STRATA_RUNTIME_REGISTRATIONS_H

#include "runtime/runtime.h"

/* From now on frees of the block are refused with BLOCK_IN_USE, and the message names the library, a static text. It
 * may be called any number of times for a block. Errors: USE_AFTER_FREE, FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE,
 * UNSUPPORTED (memory of a capture's pool), OUT_OF_HOST_MEMORY. */
strata_status strata_registration_begin(strata_runtime *runtime, const strata_block *block, const char *library);

/* Undoes one such call; after the last one the program may free the block. */
void strata_registration_end(strata_runtime *runtime, const strata_block *block);

#endif
