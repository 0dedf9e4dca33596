#include "allocator.h"

#include "cuda_calls.h"

#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDAFunctions.h>

namespace strata_torch
{

namespace
{

std::atomic<bool> forked{false};

constexpr size_t exabyte = size_t{1} << 60;

/* It runs in destructors. An address without a block was freed by other means (torch.cuda.caching_allocator_delete). */
void delete_block(void *address)
{
    Allocator::get().free(address);
}

} // namespace

Allocator &Allocator::get()
{
    static Allocator *one = new Allocator;
    return *one;
}

/* Marks a child only if its parent has used a device: else it may use CUDA like any process. */
void Allocator::mark_forked()
{
    for (auto &slot : get().devices_)
        if (slot.load(std::memory_order_relaxed))
            forked.store(true, std::memory_order_relaxed);
}

void Allocator::set_stack(const std::string &text, const std::string &budget)
{
    std::lock_guard<std::mutex> guard(lock_);
    stack_text_ = text;
    budget_ = budget;
}

Device *Allocator::device_if_used(DeviceIndex ordinal)
{
    TORCH_CHECK(ordinal >= 0 && static_cast<size_t>(ordinal) < most_devices, "Strata: no device ", int{ordinal});
    return devices_[ordinal].load(std::memory_order_acquire);
}

Device &Allocator::device(DeviceIndex ordinal)
{
    if (Device *device = device_if_used(ordinal))
        return *device;
    std::lock_guard<std::mutex> guard(lock_);
    if (Device *device = device_if_used(ordinal))
        return *device;
    auto device = std::make_unique<Device>(ordinal, stack_text_, budget_);
    device->blocks = &blocks_;
    device->history.set(history_);
    for (const AllocatorTraceTracker &tracker : trackers_)
        device->history.attach(tracker);
    devices_[ordinal].store(device.get(), std::memory_order_release);
    return *device.release();
}

std::vector<Device *> Allocator::used()
{
    std::vector<Device *> result;
    for (auto &slot : devices_)
        if (Device *device = slot.load(std::memory_order_acquire))
            result.push_back(device);
    return result;
}

/* ---- memory ---- */

static DeviceIndex current_device()
{
    DeviceIndex ordinal = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&ordinal));
    return ordinal;
}

void *Allocator::allocate_on(DeviceIndex ordinal, size_t bytes, cudaStream_t stream)
{
    TORCH_CHECK_WITH(OutOfMemoryError, bytes < exabyte, "CUDA out of memory. Tried to allocate more than 1EB memory.");
    if (!bytes)
        return nullptr;
    void *address = device(ordinal).allocate(bytes, stream);
    if (const auto *trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr))
        (*trace)->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
    return address;
}

void *Allocator::raw_alloc_with_stream(size_t bytes, cudaStream_t stream)
{
    return allocate_on(current_device(), bytes, stream);
}

void *Allocator::raw_alloc(size_t bytes)
{
    const DeviceIndex ordinal = current_device();
    return bytes ? allocate_on(ordinal, bytes, c10::cuda::getCurrentCUDAStream(ordinal)) : nullptr;
}

DataPtr Allocator::allocate(size_t bytes)
{
    const DeviceIndex ordinal = current_device();
    void *address = bytes ? allocate_on(ordinal, bytes, c10::cuda::getCurrentCUDAStream(ordinal).stream()) : nullptr;
    return {address, address, &delete_block, c10::Device(c10::DeviceType::CUDA, ordinal)};
}

c10::DeleterFnPtr Allocator::raw_deleter() const
{
    return &delete_block;
}

bool Allocator::free(void *address) noexcept
{
    if (!address || forked.load(std::memory_order_relaxed))
        return true;
    Block *block = blocks_.take(address);
    if (!block)
        return false;
    if (const auto *trace = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(trace != nullptr))
        (*trace)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(address));
    block->device->free(block);
    return true;
}

void Allocator::raw_delete(void *address)
{
    if (free(address))
        return;
    CUDAAllocator *former = former_.load(std::memory_order_acquire);
    TORCH_CHECK(former && former->initialized(), "invalid device pointer: ", address);
    former->raw_delete(address);
}

void Allocator::copy_data(void *to, const void *from, size_t bytes) const
{
    const cudaError_t result =
        runtime_calls().MemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, c10::cuda::getCurrentCUDAStream());
    TORCH_CHECK(result == cudaSuccess, "CUDA error: ", runtime_calls().GetErrorString(result));
}

/* Keeps the stream with the block, for the free to record a use on it, as PyTorch's own allocator does. The block's own
 * stream needs none. */
