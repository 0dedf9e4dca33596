/* The memory of a capture pool: segments, which are blocks of the stack, cut into ranges. A range is a live block of
 * the pool, or free.
 *
 * What was freed in a capture is used again in it only by work that comes, in the graph, after all work that used it: a
 * free range has the nodes that such work must come after. Other captures use it when that one has ended: two graphs
 * that share a segment do not run at a time (runtime/graphs.c). Guarded by its client's lock. */
#ifndef STRATA_RUNTIME_CAPTURE_RANGES_H
#define STRATA_RUNTIME_CAPTURE_RANGES_H

#include "core/blocks/blocks.h"
#include "runtime/graph_ancestors.h"

enum {
    STRATA_CAPTURE_GRAIN = 256,             /* bytes: sizes are multiples, addresses are aligned */
    STRATA_CAPTURE_SEGMENT_SMALL = 2 << 20, /* bytes of a segment for requests of at most half of it */
    STRATA_CAPTURE_SIZES = 320,             /* eight sizes of free ranges a doubling, see size_of */
};

typedef struct strata_capture_range {
    struct strata_capture_range *previous, *next; /* in the segment, by address */
    struct strata_capture_range *same_previous,
        *same_next; /* while it is free: in the list of its size, the latest first */
    struct strata_capture_segment *segment;
    CUdeviceptr address;
    size_t bytes;
    uint16_t size; /* while it is free: the index of that list */
    bool live;
    cuuint64_t capture; /* under way, in which it was freed: it and its bodies may use it again; 0: free for all */
    bool barred;        /* not for that capture either: the order of its uses is lost */
    strata_nodes after; /* freed in a capture: nodes that new work must come after; live: those of a free under way */
} strata_capture_range;

typedef struct strata_capture_segment {
    struct strata_capture_segment *next;
    strata_block block; /* the stack's */
    strata_entry *entry;
    strata_capture_range *first;
    size_t live; /* number of live ranges */
    size_t free_bytes;
    cuuint64_t within; /* the last capture that took memory of it */
} strata_capture_segment;

/* All zero: empty. */
typedef struct strata_capture_ranges {
    strata_capture_segment *segments;
    strata_capture_range *free_by_size[STRATA_CAPTURE_SIZES];
    uint64_t sizes[STRATA_CAPTURE_SIZES / 64]; /* a bit for each size that has a free range */
    strata_capture_range *spare;               /* linked by `next`, for the next cuts */
    size_t reserved, in_use;                   /* bytes */
} strata_capture_ranges;

/* Takes the free range that fits best, or else neighbours that fit together, with `bytes` a multiple of the grain;
 * NULL: none fits. Also NULL, with *failed, without host memory. */
strata_capture_range *strata_capture_ranges_take(strata_capture_ranges *ranges, size_t bytes, size_t alignment,
                                                 strata_capture_place *place, bool *failed);

/* Adds a block of the stack, with its entry, as a free segment. False without host memory. */
bool strata_capture_ranges_add(strata_capture_ranges *ranges, const strata_block *block, strata_entry *entry);

/* Frees a live range outside of captures. */
void strata_capture_ranges_give(strata_capture_ranges *ranges, strata_capture_range *range);

/* Frees a live range in a capture. Its `after` has the place's front, and the nodes of other work that used it. */
void strata_capture_ranges_give_within(strata_capture_ranges *ranges, strata_capture_range *range, cuuint64_t capture,
                                       strata_capture_place *place);

/* Gives back a range that was taken in vain. The order that it had is lost, so the capture does not use it again. */
void strata_capture_ranges_give_barred(strata_capture_ranges *ranges, strata_capture_range *range, cuuint64_t capture);

/* After the end of a body's capture: what was freed in it is free for the capture around it, behind the body's node. */
void strata_capture_ranges_body_ended(strata_capture_ranges *ranges, cuuint64_t body, cuuint64_t around,
                                      CUgraphNode node);

/* After the end of a capture: what was freed in it is free for all. */
void strata_capture_ranges_capture_ended(strata_capture_ranges *ranges, cuuint64_t capture);

/* Frees the ranges and segments themselves; the segments' blocks are the caller's. */
void strata_capture_ranges_free(strata_capture_ranges *ranges);

#endif
