/* Other devices. A pool's memory is mapped for the devices that its option `peers` names, whatever
 * cudaDeviceEnablePeerAccess says; a copy between devices works in any case (cudaMemcpyPeerAsync). */
#include "allocator.h"
#include "cuda_calls.h"

#include <c10/core/DeviceGuard.h>

namespace strata_torch
{

/* Whether the device's memory is mapped, but not for the other device. Asks of a probe block, since only mapped memory
 * can be asked. False: it is, or the answer is not known. */
static bool is_mapped_without(Device &device, DeviceIndex other)
{
    strata_block probe;
    const auto get_access = driver_calls().MemGetAccess;
    if (!get_access || strata_runtime_allocate(device.runtime, 512, nullptr, &probe) != STRATA_SUCCESS)
        return false;
    CUmemLocation location{};
    location.type = CU_MEM_LOCATION_TYPE_DEVICE;
    location.id = other;
    unsigned long long flags = 0;
    const CUresult result = get_access(&flags, &location, probe.address);
    strata_runtime_deallocate(device.runtime, &probe);
    return result == CUDA_SUCCESS && flags != CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* Lets kernels of `from` read and write the memory of `to`. */
void Allocator::enablePeerAccess(DeviceIndex from, DeviceIndex to)
{
    const c10::DeviceGuard guard(c10::Device(c10::DeviceType::CUDA, from));
    const cudaError_t result = runtime_calls().DeviceEnablePeerAccess(to, 0);
    if (result == cudaErrorPeerAccessAlreadyEnabled)
        runtime_calls().GetLastError();
    else
        TORCH_CHECK(result == cudaSuccess, "CUDA error: ", runtime_calls().GetErrorString(result));
    TORCH_CHECK(!is_mapped_without(device(to), from), "Strata: the memory of device ", int{to},
                " is not accessible to device ", int{from}, "; use a stack with pool(peers=all)");
}

cudaError_t Allocator::memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                                   cudaStream_t stream, bool p2p_enabled)
{
    if (p2p_enabled || to_device == from_device)
        return runtime_calls().MemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    return runtime_calls().MemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
}

} // namespace strata_torch
