/* `fallback`: memory from one owner, and what that refuses for lack of memory from the next one.
 *
 * The layer stands over two or more branches, each a stack of layers that ends in an owner. In a text:
 * "budget(limit=120MiB), fallback(pool(max_size=64MiB) | managed)". A request goes to the first branch; if it answers
 * OUT_OF_MEMORY or OUT_OF_BUDGET, to the next one. Any other failure is the request's, except that a later branch that
 * answers UNSUPPORTED, as to a large alignment, is passed over. Frees and uses go to the branch that has the block.
 *
 * A failure that a later branch makes good reaches neither the error record nor the log callback. If every branch
 * refuses, the record is the last one's, and its message has the earlier ones.
 *
 * Of the layer: `usage` adds the branches (reserved_peak is unknown once several have reserved memory; limit and budget
 * exist if each branch has one); `charge` is the largest of theirs; `trim` takes from the last branch first; a
 * capability is there if every branch has it, STREAM_ORDERED never: a branch may wait for the device before it
 * refuses. */
#ifndef STRATA_FALLBACK_H
#define STRATA_FALLBACK_H

#include <strata/resource.h>

#ifdef __cplusplus
extern "C" {
#endif

#define STRATA_FALLBACK_BRANCHES 8 /* at most */

typedef struct strata_fallback_options {
    uint32_t size;
    uint32_t branch_count;         /* 2 to STRATA_FALLBACK_BRANCHES */
    const strata_branch *branches; /* in the order in which they are tried; read during the call */
} strata_fallback_options;

/* Makes the layer, to stand last in its chain. The branches' layers then belong to it, until it is in a stack to the
 * layer, then to the stack; on failure they remain the caller's.
 *
 * Values: fell_back: requests served by a later branch than the first; refused: requests that every branch refused.
 * strata_stats_print has the usage of each branch.
 *
 * Errors: INVALID_VALUE (number of branches; a branch is empty; a layer is NULL, in a stack, or named twice). */
STRATA_API strata_status strata_fallback_create(const strata_fallback_options *options, strata_resource **out);

#ifdef __cplusplus
}
#endif

#endif
