/* Frees of memory that any stream may use: they wait for all work of the device, and come after none. */
#ifndef STRATA_RUNTIME_ANY_STREAM_FREES_H
#define STRATA_RUNTIME_ANY_STREAM_FREES_H

#include "runtime/runtime.h"

/* Frees a block after a wait for all work of the device. If the driver refuses the wait because of a capture, the call
 * succeeds and the free is due: strata_any_stream_frees_try does it later. Errors: as strata_runtime_deallocate_on. */
strata_status strata_any_stream_free(strata_runtime *runtime, const strata_block *block);

/* Makes the free of a live block due. False without host memory. */
bool strata_any_stream_free_later(const strata_block *block);

/* Whether a live block was freed, and the free is due. */
bool strata_any_stream_free_is_due(const strata_block *block);

/* Tries the frees that are due: at the head of later calls. */
void strata_any_stream_frees_try(void);

/* As strata_any_stream_frees_try, before a runtime looks for live blocks: waits for other threads that try those of the
 * runtime. */
void strata_any_stream_frees_finish(const strata_runtime *runtime);

#endif
