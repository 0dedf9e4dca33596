/* direct: one cuMemAlloc a block. A free waits on the host until no work can touch the block. */
#include <strata/direct.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "resources/builtin.h"
#include "resources/owners/out_of_memory.h"
#include "resources/owners/per_block.h"

enum {
    ALIGNMENT = 256,      /* CUDA C++ Programming Guide, "Device Memory Accesses" */
    CHARGE_GRANULE = 512, /* of cuMemAlloc: tests/answers/h200.txt, "memory." */
};

static strata_status take_memory(strata_per_block *self, const strata_request *request, size_t alignment,
                                 CUdeviceptr *address)
{
    (void)alignment;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(self, &scope, NULL);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.MemAlloc(address, request->bytes);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    return strata_fail_allocation(&self->resource, request, result, "cuMemAlloc");
}

static const strata_per_block_source source = {
    .alignment = ALIGNMENT,
    .most_alignment = ALIGNMENT,
    .of_device = true,
    .take = take_memory,
    .give = strata_per_block_free_memory,
};

static strata_status direct_charge(strata_resource *resource, const strata_request *request, size_t *bytes)
{
    (void)resource;
    size_t most = ~(size_t)(CHARGE_GRANULE - 1); /* more cannot be rounded up, and exceeds any device */
    *bytes = request->bytes > most ? SIZE_MAX : (request->bytes + CHARGE_GRANULE - 1) & most;
    return STRATA_SUCCESS;
}

static uint32_t direct_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND | STRATA_CAPABILITY_DEVICE_MEMORY;
}

static const strata_resource_ops direct_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "direct",
    .allocate = strata_per_block_allocate,
    .deallocate = strata_per_block_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = strata_per_block_reap,
    .usage = strata_per_block_usage,
    .charge = direct_charge,
    .capabilities = direct_capabilities,
    .find = strata_per_block_find,
    .destroy = strata_per_block_destroy,
    .device = strata_per_block_device,
};

strata_status strata_direct_create(int ordinal, const strata_direct_options *options, strata_resource **out)
{
    strata_direct_options read;
    strata_device *device;
    strata_status status = strata_options_begin("direct", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    strata_per_block *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a direct resource");
    strata_per_block_init(self, &direct_ops, &source, device);
    *out = &self->resource;
    return STRATA_SUCCESS;
}

static strata_status make_direct(int device, const void *options, strata_resource **out)
{
    return strata_direct_create(device, options, out);
}

const strata_layer strata_direct_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "direct",
    .help = "one cuMemAlloc for each block",
    .options_size = sizeof(strata_direct_options),
    .create = make_direct,
};
