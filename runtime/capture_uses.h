/* What a capture notes: blocks, and where in the graph they were used. Guarded by the client's lock. */
#ifndef STRATA_RUNTIME_CAPTURE_USES_H
#define STRATA_RUNTIME_CAPTURE_USES_H

#include "runtime/graph_ancestors.h"
#include "runtime/references.h"

#include <strata/graph.h>

/* Work of the capture that used a block: what comes after it in the graph must come after these nodes. */
typedef struct strata_capture_mark {
    bool writes;
    strata_nodes nodes;
} strata_capture_mark;

typedef enum strata_capture_kind {
    STRATA_CAPTURE_OUTSIDE, /* a block of the stack, which is kept */
    STRATA_CAPTURE_SEGMENT, /* a segment of the capture's pool, or of a part's */
    STRATA_CAPTURE_AROUND,  /* in a body: a block of the pool, allocated in a capture around it and live there */
} strata_capture_kind;

typedef struct strata_capture_use {
    strata_block block;
    strata_access access; /* NONE: it is kept, and not used */
    strata_capture_kind kind;
    strata_capture_pool *pool;  /* of a segment: its pool */
    strata_capture_mark *marks; /* the last write and the reads since, as far as known */
    size_t count, room;
} strata_capture_use;

/* Items are added at the end, and leave only all together. */
typedef struct strata_capture_uses {
    strata_capture_use *items;
    size_t count, room;
    uint32_t *index; /* hashed by slot: positions of the first `indexed` items, plus 1; NULL while there are few */
    size_t index_mask, indexed;
    struct strata_ref **refs; /* that launches in the capture named; held */
    size_t ref_count, ref_room;
    strata_capture_pool **parts; /* other pools, of whose memory graphs that are parts took; held */
    size_t part_count, part_room;
} strata_capture_uses;

/* The use of a block; NULL if there is none. */
strata_capture_use *strata_capture_find_use(strata_capture_uses *uses, strata_block_id id);

/* Adds the use of a block; NULL without host memory. */
strata_capture_use *strata_capture_add_use(strata_capture_uses *uses, const strata_block *block,
                                           strata_capture_kind kind);

/* Room for `count` uses more; false without host memory. */
bool strata_capture_reserve_uses(strata_capture_uses *uses, size_t count);

/* Whether memory of the pool is among them. */
bool strata_capture_took_memory(const strata_capture_uses *uses, const strata_capture_pool *pool);

/* Lists the pool among the parts', once, and holds it. False without host memory. */
bool strata_capture_add_part(strata_capture_uses *uses, strata_capture_pool *pool);

/* Room for one mark more; false without host memory. */
bool strata_capture_reserve_mark(strata_capture_use *use);

/* Notes work whose nodes are the place's front. Errors: OUT_OF_HOST_MEMORY. */
strata_status strata_capture_mark_use_slow(strata_capture_use *use, bool writes, strata_capture_place *place);
static inline strata_status strata_capture_mark_use(strata_capture_use *use, bool writes, strata_capture_place *place)
{
    const strata_capture_front *front = place->front;
    if (use->count || !use->room || front->count > 1)
        return strata_capture_mark_use_slow(use, writes, place);
    strata_capture_mark *mark = use->marks; /* the first, of a node at most, needs no host memory */
    mark->writes = writes;
    mark->nodes.items = NULL; /* what was there has moved, or was freed */
    mark->nodes.count = front->count;
    if (front->count)
        mark->nodes.few[0] = front->nodes[0];
    use->count = 1;
    return STRATA_SUCCESS;
}

static inline void strata_capture_clear_marks(strata_capture_use *use) /* keeps their room */
{
    for (size_t i = 0; i < use->count; i++)
        strata_nodes_free(&use->marks[i].nodes);
    use->count = 0;
}

void strata_capture_free_marks(strata_capture_use *use);

/* Frees the arrays; marks, references and pools are the caller's. */
void strata_capture_free_uses(strata_capture_uses *uses);

/* Holds a reference, once. Errors: OUT_OF_HOST_MEMORY. */
strata_status strata_capture_hold_ref(strata_capture_uses *uses, strata_ref *ref);

#endif
