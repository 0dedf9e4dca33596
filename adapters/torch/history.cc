#include "history.h"

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

std::vector<std::string> &thread_regions()
{
    static thread_local auto *regions = new std::vector<std::string>; /* as the text */
    return *regions;
}

void History::set(const HistoryOptions &options)
{
    options_ = options;
    ring_.set(options.most, options.clear || !options.enabled);
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
                     c10::getApproximateTime(), options_.when >= RecordContext::ALLOC ? context : nullptr,
                     thread_regions().empty() ? "N/A" : thread_regions().back(), thread_metadata());
    for (const AllocatorTraceTracker &tracker : trackers_)
        tracker(entry);
    if (options_.enabled && !options_.skipped.count(name_of(event.action)))
        ring_.keep(std::move(entry));
}

} // namespace strata_torch
