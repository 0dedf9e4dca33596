/* Registrations of blocks with NCCL's communicators. */
#include <strata/nccl.h>
#include <strata/pool.h>

#include "adapters/nccl/functions.h"
#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/base/size_text.h"
#include "core/blocks/blocks.h"
#include "runtime/registrations.h"

struct strata_nccl_registration {
    strata_runtime *runtime; /* these are constant */
    void *communicator;
    strata_nccl_options options;
    strata_block block;
    void *handle; /* written by NCCL, at the end of a group perhaps */
};

static const char *const names[] = {
    [STRATA_NCCL_BUFFER] = "ncclCommRegister",
    [STRATA_NCCL_WINDOW] = "ncclCommWindowRegister",
};

/* ---- checks ---- */

static strata_status check_arguments(strata_runtime *runtime, const void *communicator, const strata_block *block,
                                     const strata_nccl_options *options)
{
    const strata_status status = strata_check_runtime_now(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    if (!communicator || !block)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_nccl_register: %s is NULL",
                           block ? "communicator" : "block");
    if ((unsigned)options->kind > STRATA_NCCL_WINDOW)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_nccl_register: invalid kind %d", (int)options->kind);
    if (strata_block_is_empty(block))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_nccl_register: the block is empty; register a block that has bytes");
    return STRATA_SUCCESS;
}

static strata_status check_functions(const nccl_functions *nccl, strata_nccl_kind kind)
{
    const bool window = kind == STRATA_NCCL_WINDOW;
    if (window ? nccl->window_register && nccl->window_deregister : nccl->comm_register && nccl->comm_deregister)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_UNSUPPORTED, "%s is not in this process; load NCCL %s or later first", names[kind],
                       window ? "2.27" : "2.19");
}

/* Other ranks map the whole allocation under a window, which must therefore be the block and no more. */
static strata_status check_contiguous(strata_runtime *runtime, const strata_block *block)
{
    strata_pool_hold *hold;
    size_t count;
    strata_status status = strata_pool_hold_begin(runtime->top, block, &hold);
    if (status != STRATA_SUCCESS)
        return status;
    const strata_pool_part *part = strata_pool_hold_parts(hold, &count);
    const bool contiguous = count == 1 && part->offset == 0 && part->handle_bytes == block->bytes;
    strata_pool_hold_end(hold);
    if (contiguous)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "block 0x%llx of %s is not contiguous, and a window shows other ranks all memory under it; make "
                       "its pool with contiguous=%zu or less",
                       (unsigned long long)block->address, strata_size_text(block->bytes).text, block->requested);
}

/* ---- NCCL's calls ---- */

static strata_status fail_with(const nccl_functions *nccl, void *communicator, const char *call, int result)
{
    const char *text = nccl->error_string ? nccl->error_string(result) : "";
    const char *last = nccl->last_error ? nccl->last_error(communicator) : "";
    const bool more = last && *last;
    return strata_fail(STRATA_ERROR_LIBRARY, "%s returned %d (%s)%s%.300s", call, result, text ? text : "",
                       more ? ": " : "", more ? last : "");
}

static strata_status enter(const nccl_functions *nccl, strata_nccl_registration *made)
{
    void *address = (void *)(uintptr_t)made->block.address;
    const int result =
        made->options.kind == STRATA_NCCL_WINDOW
            ? nccl->window_register(made->communicator, address, made->block.bytes, &made->handle, made->options.flags)
            : nccl->comm_register(made->communicator, address, made->block.bytes, &made->handle);
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? STRATA_SUCCESS
               : fail_with(nccl, made->communicator, names[made->options.kind], result);
}

static strata_status leave(const strata_nccl_registration *made)
{
    nccl_functions nccl;
    const bool window = made->options.kind == STRATA_NCCL_WINDOW;
    if (!made->handle)
        return STRATA_SUCCESS;
    nccl_functions_find(&nccl);
    strata_status status = check_functions(&nccl, made->options.kind);
    if (status != STRATA_SUCCESS)
        return status;
    const int result = window ? nccl.window_deregister(made->communicator, made->handle)
                              : nccl.comm_deregister(made->communicator, made->handle);
    return result == NCCL_SUCCESS || result == NCCL_IN_PROGRESS
               ? STRATA_SUCCESS
               : fail_with(&nccl, made->communicator, window ? "ncclCommWindowDeregister" : "ncclCommDeregister",
                           result);
}

/* ---- public calls ---- */

static strata_status make(const strata_nccl_registration *like, strata_nccl_registration **out)
{
    nccl_functions nccl;
    nccl_functions_find(&nccl);
    strata_status status = check_functions(&nccl, like->options.kind);
    if (status == STRATA_SUCCESS && like->options.kind == STRATA_NCCL_WINDOW)
        status = check_contiguous(like->runtime, &like->block);
    if (status != STRATA_SUCCESS)
        return status;
    strata_nccl_registration *made = strata_host_zalloc(sizeof *made);
    if (!made)
        return strata_fail_host_memory("a registration");
    *made = *like;
    status = strata_registration_begin(made->runtime, &made->block, "NCCL");
    if (status == STRATA_SUCCESS && (status = enter(&nccl, made)) != STRATA_SUCCESS)
        strata_registration_end(made->runtime, &made->block);
    if (status != STRATA_SUCCESS) {
        strata_host_free(made);
        return status;
    }
    *out = made;
    return STRATA_SUCCESS;
}

strata_status strata_nccl_register(strata_runtime *runtime, void *communicator, const strata_block *block,
                                   const strata_nccl_options *options, strata_nccl_registration **out)
{
    strata_nccl_registration like = {.runtime = runtime, .communicator = communicator};
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_nccl_register: out is NULL");
    *out = NULL;
    strata_status status = strata_options_read(&like.options, sizeof like.options, options, "strata_nccl_options");
    if (status == STRATA_SUCCESS)
        status = check_arguments(runtime, communicator, block, &like.options);
    if (status != STRATA_SUCCESS)
        return status;
    like.block = *block;
    return make(&like, out);
}

void *strata_nccl_handle(const strata_nccl_registration *registration)
{
    return registration ? registration->handle : NULL;
}

void strata_nccl_forget(strata_nccl_registration *registration)
{
    if (!registration || strata_driver_state_now() == STRATA_DRIVER_FORKED)
        return;
    strata_registration_end(registration->runtime, &registration->block);
    strata_host_free(registration);
}

strata_status strata_nccl_deregister(strata_nccl_registration *registration)
{
    strata_status status = strata_check_not_forked();
    if (!registration || status != STRATA_SUCCESS)
        return status;
    status = leave(registration);
    if (status == STRATA_SUCCESS)
        strata_nccl_forget(registration);
    return status;
}
