/* Owners with one driver allocation a block: direct, managed, callback, pinned(single=on).
 *
 * Shared: the index of live blocks, counts, waits of frees, and frees in a capture. An owner embeds strata_per_block as
 * its first member, takes and gives memory through strata_per_block_source, and puts the functions below into its ops
 * table. */
#ifndef STRATA_RESOURCES_OWNERS_PER_BLOCK_H
#define STRATA_RESOURCES_OWNERS_PER_BLOCK_H

#include "core/base/counters.h"
#include "core/blocks/address_index.h"
#include "core/stack/stack.h"

typedef struct strata_per_block strata_per_block;

typedef struct strata_per_block_source {
    /* Alignment of each address (a power of two, at least 256), and the largest of a request. */
    size_t alignment, most_alignment;
    bool of_device; /* if the device refuses, other stacks give free memory back */

    /* Takes memory for at least one byte at a multiple of `alignment`, or raises an error. */
    strata_status (*take)(strata_per_block *self, const strata_request *request, size_t alignment,
                          CUdeviceptr *address);

    /* Gives memory back, or raises an error. The block has the facts of its allocation, and no identity if the
     * allocation failed. If `ordered`, work submitted to `stream` so far may still use the memory; otherwise none can.
     */
    strata_status (*give)(strata_per_block *self, const strata_block *block, CUstream stream);
} strata_per_block_source;

struct strata_per_block {
    strata_resource resource;
    const strata_per_block_source *source;
    strata_device *device;
    bool ordered; /* give() is ordered by its stream: uses delay the stream of a free, not the host */
    strata_counters counters;
    strata_lock lock;
    strata_address_index index; /* live blocks, and blocks whose free is in flight; guarded by lock */
};

/* Begins an owner. `self` is zeroed; `ordered` may be set afterwards. */
void strata_per_block_init(strata_per_block *self, const strata_resource_ops *ops,
                           const strata_per_block_source *source, strata_device *device);

/* Destroys all but the memory of `self`. */
void strata_per_block_clear(strata_per_block *self);

/* Operations for the ops table. strata_per_block_destroy frees `self`: for an owner without further members. */
strata_status strata_per_block_allocate(strata_resource *resource, const strata_request *request, strata_block *out);
strata_status strata_per_block_deallocate(strata_resource *resource, const strata_block *block, CUstream stream);
strata_status strata_per_block_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes);
strata_status strata_per_block_usage(strata_resource *resource, strata_usage *usage);
strata_status strata_per_block_find(strata_resource *resource, CUdeviceptr address, strata_block *out);
int strata_per_block_device(strata_resource *resource);
void strata_per_block_destroy(strata_resource *resource);

/* Enters the scope of a call that takes memory (`given` is NULL) or gives it back. Tries twice for a block without an
 * identity, which is given back only once. */
strata_status strata_per_block_enter(strata_per_block *self, strata_call_scope *scope, const strata_block *given);

/* A give() that calls cuMemFree. */
strata_status strata_per_block_free_memory(strata_per_block *self, const strata_block *block, CUstream stream);

/* Whether a live block begins at `address`. Any thread. */
bool strata_per_block_has(strata_per_block *self, CUdeviceptr address);

#endif
