/* What the shim keeps of a device: a runtime of Strata with a stack of its own, and what PyTorch asks about it.
 *
 * Locks, outermost first: pool_lock, a shard of the map, lock. None is held while Strata is asked for memory for a
 * tensor, or while a function of PyTorch runs that may take Python's lock. */
#ifndef STRATA_ADAPTERS_TORCH_DEVICE_H
#define STRATA_ADAPTERS_TORCH_DEVICE_H

#include "block.h"
#include "history.h"
#include "private_pool.h"

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <strata/runtime.h>
#include <string>

namespace strata_torch
{

using c10::CachingAllocator::Stat;
using c10::CachingAllocator::StatArray;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::SegmentInfo;

/* Sends the requests of some streams to a private pool. */
struct Route {
    MempoolId_t id;
    std::function<bool(cudaStream_t)> takes;
};

/* What became of a request that may go to a private pool; neither an address nor refused: none takes it. */
struct Routed {
    void *address;
    bool refused;
    std::string reason; /* of the refusal */
};

/* Segments from the device's own stack: allocated on a stream of Strata's, which is then waited for. */
class StackSource : public SegmentSource
{
  public:
    explicit StackSource(Device *device) : device_(device)
    {
    }
    bool take(size_t bytes, strata_block *out) override;
    void give(const strata_block &memory) override;

  private:
    bool acquire_stream();

    Device *device_;
    CUstream stream_ = nullptr; /* acquired from the runtime by the first request */
};

struct Device {
    /* Makes the runtime, of a stack of this text, below a budget; either may be empty. Throws c10::Error with Strata's
     * message. */
    Device(c10::DeviceIndex ordinal, const std::string &stack_text, const std::string &budget);

    const c10::DeviceIndex ordinal;
    strata_runtime *runtime; /* never destroyed: tensors may outlive everything */
    strata_stack *stack;
    bool pooled;        /* the stack has a pool */
    bool branches;      /* it has fallback */
    size_t total_bytes; /* of the device */
    size_t first_limit; /* pool.limit as the stack text gave it */

    std::atomic<size_t> alignment{512}; /* of requests; 0: the stack's own */

    BlockMap *blocks; /* of all devices */

    SpinLock lock;
    DeviceStats stats;         /* guarded by lock, like all down to the blank line */
    bool active_apart = false; /* a block was active without being allocated: `active` is counted by itself since */
    Block *spare = nullptr;    /* blocks to be used again, linked by `next` */
    size_t spare_count = 0;
    History history;
    double fraction = 1.0;
    int64_t chunks_before = 0;             /* made by the pool before the counts were reset */
    std::atomic<size_t> allowed{0};        /* bytes, by the fraction; 0: all. Read without lock */
    std::atomic<size_t> own_bytes{0};      /* in segments of programs' allocators; written under pool_lock */
    std::vector<Block *> deferred;         /* frees that a capture holds up */
    std::atomic<size_t> deferred_count{0}; /* of these; read without lock */

    std::recursive_mutex pool_lock; /* recursive: a program's own allocator may call this one */
    StackSource source{this};       /* guarded by pool_lock, like all below */
    std::map<MempoolId_t, std::unique_ptr<PrivatePool>> pools;
    std::vector<Route> routes;
    std::atomic<size_t> route_count{0};                 /* of routes; read without lock */
    std::atomic<size_t> waiting_count{0};               /* blocks in `waiting` of all pools; read without lock */
    std::map<Block *, std::vector<cudaEvent_t>> events; /* of waiting blocks */

    /* ---- allocation: allocate.cc ---- */

    /* Throws c10::OutOfMemoryError, c10::Error. bytes > 0. */
    void *allocate(size_t bytes, cudaStream_t stream);

    /* ---- frees: free.cc; never throw ---- */

    /* Frees a block that was taken out of the map. */
    void free(Block *block) noexcept;

    /* Tries the deferred frees again. */
    void free_deferred() noexcept;

    /* ---- private pools: pools.cc ---- */

    /* The pool that requests of the stream go to now; NULL: none. pool_lock is held. */
    PrivatePool *route(cudaStream_t stream);

    /* Allocates from the pool that requests of the stream go to now, if there is one; the first tries once. The refusal
     * is the caller's to report, without the lock. */
    Routed try_routed(size_t bytes, cudaStream_t stream, const Context &context);
    Routed allocate_routed(size_t bytes, cudaStream_t stream, const Context &context);

    /* Frees a block of a private pool, or lets it wait for its recorded streams. It was taken out of the map. */
    void free_private(Block *block);

    /* Makes waiting blocks free whose streams have passed them; only outside of captures. pool_lock is held. */
    void free_waiting();

    /* Returns segments without blocks of pools that nothing uses, or of the pool with this id, after the device has
     * finished. Outside of captures. Returns the bytes. */
    size_t release_segments(MempoolId_t id);

    /* pool_lock is held; throws c10::Error. */
    PrivatePool &pool(MempoolId_t id);

    /* ---- the memory fraction: fraction.cc ---- */

    /* Limits Strata's memory and that of programs' allocators together. Throws c10::Error. */
    void set_fraction(double value);

    /* Whether a segment of a program's allocator may be made; gives free memory of Strata's back for it if need be.
     * pool_lock is held, as in the next. */
    bool admits_own(size_t bytes);
    void count_own(size_t made, size_t gone);

    /* ---- out of memory: out_of_memory.cc ---- */

    /* After a request was refused: makes room, or takes from a pool that is there for this case. True: try again. */
    bool make_room(unsigned attempt);
    void *allocate_in_need(size_t bytes, cudaStream_t stream, const Context &context);
    [[noreturn]] void refuse(size_t bytes, strata_status status, const std::string &reason, const Context &context);

    /* ---- statistics and snapshot: statistics.cc, snapshot.cc ---- */

    /* Enters a new block in the map and the statistics; `requested` for the program. Throws std::bad_alloc, and the
     * block's memory is then free. The second makes the block, of memory of the stack. */
    void *enter(Block *block, const Context &context);
    void *enter_memory(const strata_block &memory, const Context &context);

    /* Take a block to fill, and keep one that is in no map any more. lock is held. The first throws std::bad_alloc. */
    Block *take_spare();
    bool keep_spare(Block *block); /* false: the caller deletes it, without the lock */

    void count_allocated(const Block &block); /* lock is held, as in the next four */
    void count_ended(const Block &block);     /* as the next two: freed and inactive at once */
    void count_freed(const Block &block);
    void count_inactive(const Block &block);
    void record(TraceEntry::Action action, const Block &block, const Context &context);

    DeviceStats statistics();
    std::vector<SegmentInfo> segments();
    size_t reserved_bytes();
    int64_t chunks_made() const; /* by the pool; 0 without one */
    void report_to_profiler(const strata_block &memory, bool allocated);
    void count_active_apart(); /* lock is held, as in the next */
    void see_active();

    /* Gives the pool what is left of the fraction; pool_lock is held. */
    bool limit_pool() const;

    /* A named value of the stack; 0: it has none of that name. */
    uint64_t value(const char *name) const;
    bool set_value(const char *name, uint64_t value) const;
};

} // namespace strata_torch

#endif
