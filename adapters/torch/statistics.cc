/* The counts of torch.cuda.memory_stats(). What blocks are is counted as it happens; what is reserved, and how it is
 * cut, is read from the stack when the statistics are asked for. */
#include "device.h"

namespace strata_torch
{

namespace
{

constexpr size_t all_pools = 0, small_pool = 1, large_pool = 2; /* c10::CachingAllocator::StatType */

constexpr size_t most_spare = 1024;

size_t pool_of(const Block &block)
{
    return block.is_small ? small_pool : large_pool;
}

inline void increase(StatArray &stat, size_t pool, size_t amount)
{
    stat[all_pools].increase(amount);
    stat[pool].increase(amount);
}

inline void decrease(StatArray &stat, size_t pool, size_t amount)
{
    stat[all_pools].decrease(amount);
    stat[pool].decrease(amount);
}

/* Sets what is not counted as it happens; changes between two looks that cancel out are not seen. */
void see(Stat &stat, int64_t now)
{
    if (now >= stat.current)
        stat.increase(static_cast<size_t>(now - stat.current));
    else
        stat.decrease(static_cast<size_t>(stat.current - now));
}

/* Sums over segments: over all, the small and the large ones. */
struct Sums {
    int64_t segments[3] = {}, reserved[3] = {}, split[3] = {}, split_bytes[3] = {};

    void add(const SegmentInfo &segment)
    {
        for (size_t pool : {all_pools, segment.is_large ? large_pool : small_pool}) {
            segments[pool]++;
            reserved[pool] += static_cast<int64_t>(segment.total_size);
            for (const auto &block : segment.blocks)
                if (!block.active && segment.blocks.size() > 1) {
                    split[pool]++;
                    split_bytes[pool] += static_cast<int64_t>(block.size);
                }
        }
    }
};

void see_sums(DeviceStats &stats, const Sums &sums)
{
    for (size_t pool : {all_pools, small_pool, large_pool}) {
        see(stats.segment[pool], sums.segments[pool]);
        see(stats.reserved_bytes[pool], sums.reserved[pool]);
        see(stats.inactive_split[pool], sums.split[pool]);
        see(stats.inactive_split_bytes[pool], sums.split_bytes[pool]);
    }
}

} // namespace

/* Until a block is first freed without being inactive at once, active blocks are the allocated ones: they are counted
 * once, since these counts are a tenth of an allocation. */
void Device::see_active()
{
    if (active_apart)
        return;
    stats.active = stats.allocation;
    stats.active_bytes = stats.allocated_bytes;
}

void Device::count_active_apart()
{
    see_active();
    active_apart = true;
}

void Device::count_allocated(const Block &block)
{
    const size_t pool = pool_of(block);
    increase(stats.allocation, pool, 1);
    increase(stats.allocated_bytes, pool, block.memory.bytes);
    increase(stats.requested_bytes, pool, block.memory.requested);
    if (!active_apart)
        return;
    increase(stats.active, pool, 1);
    increase(stats.active_bytes, pool, block.memory.bytes);
}

void Device::count_ended(const Block &block)
{
    const size_t pool = pool_of(block);
    decrease(stats.allocation, pool, 1);
    decrease(stats.allocated_bytes, pool, block.memory.bytes);
    if (active_apart)
        count_inactive(block);
    else
        decrease(stats.requested_bytes, pool, block.memory.requested);
}

void Device::count_freed(const Block &block)
{
    const size_t pool = pool_of(block);
    count_active_apart();
    decrease(stats.allocation, pool, 1);
    decrease(stats.allocated_bytes, pool, block.memory.bytes);
}

void Device::count_inactive(const Block &block)
{
    const size_t pool = pool_of(block);
    decrease(stats.active, pool, 1);
    decrease(stats.active_bytes, pool, block.memory.bytes);
    decrease(stats.requested_bytes, pool, block.memory.requested);
}

void Device::record(TraceEntry::Action action, const Block &block, const Context &context)
{
    if (history.is_on())
        history.add(ordinal,
                    {action, static_cast<size_t>(block.memory.address), block.memory.requested, block.memory.stream,
                     block.segment ? block.segment->pool->id : MempoolId_t{0, 0}},
                    context);
}

Block *Device::take_spare()
{
    Block *block = spare;
    if (!block)
        return new Block{};
    spare = block->next;
    spare_count--;
    block->next = nullptr;
    return block;
}

/* Not a block with extras: the end of a context may take Python's lock, which must not happen under this one. */
bool Device::keep_spare(Block *block)
{
    if (block->extras || spare_count >= most_spare)
        return false;
    block->next = spare;
    spare = block;
    spare_count++;
    return true;
}

void *Device::enter_memory(const strata_block &memory, const Context &context)
{
    Block *block = nullptr;
    try {
        {
            std::lock_guard<SpinLock> guard(lock);
            block = take_spare();
            block->memory = memory;
            block->device = this;
            block->is_small = memory.bytes < small_limit;
            block->allocated = true;
            count_allocated(*block);
            record(TraceEntry::Action::ALLOC, *block, context);
        }
        if (context)
            block->extra().context = context;
        blocks->add(block);
    } catch (...) {
        if (block) {
            std::lock_guard<SpinLock> guard(lock);
            count_ended(*block);
        }
        delete block;
        strata_runtime_deallocate_on(runtime, &memory, memory.stream);
        throw;
    }
    report_to_profiler(memory, true);
    return reinterpret_cast<void *>(memory.address);
}

void *Device::enter(Block *block, const Context &context)
{
    void *const address = block->address();
    try {
        if (context)
            block->extra().context = context;
        blocks->add(block);
    } catch (...) {
        block->segment->pool->give(block);
        throw;
    }
    {
        std::lock_guard<SpinLock> guard(lock);
        count_allocated(*block);
        record(TraceEntry::Action::ALLOC, *block, context);
    }
    report_to_profiler(block->memory, true);
    return address;
}

void Device::report_to_profiler(const strata_block &memory, bool allocated)
{
    if (!c10::memoryProfilingEnabled())
        return;
    const auto bytes = static_cast<int64_t>(memory.bytes);
    size_t now;
    {
        std::lock_guard<SpinLock> guard(lock);
        now = static_cast<size_t>(stats.allocated_bytes[all_pools].current);
    }
    c10::reportMemoryUsageToProfiler(reinterpret_cast<void *>(memory.address), allocated ? bytes : -bytes, now,
                                     reserved_bytes(), c10::Device(c10::DeviceType::CUDA, ordinal));
}

size_t Device::reserved_bytes()
{
    strata_usage usage;
    if (pooled)
        return static_cast<size_t>(value("pool.reserved"));
    return strata_runtime_usage(runtime, &usage) == STRATA_SUCCESS ? usage.reserved_bytes : 0;
}

int64_t Device::chunks_made() const
{
    return pooled ? static_cast<int64_t>(value("pool.chunks.made")) : 0;
}

DeviceStats Device::statistics()
{
    free_deferred();
    Sums sums;
    for (const SegmentInfo &segment : segments())
        sums.add(segment);
    const int64_t made = chunks_made();
    const auto most = pooled ? static_cast<int64_t>(value("pool.reserved.watermark")) : 0;
    std::lock_guard<SpinLock> guard(lock);
    see_sums(stats, sums);
    see_active();
    Stat &reserved = stats.reserved_bytes[all_pools];
    reserved.peak = std::max(reserved.peak, most);
    DeviceStats result = stats;
    result.num_device_alloc += made - chunks_before;
    return result;
}

} // namespace strata_torch
