/* Scalars. Two elements of memory: the value, and its staging element behind it.
 *
 * A memset takes its value as an argument, so nothing of the host's is read after the call, nothing is reused while a
 * launch is in flight, and any number of sets can be queued. A staging ring of pinned memory would have to wait, or
 * grow, once all of its entries are in flight; a copy from pageable memory may wait for the stream.
 *
 * One memset writes at most four bytes, or repeats them. Other values are written to the staging element word by word,
 * and then copied: one call changes the value, so that a failure of any leaves the old one. Sets are writes of the
 * block, in order, and so never meet in the staging element. */
#include <strata/scalar.h>

#include "core/base/error.h"
#include "core/base/host_memory.h"
#include "core/streams/stream_map.h"
#include "runtime/references.h"

#include <string.h>

/* PTDS programs see macros of these names. */
#undef strata_scalar_create
#undef strata_scalar_set

enum { LONGEST = 16 };

struct strata_scalar {
    strata_ref *ref; /* to the value and its staging element; constant */
};

/* Whether the value is its first `unit` bytes, repeated. */
static bool repeats(const unsigned char *value, size_t bytes, size_t unit)
{
    return bytes % unit == 0 && memcmp(value, value + unit, bytes - unit) == 0;
}

static CUresult fill(CUdeviceptr to, const unsigned char *value, size_t bytes, size_t unit, CUstream stream)
{
    uint32_t word;
    if (unit == 1)
        return strata_cu.MemsetD8Async(to, *value, bytes, stream);
    memcpy(&word, value, sizeof word);
    return strata_cu.MemsetD32Async(to, word, bytes / sizeof word, stream);
}

/* Submits the calls that write a value; the scope of the stream is entered. *call: the last call made. */
static CUresult write_value(CUdeviceptr address, const unsigned char *value, size_t bytes, CUstream stream,
                            const char **call)
{
    const size_t unit = bytes % sizeof(uint32_t) == 0 && strata_cu.MemsetD32Async ? sizeof(uint32_t) : 1;
    *call = "cuMemsetD32Async or cuMemsetD8Async";
    if (repeats(value, bytes, 1))
        return fill(address, value, bytes, 1, stream);
    if (repeats(value, bytes, unit))
        return fill(address, value, bytes, unit, stream);
    if (!strata_cu.MemcpyDtoDAsync) {
        *call = "cuMemcpyDtoDAsync";
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    CUresult result = CUDA_SUCCESS;
    for (size_t i = 0; i < bytes && result == CUDA_SUCCESS; i += unit)
        result = fill(address + bytes + i, value + i, unit, unit, stream);
    if (result != CUDA_SUCCESS)
        return result;
    *call = "cuMemcpyDtoDAsync";
    return strata_cu.MemcpyDtoDAsync(address, address + bytes, bytes, stream);
}

static strata_status submit(const strata_ref *ref, const void *value, CUstream stream)
{
    strata_device *device = ref->record->device;
    strata_call_scope scope;
    strata_status status =
        strata_call_scope_enter(&scope, device, strata_call_scope_for(stream) | STRATA_CALL_SCOPE_CONTEXT);
    if (status != STRATA_SUCCESS)
        return status;
    const char *call;
    const CUresult result = write_value(ref->address, value, ref->bytes / 2, stream, &call);
    strata_call_scope_leave(&scope);
    return result == CUDA_SUCCESS ? STRATA_SUCCESS
                                  : strata_fail_driver(result, call, "setting a scalar of type %s%s",
                                                       strata_element_name(ref->type), strata_stream_hint(result));
}

/* Refuses a stream that is being captured: the set would be a node of the graph. */
static strata_status check_capture(const strata_ref *ref, CUstream stream)
{
    strata_device *device = ref->record->device;
    if (!strata_stream_is_capturing(device, stream, true))
        return STRATA_SUCCESS;
    if (!strata_stream_is_capturing(device, stream, false))
        return strata_fail(STRATA_ERROR_DRIVER, "setting a scalar: the driver does not say whether the stream is being "
                                                "captured; nothing was set");
    return strata_fail(STRATA_ERROR_STREAM_CAPTURE,
                       "a scalar cannot be set on a stream that is being captured: the graph would repeat this "
                       "value at each launch; set it before the launch of the graph");
}

static strata_status set(strata_ref *ref, const void *value, CUstream stream)
{
    strata_status status = check_capture(ref, stream);
    if (status != STRATA_SUCCESS || !ref->runtime->tracks)
        return status == STRATA_SUCCESS ? submit(ref, value, stream) : status;
    status = strata_runtime_prepare_block_use(ref->runtime, &ref->block, stream, STRATA_ACCESS_WRITE);
    if (status != STRATA_SUCCESS)
        return status;
    status = submit(ref, value, stream);
    const strata_status finished = strata_reference_finish_write(ref, stream, true);
    return status == STRATA_SUCCESS ? finished : status;
}

strata_status strata_scalar_set(strata_scalar *scalar, const void *value, CUstream stream)
{
    strata_ref_memory memory;
    if (!scalar || !value)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_scalar_set: scalar or value is NULL");
    strata_device_is_usable_now(scalar->ref->record->device); /* or the scalar is stale */
    const strata_status status = strata_ref_access(scalar->ref, &memory);
    return status == STRATA_SUCCESS ? set(scalar->ref, value, stream) : status;
}

strata_status strata_scalar_create(strata_runtime *runtime, strata_element type, const void *value, CUstream stream,
                                   strata_scalar **out)
{
    static const unsigned char zero[LONGEST];
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_scalar_create: out is NULL");
    *out = NULL;
    strata_status status = strata_check_runtime(runtime);
    if (status != STRATA_SUCCESS)
        return status;
    strata_scalar *scalar = strata_host_zalloc(sizeof *scalar);
    if (!scalar)
        return strata_fail_host_memory("a scalar");
    status = strata_ref_allocate(runtime, type, 2, false, stream, &scalar->ref);
    if (status == STRATA_SUCCESS)
        status = set(scalar->ref, value ? value : zero, stream);
    if (status == STRATA_SUCCESS) {
        *out = scalar;
        return STRATA_SUCCESS;
    }
    strata_error_suppress_begin();
    strata_ref_release(scalar->ref);
    strata_error_suppress_end(false);
    strata_host_free(scalar);
    return status;
}

strata_status strata_launch_use_scalar(strata_launch *launch, strata_scalar *scalar, strata_access access)
{
    return strata_launch_use_ref(launch, scalar ? scalar->ref : NULL, access);
}

strata_status strata_scalar_address(const strata_scalar *scalar, CUdeviceptr *out)
{
    return strata_ref_raw_device_ptr(scalar ? scalar->ref : NULL, out);
}

strata_element strata_scalar_type(const strata_scalar *scalar)
{
    return scalar ? scalar->ref->type : STRATA_ELEMENT_NONE;
}

strata_status strata_scalar_destroy(strata_scalar *scalar)
{
    const strata_status status = strata_check_not_forked();
    if (!scalar || status != STRATA_SUCCESS)
        return status;
    strata_ref *ref = scalar->ref;
    strata_host_free(scalar);
    return strata_ref_release(ref);
}
