/* Handles of cuBLAS, and the one way in which work is given to them.
 *
 * cuBLAS keeps a stream and a workspace in its handle. Each call sets both under the handle's lock: setting the stream
 * takes the workspace away. The lock is held from the waits of the call to the record of its uses: two threads that
 * waited before either recorded would meet in the workspace. The workspace is a block like any other, and its use is
 * noted, so that calls on two streams do not meet in it. In a capture the kept workspace would tie the graph to all
 * later calls of the handle; there each call takes one of the capture's pool and gives it back, which costs nothing
 * when the graph runs. */
#include "runtime/blas/internal.h"

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/base/options.h"
#include "core/streams/call_scope.h"
#include "core/streams/stream_map.h"
#include "runtime/captures.h"
#include "runtime/references.h"

#include <string.h>

/* PTDS programs see a macro of this name. */
#undef strata_blas_create

enum { DEFAULT_WORKSPACE = 32 << 20 }; /* bytes; the cuBLAS manual recommends them for compute capability 9 */

static const char workspace_tag[] = "blas workspace";

strata_status blas_fail(const strata_blas *blas, int status, const char *function)
{
    const strata_blas_library *library = blas->library;
    const char *name = library->call.status_name(status), *text = library->call.status_text(status);
    return strata_fail(STRATA_ERROR_LIBRARY, "cuBLAS %s (%.120s): %s returned %s: %.280s", library->version,
                       library->path, function, name ? name : "an unknown status", text ? text : "no description");
}

blas_factor blas_factor_of(double value, bool wide)
{
    blas_factor factor;
    if (wide)
        factor.wide = value;
    else
        factor.single = (float)value;
    return factor;
}

strata_status blas_check(const strata_blas *blas, const char *call)
{
    strata_ref_memory memory;
    if (!blas)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: blas is NULL", call);
    const strata_status status = strata_ref_access(blas->workspace, &memory);
    return status == STRATA_SUCCESS ? strata_check_runtime(blas->runtime) : status;
}

strata_status blas_read_call(const strata_blas *blas, const char *name, const void *given, void *into, size_t known)
{
    const strata_status status = blas_check(blas, name);
    if (status == STRATA_SUCCESS && !given)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "%s: call is NULL", name);
    return status == STRATA_SUCCESS ? strata_options_read(into, known, given, name) : status;
}

strata_status blas_check_order(strata_blas_order order, const char *name)
{
    if (order == STRATA_BLAS_ROWS || order == STRATA_BLAS_COLUMNS)
        return STRATA_SUCCESS;
    return strata_fail(STRATA_ERROR_INVALID_VALUE,
                       "%s: the order of the matrices is not said: STRATA_BLAS_ROWS or STRATA_BLAS_COLUMNS", name);
}

strata_status blas_check_not_captured(const strata_runtime *runtime, CUstream stream, const char *what)
{
    const strata_status status = strata_check_device_now(runtime->device);
    if (status != STRATA_SUCCESS || !strata_stream_is_capturing(runtime->device, stream, true))
        return status;
    if (!strata_stream_is_capturing(runtime->device, stream, false))
        return strata_fail(STRATA_ERROR_DRIVER, "%s, and the driver does not say whether its stream is being captured",
                           what);
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "%s on a stream that is being captured; do it before the capture, or on another stream", what);
}

/* ---- the handle ---- */

static strata_status allocate_workspace(strata_blas *blas, CUstream stream)
{
    strata_block block;
    strata_request request = {.bytes = blas->workspace_bytes, .stream = stream};
    strata_status status = blas_check_not_captured(blas->runtime, stream, "a BLAS handle is made");
    if (status == STRATA_SUCCESS)
        status = strata_tag_intern(workspace_tag, &request.tag);
    if (status == STRATA_SUCCESS)
        status = strata_runtime_allocate_request(blas->runtime, &request, &block);
    if (status != STRATA_SUCCESS)
        return status;
    status = strata_ref_adopt(blas->runtime, &block, STRATA_ELEMENT_U8, blas->workspace_bytes, &blas->workspace);
    if (status != STRATA_SUCCESS) {
        strata_error_suppress_begin();
        strata_runtime_deallocate_on(blas->runtime, &block, stream);
        strata_error_suppress_end(false);
    }
    return status;
}

/* cuBLAS belongs to the context that is current. It allocates, which no capture survives unless the mode is relaxed. */
static strata_status create_handle(strata_blas *blas)
{
    strata_call_scope scope;
    const strata_status status =
        strata_call_scope_enter(&scope, blas->runtime->device, STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED);
    if (status != STRATA_SUCCESS)
        return status;
    const int result = blas->library->call.create(&blas->handle);
    strata_call_scope_leave(&scope);
    return result == STRATA_CUBLAS_SUCCESS ? STRATA_SUCCESS : blas_fail(blas, result, "cublasCreate");
}

