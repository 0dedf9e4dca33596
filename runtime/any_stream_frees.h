/* Frees of memory that any stream may use: they come after all work of the device so far, and wait for it together. */
#ifndef STRATA_RUNTIME_ANY_STREAM_FREES_H
#define STRATA_RUNTIME_ANY_STREAM_FREES_H

#include "runtime/runtime.h"

/* The free is done now or is due. Errors, of a free that is tried now: as strata_runtime_deallocate_on. */
strata_status strata_any_stream_free(strata_runtime *runtime, const strata_block *block);

/* Makes the free of a live block due, which the next call tries. False without host memory. */
bool strata_any_stream_free_later(const strata_block *block);

/* Whether a live block was freed, and the free is due. */
bool strata_any_stream_free_is_due(const strata_block *block);

/* Tries all frees that are due, behind one wait for each device. A try of another thread is waited for. True: some
 * memory became free. Before memory is refused or counted, and before a runtime looks for live blocks. */
bool strata_any_stream_frees_do(void);

/* As above, if the last try has left some, and no other thread tries: in the calls that come next. */
void strata_any_stream_frees_try(void);

/* Whether frees of blocks of this stack may wait. */
bool strata_any_stream_frees_may_wait(const strata_stack *stack);

/* Counts the blocks whose free is due as retired, not as live. */
void strata_any_stream_frees_count(const strata_runtime *runtime, strata_usage *usage);

extern _Atomic uint32_t strata_any_stream_frees_due; /* frees; any thread */

static inline bool strata_any_stream_frees_are_due(void)
{
    return atomic_load_explicit(&strata_any_stream_frees_due, memory_order_acquire) != 0;
}

#endif
