/* Frees of blocks that captures and graphs kept. */
#ifndef STRATA_RUNTIME_GRAPH_FREES_H
#define STRATA_RUNTIME_GRAPH_FREES_H

#include "runtime/runtime.h"

/* Frees a block on its own stream, of which the handle may be dead by now; after an error it is tried again by later
 * calls. */
strata_status strata_graph_free_late(strata_runtime *runtime, const strata_block *block);

/* The free of a block that nothing keeps any more (strata_kept_drop); after an error it is tried again by later calls.
 * A stream that the program has forked into another capture takes none: it waits for that one's end. */
strata_status strata_graph_free_dropped(strata_runtime *runtime, struct strata_kept_block *dropped);

/* Tries those again that failed, and the ends of pools that failed. */
void strata_graphs_free_due(strata_runtime *runtime);

#endif
