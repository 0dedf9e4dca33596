/* A block of memory that PyTorch has, or had, and the map from addresses to blocks. */
#ifndef STRATA_ADAPTERS_TORCH_BLOCK_H
#define STRATA_ADAPTERS_TORCH_BLOCK_H

#include <atomic>
#include <c10/core/Allocator.h>
#include <cuda_runtime_api.h>
#include <memory>
#include <mutex>
#include <strata/block.h>
#include <vector>

namespace strata_torch
{

struct Device;
struct Segment;
class SharedMemory;

/* Smaller blocks count in small_pool of PyTorch's statistics. */
constexpr size_t small_limit = size_t{1} << 20;

/* For moments: it spins, then gives the processor away. A pair takes less than half of a mutex's. */
class SpinLock
{
  public:
    void lock()
    {
        while (taken_.exchange(true, std::memory_order_acquire))
            wait();
    }
    void unlock()
    {
        taken_.store(false, std::memory_order_release);
    }

  private:
    void wait();

    std::atomic<bool> taken_{false};
};

/* Facts that few blocks have. Guarded by the shard of the map while the block is in it. */
struct BlockExtras {
    std::vector<cudaStream_t> streams; /* of Tensor.record_stream */
    std::shared_ptr<c10::GatheredContext> context;
    std::shared_ptr<SharedMemory> shared; /* with other processes */
};

struct Block {
    strata_block memory; /* of a private pool's block only address, bytes, requested and stream */
    Device *device;
    Segment *segment; /* of a private pool; NULL: a block of Strata's */
    Block *previous;  /* neighbours in the segment */
    Block *next;
    std::unique_ptr<BlockExtras> extras; /* NULL: none */
    bool is_small;                       /* counts in small_pool */
    bool allocated;                      /* false: free in its segment, or its free is deferred */

    cudaStream_t stream() const
    {
        return reinterpret_cast<cudaStream_t>(memory.stream);
    }
    void *address() const
    {
        return reinterpret_cast<void *>(memory.address);
    }
    BlockExtras &extra()
    {
        if (!extras)
            extras = std::make_unique<BlockExtras>();
        return *extras;
    }
};

/* Blocks by address. Any thread; a shard's lock is held for moments. */
class BlockMap
{
  public:
    /* Throws std::bad_alloc, with nothing changed. */
    void add(Block *block);

    /* Removes the block and returns it; NULL: there is none. */
    Block *take(void *address);

    /* Calls visit(block) under the shard's lock. False: there is none. */
    template <typename Visit> bool with(void *address, Visit visit)
    {
        Shard &shard = shard_of(address);
        std::lock_guard<SpinLock> guard(shard.lock);
        const size_t at = shard.find(address);
        if (at == not_there)
            return false;
        visit(shard.slots[at]);
        return true;
    }

    /* Calls visit(block) for every block, under its shard's lock. */
    template <typename Visit> void each(Visit visit)
    {
        for (Shard &shard : shards_) {
            std::lock_guard<SpinLock> guard(shard.lock);
            for (Block *block : shard.slots)
                if (block)
                    visit(block);
        }
    }

  private:
    static constexpr size_t not_there = ~size_t{0};
    static constexpr size_t shard_bits = 6;

    /* Open addressing with linear probing. */
    struct alignas(64) Shard {
        SpinLock lock;
        std::vector<Block *> slots; /* a power of two, at most half full */
        size_t count = 0;

        size_t find(void *address) const;
        void put(Block *block);
        void grow();
        void remove(size_t at);
    };

    Shard &shard_of(void *address);

    Shard shards_[size_t{1} << shard_bits];
};

} // namespace strata_torch

#endif
