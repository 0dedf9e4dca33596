/* Frees: a recorded use on each stream of Tensor.record_stream, and one free in the order of the block's stream. The
 * host waits for nothing, and no event is polled: the next user of the memory waits, on its stream, where it must. */
#include "device.h"

namespace strata_torch
{

namespace
{

/* False: a stream is being captured. What was recorded before stays recorded, which does no harm. */
bool record_uses(const Device &device, const Block &block)
{
    if (!block.extras)
        return true;
    for (cudaStream_t stream : block.extras->streams) {
        const strata_status status = strata_runtime_record_block_use(
            device.runtime, &block.memory, reinterpret_cast<CUstream>(stream), STRATA_ACCESS_READ_WRITE);
        if (status == STRATA_ERROR_STREAM_CAPTURE)
            return false;
    }
    return true;
}

/* A free of Strata's inside a capture of the block's own stream succeeds, and takes effect after it. If it fails (the
 * driver reports an earlier error), the memory stays with the process: a deleter has no way to say so. */
void give_back(const Device &device, const strata_block &memory)
{
    strata_runtime_deallocate_on(device.runtime, &memory, memory.stream);
}

/* Keeps a block for free_deferred. Meanwhile it counts as active, and is in the map. */
void defer(Device &device, Block *block)
{
    device.blocks->add(block);
    std::lock_guard<SpinLock> guard(device.lock);
    device.deferred.push_back(block);
    device.deferred_count.store(device.deferred.size(), std::memory_order_relaxed);
}

} // namespace

/* Frees a block that becomes inactive later: it is of a private pool, or a capture holds its free up. */
static void end_later(Device &device, Block *block, const Context &context)
{
    {
        std::lock_guard<SpinLock> guard(device.lock);
        device.count_freed(*block);
        device.record(TraceEntry::Action::FREE_REQUESTED, *block, context);
    }
    device.report_to_profiler(block->memory, false);
    if (block->segment)
        device.free_private(block);
    else
        defer(device, block);
}

/* Frees a block. The counts come first: once the memory is free, another thread may have a block at its address. */
static void end(Device &device, Block *block, const Context &context)
{
    if (!block->segment)
        block->allocated = false;
    if (block->segment || !record_uses(device, *block))
        return end_later(device, block, context);
    const strata_block memory = block->memory;
    bool kept;
    {
        std::lock_guard<SpinLock> guard(device.lock);
        device.count_ended(*block);
        device.record(TraceEntry::Action::FREE_REQUESTED, *block, context);
        device.record(TraceEntry::Action::FREE_COMPLETED, *block, context);
        kept = device.keep_spare(block);
    }
    if (!kept)
        delete block;
    device.report_to_profiler(memory, false);
    give_back(device, memory);
}

/* Without host memory the block's memory stays with the process. */
void Device::free(Block *block) noexcept
{
    try {
        end(*this, block, history.gather(RecordContext::ALL));
    } catch (...) {
    }
}

void Device::free_deferred() noexcept
{
    std::vector<Block *> tried;
    {
        std::lock_guard<SpinLock> guard(lock);
        tried.swap(deferred);
        deferred_count.store(0, std::memory_order_relaxed);
    }
    for (Block *block : tried) {
        blocks->take(block->address());
        try {
            if (!record_uses(*this, *block)) {
                defer(*this, block);
                continue;
            }
        } catch (...) {
            continue;
        }
        {
            std::lock_guard<SpinLock> guard(lock);
            count_inactive(*block);
            record(TraceEntry::Action::FREE_COMPLETED, *block, nullptr);
        }
        give_back(*this, block->memory);
        delete block;
    }
}

} // namespace strata_torch