void Allocator::recordStream(const DataPtr &pointer, CUDAStream stream)
{
    if (!pointer.get() || forked.load(std::memory_order_relaxed))
        return;
    if (pointer.get_deleter() != &delete_block) {
        CUDAAllocator *former = former_.load(std::memory_order_acquire);
        if (former && pointer.get_deleter() == former->raw_deleter())
            former->recordStream(pointer, stream);
        return;
    }
    const cudaStream_t handle = stream.stream();
    Device &home = device(pointer.device().index());
    std::lock_guard<std::recursive_mutex> guard(home.pool_lock);
    blocks_.with(pointer.get(), [handle](Block *block) {
        if (handle == block->stream())
            return;
        std::vector<cudaStream_t> &streams = block->extra().streams;
        for (cudaStream_t known : streams)
            if (known == handle)
                return;
        streams.push_back(handle);
    });
}

void *Allocator::getBaseAllocation(void *address, size_t *bytes)
{
    strata_block block;
    for (Device *device : used())
        if (strata_runtime_find(device->runtime, reinterpret_cast<CUdeviceptr>(address), &block) == STRATA_SUCCESS) {
            if (bytes)
                *bytes = block.bytes;
            return reinterpret_cast<void *>(block.address);
        }
    CUDAAllocator *former = former_.load(std::memory_order_acquire);
    TORCH_CHECK(former && former->initialized(), "invalid device pointer: ", address);
    return former->getBaseAllocation(address, bytes);
}

/* ---- state ---- */

void Allocator::init(int device_count)
{
    device_count_.store(device_count);
    initialized_.store(true);
}

bool Allocator::initialized()
{
    return initialized_.load();
}

void Allocator::enable(bool value)
{
    enabled_.store(value);
}

bool Allocator::isEnabled() const
{
    return enabled_.load();
}

std::string Allocator::name()
{
    return "strata";
}

double Allocator::getMemoryFraction(DeviceIndex ordinal)
{
    Device *of = device_if_used(ordinal);
    if (!of)
        return 1.0;
    std::lock_guard<SpinLock> guard(of->lock);
    return of->fraction;
}

void Allocator::setMemoryFraction(double fraction, DeviceIndex ordinal)
{
    TORCH_CHECK(0 <= fraction && fraction <= 1, "invalid fraction:", fraction, ". Please set within [0, 1].");
    device(ordinal).set_fraction(fraction);
}

void Allocator::emptyCache(MempoolId_t id)
{
    for (Device *device : used()) {
        if (is_capturing(c10::cuda::getCurrentCUDAStream(device->ordinal)))
            continue;
        device->free_deferred();
        device->release_segments(id);
        if (id == MempoolId_t{0, 0})
            strata_runtime_trim(device->runtime, 0, nullptr);
    }
    CUDAAllocator *former = former_.load(std::memory_order_acquire);
    if (former && former->initialized())
        former->emptyCache(id);
}

/* What cuDNN may take for a workspace: at least what is free without growing. */
void Allocator::cacheInfo(DeviceIndex ordinal, size_t *largest)
{
    Device &of = device(ordinal);
    strata_runtime_budget budget;
    if (*largest == 0 && strata_runtime_budget_snapshot(of.runtime, &budget) == STRATA_SUCCESS)
        *largest = std::min(budget.remaining, budget.device_free);
    strata_usage usage;
    if (strata_runtime_usage(of.runtime, &usage) == STRATA_SUCCESS)
        *largest = std::max(*largest, usage.largest_free);
}

std::pair<size_t, size_t> Allocator::getMemoryInfo(DeviceIndex ordinal)
{
    Device &of = device(ordinal);
    strata_runtime_budget budget;
    TORCH_CHECK(strata_runtime_budget_snapshot(of.runtime, &budget) == STRATA_SUCCESS,
                "Strata: ", strata_last_error()->message);
    if (!budget.limit || budget.limit > of.total_bytes)
        return {budget.device_free, of.total_bytes};
    return {std::min(budget.remaining, budget.device_free), budget.limit};
}

/* ---- statistics and history ---- */

/* A question does not make a context on a device that is not used. */
DeviceStats Allocator::getDeviceStats(DeviceIndex ordinal)
{
    Device *of = device_if_used(ordinal);
    return of ? of->statistics() : DeviceStats{};
}

template <typename Change> static void change_all(DeviceStats &stats, Change change)
{
    for (StatArray *array :
         {&stats.allocation, &stats.segment, &stats.active, &stats.inactive_split, &stats.allocated_bytes,
          &stats.reserved_bytes, &stats.active_bytes, &stats.inactive_split_bytes, &stats.requested_bytes})
        for (Stat &stat : *array)
            change(stat);
    change(stats.oversize_allocations);
    change(stats.oversize_segments);
}

