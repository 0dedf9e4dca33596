/* What happens when Strata refuses a request: PyTorch's callbacks may free memory, private pools give back what they
 * do not use, and at the end the program gets torch.OutOfMemoryError with the message it knows. */
#include "allocator.h"
#include "cuda_calls.h"

#include <c10/cuda/CUDACachingAllocator.h>

namespace strata_torch
{

namespace
{

bool run_callbacks()
{
    bool freed = false;
    for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys())
        freed |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
    return freed;
}

std::string size_text(size_t bytes)
{
    return c10::CachingAllocator::format_size(bytes);
}

size_t private_bytes(Device &device)
{
    std::lock_guard<std::recursive_mutex> guard(device.pool_lock);
    size_t bytes = 0;
    for (const auto &entry : device.pools)
        for (const Segment *segment : entry.second->segments())
            bytes += segment->memory.bytes;
    return bytes;
}

} // namespace

bool Device::make_room(unsigned attempt)
{
    if (attempt == 0 && run_callbacks())
        return true;
    if (attempt > 1)
        return false;
    {
        std::lock_guard<SpinLock> guard(lock);
        stats.num_alloc_retries++;
    }
    const size_t deferred_before = deferred_count.load(std::memory_order_relaxed);
    free_deferred();
    const size_t released = release_segments({0, 0});
    return released || deferred_count.load(std::memory_order_relaxed) < deferred_before;
}

/* Takes a free block of a pool that torch.cuda.MemPool(use_on_oom=True) lends. NULL: none fits. */
void *Device::allocate_in_need(size_t bytes, cudaStream_t stream, const Context &context)
{
    std::lock_guard<std::recursive_mutex> guard(pool_lock);
    Segment *made;
    for (const auto &entry : pools)
        if (entry.second->use_on_oom)
            if (Block *block = entry.second->take(bytes, stream, false, context, &made))
                return enter(block, context);
    return nullptr;
}

static std::string message(Device &device, size_t bytes, size_t free, const DeviceStats &stats,
                           const std::string &reason)
{
    const size_t allocated = static_cast<size_t>(stats.allocated_bytes[0].current);
    const size_t reserved = static_cast<size_t>(stats.reserved_bytes[0].current);
    const size_t own = private_bytes(device);
    std::string text = "CUDA out of memory. Tried to allocate " + size_text(bytes) + ". GPU " +
                       std::to_string(device.ordinal) + " has a total capacity of " + size_text(device.total_bytes) +
                       " of which " + size_text(free) + " is free. ";
    if (device.fraction < 1.0)
        text +=
            size_text(static_cast<size_t>(device.fraction * static_cast<double>(device.total_bytes))) + " allowed; ";
    text += "Of the allocated memory " + size_text(allocated) + " is allocated by PyTorch";
    if (own)
        text += ", with " + size_text(own) + " in private pools (e.g., CUDA Graphs)";
    text += ", and " + size_text(reserved > allocated ? reserved - allocated : 0) +
            " is reserved by PyTorch but unallocated. ";
    return text + "Strata: " + reason;
}

void Device::refuse(size_t bytes, strata_status status, const std::string &reason, const Context &context)
{
    size_t free = 0, total = 0;
    runtime_calls().GetLastError();
    if (runtime_calls().MemGetInfo(&free, &total) != cudaSuccess)
        runtime_calls().GetLastError();
    const DeviceStats now = statistics();
    const auto allocated = static_cast<size_t>(now.allocated_bytes[0].current);
    {
        std::lock_guard<SpinLock> guard(lock);
        stats.num_ooms++;
        if (history.is_on())
            history.add(ordinal, {TraceEntry::Action::OOM, free, bytes, nullptr, {0, 0}}, context);
    }
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(bytes), allocated,
                                     static_cast<size_t>(now.reserved_bytes[0].current),
                                     c10::Device(c10::DeviceType::CUDA, ordinal));
    Allocator::get().tell_observers(ordinal, bytes, total, free);
    const bool by_fraction = !pooled && status == STRATA_ERROR_OUT_OF_BUDGET && allowed.load(std::memory_order_relaxed);
    TORCH_CHECK_WITH(OutOfMemoryError, false,
                     message(*this, bytes, free, now, by_fraction ? "the memory fraction is used up" : reason));
}

} // namespace strata_torch
