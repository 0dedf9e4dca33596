/* The blocks of a graph, in the form that its launches read: where no layer hears of uses, a launch on a stream that
 * used them all last looks at each of them once and calls nothing. Guarded by the launches' lock of the pool. */
#ifndef STRATA_RUNTIME_GRAPH_USES_H
#define STRATA_RUNTIME_GRAPH_USES_H

#include "runtime/capture_pool.h"
#include "runtime/capture_uses.h"

typedef struct strata_graph_use {
    const strata_entry *entry;
    strata_access access;
    bool of_pool; /* may be freed at any time; the use of its segment, which is here too, covers it */
} strata_graph_use;

/* All zero: to be listed. */
typedef struct strata_graph_uses {
    strata_graph_use *items;
    strata_block *blocks; /* in the order of `items` */
    size_t count, room;
    bool listed;
    uint64_t changes; /* strata_graph_uses_changes when it was listed */
} strata_graph_uses;

/* Lists all blocks that the graph's work may touch, if its uses or the pool's blocks have changed: a segment stands for
 * what was freed in the capture. Errors: OUT_OF_HOST_MEMORY. */
strata_status strata_graph_uses_list(strata_graph_uses *uses, const strata_capture_uses *of, strata_capture_pool *pool);
void strata_graph_uses_free(strata_graph_uses *uses);

/* How often the live blocks of the graph's pool and of its parts' pools have changed so far. */
uint64_t strata_graph_uses_changes(const strata_capture_uses *of, const strata_capture_pool *pool);

/* The first, before a launch, makes the stream wait for earlier uses; the second, after it, notes the launch's uses.
 * *noted goes from one to the other: the stream's point if all uses were noted at it already, else 0. For a runtime
 * that tracks plainly. */
strata_status strata_graph_uses_wait(const strata_graph_uses *uses, const strata_runtime *runtime, CUstream stream,
                                     strata_point *noted);
strata_status strata_graph_uses_note(const strata_graph_uses *uses, const strata_runtime *runtime, CUstream stream,
                                     strata_point noted);

#endif
