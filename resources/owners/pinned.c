/* pinned: one cuMemHostAlloc a block. The device's address is the host's with any flags (tests/answers/h200.txt,
 * "pinned.alloc.flags_"). */
#include <strata/pinned.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "resources/builtin.h"
#include "resources/owners/per_block.h"

enum { ALIGNMENT = 256 }; /* cuMemHostAlloc gives pages, or parts at multiples of 512: "pinned.alloc_1000" */

typedef struct pinned {
    strata_per_block base;
    unsigned flags; /* constant */
} pinned;

/* The device's free memory is irrelevant here. */
static strata_status refuse(strata_per_block *self, const strata_request *request, CUresult result)
{
    if (result != CUDA_ERROR_OUT_OF_MEMORY)
        return strata_fail_driver(result, "cuMemHostAlloc", "pinned: allocating %s (tag \"%s\")",
                                  strata_size_text(request->bytes).text, strata_tag_name(request->tag));
    strata_usage usage;
    strata_per_block_usage(&self->resource, &usage);
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->driver_code = result;
    error->driver_name = strata_driver_error_name(result);
    error->driver_call = "cuMemHostAlloc";
    error->requested = request->bytes;
    error->in_use = usage.bytes_outstanding;
    error->tag = request->tag;
    return strata_error_raise(error,
                              "pinned: out of page-locked host memory: request of %s (tag \"%.100s\"); live %s in %zu "
                              "block%s, retired %s. Free memory, or request less",
                              strata_size_text(request->bytes).text, strata_tag_name(request->tag),
                              strata_size_text(usage.live_bytes).text, usage.live_blocks,
                              usage.live_blocks == 1 ? "" : "s", strata_size_text(usage.retired_bytes).text);
}

static strata_status take_memory(strata_per_block *self, const strata_request *request, size_t alignment,
                                 CUdeviceptr *address)
{
    (void)alignment;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(self, &scope, NULL);
    if (status != STRATA_SUCCESS)
        return status;
    void *memory = NULL;
    CUresult result = strata_cu.MemHostAlloc(&memory, request->bytes, ((pinned *)self)->flags);
    strata_call_scope_leave(&scope);
    if (result != CUDA_SUCCESS)
        return refuse(self, request, result);
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

static uint32_t pinned_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
}

static const strata_resource_ops pinned_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "pinned",
    .allocate = strata_per_block_allocate,
    .deallocate = strata_per_block_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = strata_per_block_reap,
    .usage = strata_per_block_usage,
    .capabilities = pinned_capabilities,
    .find = strata_per_block_find,
    .destroy = strata_per_block_destroy,
    .device = strata_per_block_device,
};

strata_status strata_pinned_create(int ordinal, const strata_pinned_options *options, strata_resource **out)
{
    strata_pinned_options read;
    strata_device *device;
    strata_status status = strata_options_begin("pinned", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    pinned *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a pinned resource");
    strata_per_block_init(&self->base, &pinned_ops, &source, device);
    self->flags = (read.portable ? CU_MEMHOSTALLOC_PORTABLE : 0u) | (read.mapped ? CU_MEMHOSTALLOC_DEVICEMAP : 0u) |
                  (read.write_combined ? CU_MEMHOSTALLOC_WRITECOMBINED : 0u);
    *out = &self->base.resource;
    return STRATA_SUCCESS;
}

/* ---- stack texts ---- */

static const strata_option pinned_texts[] = {
    {"portable", STRATA_OPTION_BOOL, offsetof(strata_pinned_options, portable), NULL,
     "usable in the contexts of all devices"},
    {"mapped", STRATA_OPTION_BOOL, offsetof(strata_pinned_options, mapped), NULL, "mapped for the device"},
    {"write_combined", STRATA_OPTION_BOOL, offsetof(strata_pinned_options, write_combined), NULL,
     "faster over the bus, very slow for the host to read"},
};

static strata_status make_pinned(int device, const void *options, strata_resource **out)
{
    return strata_pinned_create(device, options, out);
}

const strata_layer strata_pinned_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "pinned",
    .help = "page-locked host memory",
    .options = pinned_texts,
    .option_count = sizeof pinned_texts / sizeof pinned_texts[0],
    .options_size = sizeof(strata_pinned_options),
    .create = make_pinned,
};
