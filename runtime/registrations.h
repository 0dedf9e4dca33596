/* Blocks that another library has registered: it knows their physical memory, so that they must stay where they are,
 * and live, until it has let go. A live block's memory stays where it is; what is left is to refuse its free. */
#ifndef STRATA_RUNTIME_REGISTRATIONS_H
#define STRATA_RUNTIME_REGISTRATIONS_H

#include "runtime/runtime.h"

/* From here on frees of the block answer BLOCK_IN_USE and name the library, a static text. Any number of times. Errors:
 * USE_AFTER_FREE, FOREIGN_POINTER, SIZE_MISMATCH, WRONG_DEVICE, UNSUPPORTED (memory of a capture's pool),
 * OUT_OF_HOST_MEMORY. */
strata_status strata_registration_begin(strata_runtime *runtime, const strata_block *block, const char *library);

/* Undoes one such call. The program may free the block. */
void strata_registration_end(strata_runtime *runtime, const strata_block *block);

#endif
