/* managed: one cuMemAllocManaged a block.
 *
 * Room. The driver never refuses managed memory: it occupies the device only where touched, and the device pages.
 * Without oversubscription the layer compares its claimed bytes with the device's free memory. That is the room for its
 * blocks only while it has none; later, migrated blocks reduce the free memory by an unknown amount. So the room is the
 * answer when there was no block, or a larger later one. */
#include <strata/managed.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "core/stack/neighbours.h"
#include "resources/builtin.h"
#include "resources/owners/out_of_memory.h"
#include "resources/owners/per_block.h"

enum { ALIGNMENT = 256 }; /* cuMemAllocManaged: at least 512: tests/answers/h200.txt, "managed.alloc.1000" */

typedef struct managed {
    strata_per_block base;
    strata_managed_options options; /* constant */
    strata_lock room_lock;
    size_t claimed; /* bytes of blocks live or being allocated; guarded by room_lock */
    size_t room;    /* bytes that may be claimed; guarded by room_lock */
} managed;

/* ---- room ---- */

static strata_status refuse_room(const managed *self, const strata_request *request, size_t device_free, size_t claimed,
                                 size_t room)
{
    char beside[STRATA_NEIGHBOURS_TEXT];
    strata_neighbours_describe(self->base.device, self->base.resource.stack, beside);
    strata_error *error = strata_error_begin(STRATA_ERROR_OUT_OF_MEMORY);
    error->requested = request->bytes;
    error->in_use = claimed;
    error->limit = room;
    error->remaining = room > claimed ? room - claimed : 0;
    error->device_free = device_free;
    error->tag = request->tag;
    return strata_error_raise(error,
                              "managed: out of memory: request of %s (tag \"%.100s\") on device %d; live %s, limit %s, "
                              "free on the device %s of %s%s. Free memory, or set oversubscribe=on",
                              strata_size_text(request->bytes).text, strata_tag_name(request->tag),
                              self->base.device->ordinal, strata_size_text(claimed).text, strata_size_text(room).text,
                              strata_size_text(device_free).text,
                              strata_size_text(self->base.device->info.total_bytes).text, beside);
}

static strata_status query_device_free(strata_device *device, size_t *bytes)
{
    size_t total;
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    CUresult result = strata_cu.MemGetInfo(bytes, &total);
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    return strata_fail_driver(result, "cuMemGetInfo", "managed: reading the free memory of device %d", device->ordinal);
}

static strata_status claim_room(managed *self, const strata_request *request)
{
    strata_reclaim reclaim = {.device = self->base.device, .owner = &self->base.resource, .bytes = request->bytes};
    if (self->options.oversubscribe)
        return STRATA_SUCCESS;
    for (;;) {
        size_t device_free;
        strata_status status = query_device_free(self->base.device, &device_free);
        if (status != STRATA_SUCCESS)
            return status;
        strata_lock_take(&self->room_lock);
        if (self->claimed == 0 || device_free > self->room)
            self->room = device_free;
        const size_t claimed = self->claimed, room = self->room;
        const bool has_room = claimed <= room && request->bytes <= room - claimed;
        const bool fits = request->bytes <= device_free && has_room;
        if (fits)
            self->claimed += request->bytes;
        strata_lock_release(&self->room_lock);
        if (fits)
            return STRATA_SUCCESS;
        if ((claimed && !has_room) || !strata_reclaim_try_all(&reclaim))
            return refuse_room(self, request, device_free, claimed, room);
    }
}

static void give_room_back(managed *self, size_t bytes)
{
    if (self->options.oversubscribe)
        return;
    strata_lock_take(&self->room_lock);
    self->claimed -= bytes;
    strata_lock_release(&self->room_lock);
}

/* ---- memory ---- */

static CUresult advise(const managed *self, CUdeviceptr address, size_t bytes)
{
    const strata_managed_options *options = &self->options;
    const CUmemLocation device = {.type = CU_MEM_LOCATION_TYPE_DEVICE, .id = self->base.device->handle};
    const CUmemLocation host = {.type = CU_MEM_LOCATION_TYPE_HOST};
    CUresult result = CUDA_SUCCESS;
    if (options->preferred_location != STRATA_MANAGED_LOCATION_NONE)
        result = strata_cu.MemAdvise(address, bytes, CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
                                     options->preferred_location == STRATA_MANAGED_LOCATION_HOST ? host : device);
    if (result == CUDA_SUCCESS && options->read_mostly)
        result = strata_cu.MemAdvise(address, bytes, CU_MEM_ADVISE_SET_READ_MOSTLY, device);
    return result;
}

static strata_status allocate_memory(managed *self, const strata_request *request, CUdeviceptr *address)
{
    const unsigned flags =
        self->options.attach == STRATA_MANAGED_ATTACH_HOST ? CU_MEM_ATTACH_HOST : CU_MEM_ATTACH_GLOBAL;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(&self->base, &scope, NULL);
    if (status != STRATA_SUCCESS)
        return status;
    const char *call = "cuMemAllocManaged";
    CUresult result = strata_cu.MemAllocManaged(address, request->bytes, flags);
    if (result == CUDA_SUCCESS && (result = advise(self, *address, request->bytes)) != CUDA_SUCCESS) {
        call = "cuMemAdvise";
        strata_cu.MemFree(*address);
    }
    strata_call_scope_leave(&scope);
    if (result == CUDA_SUCCESS)
        return STRATA_SUCCESS;
    return strata_fail_allocation(&self->base.resource, request, result, call);
}

