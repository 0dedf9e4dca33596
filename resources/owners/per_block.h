/* Owners that get each block with a call of its own and give it back when nothing can touch it any more: direct,
 * managed, pinned, callback.
 *
 * What they share is here: live blocks by address, counts, frees that wait, frees that a capture holds back. An owner
 * embeds strata_per_block as its first member, says where blocks come from and go to (strata_per_block_source), and
 * puts the strata_single_ functions into its ops table. */
#ifndef STRATA_RESOURCES_OWNERS_PER_BLOCK_H
#define STRATA_RESOURCES_OWNERS_PER_BLOCK_H

#include "core/base/counters.h"
#include "core/blocks/address_index.h"
#include "core/stack/stack.h"

typedef struct strata_per_block strata_per_block;

typedef struct strata_per_block_source {
    /* What each address is a multiple of, a power of two and at least 256, and the most that a request may ask for. */
    size_t alignment, most_alignment;

    /* Gets the memory of a request that asks for at least one byte, at a multiple of `alignment`, or raises why not. */
    strata_status (*take)(strata_per_block *self, const strata_request *request, size_t alignment,
                          CUdeviceptr *address);

    /* Gives it back, or raises why not. All facts of the block are those of its allocation; it has no identity if that
     * came to nothing. Without `ordered` below,
     * nothing can touch the block any more; with it, work before this point of `stream` may. */
    strata_status (*give)(strata_per_block *self, const strata_block *block, CUstream stream);
} strata_per_block_source;

struct strata_per_block {
    strata_resource resource;
    const strata_per_block_source *source;
    strata_device *device;
    bool ordered; /* give() is ordered by its stream: a free makes that wait for the block's uses, and not the host */
    strata_counters counters;
    strata_lock lock;
    strata_address_index index; /* live blocks by address, and blocks whose free is under way; guarded by lock */
};

/* Prepares a zeroed owner; it cannot fail. `ordered` may be set behind it. */
void strata_per_block_init(strata_per_block *self, const strata_resource_ops *ops,
                           const strata_per_block_source *source, strata_device *device);

/* Ends what init and the calls have made; the owner frees itself. */
void strata_per_block_clear(strata_per_block *self);

/* For the ops table. strata_per_block_destroy is for an owner with nothing else to end: it frees `self`. */
strata_status strata_per_block_allocate(strata_resource *resource, const strata_request *request, strata_block *out);
strata_status strata_per_block_deallocate(strata_resource *resource, const strata_block *block, CUstream stream);
strata_status strata_per_block_reap(strata_resource *resource, strata_reap_mode mode, size_t *bytes);
strata_status strata_per_block_usage(strata_resource *resource, strata_usage *usage);
strata_status strata_per_block_find(strata_resource *resource, CUdeviceptr address, strata_block *out);
int strata_per_block_device(strata_resource *resource);
void strata_per_block_destroy(strata_resource *resource);

/* The scope of a call that takes memory (`given` is NULL) or gives a block back. For a block without an identity, whose
 * allocation has come to nothing, it is tried twice: nobody gives its memory back a second time. */
strata_status strata_per_block_enter(strata_per_block *self, strata_scope *scope, const strata_block *given);

/* For give(): cuMemFree, for memory that is freed so. */
strata_status strata_per_block_free_memory(strata_per_block *self, const strata_block *block, CUstream stream);

/* Whether a live block begins at `address`. Any thread. */
bool strata_per_block_has(strata_per_block *self, CUdeviceptr address);

#endif
