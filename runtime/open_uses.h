/* Open uses: streams that use a block until its free (strata_runtime_use_until_free).
 *
 * A block's streams are kept beside the block, by its slot. The free first records a use on each of them: the owner
 * then orders the reuse of the memory as after any other use. Whether there may be any, a free reads from
 * captures.used, which also tells it of captures. */
#ifndef STRATA_RUNTIME_OPEN_USES_H
#define STRATA_RUNTIME_OPEN_USES_H

#include "core/base/lock.h"

#include <strata/runtime.h>

struct strata_open_uses_block;

typedef struct strata_open_uses {
    strata_lock lock;                       /* nothing is called under it */
    struct strata_open_uses_block *by_slot; /* guarded by lock */
    _Atomic size_t count;                   /* of blocks; written under lock, read by any thread */
} strata_open_uses;

void strata_open_uses_init(strata_open_uses *all);
void strata_open_uses_destroy(strata_open_uses *all);

/* For a free. The first records the block's open uses and leaves them open, for a free that may fail; the second ends
 * them, after a success. Errors: of a use that could be neither recorded nor waited for. */
strata_status strata_open_uses_record(strata_runtime *runtime, const strata_block *block);
void strata_open_uses_forget(strata_runtime *runtime, const strata_block *block);

static inline bool strata_open_uses_any(const strata_open_uses *all)
{
    return atomic_load_explicit(&all->count, memory_order_acquire) != 0;
}

#endif
