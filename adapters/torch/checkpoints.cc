/* Checkpoints of private pools: the graphs of torch.compile(mode="reduce-overhead") form a tree, and share a pool.
 * Before another branch is recorded, the pool is set back to how it was cut at the end of the common part, whose
 * tensors get their blocks again, at the same addresses. */
#include "allocator.h"

#include <chrono>
#include <thread>

namespace strata_torch
{

namespace
{

struct PoolState : AllocatorState {
    MempoolId_t id;
    std::map<CUdeviceptr, std::vector<PoolPart>> segments; /* by address */
};

std::vector<void *> allocated_in(const PrivatePool &pool)
{
    std::vector<void *> addresses;
    for (const Segment *segment : pool.segments())
        for (const Block *block = segment->first; block; block = block->next)
            if (block->allocated)
                addresses.push_back(block->address());
    return addresses;
}

/* Frees all blocks of the pool, and returns their addresses. One that is in no map is being freed by another thread,
 * which waits for the lock: it gets it, for a second at most. */
std::vector<void *> free_all(Device &of, MempoolId_t id, BlockMap &blocks, std::unique_lock<std::recursive_mutex> &lock)
{
    constexpr unsigned most_attempts = 1000;
    std::vector<void *> freed;
    for (unsigned attempt = 0; attempt < most_attempts; attempt++) {
        bool left = false;
        for (void *address : allocated_in(of.pool(id))) {
            Block *block = blocks.take(address);
            left |= !block;
            if (!block)
                continue;
            of.free(block);
            freed.push_back(address);
        }
        if (!left)
            break;
        lock.unlock();
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
        lock.lock();
    }
    return freed;
}

Segment *segment_at(const PrivatePool &pool, CUdeviceptr address)
{
    for (Segment *segment : pool.segments())
        if (segment->memory.address == address)
            return segment;
    TORCH_CHECK(false, "Strata: a segment of the private pool was released after the checkpoint");
}

} // namespace

std::shared_ptr<AllocatorState> Allocator::getCheckpointState(DeviceIndex ordinal, MempoolId_t id)
{
    Device &of = device(ordinal);
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    const PrivatePool &pool = of.pool(id);
    TORCH_CHECK(pool.waiting.empty(), "Strata: no checkpoint while freed blocks are in use on recorded streams");
    auto state = std::make_shared<PoolState>();
    state->id = id;
    for (const Segment *segment : pool.segments())
        state->segments[segment->memory.address] = pool.parts(*segment);
    return state;
}

/* All blocks are freed, then those of the checkpoint are made again. The caller sees to the tensors: those that have
 * lost their blocks lose their deleters, others get the new ones. */
CheckpointDelta Allocator::setCheckpointPoolState(DeviceIndex ordinal, std::shared_ptr<AllocatorState> state)
{
    Device &of = device(ordinal);
    const auto *to = dynamic_cast<const PoolState *>(state.get());
    TORCH_CHECK(to, "Strata: the checkpoint is another allocator's");
    std::unique_lock<std::recursive_mutex> guard(of.pool_lock);
    TORCH_CHECK(of.pool(to->id).waiting.empty(),
                "Strata: no checkpoint while freed blocks are in use on recorded streams");
    CheckpointDelta delta;
    delta.ptrs_freed = free_all(of, to->id, blocks_, guard);
    PrivatePool &pool = of.pool(to->id);
    TORCH_CHECK(pool.waiting.empty(), "Strata: a tensor of the private pool is in use on a recorded stream");
    for (const auto &[address, parts] : to->segments)
        for (Block *block : pool.restore(segment_at(pool, address), parts)) {
            void *made = of.enter(block, nullptr);
            delta.dataptrs_allocd.emplace_back(made, made, raw_deleter(), c10::Device(c10::DeviceType::CUDA, ordinal));
        }
    return delta;
}

} // namespace strata_torch
