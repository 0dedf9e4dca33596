#include "device.h"

#include <algorithm>

namespace strata_torch
{

namespace
{

constexpr size_t unit = 512, small_segment = size_t{2} << 20, middle_segment = size_t{20} << 20,
                 middle_limit = size_t{10} << 20;

size_t round_up(size_t bytes, size_t to)
{
    return (bytes + to - 1) / to * to;
}

size_t segment_bytes(size_t bytes)
{
    if (bytes < small_limit)
        return small_segment;
    return bytes < middle_limit ? middle_segment : round_up(bytes, small_segment);
}

std::atomic<int32_t> next_number{0};

} // namespace

bool PrivatePool::BySize::operator()(const Block *a, const Block *b) const
{
    const auto sa = reinterpret_cast<uintptr_t>(a->memory.stream), sb = reinterpret_cast<uintptr_t>(b->memory.stream);
    if (sa != sb)
        return sa < sb;
    if (a->memory.bytes != b->memory.bytes)
        return a->memory.bytes < b->memory.bytes;
    return a->memory.address < b->memory.address;
}

Block *PrivatePool::find(bool small, size_t bytes, cudaStream_t stream)
{
    FreeBlocks &blocks = free_blocks(small);
    Block key{};
    key.memory.stream = reinterpret_cast<CUstream>(stream);
    key.memory.bytes = bytes;
    const auto at = blocks.lower_bound(&key);
    if (at == blocks.end() || (*at)->memory.stream != key.memory.stream)
        return nullptr;
    Block *block = *at;
    blocks.erase(at);
    return block;
}

Segment *PrivatePool::grow(size_t bytes, bool small, cudaStream_t stream, const Context &context)
{
    auto segment = std::make_unique<Segment>();
    auto block = std::make_unique<Block>();
    segments_.reserve(segments_.size() + 1);
    strata_block memory{};
    const size_t size = segment_bytes(bytes);
    if (allocator) {
        if (!device_->admits_own(size))
            return nullptr;
        memory.address = reinterpret_cast<CUdeviceptr>(allocator->raw_alloc_with_stream(size, stream));
        memory.bytes = size;
    } else if (!source_->take(size, &memory)) {
        return nullptr;
    }
    if (!memory.address)
        return nullptr;
    if (allocator)
        device_->count_own(size, 0);
    *segment = Segment{this, memory, stream, small, next_number++, block.get(), context};
    *block = Block{};
    block->memory.address = memory.address;
    block->memory.bytes = size;
    block->memory.stream = reinterpret_cast<CUstream>(stream);
    block->device = device_;
    block->segment = segment.get();
    block->is_small = small;
    block.release();
    segments_.push_back(segment.get());
    return segment.release();
}

/* Cuts a block to so many bytes, and returns the rest, which is in no list. */
static Block *split(Block *block, size_t bytes)
{
    const size_t rest = block->memory.bytes - bytes;
    Block *behind = new Block{};
    behind->memory = block->memory;
    behind->memory.address += bytes;
    behind->memory.bytes = rest;
    behind->device = block->device;
    behind->segment = block->segment;
    behind->is_small = block->is_small;
    behind->previous = block;
    behind->next = block->next;
    if (behind->next)
        behind->next->previous = behind;
    block->next = behind;
    block->memory.bytes = bytes;
    return behind;
}

/* Cuts a block; the rest becomes free, unless it is too small to be worth it, or the pool must not split. */
Block *PrivatePool::cut(Block *block, size_t bytes)
{
    const size_t rest = block->memory.bytes - bytes;
    if (!no_split && (block->segment->small ? rest >= unit : rest > small_limit))
        free_blocks(block->segment->small).insert(split(block, bytes));
    return block;
}

std::vector<PoolPart> PrivatePool::parts(const Segment &segment) const
{
    std::vector<PoolPart> result;
    for (const Block *block = segment.first; block; block = block->next)
        result.push_back({block->memory.bytes, block->memory.requested, block->allocated});
    return result;
}

std::vector<Block *> PrivatePool::restore(Segment *segment, const std::vector<PoolPart> &parts)
{
    std::vector<Block *> taken;
    FreeBlocks &blocks = free_blocks(segment->small);
    Block *block = segment->first;
    TORCH_CHECK(!block->next && blocks.count(block), "Strata: a segment of the private pool is in use");
    blocks.erase(block);
    for (const PoolPart &part : parts) {
        Block *behind = part.bytes < block->memory.bytes ? split(block, part.bytes) : nullptr;
        block->allocated = part.allocated;
        block->memory.requested = part.requested;
        if (part.allocated)
            taken.push_back(block);
        else
            blocks.insert(block);
        block = behind;
    }
    if (block)
        blocks.insert(block);
    return taken;
}

Block *PrivatePool::take(size_t requested, cudaStream_t stream, bool may_grow, const Context &context, Segment **made)
{
    *made = nullptr;
    const size_t bytes = round_up(requested, unit);
    const bool small = bytes < small_limit;
    Block *block = find(small, bytes, stream);
    if (!block) {
        *made = may_grow ? grow(bytes, small, stream, context) : nullptr;
        if (!*made)
            return nullptr;
        block = (*made)->first;
    }
    block = cut(block, bytes);
    block->memory.requested = requested;
    block->allocated = true;
    return block;
}

/* Joins a block with its free neighbours, and returns the whole, which is in no list. */
Block *PrivatePool::join(Block *block)
{
    FreeBlocks &blocks = free_blocks(block->segment->small);
    if (Block *before = block->previous; before && blocks.erase(before)) {
        before->memory.bytes += block->memory.bytes;
        before->next = block->next;
        if (before->next)
            before->next->previous = before;
        delete block;
        block = before;
    }
    if (Block *behind = block->next; behind && blocks.erase(behind)) {
        block->memory.bytes += behind->memory.bytes;
        block->next = behind->next;
        if (block->next)
            block->next->previous = block;
        delete behind;
    }
    return block;
}

void PrivatePool::give(Block *block)
{
    block->allocated = false;
    block->extras.reset();
    block->memory.requested = 0;
    block = join(block);
    free_blocks(block->segment->small).insert(block);
}

std::vector<Segment *> PrivatePool::empty_segments()
{
    std::vector<Segment *> empty;
    for (size_t i = 0; i < segments_.size();) {
        Segment *segment = segments_[i];
        Block *only = segment->first;
        if (!only->next && free_blocks(segment->small).erase(only)) {
            delete only;
            segment->first = nullptr;
            empty.push_back(segment);
            segments_.erase(segments_.begin() + static_cast<std::ptrdiff_t>(i));
        } else {
            i++;
        }
    }
    return empty;
}

void PrivatePool::drop(Segment *segment)
{
    if (allocator) {
        allocator->raw_delete(reinterpret_cast<void *>(segment->memory.address));
        device_->count_own(0, segment->memory.bytes);
    } else {
        source_->give(segment->memory);
    }
    delete segment;
}

} // namespace strata_torch
