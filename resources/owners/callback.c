/* callback: blocks from functions of the program, whose results are checked: a valid status, an address, its alignment,
 * and no live block there. */
#include <strata/callback.h>

#include "core/base/cancel.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "resources/owners/per_block.h"

#include <string.h>

enum { ALIGNMENT = 256 };

typedef struct callback {
    strata_per_block base;
    strata_callback_options options; /* constant */
} callback;

static bool is_status(strata_status status)
{
    return strcmp(strata_status_name(status), "STRATA_ERROR_UNKNOWN") != 0;
}

/* Returns the status of the call. Replaces the function's error record, if any, by one that names the origin. */
static strata_status refuse_answer(const strata_block *block, strata_status answer, const char *which)
{
    bool known = is_status(answer);
    strata_error *error = strata_error_begin(known ? answer : STRATA_ERROR_INVALID_VALUE);
    error->requested = block->requested;
    error->tag = block->tag;
    error->generation = block->id.generation;
    if (!known)
        return strata_error_raise(error, "callback: the program's %s function returned %d, which is not a status",
                                  which, (int)answer);
    return strata_error_raise(error, "callback: the program's %s function returned %s for %s (tag \"%.100s\")", which,
                              strata_status_text(answer), strata_size_text(block->requested).text,
                              strata_tag_name(block->tag));
}

static strata_status refuse_address(const strata_request *request, size_t alignment, CUdeviceptr address,
                                    strata_status status, const char *what)
{
    strata_error *error = strata_error_begin(status);
    error->requested = request->bytes;
    error->tag = request->tag;
    return strata_error_raise(error,
                              "callback: the program's allocate function returned address 0x%llx for %s, aligned "
                              "to %zu (tag \"%.100s\"): %s",
                              (unsigned long long)address, strata_size_text(request->bytes).text, alignment,
                              strata_tag_name(request->tag), what);
}

static strata_status give_memory(strata_per_block *base, const strata_block *block, CUstream stream)
{
    const strata_callback_options *options = &((callback *)base)->options;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(base, &scope, block);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_aside aside;
    strata_error_set_aside(&aside);
    const int cancel = strata_cancel_forbid(); /* the layers above have changed what they count */
    status = options->deallocate(block->address, block->bytes, block->alignment, stream, options->data);
    strata_cancel_restore(cancel);
    strata_error_take_back(&aside);
    strata_call_scope_leave(&scope);
    return status == STRATA_SUCCESS ? status : refuse_answer(block, status, "deallocate");
}

static void give_misaligned_back(strata_per_block *self, const strata_request *request, size_t alignment,
                                 CUdeviceptr address)
{
    const strata_block block = {.address = address, .bytes = request->bytes, .alignment = alignment};
    strata_error_suppress_begin();
    give_memory(self, &block, request->stream);
    strata_error_suppress_end(false);
}

static strata_status take_memory(strata_per_block *self, const strata_request *request, size_t alignment,
                                 CUdeviceptr *address)
{
    const strata_callback_options *options = &((callback *)self)->options;
    strata_call_scope scope;
    strata_status status = strata_per_block_enter(self, &scope, NULL);
    if (status != STRATA_SUCCESS)
        return status;
    *address = 0;
    strata_error_aside aside;
    strata_error_set_aside(&aside);
    const int cancel = strata_cancel_forbid(); /* as above */
    status = options->allocate(address, request->bytes, alignment, request->stream, options->data);
    strata_cancel_restore(cancel);
    strata_error_take_back(&aside);
    strata_call_scope_leave(&scope);
    if (status != STRATA_SUCCESS) {
        const strata_block wanted = {.requested = request->bytes, .tag = request->tag};
        return refuse_answer(&wanted, status, "allocate");
    }
    if (*address == 0)
        return refuse_address(request, alignment, 0, STRATA_ERROR_OUT_OF_MEMORY, "the address is 0");
    if (*address & (alignment - 1)) {
        give_misaligned_back(self, request, alignment, *address);
        return refuse_address(request, alignment, *address, STRATA_ERROR_INVALID_VALUE, "it is not aligned");
    }
    if (strata_per_block_has(self, *address))
        return refuse_address(request, alignment, *address, STRATA_ERROR_INVALID_VALUE, "it is in a live block");
    return STRATA_SUCCESS;
}

static const strata_per_block_source source = {
    .alignment = ALIGNMENT,
    .most_alignment = SIZE_MAX,
    .take = take_memory,
    .give = give_memory,
};

static uint32_t callback_capabilities(strata_resource *resource)
{
    const strata_callback_options *options = &((const callback *)resource)->options;
    return STRATA_CAPABILITY_USE_TRACKING | STRATA_CAPABILITY_FIND |
           (options->stream_ordered ? STRATA_CAPABILITY_STREAM_ORDERED : 0) |
           (options->host_memory ? 0 : STRATA_CAPABILITY_DEVICE_MEMORY);
}

/* Calls `destroyed` in the context: what `data` stands for may give memory back. A device that is gone has no context.
 */
static void callback_destroy(strata_resource *resource)
{
    const strata_callback_options options = ((const callback *)resource)->options;
    if (options.destroyed) {
        strata_call_scope scope;
        strata_error_suppress_begin();
        const bool entered = strata_per_block_enter((strata_per_block *)resource, &scope, NULL) == STRATA_SUCCESS;
        strata_error_suppress_end(false);
        strata_error_aside aside;
        strata_error_set_aside(&aside);
        options.destroyed(options.data);
        strata_error_take_back(&aside);
        if (entered)
            strata_call_scope_leave(&scope);
    }
    strata_per_block_destroy(resource);
}

static const strata_resource_ops callback_ops = {
    .size = sizeof(strata_resource_ops),
    .name = "callback",
    .allocate = strata_per_block_allocate,
    .deallocate = strata_per_block_deallocate,
    .prepare_use = strata_block_prepare_use,
    .finish_use = strata_block_finish_use,
    .record_use = strata_block_record_use,
    .reap = strata_per_block_reap,
    .usage = strata_per_block_usage,
    .capabilities = callback_capabilities,
    .memory_of_program = true,
    .find = strata_per_block_find,
    .destroy = callback_destroy,
    .device = strata_per_block_device,
};

strata_status strata_callback_create(int ordinal, const strata_callback_options *options, strata_resource **out)
{
    strata_callback_options read;
    strata_device *device;
    strata_status status = strata_options_begin("callback", out, &read, sizeof read, options);
    if (status == STRATA_SUCCESS && (!read.allocate || !read.deallocate))
        status =
            strata_fail(STRATA_ERROR_INVALID_VALUE, "callback: %s is NULL", read.allocate ? "deallocate" : "allocate");
    if (status == STRATA_SUCCESS)
        status = strata_device_get(ordinal, &device);
    if (status != STRATA_SUCCESS)
        return status;
    callback *self = strata_host_zalloc_aligned(64, sizeof *self);
    if (!self)
        return strata_fail_host_memory("a callback resource");
    strata_per_block_init(&self->base, &callback_ops, &source, device);
    self->base.ordered = read.stream_ordered;
    self->options = read;
    *out = &self->base.resource;
    return STRATA_SUCCESS;
}