static strata_status open_library(strata_blas *blas)
{
    strata_blas_failure failure;
    blas->library = strata_blas_library_open(&failure);
    return blas->library ? STRATA_SUCCESS
                         : strata_fail(STRATA_ERROR_UNSUPPORTED, "cuBLAS cannot be used: %s", failure.message);
}

/* Frees a handle that could not be finished. */
static void undo(strata_blas *blas)
{
    strata_error_suppress_begin();
    strata_ref_release(blas->workspace);
    strata_error_suppress_end(false);
    strata_host_free(blas);
}

strata_status strata_blas_create(strata_runtime *runtime, CUstream stream, const strata_blas_options *options,
                                 strata_blas **out)
{
    strata_blas_options read;
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_create: out is NULL");
    *out = NULL;
    strata_status status = strata_check_runtime_now(runtime);
    if (status == STRATA_SUCCESS)
        status = strata_options_read(&read, sizeof read, options, "strata_blas_options");
    if (status == STRATA_SUCCESS && (unsigned)read.mode > STRATA_LAUNCH_PERMISSIVE)
        status = strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_create: the mode is invalid");
    if (status != STRATA_SUCCESS)
        return status;
    strata_blas *blas = strata_host_zalloc(sizeof *blas);
    if (!blas)
        return strata_fail_host_memory("a BLAS handle");
    blas->runtime = runtime;
    blas->mode = read.mode;
    blas->workspace_bytes = read.workspace_bytes ? read.workspace_bytes : DEFAULT_WORKSPACE;
    status = open_library(blas);
    if (status == STRATA_SUCCESS)
        status = allocate_workspace(blas, stream);
    if (status == STRATA_SUCCESS)
        status = create_handle(blas);
    if (status != STRATA_SUCCESS) {
        undo(blas);
        return status;
    }
    strata_lock_init(&blas->lock, STRATA_RANK_BLAS);
    *out = blas;
    return STRATA_SUCCESS;
}

/* Enters the scope, after a failure once more: otherwise the handle would be lost with its memory. */
static strata_status enter_to_destroy(strata_blas *blas, strata_call_scope *scope)
{
    const unsigned needs = STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED;
    strata_error_suppress_begin();
    strata_status status = strata_call_scope_enter(scope, blas->runtime->device, needs);
    if (status != STRATA_SUCCESS)
        status = strata_call_scope_enter(scope, blas->runtime->device, needs);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    return status;
}

/* After a reset or a shutdown nothing is left on the device, and cuBLAS is not called. */
static strata_status destroy_handle(strata_blas *blas)
{
    strata_call_scope scope;
    if (!strata_device_is_usable_now(blas->runtime->device))
        return STRATA_SUCCESS;
    const strata_status status = enter_to_destroy(blas, &scope);
    if (status != STRATA_SUCCESS)
        return status;
    const int result = blas->library->call.destroy(blas->handle);
    strata_call_scope_leave(&scope);
    return result == STRATA_CUBLAS_SUCCESS ? STRATA_SUCCESS : blas_fail(blas, result, "cublasDestroy");
}

strata_status strata_blas_destroy(strata_blas *blas)
{
    const strata_status allowed = strata_check_not_forked();
    if (!blas || allowed != STRATA_SUCCESS)
        return allowed;
    const strata_status destroyed = destroy_handle(blas);
    const strata_status released = strata_ref_release(blas->workspace);
    strata_lock_destroy(&blas->lock);
    strata_host_free(blas);
    return destroyed == STRATA_SUCCESS ? released : destroyed;
}

strata_status strata_blas_get_info(const strata_blas *blas, strata_blas_info *info)
{
    if (!blas || !info)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_blas_get_info: blas or info is NULL");
    *info = (strata_blas_info){blas->library->path, blas->library->version, blas->workspace_bytes};
    return STRATA_SUCCESS;
}

/* ---- submitting ---- */

/* Sets the handle's stream and workspace, and submits the work. The scope of the stream is entered. */
static int call_library(const strata_blas *blas, const blas_work *work, const blas_place *place, const char **function)
{
    const strata_blas_table *call = &blas->library->call;
    *function = "cublasSetStream";
    int result = call->set_stream(blas->handle, place->stream);
    if (result != STRATA_CUBLAS_SUCCESS)
        return result;
    *function = "cublasSetWorkspace";
    result = call->set_workspace(blas->handle, (void *)(uintptr_t)place->workspace, place->workspace_bytes);
    if (result != STRATA_CUBLAS_SUCCESS)
        return result;
    *function = "cublasSetPointerMode";
    if (work->result_on_device)
        result = call->set_pointer_mode(blas->handle, STRATA_CUBLAS_POINTER_DEVICE);
    if (result == STRATA_CUBLAS_SUCCESS)
        result = work->submit(blas, work->data, place, function);
    if (work->result_on_device)
        call->set_pointer_mode(blas->handle, STRATA_CUBLAS_POINTER_HOST);
    return result;
}

