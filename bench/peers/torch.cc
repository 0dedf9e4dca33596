/* PyTorch's caching allocator as a competitor of strata_peers. build-torch compiles it against c10's public headers, on
 * a machine with PyTorch. PYTORCH_CUDA_ALLOC_CONF has its usual meaning. */
#include "peer.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

namespace
{

namespace caching = c10::cuda::CUDACachingAllocator;

c10::DeviceIndex device; /* written once by open_allocator */

void *pointer_to(CUdeviceptr address)
{
    return reinterpret_cast<void *>(static_cast<uintptr_t>(address));
}

int say(const char *call, const std::exception &what)
{
    std::fprintf(stderr, "PyTorch's %s: %s\n", call, what.what());
    return STRATA_PEER_BROKEN;
}

int open_allocator(int ordinal, char *why, size_t size)
{
    try {
        device = static_cast<c10::DeviceIndex>(ordinal);
        const int count = c10::cuda::device_count();
        if (ordinal >= count) {
            std::snprintf(why, size, "PyTorch sees %d CUDA devices", count);
            return 0;
        }
        c10::cuda::set_device(device);
        if (!caching::get()->initialized())
            caching::init(count);
        return 1;
    } catch (const std::exception &failure) {
        std::snprintf(why, size, "%s", failure.what());
        return 0;
    }
}

int allocate(size_t bytes, CUstream stream, CUdeviceptr *address)
{
    try {
        void *memory = caching::raw_alloc_with_stream(bytes, stream);
        *address = static_cast<CUdeviceptr>(reinterpret_cast<uintptr_t>(memory));
        return memory ? STRATA_PEER_GOOD : STRATA_PEER_NO_MEMORY;
    } catch (const c10::OutOfMemoryError &) {
        return STRATA_PEER_NO_MEMORY;
    } catch (const std::exception &failure) {
        return say("raw_alloc_with_stream", failure);
    }
}

int release(CUdeviceptr address, size_t, CUstream)
{
    try {
        caching::raw_delete(pointer_to(address));
        return STRATA_PEER_GOOD;
    } catch (const std::exception &failure) {
        return say("raw_delete", failure);
    }
}

/* As Tensor.record_stream does it. recordStream() checks the deleter of a DataPtr, so the pointer is put into a DataPtr
 * with the allocator's deleter, and released from it afterwards. */
int release_elsewhere(CUdeviceptr address, size_t bytes, CUstream allocated_on, CUstream stream)
{
    try {
        void *memory = pointer_to(address);
        c10::DataPtr lent(memory, memory, caching::get()->raw_deleter(), c10::Device(c10::DeviceType::CUDA, device));
        try {
            caching::recordStream(lent, c10::cuda::getStreamFromExternal(stream, device));
        } catch (...) {
            lent.release_context();
            throw;
        }
        lent.release_context();
    } catch (const std::exception &failure) {
        return say("recordStream", failure);
    }
    return release(address, bytes, allocated_on);
}

uint64_t reserved_peak()
{
    try {
        return static_cast<uint64_t>(caching::getDeviceStats(device).reserved_bytes[0].peak); /* 0: of all pools */
    } catch (const std::exception &failure) {
        say("getDeviceStats", failure);
        return 0;
    }
}

void trim()
{
    try {
        caching::emptyCache();
    } catch (const std::exception &failure) {
        say("emptyCache", failure);
    }
}

/* It takes nothing beforehand. A process has one allocator: afresh is one without memory. */
void begin(uint64_t)
{
    trim();
    try {
        caching::resetPeakStats(device);
    } catch (const std::exception &failure) {
        say("resetPeakStats", failure);
    }
}

std::string describe()
{
    const char *settings = std::getenv("PYTORCH_CUDA_ALLOC_CONF");
    std::string text = "PyTorch " STRATA_TORCH_VERSION "'s caching allocator: raw_alloc_with_stream, raw_delete";
    return settings ? text + " (" + settings + ")" : text;
}

} // namespace

const strata_peer *strata_peer_get(void)
{
    static const std::string about = describe();
    static const strata_peer self = [] {
        strata_peer made{};
        made.version = STRATA_PEER_VERSION;
        made.label = "torch";
        made.about = about.c_str();
        made.open = open_allocator;
        made.allocate = allocate;
        made.release = release;
        made.release_elsewhere = release_elsewhere;
        made.begin = begin;
        made.reserved_peak = reserved_peak;
        made.trim = trim;
        return made;
    }();
    return &self;
}
