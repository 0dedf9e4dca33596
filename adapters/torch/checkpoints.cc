/* Checkpoints of private pools: the graphs of torch.compile(mode="reduce-overhead") form a tree, and share a pool.
 * Before another branch is recorded, the pool is set back to how it was cut at the end of the common part, whose
 * tensors get their blocks again, at the same addresses. */
#include "allocator.h"

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
    std::lock_guard<std::recursive_mutex> guard(of.pool_lock);
    PrivatePool &pool = of.pool(to->id);
    TORCH_CHECK(pool.waiting.empty(), "Strata: no checkpoint while freed blocks are in use on recorded streams");
    CheckpointDelta delta;
    delta.ptrs_freed = allocated_in(pool);
    for (void *address : delta.ptrs_freed)
        of.free(blocks_.take(address));
    TORCH_CHECK(pool.waiting.empty(), "Strata: a tensor of the private pool is in use on a recorded stream");
    for (const auto &[address, parts] : to->segments)
        for (Block *block : pool.restore(segment_at(pool, address), parts)) {
            void *made = of.enter(block, nullptr);
            delta.dataptrs_allocd.emplace_back(made, made, raw_deleter(), c10::Device(c10::DeviceType::CUDA, ordinal));
        }
    return delta;
}

} // namespace strata_torch