void Allocator::resetAccumulatedStats(DeviceIndex ordinal)
{
    Device *of = device_if_used(ordinal);
    if (!of)
        return;
    of->statistics();
    std::lock_guard<SpinLock> guard(of->lock);
    change_all(of->stats, [](Stat &stat) { stat.reset_accumulated(); });
    of->stats.num_alloc_retries = of->stats.num_ooms = of->stats.num_sync_all_streams = 0;
    of->stats.num_device_alloc = of->stats.num_device_free = 0;
    of->chunks_before = of->chunks_made();
}

void Allocator::resetPeakStats(DeviceIndex ordinal)
{
    Device *of = device_if_used(ordinal);
    if (!of)
        return;
    of->statistics();
    if (of->pooled)
        of->set_value("pool.reserved.watermark", 0);
    std::lock_guard<SpinLock> guard(of->lock);
    change_all(of->stats, [](Stat &stat) { stat.reset_peak(); });
}

/* Knows times from its first use on, so it is there before the first entry. Never destroyed. */
static c10::ApproximateClockToUnixTimeConverter &time_converter()
{
    static auto *converter = new c10::ApproximateClockToUnixTimeConverter;
    return *converter;
}

template <typename Entry> static void set_time(Entry &entry, const std::function<time_t(c10::approx_time_t)> &convert)
{
    entry.time_.t_ = convert(entry.time_.approx_t_) / 1000; /* microseconds */
}

SnapshotInfo Allocator::snapshot(MempoolId_t id, bool with_traces)
{
    SnapshotInfo result{};
    result.device_traces.resize(static_cast<size_t>(device_count_.load()));
    for (Device *device : used()) {
        for (SegmentInfo &segment : device->segments())
            if (id == MempoolId_t{0, 0} || segment.owner_private_pool_id == id)
                result.segments.push_back(std::move(segment));
        const auto number = static_cast<size_t>(device->ordinal);
        if (!with_traces || number >= result.device_traces.size())
            continue;
        std::lock_guard<SpinLock> guard(device->lock);
        result.device_traces[number] = device->history.entries();
    }
    {
        std::lock_guard<std::mutex> guard(lock_);
        result.external_annotations = annotations_.entries();
    }
    const auto convert = time_converter().makeConverter();
    for (AnnotationEntry &entry : result.external_annotations)
        set_time(entry, convert);
    for (auto &entries : result.device_traces)
        for (TraceEntry &entry : entries)
            set_time(entry, convert);
    result.config_metadata.max_split_size = ~size_t{0};
    if (!used().empty())
        result.config_metadata.last_allocator_settings = strata_stack_text(used()[0]->stack);
    CUDAAllocator *former = former_.load(std::memory_order_acquire);
    if (former && former->initialized())
        for (SegmentInfo &segment : former->snapshot(id, false).segments)
            result.segments.push_back(std::move(segment));
    return result;
}

void Allocator::recordHistory(bool enabled, CreateContextFn create, size_t most, RecordContext when, bool clear,
                              const std::vector<std::string> &skipped)
{
    TORCH_CHECK(when == RecordContext::NEVER || create, "recording contexts needs a context recorder");
    time_converter();
    const HistoryOptions options{enabled, create, most,
                                 when,    clear,  std::unordered_set<std::string>(skipped.begin(), skipped.end())};
    {
        std::lock_guard<std::mutex> guard(lock_);
        history_ = options;
        annotations_.set(most, clear || !enabled);
    }
    for (Device *device : used()) {
        std::lock_guard<SpinLock> guard(device->lock);
        device->history.set(options);
    }
}

bool Allocator::isHistoryEnabled()
{
    std::lock_guard<std::mutex> guard(lock_);
    return history_.enabled;
}

/* What torch.profiler.record_function tells, while a history is recorded. */
void Allocator::recordAnnotation(const std::vector<std::pair<std::string, std::string>> &values)
{
    std::lock_guard<std::mutex> guard(lock_);
    if (!history_.enabled)
        return;
    AnnotationEntry entry(current_device(), c10::getApproximateTime());
    for (const auto &[name, value] : values)
        entry.recordUserMetadata(name, value);
    annotations_.keep(std::move(entry));
}

void Allocator::pushCompileContext(std::string &name)
{
    thread_regions().push_back(name);
}

void Allocator::popCompileContext()
{
    if (!thread_regions().empty())
        thread_regions().pop_back();
}

void Allocator::setUserMetadata(const std::string &metadata)
{
    thread_metadata() = metadata;
}

