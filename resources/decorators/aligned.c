/* aligned: requests a larger block from below and shows its user the part at a multiple of the alignment.
 *
 * The user's facts differ from those below by offsets of the address and the two sizes, kept in the block's entry with
 * their generation. They are applied to the facts that the user passes: wrong facts stay wrong, and the owner refuses
 * them. */
#include <strata/aligned.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "core/stack/stack.h"
#include "resources/builtin.h"

#include <stdatomic.h>

enum { GIVEN = 256 }; /* bytes; the alignment that every owner gives, see strata_request */

typedef struct aligned {
    strata_resource resource;
    size_t alignment, threshold; /* constant */
} aligned;

/* In a block's entry. Written by the allocating thread before the block is shown to others, generation last. Atomic: a
 * call with a stale identity may read it while the entry becomes another block's. */
typedef struct offsets {
    _Atomic uint64_t generation;
    _Atomic uint64_t address;   /* user's address minus address below */
    _Atomic uint64_t bytes;     /* size below minus user's size */
    _Atomic uint32_t alignment; /* log2 of the shown alignment; 0: as below */
} offsets;

static size_t alignment_of(const aligned *self, const strata_request *request)
{
    bool ours = request->bytes >= self->threshold && self->alignment > request->alignment;
    return ours ? self->alignment : request->alignment;
}

static strata_status refuse_size(const strata_request *request, size_t alignment)
{
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->requested = request->bytes;
    error->tag = request->tag;
    return strata_error_raise(error, "aligned: request too large: %s (tag \"%.100s\") aligned to %zu",
                              strata_size_text(request->bytes).text, strata_tag_name(request->tag), alignment);
}

/* The request for the layer below. *alignment: what this layer makes; 0: the request is forwarded unchanged. */
static strata_status request_below(const aligned *self, const strata_request *request, strata_request *below,
                                   size_t *alignment)
{
    *below = *request;
    *alignment = alignment_of(self, request);
    if (*alignment <= GIVEN || !request->bytes) {
        *alignment = 0;
        return STRATA_SUCCESS;
    }
    below->alignment = GIVEN; /* a sampling guard may give less to a request that asks for none */
    if (__builtin_add_overflow(request->bytes, *alignment - GIVEN, &below->bytes))
        return refuse_size(request, *alignment);
    return STRATA_SUCCESS;
}

static void remember(strata_resource *resource, const strata_block *below, uint64_t up, uint64_t more, size_t alignment)
{
    offsets *kept = strata_block_layer_bytes(resource, below->id);
    atomic_store_explicit(&kept->address, up, memory_order_relaxed);
    atomic_store_explicit(&kept->bytes, more, memory_order_relaxed);
    atomic_store_explicit(&kept->alignment, alignment ? (uint32_t)__builtin_ctzll(alignment) : 0, memory_order_relaxed);
    atomic_store_explicit(&kept->generation, below->id.generation, memory_order_release);
}

/* The offsets of a block; NULL for a stale or unknown identity. A layer above that holds a block uses another
 * generation. */
static const offsets *offsets_of(strata_resource *resource, strata_block_id id)
{
    const offsets *kept = strata_block_layer_bytes(resource, id);
    if (!kept || !id.generation)
        return NULL;
    uint64_t made = atomic_load_explicit(&kept->generation, memory_order_acquire);
    return strata_table_names(strata_resource_table(resource), id, made) ? kept : NULL;
}

/* A block as the layer below knows it; a freed one is forwarded unchanged, and refused there. */
static strata_block as_below(strata_resource *resource, const strata_block *block)
{
    const offsets *kept = offsets_of(resource, block->id);
    strata_block view = *block;
    if (!kept)
        return view;
    uint64_t more = atomic_load_explicit(&kept->bytes, memory_order_relaxed);
    view.address -= atomic_load_explicit(&kept->address, memory_order_relaxed);
    view.bytes += (size_t)more;
    view.requested += (size_t)more;
    return view;
}

/* Converts a block from below to the user's view; `alignment` 0: as below. */
static void show(strata_block *block, uint64_t higher, uint64_t more, size_t alignment)
{
    block->address += higher;
    block->bytes -= (size_t)more;
    block->requested -= (size_t)more;
    if (alignment)
        block->alignment = alignment;
}

static strata_status aligned_allocate(strata_resource *resource, const strata_request *request, strata_block *out)
{
    strata_resource *up = resource->upstream;
    strata_request below;
    size_t alignment;
    *out = (strata_block){0};
    strata_status status = request_below((aligned *)resource, request, &below, &alignment);
    if (status == STRATA_SUCCESS)
        status = up->ops->allocate(up, &below, out);
    else
        strata_request_refused(resource, request, status);
    if (status != STRATA_SUCCESS || !out->id.generation)
        return status;
    uint64_t over = alignment ? out->address & (alignment - 1) : 0;
    uint64_t higher = over ? alignment - over : 0, more = below.bytes - request->bytes;
    remember(resource, out, higher, more, alignment);
    show(out, higher, more, alignment); /* a thread that found the block by address may have freed it */
    return STRATA_SUCCESS;
}

