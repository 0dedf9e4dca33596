/* Allocation: one call of Strata, an entry in the map, and the counts. */
#include "device.h"

#include <strata/stack.h>

namespace strata_torch
{

namespace
{

bool is_refusal(strata_status status)
{
    return status == STRATA_ERROR_OUT_OF_MEMORY || status == STRATA_ERROR_OUT_OF_BUDGET;
}

/* Aligned as by PyTorch's own allocator, or, in a stack that cannot, as the stack does by itself. fallback passes over
 * a branch that cannot, and answers as the others. */
strata_status request_block(Device &device, size_t bytes, cudaStream_t stream, strata_block *out)
{
    strata_request request{};
    request.bytes = bytes;
    request.alignment = device.alignment.load(std::memory_order_relaxed);
    request.stream = reinterpret_cast<CUstream>(stream);
    request.tag = strata_tag_current(); /* of strata.tag */
    const strata_status status = strata_runtime_allocate_request(device.runtime, &request, out);
    if (!request.alignment || !(status == STRATA_ERROR_UNSUPPORTED || (device.branches && is_refusal(status))))
        return status;
    if (status == STRATA_ERROR_UNSUPPORTED)
        device.alignment.store(0, std::memory_order_relaxed);
    request.alignment = 0;
    return strata_runtime_allocate_request(device.runtime, &request, out);
}

} // namespace

/* Returns what was allocated, or NULL after the last attempt. */
static void *try_to_allocate(Device &device, size_t bytes, cudaStream_t stream, const Context &context,
                             strata_status *status)
{
    const size_t allowed = device.pooled ? 0 : device.allowed.load(std::memory_order_relaxed);
    if (allowed &&
        strata_runtime_bytes_outstanding(device.runtime) + device.own_bytes.load(std::memory_order_relaxed) + bytes >
            allowed) {
        *status = STRATA_ERROR_OUT_OF_BUDGET;
        return nullptr;
    }
    strata_block memory;
    *status = request_block(device, bytes, stream, &memory);
    return *status == STRATA_SUCCESS ? device.enter_memory(memory, context) : nullptr;
}

void *Device::allocate(size_t bytes, cudaStream_t stream)
{
    const Context context = history.gather(RecordContext::STATE);
    if (route_count.load(std::memory_order_relaxed)) {
        Routed routed = allocate_routed(bytes, stream, context);
        if (routed.address)
            return routed.address;
        if (routed.refused)
            refuse(bytes, STRATA_ERROR_OUT_OF_MEMORY, routed.reason, context);
    }
    if (deferred_count.load(std::memory_order_relaxed))
        free_deferred();
    strata_status status;
    for (unsigned attempt = 0;; attempt++) {
        if (void *address = try_to_allocate(*this, bytes, stream, context, &status))
            return address;
        TORCH_CHECK(is_refusal(status), "Strata: ", strata_last_error()->message,
                    status == STRATA_ERROR_STREAM_CAPTURE ? "; capture with torch.cuda.graph" : "");
        const std::string reason = strata_last_error()->message;
        if (!make_room(attempt)) {
            if (void *address = allocate_in_need(bytes, stream, context))
                return address;
            refuse(bytes, status, reason, context);
        }
    }
}

} // namespace strata_torch
