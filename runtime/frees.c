/* The frees of a block: on its own stream, and on another. */
#include "runtime/runtime.h"

#include "core/base/error.h"
#include "core/stack/calls.h"
#include "core/stack/own_stream_free.h"
#include "runtime/captures.h"

/* A free of a runtime that has had a capture, an open use or a registered block. */
static __attribute__((noinline)) strata_status
deallocate_beside_captures(strata_runtime *runtime, const strata_block *block, CUstream stream, bool own)
{
    strata_status status = strata_open_uses_record(runtime, block);
    if (status != STRATA_SUCCESS)
        return status;
    if (strata_runtime_keeps(runtime, block))
        status = strata_kept_block_free(runtime, block, stream, own);
    else if (!strata_captures_any(runtime) || !strata_captured_free(runtime, block, stream, own, &status))
        status = own ? runtime->top->ops->top_deallocate(runtime->top, block)
                     : strata_free_from_top(runtime->top, block, stream);
    if (status == STRATA_SUCCESS)
        strata_open_uses_forget(runtime, block);
    return status;
}

strata_status strata_runtime_deallocate_on(strata_runtime *runtime, const strata_block *block, CUstream stream)
{
    if (__builtin_expect(!runtime || !block || stream == STRATA_STREAM_GONE, 0))
        return strata_fail(STRATA_ERROR_INVALID_VALUE,
                           "strata_runtime_deallocate_on: runtime or block is NULL, or stream is STRATA_STREAM_GONE, "
                           "which is for layers; strata_runtime_deallocate finds the stream itself");
    return strata_captures_were_used(runtime) ? deallocate_beside_captures(runtime, block, stream, false)
                                              : strata_free_from_top(runtime->top, block, stream);
}

strata_status strata_runtime_deallocate(strata_runtime *runtime, const strata_block *block)
{
    if (__builtin_expect(!runtime || !block, 0))
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_runtime_deallocate: runtime or block is NULL");
    return strata_captures_were_used(runtime) ? deallocate_beside_captures(runtime, block, NULL, true)
                                              : runtime->top->ops->top_deallocate(runtime->top, block);
}
