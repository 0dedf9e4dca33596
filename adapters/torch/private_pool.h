/* Memory of its own for a graph (torch.cuda.graph) or a torch.cuda.MemPool.
 *
 * A capture cannot take memory from Strata, whose order is that of streams as they run, and a graph's memory must keep
 * its addresses. So a private pool takes segments from Strata that are complete for every stream, and cuts them itself,
 * with PyTorch's own rules: segments of 2 MiB for blocks below 1 MiB, of 20 MiB below 10 MiB, else of the block's size
 * in whole 2 MiB; best fit among the free blocks of one stream; neighbours are joined. A segment goes back to Strata
 * when nothing uses the pool and no block is left in it, after the device has finished.
 *
 *     segment   | block, live | block, free | block, live | block, free ...... |
 *
 * Guarded by the device's pool lock. */
#ifndef STRATA_ADAPTERS_TORCH_PRIVATE_POOL_H
#define STRATA_ADAPTERS_TORCH_PRIVATE_POOL_H

#include "block.h"
#include "history.h"
#include "version.h"

#include <c10/cuda/CUDACachingAllocator.h>
#include <set>

namespace strata_torch
{

using c10::MempoolId_t;
using c10::cuda::CUDACachingAllocator::CUDAAllocator;

class PrivatePool;

struct Segment {
    PrivatePool *pool;
    strata_block memory; /* of Strata, or of the pool's own source: then only address and bytes */
    cudaStream_t stream;
    bool small;
    int32_t number; /* rises in the order of allocation */
    Block *first;
    Context context;
};

/* A block of a segment, as a checkpoint remembers it. */
struct PoolPart {
    size_t bytes, requested;
    bool allocated;
};

/* Where a private pool's segments come from. */
class SegmentSource
{
  public:
    virtual ~SegmentSource() = default;

    /* Takes memory that any stream may use at once. False: there is none; the reason is Strata's last error. */
    virtual bool take(size_t bytes, strata_block *out) = 0;

    /* Gives memory back that no work uses. */
    virtual void give(const strata_block &memory) = 0;
};

class PrivatePool
{
  public:
    PrivatePool(MempoolId_t id, Device *device, SegmentSource *source) : id(id), device_(device), source_(source)
    {
    }

    const MempoolId_t id;
    int use_count = 0;
    bool use_on_oom = false;
    bool no_split = false;
    std::shared_ptr<CUDAAllocator> allocator; /* of the program: the segments' source; NULL: Strata */

    /* Takes a block, which is not in the map yet. NULL: none fits, and no segment could be had. `grow`: may take a
     * segment. *made: the segment that was taken for the block, or NULL. */
    Block *take(size_t requested, cudaStream_t stream, bool grow, const Context &context, Segment **made);

    /* Makes a block free that is out of the map, and that no recorded stream uses. */
    void give(Block *block);

    /* Removes the segments without live blocks, and returns them. */
    std::vector<Segment *> empty_segments();

    /* Returns a removed segment's memory; the device has finished. */
    void drop(Segment *segment);

    /* How a segment is cut. restore() cuts a wholly free one in this way again, and returns the blocks that were
     * allocated, which are not in the map. Throws c10::Error if the segment is not free. */
    std::vector<PoolPart> parts(const Segment &segment) const;
    std::vector<Block *> restore(Segment *segment, const std::vector<PoolPart> &parts);

    /* Freed blocks that recorded streams may still use. */
    std::vector<Block *> waiting;

    const std::vector<Segment *> &segments() const
    {
        return segments_;
    }

  private:
    struct BySize {
        bool operator()(const Block *a, const Block *b) const;
    };
    using FreeBlocks = std::set<Block *, BySize>;

    FreeBlocks &free_blocks(bool small)
    {
        return small ? free_small_ : free_large_;
    }
    Block *find(bool small, size_t bytes, cudaStream_t stream);
    Segment *grow(size_t bytes, bool small, cudaStream_t stream, const Context &context);
    Block *cut(Block *block, size_t bytes);
    Block *join(Block *block);

    Device *device_;
    SegmentSource *source_;
    FreeBlocks free_small_, free_large_;
    std::vector<Segment *> segments_;
};

} // namespace strata_torch

#endif
