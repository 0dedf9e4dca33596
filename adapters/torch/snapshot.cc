/* The segments of torch.cuda.memory_snapshot().
 *
 * A pool of Strata's has one range of addresses, mapped here and there, and not PyTorch's segments. The ranges with
 * memory are shown as segments, cut where blocks of the other size class begin, so that the sums by class are those of
 * the statistics. A private pool's segments are shown as they are. In a stack without a pool each block is a segment.
 *
 *     range      | small, free | small | large | free | private pool ........ | free |
 *     segments   |       small         |    large     |  owner_private_pool_id | ... | */
#include "device.h"

#include <algorithm>
#include <strata/pool.h>

namespace strata_torch
{

namespace
{

using c10::CachingDeviceAllocator::BlockInfo;

/* A block of Strata's, or a private pool's segment. */
struct Item {
    size_t address, bytes;
    BlockInfo block; /* unless it is a segment */
    void *stream;
    bool large;
    std::unique_ptr<SegmentInfo> segment;

    size_t end() const
    {
        return address + bytes;
    }
};

BlockInfo info_of(const Block &block, bool active)
{
    BlockInfo info;
    info.size = block.memory.bytes;
    info.requested_size = active ? block.memory.requested : 0;
    info.allocated = block.allocated;
    info.active = active;
    if (block.extras)
        info.context_when_allocated = block.extras->context;
    return info;
}

void add_block(SegmentInfo &segment, BlockInfo &&block)
{
    segment.total_size += block.size;
    segment.requested_size += block.active ? block.requested_size : 0;
    segment.allocated_size += block.allocated ? block.size : 0;
    segment.active_size += block.active ? block.size : 0;
    segment.blocks.push_back(std::move(block));
}

void add_free(SegmentInfo &segment, size_t bytes)
{
    if (!bytes)
        return;
    BlockInfo info;
    info.size = bytes;
    add_block(segment, std::move(info));
}

Item item_of(const Block &block)
{
    return {static_cast<size_t>(block.memory.address),
            block.memory.bytes,
            info_of(block, true),
            block.memory.stream,
            !block.is_small,
            nullptr};
}

bool is_waiting(const PrivatePool &pool, const Block *block)
{
    return std::find(pool.waiting.begin(), pool.waiting.end(), block) != pool.waiting.end();
}

Item item_of(const Segment &segment)
{
    Item item{static_cast<size_t>(segment.memory.address),
              segment.memory.bytes,
              {},
              segment.stream,
              !segment.small,
              std::make_unique<SegmentInfo>()};
    SegmentInfo &shown = *item.segment;
    shown.device = segment.first->device->ordinal;
    shown.registration_counter = segment.number;
    shown.address = item.address;
    shown.stream = segment.stream;
    shown.is_large = !segment.small;
    shown.owner_private_pool_id = segment.pool->id;
    shown.context_when_allocated = segment.context;
    size_t shown_bytes = 0;
    for (const Block *block = segment.first; block; block = block->next) {
        add_block(shown, info_of(*block, block->allocated || is_waiting(*segment.pool, block)));
        shown_bytes += block->memory.bytes;
    }
    /* Strata's block may be larger than what was asked for. */
    add_free(shown, item.bytes - shown_bytes);
    return item;
}

/* Cuts one range after the other. */
class Cutter
{
  public:
    explicit Cutter(c10::DeviceIndex device) : device_(device)
    {
    }

    void begin(const strata_pool_range &range)
    {
        range_ = range;
        at_ = range.address;
        open(!range.small);
    }

    void add(Item &item)
    {
        if (item.segment) {
            close(item.address);
            done.push_back(std::move(*item.segment));
            at_ = item.end();
            open(!range_.small);
            return;
        }
        if (!segment_.blocks.empty() && segment_.is_large != item.large) {
            close(item.address);
            open(item.large);
        }
        if (segment_.blocks.empty())
            segment_.stream = item.stream;
        segment_.is_large = item.large;
        add_free(segment_, item.address - at_);
        add_block(segment_, std::move(item.block));
        at_ = item.end();
    }

    void end()
    {
        close(range_.address + range_.bytes);
    }

    void add_alone(Item &item)
    {
        if (item.segment) {
            done.push_back(std::move(*item.segment));
            return;
        }
        at_ = item.address;
        open(item.large);
        segment_.stream = item.stream;
        add_block(segment_, std::move(item.block));
        done.push_back(std::move(segment_));
    }

    std::vector<SegmentInfo> done;

  private:
    void open(bool large)
    {
        segment_ = SegmentInfo{};
        segment_.device = device_;
        segment_.address = at_;
        segment_.is_large = large;
    }

    void close(size_t end)
    {
        add_free(segment_, end - at_);
        at_ = end;
        if (segment_.total_size)
            done.push_back(std::move(segment_));
    }

    c10::DeviceIndex device_;
    strata_pool_range range_{};
    size_t at_ = 0;
    SegmentInfo segment_;
};

std::vector<strata_pool_range> ranges_of(const Device &device)
{
    std::vector<strata_pool_range> ranges;
    if (device.pooled)
        strata_pool_visit_ranges(
            strata_stack_top(device.stack),
            [](const strata_pool_range *range, void *data) {
                static_cast<std::vector<strata_pool_range> *>(data)->push_back(*range);
            },
            &ranges);
    return ranges;
}

std::vector<Item> items_of(Device &device)
{
    std::vector<Item> items;
    {
        std::lock_guard<std::recursive_mutex> guard(device.pool_lock);
        for (const auto &entry : device.pools)
            for (const Segment *segment : entry.second->segments())
                items.push_back(item_of(*segment));
    }
    device.blocks->each([&](const Block *block) {
        if (block->device == &device && !block->segment)
            items.push_back(item_of(*block));
    });
    std::sort(items.begin(), items.end(), [](const Item &a, const Item &b) { return a.address < b.address; });
    return items;
}

} // namespace

/* Other threads may allocate meanwhile: an item outside of the ranges, or over another one, is shown alone. */
std::vector<SegmentInfo> Device::segments()
{
    Cutter cutter(ordinal);
    std::vector<Item> items = items_of(*this), late;
    auto item = items.begin();
    for (const strata_pool_range &range : ranges_of(*this)) {
        for (; item != items.end() && item->address < range.address; ++item)
            cutter.add_alone(*item);
        cutter.begin(range);
        size_t end = range.address;
        for (; item != items.end() && item->address < range.address + range.bytes; ++item) {
            if (item->address < end || item->end() > range.address + range.bytes) {
                late.push_back(std::move(*item));
                continue;
            }
            end = item->end();
            cutter.add(*item);
        }
        cutter.end();
    }
    for (; item != items.end(); ++item)
        cutter.add_alone(*item);
    for (Item &one : late)
        cutter.add_alone(one);
    return std::move(cutter.done);
}

} // namespace strata_torch
