/* Memory handlers of cuTensorNet, cuStateVec and cuDSS. The context is the runtime: the libraries copy the struct, so
 * that nothing else lives as long. */
#include <strata/mem_handler.h>

#include "core/base/error.h"
#include "runtime/runtime.h"

#include <stdatomic.h>
#include <stddef.h>
#include <string.h>

enum { ALIGNMENT = 256 /* cutensornet/types.h, custatevec.h: "at least 256-byte aligned" */ };

_Static_assert(sizeof(strata_mem_handler) == 3 * sizeof(void *) + 64 && offsetof(strata_mem_handler, name) == 24,
               "the layout of the libraries");

static _Atomic strata_tag workspace; /* 0: not interned yet; any thread, relaxed */

static strata_status find_tag(void)
{
    strata_tag tag = 0;
    const strata_status status =
        atomic_load_explicit(&workspace, memory_order_relaxed) ? STRATA_SUCCESS : strata_tag_intern("workspace", &tag);
    if (tag)
        atomic_store_explicit(&workspace, tag, memory_order_relaxed);
    return status;
}

static int allocate(void *context, void **address, size_t bytes, CUstream stream)
{
    strata_block block;
    const strata_request request = {.bytes = bytes,
                                    .alignment = ALIGNMENT,
                                    .stream = stream,
                                    .tag = atomic_load_explicit(&workspace, memory_order_relaxed)};
    if (!address)
        return (int)strata_fail(STRATA_ERROR_INVALID_VALUE, "a memory handler: address is NULL");
    *address = NULL;
    const strata_status status = strata_runtime_allocate_request(context, &request, &block);
    if (status == STRATA_SUCCESS)
        *address = (void *)(uintptr_t)block.address;
    return (int)status;
}

static int deallocate(void *context, void *address, size_t bytes, CUstream stream)
{
    (void)bytes; /* of the request; the block knows */
    return (int)strata_runtime_deallocate_address(context, (CUdeviceptr)(uintptr_t)address, stream);
}

static strata_status check_name(const char *name)
{
    return !name || strlen(name) < STRATA_MEM_HANDLER_NAME
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_INVALID_VALUE, "name \"%.80s\" of a memory handler: at most %d bytes", name,
                             STRATA_MEM_HANDLER_NAME - 1);
}

static strata_status check_stack(strata_runtime *runtime, bool pinned)
{
    const uint32_t can = runtime->top->ops->capabilities(runtime->top);
    if (!(can & STRATA_CAPABILITY_FIND))
        return strata_fail(
            STRATA_ERROR_UNSUPPORTED,
            "stack \"%s\" cannot free by address, as a memory handler does; choose another owner, such as "
            "pool",
            strata_stack_text(runtime->stack));
    if (pinned && !strata_stack_is_host_readable(runtime->stack))
        return strata_fail(STRATA_ERROR_UNSUPPORTED,
                           "memory of the stack \"%s\" cannot be read by the host; make a runtime with the stack "
                           "\"pinned\"",
                           strata_stack_text(runtime->stack));
    return STRATA_SUCCESS;
}

static strata_status fill(strata_runtime *runtime, const char *name, bool pinned, strata_mem_handler *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_mem_handler_fill: out is NULL");
    *out = (strata_mem_handler){0};
    strata_status status = strata_check_runtime_now(runtime);
    if (status == STRATA_SUCCESS)
        status = check_name(name);
    if (status == STRATA_SUCCESS)
        status = check_stack(runtime, pinned);
    if (status == STRATA_SUCCESS)
        status = find_tag();
    if (status != STRATA_SUCCESS)
        return status;
    *out = (strata_mem_handler){.context = runtime, .allocate = allocate, .deallocate = deallocate};
    const char *shown = name ? name : "strata";
    memcpy(out->name, shown, strlen(shown));
    return STRATA_SUCCESS;
}

strata_status strata_mem_handler_fill(strata_runtime *runtime, const char *name, strata_mem_handler *out)
{
    return fill(runtime, name, false, out);
}

strata_status strata_mem_handler_fill_pinned(strata_runtime *runtime, const char *name, strata_mem_handler *out)
{
    return fill(runtime, name, true, out);
}
