/* The adapters' structs and function types against the libraries' own headers, at compile time. Not part of the build,
 * since these headers are not among the project's needs: scripts/check-library-headers compiles it. Each header that is
 * found is compared. */
#include <stddef.h>
#include <stdint.h>

#include <strata/mem_handler.h>
#include <strata/onnx.h>

#include "adapters/nccl/functions.h"

#define SAME_MEMBER(ours, our_member, theirs, their_member)                                          \
    _Static_assert(offsetof(ours, our_member) == offsetof(theirs, their_member) &&                   \
                       sizeof(((ours *)NULL)->our_member) == sizeof(((theirs *)NULL)->their_member), \
                   #theirs "." #their_member)
#define SAME_TYPE(ours, our_member, theirs, their_member)                                    \
    _Static_assert(__builtin_types_compatible_p(__typeof__(((ours *)NULL)->our_member),      \
                                                __typeof__(((theirs *)NULL)->their_member)), \
                   "type of " #theirs "." #their_member)
#define SAME_HANDLER(theirs, context_member, allocate_member, deallocate_member)      \
    _Static_assert(sizeof(strata_mem_handler) == sizeof(theirs), "size of " #theirs); \
    SAME_MEMBER(strata_mem_handler, context, theirs, context_member);                 \
    SAME_MEMBER(strata_mem_handler, allocate, theirs, allocate_member);               \
    SAME_TYPE(strata_mem_handler, allocate, theirs, allocate_member);                 \
    SAME_MEMBER(strata_mem_handler, deallocate, theirs, deallocate_member);           \
    SAME_TYPE(strata_mem_handler, deallocate, theirs, deallocate_member);             \
    SAME_MEMBER(strata_mem_handler, name, theirs, name)

#if __has_include(<cutensornet/types.h>)
#include <cutensornet/types.h>
SAME_HANDLER(cutensornetDeviceMemHandler_t, ctx, device_alloc, device_free);
#pragma message("compared: cuTensorNet")
#endif

#if __has_include(<custatevec.h>)
#include <custatevec.h>
SAME_HANDLER(custatevecDeviceMemHandler_t, ctx, device_alloc, device_free);
#pragma message("compared: cuStateVec")
#endif

#if __has_include(<cudss_data_types.h>)
#include <cudss_data_types.h>
SAME_HANDLER(cudssDeviceMemHandler_t, ctx, device_alloc, device_free);
SAME_HANDLER(cudssPinnedMemHandler_t, ctx, pinned_alloc, pinned_free);
#pragma message("compared: cuDSS")
#endif

#if __has_include(<nccl.h>)
#include <nccl.h>
_Static_assert(sizeof(ncclResult_t) == sizeof(int) && sizeof(ncclComm_t) == sizeof(void *) &&
                   sizeof(ncclWindow_t) == sizeof(void *),
               "NCCL's types");
_Static_assert((int)ncclSuccess == (int)NCCL_SUCCESS && (int)ncclInProgress == (int)NCCL_IN_PROGRESS, "NCCL's results");
static ncclResult_t (*const comm_register)(ncclComm_t, void *, size_t, void **) = ncclCommRegister;
static ncclResult_t (*const comm_deregister)(ncclComm_t, void *) = ncclCommDeregister;
static ncclResult_t (*const window_register)(ncclComm_t, void *, size_t, ncclWindow_t *, int) = ncclCommWindowRegister;
static ncclResult_t (*const window_deregister)(ncclComm_t, ncclWindow_t) = ncclCommWindowDeregister;
static const char *(*const error_string)(ncclResult_t) = ncclGetErrorString;
static const char *(*const last_error)(ncclComm_t) = ncclGetLastError;
const void *const nccl_calls[] = {&comm_register,     &comm_deregister, &window_register,
                                  &window_deregister, &error_string,    &last_error};
#pragma message("compared: NCCL")
#endif

#if __has_include(<onnxruntime_c_api.h>)
#include <onnxruntime_c_api.h>
SAME_MEMBER(strata_onnx_ort_allocator, version, OrtAllocator, version);
SAME_MEMBER(strata_onnx_ort_allocator, alloc, OrtAllocator, Alloc);
SAME_MEMBER(strata_onnx_ort_allocator, free, OrtAllocator, Free);
SAME_MEMBER(strata_onnx_ort_allocator, info, OrtAllocator, Info);
#if ORT_API_VERSION >= 18
SAME_MEMBER(strata_onnx_ort_allocator, reserve, OrtAllocator, Reserve);
#endif
#if ORT_API_VERSION >= 23
SAME_MEMBER(strata_onnx_ort_allocator, get_stats, OrtAllocator, GetStats);
SAME_MEMBER(strata_onnx_ort_allocator, alloc_on_stream, OrtAllocator, AllocOnStream);
#endif
#if ORT_API_VERSION >= 25
SAME_MEMBER(strata_onnx_ort_allocator, shrink, OrtAllocator, Shrink);
_Static_assert(sizeof(strata_onnx_ort_allocator) == sizeof(OrtAllocator), "size of OrtAllocator");
#endif
#pragma message("compared: ONNX Runtime")
#endif
