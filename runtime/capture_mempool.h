/* The driver's pool of a capture pool, for code that calls cudaMallocAsync itself. */
#ifndef STRATA_RUNTIME_CAPTURE_MEMPOOL_H
#define STRATA_RUNTIME_CAPTURE_MEMPOOL_H

#include "runtime/capture_pool.h"

/* Destroys it, at the end of a capture pool. The pool is not active, since an active one is held. Errors: DRIVER; it is
 * there for another try. */
strata_status strata_capture_mempool_destroy(strata_capture_pool *pool);

#endif
