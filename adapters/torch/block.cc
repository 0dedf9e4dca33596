#include "block.h"

#include <cstdint>
#include <thread>

namespace strata_torch
{

namespace
{

/* Addresses are multiples of 512, often equally spaced: all bits of the product depend on all of the address. */
uint64_t hash_of(void *address)
{
    return (reinterpret_cast<uint64_t>(address) >> 9) * 0x9E3779B97F4A7C15u;
}

size_t home_of(void *address, size_t slots)
{
    return (hash_of(address) >> 20) & (slots - 1);
}

} // namespace

void SpinLock::wait()
{
    for (unsigned spins = 0; taken_.load(std::memory_order_relaxed); spins++)
        if (spins > 100)
            std::this_thread::yield();
}

BlockMap::Shard &BlockMap::shard_of(void *address)
{
    return shards_[hash_of(address) >> (64 - shard_bits)];
}

size_t BlockMap::Shard::find(void *address) const
{
    if (slots.empty())
        return not_there;
    for (size_t at = home_of(address, slots.size());; at = (at + 1) & (slots.size() - 1)) {
        if (!slots[at])
            return not_there;
        if (slots[at]->address() == address)
            return at;
    }
}

void BlockMap::Shard::put(Block *block)
{
    size_t at = home_of(block->address(), slots.size());
    while (slots[at])
        at = (at + 1) & (slots.size() - 1);
    slots[at] = block;
}

void BlockMap::Shard::grow()
{
    std::vector<Block *> old(slots.empty() ? 64 : slots.size() * 2, nullptr);
    old.swap(slots);
    for (Block *block : old)
        if (block)
            put(block);
}

/* Moves later blocks of the run into the gap, so that each is found from its home without crossing an empty slot. */
void BlockMap::Shard::remove(size_t gap)
{
    const size_t mask = slots.size() - 1;
    for (size_t at = (gap + 1) & mask; slots[at]; at = (at + 1) & mask) {
        const size_t home = home_of(slots[at]->address(), slots.size());
        if (((at - home) & mask) >= ((at - gap) & mask)) {
            slots[gap] = slots[at];
            gap = at;
        }
    }
    slots[gap] = nullptr;
    count--;
}

void BlockMap::add(Block *block)
{
    Shard &shard = shard_of(block->address());
    std::lock_guard<SpinLock> guard(shard.lock);
    if (2 * (shard.count + 1) > shard.slots.size())
        shard.grow();
    shard.put(block);
    shard.count++;
}

Block *BlockMap::take(void *address)
{
    Shard &shard = shard_of(address);
    std::lock_guard<SpinLock> guard(shard.lock);
    const size_t at = shard.find(address);
    if (at == not_there)
        return nullptr;
    Block *block = shard.slots[at];
    shard.remove(at);
    return block;
}

} // namespace strata_torch
