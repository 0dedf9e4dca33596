/* The history of a device's allocations (torch.cuda.memory._record_memory_history) and the trackers that libraries
 * attach. Guarded by the device's lock, except where said. */
#ifndef STRATA_ADAPTERS_TORCH_HISTORY_H
#define STRATA_ADAPTERS_TORCH_HISTORY_H

#include "ring.h"
#include "version.h"

#include <atomic>
#include <c10/core/CachingDeviceAllocator.h>
#include <string>
#include <unordered_set>
#include <vector>

namespace strata_torch
{

using c10::CachingDeviceAllocator::AllocatorTraceTracker;
using c10::CachingDeviceAllocator::AnnotationEntry;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::TraceEntry;
using Context = std::shared_ptr<c10::GatheredContext>;

struct HistoryOptions {
    bool enabled;
    CreateContextFn create;
    size_t most; /* entries kept */
    RecordContext when;
    bool clear;
    std::unordered_set<std::string> skipped; /* actions, by name */
};

/* What a trace entry says. */
struct Event {
    TraceEntry::Action action;
    size_t address;
    size_t bytes;
    void *stream;
    c10::MempoolId_t pool;
};

class History
{
  public:
    void set(const HistoryOptions &options);

    /* Any thread, without a lock: the recorder may take Python's lock. NULL: nothing is recorded for this. */
    Context gather(RecordContext least) const;

    /* Any thread: whether add() has an effect. */
    bool is_on() const
    {
        return on_.load(std::memory_order_relaxed);
    }

    void add(c10::DeviceIndex device, const Event &event, const Context &context);
    void attach(AllocatorTraceTracker tracker);

    /* Oldest first, with the time of each still as it was measured. */
    std::vector<TraceEntry> entries() const
    {
        return ring_.entries();
    }

    bool is_enabled() const
    {
        return options_.enabled;
    }

  private:
    HistoryOptions options_{};
    std::vector<AllocatorTraceTracker> trackers_;
    Ring<TraceEntry> ring_;
    std::atomic<bool> on_{false};                           /* written under the device's lock */
    std::atomic<CreateContextFn> create_{nullptr};          /* as on_ */
    std::atomic<RecordContext> when_{RecordContext::NEVER}; /* as on_ */
};

/* The calling thread's text for entries (torch.cuda.memory._set_memory_metadata). */
std::string &thread_metadata();

/* The compiled regions that the calling thread is in, the innermost last. */
std::vector<std::string> &thread_regions();

} // namespace strata_torch

#endif