std::string Allocator::getUserMetadata()
{
    return thread_metadata();
}

void Allocator::attachAllocatorTraceTracker(AllocatorTraceTracker tracker)
{
    std::lock_guard<std::mutex> guard(lock_);
    trackers_.push_back(tracker);
    for (Device *device : used()) {
        std::lock_guard<SpinLock> device_guard(device->lock);
        device->history.attach(tracker);
    }
}

void Allocator::attachOutOfMemoryObserver(OutOfMemoryObserver observer)
{
    std::lock_guard<std::mutex> guard(lock_);
    observers_.push_back(std::move(observer));
}

/* Observers may take Python's lock, so no lock is held. */
void Allocator::tell_observers(DeviceIndex device, size_t bytes, size_t total, size_t free)
{
    std::vector<OutOfMemoryObserver> observers;
    {
        std::lock_guard<std::mutex> guard(lock_);
        observers = observers_;
    }
    for (const OutOfMemoryObserver &observer : observers)
        observer(device, bytes, total, free);
}

#if STRATA_TORCH >= 212
/* Where the block at the address was allocated. NULL: there is none, or no history recorded it. */
Context Allocator::getContextForPointer(const void *address)
{
    Context result;
    blocks_.with(const_cast<void *>(address), [&result](const Block *block) {
        if (block->extras)
            result = block->extras->context;
    });
    return result;
}

/* The observer is not kept: it would hear of requests that are refused before they are tried, and Strata tries all. */
void Allocator::attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver)
{
}
#endif

std::vector<StreamSegmentSize> Allocator::getExpandableSegmentSizes(DeviceIndex)
{
    return {};
}

/* ---- private pools ---- */

static PrivatePool &pool_or_new(Device &device, MempoolId_t id)
{
    auto &slot = device.pools[id];
    if (!slot)
        slot = std::make_unique<PrivatePool>(id, &device, &device.source);
    return *slot;
}

void Allocator::createOrIncrefPool(DeviceIndex ordinal, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    PrivatePool &pool = pool_or_new(of, id);
    if (allocator && pool.segments().empty())
        pool.allocator = std::move(allocator);
    pool.use_count++;
}

void Allocator::beginAllocateToPool(DeviceIndex ordinal, MempoolId_t id, std::function<bool(cudaStream_t)> filter)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    for (const Route &route : of.routes)
        TORCH_CHECK(route.id != id, "beginAllocateToPool: already recording to mempool_id");
    of.routes.push_back({id, std::move(filter)});
    of.route_count.store(of.routes.size(), std::memory_order_relaxed);
    pool_or_new(of, id).use_count++;
}

void Allocator::endAllocateToPool(DeviceIndex ordinal, MempoolId_t id)
{
    Device &of = device(ordinal);
    {
        std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
        auto at = of.routes.begin();
        while (at != of.routes.end() && at->id != id)
            ++at;
        TORCH_CHECK(at != of.routes.end(), "endAllocatePool: not currently recording to mempool_id");
        of.routes.erase(at);
        of.route_count.store(of.routes.size(), std::memory_order_relaxed);
    }
    if (of.deferred_count.load(std::memory_order_relaxed))
        of.free_deferred();
}

void Allocator::releasePool(DeviceIndex ordinal, MempoolId_t id)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    CUDAAllocator *former = former_.load(std::memory_order_acquire);
    if (!of.pools.count(id) && former && former->initialized())
        return former->releasePool(ordinal, id); /* a graph from before */
    PrivatePool &pool = of.pool(id);
    TORCH_CHECK(pool.use_count > 0, "releasePool: memory pool (", id.first, ", ", id.second, ") has no user");
    pool.use_count--;
}

int Allocator::getPoolUseCount(DeviceIndex ordinal, MempoolId_t id)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    const auto at = of.pools.find(id);
    return at == of.pools.end() ? 0 : at->second->use_count;
}

void Allocator::setUseOnOOM(DeviceIndex ordinal, MempoolId_t id, bool use_on_oom)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    of.pool(id).use_on_oom = use_on_oom;
}

void Allocator::setNoSplit(DeviceIndex ordinal, MempoolId_t id)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    of.pool(id).no_split = true;
}

bool Allocator::checkPoolLiveAllocations(DeviceIndex ordinal, MempoolId_t id,
                                         const std::unordered_set<void *> &expected)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    size_t found = 0;
    for (const Segment *segment : of.pool(id).segments())
        for (const Block *block = segment->first; block; block = block->next)
            if (block->allocated) {
                if (!expected.count(block->address()))
                    return false;
                found++;
            }
    return found == expected.size();
}

} // namespace strata_torch
