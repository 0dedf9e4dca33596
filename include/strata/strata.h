/* Strata: stream-ordered GPU memory from a stack of layers. This header includes all of it. */
#ifndef STRATA_H
#define STRATA_H

#include <strata/aligned.h>
#include <strata/arrow.h>
#include <strata/async.h>
#include <strata/binning.h>
#include <strata/block.h>
#include <strata/budget.h>
#include <strata/callback.h>
#include <strata/conditional.h>
#include <strata/control.h>
#include <strata/device_state.h>
#include <strata/direct.h>
#include <strata/dlpack.h>
#include <strata/emitter.h>
#include <strata/failure_callback.h>
#include <strata/fallback.h>
#include <strata/fault.h>
#include <strata/fence.h>
#include <strata/fixed.h>
#include <strata/graph.h>
#include <strata/graphed.h>
#include <strata/guard.h>
#include <strata/info.h>
#include <strata/launch.h>
#include <strata/logging.h>
#include <strata/managed.h>
#include <strata/null.h>
#include <strata/nvtx.h>
#include <strata/pinned.h>
#include <strata/pinned_pool.h>
#include <strata/pool.h>
#include <strata/prefetch.h>
#include <strata/ref.h>
#include <strata/resource.h>
#include <strata/runtime.h>
#include <strata/scalar.h>
#include <strata/stack.h>
#include <strata/statistics.h>
#include <strata/status.h>
#include <strata/types.h>

#endif
