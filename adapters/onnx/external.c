/* The provider options of ONNX Runtime's CUDA provider: three functions without a context argument, so one binding for
 * the process (onnxruntime/core/providers/cuda/cuda_allocator.h, CUDAExternalAllocator). */
#include <inttypes.h>
#include <stdio.h>

#include "adapters/onnx/onnx.h"
#include "core/base/driver_state.h"
#include "core/base/error.h"
#include "core/base/lock.h"

static strata_lock binding_lock = STRATA_LOCK_INITIALIZER(STRATA_RANK_ONNX_BINDING);
static _Atomic(strata_runtime *) bound; /* NULL: nothing; written under binding_lock, read by any thread */
static CUstream bound_stream;           /* written under binding_lock, before `bound` */
static onnx_live live;

static void refuse_unbound(const char *what)
{
    strata_fail(STRATA_ERROR_INVALID_VALUE,
                "%s: ONNX Runtime's functions are bound to no runtime; call strata_onnx_bind "
                "before the session is made, and strata_onnx_unbind after its end",
                what);
}

static void *allocate(size_t bytes)
{
    strata_runtime *runtime = atomic_load_explicit(&bound, memory_order_acquire);
    if (runtime)
        return onnx_allocate(runtime, bytes, bound_stream, &live);
    refuse_unbound("gpu_external_alloc");
    return NULL;
}

static void deallocate(void *address)
{
    strata_runtime *runtime = atomic_load_explicit(&bound, memory_order_acquire);
    if (runtime)
        onnx_deallocate(runtime, address, &live);
    else if (address)
        refuse_unbound("gpu_external_free");
}

static void empty_cache(void)
{
    strata_runtime *runtime = atomic_load_explicit(&bound, memory_order_acquire);
    if (runtime)
        strata_runtime_trim(runtime, 0, NULL);
}

static void write_address(char text[STRATA_ONNX_TEXT], uintptr_t address)
{
    snprintf(text, STRATA_ONNX_TEXT, "%" PRIuPTR, address);
}

static strata_status bind(strata_runtime *runtime, CUstream stream)
{
    strata_runtime *now = atomic_load_explicit(&bound, memory_order_relaxed);
    if (now && (now != runtime || bound_stream != stream))
        return strata_fail(
            STRATA_ERROR_BUSY,
            "ONNX Runtime's functions are bound to another %s, and a process has one set; end its sessions "
            "and call strata_onnx_unbind",
            now != runtime ? "runtime" : "stream");
    if (!now) { /* else the functions may be reading both */
        bound_stream = stream;
        atomic_store_explicit(&bound, runtime, memory_order_release);
    }
    return STRATA_SUCCESS;
}

#undef strata_onnx_bind
strata_status strata_onnx_bind(strata_runtime *runtime, CUstream stream, strata_onnx_functions *out)
{
    if (!out)
        return strata_fail(STRATA_ERROR_INVALID_VALUE, "strata_onnx_bind: out is NULL");
    *out = (strata_onnx_functions){0};
    strata_status status = onnx_check(runtime, stream);
    if (status != STRATA_SUCCESS)
        return status;
    strata_error_suppress_begin();
    strata_lock_take(&binding_lock);
    status = bind(runtime, stream);
    strata_lock_release(&binding_lock);
    strata_error_suppress_end(status != STRATA_SUCCESS);
    if (status != STRATA_SUCCESS)
        return status;
    *out = (strata_onnx_functions){.allocate = allocate, .deallocate = deallocate, .empty_cache = empty_cache};
    write_address(out->allocate_text, (uintptr_t)allocate);
    write_address(out->deallocate_text, (uintptr_t)deallocate);
    write_address(out->empty_cache_text, (uintptr_t)empty_cache);
    write_address(out->stream_text, (uintptr_t)stream);
    return STRATA_SUCCESS;
}

strata_status strata_onnx_unbind(void)
{
    const strata_status status = strata_check_not_forked(); /* another thread may have had the lock */
    if (status != STRATA_SUCCESS)
        return status;
    strata_lock_take(&binding_lock);
    const int64_t left = atomic_load_explicit(&live, memory_order_relaxed);
    if (left <= 0)
        atomic_store_explicit(&bound, NULL, memory_order_release);
    strata_lock_release(&binding_lock);
    return left <= 0
               ? STRATA_SUCCESS
               : strata_fail(STRATA_ERROR_BUSY,
                             "ONNX Runtime has not freed %lld blocks; end the sessions that use the functions first",
                             (long long)left);
}