static strata_status call_in_scope(strata_blas *blas, const blas_work *work, const blas_place *place)
{
    const char *function = "";
    strata_call_scope scope;
    const unsigned needs = STRATA_CALL_SCOPE_CONTEXT | STRATA_CALL_SCOPE_RELAXED | strata_call_scope_for(place->stream);
    strata_status status = strata_check_device_now(blas->runtime->device);
    if (status == STRATA_SUCCESS)
        status = strata_call_scope_enter(&scope, blas->runtime->device, needs);
    if (status != STRATA_SUCCESS)
        return status;
    const int result = call_library(blas, work, place, &function);
    strata_call_scope_leave(&scope);
    return result == STRATA_CUBLAS_SUCCESS ? STRATA_SUCCESS : blas_fail(blas, result, function);
}

/* Allocates the workspace of a captured call; an empty block if the stream is in no capture. */
static strata_status capture_workspace(strata_blas *blas, CUstream stream, strata_block *block)
{
    strata_status status = STRATA_SUCCESS;
    strata_request request = {.bytes = blas->workspace_bytes, .stream = stream};
    *block = (strata_block){0};
    if (!strata_captures_any(blas->runtime))
        return STRATA_SUCCESS;
    status = strata_tag_intern(workspace_tag, &request.tag);
    if (status != STRATA_SUCCESS || !strata_captured_allocate(blas->runtime, &request, block, &status))
        return status;
    return status;
}

static strata_status use_workspace(strata_blas *blas, strata_launch *launch, const strata_block *captured,
                                   blas_place *place)
{
    place->workspace_bytes = blas->workspace_bytes;
    if (!strata_block_is_empty(captured)) {
        place->workspace = captured->address;
        return strata_launch_use(launch, captured, STRATA_ACCESS_READ_WRITE);
    }
    const strata_status status = strata_ref_raw_device_ptr(blas->workspace, &place->workspace);
    return status == STRATA_SUCCESS ? strata_launch_use_ref(launch, blas->workspace, STRATA_ACCESS_READ_WRITE) : status;
}

static strata_status name_uses(strata_blas *blas, const blas_work *work, const strata_block *captured,
                               strata_launch *launch, blas_place *place)
{
    strata_status status = STRATA_SUCCESS;
    for (size_t i = 0; i < work->count && status == STRATA_SUCCESS; i++)
        status = blas_operand_use(launch, work->uses[i].operand, work->uses[i].access);
    return status == STRATA_SUCCESS ? use_workspace(blas, launch, captured, place) : status;
}

/* One thread at a time, from the waits to the record: the next one then waits for this one's use of the workspace.
 * *cancel: the uses are prepared, and the caller cancels them. */
static strata_status prepare_call_and_commit(strata_blas *blas, const blas_work *work, const blas_place *place,
                                             strata_launch *launch, bool *cancel)
{
    strata_status status = strata_launch_preflight(launch);
    *cancel = false;
    if (status != STRATA_SUCCESS)
        return status;
    status = call_in_scope(blas, work, place);
    *cancel = status != STRATA_SUCCESS;
    return *cancel ? status : strata_launch_commit(launch);
}

static strata_status submit(strata_blas *blas, const blas_work *work, const strata_block *captured, CUstream stream)
{
    strata_launch launch;
    blas_place place = {.stream = stream};
    strata_status status = strata_launch_begin(&launch, blas->runtime, stream, blas->mode);
    if (status != STRATA_SUCCESS)
        return status;
    status = name_uses(blas, work, captured, &launch, &place);
    if (status == STRATA_SUCCESS) {
        bool cancel;
        strata_error_suppress_begin(); /* the log callback may take locks of the program */
        strata_lock_take(&blas->lock);
        status = prepare_call_and_commit(blas, work, &place, &launch, &cancel);
        strata_lock_release(&blas->lock);
        strata_error_suppress_end(status != STRATA_SUCCESS);
        if (cancel)
            strata_launch_cancel(&launch);
    }
    strata_launch_end(&launch);
    return status;
}

strata_status blas_submit(strata_blas *blas, const blas_work *work, CUstream stream)
{
    strata_block captured;
    strata_status status = capture_workspace(blas, stream, &captured);
    if (status == STRATA_SUCCESS)
        status = submit(blas, work, &captured, stream);
    if (strata_block_is_empty(&captured))
        return status;
    /* The free comes behind the block's uses: for a free on the stream its place would have to be asked for, which can
     * fail. */
    const strata_status freed = strata_kept_block_free(blas->runtime, &captured, STRATA_STREAM_GONE, false);
    return status == STRATA_SUCCESS ? freed : status;
}