static strata_status take_memory(strata_per_block *base, const strata_request *request, size_t alignment,
                                 CUdeviceptr *address)
{
    (void)alignment;
    managed *self = (managed *)base;
    strata_status status = claim_room(self, request);
    if (status != STRATA_SUCCESS)
        return status;
    status = allocate_memory(self, request, address);
    if (status != STRATA_SUCCESS)
        give_room_back(self, request->bytes);
    return status;
}

static strata_status give_memory(strata_per_block *base, const strata_block *block, CUstream stream)
{
    strata_status status = strata_per_block_free_memory(base, block, stream);
    if (status == STRATA_SUCCESS)
        give_room_back((managed *)base, block->bytes);
    return status;
}

static const strata_per_block_source source = {
    .alignment = ALIGNMENT,
    .most_alignment = ALIGNMENT,
    .take = take_memory,
    .give = give_memory,
};

/* DEVICE_MEMORY is left out: the host can read the memory. */
static uint32_t managed_capabilities(strata_resource *resource)
{
    (void)resource;
    return STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND;
}

static void managed_destroy(strata_resource *resource)
{
    managed *self = (managed *)resource;
    strata_per_block_clear(&self->base);
    strata_lock_destroy(&self->room_lock);
    strata_host_free(self);
}

static const strata_resource_ops managed_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "managed",
    .allocate = strata_per_block_allocate,
    .deallocate = strata_per_block_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = strata_per_block_reap,
    .usage = strata_per_block_usage,
    .capabilities = managed_capabilities,
    .find = strata_per_block_find,
    .destroy = managed_destroy,
    .device = strata_per_block_device,
};

/* ---- making ---- */

static strata_status check_options(const strata_managed_options *options)
{
    const char *problem = NULL;
    if ((unsigned)options->attach > STRATA_MANAGED_ATTACH_HOST)
        problem = "invalid attach: expected global or host";
    else if ((unsigned)options->preferred_location > STRATA_MANAGED_LOCATION_HOST)
        problem = "invalid preferred_location: expected none, device or host";
    return problem ? strata_fail(STRATA_ERROR_INVALID_VALUE, "managed: %s", problem) : STRATA_SUCCESS;
}

static strata_status check_device(const strata_device *device, const strata_managed_options *options)
{
    if (!device->info.managed_memory || !strata_cu.MemAllocManaged)
        return strata_fail(
            STRATA_ERROR_UNSUPPORTED,
            "managed: device %d does not support concurrent use of managed memory with the host; use direct or pinned",
            device->ordinal);
    if ((options->preferred_location || options->read_mostly) && !strata_cu.MemAdvise)
        return strata_fail(
            STRATA_ERROR_UNSUPPORTED,
            "managed: preferred_location and read_mostly need cuMemAdvise of CUDA 12.2, which the driver lacks");
    return STRATA_SUCCESS;
}

strata_status strata_managed_create(int ordinal, const strata_managed_options *options, strata_resource **out)
{
    strata_managed_options read;
    strata_device *device;
    strata_status status = strata_options_begin("managed", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS)
        status = check_options(&read);
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status == STRATA_SUCCESS)
        status = check_device(device, &read);
    if (status != STRATA_SUCCESS)
        return status;
    managed *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a managed resource");
    strata_per_block_init(&self->base, &managed_ops, &source, device);
    self->options = read;
    strata_lock_init(&self->room_lock, STRATA_RANK_INDEX);
    *out = &self->base.resource;
    return STRATA_SUCCESS;
}

/* ---- stack texts: a text fills the options struct ---- */

static const strata_option managed_texts[] = {
    {"attach", STRATA_OPTION_CHOICE, offsetof(strata_managed_options, attach), "global|host",
     "initial attachment of a block"},
    {"preferred_location", STRATA_OPTION_CHOICE, offsetof(strata_managed_options, preferred_location),
     "none|device|host", "preferred location of blocks"},
    {"read_mostly", STRATA_OPTION_BOOL, offsetof(strata_managed_options, read_mostly), NULL,
     "blocks are mostly read, from several devices"},
    {"oversubscribe", STRATA_OPTION_BOOL, offsetof(strata_managed_options, oversubscribe), NULL,
     "allow more bytes than are free on the device"},
};

static strata_status make_managed(int device, const void *options, strata_resource **out)
{
    return strata_managed_create(device, options, out);
}

const strata_layer strata_managed_layer = {
    .size = sizeof(strata_layer),
    .owner = true,
    .name = "managed",
    .help = "memory that the host and the device share",
    .options = managed_texts,
    .option_count = sizeof managed_texts / sizeof managed_texts[0],
    .options_size = sizeof(strata_managed_options),
    .create = make_managed,
};
