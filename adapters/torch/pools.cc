/* Private pools of a device: routes, segments, and blocks that other streams may still use. */
#include "cuda_calls.h"
#include "device.h"

#include <c10/core/DeviceGuard.h>

namespace strata_torch
{

bool StackSource::acquire_stream()
{
    return stream_ || strata_runtime_stream_acquire(device_->runtime, &stream_) == STRATA_SUCCESS;
}

/* The stream of the request waits for whatever work the memory waits for, and the host for that stream: then any stream
 * may use the memory, also one that is being captured. */
bool StackSource::take(size_t bytes, strata_block *out)
{
    if (!acquire_stream() || strata_runtime_allocate(device_->runtime, bytes, stream_, out) != STRATA_SUCCESS)
        return false;
    if (strata_runtime_stream_synchronize(device_->runtime, stream_) == STRATA_SUCCESS)
        return true;
    strata_runtime_deallocate(device_->runtime, out);
    return false;
}

void StackSource::give(const strata_block &memory)
{
    strata_runtime_deallocate(device_->runtime, &memory);
}

PrivatePool &Device::pool(MempoolId_t id)
{
    const auto at = pools.find(id);
    TORCH_CHECK(at != pools.end(), "Strata: there is no memory pool (", id.first, ", ", id.second, ") on device ",
                int{ordinal});
    return *at->second;
}

/* Of several routes that take the stream, the one that began last counts. */
PrivatePool *Device::route(cudaStream_t stream)
{
    for (auto at = routes.rbegin(); at != routes.rend(); ++at)
        if (at->takes(stream))
            return &pool(at->id);
    return nullptr;
}

static Event segment_event(TraceEntry::Action action, const Segment &segment)
{
    return {action, static_cast<size_t>(segment.memory.address), segment.memory.bytes, segment.stream,
            segment.pool->id};
}

Routed Device::try_routed(size_t bytes, cudaStream_t stream, const Context &context)
{
    std::lock_guard<std::recursive_mutex> guard(pool_lock);
    PrivatePool *from = route(stream);
    if (!from)
        return {};
    if (waiting_count.load(std::memory_order_relaxed))
        free_waiting();
    Segment *made = nullptr;
    Block *block = from->take(bytes, stream, true, context, &made);
    if (!block)
        return {nullptr, true,
                from->allocator ? "the pool's own allocator has none, or the memory fraction is used up"
                                : strata_last_error()->message};
    if (made) {
        std::lock_guard<SpinLock> stats_guard(lock);
        stats.num_device_alloc++;
        if (history.is_on())
            history.add(ordinal, segment_event(TraceEntry::Action::SEGMENT_ALLOC, *made), context);
    }
    return {enter(block, context), false, {}};
}

/* Room is made without the lock: a callback of PyTorch's may wait for Python's lock, whose thread may wait for this
 * one. Meanwhile routes and pools may change. */
Routed Device::allocate_routed(size_t bytes, cudaStream_t stream, const Context &context)
{
    for (unsigned attempt = 0;; attempt++) {
        Routed routed = try_routed(bytes, stream, context);
        if (!routed.refused || is_capturing(stream) || !make_room(attempt))
            return routed;
    }
}

static void complete(Device &device, Block *block)
{
    {
        std::lock_guard<SpinLock> guard(device.lock);
        device.count_inactive(*block);
        device.record(TraceEntry::Action::FREE_COMPLETED, *block, nullptr);
    }
    block->segment->pool->give(block);
}

void Device::free_private(Block *block)
{
    std::lock_guard<std::recursive_mutex> guard(pool_lock);
    block->allocated = false;
    if (!block->extras || block->extras->streams.empty()) {
        complete(*this, block);
    } else {
        block->segment->pool->waiting.push_back(block);
        waiting_count.fetch_add(1, std::memory_order_relaxed);
    }
    if (waiting_count.load(std::memory_order_relaxed))
        free_waiting();
}

static void destroy_events(Device &device, Block *block)
{
    const auto at = device.events.find(block);
    if (at == device.events.end())
        return;
    for (cudaEvent_t event : at->second)
        runtime_calls().EventDestroy(event);
    device.events.erase(at);
}

/* Records an event on each recorded stream, once. False: a stream is being captured, or an event cannot be made. */
static bool record_events(Device &device, Block *block)
{
    if (device.events.count(block))
        return true;
    for (cudaStream_t stream : block->extras->streams)
        if (is_capturing(stream))
            return false;
    std::vector<cudaEvent_t> &events = device.events[block];
    for (cudaStream_t stream : block->extras->streams) {
        cudaEvent_t event = nullptr;
        if (runtime_calls().EventCreateWithFlags(&event, cudaEventDisableTiming) != cudaSuccess ||
            runtime_calls().EventRecord(event, stream) != cudaSuccess) {
            runtime_calls().GetLastError();
            if (event)
                runtime_calls().EventDestroy(event);
            destroy_events(device, block);
            return false;
        }
        events.push_back(event);
    }
    return true;
}

static bool has_passed(Device &device, Block *block)
{
    if (!record_events(device, block))
        return false;
    for (cudaEvent_t event : device.events[block])
        if (runtime_calls().EventQuery(event) != cudaSuccess) {
            runtime_calls().GetLastError(); /* cudaErrorNotReady */
            return false;
        }
    return true;
}

/* While requests are routed a capture may be under way, whose graph a recorded event would become part of. */
void Device::free_waiting()
{
    if (!routes.empty())
        return;
    const c10::DeviceGuard device_guard(c10::Device(c10::DeviceType::CUDA, ordinal));
    const RelaxedCapture relaxed;
    for (auto &entry : pools) {
        std::vector<Block *> &waiting = entry.second->waiting;
        for (size_t i = 0; i < waiting.size();) {
            Block *block = waiting[i];
            if (!has_passed(*this, block)) {
                i++;
                continue;
            }
            destroy_events(*this, block);
            waiting[i] = waiting.back();
            waiting.pop_back();
            waiting_count.fetch_sub(1, std::memory_order_relaxed);
            complete(*this, block);
        }
    }
}

static bool is_due(const PrivatePool &pool, MempoolId_t id)
{
    return pool.id == id || (id == MempoolId_t{0, 0} && pool.use_count == 0);
}

/* A graph may run on any stream: the host waits for the device, as cudaFree does. */
static size_t drop(Device &device, PrivatePool &pool, const std::vector<Segment *> &segments)
{
    size_t bytes = 0;
    if (!segments.empty())
        runtime_calls().DeviceSynchronize();
    for (Segment *segment : segments) {
        {
            std::lock_guard<SpinLock> guard(device.lock);
            device.stats.num_device_free++;
            if (device.history.is_on())
                device.history.add(device.ordinal, segment_event(TraceEntry::Action::SEGMENT_FREE, *segment), nullptr);
        }
        bytes += segment->memory.bytes;
        pool.drop(segment);
    }
    return bytes;
}

size_t Device::release_segments(MempoolId_t id)
{
    std::lock_guard<std::recursive_mutex> guard(pool_lock);
    if (!routes.empty() && id == MempoolId_t{0, 0})
        return 0; /* a capture may be under way, which a wait for the device would end */
    const c10::DeviceGuard device_guard(c10::Device(c10::DeviceType::CUDA, ordinal));
    free_waiting();
    size_t bytes = 0;
    for (auto at = pools.begin(); at != pools.end();) {
        PrivatePool &pool = *at->second;
        if (is_due(pool, id))
            bytes += drop(*this, pool, pool.empty_segments());
        const bool done = pool.use_count == 0 && pool.segments().empty();
        at = done ? pools.erase(at) : std::next(at);
    }
    return bytes;
}

} // namespace strata_torch
