/* single=on: one cuMemHostAlloc a block, whose free waits on the host. */
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/size_text.h"
#include "resources/owners/per_block.h"
#include "resources/pinned/internal.h"

enum { ALIGNMENT = 256 }; /* cuMemHostAlloc gives pages, or parts at multiples of 512: "pinned.alloc_1000" */

typedef struct single {
    strata_per_block base;
    unsigned flags; /* constant */
    int numa;       /* constant: pinned_host_alloc */
} single;

static strata_status take_memory(strata_per_block *self, const strata_request *request, size_t alignment,
                                 CUdeviceptr *address)
{
    (void)alignment;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(self, &scope, NULL);
    if (status != STRATA_SUCCESS)
        return status;
    void *memory = NULL;
    CUresult result = pinned_host_alloc(&memory, request->bytes, ((single *)self)->flags, ((single *)self)->numa);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return pinned_refuse(&self->resource, request, result);
    *address = (CUdeviceptr)(uintptr_t)memory;
    return STRATA_SUCCESS;
}

static strata_status give_memory(strata_per_block *self, const strata_block *block, CUstream stream)
{
    (void)stream;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(self, &scope, block);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.MemFreeHost((void *)(uintptr_t)block->address);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    return strata_fail_driver(result, "cuMemFreeHost", "freeing block 0x%llx", (unsigned long long)block->address);
}

static const strata_per_block_source source = {
    .alignment = ALIGNMENT,
    .most_alignment = ALIGNMENT,
    .take = take_memory,
    .give = give_memory,
};

static uint32_t single_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
}

static const strata_resource_ops single_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "pinned",
    .allocate = strata_per_block_allocate,
    .deallocate = strata_per_block_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = strata_per_block_reap,
    .usage = strata_per_block_usage,
    .capabilities = single_capabilities,
    .find = strata_per_block_find,
    .destroy = strata_per_block_destroy,
    .device = strata_per_block_device,
};

strata_status pinned_single_create(strata_device *device, const strata_pinned_options *options, strata_resource **out)
{
    single *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a pinned resource");
    strata_per_block_init(&self->base, &single_ops, &source, device);
    self->flags = pinned_flags(options);
    self->numa = options->numa;
    *out = &self->base.resource;
    return STRATA_SUCCESS;
}
