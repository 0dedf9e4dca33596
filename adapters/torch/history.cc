#include "history.h"

#include <algorithm>

namespace strata_torch
{

namespace
{

const char *name_of(TraceEntry::Action action)
{
    switch (action) {
    case TraceEntry::Action::ALLOC:
        return "alloc";
    case TraceEntry::Action::FREE_REQUESTED:
        return "free_requested";
    case TraceEntry::Action::FREE_COMPLETED:
        return "free_completed";
    case TraceEntry::Action::SEGMENT_ALLOC:
        return "segment_alloc";
    case TraceEntry::Action::SEGMENT_FREE:
        return "segment_free";
    case TraceEntry::Action::SNAPSHOT:
        return "snapshot";
    case TraceEntry::Action::OOM:
        return "oom";
    default:
        return "";
    }
}

} // namespace

std::string &thread_metadata()
{
    /* Never destroyed: deleters may run at the thread's end. */
    static thread_local std::string *text = new std::string;
    return *text;
}

void History::set(const HistoryOptions &options)
{
    options_ = options;
    std::rotate(ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end());
    next_ = 0; /* another size continues from the oldest entry */
    if (options.clear || !options.enabled)
        ring_.clear();
    else if (ring_.size() > options.most)
        ring_.erase(ring_.begin(), ring_.end() - static_cast<std::ptrdiff_t>(options.most));
    create_.store(options.create, std::memory_order_relaxed);
    when_.store(options.enabled ? options.when : RecordContext::NEVER, std::memory_order_relaxed);
    on_.store(options.enabled || !trackers_.empty(), std::memory_order_relaxed);
}

Context History::gather(RecordContext least) const
{
    if (when_.load(std::memory_order_relaxed) < least)
        return nullptr;
    const CreateContextFn create = create_.load(std::memory_order_relaxed);
    return create ? create() : nullptr;
}

void History::attach(AllocatorTraceTracker tracker)
{
    trackers_.push_back(std::move(tracker));
    on_.store(true, std::memory_order_relaxed);
}

void History::add(c10::DeviceIndex device, const Event &event, const Context &context)
{
    TraceEntry entry(event.action, device, event.address, event.bytes, event.stream, event.pool,
                     c10::getApproximateTime(), options_.when >= RecordContext::ALLOC ? context : nullptr, "",
                     thread_metadata());
    for (const AllocatorTraceTracker &tracker : trackers_)
        tracker(entry);
    if (options_.enabled && !options_.skipped.count(name_of(event.action)))
        keep(std::move(entry));
}

void History::keep(TraceEntry &&entry)
{
    if (ring_.size() < options_.most) {
        ring_.push_back(std::move(entry));
    } else if (!ring_.empty()) {
        ring_[next_] = std::move(entry);
        next_ = (next_ + 1) % ring_.size();
    }
}

std::vector<TraceEntry> History::entries() const
{
    std::vector<TraceEntry> result(ring_.begin() + static_cast<std::ptrdiff_t>(next_), ring_.end());
    result.insert(result.end(), ring_.begin(), ring_.begin() + static_cast<std::ptrdiff_t>(next_));
    return result;
}

} // namespace strata_torch
