/* What the calls on captured streams share: the lock, the place of a call in its capture, a block's use there. */
#ifndef STRATA_RUNTIME_CAPTURED_H
#define STRATA_RUNTIME_CAPTURED_H

#include "core/base/error.h"
#include "runtime/captures.h"

/* The log callback is the program's: errors are suppressed while the lock is held. */
static inline void strata_captured_lock(strata_runtime *runtime)
{
    strata_error_suppress_begin();
    strata_captures_lock(&runtime->captures);
}

/* Releases the lock, and then raises the error of `status`. */
static inline void strata_captured_unlock(strata_runtime *runtime, strata_status status)
{
    strata_captures_unlock(&runtime->captures);
    strata_error_suppress_end(status != STRATA_SUCCESS);
}

/* The place of work that the stream gets now, with its front in the capture. It points to `front`. */
static inline strata_capture_place strata_captured_place(strata_capture *capture, CUstream stream,
                                                         const strata_capture_front *front)
{
    return (strata_capture_place){.stream = stream, .front = front, .known = &capture->ancestors};
}

/* Adds those of the nodes that the place does not come after. False without host memory. */
static inline bool strata_captured_add_missing(strata_nodes *to, const strata_nodes *nodes, strata_capture_place *place)
{
    bool added = true;
    for (size_t i = 0; i < nodes->count && added; i++) {
        const CUgraphNode node = strata_nodes_items(nodes)[i];
        added = strata_capture_place_is_after(place, node) || strata_nodes_add(to, &node, 1);
    }
    return added;
}

/* The capture's use of a live block, noted now if need be. The lock is held. Errors: USE_AFTER_FREE,
 * OUT_OF_HOST_MEMORY. */
strata_status strata_captured_note_use(strata_capture *capture, const strata_block *block, strata_capture_use **out);

#endif
