/* PyTorch's allocator on Strata: the class whose one object is put in place of PyTorch's own.
 *
 *     allocator.cc        the calls that need a line or two; forwarding to the allocator that was there before
 *     allocate.cc free.cc a tensor's memory          streams: Tensor.record_stream, in allocator.cc and free.cc
 *     pools.cc            private pools of graphs and torch.cuda.MemPool (private_pool.* cuts their segments)
 *     statistics.cc snapshot.cc history.cc           what users see
 *     checkpoints.cc      the state of a private pool, for torch.compile(mode="reduce-overhead")
 *     out_of_memory.cc processes.cc peers.cc         failure, other processes, other devices
 *     install.cc          the functions that Python calls
 *
 * An address that is not Strata's belongs to the former allocator, to which the call is passed on: it may be replaced
 * while tensors live. The object is never destroyed, since tensors are freed after all destructors. */
#ifndef STRATA_ADAPTERS_TORCH_ALLOCATOR_H
#define STRATA_ADAPTERS_TORCH_ALLOCATOR_H

#include "device.h"

#include <c10/cuda/CUDACachingAllocator.h>

namespace strata_torch
{

using c10::DataPtr;
using c10::DeviceIndex;
using c10::cuda::CUDAStream;
using c10::cuda::CUDACachingAllocator::AllocatorState;
using c10::cuda::CUDACachingAllocator::CheckpointDelta;
using c10::cuda::CUDACachingAllocator::OutOfMemoryObserver;
using c10::cuda::CUDACachingAllocator::ShareableHandle;
using c10::cuda::CUDACachingAllocator::SnapshotInfo;
using c10::cuda::CUDACachingAllocator::StreamSegmentSize;

class Allocator final : public CUDAAllocator
{
  public:
    static Allocator &get();

    /* The stack of devices that are used from now on; either may be empty. */
    void set_stack(const std::string &text, const std::string &budget);

    /* The device's state, made at its first use. Throws c10::Error. */
    Device &device(DeviceIndex ordinal);
    Device *device_if_used(DeviceIndex ordinal);

    void set_former(CUDAAllocator *former)
    {
        former_ = former;
    }
    void tell_observers(DeviceIndex device, size_t bytes, size_t total, size_t free);

    /* Frees a block of Strata's. False: there is none at the address. Never throws. */
    bool free(void *address) noexcept;

    /* In a forked child, whose context is not the parent's: frees then do nothing. */
    static void mark_forked();

    /* c10::Allocator */
    DataPtr allocate(size_t bytes) override;
    c10::DeleterFnPtr raw_deleter() const override;
    void copy_data(void *to, const void *from, size_t bytes) const override;

    /* c10::DeviceAllocator */
    bool initialized() override;
    void emptyCache(MempoolId_t id = {0, 0}) override;
    using CUDAAllocator::recordStream;
    DeviceStats getDeviceStats(DeviceIndex device) override;
    void resetAccumulatedStats(DeviceIndex device) override;
    void resetPeakStats(DeviceIndex device) override;
    std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) override;

    /* c10::cuda::CUDACachingAllocator::CUDAAllocator */
    void *raw_alloc(size_t bytes) override;
    void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override;
    void raw_delete(void *address) override;
    void init(int device_count) override;
    double getMemoryFraction(DeviceIndex device) override;
    void setMemoryFraction(double fraction, DeviceIndex device) override;
    std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) override;
    void enable(bool value) override;
    bool isEnabled() const override;
    void cacheInfo(DeviceIndex device, size_t *largest) override;
    void *getBaseAllocation(void *address, size_t *bytes) override;
    void recordStream(const DataPtr &pointer, CUDAStream stream) override;
    SnapshotInfo snapshot(MempoolId_t id = {0, 0}, bool with_traces = true) override;
    void beginAllocateToPool(DeviceIndex device, MempoolId_t id, std::function<bool(cudaStream_t)> filter) override;
    void endAllocateToPool(DeviceIndex device, MempoolId_t id) override;
    void releasePool(DeviceIndex device, MempoolId_t id) override;
    int getPoolUseCount(DeviceIndex device, MempoolId_t id) override;
    void createOrIncrefPool(DeviceIndex device, MempoolId_t id, std::shared_ptr<CUDAAllocator> allocator) override;
    void setUseOnOOM(DeviceIndex device, MempoolId_t id, bool use_on_oom) override;
    void setNoSplit(DeviceIndex device, MempoolId_t id) override;
    bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t id,
                                  const std::unordered_set<void *> &expected) override;
    ShareableHandle shareIpcHandle(void *address) override;
    std::shared_ptr<void> getIpcDevPtr(std::string handle) override;
    bool isHistoryEnabled() override;
    void recordHistory(bool enabled, CreateContextFn create, size_t most, RecordContext when, bool clear,
                       const std::vector<std::string> &skipped) override;
    void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &values) override;
    void pushCompileContext(std::string &name) override;
    void popCompileContext() override;
    void setUserMetadata(const std::string &metadata) override;
    std::string getUserMetadata() override;
    void attachOutOfMemoryObserver(OutOfMemoryObserver observer) override;
    void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) override;
    void enablePeerAccess(DeviceIndex device, DeviceIndex to) override;
    cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                            cudaStream_t stream, bool p2p_enabled) override;
    std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device, MempoolId_t id) override;
    CheckpointDelta setCheckpointPoolState(DeviceIndex device, std::shared_ptr<AllocatorState> state) override;
    std::string name() override;
#if STRATA_TORCH >= 212
    Context getContextForPointer(const void *address) override;
    void attachOomRejectionObserver(c10::cuda::CUDACachingAllocator::OomRejectionObserver observer) override;
#endif

  private:
    Allocator() = default;

    /* 0 bytes: NULL. The device is the current one, which was asked for once. */
    void *allocate_on(DeviceIndex ordinal, size_t bytes, cudaStream_t stream);

    /* Every device that was used. */
    std::vector<Device *> used();

    static constexpr size_t most_devices = 128; /* c10::DeviceIndex has 8 bits */

    std::mutex lock_; /* guards what follows, unless that is atomic */
    std::string stack_text_, budget_;
    std::vector<OutOfMemoryObserver> observers_;
    HistoryOptions history_{}; /* of devices to come */
    std::vector<AllocatorTraceTracker> trackers_;
    Ring<AnnotationEntry> annotations_;
    std::atomic<Device *> devices_[most_devices] = {}; /* written under lock_ */
    std::atomic<CUDAAllocator *> former_{nullptr};
    std::atomic<bool> initialized_{false};
    std::atomic<int> device_count_{0};
    std::atomic<bool> enabled_{true};
    BlockMap blocks_;
};

} // namespace strata_torch

#endif
