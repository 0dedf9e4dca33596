/* Frees of blocks that captures and graphs kept. */
#ifndef STRATA_RUNTIME_GRAPH_FREES_H
#define STRATA_RUNTIME_GRAPH_FREES_H

#include "runtime/runtime.h"

/* Frees a block on its allocation stream, whose handle may be dead by now. After an error later calls try again. */
strata_status strata_graph_free_late(strata_runtime *runtime, const strata_block *block);

/* Frees a block that nothing keeps any more (strata_kept_drop); after an error later calls try again. If the program
 * has forked the block's stream into another capture, the free waits for that capture's end. */
strata_status strata_graph_free_dropped(strata_runtime *runtime, struct strata_kept_block *dropped);

/* Tries again the frees, and the ends of pools, that have failed. */
void strata_graphs_free_due(strata_runtime *runtime);

#endif