static strata_status aligned_deallocate(strata_resource *resource, const strata_block *block, CUstream stream)
{
    const strata_block view = as_below(resource, block);
    return resource->upstream->ops->deallocate(resource->upstream, &view, stream);
}

static strata_status aligned_prepare(strata_resource *resource, const strata_block *block, CUstream stream,
                                     strata_access access)
{
    const strata_block view = as_below(resource, block);
    return resource->upstream->ops->prepare_use(resource->upstream, &view, stream, access);
}

static strata_status aligned_finish(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    const strata_block view = as_below(resource, block);
    return resource->upstream->ops->finish_use(resource->upstream, &view, stream, access);
}

static strata_status aligned_record(strata_resource *resource, const strata_block *block, CUstream stream,
                                    strata_access access)
{
    const strata_block view = as_below(resource, block);
    return resource->upstream->ops->record_use(resource->upstream, &view, stream, access);
}

/* Finds a block by an address in its shown part: the bytes outside belong to no block of the user. */
static strata_status aligned_find(strata_resource *resource, CUdeviceptr address, strata_block *out)
{
    strata_status status = resource->upstream->ops->find(resource->upstream, address, out);
    if (status != STRATA_SUCCESS)
        return status;
    const offsets *kept = offsets_of(resource, out->id);
    if (kept) {
        uint32_t log2 = atomic_load_explicit(&kept->alignment, memory_order_relaxed);
        show(out, atomic_load_explicit(&kept->address, memory_order_relaxed),
             atomic_load_explicit(&kept->bytes, memory_order_relaxed), log2 ? (size_t)1 << log2 : 0);
        if (address >= out->address && address - out->address < out->bytes)
            return STRATA_SUCCESS;
    }
    *out = (strata_block){0};
    return strata_fail(STRATA_ERROR_FOREIGN_POINTER, "no live block of this stack contains the address 0x%llx",
                       (unsigned long long)address);
}

static strata_status aligned_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    strata_request below;
    size_t alignment;
    *bytes = 0;
    strata_status status = request_below((aligned *)resource, request, &below, &alignment);
    return status == STRATA_SUCCESS ? resource->upstream->ops->charge(resource->upstream, &below, bytes) : status;
}

static strata_status aligned_reusable(strata_resource *resource, const strata_request *request, size_t *bytes,
                                      strata_block_id *of)
{
    strata_request below;
    size_t alignment;
    *bytes = 0;
    *of = (strata_block_id){0};
    strata_status status = request_below((aligned *)resource, request, &below, &alignment);
    return status == STRATA_SUCCESS ? resource->upstream->ops->reusable(resource->upstream, &below, bytes, of) : status;
}

static void aligned_destroy(strata_resource *resource)
{
    strata_host_free(resource);
}

static const strata_resource_ops aligned_ops = {
    .size = sizeof(strata_resource_ops),
    .block_bytes = sizeof(offsets),
    .name = "aligned",
    .allocate = aligned_allocate,
    .deallocate = aligned_deallocate,
    .prepare_use = aligned_prepare,
    .finish_use = aligned_finish,
    .record_use = aligned_record,
    .charge = aligned_charge,
    .find = aligned_find,
    .destroy = aligned_destroy,
    .reusable = aligned_reusable,
};

strata_status strata_aligned_create(const strata_aligned_options *options, strata_resource **out)
{
    strata_aligned_options read;
    strata_status status = strata_options_begin("aligned", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS && (read.alignment & (read.alignment - 1)))
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "aligned: alignment of %llu bytes is not a power of two",
                             (unsigned long long)read.alignment);
    if (status != STRATA_SUCCESS)
        return status;
    aligned *self = strata_host_zalloc(sizeof *self);
    if (!self)
        return strata_fail_host_memory("an aligned layer");
    self->resource.ops = &aligned_ops;
    self->alignment = (size_t)read.alignment;
    self->threshold = (size_t)read.threshold;
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static const strata_option aligned_texts[] = {
    {"alignment", STRATA_OPTION_SIZE, offsetof(strata_aligned_options, alignment), NULL,
     "alignment of addresses, a power of two"},
    {"threshold", STRATA_OPTION_SIZE, offsetof(strata_aligned_options, threshold), NULL,
     "smallest block that is aligned; default: all"},
};

static strata_status make_aligned(int device, const void *options, strata_resource **out)
{
    (void)device;
    return strata_aligned_create(options, out);
}

const strata_layer strata_aligned_layer = {
    .size = sizeof(strata_layer),
    .name = "aligned",
    .help = "larger alignments",
    .options = aligned_texts,
    .option_count = sizeof aligned_texts / sizeof aligned_texts[0],
    .options_size = sizeof(strata_aligned_options),
    .create = make_aligned,
};
